/* worker/nn/blocks.c - see blocks.h. */
#include "worker/nn/blocks.h"

typedef struct arranged {
    sg_tensor *x;
} arranged;

/* Of [images, channels, height, width], one of which is in C order. */
static void copy(const sg_tape *tape, const sg_tensor *like, size_t from_block, const void *from, size_t to_block,
                 bool accumulate, void *to)
{
    const sg_kernel_blocks *kernel = sg_tape_kernel(tape)->blocks;
    const size_t rows = like->shape[0] * like->shape[1], cols = like->shape[2] * like->shape[3];
    if (from_block == 0)
        kernel->interleave(rows, cols, to_block, from, accumulate, to);
    else
        kernel->separate(rows, cols, from_block, from, accumulate, to);
}

static void arrange_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const arranged *a = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, a->x, &accumulate);
    if (dx)
        copy(tape, y, y->block, y->gradient, a->x->block, accumulate, dx);
}

sg_tensor *sg_blocks_arrange(sg_tape *tape, sg_tensor *x, size_t block)
{
    if (!x || x->block == block)
        return x;
    SG_ASSERT(x->rank == 4 && (x->block == 0 || block == 0));
    sg_tensor *y = sg_tape_output(tape, x->rank, x->shape, x->needs_gradient);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    y->block = block;
    copy(tape, x, x->block, x->value, block, false, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = arrange_backward,
                                          .state = &(arranged){.x = x},
                                          .state_bytes = sizeof(arranged)});
    return y;
}
