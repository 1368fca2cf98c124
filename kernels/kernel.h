/* kernels/kernel.h - the arithmetic of layers behind one table of functions per backend.
 *
 * ref.c is the truth: plain loops, compiled for float and for double. cpu.c is fast: OpenBLAS and vector loops, float.
 * A backend that is added later fills in the same table; tests/kernels compares every table with ref.c.
 *
 * Arrays are dense, in C order, `elem_bytes` bytes per element: float or double as the table says. Pointers may be NULL
 * where the number of elements is 0. They are the host's, unless the table has a device: then see device.h. Unless a
 * function says otherwise, arrays do not overlap. Nothing here fails:
 * sizes and labels were checked by the layer that calls. Every function may be called from any thread. `accumulate`:
 * add to what the output holds; otherwise its old content is not read. */
#ifndef SG_KERNELS_KERNEL_H
#define SG_KERNELS_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/blocks.h"
#include "kernels/conv.h"
#include "kernels/device.h"
#include "kernels/elementwise.h"
#include "kernels/isa.h"
#include "kernels/move.h"
#include "kernels/norm.h"
#include "kernels/pool.h"

/* A multiple of the rows that any of OpenBLAS's kernels works on at a time (12, 16, 24, 32). */
#define SG_KERNEL_BLOCK_ROWS 96u

typedef struct sg_kernel {
    const char *name;
    size_t elem_bytes;

    /* c[m,n] = op(a) * op(b) (+ c); op(a) is [m,k], op(b) [k,n]; a transposed operand is stored the other way round. */
    void (*gemm)(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, const void *a, const void *b,
                 bool accumulate, void *c);
    /* The same for rows [first, first + n_rows) of c alone; a, b and c are those of the whole product. Where all but
     * the last of several such calls begin and end at multiples of SG_KERNEL_BLOCK_ROWS, those of ref.c and cpu.c give
     * the bits of one; the others choose their loops by the number of rows, and agree with it within rounding. */
    void (*gemm_rows)(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_rows,
                      const void *a, const void *b, bool accumulate, void *c);
    /* The same with terms [first, first + n_terms) of the sums over k alone. Sums in parts have bits of their own. */
    void (*gemm_terms)(bool transpose_a, bool transpose_b, size_t m, size_t n, size_t k, size_t first, size_t n_terms,
                       const void *a, const void *b, bool accumulate, void *c);

    /* y[r,c] += bias[c], in place; with relu: y = max(0, y + bias). */
    void (*bias_add)(size_t rows, size_t cols, const void *bias, void *y);
    void (*bias_add_relu)(size_t rows, size_t cols, const void *bias, void *y);

    /* y = max(0, x); NaN stays NaN. y may be x. */
    void (*relu)(size_t n_elems, const void *x, void *y);
    /* dx (+)= dy where y > 0, else 0. dx may be dy if it does not accumulate. */
    void (*relu_backward)(size_t n_elems, const void *y, const void *dy, bool accumulate, void *dx);

    /* sums[c] (+)= sum over rows of x[r,c] */
    void (*column_sums)(size_t rows, size_t cols, const void *x, bool accumulate, void *sums);
    /* relu_backward in place on dy and column_sums of the result, in one pass. */
    void (*relu_backward_column_sums)(size_t rows, size_t cols, const void *y, void *dy, bool accumulate, void *sums);

    /* probabilities = softmax of each row of logits; *loss = mean over rows of -log(probability of the row's label),
     * 0 where there are no rows; of that 1 - smoothing, and smoothing of the mean of -log(probability) over all
     * classes. Stable for logits of any size. labels[r] < cols. probabilities may be logits. */
    void (*softmax_cross_entropy)(size_t rows, size_t cols, const void *logits, const uint32_t *labels,
                                  double smoothing, void *probabilities, void *loss);
    /* dlogits (+)= (probabilities - (1 - smoothing) * one-hot of labels - smoothing / cols) * *dloss / rows */
    void (*softmax_cross_entropy_backward)(size_t rows, size_t cols, const void *probabilities, const uint32_t *labels,
                                           double smoothing, const void *dloss, bool accumulate, void *dlogits);
    /* Number of rows whose largest element (the first of equals) is the label's. */
    uint64_t (*count_correct)(size_t rows, size_t cols, const void *logits, const uint32_t *labels);

    void (*fill)(size_t n_elems, double value, void *x);
    /* y (+)= factor * x; factor is rounded to an element first */
    void (*scaled)(size_t n_elems, double factor, const void *x, bool accumulate, void *y);
    double (*get)(const void *x, size_t index); /* one element */

    const sg_kernel_conv *conv;
    const sg_kernel_pool *pool;
    const sg_kernel_elementwise *elementwise;
    const sg_kernel_norm *norm;
    const sg_kernel_move *move;
    const sg_kernel_device *device; /* NULL: it works in the host's memory */
    const sg_kernel_blocks *blocks; /* NULL where conv plans nothing */
} sg_kernel;

/* Static storage, immutable. */
const sg_kernel *sg_kernel_ref_float(void);
const sg_kernel *sg_kernel_ref_double(void);
const sg_kernel *sg_kernel_cpu(void);          /* for the best instruction set of this machine */
const sg_kernel *sg_kernel_cpu_as(sg_isa isa); /* for one that the machine has */
/* The same with convolutions by oneDNN, and with AVX-512 products, too; NULL where this was built without it. */
const sg_kernel *sg_kernel_onednn(void);
/* That of a GPU: cuda_load.h. */

/* How many threads one call of these two may use, at least 1. OpenBLAS keeps this once per process: a program sets it
 * once, at its start, before the first product; a library never does. With oneDNN the bits depend on this number. */
void sg_kernel_cpu_set_threads(uint32_t n_threads);

/* Address space that products of so many threads take for good, and those threads: OpenBLAS's most of it from the load
 * of the program on, for a thread per CPU; oneDNN's beside that, where this was built with it, once it computes. */
uint64_t sg_kernel_cpu_room(uint32_t n_threads);

#endif
