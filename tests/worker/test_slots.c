/* The table of numbers, against a plain list. */
#include <criterion/criterion.h>

#include "tests/support/seed.h"
#include "worker/client/slots.h"

TestSuite(slots, .timeout = 20);

Test(slots, what_was_put_is_found_until_it_is_removed)
{
    sg_slots slots = {0};
    int object;
    cr_assert_null(sg_slots_get(&slots, 1));
    sg_slots_remove(&slots, 1);
    sg_slots_put(&slots, 1, &object);
    sg_slots_put(&slots, 1 + 64, &slots); /* wants the same place */
    cr_assert_eq(sg_slots_get(&slots, 1), &object);
    cr_assert_eq(sg_slots_get(&slots, 65), &slots);
    cr_assert_null(sg_slots_get(&slots, 0));
    cr_assert_null(sg_slots_get(&slots, 129));
    sg_slots_remove(&slots, 1);
    cr_assert_null(sg_slots_get(&slots, 1));
    cr_assert_eq(sg_slots_get(&slots, 65), &slots);
    sg_slots_deinit(&slots);
}

/* Numbers that ascend with gaps, removed in any order. */
Test(slots, it_holds_what_a_plain_list_holds)
{
    enum { N = 4000 };
    static bool there[N];
    for (uint64_t number = 1; number <= 20; number++) {
        sg_seed seed = {.first = number, .state = number};
        sg_slots slots = {0};
        size_t n = 0;
        for (uint64_t i = 0; i < N; i++)
            there[i] = false;
        for (int turn = 0; turn < 20000; turn++) {
            const uint64_t at = 1 + sg_seed_below(&seed, N - 1);
            cr_assert_eq(sg_slots_get(&slots, at) != NULL, there[at], "seed %llu", (unsigned long long)number);
            if (there[at])
                sg_slots_remove(&slots, at);
            else
                sg_slots_put(&slots, at, &there[at]);
            there[at] = !there[at];
            n = there[at] ? n + 1 : n - 1;
            cr_assert_eq(slots.n, n);
        }
        for (uint64_t i = 1; i < N; i++)
            cr_assert_eq(sg_slots_get(&slots, i), there[i] ? &there[i] : NULL);
        sg_slots_deinit(&slots);
    }
}
