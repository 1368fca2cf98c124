/* kernels/cuda_elementwise.cu - what is done to each element, by the formulas of the host. */
#include "kernels/cuda_launch.h"
#include "kernels/dropout.h"
#include "kernels/formulas.h"

static void unary(sg_unary function, double parameter, size_t n_elems, const void *x, void *y)
{
    const real *in = (const real *)x;
    real *out = (real *)y;
    sg_cuda_each(n_elems, [=] __device__(size_t i) { out[i] = sg_formula_value(function, (real)parameter, in[i]); });
}

static void unary_backward(sg_unary function, double parameter, size_t n_elems, const void *x, const void *y,
                           const void *dy, bool accumulate, void *dx)
{
    const real *in = (const real *)x, *value = (const real *)y, *gradient = (const real *)dy;
    real *out = (real *)dx;
    sg_cuda_each(n_elems, [=] __device__(size_t i) {
        const real g = gradient[i] * sg_formula_slope(function, (real)parameter, in[i], value[i]);
        out[i] = accumulate ? out[i] + g : g;
    });
}

static void multiply(size_t n_elems, const void *a, const void *b, bool accumulate, void *y)
{
    const real *left = (const real *)a, *right = (const real *)b;
    real *out = (real *)y;
    sg_cuda_each(n_elems, [=] __device__(size_t i) { out[i] = left[i] * right[i] + (accumulate ? out[i] : 0); });
}

static void dropout_scales(uint64_t seed, uint64_t stream, uint64_t first, double rate, size_t n_elems, void *scales)
{
    const uint64_t limit = sg_dropout_limit(rate);
    const real kept = (real)(1 / (1 - rate));
    real *out = (real *)scales;
    sg_cuda_each(n_elems, [=] __device__(size_t i) {
        const philox4x32_ctr_t random = sg_dropout_block(seed, stream, (first + i) / SG_DROPOUT_WORDS);
        out[i] = random.v[(first + i) % SG_DROPOUT_WORDS] < limit ? 0 : kept;
    });
}

const sg_kernel_elementwise sg_cuda_elementwise = {
    .unary = unary, .unary_backward = unary_backward, .multiply = multiply, .dropout_scales = dropout_scales};
