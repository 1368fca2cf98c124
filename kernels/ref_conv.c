/* kernels/ref_conv.c - convolutions in plain loops: each product of the sum once, found by its place. */
#include "kernels/ref.h"

/* Calls visit(user, index in x, in weight, in y) for each product of the whole convolution. */
typedef struct product {
    size_t x, weight, y;
} product;

typedef void (*visit_fn)(const product *p, const real *a, const real *b, real *sum);

static void add_to_y(const product *p, const real *x, const real *weight, real *y)
{
    y[p->y] += x[p->x] * weight[p->weight];
}

static void add_to_dx(const product *p, const real *dy, const real *weight, real *dx)
{
    dx[p->x] += dy[p->y] * weight[p->weight];
}

static void add_to_dweight(const product *p, const real *x, const real *dy, real *dweight)
{
    dweight[p->weight] += x[p->x] * dy[p->y];
}

/* All products that output element [n, o, oy, ox] is the sum of. */
static void visit_window(const sg_conv_shape *s, size_t n, size_t o, size_t oy, size_t ox, visit_fn visit,
                         const real *a, const real *b, real *sum)
{
    const size_t per_group = s->channels / s->groups;
    const size_t first_channel = o / (s->outputs / s->groups) * per_group;
    for (size_t c = 0; c < per_group; c++) {
        for (size_t i = 0; i < s->kernel_height * s->kernel_width; i++) {
            const size_t ky = i / s->kernel_width, kx = i % s->kernel_width;
            const size_t y = oy * s->stride + ky, x = ox * s->stride + kx; /* in the padded image */
            if (y < s->padding || x < s->padding || y - s->padding >= s->height || x - s->padding >= s->width)
                continue;
            const size_t row = ((n * s->channels + first_channel + c) * s->height + y - s->padding);
            const product p = {.x = row * s->width + x - s->padding,
                               .weight = (o * per_group + c) * s->kernel_height * s->kernel_width + i,
                               .y = ((n * s->outputs + o) * s->out_height + oy) * s->out_width + ox};
            visit(&p, a, b, sum);
        }
    }
}

static void visit_all(const sg_conv_shape *s, visit_fn visit, const void *a, const void *b, void *sum)
{
    for (size_t n = 0; n < s->images; n++)
        for (size_t o = 0; o < s->outputs; o++)
            for (size_t oy = 0; oy < s->out_height; oy++)
                for (size_t ox = 0; ox < s->out_width; ox++)
                    visit_window(s, n, o, oy, ox, visit, a, b, sum);
}

static size_t scratch_elems(const sg_conv_shape *s)
{
    (void)s;
    return 0;
}

static void zero(size_t n_elems, real *x)
{
    for (size_t i = 0; i < n_elems; i++)
        x[i] = 0;
}

static void forward(const sg_conv_shape *s, const void *x, const void *weight, const void *bias, void *scratch, void *y)
{
    (void)scratch;
    const size_t plane = s->out_height * s->out_width;
    for (size_t i = 0; i < s->images * s->outputs * plane; i++)
        ((real *)y)[i] = bias ? ((const real *)bias)[i / plane % s->outputs] : 0;
    visit_all(s, add_to_y, x, weight, y);
}

static void backward_input(const sg_conv_shape *s, const void *dy, const void *weight, bool accumulate, void *scratch,
                           void *dx)
{
    (void)scratch;
    if (!accumulate)
        zero(s->images * s->channels * s->height * s->width, dx);
    visit_all(s, add_to_dx, dy, weight, dx);
}

static void backward_weight(const sg_conv_shape *s, const void *x, const void *dy, bool accumulate, void *scratch,
                            void *dweight)
{
    (void)scratch;
    if (!accumulate)
        zero(s->outputs * (s->channels / s->groups) * s->kernel_height * s->kernel_width, dweight);
    visit_all(s, add_to_dweight, x, dy, dweight);
}

static void plane_sums(size_t images, size_t channels, size_t plane, const void *x, bool accumulate, void *sums)
{
    const real *in = x;
    real *out = sums;
    for (size_t c = 0; c < channels; c++) {
        double sum = accumulate ? (double)out[c] : 0;
        for (size_t n = 0; n < images; n++)
            for (size_t p = 0; p < plane; p++)
                sum += (double)in[(n * channels + c) * plane + p];
        out[c] = (real)sum;
    }
}

const sg_kernel_conv SG_REF_NAME(sg_ref_conv_) = {.scratch_elems = scratch_elems,
                                                  .forward = forward,
                                                  .backward_input = backward_input,
                                                  .backward_weight = backward_weight,
                                                  .plane_sums = plane_sums};
