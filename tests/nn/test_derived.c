/* tests/nn/test_derived.c - what is made of variables in the place of a variable: weights that layers have computed,
 * and views, through which values are read after the variable itself was. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(derived, .timeout = 240);

enum { n_weight = 36, n_x = 72 };

/* What is made of w[36], so that it has 24 elements. */
typedef enum derivation { SCALED, RESHAPED, SLICED, RESHAPED_TWICE, ADDED, N_DERIVATIONS } derivation;

typedef struct pass {
    derivation derivation;
    sg_tensor *(*apply)(sg_tape *tape, sg_tensor *x, sg_tensor *w);
    double *w, *dw, *x, *dx;
    uint64_t shape[4]; /* of the weight, [rank] */
    uint32_t rank;
} pass;

static sg_tensor *derive(sg_tape *tape, const pass *p, sg_tensor *w)
{
    const uint64_t flat[] = {n_weight};
    sg_tensor *part = sg_slice_forward(tape, sg_reshape_forward(tape, w, 1, flat), 0, 6, 24);
    switch (p->derivation) {
    case SCALED:
        return sg_scale_forward(tape, sg_reshape_forward(tape, part, p->rank, p->shape), 2);
    case RESHAPED_TWICE:
        part = sg_reshape_forward(tape, part, 2, (uint64_t[]){12, 2});
        break;
    case ADDED:
        part = sg_add_forward(tape, part, sg_slice_forward(tape, sg_reshape_forward(tape, w, 1, flat), 0, 12, 24));
        break;
    default:
        break;
    }
    return sg_reshape_forward(tape, part, p->rank, p->shape);
}

static sg_tensor *dense(sg_tape *tape, sg_tensor *x, sg_tensor *w)
{
    static const double bias[4] = {0.5, -0.5, 0.25, 0};
    sg_tensor *rows = sg_reshape_forward(tape, x, 2, (uint64_t[]){12, 6});
    return sg_dense_forward(tape, rows, w, sg_tape_input(tape, bias, 1, (uint64_t[]){4}), SG_DENSE_LINEAR);
}

static sg_tensor *conv(sg_tape *tape, sg_tensor *x, sg_tensor *w)
{
    sg_tensor *images = sg_reshape_forward(tape, x, 4, (uint64_t[]){2, 3, 3, 4});
    return sg_conv2d_forward(tape, images, w, NULL, (sg_conv2d_options){.padding = 1});
}

static sg_tensor *transpose(sg_tape *tape, sg_tensor *x, sg_tensor *w)
{
    sg_tensor *images = sg_reshape_forward(tape, x, 4, (uint64_t[]){2, 3, 3, 4});
    return sg_conv2d_transpose_forward(tape, images, w, NULL, (sg_conv2d_options){.stride = 2});
}

static sg_tensor *build(sg_tape *tape, void *user)
{
    const pass *p = user;
    sg_tensor *w = sg_tape_variable(tape, p->w, p->dw, 2, (uint64_t[]){9, 4});
    sg_tensor *x = sg_tape_variable(tape, p->x, p->dx, 1, (uint64_t[]){n_x});
    return sg_fixture_loss(tape, sg_tanh_forward(tape, p->apply(tape, x, derive(tape, p, w))));
}

static void check(pass *p, const char *name)
{
    p->w = sg_fixture_noise("w", n_weight), p->dw = sg_fixture_noise("dw", n_weight);
    p->x = sg_fixture_noise("x", n_x), p->dx = sg_fixture_noise("dx", n_x);
    for (p->derivation = 0; p->derivation < N_DERIVATIONS; p->derivation++) {
        sg_fixture_check_gradient(build, p, p->w, p->dw, n_weight, name);
        sg_fixture_check_gradient(build, p, p->x, p->dx, n_x, name);
    }
    free(p->w), free(p->dw), free(p->x), free(p->dx);
}

Test(derived, gradients_of_a_dense_layer_whose_weight_is_no_variable_are_slopes)
{
    check(&(pass){.apply = dense, .rank = 2, .shape = {6, 4}}, "dense");
}

Test(derived, gradients_of_a_convolution_whose_weight_is_no_variable_are_slopes)
{
    check(&(pass){.apply = conv, .rank = 4, .shape = {2, 3, 2, 2}}, "conv2d");
}

Test(derived, gradients_of_a_transposed_convolution_whose_weight_is_no_variable_are_slopes)
{
    check(&(pass){.apply = transpose, .rank = 4, .shape = {3, 2, 2, 2}}, "conv2d_transpose");
}

/* --- views ----------------------------------------------------------------------------------------------------- */

/* As someone who pulls into a variable as soon as it is final. */
static void overwrite(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    for (size_t i = first; *(const bool *)user && i < first + n_elems; i++)
        ((double *)variable->value)[i] = 1e6;
}

enum { n_elems = 24, n_variables = 2 };

typedef struct viewed {
    double values[n_variables][n_elems], gradients[n_variables][n_elems];
} viewed;

/* Of two variables of 24 elements, the first of which is read through a view; the other one is [6, 4] for some. */
typedef sg_tensor *(*view_fn)(sg_tape *tape, sg_tensor *of, sg_tensor *other);

static sg_tensor *concatenated(sg_tape *tape, sg_tensor *of, sg_tensor *other)
{
    return dense(tape, sg_concat_forward(tape, (sg_tensor *[]){of, of, of}, 3, 0),
                 sg_reshape_forward(tape, other, 2, (uint64_t[]){6, 4}));
}

static sg_tensor *input_of_dense(sg_tape *tape, sg_tensor *of, sg_tensor *other)
{
    static double zeros[4];
    sg_tensor *rows = sg_reshape_forward(tape, of, 2, (uint64_t[]){4, 6});
    return sg_dense_forward(tape, rows, other, sg_tape_input(tape, zeros, 1, (uint64_t[]){4}), SG_DENSE_LINEAR);
}

static sg_tensor *flattened_twice(sg_tape *tape, sg_tensor *of, sg_tensor *other)
{
    const uint64_t shape[] = {2, 3, 4}, flat[] = {n_elems};
    sg_tensor *view = sg_flatten_forward(tape, sg_reshape_forward(tape, of, 3, shape));
    return sg_multiply_forward(tape, sg_reshape_forward(tape, view, 1, flat), other);
}

/* The product behind reads the value of what no gradient goes to. */
static sg_tensor *stopped(sg_tape *tape, sg_tensor *of, sg_tensor *other)
{
    sg_tensor *first = sg_multiply_forward(tape, other, sg_stop_gradient_forward(tape, of));
    return sg_multiply_forward(tape, first, of);
}

static sg_tensor *stopped_alone(sg_tape *tape, sg_tensor *of, sg_tensor *other)
{
    return sg_multiply_forward(tape, sg_stop_gradient_forward(tape, of), other);
}

static viewed run_viewed(view_fn apply, bool is_matrix, bool overwrites)
{
    sg_error err = {0};
    viewed v;
    for (size_t i = 0; i < n_variables; i++) {
        double *noise = sg_fixture_noise(i ? "other" : "of", n_elems);
        for (size_t k = 0; k < n_elems; k++)
            v.values[i][k] = noise[k], v.gradients[i][k] = 9;
        free(noise);
    }
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    const uint64_t flat[] = {n_elems}, matrix[] = {6, 4};
    sg_tensor *of = sg_tape_variable(tape, v.values[0], v.gradients[0], 1, flat);
    sg_tensor *other =
        sg_tape_variable(tape, v.values[1], v.gradients[1], is_matrix ? 2 : 1, is_matrix ? matrix : flat);
    sg_tensor *loss = sg_fixture_loss(tape, apply(tape, of, other));
    cr_assert(sg_tape_backward_last(tape, loss, overwrite, &overwrites, &err) == SG_OK, "%s", err.message);
    sg_tape_destroy(tape);
    return v;
}

Test(derived, a_variable_is_not_final_while_its_values_are_read_through_a_view)
{
    const struct {
        const char *name;
        view_fn apply;
        bool is_matrix;
    } cases[] = {{"views in a concatenation", concatenated, false},
                 {"a view in a dense layer", input_of_dense, true},
                 {"flattened twice", flattened_twice, false},
                 {"stop_gradient", stopped, false},
                 {"stop_gradient alone", stopped_alone, false}};
    for (size_t c = 0; c < SG_ARRAY_LEN(cases); c++) {
        const viewed want = run_viewed(cases[c].apply, cases[c].is_matrix, false);
        const viewed got = run_viewed(cases[c].apply, cases[c].is_matrix, true);
        for (size_t i = 0; i < n_variables * n_elems; i++)
            cr_assert(got.gradients[i / n_elems][i % n_elems] == want.gradients[i / n_elems][i % n_elems],
                      "%s: variable %zu", cases[c].name, i / n_elems);
    }
}
