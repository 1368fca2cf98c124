/* tests/kernels/staged.h - a table with a device, for tests whose arrays are the host's. */
#ifndef SG_TESTS_KERNELS_STAGED_H
#define SG_TESTS_KERNELS_STAGED_H

#include "kernels/kernel.h"

/* A table of this name without a device: each function lends the device its arrays, in pieces of their very size, calls
 * that of `kernel`, and takes back what it has written. One at a time per process. */
const sg_kernel *sg_staged(const sg_kernel *kernel);

#endif
