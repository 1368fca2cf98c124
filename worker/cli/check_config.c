/* worker/cli/check_config.c - `shardgrad check-config`: is the file right, and what does it come to? */
#include <stdio.h>

#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"
#include "worker/models/model.h"

/* Is there such a model? Its inputs and classes are the data's, which is not looked at. */
static sg_status check_model(const sg_config *config, sg_error *err)
{
    sg_model *model;
    sg_status status = sg_model_create(&(sg_model_options){.name = config->model.name,
                                                           .hidden = config->model.hidden.items,
                                                           .n_hidden = config->model.hidden.n,
                                                           .inputs = 1,
                                                           .classes = 2},
                                       &model, err);
    if (status == SG_OK)
        sg_model_destroy(model);
    return status;
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
        .summary = "Reads a cluster file and says what is wrong with it, by line and column. It does not look for the\n"
                   "data or the hosts. Exit code 0: nothing is wrong; 78: something is; 66: there is no such file.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
    };
    sg_error err;
    sg_arguments a;
    sg_status status = sg_arguments_init(&a, &command, argc, argv, &err);
    if (status == SG_OK && !a.help && !reference && a.flags.path == NULL)
        status = sg_error_set(&err, SG_USAGE, "wanted a cluster file; usage: %s", command.usage);
    if (status == SG_OK && !a.help && !reference && (status = check_model(a.config, &err)) != SG_OK)
        status = sg_error_prefix(&err, status, "%s", a.flags.path);
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    if (status == SG_OK && !a.help) {
        if (reference)
            sg_config_print_reference(stdout);
        else if (print)
            sg_config_print(a.config, stdout);
        else
            printf("%s: right; %zu ps, %llu workers, %s\n", a.flags.path, a.config->ps.n,
                   (unsigned long long)a.config->workers, sg_mode_name(a.config->update.mode));
    }
    sg_arguments_deinit(&a);
    return code;
}
