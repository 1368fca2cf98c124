/* tests/gpu/check.c - what scripts/check-gpu runs: the tests of kernels, tape and models, whose fast table is that of
 * the device; gradients of whole models against slopes of the loss; and how long a step takes.
 *
 *     check [quick]    quick: small models, once each, for the device that stands in for one */
#include "tests/gpu/bare/criterion/criterion.h"
#include <setjmp.h>
#include <stdlib.h>
#include <time.h>

#include "common/status.h"
#include "kernels/cuda_load.h"
#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define CLASSES 10u

static sg_bare_test *tests;
static jmp_buf failed_test;

void sg_bare_add(sg_bare_test *test)
{
    test->next = tests;
    tests = test;
}

void sg_bare_fail(void)
{
    longjmp(failed_test, 1);
}

/* The tables of the host: here the plain loops, so that nothing but a compiler is needed. */
const sg_kernel *sg_kernel_cpu(void)
{
    return sg_kernel_ref_float();
}

const sg_kernel *sg_kernel_cpu_as(sg_isa isa)
{
    (void)isa;
    return sg_kernel_ref_float();
}

const sg_kernel *sg_kernel_onednn(void)
{
    return NULL;
}

void sg_kernel_cpu_set_threads(uint32_t n_threads)
{
    (void)n_threads;
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

typedef struct trial {
    const char *name;
    size_t channels, side, batch, n_steps;
    uint64_t width; /* of a resnet */
} trial;

typedef struct pass {
    sg_model *model;
    sg_tape *tape;
    float *x;
    uint32_t *labels;
    size_t batch;
} pass;

static pass pass_make(const trial *t, const sg_kernel *kernel)
{
    static const uint64_t hidden[] = {512, 512};
    const sg_model_options options = {.name = t->name,
                                      .hidden = hidden,
                                      .n_hidden = SG_ARRAY_LEN(hidden),
                                      .base_width = t->width,
                                      .inputs = t->channels * t->side * t->side,
                                      .channels = t->channels,
                                      .height = t->side,
                                      .width = t->side,
                                      .classes = CLASSES,
                                      .own_pages = true};
    sg_error err;
    pass p = {.batch = t->batch, .tape = sg_tape_create(kernel)};
    cr_assert(sg_model_create(&options, &p.model, &err) == SG_OK, "%s", err.message);
    sg_model_initialize(p.model, 1);
    p.x = sg_xcalloc(t->batch * options.inputs, sizeof *p.x);
    p.labels = sg_xcalloc(t->batch, sizeof *p.labels);
    sg_initializer_uniform(1, "x", 1, 0, t->batch * options.inputs, p.x);
    for (size_t i = 0; i < t->batch; i++)
        p.labels[i] = (uint32_t)i % CLASSES;
    return p;
}

static void pass_free(pass *p)
{
    sg_tape_destroy(p->tape);
    sg_model_destroy(p->model);
    free(p->x);
    free(p->labels);
}

static size_t n_elems_of(const sg_variable *v)
{
    size_t n = 1;
    for (uint32_t i = 0; i < v->rank; i++)
        n *= v->shape[i];
    return n;
}

static double loss_of(const pass *p, bool back)
{
    sg_error err = {.code = SG_OK};
    sg_tape_begin(p->tape);
    sg_tensor *logits = sg_model_forward(p->model, p->tape, p->x, p->batch, (sg_model_pass){0});
    sg_tensor *loss = sg_softmax_cross_entropy_forward(p->tape, logits, p->labels, p->batch);
    const sg_status status = back ? sg_tape_backward(p->tape, loss, &err) : sg_tape_check(p->tape, &err);
    cr_assert(status == SG_OK, "%s", err.message);
    return sg_tape_get(p->tape, loss, 0);
}

/* Moves all values by `distance` along their gradients `way`, of norm `norm`. */
static void move(const pass *p, float *const *way, double distance, double norm)
{
    for (size_t i = 0; i < p->model->n_variables; i++)
        for (size_t e = 0; e < n_elems_of(&p->model->variables[i]) && !p->model->variables[i].average; e++)
            p->model->variables[i].value[e] += (float)(distance * (double)way[i][e] / norm);
}

/* The slope of the loss along its gradient is the gradient's norm. */
static void check_gradient(const trial *t, const sg_kernel *kernel)
{
    pass p = pass_make(t, kernel);
    const size_t n = p.model->n_variables;
    float **way = sg_xcalloc(n, sizeof *way);
    double squares = 0;
    loss_of(&p, true);
    for (size_t i = 0; i < n; i++) {
        const sg_variable *v = &p.model->variables[i];
        way[i] = memcpy(sg_xcalloc(n_elems_of(v), sizeof(float)), v->gradient, n_elems_of(v) * sizeof(float));
        for (size_t e = 0; e < n_elems_of(v) && !v->average; e++)
            squares += (double)way[i][e] * (double)way[i][e];
    }
    const double norm = sqrt(squares), step = 0.004 / norm;
    move(&p, way, step, norm);
    const double above = loss_of(&p, false);
    move(&p, way, -2 * step, norm);
    const double below = loss_of(&p, false), slope = (above - below) / (2 * step);
    printf("%s: the loss grows by %.5g per unit along its gradient, whose norm is %.5g\n", t->name, slope, norm);
    for (size_t i = 0; i < n; i++)
        free(way[i]);
    free(way);
    pass_free(&p);
    cr_assert(fabs(slope - norm) <= 0.02 * norm, "%s: gradient %g, slope %g", t->name, norm, slope);
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(const trial *t, const sg_kernel *kernel)
{
    double times[64];
    pass p = pass_make(t, kernel);
    for (size_t i = 0; i < p.model->n_variables; i++) {
        kernel->device->pin(p.model->variables[i].value, n_elems_of(&p.model->variables[i]) * sizeof(float));
        kernel->device->pin(p.model->variables[i].gradient, n_elems_of(&p.model->variables[i]) * sizeof(float));
    }
    loss_of(&p, true);
    const double first = loss_of(&p, true);
    for (size_t i = 0; i < t->n_steps; i++) {
        const double began = now_ms();
        const double loss = loss_of(&p, true);
        times[i] = now_ms() - began;
        cr_assert(loss == first, "%s: the same step gave %.9g, then %.9g", t->name, first, loss);
    }
    qsort(times, t->n_steps, sizeof *times, by_size);
    const double ms = times[t->n_steps / 2];
    printf("%-9s %zu x %zu x %zu, batch %zu: %.3f ms per step, %.0f examples/s\n", t->name, t->channels, t->side,
           t->side, t->batch, ms, (double)t->batch / ms * 1e3);
    for (size_t i = 0; i < p.model->n_variables; i++) {
        kernel->device->unpin(p.model->variables[i].value);
        kernel->device->unpin(p.model->variables[i].gradient);
    }
    pass_free(&p);
}

static const trial full[] = {{"mlp", 1, 28, 128, 20, 0},
                             {"lenet", 1, 28, 128, 20, 0},
                             {"resnet18", 1, 28, 32, 20, 64},
                             {"resnet50", 3, 224, 8, 10, 64},
                             {"resnet50", 3, 224, 32, 10, 64}};
static const trial quick[] = {{"mlp", 1, 6, 8, 2, 0}, {"lenet", 1, 16, 2, 2, 0}, {"resnet18", 1, 8, 4, 2, 4}};

static size_t n_passed, n_failed;

/* setjmp may forget what is local and changes: nothing here does. */
static void try_trial(void (*check)(const trial *t, const sg_kernel *kernel), const trial *t, const sg_kernel *kernel)
{
    if (setjmp(failed_test) == 0) {
        check(t, kernel);
        n_passed++;
    } else {
        n_failed++;
    }
}

static void run_tests(void)
{
    for (const sg_bare_test *volatile test = tests; test; test = test->next) {
        if (setjmp(failed_test) == 0) {
            test->run();
            n_passed++;
        } else {
            printf("not ok %s: %s\n", test->suite, test->name);
            n_failed++;
        }
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const bool is_quick = argc > 1 && strcmp(argv[1], "quick") == 0;
    const sg_kernel *kernel = NULL;
    sg_error err;
    if (sg_kernel_cuda(0, &kernel, &err) != SG_OK) {
        const bool no_device = strstr(err.message, "no device to compute on") != NULL;
        printf("%s: %s\n0 passed, %d failed\n", no_device ? "SKIP" : "FAIL", err.message, !no_device);
        return !no_device;
    }
    run_tests();
    const trial *trials = is_quick ? quick : full;
    const size_t n_trials = is_quick ? SG_ARRAY_LEN(quick) : SG_ARRAY_LEN(full);
    for (size_t i = 0; i < n_trials; i++)
        try_trial(check_gradient, &trials[i], kernel);
    for (size_t i = 0; i < n_trials; i++)
        try_trial(measure, &trials[i], kernel);
    printf("%zu passed, %zu failed\n", n_passed, n_failed);
    return n_failed > 0;
}
