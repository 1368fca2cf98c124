/* kernels/pool.h - pooling over images, a part of the table of kernel.h and under its rules. */
#ifndef SG_KERNELS_POOL_H
#define SG_KERNELS_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_POOL_MAX_WINDOW 15u /* elements in each direction, so that a place in a window is a byte */

/* What the layer has checked: every number but padding is at least 1, window at most SG_POOL_MAX_WINDOW, padding at
 * most half the window, so that each window holds an element; out_height and out_width are sg_conv_out of the others.
 */
typedef struct sg_pool_shape {
    size_t planes, height, width;   /* of x; planes = images * channels */
    size_t window, stride, padding; /* the same in both directions */
    size_t out_height, out_width;
    size_t block; /* for the functions of blocks.h; 0: C order */
} sg_pool_shape;

typedef struct sg_kernel_pool {
    /* y = the largest of each window of x, the first of equals; a NaN is larger than all, of several one. place[out
     * elements] says which of the window's elements, counted by rows with the padding, it is. */
    void (*max)(const sg_pool_shape *shape, const void *x, void *y, uint8_t *place);
    void (*max_backward)(const sg_pool_shape *shape, const void *dy, const uint8_t *place, bool accumulate, void *dx);
    /* y = sum of each window / window^2: the padding counts as zeros, as in PyTorch. */
    void (*average)(const sg_pool_shape *shape, const void *x, void *y);
    void (*average_backward)(const sg_pool_shape *shape, const void *dy, bool accumulate, void *dx);
    /* y[r] = mean of x[r,c] over c, 0 where cols is 0; dx[r,c] (+)= dy[r] / cols */
    void (*row_means)(size_t rows, size_t cols, const void *x, void *y);
    void (*row_means_backward)(size_t rows, size_t cols, const void *dy, bool accumulate, void *dx);
} sg_kernel_pool;

#endif
