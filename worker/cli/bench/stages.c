/* worker/cli/bench/stages.c - the stages beside ops.c: other models and other numbers of processes. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/cli/bench/bench.h"

#define SMALL_BYTES    4096u
#define WARM_UPS       3u
#define SCALE_MOST     10u /* repetitions: the model goes over the wire 4 times in each */
#define MEMORY_WORKERS 2u

/* --- one variable of 4 KiB ------------------------------------------------------------------------------------ */

static sg_status measure_block(sg_bench *b, sg_bench_cluster *cluster, sg_bench_sample *sum, sg_error *err)
{
    sg_bench_results *r = b->results;
    uint32_t n = b->settings->small_steps;
    sg_bench_series steps = {0};
    sg_bench_sample sample;
    sg_status status = SG_OK;
    if (b->yardstick != NULL) {
        double p50, p99;
        status = sg_bench_yardstick_echo(b->yardstick, SMALL_BYTES, n, &p50, &p99, err);
        if (status != SG_OK)
            return status;
        sg_bench_series_add(&r->small.echo_p50_seconds, p50);
        sg_bench_series_add(&r->small.echo_p99_seconds, p99);
    }
    status = sg_bench_cluster_do(cluster, SG_BENCH_STEP, n, &sample, &steps, err);
    if (status == SG_OK)
        sg_bench_series_add(&r->small.p50_seconds, sg_bench_series_median(&steps));
    for (size_t i = 0; i < steps.n && status == SG_OK; i++)
        sg_bench_series_add(&r->small.steps, steps.values[i]);
    sum->worker_cpu_seconds += sample.worker_cpu_seconds;
    sum->ps_cpu_seconds += sample.ps_cpu_seconds;
    sg_bench_series_deinit(&steps);
    return status == SG_OK ? sg_bench_go_on(b, err) : status;
}

static sg_status work_small(sg_bench *b, sg_bench_cluster *cluster, void *user, sg_error *err)
{
    (void)user;
    sg_bench_sample sum = {0};
    const sg_bench_settings *s = b->settings;
    sg_status status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_STEP, s->small_steps, err);
    for (uint32_t i = 0; i < s->small_blocks && status == SG_OK; i++)
        status = measure_block(b, cluster, &sum, err);
    b->results->small.worker_cpu_seconds = sum.worker_cpu_seconds / s->small_blocks / s->small_steps;
    b->results->small.ps_cpu_seconds = sum.ps_cpu_seconds / s->small_blocks / s->small_steps;
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

sg_status sg_bench_small(sg_bench *b, sg_error *err)
{
    sg_bench_say("one variable of 4 KiB: %u steps", b->settings->small_blocks * b->settings->small_steps);
    return sg_bench_with_cluster(b,
                                 &(sg_bench_clustered){
                                     .name = "small",
                                     .shape = {.total_bytes = SMALL_BYTES, .variable_bytes = SMALL_BYTES},
                                     .work = work_small,
                                 },
                                 err);
}

/* --- many small variables ------------------------------------------------------------------------------------- */

static sg_status work_many(sg_bench *b, sg_bench_cluster *cluster, void *user, sg_error *err)
{
    char *from = user;
    uint64_t n_bytes = b->settings->many.total_bytes;
    sg_status status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_STEP, WARM_UPS, err);
    for (uint32_t i = 0; i < b->settings->many_steps && status == SG_OK; i++) {
        sg_bench_sample sample;
        double copied = sg_bench_machine_copy(from + n_bytes, from, (size_t)n_bytes);
        status = sg_bench_cluster_do(cluster, SG_BENCH_STEP, 1, &sample, NULL, err);
        if (status != SG_OK)
            break;
        sg_bench_series_add(&b->results->many.copy_seconds, copied);
        sg_bench_series_add(&b->results->many.seconds, sample.seconds);
        status = sg_bench_go_on(b, err);
    }
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

sg_status sg_bench_many(sg_bench *b, sg_error *err)
{
    sg_bench_shape shape = b->settings->many;
    b->results->many.n_variables = sg_bench_shape_variables(&shape);
    b->results->many.bytes = shape.total_bytes;
    sg_bench_say("%" PRIu64 " variables of 1 KiB: %u steps", b->results->many.n_variables, b->settings->many_steps);
    char *buffer = sg_try_alloc_aligned((size_t)shape.total_bytes * 2);
    if (buffer == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for twice %" PRIu64 " bytes", shape.total_bytes);
    memset(buffer, 1, (size_t)shape.total_bytes * 2);
    sg_status status = sg_bench_with_cluster(
        b, &(sg_bench_clustered){.name = "many", .shape = shape, .work = work_many, .user = buffer}, err);
    free(buffer);
    return status;
}

/* --- memory of the ps ----------------------------------------------------------------------------------------- */

static sg_status work_memory(sg_bench *b, sg_bench_cluster *cluster, void *user, sg_error *err)
{
    (void)user;
    sg_status status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_PUSH_PULL, WARM_UPS, err);
    sg_bench_cluster_reset_peak(cluster);
    if (status == SG_OK)
        status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_PUSH_PULL, b->settings->repetitions, err);
    if (status == SG_OK)
        status =
            sg_bench_cluster_memory(cluster, &b->results->memory.resident_bytes, &b->results->memory.peak_bytes, err);
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

sg_status sg_bench_memory(sg_bench *b, sg_error *err)
{
    uint64_t n_workers = b->config->workers < MEMORY_WORKERS ? MEMORY_WORKERS : b->config->workers;
    b->results->memory.n_workers = n_workers;
    b->results->memory.parameter_bytes = b->settings->shape.total_bytes;
    sg_bench_say("memory of the ps with %" PRIu64 " workers", n_workers);
    return sg_bench_with_cluster(
        b,
        &(sg_bench_clustered){
            .name = "memory", .n_workers = n_workers, .shape = b->settings->shape, .work = work_memory},
        err);
}

/* --- more ps, more workers ------------------------------------------------------------------------------------ */

static sg_status work_scale(sg_bench *b, sg_bench_cluster *cluster, void *user, sg_error *err)
{
    sg_bench_scale_result *result = user;
    uint32_t n = b->settings->repetitions < SCALE_MOST ? b->settings->repetitions : SCALE_MOST;
    sg_status status = sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_PUSH_PULL, WARM_UPS, err);
    for (uint32_t i = 0; i < n && status == SG_OK; i++) {
        sg_bench_sample sample;
        status = sg_bench_cluster_do(cluster, SG_BENCH_PUSH_PULL, 1, &sample, NULL, err);
        if (status != SG_OK)
            break;
        sg_bench_series_add(&result->seconds, sample.seconds);
        status = sg_bench_go_on(b, err);
    }
    return status == SG_OK ? sg_bench_cluster_do_unmeasured(cluster, SG_BENCH_CHECK, 1, err) : status;
}

/* The rest of the run is 1 + 1, to which it is compared: sg_bench_settings_fit_stages. */
sg_status sg_bench_scale(sg_bench *b, sg_error *err)
{
    static const uint64_t shapes[][2] = {{4, 1}, {1, 4}};
    sg_status status = SG_OK;
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes) && status == SG_OK; i++) {
        sg_bench_scale_result *result = &b->results->scale[i];
        result->n_ps = shapes[i][0];
        result->n_workers = shapes[i][1];
        result->bytes = 2 * (double)b->settings->shape.total_bytes * (double)result->n_workers;
        char name[32];
        snprintf(name, sizeof(name), "scale-%" PRIu64 "-%" PRIu64, result->n_ps, result->n_workers);
        sg_bench_say("push_pull with %" PRIu64 " ps and %" PRIu64 " workers", result->n_ps, result->n_workers);
        status = sg_bench_with_cluster(b,
                                       &(sg_bench_clustered){.name = name,
                                                             .n_ps = result->n_ps,
                                                             .n_workers = result->n_workers,
                                                             .shape = b->settings->shape,
                                                             .work = work_scale,
                                                             .user = result},
                                       err);
    }
    return status;
}
