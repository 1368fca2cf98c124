/* tests/nn/fixture.c - see fixture.h. */
#include "tests/nn/fixture.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "kernels/cuda_load.h"
#include "worker/nn/initializer.h"

#define STEP 1e-5

const sg_kernel *sg_fixture_device_table(void)
{
    const sg_kernel *kernel = NULL;
    sg_error err;
    cr_assert(sg_kernel_cuda(0, &kernel, &err) == SG_OK, "%s", err.message);
    return kernel;
}

const sg_kernel *sg_fixture_fast_table(size_t index)
{
    return index == 0   ? sg_kernel_cpu()
           : index == 1 ? sg_fixture_device_table()
           : index == 2 ? sg_kernel_onednn()
                        : NULL;
}

double *sg_fixture_noise(const char *name, size_t n)
{
    float *single = sg_xcalloc(n + 1, sizeof *single);
    double *x = sg_xcalloc(n + 1, sizeof *x);
    sg_initializer_uniform(11, name, 1, 0, n, single);
    for (size_t i = 0; i < n; i++)
        x[i] = (double)single[i];
    free(single);
    return x;
}

static double loss_of(sg_tape *tape, sg_fixture_pass pass, void *user)
{
    sg_error err = {0};
    sg_tape_begin(tape);
    double loss = sg_tape_get(tape, pass(tape, user), 0);
    cr_assert(sg_tape_check(tape, &err) == SG_OK, "%s", err.message);
    return loss;
}

void sg_fixture_check_gradient(sg_fixture_pass pass, void *user, double *values, const double *gradient, size_t n,
                               const char *what)
{
    sg_error err = {0};
    sg_tape *tape = sg_tape_create(sg_kernel_ref_double());
    sg_tape_begin(tape);
    cr_assert(sg_tape_backward(tape, pass(tape, user), &err) == SG_OK, "%s", err.message);
    for (size_t i = 0; i < n; i++) {
        double value = values[i];
        values[i] = value + STEP;
        double above = loss_of(tape, pass, user);
        values[i] = value - STEP;
        double below = loss_of(tape, pass, user);
        values[i] = value;
        double slope = (above - below) / (2 * STEP);
        cr_assert(fabs(gradient[i] - slope) <= 1e-6 * fmax(1, fabs(slope)), "%s, element %zu: %.9g, slope %.9g", what,
                  i, gradient[i], slope);
    }
    sg_tape_destroy(tape);
}

sg_tensor *sg_fixture_loss(sg_tape *tape, sg_tensor *x)
{
    enum { classes = 3 };
    static double weight[SG_FIXTURE_MAX * classes];
    static const double bias[classes] = {0.1, 0, -0.1};
    static const uint32_t label = 1;
    static float noise[SG_FIXTURE_MAX * classes];
    if (!x)
        return NULL;
    cr_assert(x->n_elems <= SG_FIXTURE_MAX);
    sg_initializer_uniform(12, "loss", 1, 0, SG_ARRAY_LEN(noise), noise);
    for (size_t i = 0; i < SG_ARRAY_LEN(noise); i++)
        weight[i] = (double)noise[i] / 4;
    sg_tensor *row = sg_reshape_forward(tape, x, 2, (uint64_t[]){1, x->n_elems});
    sg_tensor *w = sg_tape_input(tape, weight, 2, (uint64_t[]){x->n_elems, classes});
    sg_tensor *b = sg_tape_input(tape, bias, 1, (uint64_t[]){classes});
    return sg_softmax_cross_entropy_forward(tape, sg_dense_forward(tape, row, w, b, SG_DENSE_LINEAR), &label, 1);
}

void sg_fixture_expect_error(sg_tape *tape, const sg_tensor *made, const char *want)
{
    sg_error err = {0};
    cr_assert_null(made);
    cr_assert(sg_tape_check(tape, &err) == SG_INVALID);
    cr_assert_str_eq(err.message, want);
    sg_tape_begin(tape);
}
