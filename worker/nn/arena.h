/* worker/nn/arena.h - memory that is handed out piece by piece and taken back all at once, and used again.
 *
 * After the first rounds of the same sizes an arena asks the system for nothing: sg_arena_reset merges what the round
 * needed into one block of that size. Threads: one user at a time. */
#ifndef SG_WORKER_NN_ARENA_H
#define SG_WORKER_NN_ARENA_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/device.h"

typedef struct sg_arena sg_arena;

typedef struct sg_arena_stats {
    uint64_t allocations;  /* blocks asked of the system since the arena was made */
    size_t capacity_bytes; /* held now */
    size_t used_bytes;     /* handed out since the last reset */
} sg_arena_stats;

/* In the memory of this device, which must outlive it; NULL: the host's. */
sg_arena *sg_arena_create(const sg_kernel_device *device);
void sg_arena_destroy(sg_arena *arena); /* NULL is fine */

/* 64-byte aligned, not zeroed, valid until the next reset; NULL without memory. 0 bytes are fine. */
void *sg_arena_try_alloc(sg_arena *arena, size_t n_bytes);
/* Takes back everything. */
void sg_arena_reset(sg_arena *arena);
sg_arena_stats sg_arena_get_stats(const sg_arena *arena);

#endif
