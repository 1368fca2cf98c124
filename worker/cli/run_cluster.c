/* worker/cli/run_cluster.c - `shardgrad run`: the cluster as processes, watched until the last of them has ended.
 *
 * Everything happens on one libuv loop: what the processes write, their ends, signals, and a timer that asks the
 * coordinator for its status. Only the asking blocks and is done on libuv's pool. */
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/descriptors.h"
#include "common/rpc_address.h"
#include "common/signals.h"
#include "worker/cli/program.h"
#include "worker/cli/restart.h"
#include "worker/cli/run.h"
#include "worker/cli/run_directory.h"
#include "worker/cli/run_heard.h"
#include "worker/cli/status_query.h"
#include "worker/cli/supervisor.h"

#define POLL_EVERY_MS  500u
#define ASK_TIMEOUT_MS 1000u
#define PS_END_MS      10000u /* ps end by themselves when the last worker has left; this long after it they are told */
#define TELL_EVERY_MS  5000u  /* what they still do */
#define KILL_MARGIN_MS 1000u  /* beyond shutdown_grace_ms, before SIGKILL, or before a run without a ps is over */
/* Descriptors that this process needs for itself, and for each that it starts. */
#define OWN_FILES         24u
#define FILES_PER_PROCESS 4u

typedef struct cluster {
    sg_run *run;
    const sg_config *config;
    uv_loop_t loop;
    uv_signal_t signals[3];
    uv_timer_t poll, ps_end, workers_end;
    sg_supervisor *supervisor;
    sg_restart restart;
    size_t n_workers_alive; /* that did not end well yet */
    bool ps_restarted;      /* a ps was started anew, and no step was seen to be finished since */
    uint64_t steps;         /* finished, as last seen */
    int signal_number;      /* the first that came; 0: none */
    uint64_t told_ms;       /* when it was told what the ps still do after the last worker; 0: never */
    uint64_t tested;        /* 1 + the iteration of the newest test that was told of; 0: none */
    char ended_ps[32];      /* the first that ended well while workers still ran; "": none */
    sg_run_heard heard;
    sg_error end; /* why the run was ended from here, by its code; SG_OK: it was not */

    uv_work_t asking;
    bool is_asking;
    sg_status_query *query;
    sg_status ask_status;
    Shardgrad__V1__StatusResponse *response;
} cluster;

/* --- processes ------------------------------------------------------------------------------------------------ */

/* NULL-terminated, each owned. The overrides are passed on, and the run directory as it came out of them. */
static char **build_argv(const cluster *c, const char *program, size_t index)
{
    const sg_config_flags *flags = &c->run->arguments->flags;
    char **argv = sg_xcalloc(2 * flags->n_overrides + 16, sizeof(*argv));
    size_t n = 0;
    argv[n++] = sg_program_find(program);
    argv[n++] = sg_xstrdup("--config");
    argv[n++] = sg_xstrdup(flags->path);
    argv[n++] = sg_xstrdup("--index");
    argv[n++] = sg_xprintf("%zu", index);
    argv[n++] = sg_xstrdup("--parent");
    argv[n++] = sg_xprintf("%ld", (long)getpid());
    for (size_t i = 0; i < flags->n_overrides; i++) {
        argv[n++] = sg_xstrdup("--set");
        argv[n++] = sg_xprintf("%s=%s", flags->overrides[i].key, flags->overrides[i].value);
    }
    argv[n++] = sg_xstrdup("--set");
    argv[n++] = sg_xprintf("run_dir=%s", c->config->run_dir);
    return argv;
}

static sg_status start_process(cluster *c, const char *role, size_t index, sg_error *err)
{
    char *program = sg_xprintf("shardgrad-%s", role);
    char *who = sg_xprintf("%s-%zu", role, index);
    char **argv = build_argv(c, program, index);
    sg_status status = sg_supervisor_start(c->supervisor, who, argv, err);
    for (char **word = argv; *word != NULL; word++)
        free(*word);
    free(argv);
    free(who);
    free(program);
    return status;
}

static sg_status check_descriptors(const sg_config *config, sg_error *err)
{
    char what_for[64];
    snprintf(what_for, sizeof what_for, "%zu ps and %" PRIu64 " workers", config->ps.n, config->workers);
    return sg_descriptors_check(OWN_FILES + FILES_PER_PROCESS * (config->ps.n + config->workers), what_for, err);
}

/* Another run of this file would get this one's ps and workers as its own, since they come to the same port. */
static sg_status check_ports(const sg_config *config, sg_error *err)
{
    for (size_t i = 0; i < config->ps.n; i++) {
        const char *address = config->ps.items[i];
        const bool is_chosen_later = strcmp(strrchr(address, ':'), ":0") == 0;
        const sg_status status = is_chosen_later ? SG_OK : sg_rpc_address_try(address, err);
        if (status != SG_OK)
            return sg_error_prefix(err, status, "ps %zu", i);
    }
    return SG_OK;
}

/* What is deleted is told before it is. */
static void tell_given_up(const cluster *c)
{
    const size_t n = sg_restart_n_given_up(c->config);
    if (n > 0)
        fprintf(stderr,
                "shardgrad: with --restore %s the job gives up %zu checkpoint%s in %s, and removes %s as it goes on\n",
                c->config->restore, n, n > 1 ? "s" : "", c->config->checkpoint.dir, n > 1 ? "them" : "it");
}

static sg_status start_processes(cluster *c, sg_error *err)
{
    tell_given_up(c);
    sg_status status = SG_OK;
    for (size_t i = 0; i < c->config->ps.n && status == SG_OK; i++)
        status = start_process(c, "ps", i, err);
    for (size_t i = 0; i < c->config->workers && status == SG_OK; i++) {
        status = start_process(c, "worker", i, err);
        c->n_workers_alive++;
    }
    return status;
}

/* --- what the supervisor tells -------------------------------------------------------------------------------- */

/* Warnings, errors, and whatever is no log line are for the user; the rest is in the run directory. The last word of a
 * process that failed is told in the end, and what the others say when they are stopped is no news. */
static void on_line(void *user, const char *who, const char *line)
{
    cluster *c = user;
    char level;
    const char *text = sg_supervisor_log_text(line, &level);
    if (sg_run_heard_line(&c->heard, who, text, sg_supervisor_is_stopping(c->supervisor)))
        return;
    /* An error of a ps or of a worker's session with which it ends: its last word says the same. */
    const bool is_end = strncmp(text, "failed status=", strlen("failed status=")) == 0;
    bool quiet = is_end || level == 'I' || level == 'D' || sg_supervisor_last_word(line) != NULL ||
                 sg_supervisor_is_stopping(c->supervisor);
    if (quiet && c->config->log_level != SG_LOG_DEBUG)
        return;
    sg_progress_print(&c->run->progress, "%s | %s", who, text);
}

/* ps 0 that went back to a checkpoint when all workers were done waits for them in vain. */
static void on_ps_end_due(uv_timer_t *timer)
{
    cluster *c = timer->data;
    if (sg_supervisor_is_stopping(c->supervisor))
        return;
    sg_progress_print(&c->run->progress, "shardgrad: the ps did not end after the last worker; stopping them");
    if (c->ps_restarted && sg_supervisor_pid(c->supervisor, "ps-0") != 0)
        (void)!sg_error_set(&c->end, SG_PEER_LOST, "a ps was started anew when all workers were about to end");
    sg_supervisor_stop(c->supervisor);
}

static bool is_worker(const char *who)
{
    return strncmp(who, "worker", strlen("worker")) == 0;
}

/* Worker 0 has written down the result, and a ps has ended, for it waits for nobody any more: workers that are not done
 * yet were given up, as one that stands still is. */
static bool is_job_over(const cluster *c)
{
    return c->ended_ps[0] != '\0' && sg_run_directory_has_result(c->config->run_dir);
}

/* What is left is the last checkpoint. ps 0 says whether it was made, and ends the job if another ps is lost. */
static bool is_at_its_end(const cluster *c)
{
    return c->n_workers_alive == 0 && !c->config->linger;
}

static bool is_done_without(void *user, const char *who, bool came_too_late)
{
    const cluster *c = user;
    if (is_worker(who))
        return came_too_late && is_job_over(c);
    return is_at_its_end(c) && (strcmp(who, "ps-0") != 0 || c->config->checkpoint.dir[0] == '\0');
}

/* Nobody would make again what a ps took with it. */
static bool has_work_for(void *user, const char *who)
{
    const cluster *c = user;
    return is_worker(who) ? !is_job_over(c) : !is_at_its_end(c);
}

static void tell_worker_cut_off(const cluster *c, const char *who, const char *how)
{
    sg_progress_print(
        &c->run->progress,
        "shardgrad: the job has ended without %s, which was cut off or stood still for longer than lease_ms: %s", who,
        how);
}

static void on_done_without(void *user, const char *who, const char *how)
{
    const cluster *c = user;
    if (is_worker(who))
        tell_worker_cut_off(c, who, how);
    else
        sg_progress_print(&c->run->progress, "shardgrad: after the last worker had left, %s", how);
}

static void on_workers_end_due(uv_timer_t *timer)
{
    cluster *c = timer->data;
    if (c->n_workers_alive == 0 || sg_supervisor_is_stopping(c->supervisor))
        return; /* in the last case something has failed, and that is told */
    const bool is_over = is_job_over(c);
    for (size_t i = 0; i < c->config->workers && is_over; i++) {
        char who[32];
        snprintf(who, sizeof who, "worker-%zu", i);
        if (sg_supervisor_pid(c->supervisor, who) != 0)
            tell_worker_cut_off(c, who, "it still runs, and is stopped");
    }
    if (!is_over)
        (void)!sg_error_set(
            &c->end, SG_PEER_LOST,
            "%s has ended, but %zu worker%s still run%s: somebody told it to stop, or they stood still; "
            "start the job again",
            c->ended_ps, c->n_workers_alive, c->n_workers_alive == 1 ? "" : "s", c->n_workers_alive == 1 ? "s" : "");
    sg_supervisor_stop(c->supervisor);
}

/* A ps may be seen to end a moment before the last workers; otherwise they would wait for it up to start_timeout_ms. */
static void on_ps_finished(cluster *c, const char *who)
{
    if (c->n_workers_alive == 0 || c->ended_ps[0] != '\0')
        return;
    snprintf(c->ended_ps, sizeof(c->ended_ps), "%s", who);
    uv_timer_start(&c->workers_end, on_workers_end_due, c->config->shutdown_grace_ms + KILL_MARGIN_MS, 0);
}

static void on_finished(void *user, const char *who, size_t n_alive)
{
    cluster *c = user;
    if (!is_worker(who)) {
        on_ps_finished(c, who);
        return;
    }
    if (--c->n_workers_alive > 0 || n_alive == 0)
        return;
    if (c->config->linger)
        sg_progress_print(&c->run->progress, "shardgrad: the workers are done; the ps linger until Ctrl-C");
    else
        uv_timer_start(&c->ps_end, on_ps_end_due, PS_END_MS, 0);
}

static const char *const *more_words(void *user, const char *who)
{
    const cluster *c = user;
    return strncmp(who, "ps", strlen("ps")) == 0 ? sg_restart_words(&c->restart) : NULL;
}

static void on_restarted(void *user, const char *who, const char *how, uint64_t n)
{
    cluster *c = user;
    sg_run_heard_restart(&c->heard, who);
    c->ps_restarted = c->ps_restarted || !is_worker(who);
    sg_progress_print(&c->run->progress, "shardgrad: %s; it was started anew (%" PRIu64 " of %" PRIu64 ")", how, n,
                      c->config->restarts);
}

static void on_ended(void *user)
{
    cluster *c = user;
    for (size_t i = 0; i < SG_ARRAY_LEN(c->signals); i++)
        uv_close((uv_handle_t *)&c->signals[i], NULL);
    uv_close((uv_handle_t *)&c->poll, NULL);
    uv_close((uv_handle_t *)&c->ps_end, NULL);
    uv_close((uv_handle_t *)&c->workers_end, NULL);
}

/* --- progress ------------------------------------------------------------------------------------------------- */

static void tell_of_test(cluster *c, const Shardgrad__V1__Evaluation *test)
{
    if (test->iteration < c->tested)
        return;
    c->tested = test->iteration + 1;
    char loss[SG_LOSS_TEXT_BYTES];
    sg_loss_print((double)test->loss, loss);
    sg_progress_print(&c->run->progress, "tested  step %" PRIu64 "  test_accuracy %.4f  loss %s", test->iteration,
                      (double)test->correct / (double)test->of, loss);
}

static void show(cluster *c, const Shardgrad__V1__StatusResponse *response)
{
    sg_progress_state state = {
        .examples = response->examples, .loss = response->loss, .waiting = response->waiting_for};
    for (size_t i = 0; i < response->n_workers; i++) {
        uint64_t finished = response->workers[i]->finished;
        if (response->mode != SHARDGRAD__V1__MODE__MODE_SYNC)
            state.steps += finished;
        else if (finished > state.steps)
            state.steps = finished;
    }
    /* Of tickets that a worker finished before a restore nothing is left but how many were handed out in all. */
    if (response->mode != SHARDGRAD__V1__MODE__MODE_SYNC && state.steps > 0)
        state.steps = response->steps < c->run->progress.total_steps ? response->steps : c->run->progress.total_steps;
    const bool goes_on = response->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING && state.steps > c->steps;
    c->ps_restarted = c->ps_restarted && !goes_on;
    c->steps = state.steps;
    if (state.examples == 0)
        state.loss = NAN;
    for (size_t i = 0; i < response->n_evaluations; i++) {
        const Shardgrad__V1__Evaluation *evaluation = response->evaluations[i];
        if (evaluation->examples < evaluation->of)
            continue;
        tell_of_test(c, evaluation);
        state.test_of = evaluation->of;
        state.test_accuracy = (double)evaluation->correct / (double)evaluation->of;
    }
    sg_progress_update(&c->run->progress, sg_clock_ms(), &state);
}

static bool is_finishing(const Shardgrad__V1__StatusResponse *response)
{
    return response->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING ||
           response->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING ||
           response->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING;
}

static const char *what_is_not_done(const Shardgrad__V1__StatusResponse *response)
{
    if (response->waiting_for[0] != '\0')
        return response->waiting_for;
    return response->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING ? "it is made now" : "the ps recover";
}

/* After the last worker: ps that make the last checkpoint, or recover for it, are not told to stop, however long that
 * takes. */
static void look_at_the_end(cluster *c, const Shardgrad__V1__StatusResponse *response)
{
    if (uv_is_active((uv_handle_t *)&c->ps_end) == 0 || sg_supervisor_is_stopping(c->supervisor) ||
        !is_finishing(response))
        return;
    uv_timer_start(&c->ps_end, on_ps_end_due, PS_END_MS, 0);
    const uint64_t now_ms = sg_clock_ms();
    if (c->told_ms != 0 && now_ms - c->told_ms < TELL_EVERY_MS)
        return;
    c->told_ms = now_ms;
    sg_progress_print(&c->run->progress, "shardgrad: the workers are done, the last checkpoint is not: %s",
                      what_is_not_done(response));
}

static void ask(uv_work_t *work)
{
    cluster *c = work->data;
    c->ask_status = sg_status_query_ask(c->query, ASK_TIMEOUT_MS, &c->response, NULL);
}

static void on_asked(uv_work_t *work, int canceled)
{
    cluster *c = work->data;
    c->is_asking = false;
    if (canceled != 0 || c->ask_status != SG_OK)
        return; /* the coordinator is not up yet, or not any more: its process tells more than this */
    if (sg_supervisor_n_alive(c->supervisor) > 0) {
        show(c, c->response);
        look_at_the_end(c, c->response);
    }
    shardgrad__v1__status_response__free_unpacked(c->response, NULL);
}

static void on_poll(uv_timer_t *timer)
{
    cluster *c = timer->data;
    if (!c->is_asking)
        c->is_asking = uv_queue_work(&c->loop, &c->asking, ask, on_asked) == 0;
}

/* --- signals, start and end ----------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int signal_number)
{
    cluster *c = handle->data;
    if (c->signal_number != 0) {
        sg_supervisor_kill(c->supervisor);
        return;
    }
    c->signal_number = signal_number;
    sg_progress_print(&c->run->progress, "shardgrad: stopping; once more ends everything at once");
    sg_supervisor_stop(c->supervisor);
}

static sg_status init(cluster *c, sg_run *run, sg_error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    *c = (cluster){.run = run, .config = run->arguments->config};
    const int failed = uv_loop_init(&c->loop);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    sg_restart_init(&c->restart, c->config);
    sg_run_heard_init(&c->heard, &run->progress, c->config);
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++) {
        uv_signal_init(&c->loop, &c->signals[i]);
        c->signals[i].data = c;
        if (numbers[i] != SIGHUP || sg_signals_hangup_ends())
            uv_signal_start(&c->signals[i], on_signal, numbers[i]);
    }
    uv_timer_init(&c->loop, &c->poll);
    uv_timer_init(&c->loop, &c->ps_end);
    uv_timer_init(&c->loop, &c->workers_end);
    c->poll.data = c->ps_end.data = c->workers_end.data = c->asking.data = c;
    c->supervisor = sg_supervisor_create(&(sg_supervisor_options){
        .loop = &c->loop,
        .grace_ms = c->config->shutdown_grace_ms + KILL_MARGIN_MS,
        .shared_fd = run->lock_fd,
        .on_line = on_line,
        .on_finished = on_finished,
        .is_done_without = is_done_without,
        .on_done_without = on_done_without,
        .restarts = c->config->restarts,
        .has_work_for = has_work_for,
        .more_words = more_words,
        .on_restarted = on_restarted,
        .on_ended = on_ended,
        .user = c,
    });
    return SG_OK;
}

/* The exit code, with err; 0: nothing failed. */
static int find_failure(const cluster *c, sg_status start_status, sg_error *err)
{
    if (start_status != SG_OK)
        return sg_status_exit_code(start_status);
    if (c->end.code == SG_OK)
        return sg_supervisor_failure(c->supervisor, err);
    *err = c->end;
    return sg_status_exit_code(c->end.code);
}

/* That goes on from the newest checkpoint. */
static const char *command_to_go_on(const sg_config *config)
{
    return strcmp(config->restore, "latest") == 0 ? "the same command" : "the same command, without --restore,";
}

static void tell_how_to_go_on(const sg_config *config)
{
    if (config->checkpoint.dir[0] == '\0')
        fprintf(stderr, "shardgrad: stopped before the end, and nothing is kept: checkpoint.dir is not set\n");
    else if (sg_restart_has_checkpoint(config))
        fprintf(stderr, "shardgrad: stopped before the end; %s goes on from the newest checkpoint in %s\n",
                command_to_go_on(config), config->checkpoint.dir);
    else
        fprintf(stderr, "shardgrad: stopped before the first checkpoint in %s was made; the same command begins anew\n",
                config->checkpoint.dir);
}

/* Says how it ended; returns the exit code. */
static int conclude(cluster *c, sg_status start_status, sg_error *err)
{
    sg_progress_clear(&c->run->progress);
    int failure = find_failure(c, start_status, err);
    if (c->heard.unwritten.mode[0] != '\0')
        (void)!sg_run_directory_print(&c->heard.unwritten, c->config->run_dir, NULL); /* what failed is told, and why */
    if (failure != 0) { /* before it was told to stop, if it was */
        fprintf(stderr, "shardgrad: %s (logs: %s/log)\n", err->message, c->config->run_dir);
        if (start_status == SG_OK && is_at_its_end(c) && c->config->checkpoint.dir[0] != '\0')
            fprintf(stderr,
                    "shardgrad: the last checkpoint may be missing, though all workers were done; %s goes on from the "
                    "newest\n",
                    command_to_go_on(c->config));
        return failure;
    }
    int code = c->signal_number == SIGINT ? 130 : 0;
    if (c->signal_number != 0 && c->n_workers_alive > 0) {
        tell_how_to_go_on(c->config);
        return code;
    }
    sg_run_heard_tell_whether_all_was_done(&c->heard);
    sg_error why;
    const bool has_result = sg_run_directory_has_result(c->config->run_dir);
    const sg_status written =
        has_result ? sg_evaluations_write(&c->heard.evaluations, c->config->run_dir, &why) : SG_OK;
    sg_status status = sg_run_directory_print_result(c->config->run_dir, err);
    if (status == SG_OK && written != SG_OK)
        status = sg_error_set(err, written, "the tests on the way are not in summary.json: %s", why.message);
    if (status == SG_NOT_FOUND && !has_result)
        status =
            sg_error_set(err, SG_PEER_LOST,
                         "there is no result: worker-0, which evaluates, ended before the last step (logs: %s/log)",
                         c->config->run_dir);
    if (status == SG_OK)
        return code;
    code = sg_arguments_fail(status, err);
    if (status == SG_NON_FINITE && sg_restart_has_checkpoint(c->config))
        fprintf(stderr,
                "shardgrad: the newest checkpoints in %s hold such values: with --restore N the job goes on from an "
                "older one (shardgrad export --list names them), with --restore none it begins anew\n",
                c->config->checkpoint.dir);
    return code;
}

int sg_run_cluster(sg_run *run)
{
    cluster c;
    sg_error err = {0};
    sg_status status = check_descriptors(run->arguments->config, &err);
    if (status == SG_OK)
        status = check_ports(run->arguments->config, &err);
    if (status == SG_OK)
        status = init(&c, run, &err);
    if (status != SG_OK)
        return sg_arguments_fail(status, &err);
    status = start_processes(&c, &err);
    /* A process that is started anew is forked while gRPC's threads run: between fork and exec uv_spawn does only what
     * is safe in such a process, and gRPC's descriptors close with exec. */
    c.query = sg_status_query_create(c.config, NULL, SG_ROLE_OBSERVER);
    uv_timer_start(&c.poll, on_poll, POLL_EVERY_MS, POLL_EVERY_MS);
    uv_run(&c.loop, UV_RUN_DEFAULT);

    sg_status_query_destroy(c.query);
    int code = conclude(&c, status, &err);
    sg_run_heard_deinit(&c.heard);
    sg_supervisor_destroy(c.supervisor);
    uv_run(&c.loop, UV_RUN_DEFAULT);
    SG_ASSERT(uv_loop_close(&c.loop) == 0);
    return code;
}
