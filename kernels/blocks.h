/* kernels/blocks.h - images whose channels lie in blocks, a part of the table of kernel.h and under its rules.
 *
 * In C order the elements of a channel lie together. What convolves in vectors wants those of `block` channels side by
 * side: [images, channels / block, height, width, block]. Seen as [images * channels] rows, one for each channel of
 * each image, `block` rows at a time are interleaved. block divides the channels. Functions of single elements, and of
 * two arrays in the same order, do not care. */
#ifndef SG_KERNELS_BLOCKS_H
#define SG_KERNELS_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernels/norm.h"
#include "kernels/pool.h"

/* The largest and, of the powers of two, the smallest that there are. */
#define SG_BLOCK_MAX 16u
#define SG_BLOCK_MIN 8u

typedef struct sg_kernel_blocks {
    /* y[r / block, c, r % block] (+)= x[r, c]; block divides rows */
    void (*interleave)(size_t rows, size_t cols, size_t block, const void *x, bool accumulate, void *y);
    /* y[r, c] (+)= x[r / block, c, r % block] */
    void (*separate)(size_t rows, size_t cols, size_t block, const void *x, bool accumulate, void *y);

    /* These do what those of the same name do in C order; the shape says in what blocks. */
    void (*plane_sums)(const sg_norm_shape *shape, const void *x, bool accumulate, void *sums);
    void (*row_means)(size_t rows, size_t cols, size_t block, const void *x, void *y);
    void (*row_means_backward)(size_t rows, size_t cols, size_t block, const void *dy, bool accumulate, void *dx);
    const sg_kernel_norm *norm; /* batch_...; the others are NULL */
    const sg_kernel_pool *pool; /* without row_means */
} sg_kernel_blocks;

#endif
