/* tests/bench/overlap_steps.c - one worker that trains in three ways in turn, so that all see the same machine: without
 * a ps, with one and the gradients sent when all are there, and sent while the rest is computed.
 *
 *     overlap_steps CONFIG COORDINATOR PS_PID ROUNDS STEPS
 *
 * Prints a line for each round: milliseconds per step of each way, then the processor time of worker and ps per step of
 * each way.
 *
 * tests/bench/overlap starts the ps and says what it means. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/memory.h"
#include "worker/train/exchange.h"
#include "worker/train/local.h"

typedef struct final {
    sg_range part;
    bool left_out;
} final;

typedef struct bench {
    sg_config *config;
    sg_workload *alone, *workload; /* without and with a ps */
    sg_local *local;
    sg_client *client;
    sg_exchange *exchange;
    final *kept; /* [n_kept] of kept_capacity: what step_apart has yet to send */
    size_t n_kept, kept_capacity;
    uint64_t n_local_steps;
    clockid_t ps_clock; /* of the processor time of the ps */
} bench;

typedef struct cost {
    double ms, cpu_ms; /* per step */
} cost;

static void check(sg_status status, const sg_error *err)
{
    if (status == SG_OK)
        return;
    fprintf(stderr, "overlap_steps: %s\n", err->message);
    exit(1);
}

/* --- the three ways -------------------------------------------------------------------------------------------- */

static void step_local(bench *b)
{
    sg_error err;
    sg_step step;
    check(sg_local_step(b->local, b->n_local_steps++, &step, &err), &err);
}

static sg_status before_read(void *user, const sg_range *part, sg_error *err)
{
    return sg_exchange_wait(((bench *)user)->exchange, part, err);
}

static sg_status on_loss(void *user, const sg_step *step, sg_error *err)
{
    bench *b = user;
    sg_status status = sg_exchange_finish(b->exchange, err);
    if (status == SG_OK)
        sg_exchange_begin(b->exchange, step);
    return status;
}

static sg_status on_final(void *user, const sg_range *part, bool left_out, sg_error *err)
{
    return sg_exchange_send(((bench *)user)->exchange, part, left_out, err);
}

static sg_status on_final_keep(void *user, const sg_range *part, bool left_out, sg_error *err)
{
    (void)err;
    bench *b = user;
    if (b->n_kept == b->kept_capacity) {
        b->kept_capacity = b->kept_capacity == 0 ? 16 : 2 * b->kept_capacity;
        b->kept = sg_xrealloc(b->kept, b->kept_capacity, sizeof(*b->kept));
    }
    b->kept[b->n_kept++] = (final){*part, left_out};
    return SG_OK;
}

static void compute(bench *b, sg_status (*on_final_do)(void *, const sg_range *, bool, sg_error *))
{
    sg_error err;
    sg_step step = {.values_later = true};
    sg_workload_hooks hooks = {.before_read = before_read, .on_loss = on_loss, .on_final = on_final_do, .user = b};
    check(sg_client_begin_step(b->client, &step, &err), &err);
    check(sg_workload_gradient(b->workload, &step, step.number + 1, &hooks, &err), &err);
}

/* The same exchange, only not while anything is computed. */
static void step_apart(bench *b)
{
    sg_error err;
    b->n_kept = 0;
    compute(b, on_final_keep);
    for (size_t i = 0; i < b->n_kept; i++)
        check(sg_exchange_send(b->exchange, &b->kept[i].part, b->kept[i].left_out, &err), &err);
    check(sg_exchange_flush(b->exchange, &err), &err);
    check(sg_exchange_finish(b->exchange, &err), &err);
}

static void step_overlapped(bench *b)
{
    sg_error err;
    compute(b, on_final);
    check(sg_exchange_flush(b->exchange, &err), &err);
}

static double clock_ms(clockid_t clock)
{
    struct timespec time = {0};
    clock_gettime(clock, &time);
    return (double)time.tv_sec * 1e3 + (double)time.tv_nsec / 1e6;
}

static double cpu_ms(const bench *b)
{
    return clock_ms(CLOCK_PROCESS_CPUTIME_ID) + clock_ms(b->ps_clock);
}

static cost run(bench *b, void (*step)(bench *b), uint64_t n_steps)
{
    sg_error err;
    double began_ms = clock_ms(CLOCK_MONOTONIC), began_cpu_ms = cpu_ms(b), n = (double)n_steps;
    for (uint64_t i = 0; i < n_steps; i++)
        step(b);
    check(sg_exchange_finish(b->exchange, &err), &err);
    return (cost){(clock_ms(CLOCK_MONOTONIC) - began_ms) / n, (cpu_ms(b) - began_cpu_ms) / n};
}

/* --- setting up ------------------------------------------------------------------------------------------------ */

static void open_all(bench *b, const char *config_path, const char *coordinator)
{
    sg_error err;
    check(sg_config_load(config_path, NULL, 0, &b->config, &err), &err);
    sg_kernel_cpu_set_threads((uint32_t)b->config->threads);
    check(sg_workload_create(b->config, false, &b->alone, &err), &err);
    check(sg_workload_create(b->config, false, &b->workload, &err), &err);
    check(sg_local_create(b->alone, &b->local, &err), &err);
    check(sg_client_open(&(sg_client_options){.config = config_path, .coordinator = coordinator}, &b->client, &err),
          &err);
    const sg_model *model = b->workload->model;
    check(sg_client_declare(b->client, model->variables, model->n_variables, &err), &err);
    b->exchange = sg_exchange_create(b->client, model->variables, model->n_variables);
}

static void close_all(bench *b)
{
    sg_exchange_destroy(b->exchange);
    free(b->kept);
    sg_client_close(b->client);
    sg_local_destroy(b->local);
    sg_workload_destroy(b->workload);
    sg_workload_destroy(b->alone);
    sg_config_destroy(b->config);
}

int main(int argc, char **argv)
{
    bench b = {0};
    if (argc != 6 || clock_getcpuclockid((pid_t)strtol(argv[3], NULL, 10), &b.ps_clock) != 0) {
        fprintf(stderr, "usage: overlap_steps CONFIG COORDINATOR PS_PID ROUNDS STEPS\n");
        return 64;
    }
    sg_memory_tune_daemon();
    uint64_t n_rounds = strtoull(argv[4], NULL, 10), n_steps = strtoull(argv[5], NULL, 10);
    open_all(&b, argv[1], argv[2]);
    for (uint64_t round = 0; round <= n_rounds; round++) {
        cost local = run(&b, step_local, n_steps);
        cost apart = run(&b, step_apart, n_steps);
        cost overlapped = run(&b, step_overlapped, n_steps);
        if (round > 0) /* the first one warms up */
            printf("%.3f %.3f %.3f %.3f %.3f %.3f\n", local.ms, apart.ms, overlapped.ms, local.cpu_ms, apart.cpu_ms,
                   overlapped.cpu_ms);
        fflush(stdout);
    }
    close_all(&b);
    return 0;
}
