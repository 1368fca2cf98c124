/* kernels/ref_norm.c - normalisation in plain loops; sums in double. */
#include <math.h>

#include "kernels/ref.h"

static size_t n_elems_of(const sg_norm_shape *s)
{
    return s->images * s->channels * s->plane;
}

/* Whose mean element i belongs to. */
static size_t channel_of(const sg_norm_shape *s, size_t i)
{
    return i / s->plane % s->channels;
}

/* Element `i` of channel c: the i-th over images and planes. */
static size_t place_of(const sg_norm_shape *s, size_t c, size_t i)
{
    return (i / s->plane * s->channels + c) * s->plane + i % s->plane;
}

static void batch_statistics(const sg_norm_shape *s, const void *x, void *mean, void *variance)
{
    const real *in = x;
    const size_t n = s->images * s->plane;
    for (size_t c = 0; c < s->channels; c++) {
        double sum = 0, squares = 0;
        for (size_t i = 0; i < n; i++)
            sum += (double)in[place_of(s, c, i)];
        const double m = n ? sum / (double)n : 0;
        for (size_t i = 0; i < n; i++)
            squares += ((double)in[place_of(s, c, i)] - m) * ((double)in[place_of(s, c, i)] - m);
        ((real *)mean)[c] = (real)m;
        ((real *)variance)[c] = n ? (real)(squares / (double)n) : 0;
    }
}

static void inverse_deviation(size_t channels, double epsilon, const void *variance, void *inverse)
{
    for (size_t c = 0; c < channels; c++)
        ((real *)inverse)[c] = (real)(1 / sqrt((double)((const real *)variance)[c] + epsilon));
}

static void batch_forward(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,
                          const void *gamma, const void *beta, bool relu, void *y)
{
    for (size_t i = 0; i < n_elems_of(s); i++) {
        const size_t c = channel_of(s, i);
        const real normal = (((const real *)x)[i] - ((const real *)mean)[c]) * ((const real *)inverse)[c];
        const real out = normal * ((const real *)gamma)[c] + ((const real *)beta)[c];
        ((real *)y)[i] = relu && out < 0 ? 0 : out;
    }
}

static void batch_sums(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse, const void *dy,
                       void *sums)
{
    const real *in = x, *g = dy;
    real *out = sums;
    for (size_t c = 0; c < s->channels; c++) {
        double sum = 0, products = 0;
        for (size_t i = 0; i < s->images * s->plane; i++) {
            const size_t at = place_of(s, c, i);
            sum += (double)g[at];
            products += (double)g[at] * (double)((in[at] - ((const real *)mean)[c]) * ((const real *)inverse)[c]);
        }
        out[c] = (real)sum;
        out[s->channels + c] = (real)products;
    }
}

static void batch_backward(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx)
{
    const real m = (real)(s->images * s->plane);
    real *out = dx;
    for (size_t i = 0; i < n_elems_of(s); i++) {
        const size_t c = channel_of(s, i);
        const real factor = ((const real *)inverse)[c];
        real g = ((const real *)dy)[i];
        if (sums) {
            const real normal = (((const real *)x)[i] - ((const real *)mean)[c]) * factor;
            g -= (((const real *)sums)[c] + normal * ((const real *)sums)[s->channels + c]) / m;
        }
        g *= ((const real *)gamma)[c] * factor;
        out[i] = accumulate ? out[i] + g : g;
    }
}

static void layer_forward(size_t rows, size_t cols, double epsilon, const void *x, const void *gamma, const void *beta,
                          void *mean, void *inverse, void *y)
{
    for (size_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * cols;
        const sg_norm_shape row = {.images = 1, .channels = 1, .plane = cols};
        real variance;
        batch_statistics(&row, in, (real *)mean + r, &variance);
        inverse_deviation(1, epsilon, &variance, (real *)inverse + r);
        for (size_t c = 0; c < cols; c++)
            ((real *)y)[r * cols + c] =
                (in[c] - ((real *)mean)[r]) * ((real *)inverse)[r] * ((const real *)gamma)[c] + ((const real *)beta)[c];
    }
}

static void layer_backward(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, bool accumulate, void *dx)
{
    for (size_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * cols, *g = (const real *)dy + r * cols, *factor = gamma;
        real *out = (real *)dx + r * cols;
        const real m = ((const real *)mean)[r], inv = ((const real *)inverse)[r];
        double sum = 0, products = 0;
        for (size_t c = 0; c < cols; c++) {
            sum += (double)(g[c] * factor[c]);
            products += (double)(g[c] * factor[c] * (in[c] - m) * inv);
        }
        for (size_t c = 0; c < cols; c++) {
            const double normal = (double)((in[c] - m) * inv);
            const real d =
                (real)((double)inv * ((double)(g[c] * factor[c]) - (sum + normal * products) / (double)cols));
            out[c] = accumulate ? out[c] + d : d;
        }
    }
}

static void layer_backward_gamma(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                 const void *dy, bool accumulate, void *dgamma)
{
    real *out = dgamma;
    for (size_t c = 0; c < cols; c++) {
        double sum = 0;
        for (size_t r = 0; r < rows; r++)
            sum += (double)(((const real *)dy)[r * cols + c] *
                            (((const real *)x)[r * cols + c] - ((const real *)mean)[r]) * ((const real *)inverse)[r]);
        out[c] = accumulate ? out[c] + (real)sum : (real)sum;
    }
}

static void softmax(size_t rows, size_t cols, const void *x, void *y)
{
    for (size_t r = 0; r < rows; r++) {
        const real *in = (const real *)x + r * cols;
        real *out = (real *)y + r * cols;
        double sum = 0;
        real max = cols ? in[0] : 0;
        for (size_t c = 1; c < cols; c++)
            max = in[c] > max ? in[c] : max;
        for (size_t c = 0; c < cols; c++)
            sum += exp((double)(in[c] - max));
        for (size_t c = 0; c < cols; c++)
            out[c] = (real)(exp((double)(in[c] - max)) / sum);
    }
}

static void softmax_backward(size_t rows, size_t cols, const void *y, const void *dy, bool accumulate, void *dx)
{
    for (size_t r = 0; r < rows; r++) {
        const real *p = (const real *)y + r * cols, *g = (const real *)dy + r * cols;
        real *out = (real *)dx + r * cols;
        double sum = 0;
        for (size_t c = 0; c < cols; c++)
            sum += (double)(p[c] * g[c]);
        for (size_t c = 0; c < cols; c++) {
            const real d = p[c] * (g[c] - (real)sum);
            out[c] = accumulate ? out[c] + d : d;
        }
    }
}

const sg_kernel_norm SG_REF_NAME(sg_ref_norm_) = {.batch_statistics = batch_statistics,
                                                  .inverse_deviation = inverse_deviation,
                                                  .batch_forward = batch_forward,
                                                  .batch_sums = batch_sums,
                                                  .batch_backward = batch_backward,
                                                  .layer_forward = layer_forward,
                                                  .layer_backward = layer_backward,
                                                  .layer_backward_gamma = layer_backward_gamma,
                                                  .softmax = softmax,
                                                  .softmax_backward = softmax_backward};
