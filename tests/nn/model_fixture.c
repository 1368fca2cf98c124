/* tests/nn/model_fixture.c - see model_fixture.h. */
#include "model_fixture.h"

#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nn/fixture.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

sg_model *sg_fixture_model(const sg_model_options *options)
{
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert(sg_model_create(options, &model, &err) == SG_OK, "%s", err.message);
    sg_model_initialize(model, 1);
    return model;
}

size_t sg_fixture_n_elems(const sg_variable *variable)
{
    size_t n = 1;
    for (uint32_t i = 0; i < variable->rank; i++)
        n *= variable->shape[i];
    return n;
}

double sg_fixture_step(sg_model *model, sg_tape *tape, size_t first, size_t n_rows)
{
    static float x[SG_FIXTURE_MAX_ROWS * SG_FIXTURE_MAX_INPUTS];
    uint32_t labels[SG_FIXTURE_MAX_ROWS];
    cr_assert(first + n_rows <= SG_FIXTURE_MAX_ROWS && model->inputs <= SG_FIXTURE_MAX_INPUTS);
    sg_initializer_uniform(9, "x", 1, 0, SG_ARRAY_LEN(x), x);
    for (uint32_t row = 0; row < SG_FIXTURE_MAX_ROWS; row++)
        labels[row] = (uint32_t)((row * 7 + 3) % model->classes);
    sg_error err = {0};
    sg_tape_begin(tape);
    sg_tensor *logits =
        sg_model_forward(model, tape, x + first * model->inputs, n_rows, (sg_model_pass){.first_row = first});
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, labels + first, n_rows);
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    return sg_tape_get(tape, loss, 0);
}

/* That a table gives the loss and the gradients of the plain loops. */
static void check_table(const sg_kernel *kernel, sg_model *model, size_t n_rows, double bound)
{
    sg_kernel_cpu_set_threads(1);
    sg_tape *ref = sg_tape_create(sg_kernel_ref_float()), *cpu = sg_tape_create(kernel);
    float **kept = sg_xcalloc(model->n_variables, sizeof *kept);
    double loss = sg_fixture_step(model, ref, 0, n_rows);
    for (size_t i = 0; i < model->n_variables; i++) {
        size_t n_bytes = sg_fixture_n_elems(&model->variables[i]) * sizeof(float);
        kept[i] = memcpy(sg_xcalloc(1, n_bytes), model->variables[i].gradient, n_bytes);
    }
    cr_assert_float_eq(sg_fixture_step(model, cpu, 0, n_rows), loss, bound);
    for (size_t i = 0; i < model->n_variables; i++) {
        const size_t n_elems = sg_fixture_n_elems(&model->variables[i]);
        float largest = 0;
        for (size_t e = 0; e < n_elems; e++)
            largest = fmaxf(largest, fabsf(kept[i][e]));
        const double near = bound * fmax(1, (double)largest);
        for (size_t e = 0; e < n_elems; e++)
            cr_assert_float_eq(model->variables[i].gradient[e], kept[i][e], near, "%s: variable %zu, element %zu",
                               kernel->name, i, e);
        cr_assert(largest > 1e-4F, "the gradient of variable %zu is all but zero, which proves nothing", i);
        free(kept[i]);
    }
    free(kept);
    sg_tape_destroy(ref);
    sg_tape_destroy(cpu);
}

void sg_fixture_check_tables(sg_model *model, size_t n_rows, double bound)
{
    for (size_t i = 0; sg_fixture_fast_table(i); i++)
        check_table(sg_fixture_fast_table(i), model, n_rows, bound);
}

/* Whether 20 steps, with a short last batch now and then, take memory that was not in use before. */
static bool heap_grows(sg_tape *tape, sg_model *model, size_t n_rows)
{
    const size_t in_use = mallinfo2().uordblks;
    for (size_t i = 0; i < 20; i++)
        sg_fixture_step(model, tape, 0, i % 5 == 4 ? 3 : n_rows);
    return mallinfo2().uordblks != in_use;
}

/* What a library keeps for itself when it is first called for something is not of a step; nor is what malloc keeps of
 * what was freed, up to 7 chunks of each size, which it counts as in use: so some steps may grow, and not all. */
static void check_steady(const sg_kernel *kernel, sg_model *model, size_t n_rows)
{
    enum { max_growing = 4 };
    sg_kernel_cpu_set_threads(1);
    sg_tape *tape = sg_tape_create(kernel);
    for (size_t i = 0; i < 3; i++)
        sg_fixture_step(model, tape, 0, i == 1 ? 3 : n_rows);
    uint64_t blocks = sg_tape_get_stats(tape).allocations;
    size_t n_growing = 0;
    while (heap_grows(tape, model, n_rows) && !kernel->device) /* that of a stand-in does */
        cr_assert(++n_growing < max_growing, "the heap grows and grows");
    cr_assert(sg_tape_get_stats(tape).allocations == blocks);
    sg_tape_destroy(tape);
}

void sg_fixture_check_steady(sg_model *model, size_t n_rows)
{
    for (size_t i = 0; sg_fixture_fast_table(i); i++)
        check_steady(sg_fixture_fast_table(i), model, n_rows);
}

static void step_elem(sg_variable *v, size_t e, float rate)
{
    v->value[e] = v->average ? v->gradient[e] : v->value[e] - rate * v->gradient[e];
}

void sg_fixture_check_learning(sg_model *model, size_t n_rows, float rate, size_t n_steps)
{
    sg_kernel_cpu_set_threads(1);
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    double first = sg_fixture_step(model, tape, 0, n_rows);
    for (size_t s = 0; s < n_steps; s++) {
        for (size_t i = 0; i < model->n_variables; i++)
            for (size_t e = 0; e < sg_fixture_n_elems(&model->variables[i]); e++)
                step_elem(&model->variables[i], e, rate);
        sg_fixture_step(model, tape, 0, n_rows);
    }
    double last = sg_fixture_step(model, tape, 0, n_rows);
    cr_assert(last < 0.05 * first, "from %g to %g", first, last);
    sg_tape_destroy(tape);
}
