/* worker/train/backend.h - what a workload computes on: train.backend of the cluster file. */
#ifndef SG_WORKER_TRAIN_BACKEND_H
#define SG_WORKER_TRAIN_BACKEND_H

#include "worker/train/workload.h"

/* A workload is created to compute on the CPU. From here on it does where its configuration says; on a machine with
 * several devices each worker has one, by its index. For those who compute: who only looks at variables needs none.
 * Errors: CONFIG (it is not there). */
SG_MUST_USE sg_status sg_backend_choose(sg_workload *workload, uint32_t worker, sg_error *err);
/* Called by sg_workload_destroy. */
void sg_backend_leave(sg_workload *workload);

#endif
