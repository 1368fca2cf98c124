/* kernels/update_pass.h - the loops of the fused pass, in one variant per instruction set. Only update.c calls them. */
#ifndef SG_KERNELS_UPDATE_PASS_H
#define SG_KERNELS_UPDATE_PASS_H

#include "common/span.h"
#include "kernels/isa.h"
#include "kernels/update_rules.h"

#define SG_UPDATE_GROUP ((size_t)8)

/* Contributions that are summed in one loop. */
typedef struct sg_update_group {
    size_t n; /* 1 to SG_UPDATE_GROUP */
    sg_span_reader *gradients[SG_UPDATE_GROUP];
    float scales[SG_UPDATE_GROUP];
} sg_update_group;

/* What the rule works on; all arrays begin at the same element. */
typedef struct sg_update_arrays {
    const float *old_values;
    float *new_values;
    float *slots[SG_UPDATE_MAX_SLOTS];
} sg_update_arrays;

typedef struct sg_update_variant {
    /* new values = rule(old values, slots, sum of the group). Returns whether all sums are finite; for rules with slots
     * always true. The readers move on by n_elems floats. */
    bool (*apply)(sg_rule rule, const sg_update_constants *c, sg_update_group *group, const sg_update_arrays *arrays,
                  size_t n_elems);
    /* sums = sum of a full group */
    void (*sum)(sg_update_group *group, float *sums, size_t n_elems);
    bool (*is_finite)(sg_span_reader *gradient, size_t n_elems);
    bool (*copy_is_finite)(const float *from, float *to, size_t n_elems);
    double (*squares)(const float *x, size_t n_elems);
} sg_update_variant;

const sg_update_variant *sg_update_pass_variant(sg_isa isa);

#endif
