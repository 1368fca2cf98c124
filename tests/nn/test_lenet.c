/* tests/nn/test_lenet.c - lenet: variables, gradients, memory, and what it does not take. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "model_fixture.h"

TestSuite(lenet, .timeout = 240);

enum { side = 8, inputs = side * side, classes = 10, n_rows = 6, n_variables = 8 };

static const sg_model_options small = {
    .name = "lenet", .inputs = inputs, .channels = 1, .height = side, .width = side, .classes = classes};

Test(lenet, variables_are_declared_from_the_first_layer_to_the_last)
{
    sg_model *model = sg_fixture_model(&small);
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
        for (size_t e = 0; e < sg_fixture_n_elems(v); e++)
            largest = fmaxf(largest, fabsf(v->value[e]));
        cr_assert(v->rank == 1 ? largest == 0 : largest > 0);
    }
    const float he = sqrtf(6.0F / (20 * 25));
    for (size_t e = 0; e < sg_fixture_n_elems(&model->variables[2]); e++)
        cr_assert(fabsf(model->variables[2].value[e]) <= he);
    sg_model_destroy(model);
}

Test(lenet, the_cpu_table_gives_the_gradients_of_the_plain_loops)
{
    sg_model *model = sg_fixture_model(&small);
    sg_fixture_check_tables(model, n_rows, 1e-5);
    sg_model_destroy(model);
}

Test(lenet, steps_of_known_size_allocate_nothing)
{
    sg_model *model = sg_fixture_model(&small);
    sg_fixture_check_steady(model, n_rows);
    sg_model_destroy(model);
}

Test(lenet, no_rows_give_no_loss_and_zero_gradients)
{
    sg_model *model = sg_fixture_model(&small);
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    sg_fixture_step(model, tape, 0, n_rows);
    cr_assert(sg_fixture_step(model, tape, 0, 0) == 0);
    for (size_t i = 0; i < n_variables; i++)
        for (size_t e = 0; e < sg_fixture_n_elems(&model->variables[i]); e++)
            cr_assert(model->variables[i].gradient[e] == 0);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(lenet, following_the_gradient_lowers_the_loss)
{
    sg_model *model = sg_fixture_model(&small);
    sg_fixture_check_learning(model, n_rows, 0.05F, 60);
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
