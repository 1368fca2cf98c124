/* tests/kernels/test_elementwise.c - functions of each element, of every table, against the plain loops in double. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/random.h"
#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(elementwise, .timeout = 240);

static const size_t sizes[] = {0, 1, 7, 16, 133};

static void check_unary_of(const sg_kernel *kernel, sg_unary function, size_t n, float limit, bool accumulate)
{
    const double parameter = 0.25;
    sg_array x = sg_array_make("x", n, limit), y = sg_array_make("y", n, 1), dy = sg_array_make("dy", n, 1);
    sg_array dx = sg_array_make("dx", n, 1);
    const sg_kernel_elementwise *truth = sg_kernel_ref_double()->elementwise;
    kernel->elementwise->unary(function, parameter, n, x.f, y.f);
    truth->unary(function, parameter, n, x.d, y.d);
    sg_array_assert_near(kernel, "unary", &y, 3e-7 * fmax(1, (double)limit));
    kernel->elementwise->unary_backward(function, parameter, n, x.f, y.f, dy.f, accumulate, dx.f);
    truth->unary_backward(function, parameter, n, x.d, y.d, dy.d, accumulate, dx.d);
    sg_array_assert_near(kernel, "unary_backward", &dx, 1e-6);
    sg_array *const all[] = {&x, &y, &dy, &dx};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_array_free(all[i]);
}

static void check_unary(const sg_kernel *kernel)
{
    static const float limits[] = {0.1F, 4, 300};
    for (sg_unary function = 0; function < SG_UNARY_COUNT; function++)
        for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++)
            for (size_t l = 0; l < SG_ARRAY_LEN(limits); l++)
                check_unary_of(kernel, function, sizes[i], limits[l], l % 2);
}

Test(elementwise, functions_agree_with_the_plain_loops)
{
    sg_for_each_table(check_unary);
}

Test(elementwise, functions_have_the_values_of_the_books)
{
    static const struct {
        sg_unary function;
        double parameter, x, want;
    } cases[] = {{SG_UNARY_SIGMOID, 0, 0, 0.5},
                 {SG_UNARY_SIGMOID, 0, 2, 0.88079707797788243},
                 {SG_UNARY_SIGMOID, 0, -1000, 0},
                 {SG_UNARY_TANH, 0, 1, 0.76159415595576489},
                 {SG_UNARY_SOFTPLUS, 0, 0, 0.69314718055994529},
                 {SG_UNARY_SOFTPLUS, 0, 1000, 1000},
                 {SG_UNARY_SOFTPLUS, 0, -1000, 0},
                 {SG_UNARY_GELU, 0, 1, 0.84134474606854293},
                 {SG_UNARY_GELU, 0, -1, -0.15865525393145707},
                 {SG_UNARY_LEAKY_RELU, 0.1, -3, -0.30000000000000004},
                 {SG_UNARY_LEAKY_RELU, 0.1, 3, 3},
                 {SG_UNARY_MARGIN, 1, 0.25, 0.75},
                 {SG_UNARY_MARGIN, 1, 2, 0}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        double y;
        sg_kernel_ref_double()->elementwise->unary(cases[i].function, cases[i].parameter, 1, &cases[i].x, &y);
        cr_assert_float_eq(y, cases[i].want, 1e-15, "case %zu: %.17g", i, y);
    }
}

static void check_nan(const sg_kernel *kernel)
{
    const float x = NAN;
    for (sg_unary function = 0; function < SG_UNARY_COUNT; function++) {
        float y = 0;
        kernel->elementwise->unary(function, 0.5, 1, &x, &y);
        cr_assert(isnan(y), "%s, function %d", kernel->name, (int)function);
    }
}

Test(elementwise, a_nan_is_not_lost)
{
    sg_for_each_table(check_nan);
}

static void check_multiply(const sg_kernel *kernel)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            sg_array a = sg_array_make("a", sizes[i], 1), b = sg_array_make("b", sizes[i], 1);
            sg_array y = sg_array_make("y", sizes[i], 1);
            kernel->elementwise->multiply(sizes[i], a.f, b.f, accumulate, y.f);
            sg_kernel_ref_double()->elementwise->multiply(sizes[i], a.d, b.d, accumulate, y.d);
            sg_array_assert_near(kernel, "multiply", &y, 2e-7);
            sg_array_free(&a), sg_array_free(&b), sg_array_free(&y);
        }
    }
}

Test(elementwise, products_agree_with_the_plain_loops)
{
    sg_for_each_table(check_multiply);
}

static void check_dropout(const sg_kernel *kernel)
{
    enum { n = 10001 };
    sg_array scales = sg_array_make("scales", n, 1);
    kernel->elementwise->dropout_scales(5, 77, 3, 0.25, n, scales.f);
    size_t dropped = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t words[4];
        sg_random_block(5, 77, (i + 3) / 4, words);
        const bool drop = words[(i + 3) % 4] < 0x40000000;
        scales.d[i] = drop ? 0 : 1 / 0.75;
        dropped += drop;
    }
    sg_array_assert_near(kernel, "dropout_scales", &scales, 1e-7);
    cr_assert(dropped > 2350 && dropped < 2650, "%zu of %d", dropped, n); /* 3.4 deviations */
    sg_array_free(&scales);
}

Test(elementwise, dropout_is_a_function_of_seed_stream_and_element)
{
    sg_for_each_table(check_dropout);
}
