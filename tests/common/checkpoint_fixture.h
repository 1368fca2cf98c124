/* tests/common/checkpoint_fixture.h - a small model, and sets of it written by any number of ps. */
#ifndef SG_TESTS_COMMON_CHECKPOINT_FIXTURE_H
#define SG_TESTS_COMMON_CHECKPOINT_FIXTURE_H

#include "common/checkpoint.h"
#include "common/plan.h"

#define N_FIXTURE_VARIABLES 4u

/* Variables of 1, 1000, 17 and 64 elements, the last one frozen and without slots; two groups. */
extern const sg_checkpoint_variable fixture_variables[N_FIXTURE_VARIABLES];

sg_plan *fixture_plan(uint32_t n_ps, uint64_t slice_bytes);
/* The value (kind 0) or slot (1, 2) of an element in a set of this iteration. */
float fixture_value(uint64_t iteration, uint32_t variable, uint32_t kind, uint64_t elem);
/* What the slice's step is in a set of this iteration. */
uint64_t fixture_step(uint64_t iteration, uint32_t slice);

/* Everything that a set of this model says; its arrays are static but for parts, which are empty. */
sg_checkpoint_manifest fixture_manifest(sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes);
/* Writes the file of one ps of the set. */
sg_status fixture_write_part(const sg_checkpoint *folder, sg_checkpoint_set set, const sg_plan *plan, uint32_t ps,
                             sg_checkpoint_part *part, sg_error *err);
/* Writes all of it, the manifest last. Stops at the first failure. */
sg_status fixture_write_set(const sg_checkpoint *folder, sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes,
                            sg_error *err);
/* Every value and slot of the set, read in slices of a plan of so many ps, is what it should be. */
void fixture_expect_set(const sg_checkpoint *folder, sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes);

#endif
