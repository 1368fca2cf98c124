/* server/coordinator_variables.c - declared lists: is one valid, does it fit, is another one the same? */
#include <math.h>
#include <stdlib.h>

#include "common/plan.h"
#include "common/utf8.h"
#include "server/coordinator_internal.h"
#include "server/declared.h"

#define MAX_ELEMS   (UINT64_MAX >> 16) /* the store's bound, too */
#define MAX_EVERY   65536u
#define ORDER_BYTES 256u /* more than an order says beside the list */
#define SHAPE_BYTES ((size_t)SG_DECLARED_MAX_RANK * 21)

/* --- valid? ----------------------------------------------------------------------------------------------------- */

static sg_status check_name(size_t index, const char *name, sg_error *err)
{
    size_t n_bytes = strlen(name);
    if (n_bytes < 1 || n_bytes > SG_DECLARED_NAME_BYTES)
        return sg_error_set(err, SG_INVALID, "variable %zu has a name of %zu bytes, wanted 1 to %u", index, n_bytes,
                            SG_DECLARED_NAME_BYTES);
    for (size_t i = 0; i < n_bytes;) {
        uint32_t character;
        size_t length = sg_utf8_decode(name + i, n_bytes - i, &character);
        if (length == 0) /* no checkpoint could be written: its tensors are named in JSON */
            return sg_error_set(err, SG_INVALID, "variable %zu has a name that is not UTF-8: byte %zu of it is 0x%02x",
                                index, i + 1, (unsigned char)name[i]);
        if (character < 0x20 || character == 0x7f)
            return sg_error_set(err, SG_INVALID, "variable %zu has a control character in its name", index);
        i += length;
    }
    return SG_OK;
}

static sg_status check_multiplier(size_t index, const char *name, const char *what, float multiplier, sg_error *err)
{
    if (isfinite(multiplier) && multiplier >= 0)
        return SG_OK;
    return sg_error_set(err, SG_INVALID, "variable %zu '%.100s': %s is %g, wanted a finite number of at least 0", index,
                        name, what, (double)multiplier);
}

static sg_status check_variable(size_t index, const Shardgrad__V1__Variable *variable, sg_error *err)
{
    const char *name = sg_coordinator_text(variable->name);
    sg_status status = check_name(index, name, err);
    if (status != SG_OK)
        return status;
    if (variable->n_shape > SG_DECLARED_MAX_RANK)
        return sg_error_set(err, SG_INVALID, "variable %zu '%.100s' has %zu dimensions, wanted at most %u", index, name,
                            variable->n_shape, SG_DECLARED_MAX_RANK);
    uint64_t n_elems = 1;
    for (size_t i = 0; i < variable->n_shape; i++) {
        if (variable->shape[i] == 0)
            return sg_error_set(err, SG_INVALID, "variable %zu '%.100s': dimension %zu is 0, wanted at least 1", index,
                                name, i);
        if (__builtin_mul_overflow(n_elems, variable->shape[i], &n_elems) || n_elems > MAX_ELEMS)
            return sg_error_set(err, SG_EXHAUSTED, "variable %zu '%.100s' has too many elements", index, name);
    }
    if (variable->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_UNSPECIFIED &&
        variable->dtype != SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32)
        return sg_error_set(err, SG_INVALID, "variable %zu '%.100s' has dtype %d, wanted 1 (float32)", index, name,
                            (int)variable->dtype);
    if (variable->group >= SG_COORDINATOR_MAX_GROUPS)
        return sg_error_set(err, SG_INVALID, "variable %zu '%.100s' is of group %" PRIu32 ", wanted at most %u", index,
                            name, variable->group, SG_COORDINATOR_MAX_GROUPS - 1);
    status = check_multiplier(index, name, "lr_multiplier", sg_declared_lr_multiplier(variable), err);
    if (status == SG_OK)
        status = check_multiplier(index, name, "decay_multiplier", sg_declared_decay_multiplier(variable), err);
    return status;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sg_status check_names_differ(const Shardgrad__V1__DeclareRequest *request, sg_error *err)
{
    const char **names = sg_xcalloc(request->n_variables, sizeof *names);
    for (size_t i = 0; i < request->n_variables; i++)
        names[i] = sg_coordinator_text(request->variables[i]->name);
    qsort(names, request->n_variables, sizeof *names, by_name);
    sg_status status = SG_OK;
    for (size_t i = 1; i < request->n_variables && status == SG_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0)
            status = sg_error_set(err, SG_INVALID, "two variables are named '%.100s': give each a name of its own",
                                  names[i]);
    }
    free(names);
    return status;
}

sg_status sg_coordinator_variables_check(const Shardgrad__V1__DeclareRequest *request, sg_error *err)
{
    size_t n = request->n_variables;
    if (n < 1 || n > SG_PLAN_MAX_VARIABLES)
        return sg_error_set(err, SG_INVALID, "%zu variables were declared, wanted 1 to %u", n, SG_PLAN_MAX_VARIABLES);
    for (size_t i = 0; i < n; i++) {
        sg_status status = check_variable(i, request->variables[i], err);
        if (status != SG_OK)
            return status;
    }
    return check_names_differ(request, err);
}

/* --- does it fit? ------------------------------------------------------------------------------------------------- */

sg_status sg_coordinator_variables_plan(const sg_coordinator *c, const Shardgrad__V1__DeclareRequest *declared,
                                        sg_plan **plan, sg_error *err)
{
    uint32_t n = (uint32_t)declared->n_variables;
    sg_plan_variable *variables = sg_xcalloc(n, sizeof *variables);
    for (uint32_t i = 0; i < n; i++) {
        variables[i].group = declared->variables[i]->group;
        variables[i].n_elems = 1;
        for (size_t k = 0; k < declared->variables[i]->n_shape; k++)
            variables[i].n_elems *= declared->variables[i]->shape[k];
    }
    sg_status status = sg_plan_create(variables, n, c->n_ps, c->config->slice_bytes, plan, err);
    free(variables);
    return status;
}

/* Every ps is told the list in one message. */
static sg_status check_order(const Shardgrad__V1__DeclareRequest *declared, sg_error *err)
{
    Shardgrad__V1__PsDeclareRequest order = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    order.variables = declared->variables;
    order.n_variables = declared->n_variables;
    const size_t n_bytes = protobuf_c_message_get_packed_size(&order.base), most = SG_WIRE_HEAD_BYTES - ORDER_BYTES;
    if (n_bytes <= most)
        return SG_OK;
    return sg_error_set(err, SG_EXHAUSTED,
                        "the list of %zu variables takes %zu bytes in a message, at most %zu are allowed: give them "
                        "shorter names, or declare fewer",
                        declared->n_variables, n_bytes, most);
}

sg_status sg_coordinator_variables_fit(const sg_coordinator *c, const Shardgrad__V1__DeclareRequest *declared,
                                       uint32_t *n_groups, sg_error *err)
{
    sg_plan *plan = NULL;
    sg_status status = check_order(declared, err);
    if (status == SG_OK)
        status = sg_coordinator_variables_plan(c, declared, &plan, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(plan != NULL);
    status = sg_coordinator_norms_fit(declared, plan, c->hypers[c->n_hypers - 1].config, err);
    *n_groups = plan->n_groups;
    sg_plan_destroy(plan);
    return status;
}

/* --- the same? -------------------------------------------------------------------------------------------------- */

/* "784x512"; "scalar". */
static const char *shape_text(const Shardgrad__V1__Variable *variable, char out[SHAPE_BYTES])
{
    size_t length = 0;
    snprintf(out, SHAPE_BYTES, "scalar");
    for (size_t i = 0; i < variable->n_shape && i < SG_DECLARED_MAX_RANK; i++)
        length +=
            (size_t)snprintf(out + length, SHAPE_BYTES - length, "%s%" PRIu64, i == 0 ? "" : "x", variable->shape[i]);
    return out;
}

static bool same_shape(const Shardgrad__V1__Variable *a, const Shardgrad__V1__Variable *b)
{
    return a->n_shape == b->n_shape &&
           (a->n_shape == 0 || memcmp(a->shape, b->shape, a->n_shape * sizeof *a->shape) == 0);
}

static sg_status compare_variable(size_t index, const Shardgrad__V1__Variable *known,
                                  const Shardgrad__V1__Variable *mine, sg_error *err)
{
    const char *name = sg_coordinator_text(known->name);
    if (strcmp(name, sg_coordinator_text(mine->name)) != 0)
        return sg_error_set(err, SG_MISMATCH,
                            "variable %zu is '%.100s' here and '%.100s' in the cluster: "
                            "declare the same list in the same order everywhere",
                            index, sg_coordinator_text(mine->name), name);
    char shape[2][SHAPE_BYTES];
    if (!same_shape(known, mine))
        return sg_error_set(err, SG_MISMATCH, "variable %zu '%.100s' has shape %s here and %s in the cluster", index,
                            name, shape_text(mine, shape[0]), shape_text(known, shape[1]));
    if (known->group != mine->group)
        return sg_error_set(err, SG_MISMATCH,
                            "variable %zu '%.100s' is of group %" PRIu32 " here and of %" PRIu32 " in the cluster",
                            index, name, mine->group, known->group);
    if (known->frozen != mine->frozen)
        return sg_error_set(err, SG_MISMATCH, "variable %zu '%.100s' is %s here and %s in the cluster", index, name,
                            mine->frozen ? "frozen" : "trained", known->frozen ? "frozen" : "trained");
    if (known->average != mine->average)
        return sg_error_set(err, SG_MISMATCH, "variable %zu '%.100s' is %s here and %s in the cluster", index, name,
                            mine->average ? "averaged" : "trained", known->average ? "averaged" : "trained");
    if (sg_declared_lr_multiplier(known) != sg_declared_lr_multiplier(mine))
        return sg_error_set(err, SG_MISMATCH, "variable %zu '%.100s' has lr_multiplier %g here and %g in the cluster",
                            index, name, (double)sg_declared_lr_multiplier(mine),
                            (double)sg_declared_lr_multiplier(known));
    if (sg_declared_decay_multiplier(known) != sg_declared_decay_multiplier(mine))
        return sg_error_set(err, SG_MISMATCH,
                            "variable %zu '%.100s' has decay_multiplier %g here and %g in the cluster", index, name,
                            (double)sg_declared_decay_multiplier(mine), (double)sg_declared_decay_multiplier(known));
    return SG_OK;
}

sg_status sg_coordinator_variables_compare(const Shardgrad__V1__DeclareRequest *known,
                                           const Shardgrad__V1__DeclareRequest *request, sg_error *err)
{
    for (size_t i = 0; i < known->n_variables && i < request->n_variables; i++) {
        sg_status status = compare_variable(i, known->variables[i], request->variables[i], err);
        if (status != SG_OK)
            return status;
    }
    if (known->n_variables != request->n_variables)
        return sg_error_set(err, SG_MISMATCH, "%zu variables were declared, the cluster has %zu", request->n_variables,
                            known->n_variables);
    return SG_OK;
}

/* --- how often groups step -------------------------------------------------------------------------------------- */

static uint64_t every_of(const Shardgrad__V1__DeclareRequest *request, uint32_t group)
{
    return group < request->n_every && request->every[group] > 0 ? request->every[group] : 1;
}

sg_status sg_coordinator_variables_take_every(sg_coordinator *c, uint32_t n_groups,
                                              const Shardgrad__V1__DeclareRequest *request, sg_error *err)
{
    if (request->n_every > n_groups)
        return sg_error_set(err, SG_INVALID, "it is declared how often %zu groups step, but there are %" PRIu32,
                            request->n_every, n_groups);
    for (uint32_t group = 0; group < n_groups; group++) {
        uint64_t mine = every_of(request, group), known = c->groups[group].every;
        if (mine > MAX_EVERY)
            return sg_error_set(err, SG_INVALID,
                                "group %" PRIu32 " steps in every %" PRIu64 "th iteration, wanted at "
                                "most %u",
                                group, mine, MAX_EVERY);
        if (mine > 1 && c->config->update.mode == SG_MODE_SSP)
            return sg_error_set(err, SG_CONFIG,
                                "group %" PRIu32 " steps once in %" PRIu64
                                " iterations, but with update.mode ssp, which "
                                "holds back whoever has made more steps of a group than the slowest, all groups must "
                                "step in every iteration",
                                group, mine);
        if (known != 0 && known != mine)
            return sg_error_set(err, SG_MISMATCH,
                                "group %" PRIu32 " steps once in %" PRIu64 " iterations here, and once in %" PRIu64
                                " in the cluster: declare the same everywhere",
                                group, mine, known);
    }
    for (uint32_t group = 0; group < n_groups; group++)
        c->groups[group].every = every_of(request, group);
    return SG_OK;
}
