/* worker/cli/run_cluster_watch.c - `shardgrad run`: what its processes write, how they end, and what that means for the
 * run. */
#include <inttypes.h>
#include <string.h>

#include "worker/cli/run_cluster_internal.h"
#include "worker/cli/run_directory.h"

#define PS_END_MS 10000u /* ps end by themselves when the last worker has left; this long after it they are told */
#define MARGIN_MS 1000u  /* beyond shutdown_grace_ms, before SIGKILL, or before a run without a ps is over */

/* Warnings, errors, and whatever is no log line are for the user; the rest is in the run directory. The last word of a
 * process that failed is told in the end, and what the others say when they are stopped is no news. */
static void on_line(void *user, const char *who, const char *line)
{
    sg_run_cluster_state *c = user;
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
    sg_run_cluster_state *c = timer->data;
    if (sg_supervisor_is_stopping(c->supervisor))
        return;
    sg_progress_print(&c->run->progress, "shardgrad: the ps did not end after the last worker; stopping them");
    if (c->ps_restarted && sg_supervisor_pid(c->supervisor, "ps-0") != 0)
        (void)!sg_error_set(&c->end, SG_PEER_LOST, "a ps was started anew when all workers were about to end");
    sg_supervisor_stop(c->supervisor);
}

void sg_run_cluster_await_ps_end(sg_run_cluster_state *c)
{
    uv_timer_start(&c->ps_end, on_ps_end_due, PS_END_MS, 0);
}

static bool is_worker(const char *who)
{
    return strncmp(who, "worker", strlen("worker")) == 0;
}

/* Worker 0 has written down the result, and a ps has ended, for it waits for nobody any more: workers that are not done
 * yet were given up, as one that stands still is. */
static bool is_job_over(const sg_run_cluster_state *c)
{
    return c->ended_ps[0] != '\0' && sg_run_directory_has_result(c->config->run_dir);
}

bool sg_run_cluster_is_at_its_end(const sg_run_cluster_state *c)
{
    return c->n_workers_alive == 0 && !c->config->linger;
}

static bool is_done_without(void *user, const char *who, bool came_too_late)
{
    const sg_run_cluster_state *c = user;
    if (is_worker(who))
        return came_too_late && is_job_over(c);
    return sg_run_cluster_is_at_its_end(c) && (strcmp(who, "ps-0") != 0 || c->config->checkpoint.dir[0] == '\0');
}

/* Nobody would make again what a ps took with it. */
static bool has_work_for(void *user, const char *who)
{
    const sg_run_cluster_state *c = user;
    return is_worker(who) ? !is_job_over(c) : !sg_run_cluster_is_at_its_end(c);
}

static void tell_worker_cut_off(const sg_run_cluster_state *c, const char *who, const char *how)
{
    sg_progress_print(
        &c->run->progress,
        "shardgrad: the job has ended without %s, which was cut off or stood still for longer than lease_ms: %s", who,
        how);
}

static void on_done_without(void *user, const char *who, const char *how)
{
    const sg_run_cluster_state *c = user;
    if (is_worker(who))
        tell_worker_cut_off(c, who, how);
    else
        sg_progress_print(&c->run->progress, "shardgrad: after the last worker had left, %s", how);
}

static void on_workers_end_due(uv_timer_t *timer)
{
    sg_run_cluster_state *c = timer->data;
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
static void on_ps_finished(sg_run_cluster_state *c, const char *who)
{
    if (c->n_workers_alive == 0 || c->ended_ps[0] != '\0')
        return;
    snprintf(c->ended_ps, sizeof(c->ended_ps), "%s", who);
    uv_timer_start(&c->workers_end, on_workers_end_due, c->config->shutdown_grace_ms + MARGIN_MS, 0);
}

static void on_finished(void *user, const char *who, size_t n_alive)
{
    sg_run_cluster_state *c = user;
    if (!is_worker(who)) {
        on_ps_finished(c, who);
        return;
    }
    if (--c->n_workers_alive > 0 || n_alive == 0)
        return;
    if (c->config->linger)
        sg_progress_print(&c->run->progress, "shardgrad: the workers are done; the ps linger until Ctrl-C");
    else
        sg_run_cluster_await_ps_end(c);
}

static const char *const *more_words(void *user, const char *who)
{
    const sg_run_cluster_state *c = user;
    return strncmp(who, "ps", strlen("ps")) == 0 ? sg_restart_words(&c->restart) : NULL;
}

static void on_restarted(void *user, const char *who, const char *how, uint64_t n)
{
    sg_run_cluster_state *c = user;
    sg_run_heard_restart(&c->heard, who);
    c->ps_restarted = c->ps_restarted || !is_worker(who);
    sg_progress_print(&c->run->progress, "shardgrad: %s; it was started anew (%" PRIu64 " of %" PRIu64 ")", how, n,
                      c->config->restarts);
}

static void on_ended(void *user)
{
    sg_run_cluster_state *c = user;
    for (size_t i = 0; i < SG_ARRAY_LEN(c->signals); i++)
        uv_close((uv_handle_t *)&c->signals[i], NULL);
    uv_close((uv_handle_t *)&c->poll, NULL);
    uv_close((uv_handle_t *)&c->ps_end, NULL);
    uv_close((uv_handle_t *)&c->workers_end, NULL);
}

void sg_run_cluster_watch(sg_run_cluster_state *c, int shared_fd)
{
    c->supervisor = sg_supervisor_create(&(sg_supervisor_options){
        .loop = &c->loop,
        .grace_ms = c->config->shutdown_grace_ms + MARGIN_MS,
        .shared_fd = shared_fd,
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
}
