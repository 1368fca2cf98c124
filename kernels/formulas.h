/* kernels/formulas.h - the formula of each function of one number: the only place where it stands.
 *
 * Whoever includes this has defined the type `real`; tgmath.h, or C++, picks the function of libm for it. */
#ifndef SG_KERNELS_FORMULAS_H
#define SG_KERNELS_FORMULAS_H

#ifdef __cplusplus
#include <math.h>
#else
#include <tgmath.h>
#endif

#include "kernels/elementwise.h"
#include "kernels/isa.h"

#define SG_SQRT_HALF       ((real)0.70710678118654752440L)
#define SG_INVERSE_SQRT_PI ((real)0.56418958354775628695L)

SG_ISA_INLINE real sg_formula_value(sg_unary function, real parameter, real x)
{
    const bool has_e = function == SG_UNARY_SIGMOID || function == SG_UNARY_SOFTPLUS;
    const real e = has_e ? exp(-fabs(x)) : 0; /* at most 1: nothing overflows */
    switch (function) {
    case SG_UNARY_SIGMOID:
        return (x < 0 ? e : 1) / (1 + e);
    case SG_UNARY_TANH:
        return tanh(x);
    case SG_UNARY_SOFTPLUS:
        return (x > 0 ? x : 0) + log1p(e);
    case SG_UNARY_GELU:
        return x * (1 + erf(x * SG_SQRT_HALF)) / 2;
    case SG_UNARY_LEAKY_RELU:
        return x > 0 ? x : parameter * x;
    case SG_UNARY_MARGIN:
        return x > parameter ? 0 : parameter - x; /* NaN stays NaN */
    default:
        return 0;
    }
}

/* The slope at x, where the function is y. */
SG_ISA_INLINE real sg_formula_slope(sg_unary function, real parameter, real x, real y)
{
    const real e = function == SG_UNARY_SOFTPLUS ? exp(-fabs(x)) : 0;
    switch (function) {
    case SG_UNARY_SIGMOID:
        return y * (1 - y);
    case SG_UNARY_TANH:
        return 1 - y * y;
    case SG_UNARY_SOFTPLUS:
        return (x < 0 ? e : 1) / (1 + e);
    case SG_UNARY_GELU:
        return (1 + erf(x * SG_SQRT_HALF)) / 2 + x * exp(-x * x / 2) * SG_SQRT_HALF * SG_INVERSE_SQRT_PI;
    case SG_UNARY_LEAKY_RELU:
        return x > 0 ? 1 : parameter;
    case SG_UNARY_MARGIN:
        return x < parameter ? -1 : 0;
    default:
        return 0;
    }
}

#endif
