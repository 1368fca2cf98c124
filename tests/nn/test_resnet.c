/* tests/nn/test_resnet.c - residual networks: variables, gradients, statistics, memory, and what they do not take. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "model_fixture.h"
#include "tests/nn/fixture.h"
#include "worker/nn/layers.h"

TestSuite(resnet, .timeout = 240);

enum { side = 8, inputs = side * side, classes = 10, n_rows = 6 };

static sg_model_options small(const char *name, uint64_t base_width)
{
    return (sg_model_options){.name = name,
                              .base_width = base_width,
                              .inputs = inputs,
                              .channels = 1,
                              .height = side,
                              .width = side,
                              .classes = classes};
}

static sg_model *make(const char *name, uint64_t base_width)
{
    const sg_model_options options = small(name, base_width);
    return sg_fixture_model(&options);
}

static size_t n_trained(const sg_model *model)
{
    size_t n = 0;
    for (size_t i = 0; i < model->n_variables; i++)
        n += model->variables[i].average ? 0 : sg_fixture_n_elems(&model->variables[i]);
    return n;
}

/* Those of the paper's table, with images of one channel and 10 classes instead of three and 1000; the counts are
 * torchvision's. */
Test(resnet, they_have_as_many_parameters_as_they_should)
{
    sg_model *model = make("resnet18", 0);
    cr_assert_eq(model->n_variables, 20 * 5 + 2);
    cr_assert_eq(n_trained(model), 11172810u);
    sg_model_destroy(model);
    model = make("resnet50", 0);
    cr_assert_eq(model->n_variables, 53 * 5 + 2);
    cr_assert_eq(n_trained(model), 25557032u - 2 * 64 * 49 - 1000 * 2049 + 10 * 2049);
    sg_model_destroy(model);
}

Test(resnet, variables_are_declared_in_the_order_in_which_they_are_read)
{
    static const struct {
        const char *name;
        uint32_t rank;
        uint64_t shape[4];
        float value;
        bool average;
    } want[] = {{"conv0.weight", 4, {4, 1, 3, 3}, 0, false},
                {"norm0.gamma", 1, {4}, 1, false},
                {"norm0.beta", 1, {4}, 0, false},
                {"norm0.mean", 1, {4}, 0, true},
                {"norm0.variance", 1, {4}, 1, true},
                {"conv1.weight", 4, {4, 4, 3, 3}, 0, false}};
    sg_model *model = make("resnet18", 4);
    for (size_t i = 0; i < SG_ARRAY_LEN(want); i++) {
        const sg_variable *v = &model->variables[i];
        cr_assert_str_eq(v->name, want[i].name);
        cr_assert(v->rank == want[i].rank && memcmp(v->shape, want[i].shape, v->rank * sizeof(uint64_t)) == 0);
        cr_assert_eq(v->average, want[i].average, "%s", v->name);
        for (size_t e = 0; e < sg_fixture_n_elems(v) && v->rank == 1; e++)
            cr_assert_eq(v->value[e], want[i].value, "%s", v->name);
    }
    const sg_variable *last = &model->variables[model->n_variables - 2];
    cr_assert_str_eq(last->name, "dense0.weight");
    cr_assert(last->shape[0] == 32 && last->shape[1] == classes);
    const float he = sqrtf(6.0F / (4 * 9));
    for (size_t e = 0; e < sg_fixture_n_elems(&model->variables[5]); e++)
        cr_assert(fabsf(model->variables[5].value[e]) <= he);
    sg_model_destroy(model);
}

/* Of resnet50 these images leave single pixels, where a batch norm goes by six numbers and rounding grows beyond any
 * bound: tests/torch has it on larger ones. */
Test(resnet, the_cpu_table_gives_the_gradients_of_the_plain_loops)
{
    sg_model *model = make("resnet18", 4);
    sg_fixture_check_tables(model, n_rows, 1e-4);
    sg_model_destroy(model);
}

Test(resnet, steps_of_known_size_allocate_nothing)
{
    static const char *const names[] = {"resnet18", "resnet50"};
    for (size_t i = 0; i < SG_ARRAY_LEN(names); i++) {
        sg_model *model = make(names[i], 4);
        sg_fixture_check_steady(model, n_rows);
        sg_model_destroy(model);
    }
}

/* Whatever lay in the memory that is used again. */
Test(resnet, the_same_numbers_give_the_same_bits)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make("resnet18", 16);
    const sg_variable *v = &model->variables[5];
    const size_t n_bytes = sg_fixture_n_elems(v) * sizeof(float);
    for (size_t i = 0; sg_fixture_fast_table(i); i++) {
        float *kept = NULL;
        for (size_t run = 0; run < 4; run++) {
            sg_tape *tape = sg_tape_create(sg_fixture_fast_table(i));
            sg_fixture_step(model, tape, 0, run == 0 ? n_rows : 2);
            sg_fixture_step(model, tape, 0, n_rows);
            if (!kept)
                kept = memcpy(sg_xcalloc(1, n_bytes), v->gradient, n_bytes);
            cr_assert_arr_eq(v->gradient, kept, n_bytes, "%s", sg_fixture_fast_table(i)->name);
            sg_tape_destroy(tape);
        }
        free(kept);
    }
    sg_model_destroy(model);
}

Test(resnet, following_the_gradient_lowers_the_loss)
{
    sg_model *model = make("resnet18", 4);
    sg_fixture_check_learning(model, n_rows, 0.02F, 60);
    sg_model_destroy(model);
}

static const float *predict(sg_model *model, sg_tape *tape, sg_model_use use, size_t n)
{
    static float x[n_rows * inputs];
    for (size_t i = 0; i < SG_ARRAY_LEN(x); i++)
        x[i] = (float)((i * 37) % 101) / 50 - 1;
    sg_tape_begin(tape);
    sg_tensor *logits = sg_model_forward(model, tape, x, n, (sg_model_pass){.use = use});
    sg_error err = {0};
    cr_assert(sg_tape_check(tape, &err) == SG_OK, "%s", err.message);
    return logits->value;
}

Test(resnet, what_is_predicted_of_an_example_does_not_depend_on_the_others)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make("resnet18", 4);
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    float alone[2][classes];
    for (size_t use = 0; use < 2; use++)
        memcpy(alone[use], predict(model, tape, (sg_model_use)use, 2), sizeof alone[use]);
    const float *trained = predict(model, tape, SG_MODEL_TRAINS, n_rows);
    bool differs = false;
    for (size_t i = 0; i < classes; i++)
        differs = differs || fabsf(trained[i] - alone[SG_MODEL_TRAINS][i]) > 1e-3F;
    cr_assert(differs, "in training the batch has a part in it");
    const float *predicted = predict(model, tape, SG_MODEL_PREDICTS, n_rows);
    for (size_t i = 0; i < classes; i++)
        cr_assert_float_eq(predicted[i], alone[SG_MODEL_PREDICTS][i], 1e-4);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

/* When the running statistics have become those of a batch, it is predicted as it is trained. */
Test(resnet, running_statistics_become_those_of_the_batches)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *model = make("resnet18", 4);
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    for (size_t step = 0; step < 150; step++) {
        sg_fixture_step(model, tape, 0, n_rows);
        for (size_t i = 0; i < model->n_variables; i++)
            if (model->variables[i].average)
                memcpy(model->variables[i].value, model->variables[i].gradient,
                       sg_fixture_n_elems(&model->variables[i]) * sizeof(float));
    }
    const sg_variable *mean = &model->variables[3], *variance = &model->variables[4];
    float kept[2] = {mean->value[0], variance->value[0]};
    sg_fixture_step(model, tape, 0, n_rows);
    cr_assert_float_eq(mean->gradient[0], kept[0], 1e-4);
    cr_assert_float_eq(variance->gradient[0], kept[1], 1e-4 * fabs((double)kept[1]) + 1e-5);
    cr_assert(fabsf(kept[1] - 1) > 1e-2F, "%f is where it began", (double)kept[1]);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(resnet, data_that_are_no_images_are_refused)
{
    sg_model_options options = small("resnet18", 0);
    options.channels = options.height = options.width = 0;
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert_eq(sg_model_create(&options, &model, &err), SG_CONFIG);
    cr_assert_str_eq(err.message, "model.name: resnet18 wants images; the data have rows of 64 features");
}
