/* worker/nn/shape.h - shapes for messages. */
#ifndef SG_WORKER_NN_SHAPE_H
#define SG_WORKER_NN_SHAPE_H

#include "worker/nn/tape.h"

typedef struct sg_shape_text {
    char text[24 * SG_MAX_RANK];
} sg_shape_text;

/* "[128, 1, 28, 28]"; "none" for NULL. */
sg_shape_text sg_shape_describe(const sg_tensor *tensor);

#endif
