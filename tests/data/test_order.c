/* tests/data/test_order.c - the order of an epoch. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "worker/data/order.h"

TestSuite(order, .timeout = 20);

enum { n_examples = 5000 };

Test(order, every_example_comes_once)
{
    static const size_t sizes[] = {1, 2, 3, n_examples};
    for (size_t s = 0; s < 4; s++) {
        uint32_t order[n_examples];
        uint8_t seen[n_examples] = {0};
        sg_order_shuffle(1, 0, sizes[s], order);
        for (size_t i = 0; i < sizes[s]; i++) {
            cr_assert(order[i] < sizes[s]);
            cr_assert_not(seen[order[i]]);
            seen[order[i]] = 1;
        }
    }
    sg_order_shuffle(1, 0, 0, NULL);
}

static size_t equal_places(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b)
{
    uint32_t a[n_examples];
    uint32_t b[n_examples];
    sg_order_shuffle(seed_a, epoch_a, n_examples, a);
    sg_order_shuffle(seed_b, epoch_b, n_examples, b);
    size_t equal = 0;
    for (size_t i = 0; i < n_examples; i++)
        equal += a[i] == b[i];
    return equal;
}

Test(order, seed_and_epoch_alone_decide)
{
    cr_assert(equal_places(1, 3, 1, 3) == n_examples);
    cr_assert(equal_places(1, 3, 1, 4) < 20);
    cr_assert(equal_places(1, 3, 2, 3) < 20);
    cr_assert(equal_places(1, 2, 2, 1) < 20);
}

/* Each of the 6 orders of 3 comes 1000 times in 6000, give or take 4.5 standard deviations. */
Test(order, all_orders_are_equally_likely)
{
    size_t counts[27] = {0};
    for (uint64_t epoch = 0; epoch < 6000; epoch++) {
        uint32_t order[3];
        sg_order_shuffle(42, epoch, 3, order);
        counts[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    static const size_t orders[] = {0 * 9 + 1 * 3 + 2, 0 * 9 + 2 * 3 + 1, 1 * 9 + 0 * 3 + 2,
                                    1 * 9 + 2 * 3 + 0, 2 * 9 + 0 * 3 + 1, 2 * 9 + 1 * 3 + 0};
    for (size_t i = 0; i < 6; i++)
        cr_assert(counts[orders[i]] > 870 && counts[orders[i]] < 1130, "order %zu came %zu times", i,
                  counts[orders[i]]);
}
