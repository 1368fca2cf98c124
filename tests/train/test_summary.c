#include "worker/train/summary.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/folder.h"

TestSuite(summary, .timeout = 20);

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/sg-summary-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static sg_summary example(void)
{
    sg_summary s = {.mode = "async",
                    .ps = 2,
                    .workers = 3,
                    .steps = 2345,
                    .seconds = 12.5,
                    .examples_per_second = 24000.25,
                    .final_train_loss = 0.25,
                    .loss_steps = 42,
                    .test_accuracy = 0.8875,
                    .non_finite_steps = 7,
                    .diverged = true,
                    .version = "0.1.0"};
    memset(s.parameters_sha256, 'a', 64);
    memset(s.initial_parameters_sha256, 'b', 64);
    return s;
}

Test(summary, what_is_written_is_read, .init = make_folder, .fini = remove_folder)
{
    sg_summary written = example(), read;
    cr_assert_eq(sg_summary_write(&written, folder, NULL), SG_OK);
    cr_assert_eq(sg_summary_read(folder, &read, NULL), SG_OK);
    cr_assert_str_eq(read.mode, "async");
    cr_assert(read.ps == 2 && read.workers == 3 && read.steps == 2345);
    cr_assert(read.seconds == 12.5 && read.examples_per_second == 24000.25);
    cr_assert(read.final_train_loss == 0.25 && read.loss_steps == 42 && read.test_accuracy == 0.8875);
    cr_assert_str_eq(read.parameters_sha256, written.parameters_sha256);
    cr_assert_str_eq(read.initial_parameters_sha256, written.initial_parameters_sha256);
    cr_assert(read.non_finite_steps == 7 && read.diverged);
    cr_assert_str_eq(read.version, "0.1.0");
}

Test(summary, what_could_not_be_written_is_read_from_its_line)
{
    sg_summary written = example(), read;
    char *line = sg_summary_line(&written);
    cr_assert_null(strpbrk(line, " \n"));
    cr_assert_eq(sg_summary_from_line(line, &read, NULL), SG_OK);
    cr_assert(read.steps == 2345 && read.test_accuracy == 0.8875 && read.diverged);
    cr_assert_str_eq(read.parameters_sha256, written.parameters_sha256);
    line[strlen(line) / 2] = '\0';
    cr_assert_eq(sg_summary_from_line(line, &read, NULL), SG_DATA);
    free(line);
}

Test(summary, a_loss_that_is_not_finite_is_null, .init = make_folder, .fini = remove_folder)
{
    sg_summary written = example(), read;
    written.final_train_loss = NAN;
    cr_assert_eq(sg_summary_write(&written, folder, NULL), SG_OK);
    cr_assert_eq(sg_summary_read(folder, &read, NULL), SG_OK);
    cr_assert(isnan(read.final_train_loss));
}

Test(summary, a_missing_or_strange_file_is_told, .init = make_folder, .fini = remove_folder)
{
    sg_summary s;
    sg_error err;
    cr_assert_eq(sg_summary_read(folder, &s, &err), SG_NOT_FOUND);
    char *path = sg_xprintf("%s/summary.json", folder);
    const char *const texts[] = {"", "{", "[]", "{}", "{\"mode\": 1}"};
    for (size_t i = 0; i < SG_ARRAY_LEN(texts); i++) {
        cr_assert_eq(sg_folder_write(path, texts[i], strlen(texts[i]), NULL), SG_OK);
        cr_assert_eq(sg_summary_read(folder, &s, &err), SG_DATA, "'%s'", texts[i]);
        cr_assert(strstr(err.message, path) != NULL, "%s", err.message);
    }
    free(path);
}

Test(summary, the_mean_loss_is_over_the_newest_steps_and_weighted_by_examples)
{
    sg_summary_losses losses = {0};
    cr_assert(isnan(sg_summary_losses_mean(&losses)));
    sg_summary_losses_add(&losses, 1, 30);
    sg_summary_losses_add(&losses, 4, 10);
    sg_summary_losses_add(&losses, 1000, 0);
    cr_assert_float_eq(sg_summary_losses_mean(&losses), 1.75, 1e-12);
    for (size_t i = 0; i < SG_SUMMARY_LOSSES; i++)
        sg_summary_losses_add(&losses, 2, 5);
    cr_assert_float_eq(sg_summary_losses_mean(&losses), 2, 1e-12);
}
