/* kernels/cuda_pool.cu - pooling. On the way back each element of dx looks for the windows that it lies in, in their
 * order: none writes into another's place. */
#include "kernels/cuda_launch.h"

/* The index in x of element `place` of the window of output element `out`; false if it lies in the padding. */
static __host__ __device__ bool find(const sg_pool_shape &s, size_t out, size_t place, size_t *index)
{
    const size_t plane = out / (s.out_height * s.out_width);
    const size_t y = out / s.out_width % s.out_height * s.stride + place / s.window; /* in the padded image */
    const size_t x = out % s.out_width * s.stride + place % s.window;
    if (y < s.padding || x < s.padding || y - s.padding >= s.height || x - s.padding >= s.width)
        return false;
    *index = (plane * s.height + y - s.padding) * s.width + x - s.padding;
    return true;
}

static size_t out_elems(const sg_pool_shape *s)
{
    return s->planes * s->out_height * s->out_width;
}

static void max(const sg_pool_shape *shape, const void *x, void *y, uint8_t *place)
{
    const sg_pool_shape s = *shape;
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each(out_elems(shape), [=] __device__(size_t o) {
        bool any = false;
        real best = 0;
        for (size_t i = 0; i < s.window * s.window; i++) {
            size_t at;
            if (!find(s, o, i, &at) || (any && !(in[at] > best || isnan(in[at]))))
                continue;
            any = true;
            best = in[at];
            place[o] = (uint8_t)i;
        }
        out[o] = best;
    });
}

/* The windows along one axis that hold the padded place `at`: [*first, *end) of `count`. */
static __host__ __device__ void windows_of(const sg_pool_shape &s, size_t at, size_t count, size_t *first, size_t *end)
{
    *first = at < s.window ? 0 : (at - s.window) / s.stride + 1;
    *end = at / s.stride + 1 < count ? at / s.stride + 1 : count;
}

/* What of dy comes to element i: of each window whose largest it is, or with place NULL of each that holds it. */
static __host__ __device__ real sum_of_windows(const sg_pool_shape &s, size_t i, const real *dy, const uint8_t *place)
{
    const size_t y = i / s.width % s.height + s.padding, x = i % s.width + s.padding;
    size_t first_y, end_y, first_x, end_x;
    windows_of(s, y, s.out_height, &first_y, &end_y);
    windows_of(s, x, s.out_width, &first_x, &end_x);
    real sum = 0;
    for (size_t oy = first_y; oy < end_y; oy++) {
        for (size_t ox = first_x; ox < end_x; ox++) {
            const size_t out = (i / (s.height * s.width) * s.out_height + oy) * s.out_width + ox;
            const size_t here = (y - oy * s.stride) * s.window + x - ox * s.stride;
            if (!place)
                sum += dy[out] / (real)(s.window * s.window);
            else if (place[out] == here)
                sum += dy[out];
        }
    }
    return sum;
}

static void backward(const sg_pool_shape *shape, const void *dy, const uint8_t *place, bool accumulate, void *dx)
{
    const sg_pool_shape s = *shape;
    const real *in = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each(s.planes * s.height * s.width,
                 [=] __device__(size_t i) { out[i] = (accumulate ? out[i] : 0) + sum_of_windows(s, i, in, place); });
}

static void average(const sg_pool_shape *shape, const void *x, void *y)
{
    const sg_pool_shape s = *shape;
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each(out_elems(shape), [=] __device__(size_t o) {
        real sum = 0;
        for (size_t i = 0; i < s.window * s.window; i++) {
            size_t at;
            if (find(s, o, i, &at))
                sum += in[at];
        }
        out[o] = sum / (real)(s.window * s.window);
    });
}

static void average_backward(const sg_pool_shape *s, const void *dy, bool accumulate, void *dx)
{
    backward(s, dy, NULL, accumulate, dx);
}

static void row_means(size_t rows, size_t cols, const void *x, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each_sum<sg_cuda_sum>(
        rows, cols, [=] __device__(size_t r, size_t c) { return sg_cuda_sum{(double)in[r * cols + c]}; },
        [=] __device__(size_t r, sg_cuda_sum sum) { out[r] = cols ? (real)(sum.value / (double)cols) : 0; });
}

static void row_means_backward(size_t rows, size_t cols, const void *dy, bool accumulate, void *dx)
{
    const real *in = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each(rows * cols, [=] __device__(size_t i) {
        const real g = in[i / cols] / (real)cols;
        out[i] = accumulate ? out[i] + g : g;
    });
}

const sg_kernel_pool sg_cuda_pool = {.max = max,
                                     .max_backward = backward,
                                     .average = average,
                                     .average_backward = average_backward,
                                     .row_means = row_means,
                                     .row_means_backward = row_means_backward};
