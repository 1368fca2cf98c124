/* server/coordinator_orders.c - the orders of each ps: one numbered sequence per life, one under way at a time, sent
 * again until acknowledged. */
#include <stdlib.h>

#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

#define BACKOFF_MIN_MS 50u
#define BACKOFF_MAX_MS 1000u
/* A ps that is not there is lost by its lease long before; this bounds what a flood of Hellos can queue. */
#define MAX_ORDERS 1024u

static bool is_declare(const ProtobufCMessage *body)
{
    return body->descriptor == &shardgrad__v1__ps_declare_request__descriptor;
}

static Shardgrad__V1__OrderHeader **header_of(ProtobufCMessage *body)
{
    if (is_declare(body))
        return &((Shardgrad__V1__PsDeclareRequest *)body)->header;
    return &((Shardgrad__V1__OrderRequest *)body)->header;
}

static Shardgrad__V1__OrderRequest__OrderCase case_of(const ProtobufCMessage *body)
{
    return is_declare(body) ? SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET
                            : ((const Shardgrad__V1__OrderRequest *)body)->order_case;
}

/* Orders are rare, and a declaration of many variables is large: nothing of one stays in a pool. */
static ProtobufCMessage *body_copy(const ProtobufCMessage *body)
{
    return sg_wire_head_copy_to_pool(NULL, body);
}

void sg_coordinator_order(sg_coordinator *c, uint32_t ps, const ProtobufCMessage *body)
{
    /* What is not of its generation would be dropped: it gets what holds then when it registers. */
    if (c->ps[ps].state == SG_COORDINATOR_PS_WAITING && (c->ps[ps].life == 0 || c->ps[ps].generation != c->generation))
        return;
    sg_coordinator_order_item *item = sg_xcalloc(1, sizeof *item);
    item->generation = c->generation;
    item->body = body_copy(body);
    STAILQ_INSERT_TAIL(&c->ps[ps].orders, item, link);
    c->ps[ps].n_orders++;
}

void sg_coordinator_order_all(sg_coordinator *c, const ProtobufCMessage *body)
{
    for (uint32_t ps = 0; ps < c->n_ps; ps++)
        sg_coordinator_order(c, ps, body);
}

void sg_coordinator_order_admit(sg_coordinator *c, uint32_t ps, uint32_t worker)
{
    Shardgrad__V1__Admit admit = SHARDGRAD__V1__ADMIT__INIT;
    admit.worker = worker;
    admit.incarnation = c->workers[worker].incarnation;
    admit.address = c->workers[worker].address;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
    order.admit = &admit;
    sg_coordinator_order(c, ps, &order.base);
}

void sg_coordinator_order_admit_all(sg_coordinator *c, uint32_t worker)
{
    for (uint32_t ps = 0; ps < c->n_ps; ps++)
        sg_coordinator_order_admit(c, ps, worker);
}

static void pop(sg_coordinator_ps *ps)
{
    sg_coordinator_order_item *item = STAILQ_FIRST(&ps->orders);
    STAILQ_REMOVE_HEAD(&ps->orders, link);
    ps->n_orders--;
    sg_wire_head_free(item->body);
    free(item);
}

void sg_coordinator_orders_clear(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    sg_coordinator_order_item *kept = NULL;
    if (ps->sent_once) { /* it may have been applied: its number is taken */
        kept = STAILQ_FIRST(&ps->orders);
        STAILQ_REMOVE_HEAD(&ps->orders, link);
        ps->n_orders--;
    }
    while (!STAILQ_EMPTY(&ps->orders))
        pop(ps);
    if (kept != NULL) {
        STAILQ_INSERT_HEAD(&ps->orders, kept, link);
        ps->n_orders++;
    }
}

void sg_coordinator_orders_reset(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    while (!STAILQ_EMPTY(&ps->orders))
        pop(ps);
    ps->sequence = 1;
    ps->under_way = ps->sent_once = false;
    ps->retry_ms = 0;
    ps->backoff_ms = BACKOFF_MIN_MS;
    ps->unreached[0] = '\0';
}

bool sg_coordinator_orders_full(const sg_coordinator *c)
{
    for (uint32_t ps = 0; ps < c->n_ps; ps++) {
        if (c->ps[ps].n_orders >= MAX_ORDERS)
            return true;
    }
    return false;
}

bool sg_coordinator_orders_refuse(sg_coordinator *c, void *call)
{
    bool full = sg_coordinator_orders_full(c);
    if (full)
        sg_coordinator_fail(c, call, SG_WAITING, "a ps is far behind with the coordinator's orders: ask again");
    return full;
}

static void send_head(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    const sg_coordinator_order_item *item = STAILQ_FIRST(&ps->orders);
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = ps->life;
    header.sequence = ps->sequence;
    header.generation = item->generation;
    ProtobufCMessage *body = body_copy(item->body);
    *header_of(body) = (Shardgrad__V1__OrderHeader *)body_copy(&header.base);
    ps->under_way = ps->sent_once = true;
    sg_coordinator_send(c, index, body);
}

void sg_coordinator_orders_pump(sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_ps *ps = &c->ps[i];
        if (sg_coordinator_ps_is_up(ps) && !ps->under_way && !STAILQ_EMPTY(&ps->orders) && c->now_ms >= ps->retry_ms)
            send_head(c, i);
    }
}

/* What the ps is known to have, now that it acknowledged this order. */
static void acknowledged(sg_coordinator *c, sg_coordinator_ps *ps, const ProtobufCMessage *body,
                         const Shardgrad__V1__OrderResponse *response)
{
    const Shardgrad__V1__OrderRequest *order = (const Shardgrad__V1__OrderRequest *)body;
    switch ((int)case_of(body)) {
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT:
        ps->admitted[order->admit->worker] = order->admit->incarnation;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_ATTEMPT:
        ps->attempt = order->attempt->attempt;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL:
        ps->sealed = order->seal->attempt;
        ps->seal_ordered = false;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT:
        ps->committed = true;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER:
        ps->hyper = order->hyper->number;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE:
        sg_coordinator_losses_fenced(c, order->excuse, response);
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD:
        ps->loaded = true;
        break;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_END:
        ps->ended = true;
        break;
    default:
        break;
    }
}

/* FENCED: the ps behind the address has another life and will register with it, or be missed. STOPPED: it is about to
 * end, and says so, or is missed, too. */
static bool is_worth_repeating(const sg_coordinator *c, sg_status status)
{
    return status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_NOT_READY || status == SG_WAITING ||
           status == SG_CANCELLED || status == SG_FENCED || (status == SG_STOPPED && !c->over);
}

/* It may renew its lease all the same: ps 0 is reached from there, but not the other way round. */
static void note_reached(const sg_coordinator *c, sg_coordinator_ps *ps, sg_status status, const char *message)
{
    const bool is_reached = status != SG_UNAVAILABLE && status != SG_TIMEOUT;
    if (!is_reached && ps->unreached[0] == '\0')
        ps->unreached_ms = c->now_ms;
    const char *why = message[0] != '\0' ? message : sg_status_name(status);
    snprintf(ps->unreached, sizeof ps->unreached, "%s", is_reached ? "" : why);
}

static bool is_unreached(const sg_coordinator_ps *ps)
{
    return sg_coordinator_ps_is_up(ps) && ps->unreached[0] != '\0' && !STAILQ_EMPTY(&ps->orders);
}

const char *sg_coordinator_orders_unreached(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (!is_unreached(&c->ps[i]))
            continue;
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for ps 0 to reach %s: %s", sg_coordinator_ps_name(c, i, name),
                 c->ps[i].unreached);
        return out;
    }
    return NULL;
}

void sg_coordinator_orders_tick(sg_coordinator *c)
{
    const uint64_t limit_ms = c->config->start_timeout_ms;
    char name[SG_COORDINATOR_TEXT_BYTES];
    for (uint32_t i = 0; i < c->n_ps && !c->started && !c->recording && !c->over; i++) {
        if (is_unreached(&c->ps[i]) && c->now_ms - c->ps[i].unreached_ms >= limit_ms)
            sg_coordinator_end_fail(c, SG_UNAVAILABLE,
                                    "ps 0 did not reach %s for %" PRIu64 " ms, though that reaches ps 0: %s; look at "
                                    "ps and advertise in the cluster file",
                                    sg_coordinator_ps_name(c, i, name), limit_ms, c->ps[i].unreached);
    }
}

/* The head is sent again, after longer and longer pauses but where the ps is at it. */
static void put_off(const sg_coordinator *c, sg_coordinator_ps *ps, sg_status status)
{
    ps->retry_ms = c->now_ms + ps->backoff_ms;
    if (status != SG_NOT_READY)
        ps->backoff_ms = ps->backoff_ms * 2 < BACKOFF_MAX_MS ? ps->backoff_ms * 2 : BACKOFF_MAX_MS;
}

static void go_on(sg_coordinator_ps *ps)
{
    pop(ps);
    ps->sequence++;
    ps->sent_once = false;
    ps->retry_ms = 0;
    ps->backoff_ms = BACKOFF_MIN_MS;
}

static void refused(sg_coordinator *c, uint32_t index, int order, sg_status status, const char *message)
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    const bool is_load = order == SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD;
    if (order == SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL && status == SG_NOT_FOUND)
        sg_coordinator_init_seal_refused(c, index, message);
    else if (order == SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT)
        sg_coordinator_reports_refused(c, index, status, message);
    else if (!is_load || status != SG_DATA || !sg_coordinator_generation_damaged(c, index, message))
        sg_coordinator_end_fail(c, is_load || status == SG_EXHAUSTED ? status : SG_INTERNAL,
                                "%s refused an order of the coordinator (%s): %s",
                                sg_coordinator_ps_name(c, index, name), sg_status_name(status), message);
}

void sg_coordinator_orders_result(sg_coordinator *c, uint32_t index, uint64_t life, sg_status status,
                                  const char *message, const Shardgrad__V1__OrderResponse *response)
{
    sg_coordinator_ps *ps = &c->ps[index];
    if (life != ps->life || !ps->under_way)
        return;
    ps->under_way = false;
    note_reached(c, ps, status, message);
    if (is_worth_repeating(c, status)) {
        put_off(c, ps, status);
        return;
    }
    const sg_coordinator_order_item *item = STAILQ_FIRST(&ps->orders);
    const int order = (int)case_of(item->body);
    const bool has_passed = item->generation != c->generation;
    /* Once the job is over a ps may have ended in its own way: all that counts is that it no longer waits. */
    if ((status == SG_OK && !has_passed) || c->over)
        acknowledged(c, ps, item->body, response);
    go_on(ps);
    if (status != SG_OK && !has_passed && !c->over)
        refused(c, index, order, status, message);
}
