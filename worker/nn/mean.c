/* worker/nn/mean.c - the mean of all elements, and of each plane of images. */
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct mean {
    sg_tensor *x;
    size_t rows, cols; /* of x, a mean for each row */
} mean;

/* Where there is one row it is all the same in what order. */
static bool is_in_blocks(const mean *m)
{
    return m->x->block > 0 && m->rows > 1;
}

static void mean_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const mean *m = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, m->x, &accumulate);
    if (dx && is_in_blocks(m))
        sg_tape_kernel(tape)->blocks->row_means_backward(m->rows, m->cols, m->x->block, y->gradient, accumulate, dx);
    else if (dx)
        sg_tape_kernel(tape)->pool->row_means_backward(m->rows, m->cols, y->gradient, accumulate, dx);
}

static sg_tensor *means(sg_tape *tape, const mean *state, uint32_t rank, const uint64_t *shape)
{
    sg_tensor *x = state->x;
    sg_tensor *y = sg_tape_output(tape, rank, shape, x->needs_gradient);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    if (is_in_blocks(state))
        sg_tape_kernel(tape)->blocks->row_means(state->rows, state->cols, x->block, x->value, y->value);
    else
        sg_tape_kernel(tape)->pool->row_means(state->rows, state->cols, x->value, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = mean_backward,
                                          .state = state,
                                          .state_bytes = sizeof *state});
    return y;
}

sg_tensor *sg_mean_forward(sg_tape *tape, sg_tensor *x)
{
    return x ? means(tape, &(mean){.x = x, .rows = 1, .cols = x->n_elems}, 0, NULL) : NULL;
}

sg_tensor *sg_global_average_pool_forward(sg_tape *tape, sg_tensor *x)
{
    if (!x)
        return NULL;
    if (x->rank != 4)
        return sg_tape_fail(tape, SG_INVALID, "global_average_pool: input %s; wanted [images, channels, height, width]",
                            sg_shape_describe(x).text);
    const size_t rows = x->shape[0] * x->shape[1], cols = x->shape[2] * x->shape[3];
    return means(tape, &(mean){.x = x, .rows = rows, .cols = cols}, 2, x->shape);
}
