/* tests/nn/test_layers_model.c - a network that is told layer by layer. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"

TestSuite(layers_model, .timeout = 240);

enum { side = 8, inputs = side * side, classes = 10, n_rows = 5 };

static sg_model_options options_of(const char *name, const char *const *layers, size_t n_layers)
{
    return (sg_model_options){.name = name,
                              .layers = (char *const *)(uintptr_t)layers,
                              .n_layers = n_layers,
                              .inputs = inputs,
                              .channels = 1,
                              .height = side,
                              .width = side,
                              .classes = classes};
}

static sg_model *make(const char *name, const char *const *layers, size_t n_layers)
{
    const sg_model_options options = options_of(name, layers, n_layers);
    return sg_fixture_model(&options);
}

static double step(sg_model *model)
{
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    const double loss = sg_fixture_step(model, tape, 0, n_rows);
    sg_tape_destroy(tape);
    return loss;
}

static const char *const lenet[] = {"conv2d 20 window 5 padding 2",
                                    "relu",
                                    "max_pool 2",
                                    "conv2d 50 padding 2 window 5",
                                    "relu",
                                    "max_pool 2",
                                    "flatten",
                                    "dense 500",
                                    "relu",
                                    "dense 10"};

Test(layers_model, lenet_told_layer_by_layer_is_lenet)
{
    sg_kernel_cpu_set_threads(1);
    sg_model *told = make("layers", lenet, SG_ARRAY_LEN(lenet)), *built = make("lenet", NULL, 0);
    static const char *const names[] = {"layer0.weight", "layer0.bias", "layer3.weight", "layer3.bias",
                                        "layer7.weight", "layer7.bias", "layer9.weight", "layer9.bias"};
    cr_assert(told->n_variables == built->n_variables);
    for (size_t i = 0; i < told->n_variables; i++) {
        const sg_variable *a = &told->variables[i], *b = &built->variables[i];
        cr_assert_str_eq(a->name, names[i]);
        cr_assert(a->rank == b->rank && memcmp(a->shape, b->shape, a->rank * sizeof(uint64_t)) == 0, "%s", a->name);
        memcpy(a->value, b->value, sg_fixture_n_elems(a) * sizeof(float));
    }
    cr_assert_float_eq(step(told), step(built), 1e-6);
    for (size_t i = 0; i < told->n_variables; i++)
        for (size_t e = 0; e < sg_fixture_n_elems(&told->variables[i]); e++)
            cr_assert_float_eq(told->variables[i].gradient[e], built->variables[i].gradient[e], 1e-6F);
    sg_model_destroy(told);
    sg_model_destroy(built);
}

Test(layers_model, every_kind_of_layer_computes)
{
    static const char *const layers[] = {"conv2d 8 window 3 padding 1 stride 2",
                                         "tanh",
                                         "conv2d 8 window 3 groups 4",
                                         "gelu",
                                         "average_pool 2 stride 1",
                                         "batch_norm",
                                         "softplus",
                                         "conv2d 10 window 1",
                                         "leaky_relu",
                                         "sigmoid",
                                         "dropout 0.125",
                                         "global_average_pool",
                                         "layer_norm",
                                         "leaky_relu 0.2"};
    sg_model *model = make("layers", layers, SG_ARRAY_LEN(layers));
    const double loss = step(model);
    cr_assert(loss > 1 && loss < 5, "%g", loss);
    for (size_t i = 0; i < model->n_variables; i++) {
        bool any = false;
        for (size_t e = 0; e < sg_fixture_n_elems(&model->variables[i]); e++)
            any = any || model->variables[i].gradient[e] != 0;
        cr_assert(any, "%s has no gradient", model->variables[i].name);
    }
    sg_model_destroy(model);
}

Test(layers_model, a_batch_norm_has_running_statistics_that_are_averaged)
{
    static const char *const layers[] = {"flatten", "dense 20", "batch_norm", "relu", "dense 10"};
    static const struct {
        const char *name;
        bool average;
    } want[] = {{"layer2.gamma", false}, {"layer2.beta", false}, {"layer2.mean", true}, {"layer2.variance", true}};
    sg_model *model = make("layers", layers, SG_ARRAY_LEN(layers));
    cr_assert_eq(model->n_variables, 8);
    for (size_t i = 0; i < SG_ARRAY_LEN(want); i++) {
        const sg_variable *v = &model->variables[2 + i];
        cr_assert_str_eq(v->name, want[i].name);
        cr_assert(v->average == want[i].average && v->rank == 1 && v->shape[0] == 20);
    }
    sg_fixture_check_steady(model, n_rows);
    sg_model_destroy(model);
}

/* The sum of the gradients of two parts of a batch, by their rows, is that of the whole; of a later step it is not. */
Test(layers_model, dropout_goes_by_the_row_in_the_whole_batch)
{
    static const char *const layers[] = {"flatten", "dense 33", "dropout 0.5", "relu", "dense 10"};
    sg_model *whole = make("layers", layers, SG_ARRAY_LEN(layers)),
             *part = make("layers", layers, SG_ARRAY_LEN(layers));
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    const size_t n_weights = sg_fixture_n_elems(&whole->variables[2]);
    float *sum = sg_xcalloc(n_weights, sizeof *sum);
    sg_fixture_step(whole, tape, 0, n_rows);
    for (size_t first = 0, n = 2; first < n_rows; first += n, n = n_rows - first) {
        sg_fixture_step(part, tape, first, n);
        for (size_t i = 0; i < n_weights; i++)
            sum[i] += part->variables[2].gradient[i] * (float)n / n_rows;
    }
    for (size_t i = 0; i < n_weights; i++)
        cr_assert_float_eq(sum[i], whole->variables[2].gradient[i], 1e-6F, "%zu: %g, %g", i, (double)sum[i],
                           (double)whole->variables[2].gradient[i]);
    free(sum);
    sg_tape_destroy(tape);
    sg_model_destroy(whole);
    sg_model_destroy(part);
}

static const float *logits_of(sg_model *model, sg_tape *tape, sg_model_pass pass)
{
    static const float x[n_rows * inputs] = {1, 2, 3, 4, 5};
    sg_tape_begin(tape);
    const sg_tensor *logits = sg_model_forward(model, tape, x, n_rows, pass);
    cr_assert_not_null(logits);
    return logits->value;
}

Test(layers_model, dropout_differs_from_step_to_step_and_is_left_out_of_predictions)
{
    static const char *const with[] = {"flatten", "dense 33", "dropout 0.5", "dense 10"};
    sg_model *model = make("layers", with, SG_ARRAY_LEN(with));
    sg_tape *tapes[] = {sg_tape_create(sg_kernel_cpu()), sg_tape_create(sg_kernel_cpu())};
    const size_t n_bytes = n_rows * classes * sizeof(float);
    const float *a = logits_of(model, tapes[0], (sg_model_pass){.step = 1});
    cr_assert_arr_eq(logits_of(model, tapes[1], (sg_model_pass){.step = 1}), a, n_bytes);
    cr_assert_arr_neq(logits_of(model, tapes[1], (sg_model_pass){.step = 2}), a, n_bytes);
    cr_assert_arr_neq(logits_of(model, tapes[1], (sg_model_pass){.step = 1, .seed = 1}), a, n_bytes);
    cr_assert_arr_neq(logits_of(model, tapes[1], (sg_model_pass){.step = 1, .first_row = 1}), a, n_bytes);
    const sg_model_pass predicts = {.use = SG_MODEL_PREDICTS, .step = 1};
    a = logits_of(model, tapes[0], predicts);
    cr_assert_arr_eq(logits_of(model, tapes[1], (sg_model_pass){.use = SG_MODEL_PREDICTS, .step = 2}), a, n_bytes);
    for (size_t i = 0; i < 2; i++)
        sg_tape_destroy(tapes[i]);
    sg_model_destroy(model);
}

Test(layers_model, initial_values_depend_on_the_seed_alone)
{
    sg_model *a = make("layers", lenet, SG_ARRAY_LEN(lenet)), *b = make("layers", lenet, SG_ARRAY_LEN(lenet));
    for (size_t i = 0; i < a->n_variables; i++)
        cr_assert_arr_eq(a->variables[i].value, b->variables[i].value,
                         sg_fixture_n_elems(&a->variables[i]) * sizeof(float));
    sg_model_destroy(a);
    sg_model_destroy(b);
}

static void expect_error(const char *name, const char *const *layers, size_t n_layers, const char *want)
{
    const sg_model_options options = options_of(name, layers, n_layers);
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert(sg_model_create(&options, &model, &err) == SG_CONFIG);
    cr_assert_str_eq(err.message, want);
    cr_assert_null(model);
}

#define POOL " N [stride N] [padding N], N from 1 to 15, stride from 1 to 1048576, padding from 0 to half of N"

Test(layers_model, what_is_wrong_is_told_with_the_layer)
{
    static const struct {
        const char *layers[3], *want;
    } cases[] = {
        {{"dense 10"},
         "model.layers[0]: 'dense 10' does not fit its input, images of 1 channel, 8 x 8; wanted flatten "
         "before it"},
        {{"flatten", "max_pool 2"},
         "model.layers[1]: 'max_pool 2' does not fit its input, rows of 64; wanted images: it goes before flatten"},
        {{"conv2d 4 window 9"},
         "model.layers[0]: 'conv2d 4 window 9' does not fit its input, images of 1 channel, 8 x 8"},
        {{"conv2d 4 window 3 groups 2"},
         "model.layers[0]: 'conv2d 4 window 3 groups 2' does not fit its input, images of 1 channel, 8 x 8"},
        {{"max_pool 16 padding 5"}, "model.layers[0]: 'max_pool 16 padding 5'; wanted max_pool" POOL},
        {{"average_pool 4 padding 3"}, "model.layers[0]: 'average_pool 4 padding 3'; wanted average_pool" POOL},
        {{"dropout"}, "model.layers[0]: 'dropout'; wanted dropout RATE, RATE such as 0.25, from 0 to below 1"},
        {{"dropout 1"}, "model.layers[0]: 'dropout 1'; wanted dropout RATE, RATE such as 0.25, from 0 to below 1"},
        {{"dropout 0."}, "model.layers[0]: 'dropout 0.'; wanted dropout RATE, RATE such as 0.25, from 0 to below 1"},
        {{"leaky_relu 0.2x"},
         "model.layers[0]: 'leaky_relu 0.2x'; wanted leaky_relu [SLOPE], SLOPE such as 0.25, from 0 to below 1"},
        {{"layer_norm"},
         "model.layers[0]: 'layer_norm' does not fit its input, images of 1 channel, 8 x 8; wanted flatten before it"},
        {{"max_pool 9"}, "model.layers[0]: 'max_pool 9' does not fit its input, images of 1 channel, 8 x 8"},
        {{"conv2d 4"},
         "model.layers[0]: 'conv2d 4'; wanted conv2d N window N [stride N] [padding N] [groups N], each N from 1 to "
         "1048576, padding from 0"},
        {{"dense 10 10"}, "model.layers[0]: 'dense 10 10'; wanted dense N, N from 1 to 1048576"},
        {{"dense 1048577"}, "model.layers[0]: 'dense 1048577'; wanted dense N, N from 1 to 1048576"},
        {{"dense 99999999999999999999"},
         "model.layers[0]: 'dense 99999999999999999999'; wanted dense N, N from 1 to 1048576"},
        {{"dense 0"}, "model.layers[0]: 'dense 0'; wanted dense N, N from 1 to 1048576"},
        {{"dense -1"}, "model.layers[0]: 'dense -1'; wanted dense N, N from 1 to 1048576"},
        {{"relu 3"}, "model.layers[0]: 'relu 3'; wanted relu"},
        {{"flatten dense 10"},
         "model.layers[0]: 'flatten dense 10'; wanted flatten, and the next layer as an item of its own: [this, that]"},
        {{"max_pool 2 window 2"}, "model.layers[0]: 'max_pool 2 window 2'; wanted max_pool" POOL},
        {{"max_pool 2 stride"}, "model.layers[0]: 'max_pool 2 stride'; wanted max_pool" POOL},
        {{"flatten", "dens 10"}, "model.layers[1]: 'dens 10': there is no layer 'dens' (did you mean dense?)"},
        {{"flatten", "maxpool 2"},
         "model.layers[1]: 'maxpool 2': there is no layer 'maxpool' (did you mean max_pool?)"},
        {{"flatten", "lstm 10"},
         "model.layers[1]: 'lstm 10': there is no layer 'lstm'; wanted conv2d, dense, batch_norm, layer_norm, "
         "max_pool, "
         "average_pool, global_average_pool, flatten, dropout, relu, leaky_relu, sigmoid, tanh, softplus or gelu"},
        {{"flatten", "dense 9"},
         "model.layers[1]: 'dense 9' is the last and gives rows of 9; wanted rows of 10, the number of classes, by at "
         "least one layer with weights"},
        {{"conv2d 1048576 window 1048576 padding 1048576"},
         "model.layers[0]: 'conv2d 1048576 window 1048576 padding 1048576': layer0.weight would have more than "
         "68719476736 elements; wanted fewer"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        size_t n = 0;
        while (n < 3 && cases[i].layers[n])
            n++;
        expect_error("layers", cases[i].layers, n, cases[i].want);
    }
    expect_error("layers", NULL, 0, "model.layers: names no layer; wanted some, such as [flatten, dense 10]");
    expect_error("mlp", lenet, 1, "model.layers is given, but model.name is 'mlp'; wanted model.name: layers");
}
