#include "checkpoint_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define N_SLOTS 2u

static char scalar[] = "scalar", weight[] = "dense/weight", bias[] = "\"b\\ä/1", frozen[] = "frozen";
static uint64_t shapes[][2] = {{0, 0}, {50, 20}, {17, 0}, {8, 8}};

const sg_checkpoint_variable fixture_variables[N_FIXTURE_VARIABLES] = {
    {.name = scalar, .shape = shapes[0], .rank = 0, .lr_multiplier = 1, .decay_multiplier = 1},
    {.name = weight, .shape = shapes[1], .rank = 2, .group = 1, .lr_multiplier = 0.5F, .decay_multiplier = 1},
    {.name = bias, .shape = shapes[2], .rank = 1, .average = true, .lr_multiplier = 1, .decay_multiplier = 0},
    {.name = frozen, .shape = shapes[3], .rank = 2, .frozen = true, .lr_multiplier = 1, .decay_multiplier = 1},
};

static const char *const names[N_FIXTURE_VARIABLES] = {scalar, weight, bias, frozen};

sg_plan *fixture_plan(uint32_t n_ps, uint64_t slice_bytes)
{
    sg_plan_variable variables[N_FIXTURE_VARIABLES] = {{1, 0, 0, 0}, {1000, 1, 0, 0}, {17, 0, 0, 0}, {64, 0, 0, 0}};
    sg_plan *plan;
    cr_assert_eq(sg_plan_create(variables, N_FIXTURE_VARIABLES, n_ps, slice_bytes, &plan, NULL), SG_OK);
    return plan;
}

float fixture_value(uint64_t iteration, uint32_t variable, uint32_t kind, uint64_t elem)
{
    return (float)(iteration * 7 + variable * 1000 + kind * 100000 + elem) / 3;
}

uint64_t fixture_step(uint64_t iteration, uint32_t slice)
{
    return iteration + slice % 3;
}

sg_checkpoint_manifest fixture_manifest(sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes)
{
    static uint64_t steps[2];
    static sg_checkpoint_change changes[] = {{(char *)"update.learning_rate", (char *)"0.1"},
                                             {(char *)"update.schedule", (char *)"cosine"}};
    steps[0] = set.iteration;
    steps[1] = set.iteration / 5;
    sg_checkpoint_manifest manifest = {
        .set = set,
        .seed = UINT64_MAX - 3,
        .batch = 128,
        .mode = "sync",
        .rule = "adam",
        .hyper = {3, 0.1, 0, 0.9, 0.999, 1e-8, 0},
        .changes = changes,
        .n_changes = 2,
        .steps = steps,
        .n_groups = 2,
        .next_iteration = set.iteration,
        .n_ps = n_ps,
        .slice_bytes = slice_bytes,
        .variables = (sg_checkpoint_variable *)fixture_variables,
        .n_variables = N_FIXTURE_VARIABLES,
    };
    sg_workers_add(&manifest.members, 0);
    sg_workers_add(&manifest.members, 70);
    return manifest;
}

/* The arrays are to be freed. */
static void fill_slice(sg_checkpoint_slice *slice, uint64_t iteration, const sg_plan *plan, uint32_t index)
{
    const sg_plan_slice *s = &plan->slices[index];
    *slice = (sg_checkpoint_slice){.index = index,
                                   .variable = s->variable,
                                   .first_elem = s->first_elem,
                                   .n_elems = s->n_elems,
                                   .step = fixture_step(iteration, index),
                                   .n_applied = fixture_step(iteration, index) + 1};
    for (uint32_t kind = 0; kind <= (fixture_variables[s->variable].frozen ? 0 : N_SLOTS); kind++) {
        float *elems = sg_xcalloc(s->n_elems, sizeof *elems);
        for (uint64_t i = 0; i < s->n_elems; i++)
            elems[i] = fixture_value(iteration, s->variable, kind, s->first_elem + i);
        if (kind == 0)
            slice->values = elems;
        else
            slice->slots[slice->n_slots++] = elems;
    }
}

static void free_slice(sg_checkpoint_slice *slice)
{
    free((void *)slice->values);
    for (uint32_t i = 0; i < SG_CHECKPOINT_MAX_SLOTS; i++)
        free((void *)slice->slots[i]);
}

sg_status fixture_write_part(const sg_checkpoint *folder, sg_checkpoint_set set, const sg_plan *plan, uint32_t ps,
                             sg_checkpoint_part *part, sg_error *err)
{
    sg_checkpoint_slice *slices = sg_xcalloc(plan->n_slices, sizeof *slices);
    sg_checkpoint_cut cut = {.set = set,
                             .ps = ps,
                             .n_ps = plan->n_ps,
                             .slice_bytes = plan->slice_bytes,
                             .rule = "adam",
                             .names = names,
                             .slices = slices};
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        if (plan->slices[i].ps == ps)
            fill_slice(&slices[cut.n_slices++], set.iteration, plan, i);
    }
    sg_status status = sg_checkpoint_write_part(folder, &cut, part, err);
    for (size_t i = 0; i < cut.n_slices; i++)
        free_slice(&slices[i]);
    free(slices);
    return status;
}

sg_status fixture_write_set(const sg_checkpoint *folder, sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes,
                            sg_error *err)
{
    sg_plan *plan = fixture_plan(n_ps, slice_bytes);
    sg_checkpoint_manifest manifest = fixture_manifest(set, n_ps, slice_bytes);
    sg_status status = SG_OK;
    manifest.parts = sg_xcalloc(n_ps, sizeof *manifest.parts);
    for (uint32_t ps = 0; ps < n_ps && status == SG_OK; ps++) {
        if (plan->ps_bytes[ps] > 0)
            status = fixture_write_part(folder, set, plan, ps, &manifest.parts[manifest.n_parts++], err);
    }
    if (status == SG_OK)
        status = sg_checkpoint_commit(folder, &manifest, err);
    free(manifest.parts);
    sg_plan_destroy(plan);
    return status;
}

static void expect_slice(sg_checkpoint_reader *reader, uint64_t iteration, const sg_plan_slice *s)
{
    float *elems[1 + N_SLOTS];
    uint64_t step, n_applied;
    sg_error err = {0};
    for (uint32_t kind = 0; kind <= N_SLOTS; kind++)
        elems[kind] = sg_xcalloc(s->n_elems, sizeof(float));
    sg_status status = sg_checkpoint_read(reader, s->variable, s->first_elem, s->n_elems, elems[0], &elems[1], &step,
                                          &n_applied, &err);
    cr_assert_eq(status, SG_OK, "%s", err.message);
    cr_assert(step >= iteration && step <= iteration + 2 && n_applied == step + 1);
    for (uint32_t kind = 0; kind <= N_SLOTS; kind++) {
        for (uint64_t i = 0; i < s->n_elems; i++) {
            bool is_zero = kind > 0 && fixture_variables[s->variable].frozen;
            float wanted = is_zero ? 0 : fixture_value(iteration, s->variable, kind, s->first_elem + i);
            cr_assert_eq(elems[kind][i], wanted);
        }
        free(elems[kind]);
    }
}

void fixture_expect_set(const sg_checkpoint *folder, sg_checkpoint_set set, uint32_t n_ps, uint64_t slice_bytes)
{
    sg_checkpoint_reader *reader;
    sg_error err = {0};
    sg_status status = sg_checkpoint_reader_open(folder, set, &reader, &err);
    cr_assert_eq(status, SG_OK, "%s", err.message);
    sg_plan *plan = fixture_plan(n_ps, slice_bytes);
    for (uint32_t i = 0; i < plan->n_slices; i++)
        expect_slice(reader, set.iteration, &plan->slices[i]);
    cr_assert_eq(sg_checkpoint_verify(reader, &err), SG_OK, "%s", err.message);
    sg_plan_destroy(plan);
    sg_checkpoint_reader_close(reader);
}
