/* kernels/cpu_elementwise.c - what is done to each element, in vectors where libm is not needed. */
#include "kernels/cpu.h"

typedef float real;
#include "kernels/elementwise_loops.h"

/* clang-format off */
#define VARIANT(name_, target)                                                                                         \
    target static void unary_##name_(sg_unary function, double parameter, size_t n_elems, const void *x, void *y)      \
    { sg_loop_choose_unary(function, (float)parameter, n_elems, x, y); }                                               \
    target static void unary_backward_##name_(sg_unary function, double parameter, size_t n_elems, const void *x,      \
                                              const void *y, const void *dy, bool accumulate, void *dx)                \
    { sg_loop_choose_backward(function, (float)parameter, n_elems, x, y, dy, accumulate, dx); }                        \
    target static void multiply_##name_(size_t n_elems, const void *a, const void *b, bool accumulate, void *y)        \
    { sg_loop_multiply(n_elems, a, b, accumulate, y); }                                                                \
    target static void dropout_scales_##name_(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems,             \
                                              void *scales)                                                            \
    { sg_loop_dropout(seed, stream, first, rate, n_elems, scales); }                                                          \
    const sg_kernel_elementwise sg_cpu_elementwise_##name_ = {                                                         \
        .unary = unary_##name_, .unary_backward = unary_backward_##name_, .multiply = multiply_##name_,                \
        .dropout_scales = dropout_scales_##name_,                                                                      \
    };
/* clang-format on */
VARIANT(portable, )
VARIANT(avx2, SG_ISA_TARGET_AVX2)
VARIANT(avx512, SG_ISA_TARGET_AVX512)
