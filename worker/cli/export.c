/* worker/cli/export.c - `shardgrad export`: a checkpoint as one plain safetensors file; and which checkpoints there
 * are. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/cli/arguments.h"
#include "worker/cli/checkpoints.h"
#include "worker/cli/commands.h"

typedef struct export_options {
    const char *dir, *out, *step;
    bool list;
} export_options;

static sg_status print_list(const sg_checkpoint *folder, sg_error *err)
{
    static const char *const states[] = {[SG_CHECKPOINT_USABLE] = "usable",
                                         [SG_CHECKPOINT_HALF_WRITTEN] = "half-written",
                                         [SG_CHECKPOINT_PASSED] = "passed over",
                                         [SG_CHECKPOINT_DAMAGED] = "damaged",
                                         [SG_CHECKPOINT_NEWER] = "of a later format"};
    sg_checkpoint_found *found;
    size_t n;
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    printf("%s: job %s, %zu checkpoints\n", sg_checkpoint_dir(folder), sg_checkpoint_job(folder), n);
    for (size_t i = 0; i < n; i++) {
        char name[SG_CHECKPOINT_NAME_BYTES];
        printf("  iteration %-12" PRIu64 " %s  %s", found[i].set.iteration, sg_checkpoint_set_name(found[i].set, name),
               states[found[i].state]);
        printf(found[i].why.message[0] != '\0' ? " (%s)\n" : "%s\n", found[i].why.message);
    }
    free(found);
    return SG_OK;
}

static sg_status choose(const sg_checkpoint *folder, const char *step, sg_checkpoint_set *set, sg_error *err)
{
    if (step != NULL) {
        char *end;
        unsigned long long iteration = strtoull(step, &end, 10);
        if (step[0] < '0' || step[0] > '9' || *end != '\0')
            return sg_error_set(err, SG_USAGE, "--step: '%.40s' is not a number", step);
        return sg_checkpoint_find(folder, iteration, set, err);
    }
    sg_checkpoint_found *skipped;
    size_t n_skipped;
    sg_status status = sg_checkpoint_find_newest(folder, set, &skipped, &n_skipped, err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < n_skipped; i++) {
        if (skipped[i].state == SG_CHECKPOINT_DAMAGED)
            fprintf(stderr, "shardgrad: %s\n", skipped[i].why.message);
    }
    free(skipped);
    if (set->generation == 0)
        return sg_error_set(err, SG_NOT_FOUND, "%s has no checkpoint that can be used (--list tells what there is)",
                            sg_checkpoint_dir(folder));
    return SG_OK;
}

static sg_status export(const char *dir, const export_options *options, sg_error *err)
{
    sg_checkpoint *folder;
    sg_checkpoint_set set = {0};
    sg_status status = sg_checkpoint_open_existing(&sg_disk_posix, dir, &folder, err);
    if (status != SG_OK)
        return status;
    if (options->list) {
        status = print_list(folder, err);
    } else {
        status = choose(folder, options->step, &set, err);
        if (status == SG_OK)
            status = sg_checkpoints_export(folder, set, options->out, err);
        char name[SG_CHECKPOINT_NAME_BYTES];
        if (status == SG_OK)
            printf("exported %s of %s to %s\n", sg_checkpoint_set_name(set, name), dir, options->out);
    }
    sg_checkpoint_close(folder);
    return status;
}

int sg_export_main(int argc, char **argv)
{
    export_options o = {0};
    const sg_arguments_option options[] = {
        {"--out", "PATH", "the safetensors file to write", NULL, &o.out},
        {"--step", "N", "the checkpoint of iteration N; without it the newest that can be used", NULL, &o.step},
        {"--list", "", "write which checkpoints there are, and no file", &o.list, NULL},
        {"--dir", "DIR", "folder of the checkpoints, where there is no cluster file", NULL, &o.dir},
    };
    sg_arguments_command command = {
        .usage = "shardgrad export {FILE | --dir DIR} {--out PATH [--step N] | --list}",
        .summary =
            "Writes the values of a checkpoint of the cluster file's checkpoint.dir as one plain safetensors file:\n"
            "a whole float32 tensor for each variable, under its own name. A value that is not what was written is\n"
            "found by its checksum. A job may run meanwhile. Exit code 65: a checkpoint is damaged; 66: there is none.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .flags_help = SG_ARGUMENTS_FLAGS_OF_FILES,
    };
    sg_error err;
    sg_arguments a;
    sg_status status = sg_arguments_init(&a, &command, argc, argv, &err);
    if (status == SG_OK && !a.help) {
        const char *dir = o.dir != NULL ? o.dir : a.config->checkpoint.dir;
        if (o.dir == NULL && a.flags.path == NULL)
            status = sg_error_set(&err, SG_USAGE, "wanted a cluster file or --dir; usage: %s", command.usage);
        else if (dir[0] == '\0')
            status = sg_error_set(&err, SG_CONFIG, "%s sets no checkpoint.dir: there are no checkpoints", a.flags.path);
        else if (o.out == NULL && !o.list)
            status = sg_error_set(&err, SG_USAGE, "wanted --out PATH or --list; usage: %s", command.usage);
        else
            status = export(dir, &o, &err);
    }
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
