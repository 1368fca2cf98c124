/* worker/nn/losses.c - losses that are put together from other layers. */
#include "worker/nn/layers.h"

sg_tensor *sg_mean_squared_error_forward(sg_tape *tape, sg_tensor *x, sg_tensor *target)
{
    sg_tensor *distance = sg_add_forward(tape, x, sg_scale_forward(tape, target, -1));
    return sg_mean_forward(tape, sg_multiply_forward(tape, distance, distance));
}

sg_tensor *sg_hinge_forward(sg_tape *tape, sg_tensor *x, sg_tensor *target)
{
    return sg_mean_forward(tape, sg_unary_forward(tape, sg_multiply_forward(tape, x, target), SG_UNARY_MARGIN, 1));
}
