/* server/parameter_service.c - see parameter_service.h. */
#include "server/parameter_service.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "common/clock.h"

/* A pull is answered a little before its client stops waiting, so that the client learns for whom it waited. */
#define ANSWER_AHEAD_MS 300u

/* Takes the request apart; false: the call was failed. */
static bool unpack(const sg_parameter_service *service, sg_rpc_call *call, const ProtobufCMessageDescriptor *type,
                   sg_wire_parts *parts)
{
    sg_error err;
    sg_status status = sg_wire_unpack(sg_rpc_call_request(call), type, parts, &err);
    if (status == SG_OK && parts->data_bytes <= service->message_bytes)
        return true;
    if (status == SG_OK) {
        size_t data_bytes = parts->data_bytes;
        sg_wire_parts_deinit(parts);
        sg_rpc_call_fail(call, SG_INVALID, "got %zu bytes of data in one message; message_bytes is %" PRIu64,
                         data_bytes, service->message_bytes);
    } else {
        sg_rpc_call_fail(call, status, "%s", err.message);
    }
    return false;
}

static void reply(sg_rpc_call *call, sg_status status, const sg_error *err, const ProtobufCMessage *response)
{
    if (status == SG_OK)
        sg_rpc_call_reply(call, response, NULL, 0);
    else
        sg_rpc_call_fail(call, status, "%s", err->message);
}

static void release_version(void *owner)
{
    sg_version_release(owner);
}

static sg_wire_piece piece_of(sg_version *take_version)
{
    return (sg_wire_piece){.data = take_version->values,
                           .n_bytes = take_version->n_elems * sizeof(float),
                           .release = release_version,
                           .owner = take_version};
}

static void on_declare(void *user, sg_rpc_call *call)
{
    sg_parameter_service *service = user;
    sg_wire_parts parts;
    sg_error err;
    if (!unpack(service, call, &shardgrad__v1__ps_declare_request__descriptor, &parts))
        return;
    sg_status status = sg_store_declare(service->store, (const Shardgrad__V1__PsDeclareRequest *)parts.head, &err);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__OrderResponse response = SHARDGRAD__V1__ORDER_RESPONSE__INIT;
    reply(call, status, &err, &response.base);
}

static void on_order(void *user, sg_rpc_call *call)
{
    sg_parameter_service *service = user;
    sg_wire_parts parts;
    sg_error err;
    if (!unpack(service, call, &shardgrad__v1__order_request__descriptor, &parts))
        return;
    const Shardgrad__V1__OrderRequest *request = (const Shardgrad__V1__OrderRequest *)parts.head;
    sg_store_acknowledgement answer;
    sg_status status = sg_store_order(service->store, sg_clock_ms(), request, &err);
    if (status == SG_OK)
        sg_store_acknowledge(service->store, request, &answer);
    sg_wire_parts_deinit(&parts);
    reply(call, status, &err, &answer.response.base);
}

static void on_initialize(void *user, sg_rpc_call *call)
{
    sg_parameter_service *service = user;
    sg_wire_parts parts;
    sg_error err;
    if (!unpack(service, call, &shardgrad__v1__initialize_request__descriptor, &parts))
        return;
    sg_status status = sg_store_initialize(service->store, (const Shardgrad__V1__InitializeRequest *)parts.head,
                                           parts.spans, parts.n_spans, &err);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__InitializeResponse response = SHARDGRAD__V1__INITIALIZE_RESPONSE__INIT;
    reply(call, status, &err, &response.base);
}

/* --- pushes --- */

/* A request with contributions: its message is the call's, or, once a contribution has to wait in it, its own. */
typedef struct received {
    _Atomic uint32_t references;
    sg_rpc_call *call; /* until it is answered */
    sg_wire_message *message;
    sg_wire_parts parts;
} received;

static void received_keep(void *owner)
{
    received *r = owner;
    r->message = sg_rpc_call_take_request(r->call);
    atomic_fetch_add_explicit(&r->references, 1, memory_order_relaxed);
}

static void received_release(void *owner)
{
    received *r = owner;
    if (atomic_fetch_sub_explicit(&r->references, 1, memory_order_acq_rel) != 1)
        return;
    sg_wire_parts_deinit(&r->parts);
    sg_wire_message_destroy(r->message);
    sg_pool_free(r);
}

/* Of a number in a list, at most. */
#define NUMBER_BYTES 10u
/* Of all else in a head but the lists and the ticket: the tags and lengths, and dtype. */
#define REST_BYTES 64u

/* Measured only where it could be too much: to measure goes over every number. */
static bool fits_head(const Shardgrad__V1__PushPullResponse *response)
{
    size_t most = (response->n_versions + response->n_non_finite + response->n_refused) * NUMBER_BYTES + REST_BYTES;
    if (response->ticket)
        most += protobuf_c_message_get_packed_size(&response->ticket->base);
    return most <= SG_WIRE_HEAD_BYTES || protobuf_c_message_get_packed_size(&response->base) <= SG_WIRE_HEAD_BYTES;
}

/* The references to the versions go over to the reply. ticket may be NULL. What was counted must be acknowledged: where
 * so many versions do not fit a head, or there is no memory for it, none is told, and they are pulled. */
static void reply_push_pull(sg_pool *pool, sg_rpc_call *call, const sg_store_pushed *pushed,
                            Shardgrad__V1__TicketResponse *ticket)
{
    size_t n = pushed->n_versions;
    sg_wire_piece *pieces = sg_pool_try_alloc_raw(pool, n * sizeof *pieces);
    uint64_t *numbers = sg_pool_try_alloc_raw(pool, n * sizeof *numbers);
    bool has_room = pieces && numbers;
    Shardgrad__V1__PushPullResponse response = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    response.non_finite = pushed->non_finite;
    response.n_non_finite = pushed->n_non_finite;
    response.refused = pushed->refused;
    response.n_refused = pushed->n_refused;
    response.focus = pushed->focus;
    response.dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    response.versions = numbers;
    response.n_versions = n;
    response.ticket = ticket;
    for (size_t i = 0; i < n && has_room; i++) {
        numbers[i] = pushed->versions[i]->step;
        pieces[i] = piece_of(pushed->versions[i]);
    }
    if (!has_room || !fits_head(&response)) {
        for (size_t i = 0; i < n; i++)
            sg_version_release(pushed->versions[i]);
        response.n_versions = n = 0;
    }
    sg_rpc_call_reply(call, &response.base, pieces, n);
    sg_pool_free(numbers);
    sg_pool_free(pieces);
}

static void reply_push(sg_rpc_call *call, const sg_store_pushed *pushed)
{
    Shardgrad__V1__PushResponse response = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    response.non_finite = pushed->non_finite;
    response.n_non_finite = pushed->n_non_finite;
    response.refused = pushed->refused;
    response.n_refused = pushed->n_refused;
    response.focus = pushed->focus;
    sg_rpc_call_reply(call, &response.base, NULL, 0);
}

static Shardgrad__V1__TicketResponse *ticket_get(const sg_parameter_service *service,
                                                 const Shardgrad__V1__TicketRequest *request)
{
    return request == NULL || service->ticket == NULL ? NULL : service->ticket(service->ticket_user, request);
}

/* Both kinds, whose requests are the same. */
static void push(sg_parameter_service *service, sg_rpc_call *call, bool wants_values)
{
    sg_pool *pool = sg_store_pool(service->store);
    sg_error err;
    received *r = sg_pool_alloc(pool, sizeof *r);
    atomic_init(&r->references, 1);
    r->call = call;
    if (!unpack(service, call, &shardgrad__v1__push_request__descriptor, &r->parts)) {
        sg_pool_free(r);
        return;
    }
    const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)r->parts.head;
    sg_store_data data = {.spans = r->parts.spans,
                          .n_spans = r->parts.n_spans,
                          .kept_bytes = sg_wire_message_bytes(sg_rpc_call_request(call)) + r->parts.memory_bytes,
                          .owner = r,
                          .keep = received_keep,
                          .release = received_release};
    sg_store_pushed pushed = {.wants_versions = wants_values};
    sg_status status = sg_store_push(service->store, sg_clock_ms(), request, &data, &pushed, &err);
    Shardgrad__V1__TicketResponse *ticket =
        status == SG_OK && wants_values && pushed.n_refused == 0 ? ticket_get(service, request->ticket) : NULL;
    received_release(r);
    if (status != SG_OK)
        sg_rpc_call_fail(call, status, "%s", err.message);
    else if (wants_values)
        reply_push_pull(pool, call, &pushed, ticket);
    else
        reply_push(call, &pushed);
    if (ticket != NULL)
        sg_wire_head_free(&ticket->base);
    sg_store_pushed_deinit(&pushed);
}

static void on_push(void *user, sg_rpc_call *call)
{
    push(user, call, false);
}

static void on_push_pull(void *user, sg_rpc_call *call)
{
    push(user, call, true);
}

/* --- pulls --- */

static void on_gone(void *user, sg_rpc_call *call)
{
    sg_parameter_service *service = user;
    sg_store_cancel_pull(service->store, call);
}

static uint64_t answer_by(uint64_t now_ms, uint64_t deadline_ms)
{
    uint64_t left_ms = deadline_ms > now_ms ? deadline_ms - now_ms : 0;
    return deadline_ms - (left_ms / 4 < ANSWER_AHEAD_MS ? left_ms / 4 : ANSWER_AHEAD_MS);
}

static void on_pull(void *user, sg_rpc_call *call)
{
    sg_parameter_service *service = user;
    sg_wire_parts parts;
    if (!unpack(service, call, &shardgrad__v1__pull_request__descriptor, &parts))
        return;
    uint64_t now_ms = sg_clock_ms(), deadline_ms = answer_by(now_ms, sg_rpc_call_deadline_ms(call));
    sg_rpc_call_drop_request(call); /* who waits takes none of the memory that pushes are received in */
    sg_rpc_call_watch(call, on_gone, service);
    sg_store_pull(service->store, now_ms, deadline_ms, (const Shardgrad__V1__PullRequest *)parts.head, call);
    sg_wire_parts_deinit(&parts); /* the head is a copy: it may outlive the call, and the request */
}

void sg_parameter_service_answer_pull(void *user, void *call, const sg_store_pull_answer *answer)
{
    sg_parameter_service *service = user;
    if (answer->status != SG_OK) {
        sg_rpc_call_fail(call, answer->status, "%s", answer->message);
        return;
    }
    sg_wire_piece *pieces = sg_pool_try_alloc_raw(sg_store_pool(service->store), answer->n * sizeof *pieces);
    if (!pieces) {
        for (size_t i = 0; i < answer->n; i++)
            sg_version_release(answer->versions[i]);
        sg_rpc_call_fail(call, SG_EXHAUSTED, "no memory for the answer to a pull of %zu slices", answer->n);
        return;
    }
    for (size_t i = 0; i < answer->n; i++)
        pieces[i] = piece_of(answer->versions[i]);
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    response.dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    response.n_versions = answer->n;
    response.versions = (uint64_t *)answer->numbers; /* packed, not written */
    sg_rpc_call_reply(call, &response.base, pieces, answer->n);
    sg_pool_free(pieces);
}

void sg_parameter_service_methods(sg_parameter_service *service, sg_rpc_method methods[SG_PARAMETER_SERVICE_METHODS])
{
    const sg_rpc_method all[SG_PARAMETER_SERVICE_METHODS] = {
        {"/shardgrad.v1.ParameterService/Declare", on_declare, service},
        {"/shardgrad.v1.ParameterService/Order", on_order, service},
        {"/shardgrad.v1.ParameterService/Initialize", on_initialize, service},
        {"/shardgrad.v1.ParameterService/Push", on_push, service},
        {"/shardgrad.v1.ParameterService/Pull", on_pull, service},
        {"/shardgrad.v1.ParameterService/PushPull", on_push_pull, service},
    };
    memcpy(methods, all, sizeof all);
}
