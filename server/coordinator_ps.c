/* server/coordinator_ps.c - the ps of the job: registration, lives, leases. */
#include <stdlib.h>

#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* Errors: MISMATCH, CONFIG, INVALID. */
static sg_status check(const sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request, sg_error *err)
{
    const char *job = sg_coordinator_text(request->job);
    const char *address = sg_coordinator_text(request->address);
    if (request->protocol_version != SG_COORDINATOR_PROTOCOL)
        return sg_error_set(err, SG_MISMATCH,
                            "ps %" PRIu32 " speaks protocol version %" PRIu32 ", the coordinator %u: "
                            "run the same version of shardgrad everywhere",
                            request->ps, request->protocol_version, SG_COORDINATOR_PROTOCOL);
    if (strcmp(job, c->config->job) != 0)
        return sg_error_set(err, SG_MISMATCH,
                            "ps %" PRIu32 " belongs to job '%.100s', this coordinator to job '%s': "
                            "check the address, or use one cluster file",
                            request->ps, job, c->config->job);
    if (request->ps >= c->n_ps)
        return sg_error_set(err, SG_CONFIG,
                            "there is no ps %" PRIu32 ": the cluster file of the coordinator lists %" PRIu32,
                            request->ps, c->n_ps);
    if (request->life == 0)
        return sg_error_set(err, SG_INVALID, "ps %" PRIu32 " gave life 0, wanted a random number", request->ps);
    if (address[0] == '\0' || strlen(address) >= SG_COORDINATOR_TEXT_BYTES)
        return sg_error_set(err, SG_INVALID, "ps %" PRIu32 " gave an address of %zu bytes, wanted 1 to %u", request->ps,
                            strlen(address), SG_COORDINATOR_TEXT_BYTES - 1);
    if (request->report != NULL && request->report->generation > SG_COORDINATOR_MAX_GENERATION)
        return sg_error_set(err, SG_INVALID, "ps %" PRIu32 " was in generation %" PRIu64 ", wanted at most %u",
                            request->ps, request->report->generation, SG_COORDINATOR_MAX_GENERATION);
    char whose[32];
    snprintf(whose, sizeof whose, "ps %" PRIu32, request->ps);
    return sg_coordinator_settings_compare(c, request->settings, request->n_settings, whose, err);
}

static bool is_past_life(const sg_coordinator_ps *ps, uint64_t life)
{
    for (uint32_t i = 0; i < ps->n_past_lives && i < SG_COORDINATOR_PAST_LIVES; i++) {
        if (ps->past_lives[i] == life)
            return true;
    }
    return false;
}

/* Does it matter what a ps holds: values that are committed, or will be, or anything to one who has joined, or whose
 * loss is held back? */
static bool somebody_depends(const sg_coordinator *c)
{
    if (c->committing || c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING || c->drain.on ||
        sg_coordinator_losses_held(c))
        return true;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        /* Or one that had, was too late, and says hello again. */
        if (c->workers[i].state == SG_COORDINATOR_WORKER_JOINED ||
            (c->workers[i].state == SG_COORDINATOR_WORKER_HELLO && c->workers[i].given_up != 0))
            return true;
    }
    return false;
}

bool sg_coordinator_ps_is_up(const sg_coordinator_ps *ps)
{
    return ps->state == SG_COORDINATOR_PS_UP || ps->state == SG_COORDINATOR_PS_STOPPING;
}

bool sg_coordinator_ps_complete(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].state == SG_COORDINATOR_PS_WAITING)
            return false;
    }
    return true;
}

/* Also workers that fell silent before their hello was answered: they may go on. */
void sg_coordinator_ps_admit_all(sg_coordinator *c, uint32_t index)
{
    for (uint32_t worker = 0; worker < c->n_workers; worker++) {
        sg_coordinator_worker_state state = c->workers[worker].state;
        if (c->workers[worker].life != 0 && state != SG_COORDINATOR_WORKER_LEFT && state != SG_COORDINATOR_WORKER_LOST)
            sg_coordinator_order_admit(c, index, worker);
    }
}

/* A life that was not known: nothing that an earlier one of this index had holds for it. `generation`: that it was in
 * under another life; 0: none. */
static void begin_life(sg_coordinator *c, uint32_t index, uint64_t life, uint64_t generation, char *take_address)
{
    sg_coordinator_ps *ps = &c->ps[index];
    if (ps->life != 0)
        ps->past_lives[ps->n_past_lives++ % SG_COORDINATOR_PAST_LIVES] = ps->life;
    free(ps->address);
    ps->address = take_address;
    ps->life = life;
    ps->generation = generation;
    ps->state = SG_COORDINATOR_PS_UP;
    ps->missed = false;
    ps->attempt = ps->sealed = ps->hyper = 0;
    ps->seal_ordered = ps->committed = ps->loaded = ps->ended = false;
    ps->saved = (sg_coordinator_saved){.reported = false};
    memset(ps->admitted, 0, c->n_workers * sizeof *ps->admitted);
    sg_coordinator_orders_reset(c, index);
    sg_coordinator_generation_order(c, index);
    sg_coordinator_generation_ready(c);
    sg_coordinator_log(c, SG_LOG_INFO, "registered", "ps=%" PRIu32 " address=%s life=%" PRIx64, index, ps->address,
                       life);
}

void sg_coordinator_ps_miss(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    if (ps->missed || c->is_first)
        return;
    ps->missed = true;
    ps->missed_ms = c->now_ms;
}

/* It may still come, in this life or another. */
static void await_again(sg_coordinator *c, uint32_t index)
{
    c->ps[index].state = SG_COORDINATOR_PS_WAITING;
    sg_coordinator_ps_miss(c, index);
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS;
    sg_coordinator_log(c, SG_LOG_WARN, "ps_silent", "ps=%" PRIu32 " address=%s silent_ms=%" PRIu64, index,
                       c->ps[index].address, c->config->lease_ms);
}

/* What this life of it held is lost. False: that is the end of the job. */
static bool lose(sg_coordinator *c, uint32_t index, const char *how)
{
    char why[SG_ERROR_MESSAGE_BYTES], name[SG_COORDINATOR_TEXT_BYTES];
    snprintf(why, sizeof why, "%s %s", sg_coordinator_ps_name(c, index, name), how);
    if (sg_coordinator_drain_give_up(c, why))
        return false;
    if (!sg_coordinator_generation_may_follow(c)) {
        sg_coordinator_end_fail(c, SG_PEER_LOST,
                                "%s and what it held is lost, for checkpoint.dir is not set: start the job again, with "
                                "it if it is to go on by itself another time",
                                why);
        return false;
    }
    await_again(c, index);
    sg_coordinator_generation_next(c, 0, why);
    return !c->over;
}

/* This life of it, which is not known here, has been in a generation that this coordinator should have found recorded.
 */
static bool knows_more(const sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request)
{
    return sg_coordinator_save_due(c) && request->report != NULL && request->report->generation >= c->generation &&
           c->ps[request->ps].n_past_lives <= SG_COORDINATOR_PAST_LIVES;
}

/* False: the call was failed, and the job perhaps with it. */
static bool accept_life(sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request, void *call)
{
    sg_coordinator_ps *ps = &c->ps[request->ps];
    if (ps->life == request->life)
        return true;
    if (is_past_life(ps, request->life)) {
        sg_coordinator_fail(c, call, SG_FENCED, "another process has registered as ps %" PRIu32 " (%s): end this one",
                            request->ps, ps->address);
        return false;
    }
    if (c->over) {
        sg_coordinator_end_answer(c, call, c->n_workers);
        return false;
    }
    if (knows_more(c, request)) {
        sg_coordinator_generation_contradicted(c, "ps", request->ps, request->address, request->report->generation,
                                               call);
        return false;
    }
    if (request->report != NULL && request->report->orders > 0 && sg_coordinator_save_due(c)) {
        sg_coordinator_fail(c, call, SG_ROLLED_BACK,
                            "ps 0 was started anew: ps %" PRIu32 " is to register as a new life", request->ps);
        return false;
    }
    if (request->report != NULL && request->report->orders > 0) {
        /* Orders are numbered from 1 for each life: it would take ours for repeats of its old coordinator's. */
        sg_coordinator_fail(c, call, SG_PEER_LOST,
                            "ps 0 was started anew, and what ps %" PRIu32
                            " (%s) holds belongs to the job before: start it anew, too",
                            request->ps, sg_coordinator_text(request->address));
        return false;
    }
    char *address = sg_coordinator_clean(request->address);
    if (ps->life != 0 && somebody_depends(c) && !lose(c, request->ps, "was started anew")) {
        free(address);
        sg_coordinator_end_answer(c, call, c->n_workers);
        return false;
    }
    begin_life(c, request->ps, request->life, request->report == NULL ? 0 : request->report->generation, address);
    return true;
}

static void keep_report(sg_coordinator_ps *ps, uint64_t now_ms, const Shardgrad__V1__PsReport *report)
{
    if (report == NULL)
        return;
    if (ps->report != NULL)
        shardgrad__v1__ps_report__free_unpacked(ps->report, NULL);
    ps->report = (Shardgrad__V1__PsReport *)sg_wire_head_copy(&report->base);
    ps->reported_ms = now_ms;
}

void sg_coordinator_ps_register(sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request, void *call)
{
    sg_error err;
    if (check(c, request, &err) != SG_OK) {
        sg_coordinator_log_refused(c, "ps", request->ps, request->address, &err);
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    if (c->generation == 0 && !c->over) {
        sg_coordinator_fail(c, call, SG_NOT_READY, "the job begins its generation: ask again");
        return;
    }
    if (!accept_life(c, request, call))
        return;
    sg_coordinator_ps *ps = &c->ps[request->ps];
    ps->heard_ms = c->now_ms;
    if (request->ps == 0)
        sg_coordinator_late_heard(c);
    if (ps->state == SG_COORDINATOR_PS_WAITING) {
        ps->state = SG_COORDINATOR_PS_UP;
        ps->missed = false;
        ps->unreached[0] = '\0'; /* it was silent: whether it can be reached is seen now */
        sg_coordinator_generation_order(c, request->ps);
        sg_coordinator_generation_ready(c);
    }
    keep_report(ps, c->now_ms, request->report);
    sg_coordinator_reports_take(c, request->ps, request->saved);
    if (request->stopping && ps->state == SG_COORDINATOR_PS_UP) {
        ps->state = SG_COORDINATOR_PS_STOPPING;
        sg_coordinator_end_stop(c, request->ps);
    }
    Shardgrad__V1__RegisterResponse response = SHARDGRAD__V1__REGISTER_RESPONSE__INIT;
    response.generation = c->generation;
    response.lease_ms = c->config->lease_ms;
    sg_coordinator_reply(c, call, &response.base);
}

void sg_coordinator_ps_extend(sg_coordinator *c, uint64_t late_ms)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        c->ps[i].heard_ms = sg_coordinator_put_off(c, c->ps[i].heard_ms, late_ms);
        c->ps[i].missed_ms = sg_coordinator_put_off(c, c->ps[i].missed_ms, late_ms);
        c->ps[i].unreached_ms = sg_coordinator_put_off(c, c->ps[i].unreached_ms, late_ms);
    }
}

void sg_coordinator_ps_tick(sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_ps *ps = &c->ps[i];
        if (!sg_coordinator_ps_is_up(ps) || c->now_ms - ps->heard_ms < c->config->lease_ms)
            continue;
        if (c->over) {
            ps->state = SG_COORDINATOR_PS_LOST;
        } else if (!somebody_depends(c)) {
            await_again(c, i); /* nothing depends on it yet */
        } else {
            char how[128];
            if (i == 0) /* it lives here: it is what it is asked that does not get through */
                snprintf(how, sizeof how,
                         "did not get to answer itself for %" PRIu64 " ms (requests come faster than it serves them)",
                         c->now_ms - c->late.heard_ms);
            else
                snprintf(how, sizeof how, "was not heard for %" PRIu64 " ms", c->config->lease_ms);
            if (!lose(c, i, how))
                ps->state = SG_COORDINATOR_PS_LOST;
        }
    }
}
