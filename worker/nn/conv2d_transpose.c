/* worker/nn/conv2d_transpose.c - a convolution backwards: its output is what the gradient of the input of a convolution
 * would be, so that images grow. */
#include "worker/nn/blocks.h"
#include "worker/nn/conv_layer.h"

static void transpose_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const sg_conv_layer *t = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    sg_conv_layer_backward_bias(tape, t, y);
    bool accumulate = false;
    void *dx = sg_tape_gradient(tape, t->x, &accumulate);
    void *made = dx && accumulate ? sg_tape_alloc(tape, t->x->n_elems * kernel->elem_bytes) : dx;
    void *scratch = made ? sg_conv_layer_scratch(tape, t) : NULL;
    if (!scratch)
        return;
    kernel->conv->forward(&t->shape, y->gradient, t->weight->value, NULL, scratch, made);
    if (accumulate)
        kernel->scaled(t->x->n_elems, 1, made, true, dx);
}

static void transpose_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const sg_conv_layer *t = state;
    sg_conv_layer_backward_weight(tape, t, y->gradient, t->x->value);
}

static bool find_shape(sg_conv_layer *t, sg_conv2d_options options)
{
    const sg_tensor *x = t->x, *weight = t->weight, *bias = t->bias;
    if (!sg_conv_layer_has_sizes(t, options))
        return false;
    const uint64_t height = (x->shape[2] - 1) * options.stride + weight->shape[2];
    const uint64_t width = (x->shape[3] - 1) * options.stride + weight->shape[3];
    if (height >= SG_CONV_LAYER_MAX_SIZE || width >= SG_CONV_LAYER_MAX_SIZE || height <= 2 * options.padding ||
        width <= 2 * options.padding)
        return false;
    t->shape = (sg_conv_shape){.images = x->shape[0],
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
    return weight->shape[0] == t->shape.outputs && t->shape.outputs % t->shape.groups == 0 &&
           (!bias || (bias->rank == 1 && bias->shape[0] == t->shape.channels));
}

sg_tensor *sg_conv2d_transpose_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                                       sg_conv2d_options options)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x || !weight)
        return NULL;
    options.stride += options.stride == 0;
    options.groups += options.groups == 0;
    sg_conv_layer t = {.x = x, .weight = weight, .bias = bias};
    if (!find_shape(&t, options))
        return sg_conv_layer_fail(tape, "conv2d_transpose", &t, options,
                                  "[images, channels, height, width], [channels, outputs / groups, height, width], "
                                  "[outputs], and less padding than there is output");
    const uint64_t shape[] = {x->shape[0], t.shape.channels, t.shape.height, t.shape.width};
    sg_tensor *y = sg_conv_layer_output(tape, &t, shape);
    void *scratch = y ? sg_conv_layer_scratch(tape, &t) : NULL;
    if (!scratch || !sg_conv_layer_may_read(tape, &t))
        return NULL;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    kernel->move->fill_planes(y->shape[0], y->shape[1], y->shape[2] * y->shape[3], bias ? bias->value : NULL, y->value);
    kernel->conv->backward_input(&t.shape, x->value, weight->value, true, scratch, y->value);
    return sg_conv_layer_record(tape, &t, y, transpose_backward, transpose_backward_weight);
}
