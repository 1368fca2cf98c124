/* worker/cli/run.h - the two ways in which `shardgrad run` trains. Each returns the exit code of the command and has
 * said on standard error what went wrong. */
#ifndef SG_WORKER_CLI_RUN_H
#define SG_WORKER_CLI_RUN_H

#include "worker/cli/arguments.h"
#include "worker/cli/progress.h"

typedef struct sg_run {
    const sg_arguments *arguments;
    int lock_fd; /* of the run directory */
    sg_progress progress;
} sg_run;

/* run_cluster.c: ps and workers as processes of this machine. */
int sg_run_cluster(sg_run *run);
/* run_local.c: in this process, without a cluster. */
int sg_run_local(sg_run *run);

#endif
