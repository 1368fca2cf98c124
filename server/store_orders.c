/* The coordinator's orders: one numbered sequence for each life of this ps, each applied once, in order.
 *
 * The state of the store changes under its lock; rounds are closed and pulls answered after it is released. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void sg_store_set_life(sg_store *store, uint64_t life)
{
    pthread_rwlock_wrlock(&store->lock);
    store->life = life;
    store->sequence = 0;
    store->order_result = (sg_error){0};
    pthread_rwlock_unlock(&store->lock);
}

/* Under the lock. OK with *repeat: it came before. */
static sg_status check_header(const sg_store *store, const Shardgrad__V1__OrderHeader *header, bool begins,
                              bool *repeat, sg_error *err)
{
    *repeat = false;
    if (!header)
        return sg_error_set(err, SG_INVALID, "the order has no header");
    if (store->life == 0)
        return sg_error_set(err, SG_NOT_READY, "this ps has not registered yet");
    if (header->life != store->life)
        return sg_error_set(err, SG_FENCED, "the order is for another life of ps %" PRIu32, store->options.ps);
    if (store->beginning)
        return sg_error_set(err, SG_NOT_READY, "generation %" PRIu64 " is just beginning here", store->generation);
    if (store->following)
        return sg_error_set(err, SG_NOT_READY, "order %" PRIu64 " is just being carried out here", store->sequence);
    if (header->generation == 0)
        return sg_error_set(err, SG_INVALID, "the order is of generation 0; they count from 1");
    bool enters = begins || store->generation == 0;
    if (header->generation < store->generation || (header->generation > store->generation && !enters))
        return sg_error_set(err, header->generation < store->generation ? SG_ROLLED_BACK : SG_NOT_READY,
                            "the order is of generation %" PRIu64 "; this ps is in generation %" PRIu64,
                            header->generation, store->generation);
    if (header->sequence > store->sequence + 1)
        return sg_error_set(err, SG_EARLY, "order %" PRIu64 " came before order %" PRIu64, header->sequence,
                            store->sequence + 1);
    *repeat = header->sequence <= store->sequence;
    return SG_OK;
}

/* Under the lock. A repeat is told what its first was told; older ones were acknowledged, or the coordinator knows. */
static sg_status repeat_result(const sg_store *store, uint64_t sequence, sg_error *err)
{
    if (sequence < store->sequence || store->order_result.code == SG_OK)
        return SG_OK;
    return sg_error_set(err, store->order_result.code, "%s", store->order_result.message);
}

/* Under the lock. NOT_READY is the one refusal that does not use up the order's number. */
static sg_status settle(sg_store *store, const Shardgrad__V1__OrderHeader *header, sg_status status,
                        const sg_error *result, sg_error *err)
{
    if (status != SG_NOT_READY) {
        store->sequence++;
        if (store->generation == 0)
            store->generation = header->generation;
        store->order_result = *result;
        store->order_result.code = status;
    }
    return status == SG_OK ? SG_OK : sg_error_set(err, status, "%s", result->message);
}

sg_status sg_store_declare(sg_store *store, const Shardgrad__V1__PsDeclareRequest *request, sg_error *err)
{
    bool repeat;
    sg_error result = {0};
    pthread_rwlock_wrlock(&store->lock);
    sg_status status = check_header(store, request->header, false, &repeat, err);
    bool apply = status == SG_OK && !repeat;
    if (repeat)
        status = repeat_result(store, request->header->sequence, err);
    else if (apply)
        status = settle(store, request->header, sg_store_set_variables(store, request, &result), &result, err);
    uint32_t n_slices = store->n_slices;
    uint64_t value_bytes = store->value_bytes, slot_bytes = store->slot_bytes;
    pthread_rwlock_unlock(&store->lock);
    if (apply && status == SG_OK)
        sg_log_info(store->options.log, "declared",
                    "variables=%zu slices=%" PRIu32 " value_bytes=%" PRIu64 " slot_bytes=%" PRIu64,
                    request->n_variables, n_slices, value_bytes, slot_bytes);
    return status;
}

/* --- one function for each kind, under the lock --- */

static sg_status check_worker(const sg_store *store, uint32_t worker, sg_error *err)
{
    if (worker >= store->options.max_workers)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " is out of range: max_workers is %" PRIu64, worker,
                            store->options.max_workers);
    return SG_OK;
}

static sg_status admit(sg_store *store, const Shardgrad__V1__Admit *order, sg_error *err)
{
    sg_status status = check_worker(store, order->worker, err);
    if (status != SG_OK)
        return status;
    sg_store_worker *worker = &store->workers[order->worker];
    if (order->incarnation == 0 || order->incarnation < worker->incarnation)
        return sg_error_set(err, SG_INVALID,
                            "incarnation %" PRIu64 " of worker %" PRIu32 " cannot be let in after %" PRIu64,
                            order->incarnation, order->worker, worker->incarnation);
    if (order->incarnation > worker->incarnation)
        worker->fenced = false;
    worker->incarnation = order->incarnation;
    sg_store_count_live(store);
    atomic_fetch_add(&store->admission, 1);
    free(worker->address);
    worker->address = order->address[0] ? sg_xstrdup(order->address) : NULL;
    return SG_OK;
}

static sg_status set_hyper(sg_store *store, const Shardgrad__V1__Hyper *order, sg_error *err)
{
    if (store->n_hypers > 0 && order->number <= store->hypers[store->n_hypers - 1].number)
        return sg_error_set(err, SG_INVALID, "hyper-parameter set %" PRIu64 " is not newer than %" PRIu64,
                            order->number, store->hypers[store->n_hypers - 1].number);
    store->hypers = sg_xrealloc(store->hypers, store->n_hypers + 1, sizeof *store->hypers);
    store->hypers[store->n_hypers++] = *order;
    return SG_OK;
}

static sg_status check_excuse(const sg_store *store, const Shardgrad__V1__Excuse *order, sg_error *err)
{
    sg_workers members;
    sg_status status = check_worker(store, order->worker, err);
    for (size_t i = 0; i < order->n_steps && status == SG_OK; i++)
        status = sg_workers_decode(order->steps[i]->members.data, order->steps[i]->members.len, &members, err);
    return status;
}

static sg_status fence(sg_store *store, const Shardgrad__V1__Excuse *order, sg_error *err)
{
    sg_status status = check_excuse(store, order, err);
    if (status == SG_OK && store->workers[order->worker].incarnation == order->incarnation)
        store->workers[order->worker].fenced = true;
    sg_store_count_live(store);
    atomic_fetch_add(&store->admission, 1);
    return status;
}

static sg_status end(sg_store *store, const Shardgrad__V1__End *order, sg_error *err)
{
    sg_status status;
    if (!sg_status_from_number(order->status, &status))
        return sg_error_set(err, SG_INVALID, "End with status %" PRIu32 ", which is none", order->status);
    store->ended = true;
    store->end_status = status;
    free(store->end_reason);
    store->end_reason = sg_xstrdup(order->reason);
    return SG_OK;
}

static sg_status apply(sg_store *store, const Shardgrad__V1__OrderRequest *request, bool *loads, sg_error *err)
{
    switch (request->order_case) {
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT:
        return admit(store, request->admit, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_ATTEMPT:
        return sg_store_begin_attempt(store, request->attempt, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL:
        return sg_store_seal(store, request->seal, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT:
        return sg_store_commit(store, request->commit, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER:
        return set_hyper(store, request->hyper, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE:
        return fence(store, request->excuse, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_END:
        return end(store, request->end, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT:
        return sg_store_cut_begin(store, request->cut, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_HURRY:
        return SG_OK;
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD:
        return sg_store_load_order(store, request->load, loads, err);
    case SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN:
        return sg_store_begin_generation(store, request->header->generation, request->begin->reason, err);
    default:
        return sg_error_set(err, SG_INVALID, "the order holds nothing, or something unknown to this ps");
    }
}

/* --- what follows, without the lock --- */

static void excuse_step(sg_store *store, uint64_t now_ms, uint32_t worker, const Shardgrad__V1__Step *step)
{
    sg_round_terms terms = {.iteration = step->iteration,
                            .hyper = step->hyper,
                            .checkpoint_mark = step->checkpoint_mark,
                            .learning_rate = step->learning_rate};
    sg_status status = sg_workers_decode(step->members.data, step->members.len, &terms.members, NULL);
    SG_ASSERT(status == SG_OK); /* it was decoded before */
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        if (slice->group != step->group || slice->variable->frozen)
            continue;
        pthread_mutex_lock(&slice->mutex);
        if (slice->n_parts == 0)
            slice->opened_ms = now_ms;
        sg_round_excuse(&slice->round, worker, step->step, &terms);
        pthread_mutex_unlock(&slice->mutex);
        sg_store_close_rounds(store, now_ms, slice);
    }
}

static void follow_excuse(sg_store *store, uint64_t now_ms, const Shardgrad__V1__Excuse *order)
{
    if (sg_store_is_sync(store)) { /* in async mode no round waits for anybody */
        for (size_t i = 0; i < order->n_steps; i++)
            excuse_step(store, now_ms, order->worker, order->steps[i]);
    }
    sg_log_info(store->options.log, "excused", "worker=%" PRIu32 " steps=%zu", order->worker, order->n_steps);
}

static void follow_commit(sg_store *store, uint64_t now_ms)
{
    sg_log_info(store->options.log, "committed", "slices=%" PRIu32, store->n_slices);
    for (uint32_t i = 0; i < store->n_slices; i++)
        sg_store_close_rounds(store, now_ms, &store->slices[i]); /* excuses may have come before */
}

static void follow_end(sg_store *store, const Shardgrad__V1__End *order)
{
    sg_status status = SG_OK;
    bool known = sg_status_from_number(order->status, &status);
    SG_ASSERT(known);
    char quoted[SG_ERROR_MESSAGE_BYTES + 32];
    sg_log_debug(store->options.log, "job_ended", "status=%s reason=%s", sg_status_name(status),
                 sg_log_quote(order->reason, quoted, sizeof quoted));
    if (status == SG_OK)
        sg_store_fail_pulls(store, SG_STOPPED, "the job has ended");
    else
        sg_store_fail_pulls(store, status, order->reason[0] ? order->reason : sg_status_text(status));
}

static void follow(sg_store *store, uint64_t now_ms, const Shardgrad__V1__OrderRequest *request)
{
    bool excuses = request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
    if (excuses || request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT)
        sg_store_settle_contributions(store); /* nothing of who was fenced by this enters from here on */
    if (excuses)
        follow_excuse(store, now_ms, request->excuse);
    if (request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT ||
        request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD)
        follow_commit(store, now_ms);
    if (request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_END)
        follow_end(store, request->end);
    if (request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT)
        sg_store_cut_follow(store, request->cut);
    if (request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_HURRY && store->options.on_hurry != NULL)
        store->options.on_hurry(store->options.cut_user, request->header->generation, request->hurry->number);
    if (request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN)
        sg_store_follow_begin(store);
    sg_store_review_pulls(store);
}

sg_status sg_store_order(sg_store *store, uint64_t now_ms, const Shardgrad__V1__OrderRequest *request, sg_error *err)
{
    bool repeat;
    sg_error result = {0};
    bool loads = false;
    bool begins = request->order_case == SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN;
    pthread_rwlock_wrlock(&store->lock);
    sg_status status = check_header(store, request->header, begins, &repeat, err);
    bool applies = status == SG_OK && !repeat;
    if (repeat)
        status = repeat_result(store, request->header->sequence, err);
    else if (applies)
        status = settle(store, request->header, apply(store, request, &loads, &result), &result, err);
    sg_store_load what = store->load.what;
    bool follows = applies && status == SG_OK;
    store->following |= follows;
    pthread_rwlock_unlock(&store->lock);
    if (loads)
        store->options.on_load(store->options.cut_user, &what);
    if (!follows)
        return status;
    follow(store, now_ms, request);
    pthread_rwlock_wrlock(&store->lock);
    store->following = false;
    pthread_rwlock_unlock(&store->lock);
    return status;
}

void sg_store_acknowledge(sg_store *store, const Shardgrad__V1__OrderRequest *request, sg_store_acknowledgement *a)
{
    uint32_t places[SG_STORE_MAX_GROUPS] = {0}; /* 1 + where it is in the list */
    shardgrad__v1__order_response__init(&a->response);
    a->response.lacking = a->list;
    if (request->order_case != SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE || !sg_store_is_sync(store))
        return;
    pthread_rwlock_rdlock(&store->lock);
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        if (slice->variable->frozen || slice->group >= SG_STORE_MAX_GROUPS)
            continue;
        pthread_mutex_lock(&slice->mutex);
        uint64_t step = sg_round_lacks(&slice->round, request->excuse->worker);
        pthread_mutex_unlock(&slice->mutex);
        if (places[slice->group] == 0) {
            Shardgrad__V1__Lacking *made = &a->lacking[a->response.n_lacking];
            a->list[a->response.n_lacking++] = made;
            shardgrad__v1__lacking__init(made);
            made->group = slice->group;
            made->step = step;
            places[slice->group] = (uint32_t)a->response.n_lacking;
        } else if (step < a->lacking[places[slice->group] - 1].step) {
            a->lacking[places[slice->group] - 1].step = step;
        }
    }
    pthread_rwlock_unlock(&store->lock);
}
