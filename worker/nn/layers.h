/* worker/nn/layers.h - the layers that a forward pass is built of; see tape.h for how.
 *
 * Each function computes its result at once and records the way back. NULL goes in and out after a failure. */
#ifndef SG_WORKER_NN_LAYERS_H
#define SG_WORKER_NN_LAYERS_H

#include "worker/nn/tape.h"

typedef enum sg_dense_activation { SG_DENSE_LINEAR, SG_DENSE_RELU } sg_dense_activation;

/* x[rows, inputs] * weight[inputs, outputs] + bias[outputs], then the activation, fused. */
sg_tensor *sg_dense_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                            sg_dense_activation activation);

/* Images are [images, channels, height, width] everywhere. */

typedef struct sg_conv2d_options {
    uint64_t stride, padding, groups; /* in both directions; stride and groups 0: 1 */
} sg_conv2d_options;

/* The cross-correlation of images with weight[outputs, channels / groups, height, width], plus bias[outputs], which may
 * be NULL: [images, outputs, (height + 2 * padding - weight's height) / stride + 1, ...]. As PyTorch's. */
sg_tensor *sg_conv2d_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                             sg_conv2d_options options);

typedef struct sg_pool_options {
    uint64_t window, stride, padding; /* in both directions; stride 0: as window. window at most SG_POOL_MAX_WINDOW */
} sg_pool_options;

/* The largest element of each window, or the mean, of which the padding counts as zeros; a window that does not fit
 * wholly into the padded image is left out. */
sg_tensor *sg_max_pool_forward(sg_tape *tape, sg_tensor *x, sg_pool_options options);
sg_tensor *sg_average_pool_forward(sg_tape *tape, sg_tensor *x, sg_pool_options options);
/* The mean of each channel of each image: [images, channels]. */
sg_tensor *sg_global_average_pool_forward(sg_tape *tape, sg_tensor *x);

/* The mean of all elements: a scalar, 0 where there are none. */
sg_tensor *sg_mean_forward(sg_tape *tape, sg_tensor *x);

/* The same elements in another shape with as many; flatten: [rows, all else]. Nothing is copied. */
sg_tensor *sg_reshape_forward(sg_tape *tape, sg_tensor *x, uint32_t rank, const uint64_t *shape);
sg_tensor *sg_flatten_forward(sg_tape *tape, sg_tensor *x);

/* max(0, x), any shape. */
sg_tensor *sg_relu_forward(sg_tape *tape, sg_tensor *x);

/* The mean over the rows of logits[rows, classes] of the cross entropy between softmax(row) and labels[row]: a scalar.
 * 0 for 0 rows. labels is the caller's and must stay until the pass is over; n_labels must be the number of rows. */
sg_tensor *sg_softmax_cross_entropy_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels, size_t n_labels);

/* Number of rows of logits whose largest element is the label's; 0 after a failure. */
uint64_t sg_softmax_cross_entropy_count_correct(sg_tape *tape, const sg_tensor *logits, const uint32_t *labels,
                                                size_t n_labels);

#endif
