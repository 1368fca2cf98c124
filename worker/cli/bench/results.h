/* worker/cli/bench/results.h - what a run of `shardgrad bench` is asked for, and what it finds. */
#ifndef SG_WORKER_CLI_BENCH_RESULTS_H
#define SG_WORKER_CLI_BENCH_RESULTS_H

#include "worker/cli/bench/pass.h"
#include "worker/cli/bench/series.h"
#include "worker/cli/bench/variables.h"
#include "worker/cli/bench/yardstick.h"

/* The parts of a run, in their order; --only chooses among them. */
typedef enum sg_bench_stage {
    SG_BENCH_STAGE_MACHINE, /* memory, and the fused pass by itself */
    SG_BENCH_STAGE_OPS,     /* push, pull, push_pull; the first round; page faults */
    SG_BENCH_STAGE_SMALL,   /* one variable of 4 KiB */
    SG_BENCH_STAGE_MANY,    /* 10,000 variables of 1 KiB */
    SG_BENCH_STAGE_MEMORY,  /* memory of the ps, with 2 workers */
    SG_BENCH_STAGE_SCALE,   /* 4 ps, 4 workers */
    SG_BENCH_STAGE_COUNT
} sg_bench_stage;

typedef struct sg_bench_settings {
    sg_bench_shape shape; /* of the model that is moved as a whole */
    uint32_t repetitions;
    uint32_t fault_steps;               /* over which page faults are counted */
    uint32_t small_blocks, small_steps; /* of the small model: blocks in turn with the yardstick, steps of each */
    sg_bench_shape many;                /* the model of many small variables */
    uint32_t many_steps;
    uint64_t array_bytes;            /* that memory is measured with */
    bool only[SG_BENCH_STAGE_COUNT]; /* which stages are run */
    bool search;                     /* find the yardstick's best combination; otherwise take a usual one */
    bool quick;
} sg_bench_settings;

typedef enum sg_bench_op_kind {
    SG_BENCH_OP_PUSH,
    SG_BENCH_OP_PULL,
    SG_BENCH_OP_BOTH,
    SG_BENCH_OP_COUNT
} sg_bench_op_kind;

/* Each series has a value per repetition, in the same order, so that values of one index were measured one right after
 * the other. Those of the yardstick are empty where there is none. */
typedef struct sg_bench_op_result {
    double bytes; /* of a repetition: all workers', both ways where it goes both ways */
    sg_bench_series seconds, worker_cpu_seconds, ps_cpu_seconds, worker_faults, ps_faults;
    double yardstick_bytes;
    sg_bench_combination combination; /* the yardstick's best */
    sg_bench_passes yardstick;
} sg_bench_op_result;

typedef struct sg_bench_scale_result {
    uint64_t n_ps, n_workers;
    double bytes;
    sg_bench_series seconds;
} sg_bench_scale_result;

typedef struct sg_bench_results {
    uint64_t n_ps, n_workers;
    uint64_t connections, rpc_threads; /* of shardgrad's side, as configured */
    bool has_yardstick;
    struct {
        double pass_bytes, copy_bytes, tcp_bytes;
        sg_bench_series pass_seconds, copy_seconds;
        sg_bench_series tcp_seconds;                     /* of the stage ops: one per repetition */
        double fused_bytes[SG_BENCH_PASS_MAX_PARTS + 1]; /* by number of contributions: 1, 2 and 4 */
        sg_bench_series fused_seconds[SG_BENCH_PASS_MAX_PARTS + 1];
    } machine;
    sg_bench_op_result ops[SG_BENCH_OP_COUNT];
    double first_round_seconds;
    sg_bench_series step_worker_faults, step_ps_faults;
    struct {
        sg_bench_series steps;       /* seconds of each */
        sg_bench_series p50_seconds; /* of each block */
        sg_bench_series echo_p50_seconds, echo_p99_seconds;
        double worker_cpu_seconds, ps_cpu_seconds; /* per step */
    } small;
    struct {
        uint64_t n_variables, bytes;
        sg_bench_series seconds, copy_seconds;
    } many;
    struct {
        uint64_t n_workers, parameter_bytes, resident_bytes, peak_bytes;
    } memory;
    sg_bench_scale_result scale[2];
} sg_bench_results;

void sg_bench_results_deinit(sg_bench_results *results);

#endif
