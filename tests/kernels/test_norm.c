/* tests/kernels/test_norm.c - normalisation and what moves elements, of every table, against the plain loops in double.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(norm, .timeout = 240);

static void free_all(sg_array *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sg_array_free(all[i]);
}

static void check_batch_of(const sg_kernel *kernel, const sg_norm_shape *s, bool accumulate)
{
    const size_t n = s->images * s->channels * s->plane, c = s->channels;
    sg_array x = sg_array_make("x", n, 2), y = sg_array_make("y", n, 1), dy = sg_array_make("dy", n, 1);
    sg_array dx = sg_array_make("dx", n, 1), gamma = sg_array_make("gamma", c, 2), beta = sg_array_make("beta", c, 1);
    sg_array mean = sg_array_make("mean", c, 1), variance = sg_array_make("variance", c, 1);
    sg_array inverse = sg_array_make("inverse", c, 1), sums = sg_array_make("sums", 2 * c, 1);
    const sg_kernel_norm *k = kernel->norm, *truth = sg_kernel_ref_double()->norm;
    k->batch_statistics(s, x.f, mean.f, variance.f);
    truth->batch_statistics(s, x.d, mean.d, variance.d);
    sg_array_assert_near(kernel, "mean", &mean, 1e-6);
    sg_array_assert_near(kernel, "variance", &variance, 3e-6);
    /* With few elements a deviation is small, and what is divided by it large. */
    k->inverse_deviation(c, 0.1, variance.f, inverse.f);
    truth->inverse_deviation(c, 0.1, variance.d, inverse.d);
    sg_array_assert_near(kernel, "inverse_deviation", &inverse, 1e-5);
    k->batch_forward(s, x.f, mean.f, inverse.f, gamma.f, beta.f, accumulate, y.f);
    truth->batch_forward(s, x.d, mean.d, inverse.d, gamma.d, beta.d, accumulate, y.d);
    sg_array_assert_near(kernel, "batch_forward", &y, 2e-5);
    k->batch_sums(s, x.f, mean.f, inverse.f, dy.f, sums.f);
    truth->batch_sums(s, x.d, mean.d, inverse.d, dy.d, sums.d);
    sg_array_assert_near(kernel, "batch_sums", &sums, 1e-6 * (double)(10 + s->images * s->plane));
    k->batch_backward(s, x.f, mean.f, inverse.f, gamma.f, dy.f, sums.f, accumulate, dx.f);
    truth->batch_backward(s, x.d, mean.d, inverse.d, gamma.d, dy.d, sums.d, accumulate, dx.d);
    sg_array_assert_near(kernel, "batch_backward", &dx, 5e-5);
    k->batch_backward(s, x.f, mean.f, inverse.f, gamma.f, dy.f, NULL, accumulate, dx.f);
    truth->batch_backward(s, x.d, mean.d, inverse.d, gamma.d, dy.d, NULL, accumulate, dx.d);
    sg_array_assert_near(kernel, "batch_backward without sums", &dx, 1e-4);
    free_all((sg_array *const[]){&x, &y, &dy, &dx, &gamma, &beta, &mean, &variance, &inverse, &sums}, 10);
}

static void check_batch(const sg_kernel *kernel)
{
    static const sg_norm_shape shapes[] = {{0, 3, 4, 0},  {1, 1, 1, 0},   {2, 3, 1, 0},
                                           {5, 3, 49, 0}, {4, 7, 196, 0}, {33, 2, 5, 0}};
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_batch_of(kernel, &shapes[i], accumulate);
}

Test(norm, batches_agree_with_the_plain_loops)
{
    sg_for_each_table(check_batch);
}

static void check_rows_of(const sg_kernel *kernel, size_t rows, size_t cols, bool accumulate)
{
    const size_t n = rows * cols;
    sg_array x = sg_array_make("x", n, 2), y = sg_array_make("y", n, 1), dy = sg_array_make("dy", n, 1);
    sg_array dx = sg_array_make("dx", n, 1), gamma = sg_array_make("gamma", cols, 2);
    sg_array beta = sg_array_make("beta", cols, 1), dgamma = sg_array_make("dgamma", cols, 1);
    sg_array mean = sg_array_make("mean", rows, 1), inverse = sg_array_make("inverse", rows, 1);
    const sg_kernel_norm *k = kernel->norm, *truth = sg_kernel_ref_double()->norm;
    k->layer_forward(rows, cols, 0.1, x.f, gamma.f, beta.f, mean.f, inverse.f, y.f);
    truth->layer_forward(rows, cols, 0.1, x.d, gamma.d, beta.d, mean.d, inverse.d, y.d);
    sg_array_assert_near(kernel, "layer_forward", &y, 2e-5);
    k->layer_backward(rows, cols, x.f, mean.f, inverse.f, gamma.f, dy.f, accumulate, dx.f);
    truth->layer_backward(rows, cols, x.d, mean.d, inverse.d, gamma.d, dy.d, accumulate, dx.d);
    sg_array_assert_near(kernel, "layer_backward", &dx, 5e-5);
    k->layer_backward_gamma(rows, cols, x.f, mean.f, inverse.f, dy.f, accumulate, dgamma.f);
    truth->layer_backward_gamma(rows, cols, x.d, mean.d, inverse.d, dy.d, accumulate, dgamma.d);
    sg_array_assert_near(kernel, "layer_backward_gamma", &dgamma, 1e-6 * (double)(10 + rows));
    k->softmax(rows, cols, x.f, y.f);
    truth->softmax(rows, cols, x.d, y.d);
    sg_array_assert_near(kernel, "softmax", &y, 1e-6);
    k->softmax_backward(rows, cols, y.f, dy.f, accumulate, dx.f);
    truth->softmax_backward(rows, cols, y.d, dy.d, accumulate, dx.d);
    sg_array_assert_near(kernel, "softmax_backward", &dx, 1e-4);
    free_all((sg_array *const[]){&x, &y, &dy, &dx, &gamma, &beta, &dgamma, &mean, &inverse}, 9);
}

static void check_rows(const sg_kernel *kernel)
{
    static const size_t shapes[][2] = {{0, 3}, {1, 1}, {7, 1}, {1, 40}, {33, 17}};
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++)
        for (int accumulate = 0; accumulate < 2; accumulate++)
            check_rows_of(kernel, shapes[i][0], shapes[i][1], accumulate);
}

Test(norm, rows_agree_with_the_plain_loops)
{
    sg_for_each_table(check_rows);
}

static void check_moves(const sg_kernel *kernel)
{
    enum { planes = 3, height = 4, width = 5, factor = 3, n = planes * height * width };
    static const uint32_t ids[] = {2, 0, 2, 5};
    for (int accumulate = 0; accumulate < 2; accumulate++) {
        sg_array x = sg_array_make("x", n, 1), y = sg_array_make("y", (size_t)n * factor * factor, 1);
        sg_array dx = sg_array_make("dx", n, 1), rows = sg_array_make("rows", 40, 1);
        const sg_kernel_move *k = kernel->move, *truth = sg_kernel_ref_double()->move;
        k->upsample(planes, height, width, factor, x.f, y.f);
        truth->upsample(planes, height, width, factor, x.d, y.d);
        k->upsample_backward(planes, height, width, factor, y.f, accumulate, dx.f);
        truth->upsample_backward(planes, height, width, factor, y.d, accumulate, dx.d);
        k->rows(3, 5, x.f, 7, accumulate, rows.f, 9);
        truth->rows(3, 5, x.d, 7, accumulate, rows.d, 9);
        sg_array_assert_near(kernel, "upsample", &y, 0);
        sg_array_assert_near(kernel, "upsample_backward", &dx, 2e-6);
        sg_array_assert_near(kernel, "rows", &rows, 2e-7);
        k->gather(4, 10, x.f, ids, rows.f);
        truth->gather(4, 10, x.d, ids, rows.d);
        k->scatter(4, 6, 10, rows.f, ids, accumulate, dx.f);
        truth->scatter(4, 6, 10, rows.d, ids, accumulate, dx.d);
        sg_array_assert_near(kernel, "gather", &rows, 0);
        sg_array_assert_near(kernel, "scatter", &dx, 3e-6);
        k->fill_planes(2, 3, 10, accumulate ? rows.f : NULL, x.f);
        truth->fill_planes(2, 3, 10, accumulate ? rows.d : NULL, x.d);
        sg_array_assert_near(kernel, "fill_planes", &x, 0);
        free_all((sg_array *const[]){&x, &y, &dx, &rows}, 4);
    }
}

Test(norm, moved_elements_agree_with_the_plain_loops)
{
    sg_for_each_table(check_moves);
}
