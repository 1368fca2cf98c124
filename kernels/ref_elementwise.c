/* kernels/ref_elementwise.c - what is done to each element, one after the other. */
#include "kernels/ref.h"

#include "kernels/elementwise_loops.h"

static void unary(sg_unary function, double parameter, size_t n_elems, const void *x, void *y)
{
    sg_loop_choose_unary(function, (real)parameter, n_elems, x, y);
}

static void unary_backward(sg_unary function, double parameter, size_t n_elems, const void *x, const void *y,
                           const void *dy, bool accumulate, void *dx)
{
    sg_loop_choose_backward(function, (real)parameter, n_elems, x, y, dy, accumulate, dx);
}

static void multiply(size_t n_elems, const void *a, const void *b, bool accumulate, void *y)
{
    sg_loop_multiply(n_elems, a, b, accumulate, y);
}

static void dropout_scales(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems, void *scales)
{
    sg_loop_dropout(seed, stream, first, rate, n_elems, scales);
}

const sg_kernel_elementwise SG_REF_NAME(sg_ref_elementwise_) = {
    .unary = unary, .unary_backward = unary_backward, .multiply = multiply, .dropout_scales = dropout_scales};
