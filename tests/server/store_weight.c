#include "store_weight.h"

#include <criterion/criterion.h>

const fixture_variable weight_variables[3] = {{.name = "weight", .n_elems = 40},
                                              {.name = "table", .n_elems = 4, .frozen = true},
                                              {.name = "other", .n_elems = 4, .group = 1}};
const fixture_variable weight_small[1] = {{.name = "bias", .n_elems = 4}};
const uint32_t weight_slices[3] = {0, 1, 2};
const uint32_t weight_first = 0;
const float weight_ones[40] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
const float weight_twos[40] = {2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2,
                               2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2};
const float weight_threes[4] = {3, 3, 3, 3};

void weight_start(fixture *f, sg_mode mode, const fixture_variable *list, size_t n, uint32_t n_workers, float value)
{
    sg_store_options options = fixture_options(mode, SG_RULE_SGD);
    fixture_init(f, &options);
    fixture_start(f, list, n, n_workers, value);
}

void weight_expect(fixture *f, uint64_t version, float want)
{
    fixture_answer answer;
    fixture_pull(f, 0, &weight_first, 1, version, 1000, &answer);
    cr_assert(answer.answered);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    cr_assert_eq(answer.numbers[0], version);
    for (size_t i = 0; i < answer.n_values; i++)
        cr_assert_float_eq(answer.values[i], want, 1e-6f, "element %zu is %g, want %g", i, answer.values[i], want);
    fixture_answer_deinit(&answer);
}
