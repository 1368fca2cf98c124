/* worker/client/client_pieces.c - the pieces of end_step: gradients and values of single variables, and of parts of
 * them. */
#include <inttypes.h>

#include "common/clock.h"
#include "worker/client/client_internal.h"

static sg_status variable_check(const sg_client *client, const sg_step *step, uint32_t index, sg_error *err)
{
    const sg_plan *plan = sg_session_plan(client->session);
    if (index >= plan->n_variables)
        return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " does not exist: there are %" PRIu32, index,
                            plan->n_variables);
    const sg_variable *variable = &client->variables[index];
    if (variable->group != step->group)
        return sg_error_set(err, SG_INVALID, "variable '%s' belongs to group %" PRIu32 ", the step to %" PRIu32,
                            variable->name, variable->group, step->group);
    return SG_OK;
}

/* With the lock held: the slices of these variables, freed by sg_pool_free. */
static sg_status slices_of_variables(const sg_client *client, const sg_step *step, const uint32_t *variables, size_t n,
                                     uint32_t **slices, size_t *n_slices, sg_error *err)
{
    const sg_plan *plan = sg_session_plan(client->session);
    if (n > plan->n_variables)
        return sg_error_set(err, SG_INVALID, "%zu variables in the list, %" PRIu32 " in the model", n,
                            plan->n_variables);
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const sg_status status = variable_check(client, step, variables[i], err);
        if (status != SG_OK)
            return status;
        most += plan->variables[variables[i]].n_slices;
    }
    *slices = sg_pool_alloc(client->pool, most * sizeof **slices);
    *n_slices = 0;
    for (size_t i = 0; i < n; i++) {
        const sg_plan_variable *variable = &plan->variables[variables[i]];
        for (uint32_t k = 0; k < variable->n_slices; k++)
            (*slices)[(*n_slices)++] = variable->first_slice + k;
    }
    return SG_OK;
}

static sg_status range_check(const sg_client *client, const sg_step *step, const sg_range *range, sg_error *err)
{
    const sg_status status = variable_check(client, step, range->variable, err);
    if (status != SG_OK)
        return status;
    const sg_plan *plan = sg_session_plan(client->session);
    const uint64_t n = plan->variables[range->variable].n_elems;
    const uint64_t slice_elems = plan->slice_bytes / sizeof(float);
    const uint64_t first = range->first_elem;
    const bool inside = first < n && range->n_elems > 0 && range->n_elems <= n - first;
    const bool cut =
        inside && first % slice_elems == 0 && (first + range->n_elems == n || range->n_elems % slice_elems == 0);
    if (!cut)
        return sg_error_set(err, SG_INVALID,
                            "%" PRIu64 " elements of variable '%s' from %" PRIu64 " on: it has %" PRIu64
                            ", and a part begins and ends at a multiple of %" PRIu64 " or where the variable ends",
                            range->n_elems, client->variables[range->variable].name, first, n, slice_elems);
    return SG_OK;
}

/* The same for parts of variables. */
static sg_status slices_of_ranges(const sg_client *client, const sg_step *step, const sg_range *ranges, size_t n,
                                  uint32_t **slices, size_t *n_slices, sg_error *err)
{
    const sg_plan *plan = sg_session_plan(client->session);
    const uint64_t slice_elems = plan->slice_bytes / sizeof(float);
    size_t most = 0;
    for (size_t i = 0; i < n; i++) {
        const sg_status status = range_check(client, step, &ranges[i], err);
        if (status != SG_OK)
            return status;
        most += (size_t)((ranges[i].n_elems + slice_elems - 1) / slice_elems);
        if (most > plan->n_slices)
            return sg_error_set(err, SG_INVALID, "the parts in the list are more than all variables together");
    }
    *slices = sg_pool_alloc(client->pool, most * sizeof **slices);
    *n_slices = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t first =
            plan->variables[ranges[i].variable].first_slice + (uint32_t)(ranges[i].first_elem / slice_elems);
        const uint32_t n_of_it = (uint32_t)((ranges[i].n_elems + slice_elems - 1) / slice_elems);
        for (uint32_t k = 0; k < n_of_it; k++)
            (*slices)[(*n_slices)++] = first + k;
    }
    return SG_OK;
}

/* Whole variables, or parts of them: one of the lists is NULL. */
typedef struct pieces {
    const uint32_t *variables;
    const sg_range *ranges;
    size_t n; /* in the list */
} pieces;

static sg_status slices_of(const sg_client *client, const sg_step *step, const pieces *p, uint32_t **slices,
                           size_t *n_slices, sg_error *err)
{
    return p->ranges != NULL ? slices_of_ranges(client, step, p->ranges, p->n, slices, n_slices, err)
                             : slices_of_variables(client, step, p->variables, p->n, slices, n_slices, err);
}

/* What the caller says of a step that it sends in pieces is kept for the report when the next one begins. */
static void step_note(sg_client *client, const sg_step *step)
{
    sg_client_group *group = &client->groups[step->group];
    if (group->begun && group->step.number == step->number)
        group->step = *step;
}

/* push: what sends them; NULL: they are pulled. */
static sg_status begin(sg_client *client, const sg_step *step, const pieces *p, sg_client_push_fn push, sg_op **op,
                       sg_error *err)
{
    uint32_t *slices = NULL;
    size_t n = 0;
    sg_client_lock(client);
    sg_status status = sg_client_step_check(client, step, err);
    if (status == SG_OK)
        status = slices_of(client, step, p, &slices, &n, err);
    if (status == SG_OK && push != NULL)
        status = sg_client_push_begin(client, push, step, step->examples, slices, n, op, err);
    else if (status == SG_OK)
        *op = sg_client_pull_begin(client, step->group, step->number + 1, slices, n);
    if (status == SG_OK)
        step_note(client, step);
    sg_client_unlock(client);
    sg_pool_free(slices);
    return status;
}

sg_status sg_client_push(sg_client *client, const sg_step *step, const uint32_t *variables, size_t n_variables,
                         sg_op **op, sg_error *err)
{
    return begin(client, step, &(pieces){.variables = variables, .n = n_variables}, sg_session_push, op, err);
}

sg_status sg_client_push_pull(sg_client *client, const sg_step *step, const uint32_t *variables, size_t n_variables,
                              sg_op **op, sg_error *err)
{
    return begin(client, step, &(pieces){.variables = variables, .n = n_variables}, sg_session_push_pull, op, err);
}

sg_status sg_client_push_pull_ranges(sg_client *client, const sg_step *step, const sg_range *ranges, size_t n_ranges,
                                     sg_op **op, sg_error *err)
{
    return begin(client, step, &(pieces){.ranges = ranges, .n = n_ranges}, sg_session_push_pull, op, err);
}

sg_status sg_client_pull(sg_client *client, const sg_step *step, const uint32_t *variables, size_t n_variables,
                         sg_op **op, sg_error *err)
{
    return begin(client, step, &(pieces){.variables = variables, .n = n_variables}, NULL, op, err);
}
