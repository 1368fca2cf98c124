/* tests/train/fixture.h - a tiny job: a folder with IDX files and a cluster file. */
#ifndef SG_TESTS_TRAIN_FIXTURE_H
#define SG_TESTS_TRAIN_FIXTURE_H

#include "common/config.h"
#include "common/status.h"
#include "worker/train/workload.h"

typedef struct job {
    char folder[64];
    char path[96]; /* of the cluster file */
    sg_config *config;
} job;

/* 100 training and 50 test images of 6 x 6, 10 classes; batch 32 (an epoch is 4 steps, the last of 4 examples), one
 * hidden layer of 8. `extra` is put at the end of the file, `sets` are overrides "KEY=VALUE", NULL-terminated. */
void job_init(job *j, const char *extra, const char *const *sets);
void job_deinit(job *j);
/* To train without a cluster on what its workers compute on; by sg_workload_destroy. */
sg_workload *job_workload(const job *j);

#endif
