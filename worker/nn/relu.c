/* worker/nn/relu.c - the rectifier on its own; behind a dense layer it is cheaper fused (SG_DENSE_RELU). */
#include "worker/nn/layers.h"

typedef struct relu {
    sg_tensor *x;
} relu;

static void relu_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const relu *r = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, r->x, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->relu_backward(y->n_elems, y->value, y->gradient, accumulate, dx);
}

sg_tensor *sg_relu_forward(sg_tape *tape, sg_tensor *x)
{
    sg_tensor *y = x ? sg_tape_output_like(tape, x, x->needs_gradient) : NULL;
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    sg_tape_kernel(tape)->relu(x->n_elems, x->value, y->value);
    relu state = {.x = x};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = relu_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
