/* Pulls: answered at once, or parked until the last of their versions is made.
 *
 * A pull is in the store's list of pulls from its beginning to its end, and in the list of every slice that it waits
 * for. It is counted: the list of pulls, every list of a slice, and every thread that works on it hold one reference.
 * Whoever sets `finished` first answers it. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WAIT_TEXT_BYTES 400

typedef struct pull_entry {
    uint32_t slice_index;
    uint64_t wanted;
    sg_store_slice *slice; /* NULL before attach */
    sg_store_waiter waiter;
} pull_entry;

struct sg_store_parked {
    sg_store_parked *prev, *next; /* guarded by pulls_mutex */
    void *call;
    uint32_t worker;
    uint64_t incarnation, generation;
    uint64_t park_until_ms, deadline_ms;
    size_t n, n_bytes;     /* slices; what it takes, itself and the next three */
    pull_entry *entries;   /* [n] this and the next two: behind the pull, in one object */
    sg_version **versions; /* [n] NULL while missing; the pull's references, until they are given away */
    uint64_t *numbers;     /* [n] */
    bool given;            /* they were */
    _Atomic uint32_t references;
    _Atomic size_t n_missing; /* and one for attach itself */
    atomic_bool attached;     /* somebody looks for its slices, or has */
    atomic_bool linking;      /* entries[].slice are set, waiters may be linked */
    atomic_bool finished;
};

static void unref(sg_store_parked *pull)
{
    if (atomic_fetch_sub(&pull->references, 1) != 1)
        return;
    for (size_t i = 0; i < pull->n && !pull->given; i++)
        sg_version_release(pull->versions[i]);
    sg_pool_free(pull);
}

/* --- the lists of slices: under the slice's mutex --- */

static void link_waiter(sg_store_slice *slice, sg_store_waiter *waiter)
{
    atomic_fetch_add(&waiter->pull->references, 1);
    waiter->linked = true;
    waiter->prev = NULL;
    waiter->next = slice->waiters;
    if (slice->waiters)
        slice->waiters->prev = waiter;
    slice->waiters = waiter;
}

static void unlink_waiter(sg_store_slice *slice, sg_store_waiter *waiter)
{
    if (waiter->prev)
        waiter->prev->next = waiter->next;
    else
        slice->waiters = waiter->next;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    waiter->linked = false;
}

static void give_version(sg_store_parked *pull, size_t i, sg_version *version, uint64_t number)
{
    pull->versions[i] = sg_version_retain(version);
    pull->numbers[i] = number;
}

sg_store_waiter *sg_store_satisfy_waiters(const sg_store *store, sg_store_slice *slice)
{
    const bool async = !sg_store_is_sync(store);
    sg_store_waiter *satisfied = NULL;
    for (sg_store_waiter *waiter = slice->waiters, *next; waiter; waiter = next) {
        next = waiter->next;
        uint64_t wanted = waiter->pull->entries[waiter->index].wanted, step = slice->newest->step;
        if (async ? wanted > step : wanted != step)
            continue;
        unlink_waiter(slice, waiter);
        give_version(waiter->pull, waiter->index, slice->newest, step);
        sg_store_gave(store, slice, waiter->pull->worker, step);
        waiter->next = satisfied;
        satisfied = waiter;
    }
    return satisfied;
}

/* --- the end of a pull --- */

/* The caller of this and of leave_list holds a reference of its own, so that neither drops the last. */
static void leave_slices(sg_store_parked *pull)
{
    uint32_t n_left = 0;
    for (size_t i = 0; i < pull->n; i++) {
        sg_store_slice *slice = pull->entries[i].slice;
        pthread_mutex_lock(&slice->mutex);
        if (pull->entries[i].waiter.linked) {
            unlink_waiter(slice, &pull->entries[i].waiter);
            n_left++;
        }
        pthread_mutex_unlock(&slice->mutex);
    }
    atomic_fetch_sub(&pull->references, n_left);
}

static void leave_list(sg_store *store, sg_store_parked *pull)
{
    pthread_mutex_lock(&store->pulls_mutex);
    if (pull->prev)
        pull->prev->next = pull->next;
    else
        store->pulls = pull->next;
    if (pull->next)
        pull->next->prev = pull->prev;
    sg_store_unpark(store, pull->worker, pull->n_bytes);
    pthread_mutex_unlock(&store->pulls_mutex);
    atomic_fetch_sub(&pull->references, 1);
}

/* The caller holds a reference. Only the first call of several answers. */
static void finish(sg_store *store, sg_store_parked *pull, sg_status status, const char *message)
{
    if (atomic_exchange(&pull->finished, true))
        return;
    /* Either this sees `linking`, or the thread that links sees `finished` before it links: nothing stays behind. */
    if (status != SG_OK && atomic_load(&pull->linking))
        leave_slices(pull);
    leave_list(store, pull);
    if (status == SG_OK)
        atomic_fetch_add(&store->n_pulled, 1);
    pull->given = status == SG_OK;
    sg_store_pull_answer answer = {.status = status,
                                   .message = status == SG_OK ? NULL : message,
                                   .versions = status == SG_OK ? pull->versions : NULL,
                                   .numbers = status == SG_OK ? pull->numbers : NULL,
                                   .n = status == SG_OK ? pull->n : 0};
    store->options.answer_pull(store->options.user, pull->call, &answer);
}

static void count_down(sg_store *store, sg_store_parked *pull)
{
    if (atomic_fetch_sub(&pull->n_missing, 1) == 1)
        finish(store, pull, SG_OK, NULL);
}

void sg_store_answer_waiters(sg_store *store, sg_store_waiter *satisfied)
{
    for (sg_store_waiter *waiter = satisfied, *next; waiter; waiter = next) {
        next = waiter->next;
        sg_store_parked *pull = waiter->pull;
        count_down(store, pull);
        unref(pull);
    }
}

/* --- attaching: once initial values are committed --- */

static sg_status resolve(sg_store *store, sg_store_parked *pull, sg_error *err)
{
    uint64_t n_bytes = 0;
    sg_status status = SG_OK;
    for (size_t i = 0; i < pull->n && status == SG_OK; i++) {
        pull_entry *entry = &pull->entries[i];
        status = sg_store_find_slice(store, entry->slice_index, &entry->slice, err);
        n_bytes += status == SG_OK ? entry->slice->n_elems * sizeof(float) : 0;
    }
    if (status == SG_OK && n_bytes > store->options.message_bytes)
        status = sg_error_set(err, SG_INVALID, "%zu slices of %" PRIu64 " bytes in one pull; message_bytes is %" PRIu64,
                              pull->n, n_bytes, store->options.message_bytes);
    return status;
}

/* Takes the version or waits for it. LATE: it is gone. */
static sg_status take_or_wait(sg_store *store, sg_store_parked *pull, size_t i, sg_error *err)
{
    pull_entry *entry = &pull->entries[i];
    sg_store_slice *slice = entry->slice;
    pthread_mutex_lock(&slice->mutex);
    uint64_t newest = slice->newest ? slice->newest->step : 0; /* none: a generation has just begun */
    sg_version *version = sg_store_find_version(store, slice, entry->wanted);
    if (version)
        give_version(pull, i, version, slice->variable->frozen ? entry->wanted : version->step);
    if (version)
        sg_store_gave(store, slice, pull->worker, version->step);
    else if (entry->wanted > newest && !atomic_load(&pull->finished))
        link_waiter(slice, &entry->waiter);
    pthread_mutex_unlock(&slice->mutex);
    if (version)
        count_down(store, pull);
    else if (entry->wanted < newest)
        return sg_error_set(err, SG_LATE, "version %" PRIu64 " of slice %" PRIu32 " is gone; the newest is %" PRIu64,
                            entry->wanted, slice->index, newest);
    return SG_OK;
}

static void attach(sg_store *store, sg_store_parked *pull)
{
    if (atomic_exchange(&pull->attached, true))
        return;
    sg_error err;
    sg_status status = resolve(store, pull, &err);
    if (status == SG_OK)
        atomic_store(&pull->linking, true);
    for (size_t i = 0; i < pull->n && status == SG_OK; i++)
        status = take_or_wait(store, pull, i, &err);
    if (status == SG_OK)
        count_down(store, pull);
    else
        finish(store, pull, status, err.message);
}

/* --- news that may end pulls, or let them go on --- */

/* What a pull of who is let in meets. */
typedef struct prospect {
    bool committed; /* it has not to wait for initial values */
    uint64_t admission;
    uint32_t n_slices; /* that there are; UINT32_MAX before they are declared */
} prospect;

static sg_status let_in(sg_store *store, uint32_t worker, uint64_t incarnation, uint64_t generation, prospect *found,
                        sg_error *err)
{
    pthread_rwlock_rdlock(&store->lock);
    sg_status status = sg_store_admit(store, worker, incarnation, generation, err);
    found->committed = store->committed;
    found->admission = atomic_load(&store->admission);
    found->n_slices = store->plan ? store->plan->n_slices : UINT32_MAX;
    pthread_rwlock_unlock(&store->lock);
    return status;
}

/* Is it let in, and has it something to wait for? */
static void review(sg_store *store, sg_store_parked *pull)
{
    sg_error err;
    prospect found;
    sg_status status = let_in(store, pull->worker, pull->incarnation, pull->generation, &found, &err);
    if (status != SG_OK)
        finish(store, pull, status, err.message);
    else if (found.committed)
        attach(store, pull);
}

typedef bool (*pull_filter)(const sg_store_parked *pull, const void *argument);

/* A list, ended by NULL, of the pulls that the filter takes, each with a reference of the caller's. */
static sg_store_parked **select_pulls(sg_store *store, pull_filter takes, const void *argument)
{
    size_t n = 0;
    pthread_mutex_lock(&store->pulls_mutex);
    for (sg_store_parked *pull = store->pulls; pull; pull = pull->next)
        n += takes(pull, argument);
    sg_store_parked **selected = n > 0 ? sg_pool_alloc(store->pool, (n + 1) * sizeof(sg_store_parked *)) : NULL;
    n = 0;
    for (sg_store_parked *pull = store->pulls; pull && selected; pull = pull->next) {
        if (!takes(pull, argument))
            continue;
        atomic_fetch_add(&pull->references, 1);
        selected[n++] = pull;
    }
    pthread_mutex_unlock(&store->pulls_mutex);
    return selected;
}

static bool takes_all(const sg_store_parked *pull, const void *argument)
{
    (void)pull;
    (void)argument;
    return true;
}

static bool takes_due(const sg_store_parked *pull, const void *now_ms)
{
    uint64_t now = *(const uint64_t *)now_ms;
    return now >= pull->deadline_ms || now >= pull->park_until_ms;
}

static bool takes_call(const sg_store_parked *pull, const void *call)
{
    return pull->call == call;
}

void sg_store_review_pulls(sg_store *store)
{
    sg_store_parked **selected = select_pulls(store, takes_all, NULL);
    for (size_t i = 0; selected && selected[i]; i++) {
        review(store, selected[i]);
        unref(selected[i]);
    }
    sg_pool_free(selected);
}

static void describe(sg_store *store, sg_store_parked *pull, char *out, size_t out_bytes)
{
    for (size_t i = 0; i < pull->n && atomic_load(&pull->linking); i++) {
        pull_entry *entry = &pull->entries[i];
        pthread_mutex_lock(&entry->slice->mutex);
        bool waits = entry->waiter.linked;
        pthread_mutex_unlock(&entry->slice->mutex);
        if (waits) {
            sg_store_describe_wait(store, entry->slice, entry->wanted, out, out_bytes);
            return;
        }
    }
    snprintf(out, out_bytes, "waiting for initial values");
}

void sg_store_tick(sg_store *store, uint64_t now_ms)
{
    sg_store_parked **due = select_pulls(store, takes_due, &now_ms);
    for (size_t i = 0; due && due[i]; i++) {
        char text[WAIT_TEXT_BYTES];
        describe(store, due[i], text, sizeof text);
        finish(store, due[i], now_ms >= due[i]->deadline_ms ? SG_TIMEOUT : SG_WAITING, text);
        unref(due[i]);
    }
    sg_pool_free(due);
    sg_store_watch(store, now_ms);
}

void sg_store_cancel_pull(sg_store *store, void *call)
{
    sg_store_parked **selected = select_pulls(store, takes_call, call);
    for (size_t i = 0; selected && selected[i]; i++) {
        finish(store, selected[i], SG_CANCELLED, "the caller has gone");
        unref(selected[i]);
    }
    sg_pool_free(selected);
}

/* --- a new pull --- */

/* Of who is let in. Nothing is allocated for more slices than there are. */
static sg_status check_request(const sg_store *store, const Shardgrad__V1__PullRequest *request, uint32_t n_slices,
                               sg_error *err)
{
    if (request->n_slices > n_slices)
        return sg_error_set(err, SG_INVALID, "%zu slices in one pull are more than the plan's %" PRIu32,
                            request->n_slices, n_slices);
    if (request->n_versions != request->n_slices)
        return sg_error_set(err, SG_INVALID, "got %zu versions for %zu slices, want as many", request->n_versions,
                            request->n_slices);
    if (request->n_slices > store->options.message_bytes / sizeof(float))
        return sg_error_set(err, SG_INVALID,
                            "%zu slices in one pull are more than message_bytes, %" PRIu64 ", can hold",
                            request->n_slices, store->options.message_bytes);
    return sg_store_check_distinct(request->slices, request->n_slices, err);
}

_Static_assert(sizeof(pull_entry) + sizeof(sg_version *) + sizeof(uint64_t) <= SG_STORE_PARKED_SLICE_BYTES,
               "a parked pull takes more for a slice than its quota knows of");

/* With a place among those that are parked. How many slices there are comes from the wire. */
static sg_status pull_create(sg_store *store, uint64_t now_ms, uint64_t deadline_ms,
                             const Shardgrad__V1__PullRequest *request, void *call, sg_store_parked **made,
                             sg_error *err)
{
    size_t n = request->n_slices;
    size_t n_bytes = sizeof(sg_store_parked) + n * (sizeof(pull_entry) + sizeof(sg_version *) + sizeof(uint64_t));
    sg_status status = sg_store_park(store, request->worker, n_bytes, err);
    if (status != SG_OK)
        return status;
    sg_store_parked *pull = sg_pool_try_alloc(store->pool, n_bytes);
    if (!pull) {
        pthread_mutex_lock(&store->pulls_mutex);
        sg_store_unpark(store, request->worker, n_bytes);
        pthread_mutex_unlock(&store->pulls_mutex);
        return sg_error_set(err, SG_EXHAUSTED, "no memory for a pull of %zu slices", n);
    }
    pull_entry *entries = (pull_entry *)(pull + 1);
    sg_version **versions = (sg_version **)(entries + n);
    *pull = (sg_store_parked){.call = call,
                              .worker = request->worker,
                              .incarnation = request->incarnation,
                              .generation = request->generation,
                              .park_until_ms = now_ms + store->options.park_ms,
                              .deadline_ms = deadline_ms,
                              .n = n,
                              .n_bytes = n_bytes,
                              .entries = entries,
                              .versions = versions,
                              .numbers = (uint64_t *)(versions + n)};
    atomic_init(&pull->references, 2); /* the list's and the caller's */
    atomic_init(&pull->n_missing, n + 1);
    for (size_t i = 0; i < n; i++)
        pull->entries[i] = (pull_entry){
            .slice_index = request->slices[i], .wanted = request->versions[i], .waiter = {.pull = pull, .index = i}};
    *made = pull;
    return SG_OK;
}

void sg_store_pull(sg_store *store, uint64_t now_ms, uint64_t deadline_ms, const Shardgrad__V1__PullRequest *request,
                   void *call)
{
    sg_error err;
    prospect found;
    sg_status status = let_in(store, request->worker, request->incarnation, request->generation, &found, &err);
    if (status == SG_OK)
        status = check_request(store, request, found.n_slices, &err);
    if (status == SG_OK && found.committed && sg_store_pull_now(store, request, found.admission, call))
        return;
    sg_store_parked *pull = NULL;
    if (status == SG_OK)
        status = pull_create(store, now_ms, deadline_ms, request, call, &pull, &err);
    if (!pull) {
        sg_store_pull_answer answer = {.status = status, .message = err.message};
        store->options.answer_pull(store->options.user, call, &answer);
        return;
    }
    pthread_mutex_lock(&store->pulls_mutex);
    pull->next = store->pulls;
    if (store->pulls)
        store->pulls->prev = pull;
    store->pulls = pull;
    pthread_mutex_unlock(&store->pulls_mutex);
    /* It is judged only now that it is in the list: news that come at this moment find it there. */
    review(store, pull);
    unref(pull);
}
