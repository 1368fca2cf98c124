/* What may wait: bounds of parked pulls, and of contributions.
 *
 * Contributions that wait for others have contribution_bytes. Were that all, workers that push in different orders
 * could fill it with slices none of which can close. So each group has a focus, the lowest slice of its collecting step
 * that lacks contributions, which is always let in; what is refused is told of it. When the focus has closed the next
 * slice is it, and so all of them close in the end. It takes members x slice_bytes beyond the bound. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdlib.h>

/* Of one worker: a client asks for each slice once at a time, and for that of the step before while it is answered. */
static uint64_t bytes_per_worker(const sg_store *store)
{
    return SG_STORE_PARKED_MIN_BYTES + 2 * (uint64_t)store->n_slices * SG_STORE_PARKED_SLICE_BYTES;
}

static sg_status check_room(const sg_store *store, uint32_t worker, size_t n_bytes, uint64_t most_bytes, sg_error *err)
{
    const sg_store_parking *own = &store->parked_of[worker], *all = &store->parked;
    if (own->n_calls >= SG_STORE_PARKED_CALLS_PER_WORKER || own->n_bytes + n_bytes > most_bytes)
        return sg_error_set(err, SG_NOT_READY,
                            "worker %" PRIu32 " has %" PRIu64 " pulls of %" PRIu64
                            " bytes waiting, as many as may be: ask again when some are answered",
                            worker, own->n_calls, own->n_bytes);
    if (all->n_calls >= SG_STORE_PARKED_CALLS ||
        all->n_bytes + n_bytes > most_bytes * (SG_STORE_PARKED_CALLS / SG_STORE_PARKED_CALLS_PER_WORKER))
        return sg_error_set(err, SG_NOT_READY,
                            "%" PRIu64 " pulls of %" PRIu64
                            " bytes of all workers wait, as many as may be: ask again when some are answered",
                            all->n_calls, all->n_bytes);
    return SG_OK;
}

sg_status sg_store_park(sg_store *store, uint32_t worker, size_t n_bytes, sg_error *err)
{
    pthread_rwlock_rdlock(&store->lock);
    const uint64_t most_bytes = bytes_per_worker(store);
    pthread_rwlock_unlock(&store->lock);
    pthread_mutex_lock(&store->pulls_mutex);
    const sg_status status = check_room(store, worker, n_bytes, most_bytes, err);
    if (status == SG_OK) {
        store->parked_of[worker].n_calls++;
        store->parked_of[worker].n_bytes += n_bytes;
        store->parked.n_calls++;
        store->parked.n_bytes += n_bytes;
    }
    pthread_mutex_unlock(&store->pulls_mutex);
    return status;
}

void sg_store_unpark(sg_store *store, uint32_t worker, size_t n_bytes)
{
    store->parked_of[worker].n_calls--;
    store->parked_of[worker].n_bytes -= n_bytes;
    store->parked.n_calls--;
    store->parked.n_bytes -= n_bytes;
}

/* --- contributions --- */

/* Under focus_mutex. The step that the slice lacks contributions for. */
static uint64_t lacking_step(sg_store_slice *slice)
{
    pthread_mutex_lock(&slice->mutex);
    const uint64_t step = slice->round.step + slice->round.closing;
    pthread_mutex_unlock(&slice->mutex);
    return step;
}

static bool is_of(const sg_store_slice *slice, uint32_t group)
{
    return slice->group == group && !slice->variable->frozen;
}

/* Under focus_mutex: the lowest slice of the lowest step, from the beginning. */
static void find_anew(sg_store *store, uint32_t group, sg_store_focus *focus)
{
    focus->step = UINT64_MAX;
    for (uint32_t i = 0; i < store->n_slices; i++) {
        const uint64_t step = is_of(&store->slices[i], group) ? lacking_step(&store->slices[i]) : UINT64_MAX;
        if (step < focus->step)
            *focus = (sg_store_focus){.step = step, .place = i};
    }
}

/* Under focus_mutex. Steps and slices only go on, so that the search goes on from where it ended. */
static uint32_t find_focus(sg_store *store, uint32_t group)
{
    sg_store_focus *focus = &store->focus[group];
    while (focus->place < store->n_slices &&
           !(is_of(&store->slices[focus->place], group) && lacking_step(&store->slices[focus->place]) <= focus->step))
        focus->place++;
    if (focus->place >= store->n_slices)
        find_anew(store, group, focus);
    return store->slices[focus->place].index;
}

static void make_focus(sg_store *store)
{
    if (store->n_focus == store->plan->n_groups)
        return;
    store->focus = sg_xrealloc(store->focus, store->plan->n_groups, sizeof *store->focus);
    store->n_focus = store->plan->n_groups;
    for (uint32_t i = 0; i < store->n_focus; i++)
        store->focus[i] = (sg_store_focus){0};
}

uint32_t sg_store_focus_of(sg_store *store, uint32_t group)
{
    pthread_mutex_lock(&store->focus_mutex);
    make_focus(store);
    const uint32_t focus = find_focus(store, group);
    pthread_mutex_unlock(&store->focus_mutex);
    return focus;
}

void sg_store_focus_forget(sg_store *store)
{
    pthread_mutex_lock(&store->focus_mutex);
    store->n_focus = 0;
    pthread_mutex_unlock(&store->focus_mutex);
}

bool sg_store_room_take(sg_store *store, const sg_store_slice *slice)
{
    const uint64_t n_bytes = slice->n_elems * sizeof(float);
    const uint64_t taken = atomic_fetch_add(&store->waiting_bytes, n_bytes) + n_bytes;
    if (store->options.contribution_bytes == 0 || taken <= store->options.contribution_bytes ||
        slice->index == sg_store_focus_of(store, slice->group))
        return true;
    sg_store_room_give(store, n_bytes);
    return false;
}

void sg_store_room_give(sg_store *store, uint64_t n_bytes)
{
    if (n_bytes > 0)
        atomic_fetch_sub(&store->waiting_bytes, n_bytes);
}

void sg_store_room_deinit(sg_store *store)
{
    free(store->focus);
    pthread_mutex_destroy(&store->focus_mutex);
}
