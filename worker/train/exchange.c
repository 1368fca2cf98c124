/* worker/train/exchange.c - see exchange.h. Variables that are final one after the other go in one op until there is
 * enough for a message; the ops of a step are kept in the order in which they began. */
#include "worker/train/exchange.h"

#include <stdlib.h>

#include "worker/train/workload.h"

/* Enough to be worth a call: what a call costs is about the time in which so many bytes travel. */
#define ENOUGH_BYTES ((size_t)64 << 10)
#define NO_OP        SIZE_MAX

struct sg_exchange {
    sg_client *client;
    size_t n_variables;
    size_t *n_bytes;  /* [n_variables] */
    size_t n_trained; /* those that are not frozen */

    sg_step step;
    bool left_out;
    uint32_t *gathered; /* [n_gathered] variables that wait to be sent */
    size_t n_gathered, gathered_bytes, n_sent;

    sg_op **ops; /* [n_ops], at most n_variables; NULL: over */
    size_t n_ops;
    size_t *op_of; /* [n_variables] index of the op in which it travels, or NO_OP */
};

sg_exchange *sg_exchange_create(sg_client *client, const sg_variable *variables, size_t n_variables)
{
    sg_exchange *x = sg_xcalloc(1, sizeof(*x));
    x->client = client;
    x->n_variables = n_variables;
    x->n_bytes = sg_xcalloc(n_variables, sizeof(*x->n_bytes));
    x->gathered = sg_xcalloc(n_variables, sizeof(*x->gathered));
    x->ops = sg_xcalloc(n_variables, sizeof(sg_op *));
    x->op_of = sg_xcalloc(n_variables, sizeof(*x->op_of));
    for (size_t i = 0; i < n_variables; i++) {
        x->n_bytes[i] = sg_workload_n_elems(&variables[i]) * sizeof(float);
        x->op_of[i] = NO_OP;
        x->n_trained += !variables[i].frozen;
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
        x->op_of[i] = NO_OP;
}

void sg_exchange_destroy(sg_exchange *x)
{
    if (x == NULL)
        return;
    sg_exchange_reset(x);
    free(x->n_bytes);
    free(x->gathered);
    free(x->ops);
    free(x->op_of);
    free(x);
}

void sg_exchange_begin(sg_exchange *x, const sg_step *step)
{
    SG_ASSERT(x->n_ops == 0 && x->n_gathered == 0);
    x->step = *step;
    x->left_out = false;
    x->n_sent = 0;
}

static sg_status send_gathered(sg_exchange *x, sg_error *err)
{
    if (x->n_gathered == 0)
        return SG_OK;
    sg_step step = x->step;
    if (x->left_out)
        step.examples = 0;
    sg_status status = sg_client_push_pull(x->client, &step, x->gathered, x->n_gathered, &x->ops[x->n_ops], err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < x->n_gathered; i++)
        x->op_of[x->gathered[i]] = x->n_ops;
    x->n_ops++;
    x->n_sent += x->n_gathered;
    x->n_gathered = 0;
    x->gathered_bytes = 0;
    return SG_OK;
}

sg_status sg_exchange_send(sg_exchange *x, size_t variable, bool left_out, sg_error *err)
{
    SG_ASSERT(variable < x->n_variables && x->op_of[variable] == NO_OP);
    sg_status status = left_out && !x->left_out ? send_gathered(x, err) : SG_OK;
    if (status != SG_OK)
        return status;
    x->left_out = left_out;
    x->gathered[x->n_gathered++] = (uint32_t)variable;
    x->gathered_bytes += x->n_bytes[variable];
    return x->gathered_bytes >= ENOUGH_BYTES ? send_gathered(x, err) : SG_OK;
}

sg_status sg_exchange_flush(sg_exchange *x, sg_error *err)
{
    sg_status status = send_gathered(x, err);
    SG_ASSERT(status != SG_OK || x->n_sent == x->n_trained);
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

sg_status sg_exchange_wait(sg_exchange *x, size_t variable, sg_error *err)
{
    SG_ASSERT(variable < x->n_variables);
    return x->op_of[variable] == NO_OP ? SG_OK : end_op(x, x->op_of[variable], err);
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
        x->op_of[i] = NO_OP;
    return SG_OK;
}
