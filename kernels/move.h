/* kernels/move.h - elements brought from one place to another, a part of the table of kernel.h and under its rules. */
#ifndef SG_KERNELS_MOVE_H
#define SG_KERNELS_MOVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sg_kernel_move {
    /* to[r * to_stride + c] (+)= from[r * from_stride + c] for r < rows, c < cols */
    void (*rows)(size_t rows, size_t cols, const void *from, size_t from_stride, bool accumulate, void *to,
                 size_t to_stride);
    /* y[i,c] = table[ids[i],c]; each id is below the number of the table's rows */
    void (*gather)(size_t n_ids, size_t cols, const void *table, const uint32_t *ids, void *y);
    /* dtable[ids[i],c] += dy[i,c], in the order of i; without accumulate it is zero before */
    void (*scatter)(size_t n_ids, size_t n_rows, size_t cols, const void *dy, const uint32_t *ids, bool accumulate,
                    void *dtable);
    /* y[p, i, j] = x[p, i / factor, j / factor]; x is [planes, height, width] */
    void (*upsample)(size_t planes, size_t height, size_t width, size_t factor, const void *x, void *y);
    void (*upsample_backward)(size_t planes, size_t height, size_t width, size_t factor, const void *dy,
                              bool accumulate, void *dx);
    /* x[n,c,p] = values[c], 0 where values is NULL */
    void (*fill_planes)(size_t images, size_t channels, size_t plane, const void *values, void *x);
} sg_kernel_move;

#endif
