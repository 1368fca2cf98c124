/* worker/data/batches.h - batches of examples as floats, made ahead of time on a thread of its own.
 *
 * Batches are numbered over all epochs: batch i is number i % per_epoch of epoch i / per_epoch, where per_epoch =
 * ceil(examples / batch); the last of an epoch may be short. Rank r of n takes the rows that sg_step_rows gives it of
 * each batch, the short one included. So what a batch holds depends on (seed, i, rank, size) alone.
 *
 * Threads: one consumer at a time. */
#ifndef SG_WORKER_DATA_BATCHES_H
#define SG_WORKER_DATA_BATCHES_H

#include "worker/data/augment.h"

typedef struct sg_batches sg_batches;

typedef struct sg_batches_options {
    uint64_t batch; /* rows of the global batch, at least 1 */
    uint64_t seed;
    bool in_order; /* true: examples as they lie in the file, every epoch (evaluation); false: shuffled per epoch */
    sg_augment augment; /* zeroed: nothing; otherwise the examples are images, larger than augment.crop each way */
} sg_batches_options;

typedef struct sg_batch {
    uint64_t index;
    uint64_t first_row;     /* its number in the whole batch */
    size_t n_rows;          /* 0 is possible */
    const float *inputs;    /* [n_rows, dataset->n_features] */
    const uint32_t *labels; /* [n_rows] */
} sg_batch;

/* dataset must outlive the batches. Errors: EXHAUSTED. Freed by sg_batches_destroy. */
SG_MUST_USE sg_status sg_batches_create(const sg_dataset *dataset, const sg_batches_options *options,
                                        sg_batches **batches, sg_error *err);
void sg_batches_destroy(sg_batches *batches); /* NULL is fine; stops the thread */

uint64_t sg_batches_per_epoch(const sg_batches *batches);

/* The rows of rank of size of batch `index`; valid until the next get. Then begins to make the same rank and size of
 * index + 1, in the guess that this is asked next; any other is right, too, but is waited for. rank < size. */
const sg_batch *sg_batches_get(sg_batches *batches, uint64_t index, uint32_t rank, uint32_t size);

/* How often sg_batches_get had to wait, since what it was asked for was not made yet; the first time it always has. */
uint64_t sg_batches_waits(const sg_batches *batches);

/* Corrects the guess, for a caller that knows better (async: its next ticket). */
void sg_batches_expect(sg_batches *batches, uint64_t index, uint32_t rank, uint32_t size);

#endif
