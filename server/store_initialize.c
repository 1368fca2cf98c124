/* Initial values: one attempt at a time, version 0 by the coordinator's commit alone. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- orders: under store.lock, for writing --- */

sg_status sg_store_begin_attempt(sg_store *store, const Shardgrad__V1__Attempt *attempt, sg_error *err)
{
    if (!store->plan || store->committed || attempt->attempt <= store->attempt)
        return sg_error_set(err, SG_INVALID, "attempt %" PRIu64 " cannot begin: %s (the newest attempt is %" PRIu64 ")",
                            attempt->attempt,
                            !store->plan       ? "no variables are declared"
                            : store->committed ? "values are committed"
                                               : "it is not a new one",
                            store->attempt);
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_version_release(store->slices[i].initial);
        store->slices[i].initial = NULL;
    }
    store->attempt = attempt->attempt;
    store->attempt_incarnation = attempt->incarnation;
    store->sealed = false;
    return SG_OK;
}

static sg_status check_attempt(const sg_store *store, uint64_t attempt, sg_error *err)
{
    if (store->committed)
        return sg_error_set(err, SG_LATE, "attempt %" PRIu64 ": initial values are committed", attempt);
    if (attempt < store->attempt)
        return sg_error_set(err, SG_LATE, "attempt %" PRIu64 " was given up for attempt %" PRIu64, attempt,
                            store->attempt);
    if (attempt > store->attempt || attempt == 0)
        return sg_error_set(err, SG_NOT_READY, "attempt %" PRIu64 " has not begun here", attempt);
    return SG_OK;
}

sg_status sg_store_seal(sg_store *store, const Shardgrad__V1__Seal *seal, sg_error *err)
{
    sg_status status = check_attempt(store, seal->attempt, err);
    if (status != SG_OK)
        return status;
    for (uint32_t i = 0; i < store->n_slices; i++) {
        if (!store->slices[i].initial)
            return sg_error_set(err, SG_NOT_FOUND,
                                "slice %" PRIu32 " of variable '%s' has no initial values in attempt %" PRIu64,
                                store->slices[i].index, store->slices[i].variable->name, seal->attempt);
    }
    store->sealed = true;
    return SG_OK;
}

sg_status sg_store_commit(sg_store *store, const Shardgrad__V1__Commit *commit, sg_error *err)
{
    sg_status status = check_attempt(store, commit->attempt, err);
    if (status != SG_OK)
        return status;
    if (!store->sealed)
        return sg_error_set(err, SG_INVALID, "attempt %" PRIu64 " is not sealed", commit->attempt);
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        pthread_mutex_lock(&slice->mutex);
        slice->newest = slice->initial;
        slice->initial = NULL;
        pthread_mutex_unlock(&slice->mutex);
    }
    store->committed = true;
    return SG_OK;
}

/* --- the initializer's values --- */

static sg_status admit(sg_store *store, const Shardgrad__V1__InitializeRequest *request, sg_error *err)
{
    sg_status status = sg_store_admit(store, request->worker, request->incarnation, request->generation, err);
    if (status == SG_OK && !store->plan)
        status = sg_error_set(err, SG_NOT_READY, "no variables are declared here yet");
    if (status == SG_OK)
        status = check_attempt(store, request->attempt, err);
    if (status == SG_OK && request->incarnation != store->attempt_incarnation)
        status = sg_error_set(err, SG_INVALID, "attempt %" PRIu64 " is another worker's", request->attempt);
    if (status == SG_OK && store->sealed)
        status =
            sg_error_set(err, SG_LATE, "attempt %" PRIu64 " is complete and takes no more values", request->attempt);
    return status;
}

static sg_status admit_locked(sg_store *store, const Shardgrad__V1__InitializeRequest *request, sg_error *err)
{
    pthread_rwlock_rdlock(&store->lock);
    sg_status status = admit(store, request, err);
    pthread_rwlock_unlock(&store->lock);
    return status;
}

/* Zeroed, unless the slice has them from an earlier message. */
static sg_status make_slots(sg_store_slice *slice, sg_error *err)
{
    size_t n_bytes = slice->n_elems * sizeof(float);
    for (size_t i = 0; i < sg_store_n_slots(slice); i++) {
        pthread_mutex_lock(&slice->mutex);
        bool is_there = slice->slots[i] != NULL;
        pthread_mutex_unlock(&slice->mutex);
        if (is_there)
            continue;
        float *made = sg_try_alloc_aligned(n_bytes);
        if (!made)
            return sg_error_set(err, SG_EXHAUSTED, "no memory for %zu bytes of slots of variable '%s'", n_bytes,
                                slice->variable->name);
        memset(made, 0, n_bytes);
        pthread_mutex_lock(&slice->mutex);
        if (!slice->slots[i]) {
            slice->slots[i] = made;
            made = NULL; /* else the same message came twice, and another thread was faster */
        }
        pthread_mutex_unlock(&slice->mutex);
        free(made);
    }
    return SG_OK;
}

/* Memory for the version after the first, touched, so that the first round does not wait for pages. */
static sg_status make_spare(sg_store *store, sg_store_slice *slice, sg_error *err)
{
    pthread_mutex_lock(&slice->mutex);
    bool is_there = slice->spare != NULL || slice->variable->frozen;
    pthread_mutex_unlock(&slice->mutex);
    if (is_there)
        return SG_OK;
    sg_version *made = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
    if (!made)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for two versions of variable '%s'", slice->variable->name);
    memset(made->values, 0, slice->n_elems * sizeof(float));
    pthread_mutex_lock(&slice->mutex);
    if (!slice->spare) {
        slice->spare = made;
        made = NULL;
    }
    pthread_mutex_unlock(&slice->mutex);
    sg_version_release(made);
    return SG_OK;
}

static sg_status store_slice(sg_store *store, const Shardgrad__V1__InitializeRequest *request, sg_store_slice *slice,
                             sg_span_reader *reader, sg_error *err)
{
    sg_status status = make_slots(slice, err);
    if (status == SG_OK)
        status = make_spare(store, slice, err);
    if (status != SG_OK)
        return status;
    sg_store_cut_reserve(store, slice);
    sg_version *version = sg_version_create(store->pool, slice->index, 0, slice->n_elems);
    if (!version)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for %" PRIu64 " elements of variable '%s'", slice->n_elems,
                            slice->variable->name);
    bool finite;
    sg_store_gather(reader, version->values, slice->n_elems, &finite);
    if (!finite) {
        sg_version_release(version);
        return sg_error_set(err, SG_NON_FINITE,
                            "initial values of variable '%s' hold a NaN or an infinity (slice %" PRIu32 ")",
                            slice->variable->name, slice->index);
    }
    /* Seal and a higher attempt take the lock for writing: what is stored here is of the attempt that was checked. */
    pthread_rwlock_rdlock(&store->lock);
    status = admit(store, request, err);
    if (status == SG_OK) {
        pthread_mutex_lock(&slice->mutex);
        sg_version *old = slice->initial;
        slice->initial = version;
        pthread_mutex_unlock(&slice->mutex);
        version = old;
    }
    pthread_rwlock_unlock(&store->lock);
    sg_version_release(version);
    return status;
}

sg_status sg_store_initialize(sg_store *store, const Shardgrad__V1__InitializeRequest *request, const sg_span *data,
                              size_t n_spans, sg_error *err)
{
    sg_status status = admit_locked(store, request, err);
    if (status == SG_OK)
        status = sg_store_check_dtype(request->dtype, err);
    if (status != SG_OK)
        return status;
    size_t got = 0;
    for (size_t i = 0; i < n_spans; i++)
        got += data[i].n_bytes;
    uint64_t want = 0;
    sg_store_slice *slice;
    status = sg_store_check_distinct(request->slices, request->n_slices, err);
    for (size_t i = 0; i < request->n_slices && status == SG_OK; i++) {
        status = sg_store_find_slice(store, request->slices[i], &slice, err);
        want += status == SG_OK ? slice->n_elems * sizeof(float) : 0;
    }
    if (status == SG_OK && got != want)
        status = sg_error_set(err, SG_INVALID, "got %zu bytes of data for %zu slices, want %" PRIu64, got,
                              request->n_slices, want);
    sg_span_reader reader;
    sg_span_reader_init(&reader, data, n_spans, SIZE_MAX);
    for (size_t i = 0; i < request->n_slices && status == SG_OK; i++) {
        status = sg_store_find_slice(store, request->slices[i], &slice, err);
        if (status == SG_OK)
            status = store_slice(store, request, slice, &reader, err);
    }
    return status;
}
