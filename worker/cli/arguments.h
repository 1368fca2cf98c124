/* worker/cli/arguments.h - the command line of one command: its FILE, its own options, and the flags that set keys of
 * the cluster file. One table per command drives parsing and --help. */
#ifndef SG_WORKER_CLI_ARGUMENTS_H
#define SG_WORKER_CLI_ARGUMENTS_H

#include "common/config.h"

/* An option of one command. Exactly one of `set` and `value` is not NULL. */
typedef struct sg_arguments_option {
    const char *name;   /* "--local" */
    const char *hint;   /* of its value: "HOST:PORT"; "" where it takes none */
    const char *help;   /* a line */
    bool *set;          /* set to true */
    const char **value; /* set to what follows */
} sg_arguments_option;

typedef struct sg_arguments_command {
    const char *usage;   /* "shardgrad run FILE [--local] [options]" */
    const char *summary; /* what it does, a few lines for --help */
    const sg_arguments_option *options;
    size_t n_options;
    /* The lines of --help on flags that set keys of the cluster file; NULL: all of them are listed. */
    const char *flags_help;
    bool needs_file;
    bool takes_settings; /* words KEY=VALUE */
} sg_arguments_command;

#define SG_ARGUMENTS_MAX_SETTINGS 32u

/* flags_help of commands that ask a running job, and of those that read or write files alone. */
#define SG_ARGUMENTS_FLAGS_OF_A_JOB                                                                                    \
    "  --config FILE            the same as FILE\n"                                                                    \
    "  --run-dir DIR            of the run, if it was started with it: there its ps say where they listen\n"           \
    "  --set KEY=VALUE          set a key of the cluster file, such as security.token_file=mine\n"
#define SG_ARGUMENTS_FLAGS_OF_FILES                                                                                    \
    "  --config FILE            the same as FILE\n"                                                                    \
    "  --set KEY=VALUE          set a key of the cluster file, such as checkpoint.dir=DIR\n"

typedef struct sg_arguments {
    const char *settings[SG_ARGUMENTS_MAX_SETTINGS]; /* [n_settings] as they were given */
    size_t n_settings;
    sg_config_flags flags; /* flags.path is the FILE */
    sg_config *config;     /* NULL where help was asked for */
    bool help;             /* --help was given and printed: end with 0 */
} sg_arguments;

/* Parses argv[1..] and loads the cluster file. Errors: USAGE, with a hint; those of sg_config_load. Freed by
 * sg_arguments_deinit, also after failure. */
SG_MUST_USE sg_status sg_arguments_init(sg_arguments *arguments, const sg_arguments_command *command, int argc,
                                        char **argv, sg_error *err);
void sg_arguments_deinit(sg_arguments *arguments);

/* Of a command that asks the coordinator at `coordinator`, or where FILE leads to; coordinator may be NULL. Errors:
 * USAGE: there is neither, or it is no address. */
SG_MUST_USE sg_status sg_arguments_check_coordinator(const sg_arguments *arguments, const sg_arguments_command *command,
                                                     const char *coordinator, sg_error *err);

/* The job that FILE or --set names, to be asked for by name; "" where neither is given: whichever is there. */
char *sg_arguments_job(const sg_arguments *arguments);

/* Says on standard error which keys of the configuration were given and have no effect, each in a line. */
void sg_arguments_note_idle(const sg_arguments *arguments);

/* Prints "shardgrad: MESSAGE" and returns the exit code of `status`. */
int sg_arguments_fail(sg_status status, const sg_error *err);

#endif
