/* server/coordinator_change.c - a change of mode or rule while the job runs: no step is begun any more, those that were
 * close, a checkpoint is cut, and a generation begins from it with the new configuration, which is in its record: so it
 * holds for a coordinator that is started anew, too.
 *
 * Until the checkpoint is complete nothing has happened, and whatever comes between makes an end of the change; once
 * the generation is recorded it stands, whatever comes. */
#include <stdlib.h>

#include "common/asked.h"
#include "kernels/update.h"
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* --- may it be? ------------------------------------------------------------------------------------------------- */

bool sg_coordinator_change_needed(const sg_config *from, const sg_config *to)
{
    const bool ssp = to->update.mode == SG_MODE_SSP, sync = to->update.mode == SG_MODE_SYNC;
    return from->update.mode != to->update.mode || from->update.rule != to->update.rule ||
           (ssp && from->update.staleness != to->update.staleness) ||
           (sync && from->update.backup_workers != to->update.backup_workers);
}

static sg_status check_mode(const sg_coordinator *c, const sg_config *to, sg_error *err)
{
    if ((to->update.rule == SG_RULE_AVERAGE) != (c->config->update.rule == SG_RULE_AVERAGE))
        return sg_error_set(err, SG_CONFIG,
                            "update.rule: average takes values and the others take gradients, and what the workers of "
                            "this job push is not changed by it: start another job");
    for (uint32_t group = 0; group < c->n_groups && to->update.mode == SG_MODE_SSP; group++) {
        if (c->groups[group].every > 1)
            return sg_error_set(err, SG_CONFIG,
                                "update.mode: group %" PRIu32 " steps once in %" PRIu64
                                " iterations, which ssp does not know: use sync or async",
                                group, c->groups[group].every);
    }
    return SG_OK;
}

sg_status sg_coordinator_change_check(const sg_coordinator *c, const sg_config *to, sg_error *err)
{
    if (!sg_coordinator_save_due(c))
        return sg_error_set(err, SG_CONFIG,
                            "update.mode and update.rule can be changed only in a job that makes checkpoints: set "
                            "checkpoint.dir, or end the job, change the cluster file, and start it again");
    if (sg_coordinator_generation_recovers(c))
        return sg_error_set(err, SG_WAITING, "the job goes back to its newest checkpoint first (%s): ask again",
                            c->why);
    if (!sg_coordinator_is_running(c) || !c->save.complete)
        return sg_error_set(err, SG_NOT_READY,
                            "training has not begun: start the job with another mode or rule, or ask again later");
    return check_mode(c, to, err);
}

/* --- its stages ------------------------------------------------------------------------------------------------- */

/* "update.mode is async, update.rule is adam from now on, as asked"; returns out. */
static const char *describe(const sg_coordinator *c, const sg_config *to, char out[SG_COORDINATOR_TEXT_BYTES])
{
    const sg_config *from = c->config;
    char mode[48] = "", rule[48] = "", number[64] = "";
    if (from->update.mode != to->update.mode)
        snprintf(mode, sizeof mode, "update.mode is %s, ", sg_mode_name(to->update.mode));
    if (from->update.rule != to->update.rule)
        snprintf(rule, sizeof rule, "update.rule is %s, ", sg_rule_name(to->update.rule));
    if (to->update.mode == SG_MODE_SSP && from->update.staleness != to->update.staleness)
        snprintf(number, sizeof number, "update.staleness is %" PRIu64 ", ", to->update.staleness);
    if (to->update.mode == SG_MODE_SYNC && from->update.backup_workers != to->update.backup_workers)
        snprintf(number, sizeof number, "update.backup_workers is %" PRIu64 ", ", to->update.backup_workers);
    int n = snprintf(out, SG_COORDINATOR_TEXT_BYTES, "%s%s%s", mode, rule, number);
    SG_ASSERT(n > 2 && n < (int)SG_COORDINATOR_TEXT_BYTES); /* something differs */
    snprintf(out + n - 2, SG_COORDINATOR_TEXT_BYTES - (size_t)n + 2, SG_ASKED_WORDS);
    return out;
}

uint64_t sg_coordinator_change_begin(sg_coordinator *c, const sg_coordinator_hyper *take)
{
    char text[SG_COORDINATOR_TEXT_BYTES], quoted[2 * SG_COORDINATOR_TEXT_BYTES];
    c->change = (sg_coordinator_change){
        .phase = SG_COORDINATOR_CHANGE_HALTING, .since_ms = c->now_ms, .number = c->n_hypers + 1, .to = *take};
    sg_coordinator_log(c, SG_LOG_INFO, "changing", "hyper=%" PRIu64 " iteration=%" PRIu64 " to=%s", c->change.number,
                       c->frozen, sg_log_quote(describe(c, take->config, text), quoted, sizeof quoted));
    return c->change.number;
}

bool sg_coordinator_change_under_way(const sg_coordinator *c)
{
    return c->change.phase != SG_COORDINATOR_CHANGE_NONE;
}

uint64_t sg_coordinator_change_find(const sg_coordinator *c, uint64_t request)
{
    return sg_coordinator_change_under_way(c) && c->change.to.request == request ? c->change.number : 0;
}

bool sg_coordinator_change_begins(const sg_coordinator *c)
{
    return c->change.phase == SG_COORDINATOR_CHANGE_BEGINNING;
}

bool sg_coordinator_change_halts(const sg_coordinator *c)
{
    return c->change.phase == SG_COORDINATOR_CHANGE_HALTING;
}

/* Those who wait for the set of this number. */
static void answer_all(sg_coordinator *c, uint64_t number, sg_status status, const char *why)
{
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (call->kind == SG_COORDINATOR_PARKED_SET && call->hyper == number) {
            sg_coordinator_fail(c, call->call, status, "%s", why);
            sg_coordinator_unpark(c, call);
        }
        call = next;
    }
}

bool sg_coordinator_change_answer_repeat(sg_coordinator *c, uint64_t request, void *call)
{
    for (size_t i = 0; i < SG_COORDINATOR_CHANGE_RESULTS; i++) {
        const sg_coordinator_change_result *result = &c->change_results[i];
        if (request == 0 || result->request != request)
            continue;
        sg_coordinator_fail(c, call, result->status, "%s", result->why);
        return true;
    }
    return false;
}

void sg_coordinator_change_remember(sg_coordinator *c, uint64_t request, sg_status status, const char *why)
{
    sg_coordinator_change_result *result = &c->change_results[c->n_change_results++ % SG_COORDINATOR_CHANGE_RESULTS];
    *result = (sg_coordinator_change_result){.request = request, .status = status};
    snprintf(result->why, sizeof result->why, "%s", why);
}

/* Nothing has come of it. Who is to ask again begins it anew. */
static void give_up(sg_coordinator *c, sg_status status, const char *why)
{
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    if (status != SG_WAITING)
        sg_coordinator_change_remember(c, c->change.to.request, status, why);
    sg_coordinator_log(c, SG_LOG_WARN, "not_changed", "hyper=%" PRIu64 " status=%s reason=%s", c->change.number,
                       sg_status_name(status), sg_log_quote(why, quoted, sizeof quoted));
    sg_coordinator_hyper_free(&c->change.to);
    const uint64_t number = c->change.number;
    c->change = (sg_coordinator_change){.phase = SG_COORDINATOR_CHANGE_NONE};
    answer_all(c, number, status, why);
}

void sg_coordinator_change_interrupt(sg_coordinator *c, sg_status status, const char *why)
{
    if (c->change.phase == SG_COORDINATOR_CHANGE_HALTING)
        give_up(c, status, why);
}

void sg_coordinator_change_deinit(sg_coordinator *c)
{
    if (c->change.phase == SG_COORDINATOR_CHANGE_HALTING || c->change.phase == SG_COORDINATOR_CHANGE_BEGINNING)
        sg_coordinator_hyper_free(&c->change.to);
}

/* --- what was begun closes -------------------------------------------------------------------------------------- */

static bool has_waited(const sg_coordinator *c, uint64_t ms)
{
    return c->now_ms - c->change.since_ms >= ms;
}

/* Async: it has tickets that it has not said to have finished. Who asks for no more has. */
static bool has_unfinished(const sg_coordinator *c, uint32_t index)
{
    const sg_coordinator_worker *worker = &c->workers[index];
    if (worker->state != SG_COORDINATOR_WORKER_JOINED || worker->groups == NULL || worker->resting)
        return false;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        if (worker->groups[group].finished < worker->groups[group].granted)
            return true;
    }
    return false;
}

/* A worker may hold a ticket that it does not come to, because it waits for one of another group. As a rule its groups
 * are level then. Where they are not, or in ssp the slowest clock is that of one who gets no more, all go on for a
 * lease, and then it is tried again. */
bool sg_coordinator_change_grants(const sg_coordinator *c, uint32_t index, uint32_t group)
{
    if (c->change.phase == SG_COORDINATOR_CHANGE_NONE)
        return true;
    const sg_coordinator_progress *groups = c->workers[index].groups;
    bool level = true;
    for (uint32_t i = 0; i < c->n_groups; i++)
        level = level && groups[i].granted * c->groups[i].every <= groups[group].granted * c->groups[group].every;
    const bool goes_on = c->n_groups > 1 && (c->now_ms - c->change.since_ms) / c->config->lease_ms % 2 == 1;
    return sg_coordinator_change_halts(c) && !c->change.quiet && (!level || goes_on);
}

/* n_workers: nobody. */
static uint32_t first_unfinished(const sg_coordinator *c)
{
    uint32_t i = 0;
    while (i < c->n_workers && !has_unfinished(c, i))
        i++;
    return i;
}

/* Is all begun that belongs to iterations that were begun? Async: and finished. Sync: the ps see to that. */
static bool is_quiet(const sg_coordinator *c)
{
    if (sg_coordinator_is_async(c))
        return !sg_coordinator_losses_held(c) && first_unfinished(c) == c->n_workers;
    /* A group that has not come by then does not step in every iteration. */
    return has_waited(c, c->config->start_timeout_ms / 2) || !sg_coordinator_lag_any(c);
}

bool sg_coordinator_change_saves(const sg_coordinator *c)
{
    return sg_coordinator_change_halts(c) && (c->change.quiet || is_quiet(c));
}

bool sg_coordinator_change_opens(const sg_coordinator *c, uint64_t iteration)
{
    return c->change.phase == SG_COORDINATOR_CHANGE_NONE || (sg_coordinator_change_halts(c) && iteration < c->frozen);
}

bool sg_coordinator_change_hurries(const sg_coordinator *c, const sg_coordinator_parked *call)
{
    return sg_coordinator_change_halts(c) && sg_coordinator_is_async(c) && call->kind == SG_COORDINATOR_PARKED_TICKET &&
           has_unfinished(c, call->worker);
}

const char *sg_coordinator_change_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    if (!sg_coordinator_change_under_way(c))
        return NULL;
    const uint32_t worker = sg_coordinator_is_async(c) ? first_unfinished(c) : c->n_workers;
    if (sg_coordinator_change_halts(c) && worker < c->n_workers)
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s to finish its step, before update.mode or rule changes",
                 sg_coordinator_worker_name(c, worker, name));
    else if (c->save.phase != SG_COORDINATOR_SAVE_IDLE)
        sg_coordinator_save_waits_for(c, out);
    else
        snprintf(out, SG_ERROR_MESSAGE_BYTES,
                 "waiting for steps that were begun to close, before update.mode or rule changes");
    return out;
}

/* --- the generation --------------------------------------------------------------------------------------------- */

void sg_coordinator_change_enter(sg_coordinator *c)
{
    if (c->change.phase == SG_COORDINATOR_CHANGE_BEGINNING)
        sg_coordinator_hyper_append(c, &c->change.to);
    c->config = sg_coordinator_hyper_config(c);
}

const sg_coordinator_hyper *sg_coordinator_change_target(const sg_coordinator *c)
{
    return c->change.phase == SG_COORDINATOR_CHANGE_BEGINNING ? &c->change.to : &c->hypers[c->in_force - 1];
}

bool sg_coordinator_change_fits(const sg_coordinator *c, const char *rule)
{
    const sg_coordinator_hyper *hyper = sg_coordinator_change_target(c);
    return hyper->other_rule || strcmp(rule, sg_rule_name(hyper->config->update.rule)) == 0;
}

void sg_coordinator_change_entered(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    sg_rule rule = c->config->update.rule;
    const bool is_rule = manifest != NULL && sg_rule_from_name(manifest->rule, &rule);
    const bool was_async = manifest != NULL && strcmp(manifest->mode, sg_mode_name(SG_MODE_SYNC)) != 0;
    c->fresh_slots = is_rule && !sg_update_same_slots(rule, c->config->update.rule);
    c->sets_steps = was_async && !sg_coordinator_is_async(c);
    if (c->change.phase != SG_COORDINATOR_CHANGE_BEGINNING)
        return;
    sg_coordinator_hyper *hyper = &c->hypers[c->change.number - 1];
    sg_coordinator_hyper_note(c);
    hyper->generation = c->generation;
    hyper->iteration = c->frozen;
    hyper->fresh_slots = c->fresh_slots && sg_update_slots(c->config->update.rule) > 0;
    sg_coordinator_log(c, SG_LOG_INFO, "changed", "hyper=%" PRIu64 " generation=%" PRIu64 " iteration=%" PRIu64,
                       c->change.number, c->generation, c->frozen);
    c->change = (sg_coordinator_change){.phase = SG_COORDINATOR_CHANGE_NONE};
}

static void begin_generation(sg_coordinator *c)
{
    char why[SG_COORDINATOR_TEXT_BYTES];
    describe(c, c->change.to.config, why);
    c->change.phase = SG_COORDINATOR_CHANGE_BEGINNING;
    sg_coordinator_generation_next(c, 0, why);
}

bool sg_coordinator_change_advance(sg_coordinator *c)
{
    if (!sg_coordinator_change_halts(c))
        return false;
    if (!c->change.quiet) {
        if (!is_quiet(c) || c->save.phase > SG_COORDINATOR_SAVE_MARKED)
            return false;
        c->change.quiet = true;
        return true;
    }
    if (c->save.phase != SG_COORDINATOR_SAVE_IDLE || !sg_coordinator_save_is_up_to_date(c))
        return false;
    begin_generation(c);
    return true;
}

void sg_coordinator_change_extend(sg_coordinator *c, uint64_t late_ms)
{
    c->change.since_ms = sg_coordinator_put_off(c, c->change.since_ms, late_ms);
}

void sg_coordinator_change_tick(sg_coordinator *c)
{
    char waiting[SG_ERROR_MESSAGE_BYTES];
    sg_error why;
    if (!sg_coordinator_change_halts(c) || c->change.quiet || !has_waited(c, c->config->start_timeout_ms))
        return;
    sg_coordinator_change_waiting(c, waiting);
    sg_status status = sg_error_set(&why, SG_PEER_LOST, "nothing is changed: %s, in vain for %" PRIu64 " ms", waiting,
                                    c->now_ms - c->change.since_ms);
    sg_coordinator_change_interrupt(c, status, why.message);
}

void sg_coordinator_change_saved(sg_coordinator *c, sg_status status, const char *message)
{
    sg_error why;
    if (!c->change.quiet || status == SG_OK)
        return;
    status =
        sg_error_set(&why, status, "nothing is changed, because the checkpoint for it could not be made: %s", message);
    sg_coordinator_change_interrupt(c, status, why.message);
}
