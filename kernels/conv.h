/* kernels/conv.h - convolutions over images, a part of the table of kernel.h and under its rules.
 *
 * Images are [images, channels, height, width], weights [outputs, channels / groups, kernel_height, kernel_width], as
 * in PyTorch: output o of an image is the cross-correlation of its group's channels, padded with zeros, with weight o.
 * Channels and outputs are divided into groups in order. */
#ifndef SG_KERNELS_CONV_H
#define SG_KERNELS_CONV_H

#include <stdbool.h>
#include <stddef.h>

/* What the layer has checked: every number but images and padding is at least 1; groups divides channels and outputs;
 * out_height and out_width are sg_conv_out of the others. */
struct sg_conv_plan;

typedef struct sg_conv_shape {
    size_t images, channels, height, width; /* of x */
    size_t outputs, kernel_height, kernel_width;
    size_t stride, padding, groups; /* the same in both directions */
    size_t out_height, out_width;
    struct sg_conv_plan *plan; /* how it is done, if the table made one; NULL: in C order */
} sg_conv_shape;

/* What a table has prepared for one shape: how it wants x and y. Weight, bias and their gradients are in C order. */
typedef struct sg_conv_plan {
    size_t in_block, out_block; /* of the channels of x and of y, see blocks.h; 0: C order */
} sg_conv_plan;

/* Plans are made once for each shape and kept: making one takes long. Their user is one thread at a time. */
typedef struct sg_conv_planner {
    void *(*create)(void); /* plans, none yet; NULL where this machine cannot: then do without */
    void (*destroy)(void *plans);
    /* The plan for a shape (but for its own `plan`), as long as the plans live; NULL where C order is better, or
     * without memory. */
    sg_conv_plan *(*find)(void *plans, const sg_conv_shape *shape);
    size_t (*count)(const void *plans); /* of the shapes seen so far */
} sg_conv_planner;

/* How many windows of `kernel` elements fit into size + 2 * padding, `stride` apart; 0 if none does. No overflow where
 * the arguments are below 2^31. */
static inline size_t sg_conv_out(size_t size, size_t kernel, size_t stride, size_t padding)
{
    return size + 2 * padding < kernel ? 0 : (size + 2 * padding - kernel) / stride + 1;
}

typedef struct sg_kernel_conv {
    const sg_conv_planner *planner; /* NULL: everything is in C order, and no shape has a plan */
    /* Elements that `scratch` must have; its content is nobody's between calls. */
    size_t (*scratch_elems)(const sg_conv_shape *shape);
    /* y[images, outputs, out_height, out_width]; bias[outputs] may be NULL. */
    void (*forward)(const sg_conv_shape *shape, const void *x, const void *weight, const void *bias, void *scratch,
                    void *y);
    /* dx (+)= what of dy comes to x */
    void (*backward_input)(const sg_conv_shape *shape, const void *dy, const void *weight, bool accumulate,
                           void *scratch, void *dx);
    /* dweight (+)= what of dy comes to weight */
    void (*backward_weight)(const sg_conv_shape *shape, const void *x, const void *dy, bool accumulate, void *scratch,
                            void *dweight);
    /* sums[c] (+)= sum of x[n,c,p] over n and p: the gradient of a bias */
    void (*plane_sums)(size_t images, size_t channels, size_t plane, const void *x, bool accumulate, void *sums);
} sg_kernel_conv;

#endif
