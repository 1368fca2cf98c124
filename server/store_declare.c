/* Variables become slices. Everything here comes from the wire: sizes are bounded before they are used. Memory for
 * values (two versions) and slots comes later, slice by slice, with the initial values: to fill it all at once would
 * hold up the ps for longer than a lease. */
#include "server/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/declared.h"

static void slice_deinit(sg_store *store, sg_store_slice *slice)
{
    for (uint32_t i = 0; i < slice->n_parts; i++)
        sg_store_part_deinit(store, &slice->parts[i]);
    for (sg_version *version = slice->older, *next; version; version = next) {
        next = version->next;
        sg_version_release(version);
    }
    sg_store_cut_free(slice);
    sg_store_norms_drop(slice);
    sg_store_cut_release_reserve(slice);
    sg_version_release(slice->initial);
    sg_version_release(slice->newest);
    sg_version_release(slice->spare);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        free(slice->slots[i]);
    free(slice->parts);
    sg_round_deinit(&slice->round);
    pthread_mutex_destroy(&slice->mutex);
}

void sg_store_free_variables(sg_store *store)
{
    for (uint32_t i = 0; i < store->n_slices; i++)
        slice_deinit(store, &store->slices[i]);
    free(store->slices);
    free(store->places);
    for (uint32_t i = 0; store->plan && store->variables && i < store->plan->n_variables; i++)
        free(store->variables[i].name);
    free(store->variables);
    sg_plan_destroy(store->plan);
    store->slices = NULL;
    store->places = NULL;
    store->n_slices = 0;
    store->variables = NULL;
    store->plan = NULL;
    store->value_bytes = store->slot_bytes = 0;
}

static sg_status count_elems(const Shardgrad__V1__Variable *variable, uint64_t *n_elems, sg_error *err)
{
    if (variable->n_shape > SG_DECLARED_MAX_RANK)
        return sg_error_set(err, SG_INVALID, "variable '%s' has %zu dimensions; at most %u are allowed", variable->name,
                            variable->n_shape, SG_DECLARED_MAX_RANK);
    uint64_t product = 1;
    for (size_t i = 0; i < variable->n_shape; i++) {
        if (variable->shape[i] == 0 || product > (UINT64_MAX >> 16) / variable->shape[i])
            return sg_error_set(err, SG_INVALID, "variable '%s': dimension %zu is %" PRIu64 ": %s", variable->name, i,
                                variable->shape[i], variable->shape[i] == 0 ? "want at least 1" : "too many elements");
        product *= variable->shape[i];
    }
    *n_elems = product;
    return SG_OK;
}

static sg_status check_variable(const Shardgrad__V1__Variable *variable, size_t index, sg_error *err)
{
    size_t name_bytes = strlen(variable->name);
    if (name_bytes == 0 || name_bytes > SG_DECLARED_NAME_BYTES)
        return sg_error_set(err, SG_INVALID, "variable %zu: its name has %zu bytes; want 1 to %u", index, name_bytes,
                            SG_DECLARED_NAME_BYTES);
    sg_status status = sg_store_check_dtype(variable->dtype, err);
    if (status != SG_OK)
        return sg_error_prefix(err, status, "variable '%s'", variable->name);
    if (!isfinite(sg_declared_lr_multiplier(variable)) || !isfinite(sg_declared_decay_multiplier(variable)))
        return sg_error_set(err, SG_INVALID, "variable '%s': a multiplier is not finite", variable->name);
    return SG_OK;
}

static sg_status make_plan(const Shardgrad__V1__PsDeclareRequest *request, sg_plan **plan, sg_error *err)
{
    if (request->n_variables == 0 || request->n_variables > SG_PLAN_MAX_VARIABLES)
        return sg_error_set(err, SG_INVALID, "%zu variables were declared; want 1 to %u", request->n_variables,
                            SG_PLAN_MAX_VARIABLES);
    sg_plan_variable *variables = sg_xcalloc(request->n_variables, sizeof *variables);
    sg_status status = SG_OK;
    for (size_t i = 0; i < request->n_variables && status == SG_OK; i++) {
        status = check_variable(request->variables[i], i, err);
        if (status == SG_OK)
            status = count_elems(request->variables[i], &variables[i].n_elems, err);
        variables[i].group = request->variables[i]->group;
    }
    if (status == SG_OK)
        status =
            sg_plan_create(variables, (uint32_t)request->n_variables, request->n_ps, request->slice_bytes, plan, err);
    free(variables);
    return status;
}

static void copy_variables(sg_store *store, const sg_store_way *way, const Shardgrad__V1__PsDeclareRequest *request)
{
    store->variables = sg_xcalloc(request->n_variables, sizeof *store->variables);
    for (size_t i = 0; i < request->n_variables; i++) {
        const Shardgrad__V1__Variable *from = request->variables[i];
        sg_store_variable *to = &store->variables[i];
        to->name = sg_xstrdup(from->name);
        to->frozen = from->frozen;
        to->average = from->average;
        to->exempt = from->n_shape <= 1;
        atomic_init(&to->rule, (int)(from->average ? SG_RULE_AVERAGE : way->rule));
        to->lr_multiplier = sg_declared_lr_multiplier(from);
        to->decay_multiplier = sg_declared_decay_multiplier(from);
    }
}

size_t sg_store_n_slots(const sg_store_slice *slice)
{
    return slice->variable->frozen ? 0 : sg_update_slots(sg_store_variable_rule(slice->variable));
}

void sg_store_renew_round(const sg_store_way *way, sg_store_slice *slice)
{
    sg_round_deinit(&slice->round);
    sg_round_init(&slice->round, way->mode != SG_MODE_SYNC);
    slice->round.backup = (uint32_t)way->backup_workers;
}

static void slice_init(sg_store *store, sg_store_slice *slice, uint32_t index, const sg_store_way *way)
{
    const sg_plan_slice *planned = &store->plan->slices[index];
    *slice = (sg_store_slice){.index = index,
                              .group = planned->group,
                              .n_elems = planned->n_elems,
                              .variable = &store->variables[planned->variable]};
    pthread_mutex_init(&slice->mutex, NULL);
    sg_store_renew_round(way, slice);
    uint64_t n_bytes = slice->n_elems * sizeof(float);
    store->value_bytes += n_bytes;
    store->slot_bytes += n_bytes * sg_store_n_slots(slice);
}

static sg_status make_slices(sg_store *store, const sg_store_way *way, sg_error *err)
{
    uint32_t n_owned = 0, n_all = store->plan->n_slices;
    uint32_t *n_before = sg_xcalloc(store->plan->n_groups, sizeof *n_before);
    for (uint32_t i = 0; i < n_all; i++)
        n_owned += store->plan->slices[i].ps == store->options.ps;
    store->slices = sg_try_alloc_aligned((n_owned > 0 ? n_owned : 1) * sizeof *store->slices);
    store->places = sg_try_alloc_aligned(n_all * sizeof *store->places);
    bool complete = store->slices && store->places;
    for (uint32_t i = 0; i < n_all && complete; i++) {
        bool owned = store->plan->slices[i].ps == store->options.ps;
        store->places[i] = owned ? store->n_slices : UINT32_MAX;
        if (!owned)
            continue;
        sg_store_slice *slice = &store->slices[store->n_slices++];
        slice_init(store, slice, i, way);
        slice->place_in_group = n_before[slice->group];
        n_before[slice->group] += sg_store_is_trained(slice->variable);
    }
    free(n_before);
    return complete ? SG_OK : sg_error_set(err, SG_EXHAUSTED, "no memory for %" PRIu32 " slices", n_owned);
}

/* A coordinator that was started anew, or a generation that begins, says it again: it must be the same. */
static sg_status check_same(const sg_store *store, const Shardgrad__V1__PsDeclareRequest *request, sg_error *err)
{
    sg_plan *plan = NULL;
    sg_status status = make_plan(request, &plan, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(plan != NULL);
    const sg_plan *known = store->plan;
    bool same =
        plan->n_variables == known->n_variables && plan->n_ps == known->n_ps && plan->slice_bytes == known->slice_bytes;
    for (size_t i = 0; i < request->n_variables && same; i++) {
        const Shardgrad__V1__Variable *variable = request->variables[i];
        const sg_store_variable *kept = &store->variables[i];
        same = strcmp(variable->name, kept->name) == 0 && variable->frozen == kept->frozen &&
               variable->average == kept->average && (variable->n_shape <= 1) == kept->exempt &&
               !(sg_declared_lr_multiplier(variable) < kept->lr_multiplier) &&
               !(sg_declared_lr_multiplier(variable) > kept->lr_multiplier) &&
               !(sg_declared_decay_multiplier(variable) < kept->decay_multiplier) &&
               !(sg_declared_decay_multiplier(variable) > kept->decay_multiplier) &&
               plan->variables[i].n_elems == known->variables[i].n_elems &&
               plan->variables[i].group == known->variables[i].group;
    }
    sg_plan_destroy(plan);
    return same ? SG_OK
                : sg_error_set(err, SG_MISMATCH,
                               "other variables are declared than ps %" PRIu32 " has: start it anew, or all of the job",
                               store->options.ps);
}

static sg_status make_variables(sg_store *store, const sg_store_way *way,
                                const Shardgrad__V1__PsDeclareRequest *request, sg_error *err)
{
    if (store->options.ps >= request->n_ps)
        return sg_error_set(err, SG_INVALID, "the plan is for %" PRIu32 " ps; this is ps %" PRIu32, request->n_ps,
                            store->options.ps);
    sg_plan *plan = NULL;
    sg_status status = make_plan(request, &plan, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(plan != NULL);
    store->plan = plan;
    copy_variables(store, way, request);
    status = make_slices(store, way, err);
    if (status != SG_OK)
        sg_store_free_variables(store);
    return status;
}

/* --- the way of the generation --- */

sg_store_way sg_store_way_of_now(const sg_store *store)
{
    return (sg_store_way){.mode = sg_store_is_sync(store) ? SG_MODE_SYNC : SG_MODE_ASYNC,
                          .rule = sg_store_rule(store),
                          .backup_workers = store->backup_workers};
}

static void set_way(sg_store *store, const sg_store_way *way)
{
    atomic_store(&store->mode, (int)way->mode);
    atomic_store(&store->rule, (int)way->rule);
    store->backup_workers = way->backup_workers;
}

static sg_status read_way(const sg_store *store, const Shardgrad__V1__PsDeclareRequest *request, sg_store_way *way,
                          sg_error *err)
{
    *way = sg_store_way_of_now(store);
    if (request->mode == SHARDGRAD__V1__MODE__MODE_UNSPECIFIED)
        return SG_OK;
    if (request->mode != SHARDGRAD__V1__MODE__MODE_SYNC && request->mode != SHARDGRAD__V1__MODE__MODE_ASYNC &&
        request->mode != SHARDGRAD__V1__MODE__MODE_SSP)
        return sg_error_set(err, SG_INVALID, "mode %d is unknown to ps %" PRIu32 ": run the same version everywhere",
                            (int)request->mode, store->options.ps);
    way->mode = request->mode == SHARDGRAD__V1__MODE__MODE_SYNC ? SG_MODE_SYNC : SG_MODE_ASYNC;
    way->backup_workers = request->backup_workers < SG_MAX_WORKERS ? request->backup_workers : SG_MAX_WORKERS;
    if (!sg_rule_from_name(request->rule, &way->rule))
        return sg_error_set(err, SG_INVALID,
                            "update rule '%.40s' is unknown to ps %" PRIu32 ": run the same version everywhere",
                            request->rule, store->options.ps);
    if (way->mode != SG_MODE_SYNC && sg_update_scales_variables(way->rule))
        return sg_error_set(err, SG_INVALID, "update rule '%s' takes norms of whole variables, which only sync has",
                            request->rule);
    return SG_OK;
}

/* Slots of another rule are made anew with the values. The lock of the store is held for all of it; but one who was let
 * in before has the slice's alone to wait for, and need not wait for memory to be given back. */
static void renew_slice(const sg_store_way *way, sg_store_slice *slice, bool other_rule)
{
    float *slots[SG_UPDATE_MAX_SLOTS] = {NULL};
    pthread_mutex_lock(&slice->mutex);
    sg_store_renew_round(way, slice);
    if (other_rule) {
        memcpy(slots, slice->slots, sizeof slots);
        memset(slice->slots, 0, sizeof slots);
    }
    pthread_mutex_unlock(&slice->mutex);
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        free(slots[i]);
}

/* A generation begins that goes another way: what there is of slices is empty. */
static sg_status renew(sg_store *store, const sg_store_way *way, const Shardgrad__V1__PsDeclareRequest *request,
                       sg_error *err)
{
    const sg_store_way before = sg_store_way_of_now(store);
    const bool other_rule = way->rule != before.rule;
    sg_status status = check_same(store, request, err);
    if (status != SG_OK || (way->mode == before.mode && !other_rule && way->backup_workers == before.backup_workers))
        return status;
    if (store->committed || store->attempt != 0)
        return sg_error_set(err, SG_INVALID, "another mode or rule is declared while there are values");
    for (uint32_t i = 0; i < store->plan->n_variables; i++) {
        if (!store->variables[i].average)
            atomic_store(&store->variables[i].rule, (int)way->rule);
    }
    store->slot_bytes = 0;
    for (uint32_t i = 0; i < store->n_slices; i++) {
        renew_slice(way, &store->slices[i], other_rule);
        store->slot_bytes += store->slices[i].n_elems * sizeof(float) * sg_store_n_slots(&store->slices[i]);
    }
    return SG_OK;
}

sg_status sg_store_set_variables(sg_store *store, const Shardgrad__V1__PsDeclareRequest *request, sg_error *err)
{
    sg_store_way way;
    sg_status status = read_way(store, request, &way, err);
    if (status == SG_OK)
        status = store->plan ? renew(store, &way, request, err) : make_variables(store, &way, request, err);
    if (status == SG_OK) /* what was refused was never to be seen */
        set_way(store, &way);
    return status;
}
