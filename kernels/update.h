/* kernels/update.h - the update rules: one fused pass over the elements of a slice per closed round.
 *
 * The pass reads the old values, the slots and all contributions, and writes the new values and the slots:
 *     sum = scale_0 * g_0; sum = fma(scale_i, g_i, sum) in rank order; new = rule(old, slots, sum)
 * The formula per element stands in update_rules.h and is shared by every backend. fma everywhere, so that the bits do
 * not depend on the backend, on vector width or on how a variable is cut. Rules are defined as PyTorch defines them.
 *
 * `average` is of what is no gradient: a contribution is a value that its sender holds to be right (running statistics
 * of a batch norm; the parameters of a worker that made steps of its own), and the sum is the mean of these, weighted
 * by examples. Where one pass has the contributions of all members (sync), the mean is the new value, as in federated
 * averaging (McMahan et al. 2017). Where it has that of one of n (async), the value goes 1/n of the way, so that n
 * passes, one for each member, count as much as one with all. Learning rate and decay have no part in it.
 *
 * Two rules are one of two passes, and what lies between them stands in update_norms.h: `lars` has a learning rate that
 * the norms of its variable scale; `lamb` makes a direction, and no values. */
#ifndef SG_KERNELS_UPDATE_H
#define SG_KERNELS_UPDATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/rule.h"
#include "common/span.h"
#include "kernels/isa.h"

#define SG_UPDATE_MAX_SLOTS 2

/* Everything that one application of a rule to one slice needs. */
typedef struct sg_update {
    sg_rule rule;
    float learning_rate;         /* of the step, times the variable's lr_multiplier */
    float weight_decay;          /* times the variable's decay_multiplier; L2: g + weight_decay * w, but for adamw */
    float momentum;              /* momentum, nesterov, lars */
    float beta1, beta2, epsilon; /* adam, adamw, lamb; the last two also rmsprop, the last adagrad */
    uint64_t count;              /* which application of the rule to this slice it is, from 1: t of adam, adamw, lamb */
    uint64_t members;            /* average: so many members' passes make one mean; 0: 1 */
    float clip;                  /* see update_norms.h, as the next two; 0: none */
    float trust;                 /* lars */
    bool exempt;                 /* lars, lamb: one dimension at most, a bias: neither scaled nor decayed */
} sg_update;

/* One contribution that counts: weight not 0. */
typedef struct sg_update_part {
    sg_span_reader gradient; /* n_elems floats, little endian, scattered at any byte offset; used up by the pass */
    float scale;             /* weight_i / sum of weights, computed in double, rounded to float */
    bool look;               /* the pass is to look whether all of it is finite; only for rules without slots */
} sg_update_part;

/* Number of slot arrays that a rule keeps per element: 0, 1 or 2. Slots begin as zeros. */
size_t sg_update_slots(sg_rule rule);
/* Do the slots of one mean the same to the other, so that it can go on with them? */
bool sg_update_same_slots(sg_rule one, sg_rule other);

/* scale_i of n contributions with these weights (0 gives 0). False if all weights are 0. */
bool sg_update_scales(const uint64_t *weights, size_t n, float *scales);

/* new_values = rule(old_values, slots, sum of parts); n_parts >= 1. Where no part has `look`, new_values may be
 * old_values, or the array of a contribution that lies in one piece; no other overlap. Both are 4-byte aligned.
 * slots[i] beyond sg_update_slots are not looked at; slots may be NULL if there are none. Returns false if a part with
 * `look` is not finite: new_values are then to be thrown away. Which one it was is not told: who has to know sets
 * `look` for one alone. */
bool sg_update_apply(const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                     float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts);

/* Whether the next n_elems floats of the reader are finite. */
bool sg_update_spans_are_finite(sg_span_reader reader, size_t n_elems);

/* Copies n_elems from `from` to `to` (no overlap; NULL: only looks) and returns whether all of them are finite. */
bool sg_update_copy_is_finite(const float *from, float *to, size_t n_elems);

/* The sum of the squares of n_elems floats, 4-byte aligned, in double, added in an order that depends on n_elems alone.
 */
double sg_update_squares(const float *x, size_t n_elems);

/* The same, in the variant for one instruction set, which the machine must have: every variant gives the same bits. */
bool sg_update_apply_as(sg_isa isa, const sg_update *update, size_t n_elems, const float *old_values, float *new_values,
                        float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts);
bool sg_update_spans_are_finite_as(sg_isa isa, sg_span_reader reader, size_t n_elems);
bool sg_update_copy_is_finite_as(sg_isa isa, const float *from, float *to, size_t n_elems);
double sg_update_squares_as(sg_isa isa, const float *x, size_t n_elems);

#endif
