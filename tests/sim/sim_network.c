/* tests/sim/sim_network.c - calls: delayed, reordered, lost and repeated.
 *
 * Every arrival of a call has an answer of its own; the caller takes the first. A call that was lost, there or back,
 * ends for its caller as a broken connection (UNAVAILABLE, soon) or as a deadline (TIMEOUT). What follows a loss, and
 * what follows the news of it, is sure to arrive: who hears nothing at all of a peer rightly takes it for dead. */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"

#define SLOW_MS    150u
#define USUAL_MS   15u
#define RESET_MS   80u
#define REFUSED_MS 5u
/* A worker that sends slice after slice has so many calls to one ps on their way, most of which wait for others there:
 * one of those that follow must be answered at once. */
#define SURE_AFTER_NEWS 8u

static uint64_t delay_ms(sim *s)
{
    return 1 + sim_below(s, sim_chance(s, s->scenario.slow_per_mille) ? SLOW_MS : USUAL_MS);
}

static sim_link *link_of(sim *s, const sim_call *call)
{
    uint32_t from = call->sender == SIM_FROM_WORKER  ? call->from
                    : call->sender == SIM_FROM_PS    ? SIM_MAX_WORKERS + call->from
                    : call->sender == SIM_FROM_ADMIN ? SIM_MAX_WORKERS + SIM_MAX_PS + 1
                                                     : SIM_MAX_WORKERS + SIM_MAX_PS;
    uint32_t to = call->to;
    if (call->to_coordinator)
        to = call->body->descriptor == &shardgrad__v1__heartbeat_request__descriptor ? SIM_MAX_PS + 1 : SIM_MAX_PS;
    return &s->links[from][to];
}

/* --- back ------------------------------------------------------------------------------------------------------- */

static void hand_back(sim *s, sim_call *call, sg_status status, const char *text, const ProtobufCMessage *reply,
                      const float *data)
{
    if (call->settled)
        return;
    call->settled = true;
    if (call->sender == SIM_FROM_WORKER)
        sim_worker_reply(s, call, status, text, reply, data);
    else if (call->body->descriptor == &shardgrad__v1__norms_request__descriptor)
        sim_norms_answered(s, call, status, text, reply);
    else if (call->sender == SIM_FROM_PS)
        sim_register_answered(s, call, status, text);
    else if (call->sender == SIM_FROM_ADMIN && call->from >= SIM_MAX_CHANGES)
        sim_ask_answered(s, call, status, text);
    else if (call->sender == SIM_FROM_ADMIN)
        sim_change_answered(s, call, status, text, reply);
    else
        sim_coordinator_ordered(s, call, status, text, reply);
}

/* The ps that waits for an answer to this call; NULL: a worker, or an admin. */
static const sim_ps *caller_of(const sim *s, const sim_call *call)
{
    return call->sender == SIM_FROM_WORKER || call->sender == SIM_FROM_ADMIN
               ? NULL
               : &s->ps[call->sender == SIM_FROM_PS ? call->from : 0];
}

static void on_reply(sim *s, const sim_event *event)
{
    sim_arrival *arrival = event->subject;
    const sim_ps *caller = caller_of(s, arrival->call);
    if (caller != NULL && sim_ps_put_off(s, caller, event))
        return;
    hand_back(s, arrival->call, arrival->status, arrival->text, arrival->reply, arrival->data);
}

static void on_deadline(sim *s, const sim_event *event)
{
    sim_call *call = event->subject;
    char text[64];
    const sim_ps *caller = caller_of(s, call);
    if (caller != NULL && sim_ps_put_off(s, caller, event))
        return;
    if (event->number == SG_TIMEOUT && call->lost)
        link_of(s, call)->n_silent--;
    if (!call->settled)
        link_of(s, call)->sure = SURE_AFTER_NEWS;
    snprintf(text, sizeof text, event->number == SG_TIMEOUT ? "ps %u did not answer in time" : "no connection to ps %u",
             call->to);
    hand_back(s, call, (sg_status)event->number, text, NULL, NULL);
}

/* What is still parked for a caller that has gone is taken back, or not. */
static void on_gone(sim *s, const sim_event *event)
{
    sim_arrival *arrival = event->subject;
    if (!arrival->answered && arrival->call->settled)
        sim_ps_gone(s, arrival);
}

void sim_answer(sim *s, sim_arrival *arrival, sg_status status, const char *text, const ProtobufCMessage *reply)
{
    if (arrival->answered) {
        sim_fail(s, "a call was answered twice (%s)", arrival->call->body->descriptor->short_name);
        return;
    }
    arrival->answered = true;
    arrival->status = status;
    snprintf(arrival->text, sizeof arrival->text, "%s", text);
    if (reply != NULL)
        arrival->reply = sg_wire_head_copy(reply);
    if (status != SG_OK && text[0] == '\0')
        sim_fail(s, "a failure (%s) without a word", sg_status_name(status));
    sim_at(s, s->now_ms + delay_ms(s), on_reply, arrival, 0);
}

static void on_cancelled(sim *s, const sim_event *event)
{
    sim_worker_reply(s, event->subject, SG_CANCELLED, "cancelled", NULL, NULL);
}

void sim_cancel(sim *s, sim_call *call)
{
    if (call->settled)
        return;
    call->settled = true;
    if (call->body->descriptor == &shardgrad__v1__push_request__descriptor) {
        sim_oracle_cancelled(s, call);
        sim_at(s, s->now_ms + 1, on_cancelled, call, 0);
    }
    for (sim_arrival *arrival = s->arrivals; arrival != NULL; arrival = arrival->next) {
        if (arrival->call == call && !arrival->answered && sim_chance(s, 500))
            sim_at(s, s->now_ms + delay_ms(s), on_gone, arrival, 0);
    }
}

/* --- there ------------------------------------------------------------------------------------------------------ */

static void on_arrival(sim *s, const sim_event *event)
{
    sim_call *call = event->subject;
    const sim_ps *ps = &s->ps[call->to];
    if (sim_ps_put_off(s, ps, event))
        return;
    if (!ps->running || (call->to_coordinator && ps->coordinator == NULL)) {
        sim_at(s, s->now_ms + 1 + sim_below(s, REFUSED_MS), on_deadline, call, SG_UNAVAILABLE);
        return;
    }
    sim_arrival *arrival = sg_xcalloc(1, sizeof *arrival);
    arrival->next = s->arrivals;
    s->arrivals = arrival;
    arrival->call = call;
    arrival->arrived_ms = s->now_ms;
    arrival->life = ps->life;
    sim_trace(s, "ps %u got %s from %s %u", call->to, call->body->descriptor->short_name,
              call->sender == SIM_FROM_WORKER  ? "worker process"
              : call->sender == SIM_FROM_PS    ? "ps"
              : call->sender == SIM_FROM_ADMIN ? "admin"
                                               : "coordinator",
              call->from);
    sim_ps_arrive(s, arrival);
    sim_versions_look(s, call->to);
}

/* Lost on the way, or on the way back: then it does its work all the same. */
static void lose(sim *s, sim_call *call, uint64_t timeout_ms)
{
    sim_link *link = link_of(s, call);
    /* A lease bears no deadline that passed, and two in silence look like a dead peer. */
    bool reset = call->sender == SIM_FROM_PS || link->n_silent > 0 || sim_chance(s, 700);
    uint64_t after_ms = 1 + sim_below(s, RESET_MS);
    link->sure = 1;
    if (reset) {
        sim_at(s, s->now_ms + after_ms, on_deadline, call, SG_UNAVAILABLE);
    } else {
        call->lost = true;
        link->n_silent++;
    }
    if (sim_chance(s, 500)) { /* it arrives after its caller has given up */
        uint64_t late_ms = (reset ? after_ms : timeout_ms) + delay_ms(s);
        sim_at(s, s->now_ms + late_ms, on_arrival, call, 0);
    }
}

void sim_send(sim *s, const sim_call *from, uint64_t timeout_ms)
{
    sim_call *call = sg_xcalloc(1, sizeof *call);
    *call = *from;
    call->next = s->calls;
    s->calls = call;
    call->deadline_ms = s->now_ms + timeout_ms;
    sim_at(s, call->deadline_ms, on_deadline, call, SG_TIMEOUT);
    sim_link *link = link_of(s, call);
    if (link->sure > 0) {
        link->sure--;
    } else if (sim_chance(s, s->scenario.lost_per_mille)) {
        lose(s, call, timeout_ms);
        return;
    }
    sim_at(s, s->now_ms + delay_ms(s), on_arrival, call, 0);
    if (sim_chance(s, s->scenario.repeated_per_mille))
        sim_at(s, s->now_ms + delay_ms(s) + sim_below(s, SLOW_MS), on_arrival, call, 0);
}
