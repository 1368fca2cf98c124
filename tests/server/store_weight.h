/* tests/server/store_weight.h - the small model that most tests of the store train. */
#ifndef SG_TESTS_STORE_WEIGHT_H
#define SG_TESTS_STORE_WEIGHT_H

#include "store_fixture.h"

/* Two slices of 16 and one of 8 elements; a frozen variable (slice 3); another group (slice 4). */
extern const fixture_variable weight_variables[3];
extern const uint32_t weight_slices[3]; /* of the first variable */
/* Of one slice of 4 elements, or of the first 4 of more. */
extern const fixture_variable weight_small[1];
extern const uint32_t weight_first; /* slice 0 */
extern const float weight_ones[40], weight_twos[40], weight_threes[4];

/* Rule sgd; see fixture_start. */
void weight_start(fixture *f, sg_mode mode, const fixture_variable *list, size_t n, uint32_t n_workers, float value);
/* Asserts that `version` of slice 0 can be pulled and is all `want`. */
void weight_expect(fixture *f, uint64_t version, float want);

#endif
