/* worker/cli/bench/results.c - see results.h. */
#include "worker/cli/bench/results.h"

#include "common/status.h"

static void deinit_op(sg_bench_op_result *op)
{
    sg_bench_series_deinit(&op->seconds);
    sg_bench_series_deinit(&op->worker_cpu_seconds);
    sg_bench_series_deinit(&op->ps_cpu_seconds);
    sg_bench_series_deinit(&op->worker_faults);
    sg_bench_series_deinit(&op->ps_faults);
    sg_bench_passes_deinit(&op->yardstick);
}

void sg_bench_results_deinit(sg_bench_results *r)
{
    sg_bench_series_deinit(&r->machine.pass_seconds);
    sg_bench_series_deinit(&r->machine.copy_seconds);
    sg_bench_series_deinit(&r->machine.tcp_seconds);
    for (size_t i = 0; i <= SG_BENCH_PASS_MAX_PARTS; i++)
        sg_bench_series_deinit(&r->machine.fused_seconds[i]);
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++)
        deinit_op(&r->ops[i]);
    sg_bench_series_deinit(&r->step_worker_faults);
    sg_bench_series_deinit(&r->step_ps_faults);
    sg_bench_series_deinit(&r->small.steps);
    sg_bench_series_deinit(&r->small.p50_seconds);
    sg_bench_series_deinit(&r->small.echo_p50_seconds);
    sg_bench_series_deinit(&r->small.echo_p99_seconds);
    sg_bench_series_deinit(&r->many.seconds);
    sg_bench_series_deinit(&r->many.copy_seconds);
    for (size_t i = 0; i < SG_ARRAY_LEN(r->scale); i++)
        sg_bench_series_deinit(&r->scale[i].seconds);
}
