/* A new generation: everything that the one before left is dropped, while the threads that serve it may still be at it.
 *
 * Variables, plan and slices stay where they are: a thread that was let in before may be anywhere between two locks.
 * First nobody is let in any more (under the store's lock); then every slice is emptied once no round of it is closing;
 * a contribution that was let in before is not counted (store.admission). */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOSING_NS 200000 /* a pass over a slice takes about as long */

sg_status sg_store_begin_generation(sg_store *store, uint64_t generation, const char *why, sg_error *err)
{
    if (generation <= store->generation)
        return sg_error_set(err, SG_INVALID, "generation %" PRIu64 " has begun here before", generation);
    store->generation = generation;
    snprintf(store->why, sizeof store->why, "%s", why);
    store->beginning = true;
    atomic_fetch_add(&store->admission, 1);
    store->attempt = store->attempt_incarnation = 0;
    store->sealed = store->committed = store->cut.ordered = false;
    store->cut.mark = store->cut.ticket_mark = 0;
    store->load.state = SG_STORE_LOAD_NONE;
    for (uint64_t i = 0; i < store->options.max_workers; i++) {
        store->workers[i].incarnation = 0;
        store->workers[i].fenced = false;
    }
    sg_store_count_live(store);
    return SG_OK;
}

static bool has_failed(sg_store *store)
{
    pthread_rwlock_rdlock(&store->lock);
    bool failed = store->failure != SG_OK;
    pthread_rwlock_unlock(&store->lock);
    return failed;
}

/* Locks the slice when no thread closes a round of it. False: one never ends, because the store has failed; not locked.
 */
static bool lock_quiet(sg_store *store, sg_store_slice *slice)
{
    const struct timespec pause = {.tv_nsec = CLOSING_NS};
    pthread_mutex_lock(&slice->mutex);
    while (slice->round.closing && slice->between.exchange == 0) {
        pthread_mutex_unlock(&slice->mutex);
        if (has_failed(store))
            return false;
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&slice->mutex);
    }
    return true;
}

static void release_list(sg_version *list)
{
    for (sg_version *version = list, *next; version; version = next) {
        next = version->next;
        sg_version_release(version);
    }
}

/* What is freed may be large, or a message that is let go of: it is done without the lock. */
static void empty_slice(sg_store *store, const sg_store_way *way, sg_store_slice *slice)
{
    if (!lock_quiet(store, slice))
        return;
    sg_version *newest = slice->newest, *older = slice->older, *initial = slice->initial;
    sg_store_part *parts = slice->parts;
    uint32_t n_parts = slice->n_parts;
    slice->newest = slice->older = slice->initial = NULL;
    slice->parts = NULL;
    slice->n_parts = slice->parts_capacity = 0;
    slice->n_applied = slice->opened_ms = slice->mark = 0;
    sg_store_cut_free(slice);
    sg_store_norms_drop(slice);
    slice->uncounted = 0;
    sg_store_renew_round(way, slice);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++) {
        if (slice->slots[i])
            memset(slice->slots[i], 0, slice->n_elems * sizeof(float));
    }
    pthread_mutex_unlock(&slice->mutex);
    for (uint32_t i = 0; i < n_parts; i++)
        sg_store_part_deinit(store, &parts[i]);
    free(parts);
    release_list(older);
    sg_version_release(newest);
    sg_version_release(initial);
}

void sg_store_follow_begin(sg_store *store)
{
    sg_store_review_pulls(store);
    pthread_rwlock_rdlock(&store->lock);
    const sg_store_way way = sg_store_way_of_now(store);
    pthread_rwlock_unlock(&store->lock);
    for (uint32_t i = 0; i < store->n_slices; i++)
        empty_slice(store, &way, &store->slices[i]);
    sg_store_focus_forget(store);
    sg_store_norms_forget(store);
    pthread_rwlock_wrlock(&store->lock);
    store->n_hypers = 0;
    store->beginning = false;
    uint64_t generation = store->generation;
    pthread_rwlock_unlock(&store->lock);
    sg_log_info(store->options.log, "generation_begun", "generation=%" PRIu64, generation);
}
