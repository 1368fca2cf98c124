/* worker/cli/version.c - `shardgrad version`. */
#include <stdio.h>
#include <string.h>

#include "kernels/kernel.h"
#include "shardgrad/client.h"
#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"

int sg_version_main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf("usage: shardgrad version\n\nPrints the version of the program, and on what it can compute "
               "(train.backend).\n");
        return 0;
    }
    if (argc > 1) {
        sg_error err;
        return sg_arguments_fail(
            sg_error_set(&err, SG_USAGE, "version takes no argument, found '%s'; usage: shardgrad version", argv[1]),
            &err);
    }
    printf("shardgrad %s\nbackends: cpu%s\n", sg_library_version(), sg_kernel_onednn() ? " onednn" : "");
    return 0;
}
