#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/plan.h"
#include "tests/support/seed.h"

TestSuite(plan, .timeout = 20);

Test(plan, a_known_model_is_cut_and_given_out_as_the_rule_says)
{
    sg_plan_variable variables[] = {{.n_elems = 100}, {.n_elems = 16}, {.n_elems = 1}};
    sg_plan *plan;
    cr_assert_eq(sg_plan_create(variables, 3, 2, 128, &plan, NULL), SG_OK); /* 32 elements a slice */
    static const sg_plan_slice wanted[] = {
        {.variable = 0, .ps = 0, .first_elem = 0, .n_elems = 32},  /* 0 and 0 bytes: the lowest index */
        {.variable = 0, .ps = 1, .first_elem = 32, .n_elems = 32}, /* 128 and 0 */
        {.variable = 0, .ps = 0, .first_elem = 64, .n_elems = 32}, /* 128 and 128 */
        {.variable = 0, .ps = 1, .first_elem = 96, .n_elems = 4},  /* 256 and 128 */
        {.variable = 1, .ps = 1, .first_elem = 0, .n_elems = 16},  /* 256 and 144 */
        {.variable = 2, .ps = 1, .first_elem = 0, .n_elems = 1},   /* 256 and 208 */
    };
    cr_assert_eq(plan->n_slices, SG_ARRAY_LEN(wanted));
    for (size_t i = 0; i < SG_ARRAY_LEN(wanted); i++) {
        cr_assert_eq(plan->slices[i].variable, wanted[i].variable, "slice %zu", i);
        cr_assert_eq(plan->slices[i].ps, wanted[i].ps, "slice %zu", i);
        cr_assert_eq(plan->slices[i].first_elem, wanted[i].first_elem, "slice %zu", i);
        cr_assert_eq(plan->slices[i].n_elems, wanted[i].n_elems, "slice %zu", i);
    }
    cr_assert_eq(plan->ps_bytes[0], 256u);
    cr_assert_eq(plan->ps_bytes[1], 212u);
    cr_assert_eq(plan->variables[1].first_slice, 4u);
    cr_assert_eq(plan->variables[0].n_slices, 4u);
    cr_assert_eq(plan->n_groups, 1u);
    sg_plan_destroy(plan);
}

static void refused(const sg_plan_variable *variables, uint32_t n, uint32_t n_ps, uint64_t slice_bytes,
                    sg_status status)
{
    sg_plan *plan = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_plan_create(variables, n, n_ps, slice_bytes, &plan, &err), status, "%s", err.message);
    cr_assert_null(plan);
    cr_assert_str_neq(err.message, "");
    cr_assert_eq(sg_plan_create(variables, n, n_ps, slice_bytes, &plan, NULL), status);
}

Test(plan, what_makes_no_plan_is_refused)
{
    sg_plan_variable good[] = {{.n_elems = 5}, {.n_elems = 5}}, empty[] = {{.n_elems = 5}, {.n_elems = 0}};
    sg_plan_variable gap[] = {{.n_elems = 5}, {.n_elems = 5, .group = 2}}, no_zero[] = {{.n_elems = 5, .group = 1}};
    sg_plan_variable far[] = {{.n_elems = 5, .group = UINT32_MAX}};
    refused(good, 0, 1, 64, SG_INVALID);
    refused(good, 2, 0, 64, SG_INVALID);
    refused(good, 2, 1, 0, SG_INVALID);
    refused(good, 2, 1, 100, SG_INVALID);
    refused(empty, 2, 1, 64, SG_INVALID);
    refused(gap, 2, 1, 64, SG_INVALID);
    refused(no_zero, 1, 1, 64, SG_INVALID);
    refused(far, 1, 1, 64, SG_INVALID);
}

Test(plan, sizes_beyond_the_bounds_are_refused_before_anything_is_allocated)
{
    sg_plan_variable huge[] = {{.n_elems = UINT64_MAX}},
                     together[] = {{.n_elems = UINT64_MAX / 8}, {.n_elems = UINT64_MAX / 4}};
    sg_plan_variable many[] = {{.n_elems = (uint64_t)SG_PLAN_MAX_SLICES * 16 + 1}};
    refused(huge, 1, 1, 64, SG_EXHAUSTED);
    refused(together, 2, 1, UINT64_MAX / 64 * 64, SG_EXHAUSTED);
    refused(many, 1, 1, 64, SG_EXHAUSTED);
    many[0].n_elems = 16;
    refused(many, 1, SG_PLAN_MAX_PS + 1, 64, SG_EXHAUSTED);
    refused(many, 1, UINT32_MAX, 64, SG_EXHAUSTED);
    sg_plan_variable *too_many = calloc(SG_PLAN_MAX_VARIABLES + 1, sizeof(*too_many));
    for (uint32_t i = 0; i <= SG_PLAN_MAX_VARIABLES; i++)
        too_many[i].n_elems = 1;
    refused(too_many, SG_PLAN_MAX_VARIABLES + 1, 1, 64, SG_EXHAUSTED);
    free(too_many);
}

Test(plan, as_many_variables_as_allowed_make_a_plan)
{
    sg_plan_variable *variables = calloc(SG_PLAN_MAX_VARIABLES, sizeof(*variables));
    for (uint32_t i = 0; i < SG_PLAN_MAX_VARIABLES; i++)
        variables[i].n_elems = 1;
    sg_plan *plan;
    cr_assert_eq(sg_plan_create(variables, SG_PLAN_MAX_VARIABLES, 3, 64, &plan, NULL), SG_OK);
    cr_assert_eq(plan->n_slices, SG_PLAN_MAX_VARIABLES);
    sg_plan_destroy(plan);
    free(variables);
}

Test(plan, destroying_nothing_is_fine)
{
    sg_plan_destroy(NULL);
}

#define MAX_VARIABLES 12

/* Sizes around multiples of a slice are where cutting goes wrong. */
static uint32_t random_variables(sg_seed *seed, uint64_t slice_elems, sg_plan_variable variables[MAX_VARIABLES])
{
    uint32_t n = 1 + (uint32_t)sg_seed_below(seed, MAX_VARIABLES);
    uint32_t n_groups = 1 + (uint32_t)sg_seed_below(seed, n < 3 ? n : 3);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t n_elems = sg_seed_below(seed, 5) * slice_elems + sg_seed_below(seed, 3);
        variables[i] = (sg_plan_variable){
            .n_elems = n_elems > 1 ? n_elems - 1 : 1,
            .group = i < n_groups ? i : (uint32_t)sg_seed_below(seed, n_groups),
            .first_slice = 777, /* not read */
        };
    }
    return n;
}

/* Each variable is tiled by its slices: every element is in exactly one, and none is longer than allowed. */
static void check_cover(const sg_seed *seed, const sg_plan *plan, const sg_plan_variable *variables)
{
    uint32_t slice = 0;
    for (uint32_t i = 0; i < plan->n_variables; i++) {
        cr_assert_eq(plan->variables[i].n_elems, variables[i].n_elems, "seed %lu", seed->first);
        cr_assert_eq(plan->variables[i].first_slice, slice, "seed %lu", seed->first);
        uint64_t next_elem = 0;
        for (uint32_t k = 0; k < plan->variables[i].n_slices; k++, slice++) {
            const sg_plan_slice *piece = &plan->slices[slice];
            cr_assert_eq(piece->variable, i, "seed %lu", seed->first);
            cr_assert_eq(piece->group, variables[i].group, "seed %lu", seed->first);
            cr_assert_eq(piece->first_elem, next_elem, "seed %lu: a gap or an overlap", seed->first);
            cr_assert(piece->n_elems > 0 && piece->n_elems * sizeof(float) <= plan->slice_bytes, "seed %lu",
                      seed->first);
            next_elem += piece->n_elems;
        }
        cr_assert_eq(next_elem, variables[i].n_elems, "seed %lu: variable %u is not covered", seed->first, i);
    }
    cr_assert_eq(slice, plan->n_slices, "seed %lu", seed->first);
}

/* The rule, said again in the plainest way. */
static void check_owners(const sg_seed *seed, const sg_plan *plan)
{
    uint64_t bytes[16] = {0};
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        uint32_t owner = plan->slices[i].ps;
        cr_assert_lt(owner, plan->n_ps, "seed %lu", seed->first);
        for (uint32_t ps = 0; ps < plan->n_ps; ps++)
            cr_assert(ps < owner ? bytes[ps] > bytes[owner] : bytes[ps] >= bytes[owner],
                      "seed %lu slice %u: ps %u is better than %u", seed->first, i, ps, owner);
        bytes[owner] += plan->slices[i].n_elems * sizeof(float);
    }
    cr_assert_arr_eq(plan->ps_bytes, bytes, plan->n_ps * sizeof(*bytes), "seed %lu", seed->first);
}

Test(plan, any_model_is_covered_once_whatever_the_number_of_ps_and_owners_follow_the_rule)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 500; round++) {
        uint64_t slice_bytes = 64 * (1 + sg_seed_below(&seed, 4));
        sg_plan_variable variables[MAX_VARIABLES];
        uint32_t n = random_variables(&seed, slice_bytes / sizeof(float), variables);
        sg_plan *one = NULL;
        cr_assert_eq(sg_plan_create(variables, n, 1, slice_bytes, &one, NULL), SG_OK);
        check_cover(&seed, one, variables);
        for (uint32_t n_ps = 1; n_ps <= 16; n_ps++) {
            sg_plan *plan = NULL;
            cr_assert_eq(sg_plan_create(variables, n, n_ps, slice_bytes, &plan, NULL), SG_OK);
            check_cover(&seed, plan, variables);
            check_owners(&seed, plan);
            cr_assert_eq(plan->n_slices, one->n_slices, "seed %lu", seed.first);
            for (uint32_t i = 0; i < plan->n_slices; i++) {
                cr_assert_eq(plan->slices[i].first_elem, one->slices[i].first_elem, "seed %lu", seed.first);
                cr_assert_eq(plan->slices[i].n_elems, one->slices[i].n_elems, "seed %lu", seed.first);
            }
            sg_plan_destroy(plan);
        }
        sg_plan_destroy(one);
    }
}
