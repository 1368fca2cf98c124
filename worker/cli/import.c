/* worker/cli/import.c - `shardgrad import`: a plain safetensors file as what a job starts from. */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "worker/cli/arguments.h"
#include "worker/cli/checkpoints.h"
#include "worker/cli/commands.h"
#include "worker/train/workload.h"

static sg_status import_model(const sg_config *config, const char *from, sg_model *model, bool replace, sg_error *err)
{
    size_t n_ignored;
    sg_checkpoint *folder;
    sg_checkpoint_set set = {0};
    sg_status status = sg_checkpoints_read_model(from, model, &n_ignored, err);
    if (status != SG_OK)
        return status;
    status =
        sg_checkpoint_open(&sg_disk_posix, config->checkpoint.dir, config->job, sg_clock_random_id(), &folder, err);
    if (status != SG_OK)
        return status;
    sg_checkpoint_lock *lock = NULL;
    status = sg_checkpoint_lock_take(folder, "shardgrad import", 0, &lock, err);
    if (status == SG_OK)
        status = sg_checkpoints_import(folder, config, model, replace, &set, err);
    sg_checkpoint_lock_release(lock);
    if (status == SG_OK) {
        char name[SG_CHECKPOINT_NAME_BYTES];
        printf("imported %zu variables of %s as %s/%s; the next run starts from them\n", model->n_variables, from,
               sg_checkpoint_dir(folder), sg_checkpoint_set_name(set, name));
        if (n_ignored > 0)
            printf("%zu other tensors of %s are not the model's and were left out\n", n_ignored, from);
    }
    sg_checkpoint_close(folder);
    return status;
}

static sg_status import(const sg_config *config, const char *from, bool replace, sg_error *err)
{
    sg_workload *workload;
    if (config->checkpoint.dir[0] == '\0')
        return sg_error_set(err, SG_CONFIG, "checkpoint.dir is not set: it is where a job finds what it starts from");
    sg_status status = sg_workload_create(config, false, &workload, err);
    if (status != SG_OK)
        return status;
    status = import_model(config, from, workload->model, replace, err);
    sg_workload_destroy(workload);
    return status;
}

int sg_import_main(int argc, char **argv)
{
    const char *from = NULL;
    bool replace = false;
    const sg_arguments_option options[] = {
        {"--from", "PATH", "the safetensors file to read", NULL, &from},
        {"--replace", "", "although there are checkpoints, none of which will be used again", &replace, NULL},
    };
    sg_arguments_command command = {
        .usage = "shardgrad import FILE --from PATH [--replace] [--set KEY=VALUE]",
        .summary =
            "Makes the tensors of a plain safetensors file the initial values of the job of the cluster file: its\n"
            "next run starts from them, at step 0. The file must have a float32 tensor of the name and shape of\n"
            "every variable of the model. They become a checkpoint in checkpoint.dir, which no job may use\n"
            "meanwhile. Exit code 65: the file does not fit the model.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .flags_help = SG_ARGUMENTS_FLAGS_OF_FILES,
        .needs_file = true,
    };
    sg_error err;
    sg_arguments a;
    sg_status status = sg_arguments_init(&a, &command, argc, argv, &err);
    if (status == SG_OK && !a.help && from == NULL)
        status = sg_error_set(&err, SG_USAGE, "wanted --from PATH; usage: %s", command.usage);
    if (status == SG_OK && !a.help)
        status = import(a.config, from, replace, &err);
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
