/* worker/nn/conv_layer.c - see conv_layer.h. */
#include "worker/nn/conv_layer.h"

#include "worker/nn/shape.h"

bool sg_conv_layer_has_sizes(const sg_conv_layer *layer, sg_conv2d_options options)
{
    const sg_tensor *x = layer->x, *weight = layer->weight;
    if (x->rank != 4 || weight->rank != 4)
        return false;
    for (uint32_t i = 0; i < 4; i++)
        if (x->shape[i] >= SG_CONV_LAYER_MAX_SIZE || weight->shape[i] >= SG_CONV_LAYER_MAX_SIZE ||
            weight->shape[i] < 1 || (i > 0 && x->shape[i] < 1))
            return false;
    return options.stride < SG_CONV_LAYER_MAX_SIZE && options.padding < SG_CONV_LAYER_MAX_SIZE &&
           options.groups < SG_CONV_LAYER_MAX_SIZE;
}

sg_tensor *sg_conv_layer_fail(sg_tape *tape, const char *name, const sg_conv_layer *layer, sg_conv2d_options options,
                              const char *wanted)
{
    return sg_tape_fail(tape, SG_INVALID,
                        "%s: input %s, weight %s, bias %s, stride %llu, padding %llu, groups %llu; wanted %s", name,
                        sg_shape_describe(layer->x).text, sg_shape_describe(layer->weight).text,
                        sg_shape_describe(layer->bias).text, (unsigned long long)options.stride,
                        (unsigned long long)options.padding, (unsigned long long)options.groups, wanted);
}

void *sg_conv_layer_scratch(sg_tape *tape, const sg_conv_layer *layer)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    return sg_tape_scratch(tape, kernel->conv->scratch_elems(&layer->shape) * kernel->elem_bytes);
}

bool sg_conv_layer_may_read(sg_tape *tape, const sg_conv_layer *layer)
{
    return sg_tape_may_read(tape, layer->x, 0, layer->x->n_elems) &&
           sg_tape_may_read(tape, layer->weight, 0, layer->weight->n_elems) &&
           (!layer->bias || sg_tape_may_read(tape, layer->bias, 0, layer->bias->n_elems));
}

sg_tensor *sg_conv_layer_output(sg_tape *tape, const sg_conv_layer *layer, const uint64_t shape[4])
{
    const bool needs_gradient =
        layer->x->needs_gradient || layer->weight->needs_gradient || (layer->bias && layer->bias->needs_gradient);
    return sg_tape_output(tape, 4, shape, needs_gradient);
}

sg_tensor *sg_conv_layer_record(sg_tape *tape, const sg_conv_layer *layer, sg_tensor *y, sg_tape_backward_fn backward,
                                sg_tape_backward_fn backward_weight)
{
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){layer->x, layer->weight, layer->bias},
                                          .n_inputs = layer->bias ? 3 : 2,
                                          .backward = backward,
                                          .backward_weight = backward_weight,
                                          .weight = layer->weight,
                                          .state = layer,
                                          .state_bytes = sizeof *layer});
    return y;
}

void sg_conv_layer_backward_bias(sg_tape *tape, const sg_conv_layer *layer, const sg_tensor *y)
{
    bool accumulate;
    void *dbias = layer->bias ? sg_tape_gradient(tape, layer->bias, &accumulate) : NULL;
    if (!dbias)
        return;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const sg_norm_shape s = {
        .images = y->shape[0], .channels = y->shape[1], .plane = y->shape[2] * y->shape[3], .block = y->block};
    if (s.block > 0)
        kernel->blocks->plane_sums(&s, y->gradient, accumulate, dbias);
    else
        kernel->conv->plane_sums(s.images, s.channels, s.plane, y->gradient, accumulate, dbias);
}

void sg_conv_layer_backward_weight(sg_tape *tape, const sg_conv_layer *layer, const void *images, const void *dy)
{
    bool accumulate;
    void *dweight = sg_tape_gradient(tape, layer->weight, &accumulate);
    void *scratch = dweight ? sg_conv_layer_scratch(tape, layer) : NULL;
    if (scratch)
        sg_tape_kernel(tape)->conv->backward_weight(&layer->shape, images, dy, accumulate, scratch, dweight);
}
