/* kernels/device.h - the memory that a table works in where that is not the host's, a part of the table of kernel.h.
 *
 * All arrays that are given to the other functions of such a table, labels and ids among them, lie in memory of
 * try_alloc; `conv_shape` and its like, and single numbers, are the host's. Those functions begin their work and
 * return: what they began is done in the order of the calls. `get` and `count_correct` wait for it.
 *
 * Copies between host and device go on beside the work. Nothing here fails: a device that fails computes no more, and
 * `failure` says so. Every function may be called from any thread; work of several threads is done in turn. */
#ifndef SG_KERNELS_DEVICE_H
#define SG_KERNELS_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sg_kernel_device {
    void *(*try_alloc)(size_t n_bytes); /* 64-byte aligned, not zeroed; NULL where there is none left */
    void (*release)(void *memory);      /* NULL is fine; waits for all work that was begun */

    /* Uploads from here on wait for the work that was begun before it. */
    void (*fence)(void);
    /* Work that is begun from here on sees the bytes. Of the host's, it may read until that work is over. */
    void (*upload)(void *to, const void *from_host, size_t n_bytes);
    /* Begins to copy what the work that was begun before it leaves there, and returns its number. */
    uint64_t (*download)(void *to_host, const void *from, size_t n_bytes);
    bool (*is_over)(uint64_t download);
    void (*wait)(uint64_t download);

    /* Makes whole pages of the host's memory such that copies from and to them are quick and go on beside the host's
     * own work. A failure costs time alone. */
    void (*pin)(void *host, size_t n_bytes);
    void (*unpin)(void *host);

    /* NULL, or what is wrong with the device, of its errors so far: it then computes nothing more. *of_memory: it has
     * not enough of it for its own work. Does not wait. */
    const char *(*failure)(bool *of_memory);
} sg_kernel_device;

#endif
