/* kernels/cpu.c - the kernel table for CPUs, in float: OpenBLAS for matrix products, vector loops for the rest.
 *
 * Loops are written so that the compiler makes vectors of them, for three instruction sets (isa.h). Sums run in an
 * order of their own, so results agree with ref.c within rounding, not bit for bit. */
#include <float.h>
#include <math.h>
#include <string.h>

#include <cblas.h>

#include "common/status.h"
#include "kernels/isa.h"
#include "kernels/kernel.h"

static blasint blas_size(size_t n)
{
    SG_ASSERT(n <= INT32_MAX);
    return (blasint)n;
}

static void gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                 bool accumulate, void *c)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        if (!accumulate)
            memset(c, 0, m * n * sizeof(float));
        return;
    }
    cblas_sgemm(CblasRowMajor, transpose_a ? CblasTrans : CblasNoTrans, transpose_b ? CblasTrans : CblasNoTrans,
                blas_size(m), blas_size(n), blas_size(k), 1, a, blas_size(transpose_a ? m : k), b,
                blas_size(transpose_b ? k : n), accumulate ? 1 : 0, c, blas_size(n));
}

/* NaN stays NaN: the comparison is false for it. */
SG_ISA_INLINE float positive_part(float x)
{
    return x < 0 ? 0 : x;
}

SG_ISA_INLINE void bias_add_loop(size_t rows, size_t cols, const float *restrict bias, float *restrict y)
{
    for (size_t r = 0; r < rows; r++, y += cols)
        for (size_t c = 0; c < cols; c++)
            y[c] += bias[c];
}

SG_ISA_INLINE void bias_add_relu_loop(size_t rows, size_t cols, const float *restrict bias, float *restrict y)
{
    for (size_t r = 0; r < rows; r++, y += cols)
        for (size_t c = 0; c < cols; c++)
            y[c] = positive_part(y[c] + bias[c]);
}

/* y may be x, so no restrict: the compiler tests for overlap and then uses vectors. */
SG_ISA_INLINE void relu_loop(size_t n_elems, const float *x, float *y)
{
    for (size_t i = 0; i < n_elems; i++)
        y[i] = positive_part(x[i]);
}

SG_ISA_INLINE void relu_backward_loop(size_t n_elems, const float *y, const float *dy, bool accumulate, float *dx)
{
    if (accumulate)
        for (size_t i = 0; i < n_elems; i++)
            dx[i] += y[i] > 0 ? dy[i] : 0;
    else
        for (size_t i = 0; i < n_elems; i++)
            dx[i] = y[i] > 0 ? dy[i] : 0;
}

SG_ISA_INLINE void column_sums_loop(size_t rows, size_t cols, const float *restrict x, float *restrict sums)
{
    for (size_t r = 0; r < rows; r++, x += cols)
        for (size_t c = 0; c < cols; c++)
            sums[c] += x[c];
}

SG_ISA_INLINE void relu_backward_column_sums_loop(size_t rows, size_t cols, const float *restrict y, float *restrict dy,
                                                  float *restrict sums)
{
    for (size_t r = 0; r < rows; r++, y += cols, dy += cols) {
        for (size_t c = 0; c < cols; c++) {
            float g = y[c] > 0 ? dy[c] : 0;
            dy[c] = g;
            sums[c] += g;
        }
    }
}

/* e^x for x <= 0 within 2 units in the last place, 0 below the normal numbers; NaN stays NaN. x = n log 2 + r with |r|
 * <= log 2 / 2; e^r by the polynomial of Cephes' expf; times 2^n by its bits. Plain arithmetic, so it becomes vectors.
 */
SG_ISA_INLINE float exp_of_negative(float x)
{
    float clamped = x < -87.0F ? -87.0F : x;
    float shifted = clamped * 1.44269504F + 0x1.8p23F; /* adding 1.5 * 2^23 rounds to a whole number */
    float n = shifted - 0x1.8p23F;
    float r = clamped - n * 0.693359375F + n * 2.12194440e-4F;
    float p = 1.9875691500e-4F;
    p = p * r + 1.3981999507e-3F;
    p = p * r + 8.3334519073e-3F;
    p = p * r + 4.1665795894e-2F;
    p = p * r + 1.6666665459e-1F;
    p = p * r + 5.0000001201e-1F;
    p = p * r * r + r + 1.0F;
    uint32_t shifted_bits;
    memcpy(&shifted_bits, &shifted, sizeof shifted_bits);
    uint32_t power_bits = (shifted_bits + 127U) << 23; /* the low bits of `shifted` are n */
    float power;
    memcpy(&power, &power_bits, sizeof power);
    return x < -87.0F ? 0 : p * power;
}

/* Returns -log(p[label]). */
SG_ISA_INLINE double softmax_row(size_t cols, const float *x, uint32_t label, float *p)
{
    float max = -INFINITY;
    for (size_t c = 0; c < cols; c++)
        max = x[c] > max ? x[c] : max;
    double label_distance = (double)max - (double)x[label]; /* before p overwrites x */
    for (size_t c = 0; c < cols; c++)
        p[c] = exp_of_negative(x[c] - max);
    double sum = 0;
    for (size_t c = 0; c < cols; c++)
        sum += (double)p[c];
    float inverse = (float)(1 / sum);
    for (size_t c = 0; c < cols; c++)
        p[c] *= inverse;
    return log(sum) + label_distance;
}

SG_ISA_INLINE double softmax_loop(size_t rows, size_t cols, const float *x, const uint32_t *labels, float *p)
{
    double total = 0;
    for (size_t r = 0; r < rows; r++)
        total += softmax_row(cols, x + r * cols, labels[r], p + r * cols);
    return total;
}

/* clang-format off */
#define VERSION(name, target)                                                                                          \
    target static void bias_add_##name(size_t rows, size_t cols, const float *bias, float *y)                          \
    { bias_add_loop(rows, cols, bias, y); }                                                                            \
    target static void bias_add_relu_##name(size_t rows, size_t cols, const float *bias, float *y)                     \
    { bias_add_relu_loop(rows, cols, bias, y); }                                                                       \
    target static void relu_##name(size_t n_elems, const float *x, float *y)                                           \
    { relu_loop(n_elems, x, y); }                                                                                      \
    target static void relu_backward_##name(size_t n_elems, const float *y, const float *dy, bool accumulate, float *dx) \
    { relu_backward_loop(n_elems, y, dy, accumulate, dx); }                                                            \
    target static void column_sums_##name(size_t rows, size_t cols, const float *x, float *sums)                       \
    { column_sums_loop(rows, cols, x, sums); }                                                                         \
    target static void relu_backward_column_sums_##name(size_t rows, size_t cols, const float *y, float *dy, float *sums) \
    { relu_backward_column_sums_loop(rows, cols, y, dy, sums); }                                                       \
    target static double softmax_##name(size_t rows, size_t cols, const float *x, const uint32_t *labels, float *p)    \
    { return softmax_loop(rows, cols, x, labels, p); }

#define ENTRY(name) { bias_add_##name, bias_add_relu_##name, relu_##name, relu_backward_##name, column_sums_##name,    \
                      relu_backward_column_sums_##name, softmax_##name }
/* clang-format on */
VERSION(portable, )
VERSION(avx2, SG_ISA_TARGET_AVX2)
VERSION(avx512, SG_ISA_TARGET_AVX512)

typedef struct loops {
    void (*bias_add)(size_t rows, size_t cols, const float *bias, float *y);
    void (*bias_add_relu)(size_t rows, size_t cols, const float *bias, float *y);
    void (*relu)(size_t n_elems, const float *x, float *y);
    void (*relu_backward)(size_t n_elems, const float *y, const float *dy, bool accumulate, float *dx);
    void (*column_sums)(size_t rows, size_t cols, const float *x, float *sums);
    void (*relu_backward_column_sums)(size_t rows, size_t cols, const float *y, float *dy, float *sums);
    double (*softmax)(size_t rows, size_t cols, const float *x, const uint32_t *labels, float *p);
} loops;

static const loops *best_loops(void)
{
    static const loops versions[SG_ISA_COUNT] = {
        [SG_ISA_PORTABLE] = ENTRY(portable), [SG_ISA_AVX2] = ENTRY(avx2), [SG_ISA_AVX512] = ENTRY(avx512)};
    return &versions[sg_isa_best()];
}

static void bias_add(size_t rows, size_t cols, const void *bias, void *y)
{
    best_loops()->bias_add(rows, cols, bias, y);
}

static void bias_add_relu(size_t rows, size_t cols, const void *bias, void *y)
{
    best_loops()->bias_add_relu(rows, cols, bias, y);
}

static void relu(size_t n_elems, const void *x, void *y)
{
    best_loops()->relu(n_elems, x, y);
}

static void relu_backward(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx)
{
    best_loops()->relu_backward(n_elems, y, dy, accumulate, dx);
}

static void fill(size_t n_elems, double value, void *x)
{
    float *out = x;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = (float)value;
}

static void column_sums(size_t rows, size_t cols, const void *x, bool accumulate, void *sums)
{
    if (!accumulate)
        fill(cols, 0, sums);
    best_loops()->column_sums(rows, cols, x, sums);
}

static void relu_backward_column_sums(size_t rows, size_t cols, const void *y, void *dy, bool accumulate, void *sums)
{
    if (!accumulate)
        fill(cols, 0, sums);
    best_loops()->relu_backward_column_sums(rows, cols, y, dy, sums);
}

static void softmax_cross_entropy(size_t rows, size_t cols, const void *logits, const uint32_t *labels,
                                  void *probabilities, void *loss)
{
    double total = best_loops()->softmax(rows, cols, logits, labels, probabilities);
    *(float *)loss = rows ? (float)(total / (double)rows) : 0;
}

static void softmax_cross_entropy_backward(size_t rows, size_t cols, const void *probabilities, const uint32_t *labels,
                                           const void *dloss, bool accumulate, void *dlogits)
{
    float scale = rows ? *(const float *)dloss / (float)rows : 0;
    const float *p = probabilities;
    float *d = dlogits;
    for (size_t r = 0; r < rows; r++, p += cols, d += cols) {
        if (accumulate)
            for (size_t c = 0; c < cols; c++)
                d[c] += p[c] * scale;
        else
            for (size_t c = 0; c < cols; c++)
                d[c] = p[c] * scale;
        float correction = accumulate ? d[labels[r]] - scale : (p[labels[r]] - 1) * scale;
        d[labels[r]] = correction;
    }
}

static uint64_t count_correct(size_t rows, size_t cols, const void *logits, const uint32_t *labels)
{
    uint64_t correct = 0;
    const float *x = logits;
    for (size_t r = 0; r < rows; r++, x += cols) {
        size_t best = 0;
        for (size_t c = 1; c < cols; c++)
            best = x[c] > x[best] ? c : best;
        correct += best == labels[r];
    }
    return correct;
}

static double get(const void *x, size_t index)
{
    return (double)((const float *)x)[index];
}

const sg_kernel *sg_kernel_cpu(void)
{
    static const sg_kernel table = {
        .name = "cpu",
        .elem_bytes = sizeof(float),
        .gemm = gemm,
        .bias_add = bias_add,
        .bias_add_relu = bias_add_relu,
        .relu = relu,
        .relu_backward = relu_backward,
        .column_sums = column_sums,
        .relu_backward_column_sums = relu_backward_column_sums,
        .softmax_cross_entropy = softmax_cross_entropy,
        .softmax_cross_entropy_backward = softmax_cross_entropy_backward,
        .count_correct = count_correct,
        .fill = fill,
        .get = get,
    };
    return &table;
}

void sg_kernel_cpu_set_threads(uint32_t n_threads)
{
    openblas_set_num_threads(n_threads > 1 ? (int)n_threads : 1);
}
