#include "worker/train/workload.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/train/fixture.h"
#include "worker/train/evaluate.h"

TestSuite(workload, .timeout = 20);

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    cr_assert_eq(fclose(file), 0);
}

static sg_workload *create(const job *j)
{
    sg_workload *w;
    sg_error err = {0};
    cr_assert_eq(sg_workload_create(j->config, true, &w, &err), SG_OK, "%s", err.message);
    return w;
}

Test(workload, steps_follow_from_examples_batch_and_epochs_unless_the_file_says)
{
    sg_config config = {0};
    config.train.batch = 32;
    config.train.epochs = 5;
    cr_assert_eq(sg_workload_steps_per_epoch(&config, 100), 4);
    cr_assert_eq(sg_workload_steps_per_epoch(&config, 96), 3);
    cr_assert_eq(sg_workload_total_steps(&config, 100), 20);
    config.train.steps = 7;
    cr_assert_eq(sg_workload_total_steps(&config, 100), 7);
}

Test(workload, the_short_batch_of_each_epoch_is_counted)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w = create(&j);
    const uint64_t wanted[] = {0, 32, 64, 96, 100, 132};
    for (uint64_t i = 0; i < SG_ARRAY_LEN(wanted); i++)
        cr_assert_eq(sg_workload_examples(w, i), wanted[i]);
    cr_assert_eq(sg_workload_examples(w, 20), 500);
    sg_workload_destroy(w);
    job_deinit(&j);
}

Test(workload, the_hash_is_a_function_of_the_values)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *a = create(&j), *b = create(&j);
    char of_a[SG_WORKLOAD_HASH_BYTES], of_b[SG_WORKLOAD_HASH_BYTES];
    sg_workload_hash(a, of_a);
    sg_workload_hash(b, of_b);
    cr_assert_str_eq(of_a, of_b);
    cr_assert_eq(strlen(of_a), 64);
    b->model->variables[b->model->n_variables - 1].value[9] += 1;
    sg_workload_hash(b, of_b);
    cr_assert_str_neq(of_a, of_b);
    sg_workload_destroy(a);
    sg_workload_destroy(b);
    job_deinit(&j);
}

/* The hash of one variable "abc" would be that of its bytes: known from FIPS 180-2. */
Test(workload, the_hash_is_sha_256_of_the_bytes)
{
    float value;
    memcpy(&value, "abcd", 4);
    sg_variable variable = {.name = "v", .value = &value};
    sg_model model = {.variables = &variable, .n_variables = 1};
    sg_workload w = {.model = &model};
    char hash[SG_WORKLOAD_HASH_BYTES];
    sg_workload_hash(&w, hash);
    cr_assert_str_eq(hash, "88d4266fd4e6338d13b845fcf289579d209c897823b9217da3e161936f031589");
}

Test(workload, the_parts_of_a_batch_add_up_to_the_whole)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w = create(&j);
    sg_step whole = {.number = 3, .size = 1}; /* the short batch, 4 examples */
    cr_assert_eq(sg_workload_gradient(w, &whole, 4, NULL, NULL), SG_OK);
    cr_assert_eq(whole.examples, 4);
    uint64_t examples = 0;
    double loss = 0;
    for (uint32_t rank = 0; rank < 3; rank++) {
        sg_step part = {.number = 3, .rank = rank, .size = 3};
        cr_assert_eq(sg_workload_gradient(w, &part, 4, NULL, NULL), SG_OK);
        examples += part.examples;
        loss += (double)part.loss * (double)part.examples;
    }
    cr_assert_eq(examples, 4);
    cr_assert_float_eq(loss / 4, whole.loss, 1e-5);
    sg_workload_destroy(w);
    job_deinit(&j);
}

Test(workload, more_workers_than_rows_leaves_some_without_and_with_gradients_of_zero)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w = create(&j);
    sg_step none = {.number = 3, .rank = 0, .size = 5, .loss = 7, .examples = 7};
    cr_assert_eq(sg_workload_gradient(w, &none, 4, NULL, NULL), SG_OK);
    cr_assert_eq(none.examples, 0);
    cr_assert_eq(none.loss, 0);
    for (size_t i = 0; i < w->model->n_variables; i++)
        for (size_t e = 0; e < sg_workload_n_elems(&w->model->variables[i]); e++)
            cr_assert_eq(w->model->variables[i].gradient[e], 0);
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* Of the first batch, and of an evaluation, with the initial values. */
static void losses(const char *smoothing, double *trained, double *tested)
{
    job j;
    job_init(&j, "", (const char *[]){smoothing, NULL});
    sg_workload *w = create(&j);
    sg_step step = {.number = 0, .size = 1};
    sg_tested whole;
    cr_assert_eq(sg_workload_gradient(w, &step, 1, NULL, NULL), SG_OK);
    cr_assert_eq(sg_evaluate_part(w, 0, 1, &whole, NULL), SG_OK);
    *trained = (double)step.loss;
    *tested = (double)whole.loss;
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* The loss of training is linear in the smoothing. */
Test(workload, labels_are_smoothed_in_training_and_not_in_tests)
{
    double plain, half, most, tested[3];
    losses("train.label_smoothing=0", &plain, &tested[0]);
    losses("train.label_smoothing=0.4", &half, &tested[1]);
    losses("train.label_smoothing=0.8", &most, &tested[2]);
    cr_assert(fabs(half - plain) > 1e-4, "smoothing changes nothing: %g", half);
    cr_assert_float_eq(half, (plain + most) / 2, 1e-5);
    cr_assert(tested[0] == tested[1] && tested[0] == tested[2], "a test is of the labels as they are");
}

Test(workload, evaluation_sees_every_test_example_and_can_be_stopped)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w = create(&j);
    double accuracy;
    cr_assert_eq(sg_evaluate_accuracy(w, &accuracy, NULL), SG_OK);
    cr_assert_float_eq(accuracy * 50, round(accuracy * 50), 1e-9, "a multiple of 1/50");
    sg_workload_stop(w);
    cr_assert_eq(sg_evaluate_accuracy(w, &accuracy, NULL), SG_CANCELLED);
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* Of the arena after steps of a worker of `size`, and after an evaluation by `testers`. */
static void expect_no_more_memory(const char *const *sets, uint32_t size, uint32_t testers)
{
    job j;
    job_init(&j, "", sets);
    sg_workload *w = create(&j);
    sg_tested part;
    for (uint64_t i = 0; i < 3; i++) {
        sg_step step = {.number = i, .size = size};
        cr_assert_eq(sg_workload_gradient(w, &step, i + 1, NULL, NULL), SG_OK);
    }
    const size_t trained_bytes = sg_tape_get_stats(w->tape).capacity_bytes;
    cr_assert_eq(sg_evaluate_part(w, testers - 1, testers, &part, NULL), SG_OK);
    const size_t tested_bytes = sg_tape_get_stats(w->tape).capacity_bytes;
    cr_assert_eq(tested_bytes, trained_bytes, "%s: %zu bytes after training, %zu after an evaluation", sets[0],
                 trained_bytes, tested_bytes);
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* A pass over all of the 50 test examples would need 20 times as much. */
Test(workload, an_evaluation_needs_no_more_memory_than_a_step)
{
    expect_no_more_memory((const char *[]){"train.batch=4", "model.hidden=[2000]", NULL}, 1, 1);
    expect_no_more_memory((const char *[]){"train.batch=8", "model.hidden=[2000]", "workers=3", NULL}, 2, 1);
    expect_no_more_memory((const char *[]){"train.batch=8", "model.hidden=[2000]", "workers=2", NULL}, 2, 2);
    expect_no_more_memory(
        (const char *[]){"train.batch=4", "model.hidden=[2000]", "workers=2", "update.mode=async", NULL}, 1, 1);
}

Test(workload, the_parts_of_an_evaluation_are_every_test_example_once)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w = create(&j);
    sg_tested whole, part;
    cr_assert_eq(sg_evaluate_part(w, 0, 1, &whole, NULL), SG_OK);
    cr_assert(whole.examples == 50 && whole.of == 50);
    for (uint32_t size = 2; size <= 60; size += 29) {
        uint64_t examples = 0, correct = 0;
        double loss = 0;
        for (uint32_t rank = 0; rank < size; rank++) {
            cr_assert_eq(sg_evaluate_part(w, rank, size, &part, NULL), SG_OK);
            cr_assert_eq(part.of, 50);
            examples += part.examples;
            correct += part.correct;
            loss += (double)part.loss * (double)part.examples;
        }
        cr_assert(examples == 50 && correct == whole.correct, "%u workers", size);
        cr_assert_float_eq(loss / 50, whole.loss, 1e-5);
    }
    sg_workload_destroy(w);
    job_deinit(&j);
}

Test(workload, an_evaluation_is_due_by_steps_or_epochs_but_not_at_either_end)
{
    job j;
    job_init(&j, "", (const char *[]){"train.test_every_steps=6", "train.test_every_epochs=2", NULL});
    sg_workload *w = create(&j); /* 20 steps, 4 an epoch */
    for (uint64_t i = 0; i <= 24; i++)
        cr_assert_eq(sg_evaluate_is_due(w, i), i == 6 || i == 8 || i == 12 || i == 16 || i == 18, "%d", (int)i);
    cr_assert(sg_workload_needs_test(j.config, 1));
    sg_workload_destroy(w);
    job_deinit(&j);
    job_init(&j, "", NULL);
    cr_assert(sg_workload_needs_test(j.config, 0) && !sg_workload_needs_test(j.config, 1));
    job_deinit(&j);
}

Test(workload, a_test_set_of_another_image_size_is_wrong_data)
{
    job j;
    job_init(&j, "", NULL);
    char path[96];
    snprintf(path, sizeof(path), "%s/test-images", j.folder);
    FILE *file = fopen(path, "wb");
    static const uint8_t header[] = {0, 0, 8, 3, 0, 0, 0, 50, 0, 0, 0, 1, 0, 0, 0, 1};
    fwrite(header, 1, sizeof(header), file);
    fwrite((uint8_t[50]){0}, 1, 50, file);
    fclose(file);
    sg_workload *w;
    sg_error err;
    cr_assert_eq(sg_workload_create(j.config, true, &w, &err), SG_DATA);
    cr_assert(strstr(err.message, "test-images") != NULL, "%s", err.message);
    cr_assert_eq(sg_workload_create(j.config, false, &w, &err), SG_OK, "who does not evaluate does not care");
    sg_workload_destroy(w);
    job_deinit(&j);
}

/* Whether the model fits is known without an example, so that even absurdly many are no matter. */
Test(workload, a_model_is_checked_without_making_up_the_examples)
{
    job j;
    job_init(&j, "",
             (const char *[]){"data.format=synthetic", "data.train_images=", "data.train_labels=", "data.test_images=",
                              "data.test_labels=", "data.shape=[1,2,2]", "data.train_rows=4294967295",
                              "update.rule=average", NULL});
    sg_error err = {0};
    cr_assert_eq(sg_workload_check(j.config, &err), SG_OK, "%s", err.message);
    j.config->data.crop = 2;
    cr_assert_eq(sg_workload_check(j.config, &err), SG_CONFIG);
    cr_assert(strstr(err.message, "data.crop is 2; wanted less than the 2 x 2 pixels") != NULL, "%s", err.message);
    j.config->data.crop = 0;
    char *name = j.config->model.name;
    j.config->model.name = (char[]){"lenet"};
    cr_assert_eq(sg_workload_check(j.config, &err), SG_CONFIG);
    j.config->model.name = name;
    sg_workload *w;
    cr_assert_eq(sg_workload_create(j.config, false, &w, &err), SG_CONFIG, "the built-in trainer pushes no values");
    cr_assert(strstr(err.message, "average is for trainers of your own") != NULL, "%s", err.message);
    job_deinit(&j);
}

/* --- hooks ----------------------------------------------------------------------------------------------------- */

typedef struct course {
    char text[128]; /* what was called: r0 r1 ... loss f3 x2 (x: left out) ... */
    const char *fails_at;
    sg_workload *spoils; /* whose last layer's weights become infinite between the passes */
} course;

static sg_status note(course *c, const char *what, sg_error *err)
{
    strcat(strcat(c->text, c->text[0] ? " " : ""), what);
    return c->fails_at != NULL && strcmp(c->fails_at, what) == 0 ? sg_error_set(err, SG_STOPPED, "at %s", what) : SG_OK;
}

static sg_status note_read(void *user, const sg_range *part, sg_error *err)
{
    cr_assert(part->first_elem == 0 && part->n_elems > 0);
    return note(user, (char[]){'r', (char)('0' + part->variable), 0}, err);
}

static sg_status note_loss(void *user, const sg_step *step, sg_error *err)
{
    course *c = user;
    cr_assert_eq(step->examples, 32);
    cr_assert_neq(step->loss, 7);
    for (size_t i = 0; c->spoils != NULL && i < 80; i++)
        c->spoils->model->variables[c->spoils->model->n_variables - 2].value[i] = INFINITY;
    return note(c, "loss", err);
}

static sg_status note_final(void *user, const sg_range *part, bool left_out, sg_error *err)
{
    return note(user, (char[]){left_out ? 'x' : 'f', (char)('0' + part->variable), 0}, err);
}

static void expect_course(const job *j, course *c, float first_value, sg_status wanted, const char *text)
{
    sg_workload *w = create(j);
    w->model->variables[0].value[0] = first_value;
    if (c->spoils != NULL)
        c->spoils = w;
    sg_step step = {.size = 1, .loss = 7};
    sg_error err = {0};
    sg_workload_hooks hooks = {.before_read = note_read, .on_loss = note_loss, .on_final = note_final, .user = c};
    cr_assert_eq(sg_workload_gradient(w, &step, 1, &hooks, &err), wanted, "%s", err.message);
    cr_assert_str_eq(c->text, text);
    cr_assert_eq(w->non_finite_steps, strchr(text, 'x') != NULL);
    if (wanted != SG_OK)
        cr_assert_eq(strcmp(err.message + strlen("at "), c->fails_at), 0, "%s", err.message);
    *c = (course){.text = ""};
    cr_assert(wanted == SG_OK || sg_workload_gradient(w, &step, 1, NULL, &err) == SG_OK, "one step's failure stayed");
    cr_assert_str_eq(c->text, "", "hooks of the step before were called");
    sg_workload_destroy(w);
}

Test(workload, variables_are_read_in_order_and_handed_out_layer_by_layer)
{
    job j;
    job_init(&j, "", NULL);
    course c = {.text = ""};
    expect_course(&j, &c, 0, SG_OK, "r0 r1 r2 r3 loss f1 f0 f3 f2");
    job_deinit(&j);
}

Test(workload, the_first_hook_that_fails_ends_the_step)
{
    job j;
    job_init(&j, "", NULL);
    course c = {.fails_at = "r1"};
    expect_course(&j, &c, 0, SG_STOPPED, "r0 r1");
    c = (course){.fails_at = "loss"};
    expect_course(&j, &c, 0, SG_STOPPED, "r0 r1 r2 r3 loss");
    c = (course){.fails_at = "f0"};
    expect_course(&j, &c, 0, SG_STOPPED, "r0 r1 r2 r3 loss f1 f0");
    job_deinit(&j);
}

/* What goes back through infinite weights is not finite; the gradients of these weights are. */
Test(workload, what_is_not_finite_is_left_out_and_all_that_comes_after_it)
{
    job j;
    job_init(&j, "", NULL);
    course c = {.text = ""};
    expect_course(&j, &c, NAN, SG_OK, "r0 r1 r2 r3 loss x1 x0 x3 x2");
    job_deinit(&j);
    job_init(&j, "", (const char *const[]){"model.hidden=[8, 8]", NULL});
    sg_workload any;
    c = (course){.spoils = &any};
    expect_course(&j, &c, 0, SG_OK, "r0 r1 r2 r3 r4 r5 loss f5 f4 x1 x0 x3 x2");
    job_deinit(&j);
    job_init(&j, "update: {non_finite: apply}\n", NULL);
    expect_course(&j, &c, NAN, SG_OK, "r0 r1 r2 r3 loss f1 f0 f3 f2");
    job_deinit(&j);
}

Test(workload, a_test_set_of_another_width_is_found_by_the_check_too)
{
    char folder[] = "/tmp/sg-workload-XXXXXX", train[64], test[64], set_train[96], set_test[96];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(train, sizeof train, "%s/train.csv", folder);
    snprintf(test, sizeof test, "%s/test.csv", folder);
    snprintf(set_train, sizeof set_train, "data.train=[\"%s\"]", train);
    snprintf(set_test, sizeof set_test, "data.test=[\"%s\"]", test);
    write_text(train, "0,1,2,3\n1,4,5,6\n");
    write_text(test, "0,1,2\n1,4,5\n");
    job j;
    job_init(&j, "",
             (const char *[]){"data.format=csv", "data.train_images=", "data.train_labels=", "data.test_images=",
                              "data.test_labels=", set_train, set_test, NULL});
    sg_error err = {0};
    cr_assert_eq(sg_workload_check(j.config, &err), SG_DATA);
    cr_assert(strstr(err.message, "examples of 2 features, but those of") != NULL, "%s", err.message);
    write_text(test, "0,1,2,3\n");
    cr_assert_eq(sg_workload_check(j.config, &err), SG_OK, "%s", err.message);
    job_deinit(&j);
    unlink(train);
    unlink(test);
    rmdir(folder);
}
