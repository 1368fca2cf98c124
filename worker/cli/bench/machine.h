/* worker/cli/bench/machine.h - what this machine can do, which is what a ps is measured against: a raw TCP stream over
 * loopback, a copy of memory, and a pass that reads two arrays and writes a third. */
#ifndef SG_WORKER_CLI_BENCH_MACHINE_H
#define SG_WORKER_CLI_BENCH_MACHINE_H

#include "common/status.h"

/* A stream to a process of its own that reads and throws away. */
typedef struct sg_bench_tcp sg_bench_tcp;

/* Errors: UNAVAILABLE, EXHAUSTED. Destroyed by sg_bench_tcp_destroy, which ends the process. */
SG_MUST_USE sg_status sg_bench_tcp_create(sg_bench_tcp **tcp, sg_error *err);
void sg_bench_tcp_destroy(sg_bench_tcp *tcp); /* NULL is fine */
/* Sends n_bytes in writes of 1 MiB and waits until the other side says that it has them all. Errors: UNAVAILABLE. */
SG_MUST_USE sg_status sg_bench_tcp_send(sg_bench_tcp *tcp, uint64_t n_bytes, double *seconds, sg_error *err);

/* Seconds to copy n_bytes from one place to another, no overlap. */
double sg_bench_machine_copy(void *to, const void *from, size_t n_bytes);
/* Seconds for sum[i] = a[i] + b[i]: 12 bytes per element. All 64-byte aligned, n_elems a multiple of 16. */
double sg_bench_machine_pass(float *sum, const float *a, const float *b, size_t n_elems);

#endif
