/* worker/cli/bench/variables.h - the variables that `shardgrad bench` moves, and what the rule must make of them.
 *
 * Element i of the model begins as a number that follows from i modulo a prime, and worker w always pushes a gradient
 * that follows from that and w, with weight w + 1. So what every element must be after any number of steps of sgd is
 * known from a short table, to the bit, and bytes that arrive at the wrong place or not at all are found. */
#ifndef SG_WORKER_CLI_BENCH_VARIABLES_H
#define SG_WORKER_CLI_BENCH_VARIABLES_H

#include "shardgrad/client.h"

typedef struct sg_bench_shape {
    uint64_t total_bytes;    /* a multiple of 4 */
    uint64_t variable_bytes; /* of each variable, the last one excepted; a multiple of 4 */
} sg_bench_shape;

uint64_t sg_bench_shape_variables(const sg_bench_shape *shape);

typedef struct sg_bench_variables {
    sg_variable *variables; /* [n_variables], with values and gradients; for sg_client_declare */
    uint32_t *indices;      /* 0 .. n_variables - 1 */
    size_t n_variables, n_elems;
    uint64_t weight;           /* of this worker's gradients: its examples */
    float *values, *gradients; /* [n_elems], of all variables in a row */
    float *expected, *sums;    /* [n_expected]: of element i at i % n_expected; the weighted mean of all gradients */
    size_t n_expected;
    uint64_t n_ahead; /* steps that `expected` has not been led through */
    float learning_rate;
} sg_bench_variables;

/* The variables of worker `worker` of n_workers, as it is before the first step. Errors: EXHAUSTED. Freed by
 * sg_bench_variables_deinit, also after failure. */
SG_MUST_USE sg_status sg_bench_variables_init(sg_bench_variables *variables, const sg_bench_shape *shape,
                                              uint32_t worker, uint32_t n_workers, sg_error *err);
void sg_bench_variables_deinit(sg_bench_variables *variables);

/* The cluster made one step more, all workers taking part, with this learning rate. Does next to nothing. */
void sg_bench_variables_count_step(sg_bench_variables *variables, float learning_rate);
/* Whether every value is what the rule makes of those steps. Errors: INTERNAL, naming the first that is not. */
SG_MUST_USE sg_status sg_bench_variables_check(sg_bench_variables *variables, sg_error *err);

#endif
