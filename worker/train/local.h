/* worker/train/local.h - training in one process, without a cluster: `shardgrad run --local`.
 *
 * The same workload, batches, kernels and update rules as one ps and one worker in sync mode, whole batches, updated in
 * place: the parameters come out the same, bit for bit, and what the cluster costs is the difference in speed. */
#ifndef SG_WORKER_TRAIN_LOCAL_H
#define SG_WORKER_TRAIN_LOCAL_H

#include "common/log.h"
#include "worker/train/summary.h"

typedef struct sg_local_options {
    sg_workload *workload; /* created with its test data */
    const sg_log *log;     /* NULL is silent */
    /* Called after every step; may be NULL. */
    void (*on_step)(void *user, const sg_step *step);
    void *user;
} sg_local_options;

/* Trains, evaluates, and fills in the summary (it is not written). Errors: CANCELLED (sg_workload_stop), EXHAUSTED. */
SG_MUST_USE sg_status sg_local_run(const sg_local_options *options, sg_summary *summary, sg_error *err);

/* What it is made of: a rule's slots, zero at first, and one step of it, which fills in *step. The workload must
 * outlive it. Errors: EXHAUSTED. */
typedef struct sg_local sg_local;
SG_MUST_USE sg_status sg_local_create(sg_workload *workload, sg_local **local, sg_error *err);
void sg_local_destroy(sg_local *local); /* NULL is fine */
SG_MUST_USE sg_status sg_local_step(sg_local *local, uint64_t number, sg_step *step, sg_error *err);

#endif
