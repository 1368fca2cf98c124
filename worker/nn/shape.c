/* worker/nn/shape.c - see shape.h. */
#include "worker/nn/shape.h"

#include <inttypes.h>
#include <stdio.h>

sg_shape_text sg_shape_describe(const sg_tensor *tensor)
{
    sg_shape_text out = {.text = "none"};
    if (!tensor)
        return out;
    size_t n = (size_t)snprintf(out.text, sizeof out.text, "[");
    for (uint32_t i = 0; i < tensor->rank && n < sizeof out.text; i++)
        n += (size_t)snprintf(out.text + n, sizeof out.text - n, i == 0 ? "%" PRIu64 : ", %" PRIu64, tensor->shape[i]);
    if (n < sizeof out.text)
        snprintf(out.text + n, sizeof out.text - n, "]");
    return out;
}
