/* worker/cli/run_cluster_end.c - `shardgrad run`: what it says in the end, and its exit code. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "worker/cli/run_cluster_internal.h"
#include "worker/cli/run_directory.h"

/* The exit code, with err; 0: nothing failed. */
static int find_failure(const sg_run_cluster_state *c, sg_status start_status, sg_error *err)
{
    if (start_status != SG_OK)
        return sg_status_exit_code(start_status);
    if (c->end.code == SG_OK)
        return sg_supervisor_failure(c->supervisor, err);
    *err = c->end;
    return sg_status_exit_code(c->end.code);
}

/* That goes on from the newest checkpoint. */
static const char *command_to_go_on(const sg_config *config)
{
    return strcmp(config->restore, "latest") == 0 ? "the same command" : "the same command, without --restore,";
}

static void tell_how_to_go_on(const sg_config *config)
{
    if (config->checkpoint.dir[0] == '\0')
        fprintf(stderr, "shardgrad: stopped before the end, and nothing is kept: checkpoint.dir is not set\n");
    else if (sg_restart_has_checkpoint(config))
        fprintf(stderr, "shardgrad: stopped before the end; %s goes on from the newest checkpoint in %s\n",
                command_to_go_on(config), config->checkpoint.dir);
    else
        fprintf(stderr, "shardgrad: stopped before the first checkpoint in %s was made; the same command begins anew\n",
                config->checkpoint.dir);
}

int sg_run_cluster_conclude(sg_run_cluster_state *c, sg_status start_status, sg_error *err)
{
    sg_progress_clear(&c->run->progress);
    int failure = find_failure(c, start_status, err);
    if (c->heard.unwritten.mode[0] != '\0')
        (void)!sg_run_directory_print(&c->heard.unwritten, c->config->run_dir, NULL); /* what failed is told, and why */
    if (failure != 0) { /* before it was told to stop, if it was */
        fprintf(stderr, "shardgrad: %s (logs: %s/log)\n", err->message, c->config->run_dir);
        if (start_status == SG_OK && sg_run_cluster_is_at_its_end(c) && c->config->checkpoint.dir[0] != '\0')
            fprintf(stderr,
                    "shardgrad: the last checkpoint may be missing, though all workers were done; %s goes on from the "
                    "newest\n",
                    command_to_go_on(c->config));
        return failure;
    }
    int code = c->signal_number == SIGINT ? 130 : 0;
    if (c->signal_number != 0 && c->n_workers_alive > 0) {
        tell_how_to_go_on(c->config);
        return code;
    }
    sg_run_heard_tell_whether_all_was_done(&c->heard);
    sg_error why;
    const bool has_result = sg_run_directory_has_result(c->config->run_dir);
    const sg_status written =
        has_result ? sg_evaluations_write(&c->heard.evaluations, c->config->run_dir, &why) : SG_OK;
    sg_status status = sg_run_directory_print_result(c->config->run_dir, err);
    if (status == SG_OK && written != SG_OK)
        status = sg_error_set(err, written, "the tests on the way are not in summary.json: %s", why.message);
    if (status == SG_NOT_FOUND && !has_result)
        status =
            sg_error_set(err, SG_PEER_LOST,
                         "there is no result: worker-0, which evaluates, ended before the last step (logs: %s/log)",
                         c->config->run_dir);
    if (status == SG_OK)
        return code;
    code = sg_arguments_fail(status, err);
    if (status == SG_NON_FINITE && sg_restart_has_checkpoint(c->config))
        fprintf(stderr,
                "shardgrad: the newest checkpoints in %s hold such values: with --restore N the job goes on from an "
                "older one (shardgrad export --list names them), with --restore none it begins anew\n",
                c->config->checkpoint.dir);
    return code;
}
