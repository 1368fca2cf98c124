/* kernels/norm.h - normalisation, a part of the table of kernel.h and under its rules.
 *
 * Elements lie in groups that share a mean and a deviation: element (n, c, p) of [images, channels, plane] belongs to
 * group c (batch norm), element (r, c) of [rows, cols] to group r (layer norm). */
#ifndef SG_KERNELS_NORM_H
#define SG_KERNELS_NORM_H

#include <stdbool.h>
#include <stddef.h>

typedef struct sg_norm_shape {
    size_t images, channels, plane;
    size_t block; /* for the functions of blocks.h; 0: C order */
} sg_norm_shape;

typedef struct sg_kernel_norm {
    /* mean[c] and variance[c] over all n and p: the mean square of the distances, 0 where there are no elements */
    void (*batch_statistics)(const sg_norm_shape *shape, const void *x, void *mean, void *variance);
    /* inverse[c] = 1 / sqrt(variance[c] + epsilon) */
    void (*inverse_deviation)(size_t channels, double epsilon, const void *variance, void *inverse);
    /* y = (x - mean[c]) * inverse[c] * gamma[c] + beta[c]; with relu its positive part */
    void (*batch_forward)(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse,
                          const void *gamma, const void *beta, bool relu, void *y);
    /* sums[c] = sum of dy, sums[channels + c] = sum of dy * (x - mean[c]) * inverse[c], over all n and p: the gradients
     * of beta and gamma */
    void (*batch_sums)(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse, const void *dy,
                       void *sums);
    /* dx (+)= gamma[c] * inverse[c] * (dy - (sums[c] + (x - mean[c]) * inverse[c] * sums[channels + c]) / m), where m
     * is images * plane; with sums NULL (mean and inverse are constants): gamma[c] * inverse[c] * dy */
    void (*batch_backward)(const sg_norm_shape *shape, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, const void *sums, bool accumulate, void *dx);

    /* y[r,c] = (x[r,c] - mean of row r) * inverse[r] * gamma[c] + beta[c]; mean[rows] and inverse[rows] are kept */
    void (*layer_forward)(size_t rows, size_t cols, double epsilon, const void *x, const void *gamma, const void *beta,
                          void *mean, void *inverse, void *y);
    void (*layer_backward)(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                           const void *gamma, const void *dy, bool accumulate, void *dx);
    /* dgamma[c] (+)= sum over r of dy * (x - mean[r]) * inverse[r] */
    void (*layer_backward_gamma)(size_t rows, size_t cols, const void *x, const void *mean, const void *inverse,
                                 const void *dy, bool accumulate, void *dgamma);

    /* y = softmax of each row; dx (+)= y * (dy - sum over the row of dy * y) */
    void (*softmax)(size_t rows, size_t cols, const void *x, void *y);
    void (*softmax_backward)(size_t rows, size_t cols, const void *y, const void *dy, bool accumulate, void *dx);
} sg_kernel_norm;

#endif
