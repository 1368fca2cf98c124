/* worker/data/order.c - see order.h. */
#include "worker/data/order.h"

#include "common/random.h"

void sg_order_shuffle(uint64_t seed, uint64_t epoch, size_t n, uint32_t *order)
{
    uint64_t stream = sg_random_stream("order of examples", epoch);
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
    for (size_t i = n; i > 1; i--) {
        uint32_t words[4];
        sg_random_block(seed, stream, i, words);
        /* The upper half of a 64-bit draw times i is below i, and even but for one part in 2^64 / i. */
        uint64_t draw = (uint64_t)words[0] | (uint64_t)words[1] << 32;
        size_t other = (size_t)(((unsigned __int128)draw * i) >> 64);
        uint32_t swapped = order[i - 1];
        order[i - 1] = order[other];
        order[other] = swapped;
    }
}
