/* worker/cli/bench/run.c - see bench.h: the order of the stages, and a cluster for each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/folder.h"
#include "worker/cli/bench/bench.h"
#include "worker/cli/bench/settings.h"

#define PASS_REPETITIONS  9u
#define QUICK_REPETITIONS 2u

void sg_bench_say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("bench: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
}

sg_status sg_bench_go_on(sg_bench *b, sg_error *err)
{
    return atomic_load(&b->stopped) ? sg_error_set(err, SG_CANCELLED, "stopped") : SG_OK;
}

void sg_bench_stop(sg_bench *b)
{
    atomic_store(&b->stopped, true);
    pthread_mutex_lock(&b->mutex);
    if (b->cluster != NULL)
        sg_bench_cluster_interrupt(b->cluster);
    pthread_mutex_unlock(&b->mutex);
}

/* --- a cluster for a stage ------------------------------------------------------------------------------------ */

static char *loopback_list(uint64_t n)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    for (uint64_t i = 0; i < n; i++)
        fputs(i == 0 ? "[127.0.0.1:0" : ", 127.0.0.1:0", out);
    fputc(']', out);
    fclose(out);
    return text;
}

/* The user's overrides, and the stage's after them. */
static sg_status load_config(const sg_bench *b, const sg_bench_clustered *what, sg_config **config, sg_error *err)
{
    const sg_config_flags *flags = b->flags;
    sg_config_override *all = sg_xcalloc(flags->n_overrides + 4, sizeof(*all));
    size_t n = flags->n_overrides;
    memcpy(all, flags->overrides, n * sizeof(*all));
    char *run_dir = sg_xprintf("%s/%s", b->folder, what->name);
    char *workers = sg_xprintf("%" PRIu64, what->n_workers);
    char *ps = loopback_list(what->n_ps);
    all[n++] = (sg_config_override){"run_dir", run_dir, "bench"};
    if (what->n_workers != 0)
        all[n++] = (sg_config_override){"workers", workers, "bench"};
    if (what->n_ps != 0) {
        all[n++] = (sg_config_override){"ps", ps, "bench"};
        all[n++] = (sg_config_override){"advertise", "[]", "bench"};
    }
    sg_status status = sg_config_load(NULL, all, n, config, err);
    free(all);
    free(run_dir);
    free(workers);
    free(ps);
    return status;
}

static void show_cluster(sg_bench *b, sg_bench_cluster *cluster)
{
    pthread_mutex_lock(&b->mutex);
    b->cluster = cluster;
    if (cluster != NULL && atomic_load(&b->stopped))
        sg_bench_cluster_interrupt(cluster);
    pthread_mutex_unlock(&b->mutex);
}

sg_status sg_bench_with_cluster(sg_bench *b, const sg_bench_clustered *what, sg_error *err)
{
    sg_config *config = NULL;
    sg_status status = load_config(b, what, &config, err);
    if (status == SG_OK)
        status = sg_folder_make(config->run_dir, err);
    if (status == SG_OK) {
        sg_bench_cluster *cluster =
            sg_bench_cluster_create(&(sg_bench_cluster_options){.config = config, .shape = what->shape});
        show_cluster(b, cluster);
        status = sg_bench_cluster_wait(cluster, err);
        if (status == SG_OK)
            status = what->work(b, cluster, what->user, err);
        status = sg_bench_cluster_finish(cluster, status, &b->exit_code, err);
        show_cluster(b, NULL);
        sg_bench_cluster_destroy(cluster);
        if (atomic_load(&b->stopped))
            status = sg_error_set(err, SG_CANCELLED, "stopped");
    }
    sg_config_destroy(config);
    return status;
}

/* --- the stages ----------------------------------------------------------------------------------------------- */

/* Memory and the fused pass take turns, so that what disturbs the machine disturbs both. */
static void measure_passes(sg_bench *b, sg_bench_pass *pass)
{
    sg_bench_results *r = b->results;
    float *to = pass->new_values;
    const float *from = pass->old_values;
    size_t n_bytes = pass->n_elems * sizeof(float);
    r->machine.copy_bytes = (double)n_bytes;
    r->machine.pass_bytes = 3 * (double)n_bytes;
    for (uint32_t i = 0; i < (b->settings->quick ? QUICK_REPETITIONS : PASS_REPETITIONS); i++) {
        sg_bench_series_add(&r->machine.copy_seconds, sg_bench_machine_copy(to, from, n_bytes));
        sg_bench_series_add(&r->machine.pass_seconds, sg_bench_machine_pass(to, from, pass->velocity, pass->n_elems));
        for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2) {
            r->machine.fused_bytes[n] = sg_bench_pass_bytes(pass, n);
            sg_bench_series_add(&r->machine.fused_seconds[n], sg_bench_pass_run(pass, n));
        }
        if (atomic_load(&b->stopped))
            return;
    }
}

static sg_status measure_machine(sg_bench *b, sg_error *err)
{
    sg_bench_pass pass;
    sg_bench_say("memory, and the fused pass over it");
    sg_status status = sg_bench_pass_init(&pass, (size_t)b->settings->array_bytes, (size_t)b->config->slice_bytes, err);
    if (status == SG_OK)
        measure_passes(b, &pass);
    sg_bench_pass_deinit(&pass);
    return status;
}

/* Where the stages that compare with it run. */
static sg_status start_yardstick(sg_bench *b, sg_error *err)
{
    if (!sg_bench_settings_wants_yardstick(b->settings))
        return SG_OK;
    if (b->yardstick_program == NULL) {
        sg_bench_say("there is no shardgrad-yardstick beside this program: its ratios are left out");
        return SG_OK;
    }
    b->results->has_yardstick = true;
    return sg_bench_yardstick_create(b->yardstick_program, b->settings->shape.total_bytes, &b->stopped, &b->yardstick,
                                     err);
}

static sg_status run_stages(sg_bench *b, sg_error *err)
{
    static sg_status (*const stages[SG_BENCH_STAGE_COUNT])(sg_bench *, sg_error *) = {
        [SG_BENCH_STAGE_MACHINE] = measure_machine, [SG_BENCH_STAGE_OPS] = sg_bench_ops,
        [SG_BENCH_STAGE_SMALL] = sg_bench_small,    [SG_BENCH_STAGE_MANY] = sg_bench_many,
        [SG_BENCH_STAGE_MEMORY] = sg_bench_memory,  [SG_BENCH_STAGE_SCALE] = sg_bench_scale,
    };
    sg_status status = SG_OK;
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT && status == SG_OK; i++) {
        if (b->settings->only[i])
            status = stages[i](b, err);
        if (status == SG_OK)
            status = sg_bench_go_on(b, err);
    }
    return status;
}

sg_status sg_bench_run(sg_bench *b, sg_error *err)
{
    b->results->n_ps = b->config->ps.n;
    b->results->n_workers = b->config->workers;
    b->results->connections = b->config->connections;
    b->results->rpc_threads = b->config->rpc_threads;
    sg_status status = sg_bench_tcp_create(&b->tcp, err);
    if (status == SG_OK)
        status = start_yardstick(b, err);
    if (status == SG_OK)
        status = run_stages(b, err);
    sg_bench_yardstick_destroy(b->yardstick);
    sg_bench_tcp_destroy(b->tcp);
    b->yardstick = NULL;
    b->tcp = NULL;
    return status;
}
