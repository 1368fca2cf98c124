/* server/coordinator_tickets.c - which ticket a request gets.
 *
 * Sync: a member gets the step after its last one; whoever of the members asks first opens it. A joiner waits until a
 * member opens an iteration that is not frozen, and becomes a member with it. Async: tickets are numbered over all
 * workers, in the order in which they are asked for; ssp: in which they may be had (coordinator_clocks.c). */
#include <stdlib.h>

#include "common/schedule.h"
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* Iterations beyond are refused, so that counting on from one never overflows. */
#define MAX_ITERATION (UINT64_MAX / 2)

static bool is_ssp(const sg_coordinator *c)
{
    return c->config->update.mode == SG_MODE_SSP;
}

/* --- answers ---------------------------------------------------------------------------------------------------- */

static void reply(sg_coordinator *c, void *call, Shardgrad__V1__Step *step, uint32_t worker, const sg_workers *members,
                  uint64_t lag)
{
    uint8_t bitmap[SG_WORKERS_WIRE_BYTES];
    step->members.len = sg_workers_encode(members, bitmap);
    step->members.data = bitmap;
    Shardgrad__V1__TicketResponse response = SHARDGRAD__V1__TICKET_RESPONSE__INIT;
    response.step = step;
    response.rank = sg_workers_rank(members, worker);
    response.size = sg_workers_count(members);
    response.lag = lag;
    sg_coordinator_reply(c, call, &response.base);
}

static void reply_sync(sg_coordinator *c, const sg_coordinator_parked *call, const sg_coordinator_step *step)
{
    Shardgrad__V1__Step message = SHARDGRAD__V1__STEP__INIT;
    message.group = call->ask.group;
    message.step = step->number;
    message.iteration = step->iteration->number;
    message.learning_rate = step->learning_rate;
    message.checkpoint_mark = step->mark;
    message.hyper = step->hyper;
    reply(c, call->call, &message, call->worker, &step->iteration->members, 0);
}

static void reply_async(sg_coordinator *c, const sg_coordinator_parked *call, const sg_coordinator_progress *progress)
{
    Shardgrad__V1__Step message = SHARDGRAD__V1__STEP__INIT;
    message.group = call->ask.group;
    message.step = progress->step;
    message.iteration = progress->iteration;
    message.learning_rate = progress->learning_rate;
    message.hyper = progress->hyper;
    sg_workers alone = {0};
    sg_workers_add(&alone, call->worker);
    reply(c, call->call, &message, call->worker, &alone, progress->lag);
}

static void refuse_iteration(sg_coordinator *c, const sg_coordinator_parked *call, uint64_t step, uint64_t wanted)
{
    sg_coordinator_fail(c, call->call, SG_INVALID,
                        "group %" PRIu32 ", step %" PRIu64 " is of iteration %" PRIu64 ", not of %" PRIu64
                        ": every worker must name the same one, or none",
                        call->ask.group, step, wanted, call->ask.iteration);
}

/* --- sync ------------------------------------------------------------------------------------------------------- */

static bool any_other_member(const sg_coordinator *c, uint32_t worker, uint64_t before)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (i != worker && c->workers[i].member && c->workers[i].member_from < before)
            return true;
    }
    return false;
}

/* Opens the group's next step, for the iteration that the call names; NULL: it must wait, or was failed. Where none is
 * named it is the first after the group's last in which it steps: so groups that step in turn stay level, also when one
 * of them missed an iteration because its members left. */
static sg_coordinator_step *open_step(sg_coordinator *c, const sg_coordinator_parked *call, uint64_t lowest, bool *wait)
{
    const sg_coordinator_group *group = &c->groups[call->ask.group];
    uint64_t iteration = group->next_step > 0 ? group->last_iteration + 1 : 0;
    if (call->ask.has_iteration) {
        iteration = call->ask.iteration;
        if (group->next_step > 0 && group->last_iteration > lowest)
            lowest = group->last_iteration;
        if (iteration < lowest) {
            refuse_iteration(c, call, group->next_step, lowest);
            return NULL;
        }
    }
    iteration = sg_coordinator_steps_iteration(c, call->ask.group, iteration > lowest ? iteration : lowest);
    /* Before the end no more iterations are begun; one that was, in another group, is finished. */
    const bool ends = c->drain.on && (c->drain.closed || iteration >= c->frozen);
    *wait = ends || !sg_coordinator_change_opens(c, iteration);
    return *wait ? NULL : sg_coordinator_steps_open(c, call->ask.group, iteration);
}

/* Backup workers: the step is closed and forgotten, without this worker. */
static void fail_late(sg_coordinator *c, const sg_coordinator_parked *call, uint64_t step)
{
    sg_coordinator_fail(c, call->call, SG_LATE,
                        "group %" PRIu32 ", step %" PRIu64 " was closed without worker %" PRIu32 "; step %" PRIu64
                        " comes next: join again",
                        call->ask.group, step, call->worker, c->groups[call->ask.group].next_step);
}

/* The step that this worker is to compute next; NULL: it must wait (*wait), or the call was failed. */
static sg_coordinator_step *next_step(sg_coordinator *c, const sg_coordinator_parked *call, bool *wait)
{
    const sg_coordinator_worker *worker = &c->workers[call->worker];
    const sg_coordinator_progress *progress = &worker->groups[call->ask.group];
    *wait = false;
    if (!worker->member) {
        *wait = sg_coordinator_losses_held(c) || any_other_member(c, call->worker, UINT64_MAX);
        return *wait ? NULL : open_step(c, call, c->frozen, wait);
    }
    sg_coordinator_step *step;
    if (progress->granted > 0) {
        step = sg_coordinator_steps_find(c, call->ask.group, progress->granted);
        if (step == NULL && progress->granted < c->groups[call->ask.group].next_step) {
            fail_late(c, call, progress->granted);
            return NULL;
        }
    } else {
        step = sg_coordinator_steps_from(c, call->ask.group, 0, worker->member_from);
        /* Those who were here before it open this group's steps, so that it does not run ahead of them. */
        *wait = step == NULL && any_other_member(c, call->worker, worker->member_from);
        if (*wait)
            return NULL;
    }
    *wait = step == NULL && sg_coordinator_losses_held(c);
    if (*wait)
        return NULL;
    if (step == NULL)
        return open_step(c, call, worker->member_from, wait);
    if (call->ask.has_iteration && call->ask.iteration != step->iteration->number) {
        refuse_iteration(c, call, step->number, step->iteration->number);
        return NULL;
    }
    return step;
}

static bool answer_sync(sg_coordinator *c, const sg_coordinator_parked *call, sg_coordinator_progress *progress)
{
    bool wait;
    sg_coordinator_step *step = next_step(c, call, &wait);
    if (step == NULL)
        return !wait;
    SG_ASSERT(sg_workers_has(&step->iteration->members, call->worker));
    if (progress->granted == 0)
        progress->first = step->number;
    progress->granted_at = call->ask.received;
    progress->granted = step->number + 1;
    reply_sync(c, call, step);
    return true;
}

/* The number of a batch is that of its ticket, but for what a group that was sync may have left out. Known with the
 * first ticket of a generation, not when it starts: then perhaps nobody has declared how often a group steps. */
static void note_ahead(sg_coordinator *c)
{
    uint64_t reached = 0;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        const uint64_t next = c->groups[group].next_step * c->groups[group].every;
        reached = next > reached ? next : reached;
    }
    c->ahead = c->frozen > reached ? c->frozen - reached : 0;
    c->knows_ahead = true;
}

static bool answer_async(sg_coordinator *c, const sg_coordinator_parked *call, sg_coordinator_progress *progress)
{
    if (sg_coordinator_losses_held(c))
        return false;
    sg_coordinator_group *group = &c->groups[call->ask.group];
    if (c->drain.on || !sg_coordinator_change_grants(c, call->worker, call->ask.group))
        return false;
    if (is_ssp(c) && !sg_coordinator_clocks_grant(c, call->worker, call->ask.group))
        return false;
    if (!c->knows_ahead)
        note_ahead(c);
    progress->before = progress->step;
    progress->step = group->next_step++;
    progress->iteration =
        call->ask.has_iteration
            ? call->ask.iteration
            : sg_coordinator_steps_iteration(c, call->ask.group, progress->step * group->every + c->ahead);
    if (progress->iteration >= c->frozen)
        c->frozen = progress->iteration + 1;
    progress->learning_rate = sg_schedule_rate(sg_coordinator_hyper_config(c), progress->iteration);
    progress->hyper = c->in_force;
    progress->granted_at = call->ask.received;
    progress->granted++;
    c->workers[call->worker].member = true;
    reply_async(c, call, progress);
    return true;
}

/* The same ticket again, where this request is a repeat of the one that got the newest. */
static bool answer_repeat(sg_coordinator *c, const sg_coordinator_parked *call, const sg_coordinator_progress *progress)
{
    if (progress->granted == 0 || call->ask.received >= progress->granted)
        return false;
    sg_coordinator_step *step =
        sg_coordinator_is_async(c) ? NULL : sg_coordinator_steps_find(c, call->ask.group, progress->granted - 1);
    if (call->ask.received == progress->granted_at && !sg_coordinator_is_async(c) && step == NULL)
        fail_late(c, call, progress->granted - 1);
    else if (call->ask.received != progress->granted_at)
        sg_coordinator_fail(c, call->call, SG_INVALID,
                            "group %" PRIu32 ": the ticket after %" PRIu64
                            " was received long ago, the newest is %" PRIu64,
                            call->ask.group, call->ask.received, progress->granted);
    else if (sg_coordinator_is_async(c))
        reply_async(c, call, progress);
    else
        reply_sync(c, call, step);
    return true;
}

/* Errors: INVALID, for what no repeat of an earlier request can be. */
static sg_status check_new(const sg_coordinator *c, const sg_coordinator_parked *call,
                           const sg_coordinator_progress *progress, sg_error *err)
{
    uint64_t received = call->ask.received, finished = call->ask.finished;
    if (received > progress->granted)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 ": tickets up to %" PRIu64 " received, but only %" PRIu64
                            " were handed out",
                            call->ask.group, received, progress->granted);
    if (is_ssp(c) && received > finished)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 ": in ssp a worker asks when it has finished what it received, and of "
                            "%" PRIu64 " only %" PRIu64 " are finished",
                            call->ask.group, received, finished);
    uint64_t base = !sg_coordinator_is_async(c) && progress->first > finished ? progress->first : finished;
    if (progress->granted > 0 && received > base + 1)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 ": a worker holds at most the step that it computes and one more, and of "
                            "%" PRIu64 " only %" PRIu64 " are finished",
                            call->ask.group, received, finished);
    return SG_OK;
}

bool sg_coordinator_tickets_answer(sg_coordinator *c, const sg_coordinator_parked *call)
{
    sg_coordinator_progress *progress = &c->workers[call->worker].groups[call->ask.group];
    if (answer_repeat(c, call, progress))
        return true;
    sg_error err;
    if (check_new(c, call, progress, &err) != SG_OK) {
        sg_coordinator_fail_error(c, call->call, &err);
        return true;
    }
    if (!c->started)
        return false;
    return sg_coordinator_is_async(c) ? answer_async(c, call, progress) : answer_sync(c, call, progress);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static sg_status check(const sg_coordinator *c, const sg_coordinator_worker *worker,
                       const Shardgrad__V1__TicketRequest *request, sg_error *err)
{
    if (c->state != SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING && !c->drain.on)
        return sg_error_set(err, SG_NOT_READY, "the values of the variables are not committed yet: declare them first");
    if (worker->declared == 0)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " has not declared its variables: declare them first",
                            sg_coordinator_index(c, worker));
    if (worker->resting)
        return sg_error_set(err, SG_INVALID, "worker %" PRIu32 " said that it asks for no more steps",
                            sg_coordinator_index(c, worker));
    if (request->group >= c->n_groups)
        return sg_error_set(err, SG_INVALID, "there is no group %" PRIu32 ": the declared variables have %" PRIu32,
                            request->group, c->n_groups);
    if (request->finished > request->received)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 ": %" PRIu64 " tickets finished, but only %" PRIu64 " received",
                            request->group, request->finished, request->received);
    bool named = request->iteration_presence_case != SHARDGRAD__V1__TICKET_REQUEST__ITERATION_PRESENCE__NOT_SET;
    if (named && request->iteration > MAX_ITERATION)
        return sg_error_set(err, SG_INVALID, "iteration %" PRIu64 " is out of range, wanted at most %" PRIu64,
                            request->iteration, MAX_ITERATION);
    uint64_t every = c->groups[request->group].every;
    if (named && request->iteration % every != 0)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 " was declared to step once in %" PRIu64 " iterations, from 0 on, and has "
                            "no step in iteration %" PRIu64,
                            request->group, every, request->iteration);
    return SG_OK;
}

/* What the request reports, once: a repeat brings no news. */
static void take_report(sg_coordinator *c, sg_coordinator_worker *worker, const Shardgrad__V1__TicketRequest *request)
{
    sg_coordinator_progress *progress = &worker->groups[request->group];
    if (request->finished <= progress->finished || request->finished > progress->granted)
        return;
    progress->finished = request->finished;
    worker->returned = false;
    sg_coordinator_leases_report(c, worker, request->loss, request->examples);
    Shardgrad__V1__Evaluation evaluation = SHARDGRAD__V1__EVALUATION__INIT;
    evaluation.iteration = request->test_iteration;
    evaluation.examples = request->test_examples;
    evaluation.of = request->test_of;
    evaluation.correct = request->test_correct;
    evaluation.loss = request->test_loss;
    sg_coordinator_evaluations_take(c, sg_coordinator_index(c, worker), &evaluation);
    if (!sg_coordinator_is_async(c))
        sg_coordinator_steps_finished(c, request->group, sg_coordinator_index(c, worker), request->finished);
}

void sg_coordinator_tickets_ask(sg_coordinator *c, sg_coordinator_worker *worker,
                                const Shardgrad__V1__TicketRequest *request, void *call)
{
    sg_error err;
    if (check(c, worker, request, &err) != SG_OK) {
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    if (worker->groups == NULL)
        worker->groups = sg_xcalloc(c->n_groups, sizeof *worker->groups);
    sg_coordinator_progress *progress = &worker->groups[request->group];
    if (!progress->asked)
        progress->clock_from = sg_coordinator_clocks_start(c, request->group);
    worker->asked = progress->asked = true;
    take_report(c, worker, request);
    bool named = request->iteration_presence_case != SHARDGRAD__V1__TICKET_REQUEST__ITERATION_PRESENCE__NOT_SET;
    sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_TICKET,
                                                    .call = call,
                                                    .worker = sg_coordinator_index(c, worker),
                                                    .incarnation = worker->incarnation,
                                                    .ask = {.group = request->group,
                                                            .has_iteration = named,
                                                            .iteration = named ? request->iteration : 0,
                                                            .received = request->received,
                                                            .finished = request->finished}});
}

uint32_t sg_coordinator_tickets_n_asked(const sg_coordinator *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        bool left_early = worker->state == SG_COORDINATOR_WORKER_LEFT && i < c->config->workers;
        n += left_early || (sg_coordinator_members_live(worker) && worker->asked);
    }
    return n;
}

bool sg_coordinator_tickets_advance(sg_coordinator *c)
{
    if (c->started || c->state != SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING || !sg_coordinator_save_may_start(c) ||
        !sg_coordinator_generation_all_asked(c))
        return false;
    c->started = c->has_trained = true;
    c->knows_ahead = false;
    sg_coordinator_log(c, SG_LOG_INFO, "started", "workers=%" PRIu64, c->config->workers);
    return true;
}
