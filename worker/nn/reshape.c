/* worker/nn/reshape.c - the same elements in another shape; neither they nor their gradients are copied. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct reshape {
    sg_tensor *x;
} reshape;

static void reshape_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const reshape *r = state;
    sg_tape_pass_gradient(tape, y, r->x);
}

sg_tensor *sg_reshape_forward(sg_tape *tape, sg_tensor *x, uint32_t rank, const uint64_t *shape)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x)
        return NULL;
    sg_tensor *y = sg_tape_view(tape, x, rank, shape);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    if (y->n_elems != x->n_elems)
        return sg_tape_fail(tape, SG_INVALID, "reshape: %s to %s; wanted as many elements", sg_shape_describe(x).text,
                            sg_shape_describe(y).text);
    reshape state = {.x = x};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = reshape_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}

sg_tensor *sg_flatten_forward(sg_tape *tape, sg_tensor *x)
{
    if (!x)
        return NULL;
    if (x->rank < 1)
        return sg_tape_fail(tape, SG_INVALID, "flatten: a single number; wanted [rows, ...]");
    uint64_t cols = 1;
    for (uint32_t i = 1; i < x->rank; i++)
        if (__builtin_mul_overflow(cols, x->shape[i], &cols))
            return sg_tape_fail(tape, SG_INVALID, "flatten: input %s is too large", sg_shape_describe(x).text);
    return sg_reshape_forward(tape, x, 2, (uint64_t[]){x->shape[0], cols});
}
