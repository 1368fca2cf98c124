/* tests/bench/pass.c - the fused pass of a ps against a plain pass over memory, in one run.
 *
 *     pass [MIB]    arrays of MIB mebibytes each: by default 64, more than caches hold; 0.0625 stays in them
 *
 * The memory pass is c[i] = a[i] + b[i], 12 bytes per element. Of the fused pass the same is counted: 4 bytes for each
 * array that it reads and for each that it writes, so 12 with sgd and 20 with momentum for one contribution. The
 * contributions lie as gRPC delivers them: frames of 16 KiB, 9 bytes of header between them. Figures are the best
 * of repetitions that take turns, in the thread's own time, so that a busy machine matters little. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/status.h"
#include "kernels/update.h"
#include "worker/cli/bench/machine.h"
#include "worker/cli/bench/pass.h"

#define MAX_PARTS 8
#define REPEATS   11
#define ELEMS     ((size_t)16) /* their number is a multiple of it */

typedef struct fixture {
    size_t n_elems, n_spans;
    size_t inner; /* passes per measurement, so that small arrays can be timed */
    float *old_values, *new_values, *slots[SG_UPDATE_MAX_SLOTS];
    sg_span *spans[MAX_PARTS];
} fixture;

static float *make_array(size_t n_elems)
{
    float *values = sg_try_alloc_aligned(n_elems * sizeof(float));
    if (values == NULL) {
        fprintf(stderr, "pass: no memory for another array of %zu bytes; ask for fewer MiB\n", n_elems * sizeof(float));
        exit(1);
    }
    for (size_t i = 0; i < n_elems; i++)
        values[i] = (float)(i % 1009 + 1) / 4096;
    return values;
}

/* One contribution, as it lies when it has been received. Returns the number of spans. */
static size_t make_spans(size_t n_elems, sg_span **spans)
{
    unsigned char *received;
    size_t n_spans;
    *spans = sg_bench_pass_receive(n_elems * sizeof(float), &received, &n_spans);
    if (*spans == NULL) {
        fprintf(stderr, "pass: no memory for another contribution; ask for fewer MiB\n");
        exit(1);
    }
    return n_spans;
}

static double thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double time_memory(const fixture *f)
{
    double begun = thread_ns();
    for (size_t i = 0; i < f->inner; i++)
        (void)sg_bench_machine_pass(f->new_values, f->old_values, f->slots[0], f->n_elems);
    return (thread_ns() - begun) / (double)f->inner;
}

static double time_update(const fixture *f, sg_isa isa, sg_rule rule, size_t n_parts)
{
    sg_update update = {.rule = rule,
                        .learning_rate = 1e-3F,
                        .weight_decay = 1e-4F,
                        .momentum = 0.9F,
                        .beta1 = 0.9F,
                        .beta2 = 0.999F,
                        .epsilon = 1e-8F,
                        .count = 10};
    sg_update_part parts[MAX_PARTS];
    double begun = thread_ns();
    for (size_t i = 0; i < f->inner; i++) {
        for (size_t part = 0; part < n_parts; part++) {
            parts[part] = (sg_update_part){.scale = 1.0F / (float)n_parts};
            sg_span_reader_init(&parts[part].gradient, f->spans[part], f->n_spans, SIZE_MAX);
        }
        sg_update_apply_as(isa, &update, f->n_elems, f->old_values, f->new_values, f->slots, parts, n_parts);
    }
    return (thread_ns() - begun) / (double)f->inner;
}

static void measure(const fixture *f, sg_isa isa, const char *name, sg_rule rule, size_t n_parts)
{
    double memory_ns = INFINITY;
    double update_ns = INFINITY;
    for (size_t i = 0; i < REPEATS; i++) {
        memory_ns = fmin(memory_ns, time_memory(f));
        update_ns = fmin(update_ns, time_update(f, isa, rule, n_parts));
    }
    double update_bytes = 4 * (double)(2 + n_parts + 2 * sg_update_slots(rule));
    double gb_memory = 12 * (double)f->n_elems / memory_ns;
    double gb_update = update_bytes * (double)f->n_elems / update_ns;
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    printf("%-9s %-8s %5zu %8.2f %8.2f %6.3f\n", name, isas[isa], n_parts, gb_update, gb_memory, gb_update / gb_memory);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct {
        sg_rule rule;
        const char *name;
    } rules[] = {{SG_RULE_SGD, "sgd"},         {SG_RULE_MOMENTUM, "momentum"}, {SG_RULE_NESTEROV, "nesterov"},
                 {SG_RULE_ADAGRAD, "adagrad"}, {SG_RULE_RMSPROP, "rmsprop"},   {SG_RULE_ADAM, "adam"},
                 {SG_RULE_ADAMW, "adamw"}};
    static const size_t counts[] = {1, 2, 3, 4, 8};
    double mib = argc > 1 ? strtod(argv[1], NULL) : 64;
    if (!(mib >= 0.01 && mib <= 4096)) {
        fprintf(stderr, "usage: pass [MIB]    from 0.01 to 4096, found '%s'\n", argv[1]);
        return 2;
    }
    fixture f = {.n_elems = (size_t)(mib * 1048576 / sizeof(float)) / ELEMS * ELEMS};
    f.inner = (size_t)(64 / mib) + 1;
    f.old_values = make_array(f.n_elems);
    f.new_values = make_array(f.n_elems);
    f.slots[0] = make_array(f.n_elems);
    f.slots[1] = make_array(f.n_elems);
    for (size_t i = 0; i < MAX_PARTS; i++)
        f.n_spans = make_spans(f.n_elems, &f.spans[i]);
    printf("rule      version  parts     GB/s   memory  ratio\n");
    for (sg_isa isa = SG_ISA_PORTABLE + 1; isa < SG_ISA_COUNT; isa++)
        for (size_t r = 0; sg_isa_has(isa) && r < SG_ARRAY_LEN(rules); r++)
            for (size_t i = 0; i < SG_ARRAY_LEN(counts); i++)
                measure(&f, isa, rules[r].name, rules[r].rule, counts[i]);
    return 0;
}
