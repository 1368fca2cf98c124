/* tests/kernels/test_blocks.c - what every table does with channels in blocks, for each block there is, against the
 * plain loops in double precision, which know C order alone. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(blocks, .timeout = 240);

/* a in blocks, by loops that are not those under test. The caller frees it. */
static float *in_blocks(const sg_array *a, size_t cols, size_t block)
{
    float *made = sg_xcalloc(a->n_elems + 1, sizeof *made);
    for (size_t i = 0; i < a->n_elems; i++) {
        const size_t row = i / cols, col = i % cols;
        made[(row / block * cols + col) * block + row % block] = a->f[i];
    }
    return made;
}

/* The other way: into a, where sg_array_assert_near finds it. Frees `made`. */
static void take(sg_array *a, size_t cols, size_t block, float *made)
{
    for (size_t i = 0; i < a->n_elems; i++) {
        const size_t row = i / cols, col = i % cols;
        a->f[i] = made[(row / block * cols + col) * block + row % block];
    }
    cr_assert(made[a->n_elems] == 0, "written behind the end");
    free(made);
}

static void free_all(sg_array *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sg_array_free(all[i]);
}

static void check_norm(const sg_kernel *kernel, size_t block, size_t images, size_t n_blocks, size_t plane,
                       bool accumulate)
{
    const size_t c = n_blocks * block, n = images * c * plane;
    const sg_norm_shape plain = {images, c, plane, 0}, s = {images, c, plane, block};
    sg_array x = sg_array_make("x", n, 2), y = sg_array_make("y", n, 1), dy = sg_array_make("dy", n, 1);
    sg_array dx = sg_array_make("dx", n, 1), gamma = sg_array_make("gamma", c, 2), beta = sg_array_make("beta", c, 1);
    sg_array mean = sg_array_make("mean", c, 1), variance = sg_array_make("variance", c, 1);
    sg_array inverse = sg_array_make("inverse", c, 1), sums = sg_array_make("sums", 2 * c, 1);
    sg_array plane_sums = sg_array_make("plane_sums", c, 1);
    float *bx = in_blocks(&x, plane, block), *bdy = in_blocks(&dy, plane, block), *by = in_blocks(&y, plane, block);
    float *bdx = in_blocks(&dx, plane, block);
    const sg_kernel_norm *k = kernel->blocks->norm, *truth = sg_kernel_ref_double()->norm;
    k->batch_statistics(&s, bx, mean.f, variance.f);
    truth->batch_statistics(&plain, x.d, mean.d, variance.d);
    truth->inverse_deviation(c, 0.1, variance.d, inverse.d);
    for (size_t i = 0; i < c; i++)
        inverse.f[i] = (float)inverse.d[i];
    k->batch_forward(&s, bx, mean.f, inverse.f, gamma.f, beta.f, accumulate, by);
    truth->batch_forward(&plain, x.d, mean.d, inverse.d, gamma.d, beta.d, accumulate, y.d);
    k->batch_sums(&s, bx, mean.f, inverse.f, bdy, sums.f);
    truth->batch_sums(&plain, x.d, mean.d, inverse.d, dy.d, sums.d);
    k->batch_backward(&s, bx, mean.f, inverse.f, gamma.f, bdy, accumulate ? NULL : sums.f, accumulate, bdx);
    truth->batch_backward(&plain, x.d, mean.d, inverse.d, gamma.d, dy.d, accumulate ? NULL : sums.d, accumulate, dx.d);
    kernel->blocks->plane_sums(&s, bdy, accumulate, plane_sums.f);
    sg_kernel_ref_double()->conv->plane_sums(images, c, plane, dy.d, accumulate, plane_sums.d);
    take(&y, plane, block, by);
    take(&dx, plane, block, bdx);
    sg_array_assert_near(kernel, "mean in blocks", &mean, 1e-6);
    sg_array_assert_near(kernel, "variance in blocks", &variance, 3e-6);
    sg_array_assert_near(kernel, "batch_forward in blocks", &y, 2e-5);
    sg_array_assert_near(kernel, "batch_sums in blocks", &sums, 1e-6 * (double)(10 + images * plane));
    sg_array_assert_near(kernel, "batch_backward in blocks", &dx, 5e-5);
    sg_array_assert_near(kernel, "plane_sums in blocks", &plane_sums, 4e-7 * (double)(2 + images * plane));
    free(bx);
    free(bdy);
    free_all((sg_array *const[]){&x, &y, &dy, &dx, &gamma, &beta, &mean, &variance, &inverse, &sums, &plane_sums}, 11);
}

/* images, blocks of channels, elements of a plane; some have more than one chunk of a sum */
static const size_t shapes[][3] = {{0, 1, 4}, {1, 1, 1}, {2, 3, 1}, {5, 1, 49}, {3, 2, 256}, {2, 1, 257}, {2, 2, 600}};

static void check_norms(const sg_kernel *kernel)
{
    for (size_t block = SG_BLOCK_MIN; kernel->blocks && block <= SG_BLOCK_MAX; block *= 2)
        for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++)
            for (int accumulate = 0; accumulate < 2; accumulate++)
                check_norm(kernel, block, shapes[i][0], shapes[i][1], shapes[i][2], accumulate);
}

Test(blocks, batches_are_normed_as_by_the_plain_loops)
{
    sg_for_each_table(check_norms);
}

static void check_order(const sg_kernel *kernel, size_t block, size_t rows, size_t cols, bool accumulate)
{
    sg_array x = sg_array_make("x", rows * cols, 1), y = sg_array_make("y", rows * cols, 1);
    sg_array means = sg_array_make("means", rows, 1), dx = sg_array_make("dx", rows * cols, 1);
    float *bx = in_blocks(&x, cols, block), *by = in_blocks(&y, cols, block), *bdx = in_blocks(&dx, cols, block);
    kernel->blocks->interleave(rows, cols, block, x.f, accumulate, by);
    kernel->blocks->separate(rows, cols, block, by, false, y.f);
    for (size_t i = 0; i < x.n_elems; i++)
        y.d[i] = (double)x.f[i] + (accumulate ? y.d[i] : 0);
    sg_array_assert_near(kernel, "interleave and separate", &y, 2e-7);
    take(&y, cols, block, by);
    sg_array_assert_near(kernel, "interleave", &y, 2e-7);
    kernel->blocks->separate(rows, cols, block, bx, accumulate, y.f);
    for (size_t i = 0; i < x.n_elems; i++)
        y.d[i] = (double)x.f[i] + (accumulate ? y.d[i] : 0);
    sg_array_assert_near(kernel, "separate", &y, 4e-7);
    kernel->blocks->row_means(rows, cols, block, bx, means.f);
    sg_kernel_ref_double()->pool->row_means(rows, cols, x.d, means.d);
    kernel->blocks->row_means_backward(rows, cols, block, means.f, accumulate, bdx);
    sg_kernel_ref_double()->pool->row_means_backward(rows, cols, means.d, accumulate, dx.d);
    take(&dx, cols, block, bdx);
    sg_array_assert_near(kernel, "row_means in blocks", &means, 1e-6);
    sg_array_assert_near(kernel, "row_means_backward in blocks", &dx, 1e-6);
    free(bx);
    free_all((sg_array *const[]){&x, &y, &means, &dx}, 4);
}

static void check_orders(const sg_kernel *kernel)
{
    for (size_t block = SG_BLOCK_MIN; kernel->blocks && block <= SG_BLOCK_MAX; block *= 2)
        for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++)
            for (int accumulate = 0; accumulate < 2; accumulate++)
                check_order(kernel, block, shapes[i][0] * shapes[i][1] * block, shapes[i][2], accumulate);
}

Test(blocks, what_is_interleaved_comes_apart_again_and_its_rows_have_the_same_means)
{
    sg_for_each_table(check_orders);
}

static sg_pool_shape shape_of(const size_t numbers[6], size_t block)
{
    sg_pool_shape s = {.planes = numbers[0] * block,
                       .height = numbers[1],
                       .width = numbers[2],
                       .window = numbers[3],
                       .stride = numbers[4],
                       .padding = numbers[5],
                       .block = block};
    s.out_height = sg_conv_out(s.height, s.window, s.stride, s.padding);
    s.out_width = sg_conv_out(s.width, s.window, s.stride, s.padding);
    return s;
}

/* planes / block, height, width, window, stride, padding */
static const size_t pools[][6] = {{0, 4, 4, 2, 2, 0}, {1, 1, 1, 1, 1, 0},    {3, 4, 4, 2, 2, 0}, {2, 5, 7, 2, 2, 0},
                                  {3, 6, 5, 3, 2, 1}, {1, 15, 16, 15, 4, 7}, {2, 4, 4, 2, 1, 1}, {1, 11, 3, 2, 5, 1}};

/* Places: which element of x is the largest shows in where the gradient goes. */
static void check_pool(const sg_kernel *kernel, const sg_pool_shape *s, bool accumulate)
{
    const size_t in = s->height * s->width, out = s->out_height * s->out_width, n_out = s->planes * out;
    sg_array x = sg_array_make("x", s->planes * in, 1), y = sg_array_make("y", n_out, 1);
    for (size_t i = 0; i < x.n_elems; i++) /* there are equals */
        x.d[i] = (double)(x.f[i] = roundf(x.f[i] * 4) / 4);
    sg_array dy = sg_array_make("dy", n_out, 1), dx = sg_array_make("dx", x.n_elems, 1);
    sg_array mean = sg_array_make("mean", n_out, 1), dmean = sg_array_make("dmean", x.n_elems, 1);
    uint8_t *place = sg_xcalloc(n_out + 1, 1), *want = sg_xcalloc(n_out + 1, 1);
    float *bx = in_blocks(&x, in, s->block), *by = in_blocks(&y, out, s->block), *bdy = in_blocks(&dy, out, s->block);
    float *bdx = in_blocks(&dx, in, s->block), *bmean = in_blocks(&mean, out, s->block);
    float *bdmean = in_blocks(&dmean, in, s->block);
    const sg_kernel_pool *k = kernel->blocks->pool, *truth = sg_kernel_ref_double()->pool;
    sg_pool_shape plain = *s;
    plain.block = 0;
    k->max(s, bx, by, place);
    k->max_backward(s, bdy, place, accumulate, bdx);
    k->average(s, bx, bmean);
    k->average_backward(s, bdy, accumulate, bdmean);
    truth->max(&plain, x.d, y.d, want);
    truth->max_backward(&plain, dy.d, want, accumulate, dx.d);
    truth->average(&plain, x.d, mean.d);
    truth->average_backward(&plain, dy.d, accumulate, dmean.d);
    take(&y, out, s->block, by);
    take(&dx, in, s->block, bdx);
    take(&mean, out, s->block, bmean);
    take(&dmean, in, s->block, bdmean);
    sg_array_assert_near(kernel, "max in blocks", &y, 0);
    sg_array_assert_near(kernel, "max_backward in blocks", &dx, 2e-6);
    sg_array_assert_near(kernel, "average in blocks", &mean, 1e-6);
    sg_array_assert_near(kernel, "average_backward in blocks", &dmean, 2e-6);
    cr_assert(place[n_out] == 0);
    free(bx), free(bdy), free(place), free(want);
    free_all((sg_array *const[]){&x, &y, &dy, &dx, &mean, &dmean}, 6);
}

static void check_pools(const sg_kernel *kernel)
{
    for (size_t block = SG_BLOCK_MIN; kernel->blocks && block <= SG_BLOCK_MAX; block *= 2)
        for (size_t i = 0; i < SG_ARRAY_LEN(pools); i++)
            for (int accumulate = 0; accumulate < 2; accumulate++) {
                const sg_pool_shape s = shape_of(pools[i], block);
                check_pool(kernel, &s, accumulate);
            }
}

Test(blocks, windows_are_pooled_as_by_the_plain_loops)
{
    sg_for_each_table(check_pools);
}

static void check_nan(const sg_kernel *kernel)
{
    for (size_t block = SG_BLOCK_MIN; kernel->blocks && block <= SG_BLOCK_MAX; block *= 2) {
        const sg_pool_shape s = shape_of((const size_t[]){1, 2, 2, 2, 2, 0}, block);
        float x[4 * SG_BLOCK_MAX], y[SG_BLOCK_MAX];
        uint8_t place[SG_BLOCK_MAX];
        for (size_t i = 0; i < SG_ARRAY_LEN(x); i++)
            x[i] = i / block == 1 ? NAN : 1e30F;
        kernel->blocks->pool->max(&s, x, y, place);
        for (size_t l = 0; l < block; l++)
            cr_assert(isnan(y[l]) && place[l] == 1, "%s", kernel->name);
    }
}

Test(blocks, a_window_with_a_nan_has_no_other_largest_element)
{
    sg_for_each_table(check_nan);
}
