/* worker/nn/pool.c - images made smaller: the largest or the mean of each window, or the mean of all. */
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

#define MAX_SIZE ((uint64_t)1 << 30)

typedef struct pool {
    sg_tensor *x;
    sg_pool_shape shape;
    uint8_t *place; /* of the largest; NULL: mean */
} pool;

static const sg_kernel_pool *kernel_of(const sg_tape *tape, const pool *p)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    return p->shape.block > 0 ? kernel->blocks->pool : kernel->pool;
}

static void pool_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const pool *p = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, p->x, &accumulate);
    if (dx && p->place)
        kernel_of(tape, p)->max_backward(&p->shape, y->gradient, p->place, accumulate, dx);
    else if (dx)
        kernel_of(tape, p)->average_backward(&p->shape, y->gradient, accumulate, dx);
}

static bool find_shape(const sg_tensor *x, sg_pool_options options, sg_pool_shape *shape)
{
    if (x->rank != 4 || options.window < 1 || options.window > SG_POOL_MAX_WINDOW || options.stride >= MAX_SIZE ||
        options.padding > options.window / 2)
        return false;
    for (uint32_t i = 1; i < 4; i++)
        if (x->shape[i] < 1 || x->shape[i] >= MAX_SIZE)
            return false;
    *shape = (sg_pool_shape){.planes = x->shape[0] * x->shape[1],
                             .height = x->shape[2],
                             .width = x->shape[3],
                             .window = options.window,
                             .stride = options.stride,
                             .padding = options.padding,
                             .block = x->block};
    shape->out_height = sg_conv_out(shape->height, shape->window, shape->stride, shape->padding);
    shape->out_width = sg_conv_out(shape->width, shape->window, shape->stride, shape->padding);
    return shape->out_height > 0 && shape->out_width > 0;
}

static sg_tensor *pool_forward(sg_tape *tape, sg_tensor *x, sg_pool_options options, bool largest, const char *name)
{
    if (!x)
        return NULL;
    options.stride = options.stride ? options.stride : options.window;
    pool state = {.x = x};
    if (!find_shape(x, options, &state.shape))
        return sg_tape_fail(tape, SG_INVALID,
                            "%s: input %s, window %llu, stride %llu, padding %llu; wanted [images, channels, height, "
                            "width], a window of 1 to %u that fits into it, and padding of at most half of that",
                            name, sg_shape_describe(x).text, (unsigned long long)options.window,
                            (unsigned long long)options.stride, (unsigned long long)options.padding,
                            SG_POOL_MAX_WINDOW);
    const uint64_t shape[] = {x->shape[0], x->shape[1], state.shape.out_height, state.shape.out_width};
    sg_tensor *y = sg_tape_output(tape, 4, shape, x->needs_gradient);
    if (y)
        y->block = x->block;
    if (y && largest)
        state.place = sg_tape_alloc(tape, y->n_elems);
    if (!y || (largest && !state.place) || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    if (largest)
        kernel_of(tape, &state)->max(&state.shape, x->value, y->value, state.place);
    else
        kernel_of(tape, &state)->average(&state.shape, x->value, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = pool_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}

sg_tensor *sg_max_pool_forward(sg_tape *tape, sg_tensor *x, sg_pool_options options)
{
    return pool_forward(tape, x, options, true, "max_pool");
}

sg_tensor *sg_average_pool_forward(sg_tape *tape, sg_tensor *x, sg_pool_options options)
{
    return pool_forward(tape, x, options, false, "average_pool");
}
