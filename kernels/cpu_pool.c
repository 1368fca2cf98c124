/* kernels/cpu_pool.c - pooling. Windows of 2 x 2 that do not overlap, which most networks have, have loops of their own
 * that become vectors. */
#include <math.h>

#include "kernels/cpu.h"

/* Both directions of halving go through rows of the input's width, in two loops that are long enough for vectors: one
 * over a row, one over the pairs in as many rows as the buffers hold. */
#define HALVING_ELEMS ((size_t)1024)

static bool is_halving(const sg_pool_shape *s)
{
    return s->window == 2 && s->stride == 2 && s->padding == 0 && 2 * s->out_width <= HALVING_ELEMS;
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

typedef struct halves {
    float value[HALVING_ELEMS];
    int32_t lower[HALVING_ELEMS]; /* whether it is of the lower row: 2 or 0 */
    int32_t place[HALVING_ELEMS / 2];
} halves;

/* Output rows that fit into the buffers, of `left`. */
static size_t halving_rows(const sg_pool_shape *s, size_t left)
{
    const size_t n = HALVING_ELEMS / (2 * s->out_width);
    return n < left ? n : left;
}

SG_ISA_INLINE void max_of_rows(size_t n, const float *restrict above, const float *restrict below,
                               float *restrict value, int32_t *restrict lower)
{
    for (size_t i = 0; i < n; i++) {
        const bool larger = is_larger(below[i], above[i]);
        value[i] = larger ? below[i] : above[i];
        lower[i] = larger ? 2 : 0;
    }
}

SG_ISA_INLINE void max_of_pairs(size_t n, const float *restrict value, const int32_t *restrict lower, float *restrict y,
                                int32_t *restrict place)
{
    for (size_t i = 0; i < n; i++) {
        const float left = value[2 * i], right = value[2 * i + 1];
        const int32_t at_left = lower[2 * i], at_right = lower[2 * i + 1] + 1;
        const bool larger = is_larger(right, left) | ((right == left) & (at_right < at_left));
        y[i] = larger ? right : left;
        place[i] = larger ? at_right : at_left;
    }
}

SG_ISA_INLINE void max_halving(const sg_pool_shape *s, const float *restrict x, float *restrict y,
                               uint8_t *restrict place)
{
    halves h = {0};
    const size_t width = 2 * s->out_width;
    for (size_t p = 0; p < s->planes; p++, x += s->height * s->width) {
        size_t rows;
        for (size_t first = 0; first < s->out_height; first += rows) {
            rows = halving_rows(s, s->out_height - first);
            for (size_t r = 0; r < rows; r++) {
                const float *above = x + 2 * (first + r) * s->width;
                max_of_rows(width, above, above + s->width, h.value + r * width, h.lower + r * width);
            }
            const size_t n = rows * s->out_width;
            max_of_pairs(n, h.value, h.lower, y, h.place);
            for (size_t i = 0; i < n; i++)
                place[i] = (uint8_t)h.place[i];
            y += n;
            place += n;
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

SG_ISA_INLINE void pairs_of_places(size_t n, const float *restrict dy, const int32_t *restrict place,
                                   float *restrict value, int32_t *restrict lower)
{
    for (size_t i = 0; i < n; i++) {
        value[2 * i] = place[i] & 1 ? 0 : dy[i];
        value[2 * i + 1] = place[i] & 1 ? dy[i] : 0;
        lower[2 * i] = place[i] & 2;
        lower[2 * i + 1] = place[i] & 2;
    }
}

SG_ISA_INLINE void rows_of_pairs(size_t n, const float *restrict value, const int32_t *restrict lower, bool add,
                                 float *restrict above, float *restrict below)
{
    if (add) {
        for (size_t i = 0; i < n; i++) {
            above[i] += lower[i] ? 0 : value[i];
            below[i] += lower[i] ? value[i] : 0;
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            above[i] = lower[i] ? 0 : value[i];
            below[i] = lower[i] ? value[i] : 0;
        }
    }
}

SG_ISA_INLINE void max_backward_halving(const sg_pool_shape *s, const float *restrict dy, const uint8_t *restrict place,
                                        bool accumulate, float *restrict dx)
{
    halves h = {0};
    const size_t width = 2 * s->out_width;
    const bool covered = 2 * s->out_height == s->height && width == s->width; /* odd edges have no window */
    if (!accumulate && !covered)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    for (size_t p = 0; p < s->planes; p++, dx += s->height * s->width) {
        size_t rows;
        for (size_t first = 0; first < s->out_height; first += rows) {
            rows = halving_rows(s, s->out_height - first);
            const size_t n = rows * s->out_width;
            for (size_t i = 0; i < n; i++)
                h.place[i] = place[i];
            pairs_of_places(n, dy, h.place, h.value, h.lower);
            for (size_t r = 0; r < rows; r++) {
                float *above = dx + 2 * (first + r) * s->width;
                rows_of_pairs(width, h.value + r * width, h.lower + r * width, accumulate, above, above + s->width);
            }
            dy += n;
            place += n;
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
