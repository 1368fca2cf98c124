/* kernels/update_norms.c - see update_norms.h. */
#include "kernels/update_norms.h"

#include <math.h>

#include "common/status.h"

#define CLIP_EPSILON 1e-6 /* torch's */

bool sg_update_scales_variables(sg_rule rule)
{
    return rule == SG_RULE_LARS || rule == SG_RULE_LAMB;
}

bool sg_update_takes_norms(const sg_update *update)
{
    return update->rule != SG_RULE_AVERAGE && (update->clip > 0 || sg_update_scales_variables(update->rule));
}

/* What the papers leave out for biases and norm layers: there is nothing to decay. */
static sg_update decayed(const sg_update *update)
{
    sg_update made = *update;
    if (update->exempt && sg_update_scales_variables(update->rule))
        made.weight_decay = 0;
    return made;
}

static void measure_values(const sg_update *update, size_t n_elems, const float *values, sg_update_squares_of *squares)
{
    bool asked = sg_update_scales_variables(update->rule) && !update->exempt;
    squares->values = asked ? sg_update_squares(values, n_elems) : 0;
}

bool sg_update_first_phase(const sg_update *update, size_t n_elems, const float *old_values, float *made,
                           float *const slots[SG_UPDATE_MAX_SLOTS], sg_update_part *parts, size_t n_parts,
                           sg_update_squares_of *squares)
{
    sg_update first = decayed(update);
    if (update->rule != SG_RULE_LAMB) { /* the mean of all that is pushed */
        first.rule = SG_RULE_AVERAGE;
        first.members = 1;
    }
    measure_values(update, n_elems, old_values, squares);
    if (!sg_update_apply(&first, n_elems, old_values, made, slots, parts, n_parts))
        return false;
    squares->made = sg_update_squares(made, n_elems);
    return true;
}

void sg_update_no_first_phase(const sg_update *update, size_t n_elems, const float *old_values,
                              sg_update_squares_of *squares)
{
    measure_values(update, n_elems, old_values, squares);
    squares->made = 0;
}

/* Not a number where the norm is none, as torch's. */
static double clip_factor(const sg_update *update, double group_made)
{
    if (!(update->clip > 0))
        return 1;
    double factor = (double)update->clip / (sqrt(group_made) + CLIP_EPSILON);
    return factor > 1 ? 1 : factor;
}

/* On the learning rate. made: what the clipping leaves. */
static double scale(const sg_update *update, double values, double made)
{
    if (update->exempt || values == 0 || made == 0)
        return 1;
    if (update->rule == SG_RULE_LAMB)
        return values / made;
    return (double)update->trust * values / (made + (double)update->weight_decay * values);
}

void sg_update_second_phase(const sg_update *update, const sg_update_squares_of *variable, double group_made,
                            size_t n_elems, const float *old_values, float *made, float *new_values,
                            float *const slots[SG_UPDATE_MAX_SLOTS])
{
    sg_update second = decayed(update);
    double factor = clip_factor(update, group_made);
    if (sg_update_scales_variables(update->rule))
        second.learning_rate = (float)((double)update->learning_rate *
                                       scale(update, sqrt(variable->values), factor * sqrt(variable->made)));
    if (update->rule == SG_RULE_LAMB) { /* all but the step is done */
        second.rule = SG_RULE_SGD;
        second.weight_decay = 0;
    }
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, made, n_elems * sizeof(float)),
                           .scale = (float)factor};
    bool finite = sg_update_apply(&second, n_elems, old_values, new_values, slots, &part, 1);
    SG_ASSERT(finite); /* nothing was to be looked at */
}
