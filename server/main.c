/* server/main.c - shardgrad-ps: one ps daemon. This file only wires.
 *
 * Threads: the main one runs the loop of the ps (ps.h lists its others); one more waits for signals. The first SIGTERM,
 * SIGINT or SIGHUP asks the ps to stop; the next one ends the process at once. With nohup SIGHUP does nothing. */
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "common/daemon.h"
#include "common/descriptors.h"
#include "common/folder.h"
#include "common/memory.h"
#include "common/memory_limit.h"
#include "common/parent.h"
#include "common/signals.h"
#include "server/accept.h"
#include "server/ps.h"

#define OWN_FILES 32u

static const char about[] =
    "One ps of a cluster: holds its share of the model and applies updates. ps 0 coordinates the job. It may be\n"
    "started before the others: it waits for ps 0 up to start_timeout_ms, and ps 0 for all others as long as it\n"
    "lives. It ends with the job, or by SIGTERM.";

/* --- signals --- */

typedef struct signals {
    sigset_t set; /* blocked in every thread; created before them */
    pthread_t thread;
    sg_ps *ps;
    atomic_int first;
    atomic_bool over;
} signals;

static void *wait_for_signals(void *user)
{
    signals *s = user;
    int number;
    while (sigwait(&s->set, &number) == 0 && !atomic_load(&s->over)) {
        if (atomic_load(&s->first) != 0)
            _exit(128 + number);
        atomic_store(&s->first, number);
        sg_ps_stop(s->ps);
    }
    return NULL;
}

static void signals_block(signals *s)
{
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGTERM);
    sigaddset(&s->set, SIGINT);
    if (sg_signals_hangup_ends())
        sigaddset(&s->set, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &s->set, NULL);
}

static sg_status run_with_signals(sg_ps *ps, signals *s, sg_error *err)
{
    s->ps = ps;
    if (pthread_create(&s->thread, NULL, wait_for_signals, s) != 0)
        return sg_error_set(err, SG_EXHAUSTED, "cannot start a thread");
    sg_status status = sg_ps_run(ps, err);
    atomic_store(&s->over, true);
    pthread_kill(s->thread, SIGINT); /* one of those that it waits for */
    pthread_join(s->thread, NULL);
    return status;
}

/* --- the ps --- */

/* Into the file alone: main says it on standard error. */
static void log_no_start(sg_log_file *file, const sg_log *log, sg_status status, const sg_error *err)
{
    char quoted[SG_ERROR_MESSAGE_BYTES + 64];
    file->streams[0] = NULL;
    sg_log_error(log, "failed", "status=%s reason=%s", sg_status_name(status),
                 sg_log_quote(err->message, quoted, sizeof quoted));
}

/* One that fails later has logged it by itself, when it happened. */
static sg_status serve(const sg_daemon *daemon, const sg_config *config, uint32_t index, sg_log_file *file, signals *s,
                       sg_error *err)
{
    sg_log log = {.fn = sg_log_file_write, .user = file, .min_level = config->log_level};
    sg_ps *ps;
    sg_error why;
    sg_status status = sg_ps_create(
        &(sg_ps_options){.config = config, .index = index, .log = &log, .coordinator = daemon->coordinator}, &ps, &why);
    if (status != SG_OK) {
        log_no_start(file, &log, status, &why);
        return sg_error_set(err, status, "%s", why.message);
    }
    status = run_with_signals(ps, s, err);
    sg_ps_destroy(ps);
    return status;
}

/* Connections of workers to it, those between it and the other ps, and what it opens by itself. */
static sg_status check_descriptors(const sg_config *config, sg_error *err)
{
    char what_for[64];
    snprintf(what_for, sizeof what_for, "%" PRIu64 " workers and %zu ps", config->workers, config->ps.n);
    return sg_descriptors_check(
        OWN_FILES + SG_ACCEPT_RESERVE + config->workers * (config->connections + 1) + 2 * config->ps.n, what_for, err);
}

static sg_status run(const sg_daemon *daemon, const sg_config *config, signals *s, sg_error *err)
{
    uint32_t index = 0;
    sg_status status = sg_daemon_index(daemon, config->ps.n, "the number of ps in the cluster file", &index, err);
    if (status == SG_OK)
        status = check_descriptors(config, err);
    if (status == SG_OK)
        status = sg_parent_bind(daemon->parent, err);
    if (status != SG_OK)
        return status;
    sg_log_file file = {.streams = {stderr}};
    snprintf(file.who, sizeof file.who, "ps-%u", index);
    status = sg_folder_open_log(config->run_dir, file.who, &file.streams[1], err);
    if (status != SG_OK)
        return status;
    status = serve(daemon, config, index, &file, s, err);
    fclose(file.streams[1]);
    return status;
}

static sg_status load_and_run(const sg_daemon *daemon, signals *s, sg_error *err)
{
    sg_config *config;
    sg_status status = sg_daemon_load(daemon, &config, err);
    if (status != SG_OK)
        return status;
    status = run(daemon, config, s, err);
    sg_config_destroy(config);
    return status;
}

int main(int argc, char **argv)
{
    sg_descriptors_open_standard();
    sg_descriptors_raise_limit();
    sg_memory_tune_daemon();
    sg_memory_limit_require("shardgrad-ps", 0);
    sg_signals_let_writes_fail();
    signals s = {.ps = NULL};
    signals_block(&s);
    sg_daemon daemon;
    sg_error err;
    sg_status status = sg_daemon_init(&daemon, "shardgrad-ps", argc, argv, &err);
    if (status == SG_OK && daemon.help)
        sg_daemon_print_help(&daemon, about, "index of this ps in the cluster file, from 0", stdout);
    else if (status == SG_OK && daemon.version)
        printf("shardgrad-ps %s\n", SG_VERSION);
    else if (status == SG_OK)
        status = load_and_run(&daemon, &s, &err);
    if (status != SG_OK)
        fprintf(stderr, "shardgrad-ps: %s\n", err.message);
    sg_daemon_deinit(&daemon);
    return sg_descriptors_end_output(
        "shardgrad-ps", status == SG_OK && atomic_load(&s.first) == SIGINT ? 130 : sg_status_exit_code(status));
}
