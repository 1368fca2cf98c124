/* kernels/onednn.c - convolutions by oneDNN, as the plans of onednn_plan.c have them. Without a plan: by
 * cpu_conv.c. */
#include "kernels/onednn.h"

#include "common/status.h"
#include "kernels/kernel.h"
#include "kernels/onednn_plan.h"

#define ALIGN_BYTES ((size_t)64)

static size_t aligned(size_t n_bytes)
{
    return (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static size_t x_elems(const sg_conv_shape *s)
{
    return s->images * s->channels * s->height * s->width;
}

static size_t y_elems(const sg_conv_shape *s)
{
    return s->images * s->outputs * s->out_height * s->out_width;
}

static size_t weight_elems(const sg_conv_shape *s)
{
    return s->outputs * (s->channels / s->groups) * s->kernel_height * s->kernel_width;
}

/* What is computed in C order. */
static const sg_kernel_conv *plain(void)
{
    return sg_isa_has(SG_ISA_AVX512) ? &sg_cpu_conv_onednn : sg_kernel_cpu()->conv;
}

/* Scratch memory is cut into: the weight as the primitive wants it, what the primitive needs, a result that is added.
 */
static size_t way_bytes(const sg_onednn_way *w, size_t n_added)
{
    return aligned(w->weight_bytes) + aligned(w->scratchpad_bytes) + aligned(n_added * sizeof(float));
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t scratch_elems(const sg_conv_shape *s)
{
    if (!s->plan)
        return plain()->scratch_elems(s);
    const sg_onednn_plan *p = (const sg_onednn_plan *)s->plan;
    size_t n_bytes = larger(way_bytes(&p->forward, 0), way_bytes(&p->backward_weight, weight_elems(s)));
    if (p->backward_input.convolve)
        n_bytes = larger(n_bytes, way_bytes(&p->backward_input, x_elems(s)));
    else
        n_bytes = larger(n_bytes, aligned(y_elems(s) * sizeof(float)) + plain()->scratch_elems(s) * sizeof(float));
    return n_bytes / sizeof(float) + 1;
}

static void must(dnnl_status_t status)
{
    SG_ASSERT(status == dnnl_success); /* the arguments are those the primitive was made for */
}

static void point(dnnl_memory_t memory, const void *at)
{
    must(dnnl_memory_set_data_handle(memory, (void *)(uintptr_t)at));
}

static void execute(const sg_onednn_plans *p, dnnl_primitive_t primitive, int n, const dnnl_exec_arg_t *arguments)
{
    omp_set_num_threads(p->n_threads);
    must(dnnl_primitive_execute(primitive, p->stream, n, arguments));
    must(dnnl_stream_wait(p->stream));
}

/* Sets the addresses of everything; the weight, if that is not in the order that the primitive wants, in scratch. */
static void place(const sg_onednn_way *w, const void *x, const void *weight, const void *y, char *scratch)
{
    point(w->x, x);
    point(w->y, y);
    point(w->plain_weight, weight);
    point(w->weight, w->reorder ? scratch : weight);
    point(w->scratchpad, scratch + aligned(w->weight_bytes));
}

static void reorder(const sg_onednn_plans *p, const sg_onednn_way *w, dnnl_memory_t from, dnnl_memory_t to)
{
    if (w->reorder)
        execute(p, w->reorder, 2, (const dnnl_exec_arg_t[]){{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

static void forward(const sg_conv_shape *s, const void *x, const void *weight, const void *bias, void *scratch, void *y)
{
    if (!s->plan) {
        plain()->forward(s, x, weight, bias, scratch, y);
        return;
    }
    const sg_onednn_plan *p = (const sg_onednn_plan *)s->plan;
    const sg_onednn_way *w = &p->forward;
    place(w, x, weight, y, scratch);
    point(w->bias, bias ? bias : p->no_bias);
    reorder(p->plans, w, w->plain_weight, w->weight);
    execute(p->plans, w->convolve, SG_ONEDNN_MAX_ARGUMENTS, w->arguments);
}

/* By the table of cpu.c, which has x in C order as the plan does, and gets y so. */
static void backward_plain_input(const sg_onednn_plan *p, const void *dy, const void *weight, bool accumulate,
                                 char *scratch, void *dx)
{
    const sg_conv_shape *s = &p->shape;
    SG_ASSERT(p->base.in_block == 0);
    sg_kernel_cpu()->blocks->separate(s->images * s->outputs, s->out_height * s->out_width, p->base.out_block, dy,
                                      false, scratch);
    plain()->backward_input(s, scratch, weight, accumulate, scratch + aligned(y_elems(s) * sizeof(float)), dx);
}

static void backward_input(const sg_conv_shape *s, const void *dy, const void *weight, bool accumulate, void *scratch,
                           void *dx)
{
    if (!s->plan) {
        plain()->backward_input(s, dy, weight, accumulate, scratch, dx);
        return;
    }
    const sg_onednn_plan *p = (const sg_onednn_plan *)s->plan;
    const sg_onednn_way *w = &p->backward_input;
    if (!w->convolve) {
        backward_plain_input(p, dy, weight, accumulate, scratch, dx);
        return;
    }
    void *added = (char *)scratch + way_bytes(w, 0);
    place(w, accumulate ? added : dx, weight, dy, scratch);
    reorder(p->plans, w, w->plain_weight, w->weight);
    execute(p->plans, w->convolve, SG_ONEDNN_MAX_ARGUMENTS - 1, w->arguments);
    if (accumulate)
        sg_kernel_cpu()->scaled(x_elems(s), 1, added, true, dx);
}

static void backward_weight(const sg_conv_shape *s, const void *x, const void *dy, bool accumulate, void *scratch,
                            void *dweight)
{
    if (!s->plan) {
        plain()->backward_weight(s, x, dy, accumulate, scratch, dweight);
        return;
    }
    const sg_onednn_plan *p = (const sg_onednn_plan *)s->plan;
    const sg_onednn_way *w = &p->backward_weight;
    void *added = (char *)scratch + way_bytes(w, 0);
    place(w, x, accumulate ? added : dweight, dy, scratch);
    execute(p->plans, w->convolve, SG_ONEDNN_MAX_ARGUMENTS - 1, w->arguments);
    reorder(p->plans, w, w->weight, w->plain_weight);
    if (accumulate)
        sg_kernel_cpu()->scaled(weight_elems(s), 1, added, true, dweight);
}

static void plane_sums(size_t images, size_t channels, size_t plane, const void *x, bool accumulate, void *sums)
{
    plain()->plane_sums(images, channels, plane, x, accumulate, sums);
}

const sg_kernel_conv sg_onednn_conv = {
    .planner = &sg_onednn_planner,
    .scratch_elems = scratch_elems,
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .plane_sums = plane_sums,
};
