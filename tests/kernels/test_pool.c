/* tests/kernels/test_pool.c - pooling of every table against the plain loops in double precision. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(pool, .timeout = 240);

static sg_pool_shape shape_of(const size_t numbers[6])
{
    sg_pool_shape s = {.planes = numbers[0],
                       .height = numbers[1],
                       .width = numbers[2],
                       .window = numbers[3],
                       .stride = numbers[4],
                       .padding = numbers[5]};
    s.out_height = sg_conv_out(s.height, s.window, s.stride, s.padding);
    s.out_width = sg_conv_out(s.width, s.window, s.stride, s.padding);
    return s;
}

/* planes, height, width, window, stride, padding */
static const size_t shapes[][6] = {{0, 4, 4, 2, 2, 0},   {1, 1, 1, 1, 1, 0},    {3, 4, 4, 2, 2, 0}, {5, 5, 7, 2, 2, 0},
                                   {7, 24, 24, 2, 2, 0}, {2, 6, 666, 2, 2, 0},  {3, 6, 5, 3, 2, 1}, {2, 7, 7, 3, 1, 1},
                                   {2, 9, 9, 3, 3, 0},   {1, 15, 16, 15, 4, 7}, {2, 4, 4, 2, 1, 1}, {1, 11, 3, 2, 5, 1},
                                   {1, 2, 3000, 2, 2, 0}};

static void check_max(const sg_kernel *kernel, const sg_pool_shape *s, bool accumulate)
{
    const size_t n_out = s->planes * s->out_height * s->out_width;
    sg_array x = sg_array_make("x", s->planes * s->height * s->width, 1);
    for (size_t i = 0; i < x.n_elems; i++) /* there are equals */
        x.d[i] = (double)(x.f[i] = roundf(x.f[i] * 4) / 4);
    sg_array y = sg_array_make("y", n_out, 1), dy = sg_array_make("dy", n_out, 1);
    sg_array dx = sg_array_make("dx", x.n_elems, 1);
    uint8_t *place = sg_xcalloc(n_out + 1, 1), *want = sg_xcalloc(n_out + 1, 1);
    place[n_out] = want[n_out] = 77;
    kernel->pool->max(s, x.f, y.f, place);
    kernel->pool->max_backward(s, dy.f, place, accumulate, dx.f);
    const sg_kernel *truth = sg_kernel_ref_double();
    truth->pool->max(s, x.d, y.d, want);
    truth->pool->max_backward(s, dy.d, want, accumulate, dx.d);
    sg_array_assert_near(kernel, "max", &y, 0);
    cr_assert(memcmp(place, want, n_out + 1) == 0, "%s: other places", kernel->name);
    sg_array_assert_near(kernel, "max_backward", &dx, 2e-6);
    sg_array *const all[] = {&x, &y, &dy, &dx};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_array_free(all[i]);
    free(place);
    free(want);
}

static void check_average(const sg_kernel *kernel, const sg_pool_shape *s, bool accumulate)
{
    const size_t n_out = s->planes * s->out_height * s->out_width, plane = s->height * s->width;
    sg_array x = sg_array_make("x", s->planes * plane, 1), dx = sg_array_make("dx", s->planes * plane, 1);
    sg_array y = sg_array_make("y", n_out, 1), dy = sg_array_make("dy", n_out, 1);
    sg_array means = sg_array_make("means", s->planes, 1);
    sg_array dmeans = sg_array_make("dmeans", s->planes * plane, 1);
    kernel->pool->average(s, x.f, y.f);
    kernel->pool->average_backward(s, dy.f, accumulate, dx.f);
    kernel->pool->row_means(s->planes, plane, x.f, means.f);
    kernel->pool->row_means_backward(s->planes, plane, means.f, accumulate, dmeans.f);
    const sg_kernel_pool *truth = sg_kernel_ref_double()->pool;
    truth->average(s, x.d, y.d);
    truth->average_backward(s, dy.d, accumulate, dx.d);
    truth->row_means(s->planes, plane, x.d, means.d);
    truth->row_means_backward(s->planes, plane, means.d, accumulate, dmeans.d);
    sg_array_assert_near(kernel, "average", &y, 1e-6);
    sg_array_assert_near(kernel, "average_backward", &dx, 2e-6);
    sg_array_assert_near(kernel, "row_means", &means, 1e-6);
    sg_array_assert_near(kernel, "row_means_backward", &dmeans, 1e-6);
    sg_array *const all[] = {&x, &dx, &y, &dy, &means, &dmeans};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_array_free(all[i]);
}

static void check_shapes(const sg_kernel *kernel)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++) {
        const sg_pool_shape s = shape_of(shapes[i]);
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            check_max(kernel, &s, accumulate);
            check_average(kernel, &s, accumulate);
        }
    }
}

Test(pool, every_table_agrees_with_the_plain_loops)
{
    sg_for_each_table(check_shapes);
}

Test(pool, the_plain_loops_give_what_is_computed_by_hand)
{
    /* 1 5 2        windows of 2, stride 1 */
    /* 5 0 2 */
    const double x[] = {1, 5, 2, 5, 0, 2}, dy[] = {10, 20};
    const sg_pool_shape s = shape_of((const size_t[]){1, 2, 3, 2, 1, 0});
    const sg_kernel_pool *pool = sg_kernel_ref_double()->pool;
    double y[2], dx[6];
    uint8_t place[2];
    pool->max(&s, x, y, place);
    cr_assert(y[0] == 5 && y[1] == 5 && place[0] == 1 && place[1] == 0);
    pool->max_backward(&s, dy, place, false, dx);
    cr_assert_arr_eq(dx, ((const double[]){0, 30, 0, 0, 0, 0}), sizeof dx);
    pool->average(&s, x, y);
    cr_assert(y[0] == 2.75 && y[1] == 2.25);
    pool->average_backward(&s, dy, false, dx);
    cr_assert_arr_eq(dx, ((const double[]){2.5, 7.5, 5, 2.5, 7.5, 5}), sizeof dx);
}

static void check_nan(const sg_kernel *kernel)
{
    const sg_pool_shape halving = shape_of((const size_t[]){1, 2, 2, 2, 2, 0});
    const sg_pool_shape other = shape_of((const size_t[]){1, 2, 2, 2, 1, 0});
    for (size_t at = 0; at < 4; at++) {
        float x[] = {1, 2, 3, 4}, y = 0;
        uint8_t place = 9;
        x[at] = NAN;
        kernel->pool->max(&halving, x, &y, &place);
        cr_assert(isnan(y) && place == at, "%s, place %zu", kernel->name, at);
        kernel->pool->max(&other, x, &y, &place);
        cr_assert(isnan(y) && place == at, "%s, place %zu", kernel->name, at);
    }
}

Test(pool, a_nan_is_not_lost)
{
    sg_for_each_table(check_nan);
}
