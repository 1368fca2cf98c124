/* tests/kernels/test_bf16.c - bfloat16: against what its definition says, over all of its values and what lies between.
 */
#include <criterion/criterion.h>
#include <float.h>
#include <math.h>

#include "kernels/bf16.h"

TestSuite(bf16, .timeout = 240);

Test(bf16, what_is_widened_and_narrowed_is_the_same)
{
    for (uint32_t x = 0; x <= UINT16_MAX; x++) {
        const float wide = sg_bf16_to_float((uint16_t)x);
        const uint16_t again = sg_bf16_of(wide);
        if (isnan(wide))
            cr_assert(isnan(sg_bf16_to_float(again)) && (again & 0x40) != 0, "%x", x);
        else
            cr_assert_eq(again, x);
    }
}

/* Half of a unit in the last place at most, and of two that are as near the even one. */
Test(bf16, rounds_to_nearest_even)
{
    for (uint32_t x = 0; x < 0x7f7f; x++) {
        const double low = sg_bf16_to_float((uint16_t)x), high = sg_bf16_to_float((uint16_t)(x + 1));
        const float middle = (float)((low + high) / 2);
        cr_assert_eq(sg_bf16_of(middle), x % 2 == 0 ? x : x + 1, "the middle above %x", x);
        cr_assert_eq(sg_bf16_of(nextafterf(middle, 0)), x);
        cr_assert_eq(sg_bf16_of(nextafterf(middle, INFINITY)), x + 1);
        cr_assert_eq(sg_bf16_of(-middle), 0x8000 | (x % 2 == 0 ? x : x + 1));
    }
}

Test(bf16, what_is_too_large_or_no_number_is_told_as_such)
{
    cr_assert_eq(sg_bf16_of(FLT_MAX), 0x7f80);
    cr_assert_eq(sg_bf16_of(-INFINITY), 0xff80);
    cr_assert_eq(sg_bf16_of(0x1.fep127F), 0x7f7f);
    uint32_t signalling = 0x7f800001;
    float nan;
    memcpy(&nan, &signalling, sizeof nan);
    cr_assert(isnan(sg_bf16_to_float(sg_bf16_of(nan))), "its upper half alone would be infinity");
}
