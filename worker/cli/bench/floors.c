/* worker/cli/bench/floors.c - see floors.h. */
#include "worker/cli/bench/floors.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "worker/cli/bench/settings.h"

#define MANY_SECONDS 0.005 /* that a step of many variables may cost beside three copies of its bytes */
#define MANY_COPIES  3
#define NOISY_SPREAD 0.10
#define FLOOR_BYTES  ((uint64_t)128 << 20)

typedef struct list {
    sg_bench_floor *floors;
    size_t n;
} list;

/* Adds what was measured; a found value that is none was not. */
static void add(list *l, const sg_bench_floor *floor, const char *format, ...) SG_PRINTF(3, 4);

static void add(list *l, const sg_bench_floor *floor, const char *format, ...)
{
    if (isnan(floor->found))
        return;
    SG_ASSERT(l->n < SG_BENCH_FLOORS_MAX);
    sg_bench_floor *f = &l->floors[l->n++];
    *f = *floor;
    va_list args;
    va_start(args, format);
    vsnprintf(f->name, sizeof(f->name), format, args);
    va_end(args);
}

static double larger_spread(const sg_bench_series *a, const sg_bench_series *b)
{
    return fmax(sg_bench_series_spread(a), sg_bench_series_spread(b)); /* the other one if one is NAN */
}

double sg_bench_floors_paired(double bytes, const sg_bench_series *seconds, double other_bytes,
                              const sg_bench_series *other_seconds)
{
    sg_bench_series ratios = {0};
    for (size_t i = 0; i < seconds->n && i < other_seconds->n; i++)
        sg_bench_series_add(&ratios, bytes / seconds->values[i] / (other_bytes / other_seconds->values[i]));
    double median = sg_bench_series_median(&ratios);
    sg_bench_series_deinit(&ratios);
    return median;
}

static void add_ops(list *l, const sg_bench_results *r)
{
    static const struct {
        const char *name;
        double yardstick_floor, tcp_floor, tcp_aim;
    } ops[SG_BENCH_OP_COUNT] = {
        [SG_BENCH_OP_PUSH] = {"push", 0.90, 0.35, 0.42},
        [SG_BENCH_OP_PULL] = {"pull", 0.90, 0.40, 0.50},
        [SG_BENCH_OP_BOTH] = {"push_pull", 0.85, 0.38, 0.46},
    };
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++) {
        const sg_bench_op_result *op = &r->ops[i];
        const sg_bench_series *other = &op->yardstick.seconds;
        add(l,
            &(sg_bench_floor){.found = sg_bench_floors_paired(op->bytes, &op->seconds, op->yardstick_bytes, other),
                              .floor = ops[i].yardstick_floor,
                              .aim = 1,
                              .spread = larger_spread(&op->seconds, other)},
            "%s / yardstick %s", ops[i].name, ops[i].name);
    }
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++) {
        const sg_bench_op_result *op = &r->ops[i];
        const sg_bench_series *other = &r->machine.tcp_seconds;
        add(l,
            &(sg_bench_floor){.found = sg_bench_floors_paired(op->bytes, &op->seconds, r->machine.tcp_bytes, other),
                              .floor = ops[i].tcp_floor,
                              .aim = ops[i].tcp_aim,
                              .spread = larger_spread(&op->seconds, other)},
            "%s%s / raw TCP one way", ops[i].name, i == SG_BENCH_OP_BOTH ? " both ways" : "");
    }
}

static void add_passes(list *l, const sg_bench_results *r)
{
    const sg_bench_series *pass = &r->machine.pass_seconds;
    for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2) {
        const sg_bench_series *fused = &r->machine.fused_seconds[n];
        add(l,
            &(sg_bench_floor){.found =
                                  sg_bench_floors_paired(r->machine.fused_bytes[n], fused, r->machine.pass_bytes, pass),
                              .floor = 0.80,
                              .aim = 0.90,
                              .spread = larger_spread(fused, pass)},
            "fused pass, momentum, %zu part%s / memory pass", n, n > 1 ? "s" : "");
    }
}

/* Step over echo: seconds per seconds, so the pairs are turned round. */
static void add_small(list *l, const sg_bench_results *r)
{
    add(l,
        &(sg_bench_floor){.found = sg_bench_floors_paired(1, &r->small.echo_p50_seconds, 1, &r->small.p50_seconds),
                          .floor = 1.6,
                          .aim = 1.35,
                          .at_most = true,
                          .spread = larger_spread(&r->small.echo_p50_seconds, &r->small.p50_seconds)},
        "whole 4 KiB step / bare echo of 4 KiB");
}

static void add_many(list *l, const sg_bench_results *r)
{
    double allowed = MANY_COPIES * sg_bench_series_median(&r->many.copy_seconds) + MANY_SECONDS;
    add(l,
        &(sg_bench_floor){.found = sg_bench_series_median(&r->many.seconds) / allowed,
                          .floor = 1,
                          .aim = NAN,
                          .at_most = true,
                          .spread = larger_spread(&r->many.seconds, &r->many.copy_seconds)},
        "step of %" PRIu64 " variables of 1 KiB / (3 memcpy + 5 ms)", r->many.n_variables);
}

static void add_memory(list *l, const sg_bench_results *r)
{
    if (r->memory.parameter_bytes > 0)
        add(l,
            &(sg_bench_floor){.found = (double)r->memory.peak_bytes / (double)r->memory.parameter_bytes,
                              .floor = 2.5,
                              .aim = 2.2,
                              .at_most = true,
                              .spread = NAN},
            "ps resident memory / parameters, %" PRIu64 " workers", r->memory.n_workers);
}

static void add_faults(list *l, const char *side, const sg_bench_series *faults)
{
    add(l,
        &(sg_bench_floor){
            .found = sg_bench_series_median(faults), .floor = 20, .aim = 0, .at_most = true, .spread = NAN},
        "minor page faults per step, %s", side);
}

static void add_scale(list *l, const sg_bench_results *r)
{
    const sg_bench_op_result *both = &r->ops[SG_BENCH_OP_BOTH];
    double goodput = both->bytes / sg_bench_series_median(&both->seconds);
    for (size_t i = 0; i < SG_ARRAY_LEN(r->scale); i++) {
        const sg_bench_scale_result *scale = &r->scale[i];
        add(l,
            &(sg_bench_floor){.found = scale->bytes / sg_bench_series_median(&scale->seconds) / goodput,
                              .floor = 0.8,
                              .aim = NAN,
                              .spread = larger_spread(&scale->seconds, &both->seconds)},
            "push_pull, %" PRIu64 " ps + %" PRIu64 " workers / 1 + 1", scale->n_ps, scale->n_workers);
    }
}

static void add_first_round(list *l, const sg_bench_results *r)
{
    const sg_bench_series *steady = &r->ops[SG_BENCH_OP_BOTH].seconds;
    add(l,
        &(sg_bench_floor){.found = r->first_round_seconds / sg_bench_series_median(steady),
                          .floor = 3,
                          .aim = NAN,
                          .at_most = true,
                          .spread = sg_bench_series_spread(steady)},
        "first round / steady state");
}

size_t sg_bench_floors_list(const sg_bench_settings *s, const sg_bench_results *r,
                            sg_bench_floor floors[SG_BENCH_FLOORS_MAX])
{
    list l = {.floors = floors};
    add_ops(&l, r);
    if (!s->quick)
        add_passes(&l, r);
    add_small(&l, r);
    if (!s->quick)
        add_memory(&l, r);
    add_faults(&l, "worker", &r->step_worker_faults);
    add_faults(&l, "ps", &r->step_ps_faults);
    add_scale(&l, r);
    if (!s->quick)
        add_many(&l, r);
    add_first_round(&l, r);
    return l.n;
}

bool sg_bench_floors_is_met(const sg_bench_floor *f)
{
    return f->at_most ? f->found <= f->floor : f->found >= f->floor;
}

bool sg_bench_floors_is_noisy(const sg_bench_floor *f)
{
    return f->spread > NOISY_SPREAD; /* not if it is NAN */
}

bool sg_bench_floors_apply(const sg_bench_results *r, const sg_bench_settings *s)
{
    return r->n_ps == 1 && r->n_workers == 1 && !s->quick && s->shape.total_bytes == FLOOR_BYTES;
}

size_t sg_bench_floors_expected(const sg_bench_settings *s)
{
    static const size_t floors[SG_BENCH_STAGE_COUNT] = {
        [SG_BENCH_STAGE_MACHINE] = 3, /* one for each number of contributions */
        [SG_BENCH_STAGE_OPS] = 9,     /* against the yardstick and TCP; page faults of both sides; the first round */
        [SG_BENCH_STAGE_SMALL] = 1,   [SG_BENCH_STAGE_MANY] = 1,
        [SG_BENCH_STAGE_MEMORY] = 1,  [SG_BENCH_STAGE_SCALE] = 2,
    };
    size_t n = 0;
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++)
        n += s->only[i] ? floors[i] : 0;
    return n;
}

sg_status sg_bench_floors_check(const sg_bench_settings *s, uint64_t n_ps, uint64_t n_workers, bool has_yardstick,
                                sg_error *err)
{
    if (!sg_bench_floors_apply(&(sg_bench_results){.n_ps = n_ps, .n_workers = n_workers}, s))
        return sg_error_set(
            err, SG_USAGE,
            "--check: floors are set for 1 ps, 1 worker and 128 MiB, without --quick: leave out --check");
    if (s->only[SG_BENCH_STAGE_SCALE] && !s->only[SG_BENCH_STAGE_OPS])
        return sg_error_set(err, SG_USAGE, "--check: the stage scale is compared with ops: choose --only ops,scale");
    if (sg_bench_settings_wants_yardstick(s) && !has_yardstick)
        return sg_error_set(err, SG_NOT_FOUND,
                            "--check: there is no shardgrad-yardstick beside this program, which ops and small are "
                            "compared with: make it, or leave out --check");
    return SG_OK;
}
