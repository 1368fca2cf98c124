/* worker/main.c - shardgrad-worker: one worker daemon, which trains the built-in model that the cluster file names.
 *
 * Threads: the main one takes signals; one trains (trainer.h); the client and the batches have threads of their own
 * (shardgrad/client.h, data/batches.h). This file only wires. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/folder.h"
#include "common/memory.h"
#include "common/parent.h"
#include "kernels/kernel.h"
#include "worker/train/interruptible.h"
#include "worker/train/trainer.h"

typedef struct arguments {
    sg_config_flags flags;
    const char *index, *parent, *coordinator;
    bool help, version;
} arguments;

static void print_help(void)
{
    printf("usage: shardgrad-worker --config FILE --index I [options]\n\n"
           "One worker of a cluster: trains the model that the cluster file names, until the last step is done. It\n"
           "may be started before the ps: it waits for them up to start_timeout_ms. SIGTERM makes it leave the job.\n\n"
           "options\n"
           "  --index I                index of this worker, from 0; unique\n"
           "  --coordinator HOST:PORT  address of ps 0, instead of the one that the file leads to\n"
           "  --parent PID             end when the process PID, which started this one, ends\n"
           "  --version                its version\n"
           "  --help                   this text\n");
    sg_config_flags_help(stdout);
}

static sg_status take_arguments(arguments *a, int argc, char **argv, sg_error *err)
{
    sg_status status = sg_config_flags_init(&a->flags, argc, argv, err);
    if (status != SG_OK)
        return status;
    for (int i = 0; i < a->flags.n_rest; i++) {
        const char *word = a->flags.rest[i];
        const char **value = strcmp(word, "--index") == 0         ? &a->index
                             : strcmp(word, "--parent") == 0      ? &a->parent
                             : strcmp(word, "--coordinator") == 0 ? &a->coordinator
                                                                  : NULL;
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)
            a->help = true;
        else if (strcmp(word, "--version") == 0)
            a->version = true;
        else if (value == NULL)
            return sg_error_set(err, SG_USAGE, "unknown option '%s'; see shardgrad-worker --help", word);
        else if (i + 1 == a->flags.n_rest)
            return sg_error_set(err, SG_USAGE, "%s: wanted a value after it", word);
        else
            *value = a->flags.rest[++i];
    }
    return SG_OK;
}

static sg_status parse_index(const arguments *a, const sg_config *config, uint32_t *index, sg_error *err)
{
    if (a->index == NULL)
        return sg_error_set(err, SG_USAGE, "wanted --index I; see shardgrad-worker --help");
    char *end;
    errno = 0;
    unsigned long long n = strtoull(a->index, &end, 10);
    if (errno != 0 || a->index[0] < '0' || a->index[0] > '9' || *end != '\0')
        return sg_error_set(err, SG_USAGE, "--index: '%s' is not a number", a->index);
    if (n >= config->max_workers)
        return sg_error_set(err, SG_CONFIG, "--index %s: max_workers is %llu, so the highest index is %llu", a->index,
                            (unsigned long long)config->max_workers, (unsigned long long)config->max_workers - 1);
    *index = (uint32_t)n;
    return SG_OK;
}

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

static sg_status train(const arguments *a, const sg_config *config, uint32_t index, sg_log *log, int *signal_number,
                       sg_error *err)
{
    sg_kernel_cpu_set_threads((uint32_t)config->threads);
    char **set = build_set(&a->flags);
    sg_trainer *trainer = sg_trainer_create(&(sg_trainer_options){.config = config,
                                                                  .config_path = a->flags.path,
                                                                  .set = (const char *const *)set,
                                                                  .coordinator = a->coordinator,
                                                                  .worker = index,
                                                                  .log = log});
    sg_status status =
        sg_interruptible_run(&(sg_interruptible){.work = work, .stop = stop, .user = trainer}, signal_number, err);
    sg_trainer_destroy(trainer);
    for (char **item = set; *item != NULL; item++)
        free(*item);
    free(set);
    return status;
}

/* Opens the log and runs the worker; the log tells how it ended, too. */
static sg_status run(const arguments *a, const sg_config *config, int *signal_number, sg_error *err)
{
    uint32_t index = 0;
    sg_status status = parse_index(a, config, &index, err);
    if (status == SG_OK)
        status = sg_parent_bind(a->parent, err);
    if (status != SG_OK)
        return status;
    sg_log_file file = {.streams = {stderr}};
    snprintf(file.who, sizeof(file.who), "worker-%u", index);
    status = sg_folder_open_log(config->run_dir, file.who, &file.streams[1], err);
    if (status != SG_OK)
        return status;
    sg_log log = {.fn = sg_log_file_write, .user = &file, .min_level = config->log_level};
    status = train(a, config, index, &log, signal_number, err);
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
    sg_memory_tune_daemon();
    sg_interruptible_hold_signals();
    /* Whoever reads the log may have gone, such as the terminal. */
    signal(SIGPIPE, SIG_IGN);
    arguments a = {0};
    sg_config *config = NULL;
    sg_error err;
    int signal_number = 0;
    sg_status status = take_arguments(&a, argc, argv, &err);
    if (status == SG_OK && a.help)
        print_help();
    else if (status == SG_OK && a.version)
        printf("shardgrad-worker %s\n", SG_VERSION);
    else if (status == SG_OK && a.flags.path == NULL)
        status = sg_error_set(&err, SG_USAGE, "wanted --config FILE; see shardgrad-worker --help");
    else if (status == SG_OK) {
        status = sg_config_load(a.flags.path, a.flags.overrides, a.flags.n_overrides, &config, &err);
        if (status == SG_OK)
            status = run(&a, config, &signal_number, &err);
    }
    int code = sg_interruptible_exit_code(status, signal_number);
    if (status != SG_OK && code != 0)
        fprintf(stderr, "shardgrad-worker: %s\n", err.message);
    sg_config_destroy(config);
    sg_config_flags_deinit(&a.flags);
    return code;
}
