/* kernels/cuda.cu - the kernel table for CUDA devices, in float: cuBLAS for matrix products, own kernels for the rest.
 *
 * Written to be checked, first of all: each kernel is the formula of ref*.c for one element, or for one sum. */
#include <string.h>

#include "kernels/cuda_launch.h"

/* cuBLAS has columns where C has rows: what it takes for the transpose of a matrix is that matrix here. So it computes
 * the transpose of c, op(b)' * op(a)'. */
void sg_cuda_multiply(size_t m, size_t n, size_t k, sg_cuda_operand a, sg_cuda_operand b, bool accumulate, void *c,
                      size_t c_stride)
{
    const float one = 1, scale = accumulate ? 1 : 0;
    real *out = (real *)c;
    if (m == 0 || n == 0)
        return;
    if (k == 0) {
        if (!accumulate)
            sg_cuda_each(m * n, [=] __device__(size_t i) { out[i / n * c_stride + i % n] = 0; });
        return;
    }
    sg_cuda_note_blas(cublasSgemm_64(sg_cuda_blas(), b.transpose ? CUBLAS_OP_T : CUBLAS_OP_N,
                                     a.transpose ? CUBLAS_OP_T : CUBLAS_OP_N, (int64_t)n, (int64_t)m, (int64_t)k, &one,
                                     (const float *)b.first, (int64_t)b.stride, (const float *)a.first,
                                     (int64_t)a.stride, &scale, out, (int64_t)c_stride));
}

static void gemm_rows(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_rows,
                      const void *a, const void *b, bool accumulate, void *c)
{
    const sg_cuda_operand left = {transpose_a, (const real *)a + (transpose_a ? first : first * k),
                                  transpose_a ? m : k};
    const sg_cuda_operand right = {transpose_b, b, transpose_b ? k : n};
    sg_cuda_multiply(n_rows, n, k, left, right, accumulate, (real *)c + first * n, n);
}

static void gemm_terms(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_terms,
                       const void *a, const void *b, bool accumulate, void *c)
{
    const sg_cuda_operand left = {transpose_a, (const real *)a + (transpose_a ? first * m : first),
                                  transpose_a ? m : k};
    const sg_cuda_operand right = {transpose_b, (const real *)b + (transpose_b ? first : first * n),
                                   transpose_b ? k : n};
    sg_cuda_multiply(m, n, n_terms, left, right, accumulate, c, n);
}

static void gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                 bool accumulate, void *c)
{
    gemm_rows(transpose_a, transpose_b, m, n, k, 0, m, a, b, accumulate, c);
}

static void bias_add(size_t rows, size_t cols, const void *bias, void *y)
{
    const real *b = (const real *)bias;
    real *out = (real *)y;
    sg_cuda_each(rows * cols, [=] __device__(size_t i) { out[i] += b[i % cols]; });
}

/* NaN stays NaN: the comparison is false for it. */
static __host__ __device__ real positive_part(real x)
{
    return x < 0 ? 0 : x;
}

static void bias_add_relu(size_t rows, size_t cols, const void *bias, void *y)
{
    const real *b = (const real *)bias;
    real *out = (real *)y;
    sg_cuda_each(rows * cols, [=] __device__(size_t i) { out[i] = positive_part(out[i] + b[i % cols]); });
}

static void relu(size_t n_elems, const void *x, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each(n_elems, [=] __device__(size_t i) { out[i] = positive_part(in[i]); });
}

static void relu_backward(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx)
{
    const real *out = (const real *)y, *in = (const real *)dy;
    real *gradient = (real *)dx;
    sg_cuda_each(n_elems, [=] __device__(size_t i) {
        const real g = out[i] > 0 ? in[i] : 0;
        gradient[i] = accumulate ? gradient[i] + g : g;
    });
}

static void column_sums(size_t rows, size_t cols, const void *x, bool accumulate, void *sums)
{
    const real *in = (const real *)x;
    real *out = (real *)sums;
    sg_cuda_each_sum<sg_cuda_sum>(
        cols, rows, [=] __device__(size_t c, size_t r) { return sg_cuda_sum{(double)in[r * cols + c]}; },
        [=] __device__(size_t c, sg_cuda_sum sum) { out[c] = (accumulate ? out[c] : 0) + (real)sum.value; });
}

static void relu_backward_column_sums(size_t rows, size_t cols, const void *y, void *dy, bool accumulate, void *sums)
{
    relu_backward(rows * cols, y, dy, false, dy);
    column_sums(rows, cols, dy, accumulate, sums);
}

/* Of one row: -log(probability of the label), smoothed. */
static __host__ __device__ double row_loss(size_t cols, const real *x, uint32_t label, double smoothing)
{
    real max = x[0];
    for (size_t c = 1; c < cols; c++)
        max = x[c] > max ? x[c] : max;
    double distance = (1 - smoothing) * ((double)max - (double)x[label]), sum = 0;
    for (size_t c = 0; c < cols; c++) {
        if (smoothing > 0)
            distance += smoothing / (double)cols * ((double)max - (double)x[c]);
        sum += exp((double)(x[c] - max));
    }
    return log(sum) + distance;
}

/* The loss comes first: probabilities may be logits. */
static void softmax_cross_entropy(size_t rows, size_t cols, const void *logits, const uint32_t *labels,
                                  double smoothing, void *probabilities, void *loss)
{
    const real *x = (const real *)logits;
    real *out = (real *)loss;
    sg_cuda_each_sum<sg_cuda_sum>(
        1, rows,
        [=] __device__(size_t, size_t r) { return sg_cuda_sum{row_loss(cols, x + r * cols, labels[r], smoothing)}; },
        [=] __device__(size_t, sg_cuda_sum sum) { *out = rows ? (real)(sum.value / (double)rows) : 0; });
    sg_cuda_norm.softmax(rows, cols, logits, probabilities);
}

static void softmax_cross_entropy_backward(size_t rows, size_t cols, const void *probabilities, const uint32_t *labels,
                                           double smoothing, const void *dloss, bool accumulate, void *dlogits)
{
    const real *p = (const real *)probabilities, *factor = (const real *)dloss;
    real *d = (real *)dlogits;
    sg_cuda_each(rows * cols, [=] __device__(size_t i) {
        const double of_label = i % cols == labels[i / cols] ? 1 - smoothing : 0;
        const real g = (p[i] - (real)(of_label + smoothing / (double)cols)) * (*factor / (real)rows);
        d[i] = accumulate ? d[i] + g : g;
    });
}

/* Is the first of the largest the label's? */
static __host__ __device__ bool is_correct(size_t cols, const real *x, uint32_t label)
{
    size_t best = 0;
    for (size_t c = 1; c < cols; c++)
        best = x[c] > x[best] ? c : best;
    return best == label;
}

static uint64_t count_correct(size_t rows, size_t cols, const void *logits, const uint32_t *labels)
{
    const real *x = (const real *)logits;
    uint64_t count = 0, *number = sg_cuda_take_number();
    sg_cuda_each_sum<sg_cuda_sum>(
        1, rows,
        [=] __device__(size_t, size_t r) { return sg_cuda_sum{is_correct(cols, x + r * cols, labels[r]) ? 1.0 : 0.0}; },
        [=] __device__(size_t, sg_cuda_sum sum) { *number = (uint64_t)sum.value; });
    sg_cuda_fetch(&count, number, sizeof count);
    sg_cuda_give_number();
    return count;
}

static void fill(size_t n_elems, double value, void *x)
{
    real *out = (real *)x;
    sg_cuda_each(n_elems, [=] __device__(size_t i) { out[i] = (real)value; });
}

static void scaled(size_t n_elems, double factor, const void *x, bool accumulate, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each(n_elems, [=] __device__(size_t i) { out[i] = (real)factor * in[i] + (accumulate ? out[i] : 0); });
}

static double get(const void *x, size_t index)
{
    real element;
    sg_cuda_fetch(&element, (const real *)x + index, sizeof element);
    return (double)element;
}

extern "C" __attribute__((visibility("default"))) const sg_kernel *sg_cuda_open(uint32_t index, char *why,
                                                                                size_t why_bytes)
{
    static const sg_kernel table = {.name = "cuda",
                                    .elem_bytes = sizeof(real),
                                    .gemm = gemm,
                                    .gemm_rows = gemm_rows,
                                    .gemm_terms = gemm_terms,
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
                                    .scaled = scaled,
                                    .get = get,
                                    .conv = &sg_cuda_conv,
                                    .pool = &sg_cuda_pool,
                                    .elementwise = &sg_cuda_elementwise,
                                    .norm = &sg_cuda_norm,
                                    .move = &sg_cuda_move,
                                    .device = &sg_cuda_device};
    return sg_cuda_start(index, why, why_bytes) ? &table : NULL;
}
