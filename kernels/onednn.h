/* kernels/onednn.h - what oneDNN computes for the table of kernel.h that has it; only the files of cpu.h include it.
 *
 * oneDNN convolves images whose channels lie in blocks (blocks.h), much faster than what is in C order; which block,
 * the machine decides. What has no plan is done by the loops of cpu_conv.c.
 *
 * Its matrix products use AVX-512 wherever the processor has it, where OpenBLAS takes the kernels of the processors
 * that it knows by name, or of the one that its user has named: half as fast on the others. Without AVX-512 oneDNN's
 * are not faster, and on some machines plain loops: so there OpenBLAS it is. */
#ifndef SG_KERNELS_ONEDNN_H
#define SG_KERNELS_ONEDNN_H

#include "kernels/conv.h"
#include "kernels/cpu.h"

extern const sg_kernel_conv sg_onednn_conv;

/* In as many threads as OpenBLAS may use: the bits depend on that number, on the sizes and on nothing else. */
sg_cpu_multiply_fn sg_onednn_multiply;

#endif
