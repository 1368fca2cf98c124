#include "tests/bench/yardstick.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(yardstick_kernel, .timeout = 20);

enum { N = 3000, STEPS = 5 }; /* more than two blocks of what is compared at once, and a rest */

static float values[2][N], gradients[N];

/* Values after STEPS steps, in values[STEPS % 2]. */
static float *make_values(void)
{
    yardstick_kernel_fill_values(values[0], 0, N);
    yardstick_kernel_fill_gradients(gradients, N);
    for (size_t i = 0; i < STEPS; i++)
        yardstick_kernel_sgd(gradients, values[i % 2], values[(i + 1) % 2], N);
    return values[STEPS % 2];
}

Test(yardstick_kernel, right_values_are_right_after_their_number_of_steps_alone)
{
    const float *right = make_values();
    cr_assert_eq(yardstick_kernel_first_wrong(right, N, STEPS), N);
    /* gradient 0 is 0 */
    cr_assert_eq(yardstick_kernel_first_wrong(right, N, STEPS - 1), 1, "a step too many");
    cr_assert_eq(yardstick_kernel_first_wrong(right, N, STEPS + 1), 1, "a step was lost");
}

Test(yardstick_kernel, one_changed_bit_of_any_element_is_found_and_the_first_is_told)
{
    float *corrupted = make_values();
    for (size_t i = 0; i < N; i++) {
        uint32_t bits, changed;
        memcpy(&bits, &corrupted[i], sizeof(bits));
        changed = bits ^ (uint32_t)1 << i % 32;
        memcpy(&corrupted[i], &changed, sizeof(changed));
        cr_assert_eq(yardstick_kernel_first_wrong(corrupted, N, STEPS), i);
        memcpy(&corrupted[i], &bits, sizeof(bits));
    }
    corrupted[2500] += 1;
    corrupted[1100] += 1;
    cr_assert_eq(yardstick_kernel_first_wrong(corrupted, N, STEPS), 1100);
}

Test(yardstick_kernel, elements_that_changed_places_are_found)
{
    float *corrupted = make_values();
    float first = corrupted[10];
    corrupted[10] = corrupted[2000];
    corrupted[2000] = first;
    cr_assert_eq(yardstick_kernel_first_wrong(corrupted, N, STEPS), 10);
}
