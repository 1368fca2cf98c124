/* worker/client/memory.c - see shardgrad/memory.h. */
#include "shardgrad/memory.h"

#include "common/memory.h"

void sg_tune_allocator(void)
{
    sg_memory_tune();
}
