/* kernels/ref.c - the kernel table in plain loops: the truth that every other table is compared with.
 *
 * Compiled twice, with SG_REAL float and double. Written to be read, never to be fast. */
#include <math.h>
#include <string.h>

#include "kernels/ref.h"

#define TEXT(x)    #x
#define TEXT_OF(x) TEXT(x)

/* op(a) is [m,k], op(b) [k,n] */
typedef struct product {
    bool transpose_a, transpose_b;
    size_t m, n, k;
    const real *a, *b;
} product;

/* Terms [first, end) of the sum that is element [i,j]. */
static real sum_of(const product *p, size_t i, size_t j, size_t first, size_t end)
{
    real sum = 0;
    for (size_t l = first; l < end; l++)
        sum += p->a[p->transpose_a ? l * p->m + i : i * p->k + l] * p->b[p->transpose_b ? j * p->k + l : l * p->n + j];
    return sum;
}

static void gemm_rows(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_rows,
                      const void *a, const void *b, bool accumulate, void *c)
{
    const product p = {transpose_a, transpose_b, m, n, k, a, b};
    real *out = c;
    for (size_t i = first; i < first + n_rows; i++)
        for (size_t j = 0; j < n; j++)
            out[i * n + j] = (accumulate ? out[i * n + j] : 0) + sum_of(&p, i, j, 0, k);
}

static void gemm_terms(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_terms,
                       const void *a, const void *b, bool accumulate, void *c)
{
    const product p = {transpose_a, transpose_b, m, n, k, a, b};
    real *out = c;
    for (size_t i = 0; i < m; i++)
        for (size_t j = 0; j < n; j++)
            out[i * n + j] = (accumulate ? out[i * n + j] : 0) + sum_of(&p, i, j, first, first + n_terms);
}

static void gemm(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                 bool accumulate, void *c)
{
    gemm_rows(transpose_a, transpose_b, m, n, k, 0, m, a, b, accumulate, c);
}

static real positive_part(real x)
{
    return x < 0 ? 0 : x;
}

static void bias_add(size_t rows, size_t cols, const void *bias, void *y)
{
    const real *b = bias;
    real *out = y;
    for (size_t i = 0; i < rows * cols; i++)
        out[i] += b[i % cols];
}

static void relu(size_t n_elems, const void *x, void *y)
{
    const real *in = x;
    real *out = y;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = positive_part(in[i]);
}

static void bias_add_relu(size_t rows, size_t cols, const void *bias, void *y)
{
    bias_add(rows, cols, bias, y);
    relu(rows * cols, y, y);
}

static void relu_backward(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx)
{
    const real *out = y;
    const real *in = dy;
    real *gradient = dx;
    for (size_t i = 0; i < n_elems; i++) {
        real g = out[i] > 0 ? in[i] : 0;
        gradient[i] = accumulate ? gradient[i] + g : g;
    }
}

static void column_sums(size_t rows, size_t cols, const void *x, bool accumulate, void *sums)
{
    const real *in = x;
    real *out = sums;
    for (size_t c = 0; c < cols; c++) {
        double sum = accumulate ? (double)out[c] : 0; /* in float the error would grow with the rows */
        for (size_t r = 0; r < rows; r++)
            sum += (double)in[r * cols + c];
        out[c] = (real)sum;
    }
}

static void relu_backward_column_sums(size_t rows, size_t cols, const void *y, void *dy, bool accumulate, void *sums)
{
    relu_backward(rows * cols, y, dy, false, dy);
    column_sums(rows, cols, dy, accumulate, sums);
}

static real largest(const real *x, size_t n)
{
    real max = x[0];
    for (size_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static void softmax_cross_entropy(size_t rows, size_t cols, const void *logits, const uint32_t *labels,
                                  double smoothing, void *probabilities, void *loss)
{
    double total = 0;
    for (size_t r = 0; r < rows; r++) {
        const real *x = (const real *)logits + r * cols;
        real *p = (real *)probabilities + r * cols;
        real max = largest(x, cols);
        double distance = (1 - smoothing) * ((double)max - (double)x[labels[r]]);
        for (size_t c = 0; c < cols && smoothing > 0; c++)
            distance += smoothing / (double)cols * ((double)max - (double)x[c]);
        double sum = 0;
        for (size_t c = 0; c < cols; c++) {
            p[c] = (real)exp((double)(x[c] - max));
            sum += (double)p[c];
        }
        for (size_t c = 0; c < cols; c++)
            p[c] = (real)((double)p[c] / sum);
        total += log(sum) + distance; /* -log(p[label]), also where p[label] is too small for a real */
    }
    *(real *)loss = rows ? (real)(total / (double)rows) : 0;
}

static void softmax_cross_entropy_backward(size_t rows, size_t cols, const void *probabilities, const uint32_t *labels,
                                           double smoothing, const void *dloss, bool accumulate, void *dlogits)
{
    real scale = rows ? *(const real *)dloss / (real)rows : 0;
    for (size_t r = 0; r < rows; r++) {
        const real *p = (const real *)probabilities + r * cols;
        real *d = (real *)dlogits + r * cols;
        for (size_t c = 0; c < cols; c++) {
            real wanted = (real)((c == labels[r] ? 1 - smoothing : 0) + smoothing / (double)cols);
            real g = (p[c] - wanted) * scale;
            d[c] = accumulate ? d[c] + g : g;
        }
    }
}

static uint64_t count_correct(size_t rows, size_t cols, const void *logits, const uint32_t *labels)
{
    uint64_t correct = 0;
    for (size_t r = 0; r < rows; r++) {
        const real *x = (const real *)logits + r * cols;
        size_t best = 0;
        for (size_t c = 1; c < cols; c++)
            best = x[c] > x[best] ? c : best;
        correct += best == labels[r];
    }
    return correct;
}

static void fill(size_t n_elems, double value, void *x)
{
    real *out = x;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = (real)value;
}

static void scaled(size_t n_elems, double factor, const void *x, bool accumulate, void *y)
{
    const real *in = x;
    real *out = y;
    for (size_t i = 0; i < n_elems; i++)
        out[i] = (real)factor * in[i] + (accumulate ? out[i] : 0);
}

static double get(const void *x, size_t index)
{
    return (double)((const real *)x)[index];
}

const sg_kernel *SG_REF_NAME(sg_kernel_ref_)(void)
{
    static const sg_kernel table = {
        .name = "ref_" TEXT_OF(SG_REAL),
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
        .conv = &SG_REF_NAME(sg_ref_conv_),
        .pool = &SG_REF_NAME(sg_ref_pool_),
        .elementwise = &SG_REF_NAME(sg_ref_elementwise_),
        .norm = &SG_REF_NAME(sg_ref_norm_),
        .move = &SG_REF_NAME(sg_ref_move_),
    };
    return &table;
}
