#include "worker/cli/run_directory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/folder.h"

TestSuite(run_directory, .timeout = 20);

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/sg-run-directory-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static char *in_folder(const char *name)
{
    return sg_xprintf("%s/%s", folder, name);
}

static void put(const char *name)
{
    char *path = in_folder(name);
    cr_assert_eq(sg_folder_write(path, "x", 1, NULL), SG_OK);
    free(path);
}

static bool is_there(const char *name)
{
    char *path = in_folder(name);
    bool there = access(path, F_OK) == 0;
    free(path);
    return there;
}

Test(run_directory, opening_makes_it_and_removes_what_an_earlier_run_left, .init = make_folder, .fini = remove_folder)
{
    put("run/summary.json");
    put("run/address/ps-0");
    put("run/log/ps-0.log");
    put("run/checkpoints/keep");
    char *run_dir = in_folder("run");
    int fd;
    cr_assert_eq(sg_run_directory_open(run_dir, 0, &fd, NULL), SG_OK);
    cr_assert_not(is_there("run/summary.json"));
    cr_assert_not(is_there("run/address/ps-0"));
    cr_assert_not(is_there("run/log/ps-0.log"));
    cr_assert(is_there("run/checkpoints/keep"));
    close(fd);
    free(run_dir);
}

Test(run_directory, a_second_run_is_refused_until_the_first_has_ended, .init = make_folder, .fini = remove_folder)
{
    int fd, second;
    sg_error err;
    cr_assert_eq(sg_run_directory_open(folder, 0, &fd, NULL), SG_OK);
    put("summary.json");
    cr_assert_eq(sg_run_directory_open(folder, 0, &second, &err), SG_CONFIG);
    cr_assert(strstr(err.message, "is used by another run") != NULL, "%s", err.message);
    cr_assert(is_there("summary.json"), "what the first wrote stays");
    close(fd);
    cr_assert_eq(sg_run_directory_open(folder, 0, &second, NULL), SG_OK);
    close(second);
}

Test(run_directory, a_place_where_none_can_be_made_is_named, .init = make_folder, .fini = remove_folder)
{
    put("file");
    char *run_dir = in_folder("file/run");
    int fd;
    sg_error err;
    cr_assert_eq(sg_run_directory_open(run_dir, 0, &fd, &err), SG_NOT_FOUND);
    cr_assert(strstr(err.message, "file/run") != NULL, "%s", err.message);
    free(run_dir);
}

Test(run_directory, one_that_cannot_be_written_is_told_with_the_flag_for_another, .init = make_folder,
     .fini = remove_folder)
{
    char *lock = in_folder(".lock"), wanted[256];
    int fd;
    sg_error err;
    cr_assert_eq(sg_folder_make(lock, NULL), SG_OK); /* a folder cannot be opened, by root either */
    cr_assert_eq(sg_run_directory_open(folder, 0, &fd, &err), SG_NOT_FOUND);
    snprintf(wanted, sizeof(wanted), "run_dir %s: cannot open %s: Is a directory; choose another one with --run-dir",
             folder, lock);
    cr_assert_str_eq(err.message, wanted);
    free(lock);
}

static void expect_printed(const sg_summary *summary, const char *loss, const char *steps)
{
    char *out = in_folder("out"), text[2048] = "";
    fflush(stdout);
    const int kept = dup(STDOUT_FILENO);
    cr_assert_not_null(freopen(out, "w", stdout));
    cr_assert_eq(sg_run_directory_print(summary, folder, NULL), SG_OK);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    FILE *file = fopen(out, "re");
    cr_assert_not_null(file);
    cr_assert_gt(fread(text, 1, sizeof(text) - 1, file), 0);
    fclose(file);
    free(out);
    cr_assert_not_null(strstr(text, loss), "%s", text);
    cr_assert_not_null(strstr(text, steps), "%s", text);
}

Test(run_directory, the_result_says_over_how_many_steps_its_loss_is_the_mean, .init = make_folder,
     .fini = remove_folder)
{
    sg_summary s = {.mode = "sync", .ps = 1, .workers = 2, .steps = 500, .final_train_loss = 0.5, .loss_steps = 100};
    expect_printed(&s, " 0.5000 (worker 0's mean over its last 100 steps)\n", " 500 (sync, 1 ps, 2 workers)\n");
    s.loss_steps = 20; /* it went on from step 480 */
    expect_printed(&s, " 0.5000 (worker 0's mean over its last 20 steps)\n", " 500 (sync, 1 ps, 2 workers)\n");
    s.loss_steps = 1;
    expect_printed(&s, " 0.5000 (worker 0's, of its only step)\n", " 500 (sync, 1 ps, 2 workers)\n");
}

Test(run_directory, of_a_long_log_the_last_line_is_shown_from_its_beginning, .init = make_folder, .fini = remove_folder)
{
    char *run_dir = in_folder("run"), *path = in_folder("run/log/ps-0.log");
    char log[20000], text[1024];
    memset(log, 'x', sizeof(log));
    for (size_t i = 99; i < sizeof(log) - 1000; i += 100)
        log[i] = '\n';
    memcpy(log + sizeof(log) - 1000, "the_last_line", 13);
    log[sizeof(log) - 1001] = log[sizeof(log) - 1] = '\n';
    cr_assert_eq(sg_folder_write(path, log, sizeof(log), NULL), SG_OK);
    cr_assert(sg_run_directory_describe(run_dir, text, sizeof(text)));
    const char *shown = strstr(text, "logged last: the_last_linexxx");
    cr_assert_not_null(shown, "%s", text);
    cr_assert_null(strchr(shown, '\n'));
    cr_assert_eq(sg_folder_write(path, "one\ntwo\n", 8, NULL), SG_OK);
    cr_assert(sg_run_directory_describe(run_dir, text, sizeof(text)));
    cr_assert_not_null(strstr(text, "logged last: two"), "%s", text);
    free(path);
    free(run_dir);
}
