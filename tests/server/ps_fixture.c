#include "ps_fixture.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

#define CALL_MS 10000u
#define SERVICE "/shardgrad.v1.CoordinatorService/"
#define PS      "/shardgrad.v1.ParameterService/"

/* --- ps on threads --- */

void ps_fixture_make_dir(char out[64])
{
    const char *base = getenv("TMPDIR");
    snprintf(out, 64, "%.40s/sg-ps-XXXXXX", base ? base : "/tmp");
    cr_assert_not_null(mkdtemp(out));
}

void ps_fixture_remove_dir(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    cr_assert_eq(system(command), 0);
}

sg_config *ps_fixture_config(const char *run_dir, const char *text)
{
    char whole[2048];
    snprintf(whole, sizeof whole, "job: test\nslice_bytes: 64\nrun_dir: %s\n%s", run_dir, text);
    sg_config *config;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(whole, strlen(whole), "test.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    return config;
}

static void *run(void *user)
{
    ps_thread *t = user;
    t->status = sg_ps_run(t->ps, &t->error);
    return NULL;
}

void ps_thread_start(ps_thread *t, const sg_config *config, uint32_t index, const char *coordinator, const sg_log *log)
{
    *t = (ps_thread){.status = SG_OK};
    sg_ps_options options = {.config = config, .index = index, .log = log, .coordinator = coordinator};
    cr_assert_eq(sg_ps_create(&options, &t->ps, &t->error), SG_OK, "%s", t->error.message);
    pthread_create(&t->thread, NULL, run, t);
}

sg_status ps_thread_join(ps_thread *t)
{
    pthread_join(t->thread, NULL);
    sg_ps_destroy(t->ps);
    return t->status;
}

/* --- calls --- */

static void copy_data(wire_call *call, const sg_wire_parts *parts)
{
    call->values = malloc(parts->data_bytes + 1);
    call->n_values = parts->data_bytes / sizeof(float);
    sg_span_reader reader;
    sg_span_reader_init(&reader, parts->spans, parts->n_spans, SIZE_MAX);
    sg_span_reader_read(&reader, call->values, parts->data_bytes);
}

static void on_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    wire_call *call = user;
    pthread_mutex_lock(&call->mutex);
    call->status = status;
    if (status == SG_OK) {
        sg_wire_parts parts;
        call->status = sg_wire_unpack(reply, call->type, &parts, &call->error);
        if (call->status == SG_OK) {
            copy_data(call, &parts);
            call->reply = sg_wire_head_copy(parts.head);
            sg_wire_parts_deinit(&parts);
        }
    } else {
        call->error = *error;
    }
    call->done = true;
    pthread_cond_broadcast(&call->changed);
    pthread_mutex_unlock(&call->mutex);
}

void wire_call_start(wire_call *call, sg_rpc_channel *channel, const char *path, const ProtobufCMessage *request,
                     const float *values, size_t n_values, const ProtobufCMessageDescriptor *reply_type,
                     uint64_t timeout_ms)
{
    *call = (wire_call){.type = reply_type};
    pthread_mutex_init(&call->mutex, NULL);
    pthread_cond_init(&call->changed, NULL);
    float *lent = malloc(n_values * sizeof(float) + 1);
    if (n_values > 0)
        memcpy(lent, values, n_values * sizeof(float));
    sg_wire_piece piece = {.data = lent, .n_bytes = n_values * sizeof(float), .release = free, .owner = lent};
    sg_wire_message *message;
    sg_error err = {0};
    cr_assert_eq(sg_wire_pack(sg_rpc_channel_pool(channel), request, &piece, 1, &message, &err), SG_OK, "%s",
                 err.message);
    sg_rpc_pending *pending = sg_rpc_channel_call(channel, path, message, timeout_ms, on_done, call);
    pthread_mutex_lock(&call->mutex);
    call->pending = pending;
    pthread_mutex_unlock(&call->mutex);
}

sg_status wire_call_wait(wire_call *call)
{
    pthread_mutex_lock(&call->mutex);
    while (!call->done)
        pthread_cond_wait(&call->changed, &call->mutex);
    pthread_mutex_unlock(&call->mutex);
    return call->status;
}

void wire_call_deinit(wire_call *call)
{
    wire_call_wait(call);
    if (call->reply)
        protobuf_c_message_free_unpacked(call->reply, NULL);
    free(call->values);
    sg_rpc_pending_release(call->pending);
    pthread_cond_destroy(&call->changed);
    pthread_mutex_destroy(&call->mutex);
}

/* Asks again while it is told to wait; asserts that it ends well. */
static void call_until_ok(wire_call *call, sg_rpc_channel *channel, const char *path, const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type)
{
    for (;;) {
        wire_call_start(call, channel, path, request, NULL, 0, reply_type, CALL_MS);
        sg_status status = wire_call_wait(call);
        if (status == SG_OK)
            return;
        cr_assert(status == SG_WAITING || status == SG_UNAVAILABLE, "%s: %s: %s", path, sg_status_name(status),
                  call->error.message);
        wire_call_deinit(call);
    }
}

/* --- a worker --- */

void wire_worker_join(wire_worker *w, uint32_t index, const char *coordinator, const char *job)
{
    *w = (wire_worker){.index = index};
    w->client = sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1, .message_bytes = 1u << 20});
    w->coordinator = sg_rpc_client_channel(w->client, coordinator);
    Shardgrad__V1__HelloRequest request = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    request.protocol_version = 1;
    request.job = (char *)job;
    request.worker = index;
    request.life = sg_clock_random_id();
    request.address = (char *)"test:1";
    wire_call call;
    call_until_ok(&call, w->coordinator, SERVICE "Hello", &request.base, &shardgrad__v1__hello_response__descriptor);
    const Shardgrad__V1__HelloResponse *response = (const Shardgrad__V1__HelloResponse *)call.reply;
    w->incarnation = response->incarnation;
    cr_assert_leq(response->n_ps_addresses, SG_ARRAY_LEN(w->ps));
    for (size_t i = 0; i < response->n_ps_addresses; i++)
        w->ps[i] = sg_rpc_client_channel(w->client, response->ps_addresses[i]);
    sg_plan_variable variable = {.n_elems = WIRE_ELEMS};
    sg_error err;
    cr_assert_eq(
        sg_plan_create(&variable, 1, (uint32_t)response->n_ps_addresses, response->slice_bytes, &w->plan, &err), SG_OK);
    wire_call_deinit(&call);
}

static void initialize(wire_worker *w, uint64_t attempt, float value)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = value;
    for (uint32_t slice = 0; slice < w->plan->n_slices; slice++) {
        Shardgrad__V1__InitializeRequest request = SHARDGRAD__V1__INITIALIZE_REQUEST__INIT;
        request.worker = w->index;
        request.incarnation = w->incarnation;
        request.generation = 1;
        request.attempt = attempt;
        request.n_slices = 1;
        request.slices = &slice;
        wire_call call;
        wire_call_start(&call, w->ps[w->plan->slices[slice].ps], PS "Initialize", &request.base, values,
                        w->plan->slices[slice].n_elems, &shardgrad__v1__initialize_response__descriptor, CALL_MS);
        cr_assert_eq(wire_call_wait(&call), SG_OK, "%s", call.error.message);
        wire_call_deinit(&call);
    }
    Shardgrad__V1__InitializedRequest request = SHARDGRAD__V1__INITIALIZED_REQUEST__INIT;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.attempt = attempt;
    wire_call call;
    call_until_ok(&call, w->coordinator, SERVICE "Initialized", &request.base,
                  &shardgrad__v1__initialized_response__descriptor);
    wire_call_deinit(&call);
}

void wire_worker_declare(wire_worker *w, float value)
{
    uint64_t n_elems = WIRE_ELEMS;
    Shardgrad__V1__Variable variable = SHARDGRAD__V1__VARIABLE__INIT, *variables[] = {&variable};
    variable.name = (char *)"weight";
    variable.n_shape = 1;
    variable.shape = &n_elems;
    variable.dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.n_variables = 1;
    request.variables = variables;
    wire_call call;
    call_until_ok(&call, w->coordinator, SERVICE "Declare", &request.base,
                  &shardgrad__v1__declare_response__descriptor);
    uint64_t attempt = ((const Shardgrad__V1__DeclareResponse *)call.reply)->attempt;
    wire_call_deinit(&call);
    if (attempt != 0)
        initialize(w, attempt, value);
}

void wire_worker_ticket(wire_worker *w, uint64_t received)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.received = received;
    request.finished = received;
    wire_call call;
    call_until_ok(&call, w->coordinator, SERVICE "Ticket", &request.base, &shardgrad__v1__ticket_response__descriptor);
    if (w->ticket)
        shardgrad__v1__ticket_response__free_unpacked(w->ticket, NULL);
    w->ticket = (Shardgrad__V1__TicketResponse *)call.reply;
    call.reply = NULL;
    wire_call_deinit(&call);
}

void wire_worker_start_push(wire_worker *w, wire_call *call, uint32_t slice, float value)
{
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = value;
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = w->index;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.step = w->ticket->step;
    request.weight = 1;
    request.n_slices = request.n_steps = 1;
    request.slices = &slice;
    request.steps = &w->ticket->step->step;
    wire_call_start(call, w->ps[w->plan->slices[slice].ps], PS "Push", &request.base, values,
                    w->plan->slices[slice].n_elems, &shardgrad__v1__push_response__descriptor, CALL_MS);
}

void wire_worker_start_push_pull(wire_worker *w, wire_call *call, const uint32_t *slices, size_t n, float value)
{
    float values[WIRE_ELEMS];
    uint64_t steps[WIRE_ELEMS];
    size_t n_values = 0;
    for (size_t i = 0; i < n; i++) {
        steps[i] = w->ticket->step->step;
        for (uint64_t k = 0; k < w->plan->slices[slices[i]].n_elems; k++)
            values[n_values++] = value;
    }
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = w->index;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.step = w->ticket->step;
    request.weight = 1;
    request.n_slices = request.n_steps = n;
    request.slices = (uint32_t *)(uintptr_t)slices;
    request.steps = steps;
    wire_call_start(call, w->ps[w->plan->slices[slices[0]].ps], PS "PushPull", &request.base, values, n_values,
                    &shardgrad__v1__push_pull_response__descriptor, CALL_MS);
}

sg_status wire_worker_push(wire_worker *w, float value, sg_error *err)
{
    sg_status status = SG_OK;
    for (uint32_t slice = 0; slice < w->plan->n_slices && status == SG_OK; slice++) {
        wire_call call;
        wire_worker_start_push(w, &call, slice, value);
        status = wire_call_wait(&call);
        *err = call.error;
        wire_call_deinit(&call);
    }
    return status;
}

void wire_worker_start_pull(wire_worker *w, wire_call *call, uint32_t slice, uint64_t version, uint64_t timeout_ms)
{
    Shardgrad__V1__PullRequest request = SHARDGRAD__V1__PULL_REQUEST__INIT;
    request.worker = w->index;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.n_slices = request.n_versions = 1;
    request.slices = &slice;
    request.versions = &version;
    wire_call_start(call, w->ps[w->plan->slices[slice].ps], PS "Pull", &request.base, NULL, 0,
                    &shardgrad__v1__pull_response__descriptor, timeout_ms);
}

void wire_worker_expect(wire_worker *w, uint32_t slice, uint64_t version, float want)
{
    wire_call call;
    wire_worker_start_pull(w, &call, slice, version, CALL_MS);
    cr_assert_eq(wire_call_wait(&call), SG_OK, "%s", call.error.message);
    cr_assert_eq(call.n_values, w->plan->slices[slice].n_elems);
    for (size_t i = 0; i < call.n_values; i++)
        cr_assert_float_eq(call.values[i], want, 1e-6f, "slice %u element %zu is %g, want %g", slice, i, call.values[i],
                           want);
    wire_call_deinit(&call);
}

void wire_worker_leave(wire_worker *w, uint64_t pushed)
{
    Shardgrad__V1__GroupProgress progress = SHARDGRAD__V1__GROUP_PROGRESS__INIT, *list[] = {&progress};
    progress.pushed = pushed;
    Shardgrad__V1__LeaveRequest request = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    request.incarnation = w->incarnation;
    request.generation = 1;
    request.n_progress = w->ticket ? 1 : 0;
    request.progress = list;
    wire_call call;
    call_until_ok(&call, w->coordinator, SERVICE "Leave", &request.base, &shardgrad__v1__leave_response__descriptor);
    wire_call_deinit(&call);
}

void wire_worker_deinit(wire_worker *w)
{
    if (w->ticket)
        shardgrad__v1__ticket_response__free_unpacked(w->ticket, NULL);
    sg_rpc_client_destroy(w->client);
    sg_plan_destroy(w->plan);
}
