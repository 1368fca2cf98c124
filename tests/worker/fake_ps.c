#include "fake_ps.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SLICE_BYTES   64u
#define MESSAGE_BYTES 256u

/* Criterion's assertions belong to the test's own thread: handlers use ours.
 *
 * Takes the request of a call apart, or fails the call. */
static bool open_call(sg_rpc_call *call, const ProtobufCMessageDescriptor *type, sg_wire_parts *parts)
{
    sg_error err;
    if (sg_wire_unpack(sg_rpc_call_request(call), type, parts, &err) == SG_OK)
        return true;
    sg_rpc_call_fail(call, err.code, "%s", err.message);
    return false;
}

static void hello(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    pthread_mutex_lock(&ps->mutex);
    ps->n_hellos++;
    char *addresses[] = {ps->address};
    Shardgrad__V1__HelloResponse reply = SHARDGRAD__V1__HELLO_RESPONSE__INIT;
    reply.incarnation = ps->n_hellos;
    reply.generation = 1;
    reply.mode = ps->async ? SHARDGRAD__V1__MODE__MODE_ASYNC : SHARDGRAD__V1__MODE__MODE_SYNC;
    reply.lease_ms = FAKE_PS_LEASE_MS;
    reply.park_ms = 200;
    reply.slice_bytes = SLICE_BYTES;
    reply.message_bytes = MESSAGE_BYTES;
    reply.ps_addresses = addresses;
    reply.n_ps_addresses = 1;
    reply.workers = 1;
    const sg_status refuse = ps->refuse_hello;
    pthread_mutex_unlock(&ps->mutex);
    if (refuse == SG_OK)
        sg_rpc_call_reply(call, &reply.base, NULL, 0);
    else
        sg_rpc_call_fail(call, refuse, "the fake refuses you");
}

static void values_make(fake_ps *ps, const Shardgrad__V1__DeclareRequest *request)
{
    sg_plan_variable *variables = calloc(request->n_variables, sizeof *variables);
    for (size_t i = 0; i < request->n_variables; i++) {
        variables[i].n_elems = 1;
        variables[i].group = request->variables[i]->group;
        for (size_t k = 0; k < request->variables[i]->n_shape; k++)
            variables[i].n_elems *= request->variables[i]->shape[k];
    }
    sg_plan_destroy(ps->plan);
    SG_ASSERT(sg_plan_create(variables, (uint32_t)request->n_variables, 1, SLICE_BYTES, &ps->plan, NULL) == SG_OK);
    free(variables);
    free(ps->values);
    free(ps->first);
    free(ps->versions);
    ps->values = calloc(ps->plan->ps_bytes[0], 1);
    ps->first = calloc(ps->plan->n_slices, sizeof *ps->first);
    ps->versions = calloc(ps->plan->n_slices, sizeof *ps->versions);
    for (uint32_t i = 1; i < ps->plan->n_slices; i++)
        ps->first[i] = ps->first[i - 1] + ps->plan->slices[i - 1].n_elems;
}

static void declare(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__declare_request__descriptor, &parts))
        return;
    pthread_mutex_lock(&ps->mutex);
    values_make(ps, (const Shardgrad__V1__DeclareRequest *)parts.head);
    pthread_mutex_unlock(&ps->mutex);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__DeclareResponse reply = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    reply.attempt = 1;
    sg_rpc_call_reply(call, &reply.base, NULL, 0);
}

/* Adds the data of these slices to the values, those that are not finite excepted. */
static void add(fake_ps *ps, const sg_wire_parts *parts, const uint32_t *slices, size_t n)
{
    sg_span_reader reader;
    sg_span_reader_init(&reader, parts->spans, parts->n_spans, SIZE_MAX);
    for (size_t i = 0; i < n; i++)
        for (uint64_t k = 0; k < ps->plan->slices[slices[i]].n_elems; k++) {
            float element;
            SG_ASSERT(sg_span_reader_read(&reader, &element, sizeof element));
            ps->values[ps->first[slices[i]] + k] += isfinite(element) ? element : 0;
        }
}

static void initialize(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__initialize_request__descriptor, &parts))
        return;
    const Shardgrad__V1__InitializeRequest *request = (const Shardgrad__V1__InitializeRequest *)parts.head;
    pthread_mutex_lock(&ps->mutex);
    add(ps, &parts, request->slices, request->n_slices);
    pthread_mutex_unlock(&ps->mutex);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__InitializeResponse reply = SHARDGRAD__V1__INITIALIZE_RESPONSE__INIT;
    sg_rpc_call_reply(call, &reply.base, NULL, 0);
}

static void initialized(void *user, sg_rpc_call *call)
{
    (void)user;
    Shardgrad__V1__InitializedResponse reply = SHARDGRAD__V1__INITIALIZED_RESPONSE__INIT;
    sg_rpc_call_reply(call, &reply.base, NULL, 0);
}

/* With the lock held: true if the call was kept. */
static bool hold(fake_ps *ps, sg_rpc_call *call, bool wanted)
{
    if (wanted && ps->n_held < FAKE_PS_HELD)
        ps->held[ps->n_held++] = call;
    return wanted;
}

/* The next ticket, made of these parts. */
static void ticket_make(const Shardgrad__V1__TicketRequest *request, Shardgrad__V1__Step *step,
                        Shardgrad__V1__TicketResponse *reply)
{
    static uint8_t members[] = {1};
    shardgrad__v1__step__init(step);
    step->group = request->group;
    step->step = step->iteration = request->received;
    step->members = (ProtobufCBinaryData){.data = members, .len = 1};
    step->learning_rate = 0.25f;
    shardgrad__v1__ticket_response__init(reply);
    reply->step = step;
    reply->size = 1;
}

static void ticket(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__ticket_request__descriptor, &parts))
        return;
    const Shardgrad__V1__TicketRequest *request = (const Shardgrad__V1__TicketRequest *)parts.head;
    pthread_mutex_lock(&ps->mutex);
    ps->n_tickets++;
    ps->reported_examples += request->examples;
    const bool held = hold(ps, call, ps->hold_tickets);
    pthread_mutex_unlock(&ps->mutex);
    Shardgrad__V1__Step step;
    Shardgrad__V1__TicketResponse reply;
    ticket_make(request, &step, &reply);
    if (!held)
        sg_rpc_call_reply(call, &reply.base, NULL, 0);
    sg_wire_parts_deinit(&parts);
}

/* With the lock held. */
static sg_status push_take(fake_ps *ps, const sg_wire_parts *parts)
{
    const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)parts->head;
    ps->last_weight = request->weight;
    if (ps->refuse_push != SG_OK)
        return ps->refuse_push;
    if (request->weight > 0)
        add(ps, parts, request->slices, request->n_slices);
    for (size_t i = 0; i < request->n_slices; i++)
        ps->versions[request->slices[i]] = request->steps[i] + 1;
    return SG_OK;
}

static void push(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__push_request__descriptor, &parts))
        return;
    pthread_mutex_lock(&ps->mutex);
    const sg_status status = push_take(ps, &parts);
    pthread_mutex_unlock(&ps->mutex);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__PushResponse reply = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    if (status == SG_OK)
        sg_rpc_call_reply(call, &reply.base, NULL, 0);
    else
        sg_rpc_call_fail(call, status, "the fake refuses your push");
}

/* A piece as small as ours is copied before the reply is on its way. */
static void piece_ignore(void *owner)
{
    (void)owner;
}

/* With the lock held: a copy of the values of these slices. */
static sg_wire_piece values_copy(const fake_ps *ps, const uint32_t *slices, size_t n_slices,
                                 float copy[MESSAGE_BYTES / sizeof(float)])
{
    sg_wire_piece piece = {.data = copy, .release = piece_ignore};
    for (size_t i = 0; i < n_slices; i++) {
        const size_t n_bytes = ps->plan->slices[slices[i]].n_elems * sizeof *copy;
        SG_ASSERT(piece.n_bytes + n_bytes <= MESSAGE_BYTES);
        memcpy((char *)copy + piece.n_bytes, ps->values + ps->first[slices[i]], n_bytes);
        piece.n_bytes += n_bytes;
    }
    piece.n_bytes -= ps->short_pulls ? sizeof *copy : 0;
    return piece;
}

/* With the lock held. */
static bool versions_exist(const fake_ps *ps, const Shardgrad__V1__PullRequest *request)
{
    for (size_t i = 0; i < request->n_slices; i++)
        if (ps->versions[request->slices[i]] < request->versions[i])
            return false;
    return true;
}

/* Answers with the values that the push has made, or, with `bare_answers`, lets them be pulled. */
static void push_pull(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__push_request__descriptor, &parts))
        return;
    const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)parts.head;
    sg_wire_piece piece = {0};
    float copy[MESSAGE_BYTES / sizeof(float)];
    uint64_t versions[MESSAGE_BYTES / sizeof(float)];
    pthread_mutex_lock(&ps->mutex);
    ps->n_push_pulls++;
    const bool held = hold(ps, call, ps->hold_push_pulls);
    const bool bare = ps->bare_answers;
    const sg_status status = held ? SG_OK : push_take(ps, &parts);
    if (!held && !bare && status == SG_OK)
        piece = values_copy(ps, request->slices, request->n_slices, copy);
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    for (size_t i = 0; i < request->n_slices; i++)
        versions[i] = request->steps[i] + 1;
    Shardgrad__V1__Step step;
    Shardgrad__V1__TicketResponse with;
    if (!held && request->ticket != NULL && !ps->no_rides) {
        ps->reported_examples += request->ticket->examples;
        ticket_make(request->ticket, &step, &with);
        reply.ticket = &with;
    }
    pthread_mutex_unlock(&ps->mutex);
    reply.versions = versions;
    reply.n_versions = bare ? 0 : request->n_slices;
    if (!held && status == SG_OK)
        sg_rpc_call_reply(call, &reply.base, &piece, bare ? 0 : 1);
    else if (!held)
        sg_rpc_call_fail(call, status, "the fake refuses your push");
    sg_wire_parts_deinit(&parts);
}

static void pull(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__pull_request__descriptor, &parts))
        return;
    const Shardgrad__V1__PullRequest *request = (const Shardgrad__V1__PullRequest *)parts.head;
    sg_wire_piece piece = {0};
    float copy[MESSAGE_BYTES / sizeof(float)];
    pthread_mutex_lock(&ps->mutex);
    ps->n_pulls++;
    const bool held = hold(ps, call, ps->hold_pulls);
    const bool there = !held && versions_exist(ps, request);
    if (there)
        piece = values_copy(ps, request->slices, request->n_slices, copy);
    pthread_mutex_unlock(&ps->mutex);
    Shardgrad__V1__PullResponse reply = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    reply.n_versions = request->n_versions;
    reply.versions = request->versions;
    if (there)
        sg_rpc_call_reply(call, &reply.base, &piece, 1);
    else if (!held)
        sg_rpc_call_fail(call, SG_WAITING, "waiting for your push");
    sg_wire_parts_deinit(&parts);
}

static void heartbeat(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    pthread_mutex_lock(&ps->mutex);
    ps->n_heartbeats++;
    pthread_mutex_unlock(&ps->mutex);
    Shardgrad__V1__HeartbeatResponse reply = SHARDGRAD__V1__HEARTBEAT_RESPONSE__INIT;
    reply.generation = 1;
    reply.live_workers = 1;
    sg_rpc_call_reply(call, &reply.base, NULL, 0);
}

static void leave(void *user, sg_rpc_call *call)
{
    fake_ps *ps = user;
    sg_wire_parts parts;
    if (!open_call(call, &shardgrad__v1__leave_request__descriptor, &parts))
        return;
    const Shardgrad__V1__LeaveRequest *request = (const Shardgrad__V1__LeaveRequest *)parts.head;
    pthread_mutex_lock(&ps->mutex);
    ps->n_leaves++;
    for (size_t i = 0; i < request->n_progress; i++)
        ps->reported_examples += request->progress[i]->examples;
    pthread_mutex_unlock(&ps->mutex);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__LeaveResponse reply = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    sg_rpc_call_reply(call, &reply.base, NULL, 0);
}

fake_ps *fake_ps_create(void)
{
    fake_ps *ps = calloc(1, sizeof *ps);
    pthread_mutex_init(&ps->mutex, NULL);
    const sg_rpc_method methods[] = {
        {"/shardgrad.v1.CoordinatorService/Hello", hello, ps},
        {"/shardgrad.v1.CoordinatorService/Declare", declare, ps},
        {"/shardgrad.v1.CoordinatorService/Initialized", initialized, ps},
        {"/shardgrad.v1.CoordinatorService/Ticket", ticket, ps},
        {"/shardgrad.v1.CoordinatorService/Heartbeat", heartbeat, ps},
        {"/shardgrad.v1.CoordinatorService/Leave", leave, ps},
        {"/shardgrad.v1.ParameterService/Initialize", initialize, ps},
        {"/shardgrad.v1.ParameterService/Push", push, ps},
        {"/shardgrad.v1.ParameterService/Pull", pull, ps},
        {"/shardgrad.v1.ParameterService/PushPull", push_pull, ps},
    };
    sg_error err;
    const sg_rpc_server_options options = {.address = "127.0.0.1:0",
                                           .threads = 1,
                                           .message_bytes = MESSAGE_BYTES,
                                           .methods = methods,
                                           .n_methods = SG_ARRAY_LEN(methods)};
    cr_assert_eq(sg_rpc_server_create(&options, &ps->server, &err), SG_OK, "%s", err.message);
    /* Calls may come from the first moment on, but nobody knows the address before. */
    snprintf(ps->address, sizeof ps->address, "127.0.0.1:%u", sg_rpc_server_port(ps->server));
    return ps;
}

void fake_ps_refuse_held(fake_ps *ps)
{
    pthread_mutex_lock(&ps->mutex);
    ps->hold_pulls = ps->hold_push_pulls = ps->hold_tickets = false;
    for (; ps->n_held > 0; ps->n_held--)
        sg_rpc_call_fail(ps->held[ps->n_held - 1], SG_UNAVAILABLE, "the fake goes");
    pthread_mutex_unlock(&ps->mutex);
}

void fake_ps_destroy(fake_ps *ps)
{
    fake_ps_refuse_held(ps);
    sg_rpc_server_stop(ps->server, 0);
    sg_rpc_server_destroy(ps->server);
    sg_plan_destroy(ps->plan);
    free(ps->values);
    free(ps->first);
    free(ps->versions);
    pthread_mutex_destroy(&ps->mutex);
    free(ps);
}

uint64_t fake_ps_get(fake_ps *ps, const uint64_t *field)
{
    pthread_mutex_lock(&ps->mutex);
    const uint64_t value = *field;
    pthread_mutex_unlock(&ps->mutex);
    return value;
}

uint32_t fake_ps_count(fake_ps *ps, const uint32_t *field)
{
    pthread_mutex_lock(&ps->mutex);
    const uint32_t value = *field;
    pthread_mutex_unlock(&ps->mutex);
    return value;
}

void fake_ps_await_held(fake_ps *ps, size_t n)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    for (;;) {
        pthread_mutex_lock(&ps->mutex);
        const bool there = ps->n_held >= n;
        pthread_mutex_unlock(&ps->mutex);
        if (there)
            return;
        nanosleep(&pause, NULL);
    }
}
