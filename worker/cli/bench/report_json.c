/* worker/cli/bench/report_json.c - the JSON of report.h. A figure that was not taken is null or absent, never 0. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/cli/bench/report.h"

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *whole(uint64_t value)
{
    return json_integer((json_int_t)value);
}

static json_t *series_json(const sg_bench_series *series)
{
    if (series->n == 0)
        return json_null();
    json_t *values = json_array();
    for (size_t i = 0; i < series->n; i++)
        json_array_append_new(values, number(series->values[i]));
    json_t *object = json_object();
    json_object_set_new(object, "median", number(sg_bench_series_median(series)));
    json_object_set_new(object, "spread", number(sg_bench_series_spread(series)));
    json_object_set_new(object, "values", values);
    return object;
}

/* Thousands of steps: what they come to, not each of them. */
static json_t *quantiles_json(const sg_bench_series *series)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p10", 0.10}, {"p50", 0.50}, {"p90", 0.90}, {"p99", 0.99}, {"max", 1.0}};
    json_t *object = json_object();
    json_object_set_new(object, "n", whole(series->n));
    for (size_t i = 0; i < SG_ARRAY_LEN(quantiles); i++)
        json_object_set_new(object, quantiles[i].name, number(sg_bench_series_quantile(series, quantiles[i].q)));
    return object;
}

static json_t *rate_json(double bytes, const sg_bench_series *seconds)
{
    if (seconds->n == 0)
        return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "bytes", number(bytes));
    json_object_set_new(object, "bytes_per_second", number(bytes / sg_bench_series_median(seconds)));
    json_object_set_new(object, "seconds", series_json(seconds));
    return object;
}

static json_t *machine_json(const sg_bench_results *r)
{
    json_t *fused = json_object();
    for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2) {
        char name[16];
        snprintf(name, sizeof(name), "%zu", n);
        json_object_set_new(fused, name, rate_json(r->machine.fused_bytes[n], &r->machine.fused_seconds[n]));
    }
    json_t *object = json_object();
    json_object_set_new(object, "cores", json_integer(sysconf(_SC_NPROCESSORS_ONLN)));
    json_object_set_new(object, "memcpy", rate_json(r->machine.copy_bytes, &r->machine.copy_seconds));
    json_object_set_new(object, "memory_pass", rate_json(r->machine.pass_bytes, &r->machine.pass_seconds));
    json_object_set_new(object, "fused_pass_momentum", fused);
    json_object_set_new(object, "raw_tcp", rate_json(r->machine.tcp_bytes, &r->machine.tcp_seconds));
    return object;
}

static json_t *yardstick_json(const sg_bench_op_result *op)
{
    json_t *object = rate_json(op->yardstick_bytes, &op->yardstick.seconds);
    if (!json_is_object(object))
        return object;
    json_object_set_new(object, "message_bytes", whole(op->combination.message_bytes));
    json_object_set_new(object, "threads", whole(op->combination.threads));
    json_object_set_new(object, "connections", whole(op->combination.connections));
    json_object_set_new(object, "in_flight", whole(op->combination.in_flight));
    json_object_set_new(object, "client_cpu_seconds", series_json(&op->yardstick.client_cpu_seconds));
    json_object_set_new(object, "server_cpu_seconds", series_json(&op->yardstick.server_cpu_seconds));
    json_object_set_new(object, "client_faults", series_json(&op->yardstick.client_faults));
    json_object_set_new(object, "server_faults", series_json(&op->yardstick.server_faults));
    return object;
}

static json_t *op_json(const sg_bench_op_result *op)
{
    json_t *object = rate_json(op->bytes, &op->seconds);
    if (!json_is_object(object))
        return object;
    json_object_set_new(object, "worker_cpu_seconds", series_json(&op->worker_cpu_seconds));
    json_object_set_new(object, "ps_cpu_seconds", series_json(&op->ps_cpu_seconds));
    json_object_set_new(object, "worker_faults", series_json(&op->worker_faults));
    json_object_set_new(object, "ps_faults", series_json(&op->ps_faults));
    json_object_set_new(object, "yardstick", yardstick_json(op));
    return object;
}

static json_t *small_json(const sg_bench_results *r)
{
    if (r->small.steps.n == 0)
        return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "step_seconds", quantiles_json(&r->small.steps));
    json_object_set_new(object, "block_p50_seconds", series_json(&r->small.p50_seconds));
    json_object_set_new(object, "echo_p50_seconds", series_json(&r->small.echo_p50_seconds));
    json_object_set_new(object, "echo_p99_seconds", series_json(&r->small.echo_p99_seconds));
    json_object_set_new(object, "worker_cpu_seconds_per_step", number(r->small.worker_cpu_seconds));
    json_object_set_new(object, "ps_cpu_seconds_per_step", number(r->small.ps_cpu_seconds));
    return object;
}

static json_t *many_json(const sg_bench_results *r)
{
    if (r->many.seconds.n == 0)
        return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "variables", whole(r->many.n_variables));
    json_object_set_new(object, "bytes", whole(r->many.bytes));
    json_object_set_new(object, "step_seconds", series_json(&r->many.seconds));
    json_object_set_new(object, "memcpy_seconds", series_json(&r->many.copy_seconds));
    return object;
}

static json_t *memory_json(const sg_bench_results *r)
{
    if (r->memory.parameter_bytes == 0)
        return json_null();
    json_t *object = json_object();
    json_object_set_new(object, "workers", whole(r->memory.n_workers));
    json_object_set_new(object, "parameter_bytes", whole(r->memory.parameter_bytes));
    json_object_set_new(object, "resident_bytes", whole(r->memory.resident_bytes));
    json_object_set_new(object, "peak_bytes", whole(r->memory.peak_bytes));
    return object;
}

static json_t *scale_json(const sg_bench_results *r)
{
    json_t *array = json_array();
    for (size_t i = 0; i < SG_ARRAY_LEN(r->scale); i++) {
        json_t *object = rate_json(r->scale[i].bytes, &r->scale[i].seconds);
        if (json_is_object(object)) {
            json_object_set_new(object, "ps", whole(r->scale[i].n_ps));
            json_object_set_new(object, "workers", whole(r->scale[i].n_workers));
            json_array_append(array, object);
        }
        json_decref(object);
    }
    return array;
}

static json_t *floors_json(const sg_bench_settings *s, const sg_bench_results *r)
{
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = sg_bench_floors_list(s, r, floors);
    bool apply = sg_bench_floors_apply(r, s);
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++) {
        json_t *object = json_object();
        json_object_set_new(object, "name", json_string(floors[i].name));
        json_object_set_new(object, "found", number(floors[i].found));
        json_object_set_new(object, "floor", number(floors[i].floor));
        json_object_set_new(object, "aim", number(floors[i].aim));
        json_object_set_new(object, "direction", json_string(floors[i].at_most ? "at_most" : "at_least"));
        json_object_set_new(object, "met", apply ? json_boolean(sg_bench_floors_is_met(&floors[i])) : json_null());
        json_object_set_new(object, "spread", number(floors[i].spread));
        json_object_set_new(object, "noisy", json_boolean(sg_bench_floors_is_noisy(&floors[i])));
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *run_json(const sg_bench_settings *s, const sg_bench_results *r)
{
    char now[SG_CLOCK_RFC3339_BYTES];
    sg_clock_rfc3339(now);
    json_t *object = json_object();
    json_object_set_new(object, "version", json_string(SG_VERSION));
    json_object_set_new(object, "time", json_string(now));
    json_object_set_new(object, "ps", whole(r->n_ps));
    json_object_set_new(object, "workers", whole(r->n_workers));
    json_object_set_new(object, "connections", whole(r->connections));
    json_object_set_new(object, "rpc_threads", whole(r->rpc_threads));
    json_object_set_new(object, "bytes", whole(s->shape.total_bytes));
    json_object_set_new(object, "variables", whole(sg_bench_shape_variables(&s->shape)));
    json_object_set_new(object, "repetitions", whole(s->repetitions));
    json_object_set_new(object, "quick", json_boolean(s->quick));
    json_object_set_new(object, "yardstick", json_boolean(r->has_yardstick));
    return object;
}

char *sg_bench_report_json(const sg_bench_settings *s, const sg_bench_results *r)
{
    json_t *root = run_json(s, r);
    const sg_bench_op_result *both = &r->ops[SG_BENCH_OP_BOTH];
    json_object_set_new(root, "machine", machine_json(r));
    json_object_set_new(root, "push", op_json(&r->ops[SG_BENCH_OP_PUSH]));
    json_object_set_new(root, "pull", op_json(&r->ops[SG_BENCH_OP_PULL]));
    json_object_set_new(root, "push_pull", op_json(both));
    json_object_set_new(root, "first_round_seconds",
                        both->seconds.n > 0 ? number(r->first_round_seconds) : json_null());
    json_object_set_new(root, "step_worker_faults", series_json(&r->step_worker_faults));
    json_object_set_new(root, "step_ps_faults", series_json(&r->step_ps_faults));
    json_object_set_new(root, "small", small_json(r));
    json_object_set_new(root, "many", many_json(r));
    json_object_set_new(root, "memory", memory_json(r));
    json_object_set_new(root, "scale", scale_json(r));
    json_object_set_new(root, "ratios", floors_json(s, r));
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
    json_decref(root);
    SG_ASSERT(text != NULL);
    return text;
}
