/* A checkpoint of two ps and two workers, and jobs that go on from it. */
#ifndef SG_TESTS_SERVER_RESTORED_FIXTURE_H
#define SG_TESTS_SERVER_RESTORED_FIXTURE_H

#include "tests/server/coordinator_fixture.h"

/* Settings of a job that makes checkpoints; NULL ends them. */
extern const char *const restored_two_ps[];

/* Cut at iteration 50, of workers 0 and 1; the second group steps at every fifth. What it points to is static. */
sg_checkpoint_manifest restored_manifest(const rig *r);

/* The job is started anew, and finds this set; no ps has registered yet. */
void restored_coordinator(rig *r, const sg_checkpoint_manifest *manifest);

/* A hello of one that was in generation 1. */
rig_call *restored_hello(rig *r, uint32_t worker, uint64_t life);
/* That a hello got. */
uint64_t restored_incarnation(const rig_call *call);
/* ps 1 comes as this life, in place of the one before, which is dead. */
void restored_new_ps(rig *r, uint64_t life);
/* A worker of rig_start comes again and declares; returns its incarnation. */
uint64_t restored_again(rig *r, uint32_t worker);

#endif
