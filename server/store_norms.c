/* Rounds that close in two phases, because the update takes the norm of a whole gradient or variable.
 *
 * Each slice closes its round as any other, but the pass makes no new values: it makes the mean (lamb: the direction),
 * which is kept with the slice, and the sums of its squares. When the last slice of the group that this ps owns has got
 * so far, on_norms asks the coordinator, which adds what all ps have in the order of the plan; with its answer the
 * second phase makes the new values, and the rounds are closed. Nobody can push the next step of the group before that,
 * so that a group has one exchange under way at a time. A slice that nobody contributed to waits with the others. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of(const sg_store_slice *slice, uint32_t group)
{
    return slice->group == group && sg_store_is_trained(slice->variable);
}

/* --- what this ps has --- */

/* Under norms_mutex. */
static sg_store_exchange *exchange_of(sg_store *store, uint32_t group)
{
    if (store->n_exchanges == 0) {
        store->exchanges = sg_xcalloc(store->plan->n_groups, sizeof *store->exchanges);
        store->n_exchanges = store->plan->n_groups;
    }
    return &store->exchanges[group];
}

/* Under norms_mutex. */
static void begin(sg_store *store, uint32_t group, uint64_t step, sg_store_exchange *exchange)
{
    if (!exchange->squares) {
        for (uint32_t i = 0; i < store->n_slices; i++)
            exchange->n_slices += is_of(&store->slices[i], group);
        exchange->squares = sg_xcalloc(exchange->n_slices, 2 * sizeof *exchange->squares);
    }
    exchange->number = ++store->exchange_number;
    exchange->step = step;
    exchange->n_lacking = exchange->n_slices;
    exchange->waits_for[0] = '\0';
}

/* The number of the exchange; 0: the group is at another step still, because somebody pushed slices of two. */
static uint64_t join(sg_store *store, uint32_t group, uint64_t step)
{
    pthread_mutex_lock(&store->norms_mutex);
    sg_store_exchange *exchange = exchange_of(store, group);
    if (exchange->number == 0)
        begin(store, group, step, exchange);
    const uint64_t number = exchange->step == step ? exchange->number : 0;
    pthread_mutex_unlock(&store->norms_mutex);
    return number;
}

/* All is here: who can ask, asks. Nothing of a generation that has passed is said in the next. */
static void ask(sg_store *store, uint32_t group, uint64_t number)
{
    pthread_rwlock_rdlock(&store->lock);
    sg_store_norms norms = {.number = number, .generation = store->generation, .group = group};
    const bool passes = store->beginning;
    pthread_rwlock_unlock(&store->lock);
    pthread_mutex_lock(&store->norms_mutex);
    sg_store_exchange *exchange = exchange_of(store, group);
    const bool goes_on = exchange->number == number && !passes;
    if (goes_on) {
        norms.step = exchange->step;
        norms.n_squares = 2 * (size_t)exchange->n_slices;
        norms.squares = sg_xcalloc(norms.n_squares, sizeof *norms.squares);
        memcpy(norms.squares, exchange->squares, norms.n_squares * sizeof *norms.squares);
    }
    pthread_mutex_unlock(&store->norms_mutex);
    if (goes_on && store->options.on_norms)
        store->options.on_norms(store->options.cut_user, &norms);
    free(norms.squares);
}

/* No client of ours does it. The round stays closing for ever, and the job has failed. */
static void fail(sg_store *store, const sg_store_slice *slice, uint64_t step)
{
    char message[SG_ERROR_MESSAGE_BYTES];
    snprintf(message, sizeof message,
             "ps %" PRIu32 ": step %" PRIu64 " of slice %" PRIu32
             " was pushed before the values of the step before were "
             "there, or with other hyper-parameters than the rest of its group",
             store->options.ps, step, slice->index);
    sg_log_error(store->options.log, "steps_differ", "slice=%" PRIu32 " step=%" PRIu64, slice->index, step);
    sg_store_fail_pulls(store, SG_INVALID, message);
}

void sg_store_norms_add(sg_store *store, sg_store_slice *slice, uint64_t step, const sg_store_first_phase *first)
{
    const uint64_t number = join(store, slice->group, step);
    if (number == 0) {
        fail(store, slice, step);
        sg_version_release(first->between.made);
        return;
    }
    pthread_mutex_lock(&slice->mutex);
    slice->between = first->between; /* before anybody can answer */
    slice->between.exchange = number;
    pthread_mutex_unlock(&slice->mutex);
    pthread_mutex_lock(&store->norms_mutex);
    sg_store_exchange *exchange = exchange_of(store, slice->group);
    bool is_last = false;
    if (exchange->number == number) {
        double *squares = exchange->squares + 2 * (size_t)slice->place_in_group;
        squares[0] = first->squares.values;
        squares[1] = first->squares.made;
        is_last = --exchange->n_lacking == 0;
    }
    pthread_mutex_unlock(&store->norms_mutex);
    if (is_last)
        ask(store, slice->group, number);
}

void sg_store_norms_drop(sg_store_slice *slice)
{
    if (slice->between.exchange != 0)
        sg_version_release(slice->between.made);
    slice->between.exchange = 0;
    slice->between.made = NULL;
}

void sg_store_norms_forget(sg_store *store)
{
    pthread_mutex_lock(&store->norms_mutex);
    for (size_t i = 0; i < store->n_exchanges; i++)
        store->exchanges[i].number = 0;
    pthread_mutex_unlock(&store->norms_mutex);
}

void sg_store_norms_deinit(sg_store *store)
{
    for (size_t i = 0; i < store->n_exchanges; i++)
        free(store->exchanges[i].squares);
    free(store->exchanges);
    pthread_mutex_destroy(&store->norms_mutex);
}

/* --- what all have --- */

static sg_status check_sums(const sg_store *store, const sg_store_norms_sums *sums, sg_error *err)
{
    size_t n_wanted = 0;
    for (uint32_t i = 0; i < store->plan->n_variables && sg_update_scales_variables(sg_store_rule(store)); i++)
        n_wanted +=
            2 * (size_t)(sg_store_is_trained(&store->variables[i]) && store->plan->variables[i].group == sums->group);
    if (sums->n_variables == n_wanted)
        return SG_OK;
    return sg_error_set(err, SG_INVALID, "norms of group %" PRIu32 " came with %zu sums of variables, want %zu",
                        sums->group, sums->n_variables, n_wanted);
}

/* Where the sums of a variable are; slices ascend. */
typedef struct cursor {
    uint32_t variable;
    size_t at;
} cursor;

static sg_update_squares_of sums_of(const sg_store *store, const sg_store_norms_sums *sums, cursor *c,
                                    const sg_store_slice *slice)
{
    for (; &store->variables[c->variable] != slice->variable; c->variable++) {
        if (sg_store_is_trained(&store->variables[c->variable]) &&
            store->plan->variables[c->variable].group == sums->group)
            c->at += 2;
    }
    if (sums->n_variables == 0)
        return (sg_update_squares_of){0};
    return (sg_update_squares_of){.values = sums->variables[c->at], .made = sums->variables[c->at + 1]};
}

/* Takes what the slice waits with. False: it does not wait for this. */
static bool take(sg_store_slice *slice, uint64_t number, sg_store_between *between)
{
    pthread_mutex_lock(&slice->mutex);
    const bool waits = slice->between.exchange == number;
    if (waits) {
        *between = slice->between;
        slice->between.exchange = 0;
        slice->between.made = NULL;
    }
    pthread_mutex_unlock(&slice->mutex);
    return waits;
}

sg_status sg_store_norms_answer(sg_store *store, uint64_t now_ms, const sg_store_norms_sums *sums, sg_error *err)
{
    sg_status status = SG_OK;
    if (sums->group >= store->plan->n_groups)
        return sg_error_set(err, SG_INVALID, "norms of group %" PRIu32 " came; there are %" PRIu32, sums->group,
                            store->plan->n_groups);
    pthread_mutex_lock(&store->norms_mutex);
    sg_store_exchange *exchange = exchange_of(store, sums->group);
    /* What is not awaited any more may be of another rule than that of now. */
    const bool is_awaited = exchange->number == sums->number;
    if (is_awaited)
        status = check_sums(store, sums, err);
    if (is_awaited && status == SG_OK)
        exchange->number = 0; /* the next step may begin with the first slice */
    pthread_mutex_unlock(&store->norms_mutex);
    if (status != SG_OK)
        return status;
    cursor c = {0};
    for (uint32_t i = 0; i < store->n_slices && is_awaited; i++) {
        sg_store_slice *slice = &store->slices[i];
        sg_store_between between;
        if (!is_of(slice, sums->group))
            continue;
        const sg_update_squares_of variable = sums_of(store, sums, &c, slice);
        if (take(slice, sums->number, &between))
            sg_store_close_second(store, now_ms, slice, &between, &variable, sums->squares);
    }
    return SG_OK;
}

/* --- who is waited for --- */

void sg_store_norms_wait(sg_store *store, uint32_t group, uint64_t number, const char *text)
{
    pthread_mutex_lock(&store->norms_mutex);
    if (group < store->n_exchanges && store->exchanges[group].number == number)
        snprintf(store->exchanges[group].waits_for, sizeof store->exchanges[group].waits_for, "%s", text);
    pthread_mutex_unlock(&store->norms_mutex);
}

/* One of the same group that still collects. */
static sg_store_slice *find_lacking(sg_store *store, uint32_t group, uint64_t step)
{
    for (uint32_t i = 0; i < store->n_slices; i++) {
        sg_store_slice *slice = &store->slices[i];
        if (!is_of(slice, group))
            continue;
        pthread_mutex_lock(&slice->mutex);
        const bool lacks = slice->round.step == step && !slice->round.closing;
        pthread_mutex_unlock(&slice->mutex);
        if (lacks)
            return slice;
    }
    return NULL;
}

bool sg_store_norms_describe(sg_store *store, sg_store_slice *slice, char *out, size_t out_bytes)
{
    pthread_mutex_lock(&slice->mutex);
    const bool is_between = slice->between.exchange != 0;
    const uint64_t step = slice->round.step;
    pthread_mutex_unlock(&slice->mutex);
    if (!is_between)
        return false;
    sg_store_slice *lacking = find_lacking(store, slice->group, step);
    if (lacking) {
        sg_store_describe_wait(store, lacking, step + 1, out, out_bytes);
        return true;
    }
    pthread_mutex_lock(&store->norms_mutex);
    const sg_store_exchange *exchange = exchange_of(store, slice->group);
    if (exchange->waits_for[0] != '\0')
        snprintf(out, out_bytes, "%s", exchange->waits_for);
    else
        snprintf(out, out_bytes, "waiting for ps 0 to add up the norms of group %" PRIu32 ", step %" PRIu64,
                 slice->group, step);
    pthread_mutex_unlock(&store->norms_mutex);
    return true;
}
