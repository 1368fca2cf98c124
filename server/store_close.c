/* The one place where a round closes: one fused pass over old values, slots and contributions, outside any lock. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A round that is being closed: what was taken from the slice. */
typedef struct closing {
    sg_version *old;
    sg_store_part *parts;
    size_t n_parts;
} closing;

/* Under the slice's mutex. Async: the oldest contribution alone. */
static void take(sg_store *store, sg_store_slice *slice, closing *c)
{
    sg_round_begin_close(&slice->round);
    c->n_parts = store->options.mode == SG_MODE_ASYNC ? 1 : slice->n_parts;
    c->parts = sg_xcalloc(c->n_parts > 0 ? c->n_parts : 1, sizeof *c->parts);
    if (c->n_parts > 0)
        memcpy(c->parts, slice->parts, c->n_parts * sizeof *c->parts);
    slice->n_parts -= c->n_parts;
    if (slice->n_parts > 0)
        memmove(slice->parts, slice->parts + c->n_parts, slice->n_parts * sizeof *slice->parts);
    c->old = sg_version_retain(slice->newest);
}

static Shardgrad__V1__Hyper find_hyper(sg_store *store, uint64_t number)
{
    Shardgrad__V1__Hyper found = SHARDGRAD__V1__HYPER__INIT;
    pthread_rwlock_rdlock(&store->lock);
    for (size_t i = 0; i < store->n_hypers; i++) {
        if (store->hypers[i].number == number)
            found = store->hypers[i];
    }
    pthread_rwlock_unlock(&store->lock);
    return found;
}

static sg_update update_of(sg_store *store, sg_store_slice *slice, const closing *c)
{
    const sg_store_part *part = &c->parts[0]; /* in a round all say the same */
    Shardgrad__V1__Hyper hyper = find_hyper(store, part->hyper);
    /* Sync: a step that all contributions were left out of counts for Adam, too, so that every slice has one count. */
    slice->n_applied = store->options.mode == SG_MODE_SYNC ? c->old->step + 1 : slice->n_applied + 1;
    return (sg_update){
        .rule = store->options.rule,
        .learning_rate = part->learning_rate * slice->variable->lr_multiplier,
        .weight_decay = hyper.weight_decay * slice->variable->decay_multiplier,
        .momentum = hyper.momentum,
        .beta1 = hyper.beta1,
        .beta2 = hyper.beta2,
        .epsilon = hyper.epsilon,
        .count = slice->n_applied,
    };
}

/* scale_i of the parts that weigh something, in rank order. Returns their number. */
static size_t scale_parts(const closing *c, size_t n_bytes, sg_span *spans, sg_update_part *scaled)
{
    uint64_t *weights = sg_xcalloc(c->n_parts + 1, sizeof *weights);
    float *scales = sg_xcalloc(c->n_parts + 1, sizeof *scales);
    for (size_t i = 0; i < c->n_parts; i++)
        weights[i] = c->parts[i].weight;
    size_t n = 0;
    if (sg_update_scales(weights, c->n_parts, scales)) {
        for (size_t i = 0; i < c->n_parts; i++) {
            if (weights[i] == 0)
                continue;
            sg_span_reader gradient = sg_span_reader_of_array(&spans[n], c->parts[i].gradient->data, n_bytes);
            scaled[n++] = (sg_update_part){.gradient = gradient, .scale = scales[i]};
        }
    }
    free(weights);
    free(scales);
    return n;
}

/* The next version; NULL without memory. */
static sg_version *apply(sg_store *store, sg_store_slice *slice, const closing *c)
{
    sg_update_part *scaled = sg_xcalloc(c->n_parts + 1, sizeof *scaled);
    sg_span *spans = sg_xcalloc(c->n_parts + 1, sizeof *spans);
    size_t n = scale_parts(c, slice->n_elems * sizeof(float), spans, scaled);
    sg_version *made;
    if (n == 0) {
        made = sg_version_share(store->pool, c->old, c->old->step + 1);
    } else {
        made = sg_version_create(store->pool, slice->index, c->old->step + 1, slice->n_elems);
        if (made) {
            sg_update update = update_of(store, slice, c);
            sg_update_apply(&update, slice->n_elems, c->old->values, made->values, slice->slots, scaled, n);
        }
    }
    free(spans);
    free(scaled);
    return made;
}

static void give_back(closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++)
        sg_pool_put(c->parts[i].gradient);
    free(c->parts);
    sg_version_release(c->old);
}

/* Under the slice's mutex. Takes over the reference to `made`. */
static void publish(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_version *take_made)
{
    if (store->options.mode == SG_MODE_ASYNC) {
        sg_version_release(slice->newest);
    } else {
        if (slice->n_older == slice->older_capacity) {
            slice->older_capacity = slice->older_capacity ? 2 * slice->older_capacity : 2;
            slice->older = sg_xrealloc(slice->older, slice->older_capacity, sizeof(sg_version *));
        }
        slice->older[slice->n_older++] = slice->newest;
    }
    slice->newest = take_made;
    sg_round_end_close(&slice->round);
    slice->opened_ms = now_ms;
}

static void fail_without_memory(sg_store *store, const sg_store_slice *slice)
{
    char message[SG_ERROR_MESSAGE_BYTES], name[128];
    snprintf(message, sizeof message, "ps %" PRIu32 " has no memory for the next version of variable '%s'",
             store->options.ps, slice->variable->name);
    sg_log_error(store->options.log, "out_of_memory", "slice=%" PRIu32 " variable=%s", slice->index,
                 sg_log_quote(slice->variable->name, name, sizeof name));
    sg_store_fail(store, SG_EXHAUSTED, message);
}

void sg_store_close_rounds(sg_store *store, uint64_t now_ms, sg_store_slice *slice)
{
    for (;;) {
        closing c;
        pthread_mutex_lock(&slice->mutex);
        bool closes = slice->newest && sg_round_can_close(&slice->round);
        if (closes)
            take(store, slice, &c);
        pthread_mutex_unlock(&slice->mutex);
        if (!closes)
            return;

        sg_version *made = apply(store, slice, &c);
        give_back(&c);
        if (!made) { /* the round stays closing for ever: nothing more is taken, and the job has failed */
            fail_without_memory(store, slice);
            return;
        }
        pthread_mutex_lock(&slice->mutex);
        publish(store, now_ms, slice, made);
        sg_store_waiter *satisfied = sg_store_satisfy_waiters(slice, store->options.mode == SG_MODE_ASYNC);
        pthread_mutex_unlock(&slice->mutex);
        sg_store_answer_waiters(store, satisfied);
    }
}
