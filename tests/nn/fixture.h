/* tests/nn/fixture.h - shared by the tests of the tape and its layers. */
#ifndef SG_TESTS_NN_FIXTURE_H
#define SG_TESTS_NN_FIXTURE_H

#include "worker/nn/layers.h"

/* The tables that are fast, for a loop: of the CPU, that of the device, and with oneDNN where it was found; NULL: no
 * more.
 */
const sg_kernel *sg_fixture_fast_table(size_t index);
/* CUDA's, on the device that stands in for one (tests/support/cuda). */
const sg_kernel *sg_fixture_device_table(void);

/* n numbers in [-1, 1), a function of the name; freed by free(). */
double *sg_fixture_noise(const char *name, size_t n);

/* Builds a pass and returns its loss. */
typedef sg_tensor *(*sg_fixture_pass)(sg_tape *tape, void *user);

/* Asserts that `gradient`[n], as filled by going back from the pass's loss in double precision, is the slope of the
 * loss in each of `values`[n], by central differences: within 1e-6 of the larger of 1 and the slope. */
void sg_fixture_check_gradient(sg_fixture_pass pass, void *user, double *values, const double *gradient, size_t n,
                               const char *what);

/* A number that depends on every element of x, in another way on each: a loss for layers that make none. x has at most
 * SG_FIXTURE_MAX elements. */
#define SG_FIXTURE_MAX 2048u
sg_tensor *sg_fixture_loss(sg_tape *tape, sg_tensor *x);

/* That the layer made nothing and the tape says `want`; begins another pass. */
void sg_fixture_expect_error(sg_tape *tape, const sg_tensor *made, const char *want);

#endif
