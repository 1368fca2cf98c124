/* kernels/elementwise.h - what is done to each element for itself, a part of the table of kernel.h and under its rules.
 */
#ifndef SG_KERNELS_ELEMENTWISE_H
#define SG_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Functions of one number; formulas.h has them. */
typedef enum sg_unary {
    SG_UNARY_SIGMOID, /* 1 / (1 + e^-x) */
    SG_UNARY_TANH,
    SG_UNARY_SOFTPLUS,   /* log(1 + e^x) */
    SG_UNARY_GELU,       /* x * P(a standard normal number is below x), by the error function */
    SG_UNARY_LEAKY_RELU, /* x where it is positive, else parameter * x */
    SG_UNARY_MARGIN,     /* max(0, parameter - x) */
    SG_UNARY_COUNT
} sg_unary;

typedef struct sg_kernel_elementwise {
    /* y = function(x); y is not x */
    void (*unary)(sg_unary function, double parameter, size_t n_elems, const void *x, void *y);
    /* dx (+)= dy * slope of the function at x; y is what unary gave */
    void (*unary_backward)(sg_unary function, double parameter, size_t n_elems, const void *x, const void *y,
                           const void *dy, bool accumulate, void *dx);
    /* y (+)= a * b; a may be b */
    void (*multiply)(size_t n_elems, const void *a, const void *b, bool accumulate, void *y);
    /* scales[i] = 0 with probability `rate`, else 1 / (1 - rate): a function of (seed, stream, first + i) alone, by
     * Philox. */
    void (*dropout_scales)(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems, void *scales);
} sg_kernel_elementwise;

#endif
