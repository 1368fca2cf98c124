/* kernels/blocks.c - passes over images whose channels lie in blocks: the lanes of a vector are channels, so sums over
 * a plane need no order of their own, and windows of any size are as fast as those that halve. */
#include "common/status.h"
#include "kernels/cpu.h"

/* Positions whose sums are kept in float, and that a first-level cache holds for a second look. */
#define CHUNK ((size_t)256)

/* Statistics of the elements seen so far of `block` channels; those of a chunk are joined to it. */
typedef struct moments {
    double n, mean[SG_BLOCK_MAX], squares[SG_BLOCK_MAX]; /* squares: sum of distance^2 from the mean */
} moments;

SG_ISA_INLINE void add_chunk(size_t b, size_t n, const float *restrict x, moments *m)
{
    float sum[SG_BLOCK_MAX] = {0}, mean[SG_BLOCK_MAX], squares[SG_BLOCK_MAX] = {0};
    for (size_t p = 0; p < n; p++)
        for (size_t l = 0; l < b; l++)
            sum[l] += x[p * b + l];
    for (size_t l = 0; l < b; l++)
        mean[l] = sum[l] / (float)n;
    for (size_t p = 0; p < n; p++)
        for (size_t l = 0; l < b; l++)
            squares[l] += (x[p * b + l] - mean[l]) * (x[p * b + l] - mean[l]);
    const double all = m->n + (double)n;
    for (size_t l = 0; l < b; l++) {
        const double distance = (double)mean[l] - m->mean[l];
        m->squares[l] += (double)squares[l] + distance * distance * m->n * (double)n / all;
        m->mean[l] += distance * (double)n / all;
    }
    m->n = all;
}

/* Where block g of an image begins. */
static size_t block_at(const sg_norm_shape *s, size_t image, size_t g)
{
    return (image * (s->channels / s->block) + g) * s->plane * s->block;
}

static size_t chunk_at(const sg_norm_shape *s, size_t done)
{
    return s->plane - done < CHUNK ? s->plane - done : CHUNK;
}

SG_ISA_INLINE void statistics_of(size_t b, const sg_norm_shape *s, const float *x, float *mean, float *variance)
{
    for (size_t g = 0; g < s->channels / b; g++) {
        moments m = {0};
        for (size_t i = 0; i < s->images; i++)
            for (size_t done = 0; done < s->plane; done += CHUNK)
                add_chunk(b, chunk_at(s, done), x + block_at(s, i, g) + done * b, &m);
        for (size_t l = 0; l < b; l++) {
            mean[g * b + l] = (float)m.mean[l];
            variance[g * b + l] = m.n > 0 ? (float)(m.squares[l] / m.n) : 0;
        }
    }
}

SG_ISA_INLINE void forward_of(size_t b, const sg_norm_shape *s, const float *x, const float *mean, const float *inverse,
                              const float *gamma, const float *beta, bool relu, float *y)
{
    for (size_t i = 0; i < s->images; i++) {
        for (size_t c = 0; c < s->channels; c += b) {
            float scale[SG_BLOCK_MAX], shift[SG_BLOCK_MAX], center[SG_BLOCK_MAX];
            for (size_t l = 0; l < b; l++) {
                scale[l] = inverse[c + l] * gamma[c + l];
                shift[l] = beta[c + l];
                center[l] = mean[c + l];
            }
            const float *restrict in = x + block_at(s, i, c / b);
            float *restrict out = y + block_at(s, i, c / b);
            for (size_t p = 0; p < s->plane; p++)
                for (size_t l = 0; l < b; l++) {
                    const float v = (in[p * b + l] - center[l]) * scale[l] + shift[l];
                    out[p * b + l] = relu && v < 0 ? 0 : v;
                }
        }
    }
}

/* sum[l] = sum of dy, product[l] = sum of dy * (x - center[l]). Of two sums in plain loops gcc 12 makes vectors across
 * positions, which costs four times as much. */
#define SUMS_OF_CHUNK(n_)                                                                                              \
    typedef float lanes_##n_ __attribute__((vector_size((n_) * sizeof(float)), aligned(4), may_alias));                \
    SG_ISA_INLINE void sums_of_chunk_##n_(size_t n, const float *x, const float *dy, const float *center, float *sum,  \
                                          float *product)                                                              \
    {                                                                                                                  \
        const lanes_##n_ middle = *(const lanes_##n_ *)center;                                                         \
        lanes_##n_ all = {0}, products = {0};                                                                          \
        for (size_t p = 0; p < n; p++) {                                                                               \
            const lanes_##n_ d = ((const lanes_##n_ *)dy)[p];                                                          \
            all += d;                                                                                                  \
            products += d * (((const lanes_##n_ *)x)[p] - middle);                                                     \
        }                                                                                                              \
        *(lanes_##n_ *)sum = all;                                                                                      \
        *(lanes_##n_ *)product = products;                                                                             \
    }
SUMS_OF_CHUNK(16)
SUMS_OF_CHUNK(8)

SG_ISA_INLINE void sums_of(size_t b, const sg_norm_shape *s, const float *x, const float *mean, const float *inverse,
                           const float *dy, float *sums)
{
    for (size_t g = 0; g < s->channels / b; g++) {
        double all[SG_BLOCK_MAX] = {0}, products[SG_BLOCK_MAX] = {0};
        float center[SG_BLOCK_MAX];
        for (size_t l = 0; l < b; l++)
            center[l] = mean[g * b + l];
        for (size_t i = 0; i < s->images; i++)
            for (size_t done = 0; done < s->plane; done += CHUNK) {
                const float *restrict in = x + block_at(s, i, g) + done * b;
                const float *restrict d = dy + block_at(s, i, g) + done * b;
                float sum[SG_BLOCK_MAX], product[SG_BLOCK_MAX];
                if (b == SG_BLOCK_MAX)
                    sums_of_chunk_16(chunk_at(s, done), in, d, center, sum, product);
                else
                    sums_of_chunk_8(chunk_at(s, done), in, d, center, sum, product);
                for (size_t l = 0; l < b; l++) {
                    all[l] += (double)sum[l];
                    products[l] += (double)product[l];
                }
            }
        for (size_t l = 0; l < b; l++) {
            sums[g * b + l] = (float)all[l];
            sums[s->channels + g * b + l] = (float)(products[l] * (double)inverse[g * b + l]);
        }
    }
}

SG_ISA_INLINE void backward_of(size_t b, const sg_norm_shape *s, const float *x, const float *mean,
                               const float *inverse, const float *gamma, const float *dy, const float *sums,
                               bool accumulate, float *dx)
{
    const float m = (float)(s->images * s->plane);
    for (size_t i = 0; i < s->images; i++) {
        for (size_t c = 0; c < s->channels; c += b) {
            float scale[SG_BLOCK_MAX], slope[SG_BLOCK_MAX], constant[SG_BLOCK_MAX], center[SG_BLOCK_MAX];
            for (size_t l = 0; l < b; l++) {
                scale[l] = gamma[c + l] * inverse[c + l];
                constant[l] = sums ? -scale[l] * sums[c + l] / m : 0;
                slope[l] = sums ? -scale[l] * inverse[c + l] * sums[s->channels + c + l] / m : 0;
                center[l] = mean[c + l];
            }
            const float *restrict in = x + block_at(s, i, c / b), *restrict d = dy + block_at(s, i, c / b);
            float *restrict to = dx + block_at(s, i, c / b);
            for (size_t p = 0; p < s->plane * b; p += b)
                for (size_t l = 0; l < b; l++) {
                    const float v = d[p + l] * scale[l] + (in[p + l] - center[l]) * slope[l] + constant[l];
                    to[p + l] = accumulate ? to[p + l] + v : v;
                }
        }
    }
}

SG_ISA_INLINE void plane_sums_of(size_t b, const sg_norm_shape *s, const float *x, bool accumulate, float *sums)
{
    for (size_t g = 0; g < s->channels / b; g++) {
        double all[SG_BLOCK_MAX];
        for (size_t l = 0; l < b; l++)
            all[l] = accumulate ? (double)sums[g * b + l] : 0;
        for (size_t i = 0; i < s->images; i++)
            for (size_t done = 0; done < s->plane; done += CHUNK) {
                const float *restrict in = x + block_at(s, i, g) + done * b;
                float sum[SG_BLOCK_MAX] = {0};
                for (size_t p = 0; p < chunk_at(s, done); p++)
                    for (size_t l = 0; l < b; l++)
                        sum[l] += in[p * b + l];
                for (size_t l = 0; l < b; l++)
                    all[l] += (double)sum[l];
            }
        for (size_t l = 0; l < b; l++)
            sums[g * b + l] = (float)all[l];
    }
}

SG_ISA_INLINE void row_means_of(size_t b, size_t rows, size_t cols, const float *x, float *y)
{
    for (size_t r = 0; r < rows; r += b, x += cols * b) {
        double sum[SG_BLOCK_MAX] = {0};
        for (size_t c = 0; c < cols; c++)
            for (size_t l = 0; l < b; l++)
                sum[l] += (double)x[c * b + l];
        for (size_t l = 0; l < b; l++)
            y[r + l] = cols ? (float)(sum[l] / (double)cols) : 0;
    }
}

SG_ISA_INLINE void row_means_backward_of(size_t b, size_t rows, size_t cols, const float *dy, bool accumulate,
                                         float *dx)
{
    for (size_t r = 0; r < rows; r += b, dx += cols * b) {
        float share[SG_BLOCK_MAX];
        for (size_t l = 0; l < b; l++)
            share[l] = dy[r + l] / (float)cols;
        for (size_t c = 0; c < cols; c++)
            for (size_t l = 0; l < b; l++)
                dx[c * b + l] = share[l] + (accumulate ? dx[c * b + l] : 0);
    }
}

SG_ISA_INLINE void interleave_of(size_t b, size_t rows, size_t cols, const float *restrict x, bool accumulate,
                                 float *restrict y)
{
    for (size_t r = 0; r < rows; r += b, x += cols * b, y += cols * b)
        for (size_t c = 0; c < cols; c++)
            for (size_t l = 0; l < b; l++)
                y[c * b + l] = x[l * cols + c] + (accumulate ? y[c * b + l] : 0);
}

SG_ISA_INLINE void separate_of(size_t b, size_t rows, size_t cols, const float *restrict x, bool accumulate,
                               float *restrict y)
{
    for (size_t r = 0; r < rows; r += b, x += cols * b, y += cols * b)
        for (size_t l = 0; l < b; l++)
            for (size_t c = 0; c < cols; c++)
                y[l * cols + c] = x[c * b + l] + (accumulate ? y[l * cols + c] : 0);
}

/* clang-format off */
#define VARIANT(name_, target)                                                                                         \
    target static void statistics_##name_(const sg_norm_shape *s, const void *x, void *mean, void *variance)           \
    { SG_CPU_BY_BLOCK(s->block, statistics_of(b, s, x, mean, variance)) }                                                     \
    target static void forward_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,   \
                                       const void *gamma, const void *beta, bool relu, void *y)                        \
    { SG_CPU_BY_BLOCK(s->block, if (relu) forward_of(b, s, x, mean, inverse, gamma, beta, true, y);                           \
                         else forward_of(b, s, x, mean, inverse, gamma, beta, false, y)) }                             \
    target static void sums_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,      \
                                    const void *dy, void *sums)                                                        \
    { SG_CPU_BY_BLOCK(s->block, sums_of(b, s, x, mean, inverse, dy, sums)) }                                                  \
    target static void backward_##name_(const sg_norm_shape *s, const void *x, const void *mean, const void *inverse,  \
                                        const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx)\
    { SG_CPU_BY_BLOCK(s->block, if (accumulate) backward_of(b, s, x, mean, inverse, gamma, dy, sums, true, dx);               \
                         else backward_of(b, s, x, mean, inverse, gamma, dy, sums, false, dx)) }                       \
    target static void plane_sums_##name_(const sg_norm_shape *s, const void *x, bool accumulate, void *sums)          \
    { SG_CPU_BY_BLOCK(s->block, plane_sums_of(b, s, x, accumulate, sums)) }                                                   \
    target static void row_means_##name_(size_t rows, size_t cols, size_t block, const void *x, void *y)               \
    { SG_CPU_BY_BLOCK(block, row_means_of(b, rows, cols, x, y)) }                                                             \
    target static void row_means_backward_##name_(size_t rows, size_t cols, size_t block, const void *dy,              \
                                                  bool accumulate, void *dx)                                           \
    { SG_CPU_BY_BLOCK(block, row_means_backward_of(b, rows, cols, dy, accumulate, dx)) }                                      \
    target static void interleave_##name_(size_t rows, size_t cols, size_t block, const void *x, bool accumulate,      \
                                          void *y)                                                                     \
    { SG_CPU_BY_BLOCK(block, interleave_of(b, rows, cols, x, accumulate, y)) }                                                \
    target static void separate_##name_(size_t rows, size_t cols, size_t block, const void *x, bool accumulate,        \
                                        void *y)                                                                       \
    { SG_CPU_BY_BLOCK(block, separate_of(b, rows, cols, x, accumulate, y)) }                                                  \
    static const sg_kernel_norm norm_##name_ = {                                                                       \
        .batch_statistics = statistics_##name_, .batch_forward = forward_##name_, .batch_sums = sums_##name_,          \
        .batch_backward = backward_##name_,                                                                            \
    };                                                                                                                 \
    const sg_kernel_blocks sg_cpu_blocks_##name_ = {                                                                   \
        .interleave = interleave_##name_, .separate = separate_##name_, .plane_sums = plane_sums_##name_,              \
        .row_means = row_means_##name_, .row_means_backward = row_means_backward_##name_, .norm = &norm_##name_,       \
        .pool = &sg_cpu_block_pool_##name_,                                                                            \
    };
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)
