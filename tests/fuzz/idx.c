/* Data files. The first byte is the number of dimensions that are wanted. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/data/idx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < 1)
        return 0;
    char path[64];
    sg_idx idx;
    sg_error err;
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    SG_ASSERT(fd >= 0 && write(fd, data + 1, n_bytes - 1) == (ssize_t)n_bytes - 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (sg_idx_read(path, 1 + data[0] % SG_IDX_MAX_RANK, &idx, &err) == SG_OK) {
        volatile uint8_t sum = 0;
        for (size_t i = 0; i < idx.n_bytes; i++)
            sum = (uint8_t)(sum + idx.bytes[i]);
        sg_idx_deinit(&idx);
    }
    close(fd);
    return 0;
}
