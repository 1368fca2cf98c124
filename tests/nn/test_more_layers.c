/* tests/nn/test_more_layers.c - normalisation, functions of an element, arithmetic, joining and cutting, losses: the
 * gradients against finite differences in double precision, and what does not fit. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(more_layers, .timeout = 240);

enum { max_inputs = 5 };

/* A layer of several variables, of which all but the last n_constant have gradients. */
typedef struct trial trial;
struct trial {
    const char *name;
    sg_tensor *(*apply)(sg_tape *tape, sg_tensor *const *x);
    size_t n_inputs, n_constant;
    struct {
        uint32_t rank;
        uint64_t shape[4];
    } inputs[max_inputs];
    double *values[max_inputs], *gradients[max_inputs];
};

static size_t n_elems_of(const trial *t, size_t input)
{
    size_t n = 1;
    for (uint32_t i = 0; i < t->inputs[input].rank; i++)
        n *= t->inputs[input].shape[i];
    return n;
}

static sg_tensor *pass(sg_tape *tape, void *user)
{
    trial *t = user;
    sg_tensor *x[max_inputs];
    for (size_t i = 0; i < t->n_inputs; i++)
        x[i] = sg_tape_variable(tape, t->values[i], i + t->n_constant < t->n_inputs ? t->gradients[i] : NULL,
                                t->inputs[i].rank, t->inputs[i].shape);
    return sg_fixture_loss(tape, t->apply(tape, x));
}

static sg_tensor *sigmoid(sg_tape *tape, sg_tensor *const *x)
{
    return sg_sigmoid_forward(tape, x[0]);
}

static sg_tensor *hyperbolic(sg_tape *tape, sg_tensor *const *x)
{
    return sg_tanh_forward(tape, x[0]);
}

static sg_tensor *softplus(sg_tape *tape, sg_tensor *const *x)
{
    return sg_softplus_forward(tape, x[0]);
}

static sg_tensor *gelu(sg_tape *tape, sg_tensor *const *x)
{
    return sg_gelu_forward(tape, x[0]);
}

static sg_tensor *leaky_relu(sg_tape *tape, sg_tensor *const *x)
{
    return sg_leaky_relu_forward(tape, x[0], 0.2);
}

static sg_tensor *softmax(sg_tape *tape, sg_tensor *const *x)
{
    return sg_softmax_forward(tape, x[0]);
}

static sg_tensor *dropout(sg_tape *tape, sg_tensor *const *x)
{
    return sg_dropout_forward(tape, x[0], 0.4, (sg_dropout_where){3, 4, 0});
}

static sg_tensor *sum(sg_tape *tape, sg_tensor *const *x)
{
    return sg_sum_forward(tape, sg_sigmoid_forward(tape, x[0]));
}

/* x + x + y, where each of them is used once more. */
static sg_tensor *add(sg_tape *tape, sg_tensor *const *x)
{
    sg_tensor *a = sg_sigmoid_forward(tape, x[0]), *b = sg_scale_forward(tape, x[1], -3);
    sg_tensor *c = sg_add_forward(tape, sg_add_forward(tape, a, a), b);
    sg_tensor *d = sg_add_forward(tape, c, sg_multiply_forward(tape, a, b));
    return sg_add_relu_forward(tape, d, sg_add_relu_forward(tape, a, b));
}

static sg_tensor *square(sg_tape *tape, sg_tensor *const *x)
{
    return sg_multiply_forward(tape, x[0], x[0]);
}

static sg_tensor *concat(sg_tape *tape, sg_tensor *const *x)
{
    sg_tensor *whole = sg_concat_forward(tape, (sg_tensor *const[]){x[0], x[1], x[0]}, 3, 1);
    return sg_multiply_forward(tape, whole, whole);
}

/* Two parts that overlap, of what is no variable. */
static sg_tensor *slices(sg_tape *tape, sg_tensor *const *x)
{
    sg_tensor *h = sg_sigmoid_forward(tape, x[0]);
    sg_tensor *a = sg_slice_forward(tape, h, 1, 0, 3), *b = sg_slice_forward(tape, h, 1, 1, 3);
    return sg_multiply_forward(tape, a, b);
}

static sg_tensor *upsample(sg_tape *tape, sg_tensor *const *x)
{
    return sg_upsample_nearest_forward(tape, x[0], 3);
}

static sg_tensor *transpose(sg_tape *tape, sg_tensor *const *x)
{
    sg_tensor *h = sg_sigmoid_forward(tape, x[0]);
    const sg_conv2d_options options = {.stride = 2, .padding = 1, .groups = 2};
    sg_tensor *once = sg_conv2d_transpose_forward(tape, h, x[1], x[2], options);
    return sg_add_forward(tape, once, sg_conv2d_transpose_forward(tape, h, x[1], NULL, options));
}

static sg_tensor *layer_norm(sg_tape *tape, sg_tensor *const *x)
{
    return sg_layer_norm_forward(tape, x[0], x[1], x[2], 0);
}

static sg_tensor *batch_norm(sg_tape *tape, sg_tensor *const *x)
{
    return sg_batch_norm_forward(tape, x[0], x[1], x[2], x[3], x[4], (sg_batch_norm_options){.training = true});
}

static sg_tensor *batch_norm_relu(sg_tape *tape, sg_tensor *const *x)
{
    return sg_batch_norm_forward(tape, x[0], x[1], x[2], x[3], x[4],
                                 (sg_batch_norm_options){.training = true, .relu = true, .epsilon = 0.1});
}

/* The variance must be positive. */
static sg_tensor *batch_norm_evaluated(sg_tape *tape, sg_tensor *const *x)
{
    return sg_batch_norm_forward(tape, x[0], x[1], x[2], x[3], sg_sigmoid_forward(tape, x[4]),
                                 (sg_batch_norm_options){0});
}

static sg_tensor *embedding(sg_tape *tape, sg_tensor *const *x)
{
    static const uint32_t ids[] = {3, 0, 3, 1};
    return sg_embedding_forward(tape, x[0], ids, 4);
}

static sg_tensor *squared_error(sg_tape *tape, sg_tensor *const *x)
{
    return sg_mean_squared_error_forward(tape, x[0], x[1]);
}

static sg_tensor *hinge(sg_tape *tape, sg_tensor *const *x)
{
    static const double target[] = {1, -1, -1, 1, 1, 1, -1, 1, -1, 1, 1, -1};
    return sg_hinge_forward(tape, x[0], sg_tape_input(tape, target, 2, (uint64_t[]){3, 4}));
}

static sg_tensor *smoothed(sg_tape *tape, sg_tensor *const *x)
{
    static const uint32_t labels[] = {3, 0, 2};
    return sg_softmax_cross_entropy_smoothed_forward(tape, x[0], labels, 3, 0.2);
}

#define MATRIX                                                                                                         \
    {                                                                                                                  \
        2,                                                                                                             \
        {                                                                                                              \
            3, 4                                                                                                       \
        }                                                                                                              \
    }
#define IMAGES                                                                                                         \
    {                                                                                                                  \
        4,                                                                                                             \
        {                                                                                                              \
            3, 2, 2, 3                                                                                                 \
        }                                                                                                              \
    }

static const trial trials[] = {
    {.name = "sigmoid", .apply = sigmoid, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "tanh", .apply = hyperbolic, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "softplus", .apply = softplus, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "gelu", .apply = gelu, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "leaky_relu", .apply = leaky_relu, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "softmax", .apply = softmax, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "dropout", .apply = dropout, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "sum", .apply = sum, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "add", .apply = add, .n_inputs = 2, .inputs = {MATRIX, MATRIX}},
    {.name = "square", .apply = square, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "concat", .apply = concat, .n_inputs = 2, .inputs = {{3, {2, 2, 3}}, {3, {2, 1, 3}}}},
    {.name = "slices", .apply = slices, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "upsample", .apply = upsample, .n_inputs = 1, .inputs = {IMAGES}},
    {.name = "conv2d_transpose",
     .apply = transpose,
     .n_inputs = 3,
     .inputs = {{4, {2, 4, 2, 3}}, {4, {4, 3, 3, 3}}, {1, {6}}}},
    {.name = "layer_norm", .apply = layer_norm, .n_inputs = 3, .inputs = {MATRIX, {1, {4}}, {1, {4}}}},
    {.name = "batch_norm",
     .apply = batch_norm,
     .n_inputs = 5,
     .n_constant = 2,
     .inputs = {IMAGES, {1, {2}}, {1, {2}}, {1, {2}}, {1, {2}}}},
    {.name = "batch_norm of rows, with relu",
     .apply = batch_norm_relu,
     .n_inputs = 5,
     .n_constant = 2,
     .inputs = {MATRIX, {1, {4}}, {1, {4}}, {1, {4}}, {1, {4}}}},
    {.name = "batch_norm evaluated",
     .apply = batch_norm_evaluated,
     .n_inputs = 5,
     .n_constant = 2,
     .inputs = {IMAGES, {1, {2}}, {1, {2}}, {1, {2}}, {1, {2}}}},
    {.name = "embedding", .apply = embedding, .n_inputs = 1, .inputs = {{2, {5, 3}}}},
    {.name = "mean_squared_error", .apply = squared_error, .n_inputs = 2, .inputs = {MATRIX, MATRIX}},
    {.name = "hinge", .apply = hinge, .n_inputs = 1, .inputs = {MATRIX}},
    {.name = "smoothed cross entropy", .apply = smoothed, .n_inputs = 1, .inputs = {MATRIX}},
};

static void check(trial t)
{
    for (size_t i = 0; i < t.n_inputs; i++) {
        char name[32];
        snprintf(name, sizeof name, "x%zu", i);
        t.values[i] = sg_fixture_noise(name, n_elems_of(&t, i));
        t.gradients[i] = sg_fixture_noise("old", n_elems_of(&t, i));
    }
    for (size_t i = 0; i + t.n_constant < t.n_inputs; i++) {
        char what[64];
        snprintf(what, sizeof what, "%s, input %zu", t.name, i);
        sg_fixture_check_gradient(pass, &t, t.values[i], t.gradients[i], n_elems_of(&t, i), what);
    }
    for (size_t i = 0; i < t.n_inputs; i++) {
        free(t.values[i]);
        free(t.gradients[i]);
    }
}

Test(more_layers, gradients_are_slopes)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(trials); i++)
        check(trials[i]);
}

/* The same numbers through the plain loops and the CPU's, in float: results and gradients. */
static void compare_table(const sg_kernel *kernel, const trial *t)
{
    float values[max_inputs][64], gradients[2][max_inputs][64];
    double losses[2];
    sg_tape *const tapes[2] = {sg_tape_create(sg_kernel_ref_float()), sg_tape_create(kernel)};
    for (size_t k = 0; k < 2; k++) {
        sg_tensor *x[max_inputs];
        sg_tape_begin(tapes[k]);
        for (size_t i = 0; i < t->n_inputs; i++) {
            double *noise = sg_fixture_noise(t->name, n_elems_of(t, i));
            cr_assert(n_elems_of(t, i) <= 64 || strcmp(t->name, "conv2d_transpose") == 0);
            for (size_t e = 0; e < n_elems_of(t, i) && e < 64; e++)
                values[i][e] = (float)noise[e];
            free(noise);
            x[i] = sg_tape_variable(tapes[k], values[i], gradients[k][i], t->inputs[i].rank, t->inputs[i].shape);
        }
        sg_tensor *y = t->apply(tapes[k], x);
        sg_tensor *loss = sg_mean_forward(tapes[k], sg_multiply_forward(tapes[k], y, y));
        sg_error err = {0};
        cr_assert(sg_tape_backward(tapes[k], loss, &err) == SG_OK, "%s: %s", t->name, err.message);
        losses[k] = sg_tape_get(tapes[k], loss, 0);
    }
    cr_assert_float_eq(losses[0], losses[1], 1e-5, "%s", t->name);
    for (size_t i = 0; i < t->n_inputs; i++)
        for (size_t e = 0; e < n_elems_of(t, i); e++)
            cr_assert_float_eq(gradients[0][i][e], gradients[1][i][e], 1e-4F, "%s, input %zu, element %zu", t->name, i,
                               e);
    sg_tape_destroy(tapes[0]);
    sg_tape_destroy(tapes[1]);
}

static void compare_tables(const trial *t)
{
    for (size_t i = 0; sg_fixture_fast_table(i); i++)
        compare_table(sg_fixture_fast_table(i), t);
}

Test(more_layers, the_fast_tables_give_the_gradients_of_the_plain_loops)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(trials); i++)
        if (strcmp(trials[i].name, "conv2d_transpose") != 0) /* too large for the arrays, and made of convolutions */
            compare_tables(&trials[i]);
}

Test(more_layers, running_statistics_are_proposed_where_others_have_gradients)
{
    double x[] = {1, 5, 3, 7}; /* two rows of two channels: means 2 and 6, variances of a sample 2 and 2 */
    double one[] = {1, 1}, zero[] = {0, 0}, mean[] = {10, 20}, variance[] = {4, 4}, dmean[2], dvariance[2];
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    for (int training = 0; training < 2; training++) {
        double dgamma[2];
        sg_tape_begin(tape);
        sg_tensor *v = sg_tape_input(tape, x, 2, (uint64_t[]){2, 2});
        sg_tensor *gamma = sg_tape_variable(tape, one, dgamma, 1, (uint64_t[]){2});
        sg_tensor *beta = sg_tape_variable(tape, zero, NULL, 1, (uint64_t[]){2});
        sg_tensor *m = sg_tape_variable(tape, mean, dmean, 1, (uint64_t[]){2});
        sg_tensor *s = sg_tape_variable(tape, variance, dvariance, 1, (uint64_t[]){2});
        const sg_batch_norm_options options = {.training = training, .momentum = 0.25};
        sg_tensor *y = sg_batch_norm_forward(tape, v, gamma, beta, m, s, options);
        sg_error err = {0};
        cr_assert(sg_tape_backward(tape, sg_mean_forward(tape, y), &err) == SG_OK, "%s", err.message);
        cr_assert_float_eq(dmean[0], training ? 0.75 * 10 + 0.25 * 2 : 10, 1e-12);
        cr_assert_float_eq(dmean[1], training ? 0.75 * 20 + 0.25 * 6 : 20, 1e-12);
        cr_assert_float_eq(dvariance[1], training ? 0.75 * 4 + 0.25 * 2 : 4, 1e-12);
        cr_assert_float_eq(sg_tape_get(tape, y, 0), training ? -1 / sqrt(1 + 1e-5) : -9 / sqrt(4 + 1e-5), 1e-12);
    }
    sg_tape_destroy(tape);
}

Test(more_layers, no_gradient_goes_through_a_stop)
{
    double x[] = {1, 2, 3}, dx[] = {9, 9, 9};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *v = sg_tape_variable(tape, x, dx, 1, (uint64_t[]){3});
    sg_tensor *loss = sg_sum_forward(tape, sg_multiply_forward(tape, v, sg_stop_gradient_forward(tape, v)));
    cr_assert(sg_tape_backward(tape, loss, NULL) == SG_OK);
    cr_assert_arr_eq(dx, x, sizeof x); /* not 2 * x */
    sg_tape_destroy(tape);
}

Test(more_layers, dropout_keeps_the_mean_and_repeats_itself)
{
    enum { n = 4000 };
    static double ones[n];
    for (size_t i = 0; i < n; i++)
        ones[i] = 1;
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *x = sg_tape_input(tape, ones, 1, (uint64_t[]){n});
    sg_tensor *a = sg_dropout_forward(tape, x, 0.5, (sg_dropout_where){1, 2, 0}),
              *same = sg_dropout_forward(tape, x, 0.5, (sg_dropout_where){1, 2, 0});
    sg_tensor *other = sg_dropout_forward(tape, x, 0.5, (sg_dropout_where){1, 3, 0}),
              *all = sg_dropout_forward(tape, x, 0, (sg_dropout_where){1, 2, 0});
    const double mean = sg_tape_get(tape, sg_mean_forward(tape, a), 0);
    cr_assert(fabs(mean - 1) < 0.06, "%g", mean);
    cr_assert_arr_eq(a->value, same->value, sizeof ones);
    cr_assert_arr_neq(a->value, other->value, sizeof ones);
    cr_assert_arr_eq(all->value, ones, sizeof ones);
    sg_tape_destroy(tape);
}

static sg_tensor *zeros(sg_tape *tape, uint32_t rank, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    static const double values[1024];
    return sg_tape_input(tape, values, rank, (uint64_t[]){a, b, c, d});
}

Test(more_layers, what_does_not_fit_is_told)
{
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    sg_tensor *a = zeros(tape, 2, 3, 4, 0, 0), *b = zeros(tape, 2, 4, 3, 0, 0);
    sg_fixture_expect_error(tape, sg_add_forward(tape, a, b), "add: [3, 4] and [4, 3]; wanted the same shape twice");
    a = zeros(tape, 2, 3, 4, 0, 0), b = zeros(tape, 2, 4, 3, 0, 0);
    sg_fixture_expect_error(tape, sg_concat_forward(tape, (sg_tensor *const[]){a, b}, 2, 1),
                            "concat: [3, 4] and [4, 3] along axis 1; wanted the same shape but for that");
    sg_fixture_expect_error(tape, sg_concat_forward(tape, NULL, 0, 1), "concat: no tensors");
    sg_fixture_expect_error(tape, sg_slice_forward(tape, zeros(tape, 2, 3, 4, 0, 0), 1, 2, UINT64_MAX),
                            "slice: 18446744073709551615 from 2 on along axis 1 of [3, 4]; wanted a part of it");
    sg_fixture_expect_error(tape, sg_dropout_forward(tape, zeros(tape, 2, 3, 4, 0, 0), 1, (sg_dropout_where){0}),
                            "dropout: rate 1; wanted 0 or more, and less than 1");
    sg_fixture_expect_error(tape, sg_embedding_forward(tape, zeros(tape, 2, 3, 4, 0, 0), (uint32_t[]){2, 3}, 2),
                            "embedding: number 3 in place 1; the table has 3 rows, from 0");
    sg_fixture_expect_error(
        tape, sg_upsample_nearest_forward(tape, zeros(tape, 4, 1, 1, 2, 2), 0),
        "upsample_nearest: input [1, 1, 2, 2], factor 0; wanted [images, channels, height, width] and at "
        "least 1");
    a = zeros(tape, 1, 3, 0, 0, 0);
    sg_fixture_expect_error(tape, sg_layer_norm_forward(tape, zeros(tape, 2, 3, 4, 0, 0), a, a, 0),
                            "layer_norm: input [3, 4], gamma [3], beta [3]; wanted [..., n], [n], [n]");
    a = zeros(tape, 1, 3, 0, 0, 0);
    sg_fixture_expect_error(
        tape, sg_batch_norm_forward(tape, zeros(tape, 2, 3, 4, 0, 0), a, a, a, a, (sg_batch_norm_options){0}),
        "batch_norm: input [3, 4], gamma [3], beta [3], mean [3], variance [3]; wanted [images, channels, "
        "height, width] or [rows, channels], and four times [channels]");
    sg_fixture_expect_error(
        tape,
        sg_conv2d_transpose_forward(tape, zeros(tape, 4, 1, 2, 1, 1), zeros(tape, 4, 2, 1, 2, 2), NULL,
                                    (sg_conv2d_options){.padding = 1}),
        "conv2d_transpose: input [1, 2, 1, 1], weight [2, 1, 2, 2], bias none, stride 1, padding 1, groups 1; "
        "wanted [images, channels, height, width], [channels, outputs / groups, height, width], [outputs], and "
        "less padding than there is output");
    sg_fixture_expect_error(
        tape, sg_softmax_cross_entropy_smoothed_forward(tape, zeros(tape, 2, 1, 4, 0, 0), (uint32_t[]){0}, 1, 1),
        "cross entropy: smoothing 1; wanted 0 or more, and less than 1");
    sg_tape_destroy(tape);
}
