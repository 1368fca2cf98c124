/* tests/nn/model_fixture.h - shared by the tests of the built-in models. */
#ifndef SG_TESTS_NN_MODEL_FIXTURE_H
#define SG_TESTS_NN_MODEL_FIXTURE_H

#include "worker/models/model.h"

#define SG_FIXTURE_MAX_ROWS   16u
#define SG_FIXTURE_MAX_INPUTS 64u

/* Made, with the values of seed 1. */
sg_model *sg_fixture_model(const sg_model_options *options);
size_t sg_fixture_n_elems(const sg_variable *variable);
/* Forward and backward over rows [first, first + n_rows) of fixed noise; the loss. */
double sg_fixture_step(sg_model *model, sg_tape *tape, size_t first, size_t n_rows);

/* That the cpu table gives the loss and the gradients of the plain loops within `bound` (of the largest,
 * where that is above 1), and that they are not zero. */
void sg_fixture_check_tables(sg_model *model, size_t n_rows, double bound);
/* That steps of n_rows, and of 3, allocate nothing once they have been made. */
void sg_fixture_check_steady(sg_model *model, size_t n_rows);
/* That so many steps of this rate bring the loss below a twentieth. */
void sg_fixture_check_learning(sg_model *model, size_t n_rows, float rate, size_t n_steps);

#endif
