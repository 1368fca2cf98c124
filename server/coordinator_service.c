/* server/coordinator_service.c - see coordinator_service.h. */
#include <assert.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "server/coordinator_service_internal.h"

/* One call. It is answered on the loop's thread alone; the notice that its client has gone may come before or after,
 * and whoever comes last frees it. */
struct request {
    sg_mailbox_item arrived, gone;
    const method *method;
    sg_rpc_call *call;
    sg_wire_parts parts;
    atomic_bool gone_posted; /* set by the notice; final once the call is answered */
    bool taken;              /* arrived */
    bool left;               /* the notice was taken, too */
    bool answered;
    TAILQ_ENTRY(request) link;
};

/* --- answers: on the loop's thread --- */

/* The call was answered, so that no notice comes any more. */
static void retire(sg_coordinator_service *service, request *r)
{
    TAILQ_REMOVE(&service->waiting, r, link);
    r->answered = true;
    if (r->left || !atomic_load(&r->gone_posted))
        free(r);
}

static void fail(sg_coordinator_service *service, request *r, sg_status status, const char *text)
{
    sg_rpc_call_fail(r->call, status, "%s", text);
    retire(service, r);
}

/* --- orders --- */

typedef struct order {
    sg_mailbox_item done;
    sg_coordinator_service *service;
    uint32_t ps;
    uint64_t life;
    sg_rpc_channel *channel; /* the client's as long as it lives */
    sg_status status;
    char message[SG_ERROR_MESSAGE_BYTES];
    bool answered; /* with this: */
    sg_wire_parts answer;
} order;

static void on_order_done(sg_mailbox_item *item)
{
    order *o = SG_CONTAINER_OF(item, order, done);
    if (!o->service->closed) {
        pthread_mutex_lock(&o->service->mutex);
        sg_coordinator_on_ordered(o->service->coordinator, sg_clock_ms(), o->ps, o->life, o->status, o->message,
                                  o->answered ? (const Shardgrad__V1__OrderResponse *)o->answer.head : NULL);
        pthread_mutex_unlock(&o->service->mutex);
        sg_coordinator_service_perform(o->service);
    }
    if (o->answered)
        sg_wire_parts_deinit(&o->answer);
    free(o);
}

/* On the client's thread. */
static void on_order_reply(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    order *o = user;
    sg_error err;
    if (status == SG_OK) {
        status = sg_rpc_channel_unpack(o->channel, reply, &shardgrad__v1__order_response__descriptor, &o->answer, &err);
        error = &err;
    }
    o->status = status;
    o->answered = status == SG_OK;
    if (status != SG_OK)
        memcpy(o->message, error->message, sizeof o->message);
    sg_mailbox_post(o->service->options.mailbox, &o->done);
}

static sg_rpc_channel *channel_to(sg_coordinator_service *service, uint32_t ps, const char *address)
{
    order_channel *known = &service->channels[ps];
    if (!known->address || strcmp(known->address, address) != 0) {
        free(known->address);
        known->address = sg_xstrdup(address);
        sg_rpc_channel_release(known->channel);
        known->channel = sg_rpc_client_channel(service->options.client, address);
    }
    return known->channel;
}

static void send_order(sg_coordinator_service *service, const sg_coordinator_action *action)
{
    order *o = sg_xcalloc(1, sizeof *o);
    *o = (order){.done = {.run = on_order_done}, .service = service, .ps = action->ps, .life = action->life};
    bool declares = action->body->descriptor == &shardgrad__v1__ps_declare_request__descriptor;
    sg_wire_message *message;
    sg_error err;
    sg_status status = sg_wire_pack(sg_rpc_client_pool(service->options.client), action->body, NULL, 0, &message, &err);
    if (status != SG_OK) {
        on_order_reply(o, status, &err, NULL);
        return;
    }
    o->channel = channel_to(service, action->ps, action->ps == 0 && service->own ? service->own : action->address);
    sg_rpc_pending_release(sg_rpc_channel_call(
        o->channel, declares ? "/shardgrad.v1.ParameterService/Declare" : "/shardgrad.v1.ParameterService/Order",
        message, service->options.config->lease_ms, on_order_reply, o));
}

/* --- what the coordinator wants done --- */

static void perform(sg_coordinator_service *service, const sg_coordinator_action *action)
{
    request *r = action->call;
    switch (action->kind) {
    case SG_COORDINATOR_REPLY:
        sg_rpc_call_reply(r->call, action->body, NULL, 0);
        retire(service, r);
        break;
    case SG_COORDINATOR_FAIL:
        fail(service, r, action->status, action->text);
        break;
    case SG_COORDINATOR_ORDER:
        send_order(service, action);
        break;
    case SG_COORDINATOR_SAVE:
        service->options.complete(service->options.user, action->manifest, action->current);
        break;
    case SG_COORDINATOR_RECORD:
        service->options.record(service->options.user, action);
        break;
    case SG_COORDINATOR_LOG:
        sg_log_event(service->options.log, action->level, action->event, "%s", action->text);
        break;
    case SG_COORDINATOR_END:
        service->options.on_end(service->options.user, action->status, action->text);
        break;
    }
}

static bool action_next(sg_coordinator_service *service, sg_coordinator_action *action)
{
    pthread_mutex_lock(&service->mutex);
    left_over *first = STAILQ_FIRST(&service->left_over);
    bool any = true;
    if (first != NULL) {
        STAILQ_REMOVE_HEAD(&service->left_over, link);
        *action = first->action;
    } else {
        any = sg_coordinator_next_action(service->coordinator, action);
    }
    pthread_mutex_unlock(&service->mutex);
    free(first);
    return any;
}

void sg_coordinator_service_perform(sg_coordinator_service *service)
{
    for (sg_coordinator_action action; action_next(service, &action); sg_coordinator_action_deinit(&action))
        perform(service, &action);
}

/* --- requests --- */

static void on_arrived(sg_mailbox_item *item)
{
    request *r = SG_CONTAINER_OF(item, request, arrived);
    sg_coordinator_service *service = r->method->service;
    r->taken = true;
    TAILQ_INSERT_TAIL(&service->waiting, r, link);
    ProtobufCMessage *head = r->parts.head;
    sg_wire_parts parts = r->parts; /* r may be gone when the coordinator has answered */
    if (service->closed)
        fail(service, r, SG_STOPPED, "ps 0 has stopped");
    else if (r->left)
        fail(service, r, SG_CANCELLED, "the caller has gone");
    else {
        pthread_mutex_lock(&service->mutex);
        r->method->take(service->coordinator, sg_clock_ms(), head, r);
        pthread_mutex_unlock(&service->mutex);
    }
    sg_wire_parts_deinit(&parts);
    if (!service->closed)
        sg_coordinator_service_perform(service);
}

static void on_left(sg_mailbox_item *item)
{
    request *r = SG_CONTAINER_OF(item, request, gone);
    sg_coordinator_service *service = r->method->service;
    if (r->answered) {
        free(r);
        return;
    }
    if (!r->taken) { /* it is still on its way here */
        r->left = true;
        return;
    }
    pthread_mutex_lock(&service->mutex);
    sg_coordinator_forget(service->coordinator, r);
    pthread_mutex_unlock(&service->mutex);
    sg_coordinator_service_perform(service); /* an rpc thread may have decided on it before */
    if (r->answered) {
        free(r);
        return;
    }
    r->left = true;
    fail(service, r, SG_CANCELLED, "the caller has gone");
}

/* On an rpc thread. */
static void on_gone(void *user, sg_rpc_call *call)
{
    (void)call;
    request *r = user;
    atomic_store(&r->gone_posted, true);
    sg_mailbox_post(r->method->service->options.mailbox, &r->gone);
}

/* On an rpc thread. */
static void on_call(void *user, sg_rpc_call *call)
{
    const method *m = user;
    sg_wire_parts parts;
    sg_error err;
    sg_status status = sg_wire_unpack(sg_rpc_call_request(call), m->type, &parts, &err);
    if (status != SG_OK) {
        sg_rpc_call_fail(call, status, "%s", err.message);
        return;
    }
    request *r = sg_xcalloc(1, sizeof *r);
    r->arrived.run = on_arrived;
    r->gone.run = on_left;
    r->method = m;
    r->call = call;
    r->parts = parts;
    sg_rpc_call_watch(call, on_gone, r);
    sg_mailbox_post(m->service->options.mailbox, &r->arrived);
}

/* --- the methods --- */

/* X(verb, Type) */
#define METHODS(X)                                                                                                     \
    X(register, Register)                                                                                              \
    X(hello, Hello)                                                                                                    \
    X(declare, Declare)                                                                                                \
    X(initialized, Initialized)                                                                                        \
    X(ticket, Ticket)                                                                                                  \
    X(heartbeat, Heartbeat)                                                                                            \
    X(leave, Leave)                                                                                                    \
    X(norms, Norms)                                                                                                    \
    X(save, Save)                                                                                                      \
    X(set, Set)                                                                                                        \
    X(status, Status)

/* Each takes a request of its own type. */
#define X(verb, Type)                                                                                                  \
    static void take_##verb(sg_coordinator *coordinator, uint64_t now_ms, const ProtobufCMessage *message, void *call) \
    {                                                                                                                  \
        sg_coordinator_on_##verb(coordinator, now_ms, (const Shardgrad__V1__##Type##Request *)message, call);          \
    }
METHODS(X)
#undef X

void sg_coordinator_service_set_own(sg_coordinator_service *service, const char *address)
{
    service->own = sg_xstrdup(address);
}

sg_coordinator_service *sg_coordinator_service_create(const sg_coordinator_service_options *options)
{
    sg_coordinator_service *service = sg_xcalloc(1, sizeof *service);
    service->options = *options;
    service->coordinator = sg_coordinator_create(options->config);
    service->channels = sg_xcalloc(options->config->ps.n, sizeof *service->channels);
    pthread_mutex_init(&service->mutex, NULL);
    STAILQ_INIT(&service->left_over);
    service->perform.run = sg_coordinator_service_on_perform;
    TAILQ_INIT(&service->waiting);
    const method methods[] = {
#define X(verb, Type)                                                                                                  \
    {service, "/shardgrad.v1.CoordinatorService/" #Type, &shardgrad__v1__##verb##_request__descriptor, take_##verb},
        METHODS(X)
#undef X
    };
    static_assert(SG_ARRAY_LEN(methods) == SG_COORDINATOR_SERVICE_METHODS, "every method is served");
    memcpy(service->methods, methods, sizeof methods);
    return service;
}

void sg_coordinator_service_methods(sg_coordinator_service *service,
                                    sg_rpc_method methods[SG_COORDINATOR_SERVICE_METHODS])
{
    for (size_t i = 0; i < SG_COORDINATOR_SERVICE_METHODS; i++)
        methods[i] = (sg_rpc_method){service->methods[i].path, on_call, &service->methods[i]};
}

void sg_coordinator_service_tick(sg_coordinator_service *service, uint64_t now_ms)
{
    pthread_mutex_lock(&service->mutex);
    sg_coordinator_tick(service->coordinator, now_ms);
    pthread_mutex_unlock(&service->mutex);
    sg_coordinator_service_perform(service);
}

void sg_coordinator_service_recorded(sg_coordinator_service *service, uint64_t now_ms,
                                     const sg_coordinator_recorded *recorded)
{
    pthread_mutex_lock(&service->mutex);
    sg_coordinator_on_recorded(service->coordinator, now_ms, recorded);
    pthread_mutex_unlock(&service->mutex);
    sg_coordinator_service_perform(service);
}

void sg_coordinator_service_stop(sg_coordinator_service *service, uint64_t now_ms)
{
    pthread_mutex_lock(&service->mutex);
    sg_coordinator_stop(service->coordinator, now_ms);
    pthread_mutex_unlock(&service->mutex);
    sg_coordinator_service_perform(service);
}

void sg_coordinator_service_written(sg_coordinator_service *service, uint64_t now_ms, sg_checkpoint_set set,
                                    sg_status status, const char *message)
{
    pthread_mutex_lock(&service->mutex);
    sg_coordinator_on_written(service->coordinator, now_ms, set, status, message);
    pthread_mutex_unlock(&service->mutex);
    sg_coordinator_service_perform(service);
}

void sg_coordinator_service_close(sg_coordinator_service *service)
{
    pthread_mutex_lock(&service->mutex);
    service->closed = true;
    pthread_mutex_unlock(&service->mutex);
    for (request *r = TAILQ_FIRST(&service->waiting), *next; r; r = next) {
        next = TAILQ_NEXT(r, link);
        fail(service, r, SG_STOPPED, "ps 0 has stopped");
    }
}

void sg_coordinator_service_destroy(sg_coordinator_service *service)
{
    if (!service)
        return;
    SG_ASSERT(TAILQ_EMPTY(&service->waiting));
    for (size_t i = 0; i < service->options.config->ps.n; i++)
        free(service->channels[i].address);
    free(service->channels);
    free(service->own);
    for (left_over *first; (first = STAILQ_FIRST(&service->left_over)) != NULL;) {
        STAILQ_REMOVE_HEAD(&service->left_over, link);
        sg_coordinator_action_deinit(&first->action);
        free(first);
    }
    sg_coordinator_destroy(service->coordinator);
    pthread_mutex_destroy(&service->mutex);
    free(service);
}
