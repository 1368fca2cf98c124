/* kernels/elementwise_loops.h - the loops around formulas.h, for whoever has defined the type `real`: the same for the
 * plain loops and for the CPU, which lets the compiler make vectors of them. */
#ifndef SG_KERNELS_ELEMENTWISE_LOOPS_H
#define SG_KERNELS_ELEMENTWISE_LOOPS_H

#include "kernels/dropout.h"
#include "kernels/formulas.h"

SG_ISA_INLINE void sg_loop_unary(sg_unary function, real parameter, size_t n_elems, const real *restrict x,
                                 real *restrict y)
{
    for (size_t i = 0; i < n_elems; i++)
        y[i] = sg_formula_value(function, parameter, x[i]);
}

SG_ISA_INLINE void sg_loop_unary_backward(sg_unary function, real parameter, size_t n_elems, const real *restrict x,
                                          const real *restrict y, const real *restrict dy, bool accumulate,
                                          real *restrict dx)
{
    for (size_t i = 0; i < n_elems; i++) {
        const real g = dy[i] * sg_formula_slope(function, parameter, x[i], y[i]);
        dx[i] = accumulate ? dx[i] + g : g;
    }
}

/* Each function has a loop of its own, in which it is known. */
#define SG_FOR_EACH_UNARY(do_)                                                                                         \
    do_(SG_UNARY_SIGMOID) do_(SG_UNARY_TANH) do_(SG_UNARY_SOFTPLUS) do_(SG_UNARY_GELU) do_(SG_UNARY_LEAKY_RELU)        \
        do_(SG_UNARY_MARGIN)

SG_ISA_INLINE void sg_loop_choose_unary(sg_unary function, real parameter, size_t n_elems, const real *x, real *y)
{
#define SG_CASE(known)                                                                                                 \
    case known:                                                                                                        \
        sg_loop_unary(known, parameter, n_elems, x, y);                                                                \
        break;
    switch (function) {
        SG_FOR_EACH_UNARY(SG_CASE)
    default:
        break;
    }
#undef SG_CASE
}

SG_ISA_INLINE void sg_loop_choose_backward(sg_unary function, real parameter, size_t n_elems, const real *x,
                                           const real *y, const real *dy, bool accumulate, real *dx)
{
#define SG_CASE(known)                                                                                                 \
    case known:                                                                                                        \
        sg_loop_unary_backward(known, parameter, n_elems, x, y, dy, accumulate, dx);                                   \
        break;
    switch (function) {
        SG_FOR_EACH_UNARY(SG_CASE)
    default:
        break;
    }
#undef SG_CASE
}

SG_ISA_INLINE void sg_loop_multiply(size_t n_elems, const real *a, const real *b, bool accumulate, real *restrict y)
{
    for (size_t i = 0; i < n_elems; i++)
        y[i] = a[i] * b[i] + (accumulate ? y[i] : 0);
}

SG_ISA_INLINE void sg_loop_dropout(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems,
                                   real *scales)
{
    const uint64_t limit = sg_dropout_limit(rate);
    const real kept = (real)(1 / (1 - rate));
    for (size_t i = 0; i < n_elems;) {
        const philox4x32_ctr_t random = sg_dropout_block(seed, stream, (first + i) / SG_DROPOUT_WORDS);
        for (size_t w = (first + i) % SG_DROPOUT_WORDS; w < SG_DROPOUT_WORDS && i < n_elems; w++)
            scales[i++] = random.v[w] < limit ? 0 : kept;
    }
}

#endif
