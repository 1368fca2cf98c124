/* common/random.h - random numbers without state: word i of stream s under a seed is a function of these three alone.
 *
 * Philox 4x32-10 (Salmon et al. 2011, Random123); streams are named by xxHash. The same on every machine. Not for
 * secrets. */
#ifndef SG_COMMON_RANDOM_H
#define SG_COMMON_RANDOM_H

#include <stdint.h>

/* The stream called `name`, number `number` of that name. */
uint64_t sg_random_stream(const char *name, uint64_t number);

/* Words 4 * block .. 4 * block + 3 of the stream. */
void sg_random_block(uint64_t seed, uint64_t stream, uint64_t block, uint32_t words[4]);

#endif
