/* kernels/block_pool.c - pooling over images whose channels lie in blocks, see blocks.c. */
#include <math.h>

#include "common/status.h"
#include "kernels/cpu.h"

/* The part of a window that lies in the image: places lo to hi of its rows or columns, the first at element `first`. */
typedef struct range {
    size_t lo, hi, first;
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

/* A window of one block, and where its result lies. */
typedef struct window {
    range row, col;
    size_t x, y; /* elements, of its first place in the image and of the result */
} window;

static window window_at(size_t b, const sg_pool_shape *s, size_t index)
{
    const size_t out = index % (s->out_height * s->out_width), plane = index / (s->out_height * s->out_width);
    window w = {.row = range_of(s, out / s->out_width, s->height), .col = range_of(s, out % s->out_width, s->width)};
    w.x = ((plane * s->height + w.row.first) * s->width + w.col.first) * b;
    w.y = index * b;
    return w;
}

static size_t n_windows(size_t b, const sg_pool_shape *s)
{
    return s->planes / b * s->out_height * s->out_width;
}

/* b is no constant here: of choices in loops that it unrolls gcc 12 makes no vectors. */
SG_ISA_INLINE void max_of(size_t b, const sg_pool_shape *s, const float *restrict x, float *restrict y,
                          uint8_t *restrict place)
{
    for (size_t i = 0; i < n_windows(b, s); i++) {
        const window w = window_at(b, s, i);
        float best[SG_BLOCK_MAX];
        int32_t at[SG_BLOCK_MAX];
        for (size_t l = 0; l < b; l++) {
            best[l] = -INFINITY;
            at[l] = (int32_t)(w.row.lo * s->window + w.col.lo);
        }
        for (size_t ky = w.row.lo; ky < w.row.hi; ky++)
            for (size_t kx = w.col.lo; kx < w.col.hi; kx++) {
                const float *restrict from = x + w.x + ((ky - w.row.lo) * s->width + kx - w.col.lo) * b;
                const int32_t here = (int32_t)(ky * s->window + kx);
                for (size_t l = 0; l < b; l++) {
                    const bool larger = (from[l] > best[l]) | (from[l] != from[l]); /* a NaN is larger than all */
                    at[l] = larger ? here : at[l];
                    best[l] = larger ? from[l] : best[l];
                }
            }
        for (size_t l = 0; l < b; l++) {
            y[w.y + l] = best[l];
            place[w.y + l] = (uint8_t)at[l];
        }
    }
}

SG_ISA_INLINE void max_backward_of(size_t b, const sg_pool_shape *s, const float *restrict dy,
                                   const uint8_t *restrict place, bool accumulate, float *restrict dx)
{
    if (!accumulate)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    for (size_t i = 0; i < n_windows(b, s); i++) {
        const window w = window_at(b, s, i);
        int32_t at[SG_BLOCK_MAX];
        float d[SG_BLOCK_MAX];
        for (size_t l = 0; l < b; l++) {
            at[l] = place[w.y + l];
            d[l] = dy[w.y + l];
        }
        for (size_t ky = w.row.lo; ky < w.row.hi; ky++)
            for (size_t kx = w.col.lo; kx < w.col.hi; kx++) {
                float *restrict to = dx + w.x + ((ky - w.row.lo) * s->width + kx - w.col.lo) * b;
                const int32_t here = (int32_t)(ky * s->window + kx);
                for (size_t l = 0; l < b; l++)
                    to[l] += at[l] == here ? d[l] : 0;
            }
    }
}

SG_ISA_INLINE void average_of(size_t b, const sg_pool_shape *s, const float *restrict x, float *restrict y)
{
    const float scale = 1.0F / (float)(s->window * s->window);
    for (size_t i = 0; i < n_windows(b, s); i++) {
        const window w = window_at(b, s, i);
        float sum[SG_BLOCK_MAX] = {0};
        for (size_t r = 0; r < w.row.hi - w.row.lo; r++)
            for (size_t c = 0; c < w.col.hi - w.col.lo; c++)
                for (size_t l = 0; l < b; l++)
                    sum[l] += x[w.x + (r * s->width + c) * b + l];
        for (size_t l = 0; l < b; l++)
            y[w.y + l] = sum[l] * scale;
    }
}

SG_ISA_INLINE void average_backward_of(size_t b, const sg_pool_shape *s, const float *restrict dy, bool accumulate,
                                       float *restrict dx)
{
    const float scale = 1.0F / (float)(s->window * s->window);
    if (!accumulate)
        memset(dx, 0, s->planes * s->height * s->width * sizeof(float));
    for (size_t i = 0; i < n_windows(b, s); i++) {
        const window w = window_at(b, s, i);
        for (size_t r = 0; r < w.row.hi - w.row.lo; r++)
            for (size_t c = 0; c < w.col.hi - w.col.lo; c++)
                for (size_t l = 0; l < b; l++)
                    dx[w.x + (r * s->width + c) * b + l] += dy[w.y + l] * scale;
    }
}

/* clang-format off */
#define VARIANT(name_, target)                                                                                         \
    target static void max_##name_(const sg_pool_shape *s, const void *x, void *y, uint8_t *place)                     \
    { max_of(s->block, s, x, y, place); }                                                                               \
    target static void max_backward_##name_(const sg_pool_shape *s, const void *dy, const uint8_t *place,              \
                                            bool accumulate, void *dx)                                                 \
    { SG_CPU_BY_BLOCK(s->block, max_backward_of(b, s, dy, place, accumulate, dx)) }                                    \
    target static void average_##name_(const sg_pool_shape *s, const void *x, void *y)                                 \
    { SG_CPU_BY_BLOCK(s->block, average_of(b, s, x, y)) }                                                              \
    target static void average_backward_##name_(const sg_pool_shape *s, const void *dy, bool accumulate, void *dx)     \
    { SG_CPU_BY_BLOCK(s->block, average_backward_of(b, s, dy, accumulate, dx)) }                                       \
    const sg_kernel_pool sg_cpu_block_pool_##name_ = {                                                                 \
        .max = max_##name_, .max_backward = max_backward_##name_, .average = average_##name_,                          \
        .average_backward = average_backward_##name_,                                                                  \
    };
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)
