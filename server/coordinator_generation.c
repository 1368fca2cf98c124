/* server/coordinator_generation.c - generations: each is one uninterrupted life of the job's state.
 *
 * A ps that is lost takes a part of the state with it. Then the next generation begins: every ps drops what it has,
 * every worker is told ROLLED_BACK and says hello again, and the job goes on from where it can. Before training has
 * started that is the beginning: workers declare again. */
#include <stdlib.h>

#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

#define GENERATION_SHIFT 32u   /* of an incarnation */
#define COME_AGAIN_MS    1000u /* pause of a client that asks in vain */

uint64_t sg_coordinator_generation_of(uint64_t incarnation)
{
    return incarnation >> GENERATION_SHIFT;
}

bool sg_coordinator_generation_may_follow(const sg_coordinator *c)
{
    return !c->started || sg_coordinator_save_due(c);
}

bool sg_coordinator_generation_recovers(const sg_coordinator *c)
{
    bool restores = c->restores && c->state != SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
    return c->generation != 0 && (c->recording || restores);
}

static bool is_of_a_worker(const sg_coordinator_parked *call)
{
    return call->kind != SG_COORDINATOR_PARKED_HELLO && call->kind != SG_COORDINATOR_PARKED_SET &&
           call->kind != SG_COORDINATOR_PARKED_SAVE;
}

/* Calls of the generation before are not answered in this one; hellos, and what people asked for, go on to wait. */
static void answer_passed(sg_coordinator *c)
{
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (call->kind == SG_COORDINATOR_PARKED_SAVE)
            call->save = SG_COORDINATOR_SAVE_LATER; /* what it was promised has come to nothing */
        if (is_of_a_worker(call)) {
            sg_coordinator_fail(c, call->call, SG_ROLLED_BACK, "the job is in generation %" PRIu64 " now: %s",
                                c->generation, c->why);
            sg_coordinator_unpark(c, call);
        }
        call = next;
    }
}

static void forget_init(sg_coordinator *c)
{
    c->has_initializer = c->sealing = c->committing = false;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_ps *ps = &c->ps[i];
        ps->attempt = ps->sealed = 0;
        ps->seal_ordered = ps->committed = ps->loaded = false;
    }
}

static void order_begin(sg_coordinator *c, uint32_t ps)
{
    Shardgrad__V1__Begin begin = SHARDGRAD__V1__BEGIN__INIT;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN;
    begin.reason = c->why;
    order.begin = &begin;
    sg_coordinator_order(c, ps, &order.base);
}

static void order_load(sg_coordinator *c, uint32_t ps)
{
    Shardgrad__V1__Load load = SHARDGRAD__V1__LOAD__INIT;
    load.iteration = c->save.current.iteration;
    load.generation = c->save.current.generation;
    load.fresh_slots = c->fresh_slots;
    uint64_t steps[SG_COORDINATOR_MAX_GROUPS];
    for (uint32_t group = 0; group < c->n_groups && c->sets_steps; group++)
        steps[load.n_steps++] = c->groups[group].next_step;
    load.steps = steps;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD;
    order.load = &load;
    c->ps[ps].loaded = false;
    sg_coordinator_order(c, ps, &order.base);
}

/* Nothing, to one that is in it: what was ordered in the meantime waits for it. */
void sg_coordinator_generation_order(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    if (c->recording || ps->generation == c->generation)
        return; /* the first: it follows */
    if (ps->generation != 0)
        order_begin(c, index);
    sg_coordinator_hyper_order(c, index);
    sg_coordinator_init_order_declare(c, index);
    if (c->restores)
        order_load(c, index);
    ps->generation = c->generation;
    sg_coordinator_ps_admit_all(c, index);
}

void sg_coordinator_generation_ready(sg_coordinator *c)
{
    if (c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS && sg_coordinator_ps_complete(c))
        c->state = c->restores ? SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING
                               : SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES;
}

void sg_coordinator_generation_run(sg_coordinator *c)
{
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
    c->running_ms = c->now_ms;
}

bool sg_coordinator_generation_advance(sg_coordinator *c)
{
    if (c->state != SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING)
        return false;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (!c->ps[i].loaded)
            return false;
    }
    sg_coordinator_generation_run(c);
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_log(c, SG_LOG_INFO, "restored",
                       "iteration=%" PRIu64 " generation=%" PRIu64 " ms=%" PRIu64 " reason=%s", c->frozen,
                       c->generation, c->now_ms - c->entered_ms, sg_log_quote(c->why, quoted, sizeof quoted));
    return true;
}

/* --- entering one ----------------------------------------------------------------------------------------------- */

/* The first step waits for those that were at it, if anybody was; one whose loss is held back is one of them. */
static void await_members(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    /* Nobody is a member yet where this one ends before its first step. */
    const sg_workers still_awaited = c->started ? (sg_workers){0} : c->awaited;
    c->awaited = (sg_workers){0};
    c->started_anew = c->started_anew && !c->has_returned && !c->has_trained;
    if (manifest == NULL)
        return;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].member || sg_coordinator_losses_holds(c, i))
            sg_workers_add(&c->awaited, i);
    }
    if (sg_workers_is_empty(&c->awaited))
        c->awaited = still_awaited;
    if (sg_workers_is_empty(&c->awaited) && manifest->set.iteration > 0)
        c->awaited = manifest->members;
}

/* They were declared with another slice_bytes, perhaps, or another number of ps. */
static sg_status check_variables(const sg_coordinator *c, const sg_checkpoint_manifest *manifest, sg_error *err)
{
    if (c->variables != NULL) /* the same, and checked when they were declared */
        return SG_OK;
    uint32_t n_groups;
    char name[SG_CHECKPOINT_NAME_BYTES];
    Shardgrad__V1__DeclareRequest *declared = sg_coordinator_read_manifest(manifest);
    sg_status status = sg_coordinator_variables_fit(c, declared, &n_groups, err);
    shardgrad__v1__declare_request__free_unpacked(declared, NULL);
    if (status == SG_OK)
        return SG_OK;
    return sg_error_prefix(err, SG_CONFIG,
                           "checkpoint %s was made with %" PRIu32 " ps and slice_bytes %" PRIu64
                           " and cannot be restored with %" PRIu32 " and %" PRIu64,
                           sg_checkpoint_set_name(manifest->set, name), manifest->n_ps, manifest->slice_bytes, c->n_ps,
                           c->config->slice_bytes);
}

/* Errors: CONFIG, MISMATCH. */
static sg_status check_manifest(const sg_coordinator *c, const sg_checkpoint_manifest *manifest, sg_error *err)
{
    char name[SG_CHECKPOINT_NAME_BYTES];
    sg_checkpoint_set_name(manifest->set, name);
    if (!sg_coordinator_change_fits(c, manifest->rule))
        return sg_error_set(
            err, SG_CONFIG,
            "checkpoint %s was made with update.rule %s, the job has %s: use the same, or restore: none", name,
            manifest->rule, sg_rule_name(c->config->update.rule));
    if (manifest->n_groups > SG_COORDINATOR_MAX_GROUPS)
        return sg_error_set(err, SG_MISMATCH, "checkpoint %s has %" PRIu32 " groups, at most %u are allowed", name,
                            manifest->n_groups, SG_COORDINATOR_MAX_GROUPS);
    return check_variables(c, manifest, err);
}

static void take_manifest(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    if (c->variables == NULL)
        c->variables = sg_coordinator_read_manifest(manifest);
    c->n_groups = manifest->n_groups;
    /* Sync: a checkpoint is cut where its name says, and the next must not be named below this one. */
    c->frozen = sg_coordinator_is_async(c) ? manifest->next_iteration : manifest->set.iteration;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        c->groups[group].next_step = manifest->steps[group];
        c->groups[group].last_iteration = c->frozen > 0 ? c->frozen - 1 : 0;
    }
}

static void enter(sg_coordinator *c, uint64_t generation, const sg_checkpoint_manifest *manifest)
{
    await_members(c, manifest);
    sg_coordinator_change_enter(c);
    c->generation = generation;
    sg_coordinator_evaluations_forget(c);
    sg_coordinator_norms_forget(c);
    c->entered_ms = c->now_ms;
    c->is_first = generation == 1 && manifest == NULL;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].state == SG_COORDINATOR_PS_WAITING)
            sg_coordinator_ps_miss(c, i);
    }
    c->started = c->has_returned = false;
    c->restores = manifest != NULL;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS;
    sg_coordinator_losses_clear(c);
    sg_coordinator_steps_clear(c);
    forget_init(c);
    sg_coordinator_save_restart(c, manifest);
    if (manifest != NULL)
        take_manifest(c, manifest);
    sg_coordinator_hyper_go_back(c);
    sg_coordinator_change_entered(c, manifest);
    answer_passed(c);
    for (uint32_t i = 0; i < c->n_workers; i++)
        sg_coordinator_members_recall(c, i);
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_orders_clear(c, i);
        if (sg_coordinator_ps_is_up(&c->ps[i]))
            sg_coordinator_generation_order(c, i);
    }
    sg_coordinator_generation_ready(c);
}

/* --- what begins one -------------------------------------------------------------------------------------------- */

static void record(sg_coordinator *c, uint64_t above)
{
    c->recording = true;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING;
    sg_coordinator_record(c, above);
}

void sg_coordinator_generation_first(sg_coordinator *c)
{
    c->generation = 0;
    snprintf(c->why, sizeof c->why, "ps 0 was started");
    record(c, 0);
}

void sg_coordinator_generation_next(sg_coordinator *c, uint64_t least, const char *why)
{
    if (c->recording)
        return; /* what is to come starts without it, too */
    uint64_t above = least > c->generation ? least : c->generation;
    if (above >= SG_COORDINATOR_MAX_GENERATION) {
        sg_coordinator_end_fail(c, SG_EXHAUSTED,
                                "generation %" PRIu64
                                " is the last that a job may have, and another was to begin (%s): "
                                "start the job again",
                                above, why);
        return;
    }
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    sg_error meanwhile;
    (void)!sg_error_set(&meanwhile, SG_WAITING, "%s, and the job goes back to its newest checkpoint first: ask again",
                        why);
    sg_coordinator_change_interrupt(c, SG_WAITING, meanwhile.message);
    snprintf(c->why, sizeof c->why, "%s", why);
    sg_coordinator_log(c, sg_coordinator_change_begins(c) ? SG_LOG_INFO : SG_LOG_WARN, "generation",
                       "above=%" PRIu64 " reason=%s", above, sg_log_quote(why, quoted, sizeof quoted));
    if (sg_coordinator_save_due(c))
        record(c, above);
    else
        enter(c, above + 1, NULL);
}

void sg_coordinator_generation_contradicted(sg_coordinator *c, const char *role, uint32_t index, const char *address,
                                            uint64_t generation, void *call)
{
    sg_error err;
    (void)!sg_error_set(
        &err, SG_CONFIG,
        "%s %" PRIu32 " was in generation %" PRIu64 ", but ps 0 began generation %" PRIu64
        " by the records in its checkpoint.dir, %s: that is not the job's folder, or was emptied. Mount "
        "the right one and start the job again; or, to begin anew, stop all its processes first",
        role, index, generation, c->generation, c->config->checkpoint.dir);
    sg_coordinator_log_refused(c, role, index, address, &err);
    if (!c->has_trained)
        sg_coordinator_end_fail(c, err.code, "%s", err.message);
    sg_coordinator_fail_error(c, call, &err);
}

/* One that was asked for by its step is not replaced by another in silence. */
static bool is_asked_for(const sg_coordinator *c)
{
    char *end;
    uint64_t iteration = strtoull(c->config->restore, &end, 10);
    return end != c->config->restore && iteration == c->save.current.iteration;
}

bool sg_coordinator_generation_damaged(sg_coordinator *c, uint32_t ps, const char *message)
{
    char name[SG_CHECKPOINT_NAME_BYTES], who[SG_COORDINATOR_TEXT_BYTES];
    sg_error why;
    if (c->recording)
        return true; /* of what is passed already */
    if (is_asked_for(c))
        return false;
    (void)!sg_error_set(&why, SG_DATA, "checkpoint %s is skipped, %s found it damaged: %s",
                        sg_checkpoint_set_name(c->save.current, name), sg_coordinator_ps_name(c, ps, who), message);
    c->damaged = c->save.current;
    sg_coordinator_generation_next(c, 0, why.message);
    return true;
}

void sg_coordinator_generation_recorded(sg_coordinator *c, const sg_coordinator_recorded *recorded)
{
    sg_error err;
    bool was_running = c->started;
    c->recording = false;
    c->damaged = (sg_checkpoint_set){0};
    if (c->over)
        return;
    if (recorded->status == SG_FENCED)
        sg_coordinator_end_fail(c, SG_FENCED, "another ps 0 has taken over: %s", recorded->why);
    else if (recorded->status != SG_OK && c->generation == 0)
        sg_coordinator_end_fail(c, recorded->status, "the job cannot begin: %s", recorded->why);
    else if (recorded->status != SG_OK)
        sg_coordinator_end_fail(c, recorded->status, "the job cannot go on after generation %" PRIu64 " (%s): %s",
                                c->generation, c->why, recorded->why);
    else if (recorded->manifest == NULL && was_running)
        sg_coordinator_end_fail(c, SG_PEER_LOST, "%s and what it held is lost; there is no checkpoint to go on from",
                                c->why);
    else if (recorded->manifest != NULL && (sg_coordinator_hyper_restore(c, recorded->manifest, &err) != SG_OK ||
                                            check_manifest(c, recorded->manifest, &err) != SG_OK))
        sg_coordinator_end_fail(c, err.code, "%s", err.message);
    else
        enter(c, recorded->generation, recorded->manifest);
}

/* --- who is waited for ------------------------------------------------------------------------------------------ */

bool sg_coordinator_generation_awaits_members(const sg_coordinator *c)
{
    const bool is_new_job = c->started_anew && !c->has_returned;
    return !sg_workers_is_empty(&c->awaited) && !is_new_job;
}

bool sg_coordinator_generation_all_asked(const sg_coordinator *c)
{
    if (!sg_coordinator_generation_awaits_members(c))
        return sg_coordinator_tickets_n_asked(c) >= c->config->workers;
    for (uint32_t i = 0; sg_workers_next(&c->awaited, i, &i) && i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        bool asked = sg_coordinator_members_live(worker) && worker->asked;
        if (!asked && worker->state != SG_COORDINATOR_WORKER_LEFT)
            return false;
    }
    return sg_coordinator_tickets_n_asked(c) > 0;
}

/* One that was at it needs a lease to notice that ps 0 was started anew, and may then ask in vain once more. */
static bool had_time_to_return(const sg_coordinator *c)
{
    return sg_coordinator_is_running(c) &&
           c->now_ms - c->running_ms >= 2 * c->config->lease_ms + c->config->park_ms + COME_AGAIN_MS;
}

bool sg_coordinator_generation_others_may_return(const sg_coordinator *c)
{
    return c->has_returned && !had_time_to_return(c);
}

/* One that was at it and does not come again is lost, as any other would be: nor is it waited for longer. */
static void give_up_awaited(sg_coordinator *c)
{
    const uint64_t waited_ms = c->now_ms - c->running_ms;
    const bool due = !c->started && sg_coordinator_generation_awaits_members(c) && had_time_to_return(c);
    for (uint32_t i = 0; due && sg_workers_next(&c->awaited, i, &i); i++) {
        if (i < c->n_workers &&
            (sg_coordinator_members_live(&c->workers[i]) || c->workers[i].state == SG_COORDINATOR_WORKER_LEFT))
            continue;
        const bool may_go = c->config->on_worker_loss == SG_WORKER_LOSS_CONTINUE &&
                            sg_coordinator_tickets_n_asked(c) >= c->config->min_workers;
        if (c->config->on_worker_loss == SG_WORKER_LOSS_ABORT ||
            (!may_go && waited_ms >= c->config->start_timeout_ms)) {
            sg_coordinator_end_fail(c, SG_PEER_LOST,
                                    "worker %" PRIu32 " did not come again within %" PRIu64
                                    " ms after the job went back; start the job again",
                                    i, waited_ms);
            return;
        }
        if (!may_go)
            return;
        sg_workers_remove(&c->awaited, i);
        if (sg_workers_is_empty(&c->awaited))
            return; /* any `workers` others will do */
        sg_coordinator_log(c, SG_LOG_WARN, "lost", "worker=%" PRIu32 " since=recovery", i);
    }
}

/* A ps that was lost must come back within the time that it had to come at all. */
static void give_up_ps(sg_coordinator *c)
{
    uint32_t i = 0;
    while (i < c->n_ps && (!c->ps[i].missed || c->now_ms - c->ps[i].missed_ms < c->config->start_timeout_ms))
        i++;
    if (c->recording || i == c->n_ps)
        return;
    char name[SG_COORDINATOR_TEXT_BYTES];
    sg_coordinator_end_fail(c, SG_PEER_LOST,
                            "%s was lost and did not come back within %" PRIu64 " ms: look at its log, then start the "
                            "job again",
                            sg_coordinator_ps_name(c, i, name), c->config->start_timeout_ms);
}

void sg_coordinator_generation_extend(sg_coordinator *c, uint64_t late_ms)
{
    c->running_ms = sg_coordinator_put_off(c, c->running_ms, late_ms);
}

void sg_coordinator_generation_tick(sg_coordinator *c)
{
    if (c->over)
        return;
    give_up_ps(c);
    give_up_awaited(c);
    if (sg_coordinator_is_running(c)) /* the end may have waited for others, or for a recovery */
        sg_coordinator_end_consider(c);
}
