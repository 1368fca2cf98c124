#include "worker/cli/restart.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint.h"
#include "worker/cli/checkpoints.h"

static char dir[64];
static sg_config *config;

static void load(const char *restore, const char *checkpoints)
{
    char *text = sg_xprintf("job: x\nrestore: %s\ncheckpoint: {dir: \"%s\"}\n", restore, checkpoints);
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "test.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    free(text);
}

static void prepare(void)
{
    strcpy(dir, "/tmp/sg-restart-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
}

static void clean_up(void)
{
    char command[128];
    sg_config_destroy(config);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(restart, .timeout = 20, .init = prepare, .fini = clean_up);

static void record(uint64_t generation)
{
    sg_checkpoint *folder;
    sg_error err = {0};
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, dir, "x", 5, &folder, &err), SG_OK, "%s", err.message);
    sg_checkpoint_record what = {.generation = generation, .life = 7};
    cr_assert_eq(sg_checkpoint_record_create(folder, &what, &err), SG_OK, "%s", err.message);
    sg_checkpoint_close(folder);
}

static void make_checkpoint(void)
{
    sg_checkpoint *folder;
    sg_checkpoint_set set;
    sg_model *model;
    sg_error err = {0};
    const sg_model_options options = {.name = "mlp", .inputs = 4, .classes = 2};
    cr_assert_eq(sg_model_create(&options, &model, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, dir, "x", 5, &folder, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_checkpoints_import(folder, config, model, false, &set, &err), SG_OK, "%s", err.message);
    sg_checkpoint_close(folder);
    sg_model_destroy(model);
}

static void expect_latest(const sg_restart *restart)
{
    const char *const *words = sg_restart_words(restart);
    cr_assert_not_null(words);
    cr_assert_str_eq(words[0], "--set");
    cr_assert_str_eq(words[1], "restore=latest");
    cr_assert_null(words[2]);
}

Test(restart, a_job_that_has_begun_goes_on_from_its_newest_checkpoint_whatever_it_was_told_to_begin_with)
{
    static const char *const told[] = {"none", "40"};
    for (uint64_t i = 0; i < SG_ARRAY_LEN(told); i++) {
        sg_restart restart;
        load(told[i], dir);
        sg_restart_init(&restart, config);
        cr_assert_null(sg_restart_words(&restart), "it has not begun: what an earlier job left is not its own");
        record(i + 1);
        expect_latest(&restart);
        sg_config_destroy(config);
        config = NULL;
    }
}

Test(restart, a_job_that_goes_on_from_the_newest_anyway_or_has_no_checkpoints_is_told_nothing)
{
    const char *const told[][2] = {{"latest", dir}, {"none", ""}};
    for (size_t i = 0; i < SG_ARRAY_LEN(told); i++) {
        sg_restart restart;
        load(told[i][0], told[i][1]);
        sg_restart_init(&restart, config);
        record(i + 1);
        cr_assert_null(sg_restart_words(&restart));
        sg_config_destroy(config);
        config = NULL;
    }
}

Test(restart, where_the_records_cannot_be_read_nothing_is_thrown_away)
{
    sg_restart restart;
    load("none", dir);
    sg_restart_init(&restart, config);
    record(1);
    char *path = sg_xprintf("%s/shardgrad.json", dir);
    FILE *marker = fopen(path, "w");
    cr_assert_not_null(marker);
    fputs("{", marker);
    fclose(marker);
    free(path);
    expect_latest(&restart);
}

Test(restart, a_job_that_was_stopped_goes_on_only_where_there_is_a_checkpoint)
{
    load("latest", dir);
    cr_assert_not(sg_restart_has_checkpoint(config), "the folder is empty");
    record(1);
    cr_assert_not(sg_restart_has_checkpoint(config), "it has begun, and made none yet");
    make_checkpoint();
    cr_assert(sg_restart_has_checkpoint(config));
}
