/* kernels/cpu_norm.c - batch norm in vectors, plane by plane. Layer norm and softmax are those of the plain loops. */
#include <math.h>

#include "kernels/cpu.h"

enum { n_lanes = 16 };

static const float *plane_at(const sg_norm_shape *s, const float *x, size_t image, size_t channel)
{
    return x + (image * s->channels + channel) * s->plane;
}

/* Sums over a plane of distance^2, where distance = x - mean. */
SG_ISA_INLINE double squares_of_chunk(size_t n, const float *x, float mean)
{
    float lanes[n_lanes] = {0};
    size_t i = 0;
    for (; i + n_lanes <= n; i += n_lanes)
        for (size_t l = 0; l < n_lanes; l++)
            lanes[l] += (x[i + l] - mean) * (x[i + l] - mean);
    double sum = 0;
    for (; i < n; i++)
        sum += (double)(x[i] - mean) * (double)(x[i] - mean);
    for (size_t l = 0; l < n_lanes; l++)
        sum += (double)lanes[l];
    return sum;
}

/* Of dy * distance. */
SG_ISA_INLINE double products_of_chunk(size_t n, const float *x, const float *dy, float mean)
{
    float lanes[n_lanes] = {0};
    size_t i = 0;
    for (; i + n_lanes <= n; i += n_lanes)
        for (size_t l = 0; l < n_lanes; l++)
            lanes[l] += dy[i + l] * (x[i + l] - mean);
    double sum = 0;
    for (; i < n; i++)
        sum += (double)dy[i] * (double)(x[i] - mean);
    for (size_t l = 0; l < n_lanes; l++)
        sum += (double)lanes[l];
    return sum;
}

SG_ISA_INLINE double squares_of(size_t n, const float *x, float mean)
{
    double sum = 0;
    for (size_t done = 0; done < n; done += SG_CPU_CHUNK)
        sum += squares_of_chunk(sg_cpu_chunk_at(n, done), x + done, mean);
    return sum;
}

SG_ISA_INLINE double products_of(size_t n, const float *x, const float *dy, float mean)
{
    double sum = 0;
    for (size_t done = 0; done < n; done += SG_CPU_CHUNK)
        sum += products_of_chunk(sg_cpu_chunk_at(n, done), x + done, dy + done, mean);
    return sum;
}

SG_ISA_INLINE void statistics_loop(const sg_norm_shape *s, const float *x, float *mean, float *variance)
{
    const double n = (double)(s->images * s->plane);
    for (size_t c = 0; c < s->channels; c++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < s->images; i++)
            sum += sg_cpu_sum(s->plane, plane_at(s, x, i, c));
        mean[c] = n > 0 ? (float)(sum / n) : 0;
        for (size_t i = 0; i < s->images; i++)
            squares += squares_of(s->plane, plane_at(s, x, i, c), mean[c]);
        variance[c] = n > 0 ? (float)(squares / n) : 0;
    }
}

SG_ISA_INLINE void forward_loop(const sg_norm_shape *s, const float *x, const float *mean, const float *inverse,
                                const float *gamma, const float *beta, bool relu, float *restrict y)
{
    for (size_t i = 0; i < s->images * s->channels; i++, y += s->plane) {
        const size_t c = i % s->channels;
        const float scale = inverse[c] * gamma[c], m = mean[c], b = beta[c];
        const float *restrict in = x + i * s->plane;
        if (relu)
            for (size_t p = 0; p < s->plane; p++) {
                const float out = (in[p] - m) * scale + b;
                y[p] = out < 0 ? 0 : out;
            }
        else
            for (size_t p = 0; p < s->plane; p++)
                y[p] = (in[p] - m) * scale + b;
    }
}

SG_ISA_INLINE void sums_loop(const sg_norm_shape *s, const float *x, const float *mean, const float *inverse,
                             const float *dy, float *sums)
{
    for (size_t c = 0; c < s->channels; c++) {
        double sum = 0, products = 0;
        for (size_t i = 0; i < s->images; i++) {
            sum += sg_cpu_sum(s->plane, plane_at(s, dy, i, c));
            products += products_of(s->plane, plane_at(s, x, i, c), plane_at(s, dy, i, c), mean[c]);
        }
        sums[c] = (float)sum;
        sums[s->channels + c] = (float)(products * (double)inverse[c]);
    }
}

SG_ISA_INLINE void backward_loop(const sg_norm_shape *s, const float *x, const float *mean, const float *inverse,
                                 const float *gamma, const float *dy, const float *sums, bool accumulate,
                                 float *restrict dx)
{
    const float m = (float)(s->images * s->plane);
    for (size_t i = 0; i < s->images * s->channels; i++, dx += s->plane) {
        const size_t c = i % s->channels;
        const float scale = gamma[c] * inverse[c], center = mean[c];
        const float constant = sums ? -scale * sums[c] / m : 0;
        const float slope = sums ? -scale * inverse[c] * sums[s->channels + c] / m : 0;
        const float *restrict in = x + i * s->plane, *restrict g = dy + i * s->plane;
        if (accumulate)
            for (size_t p = 0; p < s->plane; p++)
                dx[p] += g[p] * scale + (in[p] - center) * slope + constant;
        else
            for (size_t p = 0; p < s->plane; p++)
                dx[p] = g[p] * scale + (in[p] - center) * slope + constant;
    }
}

static void inverse_deviation(size_t channels, double epsilon, const void *variance, void *inverse)
{
    sg_ref_norm_float.inverse_deviation(channels, epsilon, variance, inverse);
}

static void layer_forward(size_t rows, size_t cols, double epsilon, const void *x, const void *gamma, const void *beta,
                          void *mean, void *inverse, void *y)
{
    sg_ref_norm_float.layer_forward(rows, cols, epsilon, x, gamma, beta, mean, inverse, y);
}

static void layer_backward(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, bool accumulate, void *dx)
{
    sg_ref_norm_float.layer_backward(rows, cols, x, mean, inverse, gamma, dy, accumulate, dx);
}

static void layer_backward_gamma(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                 const void *dy, bool accumulate, void *dgamma)
{
    sg_ref_norm_float.layer_backward_gamma(rows, cols, x, mean, inverse, dy, accumulate, dgamma);
}

static void softmax(size_t rows, size_t cols, const void *x, void *y)
{
    sg_ref_norm_float.softmax(rows, cols, x, y);
}

static void softmax_backward(size_t rows, size_t cols, const void *y, const void *dy, bool accumulate, void *dx)
{
    sg_ref_norm_float.softmax_backward(rows, cols, y, dy, accumulate, dx);
}

/* clang-format off */
#define VARIANT(name_, target)                                                                                         \
    target static void statistics_##name_(const sg_norm_shape *s, const void *x, void *mean, void *variance)           \
    { statistics_loop(s, x, mean, variance); }                                                                         \
    target static void forward_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,   \
                                       const void *gamma, const void *beta, bool relu, void *y)                        \
    { forward_loop(s, x, mean, inverse, gamma, beta, relu, y); }                                                       \
    target static void sums_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,      \
                                    const void *dy, void *sums)                                                        \
    { sums_loop(s, x, mean, inverse, dy, sums); }                                                                      \
    target static void backward_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,  \
                                        const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx)\
    { backward_loop(s, x, mean, inverse, gamma, dy, sums, accumulate, dx); }                                           \
    const sg_kernel_norm sg_cpu_norm_##name_ = {                                                                       \
        .batch_statistics = statistics_##name_, .inverse_deviation = inverse_deviation,                                \
        .batch_forward = forward_##name_, .batch_sums = sums_##name_, .batch_backward = backward_##name_,              \
        .layer_forward = layer_forward, .layer_backward = layer_backward,                                              \
        .layer_backward_gamma = layer_backward_gamma, .softmax = softmax, .softmax_backward = softmax_backward,        \
    };
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)
