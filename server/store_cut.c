/* The cut of a checkpoint: of every slice one version, held by reference, and the slots that belong to it.
 *
 * No round waits for it. Sync: the first step that is not in a checkpoint carries a new mark; the round of that step
 * keeps, before its pass, the version that it reads and a copy of the slots. The order names the same step, and reaches
 * slices of which no such step was pushed: they keep the version when it is made. Async: each slice keeps the version
 * that it has when the order comes.
 *
 * Slots are copied by the first round that would change them, or by whoever takes them, always under the slice's mutex;
 * so as long as they are not copied, no round is closing. */
#include "server/store_internal.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Guarded by the slice's mutex. */
struct sg_store_keeping {
    uint64_t mark;       /* of tickets */
    uint64_t number;     /* of the order */
    uint64_t step;       /* of the version that is meant; async: as it comes */
    bool ordered;        /* by Cut; before that it is kept for the mark's sake */
    sg_version *version; /* NULL: not made yet */
    bool copied;         /* else the slots are still the slice's own */
    bool out_of_memory;  /* the copy could not be made */
    sg_version *slots[SG_UPDATE_MAX_SLOTS];
    uint64_t n_applied;
};

static_assert(SG_ARRAY_LEN(((sg_store_kept *)0)->slots) == SG_UPDATE_MAX_SLOTS, "as many slots as a rule has at most");

/* --- one slice: under its mutex --- */

void sg_store_cut_free(sg_store_slice *slice)
{
    sg_store_keeping *k = slice->cut;
    if (!k)
        return;
    sg_version_release(k->version);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        sg_version_release(k->slots[i]);
    free(k);
    slice->cut = NULL;
}

/* The first checkpoint would else cost the steps that overlap it a page fault for every page of it. Where there is no
 * memory, that is told when a cut needs it. */
void sg_store_cut_reserve(sg_store *store, sg_store_slice *slice)
{
    if (!store->options.makes_checkpoints || slice->variable->frozen)
        return;
    pthread_mutex_lock(&slice->mutex);
    bool is_there = slice->had_reserve;
    slice->had_reserve = true;
    pthread_mutex_unlock(&slice->mutex);
    sg_version *first = NULL;
    for (size_t i = 0; !is_there && i < 1 + sg_store_n_slots(slice); i++) {
        sg_version *made = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
        if (!made)
            break;
        memset(made->values, 0, slice->n_elems * sizeof(float));
        made->next = first;
        first = made;
    }
    pthread_mutex_lock(&slice->mutex);
    if (first)
        slice->reserve = first;
    pthread_mutex_unlock(&slice->mutex);
}

/* Into the pool, for the next who need a buffer of this size. */
void sg_store_cut_release_reserve(sg_store_slice *slice)
{
    for (sg_version *version = slice->reserve, *next; version; version = next) {
        next = version->next;
        sg_version_release(version);
    }
    slice->reserve = NULL;
}

static sg_store_keeping *begin(sg_store_slice *slice, uint64_t mark)
{
    sg_store_cut_free(slice);
    slice->cut = sg_xcalloc(1, sizeof *slice->cut);
    slice->cut->mark = mark;
    return slice->cut;
}

static void hold(const sg_store *store, sg_store_slice *slice, sg_version *version)
{
    sg_store_keeping *k = slice->cut;
    bool async = !sg_store_is_sync(store);
    k->version = sg_version_retain(version);
    k->step = version->step;
    k->n_applied = async ? slice->n_applied : k->step - slice->uncounted;
    k->copied = sg_store_n_slots(slice) == 0;
}

static void copy_slots(sg_store *store, sg_store_slice *slice)
{
    sg_store_keeping *k = slice->cut;
    k->copied = true;
    for (size_t i = 0; i < sg_store_n_slots(slice); i++) {
        k->slots[i] = sg_version_create(store->pool, slice->index, k->step, slice->n_elems);
        k->out_of_memory |= !k->slots[i];
        if (k->slots[i])
            memcpy(k->slots[i]->values, slice->slots[i], slice->n_elems * sizeof(float));
    }
}

void sg_store_cut_before_pass(sg_store *store, sg_store_slice *slice, uint64_t mark)
{
    if (sg_store_is_sync(store) && mark > slice->mark) {
        slice->mark = mark;
        if (!slice->cut || !slice->cut->ordered) { /* one that was given up before it was ordered makes room */
            begin(slice, mark);
            hold(store, slice, slice->newest);
        }
    }
    if (!slice->cut || !slice->cut->version)
        return;
    sg_store_cut_release_reserve(slice);
    if (!slice->cut->copied)
        copy_slots(store, slice);
}

bool sg_store_cut_published(sg_store *store, sg_store_slice *slice)
{
    sg_store_keeping *k = slice->cut;
    bool is_meant = !sg_store_is_sync(store) || slice->newest->step == k->step;
    if (k->version || !is_meant)
        return false;
    hold(store, slice, slice->newest);
    return true;
}

/* --- the order --- */

sg_status sg_store_cut_begin(sg_store *store, const Shardgrad__V1__Cut *order, sg_error *err)
{
    if (!store->committed)
        return sg_error_set(err, SG_INVALID, "cut %" PRIu64 ": the initial values are not committed", order->mark);
    size_t n_groups = sg_store_is_sync(store) ? store->plan->n_groups : 0;
    if (order->n_steps != n_groups)
        return sg_error_set(err, SG_INVALID, "cut %" PRIu64 " names %zu groups, want %zu", order->mark, order->n_steps,
                            n_groups);
    /* Its iteration may be lower: where one failed, and those who were to begin the steps before it have left. */
    if (store->cut.ordered && order->ticket_mark <= store->cut.ticket_mark)
        return sg_error_set(err, SG_INVALID, "cut %" PRIu64 " has ticket mark %" PRIu64 ", one before it has %" PRIu64,
                            order->mark, order->ticket_mark, store->cut.ticket_mark);
    store->cut.ordered = true;
    store->cut.mark = order->mark;
    store->cut.ticket_mark = order->ticket_mark;
    store->cut.number = order->number;
    store->cut.urgent = order->urgent;
    atomic_store(&store->cut.failed, false);
    atomic_store(&store->cut.n_lacking, store->n_slices + 1);
    return SG_OK;
}

static void tell(sg_store *store, sg_status status, const char *message)
{
    if (!store->options.on_cut)
        return;
    pthread_rwlock_rdlock(&store->lock);
    sg_store_cut cut = {.generation = store->generation,
                        .number = store->cut.number,
                        .mark = store->cut.mark,
                        .ticket_mark = store->cut.ticket_mark,
                        .urgent = store->cut.urgent};
    pthread_rwlock_unlock(&store->lock);
    store->options.on_cut(store->options.cut_user, &cut, status, message);
}

void sg_store_cut_reached(sg_store *store)
{
    if (atomic_fetch_sub(&store->cut.n_lacking, 1) == 1 && !atomic_load(&store->cut.failed))
        tell(store, SG_OK, NULL);
}

/* The slice was further than the order; steps that carry marks do not let that happen. */
static void fail(sg_store *store, const sg_store_slice *slice, uint64_t step)
{
    char message[SG_ERROR_MESSAGE_BYTES];
    snprintf(message, sizeof message,
             "slice %" PRIu32 " of variable '%s' has closed step %" PRIu64 ", and what was before it was not kept",
             slice->index, slice->variable->name, step);
    if (!atomic_exchange(&store->cut.failed, true))
        tell(store, SG_LATE, message);
}

typedef enum found { FOUND_KEPT, FOUND_TO_COME, FOUND_GONE } found;

/* Under the slice's mutex: whether the newest version has the values of this step still, because nobody pushed since;
 * then the slots are its own, too. */
static bool is_unchanged(const sg_store_slice *slice, uint64_t step)
{
    const sg_version *base = slice->newest->base;
    return base && base->step <= step;
}

/* Under the slice's mutex. */
static found look_for(sg_store *store, sg_store_slice *slice, const Shardgrad__V1__Cut *order, uint64_t step)
{
    bool async = !sg_store_is_sync(store), frozen = slice->variable->frozen;
    sg_store_keeping *k = slice->cut;
    if (k && k->mark == order->ticket_mark && k->version) {
        k->ordered = true;
        k->number = order->number;
        if (k->step < step)
            return FOUND_GONE;
        k->step = step; /* nobody pushed to those from there on */
        k->n_applied = step - slice->uncounted;
        return FOUND_KEPT;
    }
    bool closing = slice->round.closing && !slice->shares;
    sg_version *version = slice->newest;
    if (!async && !frozen &&
        ((version->step > step && !is_unchanged(slice, step)) || (closing && version->step >= step)))
        return FOUND_GONE;
    k = begin(slice, order->ticket_mark);
    k->ordered = true;
    k->number = order->number;
    k->step = step;
    if (closing || (!async && !frozen && version->step < step))
        return FOUND_TO_COME;
    hold(store, slice, version);
    if (!async && !frozen) {
        k->step = step;
        k->n_applied = step - slice->uncounted;
    }
    return FOUND_KEPT;
}

void sg_store_cut_follow(sg_store *store, const Shardgrad__V1__Cut *order)
{
    for (uint32_t i = 0; i < store->n_slices && !atomic_load(&store->cut.failed); i++) {
        sg_store_slice *slice = &store->slices[i];
        uint64_t step = order->n_steps > 0 ? order->steps[slice->group] : 0;
        pthread_mutex_lock(&slice->mutex);
        found what = look_for(store, slice, order, step);
        pthread_mutex_unlock(&slice->mutex);
        if (what == FOUND_KEPT)
            sg_store_cut_reached(store);
        else if (what == FOUND_GONE)
            fail(store, slice, step);
    }
    sg_store_cut_reached(store); /* the one for the order itself */
}

/* --- who writes it --- */

const sg_plan *sg_store_plan(sg_store *store)
{
    pthread_rwlock_rdlock(&store->lock);
    const sg_plan *plan = store->plan;
    pthread_rwlock_unlock(&store->lock);
    return plan;
}

const char *sg_store_variable_name(sg_store *store, uint32_t variable)
{
    pthread_rwlock_rdlock(&store->lock);
    const char *name = store->variables[variable].name;
    pthread_rwlock_unlock(&store->lock);
    return name;
}

uint32_t sg_store_n_slices(sg_store *store)
{
    pthread_rwlock_rdlock(&store->lock);
    uint32_t n = store->n_slices;
    pthread_rwlock_unlock(&store->lock);
    return n;
}

void sg_store_place(sg_store *store, uint32_t place, uint32_t *index, uint32_t *n_slots)
{
    pthread_rwlock_rdlock(&store->lock);
    const sg_store_slice *slice = &store->slices[place];
    *index = slice->index;
    *n_slots = (uint32_t)sg_store_n_slots(slice);
    pthread_rwlock_unlock(&store->lock);
}

/* Locks the slice, unless the generation has passed, and with it all that was kept. One that begins meanwhile empties
 * the slice after who holds it now. */
static bool lock_of(sg_store *store, sg_store_slice *slice, uint64_t generation)
{
    pthread_rwlock_rdlock(&store->lock);
    const bool is_now = store->generation == generation;
    if (is_now)
        pthread_mutex_lock(&slice->mutex);
    pthread_rwlock_unlock(&store->lock);
    return is_now;
}

static bool is_of(const sg_store_keeping *k, const sg_store_cut *cut)
{
    return k && k->version && k->ordered && k->number == cut->number;
}

sg_status sg_store_take_kept(sg_store *store, const sg_store_cut *cut, uint32_t place, sg_store_kept *kept,
                             sg_error *err)
{
    sg_store_slice *slice = &store->slices[place];
    *kept = (sg_store_kept){.slice = slice->index};
    const bool locked = lock_of(store, slice, cut->generation);
    sg_store_keeping *k = locked ? slice->cut : NULL;
    if (!is_of(k, cut)) {
        if (locked)
            pthread_mutex_unlock(&slice->mutex);
        return sg_error_set(err, SG_CANCELLED, "the checkpoint was given up");
    }
    if (!k->copied)
        copy_slots(store, slice);
    bool complete = !k->out_of_memory;
    if (complete) {
        kept->version = k->version;
        kept->step = k->step;
        kept->n_slots = sg_store_n_slots(slice);
        memcpy(kept->slots, k->slots, sizeof k->slots);
        kept->n_applied = k->n_applied;
        k->version = NULL;
        memset(k->slots, 0, sizeof k->slots);
    }
    if (slice->mark < cut->ticket_mark)
        slice->mark = cut->ticket_mark; /* steps that come with it keep nothing any more */
    sg_store_cut_free(slice);
    pthread_mutex_unlock(&slice->mutex);
    if (complete)
        return SG_OK;
    return sg_error_set(err, SG_EXHAUSTED, "no memory for a copy of the slots of variable '%s'", slice->variable->name);
}

void sg_store_kept_deinit(sg_store_kept *kept)
{
    sg_version_release(kept->version);
    for (size_t i = 0; i < kept->n_slots; i++)
        sg_version_release(kept->slots[i]);
    *kept = (sg_store_kept){.slice = kept->slice};
}

void sg_store_drop_cut(sg_store *store, const sg_store_cut *cut)
{
    for (uint32_t i = 0; i < sg_store_n_slices(store); i++) {
        sg_store_slice *slice = &store->slices[i];
        if (!lock_of(store, slice, cut->generation))
            return;
        if (slice->cut && slice->cut->mark <= cut->ticket_mark)
            sg_store_cut_free(slice);
        if (slice->mark < cut->ticket_mark)
            slice->mark = cut->ticket_mark; /* steps that come with it keep nothing any more */
        pthread_mutex_unlock(&slice->mutex);
    }
}
