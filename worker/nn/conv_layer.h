/* worker/nn/conv_layer.h - what conv2d.c and conv2d_transpose.c have in common; nobody else calls it. */
#ifndef SG_WORKER_NN_CONV_LAYER_H
#define SG_WORKER_NN_CONV_LAYER_H

#include "worker/nn/layers.h"

#define SG_CONV_LAYER_MAX_SIZE ((uint64_t)1 << 30) /* of everything that sg_conv_out calculates with */

typedef struct sg_conv_layer {
    sg_tensor *x, *weight, *bias; /* bias may be NULL */
    sg_conv_shape shape;          /* conv2d_transpose: of the convolution that would lead from y to x */
} sg_conv_layer;

/* Whether x and weight have four dimensions, and these and the options are sizes that can be calculated with. */
bool sg_conv_layer_has_sizes(const sg_conv_layer *layer, sg_conv2d_options options);
/* SG_INVALID: what was found, and `wanted`. Returns NULL. */
sg_tensor *sg_conv_layer_fail(sg_tape *tape, const char *name, const sg_conv_layer *layer, sg_conv2d_options options,
                              const char *wanted);
/* NULL without memory, which the tape knows. */
void *sg_conv_layer_scratch(sg_tape *tape, const sg_conv_layer *layer);
/* False where one of the inputs cannot be had, which the tape knows. */
bool sg_conv_layer_may_read(sg_tape *tape, const sg_conv_layer *layer);
sg_tensor *sg_conv_layer_output(sg_tape *tape, const sg_conv_layer *layer, const uint64_t shape[4]);
/* Returns y. */
sg_tensor *sg_conv_layer_record(sg_tape *tape, const sg_conv_layer *layer, sg_tensor *y, sg_tape_backward_fn backward,
                                sg_tape_backward_fn backward_weight);
void sg_conv_layer_backward_bias(sg_tape *tape, const sg_conv_layer *layer, const sg_tensor *y);
/* images, dy: of the convolution that `shape` describes. */
void sg_conv_layer_backward_weight(sg_tape *tape, const sg_conv_layer *layer, const void *images, const void *dy);

#endif
