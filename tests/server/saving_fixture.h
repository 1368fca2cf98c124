/* Jobs that make checkpoints, and the steps between these. */
#ifndef SG_TESTS_SERVER_SAVING_FIXTURE_H
#define SG_TESTS_SERVER_SAVING_FIXTURE_H

#include "tests/server/coordinator_fixture.h"

/* Settings of a job of two ps that makes checkpoints, and that makes one every 4 iterations; NULL ends them. */
extern const char *const saving_two_ps[], *const saving_every_4[];

/* Started, with set 0 complete. */
void saving_begin(rig *r, const char *const settings[], uint64_t workers[2]);
/* Both workers ask for this step of group 0, having finished all before; returns its mark. */
uint64_t saving_step(rig *r, const uint64_t workers[2], uint64_t number);
/* This step of group 1, of this iteration. */
uint64_t saving_critic(rig *r, const uint64_t workers[2], uint64_t number, uint64_t iteration);
/* Both ps report that they could not write their part of the newest cut. */
void saving_report_full(rig *r);

#endif
