/* kernels/update_norms.h - updates that need the norm of a whole variable, or of all: in two phases.
 *
 * The first phase makes, slice by slice, what is to be measured, and the sums of its squares; the caller adds those
 * over slices, in the order of slices, so that their bits depend on nothing else; the second phase makes the new
 * values.
 *
 * Clipping by global norm (Pascanu et al. 2013; torch.nn.utils.clip_grad_norm_): where the norm of the mean gradient of
 * all variables of a group is above `clip`, all of it is multiplied by clip / (norm + 1e-6) before the rule sees it.
 *
 * LARS (You et al. 2017): the rate of a variable is learning_rate * trust * |w| / (|g| + weight_decay * |w|).
 * LAMB (You et al. 2020): with u, Adam's direction plus weight_decay * w, it is learning_rate * |w| / |u|.
 * Where a norm is 0, or the variable is exempt (see sg_update.exempt), it is learning_rate. */
#ifndef SG_KERNELS_UPDATE_NORMS_H
#define SG_KERNELS_UPDATE_NORMS_H

#include "kernels/update.h"

/* Sums of squares: of the values of a slice or variable, and of what its first phase made. */
typedef struct sg_update_squares_of {
    double values, made;
} sg_update_squares_of;

/* Does the rule scale each variable by its own norms? */
bool sg_update_scales_variables(sg_rule rule);
/* Does this update take two phases? */
bool sg_update_takes_norms(const sg_update *update);

/* Writes to `made` what the second phase goes on from (the mean gradient; lamb: the direction) and changes the slots of
 * lamb. Arguments and result as of sg_update_apply, `made` in the place of new_values; *squares is that of the slice.
 * squares->values is 0 where the rule does not ask for it. */
bool sg_update_first_phase(const sg_update *update, size_t n_elems, const float *old_values, float *made,
                           float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts,
                           sg_update_squares_of *squares);
/* Of a slice that nobody contributed to. */
void sg_update_no_first_phase(const sg_update *update, size_t n_elems, const float *old_values,
                              sg_update_squares_of *squares);

/* new_values, in which `made` lies, become the new values. variable: sums over all slices of the variable; made: over
 * all of the group. new_values may be old_values only where that was never `made`. */
void sg_update_second_phase(const sg_update *update, const sg_update_squares_of *variable, double group_made,
                            size_t n_elems, const float *old_values, float *made, float *new_values,
                            float *const slots[SG_UPDATE_MAX_SLOTS]);

#endif
