/* tests/bench/products.c - the matrix products of one training step of the perceptron 784-512-512-10 and nothing else:
 * what is left of it when all but the arithmetic is free. Prints examples per second.
 *
 *     products [STEPS]    steps of batch 128, one thread */
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "common/status.h"
#include "kernels/kernel.h"

#define BATCH 128u

static const size_t widths[] = {784, 512, 512, 10};
#define N_LAYERS (SG_ARRAY_LEN(widths) - 1)

typedef struct layer {
    float *x, *weight, *y, *dweight; /* x is [BATCH, in], y [BATCH, out], both also stand for their gradients */
} layer;

static float *make(size_t n_elems)
{
    float *values = sg_try_alloc_aligned(n_elems * sizeof(float));
    SG_ASSERT(values != NULL);
    for (size_t i = 0; i < n_elems; i++)
        values[i] = (float)(i % 17) / 1000;
    return values;
}

static void step(const sg_kernel *kernel, layer *layers)
{
    for (size_t i = 0; i < N_LAYERS; i++)
        kernel->gemm(false, false, BATCH, widths[i + 1], widths[i], layers[i].x, layers[i].weight, false, layers[i].y);
    for (size_t i = N_LAYERS; i-- > 0;) {
        kernel->gemm(true, false, widths[i], widths[i + 1], BATCH, layers[i].x, layers[i].y, false, layers[i].dweight);
        if (i > 0)
            kernel->gemm(false, true, BATCH, widths[i], widths[i + 1], layers[i].y, layers[i].weight, false,
                         layers[i].x);
    }
}

int main(int argc, char **argv)
{
    unsigned long n_steps = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000;
    const sg_kernel *kernel = sg_kernel_cpu();
    sg_kernel_cpu_set_threads(1);
    layer layers[N_LAYERS];
    for (size_t i = 0; i < N_LAYERS; i++)
        layers[i] = (layer){make(BATCH * widths[i]), make(widths[i] * widths[i + 1]), make(BATCH * widths[i + 1]),
                            make(widths[i] * widths[i + 1])};
    step(kernel, layers);
    uint64_t began_ns = sg_clock_ns();
    for (unsigned long i = 0; i < n_steps; i++)
        step(kernel, layers);
    double seconds = (double)(sg_clock_ns() - began_ns) / 1e9;
    printf("%.0f\n", (double)n_steps * BATCH / seconds);
    for (size_t i = 0; i < N_LAYERS; i++) {
        free(layers[i].x);
        free(layers[i].weight);
        free(layers[i].y);
        free(layers[i].dweight);
    }
    return 0;
}
