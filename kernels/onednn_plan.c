/* kernels/onednn_plan.c - see onednn_plan.h. */
#include "kernels/onednn_plan.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/blocks.h"

/* The arrays of one shape as oneDNN describes them. */
typedef struct arrays {
    dnnl_memory_desc_t x, weight, plain_weight, bias, y;
    dnnl_dims_t stride, padding;
} arrays;

/* dims: all of a dnnl_dims_t, which oneDNN copies. */
static bool describe(dnnl_memory_desc_t *d, int n_dims, const dnnl_dims_t dims, dnnl_format_tag_t tag)
{
    return dnnl_memory_desc_init_by_tag(d, n_dims, dims, dnnl_f32, tag) == dnnl_success;
}

static dnnl_format_tag_t tag_of(size_t block)
{
    return block == SG_BLOCK_MAX ? dnnl_nChw16c : block == SG_BLOCK_MIN ? dnnl_nChw8c : dnnl_nchw;
}

static bool describe_all(const sg_conv_shape *s, const sg_conv_plan *layout, arrays *a)
{
    const dnnl_dims_t x = {(dnnl_dim_t)s->images, (dnnl_dim_t)s->channels, (dnnl_dim_t)s->height, (dnnl_dim_t)s->width};
    const dnnl_dims_t y = {(dnnl_dim_t)s->images, (dnnl_dim_t)s->outputs, (dnnl_dim_t)s->out_height,
                           (dnnl_dim_t)s->out_width};
    const dnnl_dims_t grouped = {(dnnl_dim_t)s->groups, (dnnl_dim_t)(s->outputs / s->groups),
                                 (dnnl_dim_t)(s->channels / s->groups), (dnnl_dim_t)s->kernel_height,
                                 (dnnl_dim_t)s->kernel_width};
    const dnnl_dims_t outputs = {(dnnl_dim_t)s->outputs};
    const bool one = s->groups == 1;
    dnnl_dims_t weight = {0};
    memcpy(weight, grouped + one, (size_t)(5 - one) * sizeof weight[0]);
    for (int i = 0; i < 2; i++) {
        a->stride[i] = (dnnl_dim_t)s->stride;
        a->padding[i] = (dnnl_dim_t)s->padding;
    }
    return describe(&a->x, 4, x, tag_of(layout->in_block)) && describe(&a->y, 4, y, tag_of(layout->out_block)) &&
           describe(&a->weight, 5 - one, weight, dnnl_format_tag_any) &&
           describe(&a->plain_weight, 5 - one, weight, one ? dnnl_oihw : dnnl_goihw) &&
           describe(&a->bias, 1, outputs, dnnl_x);
}

/* Neither the plain loops nor im2col with a matrix product, which OpenBLAS does as well without a copy. */
static bool is_fast(const_dnnl_primitive_desc_t pd)
{
    const char *name = "ref";
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) == dnnl_success &&
           !strstr(name, "ref") && !strstr(name, "gemm");
}

static bool make_memory(const sg_onednn_plans *p, const dnnl_memory_desc_t *d, dnnl_memory_t *memory)
{
    return dnnl_memory_create(memory, d, p->engine, DNNL_MEMORY_NONE) == dnnl_success;
}

/* Between the weight's C order and what the primitive wants; forward: to that. */
static bool make_reorder(const sg_onednn_plans *p, const arrays *a, const dnnl_memory_desc_t *wanted, bool forward,
                         sg_onednn_way *w)
{
    dnnl_primitive_desc_t pd;
    w->weight_bytes = dnnl_memory_desc_get_size(wanted);
    if (!make_memory(p, wanted, &w->weight) || !make_memory(p, &a->plain_weight, &w->plain_weight))
        return false;
    if (dnnl_memory_desc_equal(wanted, &a->plain_weight)) {
        w->weight_bytes = 0;
        return true;
    }
    if (dnnl_reorder_primitive_desc_create(&pd, forward ? &a->plain_weight : wanted, p->engine,
                                           forward ? wanted : &a->plain_weight, p->engine, NULL) != dnnl_success)
        return false;
    const bool made = dnnl_primitive_create(&w->reorder, pd) == dnnl_success;
    dnnl_primitive_desc_destroy(pd);
    return made;
}

/* The primitive and all its arguments. kinds: oneDNN's names for x, weight and y; scratchpad and bias are added. */
static bool make_way(const sg_onednn_plans *p, const arrays *a, const_dnnl_primitive_desc_t pd, const int kinds[3],
                     sg_onednn_way *w)
{
    const bool to_weight = kinds[1] == DNNL_ARG_DIFF_WEIGHTS, forward = kinds[2] == DNNL_ARG_DST;
    const dnnl_memory_desc_t *weight =
        dnnl_primitive_desc_query_md(pd, to_weight ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
    const dnnl_memory_desc_t *scratchpad = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    w->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    if (!make_reorder(p, a, weight, !to_weight, w) || !make_memory(p, &a->x, &w->x) || !make_memory(p, &a->y, &w->y) ||
        !make_memory(p, scratchpad, &w->scratchpad) || (forward && !make_memory(p, &a->bias, &w->bias)))
        return false;
    const dnnl_exec_arg_t all[SG_ONEDNN_MAX_ARGUMENTS] = {{kinds[0], w->x},
                                                          {kinds[1], w->weight},
                                                          {kinds[2], w->y},
                                                          {DNNL_ARG_SCRATCHPAD, w->scratchpad},
                                                          {DNNL_ARG_BIAS, w->bias}};
    memcpy(w->arguments, all, sizeof all);
    return dnnl_primitive_create(&w->convolve, pd) == dnnl_success;
}

static void free_way(sg_onednn_way *w)
{
    dnnl_memory_t *const memories[] = {&w->x, &w->y, &w->weight, &w->plain_weight, &w->bias, &w->scratchpad};
    for (size_t i = 0; i < SG_ARRAY_LEN(memories); i++)
        if (*memories[i])
            dnnl_memory_destroy(*memories[i]);
    if (w->convolve)
        dnnl_primitive_destroy(w->convolve);
    if (w->reorder)
        dnnl_primitive_destroy(w->reorder);
    *w = (sg_onednn_way){0};
}

static dnnl_primitive_desc_t try_descriptor(const sg_onednn_plans *p, const dnnl_convolution_desc_t *d,
                                            const_dnnl_primitive_desc_t hint)
{
    dnnl_primitive_desc_t pd = NULL;
    if (dnnl_primitive_desc_create(&pd, d, p->scratchpad_is_ours, p->engine, hint) != dnnl_success)
        return NULL;
    if (is_fast(pd))
        return pd;
    dnnl_primitive_desc_destroy(pd);
    return NULL;
}

static bool make_backward_weight(const sg_onednn_plans *p, const arrays *a, const_dnnl_primitive_desc_t forward,
                                 sg_onednn_way *w)
{
    static const int kinds[] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST};
    dnnl_convolution_desc_t d;
    if (dnnl_convolution_backward_weights_desc_init(&d, dnnl_convolution_direct, &a->x, &a->weight, NULL, &a->y,
                                                    a->stride, a->padding, a->padding) != dnnl_success)
        return false;
    dnnl_primitive_desc_t pd = try_descriptor(p, &d, forward);
    const bool made = pd && make_way(p, a, pd, kinds, w);
    dnnl_primitive_desc_destroy(pd);
    return made;
}

/* Where there is nothing fast, it stays without, if x is in C order: images that are the network's input need no
 * gradient, and others get it by the table of cpu.c. */
static bool make_backward_input(const sg_onednn_plans *p, const arrays *a, const_dnnl_primitive_desc_t forward,
                                bool is_plain, sg_onednn_way *w)
{
    static const int kinds[] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST};
    dnnl_convolution_desc_t d;
    if (dnnl_convolution_backward_data_desc_init(&d, dnnl_convolution_direct, &a->x, &a->weight, &a->y, a->stride,
                                                 a->padding, a->padding) != dnnl_success)
        return false;
    dnnl_primitive_desc_t pd = try_descriptor(p, &d, forward);
    if (!pd)
        return is_plain;
    const bool made = make_way(p, a, pd, kinds, w);
    dnnl_primitive_desc_destroy(pd);
    return made;
}

static bool make_ways(const sg_onednn_plans *p, const arrays *a, sg_onednn_plan *made)
{
    static const int kinds[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_convolution_desc_t d;
    if (dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, &a->x, &a->weight,
                                           &a->bias, &a->y, a->stride, a->padding, a->padding) != dnnl_success)
        return false;
    dnnl_primitive_desc_t pd = try_descriptor(p, &d, NULL);
    if (!pd)
        return false;
    const bool all = make_way(p, a, pd, kinds, &made->forward) &&
                     make_backward_weight(p, a, pd, &made->backward_weight) &&
                     make_backward_input(p, a, pd, made->base.in_block == 0, &made->backward_input);
    dnnl_primitive_desc_destroy(pd);
    return all;
}

static void free_ways(sg_onednn_plan *of)
{
    free_way(&of->forward);
    free_way(&of->backward_input);
    free_way(&of->backward_weight);
}

static void free_plan(sg_onednn_plan *gone)
{
    free_ways(gone);
    free(gone->no_bias);
    free(gone);
}

/* The block that oneDNN chooses by itself for a usual layer; 0: none of ours. */
static size_t find_block(const sg_onednn_plans *p)
{
    static const dnnl_dims_t images = {1, 64, 16, 16}, window = {64, 64, 3, 3}, ones = {1, 1};
    dnnl_memory_desc_t x, weight, y;
    dnnl_convolution_desc_t d;
    if (!describe(&x, 4, images, dnnl_format_tag_any) || !describe(&weight, 4, window, dnnl_format_tag_any) ||
        !describe(&y, 4, images, dnnl_format_tag_any) ||
        dnnl_convolution_forward_desc_init(&d, dnnl_forward_training, dnnl_convolution_direct, &x, &weight, NULL, &y,
                                           ones, ones, ones) != dnnl_success)
        return 0;
    dnnl_primitive_desc_t pd = try_descriptor(p, &d, NULL);
    if (!pd)
        return 0;
    const dnnl_memory_desc_t *chosen = dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0);
    size_t block = SG_BLOCK_MAX;
    while (block >= SG_BLOCK_MIN && !(describe(&y, 4, images, tag_of(block)) && dnnl_memory_desc_equal(chosen, &y)))
        block /= 2;
    dnnl_primitive_desc_destroy(pd);
    return block >= SG_BLOCK_MIN ? block : 0;
}

static void destroy(void *of)
{
    sg_onednn_plans *p = of;
    while (p->first) {
        sg_onednn_plan *gone = p->first;
        p->first = gone->next;
        free_plan(gone);
    }
    if (p->scratchpad_is_ours)
        dnnl_primitive_attr_destroy(p->scratchpad_is_ours);
    if (p->stream)
        dnnl_stream_destroy(p->stream);
    if (p->engine)
        dnnl_engine_destroy(p->engine);
    free(p);
}

bool sg_onednn_has_our_threads(void)
{
    const unsigned runtime = dnnl_version()->cpu_runtime;
    return runtime == DNNL_RUNTIME_OMP || runtime == DNNL_RUNTIME_SEQ;
}

static void *create(void)
{
    if (!sg_onednn_has_our_threads())
        return NULL;
    sg_onednn_plans *p = sg_xcalloc(1, sizeof *p);
    p->n_threads = openblas_get_num_threads();
    omp_set_num_threads(p->n_threads);
    if (dnnl_engine_create(&p->engine, dnnl_cpu, 0) == dnnl_success &&
        dnnl_stream_create(&p->stream, p->engine, dnnl_stream_default_flags) == dnnl_success &&
        dnnl_primitive_attr_create(&p->scratchpad_is_ours) == dnnl_success &&
        dnnl_primitive_attr_set_scratchpad_mode(p->scratchpad_is_ours, dnnl_scratchpad_mode_user) == dnnl_success)
        p->block = find_block(p);
    if (p->block > 0)
        return p;
    destroy(p);
    return NULL;
}

static bool equal(const sg_conv_shape *a, const sg_conv_shape *b)
{
    return a->images == b->images && a->channels == b->channels && a->height == b->height && a->width == b->width &&
           a->outputs == b->outputs && a->kernel_height == b->kernel_height && a->kernel_width == b->kernel_width &&
           a->stride == b->stride && a->padding == b->padding && a->groups == b->groups;
}

static sg_onednn_plan *make_plan(sg_onednn_plans *p, const sg_conv_shape *shape)
{
    sg_onednn_plan *made = sg_xcalloc(1, sizeof *made);
    *made = (sg_onednn_plan){.shape = *shape, .plans = p};
    made->base.in_block = shape->channels / shape->groups % p->block == 0 ? p->block : 0;
    made->base.out_block = p->block;
    arrays a;
    omp_set_num_threads(p->n_threads);
    made->is_possible = describe_all(shape, &made->base, &a) && make_ways(p, &a, made);
    if (made->is_possible)
        made->no_bias = sg_xcalloc(shape->outputs, sizeof(float));
    else
        free_ways(made); /* the first of them may have been possible */
    return made;
}

static sg_conv_plan *find(void *of, const sg_conv_shape *shape)
{
    sg_onednn_plans *p = of;
    if (shape->images == 0 || shape->outputs / shape->groups % p->block != 0)
        return NULL;
    sg_onednn_plan **place = &p->first;
    while (*place && !equal(&(*place)->shape, shape))
        place = &(*place)->next;
    if (!*place) {
        *place = make_plan(p, shape);
        p->count++;
    }
    return (*place)->is_possible ? &(*place)->base : NULL;
}

static size_t count(const void *of)
{
    return ((const sg_onednn_plans *)of)->count;
}

const sg_conv_planner sg_onednn_planner = {.create = create, .destroy = destroy, .find = find, .count = count};
