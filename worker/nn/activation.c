/* worker/nn/activation.c - functions of one number, of each element of a tensor of any shape. */
#include "worker/nn/layers.h"

typedef struct activation {
    sg_tensor *x;
    sg_unary function;
    double parameter;
} activation;

static void activation_backward(sg_tape *tape, const void *state, sg_tensor *y)
{
    const activation *a = state;
    bool accumulate;
    void *dx = sg_tape_gradient(tape, a->x, &accumulate);
    if (dx)
        sg_tape_kernel(tape)->elementwise->unary_backward(a->function, a->parameter, y->n_elems, a->x->value, y->value,
                                                          y->gradient, accumulate, dx);
}

sg_tensor *sg_unary_forward(sg_tape *tape, sg_tensor *x, sg_unary function, double parameter)
{
    sg_tensor *y = x ? sg_tape_output_like(tape, x, x->needs_gradient) : NULL;
    if (!y || !sg_tape_may_read(tape, x, 0, x->n_elems))
        return NULL;
    activation state = {.x = x, .function = function, .parameter = parameter};
    sg_tape_kernel(tape)->elementwise->unary(function, parameter, x->n_elems, x->value, y->value);
    sg_tape_record(tape, &(sg_tape_layer){.output = y,
                                          .inputs = &x,
                                          .n_inputs = 1,
                                          .backward = activation_backward,
                                          .state = &state,
                                          .state_bytes = sizeof state});
    return y;
}

sg_tensor *sg_sigmoid_forward(sg_tape *tape, sg_tensor *x)
{
    return sg_unary_forward(tape, x, SG_UNARY_SIGMOID, 0);
}

sg_tensor *sg_tanh_forward(sg_tape *tape, sg_tensor *x)
{
    return sg_unary_forward(tape, x, SG_UNARY_TANH, 0);
}

sg_tensor *sg_softplus_forward(sg_tape *tape, sg_tensor *x)
{
    return sg_unary_forward(tape, x, SG_UNARY_SOFTPLUS, 0);
}

sg_tensor *sg_gelu_forward(sg_tape *tape, sg_tensor *x)
{
    return sg_unary_forward(tape, x, SG_UNARY_GELU, 0);
}

sg_tensor *sg_leaky_relu_forward(sg_tape *tape, sg_tensor *x, double slope)
{
    return sg_unary_forward(tape, x, SG_UNARY_LEAKY_RELU, slope);
}
