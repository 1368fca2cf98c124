/* common/random.c - see random.h. */
#include "common/random.h"

#include <string.h>

#include <Random123/philox.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t sg_random_stream(const char *name, uint64_t number)
{
    return XXH64(name, strlen(name), number);
}

void sg_random_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t words[4])
{
    philox4x32_key_t key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t counter = {{(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream, (uint32_t)(stream >> 32)}};
    philox4x32_ctr_t result = philox4x32(counter, key);
    memcpy(words, result.v, sizeof result.v);
}
