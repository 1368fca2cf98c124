/* worker/cli/bench/cluster.h - a cluster of ps and bench workers as processes of this machine, told what to do and
 * watched while it does.
 *
 * Threads: a thread of its own keeps the processes (supervisor.h). The functions here are for one other thread, save
 * sg_bench_cluster_interrupt. */
#ifndef SG_WORKER_CLI_BENCH_CLUSTER_H
#define SG_WORKER_CLI_BENCH_CLUSTER_H

#include "common/config.h"
#include "worker/cli/bench/series.h"
#include "worker/cli/bench/worker.h"

typedef struct sg_bench_cluster sg_bench_cluster;

typedef struct sg_bench_cluster_options {
    const sg_config *config; /* n_ps and n_workers processes of it; run_dir is where they write */
    sg_bench_shape shape;
} sg_bench_cluster_options;

/* What one command took. Sums over the processes of a side. */
typedef struct sg_bench_sample {
    double seconds; /* from the first worker that began to the last that ended */
    double worker_cpu_seconds, ps_cpu_seconds;
    double worker_faults, ps_faults; /* minor page faults */
} sg_bench_sample;

/* Starts the processes; does not wait for them. Never fails: what fails is told by the calls that follow. To be ended
 * by sg_bench_cluster_finish and then destroyed. `options` are copied, the config must outlive the cluster. */
sg_bench_cluster *sg_bench_cluster_create(const sg_bench_cluster_options *options);

/* Waits until every worker has declared the model. Errors: as below. */
SG_MUST_USE sg_status sg_bench_cluster_wait(sg_bench_cluster *cluster, sg_error *err);

/* Lets every worker do `command` n_times, beginning together, and waits for the last. steps may be NULL, or gets the
 * seconds of each of worker 0's n_times. Errors: PEER_LOST, with the reason to be had from sg_bench_cluster_finish. */
SG_MUST_USE sg_status sg_bench_cluster_do(sg_bench_cluster *cluster, sg_bench_command command, uint32_t n_times,
                                          sg_bench_sample *sample, sg_bench_series *steps, sg_error *err);

/* The same where what it took is of no interest: warming up, checking the values. */
SG_MUST_USE sg_status sg_bench_cluster_do_unmeasured(sg_bench_cluster *cluster, sg_bench_command command,
                                                     uint32_t n_times, sg_error *err);

/* Resident bytes of all ps together: now, and the sum of what each had at most since the reset. Errors: PEER_LOST. */
SG_MUST_USE sg_status sg_bench_cluster_memory(sg_bench_cluster *cluster, uint64_t *resident_bytes, uint64_t *peak_bytes,
                                              sg_error *err);
void sg_bench_cluster_reset_peak(sg_bench_cluster *cluster);

/* Ends all processes: the workers leave and the ps end by themselves if `status`, how the measuring went, is OK;
 * otherwise they are stopped. Returns status and leaves err alone, unless a process failed of its
 * own accord: then err says which and how, and *exit_code is its exit code, otherwise left alone. */
SG_MUST_USE sg_status sg_bench_cluster_finish(sg_bench_cluster *cluster, sg_status status, int *exit_code,
                                              sg_error *err);

void sg_bench_cluster_destroy(sg_bench_cluster *cluster); /* only after finish */

/* Stops all processes, so that whoever waits returns with PEER_LOST. From any thread, as often as one likes. */
void sg_bench_cluster_interrupt(sg_bench_cluster *cluster);

#endif
