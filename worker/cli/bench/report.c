/* worker/cli/bench/report.c - the table of report.h. */
#include "worker/cli/bench/report.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "worker/cli/bench/settings.h"

static const char *const op_names[SG_BENCH_OP_COUNT] = {"push", "pull", "push_pull"};

/* --- the machine ---------------------------------------------------------------------------------------------- */

/* "AMD EPYC 7B13", or what uname calls the processor. */
static void read_processor(char *name, size_t n_bytes)
{
    struct utsname system;
    snprintf(name, n_bytes, "%s", uname(&system) == 0 ? system.machine : "unknown");
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", strlen("model name")) == 0 && colon != NULL && colon[1] == ' ') {
            line[strcspn(line, "\n")] = '\0';
            snprintf(name, n_bytes, "%s", colon + 2);
            break;
        }
    }
    if (file != NULL)
        fclose(file);
}

static void print_rate(FILE *out, const char *name, double bytes, const sg_bench_series *seconds, const char *note)
{
    if (seconds->n > 0)
        fprintf(out, "  %-34s %8.2f GB/s  spread %3.0f %%%s\n", name, bytes / sg_bench_series_median(seconds) / 1e9,
                100 * sg_bench_series_spread(seconds), note);
}

static void print_machine(const sg_bench_settings *s, const sg_bench_results *r, FILE *out)
{
    char processor[256];
    const char *note = s->quick ? "  (--quick: in caches, not in memory)" : "";
    read_processor(processor, sizeof(processor));
    fprintf(out,
            "machine: %ld cores, %s; shardgrad %s with %" PRIu64 " connection%s to each ps, %" PRIu64
            " rpc thread%s in it\n",
            sysconf(_SC_NPROCESSORS_ONLN), processor, SG_VERSION, r->connections, r->connections == 1 ? "" : "s",
            r->rpc_threads, r->rpc_threads == 1 ? "" : "s");
    print_rate(out, "memcpy", r->machine.copy_bytes, &r->machine.copy_seconds, note);
    print_rate(out, "memory pass c = a + b", r->machine.pass_bytes, &r->machine.pass_seconds, note);
    for (size_t n = 1; n <= SG_BENCH_PASS_MAX_PARTS; n *= 2) {
        char name[64];
        snprintf(name, sizeof(name), "fused pass, momentum, %zu part%s", n, n > 1 ? "s" : "");
        print_rate(out, name, r->machine.fused_bytes[n], &r->machine.fused_seconds[n], note);
    }
    print_rate(out, "raw TCP over loopback", r->machine.tcp_bytes, &r->machine.tcp_seconds, "");
}

/* --- the cluster ---------------------------------------------------------------------------------------------- */

static void print_op(FILE *out, const char *who, const char *name, double bytes, const sg_bench_series *seconds,
                     const sg_bench_series *cpu[2], const sg_bench_series *faults[2])
{
    double gigabytes = bytes / 1e9;
    fprintf(out, "  %-10s %-10s %8.2f GB/s %5.0f %% %9.2f %7.2f %10.0f %8.0f\n", name, who,
            gigabytes / sg_bench_series_median(seconds), 100 * sg_bench_series_spread(seconds),
            sg_bench_series_median(cpu[0]) / gigabytes, sg_bench_series_median(cpu[1]) / gigabytes,
            sg_bench_series_median(faults[0]), sg_bench_series_median(faults[1]));
}

static void print_combination(FILE *out, const char *op, const sg_bench_combination *c)
{
    char bytes[SG_BENCH_BYTES_TEXT];
    fprintf(out, "  yardstick %-10s best with %s messages, %u server thread%s, %u connection%s, %u calls in flight\n",
            op, sg_bench_settings_bytes_text((double)c->message_bytes, bytes), c->threads, c->threads > 1 ? "s" : "",
            c->connections, c->connections > 1 ? "s" : "", c->in_flight);
}

static void print_ops(const sg_bench_settings *s, const sg_bench_results *r, FILE *out)
{
    char bytes[SG_BENCH_BYTES_TEXT];
    if (r->ops[SG_BENCH_OP_PUSH].seconds.n == 0)
        return;
    fprintf(out, "\n%" PRIu64 " ps + %" PRIu64 " worker%s, %s in %" PRIu64 " variable%s, sync, sgd: %u repetitions\n",
            r->n_ps, r->n_workers, r->n_workers > 1 ? "s" : "",
            sg_bench_settings_bytes_text((double)s->shape.total_bytes, bytes), sg_bench_shape_variables(&s->shape),
            sg_bench_shape_variables(&s->shape) > 1 ? "s" : "", s->repetitions);
    fprintf(out, "  %-21s %13s %7s %17s %19s\n", "", "goodput", "spread", "CPU s/GB", "page faults");
    fprintf(out, "  %-21s %13s %7s %9s %7s %10s %8s\n", "", "", "", "worker", "ps", "worker", "ps");
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++) {
        const sg_bench_op_result *op = &r->ops[i];
        print_op(out, "shardgrad", op_names[i], op->bytes, &op->seconds,
                 (const sg_bench_series *[]){&op->worker_cpu_seconds, &op->ps_cpu_seconds},
                 (const sg_bench_series *[]){&op->worker_faults, &op->ps_faults});
        if (op->yardstick.seconds.n > 0)
            print_op(out, "yardstick", op_names[i], op->yardstick_bytes, &op->yardstick.seconds,
                     (const sg_bench_series *[]){&op->yardstick.client_cpu_seconds, &op->yardstick.server_cpu_seconds},
                     (const sg_bench_series *[]){&op->yardstick.client_faults, &op->yardstick.server_faults});
    }
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++)
        if (s->search && r->ops[i].yardstick.seconds.n > 0)
            print_combination(out, op_names[i], &r->ops[i].combination);
    fprintf(out, "  first round %.1f ms, steady push_pull %.1f ms\n", 1e3 * r->first_round_seconds,
            1e3 * sg_bench_series_median(&r->ops[SG_BENCH_OP_BOTH].seconds));
}

static void print_models(const sg_bench_settings *s, const sg_bench_results *r, FILE *out)
{
    if (r->small.steps.n > 0) {
        fprintf(out,
                "\none variable of 4 KiB, %zu steps: p50 %.0f us, p99 %.0f us, spread of blocks %.0f %%, CPU worker "
                "%.0f us, "
                "ps %.0f us\n",
                r->small.steps.n, 1e6 * sg_bench_series_median(&r->small.steps),
                1e6 * sg_bench_series_quantile(&r->small.steps, 0.99),
                100 * sg_bench_series_spread(&r->small.p50_seconds), 1e6 * r->small.worker_cpu_seconds,
                1e6 * r->small.ps_cpu_seconds);
        if (r->small.echo_p50_seconds.n > 0)
            fprintf(out, "  bare echo of 4 KiB: p50 %.0f us, p99 %.0f us, spread of blocks %.0f %%\n",
                    1e6 * sg_bench_series_median(&r->small.echo_p50_seconds),
                    1e6 * sg_bench_series_median(&r->small.echo_p99_seconds),
                    100 * sg_bench_series_spread(&r->small.echo_p50_seconds));
    }
    if (r->many.seconds.n > 0)
        fprintf(out, "%" PRIu64 " variables of 1 KiB: step %.2f ms, spread %.0f %%; memcpy of their bytes %.2f ms\n",
                r->many.n_variables, 1e3 * sg_bench_series_median(&r->many.seconds),
                100 * sg_bench_series_spread(&r->many.seconds), 1e3 * sg_bench_series_median(&r->many.copy_seconds));
    char resident[SG_BENCH_BYTES_TEXT], peak[SG_BENCH_BYTES_TEXT];
    if (r->memory.parameter_bytes > 0 && !s->quick) /* of a small model it is that of the program */
        fprintf(out, "memory of all ps with %" PRIu64 " workers: %s resident, %s at most\n", r->memory.n_workers,
                sg_bench_settings_bytes_text((double)r->memory.resident_bytes, resident),
                sg_bench_settings_bytes_text((double)r->memory.peak_bytes, peak));
    for (size_t i = 0; i < SG_ARRAY_LEN(r->scale); i++)
        if (r->scale[i].seconds.n > 0)
            fprintf(out, "%" PRIu64 " ps + %" PRIu64 " workers: push_pull %.2f GB/s in all, spread %.0f %%\n",
                    r->scale[i].n_ps, r->scale[i].n_workers,
                    r->scale[i].bytes / sg_bench_series_median(&r->scale[i].seconds) / 1e9,
                    100 * sg_bench_series_spread(&r->scale[i].seconds));
}

/* --- what must hold ------------------------------------------------------------------------------------------- */

static const char *verdict(const sg_bench_floor *f, bool apply)
{
    static const char *const words[2][2] = {{"missed", "missed (noisy)"}, {"met", "met (noisy)"}};
    return apply ? words[sg_bench_floors_is_met(f)][sg_bench_floors_is_noisy(f)] : "-";
}

static void print_floors(const sg_bench_settings *s, const sg_bench_results *r, FILE *out)
{
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = s->quick ? 0 : sg_bench_floors_list(s, r, floors); /* of so little they are chance */
    bool apply = sg_bench_floors_apply(r, s), noisy = false;
    if (s->quick)
        fprintf(out, "\nno ratios and no verdict: --quick shows that it works, not how fast\n");
    if (n > 0)
        fprintf(out, "\n%-56s %9s %12s %7s\n", "ratios", "found", "floor", "aim");
    for (size_t i = 0; i < n; i++) {
        char floor[32], aim[32] = "";
        snprintf(floor, sizeof(floor), "%s %.4g", floors[i].at_most ? "at most" : "at least", floors[i].floor);
        if (!isnan(floors[i].aim))
            snprintf(aim, sizeof(aim), "%.4g", floors[i].aim);
        fprintf(out, "  %-54s %9.3f %12s %7s  %s\n", floors[i].name, floors[i].found, floor, aim,
                verdict(&floors[i], apply));
        noisy = noisy || (apply && sg_bench_floors_is_noisy(&floors[i]));
    }
    if (n > 0 && !apply)
        fprintf(out, "  floors are set for 1 ps, 1 worker and 128 MiB: no verdict here\n");
    if (noisy)
        fprintf(out, "  noisy: a measure of the row has a spread above 10 %%, the machine was not quiet: repeat\n");
    if (sg_bench_settings_wants_yardstick(s) && !r->has_yardstick)
        fprintf(out, "  without shardgrad-yardstick there is nothing to compare with gRPC alone\n");
}

void sg_bench_report_print(const sg_bench_settings *settings, const sg_bench_results *results, FILE *out)
{
    print_machine(settings, results, out);
    print_ops(settings, results, out);
    print_models(settings, results, out);
    print_floors(settings, results, out);
    fflush(out);
}
