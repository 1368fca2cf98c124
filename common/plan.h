/* common/plan.h - which ps owns which part of the model: a pure function that every process computes alike.
 *
 * Variables are cut, in declared order, into slices of at most slice_bytes (a multiple of 64), without regard to the
 * number of ps. Slices are then given out in that order, each to the ps with the fewest bytes so far, the lowest
 * index on ties. A slice's index in the plan is its name on the wire. Immutable after creation: any thread may
 * read. */
#ifndef SG_COMMON_PLAN_H
#define SG_COMMON_PLAN_H

#include "common/status.h"

#define SG_PLAN_MAX_VARIABLES 65536u
#define SG_PLAN_MAX_SLICES    (1u << 24)
#define SG_PLAN_MAX_PS        1024u

typedef struct sg_plan_slice {
    uint32_t variable;   /* index in declared order */
    uint32_t ps;         /* owner */
    uint32_t group;      /* of the variable */
    uint64_t first_elem; /* where it begins in the variable */
    uint64_t n_elems;    /* at least 1 */
} sg_plan_slice;

typedef struct sg_plan_variable {
    uint64_t n_elems;
    uint32_t group;
    uint32_t first_slice; /* filled in by sg_plan_create: slices [first_slice, first_slice + n_slices) */
    uint32_t n_slices;
} sg_plan_variable;

typedef struct sg_plan {
    uint32_t n_ps;
    uint64_t slice_bytes;
    uint32_t n_variables, n_slices, n_groups;
    sg_plan_variable *variables;
    sg_plan_slice *slices;
    uint64_t *ps_bytes; /* [n_ps] bytes of values that each owns */
} sg_plan;

/* Copies `variables` (n_elems and group given). Errors: INVALID (no variable, an empty one, slice_bytes not a positive
 * multiple of 64, group numbers with a gap), EXHAUSTED (more than SG_PLAN_MAX_*). Destroyed by sg_plan_destroy. */
SG_MUST_USE sg_status sg_plan_create(const sg_plan_variable *variables, uint32_t n_variables, uint32_t n_ps,
                                     uint64_t slice_bytes, sg_plan **plan, sg_error *err);
void sg_plan_destroy(sg_plan *plan);

#endif
