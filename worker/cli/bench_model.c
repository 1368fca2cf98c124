/* worker/cli/bench_model.c - see bench_model.h. */
#include "worker/cli/bench_model.h"

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

static void fill(sg_bench_model *m, uint32_t worker, uint32_t n_workers)
{
    float *gradient = m->sums; /* borrowed for this worker's part of the pattern */
    for (size_t i = 0; i < m->n_expected; i++) {
        m->expected[i] = pattern(i, 0);
        gradient[i] = pattern(i, worker + 1);
    }
    for (size_t i = 0; i < m->n_elems; i++) {
        m->values[i] = m->expected[i % m->n_expected];
        m->gradients[i] = gradient[i % m->n_expected];
    }
    for (size_t i = 0; i < m->n_expected; i++)
        m->sums[i] = mean_gradient(i, n_workers);
}

static void cut(sg_bench_model *m, const sg_bench_shape *shape)
{
    size_t n = (size_t)shape->variable_bytes / sizeof(float);
    m->n_variables = (size_t)sg_bench_shape_variables(shape);
    m->variables = sg_xcalloc(m->n_variables, sizeof(*m->variables));
    m->indices = sg_xcalloc(m->n_variables, sizeof(*m->indices));
    for (size_t i = 0; i < m->n_variables; i++) {
        size_t left = m->n_elems - i * n;
        m->indices[i] = (uint32_t)i;
        m->variables[i] = (sg_variable){
            .name = sg_xprintf("variable-%zu", i),
            .rank = 1,
            .shape = {left < n ? left : n},
            .value = m->values + i * n,
            .gradient = m->gradients + i * n,
        };
    }
}

sg_status sg_bench_model_init(sg_bench_model *m, const sg_bench_shape *shape, uint32_t worker, uint32_t n_workers,
                              sg_error *err)
{
    *m = (sg_bench_model){.n_elems = (size_t)shape->total_bytes / sizeof(float), .weight = weight_of(worker)};
    m->n_expected = m->n_elems < PERIOD ? m->n_elems : PERIOD;
    m->expected = sg_xcalloc(m->n_expected, sizeof(float));
    m->sums = sg_xcalloc(m->n_expected, sizeof(float));
    m->values = sg_try_alloc_aligned(m->n_elems * sizeof(float));
    m->gradients = sg_try_alloc_aligned(m->n_elems * sizeof(float));
    if (m->values == NULL || m->gradients == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for twice %" PRIu64 " bytes: give a smaller model",
                            shape->total_bytes);
    fill(m, worker, n_workers);
    cut(m, shape);
    return SG_OK;
}

void sg_bench_model_deinit(sg_bench_model *m)
{
    for (size_t i = 0; i < m->n_variables; i++)
        free((char *)(uintptr_t)m->variables[i].name);
    free(m->variables);
    free(m->indices);
    free(m->values);
    free(m->gradients);
    free(m->expected);
    free(m->sums);
    *m = (sg_bench_model){0};
}

static void catch_up(sg_bench_model *m)
{
    for (; m->n_ahead > 0; m->n_ahead--)
        for (size_t i = 0; i < m->n_expected; i++)
            m->expected[i] = fmaf(-m->learning_rate, m->sums[i], m->expected[i]);
}

void sg_bench_model_count_step(sg_bench_model *m, float learning_rate)
{
    if (learning_rate != m->learning_rate)
        catch_up(m);
    m->learning_rate = learning_rate;
    m->n_ahead++;
}

sg_status sg_bench_model_check(sg_bench_model *m, sg_error *err)
{
    catch_up(m);
    size_t k = 0;
    for (size_t i = 0; i < m->n_elems; i++) {
        if (m->values[i] != m->expected[k])
            return sg_error_set(err, SG_INTERNAL,
                                "element %zu of %zu is %.9g, wanted %.9g as sgd makes it: the values that were pulled "
                                "are wrong",
                                i, m->n_elems, (double)m->values[i], (double)m->expected[k]);
        k = k + 1 == m->n_expected ? 0 : k + 1;
    }
    return SG_OK;
}
