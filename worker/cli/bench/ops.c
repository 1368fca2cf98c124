/* worker/cli/bench/ops.c - push, pull and push_pull of the whole model, in turn with the yardstick's best. */
#include <stdlib.h>

#include "worker/cli/bench/bench.h"

#define WARM_UPS           2u
#define SEARCH_REPETITIONS 2u
#define FINAL_REPETITIONS  5u
#define FINALISTS          4u

static const struct {
    const char *name;
    sg_bench_command command;
    unsigned directions;
} ops[SG_BENCH_OP_COUNT] = {
    [SG_BENCH_OP_PUSH] = {"push", SG_BENCH_PUSH, 1},
    [SG_BENCH_OP_PULL] = {"pull", SG_BENCH_PULL, 1},
    [SG_BENCH_OP_BOTH] = {"push_pull", SG_BENCH_PUSH_PULL, 2},
};

/* --- the yardstick's best combination --------------------------------------------------------------------------- */

typedef struct candidate {
    sg_bench_combination combination;
    double seconds;
} candidate;

static int compare(const void *a, const void *b)
{
    double x = ((const candidate *)a)->seconds, y = ((const candidate *)b)->seconds;
    return (x > y) - (x < y);
}

static size_t list_candidates(candidate out[36])
{
    static const uint64_t message_bytes[] = {256u << 10, 1u << 20, 4u << 20};
    static const uint32_t in_flight[] = {2, 4, 8};
    size_t n = 0;
    for (size_t m = 0; m < SG_ARRAY_LEN(message_bytes); m++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            for (uint32_t connections = 1; connections <= 2; connections++)
                for (size_t f = 0; f < SG_ARRAY_LEN(in_flight); f++)
                    out[n++].combination = (sg_bench_combination){.message_bytes = message_bytes[m],
                                                                  .threads = threads,
                                                                  .connections = connections,
                                                                  .in_flight = in_flight[f]};
    return n;
}

static sg_status try_candidates(sg_bench *b, const char *op, candidate *candidates, size_t n, uint32_t repetitions,
                                sg_error *err)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < n && status == SG_OK; i++) {
        sg_bench_passes passes = {0};
        status = sg_bench_yardstick_measure(b->yardstick, op, &candidates[i].combination, repetitions, &passes, err);
        candidates[i].seconds = sg_bench_series_median(&passes.seconds);
        sg_bench_passes_deinit(&passes);
    }
    qsort(candidates, n, sizeof(*candidates), compare);
    return status;
}

/* All of them twice, then the best few again, so that a moment's luck does not decide. */
static sg_status find_best(sg_bench *b, sg_bench_op_kind kind, sg_error *err)
{
    candidate candidates[36];
    size_t n = list_candidates(candidates);
    sg_status status = try_candidates(b, ops[kind].name, candidates, n, SEARCH_REPETITIONS, err);
    if (status == SG_OK)
        status = try_candidates(b, ops[kind].name, candidates, FINALISTS, FINAL_REPETITIONS, err);
    b->results->ops[kind].combination = candidates[0].combination;
    return status;
}

static sg_status prepare_yardstick(sg_bench *b, sg_error *err)
{
    sg_status status = SG_OK;
    if (b->yardstick == NULL)
        return status;
    if (b->settings->search)
        sg_bench_say("the yardstick's best of 36 combinations, for each of push, pull, push_pull");
    for (sg_bench_op_kind kind = 0; kind < SG_BENCH_OP_COUNT && status == SG_OK; kind++) {
        b->results->ops[kind].combination =
            (sg_bench_combination){.message_bytes = 1u << 20, .threads = 1, .connections = 1, .in_flight = 4};
        b->results->ops[kind].yardstick_bytes = ops[kind].directions * (double)b->settings->shape.total_bytes;
        if (b->settings->search)
            status = find_best(b, kind, err);
    }
    return status;
}

/* --- the repetitions ------------------------------------------------------------------------------------------ */

static sg_status measure_yardstick(sg_bench *b, sg_bench_op_kind kind, sg_error *err)
{
    sg_bench_op_result *r = &b->results->ops[kind];
    if (b->yardstick == NULL)
        return SG_OK;
    return sg_bench_yardstick_measure(b->yardstick, ops[kind].name, &r->combination, 1, &r->yardstick, err);
}

/* One op of the kind that is not measured, as the yardstick has made a pass that is not. What was pushed has to be
 * pulled before it can be pushed again. */
static sg_status do_first(sg_bench_cluster *cluster, sg_bench_op_kind kind, sg_error *err)
{
    sg_status status = sg_bench_cluster_do_unmeasured(cluster, ops[kind].command, 1, err);
    if (status == SG_OK && kind == SG_BENCH_OP_PUSH)
        status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_PULL, 1, err);
    return status;
}

static sg_status measure_op(sg_bench *b, sg_bench_cluster *cluster, sg_bench_op_kind kind, sg_error *err)
{
    sg_bench_op_result *r = &b->results->ops[kind];
    sg_bench_sample sample;
    sg_status status = do_first(cluster, kind, err);
    if (status == SG_OK)
        status = sg_bench_cluster_do(cluster, ops[kind].command, 1, &sample, NULL, err);
    if (status != SG_OK)
        return status;
    sg_bench_series_add(&r->seconds, sample.seconds);
    sg_bench_series_add(&r->worker_cpu_seconds, sample.worker_cpu_seconds);
    sg_bench_series_add(&r->ps_cpu_seconds, sample.ps_cpu_seconds);
    sg_bench_series_add(&r->worker_faults, sample.worker_faults);
    sg_bench_series_add(&r->ps_faults, sample.ps_faults);
    return SG_OK;
}

/* The machine, the yardstick and the cluster in turn, as close to each other in time as can be. */
static sg_status repeat(sg_bench *b, sg_bench_cluster *cluster, bool check, sg_error *err)
{
    double seconds = 0;
    uint64_t n_bytes = b->settings->shape.total_bytes;
    sg_status status = sg_bench_tcp_send(b->tcp, n_bytes, &seconds, err);
    sg_bench_series_add(&b->results->machine.tcp_seconds, seconds);
    for (sg_bench_op_kind kind = 0; kind < SG_BENCH_OP_COUNT && status == SG_OK; kind++) {
        status = measure_yardstick(b, kind, err);
        if (status == SG_OK)
            status = measure_op(b, cluster, kind, err);
        if (status == SG_OK && check && kind != SG_BENCH_OP_PUSH)
            status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err);
    }
    return status == SG_OK ? sg_bench_go_on(b, err) : status;
}

static sg_status warm_up(sg_bench *b, sg_bench_cluster *cluster, sg_error *err)
{
    sg_bench_sample sample;
    double seconds;
    sg_status status = sg_bench_cluster_do(cluster, SG_BENCH_PUSH_PULL, 1, &sample, NULL, err);
    b->results->first_round_seconds = sample.seconds;
    for (uint32_t i = 0; i < WARM_UPS; i++) {
        for (sg_bench_op_kind kind = 0; kind < SG_BENCH_OP_COUNT && status == SG_OK; kind++)
            status = sg_bench_cluster_do_unmeasured(cluster, ops[kind].command, 1, err);
        if (status == SG_OK)
            status = sg_bench_tcp_send(b->tcp, b->settings->shape.total_bytes, &seconds, err);
    }
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

static sg_status count_faults(sg_bench *b, sg_bench_cluster *cluster, sg_error *err)
{
    sg_status status = SG_OK;
    sg_bench_say("page faults of %u steps", b->settings->fault_steps);
    for (uint32_t i = 0; i < b->settings->fault_steps && status == SG_OK; i++) {
        sg_bench_sample sample;
        status = sg_bench_cluster_do(cluster, SG_BENCH_PUSH_PULL, 1, &sample, NULL, err);
        if (status != SG_OK)
            break;
        sg_bench_series_add(&b->results->step_worker_faults, sample.worker_faults);
        sg_bench_series_add(&b->results->step_ps_faults, sample.ps_faults);
        status = sg_bench_go_on(b, err);
    }
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

static sg_status work(sg_bench *b, sg_bench_cluster *cluster, void *user, sg_error *err)
{
    (void)user;
    sg_status status = warm_up(b, cluster, err);
    sg_bench_say("push, pull, push_pull: %u repetitions", b->settings->repetitions);
    for (uint32_t i = 0; i < b->settings->repetitions && status == SG_OK; i++)
        status = repeat(b, cluster, i + 1 == b->settings->repetitions, err);
    return status == SG_OK ? count_faults(b, cluster, err) : status;
}

sg_status sg_bench_ops(sg_bench *b, sg_error *err)
{
    sg_status status = prepare_yardstick(b, err);
    if (status != SG_OK)
        return status;
    uint64_t n_bytes = b->settings->shape.total_bytes;
    b->results->machine.tcp_bytes = (double)n_bytes;
    for (sg_bench_op_kind kind = 0; kind < SG_BENCH_OP_COUNT; kind++)
        b->results->ops[kind].bytes = ops[kind].directions * (double)n_bytes * (double)b->config->workers;
    return sg_bench_with_cluster(b, &(sg_bench_clustered){.name = "ops", .shape = b->settings->shape, .work = work},
                                 err);
}
