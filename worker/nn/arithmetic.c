/* worker/nn/arithmetic.c - sums and products of tensors of one shape, and the gradient's end. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

typedef struct binary {
    sg_tensor *a, *b;
    double factor; /* of scale, which has no b */
} binary;

static bool shapes_equal(const sg_tensor *a, const sg_tensor *b)
{
    bool equal = a->rank == b->rank;
    for (uint32_t i = 0; equal && i < a->rank; i++)
        equal = a->shape[i] == b->shape[i];
    return equal;
}

/* The output of a layer of a and b, whose values may be read then, and are in one order; NULL after a failure. */
static sg_tensor *begin(sg_tape *tape, binary *s, const char *name)
{
    if (!s->a || !s->b)
        return NULL;
    if (!shapes_equal(s->a, s->b))
        return sg_tape_fail(tape, SG_INVALID, "%s: %s and %s; wanted the same shape twice", name,
                            sg_shape_describe(s->a).text, sg_shape_describe(s->b).text);
    const size_t block = s->a->block > 0 ? s->a->block : s->b->block;
    s->a = sg_blocks_arrange(tape, s->a, block);
    s->b = sg_blocks_arrange(tape, s->b, block);
    if (!s->a || !s->b)
        return NULL;
    sg_tensor *y = sg_tape_output_like(tape, s->a, s->a->needs_gradient || s->b->needs_gradient);
    if (!y || !sg_tape_may_read(tape, s->a, 0, y->n_elems) || !sg_tape_may_read(tape, s->b, 0, y->n_elems))
        return NULL;
    return y;
}

static sg_tensor *record(sg_tape *tape, sg_tensor *y, const binary *state, sg_tape_backward_fn backward)
{
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){state->a, state->b},
                                          .n_inputs = state->b ? 2 : 1,
                                          .backward = backward,
                                          .state = state,
                                          .state_bytes = sizeof *state});
    return y;
}

/* The second gets a copy first, so that the first may have the buffer. */
static void add_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const binary *s = state;
    bool accumulate;
    void *db = sg_tape_gradient(tape, s->b, &accumulate);
    if (db)
        sg_tape_kernel(tape)->scaled(y->n_elems, 1, y->gradient, accumulate, db);
    sg_tape_pass_gradient(tape, y, s->a);
}

static sg_tensor *sum(sg_tape *tape, binary *s)
{
    sg_tensor *y = begin(tape, s, "add");
    if (!y)
        return NULL;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    kernel->scaled(y->n_elems, 1, s->a->value, false, y->value);
    kernel->scaled(y->n_elems, 1, s->b->value, true, y->value);
    return y;
}

sg_tensor *sg_add_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b)
{
    binary state = {.a = a, .b = b};
    sg_tensor *y = sum(tape, &state);
    return y ? record(tape, y, &state, add_backward) : NULL;
}

static void add_relu_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    sg_tape_kernel(tape)->relu_backward(y->n_elems, y->value, y->gradient, false, y->gradient);
    add_backward(tape, state, y);
}

sg_tensor *sg_add_relu_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b)
{
    binary state = {.a = a, .b = b};
    sg_tensor *y = sum(tape, &state);
    if (!y)
        return NULL;
    sg_tape_kernel(tape)->relu(y->n_elems, y->value, y->value);
    return record(tape, y, &state, add_relu_backward);
}

static void multiply_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const binary *s = state;
    const sg_kernel_elementwise *kernel = sg_tape_kernel(tape)->elementwise;
    bool accumulate;
    void *da = sg_tape_gradient(tape, s->a, &accumulate);
    if (da)
        kernel->multiply(y->n_elems, y->gradient, s->b->value, accumulate, da);
    void *db = sg_tape_gradient(tape, s->b, &accumulate);
    if (db)
        kernel->multiply(y->n_elems, y->gradient, s->a->value, accumulate, db);
}

sg_tensor *sg_multiply_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b)
{
    binary state = {.a = a, .b = b};
    sg_tensor *y = begin(tape, &state, "multiply");
    if (!y)
        return NULL;
    sg_tape_kernel(tape)->elementwise->multiply(y->n_elems, state.a->value, state.b->value, false, y->value);
    return record(tape, y, &state, multiply_backward);
}

static void scale_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const binary *s = state;
    bool accumulate;
    void *da = sg_tape_gradient(tape, s->a, &accumulate);
    if (da)
        sg_tape_kernel(tape)->scaled(y->n_elems, s->factor, y->gradient, accumulate, da);
}

sg_tensor *sg_scale_forward(sg_tape *tape, sg_tensor *x, double factor)
{
    sg_tensor *y = begin(tape, &(binary){.a = x, .b = x}, "scale");
    if (!y)
        return NULL;
    sg_tape_kernel(tape)->scaled(y->n_elems, factor, x->value, false, y->value);
    return record(tape, y, &(binary){.a = x, .factor = factor}, scale_backward);
}

sg_tensor *sg_sum_forward(sg_tape *tape, sg_tensor *x)
{
    return x ? sg_scale_forward(tape, sg_mean_forward(tape, x), (double)x->n_elems) : NULL;
}

sg_tensor *sg_stop_gradient_forward(sg_tape *tape, sg_tensor *x)
{
    sg_tensor *y = x ? sg_tape_view(tape, x, x->rank, x->shape) : NULL;
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    y->needs_gradient = false;
    return y;
}
