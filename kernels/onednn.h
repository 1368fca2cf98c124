/* kernels/onednn.h - convolutions by oneDNN, for the table of kernel.h that has them; cpu.c alone includes it.
 *
 * oneDNN convolves images whose channels lie in blocks (blocks.h), much faster than what is in C order; which block,
 * the machine decides. What has no plan is done by the table of cpu.c. */
#ifndef SG_KERNELS_ONEDNN_H
#define SG_KERNELS_ONEDNN_H

#include "kernels/conv.h"

extern const sg_kernel_conv sg_onednn_conv;

#endif
