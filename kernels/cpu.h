/* kernels/cpu.h - what the files of the CPU table share. Only they include it. */
#ifndef SG_KERNELS_CPU_H
#define SG_KERNELS_CPU_H

#include <string.h>

#include "kernels/kernel.h"

/* The part of an operand where a product begins, and how far its rows lie apart. */
typedef struct sg_cpu_operand {
    bool transpose;
    const float *first;
    size_t stride;
} sg_cpu_operand;

/* c[m,n] = op(a) * op(b) (+ c); the rows of c lie c_stride elements apart. */
typedef void sg_cpu_multiply_fn(size_t m, size_t n, size_t k, sg_cpu_operand a, sg_cpu_operand b, bool accumulate,
                                float *c, size_t c_stride);
sg_cpu_multiply_fn sg_cpu_multiply; /* by OpenBLAS */

extern const sg_kernel_conv sg_cpu_conv_portable, sg_cpu_conv_avx2, sg_cpu_conv_avx512;
extern const sg_kernel_conv sg_cpu_conv_onednn; /* avx512 with the products of onednn.h; not there without oneDNN */
extern const sg_kernel_pool sg_cpu_pool_portable, sg_cpu_pool_avx2, sg_cpu_pool_avx512;
extern const sg_kernel_elementwise sg_cpu_elementwise_portable, sg_cpu_elementwise_avx2, sg_cpu_elementwise_avx512;
extern const sg_kernel_norm sg_cpu_norm_portable, sg_cpu_norm_avx2, sg_cpu_norm_avx512;
extern const sg_kernel_pool sg_cpu_block_pool_portable, sg_cpu_block_pool_avx2, sg_cpu_block_pool_avx512;
extern const sg_kernel_blocks sg_cpu_blocks_portable, sg_cpu_blocks_avx2, sg_cpu_blocks_avx512;

/* Of the plain loops: as good as any here. */
extern const sg_kernel_norm sg_ref_norm_float;
extern const sg_kernel_move sg_ref_move_float;

/* A statement with the constant b, the block, so that each loop over the channels of one becomes vectors of its own. */
#define SG_CPU_BY_BLOCK(block, ...)                                                                                    \
    SG_ASSERT((block) == SG_BLOCK_MAX || (block) == SG_BLOCK_MIN);                                                     \
    if ((block) == SG_BLOCK_MAX) {                                                                                     \
        const size_t b = SG_BLOCK_MAX;                                                                                 \
        __VA_ARGS__;                                                                                                   \
    } else {                                                                                                           \
        const size_t b = SG_BLOCK_MIN;                                                                                 \
        __VA_ARGS__;                                                                                                   \
    }

/* Short rows are the rule here, for which a call of memcpy or memset costs more than the copy. */
SG_ISA_INLINE void sg_cpu_copy(size_t n, const float *restrict from, float *restrict to)
{
    enum { wide = 8, narrow = 2 };
    size_t i = 0;
    for (; i + wide <= n; i += wide)
        __builtin_memcpy(to + i, from + i, wide * sizeof(float));
    for (; i + narrow <= n; i += narrow)
        __builtin_memcpy(to + i, from + i, narrow * sizeof(float));
    if (i < n)
        to[i] = from[i];
}

/* Elements, or rows, that are summed in float before the sum is added in double: the error does not grow with the rest.
 */
#define SG_CPU_CHUNK      ((size_t)4096)
#define SG_CPU_CHUNK_ROWS ((size_t)256)

/* Sums in lanes, so that the compiler makes vectors of them. */
SG_ISA_INLINE double sg_cpu_sum_chunk(size_t n, const float *x)
{
    enum { n_lanes = 16 };
    float lanes[n_lanes] = {0};
    size_t i = 0;
    for (; i + n_lanes <= n; i += n_lanes)
        for (size_t l = 0; l < n_lanes; l++)
            lanes[l] += x[i + l];
    double sum = 0;
    for (; i < n; i++)
        sum += (double)x[i];
    for (size_t l = 0; l < n_lanes; l++)
        sum += (double)lanes[l];
    return sum;
}

SG_ISA_INLINE size_t sg_cpu_chunk_at(size_t n, size_t done)
{
    return n - done < SG_CPU_CHUNK ? n - done : SG_CPU_CHUNK;
}

SG_ISA_INLINE double sg_cpu_sum(size_t n, const float *x)
{
    double sum = 0;
    for (size_t done = 0; done < n; done += SG_CPU_CHUNK)
        sum += sg_cpu_sum_chunk(sg_cpu_chunk_at(n, done), x + done);
    return sum;
}

#endif
