/* worker/nn/norm_replicas.h - the statistics of a batch of which several replicas have a part each, for batch_norm.c.
 */
#ifndef SG_WORKER_NN_NORM_REPLICAS_H
#define SG_WORKER_NN_NORM_REPLICAS_H

#include "worker/nn/layers.h"

/* Makes of the statistics of the own part, [channels] each, those of all parts, elsewhere, and says how many elements
 * of a channel these have together. False after a failure, which the tape knows. */
bool sg_norm_replicas_combine(sg_tape *tape, const sg_batch_norm_replicas *replicas, const sg_norm_shape *shape,
                              void **mean, void **variance, double *n_seen);

/* For batch_backward with the shape of the own part, of what batch_sums made of that: [2 * channels]; NULL after a
 * failure. */
const void *sg_norm_replicas_sums(sg_tape *tape, const sg_batch_norm_replicas *replicas, const sg_norm_shape *shape,
                                  const void *sums, double n_seen);

#endif
