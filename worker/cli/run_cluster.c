/* worker/cli/run_cluster.c - `shardgrad run`: the cluster as processes, watched until the last of them has ended.
 *
 * Everything happens on one libuv loop: what the processes write, their ends, signals, and a timer that asks the
 * coordinator for its status. */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/descriptors.h"
#include "common/rpc_address.h"
#include "common/signals.h"
#include "worker/cli/program.h"
#include "worker/cli/run_cluster_internal.h"

#define POLL_EVERY_MS 500u
/* Descriptors that this process needs for itself, and for each that it starts. */
#define OWN_FILES         24u
#define FILES_PER_PROCESS 4u

/* --- processes ------------------------------------------------------------------------------------------------ */

/* NULL-terminated, each owned. The overrides are passed on, and the run directory as it came out of them. */
static char **build_argv(const sg_run_cluster_state *c, const char *program, size_t index)
{
    const sg_config_flags *flags = &c->run->arguments->flags;
    char **argv = sg_xcalloc(2 * flags->n_overrides + 16, sizeof(*argv));
    size_t n = 0;
    argv[n++] = sg_program_find(program);
    argv[n++] = sg_xstrdup("--config");
    argv[n++] = sg_xstrdup(flags->path);
    argv[n++] = sg_xstrdup("--index");
    argv[n++] = sg_xprintf("%zu", index);
    argv[n++] = sg_xstrdup("--parent");
    argv[n++] = sg_xprintf("%ld", (long)getpid());
    for (size_t i = 0; i < flags->n_overrides; i++) {
        argv[n++] = sg_xstrdup("--set");
        argv[n++] = sg_xprintf("%s=%s", flags->overrides[i].key, flags->overrides[i].value);
    }
    argv[n++] = sg_xstrdup("--set");
    argv[n++] = sg_xprintf("run_dir=%s", c->config->run_dir);
    return argv;
}

static sg_status start_process(sg_run_cluster_state *c, const char *role, size_t index, sg_error *err)
{
    char *program = sg_xprintf("shardgrad-%s", role);
    char *who = sg_xprintf("%s-%zu", role, index);
    char **argv = build_argv(c, program, index);
    sg_status status = sg_supervisor_start(c->supervisor, who, argv, err);
    for (char **word = argv; *word != NULL; word++)
        free(*word);
    free(argv);
    free(who);
    free(program);
    return status;
}

static sg_status check_descriptors(const sg_config *config, sg_error *err)
{
    char what_for[64];
    snprintf(what_for, sizeof what_for, "%zu ps and %" PRIu64 " workers", config->ps.n, config->workers);
    return sg_descriptors_check(OWN_FILES + FILES_PER_PROCESS * (config->ps.n + config->workers), what_for, err);
}

/* Another run of this file would get this one's ps and workers as its own, since they come to the same port. */
static sg_status check_ports(const sg_config *config, sg_error *err)
{
    for (size_t i = 0; i < config->ps.n; i++) {
        const char *address = config->ps.items[i];
        const bool is_chosen_later = strcmp(strrchr(address, ':'), ":0") == 0;
        const sg_status status = is_chosen_later ? SG_OK : sg_rpc_address_try(address, err);
        if (status != SG_OK)
            return sg_error_prefix(err, status, "ps %zu", i);
    }
    return SG_OK;
}

/* What is deleted is told before it is. */
static void tell_given_up(const sg_run_cluster_state *c)
{
    const size_t n = sg_restart_n_given_up(c->config);
    if (n > 0)
        fprintf(stderr,
                "shardgrad: with --restore %s the job gives up %zu checkpoint%s in %s, and removes %s as it goes on\n",
                c->config->restore, n, n > 1 ? "s" : "", c->config->checkpoint.dir, n > 1 ? "them" : "it");
}

static sg_status start_processes(sg_run_cluster_state *c, sg_error *err)
{
    tell_given_up(c);
    sg_status status = SG_OK;
    for (size_t i = 0; i < c->config->ps.n && status == SG_OK; i++)
        status = start_process(c, "ps", i, err);
    for (size_t i = 0; i < c->config->workers && status == SG_OK; i++) {
        status = start_process(c, "worker", i, err);
        c->n_workers_alive++;
    }
    return status;
}

/* --- signals, start and end ----------------------------------------------------------------------------------- */

static void on_signal(uv_signal_t *handle, int signal_number)
{
    sg_run_cluster_state *c = handle->data;
    if (c->signal_number != 0) {
        sg_supervisor_kill(c->supervisor);
        return;
    }
    c->signal_number = signal_number;
    sg_progress_print(&c->run->progress, "shardgrad: stopping; once more ends everything at once");
    sg_supervisor_stop(c->supervisor);
}

static sg_status init(sg_run_cluster_state *c, sg_run *run, sg_error *err)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    *c = (sg_run_cluster_state){.run = run, .config = run->arguments->config};
    const int failed = uv_loop_init(&c->loop);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    sg_restart_init(&c->restart, c->config);
    sg_run_heard_init(&c->heard, &run->progress, c->config);
    for (size_t i = 0; i < SG_ARRAY_LEN(numbers); i++) {
        uv_signal_init(&c->loop, &c->signals[i]);
        c->signals[i].data = c;
        if (numbers[i] != SIGHUP || sg_signals_hangup_ends())
            uv_signal_start(&c->signals[i], on_signal, numbers[i]);
    }
    uv_timer_init(&c->loop, &c->poll);
    uv_timer_init(&c->loop, &c->ps_end);
    uv_timer_init(&c->loop, &c->workers_end);
    c->poll.data = c->ps_end.data = c->workers_end.data = c->asking.data = c;
    sg_run_cluster_watch(c, run->lock_fd);
    return SG_OK;
}

int sg_run_cluster(sg_run *run)
{
    sg_run_cluster_state c;
    sg_error err = {0};
    sg_status status = check_descriptors(run->arguments->config, &err);
    if (status == SG_OK)
        status = check_ports(run->arguments->config, &err);
    if (status == SG_OK)
        status = init(&c, run, &err);
    if (status != SG_OK)
        return sg_arguments_fail(status, &err);
    status = start_processes(&c, &err);
    /* A process that is started anew is forked while gRPC's threads run: between fork and exec uv_spawn does only what
     * is safe in such a process, and gRPC's descriptors close with exec. */
    c.query = sg_status_query_create(c.config, NULL, SG_ROLE_OBSERVER);
    uv_timer_start(&c.poll, sg_run_cluster_poll, POLL_EVERY_MS, POLL_EVERY_MS);
    uv_run(&c.loop, UV_RUN_DEFAULT);

    sg_status_query_destroy(c.query);
    int code = sg_run_cluster_conclude(&c, status, &err);
    sg_run_heard_deinit(&c.heard);
    sg_supervisor_destroy(c.supervisor);
    uv_run(&c.loop, UV_RUN_DEFAULT);
    SG_ASSERT(uv_loop_close(&c.loop) == 0);
    return code;
}
