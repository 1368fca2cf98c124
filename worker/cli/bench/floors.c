/* worker/cli/bench/floors.c - see floors.h. */
#include "worker/cli/bench/floors.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#define MANY_SECONDS 0.005 /* that a step of many variables may cost beside three copies of its bytes */
#define MANY_COPIES  3
#define FLOOR_BYTES  ((uint64_t)128 << 20)

typedef struct list {
    sg_bench_floor *floors;
    size_t n;
} list;

/* Adds what was measured; a found value that is none was not. */
static void add(list *l, double found, bool at_most, double floor, double aim, const char *format, ...) SG_PRINTF(6, 7);

static void add(list *l, double found, bool at_most, double floor, double aim, const char *format, ...)
{
    if (isnan(found))
        return;
    SG_ASSERT(l->n < SG_BENCH_FLOORS_MAX);
    sg_bench_floor *f = &l->floors[l->n++];
    *f = (sg_bench_floor){.found = found, .floor = floor, .aim = aim, .at_most = at_most};
    va_list args;
    va_start(args, format);
    vsnprintf(f->name, sizeof(f->name), format, args);
    va_end(args);
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
        add(l, sg_bench_floors_paired(op->bytes, &op->seconds, op->yardstick_bytes, &op->yardstick.seconds), false,
            ops[i].yardstick_floor, 1, "%s / yardstick %s", ops[i].name, ops[i].name);
    }
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++) {
        const sg_bench_op_result *op = &r->ops[i];
        add(l, sg_bench_floors_paired(op->bytes, &op->seconds, r->machine.tcp_bytes, &r->machine.tcp_seconds), false,
            ops[i].tcp_floor, ops[i].tcp_aim, "%s%s / raw TCP one way", ops[i].name,
            i == SG_BENCH_OP_BOTH ? " both ways" : "");
    }
}

static void add_passes(list *l, const sg_bench_results *r)
{
    for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2)
        add(l,
            sg_bench_floors_paired(r->machine.fused_bytes[n], &r->machine.fused_seconds[n], r->machine.pass_bytes,
                                   &r->machine.pass_seconds),
            false, 0.80, 0.90, "fused pass, momentum, %zu part%s / memory pass", n, n > 1 ? "s" : "");
}

/* Step over echo: seconds per seconds, so the pairs are turned round. */
static void add_small(list *l, const sg_bench_results *r)
{
    add(l, sg_bench_floors_paired(1, &r->small.echo_p50_seconds, 1, &r->small.p50_seconds), true, 1.6, 1.35,
        "whole 4 KiB step / bare echo of 4 KiB");
}

static void add_many(list *l, const sg_bench_results *r)
{
    double allowed = MANY_COPIES * sg_bench_series_median(&r->many.copy_seconds) + MANY_SECONDS;
    add(l, sg_bench_series_median(&r->many.seconds) / allowed, true, 1, NAN,
        "step of %" PRIu64 " variables of 1 KiB / (3 memcpy + 5 ms)", r->many.n_variables);
}

static void add_scale(list *l, const sg_bench_results *r)
{
    const sg_bench_op_result *both = &r->ops[SG_BENCH_OP_BOTH];
    double goodput = both->bytes / sg_bench_series_median(&both->seconds);
    for (size_t i = 0; i < SG_ARRAY_LEN(r->scale); i++) {
        const sg_bench_scale_result *scale = &r->scale[i];
        add(l, scale->bytes / sg_bench_series_median(&scale->seconds) / goodput, false, 0.8, NAN,
            "push_pull, %" PRIu64 " ps + %" PRIu64 " workers / 1 + 1", scale->n_ps, scale->n_workers);
    }
}

size_t sg_bench_floors_list(const sg_bench_results *r, sg_bench_floor floors[SG_BENCH_FLOORS_MAX])
{
    list l = {.floors = floors};
    add_ops(&l, r);
    add_passes(&l, r);
    add_small(&l, r);
    if (r->memory.parameter_bytes > 0)
        add(&l, (double)r->memory.peak_bytes / (double)r->memory.parameter_bytes, true, 2.5, 2.2,
            "ps resident memory / parameters, %" PRIu64 " workers", r->memory.n_workers);
    add(&l, sg_bench_series_median(&r->step_worker_faults), true, 20, 0, "minor page faults per step, worker");
    add(&l, sg_bench_series_median(&r->step_ps_faults), true, 20, 0, "minor page faults per step, ps");
    add_scale(&l, r);
    add_many(&l, r);
    if (r->ops[SG_BENCH_OP_BOTH].seconds.n > 0)
        add(&l, r->first_round_seconds / sg_bench_series_median(&r->ops[SG_BENCH_OP_BOTH].seconds), true, 3, NAN,
            "first round / steady state");
    return l.n;
}

bool sg_bench_floors_is_met(const sg_bench_floor *f)
{
    return f->at_most ? f->found <= f->floor : f->found >= f->floor;
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
    if ((s->only[SG_BENCH_STAGE_OPS] || s->only[SG_BENCH_STAGE_SMALL]) && !has_yardstick)
        return sg_error_set(err, SG_NOT_FOUND,
                            "--check: there is no shardgrad-yardstick beside this program, which ops and small are "
                            "compared with: make it, or leave out --check");
    return SG_OK;
}
