/* worker/client/transport.c - see transport.h. */
#include "worker/client/transport.h"

#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "common/address.h"
#include "common/clock.h"
#include "kernels/bf16.h"

/* Control messages are small; anything above this is not one. */
#define CONTROL_BYTES (1u << 20)

#define COORDINATOR_PATH(method) "/shardgrad.v1.CoordinatorService/" method
#define PARAMETER_PATH(method)   "/shardgrad.v1.ParameterService/" method

static const struct {
    const char *path;
    const ProtobufCMessageDescriptor *reply;
} methods[] = {
    [SG_SESSION_HELLO] = {COORDINATOR_PATH("Hello"), &shardgrad__v1__hello_response__descriptor},
    [SG_SESSION_DECLARE] = {COORDINATOR_PATH("Declare"), &shardgrad__v1__declare_response__descriptor},
    [SG_SESSION_INITIALIZE] = {PARAMETER_PATH("Initialize"), &shardgrad__v1__initialize_response__descriptor},
    [SG_SESSION_INITIALIZED] = {COORDINATOR_PATH("Initialized"), &shardgrad__v1__initialized_response__descriptor},
    [SG_SESSION_TICKET] = {COORDINATOR_PATH("Ticket"), &shardgrad__v1__ticket_response__descriptor},
    [SG_SESSION_PUSH] = {PARAMETER_PATH("Push"), &shardgrad__v1__push_response__descriptor},
    [SG_SESSION_PULL] = {PARAMETER_PATH("Pull"), &shardgrad__v1__pull_response__descriptor},
    [SG_SESSION_PUSH_PULL] = {PARAMETER_PATH("PushPull"), &shardgrad__v1__push_pull_response__descriptor},
    [SG_SESSION_HEARTBEAT] = {COORDINATOR_PATH("Heartbeat"), &shardgrad__v1__heartbeat_response__descriptor},
    [SG_SESSION_LEAVE] = {COORDINATOR_PATH("Leave"), &shardgrad__v1__leave_response__descriptor},
};

/* --- connections ----------------------------------------------------------------------------------------------- */

static sg_status no_thread(sg_error *err)
{
    return sg_error_set(err, SG_EXHAUSTED, "no thread for the calls to the ps");
}

sg_status sg_transport_open(sg_client *client, sg_error *err)
{
    client->control = sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1,
                                                                    .message_bytes = CONTROL_BYTES,
                                                                    .on_demand = true,
                                                                    .security = client->security,
                                                                    .log = &client->log});
    return client->control != NULL ? SG_OK : no_thread(err);
}

sg_status sg_transport_connect(sg_client *client, sg_error *err)
{
    sg_session_facts facts;
    sg_client_lock(client);
    sg_session_facts_get(client->session, &facts);
    sg_client_unlock(client);
    sg_rpc_client *data = sg_rpc_client_create(&(sg_rpc_client_options){
        .threads = 1, .message_bytes = facts.message_bytes, .security = client->security, .log = &client->log});
    if (data == NULL)
        return no_thread(err);
    client->n_connections = (uint32_t)client->config->connections;
    sg_client_lock(client);
    client->data = data;
    client->ps_channels = sg_xcalloc((size_t)facts.n_ps * client->n_connections, sizeof(sg_rpc_channel *));
    sg_transport_move(client);
    sg_client_unlock(client);
    return SG_OK;
}

/* The channel where it leads there; else another one, in its place. */
static sg_rpc_channel *channel_to(sg_rpc_client *client, sg_rpc_channel *take_old, const char *address)
{
    if (take_old != NULL && strcmp(sg_rpc_channel_address(take_old), address) == 0)
        return take_old;
    sg_rpc_channel_release(take_old);
    return sg_rpc_client_channel(client, address);
}

void sg_transport_move(sg_client *client)
{
    /* It has not joined: sg_transport_connect follows. Or Hello was answered while the channels are destroyed. */
    if (client->data == NULL || client->closing)
        return;
    sg_session_facts facts;
    sg_session_facts_get(client->session, &facts);
    client->coordinator_channel =
        channel_to(client->data, client->coordinator_channel, sg_session_ps_address(client->session, 0));
    for (uint32_t i = 0; i < facts.n_ps * client->n_connections; i++)
        client->ps_channels[i] = channel_to(client->data, client->ps_channels[i],
                                            sg_session_ps_address(client->session, i / client->n_connections));
}

void sg_transport_close(sg_client *client)
{
    sg_rpc_client_destroy(client->data);
    sg_rpc_client_destroy(client->control);
    free(client->ps_channels);
    /* A release that has counted down its op may be about to wake the loop. */
    while (atomic_load(&client->n_releasing) > 0)
        sched_yield();
}

/* A ps that was started again has another port: its address is looked up for every Hello. */
static sg_status hello_channel(sg_client_call *call, sg_error *err)
{
    sg_client *client = call->client;
    char found[SG_ADDRESS_BYTES];
    const char *address = client->coordinator;
    if (address == NULL) {
        sg_status status = sg_address_find(client->config, 0, found, err);
        if (status != SG_OK)
            return status;
        address = found;
    }
    pthread_mutex_lock(&client->mutex);
    client->control_channel = channel_to(client->control, client->control_channel, address);
    call->channel = sg_rpc_channel_ref(client->control_channel);
    pthread_mutex_unlock(&client->mutex);
    return SG_OK;
}

/* Messages take turns. */
static sg_rpc_channel *data_channel(const sg_client *client, const sg_session_action *action)
{
    return client->ps_channels[(size_t)action->target * client->n_connections + action->call % client->n_connections];
}

sg_rpc_channel *sg_transport_channel(const sg_client *client, const sg_session_action *action)
{
    switch (action->method) {
    case SG_SESSION_HELLO:
        return NULL;
    case SG_SESSION_HEARTBEAT:
    case SG_SESSION_LEAVE:
        return client->control_channel;
    default:
        return action->target == SG_SESSION_COORDINATOR ? client->coordinator_channel : data_channel(client, action);
    }
}

/* --- buffers that are lent ------------------------------------------------------------------------------------- */

/* Runs on any thread, so it takes no lock. Mostly the reply comes later and completes the op; where nothing else is
 * waited for, the loop thread does. */
static void piece_release(void *owner)
{
    sg_op *op = owner;
    sg_client *client = op->client;
    unsigned n_lent = atomic_load(&op->n_lent);
    while (!(n_lent & SG_OP_AWAITS_LENT))
        if (atomic_compare_exchange_weak(&op->n_lent, &n_lent, n_lent - 1))
            return;
    atomic_fetch_add(&client->n_releasing, 1);
    if (atomic_fetch_sub(&op->n_lent, 1) == (SG_OP_AWAITS_LENT | 1))
        uv_async_send(&client->wake);
    atomic_fetch_sub(&client->n_releasing, 1);
}

/* Of one that is copied. */
static void piece_ignore(void *owner)
{
    (void)owner;
}

/* Slices that lie next to each other become one piece. pieces has room for as many as there are slices. */
static size_t pieces_make(const sg_client_call *call, sg_wire_piece *pieces)
{
    const bool gradient = sg_session_is_push(call->action.method);
    size_t n = 0;
    for (size_t i = 0; i < call->action.n_slices; i++) {
        const sg_client_place *place = &call->client->places[call->action.slices[i]];
        const float *data = gradient ? place->gradient : place->value;
        if (n > 0 && (const char *)pieces[n - 1].data + pieces[n - 1].n_bytes == (const char *)data)
            pieces[n - 1].n_bytes += place->n_bytes;
        else
            pieces[n++] = (sg_wire_piece){.data = data, .n_bytes = place->n_bytes, .owner = call->op};
    }
    return n;
}

static void pieces_lend(const sg_client_call *call, sg_wire_piece *pieces, size_t n)
{
    unsigned n_lent = 0;
    for (size_t i = 0; i < n; i++) {
        const bool copied = sg_wire_is_copied(pieces[i].n_bytes);
        pieces[i].release = copied ? piece_ignore : piece_release;
        n_lent += !copied;
    }
    if (n_lent > 0)
        atomic_fetch_add(&call->op->n_lent, n_lent);
}

/* --- gradients as bfloat16 --------------------------------------------------------------------------------------- */

static bool is_narrow(const sg_client_call *call)
{
    return sg_session_is_push(call->action.method) && ((const Shardgrad__V1__PushRequest *)call->action.body)->dtype ==
                                                          SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_BFLOAT16;
}

static bool is_averaged(const sg_client *client, uint32_t slice)
{
    return client->variables[sg_session_plan(client->session)->slices[slice].variable].average;
}

/* Averaged variables are values, and stay float32. */
static size_t narrow_bytes(const sg_client_call *call)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < call->action.n_slices; i++) {
        const size_t whole = call->client->places[call->action.slices[i]].n_bytes;
        n_bytes += is_averaged(call->client, call->action.slices[i]) ? whole : whole / 2;
    }
    return n_bytes;
}

static sg_status narrow_pack(const sg_client_call *call, sg_pool *pool, sg_wire_message **message, sg_error *err)
{
    const size_t n_bytes = narrow_bytes(call);
    uint8_t *data = sg_pool_try_alloc_raw(call->client->pool, n_bytes), *at = data;
    if (data == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for %zu bytes of gradients as bfloat16", n_bytes);
    for (size_t i = 0; i < call->action.n_slices; i++) {
        const sg_client_place *place = &call->client->places[call->action.slices[i]];
        const bool whole = is_averaged(call->client, call->action.slices[i]);
        if (whole)
            memcpy(at, place->gradient, place->n_bytes);
        else
            sg_bf16_narrow_to_bytes(place->gradient, at, place->n_bytes / sizeof(float));
        at += whole ? place->n_bytes : place->n_bytes / 2;
    }
    const sg_wire_piece piece = {.data = data, .n_bytes = n_bytes, .release = sg_pool_free, .owner = data};
    return sg_wire_pack(pool, call->action.body, &piece, 1, message, err);
}

static sg_status message_pack(const sg_client_call *call, sg_pool *pool, sg_wire_message **message, sg_error *err)
{
    if (!sg_session_is_push(call->action.method) && call->action.method != SG_SESSION_INITIALIZE)
        return sg_wire_pack(pool, call->action.body, NULL, 0, message, err);
    if (is_narrow(call))
        return narrow_pack(call, pool, message, err);
    sg_wire_piece few[16];
    const size_t n_slices = call->action.n_slices;
    sg_wire_piece *pieces =
        n_slices <= SG_ARRAY_LEN(few) ? few : sg_pool_alloc(call->client->pool, n_slices * sizeof *pieces);
    const size_t n = pieces_make(call, pieces);
    pieces_lend(call, pieces, n);
    const sg_status status = sg_wire_pack(pool, call->action.body, pieces, n, message, err);
    if (pieces != few)
        sg_pool_free(pieces);
    return status;
}

/* --- replies --------------------------------------------------------------------------------------------------- */

/* What the answer says of the values in it. */
typedef struct values_head {
    Shardgrad__V1__DataType dtype;
    size_t n_versions;
} values_head;

static sg_status values_check(const sg_client_call *call, const values_head *head, size_t data_bytes, sg_error *err)
{
    const uint64_t want = call->action.slice_bytes;
    const size_t n = call->action.n_slices;
    if (head->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        head->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32)
        return sg_error_set(err, SG_INTERNAL, "ps %" PRIu32 " sent values of type %d, not float32", call->action.target,
                            (int)head->dtype);
    if (data_bytes != want || head->n_versions != n)
        return sg_error_set(err, SG_INTERNAL,
                            "ps %" PRIu32 " sent %zu bytes and %zu versions, wanted %" PRIu64 " and %zu",
                            call->action.target, data_bytes, head->n_versions, want, n);
    return SG_OK;
}

/* Copies the values of the answer, if there are any, to where they belong. */
static sg_status values_take(sg_client_call *call, const sg_wire_parts *parts, sg_error *err)
{
    values_head head;
    if (call->action.method == SG_SESSION_PULL) {
        const Shardgrad__V1__PullResponse *reply = (const Shardgrad__V1__PullResponse *)parts->head;
        head = (values_head){.dtype = reply->dtype, .n_versions = reply->n_versions};
    } else if (call->action.method == SG_SESSION_PUSH_PULL) {
        const Shardgrad__V1__PushPullResponse *reply = (const Shardgrad__V1__PushPullResponse *)parts->head;
        head = (values_head){.dtype = reply->dtype, .n_versions = reply->n_versions};
        if (head.n_versions == 0 && parts->data_bytes == 0)
            return SG_OK;
    } else {
        return SG_OK;
    }
    const sg_status status = values_check(call, &head, parts->data_bytes, err);
    if (status != SG_OK)
        return status;
    sg_span_reader reader;
    sg_span_reader_init(&reader, parts->spans, parts->n_spans, SIZE_MAX);
    for (size_t i = 0; i < call->action.n_slices; i++) {
        const sg_client_place *place = &call->client->places[call->action.slices[i]];
        const bool read = sg_span_reader_read(&reader, place->value, place->n_bytes);
        SG_ASSERT(read);
    }
    return SG_OK;
}

static void bytes_count(const sg_client_call *call, size_t data_bytes)
{
    if (sg_session_is_push(call->action.method))
        call->client->pushed_bytes += call->action.slice_bytes;
    call->client->pulled_bytes += data_bytes;
}

/* Gives references back. With the lock held. */
static void unref(sg_client_call *call, uint32_t n_references)
{
    call->n_references -= n_references;
    if (call->n_references > 0)
        return;
    sg_rpc_pending_release(call->pending);
    sg_rpc_channel_release(call->channel);
    sg_session_action_deinit(&call->action);
    sg_pool_free(call);
}

/* Gives n_references of the call back. */
static void call_report(sg_client_call *call, sg_status status, const sg_error *error, const sg_wire_parts *parts,
                        uint32_t n_references)
{
    sg_client *client = call->client;
    sg_op *op = call->op;
    sg_client_lock(client);
    if (status == SG_OK)
        bytes_count(call, parts->data_bytes);
    sg_session_on_reply(client->session, sg_clock_ms(), call->action.call, status,
                        error == NULL ? NULL : error->message, status == SG_OK ? parts->head : NULL);
    if (op != NULL) {
        TAILQ_REMOVE(&op->calls, call, link);
        sg_op_note_lack(op);
        sg_op_settle(op);
    }
    unref(call, n_references);
    sg_client_unlock(client);
}

static void call_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    sg_client_call *call = user;
    sg_error err;
    sg_wire_parts parts = {0};
    if (status == SG_OK) {
        error = &err;
        status = sg_rpc_channel_unpack(call->channel, reply, methods[call->action.method].reply, &parts, &err);
        if (status == SG_OK)
            status = values_take(call, &parts, &err);
    }
    call_report(call, status, status == SG_OK ? NULL : error, &parts, 1);
    sg_wire_parts_deinit(&parts);
}

/* --- calls ----------------------------------------------------------------------------------------------------- */

static bool is_unwanted(sg_client_call *call)
{
    pthread_mutex_lock(&call->client->mutex);
    const bool unwanted = call->cancel_wanted;
    pthread_mutex_unlock(&call->client->mutex);
    return unwanted;
}

static sg_status call_prepare(sg_client_call *call, sg_wire_message **message, sg_error *err)
{
    if (is_unwanted(call))
        return sg_error_set(err, SG_CANCELLED, "cancelled before it was sent");
    sg_status status = call->channel == NULL ? hello_channel(call, err) : SG_OK;
    if (status != SG_OK)
        return status == SG_NOT_READY ? sg_error_set(err, SG_UNAVAILABLE, "%s", err->message) : status;
    return message_pack(call, sg_rpc_channel_pool(call->channel), message, err);
}

void sg_transport_start(sg_client_call *call)
{
    sg_client *client = call->client;
    sg_error err;
    sg_wire_message *message = NULL;
    const sg_status status = call_prepare(call, &message, &err);
    if (status != SG_OK) {
        call_report(call, status, &err, NULL, 2); /* there will be no callback */
        return;
    }
    sg_rpc_pending *pending = sg_rpc_channel_call(call->channel, methods[call->action.method].path, message,
                                                  call->action.timeout_ms, call_done, call);
    pthread_mutex_lock(&client->mutex);
    call->pending = pending;
    const bool unwanted = call->cancel_wanted;
    if (!unwanted)
        unref(call, 1);
    pthread_mutex_unlock(&client->mutex);
    if (unwanted)
        sg_transport_cancel(call);
}

void sg_transport_cancel(sg_client_call *call)
{
    sg_client *client = call->client;
    pthread_mutex_lock(&client->mutex);
    sg_rpc_pending *pending = call->pending;
    pthread_mutex_unlock(&client->mutex);
    /* NULL: it is just being started, and that will see that it is unwanted. */
    if (pending != NULL)
        sg_rpc_pending_cancel(pending);
    pthread_mutex_lock(&client->mutex);
    unref(call, 1);
    pthread_mutex_unlock(&client->mutex);
}
