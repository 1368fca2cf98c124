/* worker/cli/bench/cluster.c - see cluster.h. */
#include "worker/cli/bench/cluster.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/folder.h"
#include "worker/cli/bench/channel.h"
#include "worker/cli/bench/process.h"
#include "worker/cli/program.h"
#include "worker/cli/supervisor.h"

#define PS_END_MS      10000u /* ps end by themselves when the last worker has left; this long after it they are told */
#define KILL_MARGIN_MS 1000u
#define LOST_SECONDS   2

struct sg_bench_cluster {
    sg_bench_cluster_options options;
    char *config_path, *socket_path;
    sg_error error; /* why it could not be started; SG_OK: it could */
    sg_bench_channel channel;
    int *ps_pids, *worker_pids;

    pthread_t thread; /* runs the loop; all below belongs to it once it runs */
    uv_loop_t loop;
    uv_async_t wake;
    uv_timer_t ps_end;
    sg_supervisor *supervisor;
    size_t n_workers_alive;
    sg_status start_status;
    sg_error start_error;

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t changed;
    bool started; /* the processes were, or could not be */
    bool over;    /* the last has ended: `wake` is closed */
};

static size_t n_ps(const sg_bench_cluster *c)
{
    return c->options.config->ps.n;
}

static size_t n_workers(const sg_bench_cluster *c)
{
    return (size_t)c->options.config->workers;
}

/* --- the thread that keeps the processes ---------------------------------------------------------------------- */

static void on_line(void *user, const char *who, const char *line)
{
    sg_bench_cluster *c = user;
    char level;
    const char *text = sg_supervisor_log_text(line, &level);
    if ((level == 'W' || level == 'E') && !sg_supervisor_is_stopping(c->supervisor))
        fprintf(stderr, "bench: %s | %s\n", who, text);
}

static void on_ps_end_due(uv_timer_t *timer)
{
    sg_bench_cluster *c = timer->data;
    fprintf(stderr, "bench: the ps did not end after the last worker; stopping them\n");
    sg_supervisor_stop(c->supervisor);
}

static void on_finished(void *user, const char *who, size_t n_alive)
{
    sg_bench_cluster *c = user;
    if (strncmp(who, "worker", strlen("worker")) == 0 && --c->n_workers_alive == 0 && n_alive > 0)
        uv_timer_start(&c->ps_end, on_ps_end_due, PS_END_MS, 0);
}

/* Whoever waits for a worker's hello is woken; the others see their connections end. */
static void on_ended(void *user)
{
    sg_bench_cluster *c = user;
    pthread_mutex_lock(&c->mutex);
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    sg_bench_channel_give_up(&c->channel);
    uv_close((uv_handle_t *)&c->wake, NULL);
    uv_close((uv_handle_t *)&c->ps_end, NULL);
}

static void on_wake(uv_async_t *wake)
{
    sg_bench_cluster *c = wake->data;
    sg_supervisor_stop(c->supervisor);
}

static void free_argv(char **argv)
{
    for (char **word = argv; *word != NULL; word++)
        free(*word);
    free(argv);
}

static char **ps_argv(const sg_bench_cluster *c, size_t index)
{
    char **argv = sg_xcalloc(8, sizeof(*argv));
    argv[0] = sg_program_find("shardgrad-ps");
    argv[1] = sg_xstrdup("--config");
    argv[2] = sg_xstrdup(c->config_path);
    argv[3] = sg_xstrdup("--index");
    argv[4] = sg_xprintf("%zu", index);
    argv[5] = sg_xstrdup("--parent");
    argv[6] = sg_xprintf("%ld", (long)getpid());
    return argv;
}

static char **worker_argv(const sg_bench_cluster *c, size_t index)
{
    char parent[32];
    snprintf(parent, sizeof(parent), "%ld", (long)getpid());
    return sg_bench_worker_argv(&(sg_bench_worker_options){
        .socket_path = c->socket_path,
        .config_path = c->config_path,
        .worker = (uint32_t)index,
        .n_workers = (uint32_t)n_workers(c),
        .parent = parent,
        .shape = c->options.shape,
    });
}

static sg_status start_process(sg_bench_cluster *c, const char *role, size_t index, char **take_argv, int *pid)
{
    char who[32];
    snprintf(who, sizeof(who), "%s-%zu", role, index);
    sg_status status = sg_supervisor_start(c->supervisor, who, take_argv, &c->start_error);
    *pid = sg_supervisor_pid(c->supervisor, who);
    free_argv(take_argv);
    return status;
}

static sg_status start_processes(sg_bench_cluster *c)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < n_ps(c) && status == SG_OK; i++)
        status = start_process(c, "ps", i, ps_argv(c, i), &c->ps_pids[i]);
    for (size_t i = 0; i < n_workers(c) && status == SG_OK; i++)
        status = start_process(c, "worker", i, worker_argv(c, i), &c->worker_pids[i]);
    return status;
}

static void *run_loop(void *user)
{
    sg_bench_cluster *c = user;
    c->start_status = start_processes(c);
    pthread_mutex_lock(&c->mutex);
    c->started = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mutex);
    uv_run(&c->loop, UV_RUN_DEFAULT);
    return NULL;
}

/* --- start ---------------------------------------------------------------------------------------------------- */

/* The whole configuration as a file, which all processes of the cluster read. */
static sg_status write_config(sg_bench_cluster *c, sg_error *err)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    sg_config_print(c->options.config, out);
    fclose(out);
    sg_status status = sg_folder_write(c->config_path, text, n_bytes, err);
    free(text);
    return status;
}

static void close_loop(sg_bench_cluster *c)
{
    uv_run(&c->loop, UV_RUN_DEFAULT);
    SG_ASSERT(uv_loop_close(&c->loop) == 0);
}

static sg_status init_loop(sg_bench_cluster *c, sg_error *err)
{
    int failed = uv_loop_init(&c->loop);
    if (failed == 0 && (failed = uv_async_init(&c->loop, &c->wake, on_wake)) != 0)
        close_loop(c);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    uv_timer_init(&c->loop, &c->ps_end);
    c->wake.data = c->ps_end.data = c;
    c->supervisor = sg_supervisor_create(&(sg_supervisor_options){
        .loop = &c->loop,
        .grace_ms = c->options.config->shutdown_grace_ms + KILL_MARGIN_MS,
        .shared_fd = -1,
        .on_line = on_line,
        .on_finished = on_finished,
        .on_ended = on_ended,
        .user = c,
    });
    return SG_OK;
}

/* The loop, and the thread that runs it. */
static sg_status start(sg_bench_cluster *c, sg_error *err)
{
    sg_status status = init_loop(c, err);
    if (status != SG_OK)
        return status;
    const int failed = pthread_create(&c->thread, NULL, run_loop, c);
    if (failed == 0)
        return SG_OK;
    on_ended(c);
    sg_supervisor_destroy(c->supervisor);
    close_loop(c);
    return sg_error_set(err, SG_EXHAUSTED, "no thread for the cluster: %s", strerror(failed));
}

sg_bench_cluster *sg_bench_cluster_create(const sg_bench_cluster_options *options)
{
    sg_bench_cluster *c = sg_xcalloc(1, sizeof(*c));
    c->options = *options;
    c->config_path = sg_xprintf("%s/cluster.yaml", options->config->run_dir);
    c->socket_path = sg_xprintf("%s/socket", options->config->run_dir);
    c->ps_pids = sg_xcalloc(n_ps(c), sizeof(*c->ps_pids));
    c->worker_pids = sg_xcalloc(n_workers(c), sizeof(*c->worker_pids));
    c->n_workers_alive = n_workers(c);
    pthread_mutex_init(&c->mutex, NULL);
    pthread_cond_init(&c->changed, NULL);
    sg_status status = sg_bench_channel_init(&c->channel, c->socket_path, n_workers(c), &c->error);
    if (status == SG_OK)
        status = write_config(c, &c->error);
    if (status == SG_OK)
        status = start(c, &c->error);
    c->error.code = status;
    return c;
}

void sg_bench_cluster_interrupt(sg_bench_cluster *c)
{
    if (c->error.code != SG_OK)
        return;
    pthread_mutex_lock(&c->mutex);
    if (!c->over)
        uv_async_send(&c->wake);
    pthread_mutex_unlock(&c->mutex);
}

/* --- talking to the workers ----------------------------------------------------------------------------------- */

sg_status sg_bench_cluster_wait(sg_bench_cluster *c, sg_error *err)
{
    if (c->error.code != SG_OK)
        return sg_error_set(err, c->error.code, "%s", c->error.message);
    pthread_mutex_lock(&c->mutex);
    while (!c->started)
        pthread_cond_wait(&c->changed, &c->mutex);
    pthread_mutex_unlock(&c->mutex);
    return sg_bench_channel_welcome(&c->channel, err);
}

static sg_status add_usage(const int *pids, size_t n, double sign, double *cpu_seconds, double *faults, sg_error *err)
{
    sg_bench_usage usage = {0};
    sg_status status = SG_OK;
    for (size_t i = 0; i < n && status == SG_OK; i++)
        status = sg_bench_process_add_usage(pids[i], &usage, err);
    *cpu_seconds += sign * usage.cpu_seconds;
    *faults += sign * (double)usage.faults;
    return status;
}

static sg_status count(sg_bench_cluster *c, double sign, sg_bench_sample *sample, sg_error *err)
{
    sg_status status =
        add_usage(c->worker_pids, n_workers(c), sign, &sample->worker_cpu_seconds, &sample->worker_faults, err);
    if (status == SG_OK)
        status = add_usage(c->ps_pids, n_ps(c), sign, &sample->ps_cpu_seconds, &sample->ps_faults, err);
    return status;
}

static sg_status collect(sg_bench_cluster *c, size_t worker, uint32_t n_times, sg_bench_reply *span,
                         sg_bench_series *steps, sg_error *err)
{
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < n_times && status == SG_OK; i++) {
        sg_bench_reply reply;
        status = sg_bench_channel_receive(&c->channel, worker, &reply, err);
        if (status != SG_OK)
            break;
        if (reply.begin_ns < span->begin_ns)
            span->begin_ns = reply.begin_ns;
        if (reply.end_ns > span->end_ns)
            span->end_ns = reply.end_ns;
        if (worker == 0 && steps != NULL)
            sg_bench_series_add(steps, (double)(reply.end_ns - reply.begin_ns) / 1e9);
    }
    return status;
}

sg_status sg_bench_cluster_do(sg_bench_cluster *c, sg_bench_command command, uint32_t n_times, sg_bench_sample *sample,
                              sg_bench_series *steps, sg_error *err)
{
    sg_bench_reply span = {.begin_ns = UINT64_MAX};
    *sample = (sg_bench_sample){0};
    sg_status status = count(c, -1, sample, err);
    if (status == SG_OK)
        status = sg_bench_channel_send(&c->channel, command, n_times, err);
    for (size_t i = 0; i < n_workers(c) && status == SG_OK; i++)
        status = collect(c, i, n_times, &span, steps, err);
    if (status == SG_OK)
        status = count(c, 1, sample, err);
    if (status == SG_OK)
        sample->seconds = (double)(span.end_ns - span.begin_ns) / 1e9;
    return status;
}

sg_status sg_bench_cluster_do_unmeasured(sg_bench_cluster *c, sg_bench_command command, uint32_t n_times, sg_error *err)
{
    sg_bench_sample sample;
    return sg_bench_cluster_do(c, command, n_times, &sample, NULL, err);
}

sg_status sg_bench_cluster_memory(sg_bench_cluster *c, uint64_t *resident_bytes, uint64_t *peak_bytes, sg_error *err)
{
    *resident_bytes = *peak_bytes = 0;
    for (size_t i = 0; i < n_ps(c); i++) {
        uint64_t resident, peak;
        sg_status status = sg_bench_process_memory(c->ps_pids[i], &resident, &peak, err);
        if (status != SG_OK)
            return status;
        *resident_bytes += resident;
        *peak_bytes += peak;
    }
    return SG_OK;
}

void sg_bench_cluster_reset_peak(sg_bench_cluster *c)
{
    for (size_t i = 0; i < n_ps(c); i++)
        (void)sg_bench_process_reset_peak(c->ps_pids[i]);
}

/* --- end ------------------------------------------------------------------------------------------------------ */

/* Why the processes ended early; OK: nothing of their own failed. */
static sg_status find_failure(const sg_bench_cluster *c, int *exit_code, sg_error *err)
{
    sg_error failure;
    int code = sg_supervisor_failure(c->supervisor, &failure);
    if (c->start_status != SG_OK)
        return sg_error_set(err, c->start_status, "%s", c->start_error.message);
    if (code == 0)
        return SG_OK;
    *exit_code = code;
    return sg_error_set(err, failure.code, "%s", failure.message);
}

/* A process of the cluster may have been lost: then the supervisor is about to see that, and is to say which it was. */
static void await_end(sg_bench_cluster *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LOST_SECONDS;
    pthread_mutex_lock(&c->mutex);
    while (!c->over && pthread_cond_timedwait(&c->changed, &c->mutex, &until) == 0)
        continue;
    pthread_mutex_unlock(&c->mutex);
}

sg_status sg_bench_cluster_finish(sg_bench_cluster *c, sg_status status, int *exit_code, sg_error *err)
{
    if (c->error.code != SG_OK)
        return status;
    if (status == SG_OK)
        sg_bench_channel_send_leave(&c->channel);
    if (status == SG_PEER_LOST)
        await_end(c);
    if (status != SG_OK)
        sg_bench_cluster_interrupt(c);
    pthread_join(c->thread, NULL);
    sg_status failure = find_failure(c, exit_code, err);
    sg_supervisor_destroy(c->supervisor);
    close_loop(c);
    return failure != SG_OK ? failure : status;
}

void sg_bench_cluster_destroy(sg_bench_cluster *c)
{
    sg_bench_channel_deinit(&c->channel);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->mutex);
    free(c->ps_pids);
    free(c->worker_pids);
    free(c->config_path);
    free(c->socket_path);
    free(c);
}
