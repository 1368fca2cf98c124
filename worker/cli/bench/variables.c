/* worker/cli/bench/variables.c - see variables.h. */
#include "worker/cli/bench/variables.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"

/* A prime, so that neither slices nor variables, whose sizes are round, begin at the same place of the pattern. */
#define PERIOD 65537u

uint64_t sg_bench_shape_variables(const sg_bench_shape *shape)
{
    return shape->total_bytes / shape->variable_bytes + (shape->total_bytes % shape->variable_bytes != 0);
}

/* 0.25 to 0.75: far from 0, so that every step changes every value. `salt` 0: initial values; w + 1: gradients. */
static float pattern(size_t i, uint32_t salt)
{
    uint32_t bits = (uint32_t)i * 2654435761u + salt * 2246822519u;
    bits ^= bits >> 15;
    bits *= 2246822507u;
    bits ^= bits >> 13;
    return 0.25f + (float)(bits >> 8) * 0x1p-25f;
}

static uint64_t weight_of(uint32_t worker)
{
    return (uint64_t)worker + 1;
}

/* The weighted mean as the ps forms it: design.md, section 3. */
static float mean_gradient(size_t i, uint32_t n_workers)
{
    double weights = 0;
    for (uint32_t w = 0; w < n_workers; w++)
        weights += (double)weight_of(w);
    float sum = (float)((double)weight_of(0) / weights) * pattern(i, 1);
    for (uint32_t w = 1; w < n_workers; w++)
        sum = fmaf((float)((double)weight_of(w) / weights), pattern(i, w + 1), sum);
    return sum;
}

static void fill(sg_bench_variables *v, uint32_t worker, uint32_t n_workers)
{
    float *gradient = v->sums; /* borrowed for this worker's part of the pattern */
    for (size_t i = 0; i < v->n_expected; i++) {
        v->expected[i] = pattern(i, 0);
        gradient[i] = pattern(i, worker + 1);
    }
    for (size_t i = 0; i < v->n_elems; i++) {
        v->values[i] = v->expected[i % v->n_expected];
        v->gradients[i] = gradient[i % v->n_expected];
    }
    for (size_t i = 0; i < v->n_expected; i++)
        v->sums[i] = mean_gradient(i, n_workers);
}

static void cut(sg_bench_variables *v, const sg_bench_shape *shape)
{
    size_t n = (size_t)shape->variable_bytes / sizeof(float);
    v->n_variables = (size_t)sg_bench_shape_variables(shape);
    v->variables = sg_xcalloc(v->n_variables, sizeof(*v->variables));
    v->indices = sg_xcalloc(v->n_variables, sizeof(*v->indices));
    for (size_t i = 0; i < v->n_variables; i++) {
        size_t left = v->n_elems - i * n;
        v->indices[i] = (uint32_t)i;
        v->variables[i] = (sg_variable){
            .name = sg_xprintf("variable-%zu", i),
            .rank = 1,
            .shape = {left < n ? left : n},
            .value = v->values + i * n,
            .gradient = v->gradients + i * n,
        };
    }
}

sg_status sg_bench_variables_init(sg_bench_variables *v, const sg_bench_shape *shape, uint32_t worker,
                                  uint32_t n_workers, sg_error *err)
{
    *v = (sg_bench_variables){.n_elems = (size_t)shape->total_bytes / sizeof(float), .weight = weight_of(worker)};
    v->n_expected = v->n_elems < PERIOD ? v->n_elems : PERIOD;
    v->expected = sg_xcalloc(v->n_expected, sizeof(float));
    v->sums = sg_xcalloc(v->n_expected, sizeof(float));
    v->values = sg_try_alloc_aligned(v->n_elems * sizeof(float));
    v->gradients = sg_try_alloc_aligned(v->n_elems * sizeof(float));
    if (v->values == NULL || v->gradients == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for twice %" PRIu64 " bytes: give a smaller model",
                            shape->total_bytes);
    fill(v, worker, n_workers);
    cut(v, shape);
    return SG_OK;
}

void sg_bench_variables_deinit(sg_bench_variables *v)
{
    for (size_t i = 0; i < v->n_variables; i++)
        free((char *)(uintptr_t)v->variables[i].name);
    free(v->variables);
    free(v->indices);
    free(v->values);
    free(v->gradients);
    free(v->expected);
    free(v->sums);
    *v = (sg_bench_variables){0};
}

static void catch_up(sg_bench_variables *v)
{
    for (; v->n_ahead > 0; v->n_ahead--)
        for (size_t i = 0; i < v->n_expected; i++)
            v->expected[i] = fmaf(-v->learning_rate, v->sums[i], v->expected[i]);
}

void sg_bench_variables_count_step(sg_bench_variables *v, float learning_rate)
{
    if (learning_rate != v->learning_rate)
        catch_up(v);
    v->learning_rate = learning_rate;
    v->n_ahead++;
}

sg_status sg_bench_variables_check(sg_bench_variables *v, sg_error *err)
{
    catch_up(v);
    size_t k = 0;
    for (size_t i = 0; i < v->n_elems; i++) {
        if (v->values[i] != v->expected[k])
            return sg_error_set(err, SG_INTERNAL,
                                "element %zu of %zu is %.9g, wanted %.9g as sgd makes it: the values that were pulled "
                                "are wrong",
                                i, v->n_elems, (double)v->values[i], (double)v->expected[k]);
        k = k + 1 == v->n_expected ? 0 : k + 1;
    }
    return SG_OK;
}
