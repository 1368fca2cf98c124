/* Contributions: validate the whole request, gather each slice outside any lock, count it, close what is complete. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One slice of a push. */
typedef struct push_item {
    sg_store_slice *slice;
    sg_round_verdict verdict;
    sg_pool_buffer *gradient; /* gathered; NULL where it weighs nothing */
    bool finite;
} push_item;

typedef struct push {
    const Shardgrad__V1__PushRequest *request;
    const sg_store_data *data;
    sg_round_terms terms;
    push_item *items; /* [request->n_slices] */
    size_t n;
} push;

/* --- validation --- */

static bool knows_hyper(const sg_store *store, uint64_t number)
{
    for (size_t i = 0; i < store->n_hypers; i++) {
        if (store->hypers[i].number == number)
            return true;
    }
    return false;
}

static sg_status admit_locked(sg_store *store, const Shardgrad__V1__PushRequest *request, sg_error *err)
{
    pthread_rwlock_rdlock(&store->lock);
    sg_status status = sg_store_admit(store, request->worker, request->incarnation, request->generation, err);
    if (status == SG_OK && !store->committed)
        status = sg_error_set(err, SG_NOT_READY, "initial values are not committed yet");
    if (status == SG_OK && (!request->step || !knows_hyper(store, request->step->hyper)))
        status = request->step ? sg_error_set(err, SG_INVALID, "hyper-parameter set %" PRIu64 " is unknown here",
                                              request->step->hyper)
                               : sg_error_set(err, SG_INVALID, "the push has no step; send what the ticket said");
    pthread_rwlock_unlock(&store->lock);
    return status;
}

static sg_status read_terms(const sg_store *store, const Shardgrad__V1__PushRequest *request, sg_round_terms *terms,
                            sg_error *err)
{
    const Shardgrad__V1__Step *step = request->step;
    *terms = (sg_round_terms){.iteration = step->iteration,
                              .hyper = step->hyper,
                              .checkpoint_mark = step->checkpoint_mark,
                              .learning_rate = step->learning_rate};
    sg_status status = sg_workers_decode(step->members.data, step->members.len, &terms->members, err);
    if (status != SG_OK)
        return status;
    uint32_t beyond;
    if (sg_workers_next(&terms->members, (uint32_t)store->options.max_workers, &beyond))
        return sg_error_set(err, SG_INVALID, "members name worker %" PRIu32 "; max_workers is %" PRIu64, beyond,
                            store->options.max_workers);
    if (!sg_workers_has(&terms->members, request->worker))
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " is not a member of the step that it pushes",
                            request->worker);
    if (!isfinite(step->learning_rate))
        return sg_error_set(err, SG_INVALID, "learning_rate of the step is not finite");
    return SG_OK;
}

static sg_status check_shape(const Shardgrad__V1__PushRequest *request, sg_error *err)
{
    if (request->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        request->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32)
        return sg_error_set(err, SG_INVALID, "dtype %d is unknown; want float32 (1)", (int)request->dtype);
    if (request->n_steps != request->n_slices)
        return sg_error_set(err, SG_INVALID, "got %zu steps for %zu slices, want as many", request->n_steps,
                            request->n_slices);
    return SG_OK;
}

static sg_status find_items(sg_store *store, push *p, uint64_t got_bytes, sg_error *err)
{
    sg_store_slice **slices = sg_xcalloc(p->n > 0 ? p->n : 1, sizeof(sg_store_slice *));
    uint64_t want_bytes;
    sg_status status = sg_store_find_slices(store, p->request->slices, p->n, slices, &want_bytes, err);
    for (size_t i = 0; i < p->n && status == SG_OK; i++) {
        p->items[i].slice = slices[i];
        if (slices[i]->group != p->request->step->group)
            status =
                sg_error_set(err, SG_INVALID, "slice %" PRIu32 " is of group %" PRIu32 ", the push of group %" PRIu32,
                             slices[i]->index, slices[i]->group, p->request->step->group);
        else if (slices[i]->variable->frozen)
            status = sg_error_set(err, SG_INVALID, "slice %" PRIu32 ": variable '%s' is frozen; do not push it",
                                  slices[i]->index, slices[i]->variable->name);
    }
    if (status == SG_OK && got_bytes != want_bytes)
        status = sg_error_set(err, SG_INVALID, "got %" PRIu64 " bytes of data for %zu slices, want %" PRIu64, got_bytes,
                              p->n, want_bytes);
    free(slices);
    return status;
}

/* --- verdicts --- */

static sg_round_entry entry_of(const push *p, size_t i)
{
    return (sg_round_entry){.worker = p->request->worker,
                            .incarnation = p->request->incarnation,
                            .step = p->request->steps[i],
                            .terms = &p->terms};
}

static sg_status verdict_error(const push *p, size_t i, const char *field, uint64_t collecting, sg_error *err)
{
    uint32_t slice = p->items[i].slice->index;
    uint64_t step = p->request->steps[i];
    switch (p->items[i].verdict) {
    case SG_ROUND_STORED:
    case SG_ROUND_REPEAT:
        return SG_OK;
    case SG_ROUND_LATE:
        return sg_error_set(err, SG_LATE, "slice %" PRIu32 ": step %" PRIu64 " is closed; step %" PRIu64 " collects",
                            slice, step, collecting);
    case SG_ROUND_EARLY:
        return sg_error_set(err, SG_EARLY,
                            "slice %" PRIu32 ": step %" PRIu64 " has not begun; step %" PRIu64 " collects", slice, step,
                            collecting);
    case SG_ROUND_DIFFERS:
        return sg_error_set(err, SG_INVALID,
                            "slice %" PRIu32 ", step %" PRIu64 ": %s of the push differs from the round's; send what "
                            "the ticket said",
                            slice, step, field);
    case SG_ROUND_NOT_A_MEMBER:
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 ": worker %" PRIu32 " is not a member of step %" PRIu64,
                            slice, p->request->worker, step);
    case SG_ROUND_FENCED:
        break;
    }
    return sg_error_set(err, SG_FENCED, "another life of worker %" PRIu32 " has its index", p->request->worker);
}

/* What would become of each slice: so that a push that is refused leaves nothing behind. */
static sg_status look_at_all(push *p, sg_error *err)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < p->n && status == SG_OK; i++) {
        sg_store_slice *slice = p->items[i].slice;
        sg_round_entry entry = entry_of(p, i);
        const char *field = NULL;
        pthread_mutex_lock(&slice->mutex);
        p->items[i].verdict = sg_round_look(&slice->round, &entry, &field);
        uint64_t collecting = slice->round.step;
        pthread_mutex_unlock(&slice->mutex);
        status = verdict_error(p, i, field, collecting, err);
    }
    return status;
}

/* --- storing --- */

/* A repeat, too, whose copy goes unused: its sender may not know yet what was left out. */
static sg_status gather_all(sg_store *store, push *p, sg_error *err)
{
    sg_span_reader reader;
    sg_span_reader_init(&reader, p->data->spans, p->data->n_spans, SIZE_MAX);
    for (size_t i = 0; i < p->n; i++) {
        push_item *item = &p->items[i];
        size_t n_bytes = item->slice->n_elems * sizeof(float);
        item->gradient = sg_pool_get(store->pool, n_bytes);
        if (!item->gradient)
            return sg_error_set(err, SG_EXHAUSTED, "no memory for %zu bytes of a contribution", n_bytes);
        sg_store_gather(&reader, item->gradient->data, item->slice->n_elems, &item->finite);
        item->finite = item->finite || store->options.non_finite == SG_NON_FINITE_APPLY;
        if (p->request->weight == 0 || !item->finite) {
            sg_pool_put(item->gradient);
            item->gradient = NULL;
        }
    }
    return SG_OK;
}

/* Under the slice's mutex. Sync rounds sum in rank order, which is the order of worker indices. */
static void add_part(sg_store *store, sg_store_slice *slice, const push *p, push_item *item)
{
    if (slice->n_parts == slice->parts_capacity) {
        slice->parts_capacity = slice->parts_capacity ? 2 * slice->parts_capacity : 4;
        slice->parts = sg_xrealloc(slice->parts, slice->parts_capacity, sizeof *slice->parts);
    }
    size_t at = slice->n_parts;
    while (store->options.mode == SG_MODE_SYNC && at > 0 && slice->parts[at - 1].worker > p->request->worker)
        at--;
    memmove(slice->parts + at + 1, slice->parts + at, (slice->n_parts - at) * sizeof *slice->parts);
    slice->n_parts++;
    slice->parts[at] = (sg_store_part){.worker = p->request->worker,
                                       .weight = item->gradient ? p->request->weight : 0,
                                       .hyper = p->terms.hyper,
                                       .learning_rate = p->terms.learning_rate,
                                       .gradient = item->gradient};
    item->gradient = NULL;
}

/* Under the slice's mutex: a first contribution proves that every member has pulled this version, so nobody needs the
 * ones before it (proto/README.md). */
static void begin_collecting(sg_store_slice *slice, uint64_t now_ms)
{
    slice->opened_ms = now_ms;
    for (size_t i = 0; i < slice->n_older; i++)
        sg_version_release(slice->older[i]);
    slice->n_older = 0;
}

/* store.lock is held for reading, so that no contribution enters after its incarnation was fenced. */
static sg_status contribute(sg_store *store, uint64_t now_ms, push *p, size_t i, sg_error *err)
{
    sg_store_slice *slice = p->items[i].slice;
    sg_round_entry entry = entry_of(p, i);
    const char *field = NULL;
    pthread_rwlock_rdlock(&store->lock);
    sg_status status = sg_store_admit(store, p->request->worker, p->request->incarnation, p->request->generation, err);
    if (status == SG_OK) {
        pthread_mutex_lock(&slice->mutex);
        p->items[i].verdict = sg_round_contribute(&slice->round, &entry, &field);
        uint64_t collecting = slice->round.step;
        if (p->items[i].verdict == SG_ROUND_STORED) {
            if (slice->n_parts == 0)
                begin_collecting(slice, now_ms);
            add_part(store, slice, p, &p->items[i]);
        }
        pthread_mutex_unlock(&slice->mutex);
        status = verdict_error(p, i, field, collecting, err);
    }
    pthread_rwlock_unlock(&store->lock);
    return status;
}

/* A training that diverges brings one for every slice, worker and step: the line tells of the newest and of how many.
 */
static void report_non_finite(sg_store *store, uint64_t now_ms, const push *p, size_t i)
{
    char name[128];
    atomic_fetch_add(&store->n_non_finite, 1);
    pthread_mutex_lock(&store->non_finite_mutex);
    uint64_t n = sg_log_pace_count(&store->non_finite_pace, now_ms);
    pthread_mutex_unlock(&store->non_finite_mutex);
    if (n > 0)
        sg_log_warn(store->options.log, "non_finite",
                    "contributions=%" PRIu64 " worker=%" PRIu32 " slice=%" PRIu32 " step=%" PRIu64
                    " variable=%s message=\"left out of the sum\"",
                    n, p->request->worker, p->items[i].slice->index, p->request->steps[i],
                    sg_log_quote(p->items[i].slice->variable->name, name, sizeof name));
}

static sg_status store_all(sg_store *store, uint64_t now_ms, push *p, sg_store_pushed *pushed, sg_error *err)
{
    for (size_t i = 0; i < p->n; i++) {
        sg_status status = contribute(store, now_ms, p, i, err);
        if (status != SG_OK)
            return status;
        if (!p->items[i].finite)
            pushed->non_finite[pushed->n_non_finite++] = p->items[i].slice->index;
        if (p->items[i].verdict != SG_ROUND_STORED)
            continue;
        if (!p->items[i].finite)
            report_non_finite(store, now_ms, p, i);
        sg_store_close_rounds(store, now_ms, p->items[i].slice);
    }
    return SG_OK;
}

/* --- values that go back at once --- */

/* All of them or none. */
static void take_versions(sg_store *store, const push *p, sg_store_pushed *pushed)
{
    bool async = store->options.mode == SG_MODE_ASYNC;
    size_t n = 0;
    for (; n < p->n; n++) {
        sg_store_slice *slice = p->items[n].slice;
        pthread_mutex_lock(&slice->mutex);
        uint64_t wanted = async ? slice->newest->step : p->request->steps[n] + 1;
        sg_version *version = sg_store_find_version(store, slice, wanted);
        pushed->versions[n] = version ? sg_version_retain(version) : NULL;
        pthread_mutex_unlock(&slice->mutex);
        if (!version)
            break;
    }
    if (n == p->n) {
        pushed->n_versions = n;
        return;
    }
    while (n > 0)
        sg_version_release(pushed->versions[--n]);
}

static sg_status run(sg_store *store, uint64_t now_ms, push *p, sg_store_pushed *pushed, sg_error *err)
{
    uint64_t got_bytes = 0;
    for (size_t i = 0; i < p->data->n_spans; i++)
        got_bytes += p->data->spans[i].n_bytes;
    sg_status status = find_items(store, p, got_bytes, err);
    if (status == SG_OK)
        status = look_at_all(p, err);
    if (status == SG_OK)
        status = gather_all(store, p, err);
    if (status == SG_OK)
        status = store_all(store, now_ms, p, pushed, err);
    if (status == SG_OK && pushed->versions)
        take_versions(store, p, pushed);
    return status;
}

sg_status sg_store_push(sg_store *store, uint64_t now_ms, const Shardgrad__V1__PushRequest *request,
                        const sg_store_data *data, sg_store_pushed *pushed, sg_error *err)
{
    pushed->n_non_finite = pushed->n_versions = 0;
    sg_status status = admit_locked(store, request, err);
    if (status != SG_OK)
        return status;
    push p = {.request = request, .data = data, .n = request->n_slices};
    status = check_shape(request, err);
    if (status == SG_OK)
        status = read_terms(store, request, &p.terms, err);
    if (status != SG_OK)
        return status;
    p.items = sg_xcalloc(p.n > 0 ? p.n : 1, sizeof *p.items);
    status = run(store, now_ms, &p, pushed, err);
    for (size_t i = 0; i < p.n; i++)
        sg_pool_put(p.items[i].gradient);
    free(p.items);
    if (status == SG_OK)
        atomic_fetch_add(&store->n_pushed, 1);
    if (pushed->n_versions > 0)
        atomic_fetch_add(&store->n_pulled, 1);
    return status;
}
