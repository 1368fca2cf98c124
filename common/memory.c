/* common/memory.c - see memory.h. */
#include "common/memory.h"

#include <limits.h>
#include <malloc.h>

void sg_memory_tune(void)
{
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* no mapping of its own for a large block */
    mallopt(M_TRIM_THRESHOLD, INT_MAX); /* as much as mallopt can say */
    mallopt(M_TOP_PAD, 64 << 20);
}

void sg_memory_tune_daemon(void)
{
    sg_memory_tune();
    mallopt(M_ARENA_MAX, 1); /* what one thread has freed is there for all */
}
