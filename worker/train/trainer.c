/* worker/train/trainer.c - see trainer.h. */
#include "worker/train/trainer.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/clock.h"
#include "shardgrad/client.h"
#include "worker/train/backend.h"
#include "worker/train/evaluate.h"
#include "worker/train/exchange.h"

#define PAUSE_NS        20000000L
#define PAUSES_PER_PULL 50u

struct sg_trainer {
    sg_trainer_options options;
    /* guarded by mutex: what sg_trainer_stop needs */
    pthread_mutex_t mutex;
    bool stopped;
    sg_client *client; /* NULL while there is none to interrupt */

    /* of the thread that runs */
    sg_workload *workload; /* guarded by mutex while it is set */
    sg_exchange *exchange;
    sg_step step; /* the newest ticket */
    sg_step sent; /* the step before, whose values may be on their way */
    bool has_sent;
    bool begun;           /* the newest step was begun, so that what ended since may be done again */
    uint64_t incarnation; /* under which it was begun */
    uint64_t epoch;       /* that was begun last */
    sg_summary_losses losses;
    uint64_t started_ns, ended_ns; /* of the first step and of the last */
    uint64_t first;                /* iteration with which this life began */
    char initial_sha256[SG_WORKLOAD_HASH_BYTES];
    sg_summary summary; /* of worker 0, once it has trained to the end, */
    bool unwritten;     /* and could not write it */
};

sg_trainer *sg_trainer_create(const sg_trainer_options *options)
{
    sg_trainer *t = sg_xcalloc(1, sizeof(*t));
    t->options = *options;
    pthread_mutex_init(&t->mutex, NULL);
    return t;
}

void sg_trainer_destroy(sg_trainer *t)
{
    if (t == NULL)
        return;
    sg_workload_destroy(t->workload);
    pthread_mutex_destroy(&t->mutex);
    free(t);
}

const sg_workload *sg_trainer_workload(const sg_trainer *t)
{
    return t->workload;
}

const sg_summary *sg_trainer_unwritten(const sg_trainer *t)
{
    return t->unwritten ? &t->summary : NULL;
}

void sg_trainer_stop(sg_trainer *t)
{
    pthread_mutex_lock(&t->mutex);
    t->stopped = true;
    if (t->workload != NULL)
        sg_workload_stop(t->workload);
    if (t->client != NULL)
        sg_client_interrupt(t->client);
    pthread_mutex_unlock(&t->mutex);
}

static bool is_stopped(void *user)
{
    sg_trainer *t = user;
    pthread_mutex_lock(&t->mutex);
    bool stopped = t->stopped;
    pthread_mutex_unlock(&t->mutex);
    return stopped;
}

/* From here on sg_trainer_stop reaches the client and the workload; both may be NULL. */
static void expose(sg_trainer *t, sg_client *client, sg_workload *workload)
{
    pthread_mutex_lock(&t->mutex);
    t->client = client;
    t->workload = workload;
    if (t->stopped && client != NULL)
        sg_client_interrupt(client);
    if (t->stopped && workload != NULL)
        sg_workload_stop(workload);
    pthread_mutex_unlock(&t->mutex);
}

/* --- training ------------------------------------------------------------------------------------------------- */

static void log_epoch(sg_trainer *t)
{
    uint64_t epoch = t->step.iteration / t->workload->steps_per_epoch;
    if (epoch == t->epoch)
        return;
    t->epoch = epoch;
    char loss[SG_LOSS_TEXT_BYTES] = "-"; /* after a restore, before the first step */
    if (t->losses.n > 0)
        sg_loss_print(sg_summary_losses_mean(&t->losses), loss);
    sg_log_info(t->options.log, "epoch", "begun=%" PRIu64 " step=%" PRIu64 " steps=%" PRIu64 " loss=%s", epoch + 1,
                t->step.iteration, t->workload->total_steps, loss);
}

/* Waits for what is under way: then the step before is finished, and its values are here. */
static sg_status finish_sent(sg_trainer *t, sg_error *err)
{
    sg_status status = sg_exchange_finish(t->exchange, err);
    if (status != SG_OK || !t->has_sent)
        return status;
    t->has_sent = false;
    sg_summary_losses_add(&t->losses, t->sent.loss, t->sent.examples);
    sg_log_debug(t->options.log, "step", "step=%" PRIu64 " examples=%" PRIu64 " loss=%.9g", t->sent.number,
                 t->sent.examples, (double)t->sent.loss);
    if (t->options.on_step != NULL)
        t->options.on_step(t->options.user, &t->sent);
    return SG_OK;
}

static sg_status before_read(void *user, const sg_range *part, sg_error *err)
{
    sg_trainer *t = user;
    return sg_exchange_wait(t->exchange, part, err);
}

static sg_status on_loss(void *user, const sg_step *step, sg_error *err)
{
    sg_trainer *t = user;
    sg_status status = finish_sent(t, err);
    if (status == SG_OK)
        sg_exchange_begin(t->exchange, step);
    return status;
}

static sg_status on_final(void *user, const sg_range *part, bool left_out, sg_error *err)
{
    sg_trainer *t = user;
    return sg_exchange_send(t->exchange, part, left_out, err);
}

/* This worker's part, by the same rank and size as its rows of the batch: so the members of an iteration, who are the
 * same for all of them, look at each example once. In async, where a batch is one worker's, so is a test. */
static sg_status test_part(sg_trainer *t, sg_error *err)
{
    sg_status status = finish_sent(t, err); /* the values of this iteration are all here then */
    sg_client_info info;
    sg_client_get_info(t->client, &info);
    if (status == SG_OK)
        status = sg_evaluate_part(t->workload, t->step.rank, t->step.size, &t->step.tested, err);
    if (status == SG_OK)
        sg_log_info(t->options.log, "tested",
                    "generation=%" PRIu64 " iteration=%" PRIu64 " examples=%" PRIu64 " of=%" PRIu64 " correct=%" PRIu64
                    " loss=%.9g",
                    info.generation, t->step.iteration, t->step.tested.examples, t->step.tested.of,
                    t->step.tested.correct, (double)t->step.tested.loss);
    return status;
}

static sg_status do_step(sg_trainer *t, uint64_t next, sg_error *err)
{
    log_epoch(t);
    if (sg_evaluate_is_due(t->workload, t->step.iteration)) {
        sg_status tested = test_part(t, err);
        if (tested != SG_OK)
            return tested;
    }
    sg_workload_hooks hooks = {.before_read = before_read, .on_loss = on_loss, .on_final = on_final, .user = t};
    sg_status status = sg_workload_gradient(t->workload, &t->step, next, &hooks, err);
    if (status == SG_OK)
        status = sg_exchange_flush(t->exchange, err);
    t->sent = t->step;
    t->has_sent = status == SG_OK;
    return status;
}

static void note_start(sg_trainer *t)
{
    if (t->started_ns != 0)
        return;
    t->started_ns = sg_clock_ns();
    t->first = t->step.iteration;
    sg_log_info(t->options.log, "training", "step=%" PRIu64 " rank=%u size=%u", t->step.number, t->step.rank,
                t->step.size);
}

/* What was under way for another incarnation has come to nothing. */
static void forget_sent(sg_trainer *t)
{
    sg_exchange_reset(t->exchange);
    t->has_sent = false;
}

static sg_status begin_step(sg_trainer *t, sg_client *client, sg_error *err)
{
    t->step.values_later = true;
    t->begun = false;
    sg_status status = sg_client_begin_step(client, &t->step, err);
    if (status != SG_OK)
        return status;
    t->begun = true;
    sg_client_info info;
    sg_client_get_info(client, &info);
    if (info.incarnation != t->incarnation)
        forget_sent(t);
    t->incarnation = info.incarnation;
    return SG_OK;
}

/* Until a ticket beyond the last step comes, which is never pushed. */
static sg_status train_on(sg_trainer *t, sg_client *client, sg_error *err)
{
    for (uint64_t last = 0;; last = t->step.number) {
        sg_status status = begin_step(t, client, err);
        if (status != SG_OK)
            return status;
        note_start(t);
        if (t->step.iteration >= t->workload->total_steps)
            return finish_sent(t, err);
        /* With several workers in async mode the numbers of one worker's batches are about that far apart. */
        uint64_t stride = t->step.number > last ? t->step.number - last : 1;
        status = do_step(t, t->step.number + stride, err);
        if (status != SG_OK)
            return status;
    }
}

/* Whether the job went back, or on without this worker, and so does this: what is computed depends on the step alone.
 * What begin_step itself has ended with is final. */
static bool comes_back(sg_trainer *t, sg_status status)
{
    if (status == SG_OK || !sg_client_goes_on(status) || !t->begun)
        return false;
    if (status != SG_LATE) /* why, and whether that is trouble, the client has said */
        sg_log_info(t->options.log, status == SG_FENCED ? "fenced" : "rolled_back", "step=%" PRIu64, t->step.number);
    forget_sent(t);
    return true;
}

/* The loop of shardgrad/client.h. */
static sg_status train(sg_trainer *t, sg_client *client, sg_error *err)
{
    sg_status status;
    do
        status = train_on(t, client, err);
    while (comes_back(t, status));
    t->ended_ns = sg_clock_ns();
    return status;
}

/* --- the end, for worker 0 ------------------------------------------------------------------------------------ */

static sg_status pull_newest(sg_trainer *t, sg_client *client, sg_error *err)
{
    size_t n = t->workload->model->n_variables;
    uint32_t *all = sg_xcalloc(n, sizeof(*all));
    for (size_t i = 0; i < n; i++)
        all[i] = (uint32_t)i;
    sg_op *op = NULL;
    sg_status status = sg_client_pull(client, &t->step, all, n, &op, err);
    if (status == SG_OK)
        status = sg_op_wait(op, UINT64_MAX, err);
    sg_op_destroy(op);
    free(all);
    return status;
}

/* Async: the others may still be at their last batches. A pull now and then finds out if the job has failed. */
static sg_status wait_until_alone(sg_trainer *t, sg_client *client, sg_error *err)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t logged_ms = sg_clock_ms();
    for (uint32_t round = 0;; round++) {
        sg_client_info info;
        sg_client_get_info(client, &info);
        if (info.live_workers == 1)
            return pull_newest(t, client, err);
        if (is_stopped(t))
            return sg_error_set(err, SG_CANCELLED, "stopped while other workers finished");
        if (info.live_workers > 0 && sg_clock_ms() - logged_ms >= t->options.config->warn_after_ms) {
            logged_ms = sg_clock_ms();
            sg_log_warn(t->options.log, "waiting", "for=\"%u other workers to finish\"", info.live_workers - 1);
        }
        sg_status status = round % PAUSES_PER_PULL == PAUSES_PER_PULL - 1 ? pull_newest(t, client, err) : SG_OK;
        if (status != SG_OK)
            return status;
        nanosleep(&pause, NULL);
    }
}

static sg_status finish(sg_trainer *t, sg_client *client, sg_error *err)
{
    sg_client_info info;
    sg_client_get_info(client, &info);
    sg_status status = info.sync ? SG_OK : wait_until_alone(t, client, err);
    const sg_workload *w = t->workload;
    double seconds = (double)(t->ended_ns - t->started_ns) / 1e9;
    uint64_t n_made = sg_workload_examples(w, w->total_steps);
    const bool was_beyond = info.sync && t->first > w->total_steps; /* what it went on from was */
    uint64_t n_before = t->first < w->total_steps ? sg_workload_examples(w, t->first) : n_made;
    sg_summary summary = {.ps = info.n_ps,
                          .workers = t->options.config->workers,
                          .steps = was_beyond ? t->first : w->total_steps,
                          .seconds = seconds,
                          .examples_per_second = (double)(n_made - n_before) / seconds,
                          .non_finite_steps = w->non_finite_steps};
    if (status == SG_OK)
        status = sg_evaluate_accuracy(t->workload, &summary.test_accuracy, err);
    if (status != SG_OK)
        return status;
    snprintf(summary.mode, sizeof(summary.mode), "%s", info.mode);
    snprintf(summary.version, sizeof(summary.version), "%s", sg_library_version());
    memcpy(summary.initial_parameters_sha256, t->initial_sha256, sizeof(t->initial_sha256));
    sg_summary_conclude(&summary, w, &t->losses);
    sg_log_info(t->options.log, "trained", "data_waits=%" PRIu64, sg_batches_waits(w->batches));
    sg_log_info(t->options.log, "evaluated", "test_accuracy=%.4f parameters_sha256=%s", summary.test_accuracy,
                summary.parameters_sha256);
    status = sg_summary_write(&summary, t->options.config->run_dir, err);
    t->summary = summary;
    t->unwritten = status != SG_OK;
    return status;
}

/* --- joining and leaving -------------------------------------------------------------------------------------- */

static sg_status take_part(sg_trainer *t, sg_client *client, sg_error *err)
{
    const sg_model *model = t->workload->model;
    sg_status status = sg_client_declare(client, model->variables, model->n_variables, err);
    if (status != SG_OK)
        return status;
    t->exchange = sg_exchange_create(client, model->variables, model->n_variables);
    do {
        status = train(t, client, err);
        if (status != SG_OK || t->options.worker != 0)
            break;
        sg_client_rest(client);
        status = finish(t, client, err);
    } while (comes_back(t, status));
    sg_exchange_destroy(t->exchange);
    return status;
}

/* An sg_log_fn: applies the level. */
static void log_from_client(void *user, sg_log_level level, const char *event, const char *fields)
{
    const sg_trainer *t = user;
    sg_log_event(t->options.log, level, event, "%s", fields);
}

sg_status sg_trainer_run(sg_trainer *t, sg_error *err)
{
    SG_ASSERT(t->workload == NULL);
    sg_workload *workload;
    sg_status status = sg_workload_create(t->options.config,
                                          sg_workload_needs_test(t->options.config, t->options.worker), &workload, err);
    if (status != SG_OK)
        return status;
    workload->log = t->options.log;
    expose(t, NULL, workload);
    status = sg_backend_choose(workload, t->options.worker, err);
    if (status != SG_OK)
        return status;
    sg_workload_hash(workload, t->initial_sha256);
    sg_log_info(t->options.log, "loaded", "examples=%zu steps=%" PRIu64 " initial_parameters_sha256=%s",
                workload->train->n_examples, workload->total_steps, t->initial_sha256);
    if (t->options.worker == 0) /* once for the job */
        sg_workload_warn(workload, t->options.config->workers, t->options.log);

    sg_client_options options = {.config = t->options.config_path,
                                 .set = t->options.set,
                                 .coordinator = t->options.coordinator,
                                 .worker = t->options.worker,
                                 .data_examples = workload->train->n_examples,
                                 .log = log_from_client,
                                 .log_user = t,
                                 .interrupted = is_stopped,
                                 .interrupted_user = t};
    sg_client *client;
    status = sg_client_open(&options, &client, err);
    if (status != SG_OK)
        return status;
    expose(t, client, workload);
    status = take_part(t, client, err);
    expose(t, NULL, workload);
    sg_client_close(client);
    return status;
}
