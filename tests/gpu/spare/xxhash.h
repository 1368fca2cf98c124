/* tests/gpu/spare/xxhash.h - for a machine without xxHash: some hash of the name. Random numbers are then others. */
#ifndef SG_TESTS_GPU_XXHASH_H
#define SG_TESTS_GPU_XXHASH_H

#include <stddef.h>
#include <stdint.h>

static inline uint64_t XXH64(const void *bytes, size_t n_bytes, uint64_t seed)
{
    uint64_t hash = seed ^ 0xcbf29ce484222325ULL;
    for (size_t i = 0; i < n_bytes; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * 0x100000001b3ULL;
    return hash ^ hash >> 29;
}

#endif
