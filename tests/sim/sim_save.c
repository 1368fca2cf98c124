/* tests/sim/sim_save.c - checkpoints: a disk that takes its time and may be full, and what must hold of every set. */
#include "tests/sim/sim.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "server/coordinator.h"
#include "server/store.h"

#define WRITE_MS 120u

static sim_set *set_of(sim *s, uint64_t generation, uint64_t number)
{
    uint32_t i = 0;
    while (i < s->n_cuts && (s->sets[i]->number != number || s->sets[i]->generation != generation))
        i++;
    if (i == SIM_MAX_SETS || number == 0)
        sim_fail(s, "checkpoint number %" PRIu64 " is out of bounds", number);
    if (i == SIM_MAX_SETS)
        return s->sets[0];
    if (i == s->n_cuts)
        s->sets[s->n_cuts++] = sg_xcalloc(1, sizeof *s->sets[i]);
    s->sets[i]->generation = generation;
    s->sets[i]->number = number;
    return s->sets[i];
}

static bool is_full(sim *s)
{
    return sim_chance(s, s->scenario.disk_full_per_mille) && s->has_set;
}

/* --- a ps's part -------------------------------------------------------------------------------------------------- */

static void take_slice(sim *s, const sim_ps *ps, const sg_store_kept *kept, sim_set *set)
{
    const size_t n_bytes = kept->version->n_elems * sizeof(float);
    const float *slots[SIM_MAX_SLOTS] = {NULL};
    for (size_t k = 0; k < kept->n_slots; k++) {
        slots[k] = kept->slots[k]->values;
        memcpy(set->slots[kept->slice][k], slots[k], n_bytes);
    }
    if (ps->cut_generation == s->generation)
        sim_versions_check_kept(s, kept->slice, kept->step, kept->n_applied, kept->version->values, slots,
                                kept->n_slots);
    set->has[kept->slice] = true;
    set->steps[kept->slice] = kept->step;
    set->n_applied[kept->slice] = kept->n_applied;
    memcpy(set->values[kept->slice], kept->version->values, n_bytes);
}

static sg_store_cut cut_of(const sim_ps *ps)
{
    return (sg_store_cut){.generation = ps->cut_generation,
                          .number = ps->cut_number,
                          .mark = ps->cut_mark,
                          .ticket_mark = ps->cut_ticket_mark};
}

static sg_status take(sim *s, const sim_ps *ps, sim_set *set, sg_error *err)
{
    sg_status status = SG_OK;
    const sg_store_cut cut = cut_of(ps);
    for (uint32_t place = 0; place < sg_store_n_slices(ps->store) && status == SG_OK; place++) {
        sg_store_kept kept;
        status = sg_store_take_kept(ps->store, &cut, place, &kept, err);
        if (status != SG_OK)
            break;
        take_slice(s, ps, &kept, set);
        sg_store_kept_deinit(&kept);
    }
    return status;
}

static void report(sim *s, sim_ps *ps, sg_status status, const char *message)
{
    Shardgrad__V1__SaveReport *saved = &ps->saved;
    shardgrad__v1__save_report__init(saved);
    snprintf(ps->saved_text, sizeof ps->saved_text, "%s", message);
    saved->generation = ps->cut_generation;
    saved->number = ps->cut_number;
    saved->status = (uint32_t)status;
    saved->message = ps->saved_text;
    saved->bytes = status == SG_OK ? 1 : 0;
    saved->folder = 7;
    ps->register_at_ms = s->now_ms;
}

static void on_part_written(sim *s, const sim_event *event)
{
    sim_ps *ps = event->subject;
    if (!ps->running || ps->life != event->number || sim_ps_put_off(s, ps, event))
        return;
    sg_error err = {.message = "the disk is full"};
    const sg_store_cut cut = cut_of(ps);
    sg_status status = is_full(s) ? SG_EXHAUSTED : take(s, ps, set_of(s, ps->cut_generation, ps->cut_number), &err);
    sim_trace(s, "ps %ld has written checkpoint %" PRIu64 ": %s", (long)(ps - s->ps), ps->cut_number,
              sg_status_name(status));
    sg_store_drop_cut(ps->store, &cut);
    report(s, ps, status, status == SG_OK ? "" : err.message);
}

void sim_save_cut(void *user, const sg_store_cut *cut, sg_status status, const char *message)
{
    sim_ps *ps = user;
    sim *s = ps->world;
    if (ps->cut_generation == cut->generation && ps->cut_number >= cut->number)
        sim_fail(s, "cut %" PRIu64 " was told after %" PRIu64, cut->number, ps->cut_number);
    ps->cut_generation = cut->generation;
    ps->cut_number = cut->number;
    ps->cut_mark = cut->mark;
    ps->cut_ticket_mark = cut->ticket_mark;
    set_of(s, cut->generation, cut->number)->mark = cut->mark;
    if (status != SG_OK)
        sim_fail(s, "cut %" PRIu64 " could not be made: %s", cut->mark, message);
    sim_at(s, s->now_ms + sim_below(s, WRITE_MS), on_part_written, ps, ps->life);
}

/* --- a set -------------------------------------------------------------------------------------------------------- */

/* Sync: it holds what all steps of iterations before its own have made, and nothing of a later one. */
static void check_cut(sim *s, const sim_set *set, uint64_t iteration, uint32_t group, uint64_t first)
{
    for (uint64_t step = 0; step < SIM_MAX_STEPS && s->steps[group][step].handed_out; step++) {
        bool before = s->steps[group][step].iteration<iteration, pushed = s->steps[group][step].n_contributions> 0;
        if (before != (step < first) && pushed)
            sim_fail(s,
                     "checkpoint %" PRIu64 " is cut before step %" PRIu64 " of group %" PRIu32 ", but step %" PRIu64
                     " is of iteration %" PRIu64,
                     iteration, first, group, step, s->steps[group][step].iteration);
    }
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        bool trained = s->plan->slices[slice].variable != SIM_FROZEN_VARIABLE;
        if (s->plan->slices[slice].group == group && trained && set->steps[slice] != first)
            sim_fail(s, "checkpoint %" PRIu64 ": slice %" PRIu32 " is at step %" PRIu64 ", its group at %" PRIu64,
                     iteration, slice, set->steps[slice], first);
    }
}

static void check_set(sim *s, const sg_checkpoint_manifest *manifest, uint64_t number)
{
    const sim_set *set = set_of(s, manifest->set.generation, number);
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++) {
        if (!set->has[slice])
            sim_fail(s, "checkpoint %" PRIu64 " lacks slice %" PRIu32, manifest->set.iteration, slice);
    }
    if (set->mark != manifest->set.iteration)
        sim_fail(s, "checkpoint %" PRIu64 " was ordered as %" PRIu64, manifest->set.iteration, set->mark);
    for (uint32_t group = 0; group < manifest->n_groups && !s->scenario.async; group++)
        check_cut(s, set, manifest->set.iteration, group, manifest->steps[group]);
    if (s->has_set && manifest->set.iteration < s->set_iteration)
        sim_fail(s, "checkpoint %" PRIu64 " comes after %" PRIu64, manifest->set.iteration, s->set_iteration);
}

static void on_manifest_written(sim *s, const sim_event *event)
{
    sim_ps *ps = event->subject;
    if (!ps->running || ps->life != event->number || sim_ps_put_off(s, ps, event))
        return;
    bool full = is_full(s) || s->pending_set.generation != s->generation;
    if (!full) {
        s->has_set = true;
        s->set_iteration = s->pending_set.iteration;
        s->newest_set = set_of(s, s->pending_set.generation, s->pending_number);
        sg_checkpoint_manifest_deinit(&s->newest_manifest);
        sg_checkpoint_manifest_copy(&s->newest_manifest, s->pending_manifest);
        s->n_sets++;
    }
    sim_trace(s, "checkpoint %" PRIu64 " is %s", s->pending_set.iteration, full ? "not complete" : "complete");
    sg_coordinator_on_written(ps->coordinator, s->now_ms, s->pending_set, full ? SG_EXHAUSTED : SG_OK,
                              full ? "the disk is full" : "");
    sim_coordinator_drain(s, ps);
}

/* A set that is complete is completed again with what was set since, and nothing else. */
static bool is_again(sim *s, const sg_checkpoint_manifest *manifest)
{
    const sg_checkpoint_manifest *newest = &s->newest_manifest;
    if (!s->has_set || newest->set.iteration != manifest->set.iteration ||
        newest->set.generation != manifest->set.generation)
        return false;
    sim_trace(s, "checkpoint %" PRIu64 " is completed again", manifest->set.iteration);
    if (memcmp(newest->steps, manifest->steps, newest->n_groups * sizeof *newest->steps) != 0 ||
        newest->n_parts != manifest->n_parts)
        sim_fail(s, "checkpoint %" PRIu64 " is complete, and is to become another one", manifest->set.iteration);
    return true;
}

void sim_save_complete(sim *s, sim_ps *ps, const sg_checkpoint_manifest *manifest)
{
    const bool again = is_again(s, manifest);
    s->pending_set = manifest->set;
    s->pending_number = again ? s->newest_set->number : s->ps[0].saved.number;
    if (s->pending_manifest != NULL)
        sg_checkpoint_manifest_deinit(s->pending_manifest);
    else
        s->pending_manifest = sg_xcalloc(1, sizeof *s->pending_manifest);
    sg_checkpoint_manifest_copy(s->pending_manifest, manifest);
    if (manifest->set.generation == s->generation)
        check_set(s, manifest, s->pending_number);
    sim_at(s, s->now_ms + sim_below(s, WRITE_MS), on_manifest_written, ps, ps->life);
}

void sim_save_ticket(sim *s)
{
    if (s->config->checkpoint.dir[0] != '\0' && !s->has_set)
        sim_fail(s, "a ticket was handed out before the initial values were safe");
}

/* 1 + the last iteration to which anybody pushed; 0: none. */
static uint64_t trained_iterations(const sim *s)
{
    uint64_t trained = 0;
    for (uint32_t group = 0; group < s->scenario.n_groups; group++) {
        for (uint64_t step = 0; step < SIM_MAX_STEPS && s->steps[group][step].handed_out; step++) {
            if (s->steps[group][step].n_contributions > 0 && s->steps[group][step].iteration >= trained)
                trained = s->steps[group][step].iteration + 1;
        }
    }
    return trained;
}

/* Where nothing went wrong nothing is lost either, and nobody who goes on from there trains what was trained. */
void sim_save_judge(sim *s)
{
    if (s->config->checkpoint.dir[0] == '\0' || s->scenario.disk_full_per_mille > 0 || !s->has_set)
        return;
    const uint64_t trained = trained_iterations(s), next = s->newest_manifest.next_iteration;
    /* In a change of mode, who has left before it gives nothing back: others go on from there. */
    if (next > trained && s->scenario.async && s->n_generations == 1)
        sim_fail(s,
                 "the job has ended, it trained up to iteration %" PRIu64
                 ", and who goes on from the newest checkpoint begins only at %" PRIu64,
                 trained, next);
    if (next < trained)
        sim_fail(s,
                 "the job has ended, it trained up to iteration %" PRIu64
                 ", and who goes on from the newest checkpoint begins at %" PRIu64,
                 trained, next);
}

/* --- generations -------------------------------------------------------------------------------------------------- */

/* What a coordinator that was started anew goes on with: where the newest record is later than the checkpoint it says
 * by what the job differs from the cluster file. */
static sg_checkpoint_manifest manifest_for(sim *s, bool is_new)
{
    sg_checkpoint_manifest from = s->newest_manifest;
    if (is_new && s->record.n_changes > 0 && s->record.generation > from.set.generation) {
        from.changes = s->record.changes;
        from.n_changes = s->record.n_changes;
    }
    return from;
}

/* The record is on the disk. */
static void note_record(sim *s, const sg_checkpoint_manifest *from, bool is_new)
{
    const sg_checkpoint_change *changes = is_new ? (from == NULL ? NULL : from->changes) : s->recording.changes;
    const uint32_t n = is_new ? (from == NULL ? 0 : from->n_changes) : s->recording.n_changes;
    s->record.generation = s->n_generations;
    if (changes != NULL && changes == s->record.changes)
        return; /* as in the record before */
    sg_checkpoint_change *copy = sg_checkpoint_changes_copy(changes, n);
    sg_checkpoint_changes_free(s->record.changes, s->record.n_changes);
    s->record = (sg_checkpoint_record){.generation = s->n_generations, .changes = copy, .n_changes = n};
}

static void on_record_written(sim *s, const sim_event *event)
{
    sim_ps *ps = event->subject;
    if (!ps->running || ps->life != event->number || ps->ended || sim_ps_put_off(s, ps, event))
        return;
    const bool is_new = s->recording.generation == 0;
    const sg_checkpoint_manifest manifest = s->has_set ? manifest_for(s, is_new) : (sg_checkpoint_manifest){0},
                                 *from = s->has_set ? &manifest : NULL;
    s->n_generations++;
    note_record(s, from, is_new);
    sim_trace(s, "generation %" PRIu64 " begins at %" PRIu64, s->n_generations, from == NULL ? 0 : from->set.iteration);
    if (sim_coordinator_changes(ps))
        sim_change_begins(s, from, s->newest_set);
    sim_versions_roll_back(s, s->n_generations, from, s->newest_set);
    sg_coordinator_on_recorded(ps->coordinator, s->now_ms,
                               &(sg_coordinator_recorded){.why = "", .generation = s->n_generations, .manifest = from});
    sim_change_entered(s, sim_coordinator_config(ps));
    sim_versions_entered(s, from, s->newest_set);
    sim_coordinator_drain(s, ps);
}

void sim_save_record(sim *s, sim_ps *ps, const sg_coordinator_action *action)
{
    sg_checkpoint_changes_free(s->recording.changes, s->recording.n_changes);
    s->recording = (sg_checkpoint_record){.generation = action->own,
                                          .changes = sg_checkpoint_changes_copy(action->changes, action->n_changes),
                                          .n_changes = action->n_changes};
    sim_at(s, s->now_ms + sim_below(s, WRITE_MS), on_record_written, ps, ps->life);
}

static sg_status read_slice(void *user, uint32_t variable, uint64_t first_elem, uint64_t n_elems, float *values,
                            float *const *slots, size_t n_slots, uint64_t *step, uint64_t *n_applied, sg_error *err)
{
    sim *s = user;
    uint32_t i = 0;
    while (i < s->plan->n_slices &&
           (s->plan->slices[i].variable != variable || s->plan->slices[i].first_elem != first_elem))
        i++;
    if (i == s->plan->n_slices || s->plan->slices[i].n_elems != n_elems)
        return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " has no such slice", variable);
    for (size_t k = 0; k < n_slots; k++)
        memcpy(slots[k], s->newest_set->slots[i][k], n_elems * sizeof *values);
    memcpy(values, s->newest_set->values[i], n_elems * sizeof *values);
    *step = s->newest_set->steps[i];
    *n_applied = s->newest_set->n_applied[i];
    return SG_OK;
}

static void on_loaded(sim *s, const sim_event *event)
{
    sim_ps *ps = event->subject;
    sg_error err = {.message = ""};
    sg_status status = SG_OK;
    if (!ps->running || ps->life != event->number || sim_ps_put_off(s, ps, event))
        return;
    for (uint32_t place = 0; place < sg_store_n_slices(ps->store) && status == SG_OK; place++)
        status = sg_store_fill(ps->store, ps->load_generation, place, read_slice, s, &err);
    sg_store_loaded(ps->store, ps->load_generation, status, err.message);
    sim_trace(s, "ps %ld has loaded: %s", (long)(ps - s->ps), sg_status_name(status));
}

void sim_save_load(void *user, const sg_store_load *load)
{
    sim_ps *ps = user;
    sim *s = ps->world;
    ps->load_generation = load->generation;
    if (s->newest_set == NULL || load->set_iteration != s->newest_manifest.set.iteration)
        sim_fail(s, "a checkpoint of iteration %" PRIu64 " is to be loaded, the newest is another",
                 load->set_iteration);
    sim_at(s, s->now_ms + sim_below(s, WRITE_MS), on_loaded, ps, ps->life);
}

void sim_save_deinit(sim *s)
{
    for (uint32_t i = 0; i < s->n_cuts; i++)
        free(s->sets[i]);
    sg_checkpoint_manifest_deinit(&s->newest_manifest);
    sg_checkpoint_changes_free(s->record.changes, s->record.n_changes);
    sg_checkpoint_changes_free(s->recording.changes, s->recording.n_changes);
    if (s->pending_manifest != NULL)
        sg_checkpoint_manifest_deinit(s->pending_manifest);
    free(s->pending_manifest);
}
