/* kernels/cuda_conv.cu - convolutions as matrix products: so many images at once as scratch has room for.
 *
 * For these images the parts of x that the windows see are the columns of a matrix [terms, images * plane], term
 * (channel, y, x of the kernel), and y and dy are matrices [outputs, images * plane], in another order than theirs. */
#include "kernels/cuda_launch.h"

#define MAX_SCRATCH_ELEMS ((size_t)64 << 20)

/* One group of a convolution. */
typedef struct part {
    sg_conv_shape shape;
    size_t group;
    size_t channels, outputs; /* of the group */
    size_t plane, terms;      /* of an output image; of the sum that an output element is */
    size_t first, images;     /* those that are worked on at once */
} part;

static part part_of(const sg_conv_shape *s)
{
    part p = {};
    p.shape = *s;
    p.channels = s->channels / s->groups;
    p.outputs = s->outputs / s->groups;
    p.plane = s->out_height * s->out_width;
    p.terms = p.channels * s->kernel_height * s->kernel_width;
    return p;
}

static size_t images_at_once(const sg_conv_shape *s)
{
    const part p = part_of(s);
    const size_t most = MAX_SCRATCH_ELEMS / (p.plane * (p.terms + p.outputs));
    return most < 1 ? 1 : most < s->images ? most : s->images;
}

static size_t scratch_elems(const sg_conv_shape *s)
{
    const part p = part_of(s);
    return images_at_once(s) * p.plane * (p.terms + p.outputs);
}

/* The place in x of term `term` of column `col`; false where it lies in the padding. */
static __host__ __device__ bool find(const part &p, size_t term, size_t col, size_t *place)
{
    const sg_conv_shape &s = p.shape;
    const size_t n = p.first + col / p.plane, pixel = col % p.plane;
    const size_t c = p.group * p.channels + term / (s.kernel_height * s.kernel_width);
    const size_t y = pixel / s.out_width * s.stride + term / s.kernel_width % s.kernel_height; /* in the padded image */
    const size_t x = pixel % s.out_width * s.stride + term % s.kernel_width;
    if (y < s.padding || x < s.padding || y - s.padding >= s.height || x - s.padding >= s.width)
        return false;
    *place = ((n * s.channels + c) * s.height + y - s.padding) * s.width + x - s.padding;
    return true;
}

/* The place in y of output `output` of column `col`. */
static __host__ __device__ size_t place_in_y(const part &p, size_t output, size_t col)
{
    const size_t n = p.first + col / p.plane;
    return (n * p.shape.outputs + p.group * p.outputs + output) * p.plane + col % p.plane;
}

/* columns[terms, images * plane] of x */
static void gather_columns(part p, const void *x, real *columns)
{
    const real *in = (const real *)x;
    const size_t cols = p.images * p.plane;
    sg_cuda_each(p.terms * cols, [=] __device__(size_t i) {
        size_t place;
        columns[i] = find(p, i / cols, i % cols, &place) ? in[place] : 0;
    });
}

/* rows[outputs, images * plane] of dy */
static void gather_outputs(part p, const void *dy, real *rows)
{
    const real *in = (const real *)dy;
    const size_t cols = p.images * p.plane;
    sg_cuda_each(p.outputs * cols, [=] __device__(size_t i) { rows[i] = in[place_in_y(p, i / cols, i % cols)]; });
}

static void scatter_outputs(part p, const real *rows, const void *bias, void *y)
{
    const real *b = (const real *)bias;
    real *out = (real *)y;
    const size_t cols = p.images * p.plane;
    sg_cuda_each(p.outputs * cols, [=] __device__(size_t i) {
        const size_t output = i / cols;
        out[place_in_y(p, output, i % cols)] = rows[i] + (b ? b[p.group * p.outputs + output] : 0);
    });
}

/* Element `i` of these images' x of the group: the sum of all elements of the columns that are copies of it. */
static __host__ __device__ real sum_of_copies(const part &p, const real *columns, size_t i)
{
    const sg_conv_shape &s = p.shape;
    const size_t area = s.height * s.width, cols = p.images * p.plane;
    const size_t y = i / s.width % s.height + s.padding, x = i % s.width + s.padding; /* in the padded image */
    const size_t n = i / area / p.channels, c = i / area % p.channels;
    real sum = 0;
    for (size_t ky = 0; ky < s.kernel_height && ky <= y; ky++) {
        for (size_t kx = 0; kx < s.kernel_width && kx <= x; kx++) {
            const size_t oy = (y - ky) / s.stride, ox = (x - kx) / s.stride;
            if ((y - ky) % s.stride != 0 || (x - kx) % s.stride != 0 || oy >= s.out_height || ox >= s.out_width)
                continue;
            const size_t term = (c * s.kernel_height + ky) * s.kernel_width + kx;
            sum += columns[term * cols + n * p.plane + oy * s.out_width + ox];
        }
    }
    return sum;
}

static void add_columns(part p, const real *columns, bool accumulate, void *dx)
{
    real *out = (real *)dx;
    const size_t of_image = p.channels * p.shape.height * p.shape.width;
    sg_cuda_each(p.images * of_image, [=] __device__(size_t i) {
        const size_t n = p.first + i / of_image;
        const size_t place = (n * p.shape.groups + p.group) * of_image + i % of_image;
        out[place] = (accumulate ? out[place] : 0) + sum_of_copies(p, columns, i);
    });
}

/* The weight of the group. */
static const real *weight_of(const part &p, const void *weight)
{
    return (const real *)weight + p.group * p.outputs * p.terms;
}

/* Moves on to the next group of these images, or to the next images. False at the end. */
static bool next(part *p)
{
    const size_t at_once = images_at_once(&p->shape);
    if (p->images > 0 && ++p->group < p->shape.groups)
        return true;
    p->group = 0;
    p->first += p->images;
    p->images = p->shape.images - p->first < at_once ? p->shape.images - p->first : at_once;
    return p->images > 0;
}

static void forward(const sg_conv_shape *s, const void *x, const void *weight, const void *bias, void *scratch, void *y)
{
    for (part p = part_of(s); next(&p);) {
        const size_t cols = p.images * p.plane;
        real *columns = (real *)scratch, *rows = columns + p.terms * cols;
        gather_columns(p, x, columns);
        sg_cuda_multiply(p.outputs, cols, p.terms, {false, weight_of(p, weight), p.terms}, {false, columns, cols},
                         false, rows, cols);
        scatter_outputs(p, rows, bias, y);
    }
}

static void backward_input(const sg_conv_shape *s, const void *dy, const void *weight, bool accumulate, void *scratch,
                           void *dx)
{
    for (part p = part_of(s); next(&p);) {
        const size_t cols = p.images * p.plane;
        real *columns = (real *)scratch, *rows = columns + p.terms * cols;
        gather_outputs(p, dy, rows);
        sg_cuda_multiply(p.terms, cols, p.outputs, {true, weight_of(p, weight), p.terms}, {false, rows, cols}, false,
                         columns, cols);
        add_columns(p, columns, accumulate, dx);
    }
}

static void backward_weight(const sg_conv_shape *s, const void *x, const void *dy, bool accumulate, void *scratch,
                            void *dweight)
{
    if (s->images == 0 && !accumulate) {
        real *out = (real *)dweight;
        const part none = part_of(s);
        sg_cuda_each(s->outputs * none.terms, [=] __device__(size_t i) { out[i] = 0; });
    }
    for (part p = part_of(s); next(&p);) {
        const size_t cols = p.images * p.plane;
        real *columns = (real *)scratch, *rows = columns + p.terms * cols;
        gather_columns(p, x, columns);
        gather_outputs(p, dy, rows);
        sg_cuda_multiply(p.outputs, p.terms, cols, {false, rows, cols}, {true, columns, cols},
                         accumulate || p.first > 0, (real *)dweight + p.group * p.outputs * p.terms, p.terms);
    }
}

static void plane_sums(size_t images, size_t channels, size_t plane, const void *x, bool accumulate, void *sums)
{
    const real *in = (const real *)x;
    real *out = (real *)sums;
    sg_cuda_each_sum<sg_cuda_sum>(
        channels, images * plane,
        [=] __device__(size_t c, size_t i) {
            return sg_cuda_sum{(double)in[(i / plane * channels + c) * plane + i % plane]};
        },
        [=] __device__(size_t c, sg_cuda_sum sum) { out[c] = (accumulate ? out[c] : 0) + (real)sum.value; });
}

const sg_kernel_conv sg_cuda_conv = {.scratch_elems = scratch_elems,
                                     .forward = forward,
                                     .backward_input = backward_input,
                                     .backward_weight = backward_weight,
                                     .plane_sums = plane_sums};
