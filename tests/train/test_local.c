#include "worker/train/local.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "tests/train/fixture.h"

TestSuite(local, .timeout = 20);

typedef struct watch {
    sg_workload *workload;
    uint64_t n_steps, n_examples, stop_at;
    float last_rate;
} watch;

static void on_step(void *user, const sg_step *step)
{
    watch *w = user;
    cr_assert_eq(step->number, w->n_steps);
    w->n_steps++;
    w->n_examples += step->examples;
    w->last_rate = step->learning_rate;
    if (w->n_steps == w->stop_at)
        sg_workload_stop(w->workload);
}

static sg_status train(const char *extra, uint64_t stop_at, watch *w, sg_summary *summary)
{
    job j;
    job_init(&j, extra, NULL);
    *w = (watch){.stop_at = stop_at};
    cr_assert_eq(sg_workload_create(j.config, true, &w->workload, NULL), SG_OK);
    sg_local_options options = {.workload = w->workload, .on_step = on_step, .user = w};
    sg_status status = sg_local_run(&options, summary, NULL);
    sg_workload_destroy(w->workload);
    job_deinit(&j);
    return status;
}

Test(local, every_rule_learns)
{
    const char *const rules[] = {"{rule: sgd, learning_rate: 0.2}", "{rule: momentum, learning_rate: 0.05}",
                                 "{rule: nesterov, learning_rate: 0.05}", "{rule: adam, learning_rate: 0.02}"};
    for (size_t i = 0; i < SG_ARRAY_LEN(rules); i++) {
        char extra[128];
        snprintf(extra, sizeof(extra), "update: %s\n", rules[i]);
        watch w;
        sg_summary summary;
        cr_assert_eq(train(extra, 0, &w, &summary), SG_OK);
        cr_assert(summary.test_accuracy > 0.5, "%s: %f", rules[i], summary.test_accuracy);
        cr_assert(summary.final_train_loss < 1.8, "%s: %f", rules[i], summary.final_train_loss);
    }
}

Test(local, all_examples_of_all_epochs_are_seen_and_the_summary_says_so)
{
    watch w;
    sg_summary summary;
    cr_assert_eq(train("", 0, &w, &summary), SG_OK);
    cr_assert_eq(w.n_steps, 20);
    cr_assert_eq(w.n_examples, 500);
    cr_assert_eq(summary.steps, 20);
    cr_assert_str_eq(summary.mode, "local");
    cr_assert_float_eq(summary.examples_per_second * summary.seconds, 500, 0.01);
    cr_assert_str_neq(summary.parameters_sha256, summary.initial_parameters_sha256);
}

Test(local, the_schedule_sets_the_rate_of_each_step)
{
    watch w;
    sg_summary summary;
    cr_assert_eq(
        train("update: {learning_rate: 0.8, schedule: step, decay_steps: 10, decay_factor: 0.5}\n", 0, &w, &summary),
        SG_OK);
    cr_assert_eq(w.last_rate, 0.4f);
}

Test(local, it_stops_between_steps)
{
    watch w;
    sg_summary summary;
    cr_assert_eq(train("", 3, &w, &summary), SG_CANCELLED);
    cr_assert_eq(w.n_steps, 3);
}

/* With a rate so large that values overflow, gradients are NaN in the end: skipped, so values stay finite or apply. */
Test(local, gradients_that_are_not_finite_are_skipped_unless_the_file_says_apply)
{
    job j;
    job_init(&j, "", NULL);
    sg_workload *w;
    sg_summary summary;
    cr_assert_eq(sg_workload_create(j.config, true, &w, NULL), SG_OK);
    w->model->variables[0].value[0] = NAN;
    sg_local_options options = {.workload = w};
    cr_assert_eq(sg_local_run(&options, &summary, NULL), SG_OK);
    cr_assert_str_eq(summary.parameters_sha256, summary.initial_parameters_sha256, "no step was applied");
    j.config->update.non_finite = SG_NON_FINITE_APPLY;
    cr_assert_eq(sg_local_run(&options, &summary, NULL), SG_OK);
    cr_assert_str_neq(summary.parameters_sha256, summary.initial_parameters_sha256);
    sg_workload_destroy(w);
    job_deinit(&j);
}

typedef struct heard {
    int n_ends, n_non_finite;
    char fields[256];
} heard;

static void hear(void *user, sg_log_level level, const char *event, const char *fields)
{
    heard *all = user;
    all->n_non_finite += strcmp(event, "non_finite") == 0;
    if (level == SG_LOG_WARN && strcmp(event, "learning_rate_ends") == 0 && all->n_ends++ == 0)
        snprintf(all->fields, sizeof(all->fields), "%s", fields);
}

static void train_heard(const char *extra, float first_value, heard *all, sg_summary *summary)
{
    job j;
    job_init(&j, extra, NULL);
    sg_workload *w;
    cr_assert_eq(sg_workload_create(j.config, true, &w, NULL), SG_OK);
    w->model->variables[0].value[0] = first_value;
    *all = (heard){0};
    sg_log log = {.fn = hear, .user = all, .min_level = SG_LOG_INFO};
    sg_local_options options = {.workload = w, .log = &log};
    cr_assert_eq(sg_local_run(&options, summary, NULL), SG_OK);
    sg_workload_destroy(w);
    job_deinit(&j);
}

Test(local, a_training_that_diverged_says_so_and_how_many_steps_were_left_out)
{
    heard all;
    sg_summary summary;
    train_heard("", NAN, &all, &summary);
    cr_assert(summary.diverged);
    cr_assert_eq(summary.non_finite_steps, 20);
    cr_assert(all.n_non_finite >= 1 && all.n_non_finite < 10, "%d lines", all.n_non_finite);
    train_heard("", 0, &all, &summary);
    cr_assert_not(summary.diverged);
    cr_assert_eq(summary.non_finite_steps, 0);
    cr_assert_eq(all.n_non_finite, 0);
}

Test(local, a_learning_rate_that_ends_before_the_training_is_told)
{
    heard all;
    sg_summary summary;
    train_heard("update: {schedule: cosine, warmup_steps: 3, decay_steps: 10}\n", 0, &all, &summary);
    cr_assert_eq(all.n_ends, 1);
    cr_assert_eq(strncmp(all.fields, "step=13 of=20 message=", 22), 0, "%s", all.fields);
    cr_assert_not_null(strstr(all.fields, "set update.decay_steps to 17"), "%s", all.fields);
    train_heard("update: {schedule: cosine, warmup_steps: 3, decay_steps: 17}\n", 0, &all, &summary);
    cr_assert_eq(all.n_ends, 0);
}
