/* server/store.c - see store.h. */
#include "server/store_internal.h"

#include "kernels/bf16.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

sg_store *sg_store_create(const sg_store_options *options)
{
    sg_store *store = sg_xcalloc(1, sizeof *store);
    store->options = *options;
    store->pool = sg_pool_create();
    atomic_init(&store->mode, (int)options->mode);
    atomic_init(&store->rule, (int)options->rule);
    store->backup_workers = options->backup_workers;
    store->workers = sg_xcalloc(options->max_workers, sizeof *store->workers);
    store->parked_of = sg_xcalloc(options->max_workers, sizeof *store->parked_of);
    pthread_rwlock_init(&store->lock, NULL);
    pthread_mutex_init(&store->pulls_mutex, NULL);
    pthread_mutex_init(&store->norms_mutex, NULL);
    pthread_mutex_init(&store->focus_mutex, NULL);
    pthread_mutex_init(&store->non_finite_mutex, NULL);
    return store;
}

void sg_store_destroy(sg_store *store)
{
    if (!store)
        return;
    SG_ASSERT(store->pulls == NULL);
    sg_store_free_variables(store);
    for (uint64_t i = 0; i < store->options.max_workers; i++)
        free(store->workers[i].address);
    free(store->workers);
    free(store->parked_of);
    sg_store_room_deinit(store);
    sg_store_norms_deinit(store);
    free(store->hypers);
    free(store->end_reason);
    free(store->failure_message);
    pthread_mutex_destroy(&store->non_finite_mutex);
    pthread_mutex_destroy(&store->pulls_mutex);
    pthread_rwlock_destroy(&store->lock);
    sg_pool_destroy(store->pool);
    free(store);
}

sg_rule sg_store_rule_of_now(const sg_store *store)
{
    return sg_store_rule(store);
}

sg_pool *sg_store_pool(const sg_store *store)
{
    return store->pool;
}

/* --- who is let in --- */

static sg_status check_generation(const sg_store *store, uint64_t generation, sg_error *err)
{
    if (generation == store->generation && !store->beginning)
        return SG_OK;
    if (generation < store->generation)
        return sg_error_set(
            err, SG_ROLLED_BACK, "generation %" PRIu64 " has passed; ps %" PRIu32 " is in generation %" PRIu64 "%s%s",
            generation, store->options.ps, store->generation, store->why[0] != '\0' ? ": " : "", store->why);
    return sg_error_set(err, SG_NOT_READY,
                        "generation %" PRIu64 " has not begun here; ps %" PRIu32 " is in generation %" PRIu64,
                        generation, store->options.ps, store->generation);
}

void sg_store_count_live(sg_store *store)
{
    uint64_t n = 0;
    for (uint64_t i = 0; i < store->options.max_workers; i++)
        n += store->workers[i].incarnation != 0 && !store->workers[i].fenced;
    atomic_store(&store->live, n);
}

sg_status sg_store_admit(sg_store *store, uint32_t worker, uint64_t incarnation, uint64_t generation, sg_error *err)
{
    if (store->failure != SG_OK)
        return sg_error_set(err, store->failure, "%s", store->failure_message);
    sg_status status = check_generation(store, generation, err);
    if (status != SG_OK)
        return status;
    if (worker >= store->options.max_workers)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " is out of range: max_workers is %" PRIu64, worker,
                            store->options.max_workers);
    const sg_store_worker *known = &store->workers[worker];
    if (incarnation == known->incarnation && !known->fenced && incarnation != 0)
        return SG_OK;
    if (incarnation == known->incarnation && incarnation != 0)
        return sg_error_set(err, SG_FENCED,
                            "worker %" PRIu32
                            " was superseded, has left or was given up for lost: start it anew to join again",
                            worker);
    if (known->incarnation == 0)
        return sg_error_set(err, SG_FENCED,
                            "incarnation %" PRIx64 " of worker %" PRIu32 " is not known; say hello to the coordinator",
                            incarnation, worker);
    return sg_error_set(err, SG_FENCED,
                        "another life of worker %" PRIu32 " has its index: got incarnation %" PRIu64
                        ", the current one is %" PRIu64,
                        worker, incarnation, known->incarnation);
}

void sg_store_fail_pulls(sg_store *store, sg_status status, const char *message)
{
    pthread_rwlock_wrlock(&store->lock);
    if (store->failure == SG_OK) {
        store->failure = status;
        store->failure_message = sg_xstrdup(message);
        atomic_fetch_add(&store->admission, 1);
    }
    pthread_rwlock_unlock(&store->lock);
    sg_store_review_pulls(store);
}

bool sg_store_ended(sg_store *store, sg_status *status, char *message, size_t message_bytes)
{
    pthread_rwlock_rdlock(&store->lock);
    bool ended = store->ended;
    if (ended) {
        *status = store->end_status;
        if (message_bytes > 0) {
            size_t n = strnlen(store->end_reason, message_bytes - 1);
            memcpy(message, store->end_reason, n);
            message[n] = '\0';
        }
    }
    pthread_rwlock_unlock(&store->lock);
    return ended;
}

const Shardgrad__V1__Hyper *sg_store_find_hyper(const sg_store *store, uint64_t number)
{
    for (size_t i = store->n_hypers; i > 0; i--) { /* the newest is nearly always the one */
        if (store->hypers[i - 1].number == number)
            return &store->hypers[i - 1];
    }
    return NULL;
}

/* --- slices and bytes of a request --- */

sg_status sg_store_find_slice(const sg_store *store, uint32_t index, sg_store_slice **slice, sg_error *err)
{
    if (index >= store->plan->n_slices)
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 " is unknown: the plan has %" PRIu32, index,
                            store->plan->n_slices);
    if (store->places[index] == UINT32_MAX)
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 " belongs to ps %" PRIu32 "; this is ps %" PRIu32, index,
                            store->plan->slices[index].ps, store->options.ps);
    *slice = &store->slices[store->places[index]];
    return SG_OK;
}

static int compare_indices(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Clients list slices in ascending order, which shows at once that none is there twice; others are sorted. */
sg_status sg_store_check_distinct(const uint32_t *indices, size_t n, sg_error *err)
{
    size_t i = 1;
    while (i < n && indices[i - 1] < indices[i])
        i++;
    if (i >= n)
        return SG_OK;
    uint32_t *sorted = sg_try_alloc_aligned(n * sizeof *sorted);
    if (!sorted)
        return sg_error_set(err, SG_EXHAUSTED, "no memory to sort %zu slices; list them in ascending order", n);
    memcpy(sorted, indices, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare_indices);
    sg_status status = SG_OK;
    for (i = 1; i < n && status == SG_OK; i++) {
        if (sorted[i - 1] == sorted[i])
            status = sg_error_set(err, SG_INVALID, "slice %" PRIu32 " is listed twice; list each once", sorted[i]);
    }
    free(sorted);
    return status;
}

sg_status sg_store_check_dtype(Shardgrad__V1__DataType dtype, sg_error *err)
{
    if (dtype == SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED ||
        dtype == SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32)
        return SG_OK;
    return sg_error_set(err, SG_INVALID, "dtype %d is unknown; want float32 (1)", (int)dtype);
}

/* Small enough to be tested while it is in the first cache. */
#define GATHER_BYTES (16u << 10)

void sg_store_gather(sg_span_reader *reader, float *out, uint64_t n_elems, bool *finite)
{
    uint8_t *bytes = (uint8_t *)out;
    size_t n_bytes = n_elems * sizeof(float), copied = 0;
    uint64_t tested = 0;
    sg_span piece;
    *finite = true;
    while (copied < n_bytes) {
        size_t left = n_bytes - copied;
        bool more = sg_span_reader_next(reader, left < GATHER_BYTES ? left : GATHER_BYTES, &piece);
        SG_ASSERT(more); /* the length was checked before */
        memcpy(bytes + copied, piece.data, piece.n_bytes);
        copied += piece.n_bytes;
        uint64_t whole = copied / sizeof(float); /* a float may lie across two pieces */
        *finite = sg_update_copy_is_finite(out + tested, NULL, whole - tested) && *finite;
        tested = whole;
    }
}

#define NARROW_ELEMS 1024u

void sg_store_gather_narrow(sg_span_reader *reader, float *out, uint64_t n_elems, bool *finite)
{
    uint8_t bytes[NARROW_ELEMS * sizeof(uint16_t)];
    float looked_at[NARROW_ELEMS];
    *finite = true;
    for (uint64_t begin = 0, n; begin < n_elems; begin += n) {
        n = n_elems - begin < NARROW_ELEMS ? n_elems - begin : NARROW_ELEMS;
        float *to = out ? out + begin : looked_at;
        sg_span_reader_read(reader, bytes, n * sizeof(uint16_t));
        sg_bf16_widen_bytes(bytes, to, n);
        *finite = sg_update_copy_is_finite(to, NULL, n) && *finite;
    }
}

/* --- contributions that wait --- */

void sg_store_settle_contributions(sg_store *store)
{
    pthread_rwlock_rdlock(&store->lock);
    for (uint32_t i = 0; i < store->n_slices; i++) {
        pthread_mutex_lock(&store->slices[i].mutex);
        pthread_mutex_unlock(&store->slices[i].mutex);
    }
    pthread_rwlock_unlock(&store->lock);
}

void sg_store_drop_contributions(sg_store *store)
{
    for (uint32_t i = 0; i < store->n_slices; i++) {
        for (uint32_t k = 0; k < store->slices[i].n_parts; k++)
            sg_store_part_deinit(store, &store->slices[i].parts[k]);
        store->slices[i].n_parts = 0;
    }
}

/* --- reports --- */

void sg_store_gave(const sg_store *store, sg_store_slice *slice, uint32_t worker, uint64_t version)
{
    if (!sg_store_is_sync(store) && !slice->variable->frozen)
        sg_round_gave(&slice->round, worker, version);
}

/* The lowest and highest step over the slices that are trained, and whom the slowest waits for. */
static void report_steps(sg_store *store, Shardgrad__V1__PsReport *report)
{
    bool any = false;
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        if (slice->variable->frozen)
            continue;
        sg_workers missing;
        pthread_mutex_lock(&slice->mutex);
        uint64_t step = slice->round.step;
        bool waits = sg_round_holds_up(&slice->round, &missing);
        pthread_mutex_unlock(&slice->mutex);
        if (!any || step < report->min_step || (step == report->min_step && report->waiting_for.len == 0)) {
            report->min_step = step;
            report->waiting_for.len = waits ? sg_workers_encode(&missing, report->waiting_for.data) : 0;
        }
        if (!any || step > report->max_step)
            report->max_step = step;
        any = true;
    }
}

void sg_store_report(sg_store *store, Shardgrad__V1__PsReport *report)
{
    shardgrad__v1__ps_report__init(report);
    pthread_rwlock_rdlock(&store->lock);
    bool declared = store->plan != NULL;
    report->slices = store->n_slices;
    report->value_bytes = store->value_bytes;
    report->slot_bytes = store->slot_bytes;
    report->orders = store->sequence;
    report->generation = store->generation;
    pthread_rwlock_unlock(&store->lock);
    report->pushes = atomic_load(&store->n_pushed);
    report->pulls = atomic_load(&store->n_pulled);
    report->non_finite = atomic_load(&store->n_non_finite);
    report->empty = atomic_load(&store->n_empty);
    pthread_mutex_lock(&store->pulls_mutex);
    report->parked = store->parked.n_calls;
    pthread_mutex_unlock(&store->pulls_mutex);
    report->waiting_for.data = sg_xcalloc(1, SG_WORKERS_WIRE_BYTES);
    if (!sg_store_is_sync(store)) {
        report->n_staleness = SG_STORE_N_STALENESS;
        report->staleness = sg_xcalloc(SG_STORE_N_STALENESS, sizeof *report->staleness);
    }
    for (size_t i = 0; i < report->n_staleness; i++)
        report->staleness[i] = atomic_load(&store->staleness[i]);
    if (declared)
        report_steps(store, report);
}

void sg_store_report_deinit(Shardgrad__V1__PsReport *report)
{
    free(report->waiting_for.data);
    report->waiting_for = (ProtobufCBinaryData){0};
    free(report->staleness);
    report->staleness = NULL;
    report->n_staleness = 0;
}
