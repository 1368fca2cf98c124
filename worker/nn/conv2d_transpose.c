/* worker/nn/conv2d_transpose.c - a convolution backwards: its output is what the gradient of the input of a convolution
 * would be, so that images grow. */
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

#define MAX_SIZE ((uint64_t)1 << 30)

typedef struct transpose {
    sg_tensor *x, *weight, *bias; /* bias may be NULL */
    sg_conv_shape shape;          /* of the convolution that would lead from y to x */
} transpose;

static void *scratch_for(sg_tape *tape, const sg_conv_shape *shape)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    return sg_tape_scratch(tape, kernel->conv->scratch_elems(shape) * kernel->elem_bytes);
}

static void transpose_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const transpose *t = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    bool accumulate;
    void *dbias = t->bias ? sg_tape_gradient(tape, t->bias, &accumulate) : NULL;
    if (dbias)
        kernel->conv->plane_sums(y->shape[0], y->shape[1], y->shape[2] * y->shape[3], y->gradient, accumulate, dbias);
    accumulate = false;
    void *dx = sg_tape_gradient(tape, t->x, &accumulate);
    void *made = dx && accumulate ? sg_tape_alloc(tape, t->x->n_elems * kernel->elem_bytes) : dx;
    void *scratch = made ? scratch_for(tape, &t->shape) : NULL;
    if (!scratch)
        return;
    kernel->conv->forward(&t->shape, y->gradient, t->weight->value, NULL, scratch, made);
    if (accumulate)
        kernel->scaled(t->x->n_elems, 1, made, true, dx);
}

static void transpose_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const transpose *t = state;
    bool accumulate;
    void *dweight = sg_tape_gradient(tape, t->weight, &accumulate);
    void *scratch = dweight ? scratch_for(tape, &t->shape) : NULL;
    if (scratch)
        sg_tape_kernel(tape)->conv->backward_weight(&t->shape, y->gradient, t->x->value, accumulate, scratch, dweight);
}

static bool find_shape(const sg_tensor *x, const sg_tensor *weight, const sg_tensor *bias, sg_conv2d_options options,
                       sg_conv_shape *shape)
{
    bool fits = x->rank == 4 && weight->rank == 4 && options.stride < MAX_SIZE && options.padding < MAX_SIZE &&
                options.groups < MAX_SIZE;
    for (uint32_t i = 0; fits && i < 4; i++)
        fits = x->shape[i] < MAX_SIZE && weight->shape[i] < MAX_SIZE && weight->shape[i] > 0 &&
               (i == 0 || x->shape[i] > 0);
    if (!fits)
        return false;
    const uint64_t height = (x->shape[2] - 1) * options.stride + weight->shape[2];
    const uint64_t width = (x->shape[3] - 1) * options.stride + weight->shape[3];
    if (height >= MAX_SIZE || width >= MAX_SIZE || height <= 2 * options.padding || width <= 2 * options.padding)
        return false;
    *shape = (sg_conv_shape){.images = x->shape[0],
                             .channels = weight->shape[1] * options.groups,
                             .height = height - 2 * options.padding,
                             .width = width - 2 * options.padding,
                             .outputs = x->shape[1],
                             .kernel_height = weight->shape[2],
                             .kernel_width = weight->shape[3],
                             .stride = options.stride,
                             .padding = options.padding,
                             .groups = options.groups,
                             .out_height = x->shape[2],
                             .out_width = x->shape[3]};
    return weight->shape[0] == shape->outputs && shape->outputs % shape->groups == 0 &&
           (!bias || (bias->rank == 1 && bias->shape[0] == shape->channels));
}

static bool compute(sg_tape *tape, const transpose *t, sg_tensor *y)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    void *scratch = scratch_for(tape, &t->shape);
    if (!scratch || !sg_tape_may_read(tape, t->x, 0, t->x->n_elems) ||
        !sg_tape_may_read(tape, t->weight, 0, t->weight->n_elems) ||
        (t->bias && !sg_tape_may_read(tape, t->bias, 0, t->bias->n_elems)))
        return false;
    kernel->move->fill_planes(y->shape[0], y->shape[1], y->shape[2] * y->shape[3], t->bias ? t->bias->value : NULL,
                              y->value);
    kernel->conv->backward_input(&t->shape, t->x->value, t->weight->value, true, scratch, y->value);
    return true;
}

sg_tensor *sg_conv2d_transpose_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                                       sg_conv2d_options options)
{
    if (!x || !weight)
        return NULL;
    options.stride += options.stride == 0;
    options.groups += options.groups == 0;
    transpose state = {.x = x, .weight = weight, .bias = bias};
    if (!find_shape(x, weight, bias, options, &state.shape))
        return sg_tape_fail(tape, SG_INVALID,
                            "conv2d_transpose: input %s, weight %s, bias %s, stride %llu, padding %llu, groups %llu; "
                            "wanted [images, channels, height, width], [channels, outputs / groups, height, width], "
                            "[outputs], and less padding than there is output",
                            sg_shape_describe(x).text, sg_shape_describe(weight).text, sg_shape_describe(bias).text,
                            (unsigned long long)options.stride, (unsigned long long)options.padding,
                            (unsigned long long)options.groups);
    const bool needs_gradient = x->needs_gradient || weight->needs_gradient || (bias && bias->needs_gradient);
    const uint64_t shape[] = {x->shape[0], state.shape.channels, state.shape.height, state.shape.width};
    sg_tensor *y = sg_tape_output(tape, 4, shape, needs_gradient);
    if (!y || !compute(tape, &state, y))
        return NULL;
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, weight, bias},
                                          .n_inputs = bias ? 3 : 2,
                                          .backward = transpose_backward,
                                          .backward_variables = transpose_backward_weight,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
