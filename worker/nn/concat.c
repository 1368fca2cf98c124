/* worker/nn/concat.c - tensors put side by side along one axis, and a part cut out of one. */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

/* Where the part lies in the whole: rows of `cols` elements, `stride` apart, from `first` on. */
typedef struct part {
    sg_tensor *tensor; /* concat: the part; slice: the whole */
    size_t rows, cols, stride, first;
} part;

static void *at(const sg_tape *tape, void *elems, size_t index)
{
    return (char *)elems + index * sg_tape_kernel(tape)->elem_bytes;
}

/* Of count elements along the axis, from `first` on, of a tensor of this shape. */
static part part_of(sg_tensor *tensor, uint32_t rank, const uint64_t *shape, uint32_t axis, size_t first, size_t count)
{
    part p = {.tensor = tensor, .rows = 1, .cols = count, .stride = shape[axis], .first = first};
    for (uint32_t i = 0; i < axis; i++)
        p.rows *= shape[i];
    for (uint32_t i = axis + 1; i < rank; i++) {
        p.cols *= shape[i];
        p.stride *= shape[i];
        p.first *= shape[i];
    }
    return p;
}

static void concat_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const part *p = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, p->tensor, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->move->rows(p->rows, p->cols, at(tape, y->gradient, p->first), p->stride, accumulate, dx,
                                         p->cols);
}

static bool fits(const sg_tensor *x, const sg_tensor *first, uint32_t axis)
{
    if (x->rank != first->rank || axis >= x->rank)
        return false;
    for (uint32_t i = 0; i < x->rank; i++)
        if (i != axis && x->shape[i] != first->shape[i])
            return false;
    return true;
}

/* All in C order, before the first part is recorded; NULL after a failure. */
static sg_tensor **arrange_all(sg_tape *tape, sg_tensor *const *tensors, size_t n)
{
    sg_tensor **plain = sg_tape_note(tape, n * sizeof(void *));
    for (size_t i = 0; plain && i < n; i++)
        if (!(plain[i] = sg_blocks_arrange(tape, tensors[i], 0)))
            return NULL;
    return plain;
}

/* The parts are recorded one by one: each gets its piece of y's gradient, which stays as it is. */
sg_tensor *sg_concat_forward(sg_tape *tape, sg_tensor *const *tensors, size_t n, uint32_t axis)
{
    uint64_t shape[SG_MAX_RANK] = {0};
    bool needs_gradient = false;
    for (size_t i = 0; i < n; i++) {
        if (!tensors[i])
            return NULL;
        if (!fits(tensors[i], tensors[0], axis))
            return sg_tape_fail(tape, SG_INVALID, "concat: %s and %s along axis %u; wanted the same shape but for that",
                                sg_shape_describe(tensors[0]).text, sg_shape_describe(tensors[i]).text, axis);
        for (uint32_t d = 0; d < tensors[i]->rank; d++)
            shape[d] = d == axis ? shape[d] + tensors[i]->shape[d] : tensors[i]->shape[d];
        needs_gradient = needs_gradient || tensors[i]->needs_gradient;
    }
    if (n == 0)
        return sg_tape_fail(tape, SG_INVALID, "concat: no tensors");
    sg_tensor **plain = arrange_all(tape, tensors, n);
    sg_tensor *y = plain ? sg_tape_output(tape, tensors[0]->rank, shape, needs_gradient) : NULL;
    size_t first = 0;
    for (size_t i = 0; y && i < n; i++) {
        sg_tensor *x = plain[i];
        const part p = part_of(x, y->rank, y->shape, axis, first, x->shape[axis]);
        if (!sg_tape_may_read(tape, x, 0, x->n_elems))
            return NULL;
        sg_tape_kernel(tape)->move->rows(p.rows, p.cols, x->value, p.cols, false, at(tape, y->value, p.first),
                                         p.stride);
        sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                              .inputs = &x,
                                              .n_inputs = 1,
                                              .backward = concat_backward,
                                              .state = &p,
                                              .state_bytes = sizeof p});
        first += x->shape[axis];
    }
    return y;
}

static void slice_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const part *p = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    bool accumulate;
    void *dx = sg_tape_gradient(tape, p->tensor, &accumulate);
    if (dx && !accumulate)
        kernel->fill(p->tensor->n_elems, 0, dx);
    if (dx)
        kernel->move->rows(p->rows, p->cols, y->gradient, p->cols, true, at(tape, dx, p->first), p->stride);
}

sg_tensor *sg_slice_forward(sg_tape *tape, sg_tensor *x, uint32_t axis, uint64_t first, uint64_t count)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x)
        return NULL;
    if (axis >= x->rank || first > x->shape[axis] || count > x->shape[axis] - first)
        return sg_tape_fail(tape, SG_INVALID, "slice: %llu from %llu on along axis %u of %s; wanted a part of it",
                            (unsigned long long)count, (unsigned long long)first, axis, sg_shape_describe(x).text);
    uint64_t shape[SG_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++)
        shape[i] = i == axis ? count : x->shape[i];
    const part p = part_of(x, x->rank, x->shape, axis, first, count);
    sg_tensor *y = sg_tape_output(tape, x->rank, shape, x->needs_gradient);
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    sg_tape_kernel(tape)->move->rows(p.rows, p.cols, at(tape, x->value, p.first), p.stride, false, y->value, p.cols);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = slice_backward,
                                          .state = &p,
                                          .state_bytes = sizeof p});
    return y;
}
