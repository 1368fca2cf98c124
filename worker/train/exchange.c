/* worker/train/exchange.c - see exchange.h. What is final one after the other goes in one op until there is enough for
 * a message; the ops of a step are kept in the order in which they began. */
#include "worker/train/exchange.h"

#include <stdlib.h>

#include "worker/train/workload.h"

/* Enough to be worth a call: what a call costs is about the time in which so many bytes travel. */
#define ENOUGH_BYTES ((size_t)64 << 10)

typedef struct variable {
    uint64_t n_elems;
    bool trained;
    /* of this step */
    uint64_t n_gathered; /* elements that were gathered, or sent already */
    uint64_t n_sent;     /* that are under way, or came back */
    size_t *op_of_slice; /* for each slice of them: the index of the op in which it travels */
} variable;

struct sg_exchange {
    sg_client *client;
    uint64_t slice_elems;
    variable *variables; /* [n_variables] */
    size_t n_variables;
    size_t *op_of_slice; /* of all variables */

    sg_step step;
    bool left_out;
    sg_range *gathered; /* [n_gathered], at most n_variables: what waits to be sent */
    size_t n_gathered, gathered_bytes;

    sg_op **ops; /* [n_ops], at most one for each slice; NULL: over */
    size_t n_ops;
};

sg_exchange *sg_exchange_create(sg_client *client, const sg_variable *variables, size_t n_variables)
{
    sg_exchange *x = sg_xcalloc(1, sizeof(*x));
    x->client = client;
    sg_client_info info;
    sg_client_get_info(client, &info);
    SG_ASSERT(info.slice_elems > 0);
    x->slice_elems = info.slice_elems;
    x->n_variables = n_variables;
    x->variables = sg_xcalloc(n_variables, sizeof(*x->variables));
    x->gathered = sg_xcalloc(n_variables, sizeof(*x->gathered));
    size_t n_slices = 0;
    for (size_t i = 0; i < n_variables; i++) {
        x->variables[i] = (variable){.n_elems = sg_workload_n_elems(&variables[i]), .trained = !variables[i].frozen};
        n_slices += (size_t)(x->variables[i].n_elems / x->slice_elems) + 1;
    }
    x->ops = sg_xcalloc(n_slices, sizeof(sg_op *));
    x->op_of_slice = sg_xcalloc(n_slices, sizeof(*x->op_of_slice));
    size_t first = 0;
    for (size_t i = 0; i < n_variables; i++) {
        x->variables[i].op_of_slice = x->op_of_slice + first;
        first += (size_t)(x->variables[i].n_elems / x->slice_elems) + 1;
    }
    return x;
}

void sg_exchange_reset(sg_exchange *x)
{
    for (size_t i = 0; i < x->n_ops; i++)
        if (x->ops[i] != NULL)
            sg_op_cancel(x->ops[i]);
    for (size_t i = 0; i < x->n_ops; i++) {
        sg_op_destroy(x->ops[i]);
        x->ops[i] = NULL;
    }
    x->n_ops = x->n_gathered = x->gathered_bytes = 0;
    for (size_t i = 0; i < x->n_variables; i++)
        x->variables[i].n_sent = 0;
}

void sg_exchange_destroy(sg_exchange *x)
{
    if (x == NULL)
        return;
    sg_exchange_reset(x);
    free(x->variables);
    free(x->gathered);
    free(x->op_of_slice);
    free(x->ops);
    free(x);
}

void sg_exchange_begin(sg_exchange *x, const sg_step *step)
{
    SG_ASSERT(x->n_ops == 0 && x->n_gathered == 0);
    x->step = *step;
    x->left_out = false;
    for (size_t i = 0; i < x->n_variables; i++)
        x->variables[i].n_gathered = 0;
}

static sg_status send_gathered(sg_exchange *x, sg_error *err)
{
    if (x->n_gathered == 0)
        return SG_OK;
    sg_step step = x->step;
    if (x->left_out)
        step.examples = 0;
    sg_status status = sg_client_push_pull_ranges(x->client, &step, x->gathered, x->n_gathered, &x->ops[x->n_ops], err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < x->n_gathered; i++) {
        variable *v = &x->variables[x->gathered[i].variable];
        for (; v->n_sent < v->n_gathered; v->n_sent += x->slice_elems)
            v->op_of_slice[v->n_sent / x->slice_elems] = x->n_ops;
        v->n_sent = v->n_gathered;
    }
    x->n_ops++;
    x->n_gathered = 0;
    x->gathered_bytes = 0;
    return SG_OK;
}

/* The variable is final up to n_final: its slices that are so by now are gathered. */
static void gather(sg_exchange *x, uint32_t index, uint64_t n_final)
{
    variable *v = &x->variables[index];
    const uint64_t first = v->n_gathered;
    const uint64_t n = (n_final == v->n_elems ? n_final : n_final - n_final % x->slice_elems) - first;
    if (n == 0)
        return;
    if (x->n_gathered > 0 && x->gathered[x->n_gathered - 1].variable == index)
        x->gathered[x->n_gathered - 1].n_elems += n;
    else
        x->gathered[x->n_gathered++] = (sg_range){.variable = index, .first_elem = first, .n_elems = n};
    x->gathered_bytes += n * sizeof(float);
    v->n_gathered += n;
}

sg_status sg_exchange_send(sg_exchange *x, const sg_range *part, bool left_out, sg_error *err)
{
    const uint64_t n_final = part->first_elem + part->n_elems;
    SG_ASSERT(part->variable < x->n_variables && n_final <= x->variables[part->variable].n_elems);
    SG_ASSERT(part->first_elem >= x->variables[part->variable].n_gathered);
    const bool is_full = x->n_gathered == x->n_variables;
    sg_status status = is_full || (left_out && !x->left_out) ? send_gathered(x, err) : SG_OK;
    if (status != SG_OK)
        return status;
    x->left_out = left_out;
    gather(x, part->variable, n_final);
    return x->gathered_bytes >= ENOUGH_BYTES ? send_gathered(x, err) : SG_OK;
}

sg_status sg_exchange_flush(sg_exchange *x, sg_error *err)
{
    sg_status status = send_gathered(x, err);
    for (size_t i = 0; i < x->n_variables; i++)
        SG_ASSERT(status != SG_OK || !x->variables[i].trained || x->variables[i].n_gathered == x->variables[i].n_elems);
    return status;
}

static sg_status end_op(sg_exchange *x, size_t index, sg_error *err)
{
    if (x->ops[index] == NULL)
        return SG_OK;
    sg_status status = sg_op_wait(x->ops[index], UINT64_MAX, err);
    sg_op_destroy(x->ops[index]);
    x->ops[index] = NULL;
    return status;
}

sg_status sg_exchange_wait(sg_exchange *x, const sg_range *part, sg_error *err)
{
    const uint64_t part_end = part->first_elem + part->n_elems;
    SG_ASSERT(part->variable < x->n_variables && part_end <= x->variables[part->variable].n_elems);
    const variable *v = &x->variables[part->variable];
    const uint64_t end = part_end < v->n_sent ? part_end : v->n_sent;
    sg_status status = SG_OK;
    for (uint64_t i = part->first_elem / x->slice_elems; i * x->slice_elems < end && status == SG_OK; i++)
        status = end_op(x, v->op_of_slice[i], err);
    return status;
}

sg_status sg_exchange_finish(sg_exchange *x, sg_error *err)
{
    for (size_t i = 0; i < x->n_ops; i++) {
        sg_status status = end_op(x, i, err);
        if (status != SG_OK)
            return status;
    }
    x->n_ops = 0;
    for (size_t i = 0; i < x->n_variables; i++)
        x->variables[i].n_sent = 0;
    return SG_OK;
}
