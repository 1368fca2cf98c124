/* tests/nn/test_lenet.c - lenet: variables, gradients, memory, and what it does not take. */
#include <criterion/criterion.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

TestSuite(lenet, .timeout = 60);

enum { side = 8, inputs = side * side, classes = 10, max_rows = 6, n_variables = 8 };

static const sg_model_options small = {
    .name = "lenet", .inputs = inputs, .channels = 1, .height = side, .width = side, .classes = classes};

static sg_model *make(void)
{
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert(sg_model_create(&small, &model, &err) == SG_OK, "%s", err.message);
    sg_model_initialize(model, 1);
    return model;
}

static size_t n_elems_of(const sg_variable *v)
{
    size_t n = 1;
    for (uint32_t i = 0; i < v->rank; i++)
        n *= v->shape[i];
    return n;
}

static double step(sg_model *model, sg_tape *tape, size_t n_rows)
{
    static float x[max_rows * inputs];
    static const uint32_t labels[max_rows] = {3, 1, 9, 0, 7, 2};
    sg_initializer_uniform(9, "x", 1, 0, SG_ARRAY_LEN(x), x);
    sg_error err = {0};
    sg_tape_begin(tape);
    sg_tensor *logits = sg_model_forward(model, tape, x, n_rows);
    sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, labels, n_rows);
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    return sg_tape_get(tape, loss, 0);
}

Test(lenet, variables_are_declared_from_the_first_layer_to_the_last)
{
    sg_model *model = make();
    static const struct {
        const char *name;
        uint32_t rank;
        uint64_t shape[4];
    } want[n_variables] = {{"conv0.weight", 4, {20, 1, 5, 5}},  {"conv0.bias", 1, {20}},
                           {"conv1.weight", 4, {50, 20, 5, 5}}, {"conv1.bias", 1, {50}},
                           {"dense0.weight", 2, {200, 500}},    {"dense0.bias", 1, {500}},
                           {"dense1.weight", 2, {500, 10}},     {"dense1.bias", 1, {10}}};
    cr_assert(model->n_variables == n_variables);
    for (size_t i = 0; i < n_variables; i++) {
        const sg_variable *v = &model->variables[i];
        cr_assert_str_eq(v->name, want[i].name);
        cr_assert(v->rank == want[i].rank && memcmp(v->shape, want[i].shape, v->rank * sizeof(uint64_t)) == 0);
        float largest = 0;
        for (size_t e = 0; e < n_elems_of(v); e++)
            largest = fmaxf(largest, fabsf(v->value[e]));
        cr_assert(v->rank == 1 ? largest == 0 : largest > 0);
    }
    const float he = sqrtf(6.0F / (20 * 25));
    for (size_t e = 0; e < n_elems_of(&model->variables[2]); e++)
        cr_assert(fabsf(model->variables[2].value[e]) <= he);
    sg_model_destroy(model);
}

Test(lenet, the_cpu_table_gives_the_gradients_of_the_plain_loops)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make();
    sg_tape *ref = sg_tape_create(sg_kernel_ref_float()), *cpu = sg_tape_create(sg_kernel_cpu());
    float *kept[n_variables];
    double loss = step(model, ref, max_rows);
    for (size_t i = 0; i < n_variables; i++) {
        size_t n_bytes = n_elems_of(&model->variables[i]) * sizeof(float);
        kept[i] = memcpy(sg_xcalloc(1, n_bytes), model->variables[i].gradient, n_bytes);
    }
    cr_assert_float_eq(step(model, cpu, max_rows), loss, 1e-5);
    for (size_t i = 0; i < n_variables; i++) {
        float largest = 0;
        for (size_t e = 0; e < n_elems_of(&model->variables[i]); e++) {
            cr_assert_float_eq(model->variables[i].gradient[e], kept[i][e], 1e-5, "variable %zu, element %zu", i, e);
            largest = fmaxf(largest, fabsf(kept[i][e]));
        }
        cr_assert(largest > 1e-4F, "the gradient of variable %zu is all but zero, which proves nothing", i);
        free(kept[i]);
    }
    sg_tape_destroy(ref);
    sg_tape_destroy(cpu);
    sg_model_destroy(model);
}

Test(lenet, steps_of_known_size_allocate_nothing)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    for (size_t i = 0; i < 3; i++)
        step(model, tape, max_rows);
    uint64_t blocks = sg_tape_get_stats(tape).allocations;
    size_t in_use = mallinfo2().uordblks;
    for (size_t i = 0; i < 10; i++)
        step(model, tape, i % 5 == 4 ? 3 : max_rows); /* a short last batch now and then */
    cr_assert(sg_tape_get_stats(tape).allocations == blocks);
    cr_assert(mallinfo2().uordblks == in_use, "the heap grew");
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(lenet, no_rows_give_no_loss_and_zero_gradients)
{
    sg_model *model = make();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    step(model, tape, max_rows);
    cr_assert(step(model, tape, 0) == 0);
    for (size_t i = 0; i < n_variables; i++)
        for (size_t e = 0; e < n_elems_of(&model->variables[i]); e++)
            cr_assert(model->variables[i].gradient[e] == 0);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(lenet, following_the_gradient_lowers_the_loss)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    double first = step(model, tape, max_rows);
    for (size_t s = 0; s < 60; s++) {
        for (size_t i = 0; i < n_variables; i++)
            for (size_t e = 0; e < n_elems_of(&model->variables[i]); e++)
                model->variables[i].value[e] -= 0.05F * model->variables[i].gradient[e];
        step(model, tape, max_rows);
    }
    double last = step(model, tape, max_rows);
    cr_assert(last < 0.05 * first, "from %g to %g", first, last);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(lenet, images_that_are_too_small_are_refused)
{
    sg_model_options options = small;
    options.height = 3;
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert(sg_model_create(&options, &model, &err) == SG_CONFIG);
    cr_assert_str_eq(err.message,
                     "model.name: lenet wants images of at least 4 x 4 pixels; those of the data have 3 x 8");
}
