/* worker/nn/layer_norm.c - each row of the last dimension brought to mean 0 and deviation 1 (Ba et al. 2016). */
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"
#include "worker/nn/shape.h"

#define DEFAULT_EPSILON 1e-5

typedef struct layer_norm {
    sg_tensor *x, *gamma, *beta;
    void *mean, *inverse; /* [rows] */
    size_t rows, cols;
} layer_norm;

static void layer_norm_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const layer_norm *l = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    bool accumulate;
    void *dbeta = sg_tape_gradient(tape, l->beta, &accumulate);
    if (dbeta)
        kernel->column_sums(l->rows, l->cols, y->gradient, accumulate, dbeta);
    void *dgamma = sg_tape_gradient(tape, l->gamma, &accumulate);
    if (dgamma)
        kernel->norm->layer_backward_gamma(l->rows, l->cols, l->x->value, l->mean, l->inverse, y->gradient, accumulate,
                                           dgamma);
    void *dx = sg_tape_gradient(tape, l->x, &accumulate);
    if (dx)
        kernel->norm->layer_backward(l->rows, l->cols, l->x->value, l->mean, l->inverse, l->gamma->value, y->gradient,
                                     accumulate, dx);
}

sg_tensor *sg_layer_norm_forward(sg_tape *tape, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta, double epsilon)
{
    x = sg_blocks_arrange(tape, x, 0);
    if (!x || !gamma || !beta)
        return NULL;
    const size_t cols = x->rank ? x->shape[x->rank - 1] : 0;
    if (cols < 1 || gamma->rank != 1 || beta->rank != 1 || gamma->shape[0] != cols || beta->shape[0] != cols)
        return sg_tape_fail(tape, SG_INVALID, "layer_norm: input %s, gamma %s, beta %s; wanted [..., n], [n], [n]",
                            sg_shape_describe(x).text, sg_shape_describe(gamma).text, sg_shape_describe(beta).text);
    const sg_kernel *kernel = sg_tape_kernel(tape);
    layer_norm state = {.x = x, .gamma = gamma, .beta = beta, .rows = x->n_elems / cols, .cols = cols};
    sg_tensor *y =
        sg_tape_output(tape, x->rank, x->shape, x->needs_gradient || gamma->needs_gradient || beta->needs_gradient);
    state.mean = sg_tape_alloc(tape, state.rows * kernel->elem_bytes);
    state.inverse = sg_tape_alloc(tape, state.rows * kernel->elem_bytes);
    if (!y || !state.mean || !state.inverse || !sg_tape_may_read(tape, x, 0, x->n_elems) ||
        !sg_tape_may_read(tape, gamma, 0, cols) || !sg_tape_may_read(tape, beta, 0, cols))
        return NULL;
    kernel->norm->layer_forward(state.rows, cols, epsilon > 0 ? epsilon : DEFAULT_EPSILON, x->value, gamma->value,
                                beta->value, state.mean, state.inverse, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, gamma, beta},
                                          .n_inputs = 3,
                                          .backward = layer_norm_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
