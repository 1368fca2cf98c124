/* server/coordinator_norms.c - norms of a whole gradient or variable, of which every ps has a part: each says what it
 * has of a step, and is answered when all have, with sums that were added in the order of the plan.
 *
 * No ps closes a step of a group before it has the sums, and nobody pushes the next step before all have closed it; so
 * of each group one step is collected at a time, and it is enough to remember the one before for those whose answer was
 * lost. */
#include <stdlib.h>

#include "common/plan.h"
#include "common/wire.h"
#include "kernels/update_norms.h"
#include "server/coordinator_internal.h"

/* Pairs of sums that fit into a message, beside what else it says. */
#define MAX_PAIRS ((SG_WIRE_HEAD_BYTES - 4096u) / (2 * (uint32_t)sizeof(double)))

struct sg_coordinator_norms {
    bool collects; /* `step`, from here on: */
    uint64_t step;
    double *squares; /* [2 * plan->n_slices] those of the group's slices are meant */
    bool *has;       /* [n_ps] what it has, or it owns none of them */
    uint32_t n_lacking;
    bool complete; /* one is, the newest: */
    uint64_t complete_step;
    double sum;
    double *variables; /* [n_variables] */
    size_t n_variables;
};

/* --- made and dropped ------------------------------------------------------------------------------------------- */

static bool is_trained(const Shardgrad__V1__Variable *variable)
{
    return !variable->frozen && !variable->average;
}

static bool takes_part(const sg_coordinator *c, uint32_t variable, uint32_t group)
{
    const Shardgrad__V1__Variable *v = c->variables->variables[variable];
    return v->group == group && is_trained(v);
}

/* Of one group: slices of a ps, which are what it says in one message, and variables, which are what it is told. */
static sg_status check_group(const Shardgrad__V1__DeclareRequest *declared, const sg_plan *plan, uint32_t group,
                             sg_error *err)
{
    uint32_t *n_slices = sg_xcalloc(plan->n_ps, sizeof *n_slices), n_variables = 0;
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < plan->n_variables; i++)
        n_variables += plan->variables[i].group == group && is_trained(declared->variables[i]);
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        const sg_plan_slice *slice = &plan->slices[i];
        n_slices[slice->ps] += slice->group == group && is_trained(declared->variables[slice->variable]);
    }
    for (uint32_t ps = 0; ps < plan->n_ps && status == SG_OK; ps++) {
        if (n_slices[ps] > MAX_PAIRS)
            status = sg_error_set(err, SG_CONFIG,
                                  "ps %" PRIu32 " has %" PRIu32 " slices of group %" PRIu32 ", and where update.rule "
                                  "is lars or lamb, or update.clip_global_norm is set, it may have %u: use a larger "
                                  "slice_bytes, or more ps",
                                  ps, n_slices[ps], group, MAX_PAIRS);
    }
    if (status == SG_OK && n_variables > MAX_PAIRS)
        status = sg_error_set(err, SG_CONFIG,
                              "group %" PRIu32 " has %" PRIu32 " variables, and where update.rule is lars or lamb, or "
                              "update.clip_global_norm is set, it may have %u: declare fewer",
                              group, n_variables, MAX_PAIRS);
    free(n_slices);
    return status;
}

static bool takes(const sg_config *config)
{
    return config->update.mode == SG_MODE_SYNC &&
           (sg_update_scales_variables(config->update.rule) || config->update.clip_global_norm > 0);
}

sg_status sg_coordinator_norms_fit(const Shardgrad__V1__DeclareRequest *declared, const sg_plan *plan,
                                   const sg_config *config, sg_error *err)
{
    sg_status status = SG_OK;
    for (uint32_t group = 0; group < plan->n_groups && takes(config) && status == SG_OK; group++)
        status = check_group(declared, plan, group, err);
    return status;
}

sg_status sg_coordinator_norms_check(const sg_coordinator *c, const sg_config *config, sg_error *err)
{
    if (c->variables == NULL || !takes(config))
        return SG_OK;
    sg_plan *plan = NULL;
    sg_status status = sg_coordinator_variables_plan(c, c->variables, &plan, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(plan != NULL);
    status = sg_coordinator_norms_fit(c->variables, plan, config, err);
    sg_plan_destroy(plan);
    return status;
}

static sg_coordinator_norms *norms_of(sg_coordinator *c, uint32_t group)
{
    if (c->plan == NULL) {
        sg_status status = sg_coordinator_variables_plan(c, c->variables, &c->plan, NULL);
        SG_ASSERT(status == SG_OK &&
                  c->plan != NULL); /* sg_coordinator_variables_fit has made it, of a manifest's variables, too */
    }
    if (c->norms == NULL)
        c->norms = sg_xcalloc(SG_COORDINATOR_MAX_GROUPS, sizeof *c->norms);
    sg_coordinator_norms *norms = &c->norms[group];
    if (norms->squares == NULL) {
        norms->squares = sg_xcalloc(c->plan->n_slices, 2 * sizeof *norms->squares);
        norms->has = sg_xcalloc(c->n_ps, sizeof *norms->has);
        norms->variables = sg_xcalloc(c->plan->n_variables, 2 * sizeof *norms->variables);
    }
    return norms;
}

void sg_coordinator_norms_forget(sg_coordinator *c)
{
    for (uint32_t group = 0; c->norms != NULL && group < SG_COORDINATOR_MAX_GROUPS; group++)
        c->norms[group].collects = c->norms[group].complete = false;
}

void sg_coordinator_norms_deinit(sg_coordinator *c)
{
    for (uint32_t group = 0; c->norms != NULL && group < SG_COORDINATOR_MAX_GROUPS; group++) {
        free(c->norms[group].squares);
        free(c->norms[group].has);
        free(c->norms[group].variables);
    }
    free(c->norms);
    sg_plan_destroy(c->plan);
}

/* --- collected -------------------------------------------------------------------------------------------------- */

/* Errors: INVALID. */
static sg_status check_squares(sg_coordinator *c, const Shardgrad__V1__NormsRequest *request, sg_error *err)
{
    size_t n_wanted = 0;
    for (uint32_t i = 0; i < c->plan->n_slices; i++) {
        const sg_plan_slice *slice = &c->plan->slices[i];
        n_wanted += 2 * (size_t)(slice->ps == request->ps && takes_part(c, slice->variable, request->group));
    }
    if (request->n_squares == n_wanted && n_wanted > 0)
        return SG_OK;
    return sg_error_set(err, SG_INVALID, "ps %" PRIu32 " gave %zu sums of squares of group %" PRIu32 ", wanted %zu",
                        request->ps, request->n_squares, request->group, n_wanted);
}

/* Errors: INVALID, FENCED, ROLLED_BACK, LATE. */
static sg_status check(sg_coordinator *c, const Shardgrad__V1__NormsRequest *request, sg_error *err)
{
    if (request->ps >= c->n_ps)
        return sg_error_set(err, SG_INVALID, "there is no ps %" PRIu32 ", but %" PRIu32 " ps", request->ps, c->n_ps);
    if (request->generation != c->generation)
        return sg_error_set(err, SG_ROLLED_BACK, "generation %" PRIu64 " has passed, the job is in %" PRIu64,
                            request->generation, c->generation);
    if (request->life != c->ps[request->ps].life)
        return sg_error_set(err, SG_FENCED, "another life of ps %" PRIu32 " has its index", request->ps);
    if (c->variables == NULL || request->group >= c->n_groups || sg_coordinator_is_async(c))
        return sg_error_set(err, SG_INVALID, "ps %" PRIu32 " gave norms of group %" PRIu32 ", of which none are wanted",
                            request->ps, request->group);
    const sg_coordinator_norms *norms = norms_of(c, request->group);
    sg_status status = check_squares(c, request, err);
    if (status != SG_OK)
        return status;
    if (norms->complete && request->step < norms->complete_step)
        return sg_error_set(err, SG_LATE, "step %" PRIu64 " of group %" PRIu32 " has passed", request->step,
                            request->group);
    if (norms->collects && request->step > norms->step)
        return sg_error_set(err, SG_INVALID,
                            "ps %" PRIu32 " gave norms of group %" PRIu32 ", step %" PRIu64 ", before step %" PRIu64
                            " was complete",
                            request->ps, request->group, request->step, norms->step);
    return SG_OK;
}

static void begin(sg_coordinator *c, sg_coordinator_norms *norms, uint32_t group, uint64_t step)
{
    norms->collects = true;
    norms->step = step;
    norms->n_lacking = 0;
    for (uint32_t ps = 0; ps < c->n_ps; ps++)
        norms->has[ps] = true;
    for (uint32_t i = 0; i < c->plan->n_slices; i++) {
        const sg_plan_slice *slice = &c->plan->slices[i];
        if (!takes_part(c, slice->variable, group) || !norms->has[slice->ps])
            continue;
        norms->has[slice->ps] = false;
        norms->n_lacking++;
    }
}

static void take(const sg_coordinator *c, sg_coordinator_norms *norms, const Shardgrad__V1__NormsRequest *request)
{
    size_t at = 0;
    for (uint32_t i = 0; i < c->plan->n_slices; i++) {
        const sg_plan_slice *slice = &c->plan->slices[i];
        if (slice->ps != request->ps || !takes_part(c, slice->variable, request->group))
            continue;
        norms->squares[2 * (size_t)i] = request->squares[at++];
        norms->squares[2 * (size_t)i + 1] = request->squares[at++];
    }
    norms->has[request->ps] = true;
    norms->n_lacking--;
}

static void add_up(const sg_coordinator *c, sg_coordinator_norms *norms, uint32_t group)
{
    norms->collects = false;
    norms->complete = true;
    norms->complete_step = norms->step;
    norms->sum = 0;
    norms->n_variables = 0;
    for (uint32_t v = 0; v < c->plan->n_variables; v++) {
        const sg_plan_variable *variable = &c->plan->variables[v];
        double values = 0, made = 0;
        if (!takes_part(c, v, group))
            continue;
        for (uint32_t k = 0; k < variable->n_slices; k++) {
            const double *squares = norms->squares + 2 * ((size_t)variable->first_slice + k);
            values += squares[0];
            made += squares[1];
            norms->sum += squares[1];
        }
        norms->variables[norms->n_variables++] = values;
        norms->variables[norms->n_variables++] = made;
    }
}

void sg_coordinator_norms_ask(sg_coordinator *c, const Shardgrad__V1__NormsRequest *request, void *call)
{
    sg_error err;
    if (!sg_coordinator_takes(c, call, c->n_workers))
        return;
    if (check(c, request, &err) != SG_OK) {
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    sg_coordinator_norms *norms = norms_of(c, request->group);
    const bool is_over = norms->complete && norms->complete_step == request->step;
    if (!is_over && !norms->collects)
        begin(c, norms, request->group, request->step);
    if (!is_over && norms->step == request->step && !norms->has[request->ps])
        take(c, norms, request);
    if (norms->collects && norms->n_lacking == 0)
        add_up(c, norms, request->group);
    sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_NORMS,
                                                    .call = call,
                                                    .worker = c->n_workers,
                                                    .group = request->group,
                                                    .step = request->step});
}

/* --- answered --------------------------------------------------------------------------------------------------- */

bool sg_coordinator_norms_answer(sg_coordinator *c, const sg_coordinator_parked *call)
{
    const sg_coordinator_norms *norms = &c->norms[call->group];
    if (!norms->complete || norms->complete_step < call->step)
        return false;
    if (norms->complete_step > call->step) { /* a repeat that nobody waits for */
        sg_coordinator_fail(c, call->call, SG_LATE, "step %" PRIu64 " of group %" PRIu32 " has passed", call->step,
                            call->group);
        return true;
    }
    Shardgrad__V1__NormsResponse response = SHARDGRAD__V1__NORMS_RESPONSE__INIT;
    response.squares = norms->sum;
    response.variables = norms->variables;
    response.n_variables = sg_update_scales_variables(c->config->update.rule) ? norms->n_variables : 0;
    sg_coordinator_reply(c, call->call, &response.base);
    return true;
}

const char *sg_coordinator_norms_waiting_of(const sg_coordinator *c, uint32_t group, char out[SG_ERROR_MESSAGE_BYTES])
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    const sg_coordinator_norms *norms = c->norms != NULL ? &c->norms[group] : NULL;
    for (uint32_t ps = 0; norms != NULL && norms->collects && ps < c->n_ps; ps++) {
        if (norms->has[ps])
            continue;
        snprintf(out, SG_ERROR_MESSAGE_BYTES,
                 "waiting for the norms of %s, group %" PRIu32 ", step %" PRIu64 ", whose slices there are not all "
                 "closed",
                 sg_coordinator_ps_name(c, ps, name), group, norms->step);
        return out;
    }
    return NULL;
}

const char *sg_coordinator_norms_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    const char *text = NULL;
    for (uint32_t group = 0; group < c->n_groups && text == NULL; group++)
        text = sg_coordinator_norms_waiting_of(c, group, out);
    return text;
}
