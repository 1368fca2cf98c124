/* worker/nn/softmax.c - softmax over the last dimension, for what is no loss. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct softmax {
    sg_tensor *x;
} softmax;

static size_t cols_of(const sg_tensor *x)
{
    return x->shape[x->rank - 1];
}

static size_t rows_of(const sg_tensor *x)
{
    return cols_of(x) ? x->n_elems / cols_of(x) : 0;
}

static void softmax_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const softmax *s = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, s->x, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->norm->softmax_backward(rows_of(y), cols_of(y), y->value, y->gradient, accumulate, dx);
}

sg_tensor *sg_softmax_forward(sg_tape *tape, sg_tensor *x)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x)
        return NULL;
    if (x->rank < 1)
        return sg_tape_fail(tape, SG_INVALID, "softmax: a single number; wanted at least one dimension");
    sg_tensor *y = sg_tape_output(tape, x->rank, x->shape, x->needs_gradient);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    sg_tape_kernel(tape)->norm->softmax(rows_of(x), cols_of(x), x->value, y->value);
    softmax state = {.x = x};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = softmax_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
