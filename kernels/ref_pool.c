/* kernels/ref_pool.c - pooling in plain loops. */
#include <math.h>

#include "kernels/ref.h"

/* The index in x of element `place` of the window of output element `out`; false if it lies in the padding. */
static bool find(const sg_pool_shape *s, size_t out, size_t place, size_t *index)
{
    const size_t plane = out / (s->out_height * s->out_width);
    const size_t y = out / s->out_width % s->out_height * s->stride + place / s->window; /* in the padded image */
    const size_t x = out % s->out_width * s->stride + place % s->window;
    if (y < s->padding || x < s->padding || y - s->padding >= s->height || x - s->padding >= s->width)
        return false;
    *index = (plane * s->height + y - s->padding) * s->width + x - s->padding;
    return true;
}

static size_t out_elems(const sg_pool_shape *s)
{
    return s->planes * s->out_height * s->out_width;
}

static void clear(const sg_pool_shape *s, bool accumulate, real *dx)
{
    for (size_t i = 0; !accumulate && i < s->planes * s->height * s->width; i++)
        dx[i] = 0;
}

static void max(const sg_pool_shape *s, const void *x, void *y, uint8_t *place)
{
    const real *in = x;
    for (size_t o = 0; o < out_elems(s); o++) {
        bool any = false;
        real best = 0;
        for (size_t i = 0; i < s->window * s->window; i++) {
            size_t at;
            if (!find(s, o, i, &at) || (any && !(in[at] > best || isnan(in[at]))))
                continue;
            any = true;
            best = in[at];
            place[o] = (uint8_t)i;
        }
        ((real *)y)[o] = best;
    }
}

static void max_backward(const sg_pool_shape *s, const void *dy, const uint8_t *place, bool accumulate, void *dx)
{
    clear(s, accumulate, dx);
    for (size_t o = 0; o < out_elems(s); o++) {
        size_t at;
        if (find(s, o, place[o], &at))
            ((real *)dx)[at] += ((const real *)dy)[o];
    }
}

static void average(const sg_pool_shape *s, const void *x, void *y)
{
    for (size_t o = 0; o < out_elems(s); o++) {
        real sum = 0;
        for (size_t i = 0; i < s->window * s->window; i++) {
            size_t at;
            if (find(s, o, i, &at))
                sum += ((const real *)x)[at];
        }
        ((real *)y)[o] = sum / (real)(s->window * s->window);
    }
}

static void average_backward(const sg_pool_shape *s, const void *dy, bool accumulate, void *dx)
{
    clear(s, accumulate, dx);
    for (size_t o = 0; o < out_elems(s); o++) {
        for (size_t i = 0; i < s->window * s->window; i++) {
            size_t at;
            if (find(s, o, i, &at))
                ((real *)dx)[at] += ((const real *)dy)[o] / (real)(s->window * s->window);
        }
    }
}

static void row_means(size_t rows, size_t cols, const void *x, void *y)
{
    const real *in = x;
    for (size_t r = 0; r < rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < cols; c++)
            sum += (double)in[r * cols + c];
        ((real *)y)[r] = cols ? (real)(sum / (double)cols) : 0;
    }
}

static void row_means_backward(size_t rows, size_t cols, const void *dy, bool accumulate, void *dx)
{
    real *out = dx;
    for (size_t i = 0; i < rows * cols; i++) {
        const real g = ((const real *)dy)[i / cols] / (real)cols;
        out[i] = accumulate ? out[i] + g : g;
    }
}

const sg_kernel_pool SG_REF_NAME(sg_ref_pool_) = {.max = max,
                                                  .max_backward = max_backward,
                                                  .average = average,
                                                  .average_backward = average_backward,
                                                  .row_means = row_means,
                                                  .row_means_backward = row_means_backward};
