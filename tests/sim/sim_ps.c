/* tests/sim/sim_ps.c - a ps: its store and, in ps 0, the coordinator. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "server/coordinator_internal.h"
#include "server/store.h"

#define TICK_MS      100u
#define TICK_LATE_MS 30u
#define STILL_MS     500u
#define HELD_BYTES   (20u << 10) /* one message and what is counted beside it */
#define SILENCE_MS   300u        /* a parked call is answered by a tick: so much later at most */

/* --- the end of a process --------------------------------------------------------------------------------------- */

/* Connections break: whoever has not got an answer is told by its own transport. */
static void break_connections(sim *s, const sim_ps *ps)
{
    for (size_t i = 0; i < s->n_waiting; i++) {
        sim_arrival *arrival = s->waiting[i];
        if (arrival->answered || arrival->life != ps->life)
            continue;
        if (!s->failed)
            sim_answer(s, arrival, SG_UNAVAILABLE, "the connection broke", NULL);
        arrival->answered = true;
    }
}

static void vanish(sim *s, sim_ps *ps)
{
    sim_trace(s, "ps %ld is gone", (long)(ps - s->ps));
    ps->running = false;
    break_connections(s, ps);
    sg_store_fail_pulls(ps->store, SG_STOPPED, "the ps has stopped");
    sg_store_destroy(ps->store);
    sg_coordinator_destroy(ps->coordinator);
    ps->store = NULL;
    ps->coordinator = NULL;
}

void sim_ps_end(sim *s, sim_ps *ps, sg_status status, const char *text, uint64_t linger_ms)
{
    if (ps->ended)
        return;
    ps->ended = true;
    ps->status = status;
    snprintf(ps->text, sizeof ps->text, "%s", text);
    ps->end_at_ms = s->now_ms + linger_ms;
    sg_store_fail_pulls(ps->store, status == SG_OK ? SG_STOPPED : status, status == SG_OK ? "the job has ended" : text);
}

void sim_ps_kill(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    if (!ps->running)
        return;
    ps->killed = true;
    vanish(s, ps);
}

/* --- the store -------------------------------------------------------------------------------------------------- */

/* Copies the values out; the references are used up. */
static void take_values(sim_arrival *arrival, sg_version *const *versions, size_t n, uint64_t numbers[SIM_MAX_SLICES])
{
    arrival->data = sg_xcalloc(SIM_MAX_SLICES * SIM_SLICE_ELEMS, sizeof *arrival->data);
    for (size_t i = 0; i < n; i++) {
        numbers[i] = versions[i]->step;
        memcpy(arrival->data + arrival->n_elems, versions[i]->values, versions[i]->n_elems * sizeof(float));
        arrival->n_elems += versions[i]->n_elems;
        sg_version_release(versions[i]);
    }
}

static void answer_pull(void *user, void *call, const sg_store_pull_answer *answer)
{
    sim *s = user;
    sim_arrival *arrival = call;
    uint64_t versions[SIM_MAX_SLICES];
    if (arrival->answered) { /* its connection has broken */
        for (size_t i = 0; i < answer->n; i++)
            sg_version_release(answer->versions[i]);
        return;
    }
    if (answer->status != SG_OK) {
        sim_answer(s, arrival, answer->status, answer->message, NULL);
        return;
    }
    take_values(arrival, answer->versions, answer->n, versions);
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    response.dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    response.versions = versions;
    response.n_versions = answer->n;
    sim_answer(s, arrival, SG_OK, "", &response.base);
}

static void arrive_order(sim *s, sim_ps *ps, sim_arrival *arrival)
{
    sg_error err = {.message = ""};
    sg_status status;
    sg_store_acknowledgement answer;
    shardgrad__v1__order_response__init(&answer.response);
    if (arrival->call->body->descriptor == &shardgrad__v1__ps_declare_request__descriptor) {
        status = sg_store_declare(ps->store, (const Shardgrad__V1__PsDeclareRequest *)arrival->call->body, &err);
    } else {
        const Shardgrad__V1__OrderRequest *request = (const Shardgrad__V1__OrderRequest *)arrival->call->body;
        status = sg_store_order(ps->store, s->now_ms, request, &err);
        if (status == SG_OK) {
            sg_store_acknowledge(ps->store, request, &answer);
            sim_oracle_ordered(s, arrival->call->to, arrival->call->sender_life, request);
        } else if (status == SG_INVALID && request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT) {
            sim_fail(s, "a checkpoint was ordered that no ps makes: %s", err.message);
        }
    }
    sim_answer(s, arrival, status, status == SG_OK ? "" : err.message, status == SG_OK ? &answer.response.base : NULL);
}

static void arrive_initialize(sim *s, sim_ps *ps, sim_arrival *arrival)
{
    sg_error err = {.message = ""};
    sg_span span = {.data = arrival->call->data, .n_bytes = arrival->call->data_bytes};
    sg_status status =
        sg_store_initialize(ps->store, (const Shardgrad__V1__InitializeRequest *)arrival->call->body, &span, 1, &err);
    Shardgrad__V1__InitializeResponse response = SHARDGRAD__V1__INITIALIZE_RESPONSE__INIT;
    sim_answer(s, arrival, status, status == SG_OK ? "" : err.message, status == SG_OK ? &response.base : NULL);
}

/* As sg_coordinator_service_ticket does. */
static void ticket_get(sim *s, sim_ps *ps, const Shardgrad__V1__TicketRequest *request)
{
    ps->ticket = NULL;
    if (request == NULL || ps->coordinator == NULL || sg_coordinator_is_over(ps->coordinator))
        return;
    sg_coordinator_on_ticket(ps->coordinator, s->now_ms, request, &ps->ticket);
    sim_coordinator_drain(s, ps);
    sg_coordinator_forget(ps->coordinator, &ps->ticket);
    if (ps->ticket != NULL)
        sim_oracle_ticket(s, request->incarnation, (const Shardgrad__V1__TicketResponse *)ps->ticket);
}

static void answer_push_pull(sim *s, sim_ps *ps, sim_arrival *arrival, const sg_store_pushed *pushed)
{
    uint64_t numbers[SIM_MAX_SLICES];
    const size_t n = pushed->n_versions;
    take_values(arrival, pushed->versions, n, numbers);
    if (pushed->n_refused == 0)
        ticket_get(s, ps, ((const Shardgrad__V1__PushRequest *)arrival->call->body)->ticket);
    Shardgrad__V1__PushPullResponse response = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    response.dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    response.versions = numbers;
    response.n_versions = n;
    response.refused = pushed->refused;
    response.n_refused = pushed->n_refused;
    response.focus = pushed->focus;
    response.ticket = (Shardgrad__V1__TicketResponse *)ps->ticket;
    sim_answer(s, arrival, SG_OK, "", &response.base);
    if (ps->ticket != NULL)
        sg_wire_head_free(ps->ticket);
    ps->ticket = NULL;
}

/* The bytes of a push as they were received, in two pieces; gone when nobody needs them any more. */
typedef struct received {
    uint32_t references;
    uint8_t *bytes;
    size_t n_bytes;
    sg_span spans[2];
} received;

static received *receive(const sim_call *call)
{
    received *r = sg_xcalloc(1, sizeof *r);
    size_t first = call->data_bytes / 3;
    *r = (received){.references = 1, .bytes = sg_xcalloc(call->data_bytes + 1, 1), .n_bytes = call->data_bytes};
    memcpy(r->bytes, call->data, call->data_bytes);
    r->spans[0] = (sg_span){.data = r->bytes, .n_bytes = first};
    r->spans[1] = (sg_span){.data = r->bytes + first, .n_bytes = call->data_bytes - first};
    return r;
}

static void received_keep(void *owner)
{
    received *r = owner;
    r->references++;
}

static void received_release(void *owner)
{
    received *r = owner;
    if (--r->references > 0)
        return;
    memset(r->bytes, 0xff, r->n_bytes);
    free(r->bytes);
    free(r);
}

static void arrive_push(sim *s, sim_ps *ps, sim_arrival *arrival)
{
    sg_error err = {.message = ""};
    received *r = receive(arrival->call);
    sg_store_data data = {.spans = r->spans,
                          .n_spans = 2,
                          .kept_bytes = r->n_bytes,
                          .owner = r,
                          .keep = received_keep,
                          .release = received_release};
    sg_store_pushed pushed = {.wants_versions = arrival->call->wants_values};
    sg_status status = sg_store_push(ps->store, s->now_ms, (const Shardgrad__V1__PushRequest *)arrival->call->body,
                                     &data, &pushed, &err);
    received_release(r);
    sim_oracle_pushed(s, arrival->call, status, pushed.refused, pushed.n_refused);
    s->n_refused += pushed.n_refused > 0;
    if (status == SG_OK && arrival->call->wants_values) {
        answer_push_pull(s, ps, arrival, &pushed);
    } else {
        Shardgrad__V1__PushResponse response = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
        response.refused = pushed.refused;
        response.n_refused = pushed.n_refused;
        response.focus = pushed.focus;
        sim_answer(s, arrival, status, status == SG_OK ? "" : err.message, status == SG_OK ? &response.base : NULL);
    }
    sg_store_pushed_deinit(&pushed);
}

static void arrive_at_store(sim *s, sim_ps *ps, sim_arrival *arrival)
{
    const ProtobufCMessageDescriptor *type = arrival->call->body->descriptor;
    if (type == &shardgrad__v1__push_request__descriptor)
        arrive_push(s, ps, arrival);
    else if (type == &shardgrad__v1__initialize_request__descriptor)
        arrive_initialize(s, ps, arrival);
    else if (type == &shardgrad__v1__pull_request__descriptor)
        sg_store_pull(ps->store, s->now_ms, arrival->call->deadline_ms,
                      (const Shardgrad__V1__PullRequest *)arrival->call->body, arrival);
    else
        arrive_order(s, ps, arrival);
}

void sim_ps_arrive(sim *s, sim_arrival *arrival)
{
    sim_ps *ps = &s->ps[arrival->call->to];
    if (arrival->call->to_coordinator)
        sim_coordinator_arrive(s, ps, arrival);
    else
        arrive_at_store(s, ps, arrival);
    if (arrival->answered)
        return;
    if (s->n_waiting == s->waiting_capacity) {
        s->waiting_capacity = s->waiting_capacity == 0 ? 64 : 2 * s->waiting_capacity;
        s->waiting = sg_xrealloc(s->waiting, s->waiting_capacity, sizeof(sim_arrival *));
    }
    s->waiting[s->n_waiting++] = arrival;
}

void sim_ps_gone(sim *s, sim_arrival *arrival)
{
    sim_ps *ps = &s->ps[arrival->call->to];
    if (!ps->running || ps->life != arrival->life)
        return;
    if (arrival->call->to_coordinator) {
        sg_coordinator_forget(ps->coordinator, arrival);
        arrival->answered = true;
    } else {
        sg_store_cancel_pull(ps->store, arrival);
        if (!arrival->answered)
            sim_fail(s, "a pull that was cancelled was not answered");
    }
}

/* Nobody waits in silence: who is parked is told for whom after park_ms, by the next tick. */
static void check_silence(sim *s, const sim_ps *ps)
{
    size_t n = 0;
    if (s->now_ms <= ps->still_until_ms + SILENCE_MS)
        return;
    for (size_t i = 0; i < s->n_waiting; i++) {
        sim_arrival *arrival = s->waiting[i];
        if (arrival->answered)
            continue;
        s->waiting[n++] = arrival;
        if (arrival->life == ps->life && s->now_ms > arrival->arrived_ms + s->config->park_ms + SILENCE_MS)
            sim_fail(s, "a %s waits for %" PRIu64 " ms without a word", arrival->call->body->descriptor->short_name,
                     s->now_ms - arrival->arrived_ms);
    }
    s->n_waiting = n;
}

/* --- time ------------------------------------------------------------------------------------------------------- */

static void look_for_the_end(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    sg_status status;
    char text[SG_ERROR_MESSAGE_BYTES];
    if (ps->ended) {
        if (s->now_ms >= ps->end_at_ms)
            vanish(s, ps);
    } else if (index != 0 && sg_store_ended(ps->store, &status, text, sizeof text)) {
        bool well = status == SG_OK || status == SG_STOPPED;
        sim_ps_end(s, ps, status, text, well ? 0 : s->config->shutdown_grace_ms);
    } else if (ps->stopping && s->now_ms >= ps->end_at_ms) {
        sim_ps_end(s, ps, SG_STOPPED, "this ps was told to stop", 0);
    }
}

static void on_tick(sim *s, const sim_event *event)
{
    sim_ps *ps = event->subject;
    uint32_t index = (uint32_t)(ps - s->ps);
    if (!ps->running || ps->life != event->number || sim_ps_put_off(s, ps, event))
        return;
    if (s->now_ms > ps->ticked_ms + STILL_MS) /* as the registrar does */
        ps->accepted_ms = s->now_ms;
    ps->ticked_ms = s->now_ms;
    sg_store_tick(ps->store, s->now_ms);
    if (ps->coordinator != NULL) {
        sg_coordinator_tick(ps->coordinator, s->now_ms);
        sim_coordinator_drain(s, ps);
    }
    check_silence(s, ps);
    sim_register_keep(s, index);
    sim_norms_keep(s, index);
    sim_versions_look(s, index);
    look_for_the_end(s, index);
    sim_at(s, s->now_ms + TICK_MS + sim_below(s, TICK_LATE_MS), on_tick, ps, ps->life);
}

void sim_ps_start(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    *ps = (sim_ps){.world = s,
                   .running = true,
                   .life = 1 + index + 16 * ++s->n_lives,
                   .accepted_ms = s->now_ms,
                   .ticked_ms = s->now_ms};
    ps->store = sg_store_create(
        &(sg_store_options){.ps = index,
                            .mode = s->config->update.mode == SG_MODE_SYNC ? SG_MODE_SYNC : SG_MODE_ASYNC,
                            .rule = s->config->update.rule,
                            .non_finite = s->config->update.non_finite,
                            .park_ms = s->config->park_ms,
                            .warn_after_ms = s->config->warn_after_ms,
                            .message_bytes = s->config->message_bytes,
                            .contribution_bytes = s->config->contribution_bytes,
                            .held_bytes = s->seed_number % 3 * HELD_BYTES,
                            .max_workers = s->config->max_workers,
                            .backup_workers = s->config->update.backup_workers,
                            .answer_pull = answer_pull,
                            .on_cut = sim_save_cut,
                            .on_load = sim_save_load,
                            .on_norms = sim_norms_ask,
                            .user = s,
                            .cut_user = ps});
    ps->told_life = ps->life;
    sg_store_set_life(ps->store, ps->life);
    if (index == 0)
        ps->coordinator = sg_coordinator_create(s->config);
    sim_trace(s, "ps %u starts", index);
    sim_at(s, s->now_ms, on_tick, ps, ps->life);
}

void sim_ps_stop(sim *s, uint32_t index)
{
    sim_ps *ps = &s->ps[index];
    if (!ps->running || ps->ended)
        return;
    ps->stopping = true;
    ps->end_at_ms = s->now_ms + s->config->shutdown_grace_ms * 7 / 8;
    ps->register_at_ms = s->now_ms;
    if (!s->scenario.saves)
        sg_store_fail_pulls(ps->store, SG_STOPPED, "this ps was told to stop");
    if (ps->coordinator != NULL) {
        sg_coordinator_stop(ps->coordinator, s->now_ms);
        sim_coordinator_drain(s, ps);
    }
}

void sim_ps_pause(sim *s, uint32_t index, uint64_t for_ms)
{
    sim_trace(s, "ps %u stands still for %" PRIu64 " ms", index, for_ms);
    s->ps[index].still_until_ms = s->now_ms + for_ms;
}

bool sim_ps_put_off(sim *s, const sim_ps *ps, const sim_event *event)
{
    if (!ps->running || s->now_ms >= ps->still_until_ms)
        return false;
    sim_at(s, ps->still_until_ms, event->run, event->subject, event->number);
    return true;
}
