/* tests/sim/sim_coordinator.c - the coordinator of ps 0: what it is asked, and what it wants done. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "server/coordinator_internal.h"

static void order(sim *s, const sim_ps *ps, sg_coordinator_action *action)
{
    sim_call call = {.sender = SIM_FROM_COORDINATOR,
                     .sender_life = ps->life,
                     .number = action->life,
                     .to = action->ps,
                     .body = sg_wire_head_copy(action->body)};
    sim_send(s, &call, s->config->lease_ms);
}

static void reply(sim *s, const sg_coordinator_action *action)
{
    sim_arrival *arrival = action->call;
    if (action->body->descriptor == &shardgrad__v1__ticket_response__descriptor)
        sim_oracle_ticket(s, ((const Shardgrad__V1__TicketRequest *)arrival->call->body)->incarnation,
                          (const Shardgrad__V1__TicketResponse *)action->body);
    if (action->body->descriptor == &shardgrad__v1__hello_response__descriptor)
        sim_oracle_hello(s, ((const Shardgrad__V1__HelloRequest *)arrival->call->body)->worker,
                         ((const Shardgrad__V1__HelloResponse *)action->body)->incarnation);
    if (arrival->call->sender == SIM_FROM_ADMIN && arrival->call->from >= SIM_MAX_CHANGES)
        sim_ask_promised(s, arrival->call, action->body);
    sim_answer(s, arrival, SG_OK, "", action->body);
}

/* The answer to a ticket request that came with a push. */
static bool rides(sim_ps *ps, sg_coordinator_action *action)
{
    if (action->call != &ps->ticket)
        return false;
    if (action->kind == SG_COORDINATOR_REPLY) {
        ps->ticket = action->body;
        action->body = NULL;
    }
    return true;
}

void sim_coordinator_drain(sim *s, sim_ps *ps)
{
    for (sg_coordinator_action action; sg_coordinator_next_action(ps->coordinator, &action);
         sg_coordinator_action_deinit(&action)) {
        if (rides(ps, &action))
            continue;
        switch (action.kind) {
        case SG_COORDINATOR_REPLY:
            reply(s, &action);
            break;
        case SG_COORDINATOR_FAIL:
            sim_answer(s, action.call, action.status, action.text, NULL);
            break;
        case SG_COORDINATOR_ORDER:
            order(s, ps, &action);
            break;
        case SG_COORDINATOR_SAVE:
            sim_save_complete(s, ps, action.manifest);
            break;
        case SG_COORDINATOR_RECORD:
            sim_save_record(s, ps, &action);
            break;
        case SG_COORDINATOR_LOG:
            sim_trace(s, "coordinator: %s %s", action.event, action.text);
            if (strcmp(action.event, "returns") == 0)
                sg_workers_add(&s->returned, (uint32_t)strtoul(strchr(action.text, '=') + 1, NULL, 10));
            if (!s->scenario.saves && strcmp(action.event, "generation") == 0) /* nothing else tells of it */
                sim_versions_roll_back(s, 1 + strtoull(strchr(action.text, '=') + 1, NULL, 10), NULL, NULL);
            break;
        case SG_COORDINATOR_END:
            s->job_ended = true;
            s->job_status = action.status;
            snprintf(s->job_text, sizeof s->job_text, "%s", action.text);
            sim_trace(s, "the job ended: %s %s", sg_status_name(action.status), action.text);
            sim_ps_end(s, ps, action.status, action.text, 0);
            break;
        }
    }
}

void sim_coordinator_arrive(sim *s, sim_ps *ps, sim_arrival *arrival)
{
    const ProtobufCMessage *body = arrival->call->body;
    sg_coordinator *c = ps->coordinator;
    const ProtobufCMessageDescriptor *type = body->descriptor;
    if (type == &shardgrad__v1__leave_request__descriptor)
        sim_oracle_left(s, ((const Shardgrad__V1__LeaveRequest *)body)->incarnation);
    if (type == &shardgrad__v1__register_request__descriptor)
        sg_coordinator_on_register(c, s->now_ms, (const Shardgrad__V1__RegisterRequest *)body, arrival);
    else if (type == &shardgrad__v1__hello_request__descriptor)
        sg_coordinator_on_hello(c, s->now_ms, (const Shardgrad__V1__HelloRequest *)body, arrival);
    else if (type == &shardgrad__v1__declare_request__descriptor)
        sg_coordinator_on_declare(c, s->now_ms, (const Shardgrad__V1__DeclareRequest *)body, arrival);
    else if (type == &shardgrad__v1__initialized_request__descriptor)
        sg_coordinator_on_initialized(c, s->now_ms, (const Shardgrad__V1__InitializedRequest *)body, arrival);
    else if (type == &shardgrad__v1__ticket_request__descriptor)
        sg_coordinator_on_ticket(c, s->now_ms, (const Shardgrad__V1__TicketRequest *)body, arrival);
    else if (type == &shardgrad__v1__heartbeat_request__descriptor)
        sg_coordinator_on_heartbeat(c, s->now_ms, (const Shardgrad__V1__HeartbeatRequest *)body, arrival);
    else if (type == &shardgrad__v1__leave_request__descriptor)
        sg_coordinator_on_leave(c, s->now_ms, (const Shardgrad__V1__LeaveRequest *)body, arrival);
    else if (type == &shardgrad__v1__norms_request__descriptor)
        sg_coordinator_on_norms(c, s->now_ms, (const Shardgrad__V1__NormsRequest *)body, arrival);
    else if (type == &shardgrad__v1__set_request__descriptor)
        sg_coordinator_on_set(c, s->now_ms, (const Shardgrad__V1__SetRequest *)body, arrival);
    else if (type == &shardgrad__v1__save_request__descriptor)
        sg_coordinator_on_save(c, s->now_ms, (const Shardgrad__V1__SaveRequest *)body, arrival);
    else
        sim_fail(s, "the coordinator got a %s", type->short_name);
    sim_coordinator_drain(s, ps);
}

void sim_coordinator_ordered(sim *s, const sim_call *call, sg_status status, const char *text,
                             const ProtobufCMessage *reply)
{
    sim_ps *ps = &s->ps[0];
    if (!ps->running || ps->life != call->sender_life || ps->coordinator == NULL)
        return;
    sg_coordinator_on_ordered(ps->coordinator, s->now_ms, call->to, call->number, status, text,
                              (const Shardgrad__V1__OrderResponse *)reply);
    sim_coordinator_drain(s, ps);
}

bool sim_coordinator_changes(const sim_ps *ps)
{
    return ps->coordinator->change.phase == SG_COORDINATOR_CHANGE_BEGINNING;
}

const sg_config *sim_coordinator_config(const sim_ps *ps)
{
    return ps->coordinator->config;
}

bool sim_coordinator_counts(const sim *s, uint64_t incarnation)
{
    const sg_coordinator *c = s->ps[0].coordinator;
    for (uint32_t i = 0; c != NULL && i < c->n_workers; i++) {
        if (c->workers[i].incarnation == incarnation)
            return c->workers[i].state == SG_COORDINATOR_WORKER_JOINED;
    }
    return false;
}
