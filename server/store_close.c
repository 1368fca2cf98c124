/* The one place where a round closes: one fused pass over old values, slots and contributions, outside any lock. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Contributions whose bookkeeping fits on the stack. */
#define FEW_PARTS 16u

/* What the pass is told of the contributions that weigh something. Arrays of as many as there are contributions. */
typedef struct weighing {
    uint64_t *weights;
    float *scales;
    sg_span *spans; /* of copies */
    sg_update_part *parts;
    size_t n;
    sg_store_first_phase *first; /* NULL: there is one phase */
} weighing;

/* --- taking --- */

void sg_store_add_part(const sg_store *store, sg_store_slice *slice, const sg_store_part *part)
{
    if (slice->n_parts == slice->parts_capacity) {
        slice->parts_capacity = slice->parts_capacity ? 2 * slice->parts_capacity : 1;
        slice->parts = sg_xrealloc(slice->parts, slice->parts_capacity, sizeof *slice->parts);
    }
    size_t at = slice->n_parts++;
    /* Sync rounds sum in rank order, which is the order of worker indices. */
    while (sg_store_is_sync(store) && at > 0 && slice->parts[at - 1].worker > part->worker) {
        slice->parts[at] = slice->parts[at - 1];
        at--;
    }
    slice->parts[at] = *part;
}

/* Async: the oldest contribution alone. Sync: all; until the round is closed nobody adds to them. */
static void take_parts(sg_store *store, sg_store_slice *slice, const sg_store_part *part, sg_store_closing *c)
{
    c->parts = &c->one;
    c->n_parts = 1;
    if (part && slice->n_parts == 0) {
        c->one = *part;
    } else if (!sg_store_is_sync(store)) {
        SG_ASSERT(!part);
        c->one = slice->parts[0];
        slice->n_parts--;
        memmove(slice->parts, slice->parts + 1, slice->n_parts * sizeof *slice->parts);
    } else {
        if (part)
            sg_store_add_part(store, slice, part);
        c->parts = slice->parts;
        c->n_parts = slice->n_parts;
        slice->n_parts = 0;
    }
}

void sg_store_begin_close(sg_store *store, sg_store_slice *slice, const sg_store_part *part, sg_store_closing *c)
{
    take_parts(store, slice, part, c);
    slice->shares = c->n_parts == 0;
    if (slice->shares)
        atomic_fetch_add_explicit(&store->n_empty, 1, memory_order_relaxed);
    uint64_t mark = c->n_parts > 0 ? c->parts[0].mark : sg_round_mark(&slice->round);
    c->hyper_number = c->n_parts > 0 ? c->parts[0].hyper : sg_round_hyper(&slice->round);
    if (mark > slice->mark || slice->cut)
        sg_store_cut_before_pass(store, slice, mark);
    c->old = slice->newest;
    c->spare = slice->spare;
    slice->spare = NULL;
}

/* --- the pass --- */

static Shardgrad__V1__Hyper hyper_of(sg_store *store, uint64_t number, const Shardgrad__V1__Hyper *perhaps)
{
    if (perhaps && perhaps->number == number)
        return *perhaps;
    pthread_rwlock_rdlock(&store->lock);
    const Shardgrad__V1__Hyper *found = sg_store_find_hyper(store, number);
    SG_ASSERT(found); /* it was there when the part's push was let in, and none is ever taken away */
    Shardgrad__V1__Hyper hyper = *found;
    pthread_rwlock_unlock(&store->lock);
    return hyper;
}

static sg_update update_of(sg_store *store, sg_store_slice *slice, const sg_store_closing *c)
{
    const sg_store_part *part = &c->parts[0]; /* in a round all say the same */
    Shardgrad__V1__Hyper hyper = hyper_of(store, part->hyper, c->hyper);
    /* Sync: a step that all contributions were left out of counts for Adam, too, so that every slice has one count. */
    slice->n_applied = sg_store_is_sync(store) ? c->old->step + 1 - slice->uncounted : slice->n_applied + 1;
    return (sg_update){
        .rule = sg_store_variable_rule(slice->variable),
        .learning_rate = part->learning_rate * slice->variable->lr_multiplier,
        .weight_decay = hyper.weight_decay * slice->variable->decay_multiplier,
        .momentum = hyper.momentum,
        .beta1 = hyper.beta1,
        .beta2 = hyper.beta2,
        .epsilon = hyper.epsilon,
        .count = slice->n_applied,
        .members = sg_store_is_sync(store) ? 1 : atomic_load(&store->live),
        .clip = sg_store_is_sync(store) ? hyper.clip_global_norm : 0,
        .trust = hyper.trust,
        .exempt = slice->variable->exempt,
    };
}

/* scale_i of the parts that weigh something, in rank order, with fresh readers. */
static void weigh(const sg_store_closing *c, size_t n_bytes, weighing *w)
{
    w->n = 0;
    for (size_t i = 0; i < c->n_parts; i++)
        w->weights[i] = c->parts[i].weight;
    if (!sg_update_scales(w->weights, c->n_parts, w->scales))
        return;
    for (size_t i = 0; i < c->n_parts; i++) {
        const sg_store_part *part = &c->parts[i];
        if (part->weight == 0)
            continue;
        w->parts[w->n] = (sg_update_part){.gradient = part->gradient, .scale = w->scales[i], .look = part->look};
        if (part->copy)
            w->parts[w->n].gradient = sg_span_reader_of_array(&w->spans[w->n], part->copy->values, n_bytes);
        w->n++;
    }
}

static void leave_out(sg_store_closing *c, sg_store_part *part)
{
    part->weight = 0;
    part->look = false;
    c->left_out = true;
}

/* Looks before the pass, where the pass could not be repeated. */
static void look_first(const sg_store_slice *slice, sg_store_closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        sg_store_part *part = &c->parts[i];
        if (part->look && !sg_update_spans_are_finite(part->gradient, slice->n_elems))
            leave_out(c, part);
        part->look = false;
    }
}

/* The pass looked: what was not finite weighs nothing. At most one part was looked at. */
static void leave_out_looked_at(sg_store_closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        if (c->parts[i].look)
            leave_out(c, &c->parts[i]);
    }
}

/* The contribution that was copied into memory that can become the next version: the pass may write over it. NULL:
 * there is none. */
static sg_store_part *find_copy(const sg_store_closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        if (c->parts[i].copy)
            return &c->parts[i];
    }
    return NULL;
}

/* False: the part that it was to look at is not finite. */
static bool pass(const sg_update *update, const sg_store_slice *slice, const sg_store_closing *c, sg_version *made,
                 weighing *w)
{
    if (w->n == 0)
        return true;
    if (!w->first)
        return sg_update_apply(update, slice->n_elems, c->old->values, made->values, slice->slots, w->parts, w->n);
    w->first->between.update = *update;
    return sg_update_first_phase(update, slice->n_elems, c->old->values, made->values, slice->slots, w->parts, w->n,
                                 &w->first->squares);
}

/* Where the next version is made: in memory that the slice has, if there is any. */
static sg_version *apply_where_it_can(sg_store *store, sg_store_slice *slice, sg_store_closing *c, weighing *w)
{
    size_t n_bytes = slice->n_elems * sizeof(float);
    sg_store_part *copied = c->spare ? NULL : find_copy(c);
    sg_version *made = c->spare;
    if (copied) {
        made = copied->copy;
        look_first(slice, c);
    } else if (!made) {
        made = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
    }
    c->spare = NULL;
    if (!made)
        return NULL;
    sg_update update = update_of(store, slice, c);
    weigh(c, n_bytes, w);
    if (!pass(&update, slice, c, made, w)) {
        leave_out_looked_at(c);
        weigh(c, n_bytes, w);
        (void)pass(&update, slice, c, made, w);
    }
    if (copied)
        copied->copy = NULL;
    made->step = c->old->step + 1;
    return made;
}

static bool weighs(const sg_store_closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        if (c->parts[i].weight > 0)
            return true;
    }
    return false;
}

/* The next version; NULL without memory. */
static sg_version *make(sg_store *store, sg_store_slice *slice, sg_store_closing *c, weighing *w)
{
    sg_version *made = NULL;
    if (weighs(c)) {
        made = apply_where_it_can(store, slice, c, w);
        if (!made || w->n > 0)
            return made;
        c->spare = made; /* nothing was left to apply */
    }
    if (w->first) {
        const sg_update update = {.rule = sg_store_variable_rule(slice->variable), .exempt = slice->variable->exempt};
        sg_update_no_first_phase(&update, slice->n_elems, c->old->values, &w->first->squares);
    }
    return sg_version_share(store->pool, c->old, c->old->step + 1);
}

/* Or what its second phase goes on from, with *first; NULL: there is one phase. */
static sg_version *make_next(sg_store *store, sg_store_slice *slice, sg_store_closing *c, sg_store_first_phase *first)
{
    uint64_t weights[FEW_PARTS];
    float scales[FEW_PARTS];
    sg_span spans[FEW_PARTS];
    sg_update_part parts[FEW_PARTS];
    weighing w = {.weights = weights, .scales = scales, .spans = spans, .parts = parts, .first = first};
    if (c->n_parts <= FEW_PARTS)
        return make(store, slice, c, &w);
    size_t n = c->n_parts;
    w.weights = sg_pool_alloc(store->pool, n * sizeof *w.weights);
    w.scales = sg_pool_alloc(store->pool, n * sizeof *w.scales);
    w.spans = sg_pool_alloc(store->pool, n * sizeof *w.spans);
    w.parts = sg_pool_alloc(store->pool, n * sizeof *w.parts);
    sg_version *made = make(store, slice, c, &w);
    sg_pool_free(w.weights);
    sg_pool_free(w.scales);
    sg_pool_free(w.spans);
    sg_pool_free(w.parts);
    return made;
}

/* --- publishing --- */

/* One copy may stay with the slice for the version after the next. */
static void give_back(sg_store *store, sg_store_closing *c)
{
    for (size_t i = 0; i < c->n_parts; i++) {
        if (!c->spare) {
            c->spare = c->parts[i].copy;
            c->parts[i].copy = NULL;
        }
        sg_store_part_deinit(store, &c->parts[i]);
    }
}

/* Under the slice's mutex. Takes over the reference to `made`. */
static void publish(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_store_closing *c, sg_version *take_made)
{
    if (!slice->spare) {
        slice->spare = c->spare;
        c->spare = NULL;
    }
    if (sg_store_is_sync(store)) {
        c->old->next = slice->older;
        slice->older = c->old;
    } else if (!slice->spare && sg_version_is_sole(c->old)) {
        slice->spare = c->old;
    } else {
        sg_version_release(c->old);
    }
    sg_version_release(c->spare);
    if (c->wants_made)
        c->made = sg_version_retain(take_made);
    c->wants_made = false;
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
    sg_store_fail_pulls(store, SG_EXHAUSTED, message);
}

/* A step that nobody contributed to may name a set that is unknown here. */
static bool clips(sg_store *store, const sg_store_closing *c)
{
    if (c->hyper && c->hyper->number == c->hyper_number)
        return c->hyper->clip_global_norm > 0;
    pthread_rwlock_rdlock(&store->lock);
    const Shardgrad__V1__Hyper *found = sg_store_find_hyper(store, c->hyper_number);
    const bool found_it = found && found->clip_global_norm > 0;
    pthread_rwlock_unlock(&store->lock);
    return found_it;
}

/* Does the step's update take norms? Then its values are not made in one pass. */
static bool takes_norms(sg_store *store, const sg_store_slice *slice, const sg_store_closing *c)
{
    const sg_store_variable *variable = slice->variable;
    if (!sg_store_is_sync(store) || variable->average)
        return false;
    return sg_update_scales_variables(sg_store_variable_rule(variable)) || clips(store, c);
}

/* What may be left after the first phase is the slice's again. */
static void keep_spare(sg_store_slice *slice, sg_store_closing *c)
{
    pthread_mutex_lock(&slice->mutex);
    if (!slice->spare) {
        slice->spare = c->spare;
        c->spare = NULL;
    }
    pthread_mutex_unlock(&slice->mutex);
    sg_version_release(c->spare);
}

/* Publishes one version, and takes what closes next, if anything does. */
static bool close_with(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_store_closing *c,
                       sg_version *take_made)
{
    pthread_mutex_lock(&slice->mutex);
    publish(store, now_ms, slice, c, take_made);
    bool reached = slice->cut && sg_store_cut_published(store, slice);
    sg_store_waiter *satisfied = slice->waiters ? sg_store_satisfy_waiters(store, slice) : NULL;
    bool more = sg_round_can_close(&slice->round);
    if (more) {
        sg_round_begin_close(&slice->round);
        sg_store_begin_close(store, slice, NULL, c);
    }
    pthread_mutex_unlock(&slice->mutex);
    sg_store_answer_waiters(store, satisfied);
    if (reached)
        sg_store_cut_reached(store);
    return more;
}

/* Makes and publishes one version, and takes what closes next, if anything does; or goes through the first phase. */
static bool close_one(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_store_closing *c)
{
    sg_store_first_phase first;
    const bool is_first = takes_norms(store, slice, c);
    sg_version *made = make_next(store, slice, c, is_first ? &first : NULL);
    give_back(store, c);
    if (!made) { /* the round stays closing for ever: nothing more is taken, and the job has failed */
        sg_version_release(c->spare);
        fail_without_memory(store, slice);
        return false;
    }
    if (!is_first)
        return close_with(store, now_ms, slice, c, made);
    keep_spare(slice, c);
    first.between.made = made;
    sg_store_norms_add(store, slice, c->old->step, &first);
    return false;
}

void sg_store_close_second(sg_store *store, uint64_t now_ms, sg_store_slice *slice, const sg_store_between *between,
                           const sg_update_squares_of *variable, double group_made)
{
    /* Nobody else changes `newest` while the round closes. */
    sg_store_closing closing = {.old = slice->newest};
    sg_version *made = between->made;
    if (!made->base)
        sg_update_second_phase(&between->update, variable, group_made, slice->n_elems, closing.old->values,
                               made->values, made->values, slice->slots);
    if (close_with(store, now_ms, slice, &closing, made))
        sg_store_close(store, now_ms, slice, &closing);
}

void sg_store_close(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_store_closing *closing)
{
    while (close_one(store, now_ms, slice, closing))
        ;
}

void sg_store_close_rounds(sg_store *store, uint64_t now_ms, sg_store_slice *slice)
{
    sg_store_closing closing = {0};
    pthread_mutex_lock(&slice->mutex);
    bool closes = slice->newest && sg_round_can_close(&slice->round);
    if (closes) {
        sg_round_begin_close(&slice->round);
        sg_store_begin_close(store, slice, NULL, &closing);
    }
    pthread_mutex_unlock(&slice->mutex);
    if (closes)
        sg_store_close(store, now_ms, slice, &closing);
}
