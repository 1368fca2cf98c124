/* tests/kernels/test_conv.c - convolutions of every table against the plain loops in double precision, and these
 * against sums made by hand. A sum of n products of numbers up to 1 is within 2e-7 * (1 + n). */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/kernels/arrays.h"

TestSuite(conv, .timeout = 240);

static sg_conv_shape shape_of(const size_t numbers[10])
{
    sg_conv_shape s = {.images = numbers[0],
                       .channels = numbers[1],
                       .height = numbers[2],
                       .width = numbers[3],
                       .outputs = numbers[4],
                       .kernel_height = numbers[5],
                       .kernel_width = numbers[6],
                       .stride = numbers[7],
                       .padding = numbers[8],
                       .groups = numbers[9]};
    s.out_height = sg_conv_out(s.height, s.kernel_height, s.stride, s.padding);
    s.out_width = sg_conv_out(s.width, s.kernel_width, s.stride, s.padding);
    return s;
}

/* images, channels, height, width, outputs, kernel height and width, stride, padding, groups */
static const size_t shapes[][10] = {
    {0, 1, 5, 5, 2, 3, 3, 1, 1, 1},     {1, 1, 1, 1, 1, 1, 1, 1, 0, 1},     {2, 3, 7, 5, 4, 3, 3, 1, 0, 1},
    {2, 3, 7, 5, 4, 3, 3, 1, 1, 1},     {3, 2, 9, 9, 5, 3, 3, 2, 1, 1},     {2, 4, 8, 8, 6, 5, 5, 1, 2, 2},
    {2, 6, 6, 7, 6, 3, 2, 1, 1, 6},     {1, 2, 4, 4, 3, 1, 1, 2, 0, 1},     {2, 2, 3, 3, 2, 3, 3, 1, 3, 1},
    {1, 1, 2, 2, 1, 5, 5, 3, 4, 1},     {17, 1, 28, 28, 20, 5, 5, 1, 0, 1}, {9, 20, 12, 12, 50, 5, 5, 1, 0, 1},
    {1, 16, 4, 4, 24, 3, 3, 1, 1, 1},   {4, 16, 15, 14, 8, 3, 3, 2, 1, 1},  {2, 64, 14, 14, 24, 3, 3, 1, 1, 1},
    {1, 3, 40, 41, 8, 7, 7, 2, 3, 1},   {1, 1, 1, 9, 2, 1, 3, 1, 1, 1},     {70, 8, 2, 2, 8, 3, 3, 1, 1, 1},
    {2, 16, 9, 7, 32, 3, 3, 1, 1, 1},   {3, 32, 8, 8, 16, 1, 1, 1, 0, 1},   {2, 3, 20, 21, 16, 7, 7, 2, 3, 1},
    {5, 1, 12, 12, 16, 5, 5, 1, 2, 1},  {2, 32, 7, 7, 64, 3, 3, 2, 1, 1},   {2, 64, 6, 5, 32, 3, 3, 1, 1, 2},
    {1, 16, 3, 3, 16, 3, 3, 1, 3, 1},   {2, 32, 9, 9, 48, 1, 1, 2, 0, 1},   {2, 4, 6, 6, 16, 3, 3, 1, 0, 1},
    {2, 20, 6, 6, 32, 3, 3, 1, 1, 1},   {1, 16, 5, 6, 16, 3, 2, 1, 0, 1},   {1, 16, 32, 32, 16, 3, 3, 3, 1, 1},
    {1, 16, 56, 56, 16, 3, 3, 2, 0, 1},
};

/* All that a convolution computes, once. */
typedef struct run {
    const sg_kernel *kernel;
    const sg_conv_shape *shape;
    bool accumulate, is_double;
    sg_array *x, *weight, *bias, *y, *dx, *dweight, *sums;
} run;

static void *data_of(const run *r, const sg_array *a)
{
    return r->is_double ? (void *)a->d : (void *)a->f;
}

static void compute(const run *r, const sg_conv_shape *s, bool with_bias)
{
    const sg_kernel_conv *conv = r->kernel->conv;
    void *scratch = sg_try_alloc_aligned(conv->scratch_elems(s) * r->kernel->elem_bytes);
    conv->forward(s, data_of(r, r->x), data_of(r, r->weight), with_bias ? data_of(r, r->bias) : NULL, scratch,
                  data_of(r, r->y));
    conv->backward_input(s, data_of(r, r->y), data_of(r, r->weight), r->accumulate, scratch, data_of(r, r->dx));
    conv->backward_weight(s, data_of(r, r->x), data_of(r, r->y), r->accumulate, scratch, data_of(r, r->dweight));
    const sg_norm_shape planes = {s->images, s->outputs, s->out_height * s->out_width,
                                  s->plan ? s->plan->out_block : 0};
    if (planes.block > 0)
        r->kernel->blocks->plane_sums(&planes, r->y->f, r->accumulate, r->sums->f);
    else
        conv->plane_sums(s->images, s->outputs, planes.plane, data_of(r, r->y), r->accumulate, data_of(r, r->sums));
    free(scratch);
}

static void arrange(const run *r, sg_array *a, size_t planes, size_t block, bool into)
{
    if (block == 0)
        return;
    float *made = sg_xcalloc(a->n_elems + 1, sizeof *made);
    (into ? r->kernel->blocks->interleave : r->kernel->blocks->separate)(planes, planes ? a->n_elems / planes : 0,
                                                                         block, a->f, false, made);
    memcpy(a->f, made, a->n_elems * sizeof *made);
    free(made);
}

/* The same in the order that the table's plan wants. False where it has none. */
static bool compute_as_planned(const run *r, bool with_bias)
{
    const sg_conv_planner *planner = r->kernel->conv->planner;
    void *plans = planner ? planner->create() : NULL;
    sg_conv_shape s = *r->shape;
    s.plan = plans ? planner->find(plans, &s) : NULL;
    const bool found = s.plan != NULL;
    cr_assert(!plans || planner->find(plans, r->shape) == s.plan);
    cr_assert(!found || planner->count(plans) == 1);
    for (int twice = 0; found && twice < 2; twice++) { /* the second leaves everything as it was */
        const bool into = twice == 0;
        arrange(r, r->x, s.images * s.channels, s.plan->in_block, into);
        arrange(r, r->dx, s.images * s.channels, s.plan->in_block, into);
        arrange(r, r->y, s.images * s.outputs, s.plan->out_block, into);
        if (into)
            compute(r, &s, with_bias);
    }
    if (plans)
        planner->destroy(plans);
    return found;
}

static void check_shape(const sg_kernel *kernel, const sg_conv_shape *s, bool accumulate, bool with_bias)
{
    const size_t n_terms = s->channels / s->groups * s->kernel_height * s->kernel_width;
    const size_t plane = s->out_height * s->out_width;
    /* The gradients are of y itself, which is scaled to about 1. */
    sg_array x = sg_array_make("x", s->images * s->channels * s->height * s->width, 1);
    sg_array weight = sg_array_make("weight", s->outputs * n_terms, 1 / (float)n_terms);
    sg_array bias = sg_array_make("bias", s->outputs, 0.1F);
    sg_array y = sg_array_make("y", s->images * s->outputs * plane, 1);
    sg_array dx = sg_array_make("dx", x.n_elems, 1), dweight = sg_array_make("dweight", weight.n_elems, 1);
    sg_array sums = sg_array_make("sums", s->outputs, 1);
    run r = {.kernel = kernel,
             .shape = s,
             .accumulate = accumulate,
             .x = &x,
             .weight = &weight,
             .bias = &bias,
             .y = &y,
             .dx = &dx,
             .dweight = &dweight,
             .sums = &sums};
    if (!compute_as_planned(&r, with_bias))
        compute(&r, s, with_bias);
    r.kernel = sg_kernel_ref_double();
    r.is_double = true;
    compute(&r, s, with_bias);
    sg_array_assert_sums(kernel, "conv forward", &y, n_terms);
    sg_array_assert_sums(kernel, "conv backward_input", &dx,
                         s->outputs / s->groups * s->kernel_height * s->kernel_width);
    sg_array_assert_sums(kernel, "conv backward_weight", &dweight, s->images * plane);
    sg_array_assert_sums(kernel, "plane_sums", &sums, s->images * plane);
    sg_array *const all[] = {&x, &weight, &bias, &y, &dx, &dweight, &sums};
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++)
        sg_array_free(all[i]);
}

static void check_shapes(const sg_kernel *kernel)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(shapes); i++) {
        const sg_conv_shape s = shape_of(shapes[i]);
        check_shape(kernel, &s, false, true);
        check_shape(kernel, &s, true, false);
    }
}

Test(conv, every_table_agrees_with_the_plain_loops)
{
    sg_kernel_cpu_set_threads(1);
    sg_for_each_table(check_shapes);
}

Test(conv, the_plain_loops_give_what_is_computed_by_hand)
{
    /* 1 2 3        1 0        padded by 1, stride 2: windows at (-1,-1), (-1,1), (1,-1), (1,1)
     * 4 5 6   with 0 -1
     * 7 8 9 */
    const double x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9}, weight[] = {1, 0, 0, -1}, bias[] = {10};
    const double want[] = {9, 7, 3, 6}; /* 10 - 1, 10 - 3, 10 - 7, 10 + 5 - 9 */
    const sg_conv_shape s = shape_of((const size_t[]){1, 1, 3, 3, 1, 2, 2, 2, 1, 1});
    double y[4], dx[9], dweight[4];
    const double dy[] = {1, 2, 3, 4};
    const sg_kernel_conv *conv = sg_kernel_ref_double()->conv;
    cr_assert(s.out_height == 2 && s.out_width == 2);
    conv->forward(&s, x, weight, bias, NULL, y);
    cr_assert_arr_eq(y, want, sizeof want);
    conv->backward_input(&s, dy, weight, false, NULL, dx);
    const double want_dx[] = {-1, 0, -2, 0, 4, 0, -3, 0, -4};
    cr_assert_arr_eq(dx, want_dx, sizeof want_dx);
    conv->backward_weight(&s, x, dy, false, NULL, dweight);
    /* [0,0]: 4 * 5; [0,1]: 3 * 4 + 4 * 6; [1,0]: 2 * 2 + 4 * 8; [1,1]: 1 + 2 * 3 + 3 * 7 + 4 * 9 */
    const double want_dweight[] = {20, 36, 36, 64};
    cr_assert_arr_eq(dweight, want_dweight, sizeof want_dweight);
}

Test(conv, windows_that_do_not_fit_are_none)
{
    cr_assert(sg_conv_out(28, 5, 1, 0) == 24);
    cr_assert(sg_conv_out(28, 5, 1, 2) == 28);
    cr_assert(sg_conv_out(7, 3, 2, 1) == 4);
    cr_assert(sg_conv_out(4, 5, 1, 0) == 0);
    cr_assert(sg_conv_out(5, 5, 9, 0) == 1);
}
