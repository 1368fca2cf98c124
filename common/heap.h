/* common/heap.h - memory that malloc keeps when those who took it have gone.
 *
 * A crowd of calls takes hundreds of megabytes in small pieces, and when it has gone malloc keeps them for the next.
 * What has not been used for a while is given back to the system. Not thread-safe: of one thread. Where several ps
 * share a process each has one of these, and all look at the same malloc, which is harmless. */
#ifndef SG_COMMON_HEAP_H
#define SG_COMMON_HEAP_H

#include <stdbool.h>
#include <stdint.h>

/* Give back once so much more lies free than at the quietest moment since the last time: less is soon used again, and
 * a fresh page costs more than one that was kept. */
#define SG_HEAP_FREE_BYTES ((uint64_t)128 << 20)
/* How often that is looked at: malloc counts what is free piece by piece, 20 ms for half a million pieces. */
#define SG_HEAP_LOOK_MS 5000u

typedef struct sg_heap {
    uint64_t next_ms;
    uint64_t least_bytes, last_bytes; /* free at least, since memory was given back; when looked at last */
} sg_heap;

/* Zeroed before the first call; call it every 100 ms or so. True: memory was given back, *free_bytes of it at most. */
bool sg_heap_tidy(sg_heap *heap, uint64_t now_ms, uint64_t *free_bytes);
/* The decision alone, for one look that found so much free. */
bool sg_heap_judge(sg_heap *heap, uint64_t free_bytes);

#endif
