/* kernels/cuda.h - what the library of the CUDA table, cuda*.cu, has for whoever loads it.
 *
 * It is a library of its own, SG_CUDA_LIBRARY, which a program loads when it is told to compute there: so the same
 * program runs where there is no CUDA, and costs nothing of it. The library needs nothing of ours and has no state but
 * CUDA's, which is one per process, as its device is. */
#ifndef SG_KERNELS_CUDA_H
#define SG_KERNELS_CUDA_H

#include "kernels/kernel.h"

#define SG_CUDA_LIBRARY "libshardgrad-cuda.so"
#define SG_CUDA_OPEN    "sg_cuda_open"

/* The table of device number `index` modulo the number of devices, in float; the one that was opened first in this
 * process, if one was. NULL with the reason in why[why_bytes]. From any thread. */
typedef const sg_kernel *(*sg_cuda_open_fn)(uint32_t index, char *why, size_t why_bytes);

#endif
