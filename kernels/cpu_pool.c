/* kernels/cpu_pool.c - pooling. Windows of 2 x 2 that do not overlap, which most networks have, have loops of their own
 * that become vectors. */
#include <math.h>

#include "kernels/cpu.h"

static bool is_halving(const sg_pool_shape *s)
{
    return s->window == 2 && s->stride == 2 && s->padding == 0;
}

/* Places lo to hi of the windows of output row or column `out` lie in the image, which is `size` wide. */
typedef struct range {
    size_t lo, hi;
    size_t first; /* element of the image at lo */
} range;

static range range_of(const sg_pool_shape *s, size_t out, size_t size)
{
    const size_t begin = out * s->stride; /* in the padded image */
    range r = {.lo = begin < s->padding ? s->padding - begin : 0};
    const size_t end = size + s->padding - begin; /* windows begin before the image ends */
    r.hi = end < s->window ? end : s->window;
    r.first = begin + r.lo - s->padding;
    return r;
}

/* A NaN is larger than all. */
SG_ISA_INLINE bool is_larger(float x, float than)
{
    return (x > than) | (x != x);
}

SG_ISA_INLINE void max_halving(const sg_pool_shape *s, const float *restrict x, float *restrict y,
                               uint8_t *restrict place)
{
    const size_t n = s->out_width;
    for (size_t p = 0; p < s->planes; p++) {
        for (size_t oy = 0; oy < s->out_height; oy++, y += n, place += n) {
            const float *restrict above = x + (p * s->height + 2 * oy) * s->width;
            const float *restrict below = above + s->width;
            for (size_t i = 0; i < n; i++) {
                const float a = above[2 * i], b = above[2 * i + 1], c = below[2 * i], d = below[2 * i + 1];
                const float ab = is_larger(b, a) ? b : a;
                const int at_ab = is_larger(b, a) ? 1 : 0;
                const float cd = is_larger(d, c) ? d : c;
                const int at_cd = is_larger(d, c) ? 3 : 2;
                y[i] = is_larger(cd, ab) ? cd : ab;
                place[i] = (uint8_t)(is_larger(cd, ab) ? at_cd : at_ab);
            }
        }
    }
}

SG_ISA_INLINE void max_loop(const sg_pool_shape *s, const float *x, float *y, uint8_t *place)
{
    if (is_halving(s)) {
        max_halving(s, x, y, place);
        return;
    }
    for (size_t p = 0; p < s->planes; p++, x += s->height * s->width) {
        for (size_t o = 0; o < s->out_height * s->out_width; o++, y++, place++) {
            const range row = range_of(s, o / s->out_width, s->height), col = range_of(s, o % s->out_width, s->width);
            float best = -INFINITY;
            size_t at = row.lo * s->window + col.lo;
            for (size_t ky = row.lo; ky < row.hi; ky++) {
                const float *from = x + (row.first + ky - row.lo) * s->width + col.first;
                for (size_t kx = col.lo; kx < col.hi; kx++) {
                    const bool larger = is_larger(from[kx - col.lo], best);
                    at = larger ? ky * s->window + kx : at;
                    best = larger ? from[kx - col.lo] : best;
                }
            }
            *y = best;
            *place = (uint8_t)at;
        }
    }
}

SG_ISA_INLINE void max_backward_halving(const sg_pool_shape *s, const float *restrict dy, const uint8_t *restrict place,
                                        bool accumulate, float *restrict dx)
{
    const size_t n = s->out_width;
    const bool covered = 2 * s->out_height == s->height && 2 * n == s->width; /* odd edges have no window */
    if (!accumulate && !covered)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    const bool add = accumulate;
    for (size_t p = 0; p < s->planes; p++) {
        for (size_t oy = 0; oy < s->out_height; oy++, dy += n, place += n) {
            float *restrict above = dx + (p * s->height + 2 * oy) * s->width;
            float *restrict below = above + s->width;
            for (size_t i = 0; i < n; i++) {
                const float g = dy[i];
                const int at = place[i];
                above[2 * i] = (at == 0 ? g : 0) + (add ? above[2 * i] : 0);
                above[2 * i + 1] = (at == 1 ? g : 0) + (add ? above[2 * i + 1] : 0);
                below[2 * i] = (at == 2 ? g : 0) + (add ? below[2 * i] : 0);
                below[2 * i + 1] = (at == 3 ? g : 0) + (add ? below[2 * i + 1] : 0);
            }
        }
    }
}

SG_ISA_INLINE void max_backward_loop(const sg_pool_shape *s, const float *dy, const uint8_t *place, bool accumulate,
                                     float *dx)
{
    if (is_halving(s)) {
        max_backward_halving(s, dy, place, accumulate, dx);
        return;
    }
    if (!accumulate)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    for (size_t p = 0; p < s->planes; p++, dx += s->height * s->width) {
        for (size_t o = 0; o < s->out_height * s->out_width; o++, dy++, place++) {
            const size_t y = o / s->out_width * s->stride + *place / s->window - s->padding;
            const size_t x = o % s->out_width * s->stride + *place % s->window - s->padding;
            dx[y * s->width + x] += *dy;
        }
    }
}

SG_ISA_INLINE void average_loop(const sg_pool_shape *s, const float *x, float *y)
{
    const float scale = 1.0F / (float)(s->window * s->window);
    for (size_t p = 0; p < s->planes; p++, x += s->height * s->width) {
        for (size_t o = 0; o < s->out_height * s->out_width; o++, y++) {
            const range row = range_of(s, o / s->out_width, s->height), col = range_of(s, o % s->out_width, s->width);
            float sum = 0;
            for (size_t i = 0; i < row.hi - row.lo; i++)
                for (size_t j = 0; j < col.hi - col.lo; j++)
                    sum += x[(row.first + i) * s->width + col.first + j];
            *y = sum * scale;
        }
    }
}

SG_ISA_INLINE void average_backward_loop(const sg_pool_shape *s, const float *dy, bool accumulate, float *dx)
{
    const float scale = 1.0F / (float)(s->window * s->window);
    if (!accumulate)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    for (size_t p = 0; p < s->planes; p++, dx += s->height * s->width) {
        for (size_t o = 0; o < s->out_height * s->out_width; o++, dy++) {
            const range row = range_of(s, o / s->out_width, s->height), col = range_of(s, o % s->out_width, s->width);
            for (size_t i = 0; i < row.hi - row.lo; i++)
                for (size_t j = 0; j < col.hi - col.lo; j++)
                    dx[(row.first + i) * s->width + col.first + j] += *dy * scale;
        }
    }
}

SG_ISA_INLINE void row_means_loop(size_t rows, size_t cols, const float *x, float *y)
{
    for (size_t r = 0; r < rows; r++)
        y[r] = cols ? (float)(sg_cpu_sum(cols, x + r * cols) / (double)cols) : 0;
}

SG_ISA_INLINE void row_means_backward_loop(size_t rows, size_t cols, const float *dy, bool accumulate, float *dx)
{
    for (size_t r = 0; r < rows; r++, dx += cols) {
        const float g = dy[r] / (float)cols;
        for (size_t c = 0; c < cols; c++)
            dx[c] = g + (accumulate ? dx[c] : 0);
    }
}

/* clang-format off */
#define VARIANT(name_, target)                                                                                         \
    target static void max_##name_(const sg_pool_shape *s, const void *x, void *y, uint8_t *place)                     \
    { max_loop(s, x, y, place); }                                                                                      \
    target static void max_backward_##name_(const sg_pool_shape *s, const void *dy, const uint8_t *place,              \
                                            bool accumulate, void *dx)                                                 \
    { max_backward_loop(s, dy, place, accumulate, dx); }                                                               \
    target static void average_##name_(const sg_pool_shape *s, const void *x, void *y)                                 \
    { average_loop(s, x, y); }                                                                                         \
    target static void average_backward_##name_(const sg_pool_shape *s, const void *dy, bool accumulate, void *dx)     \
    { average_backward_loop(s, dy, accumulate, dx); }                                                                  \
    target static void row_means_##name_(size_t rows, size_t cols, const void *x, void *y)                             \
    { row_means_loop(rows, cols, x, y); }                                                                              \
    target static void row_means_backward_##name_(size_t rows, size_t cols, const void *dy, bool accumulate, void *dx) \
    { row_means_backward_loop(rows, cols, dy, accumulate, dx); }                                                       \
    const sg_kernel_pool sg_cpu_pool_##name_ = {                                                                       \
        .max = max_##name_, .max_backward = max_backward_##name_, .average = average_##name_,                          \
        .average_backward = average_backward_##name_, .row_means = row_means_##name_,                                  \
        .row_means_backward = row_means_backward_##name_,                                                              \
    };
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)
