#include "worker/cli/evaluations.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(evaluations, .timeout = 20);

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/sg-evaluations-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    sg_summary summary = {.mode = "sync"};
    cr_assert_eq(sg_summary_write(&summary, folder, NULL), SG_OK);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

/* What summary.json then names, in one line. */
static void expect(const sg_evaluations *e, const char *wanted)
{
    char path[128];
    cr_assert_eq(sg_evaluations_write(e, folder, NULL), SG_OK);
    snprintf(path, sizeof(path), "%s/summary.json", folder);
    json_t *root = json_load_file(path, 0, NULL);
    cr_assert_not_null(root);
    char *found = json_dumps(json_object_get(root, "evaluations"), JSON_COMPACT | JSON_REAL_PRECISION(6));
    cr_assert_str_eq(found, wanted);
    free(found);
    json_decref(root);
    sg_summary summary;
    cr_assert_eq(sg_summary_read(folder, &summary, NULL), SG_OK, "it is a summary as before");
}

Test(evaluations, parts_are_added_up_and_count_when_they_are_the_whole, .init = make_folder, .fini = remove_folder)
{
    sg_evaluations e = {0};
    expect(&e, "[]");
    sg_evaluations_take_line(&e, "worker-0", "tested generation=1 iteration=20 examples=30 of=40 correct=15 loss=1");
    sg_evaluations_take_line(&e, "worker-1", "tested generation=1 iteration=10 examples=10 of=40 correct=10 loss=2");
    expect(&e, "[]");
    sg_evaluations_take_line(&e, "worker-1", "tested generation=1 iteration=20 examples=10 of=40 correct=5 loss=3");
    expect(&e, "[{\"step\":20,\"test_accuracy\":0.5,\"test_loss\":1.5}]");
    sg_evaluations_take_line(&e, "worker-7", "tested generation=1 iteration=10 examples=30 of=40 correct=20 loss=2");
    expect(&e, "[{\"step\":10,\"test_accuracy\":0.75,\"test_loss\":2.0},"
               "{\"step\":20,\"test_accuracy\":0.5,\"test_loss\":1.5}]");
    sg_evaluations_deinit(&e);
}

static const sg_tested half = {.examples = 4, .of = 8, .correct = 1, .loss = 1};
static const sg_tested better_half = {.examples = 4, .of = 8, .correct = 3, .loss = 2};

Test(evaluations, what_is_tested_again_takes_the_place_of_what_was, .init = make_folder, .fini = remove_folder)
{
    sg_evaluations e = {0};
    sg_evaluations_take(&e, 0, 1, 5, &half);
    sg_evaluations_take(&e, 1, 1, 5, &half);
    sg_evaluations_take(&e, 0, 1, 5, &better_half);
    expect(&e, "[{\"step\":5,\"test_accuracy\":0.5,\"test_loss\":1.5}]");
    sg_evaluations_take(&e, 1, 1, 5, &better_half);
    expect(&e, "[{\"step\":5,\"test_accuracy\":0.75,\"test_loss\":2.0}]");
    sg_evaluations_deinit(&e);
}

/* Worker 1 told of its part before the job went back, and worker 0 only afterwards. */
Test(evaluations, two_generations_are_not_mixed, .init = make_folder, .fini = remove_folder)
{
    sg_evaluations e = {0};
    sg_evaluations_take(&e, 1, 1, 5, &half);
    sg_evaluations_take(&e, 0, 2, 5, &better_half);
    expect(&e, "[]");
    sg_evaluations_take(&e, 1, 1, 5, &half);
    expect(&e, "[]");
    sg_evaluations_take(&e, 1, 2, 5, &better_half);
    expect(&e, "[{\"step\":5,\"test_accuracy\":0.75,\"test_loss\":2.0}]");
    sg_evaluations_take(&e, 0, 3, 5, &(sg_tested){.examples = 8, .of = 8, .correct = 8, .loss = 0});
    expect(&e, "[{\"step\":5,\"test_accuracy\":1.0,\"test_loss\":0.0}]");
    sg_evaluations_deinit(&e);
}

Test(evaluations, other_lines_are_left_alone, .init = make_folder, .fini = remove_folder)
{
    sg_evaluations e = {0};
    sg_evaluations_take_line(&e, "ps-0", "tested generation=1 iteration=5 examples=8 of=8 correct=8 loss=0");
    sg_evaluations_take_line(&e, "worker-0", "tested generation=1 iteration=5 examples=9 of=8 correct=8 loss=0");
    sg_evaluations_take_line(&e, "worker-0", "tested generation=1 iteration=5 examples=8 of=8");
    sg_evaluations_take_line(&e, "worker-99999", "tested generation=1 iteration=5 examples=8 of=8 correct=8 loss=0");
    sg_evaluations_take_line(&e, "worker-0", "epoch begun=2 step=469 steps=2345 loss=0.5");
    cr_assert_eq(e.n, 0u);
    sg_evaluations_take(&e, 0, 1, 5, &(sg_tested){.examples = 8, .of = 8, .loss = 1.0f / 0.0f});
    expect(&e, "[{\"step\":5,\"test_accuracy\":0.0,\"test_loss\":null}]");
    sg_evaluations_deinit(&e);
}
