/* sim_versions.c - see sim_oracle.h: the versions that the stores have, and where a generation begins. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"

static void make_room(sim *s)
{
    for (uint32_t slice = 0; slice < SIM_MAX_SLICES && sim_rules_n_slots(s) > 0; slice++) {
        if (s->slices[slice].slots == NULL)
            s->slices[slice].slots = sg_xcalloc(SIM_MAX_STEPS + 1, sizeof(sim_slots));
    }
}

void sim_versions_deinit(sim *s)
{
    for (uint32_t slice = 0; slice < SIM_MAX_SLICES; slice++)
        free(s->slices[slice].slots);
}

void sim_versions_init(sim *s)
{
    make_room(s);
    for (uint32_t slice = 0; slice < SIM_MAX_SLICES; slice++) {
        s->slices[slice].has_slots[0] = true;
        for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
            s->slices[slice].expected[i] = sim_rules_initial(slice, i);
    }
}

/* --- what there is ---------------------------------------------------------------------------------------------- */

static void remember(sim *s, uint32_t slice, const sg_version *version)
{
    sim_slice_record *record = &s->slices[slice];
    if (version->step > SIM_MAX_STEPS) {
        sim_fail(s, "slice %" PRIu32 " has version %" PRIu64, slice, version->step);
        return;
    }
    if (record->known[version->step]) {
        if (memcmp(record->values[version->step], version->values, version->n_elems * sizeof(float)) != 0)
            sim_fail(s, "version %" PRIu64 " of slice %" PRIu32 " has changed", version->step, slice);
        return;
    }
    record->known[version->step] = true;
    memcpy(record->values[version->step], version->values, version->n_elems * sizeof(float));
}

/* Versions that went before anybody looked are taken as they come; the slots are unknown from there on. */
static void check_values(sim *s, uint32_t slice, uint64_t step, uint32_t n)
{
    sim_slice_record *record = &s->slices[slice];
    float values[SIM_SLICE_ELEMS];
    sim_slots slots;
    record->has_slots[step + 1] = false;
    if (!record->known[step] || !record->known[step + 1] || !sim_rules_make(s, slice, step, values, slots))
        return;
    for (uint32_t i = 0; i < s->plan->slices[slice].n_elems; i++) {
        const float want = values[i], got = record->values[step + 1][i];
        if (memcmp(&want, &got, sizeof want) != 0)
            sim_fail(s,
                     "slice %" PRIu32 ", version %" PRIu64 ", element %" PRIu32 ": %.9g, wanted %.9g from %" PRIu32
                     " contributions",
                     slice, step + 1, i, (double)got, (double)want, n);
    }
    if (sim_rules_n_slots(s) > 0)
        memcpy(record->slots[step + 1], slots, sizeof slots);
    record->has_slots[step + 1] = true;
    s->n_normed += s->steps[s->plan->slices[slice].group][step].scales.known;
}

static void check_step(sim *s, uint32_t ps, uint32_t slice, uint64_t step)
{
    const sim_step_record *record = sim_oracle_record(s, s->plan->slices[slice].group, step);
    const sim_contribution *list[SIM_MAX_CONTRIBUTIONS];
    uint32_t n = sim_rules_contributors(record, slice, list), member;
    sg_workers missing = record->excused[ps];
    missing = sg_workers_minus(&record->members, &missing);
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0 && list[i - 1]->index == list[i]->index)
            sim_fail(s, "slice %" PRIu32 ", step %" PRIu64 ": two lives of worker %" PRIu32 " counted", slice, step,
                     list[i]->index);
        sg_workers_remove(&missing, list[i]->index);
    }
    const uint32_t n_members = sg_workers_count(&record->members), backup = s->scenario.backup;
    const bool is_enough = backup > 0 && n >= 1 && n + backup >= n_members;
    if (!is_enough && sg_workers_next(&missing, 0, &member))
        sim_fail(s, "slice %" PRIu32 ", step %" PRIu64 " closed without worker %" PRIu32, slice, step, member);
    check_values(s, slice, step, n);
}

static void check_sync(sim *s, uint32_t ps, uint32_t slice, uint64_t newest)
{
    sim_slice_record *record = &s->slices[slice];
    if (!record->seen) {
        record->newest = 0;
        if (newest != 0 && !record->known[0])
            sim_fail(s, "slice %" PRIu32 " begins with version %" PRIu64, slice, newest);
    }
    if (newest < record->newest)
        sim_fail(s, "slice %" PRIu32 " goes back from version %" PRIu64 " to %" PRIu64, slice, record->newest, newest);
    for (; record->newest < newest && !s->failed; record->newest++)
        check_step(s, ps, slice, record->newest);
}

static void check_async(sim *s, uint32_t slice, const sg_version *newest)
{
    sim_slice_record *record = &s->slices[slice];
    record->newest = newest->step;
    if (newest->step != record->n_counted)
        sim_fail(s, "slice %" PRIu32 " has version %" PRIu64 " after %" PRIu64 " contributions", slice, newest->step,
                 record->n_counted);
    for (uint32_t i = 0; i < newest->n_elems; i++) {
        const float want = record->expected[i];
        if (memcmp(&newest->values[i], &want, sizeof want) != 0)
            sim_fail(s, "slice %" PRIu32 ", element %" PRIu32 " is %.9g, wanted %.9g", slice, i,
                     (double)newest->values[i], (double)want);
    }
}

static void check_initial(sim *s, uint32_t slice)
{
    for (uint32_t i = 0; i < s->plan->slices[slice].n_elems; i++) {
        float want = sim_rules_initial(slice, i);
        if (memcmp(&want, &s->slices[slice].values[0][i], sizeof want) != 0)
            sim_fail(s, "version 0 of slice %" PRIu32 " is not what was sent", slice);
    }
}

void sim_versions_look(sim *s, uint32_t index)
{
    const sim_ps *ps = &s->ps[index];
    if (!ps->running || s->plan == NULL || ps->store->generation != s->generation || ps->store->beginning)
        return;
    for (uint32_t i = 0; i < ps->store->n_slices && !s->failed; i++) {
        const sg_store_slice *slice = &ps->store->slices[i];
        if (slice->newest == NULL)
            continue;
        for (const sg_version *version = slice->older; version != NULL; version = version->next)
            remember(s, slice->index, version);
        remember(s, slice->index, slice->newest);
        if (!s->slices[slice->index].seen && s->slices[slice->index].known[0])
            check_initial(s, slice->index);
        if (s->scenario.async && !slice->variable->frozen)
            check_async(s, slice->index, slice->newest);
        else
            check_sync(s, index, slice->index, slice->newest->step);
        s->slices[slice->index].seen = true;
    }
}

/* What a worker has pulled is a version that a store has had, whole. */
void sim_versions_pulled(sim *s, uint32_t worker, uint32_t slice, uint64_t version, const float *values)
{
    const sim_slice_record *record = &s->slices[slice];
    if (version > SIM_MAX_STEPS || !record->known[version])
        sim_fail(s, "worker %" PRIu32 " got version %" PRIu64 " of slice %" PRIu32 ", which was never seen", worker,
                 version, slice);
    else if (memcmp(record->values[version], values, s->plan->slices[slice].n_elems * sizeof(float)) != 0)
        sim_fail(s, "worker %" PRIu32 " got other values for version %" PRIu64 " of slice %" PRIu32, worker, version,
                 slice);
}

void sim_versions_check_kept(sim *s, uint32_t slice, uint64_t step, uint64_t n_applied, const float *values,
                             const float *const *slots, size_t n_slots)
{
    const sim_slice_record *record = &s->slices[slice];
    const size_t n_bytes = s->plan->slices[slice].n_elems * sizeof *values;
    if (step > SIM_MAX_STEPS || (record->known[step] && memcmp(record->values[step], values, n_bytes) != 0))
        sim_fail(s, "checkpoint: slice %" PRIu32 " has other values than version %" PRIu64, slice, step);
    if (s->scenario.async || step > SIM_MAX_STEPS || s->plan->slices[slice].variable == SIM_FROZEN_VARIABLE)
        return;
    if (n_applied != step - record->uncounted)
        sim_fail(s, "checkpoint: slice %" PRIu32 " says that version %" PRIu64 " took %" PRIu64 " updates", slice, step,
                 n_applied);
    for (size_t k = 0; k < n_slots && record->slots != NULL && record->has_slots[step]; k++) {
        if (memcmp(record->slots[step][k], slots[k], n_bytes) != 0)
            sim_fail(s, "checkpoint: slice %" PRIu32 " has other slots than version %" PRIu64, slice, step);
    }
}

/* --- generations ------------------------------------------------------------------------------------------------ */

/* Of the rule of now; NULL: they are zeros. */
static void take_back_slots(sim_slice_record *record, uint64_t step, const sim_slots *slots)
{
    record->has_slots[step] = true;
    if (record->slots == NULL)
        return;
    if (slots == NULL)
        memset(record->slots[step], 0, sizeof record->slots[step]);
    else
        memcpy(record->slots[step], *slots, sizeof *slots);
}

static void take_back(sim_slice_record *record, uint32_t slice, const sim_set *set)
{
    record->n_counted = set == NULL ? 0 : set->steps[slice];
    for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
        record->expected[i] = set == NULL ? sim_rules_initial(slice, i) : set->values[slice][i];
}

void sim_versions_roll_back(sim *s, uint64_t generation, const sg_checkpoint_manifest *manifest, const sim_set *set)
{
    s->generation = generation;
    memset(s->indices, 0, sizeof s->indices);
    memset(s->hellos, 0, sizeof s->hellos);
    memset(s->clocks, 0, sizeof s->clocks);
    s->returned = (sg_workers){0};
    sim_ask_roll_back(s, manifest);
    for (uint32_t group = 0; group < s->scenario.n_groups; group++) {
        uint64_t first = manifest == NULL ? 0 : manifest->steps[group];
        for (uint64_t step = first; step < s->n_steps[group]; step++)
            s->steps[group][step] = (sim_step_record){0};
        s->n_steps[group] = first < s->n_steps[group] ? (uint32_t)first : s->n_steps[group];
    }
    for (uint32_t i = 0; s->plan != NULL && i < s->plan->n_slices; i++) {
        sim_slice_record *record = &s->slices[i];
        uint64_t step = manifest == NULL ? 0 : set->steps[i];
        take_back(record, i, manifest == NULL ? NULL : set);
        record->newest = step;
        for (uint64_t version = manifest == NULL ? 0 : step + 1; version <= SIM_MAX_STEPS; version++)
            record->known[version] = record->has_slots[version] = false;
        record->seen = record->seen && manifest != NULL;
        if (manifest == NULL) {
            record->uncounted = 0;
            take_back_slots(record, 0, NULL);
        }
    }
}

static void level(sim_slice_record *record, uint64_t step)
{
    memset(record->known, 0, sizeof record->known);
    memcpy(record->values[step], record->expected, sizeof record->expected);
    record->known[step] = true;
    record->newest = step;
}

void sim_versions_entered(sim *s, const sg_checkpoint_manifest *manifest, const sim_set *set)
{
    if (manifest == NULL || s->scenario.async)
        return;
    make_room(s);
    const bool was_async = strcmp(manifest->mode, "sync") != 0;
    const bool same_rule = strcmp(manifest->rule, sg_rule_name(s->scenario.rule)) == 0;
    for (uint32_t i = 0; i < s->plan->n_slices; i++) {
        sim_slice_record *record = &s->slices[i];
        if (s->plan->slices[i].variable == SIM_FROZEN_VARIABLE)
            continue;
        if (was_async)
            level(record, manifest->steps[s->plan->slices[i].group]);
        record->uncounted = record->newest - (same_rule ? set->n_applied[i] : 0);
        take_back_slots(record, record->newest, same_rule ? (const sim_slots *)&set->slots[i] : NULL);
    }
}
