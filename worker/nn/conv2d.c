/* worker/nn/conv2d.c - the convolution of images with windows. */
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

#define MAX_SIZE ((uint64_t)1 << 30) /* of everything that sg_conv_out calculates with */

typedef struct conv2d {
    sg_tensor *x, *weight, *bias; /* bias may be NULL */
    sg_conv_shape shape;
} conv2d;

static void *scratch_for(sg_tape *tape, const sg_conv_shape *shape)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    return sg_tape_scratch(tape, kernel->conv->scratch_elems(shape) * kernel->elem_bytes);
}

static void conv2d_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const conv2d *c = state;
    const sg_kernel_conv *kernel = sg_tape_kernel(tape)->conv;
    bool accumulate;
    void *dbias = c->bias ? sg_tape_gradient(tape, c->bias, &accumulate) : NULL;
    if (dbias)
        kernel->plane_sums(y->shape[0], y->shape[1], c->shape.out_height * c->shape.out_width, y->gradient, accumulate,
                           dbias);
    void *dx = sg_tape_gradient(tape, c->x, &accumulate);
    void *scratch = dx ? scratch_for(tape, &c->shape) : NULL;
    if (scratch)
        kernel->backward_input(&c->shape, y->gradient, c->weight->value, accumulate, scratch, dx);
}

static void conv2d_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const conv2d *c = state;
    bool accumulate;
    void *dweight = sg_tape_gradient(tape, c->weight, &accumulate);
    void *scratch = dweight ? scratch_for(tape, &c->shape) : NULL;
    if (scratch)
        sg_tape_kernel(tape)->conv->backward_weight(&c->shape, c->x->value, y->gradient, accumulate, scratch, dweight);
}

static bool sizes_are_possible(const sg_tensor *x, const sg_tensor *weight, sg_conv2d_options options)
{
    for (uint32_t i = 0; i < 4; i++)
        if (x->shape[i] >= MAX_SIZE || weight->shape[i] >= MAX_SIZE || (i > 0 && x->shape[i] < 1) ||
            weight->shape[i] < 1)
            return false;
    return options.stride < MAX_SIZE && options.padding < MAX_SIZE && options.groups < MAX_SIZE;
}

/* False where shapes do not fit; groups and stride are at least 1. */
static bool find_shape(const sg_tensor *x, const sg_tensor *weight, const sg_tensor *bias, sg_conv2d_options options,
                       sg_conv_shape *shape)
{
    if (x->rank != 4 || weight->rank != 4 || !sizes_are_possible(x, weight, options))
        return false;
    *shape = (sg_conv_shape){.images = x->shape[0],
                             .channels = x->shape[1],
                             .height = x->shape[2],
                             .width = x->shape[3],
                             .outputs = weight->shape[0],
                             .kernel_height = weight->shape[2],
                             .kernel_width = weight->shape[3],
                             .stride = options.stride,
                             .padding = options.padding,
                             .groups = options.groups};
    shape->out_height = sg_conv_out(shape->height, shape->kernel_height, shape->stride, shape->padding);
    shape->out_width = sg_conv_out(shape->width, shape->kernel_width, shape->stride, shape->padding);
    return shape->out_height > 0 && shape->out_width > 0 && shape->channels % shape->groups == 0 &&
           shape->outputs % shape->groups == 0 && weight->shape[1] == shape->channels / shape->groups &&
           (!bias || (bias->rank == 1 && bias->shape[0] == shape->outputs));
}

static void compute(sg_tape *tape, const conv2d *c, sg_tensor *y)
{
    void *scratch = scratch_for(tape, &c->shape);
    if (scratch && sg_tape_may_read(tape, c->x, 0, c->x->n_elems) &&
        sg_tape_may_read(tape, c->weight, 0, c->weight->n_elems) &&
        (!c->bias || sg_tape_may_read(tape, c->bias, 0, c->bias->n_elems)))
        sg_tape_kernel(tape)->conv->forward(&c->shape, c->x->value, c->weight->value, c->bias ? c->bias->value : NULL,
                                            scratch, y->value);
}

sg_tensor *sg_conv2d_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias, sg_conv2d_options options)
{
    if (!x || !weight)
        return NULL;
    options.stride += options.stride == 0;
    options.groups += options.groups == 0;
    conv2d state = {.x = x, .weight = weight, .bias = bias};
    if (!find_shape(x, weight, bias, options, &state.shape))
        return sg_tape_fail(tape, SG_INVALID,
                            "conv2d: input %s, weight %s, bias %s, stride %llu, padding %llu, groups %llu; wanted "
                            "[images, channels, height, width], [outputs, channels / groups, height, width] that fits "
                            "into the padded input, [outputs]",
                            sg_shape_describe(x).text, sg_shape_describe(weight).text, sg_shape_describe(bias).text,
                            (unsigned long long)options.stride, (unsigned long long)options.padding,
                            (unsigned long long)options.groups);
    const bool needs_gradient = x->needs_gradient || weight->needs_gradient || (bias && bias->needs_gradient);
    const uint64_t shape[] = {x->shape[0], weight->shape[0], state.shape.out_height, state.shape.out_width};
    sg_tensor *y = sg_tape_output(tape, 4, shape, needs_gradient);
    if (!y)
        return NULL;
    compute(tape, &state, y);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, weight, bias},
                                          .n_inputs = bias ? 3 : 2,
                                          .backward = conv2d_backward,
                                          .backward_variables = conv2d_backward_weight,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return sg_tape_check(tape, NULL) == SG_OK ? y : NULL;
}
