/* kernels/cuda_load.h - the table of a CUDA device, where the build found nvcc and the machine has a device. */
#ifndef SG_KERNELS_CUDA_LOAD_H
#define SG_KERNELS_CUDA_LOAD_H

#include "common/status.h"
#include "kernels/kernel.h"

/* Of the device of this number, counted around where there are fewer; a process has one, that of the first call. Static
 * storage. From any thread. Errors: CONFIG (CUDA was not built, is not installed, or finds no device). */
SG_MUST_USE sg_status sg_kernel_cuda(uint32_t index, const sg_kernel **kernel, sg_error *err);

#endif
