/* worker/nn/conv2d.c - the convolution of images with windows. */
#include "worker/nn/blocks.h"
#include "worker/nn/conv_layer.h"

static void conv2d_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const sg_conv_layer *c = state;
    sg_conv_layer_backward_bias(tape, c, y);
    bool accumulate;
    void *dx = sg_tape_gradient(tape, c->x, &accumulate);
    void *scratch = dx ? sg_conv_layer_scratch(tape, c) : NULL;
    if (scratch)
        sg_tape_kernel(tape)->conv->backward_input(&c->shape, y->gradient, c->weight->value, accumulate, scratch, dx);
}

static void conv2d_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const sg_conv_layer *c = state;
    sg_conv_layer_backward_weight(tape, c, c->x->value, y->gradient);
}

/* False where shapes do not fit; groups and stride are at least 1. */
static bool find_shape(sg_conv_layer *c, sg_conv2d_options options)
{
    const sg_tensor *x = c->x, *weight = c->weight, *bias = c->bias;
    if (!sg_conv_layer_has_sizes(c, options))
        return false;
    sg_conv_shape *shape = &c->shape;
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

sg_tensor *sg_conv2d_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias, sg_conv2d_options options)
{
    if (!x || !weight)
        return NULL;
    options.stride += options.stride == 0;
    options.groups += options.groups == 0;
    sg_conv_layer c = {.x = x, .weight = weight, .bias = bias};
    if (!find_shape(&c, options))
        return sg_conv_layer_fail(tape, "conv2d", &c, options,
                                  "[images, channels, height, width], [outputs, channels / groups, height, width] that "
                                  "fits into the padded input, [outputs]");
    const uint64_t shape[] = {x->shape[0], weight->shape[0], c.shape.out_height, c.shape.out_width};
    sg_tensor *y = sg_conv_layer_output(tape, &c, shape);
    if (!y)
        return NULL;
    const sg_conv_plan *plan = c.shape.plan = sg_tape_conv_plan(tape, &c.shape);
    y->block = plan ? plan->out_block : 0;
    c.x = x = sg_blocks_arrange(tape, x, plan ? plan->in_block : 0);
    void *scratch = x ? sg_conv_layer_scratch(tape, &c) : NULL;
    if (!scratch || !sg_conv_layer_may_read(tape, &c))
        return NULL;
    sg_tape_kernel(tape)->conv->forward(&c.shape, x->value, weight->value, bias ? bias->value : NULL, scratch,
                                        y->value);
    return sg_conv_layer_record(tape, &c, y, conv2d_backward, conv2d_backward_weight);
}
