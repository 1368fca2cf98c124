/* worker/main.c - shardgrad-worker: one worker daemon, which trains the built-in model that the cluster file names.
 *
 * Threads: the main one takes signals; one trains (trainer.h); the client and the batches have threads of their own
 * (shardgrad/client.h, data/batches.h). This file only wires. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/daemon.h"
#include "common/descriptors.h"
#include "common/folder.h"
#include "common/memory.h"
#include "common/memory_limit.h"
#include "common/parent.h"
#include "common/signals.h"
#include "kernels/kernel.h"
#include "worker/train/interruptible.h"
#include "worker/train/pools.h"
#include "worker/train/trainer.h"

#define OWN_FILES 40u /* and data sets, the connection for heartbeats, what gRPC opens to find a host */

static const char about[] =
    "One worker of a cluster: trains the model that the cluster file names, until the last step is done. It\n"
    "may be started before the others: it waits for them up to start_timeout_ms. SIGTERM makes it leave the job.";

/* The overrides as the client wants them: "KEY=VALUE", NULL-terminated, each owned. */
static char **build_set(const sg_config_flags *flags)
{
    char **set = sg_xcalloc(flags->n_overrides + 1, sizeof(*set));
    for (size_t i = 0; i < flags->n_overrides; i++)
        set[i] = sg_xprintf("%s=%s", flags->overrides[i].key, flags->overrides[i].value);
    return set;
}

static sg_status work(void *user, sg_error *err)
{
    return sg_trainer_run(user, err);
}

static void stop(void *user)
{
    sg_trainer_stop(user);
}

/* A worker that `shardgrad run` started is told to stop when the whole run is: ps 0 then has the steps finished that
 * were begun, and makes a checkpoint. If it left by itself, another would do a step without it, and what is trained
 * after a restart would not be what an undisturbed run trains. ps 0 takes half of shutdown_grace_ms at most. */
static uint64_t patience_ms(const sg_daemon *daemon, const sg_config *config)
{
    return daemon->parent == NULL ? 0 : config->shutdown_grace_ms * 5 / 8;
}

/* What was trained is not lost with a full disk. Who started this worker by hand reads standard output; `shardgrad run`
 * reads the other one, and prints it. */
static void print_unwritten(const sg_daemon *daemon, const sg_trainer *trainer)
{
    const sg_summary *summary = sg_trainer_unwritten(trainer);
    if (summary == NULL)
        return;
    char *line = sg_summary_line(summary);
    fprintf(daemon->parent != NULL ? stderr : stdout, SG_SUMMARY_UNWRITTEN "%s\n", line);
    fflush(stdout);
    free(line);
}

static sg_status train(const sg_daemon *daemon, const sg_config *config, uint32_t index, sg_log *log,
                       int *signal_number, sg_error *err)
{
    sg_memory_limit_require("shardgrad-worker", sg_kernel_cpu_room((uint32_t)config->threads));
    sg_kernel_cpu_set_threads((uint32_t)config->threads);
    char **set = build_set(&daemon->flags);
    sg_trainer *trainer = sg_trainer_create(&(sg_trainer_options){.config = config,
                                                                  .config_path = daemon->flags.path,
                                                                  .set = (const char *const *)set,
                                                                  .coordinator = daemon->coordinator,
                                                                  .worker = index,
                                                                  .log = log});
    const sg_interruptible interruptible = {
        .work = work, .stop = stop, .user = trainer, .patience_ms = patience_ms(daemon, config)};
    sg_status status = sg_interruptible_run(&interruptible, signal_number, err);
    print_unwritten(daemon, trainer);
    sg_trainer_destroy(trainer);
    for (char **item = set; *item != NULL; item++)
        free(*item);
    free(set);
    return status;
}

static sg_status check_descriptors(const sg_config *config, sg_error *err)
{
    char what_for[64];
    snprintf(what_for, sizeof what_for, "%zu ps with %" PRIu64 " connections each", config->ps.n, config->connections);
    return sg_descriptors_check(OWN_FILES + config->ps.n * config->connections, what_for, err);
}

/* Opens the log and runs the worker; the log tells how it ended, too. */
static sg_status run(const sg_daemon *daemon, const sg_config *config, int *signal_number, sg_error *err)
{
    uint32_t index = 0;
    sg_status status = sg_daemon_index(daemon, config->max_workers, "max_workers", &index, err);
    if (status == SG_OK)
        status = check_descriptors(config, err);
    if (status == SG_OK)
        status = sg_parent_bind(daemon->parent, err);
    if (status != SG_OK)
        return status;
    sg_log_file file = {.streams = {stderr}};
    snprintf(file.who, sizeof(file.who), "worker-%u", index);
    status = sg_folder_open_log(config->run_dir, file.who, &file.streams[1], err);
    if (status != SG_OK)
        return status;
    sg_log log = {.fn = sg_log_file_write, .user = &file, .min_level = config->log_level};
    status = train(daemon, config, index, &log, signal_number, err);
    char quoted[SG_ERROR_MESSAGE_BYTES + 64];
    if (sg_interruptible_exit_code(status, *signal_number) != 0) {
        file.streams[0] = NULL; /* main says it there */
        sg_log_error(&log, "ended", "status=%s error=%s", sg_status_name(status),
                     status != SG_OK ? sg_log_quote(err->message, quoted, sizeof(quoted)) : "interrupted");
    } else if (*signal_number != 0)
        sg_log_info(&log, "ended", "status=OK signal=%d", *signal_number);
    else
        sg_log_info(&log, "ended", "status=OK");
    fclose(file.streams[1]);
    return status;
}

int main(int argc, char **argv)
{
    sg_descriptors_open_standard();
    sg_descriptors_raise_limit();
    sg_memory_tune_daemon();
    sg_memory_limit_require("shardgrad-worker", sg_kernel_cpu_room(1));
    sg_signals_let_writes_fail();
    sg_interruptible_hold_signals();
    sg_daemon daemon;
    sg_config *config = NULL;
    sg_error err;
    int signal_number = 0;
    sg_status status = sg_daemon_init(&daemon, "shardgrad-worker", argc, argv, &err);
    if (status == SG_OK && daemon.help)
        sg_daemon_print_help(&daemon, about, "index of this worker, from 0; unique", stdout);
    else if (status == SG_OK && daemon.version)
        printf("shardgrad-worker %s\n", SG_VERSION);
    else if (status == SG_OK) {
        status = sg_daemon_load(&daemon, &config, &err);
        if (status == SG_OK) {
            sg_pools_let_rest((uint32_t)config->threads);
            status = run(&daemon, config, &signal_number, &err);
        }
    }
    int code = sg_interruptible_exit_code(status, signal_number);
    if (status != SG_OK && code != 0)
        fprintf(stderr, "shardgrad-worker: %s\n", err.message);
    sg_config_destroy(config);
    sg_daemon_deinit(&daemon);
    return sg_descriptors_end_output("shardgrad-worker", code);
}
