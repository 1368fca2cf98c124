/* worker/nn/blocks.h - images brought from C order into blocks of channels (kernels/blocks.h) and back.
 *
 * A convolution says how it wants its input (sg_conv_plan), and its result, and what is computed from that element by
 * element or channel by channel, stays so; a layer that needs another order asks for it here. Mostly that is never:
 * what leaves the images (global average pooling) has no channels in blocks any more. */
#ifndef SG_WORKER_NN_BLOCKS_H
#define SG_WORKER_NN_BLOCKS_H

#include "worker/nn/tape.h"

/* x with channels in such blocks, 0: in C order; x itself if it is so already, otherwise a copy, recorded like a layer.
 * NULL goes in and out, and comes after a failure. */
sg_tensor *sg_blocks_arrange(sg_tape *tape, sg_tensor *x, size_t block);

#endif
