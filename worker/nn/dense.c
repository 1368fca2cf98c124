/* worker/nn/dense.c - the fully connected layer, bias and relu fused into the passes around the matrix products. */
#include "worker/nn/layers.h"

/* A larger weight is read, and its gradient written, in blocks of rows of about so much: the one where the next rows
 * may still be on their way, the other so that the first may be while the next are computed. They depend on the shape
 * alone: so whoever listens, results are the same. */
#define BLOCK_BYTES ((size_t)512 << 10)

/* With fewer in a block, adding up costs too much. */
#define MIN_TERMS ((size_t)128)

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

/* A multiple of SG_KERNEL_BLOCK_ROWS. */
static size_t block_rows(const sg_kernel *kernel, size_t outputs)
{
    const size_t unit_bytes = SG_KERNEL_BLOCK_ROWS * outputs * kernel->elem_bytes;
    const size_t n_units = unit_bytes ? (BLOCK_BYTES + unit_bytes - 1) / unit_bytes : 1;
    return n_units * SG_KERNEL_BLOCK_ROWS;
}

static void dense_backward_weight(sg_tape *tape, const void *state, sg_tensor *y)
{
    const dense *d = state;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const size_t inputs = d->weight->shape[0], outputs = d->weight->shape[1];
    const size_t n_rows = block_rows(kernel, outputs);
    bool accumulate;
    void *dweight = sg_tape_gradient(tape, d->weight, &accumulate);
    for (size_t first = 0; dweight && first < inputs; first += n_rows) {
        const size_t n = inputs - first < n_rows ? inputs - first : n_rows;
        kernel->gemm_rows(true, false, inputs, outputs, d->x->shape[0], first, n, d->x->value, y->gradient, accumulate,
                          dweight);
        sg_tape_part_written(tape, d->weight, (first + n) * outputs);
    }
}

/* How many rows of the weight, from `first` on, are read at once. Rather fewer than BLOCK_BYTES than more, so that
 * blocks of wide and narrow rows alike end where slices do or before; no small one remains for the end. */
static size_t block_terms(const sg_kernel *kernel, const sg_tensor *weight, size_t first)
{
    const size_t n_left = weight->shape[0] - first;
    const size_t row_bytes = weight->shape[1] * kernel->elem_bytes;
    const size_t n = row_bytes && BLOCK_BYTES / row_bytes > MIN_TERMS ? BLOCK_BYTES / row_bytes : MIN_TERMS;
    return n_left < n + n / 2 ? n_left : n;
}

/* y = x * weight; without inputs it is 0. */
static void multiply(sg_tape *tape, const sg_tensor *x, const sg_tensor *weight, sg_tensor *y)
{
    const sg_kernel *kernel = sg_tape_kernel(tape);
    const size_t inputs = weight->shape[0], outputs = weight->shape[1];
    size_t first = 0;
    do {
        const size_t n = block_terms(kernel, weight, first);
        if (!sg_tape_may_read(tape, weight, first * outputs, n * outputs))
            return;
        kernel->gemm_terms(false, false, x->shape[0], outputs, inputs, first, n, x->value, weight->value, first > 0,
                           y->value);
        first += n;
    } while (first < inputs);
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
    if (sg_tape_may_read(tape, x, 0, x->n_elems))
        multiply(tape, x, weight, y);
    if (!sg_tape_may_read(tape, bias, 0, bias->n_elems))
        return NULL;
    const sg_kernel *kernel = sg_tape_kernel(tape);
    if (activation == SG_DENSE_RELU)
        kernel->bias_add_relu(y->shape[0], y->shape[1], bias->value, y->value);
    else
        kernel->bias_add(y->shape[0], y->shape[1], bias->value, y->value);
    dense state = {.x = x, .weight = weight, .bias = bias, .activation = activation};
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = (sg_tensor *[]){x, bias, weight},
                                          .n_inputs = 3,
                                          .backward = dense_backward,
                                          .backward_weight = dense_backward_weight,
                                          .weight = weight,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}
