/* tests/nn/test_initializer.c - initial values are a function of seed, name and element. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "worker/nn/initializer.h"

TestSuite(initializer, .timeout = 240);

enum { n_elems = 1003 };

Test(initializer, a_variable_made_in_pieces_is_the_one_made_at_once)
{
    float whole[n_elems];
    float pieces[n_elems];
    sg_initializer_uniform(1, "w", 0.5F, 0, n_elems, whole);
    for (size_t begin = 0; begin < n_elems; begin += 7)
        sg_initializer_uniform(1, "w", 0.5F, begin, n_elems - begin < 7 ? n_elems - begin : 7, pieces + begin);
    cr_assert(memcmp(whole, pieces, sizeof whole) == 0);
}

Test(initializer, seed_and_name_both_count)
{
    float a[n_elems];
    float b[n_elems];
    float c[n_elems];
    sg_initializer_uniform(1, "w", 1, 0, n_elems, a);
    sg_initializer_uniform(2, "w", 1, 0, n_elems, b);
    sg_initializer_uniform(1, "v", 1, 0, n_elems, c);
    size_t equal = 0;
    for (size_t i = 0; i < n_elems; i++)
        equal += a[i] == b[i] || a[i] == c[i] || b[i] == c[i];
    cr_assert(equal < 2, "%zu of %d values are the same", equal, n_elems);
}

Test(initializer, values_are_spread_evenly_between_the_limits)
{
    enum { many = 100000, bins = 10 };
    static float x[many];
    size_t counts[bins] = {0};
    double sum = 0;
    sg_initializer_uniform(5, "w", 0.25F, 0, many, x);
    for (size_t i = 0; i < many; i++) {
        cr_assert(x[i] >= -0.25F && x[i] < 0.25F);
        counts[(size_t)((x[i] + 0.25F) / 0.5F * bins)]++;
        sum += (double)x[i];
    }
    for (size_t i = 0; i < bins; i++)
        cr_assert(counts[i] > many / bins * 95 / 100 && counts[i] < many / bins * 105 / 100, "bin %zu has %zu", i,
                  counts[i]);
    cr_assert(fabs(sum / many) < 0.002);
}

Test(initializer, limits_follow_the_papers)
{
    cr_assert_float_eq(sg_initializer_he_limit(600), 0.1F, 1e-7);
    cr_assert_float_eq(sg_initializer_glorot_limit(200, 400), 0.1F, 1e-7);
}
