/* worker/cli/run_cluster_status.c - `shardgrad run`: asks the coordinator for its status again and again, and shows how
 * far the job is. Only the asking blocks, and is done on libuv's pool. */
#include <inttypes.h>
#include <math.h>

#include "common/clock.h"
#include "worker/cli/run_cluster_internal.h"

#define ASK_TIMEOUT_MS 1000u
#define TELL_EVERY_MS  5000u /* what the ps still do after the last worker */

static void tell_of_test(sg_run_cluster_state *c, const Shardgrad__V1__Evaluation *test)
{
    if (test->iteration < c->tested)
        return;
    c->tested = test->iteration + 1;
    char loss[SG_LOSS_TEXT_BYTES];
    sg_loss_print((double)test->loss, loss);
    sg_progress_print(&c->run->progress, "tested  step %" PRIu64 "  test_accuracy %.4f  loss %s", test->iteration,
                      (double)test->correct / (double)test->of, loss);
}

static void show(sg_run_cluster_state *c, const Shardgrad__V1__StatusResponse *response)
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
static void look_at_the_end(sg_run_cluster_state *c, const Shardgrad__V1__StatusResponse *response)
{
    if (uv_is_active((uv_handle_t *)&c->ps_end) == 0 || sg_supervisor_is_stopping(c->supervisor) ||
        !is_finishing(response))
        return;
    sg_run_cluster_await_ps_end(c);
    const uint64_t now_ms = sg_clock_ms();
    if (c->told_ms != 0 && now_ms - c->told_ms < TELL_EVERY_MS)
        return;
    c->told_ms = now_ms;
    sg_progress_print(&c->run->progress, "shardgrad: the workers are done, the last checkpoint is not: %s",
                      what_is_not_done(response));
}

static void ask(uv_work_t *work)
{
    sg_run_cluster_state *c = work->data;
    c->ask_status = sg_status_query_ask(c->query, ASK_TIMEOUT_MS, &c->response, NULL);
}

static void on_asked(uv_work_t *work, int canceled)
{
    sg_run_cluster_state *c = work->data;
    c->is_asking = false;
    if (canceled != 0 || c->ask_status != SG_OK)
        return; /* the coordinator is not up yet, or not any more: its process tells more than this */
    if (sg_supervisor_n_alive(c->supervisor) > 0) {
        show(c, c->response);
        look_at_the_end(c, c->response);
    }
    shardgrad__v1__status_response__free_unpacked(c->response, NULL);
}

void sg_run_cluster_poll(uv_timer_t *timer)
{
    sg_run_cluster_state *c = timer->data;
    if (!c->is_asking)
        c->is_asking = uv_queue_work(&c->loop, &c->asking, ask, on_asked) == 0;
}
