/* tests/nn/test_model.c - the built-in models: variables, initial values, gradients, memory. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

TestSuite(model, .timeout = 240);

enum { inputs = 30, classes = 4, max_rows = SG_FIXTURE_MAX_ROWS };

static sg_model *make_mlp(void)
{
    static const uint64_t hidden[] = {20, 10};
    sg_model_options options = {.name = "mlp", .hidden = hidden, .n_hidden = 2, .inputs = inputs, .classes = classes};
    return sg_fixture_model(&options);
}

Test(model, an_mlp_declares_weight_and_bias_of_each_layer_in_order)
{
    sg_model *model = make_mlp();
    static const struct {
        const char *name;
        uint32_t rank;
        uint64_t shape[2];
    } want[] = {{"dense0.weight", 2, {30, 20}}, {"dense0.bias", 1, {20}},      {"dense1.weight", 2, {20, 10}},
                {"dense1.bias", 1, {10}},       {"dense2.weight", 2, {10, 4}}, {"dense2.bias", 1, {4}}};
    cr_assert(model->n_variables == SG_ARRAY_LEN(want));
    for (size_t i = 0; i < SG_ARRAY_LEN(want); i++) {
        const sg_variable *v = &model->variables[i];
        cr_assert_str_eq(v->name, want[i].name);
        cr_assert(v->rank == want[i].rank && v->shape[0] == want[i].shape[0] && v->shape[1] == want[i].shape[1]);
        cr_assert(v->value && v->gradient && !v->frozen);
    }
    sg_model_destroy(model);
}

Test(model, initial_values_depend_on_the_seed_alone)
{
    sg_model *a = make_mlp();
    sg_model *b = make_mlp();
    size_t n = sg_fixture_n_elems(&a->variables[0]);
    cr_assert(memcmp(a->variables[0].value, b->variables[0].value, n * sizeof(float)) == 0);
    float limit = sg_initializer_he_limit(inputs);
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = fmaxf(largest, fabsf(a->variables[0].value[i]));
    cr_assert(largest <= limit && largest > 0.95F * limit);
    sg_model_initialize(b, 2);
    cr_assert(memcmp(a->variables[0].value, b->variables[0].value, n * sizeof(float)) != 0);
    cr_assert(b->variables[1].value[3] == 0, "biases begin as zero");
    sg_model_destroy(a);
    sg_model_destroy(b);
}

/* So that N workers with parts of a batch equal one with all of it. */
Test(model, gradients_of_a_batch_are_the_weighted_mean_of_those_of_its_parts)
{
    enum { cut = 5 };
    sg_model *model = make_mlp();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    const sg_variable *v = &model->variables[0];
    size_t n = sg_fixture_n_elems(v);
    double *mean = sg_xcalloc(n, sizeof *mean);
    static const size_t begins[] = {0, cut, max_rows};
    for (size_t part = 0; part < 2; part++) {
        size_t n_rows = begins[part + 1] - begins[part];
        sg_fixture_step(model, tape, begins[part], n_rows);
        for (size_t i = 0; i < n; i++)
            mean[i] += (double)v->gradient[i] * (double)n_rows / max_rows;
    }
    sg_fixture_step(model, tape, 0, max_rows);
    double largest = 0;
    for (size_t i = 0; i < n; i++) {
        cr_assert_float_eq(v->gradient[i], mean[i], 1e-6, "element %zu", i);
        largest = fmax(largest, fabs(mean[i]));
    }
    cr_assert(largest > 1e-3, "the gradients are all but zero, which proves nothing");
    free(mean);
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}

Test(model, the_cpu_table_gives_the_gradients_of_the_plain_loops)
{
    sg_model *model = make_mlp();
    sg_fixture_check_tables(model, max_rows, 1e-5);
    sg_model_destroy(model);
}

Test(model, steps_of_known_size_allocate_nothing)
{
    sg_model *model = make_mlp();
    sg_fixture_check_steady(model, max_rows);
    sg_model_destroy(model);
}

Test(model, following_the_gradient_lowers_the_loss)
{
    sg_model *model = make_mlp();
    sg_fixture_check_learning(model, max_rows, 0.1F, 200);
    sg_model_destroy(model);
}

static void expect_config_error(sg_model_options options, const char *part)
{
    sg_error err = {0};
    sg_model *model = NULL;
    cr_assert(sg_model_create(&options, &model, &err) == SG_CONFIG);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    cr_assert_null(model);
}

Test(model, a_model_that_cannot_be_is_refused)
{
    expect_config_error((sg_model_options){.name = "cnn", .inputs = 4, .classes = 2}, "no model 'cnn'; wanted mlp");
    expect_config_error((sg_model_options){.name = "resnet", .inputs = 4, .classes = 2}, "(did you mean resnet18?)");
    expect_config_error((sg_model_options){.name = "lenet", .inputs = 4, .classes = 2},
                        "model.name: lenet wants images; the data have rows of 4 features");
    expect_config_error(
        (sg_model_options){.name = "mlp", .hidden = (uint64_t[]){0}, .n_hidden = 1, .inputs = 4, .classes = 2},
        "model.hidden: dense0.weight would have a dimension of 0");
    expect_config_error(
        (sg_model_options){.name = "mlp", .hidden = (uint64_t[]){1ULL << 40}, .n_hidden = 1, .inputs = 4, .classes = 2},
        "1099511627776");
}

enum { never = 99 }; /* is anything asked for */

typedef struct reads {
    sg_model *model;
    size_t order[6], n;
    size_t fails_at;
} reads;

static void bring(const sg_variable *v)
{
    for (size_t i = 0; i < sg_fixture_n_elems(v); i++)
        v->value[i] = 0.01F * (float)(i % 7);
}

/* An sg_tape_read_fn: the values of a variable come at the last moment. */
static sg_status bring_late(void *user, const sg_tensor *variable, size_t first, size_t n_elems, sg_error *err)
{
    reads *r = user;
    r->order[r->n++] = variable->tag;
    cr_assert(first == 0 && n_elems == variable->n_elems, "a small one in parts");
    if (variable->tag == r->fails_at)
        return sg_error_set(err, SG_PEER_LOST, "variable %zu is lost", variable->tag);
    bring(&r->model->variables[variable->tag]);
    return SG_OK;
}

/* The sum of the logits. */
static double forward_late(reads *r, sg_tape *tape)
{
    static float x[max_rows * inputs];
    sg_initializer_uniform(9, "x", 1, 0, SG_ARRAY_LEN(x), x);
    sg_tape_begin(tape);
    if (r->fails_at != never)
        sg_tape_listen_to_reads(tape, bring_late, r);
    sg_tensor *logits = sg_model_forward(r->model, tape, x, max_rows, (sg_model_pass){0});
    double sum = 0;
    for (size_t i = 0; logits && i < logits->n_elems; i++)
        sum += sg_tape_get(tape, logits, i);
    return sum;
}

Test(model, each_variable_is_asked_for_before_it_is_read)
{
    sg_model *early = make_mlp(), *late = make_mlp();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    reads of_early = {.model = early, .fails_at = never}, of_late = {.model = late, .fails_at = 6};
    for (size_t i = 0; i < early->n_variables; i++)
        bring(&early->variables[i]);
    const double sum = forward_late(&of_late, tape);
    cr_assert(sum != 0 && sum == forward_late(&of_early, tape));
    cr_assert(of_late.n == 6 && of_early.n == 0);
    for (size_t i = 0; i < 6; i++)
        cr_assert(of_late.order[i] == i);
    sg_tape_destroy(tape);
    sg_model_destroy(early);
    sg_model_destroy(late);
}

enum { width = 4 };

static sg_tensor *forward_shared(sg_model *model, sg_tape *tape, sg_tensor *x)
{
    for (size_t i = 0; i < 2; i++) {
        sg_tensor *weight = sg_model_variable(model, tape, 0);
        x = sg_dense_forward(tape, x, weight, sg_model_variable(model, tape, 1),
                             i == 0 ? SG_DENSE_RELU : SG_DENSE_LINEAR);
    }
    return x;
}

/* A backward pass of a model of square layers with the values of `from`'s first one in each. */
static void step_square(sg_model *model, const sg_model *from)
{
    static const float x[] = {1, -2, 3, 0.5F, -1, 2, 0.25F, 1};
    sg_error err = {0};
    for (size_t i = 0; i < model->n_variables && model != from; i++)
        memcpy(model->variables[i].value, from->variables[i % 2].value,
               sg_fixture_n_elems(&from->variables[i % 2]) * sizeof(float));
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    for (size_t i = 0; i < 2; i++) { /* of the first pass nothing is left */
        sg_tape_begin(tape);
        sg_tensor *logits = sg_model_forward(model, tape, x, 2, (sg_model_pass){0});
        sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, (const uint32_t[]){1, 3}, 2);
        cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
    }
    sg_tape_destroy(tape);
}

Test(model, layers_that_share_a_variable_add_up_in_its_gradient)
{
    static const uint64_t hidden[] = {width};
    sg_model_options options = {.name = "mlp", .hidden = hidden, .inputs = width, .classes = width};
    sg_model *shared, *apart;
    cr_assert(sg_model_create(&options, &shared, NULL) == SG_OK);
    options.n_hidden = 1;
    cr_assert(sg_model_create(&options, &apart, NULL) == SG_OK);
    shared->forward = forward_shared;
    sg_model_initialize(shared, 3);
    step_square(apart, shared);
    step_square(shared, shared);
    for (size_t v = 0; v < 2; v++)
        for (size_t i = 0; i < sg_fixture_n_elems(&shared->variables[v]); i++)
            cr_assert_float_eq(shared->variables[v].gradient[i],
                               apart->variables[v].gradient[i] + apart->variables[v + 2].gradient[i], 1e-6F);
    sg_model_destroy(shared);
    sg_model_destroy(apart);
}

Test(model, a_value_that_does_not_come_fails_the_pass)
{
    sg_model *model = make_mlp();
    sg_tape *tape = sg_tape_create(sg_kernel_cpu());
    reads r = {.model = model, .fails_at = 3};
    sg_error err;
    cr_assert(forward_late(&r, tape) == 0);
    cr_assert(sg_tape_check(tape, &err) == SG_PEER_LOST);
    cr_assert_str_eq(err.message, "variable 3 is lost");
    cr_assert(r.n == 4, "others were asked for after it");
    sg_tape_destroy(tape);
    sg_model_destroy(model);
}
