/* worker/nn/arena.c - a list of blocks, the newest first; only the newest has room. A reset that finds more than one
 * replaces them by one block as large as what was handed out, so a round of known size never asks for more. */
#include "worker/nn/arena.h"

#include <stdlib.h>

#include "common/status.h"

#define ALIGN_BYTES     ((size_t)64)
#define MIN_BLOCK_BYTES ((size_t)64 << 10)
#define MAX_PIECE_BYTES ((size_t)1 << 39) /* more than a machine has */

typedef struct block {
    struct block *older;
    size_t capacity_bytes, used_bytes;
    uint8_t *bytes;
} block;

struct sg_arena {
    const sg_kernel_device *device; /* NULL: the host */
    block *newest;
    sg_arena_stats stats;
};

sg_arena *sg_arena_create(const sg_kernel_device *device)
{
    sg_arena *arena = sg_xcalloc(1, sizeof *arena);
    arena->device = device;
    return arena;
}

static void *try_alloc(const sg_arena *arena, size_t n_bytes)
{
    return arena->device ? arena->device->try_alloc(n_bytes) : sg_try_alloc_aligned(n_bytes);
}

static void release(const sg_arena *arena, void *bytes)
{
    if (arena->device)
        arena->device->release(bytes);
    else
        free(bytes);
}

static void free_blocks(sg_arena *arena)
{
    while (arena->newest) {
        block *gone = arena->newest;
        arena->newest = gone->older;
        release(arena, gone->bytes);
        free(gone);
    }
    arena->stats.capacity_bytes = 0;
}

void sg_arena_destroy(sg_arena *arena)
{
    if (!arena)
        return;
    free_blocks(arena);
    free(arena);
}

static bool add_block(sg_arena *arena, size_t capacity_bytes)
{
    uint8_t *bytes = try_alloc(arena, capacity_bytes);
    if (!bytes)
        return false;
    block *added = sg_xcalloc(1, sizeof *added);
    *added = (block){.older = arena->newest, .capacity_bytes = capacity_bytes, .bytes = bytes};
    arena->newest = added;
    arena->stats.allocations++;
    arena->stats.capacity_bytes += capacity_bytes;
    return true;
}

void *sg_arena_try_alloc(sg_arena *arena, size_t n_bytes)
{
    if (n_bytes > MAX_PIECE_BYTES)
        return NULL;
    size_t wanted = n_bytes ? (n_bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES : ALIGN_BYTES;
    block *newest = arena->newest;
    if (!newest || newest->capacity_bytes - newest->used_bytes < wanted) {
        /* At least doubling keeps the number of blocks, and so of allocations, logarithmic. */
        size_t grown = arena->stats.capacity_bytes > MIN_BLOCK_BYTES ? arena->stats.capacity_bytes : MIN_BLOCK_BYTES;
        if (!add_block(arena, wanted > grown ? wanted : grown) && (wanted >= grown || !add_block(arena, wanted)))
            return NULL;
        newest = arena->newest;
    }
    void *piece = newest->bytes + newest->used_bytes;
    newest->used_bytes += wanted;
    arena->stats.used_bytes += wanted;
    return piece;
}

void sg_arena_reset(sg_arena *arena)
{
    if (arena->newest && arena->newest->older) {
        free_blocks(arena);
        (void)add_block(arena, arena->stats.used_bytes); /* where it fails, the next alloc tries again */
    } else if (arena->newest) {
        arena->newest->used_bytes = 0;
    }
    arena->stats.used_bytes = 0;
}

sg_arena_stats sg_arena_get_stats(const sg_arena *arena)
{
    return arena->stats;
}
