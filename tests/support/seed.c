/* tests/support/seed.c - see seed.h; the generator is splitmix64. */
#include "tests/support/seed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"

sg_seed sg_seed_begin(void)
{
    const char *given = getenv("SG_TEST_SEED");
    uint64_t first = given != NULL ? strtoull(given, NULL, 10) : sg_clock_random_id();
    fprintf(stderr, "seed %" PRIu64 "\n", first);
    return (sg_seed){.first = first, .state = first};
}

uint64_t sg_seed_below(sg_seed *seed, uint64_t limit)
{
    uint64_t z = seed->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (z ^ z >> 31) % limit;
}
