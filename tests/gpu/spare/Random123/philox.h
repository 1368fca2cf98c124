/* tests/gpu/spare/Random123/philox.h - for a machine without Random123: Philox 4x32 with 10 rounds, the same numbers.
 */
#ifndef SG_TESTS_GPU_PHILOX_H
#define SG_TESTS_GPU_PHILOX_H

#include <stdint.h>

typedef struct philox4x32_ctr_t {
    uint32_t v[4];
} philox4x32_ctr_t;
typedef struct philox4x32_key_t {
    uint32_t v[2];
} philox4x32_key_t;

#ifdef __CUDACC__
__host__ __device__
#endif
    static inline philox4x32_ctr_t
    philox4x32(philox4x32_ctr_t c, philox4x32_key_t k)
{
    for (int round = 0; round < 10; round++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c.v[0], b = (uint64_t)0xCD9E8D57u * c.v[2];
        const philox4x32_ctr_t next = {
            {(uint32_t)(b >> 32) ^ c.v[1] ^ k.v[0], (uint32_t)b, (uint32_t)(a >> 32) ^ c.v[3] ^ k.v[1], (uint32_t)a}};
        c = next;
        k.v[0] += 0x9E3779B9u;
        k.v[1] += 0xBB67AE85u;
    }
    return c;
}

#endif
