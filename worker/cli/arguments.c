/* worker/cli/arguments.c - see arguments.h. */
#include "worker/cli/arguments.h"

#include <stdlib.h>
#include <string.h>

#include "common/config_options.h"

static void print_help(const sg_arguments_command *command)
{
    printf("usage: %s\n\n%s\n\noptions\n", command->usage, command->summary);
    for (size_t i = 0; i < command->n_options; i++) {
        const sg_arguments_option *option = &command->options[i];
        char left[64];
        snprintf(left, sizeof(left), "%s %s", option->name, option->hint);
        printf("  %-24s %s\n", left, option->help);
    }
    printf("  %-24s %s\n", "--help", "this text");
    if (command->flags_help != NULL)
        fputs(command->flags_help, stdout);
    else
        sg_config_flags_help(stdout);
}

static const sg_arguments_option *find_option(const sg_arguments_command *command, const char *name)
{
    for (size_t i = 0; i < command->n_options; i++)
        if (strcmp(command->options[i].name, name) == 0)
            return &command->options[i];
    return NULL;
}

static sg_status refuse_option(const char *word, const sg_arguments_command *command, sg_error *err)
{
    char meant[SG_CONFIG_FLAGS_MEANT_BYTES];
    const char **own = sg_xcalloc(command->n_options + 1, sizeof *own);
    for (size_t i = 0; i < command->n_options; i++)
        own[i] = command->options[i].name;
    sg_config_flags_meant(word, own, command->n_options, meant);
    free(own);
    return sg_error_set(err, SG_USAGE, "unknown option '%s'%s; usage: %s (--help lists the options)", word, meant,
                        command->usage);
}

static sg_status take_rest(sg_arguments *a, const sg_arguments_command *command, sg_error *err)
{
    bool only_files = false;
    for (int i = 0; i < a->flags.n_rest; i++) {
        const char *word = a->flags.rest[i];
        const sg_arguments_option *option = find_option(command, word);
        if (!only_files && strcmp(word, "--") == 0)
            only_files = true;
        else if (!only_files && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0))
            a->help = true;
        else if (!only_files && option != NULL && option->set != NULL)
            *option->set = true;
        else if (!only_files && option != NULL) {
            if (++i == a->flags.n_rest)
                return sg_error_set(err, SG_USAGE, "%s: wanted %s after it", word, option->hint);
            *option->value = a->flags.rest[i];
        } else if (!only_files && word[0] == '-')
            return refuse_option(word, command, err);
        else if (command->takes_settings && strchr(word, '=') != NULL) {
            if (a->n_settings == SG_ARGUMENTS_MAX_SETTINGS)
                return sg_error_set(err, SG_USAGE, "more than %u KEY=VALUE", SG_ARGUMENTS_MAX_SETTINGS);
            a->settings[a->n_settings++] = word;
        } else if (command->takes_settings && sg_config_option_find(word) != NULL)
            return sg_error_set(err, SG_USAGE, "found '%s', wanted KEY=VALUE, such as %s=VALUE", word, word);
        else if (a->flags.path != NULL)
            return sg_error_set(err, SG_USAGE, "one cluster file is enough%s: found '%s' and '%s'",
                                command->takes_settings ? " beside KEY=VALUE" : "", a->flags.path, word);
        else
            a->flags.path = word;
    }
    return SG_OK;
}

sg_status sg_arguments_init(sg_arguments *a, const sg_arguments_command *command, int argc, char **argv, sg_error *err)
{
    *a = (sg_arguments){0};
    sg_status status = sg_config_flags_init(&a->flags, argc, argv, err);
    if (status == SG_OK)
        status = take_rest(a, command, err);
    if (status != SG_OK)
        return status;
    if (a->help) {
        print_help(command);
        return SG_OK;
    }
    if (command->needs_file && a->flags.path == NULL)
        return sg_error_set(err, SG_USAGE, "wanted a cluster file; usage: %s", command->usage);
    return sg_config_load(a->flags.path, a->flags.overrides, a->flags.n_overrides, &a->config, err);
}

void sg_arguments_deinit(sg_arguments *a)
{
    sg_config_destroy(a->config);
    sg_config_flags_deinit(&a->flags);
}

sg_status sg_arguments_check_coordinator(const sg_arguments *a, const sg_arguments_command *command,
                                         const char *coordinator, sg_error *err)
{
    if (a->flags.path == NULL && coordinator == NULL)
        return sg_error_set(err, SG_USAGE, "wanted a cluster file or --coordinator; usage: %s", command->usage);
    char host[256];
    uint16_t port;
    if (coordinator != NULL && sg_config_split_address(coordinator, host, sizeof(host), &port, err) != SG_OK)
        return sg_error_prefix(err, SG_USAGE, "--coordinator");
    return SG_OK;
}

char *sg_arguments_job(const sg_arguments *a)
{
    static char whichever[] = "";
    bool is_named = a->flags.path != NULL;
    for (size_t i = 0; i < a->flags.n_overrides; i++)
        is_named = is_named || strcmp(a->flags.overrides[i].key, "job") == 0;
    return is_named ? a->config->job : whichever;
}

static void print_note(void *user, const char *note)
{
    (void)user;
    fprintf(stderr, "shardgrad: %s\n", note);
}

void sg_arguments_note_idle(const sg_arguments *a)
{
    sg_config_each_idle(a->config, print_note, NULL);
}

int sg_arguments_fail(sg_status status, const sg_error *err)
{
    fprintf(stderr, "shardgrad: %s\n", err->message);
    return sg_status_exit_code(status);
}
