/* kernels/cuda_load.c - see cuda_load.h. */
#include "kernels/cuda_load.h"

#include <dlfcn.h>

#include "kernels/cuda.h"

/* The library stays loaded for good: CUDA cannot be unloaded. */
sg_status sg_kernel_cuda(uint32_t index, const sg_kernel **kernel, sg_error *err)
{
    char why[256];
    void *library = dlopen(SG_CUDA_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return sg_error_set(err, SG_CONFIG,
                            "cuda: %s; wanted a build that found nvcc, on a machine with CUDA, or train.backend cpu",
                            dlerror());
    sg_cuda_open_fn open = NULL;
    *(void **)&open = dlsym(library, SG_CUDA_OPEN);
    if (!open)
        return sg_error_set(err, SG_CONFIG, "cuda: %s is of another version: %s; install it anew", SG_CUDA_LIBRARY,
                            dlerror());
    *kernel = open(index, why, sizeof why);
    return *kernel ? SG_OK
                   : sg_error_set(err, SG_CONFIG, "cuda: no device to compute on: %s; wanted one, or train.backend cpu",
                                  why);
}
