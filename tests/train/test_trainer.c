#include "worker/train/trainer.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/train/cluster.h"
#include "tests/train/fixture.h"
#include "worker/train/local.h"

TestSuite(trainer, .timeout = 120);

static void train(const job *j, uint32_t n_ps, uint32_t n_workers, const char *const *set, cluster_result *result)
{
    char run_dir[96];
    snprintf(run_dir, sizeof(run_dir), "%s/run", j->folder);
    cluster_spec spec = {.config_path = j->path, .set = set, .run_dir = run_dir, .n_ps = n_ps, .n_workers = n_workers};
    cluster_train(&spec, result);
}

static void train_local(const job *j, sg_summary *summary)
{
    sg_workload *w = job_workload(j);
    sg_local_options options = {.workload = w};
    cr_assert_eq(sg_local_run(&options, summary, NULL), SG_OK);
    sg_workload_destroy(w);
}

Test(trainer, one_worker_gives_the_parameters_of_training_in_one_process_bit_for_bit)
{
    static const char *const rules[] = {"sgd",
                                        "momentum",
                                        "nesterov",
                                        "adagrad",
                                        "rmsprop",
                                        "adam",
                                        "adamw",
                                        "adam, clip_global_norm: 0.5",
                                        "lars, clip_global_norm: 0.5",
                                        "lamb"};
    for (size_t i = 0; i < SG_ARRAY_LEN(rules); i++) {
        char extra[192];
        snprintf(extra, sizeof(extra),
                 "slice_bytes: 256\nupdate: {rule: %s, learning_rate: 0.02, weight_decay: 0.01, schedule: cosine, "
                 "warmup_steps: 3, decay_steps: 15}\n",
                 rules[i]);
        job j;
        job_init(&j, extra, NULL);
        sg_summary local;
        train_local(&j, &local);
        cluster_result cluster;
        train(&j, 1 + (uint32_t)i % 3, 1, NULL, &cluster);
        cr_assert_str_eq(cluster.summary.parameters_sha256, local.parameters_sha256, "%s", rules[i]);
        cr_assert_str_eq(cluster.summary.initial_parameters_sha256, local.initial_parameters_sha256);
        cr_assert_eq(cluster.summary.test_accuracy, local.test_accuracy);
        cluster_result_deinit(&cluster);
        job_deinit(&j);
    }
}

/* Values of the second layer's weight are waited for in parts. */
Test(trainer, a_large_weight_gets_the_bits_of_training_in_one_process)
{
    static const char *const slices[] = {"slice_bytes=64KiB", "slice_bytes=1MiB"};
    for (size_t i = 0; i < SG_ARRAY_LEN(slices); i++) {
        const char *const set[] = {"model.hidden=[600, 512]", "train.epochs=1", slices[i], NULL};
        job j;
        job_init(&j, "update: {rule: momentum, learning_rate: 0.01}\n", set);
        sg_summary local;
        train_local(&j, &local);
        cluster_result cluster;
        train(&j, 2, 1, set, &cluster);
        cr_assert_str_eq(cluster.summary.parameters_sha256, local.parameters_sha256, "%s", slices[i]);
        cr_assert_str_neq(local.parameters_sha256, local.initial_parameters_sha256);
        cluster_result_deinit(&cluster);
        job_deinit(&j);
    }
}

/* A rate at which gradients, then losses stop being finite: what is left out is the same with and without a ps. */
Test(trainer, one_worker_diverges_as_training_in_one_process_does)
{
    static const char *const rules[] = {"sgd", "momentum", "nesterov",
                                        "momentum, clip_global_norm: 1e6, weight_decay: 1e6"};
    for (size_t i = 0; i < SG_ARRAY_LEN(rules); i++) {
        char extra[160];
        snprintf(extra, sizeof(extra), "slice_bytes: 256\nupdate: {rule: %s, learning_rate: 1e6}\n", rules[i]);
        job j;
        job_init(&j, extra, NULL);
        sg_summary local;
        train_local(&j, &local);
        cluster_result cluster;
        train(&j, 2, 1, NULL, &cluster);
        cr_assert_gt(local.non_finite_steps, 0, "%s", rules[i]);
        cr_assert_eq(cluster.summary.non_finite_steps, local.non_finite_steps, "%s", rules[i]);
        cr_assert_str_eq(cluster.summary.parameters_sha256, local.parameters_sha256, "%s", rules[i]);
        cluster_result_deinit(&cluster);
        job_deinit(&j);
    }
}

/* Whatever arrives first: sums run in rank order. */
Test(trainer, two_workers_give_the_same_parameters_every_time_and_with_any_number_of_ps)
{
    job j;
    job_init(&j, "slice_bytes: 256\nupdate: {rule: adam, learning_rate: 0.01}\n", NULL);
    char first[SG_WORKLOAD_HASH_BYTES] = "";
    for (uint32_t n_ps = 1; n_ps <= 4; n_ps++) {
        cluster_result cluster;
        train(&j, n_ps, 2, NULL, &cluster);
        if (n_ps == 1)
            strcpy(first, cluster.summary.parameters_sha256);
        cr_assert_str_eq(cluster.summary.parameters_sha256, first, "%u ps", n_ps);
        cluster_result_deinit(&cluster);
    }
    job_deinit(&j);
}

Test(trainer, tests_on_the_way_change_no_bit)
{
    static const char *const set[] = {"train.test_every_steps=3", NULL};
    for (uint32_t n_workers = 1; n_workers <= 2; n_workers++) {
        job j;
        job_init(&j, "slice_bytes: 256\nupdate: {rule: adam, learning_rate: 0.01}\n", NULL);
        cluster_result without, with;
        train(&j, 2, n_workers, NULL, &without);
        train(&j, 2, n_workers, set, &with);
        cr_assert_str_eq(with.summary.parameters_sha256, without.summary.parameters_sha256);
        cr_assert_eq(with.summary.test_accuracy, without.summary.test_accuracy);
        cluster_result_deinit(&without);
        cluster_result_deinit(&with);
        job_deinit(&j);
    }
}

Test(trainer, every_example_of_every_batch_is_seen_by_one_worker)
{
    job j;
    job_init(&j, "", NULL);
    for (uint32_t n_workers = 1; n_workers <= 5; n_workers += 2) {
        cluster_result cluster;
        train(&j, 2, n_workers, NULL, &cluster);
        for (uint64_t step = 0; step < 20; step++)
            cr_assert_eq(cluster.examples[step], step % 4 == 3 ? 4 : 32, "step %zu of %u workers", (size_t)step,
                         n_workers);
        cluster_result_deinit(&cluster);
    }
    job_deinit(&j);
}

Test(trainer, asynchronous_workers_take_every_batch_once_and_worker_0_has_the_newest_values)
{
    job j;
    job_init(&j, "update: {mode: async, rule: momentum, learning_rate: 0.02}\n", NULL);
    cluster_result cluster;
    train(&j, 2, 3, (const char *const[]){"train.epochs=30", NULL}, &cluster);
    for (uint64_t step = 0; step < 120; step++)
        cr_assert_eq(cluster.examples[step], step % 4 == 3 ? 4 : 32, "batch %zu", (size_t)step);
    cr_assert_str_eq(cluster.summary.mode, "async");
    cr_assert(cluster.summary.test_accuracy > 0.5, "%f", cluster.summary.test_accuracy);
    cluster_result_deinit(&cluster);
    job_deinit(&j);
}

typedef struct lone_trainer {
    sg_trainer *trainer;
    sg_status status;
} lone_trainer;

static void *run_lone(void *user)
{
    lone_trainer *lone = user;
    lone->status = sg_trainer_run(lone->trainer, NULL);
    return NULL;
}

static sg_trainer *to_stop;

/* An sg_log_fn: stops the trainer as soon as it waits for somebody. */
static void stop_when_it_waits(void *user, sg_log_level level, const char *event, const char *fields)
{
    (void)level;
    (void)fields;
    if (strcmp(event, "waiting") == 0) {
        pthread_mutex_t *once = user;
        if (pthread_mutex_trylock(once) == 0)
            sg_trainer_stop(to_stop);
    }
}

Test(trainer, it_stops_while_it_waits_for_peers_that_never_come)
{
    job j;
    job_init(&j, "warn_after_ms: 50\n", NULL);
    pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
    sg_log log = {.fn = stop_when_it_waits, .user = &once, .min_level = SG_LOG_DEBUG};
    lone_trainer lone = {
        .trainer = sg_trainer_create(&(sg_trainer_options){.config = j.config, .config_path = j.path, .log = &log})};
    to_stop = lone.trainer;
    pthread_t thread;
    pthread_create(&thread, NULL, run_lone, &lone);
    pthread_join(thread, NULL);
    cr_assert_eq(lone.status, SG_CANCELLED);
    sg_trainer_destroy(lone.trainer);
    job_deinit(&j);
}

Test(trainer, one_that_was_stopped_before_it_began_does_not_wait)
{
    job j;
    job_init(&j, "", NULL);
    sg_trainer *trainer = sg_trainer_create(&(sg_trainer_options){.config = j.config, .config_path = j.path});
    sg_trainer_stop(trainer);
    cr_assert_eq(sg_trainer_run(trainer, NULL), SG_CANCELLED);
    sg_trainer_destroy(trainer);
    job_deinit(&j);
}

/* --- stopped while its gradients are under way ----------------------------------------------------------------- */

/* Worker 1: takes part in the first step, but pushes only the last layer for now. */
static sg_client *push_last_layer(const char *path, const char *const *set, const char *coordinator, sg_model *model,
                                  sg_step *step)
{
    sg_error err = {0};
    sg_client *client;
    sg_client_options options = {.config = path, .set = set, .coordinator = coordinator, .worker = 1};
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_client_declare(client, model->variables, model->n_variables, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_client_begin_step(client, step, &err), SG_OK, "%s", err.message);
    cr_assert_eq(step->size, 2);
    sg_op *op;
    cr_assert_eq(sg_client_push_pull(client, step, (const uint32_t[]){2, 3}, 2, &op, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, &err), SG_OK, "%s", err.message);
    sg_op_destroy(op);
    return client;
}

/* What the other worker gets back of the last layer says that the trainer has pushed; of the first layer it still waits
 * for values. What it pushed counts, though it leaves. */
Test(trainer, it_stops_while_its_gradients_are_under_way)
{
    static const char *const set[] = {"workers=2", "ps=[127.0.0.1:0]", NULL};
    job j;
    job_init(&j, "", set);
    cluster_ps ps;
    cluster_ps_start(&ps, j.config, 0, NULL);
    const char *coordinator = sg_ps_address(ps.ps);
    lone_trainer lone = {.trainer = sg_trainer_create(&(sg_trainer_options){
                             .config = j.config, .config_path = j.path, .set = set, .coordinator = coordinator})};
    pthread_t thread;
    pthread_create(&thread, NULL, run_lone, &lone);
    sg_workload *w;
    sg_error err = {0};
    cr_assert_eq(sg_workload_create(j.config, false, &w, &err), SG_OK, "%s", err.message);
    sg_step step = {.examples = 0};
    sg_client *client = push_last_layer(j.path, set, coordinator, w->model, &step);
    sg_trainer_stop(lone.trainer);
    pthread_join(thread, NULL);
    cr_assert_eq(lone.status, SG_CANCELLED);
    sg_op *op;
    cr_assert_eq(sg_client_push_pull(client, &step, (const uint32_t[]){0, 1}, 2, &op, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, &err), SG_OK, "%s", err.message);
    sg_op_destroy(op);
    sg_client_close(client);
    cluster_ps_join(&ps);
    sg_trainer_destroy(lone.trainer);
    sg_workload_destroy(w);
    job_deinit(&j);
}
