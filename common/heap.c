/* common/heap.c - see heap.h. */
#include "common/heap.h"

#include <malloc.h>

/* Free at two looks in a row: not a moment between two messages. What was given back still counts as free, so the next
 * time is measured from there. */
bool sg_heap_judge(sg_heap *heap, uint64_t free_bytes)
{
    const uint64_t idle_bytes = free_bytes < heap->last_bytes ? free_bytes : heap->last_bytes;
    heap->last_bytes = free_bytes;
    if (free_bytes < heap->least_bytes)
        heap->least_bytes = free_bytes;
    if (idle_bytes < heap->least_bytes + SG_HEAP_FREE_BYTES)
        return false;
    heap->least_bytes = free_bytes;
    return true;
}

bool sg_heap_tidy(sg_heap *heap, uint64_t now_ms, uint64_t *free_bytes)
{
    if (now_ms < heap->next_ms)
        return false;
    heap->next_ms = now_ms + SG_HEAP_LOOK_MS;
    *free_bytes = mallinfo2().fordblks;
    if (!sg_heap_judge(heap, *free_bytes))
        return false;
    malloc_trim(0);
    return true;
}
