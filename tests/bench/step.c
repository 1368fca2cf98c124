/* tests/bench/step.c - forward and backward of a built-in model on noise. Prints the milliseconds per step, the median,
 * of processor time on one thread, elapsed on more; the number of threads; and the name of the kernel table.
 *
 *     step MODEL CHANNELS SIDE BATCH [STEPS [cpu|onednn [THREADS]]]    images of CHANNELS x SIDE x SIDE; mlp has the
 * hidden layers of the quick start, resnet18 and resnet50 their usual width; onednn where it was found */
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/status.h"
#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define CLASSES 10u
#define WARM_UP 3u

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(openblas_get_num_threads() > 1 ? CLOCK_MONOTONIC : CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double step(sg_model *model, sg_tape *tape, const float *x, const uint32_t *labels, size_t batch)
{
    sg_error err = {0};
    const double began = now_ms();
    sg_tape_begin(tape);
    sg_tensor *logits = sg_model_forward(model, tape, x, batch, (sg_model_pass){0});
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, labels, batch);
    if (sg_tape_backward(tape, loss, &err) != SG_OK) {
        fprintf(stderr, "step: %s\n", err.message);
        exit(1);
    }
    return now_ms() - began;
}

int main(int argc, char **argv)
{
    if (argc < 5 || argc > 8) {
        fprintf(stderr, "usage: step MODEL CHANNELS SIDE BATCH [STEPS [cpu|onednn [THREADS]]]\n");
        return 64;
    }
    static const uint64_t hidden[] = {512, 512};
    const size_t channels = strtoul(argv[2], NULL, 10), side = strtoul(argv[3], NULL, 10);
    const size_t batch = strtoul(argv[4], NULL, 10), n_steps = argc > 5 ? strtoul(argv[5], NULL, 10) : 20;
    const sg_model_options options = {.name = argv[1],
                                      .hidden = hidden,
                                      .n_hidden = SG_ARRAY_LEN(hidden),
                                      .inputs = channels * side * side,
                                      .channels = channels,
                                      .height = side,
                                      .width = side,
                                      .classes = CLASSES};
    sg_error err = {0};
    sg_model *model;
    if (n_steps < 1 || sg_model_create(&options, &model, &err) != SG_OK) {
        fprintf(stderr, "step: %s\n", err.message);
        return 1;
    }
    sg_model_initialize(model, 1);
    sg_kernel_cpu_set_threads(argc > 7 ? (uint32_t)strtoul(argv[7], NULL, 10) : 1);
    float *x = sg_xcalloc(batch * options.inputs, sizeof *x);
    uint32_t *labels = sg_xcalloc(batch, sizeof *labels);
    sg_initializer_uniform(1, "x", 1, 0, batch * options.inputs, x);
    for (size_t i = 0; i < batch; i++)
        labels[i] = (uint32_t)i % CLASSES;
    const sg_kernel *kernel = argc > 6 && strcmp(argv[6], "cpu") == 0 ? NULL : sg_kernel_onednn();
    sg_tape *tape = sg_tape_create(kernel ? kernel : sg_kernel_cpu());
    double *times = sg_xcalloc(n_steps, sizeof *times);
    for (size_t i = 0; i < WARM_UP + n_steps; i++) {
        const double took = step(model, tape, x, labels, batch);
        if (i >= WARM_UP)
            times[i - WARM_UP] = took;
    }
    qsort(times, n_steps, sizeof *times, by_size);
    printf("%.4f %d %s\n", times[n_steps / 2], openblas_get_num_threads(), sg_tape_kernel(tape)->name);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
    free(x);
    free(labels);
    free(times);
    return 0;
}
