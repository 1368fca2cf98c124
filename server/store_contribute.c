/* One contribution. The one that completes its round is read by the pass where it was received. One that has to wait
 * for others stays there, too, as long as not too much memory is held that way; beyond that it is copied, into the
 * memory of the slice's next version where that is free. */
#include "server/store_internal.h"

#include <inttypes.h>

/* What a message keeps from being received into beside its own bytes: the rest of the buffers that it ends in. */
#define HELD_BESIDE_BYTES (16u << 10)
/* What a message may keep beside twice its data and yet be held: the memory of an ordinary head. */
#define HEAD_BESIDE_BYTES (64u << 10)

struct sg_store_held {
    _Atomic size_t references;
    sg_store *store;
    uint64_t n_bytes;
    void *owner;
    void (*release)(void *owner);
};

/* --- where it lies while it waits --- */

static void held_release(sg_store_held *held, size_t n)
{
    if (atomic_fetch_sub_explicit(&held->references, n, memory_order_acq_rel) != n)
        return;
    atomic_fetch_sub(&held->store->held_bytes, held->n_bytes);
    held->release(held->owner);
    sg_pool_free(held);
}

void sg_store_part_deinit(sg_store *store, sg_store_part *part)
{
    sg_store_room_give(store, part->room_bytes);
    part->room_bytes = 0;
    if (part->held)
        held_release(part->held, 1);
    sg_version_release(part->copy);
    part->held = NULL;
    part->copy = NULL;
}

/* What is held comes on top of two versions of everything, while a copy has a place among them; so where a model is
 * large, little is held. */
static uint64_t may_hold_bytes(const sg_store *store)
{
    uint64_t n_bytes = store->value_bytes / 16;
    if (n_bytes < SG_STORE_HELD_MIN_BYTES)
        n_bytes = SG_STORE_HELD_MIN_BYTES;
    return n_bytes < store->options.held_bytes ? n_bytes : store->options.held_bytes;
}

/* A few elements may come with a large head: then a copy takes far less than the message. */
static bool is_worth_holding(const sg_store_push_state *p)
{
    return p->data->keep && p->data->kept_bytes <= 2 * p->data_bytes + HEAD_BESIDE_BYTES;
}

/* Holds the message, with a reference for each of its contributions in advance. */
static bool hold(sg_store_push_state *p)
{
    sg_store *store = p->store;
    if (p->held || p->copies)
        return p->held != NULL;
    uint64_t n_bytes = p->data->kept_bytes + HELD_BESIDE_BYTES;
    p->copies = !is_worth_holding(p);
    if (!p->copies && atomic_fetch_add(&store->held_bytes, n_bytes) + n_bytes > may_hold_bytes(store)) {
        atomic_fetch_sub(&store->held_bytes, n_bytes);
        p->copies = true;
    }
    if (p->copies)
        return false;
    p->data->keep(p->data->owner);
    p->held = sg_pool_alloc(store->pool, sizeof *p->held);
    atomic_init(&p->held->references, p->n + 1);
    p->held->store = store;
    p->held->n_bytes = n_bytes;
    p->held->owner = p->data->owner;
    p->held->release = p->data->release;
    return true;
}

void sg_store_end_push(sg_store_push_state *p)
{
    for (size_t i = 0; i < p->n && (p->copies || p->took_room); i++) {
        sg_version_release(p->items[i].copy);
        sg_store_room_give(p->store, p->items[i].room_bytes);
    }
    if (p->held)
        held_release(p->held, p->n + 1 - p->n_kept);
}

/* Under the slice's mutex: a contribution proves that every member has pulled the newest version, so nobody needs the
 * ones before it (proto/README.md). */
static void forget_older(sg_store_slice *slice)
{
    for (sg_version *version = slice->older, *next; version; version = next) {
        next = version->next;
        version->next = NULL;
        if (!slice->spare && sg_version_is_sole(version))
            slice->spare = version;
        else
            sg_version_release(version);
    }
    slice->older = NULL;
}

/* Under the slice's mutex: is it a contribution to what collects? It was when the push was looked at; another thread
 * may have counted the same one meanwhile. */
static bool still_contributes(const sg_store_push_state *p, const sg_store_item *item)
{
    const sg_round *round = &item->slice->round;
    return !sg_store_is_sync(p->store) || (round->step == item->step && !round->closing);
}

static sg_status copy(sg_store_push_state *p, sg_store_item *item, sg_error *err)
{
    sg_store_slice *slice = item->slice;
    pthread_mutex_lock(&slice->mutex);
    if (still_contributes(p, item))
        forget_older(slice);
    item->copy = slice->spare;
    slice->spare = NULL;
    pthread_mutex_unlock(&slice->mutex);
    if (!item->copy)
        item->copy = sg_version_create(p->store->pool, slice->index, 0, slice->n_elems);
    if (!item->copy)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for %" PRIu64 " bytes of a contribution",
                            (uint64_t)(slice->n_elems * sizeof(float)));
    bool finite;
    sg_span_reader reader = item->gradient;
    (item->narrow ? sg_store_gather_narrow : sg_store_gather)(&reader, item->copy->values, slice->n_elems, &finite);
    item->finite = finite || p->store->options.non_finite == SG_NON_FINITE_APPLY;
    if (!item->finite) {
        sg_version_release(item->copy);
        item->copy = NULL;
    }
    return SG_OK;
}

static void look(const sg_store_push_state *p, sg_store_item *item)
{
    item->finite = true;
    if (p->store->options.non_finite == SG_NON_FINITE_APPLY)
        return;
    sg_span_reader reader = item->gradient;
    if (item->narrow)
        sg_store_gather_narrow(&reader, NULL, item->slice->n_elems, &item->finite);
    else
        item->finite = sg_update_spans_are_finite(reader, item->slice->n_elems);
}

/* Makes it ready to wait. */
static sg_status lay_by(sg_store_push_state *p, sg_store_item *item, sg_error *err)
{
    sg_status status = SG_OK;
    if (p->request->weight == 0 || hold(p))
        look(p, item);
    else
        status = copy(p, item, err);
    item->look = false;
    item->can_wait = true;
    return status;
}

/* Room to wait; *room: there is. Async: it waits only while another thread makes the version before. */
static sg_status find_room(sg_store_push_state *p, sg_store_item *item, bool *room, sg_error *err)
{
    sg_store_pushed *pushed = p->pushed;
    *room = true;
    if (p->request->weight == 0 || !sg_store_is_sync(p->store))
        return SG_OK;
    *room = sg_store_room_take(p->store, item->slice);
    if (*room) {
        item->room_bytes = item->slice->n_elems * sizeof(float);
        p->took_room = true;
        return SG_OK;
    }
    if (!pushed->refused)
        pushed->refused = sg_pool_try_alloc(p->store->pool, p->n * sizeof *pushed->refused);
    if (!pushed->refused)
        return sg_error_set(err, SG_EXHAUSTED, "no memory to refuse %zu slices", p->n);
    item->refused = true;
    pushed->refused[pushed->n_refused++] = item->slice->index;
    p->lacks_version = true;
    p->copies = true; /* a message of which a part is let in is not held */
    return SG_OK;
}

sg_status sg_store_prepare(sg_store_push_state *p, size_t i, sg_error *err)
{
    sg_store_item *item = &p->items[i];
    if (item->verdict == SG_ROUND_STORED && !item->closes) {
        bool room;
        const sg_status status = find_room(p, item, &room, err);
        return status == SG_OK && room ? lay_by(p, item, err) : status;
    }
    if (item->verdict == SG_ROUND_STORED && item->narrow)
        return lay_by(p, item, err);
    /* Of a repeat, too: its sender may not know yet what was left out. */
    item->look = item->verdict == SG_ROUND_STORED && p->request->weight > 0 &&
                 p->store->options.non_finite != SG_NON_FINITE_APPLY && sg_store_n_slots(item->slice) == 0;
    if (item->look)
        item->finite = true;
    else
        look(p, item);
    return SG_OK;
}

/* --- counting --- */

static sg_store_part part_of(sg_store_push_state *p, sg_store_item *item)
{
    sg_store_part part = {.worker = p->request->worker,
                          .learning_rate = p->terms.learning_rate,
                          .weight = item->finite ? p->request->weight : 0,
                          .hyper = p->terms.hyper,
                          .mark = p->terms.checkpoint_mark,
                          .look = item->look,
                          .gradient = item->gradient,
                          .copy = item->copy,
                          .room_bytes = item->room_bytes};
    item->copy = NULL;
    item->room_bytes = 0;
    return part;
}

static bool wants_version(const sg_store_push_state *p)
{
    return p->pushed->versions && !p->lacks_version;
}

static void count_staleness(const sg_store_push_state *p, uint64_t staleness)
{
    if (sg_store_is_sync(p->store))
        return;
    if (staleness >= SG_STORE_N_STALENESS)
        staleness = SG_STORE_N_STALENESS - 1;
    atomic_fetch_add_explicit(&p->store->staleness[staleness], 1, memory_order_relaxed);
}

/* Under the slice's mutex, for one that was counted. */
static void add(sg_store_push_state *p, sg_store_item *item, sg_store_closing *closing)
{
    sg_store_slice *slice = item->slice;
    sg_store_part part = part_of(p, item);
    if (slice->n_parts == 0) {
        slice->opened_ms = p->now_ms;
        forget_older(slice);
    }
    if (item->closes) {
        /* Field by field: to clear the rest, which is filled in next, would cost as much as all of this. */
        closing->hyper = &p->hyper;
        closing->wants_made = wants_version(p);
        closing->left_out = false;
        closing->made = NULL;
        if (closing->wants_made)
            sg_store_gave(p->store, slice, p->request->worker, slice->newest->step + 1);
        sg_store_begin_close(p->store, slice, &part, closing);
        return;
    }
    SG_ASSERT(item->can_wait);
    if (part.weight > 0 && !part.copy) {
        part.held = p->held;
        p->n_kept++;
    }
    sg_store_add_part(p->store, slice, &part);
}

/* Under the slice's mutex: the version that the push is answered with, if no round has to close for it. */
static sg_version *find_version(const sg_store_push_state *p, const sg_store_item *item)
{
    bool async = !sg_store_is_sync(p->store);
    uint64_t wanted = async ? item->slice->newest->step : item->step + 1;
    sg_version *version = sg_store_find_version(p->store, item->slice, wanted);
    if (version)
        sg_store_gave(p->store, item->slice, p->request->worker, version->step);
    return version ? sg_version_retain(version) : NULL;
}

/* Takes the reference. Once one is missing the others are not wanted. */
static void answer_with(sg_store_push_state *p, size_t i, sg_version *version)
{
    if (!wants_version(p))
        return;
    if (version)
        p->pushed->versions[i] = version;
    p->lacks_version = !version;
    p->n_versions += version != NULL;
}

/* A training that diverges brings one for every slice, worker and step: the line tells of the newest and of how many.
 */
static void report_non_finite(const sg_store_push_state *p, const sg_store_item *item)
{
    sg_store *store = p->store;
    char name[128];
    atomic_fetch_add(&store->n_non_finite, 1);
    pthread_mutex_lock(&store->non_finite_mutex);
    uint64_t n = sg_log_pace_count(&store->non_finite_pace, p->now_ms);
    pthread_mutex_unlock(&store->non_finite_mutex);
    if (n > 0)
        sg_log_warn(store->options.log, "non_finite",
                    "contributions=%" PRIu64 " worker=%" PRIu32 " slice=%" PRIu32 " step=%" PRIu64
                    " variable=%s message=\"left out of the sum\"",
                    n, p->request->worker, item->slice->index, item->step,
                    sg_log_quote(item->slice->variable->name, name, sizeof name));
}

/* Takes the slice's mutex, with the sender let in and the bytes ready for what may become of them. */
static sg_status lock_slice(sg_store_push_state *p, sg_store_item *item, const sg_round_entry *entry, sg_error *err)
{
    bool async = !sg_store_is_sync(p->store);
    for (;;) {
        pthread_mutex_lock(&item->slice->mutex);
        bool admitted = atomic_load(&p->store->admission) == p->admission;
        /* Sync: nothing can come between that would make it wait. What is not counted does not wait either. */
        bool ready = !async || item->can_wait || sg_round_closes_with(&item->slice->round, entry) ||
                     sg_round_look(&item->slice->round, entry, NULL) != SG_ROUND_STORED;
        if (admitted && ready)
            return SG_OK;
        pthread_mutex_unlock(&item->slice->mutex);
        /* Else somebody was fenced, or the job has failed, since the push was let in: who? */
        sg_status status = admitted ? lay_by(p, item, err) : sg_store_admit_push(p, err);
        if (status != SG_OK)
            return status;
    }
}

sg_status sg_store_contribute(sg_store_push_state *p, size_t i, sg_error *err)
{
    sg_store_item *item = &p->items[i];
    sg_store_slice *slice = item->slice;
    sg_round_entry entry = sg_store_entry(p, i);
    const char *field = NULL;
    sg_store_closing closing;
    sg_version *version = NULL;
    sg_status status = lock_slice(p, item, &entry, err);
    if (status != SG_OK)
        return status;
    uint64_t staleness = sg_round_staleness(&slice->round, entry.worker);
    item->verdict = sg_round_contribute_and_close(&slice->round, &entry, &field, &item->closes);
    uint64_t collecting = slice->round.step;
    if (item->verdict == SG_ROUND_STORED) {
        add(p, item, &closing);
        count_staleness(p, staleness);
    }
    if (wants_version(p) && !item->closes)
        version = find_version(p, item);
    pthread_mutex_unlock(&slice->mutex);
    if (item->closes) {
        sg_store_close(p->store, p->now_ms, slice, &closing);
        item->finite = item->finite && !closing.left_out;
        version = closing.made;
    } else if (item->look) { /* it was counted meanwhile, by another thread */
        look(p, item);
    }
    answer_with(p, i, version);
    status = sg_store_verdict_error(p, i, field, collecting, err);
    if (status != SG_OK || item->finite)
        return status;
    p->pushed->non_finite[p->pushed->n_non_finite++] = slice->index;
    if (item->verdict == SG_ROUND_STORED)
        report_non_finite(p, item);
    return SG_OK;
}
