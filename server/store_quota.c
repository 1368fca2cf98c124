/* What may wait, and for whom: bounds of parked pulls. */
#include "server/store_internal.h"

#include <inttypes.h>

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
