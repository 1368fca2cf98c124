/* worker/nn/initializer.c - see initializer.h. No function of libm but sqrt: others differ in the last bit between
 * machines, and the initial values should not. */
#include "worker/nn/initializer.h"

#include <math.h>

#include "common/random.h"

#define WORDS_PER_BLOCK 4

void sg_initializer_uniform(uint64_t seed, const char *name, float limit, uint64_t begin, size_t n_elems, float *out)
{
    uint64_t stream = sg_random_stream(name, 0);
    uint32_t words[WORDS_PER_BLOCK];
    for (size_t i = 0; i < n_elems; i++) {
        uint64_t element = begin + i;
        if (i == 0 || element % WORDS_PER_BLOCK == 0)
            sg_random_block(seed, stream, element / WORDS_PER_BLOCK, words);
        /* The upper 24 bits as a multiple of 2^-23 in [-1, 1): exact in a float. */
        float unit = (float)((int32_t)(words[element % WORDS_PER_BLOCK] >> 8) - (1 << 23)) * 0x1p-23F;
        out[i] = limit * unit;
    }
}

float sg_initializer_he_limit(uint64_t fan_in)
{
    return fan_in ? (float)sqrt(6.0 / (double)fan_in) : 0;
}

float sg_initializer_glorot_limit(uint64_t fan_in, uint64_t fan_out)
{
    return fan_in + fan_out ? (float)sqrt(6.0 / (double)(fan_in + fan_out)) : 0;
}
