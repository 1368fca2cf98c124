/* kernels/cpu.c - the kernel table for CPUs, in float: OpenBLAS for matrix products, vector loops for the rest.
 *
 * Loops are written so that the compiler makes vectors of them, for three instruction sets (isa.h). Sums run in an
 * order of their own, so results agree with ref.c within rounding, not bit for bit. */
#include <math.h>

#include <cblas.h>

#include "common/status.h"
#include "kernels/cpu.h"
#include "kernels/onednn.h"

static blasint blas_size(size_t n)
{
    SG_ASSERT(n <= INT32_MAX);
    return (blasint)n;
}

void sg_cpu_multiply(size_t m, size_t n, size_t k, sg_cpu_operand a, sg_cpu_operand b, bool accumulate, float *c,
                     size_t c_stride)
{
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        for (size_t i = 0; !accumulate && i < m; i++)
            memset(c + i * c_stride, 0, n * sizeof(float));
        return;
    }
    cblas_sgemm(CblasRowMajor, a.transpose ? CblasTrans : CblasNoTrans, b.transpose ? CblasTrans : CblasNoTrans,
                blas_size(m), blas_size(n), blas_size(k), 1, a.first, blas_size(a.stride), b.first, blas_size(b.stride),
                accumulate ? 1 : 0, c, blas_size(c_stride));
}

/* The products of a table by one multiplication. */
#define PRODUCTS(name_, multiply_)                                                                                     \
    static void gemm_rows_##name_(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first,      \
                                  size_t n_rows, const void *a, const void *b, bool accumulate, void *c)               \
    {                                                                                                                  \
        const sg_cpu_operand left = {transpose_a, (const float *)a + (transpose_a ? first : first * k),                \
                                     transpose_a ? m : k};                                                             \
        const sg_cpu_operand right = {transpose_b, b, transpose_b ? k : n};                                            \
        multiply_(n_rows, n, k, left, right, accumulate, (float *)c + first * n, n);                                   \
    }                                                                                                                  \
    static void gemm_terms_##name_(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first,     \
                                   size_t n_terms, const void *a, const void *b, bool accumulate, void *c)             \
    {                                                                                                                  \
        const sg_cpu_operand left = {transpose_a, (const float *)a + (transpose_a ? first * m : first),                \
                                     transpose_a ? m : k};                                                             \
        const sg_cpu_operand right = {transpose_b, (const float *)b + (transpose_b ? first : first * n),               \
                                      transpose_b ? k : n};                                                            \
        multiply_(m, n, n_terms, left, right, accumulate, c, n);                                                       \
    }                                                                                                                  \
    static void gemm_##name_(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a,          \
                             const void *b, bool accumulate, void *c)                                                  \
    {                                                                                                                  \
        gemm_rows_##name_(transpose_a, transpose_b, m, n, k, 0, m, a, b, accumulate, c);                               \
    }
PRODUCTS(openblas, sg_cpu_multiply)
#ifdef SG_ONEDNN
PRODUCTS(onednn, sg_onednn_multiply)
#endif

static void fill(size_t n_elems, double value, void *x)
{
    float *out = x;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = (float)value;
}

SG_ISA_INLINE void scaled_loop(size_t n_elems, float factor, const float *restrict x, bool accumulate,
                               float *restrict y)
{
    if (accumulate)
        for (size_t i = 0; i < n_elems; i++)
            y[i] += factor * x[i];
    else
        for (size_t i = 0; i < n_elems; i++)
            y[i] = factor * x[i];
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

/* Sums of columns are taken over SG_CPU_CHUNK_ROWS rows, of as many columns as a first-level cache has room for, before
 * they are added to what the rows above them gave. */
#define CHUNK_COLS ((size_t)512)

typedef struct chunk {
    size_t rows, cols, stride;
} chunk;

SG_ISA_INLINE chunk chunk_of(size_t rows, size_t cols, size_t row, size_t col)
{
    return (chunk){.rows = rows - row < SG_CPU_CHUNK_ROWS ? rows - row : SG_CPU_CHUNK_ROWS,
                   .cols = cols - col < CHUNK_COLS ? cols - col : CHUNK_COLS,
                   .stride = cols};
}

SG_ISA_INLINE void add_chunk(chunk s, const float *restrict x, float *restrict sums)
{
    float part[CHUNK_COLS];
    fill(s.cols, 0, part);
    for (size_t r = 0; r < s.rows; r++, x += s.stride)
        for (size_t c = 0; c < s.cols; c++)
            part[c] += x[c];
    for (size_t c = 0; c < s.cols; c++)
        sums[c] += part[c];
}

SG_ISA_INLINE void relu_add_chunk(chunk s, const float *restrict y, float *restrict dy, float *restrict sums)
{
    float part[CHUNK_COLS];
    fill(s.cols, 0, part);
    for (size_t r = 0; r < s.rows; r++, y += s.stride, dy += s.stride)
        for (size_t c = 0; c < s.cols; c++) {
            const float g = y[c] > 0 ? dy[c] : 0;
            dy[c] = g;
            part[c] += g;
        }
    for (size_t c = 0; c < s.cols; c++)
        sums[c] += part[c];
}

SG_ISA_INLINE void column_sums_loop(size_t rows, size_t cols, const float *restrict x, bool accumulate,
                                    float *restrict sums)
{
    if (!accumulate)
        fill(cols, 0, sums);
    for (size_t r = 0; r < rows; r += SG_CPU_CHUNK_ROWS)
        for (size_t c = 0; c < cols; c += CHUNK_COLS)
            add_chunk(chunk_of(rows, cols, r, c), x + r * cols + c, sums + c);
}

SG_ISA_INLINE void relu_backward_column_sums_loop(size_t rows, size_t cols, const float *restrict y, float *restrict dy,
                                                  bool accumulate, float *restrict sums)
{
    if (!accumulate)
        fill(cols, 0, sums);
    for (size_t r = 0; r < rows; r += SG_CPU_CHUNK_ROWS)
        for (size_t c = 0; c < cols; c += CHUNK_COLS)
            relu_add_chunk(chunk_of(rows, cols, r, c), y + r * cols + c, dy + r * cols + c, sums + c);
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

/* The mean distance of x from max. */
SG_ISA_INLINE double mean_distance(size_t cols, const float *x, float max)
{
    double sum = 0;
    for (size_t c = 0; c < cols; c++)
        sum += (double)max - (double)x[c];
    return sum / (double)cols;
}

/* Returns (1 - smoothing) * -log(p[label]) + smoothing * the mean of -log(p). */
SG_ISA_INLINE double softmax_row(size_t cols, const float *x, uint32_t label, double smoothing, float *p)
{
    float max = -INFINITY;
    for (size_t c = 0; c < cols; c++)
        max = x[c] > max ? x[c] : max;
    double distance = (1 - smoothing) * ((double)max - (double)x[label]); /* before p overwrites x */
    if (smoothing > 0)
        distance += smoothing * mean_distance(cols, x, max);
    for (size_t c = 0; c < cols; c++)
        p[c] = exp_of_negative(x[c] - max);
    double sum = 0;
    for (size_t c = 0; c < cols; c++)
        sum += (double)p[c];
    float inverse = (float)(1 / sum);
    for (size_t c = 0; c < cols; c++)
        p[c] *= inverse;
    return log(sum) + distance;
}

SG_ISA_INLINE void softmax_loop(size_t rows, size_t cols, const float *x, const uint32_t *labels, double smoothing,
                                float *p, float *loss)
{
    double total = 0;
    for (size_t r = 0; r < rows; r++)
        total += softmax_row(cols, x + r * cols, labels[r], smoothing, p + r * cols);
    *loss = rows ? (float)(total / (double)rows) : 0;
}

SG_ISA_INLINE void softmax_backward_loop(size_t rows, size_t cols, const float *p, const uint32_t *labels,
                                         double smoothing, const float *dloss, bool accumulate, float *d)
{
    const float of_each = (float)(smoothing / (double)cols),
                of_label = (float)(1 - smoothing + smoothing / (double)cols);
    float scale = rows ? *dloss / (float)rows : 0;
    for (size_t r = 0; r < rows; r++, p += cols, d += cols) {
        float others = accumulate ? d[labels[r]] : 0;
        for (size_t c = 0; c < cols; c++)
            d[c] = (p[c] - of_each) * scale + (accumulate ? d[c] : 0);
        d[labels[r]] = (p[labels[r]] - of_label) * scale + others;
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

/* The functions of the table for one instruction set, and the table; and the table with convolutions by oneDNN. */
/* clang-format off */
#define FIELDS(name_, products_)                                                                                                  \
    .elem_bytes = sizeof(float), .gemm = gemm_##products_, .gemm_rows = gemm_rows_##products_,                        \
    .gemm_terms = gemm_terms_##products_,                                                                              \
    .bias_add = bias_add_##name_, .bias_add_relu = bias_add_relu_##name_, .relu = relu_##name_,                        \
    .relu_backward = relu_backward_##name_, .column_sums = column_sums_##name_,                                        \
    .relu_backward_column_sums = relu_backward_column_sums_##name_, .softmax_cross_entropy = softmax_##name_,          \
    .softmax_cross_entropy_backward = softmax_backward_##name_, .count_correct = count_correct, .fill = fill,          \
    .scaled = scaled_##name_, .get = get, .pool = &sg_cpu_pool_##name_,                                                \
    .elementwise = &sg_cpu_elementwise_##name_, .norm = &sg_cpu_norm_##name_, .move = &sg_ref_move_float,              \
    .blocks = &sg_cpu_blocks_##name_,
#ifdef SG_ONEDNN
#define PLANNED(name_, products_)                                                                                      \
    static const sg_kernel planned_##name_ = {                                                                         \
        .name = "onednn_" #name_, .conv = &sg_onednn_conv, FIELDS(name_, products_)                                    \
    };
#else
#define PLANNED(name_, products_)
#endif
#define VARIANT(name_, target, products_)                                                                                         \
    target static void bias_add_##name_(size_t rows, size_t cols, const void *bias, void *y)                           \
    { bias_add_loop(rows, cols, bias, y); }                                                                            \
    target static void bias_add_relu_##name_(size_t rows, size_t cols, const void *bias, void *y)                      \
    { bias_add_relu_loop(rows, cols, bias, y); }                                                                       \
    target static void scaled_##name_(size_t n_elems, double factor, const void *x, bool accumulate, void *y)          \
    { scaled_loop(n_elems, (float)factor, x, accumulate, y); }                                                         \
    target static void relu_##name_(size_t n_elems, const void *x, void *y)                                            \
    { relu_loop(n_elems, x, y); }                                                                                      \
    target static void relu_backward_##name_(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx) \
    { relu_backward_loop(n_elems, y, dy, accumulate, dx); }                                                            \
    target static void column_sums_##name_(size_t rows, size_t cols, const void *x, bool accumulate, void *sums)       \
    { column_sums_loop(rows, cols, x, accumulate, sums); }                                                             \
    target static void relu_backward_column_sums_##name_(size_t rows, size_t cols, const void *y, void *dy,            \
                                                         bool accumulate, void *sums)                                  \
    { relu_backward_column_sums_loop(rows, cols, y, dy, accumulate, sums); }                                           \
    target static void softmax_##name_(size_t rows, size_t cols, const void *x, const uint32_t *labels,                \
                                       double smoothing, void *p, void *loss)                                          \
    { softmax_loop(rows, cols, x, labels, smoothing, p, loss); }                                                       \
    target static void softmax_backward_##name_(size_t rows, size_t cols, const void *p, const uint32_t *labels,       \
                                                double smoothing, const void *dloss, bool accumulate, void *d)         \
    { softmax_backward_loop(rows, cols, p, labels, smoothing, dloss, accumulate, d); }                                 \
    static const sg_kernel table_##name_ = {                                                                           \
        .name = "cpu_" #name_, .conv = &sg_cpu_conv_##name_, FIELDS(name_, openblas)                                             \
    };                                                                                                                 \
    PLANNED(name_, products_)
/* clang-format on */
VARIANT(portable, , openblas)
VARIANT(avx2, SG_ISA_TARGET_AVX2, openblas)
VARIANT(avx512, SG_ISA_TARGET_AVX512, onednn)

const sg_kernel *sg_kernel_cpu_as(sg_isa isa)
{
    static const sg_kernel *const tables[SG_ISA_COUNT] = {
        [SG_ISA_PORTABLE] = &table_portable, [SG_ISA_AVX2] = &table_avx2, [SG_ISA_AVX512] = &table_avx512};
    SG_ASSERT(sg_isa_has(isa));
    return tables[isa];
}

const sg_kernel *sg_kernel_cpu(void)
{
    return sg_kernel_cpu_as(sg_isa_best());
}

const sg_kernel *sg_kernel_onednn(void)
{
#ifdef SG_ONEDNN
    static const sg_kernel *const tables[SG_ISA_COUNT] = {
        [SG_ISA_PORTABLE] = &planned_portable, [SG_ISA_AVX2] = &planned_avx2, [SG_ISA_AVX512] = &planned_avx512};
    return tables[sg_isa_best()];
#else
    return NULL;
#endif
}

void sg_kernel_cpu_set_threads(uint32_t n_threads)
{
    openblas_set_num_threads(n_threads > 1 ? (int)n_threads : 1);
}

uint64_t sg_kernel_cpu_room(uint32_t n_threads)
{
    const uint64_t mib = (uint64_t)1 << 20, buffer = 128 * mib, stack = 8 * mib;
    const uint32_t n_started = (uint32_t)openblas_get_num_threads();
    uint64_t n_bytes = (buffer + stack) * (n_threads > n_started ? n_threads : n_started);
#ifdef SG_ONEDNN
    const uint64_t arena = 128 * mib; /* that malloc reserves for a thread; oneDNN's packs what it multiplies */
    n_bytes += (stack + arena) * (n_threads > 1 ? n_threads - 1 : 0);
#endif
    return n_bytes;
}
