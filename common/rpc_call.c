/* common/rpc_call.c - one call on the server: armed, handled, perhaps watched while it is parked, answered, freed.
 *
 * Its memory is freed when every batch that was started for it has reported its end: the reply's, and the watch's if
 * there is one. gRPC writes into the struct until then. */
#include <string.h>

#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/string_util.h>
#include <grpc/support/time.h>

#include "common/clock.h"
#include "common/rpc_args.h"
#include "common/rpc_server_internal.h"
#include "common/rpc_status.h"

/* The health service's route is the last. */
static bool is_probe(const sg_rpc_call *call)
{
    return call->route == &call->server->routes[call->server->n_routes - 1];
}

static void call_release(sg_rpc_call *call)
{
    if (atomic_fetch_sub_explicit(&call->refs, 1, memory_order_acq_rel) != 1)
        return;
    sg_rpc_server *server = call->server;
    if (call->grpc != NULL)
        grpc_call_unref(call->grpc);
    grpc_metadata_array_destroy(&call->metadata);
    grpc_call_details_destroy(&call->details);
    sg_wire_message_deinit(&call->request);
    gpr_free(call->peer);
    if (call->has_arrived) {
        atomic_fetch_sub_explicit(&server->n_calls, 1, memory_order_relaxed);
        if (is_probe(call))
            atomic_fetch_sub_explicit(&server->n_probes, 1, memory_order_relaxed);
    }
    sg_pool_free(call);
    sg_rpc_server_unhold(server);
}

static void refuse_unknown(sg_rpc_call *call)
{
    const grpc_slice *path = &call->details.method;
    sg_rpc_call_fail(
        call, SG_UNIMPLEMENTED,
        "no method %.*s here: this is another ps than was meant, or another version of shardgrad; look at the "
        "addresses in ps and advertise",
        (int)GRPC_SLICE_LENGTH(*path), (const char *)GRPC_SLICE_START_PTR(*path));
}

/* The value of the first header of this name; false if there is none. */
static bool header_find(const grpc_metadata_array *headers, const char *name, const char **value, size_t *n_bytes)
{
    for (size_t i = 0; i < headers->count; i++) {
        if (grpc_slice_str_cmp(headers->metadata[i].key, name) != 0)
            continue;
        *value = (const char *)GRPC_SLICE_START_PTR(headers->metadata[i].value);
        *n_bytes = GRPC_SLICE_LENGTH(headers->metadata[i].value);
        return true;
    }
    return false;
}

/* Refuses, and tells once for each peer. */
static void deny(sg_rpc_call *call, sg_role has, bool has_token)
{
    const char *needs = sg_role_name(call->route->needs);
    char reason[160];
    if (!has_token)
        snprintf(reason, sizeof reason, "the call has no token, wanted that of %s: set security.token_file", needs);
    else if (has == SG_ROLE_ANYBODY)
        snprintf(reason, sizeof reason, "the token is none of this cluster's: use its security.token_file");
    else
        snprintf(reason, sizeof reason, "the token is that of %s, wanted that of %s", sg_role_name(has), needs);
    sg_rpc_refusals_tell(call->server->refusals, sg_rpc_call_peer(call), call->route->method.path, reason);
    sg_rpc_call_fail(call, SG_DENIED, "%s: %s", call->route->method.path, reason);
}

/* False: the call was refused. */
static bool check_room(sg_rpc_call *call)
{
    sg_rpc_server *server = call->server;
    call->has_arrived = true;
    size_t n_calls = 1 + atomic_fetch_add_explicit(&server->n_calls, 1, memory_order_relaxed);
    size_t n_probes = is_probe(call) ? 1 + atomic_fetch_add_explicit(&server->n_probes, 1, memory_order_relaxed) : 0;
    if (n_calls <= server->max_calls && n_probes <= SG_RPC_SERVER_PROBES)
        return true;
    char reason[96];
    if (n_calls > server->max_calls)
        snprintf(reason, sizeof reason, "%zu calls are under way, as many as may be: ask again", server->max_calls);
    else
        snprintf(reason, sizeof reason, "%d health checks are under way, as many as may be: ask again",
                 SG_RPC_SERVER_PROBES);
    sg_rpc_refusals_tell(server->refusals, sg_rpc_call_peer(call), call->route->method.path, reason);
    sg_rpc_call_fail(call, SG_NOT_READY, "%s", reason);
    return false;
}

/* False: the call was refused. */
static bool check_role(sg_rpc_call *call)
{
    const sg_security *security = call->server->security;
    if (security == NULL || !security->has_tokens || call->route->needs == SG_ROLE_ANYBODY)
        return true;
    const char *value;
    size_t n_bytes;
    sg_role has = SG_ROLE_ANYBODY;
    bool has_token = header_find(&call->metadata, SG_RPC_TOKEN_HEADER, &value, &n_bytes);
    size_t scheme_bytes = strlen(SG_RPC_TOKEN_SCHEME);
    if (has_token && n_bytes > scheme_bytes && memcmp(value, SG_RPC_TOKEN_SCHEME, scheme_bytes) == 0)
        has = sg_security_role_of(security, value + scheme_bytes, n_bytes - scheme_bytes);
    if (has <= call->route->needs)
        return true;
    deny(call, has, has_token);
    return false;
}

/* A second delivery of the same request. */
static sg_rpc_call *repeat_of(sg_rpc_call *call)
{
    sg_rpc_call *repeat = sg_pool_alloc(call->server->pool, sizeof *repeat);
    sg_rpc_server_hold(call->server);
    repeat->is_repeat = true;
    repeat->server = call->server;
    repeat->queue = call->queue;
    repeat->route = call->route;
    repeat->deadline = call->deadline;
    repeat->request.pool = call->request.pool;
    repeat->request.buffer = grpc_byte_buffer_copy(call->request.buffer);
    repeat->peer = gpr_strdup(sg_rpc_call_peer(call));
    atomic_init(&repeat->refs, 1);
    grpc_metadata_array_init(&repeat->metadata);
    grpc_call_details_init(&repeat->details);
    return repeat;
}

/* Lets the network be at its worst, where a test asks for it. */
static void draw_fault(sg_rpc_call *call)
{
    if (call->server->faults == NULL || call->request.buffer == NULL)
        return;
    call->fault = sg_rpc_faults_draw(call->server->faults);
    if (call->fault == SG_RPC_FAULT_REPEAT)
        call->route->method.handler(call->route->method.user, repeat_of(call));
}

static void handle_admitted(sg_rpc_call *call)
{
    draw_fault(call);
    call->route->method.handler(call->route->method.user, call);
}

static void handle(sg_rpc_call *call)
{
    if (atomic_load(&call->server->stopping))
        sg_rpc_call_fail(call, SG_STOPPED, "the server is stopping");
    else if (call->route == NULL)
        refuse_unknown(call);
    else if (check_room(call) && check_role(call))
        handle_admitted(call);
}

/* The next call of the route is asked for only after the handler is through: meanwhile another queue's thread takes
 * it, where this one would make it wait. */
static void on_arrived(sg_rpc_event *event, bool ok)
{
    sg_rpc_call *call = SG_CONTAINER_OF(event, sg_rpc_call, on_arrived);
    if (!ok) { /* the server is stopping */
        call_release(call);
        return;
    }
    sg_rpc_server *server = call->server;
    sg_rpc_queue *queue = call->queue;
    const sg_rpc_route *route = call->route;
    sg_rpc_server_hold(server); /* the handler may free the call, and stop waits for the handler */
    handle(call);
    if (!atomic_load(&server->stopping))
        sg_rpc_call_arm(queue, route);
    sg_rpc_server_unhold(server);
}

static void on_replied(sg_rpc_event *event, bool ok)
{
    (void)ok; /* a client that went away meanwhile has had its chance */
    sg_rpc_call *call = SG_CONTAINER_OF(event, sg_rpc_call, on_replied);
    sg_rpc_unsent_remove(call);
    call_release(call);
}

static void on_closed(sg_rpc_event *event, bool ok)
{
    (void)ok;
    sg_rpc_call *call = SG_CONTAINER_OF(event, sg_rpc_call, on_closed);
    sg_rpc_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    bool notify = call->cancelled != 0 && !call->answered;
    call->notifying = notify;
    call->notifier = pthread_self();
    pthread_mutex_unlock(&server->mutex);
    if (notify) {
        call->on_gone(call->on_gone_user, call);
        pthread_mutex_lock(&server->mutex);
        call->notifying = false;
        pthread_cond_broadcast(&server->changed);
        pthread_mutex_unlock(&server->mutex);
    }
    call_release(call);
}

void sg_rpc_call_arm(sg_rpc_queue *queue, const sg_rpc_route *route)
{
    sg_rpc_call *call = sg_pool_alloc(queue->server->pool, sizeof(*call));
    sg_rpc_server_hold(queue->server);
    call->server = queue->server;
    call->request.pool = queue->server->pool;
    call->queue = queue;
    call->route = route;
    atomic_init(&call->refs, 1);
    grpc_metadata_array_init(&call->metadata);
    grpc_call_details_init(&call->details);
    sg_rpc_library_prepare_event(&call->on_arrived, on_arrived);
    grpc_call_error error =
        route != NULL ? grpc_server_request_registered_call(queue->server->grpc, route->registered, &call->grpc,
                                                            &call->deadline, &call->metadata, &call->request.buffer,
                                                            queue->queue, queue->queue, &call->on_arrived)
                      : grpc_server_request_call(queue->server->grpc, &call->grpc, &call->details, &call->metadata,
                                                 queue->queue, queue->queue, &call->on_arrived);
    SG_ASSERT(error == GRPC_CALL_OK);
}

const sg_wire_message *sg_rpc_call_request(const sg_rpc_call *call)
{
    return &call->request;
}

sg_wire_message *sg_rpc_call_take_request(sg_rpc_call *call)
{
    return sg_wire_message_take(call->server->pool, &call->request);
}

void sg_rpc_call_drop_request(sg_rpc_call *call)
{
    sg_wire_message_deinit(&call->request);
}

uint64_t sg_rpc_call_deadline_ms(const sg_rpc_call *call)
{
    gpr_timespec deadline = call->route != NULL ? call->deadline : call->details.deadline;
    if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0)
        return UINT64_MAX;
    int64_t left_ms = gpr_time_to_millis(gpr_time_sub(deadline, gpr_now(deadline.clock_type)));
    return sg_clock_ms() + (left_ms > 0 ? (uint64_t)left_ms : 0);
}

const char *sg_rpc_call_peer(sg_rpc_call *call)
{
    if (call->peer == NULL)
        call->peer = grpc_call_get_peer(call->grpc);
    return call->peer;
}

void sg_rpc_call_watch(sg_rpc_call *call, void (*on_gone)(void *user, sg_rpc_call *call), void *user)
{
    SG_ASSERT(!call->watched);
    if (call->is_repeat)
        return; /* nobody is there to go away */
    call->watched = true;
    call->on_gone = on_gone;
    call->on_gone_user = user;
    atomic_fetch_add_explicit(&call->refs, 1, memory_order_relaxed);
    grpc_op close = {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &call->cancelled};
    sg_rpc_library_prepare_event(&call->on_closed, on_closed);
    SG_ASSERT(grpc_call_start_batch(call->grpc, &close, 1, &call->on_closed, NULL) == GRPC_CALL_OK);
}

/* From here on no notice is given. A notice that answers is not waited for by itself. */
static void begin_answer(sg_rpc_call *call)
{
    if (!call->watched)
        return;
    sg_rpc_server *server = call->server;
    pthread_mutex_lock(&server->mutex);
    call->answered = true;
    while (call->notifying && !pthread_equal(call->notifier, pthread_self()))
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
}

/* What befalls an answer before it is sent; DELAY is over then. */
static void suffer_before(sg_rpc_call *call)
{
    if (call->fault == SG_RPC_FAULT_DROP)
        grpc_call_cancel(call->grpc, NULL);
    else if (call->fault == SG_RPC_FAULT_CUT)
        sg_rpc_faults_cut(call->server->port, sg_rpc_call_peer(call));
    else if (call->fault == SG_RPC_FAULT_DELAY)
        sg_rpc_faults_delay(call->server->faults);
}

/* message: NULL for a failure. err: NULL for success. The receive buffers go first, so that memory turns over. The
 * hold is for this thread: the call may be gone before gRPC's function returns. */
static void send_answer(sg_rpc_call *call, sg_wire_message *message, const sg_error *err)
{
    sg_rpc_server *server = call->server;
    if (call->is_repeat) {
        call_release(call);
        return;
    }
    sg_rpc_server_hold(server);
    suffer_before(call);
    char *cut_peer = call->fault == SG_RPC_FAULT_BREAK ? gpr_strdup(sg_rpc_call_peer(call)) : NULL;
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA}, {.op = GRPC_OP_SEND_STATUS_FROM_SERVER}};
    size_t n_ops = 2;
    grpc_metadata trailer;
    grpc_slice text = grpc_empty_slice();
    if (message != NULL)
        ops[n_ops++] = (grpc_op){.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message->buffer};
    if (!call->watched)
        ops[n_ops++] =
            (grpc_op){.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &call->cancelled};
    if (err != NULL) {
        trailer = sg_rpc_status_trailer(err->code);
        text = grpc_slice_from_copied_string(err->message);
        ops[1].data.send_status_from_server.trailing_metadata = &trailer;
        ops[1].data.send_status_from_server.trailing_metadata_count = 1;
        ops[1].data.send_status_from_server.status = (grpc_status_code)sg_status_to_grpc(err->code);
        ops[1].data.send_status_from_server.status_details = &text;
    }
    sg_wire_message_deinit(&call->request);
    sg_rpc_unsent_add(call, message != NULL ? sg_wire_message_bytes(message) : 0);
    sg_rpc_library_prepare_event(&call->on_replied, on_replied);
    SG_ASSERT(grpc_call_start_batch(call->grpc, ops, n_ops, &call->on_replied, NULL) == GRPC_CALL_OK);
    grpc_slice_unref(text);
    if (cut_peer != NULL)
        sg_rpc_faults_cut(server->port, cut_peer);
    gpr_free(cut_peer);
    sg_rpc_server_unhold(server);
}

void sg_rpc_call_reply(sg_rpc_call *call, const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces)
{
    sg_wire_message message = {0};
    sg_error err;
    sg_status status = sg_wire_pack_into(call->server->pool, head, pieces, n_pieces, &message, &err);
    size_t limit = (size_t)call->server->message_limit;
    if (status == SG_OK && sg_wire_message_bytes(&message) > limit)
        status = sg_error_set(&err, SG_EXHAUSTED, "the answer has %zu bytes, at most %zu are allowed",
                              sg_wire_message_bytes(&message), limit);
    begin_answer(call);
    send_answer(call, status == SG_OK ? &message : NULL, status == SG_OK ? NULL : &err);
    sg_wire_message_deinit(&message);
}

void sg_rpc_call_fail(sg_rpc_call *call, sg_status status, const char *format, ...)
{
    SG_ASSERT(status != SG_OK);
    sg_error err;
    va_list args;
    va_start(args, format);
    status = sg_error_set_v(&err, status, format, args);
    va_end(args);
    SG_ASSERT(status == err.code);
    begin_answer(call);
    send_answer(call, NULL, &err);
}
