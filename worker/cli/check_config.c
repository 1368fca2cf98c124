/* worker/cli/check_config.c - `shardgrad check-config`: is the file right, and what does it come to? */
#include <stdio.h>

#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"
#include "worker/train/workload.h"

/* A file for a trainer of one's own, which has data of its own, names none. */
static bool names_data(const sg_config *config)
{
    const char *const paths[] = {config->data.train_images, config->data.train_labels, config->data.test_images,
                                 config->data.test_labels};
    bool names = config->data.format != SG_DATA_IDX;
    for (size_t i = 0; i < SG_ARRAY_LEN(paths); i++)
        names = names || paths[i][0] != '\0';
    return names;
}

/* Whether there is such a model, and whether it fits the data, where they are here: a file is as right on a machine
 * that lacks them. */
static sg_status check_model(const sg_config *config, sg_error *err)
{
    sg_error why;
    if (!names_data(config))
        return sg_config_locate(config, sg_workload_check_model(config, err), err);
    sg_status status = sg_workload_check(config, &why);
    if (status == SG_CONFIG || status == SG_DATA)
        return sg_error_set(err, status, "%s", why.message);
    if (status != SG_OK)
        fprintf(stderr, "shardgrad: the model was not tried on the data: %s\n", why.message);
    return SG_OK;
}

int sg_check_config_main(int argc, char **argv)
{
    bool print = false, reference = false;
    const sg_arguments_option options[] = {
        {"--print", "", "write the whole configuration, defaults filled in, as a cluster file", &print, NULL},
        {"--reference", "", "write what every key means, as comments; needs no FILE", &reference, NULL},
    };
    sg_arguments_command command = {
        .usage = "shardgrad check-config FILE [--print] [options]",
        .summary = "Reads a cluster file and says what is wrong with it, by line and column, and whether its model\n"
                   "fits its data, if these are here. It does not look for the hosts. Exit code 0: nothing is\n"
                   "wrong; 78: something is; 65: in the data; 66: there is no such file.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
    };
    sg_error err;
    sg_arguments a;
    sg_status status = sg_arguments_init(&a, &command, argc, argv, &err);
    if (status == SG_OK && !a.help && !reference && a.flags.path == NULL)
        status = sg_error_set(&err, SG_USAGE, "wanted a cluster file; usage: %s", command.usage);
    if (status == SG_OK && !a.help && !reference)
        status = check_model(a.config, &err);
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    if (status == SG_OK && !a.help && !reference)
        sg_arguments_note_idle(&a);
    if (status == SG_OK && !a.help) {
        if (reference)
            sg_config_print_reference(stdout);
        else if (print)
            sg_config_print(a.config, stdout);
        else
            printf("%s: right; %zu ps, %llu worker%s, %s\n", a.flags.path, a.config->ps.n,
                   (unsigned long long)a.config->workers, a.config->workers == 1 ? "" : "s",
                   sg_mode_name(a.config->update.mode));
    }
    sg_arguments_deinit(&a);
    return code;
}
