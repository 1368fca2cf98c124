/* worker/nn/dense.c - the fully connected layer, bias and relu fused into the passes around the matrix products. */
#include "worker/nn/layers.h"

typedef struct dense {
    sg_tensor *x, *weight, *bias;
    sg_dense_activation activation;
} dense;

static void dense_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const dense *d = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    size_t rows = d->x->shape[0];
    size_t inputs = d->weight->shape[0];
    size_t outputs = d->weight->shape[1];
    bool accumulate;
    void *dbias = sg_tape_gradient(tape, d->bias, &accumulate);
    if (d->activation == SG_DENSE_RELU && dbias)
        kernel->relu_backward_column_sums(rows, outputs, y->value, y->gradient, accumulate, dbias);
    else if (d->activation == SG_DENSE_RELU)
        kernel->relu_backward(y->n_elems, y->value, y->gradient, false, y->gradient);
    else if (dbias)
        kernel->column_sums(rows, outputs, y->gradient, accumulate, dbias);
    void *dx = sg_tape_gradient(tape, d->x, &accumulate);
    if (dx)
        kernel->gemm(false, true, rows, inputs, outputs, y->gradient, d->weight->value, accumulate, dx);
}

static void dense_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const dense *d = state;
    bool accumulate;
    void *dweight = sg_tape_gradient(tape, d->weight, &accumulate);
    if (dweight)
        sg_tape_kernel(tape)->gemm(true, false, d->weight->shape[0], d->weight->shape[1], d->x->shape[0], d->x->value,
                                   y->gradient, accumulate, dweight);
}

static bool shapes_fit(const sg_tensor *x, const sg_tensor *weight, const sg_tensor *bias)
{
    return x->rank == 2 && weight->rank == 2 && bias->rank == 1 && x->shape[1] == weight->shape[0] &&
           weight->shape[1] == bias->shape[0];
}

sg_tensor *sg_dense_forward(sg_tape *tape, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
                            sg_dense_activation activation)
{
    if (!x || !weight || !bias)
        return NULL;
    if (!shapes_fit(x, weight, bias))
        return sg_tape_fail(tape, SG_INVALID,
                            "dense: input of rank %u ending in %llu, weight of rank %u from %llu to %llu, bias of rank "
                            "%u with %zu; wanted [rows, inputs], [inputs, outputs], [outputs]",
                            x->rank, x->rank ? (unsigned long long)x->shape[x->rank - 1] : 1ULL, weight->rank,
                            (unsigned long long)weight->shape[0], (unsigned long long)weight->shape[1], bias->rank,
                            bias->n_elems);
    bool needs_gradient = x->needs_gradient || weight->needs_gradient || bias->needs_gradient;
    sg_tensor *y = sg_tape_output(tape, 2, (uint64_t[]){x->shape[0], weight->shape[1]}, needs_gradient);
    if (!y)
        return NULL;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    kernel->gemm(false, false, x->shape[0], weight->shape[1], weight->shape[0], x->value, weight->value, false,
                 y->value);
    if (activation == SG_DENSE_RELU)
        kernel->bias_add_relu(y->shape[0], y->shape[1], bias->value, y->value);
    else
        kernel->bias_add(y->shape[0], y->shape[1], bias->value, y->value);
    dense state = {.x = x, .weight = weight, .bias = bias, .activation = activation};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, bias, weight},
                                          .n_inputs = 3,
                                          .backward = dense_backward,
                                          .backward_variables = dense_backward_weight,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
