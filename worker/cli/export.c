/* worker/cli/export.c - `shardgrad export`: a checkpoint as one plain safetensors file; and which checkpoints there
 * are. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "worker/cli/arguments.h"
#include "worker/cli/checkpoints.h"
#include "worker/cli/commands.h"

typedef struct export_options {
    const char *dir, *out, *step;
    bool list, verify;
} export_options;

/* What is wrong with it after `NAME is `, which the line begins with. */
static const char *what_it_is(const sg_checkpoint_found *found, const char *name)
{
    const char *why = found->why.message;
    const size_t n_name = strlen(name);
    return strncmp(why, name, n_name) == 0 && strncmp(why + n_name, " is ", 4) == 0 ? why + n_name + 4 : NULL;
}

/* Reads all values of a set. */
static void verify(const sg_checkpoint *folder, sg_checkpoint_found *found)
{
    sg_checkpoint_reader *reader;
    sg_status status = sg_checkpoint_reader_open(folder, found->set, &reader, &found->why);
    if (status == SG_OK) {
        status = sg_checkpoint_verify(reader, &found->why);
        sg_checkpoint_reader_close(reader);
    }
    if (status != SG_OK)
        found->state = SG_CHECKPOINT_DAMAGED;
}

static void print_found(const sg_checkpoint_found *found, bool verified)
{
    static const char *const states[] = {[SG_CHECKPOINT_USABLE] = "complete",
                                         [SG_CHECKPOINT_HALF_WRITTEN] = "half-written",
                                         [SG_CHECKPOINT_PASSED] = "passed over",
                                         [SG_CHECKPOINT_DAMAGED] = "damaged",
                                         [SG_CHECKPOINT_NEWER] = "of a later format"};
    char text[SG_CHECKPOINT_NAME_BYTES];
    const char *name = sg_checkpoint_set_name(found->set, text), *what = what_it_is(found, name);
    printf("  iteration %-12" PRIu64 " %s  ", found->set.iteration, name);
    if (found->state == SG_CHECKPOINT_USABLE)
        printf(verified ? "usable\n" : "complete\n");
    else if (what != NULL)
        printf("%s\n", what);
    else
        printf("%s (%s)\n", states[found->state], found->why.message);
}

static sg_status print_list(const sg_checkpoint *folder, bool verified, sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n, n_damaged = 0;
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    printf("%s: job %s, %zu checkpoint%s\n", sg_checkpoint_dir(folder), sg_checkpoint_job(folder), n,
           n == 1 ? "" : "s");
    for (size_t i = 0; i < n; i++) {
        if (verified && found[i].state == SG_CHECKPOINT_USABLE)
            verify(folder, &found[i]);
        print_found(&found[i], verified);
        n_damaged += found[i].state == SG_CHECKPOINT_DAMAGED;
    }
    free(found);
    if (!verified && n > 0)
        printf("complete: the values themselves were not read; --verify does\n");
    if (verified && n_damaged > 0)
        return sg_error_set(err, SG_DATA, "%zu of %zu checkpoint%s in %s %s damaged: put back a copy", n_damaged, n,
                            n == 1 ? "" : "s", sg_checkpoint_dir(folder), n_damaged == 1 ? "is" : "are");
    return SG_OK;
}

/* To what is wrong with a set adds which one might do instead. */
static sg_status name_another(const sg_checkpoint *folder, sg_checkpoint_set damaged, sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n, i = 0;
    if (sg_checkpoint_list(folder, &found, &n, NULL) != SG_OK)
        return SG_DATA;
    while (i < n && (found[i].state != SG_CHECKPOINT_USABLE || found[i].set.iteration == damaged.iteration))
        i++;
    if (i < n)
        (void)!sg_error_set(err, SG_DATA, "%s; --step %" PRIu64 " takes another one that is complete", err->message,
                            found[i].set.iteration);
    else
        (void)!sg_error_set(err, SG_DATA, "%s; there is no other complete one in the folder", err->message);
    free(found);
    return SG_DATA;
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

/* Whether the file would lie in the folder, or below: what is there belongs to the job. */
static bool is_within(const char *path, const char *dir)
{
    char folder[PATH_MAX], above[PATH_MAX];
    const char *slash = strrchr(path, '/');
    char *parent = slash == NULL ? sg_xstrdup(".") : sg_xprintf("%.*s", (int)(slash - path) + 1, path);
    const bool is_known = realpath(dir, folder) != NULL && realpath(parent, above) != NULL;
    const size_t length = is_known ? strlen(folder) : 0;
    free(parent);
    return is_known && strncmp(above, folder, length) == 0 && (above[length] == '/' || above[length] == '\0');
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat first, second;
    return stat(a, &first) == 0 && stat(b, &second) == 0 && first.st_dev == second.st_dev &&
           first.st_ino == second.st_ino;
}

static sg_status export(const char *dir, const export_options *options, sg_error *err)
{
    sg_checkpoint *folder;
    sg_checkpoint_set set = {0};
    sg_status status = sg_checkpoint_open_existing(&sg_disk_posix, dir, &folder, err);
    if (status != SG_OK)
        return status;
    if (options->list || options->verify) {
        status = print_list(folder, options->verify, err);
    } else {
        status = choose(folder, options->step, &set, err);
        if (status == SG_OK)
            status = sg_checkpoints_export(folder, set, options->out, err);
        if (status == SG_DATA && set.generation != 0)
            status = name_another(folder, set, err);
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
        {"--step", "N", "the checkpoint of iteration N; without it the newest that is complete", NULL, &o.step},
        {"--list", "", "write which checkpoints there are, and no file", &o.list, NULL},
        {"--verify", "", "the same, and read all of them: is every value what was written?", &o.verify, NULL},
        {"--dir", "DIR", "folder of the checkpoints, where there is no cluster file", NULL, &o.dir},
    };
    sg_arguments_command command = {
        .usage = "shardgrad export {FILE | --dir DIR} {--out PATH [--step N] | --list | --verify}",
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
        else if (o.out != NULL && (o.list || o.verify))
            status = sg_error_set(&err, SG_USAGE, "%s writes no file, and --out wants one: take one of them; usage: %s",
                                  o.verify ? "--verify" : "--list", command.usage);
        else if (o.step != NULL && o.out == NULL)
            status =
                sg_error_set(&err, SG_USAGE, "--step chooses what --out writes, and is without it of no use; usage: %s",
                             command.usage);
        else if (o.out == NULL && !o.list && !o.verify)
            status = sg_error_set(&err, SG_USAGE, "wanted --out PATH, --list or --verify; usage: %s", command.usage);
        else if (o.out != NULL && a.flags.path != NULL && is_same_file(o.out, a.flags.path))
            status = sg_error_set(&err, SG_USAGE, "--out %s is the cluster file: choose another name", o.out);
        else if (o.out != NULL && is_within(o.out, dir))
            status = sg_error_set(&err, SG_USAGE, "--out %s lies among the checkpoints in %s: choose another folder",
                                  o.out, dir);
        else
            status = export(dir, &o, &err);
    }
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
