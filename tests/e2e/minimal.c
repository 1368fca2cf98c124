/* tests/e2e/minimal.c - worker/examples/minimal.c, word for word, that a script can halt in the middle of a step.
 *
 *     WORKER=1 HALT=40 minimal    is worker 1 (0), and halts in step 40 or the first after it (never)
 *
 * It says "halted" before it ends the step, and goes on when it is told a line on standard input; and "lost step=N
 * STATUS" of a step that came to nothing. */
#include <inttypes.h>
#include <shardgrad/shardgrad.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t of_environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static sg_status open_as(const sg_client_options *options, sg_client **client, sg_error *err)
{
    sg_client_options mine = *options;
    mine.worker = (uint32_t)of_environment("WORKER", 0);
    return sg_client_open(&mine, client, err);
}

static sg_status end_or_halt(sg_client *client, sg_step *step, sg_error *err)
{
    static bool halted;
    if (!halted && step->number >= of_environment("HALT", UINT64_MAX)) {
        halted = true;
        puts("halted");
        fflush(stdout);
        (void)getchar();
    }
    const sg_status status = sg_client_end_step(client, step, err);
    if (status != SG_OK) {
        printf("lost step=%" PRIu64 " %s\n", step->number, sg_status_name(status));
        fflush(stdout);
    }
    return status;
}

#define sg_client_open     open_as
#define sg_client_end_step end_or_halt
#include "worker/examples/minimal.c"
