#include "session_fixture.h"

#include <stdlib.h>
#include <string.h>

static float values[72], gradients[72];

const sg_variable peer_variables[3] = {
    {.name = "a", .rank = 2, .shape = {5, 8}, .value = values, .gradient = gradients},
    {.name = "b",
     .rank = 1,
     .shape = {16},
     .value = values + 40,
     .gradient = gradients + 40,
     .no_decay = true,
     .average = true},
    {.name = "f", .rank = 1, .shape = {16}, .value = values + 56, .frozen = true, .lr_multiplier = 2},
};
const uint32_t peer_slices[4] = {0, 1, 2, 3};

void peer_init(peer *p, sg_mode mode, uint32_t n_ps)
{
    peer_init_connections(p, mode, n_ps, 1);
}

void peer_init_connections(peer *p, sg_mode mode, uint32_t n_ps, uint32_t connections)
{
    *p = (peer){.mode = mode,
                .n_ps = n_ps,
                .slice_bytes = PEER_SLICE_BYTES,
                .message_bytes = PEER_MESSAGE_BYTES,
                .now_ms = 1000};
    p->session = sg_session_create(&(sg_session_options){.job = "job",
                                                         .worker = 1,
                                                         .life = 77,
                                                         .random_seed = 1,
                                                         .address = "node:1",
                                                         .start_timeout_ms = 60000,
                                                         .connections = connections,
                                                         .warn_after_ms = 10000});
}

static void forget(sg_session_action *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sg_session_action_deinit(&list[i]);
}

void peer_deinit(peer *p)
{
    peer_drain(p);
    forget(p->calls, p->n_calls);
    forget(p->dones, p->n_dones);
    forget(p->logs, p->n_logs);
    sg_session_destroy(p->session);
}

void peer_drain(peer *p)
{
    for (sg_session_action action; sg_session_next_action(p->session, &action);) {
        cr_assert(p->n_calls < PEER_MAX && p->n_dones < PEER_MAX && p->n_logs < PEER_MAX);
        if (action.kind == SG_SESSION_CALL)
            p->calls[p->n_calls++] = action;
        else if (action.kind == SG_SESSION_DONE)
            p->dones[p->n_dones++] = action;
        else
            p->logs[p->n_logs++] = action;
    }
}

void peer_advance(peer *p, uint64_t ms)
{
    for (const uint64_t end_ms = p->now_ms + ms; p->now_ms < end_ms;) {
        p->now_ms += end_ms - p->now_ms < 10 ? end_ms - p->now_ms : 10;
        sg_session_tick(p->session, p->now_ms);
        peer_drain(p);
    }
}

size_t peer_count(const peer *p, sg_session_method method)
{
    size_t n = 0;
    for (size_t i = 0; i < p->n_calls; i++)
        n += p->calls[i].method == method;
    return n;
}

sg_session_action peer_take(peer *p, sg_session_method method)
{
    peer_drain(p);
    size_t i = 0;
    while (i < p->n_calls && p->calls[i].method != method)
        i++;
    cr_assert(i < p->n_calls, "no call of method %d is under way", (int)method);
    sg_session_action call = p->calls[i];
    memmove(&p->calls[i], &p->calls[i + 1], (p->n_calls - i - 1) * sizeof call);
    p->n_calls--;
    return call;
}

void peer_answer(peer *p, sg_session_action *take_call, const ProtobufCMessage *reply)
{
    sg_session_on_reply(p->session, p->now_ms, take_call->call, SG_OK, NULL, reply);
    sg_session_action_deinit(take_call);
    peer_drain(p);
}

void peer_fail(peer *p, sg_session_action *take_call, sg_status status, const char *text)
{
    sg_session_on_reply(p->session, p->now_ms, take_call->call, status, text, NULL);
    sg_session_action_deinit(take_call);
    peer_drain(p);
}

static void answer_hello(peer *p, sg_session_action *take_call)
{
    char *addresses[] = {(char *)"ps:1", (char *)"ps:2", (char *)"ps:3"};
    Shardgrad__V1__HelloResponse reply = SHARDGRAD__V1__HELLO_RESPONSE__INIT;
    reply.incarnation = PEER_INCARNATION;
    reply.generation = 1;
    reply.mode = (Shardgrad__V1__Mode)p->mode;
    reply.staleness = p->staleness;
    reply.backup_workers = p->backup_workers;
    reply.lease_ms = PEER_LEASE_MS;
    reply.park_ms = PEER_PARK_MS;
    reply.slice_bytes = p->slice_bytes;
    reply.message_bytes = p->message_bytes;
    reply.ps_addresses = addresses;
    reply.n_ps_addresses = p->n_ps;
    reply.workers = 2;
    peer_answer(p, take_call, &reply.base);
}

/* The ticket of this step, made of these parts. */
static void ticket_make(const peer *p, uint32_t group, uint64_t number, Shardgrad__V1__Step *step,
                        Shardgrad__V1__TicketResponse *reply)
{
    static uint8_t members[] = {3};
    shardgrad__v1__step__init(step);
    step->group = group;
    step->step = step->iteration = number;
    step->members = (ProtobufCBinaryData){.data = members, .len = 1};
    step->hyper = 1;
    step->learning_rate = 0.5f;
    shardgrad__v1__ticket_response__init(reply);
    reply->step = step;
    reply->rank = p->mode == SG_MODE_SYNC ? 1 : 0;
    reply->size = p->mode == SG_MODE_SYNC ? 2 : 1;
    reply->lag = p->lag;
}

static void answer_ticket(peer *p, sg_session_action *take_call, uint64_t number)
{
    Shardgrad__V1__Step step;
    Shardgrad__V1__TicketResponse reply;
    ticket_make(p, ((const Shardgrad__V1__TicketRequest *)take_call->body)->group, number, &step, &reply);
    peer_answer(p, take_call, &reply.base);
}

static void answer_pull(peer *p, sg_session_action *take_call)
{
    const Shardgrad__V1__PullRequest *request = (const Shardgrad__V1__PullRequest *)take_call->body;
    Shardgrad__V1__PullResponse reply = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    reply.n_versions = request->n_versions;
    reply.versions = request->versions;
    peer_answer(p, take_call, &reply.base);
}

/* With the versions that the push makes, and a ticket or NULL. */
static void answer_push_pull(peer *p, sg_session_action *take_call, Shardgrad__V1__TicketResponse *ticket)
{
    const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)take_call->body;
    uint64_t versions[PEER_MAX_SLICES];
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    for (size_t i = 0; i < request->n_slices; i++)
        versions[i] = request->steps[i] + 1;
    reply.n_versions = request->n_slices;
    reply.versions = versions;
    reply.ticket = ticket;
    peer_answer(p, take_call, &reply.base);
}

void peer_answer_riding(peer *p, sg_session_action *take_call, uint64_t number)
{
    Shardgrad__V1__Step step;
    Shardgrad__V1__TicketResponse ticket;
    ticket_make(p, ((const Shardgrad__V1__PushRequest *)take_call->body)->ticket->group, number, &step, &ticket);
    answer_push_pull(p, take_call, &ticket);
}

void peer_answer_bare(peer *p, sg_session_action *take_call)
{
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    peer_answer(p, take_call, &reply.base);
}

void peer_answer_well(peer *p, sg_session_action *take_call, uint64_t step)
{
    Shardgrad__V1__DeclareResponse declare = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    Shardgrad__V1__InitializeResponse initialize = SHARDGRAD__V1__INITIALIZE_RESPONSE__INIT;
    Shardgrad__V1__InitializedResponse initialized = SHARDGRAD__V1__INITIALIZED_RESPONSE__INIT;
    Shardgrad__V1__PushResponse push = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    Shardgrad__V1__HeartbeatResponse heartbeat = SHARDGRAD__V1__HEARTBEAT_RESPONSE__INIT;
    Shardgrad__V1__LeaveResponse leave = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    heartbeat.generation = 1;
    heartbeat.live_workers = 2;
    switch (take_call->method) {
    case SG_SESSION_HELLO:
        answer_hello(p, take_call);
        break;
    case SG_SESSION_DECLARE:
        peer_answer(p, take_call, &declare.base);
        break;
    case SG_SESSION_INITIALIZE:
        peer_answer(p, take_call, &initialize.base);
        break;
    case SG_SESSION_INITIALIZED:
        peer_answer(p, take_call, &initialized.base);
        break;
    case SG_SESSION_TICKET:
        answer_ticket(p, take_call, step);
        break;
    case SG_SESSION_PUSH:
        peer_answer(p, take_call, &push.base);
        break;
    case SG_SESSION_PULL:
        answer_pull(p, take_call);
        break;
    case SG_SESSION_PUSH_PULL:
        answer_push_pull(p, take_call, NULL);
        break;
    case SG_SESSION_HEARTBEAT:
        peer_answer(p, take_call, &heartbeat.base);
        break;
    case SG_SESSION_LEAVE:
        peer_answer(p, take_call, &leave.base);
        break;
    }
}

void peer_answer_all(peer *p, sg_session_method method)
{
    peer_drain(p);
    while (peer_count(p, method) > 0) {
        sg_session_action call = peer_take(p, method);
        peer_answer_well(p, &call, 0);
    }
}

const sg_session_action *peer_done(const peer *p, uint64_t task)
{
    for (size_t i = 0; i < p->n_dones; i++)
        if (p->dones[i].task == task)
            return &p->dones[i];
    return NULL;
}

void peer_expect(const peer *p, uint64_t task, sg_status status)
{
    const sg_session_action *done = peer_done(p, task);
    cr_assert_not_null(done, "task %llu has not ended", (unsigned long long)task);
    cr_assert_eq(done->status, status, "%s: %s, wanted %s", sg_status_name(done->status), done->text,
                 sg_status_name(status));
}

void peer_join(peer *p)
{
    const uint64_t task = sg_session_join(p->session, p->now_ms, p->now_ms + 60000);
    peer_drain(p);
    peer_answer_all(p, SG_SESSION_HELLO);
    peer_expect(p, task, SG_OK);
}

void peer_declare(peer *p)
{
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_declare(p->session, p->now_ms, UINT64_MAX, peer_variables, 3, &task, &err), SG_OK, "%s",
                 err.message);
    peer_answer_all(p, SG_SESSION_DECLARE);
    peer_answer_all(p, SG_SESSION_PULL);
    peer_expect(p, task, SG_OK);
}

sg_step peer_step(peer *p, uint64_t number)
{
    const uint64_t task = sg_session_ticket(p->session, p->now_ms, UINT64_MAX, 0);
    peer_drain(p);
    if (peer_done(p, task) == NULL) {
        sg_session_action call = peer_take(p, SG_SESSION_TICKET);
        peer_answer_well(p, &call, number);
    }
    peer_expect(p, task, SG_OK);
    cr_assert_eq(peer_done(p, task)->step.number, number);
    return peer_done(p, task)->step;
}
