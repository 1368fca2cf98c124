/* worker/train/evaluate.h - how good the model is on examples that it was not trained on. */
#ifndef SG_WORKER_TRAIN_EVALUATE_H
#define SG_WORKER_TRAIN_EVALUATE_H

#include "worker/train/workload.h"

/* The share of the workload's test examples that the model, with the values that it holds now, classifies as labelled.
 * The workload was created with its test data. Errors: EXHAUSTED, CANCELLED (sg_workload_stop). */
SG_MUST_USE sg_status sg_evaluate_accuracy(sg_workload *workload, double *accuracy, sg_error *err);

#endif
