/* worker/train/evaluate.h - how good the model is on examples that it was not trained on.
 *
 * The workload was created with its test data. Errors of both: EXHAUSTED, CANCELLED (sg_workload_stop). */
#ifndef SG_WORKER_TRAIN_EVALUATE_H
#define SG_WORKER_TRAIN_EVALUATE_H

#include "worker/train/workload.h"

/* The share of the workload's test examples that the model, with the values that it holds now, classifies as labelled.
 */
SG_MUST_USE sg_status sg_evaluate_accuracy(sg_workload *workload, double *accuracy, sg_error *err);

/* Whether the values with which this iteration begins are to be tested: train.test_every_steps and _epochs say so, and
 * it is neither the first nor the end. */
bool sg_evaluate_is_due(const sg_workload *workload, uint64_t iteration);
/* Part `rank` of `size` of the test examples: the parts of all ranks are all examples, each once. No more of them are
 * looked at at once than a worker has of a batch of the training, so that it needs no more memory. */
SG_MUST_USE sg_status sg_evaluate_part(sg_workload *workload, uint32_t rank, uint32_t size, sg_tested *tested,
                                       sg_error *err);

#endif
