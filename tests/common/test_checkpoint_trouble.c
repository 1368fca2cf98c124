/* What cannot be read is not damaged, what is damaged is not begun anew, and what failed makes room. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint_fixture.h"
#include "tests/support/paper_disk.h"

#define DIR_PATH "runs/checkpoints"

TestSuite(checkpoint_trouble, .timeout = 60);

/* A disk on which files whose path has `where` in it cannot be opened, or read. */
static struct {
    sg_disk good;
    const char *where;
    int open_error, read_error;
    int ill; /* the open file that cannot be read */
} trouble;

static int bad_open(void *user, const char *path, sg_disk_open how, int *file)
{
    bool is_here = trouble.where != NULL && strstr(path, trouble.where) != NULL;
    if (is_here && trouble.open_error != 0)
        return trouble.open_error;
    int error = trouble.good.open(user, path, how, file);
    if (error == 0 && is_here)
        trouble.ill = *file;
    return error;
}

static int bad_read(void *user, int file, uint64_t offset, void *out, size_t n_bytes, size_t *n_read)
{
    if (trouble.read_error != 0 && file == trouble.ill)
        return trouble.read_error;
    return trouble.good.read(user, file, offset, out, n_bytes, n_read);
}

static const sg_checkpoint_set sets[] = {{100, 1}, {200, 1}};

static sg_checkpoint *open_with_two_sets(paper_disk *paper)
{
    sg_checkpoint *folder;
    sg_error err = {0};
    paper_disk_init(paper);
    trouble.good = paper->disk;
    trouble.where = NULL;
    trouble.ill = -1;
    paper->disk.open = bad_open;
    paper->disk.read = bad_read;
    cr_assert_eq(sg_checkpoint_open(&paper->disk, DIR_PATH, "job", 9, &folder, &err), SG_OK, "%s", err.message);
    for (size_t i = 0; i < SG_ARRAY_LEN(sets); i++)
        cr_assert_eq(fixture_write_set(folder, sets[i], 2, 256, &err), SG_OK, "%s", err.message);
    return folder;
}

static void close_folder(sg_checkpoint *folder, paper_disk *paper)
{
    sg_checkpoint_close(folder);
    paper_disk_deinit(paper);
}

static void expect_told(const sg_checkpoint *folder, int error)
{
    sg_checkpoint_set chosen;
    sg_checkpoint_reader *reader;
    size_t n_removed = 9;
    sg_error err = {0};
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_IO, "%s", err.message);
    cr_assert(strstr(err.message, trouble.where) != NULL && strstr(err.message, strerror(error)) != NULL, "%s",
              err.message);
    cr_assert_eq(sg_checkpoint_prune(folder, 1, (sg_checkpoint_set){0}, &n_removed, &err), SG_IO, "%s", err.message);
    cr_assert_eq(n_removed, 0);
    cr_assert_eq(sg_checkpoint_reader_open(folder, sets[1], &reader, &err), SG_IO, "%s", err.message);
}

Test(checkpoint_trouble, a_file_that_cannot_be_read_now_is_an_error_and_not_a_damaged_checkpoint)
{
    static const int errors[] = {EIO, EACCES, EPERM, ESTALE, ETIMEDOUT, ENOLCK, EREMOTEIO};
    static const char *const files[] = {"step-000000000200-g1/manifest.json", "step-000000000200-g1/ps-1.safetensors"};
    paper_disk paper;
    sg_checkpoint *folder = open_with_two_sets(&paper);
    for (size_t i = 0; i < 2 * SG_ARRAY_LEN(errors) * SG_ARRAY_LEN(files); i++) {
        int error = errors[i / 2 % SG_ARRAY_LEN(errors)];
        trouble.where = files[i / 2 / SG_ARRAY_LEN(errors)];
        trouble.open_error = i % 2 == 0 ? error : 0;
        trouble.read_error = i % 2 == 1 ? error : 0;
        trouble.ill = -1;
        expect_told(folder, error);
    }
    trouble.where = NULL;
    trouble.ill = -1;
    fixture_expect_set(folder, sets[0], 2, 256);
    fixture_expect_set(folder, sets[1], 2, 256);
    close_folder(folder, &paper);
}

static int bad_list(void *user, const char *path, bool (*each)(void *user, const char *name), void *each_user)
{
    (void)user, (void)path, (void)each, (void)each_user;
    return EIO;
}

Test(checkpoint_trouble, a_folder_that_cannot_be_listed_is_not_taken_for_an_empty_one)
{
    paper_disk paper;
    sg_checkpoint_set chosen;
    uint64_t highest;
    sg_error err = {0};
    sg_checkpoint *folder = open_with_two_sets(&paper);
    paper.disk.list = bad_list;
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_IO, "%s", err.message);
    cr_assert_eq(sg_checkpoint_recorded(folder, &highest, &err), SG_IO, "%s", err.message);
    cr_assert_not_null(strstr(err.message, DIR_PATH), "%s", err.message);
    close_folder(folder, &paper);
}

Test(checkpoint_trouble, a_part_that_is_missing_makes_a_set_a_damaged_one)
{
    paper_disk paper;
    sg_checkpoint_set chosen;
    sg_checkpoint_found *skipped;
    sg_checkpoint_reader *reader;
    size_t n;
    sg_error err = {0};
    sg_checkpoint *folder = open_with_two_sets(&paper);
    cr_assert_eq(paper.disk.remove(&paper, DIR_PATH "/step-000000000200-g1/ps-1.safetensors"), 0);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, &skipped, &n, &err), SG_OK, "%s", err.message);
    cr_assert(sg_checkpoint_set_equal(chosen, sets[0]));
    cr_assert(n == 1 && skipped[0].state == SG_CHECKPOINT_DAMAGED);
    cr_assert_not_null(strstr(skipped[0].why.message, "ps-1.safetensors is missing"), "%s", skipped[0].why.message);
    free(skipped);
    cr_assert_eq(sg_checkpoint_reader_open(folder, sets[1], &reader, &err), SG_DATA, "%s", err.message);
    close_folder(folder, &paper);
}

Test(checkpoint_trouble, where_all_that_were_complete_are_damaged_nothing_is_begun_anew_in_silence)
{
    paper_disk paper;
    sg_checkpoint_set chosen;
    sg_checkpoint_found *skipped;
    size_t n;
    sg_error err = {0};
    sg_checkpoint *folder = open_with_two_sets(&paper);
    paper_disk_flip(&paper, DIR_PATH "/step-000000000100-g1/manifest.json", 40);
    paper_disk_truncate(&paper, DIR_PATH "/step-000000000200-g1/ps-0.safetensors", 100);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, &skipped, &n, &err), SG_DATA, "%s", err.message);
    cr_assert(strstr(err.message, "step-000000000200-g1/ps-0.safetensors") != NULL &&
                  strstr(err.message, "are damaged (2)") != NULL && strstr(err.message, "restore: none") != NULL,
              "%s", err.message);
    close_folder(folder, &paper);
}

Test(checkpoint_trouble, where_none_was_ever_complete_the_beginning_is_the_place_to_start)
{
    paper_disk paper;
    sg_checkpoint *folder;
    sg_checkpoint_set chosen = {7, 7};
    sg_checkpoint_part part;
    sg_error err = {0};
    paper_disk_init(&paper);
    cr_assert_eq(sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 9, &folder, &err), SG_OK, "%s", err.message);
    sg_plan *plan = fixture_plan(2, 256);
    cr_assert_eq(fixture_write_part(folder, (sg_checkpoint_set){0, 1}, plan, 0, &part, &err), SG_OK, "%s", err.message);
    sg_plan_destroy(plan);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert_eq(chosen.generation, 0);
    close_folder(folder, &paper);
}

/* --- on a real disk -------------------------------------------------------------------------------------------------
 */

Test(checkpoint_trouble, what_is_no_plain_file_is_refused_and_not_waited_for)
{
    char dir[] = "/tmp/sg-checkpoint-XXXXXX", command[64];
    sg_checkpoint *folder;
    sg_checkpoint_set chosen;
    sg_checkpoint_found *skipped;
    size_t n;
    sg_error err = {0};
    cr_assert_not_null(mkdtemp(dir));
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, dir, "job", 9, &folder, &err), SG_OK, "%s", err.message);
    for (size_t i = 0; i < SG_ARRAY_LEN(sets); i++)
        cr_assert_eq(fixture_write_set(folder, sets[i], 2, 256, &err), SG_OK, "%s", err.message);
    static const char *const files[] = {"ps-1.safetensors", "manifest.json"};
    for (size_t i = 0; i < SG_ARRAY_LEN(files); i++) {
        char *path = sg_xprintf("%s/step-000000000200-g1/%s", dir, files[i]);
        cr_assert_eq(remove(path), 0);
        cr_assert_eq(mkfifo(path, 0600), 0);
        cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, &skipped, &n, &err), SG_OK, "%s", err.message);
        cr_assert(sg_checkpoint_set_equal(chosen, sets[0]));
        cr_assert(n == 1 && skipped[0].state == SG_CHECKPOINT_DAMAGED);
        cr_assert(strstr(skipped[0].why.message, files[i]) != NULL &&
                      strstr(skipped[0].why.message, "no plain file") != NULL,
                  "%s", skipped[0].why.message);
        free(skipped);
        free(path);
    }
    char *record = sg_xprintf("%s/generation-000001.json", dir);
    cr_assert_eq(mkfifo(record, 0600), 0);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_DATA, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "generation-000001.json"), "%s", err.message);
    free(record);
    sg_checkpoint_close(folder);
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}
