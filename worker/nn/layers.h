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

/* The way back of a convolution: weight[channels, outputs / groups, height, width], result [images, outputs,
 * (height - 1) * stride + weight's height - 2 * padding, ...]. As PyTorch's, without output padding. */
sg_tensor *sg_conv2d_transpose_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                                       sg_conv2d_options options);
/* Each element becomes a square of factor x factor. */
sg_tensor *sg_upsample_nearest_forward(sg_tape *tape, sg_tensor *x, uint64_t factor);

/* Several tapes, in other threads, processes or machines, that have a part of one batch each: batch_norm is then that
 * of the whole batch. What a replica goes back from is its part of the loss: all parts together are the loss, and the
 * gradients of variables, but for running statistics, which all replicas propose alike, the parts of a sum. */
typedef struct sg_batch_norm_replicas {
    /* Puts into sums[n] the sums over all replicas. It is called on the thread of the pass, by each training layer
     * twice on the way forward and once on the way back: all replicas must make the same passes, a replica without
     * rows, too. A failure becomes the pass's. NULL: there are no others. */
    sg_status (*add_up)(void *user, double *sums, size_t n, sg_error *err);
    void *user;
} sg_batch_norm_replicas;

typedef struct sg_batch_norm_options {
    double epsilon;  /* added to the variance; 0: 1e-5 */
    double momentum; /* share of a batch in the running statistics; 0: 0.1 */
    bool training;   /* false: the running statistics are used, as they are */
    bool relu;       /* the positive part of the result, fused */
    sg_batch_norm_replicas replicas;
} sg_batch_norm_options;

/* (x - mean) / sqrt(variance + epsilon) * gamma + beta for each channel of [images, channels, height, width] or [rows,
 * channels]; the others are [channels]. In a backward pass the gradients of the running statistics, where they have
 * any, are what these should become: (1 - momentum) * running + momentum * batch, the variance that of a sample; after
 * several batches on one tape, those one after the other; in evaluation, what they are. */
sg_tensor *sg_batch_norm_forward(sg_tape *tape, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta,
                                 sg_tensor *running_mean, sg_tensor *running_variance, sg_batch_norm_options options);
/* The same for each row of the last dimension, which gamma and beta have; epsilon 0: 1e-5. */
sg_tensor *sg_layer_norm_forward(sg_tape *tape, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta, double epsilon);
/* Of each row of the last dimension. */
sg_tensor *sg_softmax_forward(sg_tape *tape, sg_tensor *x);

typedef struct sg_dropout_where {
    uint64_t seed, stream, first; /* the number of x's first element in the stream */
} sg_dropout_where;

/* Elements left out with probability `rate`, the others times 1 / (1 - rate): which, is a function of the seed, the
 * stream and the element's number alone. Give each layer and step a stream of its own, and go by the row's number in
 * the whole batch: then it does not matter how many workers share it. For evaluation, leave the layer out. */
sg_tensor *sg_dropout_forward(sg_tape *tape, sg_tensor *x, double rate, sg_dropout_where where);

/* Rows ids[n_ids] of table[rows, columns]: [n_ids, columns]. ids is the caller's and must stay until the pass is over.
 */
sg_tensor *sg_embedding_forward(sg_tape *tape, sg_tensor *table, const uint32_t *ids, size_t n_ids);

/* Of two tensors of one shape, which may be the same. */
sg_tensor *sg_add_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b);
/* The positive part of that, in the memory of one tensor. */
sg_tensor *sg_add_relu_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b);
sg_tensor *sg_multiply_forward(sg_tape *tape, sg_tensor *a, sg_tensor *b);
sg_tensor *sg_scale_forward(sg_tape *tape, sg_tensor *x, double factor);
/* Of all elements: a scalar. */
sg_tensor *sg_sum_forward(sg_tape *tape, sg_tensor *x);
/* n tensors, at least 1, side by side along an axis in which alone they may differ. */
sg_tensor *sg_concat_forward(sg_tape *tape, sg_tensor *const *tensors, size_t n, uint32_t axis);
/* Elements [first, first + count) along an axis. */
sg_tensor *sg_slice_forward(sg_tape *tape, sg_tensor *x, uint32_t axis, uint64_t first, uint64_t count);
/* x, through which no gradient goes. */
sg_tensor *sg_stop_gradient_forward(sg_tape *tape, sg_tensor *x);

/* Functions of each element, any shape. max(0, x): */
sg_tensor *sg_relu_forward(sg_tape *tape, sg_tensor *x);
sg_tensor *sg_leaky_relu_forward(sg_tape *tape, sg_tensor *x, double slope); /* slope * x where x is negative */
sg_tensor *sg_sigmoid_forward(sg_tape *tape, sg_tensor *x);
sg_tensor *sg_tanh_forward(sg_tape *tape, sg_tensor *x);
sg_tensor *sg_softplus_forward(sg_tape *tape, sg_tensor *x); /* log(1 + e^x) */
sg_tensor *sg_gelu_forward(sg_tape *tape, sg_tensor *x);     /* by the error function */
/* Any of them, for the parameter see kernels/elementwise.h. */
sg_tensor *sg_unary_forward(sg_tape *tape, sg_tensor *x, sg_unary function, double parameter);

/* The mean over the rows of logits[rows, classes] of the cross entropy between softmax(row) and labels[row]: a scalar.
 * 0 for 0 rows. labels is the caller's and must stay until the pass is over; n_labels must be the number of rows. */
sg_tensor *sg_softmax_cross_entropy_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels, size_t n_labels);

/* The same where the label is only 1 - smoothing of what is wanted, and smoothing is spread evenly over all classes. */
sg_tensor *sg_softmax_cross_entropy_smoothed_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels,
                                                     size_t n_labels, double smoothing);
/* The mean of (x - target)^2: a scalar. */
sg_tensor *sg_mean_squared_error_forward(sg_tape *tape, sg_tensor *x, sg_tensor *target);
/* The mean of max(0, 1 - x * target), target 1 or -1: a scalar. */
sg_tensor *sg_hinge_forward(sg_tape *tape, sg_tensor *x, sg_tensor *target);

/* Number of rows of logits whose largest element is the label's; 0 after a failure. */
uint64_t sg_softmax_cross_entropy_count_correct(sg_tape *tape, const sg_tensor *logits, const uint32_t *labels,
                                                size_t n_labels);

#endif
