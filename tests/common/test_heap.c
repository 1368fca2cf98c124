#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/heap.h"

#define MIB ((uint64_t)1 << 20)

Test(heap, what_lies_free_at_two_looks_is_given_back_once)
{
    sg_heap heap = {0};
    cr_assert_not(sg_heap_judge(&heap, 1 * MIB));
    cr_assert_not(sg_heap_judge(&heap, 500 * MIB), "perhaps a moment between two messages");
    cr_assert(sg_heap_judge(&heap, 400 * MIB));
    for (int i = 0; i < 10; i++)
        cr_assert_not(sg_heap_judge(&heap, 400 * MIB), "it was given back, and malloc counts it still");
}

Test(heap, a_second_crowd_is_noticed_though_no_more_lies_free_after_it)
{
    sg_heap heap = {0};
    cr_assert_not(sg_heap_judge(&heap, 400 * MIB));
    cr_assert(sg_heap_judge(&heap, 400 * MIB));
    cr_assert_not(sg_heap_judge(&heap, 10 * MIB), "they are there");
    cr_assert_not(sg_heap_judge(&heap, 400 * MIB));
    cr_assert(sg_heap_judge(&heap, 400 * MIB));
}

Test(heap, less_is_kept_for_who_comes_next)
{
    sg_heap heap = {0};
    for (int i = 0; i < 10; i++)
        cr_assert_not(sg_heap_judge(&heap, i % 2 == 0 ? 3 * MIB : 120 * MIB));
}

/* Small pieces with one in use here and there, as a crowd leaves them. (A sanitizer counts nothing as free.) */
Test(heap, it_is_looked_at_now_and_then_and_a_heap_that_is_in_use_stays)
{
    enum { N = 1 << 16 };
    static char *pieces[N];
    sg_heap heap = {0};
    uint64_t free_bytes = 0;
    for (int i = 0; i < N; i++)
        pieces[i] = calloc(1, 4096);
    cr_assert_not(sg_heap_tidy(&heap, 1000, &free_bytes));
    cr_assert_eq(heap.next_ms, 1000 + SG_HEAP_LOOK_MS);
    for (int i = 0; i < N; i++)
        if (i % 512 != 0)
            free(pieces[i]);
    cr_assert_not(sg_heap_tidy(&heap, 1100, &free_bytes), "too early");
    (void)sg_heap_tidy(&heap, 6000, &free_bytes);
    if (sg_heap_tidy(&heap, 11000, &free_bytes))
        cr_assert_geq(free_bytes, SG_HEAP_FREE_BYTES);
    for (int i = 0; i < N; i += 512) {
        cr_assert_eq(pieces[i][4095], 0);
        free(pieces[i]);
    }
}
