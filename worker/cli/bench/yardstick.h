/* worker/cli/bench/yardstick.h - speaks to shardgrad-yardstick, the program that shows what gRPC core alone can do on
 * this machine (tests/bench/yardstick.c): a line to it, a line of JSON back. */
#ifndef SG_WORKER_CLI_BENCH_YARDSTICK_H
#define SG_WORKER_CLI_BENCH_YARDSTICK_H

#include <stdatomic.h>

#include "common/status.h"
#include "worker/cli/bench/series.h"

typedef struct sg_bench_yardstick sg_bench_yardstick;

/* How its bytes are cut and sent. */
typedef struct sg_bench_combination {
    uint64_t message_bytes;
    uint32_t threads, connections, in_flight;
} sg_bench_combination;

/* What its passes took; the CPU and faults of its two processes. */
typedef struct sg_bench_passes {
    sg_bench_series seconds, client_cpu_seconds, server_cpu_seconds, client_faults, server_faults;
} sg_bench_passes;
void sg_bench_passes_deinit(sg_bench_passes *passes);

/* Starts the program with so many bytes to move and waits until it is ready. *stopped, looked at while it is waited
 * for, ends that with CANCELLED; it must outlive the yardstick. Errors: NOT_FOUND, UNAVAILABLE, with its last word. */
SG_MUST_USE sg_status sg_bench_yardstick_create(const char *program, uint64_t n_bytes, const atomic_bool *stopped,
                                                sg_bench_yardstick **yardstick, sg_error *err);
void sg_bench_yardstick_destroy(sg_bench_yardstick *yardstick); /* NULL is fine */

/* Measures `op` ("push", "pull", "push_pull") `repetitions` times and adds what it took to *passes. Errors:
 * UNAVAILABLE (it has ended, or answered what is no answer), TIMEOUT, CANCELLED. */
SG_MUST_USE sg_status sg_bench_yardstick_measure(sg_bench_yardstick *yardstick, const char *op,
                                                 const sg_bench_combination *combination, uint32_t repetitions,
                                                 sg_bench_passes *passes, sg_error *err);
/* Seconds of a unary call of n_bytes there and back, until the calling thread is awake again. Errors: as above. */
SG_MUST_USE sg_status sg_bench_yardstick_echo(sg_bench_yardstick *yardstick, uint64_t n_bytes, uint32_t calls,
                                              double *p50_seconds, double *p99_seconds, sg_error *err);

#endif
