/* tests/worker/test_memory.c - the call by which an embedder tunes glibc's allocator. */
#include <stdlib.h>
#include <sys/resource.h>

#include <criterion/criterion.h>

#include "shardgrad/memory.h"

TestSuite(memory, .timeout = 20);

/* Above the size from which glibc, whatever it has learned, maps each block anew. */
#define N_BYTES ((size_t)40 << 20)

static long faults_of_a_block(void)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    volatile char *block = malloc(N_BYTES); /* or the compiler sees that nobody reads it */
    for (size_t i = 0; i < N_BYTES; i += 4096)
        block[i] = 1;
    getrusage(RUSAGE_SELF, &after);
    free((char *)block);
    return after.ru_minflt - before.ru_minflt;
}

Test(memory, a_tuned_allocator_hands_out_freed_memory_again_without_page_faults)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    cr_skip_test("a sanitizer has an allocator of its own");
#endif
    sg_tune_allocator();
    cr_assert_gt(faults_of_a_block(), 100, "the first time");
    cr_assert_lt(faults_of_a_block(), 100, "the second time");
}
