/* common/plan.c - see plan.h. */
#include "common/plan.h"

#include <inttypes.h>
#include <stdlib.h>

#define ELEM_BYTES sizeof(float)

/* Group numbers must be 0..n-1, each in use, so that arrays by group have no holes. */
static sg_status count_groups(const sg_plan_variable *variables, uint32_t n_variables, uint32_t *n_groups,
                              sg_error *err)
{
    bool *used = sg_xcalloc(n_variables, sizeof *used);
    uint32_t highest = 0;
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < n_variables; i++) {
        if (variables[i].group < n_variables)
            used[variables[i].group] = true;
        if (variables[i].group > highest)
            highest = variables[i].group;
    }
    for (uint32_t group = 0; group <= highest && status == SG_OK; group++) {
        if (group >= n_variables || !used[group])
            status = sg_error_set(err, SG_INVALID,
                                  "group %" PRIu32 " has no variable, but there is a group %" PRIu32
                                  ": number groups from 0 without a gap",
                                  group, highest);
    }
    free(used);
    if (status == SG_OK)
        *n_groups = highest + 1;
    return status;
}

/* Fills in first_slice and n_slices of each variable, and the number of slices, within the bounds. */
static sg_status count_slices(sg_plan *plan, sg_error *err)
{
    uint64_t slice_elems = plan->slice_bytes / ELEM_BYTES;
    uint64_t n_slices = 0, n_bytes = 0, variable_bytes;
    for (uint32_t i = 0; i < plan->n_variables; i++) {
        sg_plan_variable *variable = &plan->variables[i];
        if (variable->n_elems == 0)
            return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " has no elements, wanted at least 1", i);
        if (__builtin_mul_overflow(variable->n_elems, ELEM_BYTES, &variable_bytes) ||
            __builtin_add_overflow(n_bytes, variable_bytes, &n_bytes))
            return sg_error_set(err, SG_EXHAUSTED, "variable %" PRIu32 " has %" PRIu64 " elements: too many", i,
                                variable->n_elems);
        uint64_t own = (variable->n_elems - 1) / slice_elems + 1;
        if (own > SG_PLAN_MAX_SLICES - n_slices)
            return sg_error_set(err, SG_EXHAUSTED,
                                "variable %" PRIu32 " needs %" PRIu64 " slices of %" PRIu64
                                " bytes, and a model may have %u: use a larger slice_bytes",
                                i, own, plan->slice_bytes, SG_PLAN_MAX_SLICES);
        variable->first_slice = (uint32_t)n_slices;
        variable->n_slices = (uint32_t)own;
        n_slices += own;
    }
    plan->n_slices = (uint32_t)n_slices;
    return SG_OK;
}

static void cut_slices(sg_plan *plan)
{
    uint64_t slice_elems = plan->slice_bytes / ELEM_BYTES;
    for (uint32_t i = 0; i < plan->n_variables; i++) {
        const sg_plan_variable *variable = &plan->variables[i];
        for (uint32_t k = 0; k < variable->n_slices; k++) {
            uint64_t first = k * slice_elems;
            uint64_t left = variable->n_elems - first;
            plan->slices[variable->first_slice + k] = (sg_plan_slice){
                .variable = i,
                .group = variable->group,
                .first_elem = first,
                .n_elems = left < slice_elems ? left : slice_elems,
            };
        }
    }
}

/* Linear in the number of ps for each slice: a model of 1 GiB in slices of 1 MiB on 64 ps is 65,536 comparisons. */
static void give_out_slices(sg_plan *plan)
{
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        uint32_t owner = 0;
        for (uint32_t ps = 1; ps < plan->n_ps; ps++) {
            if (plan->ps_bytes[ps] < plan->ps_bytes[owner])
                owner = ps;
        }
        plan->slices[i].ps = owner;
        plan->ps_bytes[owner] += plan->slices[i].n_elems * ELEM_BYTES;
    }
}

static sg_status fill(sg_plan *plan, const sg_plan_variable *variables, sg_error *err)
{
    sg_status status = count_groups(variables, plan->n_variables, &plan->n_groups, err);
    if (status != SG_OK)
        return status;
    plan->variables = sg_xcalloc(plan->n_variables, sizeof *plan->variables);
    for (uint32_t i = 0; i < plan->n_variables; i++)
        plan->variables[i] = (sg_plan_variable){.n_elems = variables[i].n_elems, .group = variables[i].group};
    if ((status = count_slices(plan, err)) != SG_OK)
        return status;
    plan->slices = sg_try_alloc_aligned(plan->n_slices * sizeof *plan->slices);
    if (plan->slices == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for a plan of %" PRIu32 " slices", plan->n_slices);
    plan->ps_bytes = sg_xcalloc(plan->n_ps, sizeof *plan->ps_bytes);
    cut_slices(plan);
    give_out_slices(plan);
    return SG_OK;
}

sg_status sg_plan_create(const sg_plan_variable *variables, uint32_t n_variables, uint32_t n_ps, uint64_t slice_bytes,
                         sg_plan **plan, sg_error *err)
{
    if (n_variables == 0)
        return sg_error_set(err, SG_INVALID, "no variables were given, wanted at least 1");
    if (n_variables > SG_PLAN_MAX_VARIABLES)
        return sg_error_set(err, SG_EXHAUSTED, "%" PRIu32 " variables were given, wanted at most %u", n_variables,
                            SG_PLAN_MAX_VARIABLES);
    if (n_ps == 0)
        return sg_error_set(err, SG_INVALID, "a plan for 0 ps was asked for, wanted at least 1");
    if (n_ps > SG_PLAN_MAX_PS)
        return sg_error_set(err, SG_EXHAUSTED, "a plan for %" PRIu32 " ps was asked for, wanted at most %u", n_ps,
                            SG_PLAN_MAX_PS);
    if (slice_bytes == 0 || slice_bytes % 64 != 0)
        return sg_error_set(err, SG_INVALID, "slice_bytes is %" PRIu64 ", wanted a positive multiple of 64",
                            slice_bytes);
    sg_plan *made = sg_xcalloc(1, sizeof *made);
    made->n_ps = n_ps;
    made->slice_bytes = slice_bytes;
    made->n_variables = n_variables;
    sg_status status = fill(made, variables, err);
    if (status != SG_OK) {
        sg_plan_destroy(made);
        return status;
    }
    *plan = made;
    return SG_OK;
}

void sg_plan_destroy(sg_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->variables);
    free(plan->slices);
    free(plan->ps_bytes);
    free(plan);
}
