/* kernels/cuda_norm.cu - normalisation; sums in double, as in ref_norm.c. */
#include "kernels/cuda_launch.h"

static __host__ __device__ real inverse_of(real variance, double epsilon)
{
    return (real)(1 / sqrt((double)variance + epsilon));
}

/* Element `i` of channel c: the i-th over images and planes. */
static __host__ __device__ size_t place_of(const sg_norm_shape &s, size_t c, size_t i)
{
    return (i / s.plane * s.channels + c) * s.plane + i % s.plane;
}

static __host__ __device__ double square(double x)
{
    return x * x;
}

static void batch_statistics(const sg_norm_shape *shape, const void *x, void *mean, void *variance)
{
    const sg_norm_shape s = *shape;
    const real *in = (const real *)x;
    real *means = (real *)mean, *variances = (real *)variance;
    const double n = (double)(s.images * s.plane);
    sg_cuda_each_row<sg_cuda_sum, sg_cuda_sum>(
        s.channels, s.images * s.plane,
        [=] __device__(size_t c, size_t i) { return sg_cuda_sum{(double)in[place_of(s, c, i)]}; },
        [=] __device__(size_t c, size_t i, sg_cuda_sum sum) {
            return sg_cuda_sum{square((double)in[place_of(s, c, i)] - sum.value / n)};
        },
        [=] __device__(size_t c, size_t i, sg_cuda_sum sum, sg_cuda_sum squares) {
            if (i > 0)
                return;
            means[c] = n > 0 ? (real)(sum.value / n) : 0;
            variances[c] = n > 0 ? (real)(squares.value / n) : 0;
        });
}

static void inverse_deviation(size_t channels, double epsilon, const void *variance, void *inverse)
{
    const real *in = (const real *)variance;
    real *out = (real *)inverse;
    sg_cuda_each(channels, [=] __device__(size_t c) { out[c] = inverse_of(in[c], epsilon); });
}

static void batch_forward(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse,
                          const void *gamma, const void *beta, bool relu, void *y)
{
    const sg_norm_shape s = *shape;
    const real *in = (const real *)x, *m = (const real *)mean, *inv = (const real *)inverse;
    const real *factor = (const real *)gamma, *shift = (const real *)beta;
    real *out = (real *)y;
    sg_cuda_each(s.images * s.channels * s.plane, [=] __device__(size_t i) {
        const size_t c = i / s.plane % s.channels;
        const real value = (in[i] - m[c]) * inv[c] * factor[c] + shift[c];
        out[i] = relu && value < 0 ? 0 : value;
    });
}

static void batch_sums(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse, const void *dy,
                       void *sums)
{
    const sg_norm_shape s = *shape;
    const real *in = (const real *)x, *m = (const real *)mean, *inv = (const real *)inverse, *g = (const real *)dy;
    real *out = (real *)sums;
    sg_cuda_each_sum<sg_cuda_sums>(
        s.channels, s.images * s.plane,
        [=] __device__(size_t c, size_t i) {
            const size_t at = place_of(s, c, i);
            return sg_cuda_sums{(double)g[at], (double)g[at] * (double)((in[at] - m[c]) * inv[c])};
        },
        [=] __device__(size_t c, sg_cuda_sums both) {
            out[c] = (real)both.first;
            out[s.channels + c] = (real)both.second;
        });
}

static void batch_backward(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx)
{
    const sg_norm_shape s = *shape;
    const real *in = (const real *)x, *m = (const real *)mean, *inv = (const real *)inverse;
    const real *factor = (const real *)gamma, *gradient = (const real *)dy, *both = (const real *)sums;
    const real n = (real)(s.images * s.plane);
    real *out = (real *)dx;
    sg_cuda_each(s.images * s.channels * s.plane, [=] __device__(size_t i) {
        const size_t c = i / s.plane % s.channels;
        real g = gradient[i];
        if (both)
            g -= (both[c] + (in[i] - m[c]) * inv[c] * both[s.channels + c]) / n;
        g *= factor[c] * inv[c];
        out[i] = accumulate ? out[i] + g : g;
    });
}

static void layer_forward(size_t rows, size_t cols, double epsilon, const void *x, const void *gamma, const void *beta,
                          void *mean, void *inverse, void *y)
{
    const real *in = (const real *)x, *factor = (const real *)gamma, *shift = (const real *)beta;
    real *means = (real *)mean, *inverses = (real *)inverse, *out = (real *)y;
    const double n = (double)cols;
    sg_cuda_each_row<sg_cuda_sum, sg_cuda_sum>(
        rows, cols, [=] __device__(size_t r, size_t c) { return sg_cuda_sum{(double)in[r * cols + c]}; },
        [=] __device__(size_t r, size_t c, sg_cuda_sum sum) {
            return sg_cuda_sum{square((double)in[r * cols + c] - sum.value / n)};
        },
        [=] __device__(size_t r, size_t c, sg_cuda_sum sum, sg_cuda_sum squares) {
            const real m = n > 0 ? (real)(sum.value / n) : 0;
            const real inv = inverse_of(n > 0 ? (real)(squares.value / n) : 0, epsilon);
            if (c == 0) {
                means[r] = m;
                inverses[r] = inv;
            }
            if (c < cols)
                out[r * cols + c] = (in[r * cols + c] - m) * inv * factor[c] + shift[c];
        });
}

/* The second sum of a row that needs but one. */
static __host__ __device__ sg_cuda_sum nothing(void)
{
    return {0};
}

static void layer_backward(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, bool accumulate, void *dx)
{
    const real *in = (const real *)x, *m = (const real *)mean, *inv = (const real *)inverse;
    const real *factor = (const real *)gamma, *g = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each_row<sg_cuda_sums, sg_cuda_sum>(
        rows, cols,
        [=] __device__(size_t r, size_t c) {
            const real scaled = g[r * cols + c] * factor[c];
            return sg_cuda_sums{(double)scaled, (double)(scaled * (in[r * cols + c] - m[r]) * inv[r])};
        },
        [=] __device__(size_t, size_t, sg_cuda_sums) { return nothing(); },
        [=] __device__(size_t r, size_t c, sg_cuda_sums both, sg_cuda_sum) {
            if (c >= cols)
                return;
            const size_t i = r * cols + c;
            const double normal = (double)((in[i] - m[r]) * inv[r]);
            const double centred = (double)(g[i] * factor[c]) - (both.first + normal * both.second) / (double)cols;
            const real d = (real)((double)inv[r] * centred);
            out[i] = accumulate ? out[i] + d : d;
        });
}

static void layer_backward_gamma(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                 const void *dy, bool accumulate, void *dgamma)
{
    const real *in = (const real *)x, *m = (const real *)mean, *inv = (const real *)inverse, *g = (const real *)dy;
    real *out = (real *)dgamma;
    sg_cuda_each_sum<sg_cuda_sum>(
        cols, rows,
        [=] __device__(size_t c, size_t r) {
            return sg_cuda_sum{(double)(g[r * cols + c] * (in[r * cols + c] - m[r]) * inv[r])};
        },
        [=] __device__(size_t c, sg_cuda_sum sum) { out[c] = (accumulate ? out[c] : 0) + (real)sum.value; });
}

static void softmax(size_t rows, size_t cols, const void *x, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each_row<sg_cuda_largest, sg_cuda_sum>(
        rows, cols, [=] __device__(size_t r, size_t c) { return sg_cuda_largest{in[r * cols + c]}; },
        [=] __device__(size_t r, size_t c, sg_cuda_largest max) {
            return sg_cuda_sum{exp((double)(in[r * cols + c] - max.value))};
        },
        [=] __device__(size_t r, size_t c, sg_cuda_largest max, sg_cuda_sum sum) {
            if (c < cols)
                out[r * cols + c] = (real)(exp((double)(in[r * cols + c] - max.value)) / sum.value);
        });
}

static void softmax_backward(size_t rows, size_t cols, const void *y, const void *dy, bool accumulate, void *dx)
{
    const real *p = (const real *)y, *g = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each_row<sg_cuda_sum, sg_cuda_sum>(
        rows, cols,
        [=] __device__(size_t r, size_t c) { return sg_cuda_sum{(double)(p[r * cols + c] * g[r * cols + c])}; },
        [=] __device__(size_t, size_t, sg_cuda_sum) { return nothing(); },
        [=] __device__(size_t r, size_t c, sg_cuda_sum sum, sg_cuda_sum) {
            if (c >= cols)
                return;
            const size_t i = r * cols + c;
            const real d = p[i] * (g[i] - (real)sum.value);
            out[i] = accumulate ? out[i] + d : d;
        });
}

const sg_kernel_norm sg_cuda_norm = {.batch_statistics = batch_statistics,
                                     .inverse_deviation = inverse_deviation,
                                     .batch_forward = batch_forward,
                                     .batch_sums = batch_sums,
                                     .batch_backward = batch_backward,
                                     .layer_forward = layer_forward,
                                     .layer_backward = layer_backward,
                                     .layer_backward_gamma = layer_backward_gamma,
                                     .softmax = softmax,
                                     .softmax_backward = softmax_backward};
