/* tests/train/cluster.h - a whole cluster in this process: ps and trainers on threads, ports chosen by the kernel. */
#ifndef SG_TESTS_TRAIN_CLUSTER_H
#define SG_TESTS_TRAIN_CLUSTER_H

#include <pthread.h>

#include "server/ps.h"
#include "worker/train/trainer.h"

#define CLUSTER_MAX_STEPS 1024

typedef struct cluster_spec {
    const char *config_path;
    const char *const *set; /* overrides, NULL-terminated; ps, workers and run_dir are added */
    const char *run_dir;
    uint32_t n_ps, n_workers;
    uint64_t early_steps; /* values are also kept after so many steps; 0: they are not */
} cluster_spec;

typedef struct cluster_result {
    sg_model *model; /* variables as declared, holding the values at the end */
    sg_model *start; /* the same, holding the initial values */
    float **early;   /* [n_variables] values of worker 0 after early_steps; NULL if not asked for */
    uint64_t examples[CLUSTER_MAX_STEPS]; /* of all workers, per step */
    sg_summary summary;
} cluster_result;

/* One ps on a thread, for tests that bring their own workers. coordinator: NULL for ps 0. Ended by cluster_ps_join,
 * once the last worker has left; it must end well. */
typedef struct cluster_ps {
    sg_ps *ps;
    pthread_t thread;
    sg_status status;
    sg_error error;
} cluster_ps;
void cluster_ps_start(cluster_ps *p, const sg_config *config, uint32_t index, const char *coordinator);
void cluster_ps_join(cluster_ps *p);

/* Trains to the end; every ps and every worker must end well. Freed by cluster_result_deinit. */
void cluster_train(const cluster_spec *spec, cluster_result *result);
void cluster_result_deinit(cluster_result *result);

#endif
