/* worker/nn/upsample.c - images made larger: each element becomes a square of its own. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct upsample {
    sg_tensor *x;
    size_t factor;
} upsample;

static void upsample_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const upsample *u = state;
    const uint64_t *shape = u->x->shape;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, u->x, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->move->upsample_backward(shape[0] * shape[1], shape[2], shape[3], u->factor, y->gradient,
                                                      accumulate, dx);
}

sg_tensor *sg_upsample_nearest_forward(sg_tape *tape, sg_tensor *x, uint64_t factor)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x)
        return NULL;
    uint64_t shape[4] = {0};
    bool fits = x->rank == 4 && factor >= 1;
    for (uint32_t i = 0; fits && i < 4; i++)
        fits = !__builtin_mul_overflow(x->shape[i], i < 2 ? 1 : factor, &shape[i]);
    if (!fits)
        return sg_tape_fail(tape, SG_INVALID,
                            "upsample_nearest: input %s, factor %llu; wanted [images, channels, height, width] and at "
                            "least 1",
                            sg_shape_describe(x).text, (unsigned long long)factor);
    sg_tensor *y = sg_tape_output(tape, 4, shape, x->needs_gradient);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    sg_tape_kernel(tape)->move->upsample(shape[0] * shape[1], x->shape[2], x->shape[3], factor, x->value, y->value);
    upsample state = {.x = x, .factor = factor};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = upsample_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
