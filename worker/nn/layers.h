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

/* max(0, x), any shape. */
sg_tensor *sg_relu_forward(sg_tape *tape, sg_tensor *x);

/* The mean over the rows of logits[rows, classes] of the cross entropy between softmax(row) and labels[row]: a scalar.
 * 0 for 0 rows. labels is the caller's and must stay until the pass is over; n_labels must be the number of rows. */
sg_tensor *sg_softmax_cross_entropy_forward(sg_tape *tape, sg_tensor *logits, const uint32_t *labels, size_t n_labels);

/* Number of rows of logits whose largest element is the label's; 0 after a failure. */
uint64_t sg_softmax_cross_entropy_count_correct(sg_tape *tape, const sg_tensor *logits, const uint32_t *labels,
                                                size_t n_labels);

#endif
