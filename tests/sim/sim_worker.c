/* tests/sim/sim_worker.c - a worker: the real session, its calls, its life and its end. sim_trainer.c drives it. */
#include "tests/sim/sim_worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "kernels/bf16.h"

/* --- the end of a process --------------------------------------------------------------------------------------- */

static void vanish(sim *s, sim_worker *worker)
{
    worker->running = false;
    worker->phase = SIM_ENDED;
    s->idle_since_ms = s->now_ms;
    sg_session_destroy(worker->session);
    worker->session = NULL;
    for (sim_call *call = s->calls; call != NULL; call = call->next) {
        if (call->sender == SIM_FROM_WORKER && call->from == worker->number)
            sim_cancel(s, call);
    }
}

void sim_worker_end(sim *s, sim_worker *worker, sg_status status, const char *text)
{
    worker->status = status;
    snprintf(worker->text, sizeof worker->text, "%s", text);
    sim_trace(s, "worker %u (process %u) ends: %s %s", worker->index, worker->number, sg_status_name(status), text);
    if (status != SG_OK && text[0] == '\0')
        sim_fail(s, "worker %u failed (%s) without a word", worker->index, sg_status_name(status));
    vanish(s, worker);
}

void sim_worker_kill(sim *s, sim_worker *worker)
{
    if (!worker->running)
        return;
    sim_trace(s, "worker %u (process %u) is killed", worker->index, worker->number);
    worker->killed = true;
    vanish(s, worker);
}

void sim_workers_init(sim *s)
{
    s->workers = sg_xcalloc(SIM_MAX_WORKERS, sizeof *s->workers);
}

void sim_workers_deinit(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++)
        sim_worker_kill(s, &s->workers[i]);
    free(s->workers);
}

bool sim_workers_run(const sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        if (s->workers[i].running)
            return true;
    }
    return false;
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static uint64_t elems_of(const sim *s, uint32_t slice)
{
    return s->plan->slices[slice].n_elems;
}

static bool is_narrow(const sim *s, const sg_session_action *action, uint32_t slice)
{
    return sg_session_is_push(action->method) && !sim_rules_is_averaged(s, slice) &&
           ((const Shardgrad__V1__PushRequest *)action->body)->dtype == SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_BFLOAT16;
}

/* The bytes go as they are at the moment of sending, narrowed as transport.c does. */
static void lend_data(const sim *s, const sim_worker *worker, const sg_session_action *action, sim_call *call)
{
    const bool initialize = action->method == SG_SESSION_INITIALIZE;
    if (!initialize && !sg_session_is_push(action->method))
        return;
    call->data = sg_xcalloc(action->n_slices * SIM_SLICE_ELEMS + 1, sizeof(float));
    size_t whole_bytes = 0;
    for (size_t i = 0; i < action->n_slices; i++) {
        const uint32_t slice = action->slices[i];
        const float *from = initialize ? worker->values[slice] : worker->gradients[slice];
        const size_t n_bytes = elems_of(s, slice) * sizeof *from;
        const bool narrow = is_narrow(s, action, slice);
        if (narrow)
            sg_bf16_narrow_to_bytes(from, call->data + call->data_bytes, elems_of(s, slice));
        else
            memcpy(call->data + call->data_bytes, from, n_bytes);
        call->data_bytes += narrow ? n_bytes / 2 : n_bytes;
        whole_bytes += n_bytes;
    }
    SG_ASSERT(whole_bytes == action->slice_bytes);
}

static void send(sim *s, sim_worker *worker, const sg_session_action *action)
{
    sim_call call = {.sender = SIM_FROM_WORKER,
                     .from = worker->number,
                     .number = action->call,
                     .task = action->task,
                     .method = (int)action->method,
                     .wants_values = action->method == SG_SESSION_PUSH_PULL,
                     .to = action->target == SG_SESSION_COORDINATOR ? 0 : action->target,
                     .to_coordinator = action->target == SG_SESSION_COORDINATOR,
                     .body = sg_wire_head_copy(action->body)};
    lend_data(s, worker, action, &call);
    if (sg_session_is_push(action->method))
        sim_oracle_sent(s, &call);
    sim_send(s, &call, action->timeout_ms);
}

static void cancel_calls(sim *s, const sim_worker *worker, uint64_t task)
{
    for (sim_call *call = s->calls; call != NULL; call = call->next) {
        if (call->sender != SIM_FROM_WORKER || call->from != worker->number || call->task != task || call->settled)
            continue;
        sim_cancel(s, call);
        sg_session_on_reply(worker->session, s->now_ms, call->number, SG_CANCELLED, "cancelled", NULL);
    }
}

/* A push of it that was lost is not sent again. It may yet arrive: the goodbye fences it. */
static void give_up_lost(sim *s, const sim_worker *worker, uint64_t task)
{
    for (const sim_call *call = s->calls; call != NULL; call = call->next) {
        if (call->sender == SIM_FROM_WORKER && call->from == worker->number && call->task == task && call->settled &&
            call->body->descriptor == &shardgrad__v1__push_request__descriptor)
            sim_oracle_cancelled(s, call);
    }
}

static void take_data(sim *s, sim_worker *worker, const sim_call *call, const ProtobufCMessage *reply,
                      const float *data)
{
    const uint32_t *slices;
    const uint64_t *versions;
    size_t n;
    uint64_t generation;
    if (call->method == SG_SESSION_PULL) {
        generation = ((const Shardgrad__V1__PullRequest *)call->body)->generation;
        slices = ((const Shardgrad__V1__PullRequest *)call->body)->slices;
        versions = ((const Shardgrad__V1__PullResponse *)reply)->versions;
        n = ((const Shardgrad__V1__PullResponse *)reply)->n_versions;
    } else if (call->method == SG_SESSION_PUSH_PULL) {
        generation = ((const Shardgrad__V1__PushRequest *)call->body)->generation;
        slices = ((const Shardgrad__V1__PushRequest *)call->body)->slices;
        versions = ((const Shardgrad__V1__PushPullResponse *)reply)->versions;
        n = ((const Shardgrad__V1__PushPullResponse *)reply)->n_versions;
    } else {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        memcpy(worker->values[slices[i]], data, elems_of(s, slices[i]) * sizeof(float));
        data += elems_of(s, slices[i]);
        if (generation == s->generation)
            sim_versions_pulled(s, worker->index, slices[i], versions[i], worker->values[slices[i]]);
    }
}

void sim_worker_reply(sim *s, const sim_call *call, sg_status status, const char *text, const ProtobufCMessage *reply,
                      const float *data)
{
    sim_worker *worker = &s->workers[call->from];
    if (!worker->running)
        return;
    if (status == SG_OK)
        take_data(s, worker, call, reply, data);
    sg_session_on_reply(worker->session, s->now_ms, call->number, status, text, reply);
    sim_worker_advance(s, worker);
}

/* --- what the session says -------------------------------------------------------------------------------------- */

/* It went back although no ps was lost, since one did not answer it for a lease, and waited for a generation that did
 * not come until it was given up for lost. The trainer does as it is told: it comes again. */
static bool is_told_to_come_again(const sim *s, const sim_worker *worker, const sg_session_action *action)
{
    return worker->phase == SIM_RESUMING && action->status == SG_FENCED && s->n_workers < SIM_MAX_WORKERS &&
           strstr(action->text, "come again as a new one") != NULL;
}

static void come_again(sim *s, sim_worker *worker, const sg_session_action *action)
{
    uint32_t iterations_left = worker->iterations_left;
    worker->came_again = true;
    sim_worker_end(s, worker, action->status, action->text);
    sim_worker_start(s, worker->index);
    s->workers[s->n_workers - 1].iterations_left = iterations_left;
}

static void done(sim *s, sim_worker *worker, const sg_session_action *action)
{
    cancel_calls(s, worker, action->task);
    if (action->status == SG_CANCELLED)
        give_up_lost(s, worker, action->task);
    sim_trace(s, "worker %u (process %u): task %" PRIu64 " done: %s %s", worker->index, worker->number, action->task,
              sg_status_name(action->status), action->text == NULL ? "" : action->text);
    if (worker->phase == SIM_LEAVING) {
        if (action->task == worker->task) {
            worker->leave_status = action->status;
            sim_worker_end(s, worker, SG_OK, action->text == NULL ? "" : action->text);
        }
    } else if (worker->phase == SIM_RESUMING && action->task != worker->task) {
        return; /* it was under way before */
    } else if ((action->status == SG_LATE || action->status == SG_ROLLED_BACK) && sg_session_is_back(worker->session)) {
        sim_trainer_resume(s, worker);
    } else if (is_told_to_come_again(s, worker, action)) {
        come_again(s, worker, action);
    } else if (action->status != SG_OK) {
        sim_worker_end(s, worker, action->status, action->text);
    } else {
        sim_trainer_done(s, worker, action);
    }
}

static void on_tick(sim *s, const sim_event *event)
{
    sim_worker *worker = event->subject;
    if (!worker->running || event->number != worker->tick_ms)
        return;
    worker->tick_ms = UINT64_MAX;
    sg_session_tick(worker->session, s->now_ms);
    sim_worker_advance(s, worker);
}

void sim_worker_advance(sim *s, sim_worker *worker)
{
    sg_session_action action;
    while (worker->running && sg_session_next_action(worker->session, &action)) {
        if (action.kind == SG_SESSION_CALL)
            send(s, worker, &action);
        else if (action.kind == SG_SESSION_DONE)
            done(s, worker, &action);
        else
            sim_trace(s, "worker %u (process %u): %s %s", worker->index, worker->number, action.event, action.text);
        sg_session_action_deinit(&action);
    }
    if (!worker->running)
        return;
    uint64_t next_ms = sg_session_next_ms(worker->session);
    if (next_ms < worker->tick_ms) {
        worker->tick_ms = next_ms < s->now_ms ? s->now_ms : next_ms;
        sim_at(s, worker->tick_ms, on_tick, worker, worker->tick_ms);
    }
}

void sim_worker_start(sim *s, uint32_t index)
{
    SG_ASSERT(s->n_workers < SIM_MAX_WORKERS);
    sim_worker *worker = &s->workers[s->n_workers];
    char address[32];
    *worker = (sim_worker){.index = index,
                           .number = s->n_workers++,
                           .running = true,
                           .tick_ms = UINT64_MAX,
                           .iterations_left = s->scenario.quota[index]};
    s->newest_worker[index] = s->n_workers;
    for (uint32_t group = 0; group < SIM_MAX_GROUPS; group++)
        worker->next_step[group] = UINT64_MAX;
    snprintf(address, sizeof address, "process-%u", worker->number);
    worker->session = sg_session_create(&(sg_session_options){.job = s->config->job,
                                                              .worker = index,
                                                              .life = 1000 + worker->number,
                                                              .random_seed = s->seed_number + worker->number,
                                                              .address = address,
                                                              .settings = s->config,
                                                              .start_timeout_ms = s->config->start_timeout_ms,
                                                              .warn_after_ms = s->config->warn_after_ms});
    sim_trainer_choose(s, worker);
    sim_trace(s, "worker %u starts as process %u", index, worker->number);
    worker->task = sg_session_join(worker->session, s->now_ms, s->now_ms + s->config->start_timeout_ms);
    sim_worker_advance(s, worker);
}
