/* tests/nn/test_batch_norm.c - what batch_norm says of its running statistics, wherever it stands on the tape. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "tests/nn/fixture.h"

TestSuite(batch_norm, .timeout = 240);

enum { n_rows = 4, n_channels = 2, n_x = n_rows * n_channels };

/* One batch_norm of two channels; `proposed` is where its running statistics have their gradients. */
typedef struct norm {
    double mean[n_channels], variance[n_channels], gamma[n_channels], beta[n_channels];
    double proposed[2][n_channels], dgamma[n_channels], dbeta[n_channels];
    sg_tensor *tensors[4]; /* gamma, beta, mean, variance */
} norm;

static norm norm_make(void)
{
    return (norm){.mean = {0.3, 0.4},
                  .variance = {1.5, 2},
                  .gamma = {1, 1},
                  .proposed = {{9, 9}, {9, 9}},
                  .dgamma = {9, 9},
                  .dbeta = {9, 9}};
}

static void make_tensors(sg_tape *tape, norm *n, bool is_frozen)
{
    const uint64_t shape[] = {n_channels};
    n->tensors[0] = sg_tape_variable(tape, n->gamma, is_frozen ? NULL : n->dgamma, 1, shape);
    n->tensors[1] = sg_tape_variable(tape, n->beta, is_frozen ? NULL : n->dbeta, 1, shape);
    n->tensors[2] = sg_tape_variable(tape, n->mean, n->proposed[0], 1, shape);
    n->tensors[3] = sg_tape_variable(tape, n->variance, n->proposed[1], 1, shape);
}

static sg_tensor *apply(sg_tape *tape, const norm *n, const double *x, bool training)
{
    return sg_batch_norm_forward(tape, sg_tape_input(tape, x, 2, (uint64_t[]){n_rows, n_channels}), n->tensors[0],
                                 n->tensors[1], n->tensors[2], n->tensors[3],
                                 (sg_batch_norm_options){.training = training, .momentum = 0.25});
}

static void go_back(sg_tape *tape, const sg_tensor *loss)
{
    sg_error err = {0};
    cr_assert(sg_tape_backward(tape, loss, &err) == SG_OK, "%s", err.message);
}

/* Takes the statistics of a batch into the running ones, as they come one after the other. */
static void take_in(const double *x, double running[2][n_channels])
{
    for (size_t c = 0; c < n_channels; c++) {
        double mean = 0, squares = 0;
        for (size_t i = 0; i < n_rows; i++)
            mean += x[i * n_channels + c] / n_rows;
        for (size_t i = 0; i < n_rows; i++)
            squares += (x[i * n_channels + c] - mean) * (x[i * n_channels + c] - mean);
        running[0][c] = 0.75 * running[0][c] + 0.25 * mean;
        running[1][c] = 0.75 * running[1][c] + 0.25 * squares / (n_rows - 1);
    }
}

/* After those batches, the first first. */
static void expect_proposed(const norm *n, const double *const *batches, size_t n_batches, const char *where)
{
    double want[2][n_channels];
    for (size_t c = 0; c < n_channels; c++)
        want[0][c] = n->mean[c], want[1][c] = n->variance[c];
    for (size_t i = 0; i < n_batches; i++)
        take_in(batches[i], want);
    for (size_t i = 0; i < 2 * n_channels; i++)
        cr_assert(fabs(n->proposed[i / n_channels][i % n_channels] - want[i / n_channels][i % n_channels]) < 1e-12,
                  "%s, %s of channel %zu: %g, wanted %g", where, i / n_channels ? "variance" : "mean", i % n_channels,
                  n->proposed[i / n_channels][i % n_channels], want[i / n_channels][i % n_channels]);
}

/* A loss of one variable, which has nothing to do with any norm. */
static sg_tensor *other_loss(sg_tape *tape, double *value, double *gradient)
{
    return sg_mean_forward(tape, sg_tape_variable(tape, value, gradient, 1, (uint64_t[]){1}));
}

Test(batch_norm, running_statistics_are_proposed_where_nothing_in_front_or_in_the_layer_is_trained)
{
    double *x = sg_fixture_noise("x", n_x), value = 1, gradient;
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    norm n = norm_make();
    sg_tape_begin(tape);
    make_tensors(tape, &n, true);
    sg_tensor *w = sg_tape_variable(tape, &value, &gradient, 1, (uint64_t[]){1});
    sg_tensor *y = sg_slice_forward(tape, apply(tape, &n, x, true), 1, 0, 1);
    y = sg_slice_forward(tape, sg_reshape_forward(tape, y, 1, (uint64_t[]){n_rows}), 0, 0, 1);
    go_back(tape, sg_mean_forward(tape, sg_multiply_forward(tape, y, w)));
    expect_proposed(&n, (const double *[]){x}, 1, "frozen gamma and beta");
    sg_tape_destroy(tape);
    free(x);
}

Test(batch_norm, running_statistics_are_proposed_where_the_loss_does_not_lead)
{
    double *x = sg_fixture_noise("x", n_x), value = 1, gradient;
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    for (int training = 0; training < 2; training++) {
        norm n = norm_make();
        sg_tape_begin(tape);
        make_tensors(tape, &n, false);
        cr_assert(apply(tape, &n, x, training));
        go_back(tape, other_loss(tape, &value, &gradient));
        expect_proposed(&n, (const double *[]){x}, training ? 1 : 0, training ? "training" : "evaluation");
        cr_assert(n.dgamma[0] == 0 && n.dbeta[0] == 0, "what no loss depends on has a gradient of zeros");
    }
    sg_tape_destroy(tape);
    free(x);
}

/* As if they had been two steps, in the order of the forward pass. */
Test(batch_norm, one_that_is_used_twice_takes_in_both_batches_one_after_the_other)
{
    double *x = sg_fixture_noise("x", n_x), *further = sg_fixture_noise("further", n_x);
    for (size_t i = 0; i < n_x; i++)
        further[i] += 10;
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    norm n = norm_make();
    sg_tape_begin(tape);
    make_tensors(tape, &n, false);
    sg_tensor *a = apply(tape, &n, x, true), *b = apply(tape, &n, further, true);
    sg_tensor *c = sg_multiply_forward(tape, b, apply(tape, &n, x, false));
    go_back(tape, sg_fixture_loss(tape, sg_multiply_forward(tape, a, c)));
    expect_proposed(&n, (const double *[]){x, further}, 2, "used twice");
    sg_tape_destroy(tape);
    free(x), free(further);
}

Test(batch_norm, several_losses_take_a_batch_in_once)
{
    double *x = sg_fixture_noise("x", n_x);
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    norm n = norm_make();
    sg_tape_begin(tape);
    make_tensors(tape, &n, false);
    sg_tensor *y = apply(tape, &n, x, true);
    go_back(tape, sg_fixture_loss(tape, y));
    go_back(tape, sg_mean_forward(tape, sg_multiply_forward(tape, y, y)));
    expect_proposed(&n, (const double *[]){x}, 1, "two losses");
    sg_tape_destroy(tape);
    free(x);
}

Test(batch_norm, every_table_proposes_the_same)
{
    double *x = sg_fixture_noise("x", n_x);
    float xf[n_x], values[4][n_channels] = {{1, 1}, {0}, {0.3F, 0.4F}, {1.5F, 2}}, gradients[4][n_channels];
    for (size_t i = 0; i < n_x; i++)
        xf[i] = (float)x[i];
    for (size_t k = 0; sg_fixture_fast_table(k); k++) {
        sg_tape *tape = sg_tape_create(sg_fixture_fast_table(k));
        sg_tape_begin(tape);
        sg_tensor *v[4], *y = NULL;
        for (size_t i = 0; i < 4; i++)
            v[i] = sg_tape_variable(tape, values[i], gradients[i], 1, (uint64_t[]){n_channels});
        for (size_t i = 0; i < 2; i++)
            y = sg_batch_norm_forward(tape, sg_tape_input(tape, xf, 2, (uint64_t[]){n_rows, n_channels}), v[0], v[1],
                                      v[2], v[3], (sg_batch_norm_options){.training = true, .momentum = 0.25});
        go_back(tape, sg_mean_forward(tape, y));
        double want[2][n_channels] = {{0.3, 0.4}, {1.5, 2}};
        take_in(x, want), take_in(x, want);
        for (size_t i = 0; i < 2 * n_channels; i++)
            cr_assert_float_eq((double)gradients[2 + i / n_channels][i % n_channels],
                               want[i / n_channels][i % n_channels], 1e-6);
        sg_tape_destroy(tape);
    }
    free(x);
}
