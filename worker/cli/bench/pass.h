/* worker/cli/bench/pass.h - the ps's fused pass (kernels/update.h) by itself, over arrays that no cache holds. */
#ifndef SG_WORKER_CLI_BENCH_PASS_H
#define SG_WORKER_CLI_BENCH_PASS_H

#include "common/span.h"
#include "common/status.h"

#define SG_BENCH_PASS_MAX_PARTS 4

typedef struct sg_bench_pass {
    size_t n_elems, slice_bytes;
    float *old_values, *new_values, *velocity;
    unsigned char *received[SG_BENCH_PASS_MAX_PARTS]; /* what the spans lie in */
    sg_span *spans[SG_BENCH_PASS_MAX_PARTS];          /* gradients, as scattered as gRPC delivers them */
    size_t n_spans;
} sg_bench_pass;

/* One contribution of n_bytes as gRPC delivers it: in frames of 16 KiB with a header of 9 bytes before each, so at odd
 * addresses, elements straddling two spans, and in buffers of 64 KiB. NULL where there is no memory; otherwise both the
 * spans and *received, which they lie in, are freed by free(). */
sg_span *sg_bench_pass_receive(size_t n_bytes, unsigned char **received, size_t *n_spans);

/* Arrays of array_bytes each (a multiple of slice_bytes), the pass going from slice to slice as a ps does. Errors:
 * EXHAUSTED. Freed by sg_bench_pass_deinit, also after failure. */
SG_MUST_USE sg_status sg_bench_pass_init(sg_bench_pass *pass, size_t array_bytes, size_t slice_bytes, sg_error *err);
void sg_bench_pass_deinit(sg_bench_pass *pass);

/* Seconds for one step of momentum over all elements with n_parts contributions. */
double sg_bench_pass_run(sg_bench_pass *pass, size_t n_parts);
/* Bytes that it reads and writes. */
double sg_bench_pass_bytes(const sg_bench_pass *pass, size_t n_parts);

#endif
