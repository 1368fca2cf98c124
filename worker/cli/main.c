/* worker/cli/main.c - the `shardgrad` command: finds the command and calls it. */
#include <stdio.h>
#include <string.h>

#include "common/descriptors.h"
#include "common/memory_limit.h"
#include "common/nearest.h"
#include "common/signals.h"
#include "common/status.h"
#include "kernels/kernel.h"
#include "worker/cli/commands.h"

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", sg_run_main, "start a whole cluster on this machine, train, print the result"},
    {"status", sg_status_main, "how a running job stands: its ps, its workers, who is waited for"},
    {"export", sg_export_main, "write a checkpoint as one plain safetensors file; list checkpoints"},
    {"import", sg_import_main, "make a plain safetensors file the initial values of a job"},
    {"save", sg_save_main, "make a checkpoint of a running job now"},
    {"set", sg_set_main, "change hyper-parameters of a running job"},
    {"bench", sg_bench_main, "measure a local cluster, and beside it the machine and gRPC alone"},
    {"check-config", sg_check_config_main, "say whether a cluster file is right"},
    {"version", sg_version_main, "print the version"},
};

static void print_help(FILE *out)
{
    fprintf(out, "usage: shardgrad COMMAND [FILE] [options]\n\n");
    for (size_t i = 0; i < SG_ARRAY_LEN(commands); i++)
        fprintf(out, "  %-14s %s\n", commands[i].name, commands[i].help);
    fprintf(out, "\nshardgrad COMMAND --help says more. The daemons are shardgrad-ps and shardgrad-worker.\n");
}

/* The exit code; -1: there is no such command. */
static int call(const char *name, int argc, char **argv)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(commands); i++)
        if (strcmp(commands[i].name, name) == 0)
            return commands[i].main(argc, argv);
    return -1;
}

static int fail_unknown(const char *name)
{
    sg_nearest nearest = {.word = name};
    for (size_t i = 0; i < SG_ARRAY_LEN(commands); i++)
        sg_nearest_try(&nearest, commands[i].name);
    fprintf(stderr, "shardgrad: unknown command '%s'", name);
    if (nearest.best != NULL)
        fprintf(stderr, " (did you mean %s?)", nearest.best);
    fprintf(stderr, "; the commands are");
    for (size_t i = 0; i < SG_ARRAY_LEN(commands); i++)
        fprintf(stderr, "%s %s", i > 0 ? "," : "", commands[i].name);
    fprintf(stderr, "\n");
    return sg_status_exit_code(SG_USAGE);
}

int main(int argc, char **argv)
{
    sg_descriptors_open_standard();
    sg_descriptors_raise_limit();
    sg_signals_let_writes_fail();
    sg_memory_limit_require("shardgrad", sg_kernel_cpu_room(1)); /* OpenBLAS is loaded, whatever the command is */
    if (argc < 2) {
        print_help(stderr);
        return sg_status_exit_code(SG_USAGE);
    }
    const bool helps = strcmp(argv[1], "help") == 0;
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 || (helps && argc == 2)) {
        print_help(stdout);
        return sg_descriptors_end_output("shardgrad", 0);
    }
    const char *name = helps ? argv[2] : strcmp(argv[1], "--version") == 0 ? "version" : argv[1];
    char *help[] = {argv[1], (char[]){"--help"}, NULL};
    const int code = helps ? call(name, 2, help) : call(name, argc - 1, argv + 1);
    return code >= 0 ? sg_descriptors_end_output("shardgrad", code) : fail_unknown(name);
}
