/* A pull of versions that are there: it is never parked. Anything out of the ordinary is left to the long way. */
#include "server/store_internal.h"

sg_version *sg_store_find_version(const sg_store *store, const sg_store_slice *slice, uint64_t wanted)
{
    if (!slice->newest)
        return NULL; /* a generation has just begun */
    if (slice->variable->frozen || wanted == slice->newest->step)
        return slice->newest;
    if (!sg_store_is_sync(store))
        return wanted <= slice->newest->step ? slice->newest : NULL;
    sg_version *version = slice->older;
    while (version && version->step != wanted)
        version = version->next;
    return version;
}

/* NULL: not there, or not here. */
static sg_version *take_now(sg_store *store, uint32_t worker, uint32_t index, uint64_t wanted, uint64_t *number,
                            uint64_t *n_bytes)
{
    sg_store_slice *slice;
    if (sg_store_find_slice(store, index, &slice, NULL) != SG_OK)
        return NULL;
    *n_bytes += slice->n_elems * sizeof(float);
    pthread_mutex_lock(&slice->mutex);
    sg_version *version = sg_store_find_version(store, slice, wanted);
    if (version) {
        sg_version_retain(version);
        sg_store_gave(store, slice, worker, version->step);
    }
    pthread_mutex_unlock(&slice->mutex);
    if (version)
        *number = slice->variable->frozen ? wanted : version->step;
    return version;
}

bool sg_store_pull_now(sg_store *store, const Shardgrad__V1__PullRequest *request, uint64_t admission, void *call)
{
    size_t n = request->n_slices, there = 0;
    sg_version **versions = sg_pool_try_alloc(store->pool, n * sizeof(sg_version *));
    uint64_t *numbers = sg_pool_try_alloc(store->pool, n * sizeof *numbers), n_bytes = 0;
    bool has_room = versions && numbers;
    while (has_room && there < n &&
           (versions[there] = take_now(store, request->worker, request->slices[there], request->versions[there],
                                       &numbers[there], &n_bytes)) != NULL)
        there++;
    /* Where a generation began meanwhile the values may be the next one's. */
    bool is_in_time = atomic_load(&store->admission) == admission;
    bool answers = has_room && there == n && n_bytes <= store->options.message_bytes && is_in_time;
    if (answers) {
        atomic_fetch_add(&store->n_pulled, 1);
        sg_store_pull_answer answer = {.status = SG_OK, .versions = versions, .numbers = numbers, .n = n};
        store->options.answer_pull(store->options.user, call, &answer);
    }
    for (size_t i = 0; i < there && !answers; i++)
        sg_version_release(versions[i]);
    sg_pool_free(versions);
    sg_pool_free(numbers);
    return answers;
}
