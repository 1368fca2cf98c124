/* worker/cli/bench/bench.h - one run of `shardgrad bench`: what its parts share.
 *
 * The stages run one after the other on one thread, each with a cluster of its own in a folder of its own; while they
 * do, another thread may tell them to stop. */
#ifndef SG_WORKER_CLI_BENCH_BENCH_H
#define SG_WORKER_CLI_BENCH_BENCH_H

#include <pthread.h>

#include "worker/cli/bench/cluster.h"
#include "worker/cli/bench/machine.h"
#include "worker/cli/bench/results.h"

typedef struct sg_bench {
    const sg_bench_settings *settings;
    const sg_config_flags *flags;  /* overrides for every cluster */
    const sg_config *config;       /* how many ps and workers there are where a stage does not say otherwise */
    const char *folder;            /* for the run directories of the clusters */
    const char *yardstick_program; /* NULL: there is none */
    sg_bench_results *results;
    int exit_code; /* of the process that failed; 0: the status says enough */

    sg_bench_yardstick *yardstick;
    sg_bench_tcp *tcp;

    atomic_bool stopped;
    pthread_mutex_t mutex;     /* guards cluster */
    sg_bench_cluster *cluster; /* that runs now */
} sg_bench;

/* Runs all chosen stages. Errors: CANCELLED (sg_bench_stop), those of the parts. */
SG_MUST_USE sg_status sg_bench_run(sg_bench *bench, sg_error *err);
/* From any thread, while sg_bench_run runs. */
void sg_bench_stop(sg_bench *bench);

/* --- for the stages ------------------------------------------------------------------------------------------- */

typedef struct sg_bench_clustered {
    const char *name;         /* of its folder */
    uint64_t n_ps, n_workers; /* 0: as configured */
    sg_bench_shape shape;
    /* What is done once every worker has declared the model. */
    sg_status (*work)(sg_bench *bench, sg_bench_cluster *cluster, void *user, sg_error *err);
    void *user;
} sg_bench_clustered;

/* Starts a cluster, does the work, ends the cluster. */
SG_MUST_USE sg_status sg_bench_with_cluster(sg_bench *bench, const sg_bench_clustered *clustered, sg_error *err);
/* CANCELLED once the bench was stopped. */
SG_MUST_USE sg_status sg_bench_go_on(sg_bench *bench, sg_error *err);
/* A line for people who wait. */
void sg_bench_say(const char *format, ...) SG_PRINTF(1, 2);

/* ops.c: push, pull and push_pull in turn with the yardstick; the first round; page faults. */
SG_MUST_USE sg_status sg_bench_ops(sg_bench *bench, sg_error *err);
/* stages.c: the small model, the one of many variables; memory; other numbers of processes. */
SG_MUST_USE sg_status sg_bench_small(sg_bench *bench, sg_error *err);
SG_MUST_USE sg_status sg_bench_many(sg_bench *bench, sg_error *err);
SG_MUST_USE sg_status sg_bench_memory(sg_bench *bench, sg_error *err);
SG_MUST_USE sg_status sg_bench_scale(sg_bench *bench, sg_error *err);

#endif
