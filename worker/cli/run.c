/* worker/cli/run.c - `shardgrad run`: what both ways of training have in common. */
#include "worker/cli/run.h"

#include <string.h>
#include <unistd.h>

#include "worker/cli/commands.h"
#include "worker/cli/run_directory.h"
#include "worker/train/pools.h"
#include "worker/train/workload.h"

/* How long the training is follows from the number of examples. */
static sg_status init_progress(sg_run *run, sg_error *err)
{
    const sg_config *config = run->arguments->config;
    uint64_t n_examples;
    sg_status status = sg_workload_measure(config, &n_examples, err);
    if (status != SG_OK)
        return status;
    sg_progress_init(&run->progress, stderr, isatty(STDERR_FILENO) == 1, sg_workload_total_steps(config, n_examples),
                     sg_workload_steps_per_epoch(config, n_examples));
    return SG_OK;
}

static void note_flags(const sg_config_flags *flags)
{
    bool found = false;
    for (size_t i = 0; i < flags->n_overrides; i++)
        found |= strcmp(flags->overrides[i].key, "workers") == 0 || strcmp(flags->overrides[i].key, "ps") == 0;
    if (found)
        fprintf(stderr, "shardgrad: --local trains in this one process: --workers and --ps have no effect\n");
}

static int run_config(const sg_arguments *arguments, bool local)
{
    sg_error err;
    sg_run run = {.arguments = arguments, .lock_fd = -1};
    if (local)
        sg_pools_let_rest((uint32_t)arguments->config->threads);
    sg_status status = init_progress(&run, &err);
    if (status == SG_OK)
        status =
            sg_run_directory_open(arguments->config->run_dir, arguments->config->shutdown_grace_ms, &run.lock_fd, &err);
    if (status != SG_OK)
        return sg_arguments_fail(status, &err);
    sg_arguments_note_idle(arguments);
    if (local)
        note_flags(&arguments->flags);
    int code = local ? sg_run_local(&run) : sg_run_cluster(&run);
    close(run.lock_fd);
    return code;
}

int sg_run_main(int argc, char **argv)
{
    bool local = false;
    const sg_arguments_option options[] = {
        {"--local", "", "train in this one process, without ps, workers and checkpoints: the same steps, to compare",
         &local, NULL},
    };
    sg_arguments_command command = {
        .usage = "shardgrad run FILE [--local] [options]",
        .summary =
            "Starts the ps and workers of a cluster file as processes of this machine, shows how training goes,\n"
            "evaluates, and prints the result. Everything it started has ended when it returns. Ctrl-C stops it\n"
            "cleanly, a second one at once. What it leaves is in the run directory: summary.json and log/.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .needs_file = true,
    };
    sg_error err;
    sg_arguments arguments;
    sg_status status = sg_arguments_init(&arguments, &command, argc, argv, &err);
    int code;
    if (status != SG_OK)
        code = sg_arguments_fail(status, &err);
    else
        code = arguments.help ? 0 : run_config(&arguments, local);
    sg_arguments_deinit(&arguments);
    return code;
}
