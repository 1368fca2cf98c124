/* Contributions: the whole request is validated, then looked at, outside any lock; then each is counted, and what is
 * complete closes. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- validation --- */

static sg_status find_hyper(sg_store_push_state *p, sg_error *err)
{
    if (!p->request->step)
        return sg_error_set(err, SG_INVALID, "the push has no step; send what the ticket said");
    const Shardgrad__V1__Hyper *found = sg_store_find_hyper(p->store, p->request->step->hyper);
    if (!found)
        return sg_error_set(err, SG_INVALID, "hyper-parameter set %" PRIu64 " is unknown here",
                            p->request->step->hyper);
    p->hyper = *found;
    return SG_OK;
}

sg_status sg_store_admit_push(sg_store_push_state *p, sg_error *err)
{
    sg_store *store = p->store;
    const Shardgrad__V1__PushRequest *request = p->request;
    pthread_rwlock_rdlock(&store->lock);
    p->admission = atomic_load(&store->admission);
    sg_status status = sg_store_admit(store, request->worker, request->incarnation, request->generation, err);
    if (status == SG_OK && !store->committed)
        status = sg_error_set(err, SG_NOT_READY, "initial values are not committed yet");
    if (status == SG_OK)
        status = find_hyper(p, err);
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

/* Of one that was let in. */
static sg_status check_shape(const sg_store_push_state *p, sg_error *err)
{
    const Shardgrad__V1__PushRequest *request = p->request;
    sg_status status = p->narrow ? SG_OK : sg_store_check_dtype(request->dtype, err);
    if (status != SG_OK)
        return status;
    if (request->n_steps != request->n_slices)
        return sg_error_set(err, SG_INVALID, "got %zu steps for %zu slices, want as many", request->n_steps,
                            request->n_slices);
    if (p->n > p->store->plan->n_slices || p->n > p->data_bytes / sizeof(uint16_t))
        return sg_error_set(err, SG_INVALID,
                            "%zu slices in one push are more than the plan's %" PRIu32 ", or than its %" PRIu64
                            " bytes of data can be of",
                            p->n, p->store->plan->n_slices, p->data_bytes);
    return SG_OK;
}

/* Errors as sg_store_push's; the slices are found one by one. */
static sg_status find_item(sg_store_push_state *p, size_t i, uint64_t *want_bytes, sg_error *err)
{
    sg_store_item *item = &p->items[i];
    item->look = item->finite = item->can_wait = item->refused = false;
    item->room_bytes = 0;
    item->copy = NULL;
    sg_status status = sg_store_find_slice(p->store, p->request->slices[i], &item->slice, err);
    if (status != SG_OK)
        return status;
    const sg_store_slice *slice = item->slice;
    if (slice->group != p->request->step->group)
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 " is of group %" PRIu32 ", the push of group %" PRIu32,
                            slice->index, slice->group, p->request->step->group);
    if (slice->variable->frozen)
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 ": variable '%s' is frozen; do not push it", slice->index,
                            slice->variable->name);
    item->step = p->request->steps[i];
    if (item->step == UINT64_MAX) /* no step follows it */
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 ": step %" PRIu64 " is none; send what the ticket said",
                            slice->index, item->step);
    item->narrow = p->narrow && !slice->variable->average;
    *want_bytes += sg_store_item_bytes(item);
    return SG_OK;
}

static sg_status find_items(sg_store_push_state *p, sg_error *err)
{
    uint64_t want_bytes = 0;
    sg_status status = sg_store_check_distinct(p->request->slices, p->n, err);
    for (size_t i = 0; i < p->n && status == SG_OK; i++)
        status = find_item(p, i, &want_bytes, err);
    if (status == SG_OK && p->data_bytes != want_bytes)
        status = sg_error_set(err, SG_INVALID, "got %" PRIu64 " bytes of data for %zu slices, want %" PRIu64,
                              p->data_bytes, p->n, want_bytes);
    sg_span_reader reader;
    sg_span_reader_init(&reader, p->data->spans, p->data->n_spans, SIZE_MAX);
    for (size_t i = 0; i < p->n && status == SG_OK; i++) {
        bool there = sg_span_reader_take(&reader, sg_store_item_bytes(&p->items[i]), &p->items[i].gradient);
        SG_ASSERT(there);
    }
    return status;
}

/* --- verdicts --- */

sg_round_entry sg_store_entry(const sg_store_push_state *p, size_t i)
{
    return (sg_round_entry){.worker = p->request->worker,
                            .incarnation = p->request->incarnation,
                            .step = p->items[i].step,
                            .terms = &p->terms,
                            .alone = p->alone};
}

sg_status sg_store_verdict_error(const sg_store_push_state *p, size_t i, const char *field, uint64_t collecting,
                                 sg_error *err)
{
    uint32_t slice = p->items[i].slice->index;
    uint64_t step = p->items[i].step;
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
static sg_status look_at_all(sg_store_push_state *p, sg_error *err)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < p->n && status == SG_OK; i++) {
        sg_store_item *item = &p->items[i];
        sg_round_entry entry = sg_store_entry(p, i);
        const char *field = NULL;
        pthread_mutex_lock(&item->slice->mutex);
        item->verdict = sg_round_look(&item->slice->round, &entry, &field);
        item->closes = item->verdict == SG_ROUND_STORED && sg_round_closes_with(&item->slice->round, &entry);
        uint64_t collecting = item->slice->round.step;
        pthread_mutex_unlock(&item->slice->mutex);
        status = sg_store_verdict_error(p, i, field, collecting, err);
    }
    return status;
}

/* --- storing --- */

/* How many there are comes from the wire. */
static sg_status make_arrays(sg_store_push_state *p, sg_error *err)
{
    sg_pool *pool = p->store->pool;
    sg_store_pushed *pushed = p->pushed;
    p->items = sg_pool_try_alloc_raw(pool, p->n * sizeof *p->items);
    pushed->non_finite = sg_pool_try_alloc_raw(pool, p->n * sizeof *pushed->non_finite);
    if (pushed->wants_versions)
        pushed->versions = sg_pool_try_alloc_raw(pool, p->n * sizeof(sg_version *));
    if (p->items && pushed->non_finite && (pushed->versions || !pushed->wants_versions))
        return SG_OK;
    return sg_error_set(err, SG_EXHAUSTED, "no memory for a push of %zu slices", p->n);
}

void sg_store_pushed_deinit(sg_store_pushed *pushed)
{
    sg_pool_free(pushed->non_finite);
    sg_pool_free(pushed->refused);
    sg_pool_free(pushed->versions);
    *pushed = (sg_store_pushed){.wants_versions = pushed->wants_versions};
}

/* All versions go back, or none. */
static void end_versions(sg_store_push_state *p, sg_status status)
{
    sg_version **versions = p->pushed->versions;
    if (!versions)
        return;
    if (status == SG_OK && !p->lacks_version) {
        p->pushed->n_versions = p->n_versions;
        return;
    }
    for (size_t i = 0; i < p->n_versions; i++)
        sg_version_release(versions[i]);
}

static sg_status run(sg_store_push_state *p, sg_error *err)
{
    sg_status status = make_arrays(p, err);
    if (status == SG_OK)
        status = find_items(p, err);
    if (status == SG_OK)
        status = look_at_all(p, err);
    if (status == SG_OK)
        p->copies = p->narrow; /* where it is widened to */
    for (size_t i = 0; i < p->n && status == SG_OK; i++)
        status = sg_store_prepare(p, i, err);
    for (size_t i = 0; i < p->n && status == SG_OK; i++)
        status = p->items[i].refused ? SG_OK : sg_store_contribute(p, i, err);
    end_versions(p, status);
    return status;
}

static void report_refused(const sg_store_push_state *p)
{
    sg_store *store = p->store;
    pthread_mutex_lock(&store->focus_mutex);
    const uint64_t n = sg_log_pace_count(&store->refused_pace, p->now_ms);
    pthread_mutex_unlock(&store->focus_mutex);
    if (n > 0)
        sg_log_info(store->options.log, "contributions_full",
                    "refused=%" PRIu64 " worker=%" PRIu32 " focus=%" PRIu32 " contribution_bytes=%" PRIu64
                    " message=\"asked to send again; the slower workers are waited for\"",
                    n, p->request->worker, p->pushed->focus, store->options.contribution_bytes);
}

sg_status sg_store_push(sg_store *store, uint64_t now_ms, const Shardgrad__V1__PushRequest *request,
                        const sg_store_data *data, sg_store_pushed *pushed, sg_error *err)
{
    sg_store_push_state p = {.store = store,
                             .now_ms = now_ms,
                             .request = request,
                             .data = data,
                             .pushed = pushed,
                             .n = request->n_slices,
                             .narrow = request->dtype == SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_BFLOAT16};
    *pushed = (sg_store_pushed){.wants_versions = pushed->wants_versions};
    for (size_t i = 0; i < data->n_spans; i++)
        p.data_bytes += data->spans[i].n_bytes;
    sg_status status = sg_store_admit_push(&p, err);
    if (status == SG_OK)
        status = check_shape(&p, err);
    if (status == SG_OK)
        status = read_terms(store, request, &p.terms, err);
    if (status != SG_OK)
        return status;
    p.alone = sg_workers_count(&p.terms.members) == 1; /* the sender is a member */
    status = run(&p, err);
    sg_store_end_push(&p);
    sg_pool_free(p.items);
    if (pushed->n_refused > 0) {
        pushed->focus = sg_store_focus_of(store, request->step->group);
        report_refused(&p);
    }
    if (status == SG_OK && pushed->n_refused == 0)
        atomic_fetch_add(&store->n_pushed, 1);
    if (pushed->n_versions > 0)
        atomic_fetch_add(&store->n_pulled, 1);
    return status;
}
