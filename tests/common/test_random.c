/* tests/common/test_random.c - the generator gives the published numbers. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/random.h"

TestSuite(random, .timeout = 10);

/* Known answers of philox4x32-10 from Random123's kat_vectors; our key is the seed, our counter (block, stream). */
Test(random, blocks_are_the_published_ones_of_philox)
{
    static const struct {
        uint64_t seed, stream, block;
        uint32_t words[4];
    } want[] = {
        {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, 0x0370734413198a2e, 0x85a308d3243f6a88, {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        uint32_t words[4];
        sg_random_block(want[i].seed, want[i].stream, want[i].block, words);
        cr_assert(memcmp(words, want[i].words, sizeof words) == 0, "case %zu: %08x %08x %08x %08x", i, words[0],
                  words[1], words[2], words[3]);
    }
}

/* Known answers of XXH64. */
Test(random, streams_are_xxhash_of_their_name)
{
    cr_assert(sg_random_stream("", 0) == 0xef46db3751d8e999);
    cr_assert(sg_random_stream("abc", 0) == 0x44bc2cf5ad770999);
    cr_assert(sg_random_stream("abc", 1) != sg_random_stream("abc", 0));
}
