/* tests/support/seed.h - random numbers of a property test, which anyone can draw again.
 *
 * SG_TEST_SEED=NUMBER in the environment replays a run; without it each run draws its own seed. A failing assertion
 * should print seed.first. */
#ifndef SG_TESTS_SUPPORT_SEED_H
#define SG_TESTS_SUPPORT_SEED_H

#include <stdint.h>

typedef struct sg_seed {
    uint64_t first; /* what SG_TEST_SEED must be to get the same numbers */
    uint64_t state;
} sg_seed;

/* Prints "seed N" too, for a test that crashes. */
sg_seed sg_seed_begin(void);
/* Evenly from 0 to limit - 1; limit is at least 1. */
uint64_t sg_seed_below(sg_seed *seed, uint64_t limit);

#endif
