/* tests/bench/exchange_steps.c - a worker that computes nothing: its steps are the exchange alone.
 *
 *     exchange_steps CONFIG WORKER BYTES STEPS
 *
 * Prints when each step ended, in seconds on the machine's monotonic clock. tests/bench/shaped starts it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/status.h"
#include "shardgrad/client.h"

static void check(sg_status status, const sg_error *err)
{
    if (status == SG_OK)
        return;
    fprintf(stderr, "exchange_steps: %s\n", err->message);
    exit(1);
}

int main(int argc, char **argv)
{
    if (argc != 5) {
        fprintf(stderr, "usage: exchange_steps CONFIG WORKER BYTES STEPS\n");
        return 64;
    }
    sg_memory_tune_daemon();
    const uint64_t n_elems = strtoull(argv[3], NULL, 10) / sizeof(float);
    const uint64_t n_steps = strtoull(argv[4], NULL, 10);
    sg_variable variable = {.name = "values",
                            .rank = 1,
                            .shape = {n_elems},
                            .value = sg_xcalloc(n_elems, sizeof(float)),
                            .gradient = sg_xcalloc(n_elems, sizeof(float))};
    sg_client *client;
    sg_error err;
    const sg_client_options options = {.config = argv[1], .worker = (uint32_t)strtoul(argv[2], NULL, 10)};
    check(sg_client_open(&options, &client, &err), &err);
    check(sg_client_declare(client, &variable, 1, &err), &err);
    for (uint64_t i = 0; i < n_steps; i++) {
        sg_step step = {0};
        check(sg_client_begin_step(client, &step, &err), &err);
        step.examples = 1;
        check(sg_client_end_step(client, &step, &err), &err);
        printf("%.9f\n", (double)sg_clock_ns() * 1e-9);
    }
    sg_client_close(client);
    free(variable.value);
    free(variable.gradient);
    return 0;
}
