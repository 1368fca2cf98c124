/* worker/nn/initializer.h - initial values of variables.
 *
 * Element i of a variable is a function of (seed, name of the variable, i) alone: whoever initializes, in whatever
 * order and whatever slices, makes the same values. */
#ifndef SG_WORKER_NN_INITIALIZER_H
#define SG_WORKER_NN_INITIALIZER_H

#include <stddef.h>
#include <stdint.h>

/* Elements [begin, begin + n_elems) of the variable, uniform in [-limit, limit). */
void sg_initializer_uniform(uint64_t seed, const char *name, float limit, uint64_t begin, size_t n_elems, float *out);

/* The limit for weights that feed a relu, sqrt(6 / fan_in) (He et al. 2015), and for those that feed anything else,
 * sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010). */
float sg_initializer_he_limit(uint64_t fan_in);
float sg_initializer_glorot_limit(uint64_t fan_in, uint64_t fan_out);

#endif
