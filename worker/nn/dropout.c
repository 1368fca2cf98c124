/* worker/nn/dropout.c - elements left out at random: a function of where they are. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"

typedef struct dropout {
    sg_tensor *x;
    void *scales;
} dropout;

static void dropout_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const dropout *d = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, d->x, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->elementwise->multiply(y->n_elems, y->gradient, d->scales, accumulate, dx);
}

sg_tensor *sg_dropout_forward(sg_tape *tape, sg_tensor *x, double rate, sg_dropout_where where)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x)
        return NULL;
    if (!(rate >= 0 && rate < 1))
        return sg_tape_fail(tape, SG_INVALID, "dropout: rate %g; wanted 0 or more, and less than 1", rate);
    const sg_kernel *kernel = sg_tape_kernel(tape);
    sg_tensor *y = sg_tape_output(tape, x->rank, x->shape, x->needs_gradient);
    dropout state = {.x = x, .scales = sg_tape_alloc(tape, x->n_elems * kernel->elem_bytes)};
    if (!y || !state.scales || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    kernel->elementwise->dropout_scales(where.seed, where.stream, where.first, rate, x->n_elems, state.scales);
    kernel->elementwise->multiply(x->n_elems, x->value, state.scales, false, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = dropout_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
