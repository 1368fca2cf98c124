/* worker/client/session_tickets.c - which step comes next.
 *
 * A ticket is asked for while fewer than two are held, so that the next one is there when it is wanted: with the first
 * message of a push_pull to ps 0, where the coordinator lives, or, where steps are not sent in this way or somebody
 * waits for it, by a request of its own. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/client/session_internal.h"

#define LOST_FORMAT "step %" PRIu64 " of group %" PRIu32 " cannot be finished: a push of it was cancelled or refused"

bool sg_session_is_sync(const sg_session *session)
{
    return session->hello->mode == SHARDGRAD__V1__MODE__MODE_SYNC;
}

bool sg_session_is_ssp(const sg_session *session)
{
    return session->hello->mode == SHARDGRAD__V1__MODE__MODE_SSP;
}

static sg_step step_of(const sg_session_held_ticket *ticket)
{
    return (sg_step){
        .number = ticket->step.step,
        .iteration = ticket->step.iteration,
        .group = ticket->step.group,
        .rank = ticket->rank,
        .size = ticket->size,
        .learning_rate = ticket->step.learning_rate,
    };
}

/* --- asking and giving ----------------------------------------------------------------------------------------- */

/* At most two are held, the one that is on its way included; in ssp the one that is computed. Of a group that steps
 * seldom none is asked for ahead: it would be of an iteration to which the other groups come much later, and nobody
 * could join, nor a checkpoint be cut, in between. */
static bool may_ask(const sg_session *session, const sg_session_group *group)
{
    const uint32_t max_held = sg_session_is_ssp(session) ? 1 : SG_SESSION_MAX_HELD;
    return (!group->seldom || group->task != NULL) && group->wanted && group->asking == NULL && group->riding == NULL &&
           group->n_held < max_held && group->refused == SG_OK && !session->leaving &&
           sg_session_stands(session, NULL) == SG_OK;
}

uint64_t sg_session_unreported(const sg_session_group *group)
{
    return group->finished > group->reported ? group->examples : 0;
}

bool sg_session_has_tested(const sg_session_group *group)
{
    return group->tested.of > 0 && group->tested_at > group->reported;
}

static void ticket_request_fill(const sg_session *session, uint32_t index, Shardgrad__V1__TicketRequest *request)
{
    const sg_session_group *group = &session->groups[index];
    shardgrad__v1__ticket_request__init(request);
    request->incarnation = session->hello->incarnation;
    request->generation = session->hello->generation;
    request->group = index;
    request->received = group->received;
    request->finished = group->finished;
    request->examples = sg_session_unreported(group);
    request->loss = request->examples == 0 ? 0 : group->loss;
    if (!sg_session_has_tested(group))
        return;
    request->test_iteration = group->tested_iteration;
    request->test_examples = group->tested.examples;
    request->test_of = group->tested.of;
    request->test_correct = group->tested.correct;
    request->test_loss = group->tested.loss;
}

static void ticket_ask(sg_session *session, uint32_t index)
{
    sg_session_group *group = &session->groups[index];
    Shardgrad__V1__TicketRequest request;
    ticket_request_fill(session, index, &request);
    group->asking = sg_session_request_add(session, NULL, SG_SESSION_TICKET, SG_SESSION_COORDINATOR, &request.base);
    group->asking->group = index;
}

void sg_session_ticket_renew(sg_session *session, sg_session_request *request)
{
    Shardgrad__V1__TicketRequest renewed;
    ticket_request_fill(session, request->group, &renewed);
    sg_session_message_unref(request->message);
    request->message = sg_session_message_copy(session, &renewed.base);
}

bool sg_session_ticket_ride(sg_session *session, uint32_t index, Shardgrad__V1__TicketRequest *request)
{
    if (!may_ask(session, &session->groups[index]))
        return false;
    ticket_request_fill(session, index, request);
    return true;
}

/* The newest step that was given; NULL: none is held. */
static const sg_session_held *newest_given(const sg_session_group *group)
{
    for (uint32_t i = group->n_held; i-- > 0;)
        if (group->held[i].given)
            return &group->held[i];
    return NULL;
}

/* A step a push of which came to nothing: it will never be finished. NULL: there is none. */
static const sg_session_held *held_lost(const sg_session_group *group)
{
    for (uint32_t i = 0; i < group->n_held; i++)
        if (group->held[i].n_lost > 0)
            return &group->held[i];
    return NULL;
}

/* The ticket that may be given now; NULL: none. */
static sg_session_held *ticket_next(sg_session_group *group)
{
    uint32_t i = 0;
    while (i < group->n_held && group->held[i].given && group->held[i].finished)
        i++;
    return i < group->n_held && !group->held[i].given ? &group->held[i] : NULL;
}

static bool slice_is_ready(const sg_session_slice *slice, uint64_t step)
{
    return slice->version == step || slice->pushed == step + 1;
}

static sg_step ticket_give(sg_session *session, sg_session_group *group, sg_session_held *held)
{
    const uint64_t step = held->ticket->step.step;
    held->given = true;
    group->too_old = group->next_too ? group->given_at : session->last_request;
    group->given_at = session->last_request;
    group->next_too = held->ticket->lag < session->hello->staleness;
    session->members = held->ticket->size;
    group->n_ready = 0;
    for (uint32_t i = 0; i < group->n_slices && sg_session_is_sync(session); i++)
        group->n_ready += slice_is_ready(&session->slices[group->slices[i]], step);
    return step_of(held->ticket);
}

void sg_session_slice_set(sg_session *session, uint32_t index, uint64_t version)
{
    sg_session_slice *slice = &session->slices[index];
    sg_session_group *group = &session->groups[session->plan->slices[index].group];
    const bool counts = slice->trained && sg_session_is_sync(session);
    const sg_session_held *held = counts ? newest_given(group) : NULL;
    if (held != NULL)
        group->n_ready -= slice_is_ready(slice, held->ticket->step.step);
    slice->version = version;
    if (held != NULL)
        group->n_ready += slice_is_ready(slice, held->ticket->step.step);
}

/* A refusal is told to one task; what comes after it asks again. One that says that the peer stops is final. */
static void ticket_tell_refused(sg_session *session, sg_session_group *group)
{
    const sg_status status = group->refused;
    group->refused = SG_OK;
    if (status == SG_STOPPED)
        sg_session_fail(session, status, group->refused_text);
    else
        sg_session_task_end(session, group->task, NULL, status, "%s", group->refused_text);
}

void sg_session_ticket_offer(sg_session *session, uint64_t now_ms, uint32_t index)
{
    sg_session_group *group = &session->groups[index];
    sg_session_held *next = group->task != NULL ? ticket_next(group) : NULL;
    if (next != NULL) {
        const sg_step step = ticket_give(session, group, next);
        sg_session_task_end(session, group->task, &step, SG_OK, "%s", "");
    } else if (group->task != NULL && group->refused != SG_OK) {
        ticket_tell_refused(session, group);
    }
    if (may_ask(session, group) && (!group->rides || group->task != NULL))
        ticket_ask(session, index);
    sg_session_send_due(session, now_ms);
}

uint64_t sg_session_ticket(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, uint32_t index)
{
    sg_error err;
    if (sg_session_stands(session, &err) != SG_OK)
        return sg_session_task_refuse(session, err.code, "%s", err.message);
    if (session->state != SG_SESSION_DECLARED || session->leaving)
        return sg_session_task_refuse(session, SG_INVALID, "a step needs declared variables");
    if (index >= session->plan->n_groups)
        return sg_session_task_refuse(session, SG_INVALID, "group %" PRIu32 " does not exist: there are %" PRIu32,
                                      index, session->plan->n_groups);
    if (session->resting)
        return sg_session_task_refuse(session, SG_INVALID, "this worker has said that it begins no more steps");
    sg_session_group *group = &session->groups[index];
    if (group->task != NULL)
        return sg_session_task_refuse(session, SG_INVALID, "a step of group %" PRIu32 " is being begun already", index);
    const sg_session_held *given = newest_given(group), *lost = held_lost(group);
    if (given != NULL && !given->finished)
        return sg_session_task_refuse(session, SG_INVALID,
                                      "step %" PRIu64 " of group %" PRIu32 " is not finished: push all its variables "
                                      "(examples 0 where there is nothing to contribute)",
                                      given->ticket->step.step, index);
    if (lost != NULL)
        return sg_session_task_refuse(session, SG_INVALID, LOST_FORMAT, lost->ticket->step.step, index);
    sg_session_task *task = sg_session_task_add(session, SG_SESSION_TASK_TICKET, now_ms, deadline_ms);
    const uint64_t number = task->number;
    task->group = index;
    group->task = task;
    group->wanted = true;
    if (group->asking != NULL)
        sg_session_task_wait(task, group->waiting);
    sg_session_ticket_offer(session, now_ms, index);
    return number;
}

bool sg_session_ticket_take(sg_session *session, uint64_t now_ms, uint32_t index, sg_step *step)
{
    if (session->state != SG_SESSION_DECLARED || sg_session_stands(session, NULL) != SG_OK || session->leaving ||
        session->resting || index >= session->plan->n_groups || session->groups[index].task != NULL)
        return false;
    sg_session_group *group = &session->groups[index];
    sg_session_held *next = ticket_next(group);
    if (next == NULL || held_lost(group) != NULL)
        return false;
    *step = ticket_give(session, group, next);
    sg_session_ticket_offer(session, now_ms, index);
    return true;
}

void sg_session_ticket_lost(sg_session *session, uint32_t index)
{
    const sg_session_group *group = &session->groups[index];
    const sg_session_held *lost = held_lost(group);
    if (lost != NULL && group->task != NULL && sg_session_stands(session, NULL) == SG_OK)
        sg_session_task_end(session, group->task, NULL, SG_INVALID, LOST_FORMAT, lost->ticket->step.step, index);
}

bool sg_session_step_is_ready(const sg_session *session, const sg_session_held *held)
{
    const sg_session_group *group = &session->groups[held->ticket->step.group];
    return held != newest_given(group) || !sg_session_is_sync(session) || group->n_ready == group->n_slices;
}

/* --- answers --------------------------------------------------------------------------------------------------- */

static const char *ticket_check(const sg_session *session, uint32_t index, const Shardgrad__V1__TicketResponse *ticket)
{
    const sg_session_group *group = &session->groups[index];
    if (ticket->step == NULL)
        return "no step";
    if (ticket->step->group != index)
        return "another group";
    if (ticket->rank >= ticket->size)
        return "a rank that is not below the size";
    if (sg_session_is_sync(session) && (group->received > ticket->step->step || ticket->step->step == UINT64_MAX))
        return "a step that was given before";
    return NULL;
}

static void ticket_refused(sg_session *session, uint64_t now_ms, uint32_t index, sg_status status, const char *text)
{
    sg_session_group *group = &session->groups[index];
    session->draining = session->draining || status == SG_STOPPED;
    group->refused = status;
    sg_session_text_set(&group->refused_text, text);
    sg_session_ticket_offer(session, now_ms, index);
}

static void ticket_answered(sg_session *session, uint64_t now_ms, uint32_t index,
                            const Shardgrad__V1__TicketRequest *asked, const Shardgrad__V1__TicketResponse *ticket)
{
    sg_session_group *group = &session->groups[index];
    sg_session_text_set(&group->waiting, NULL);
    group->reported = asked->finished;
    const char *bad = ticket_check(session, index, ticket);
    if (bad != NULL) {
        char line[SG_ERROR_MESSAGE_BYTES];
        snprintf(line, sizeof line, "the coordinator's ticket of group %" PRIu32 " has %s", index, bad);
        ticket_refused(session, now_ms, index, SG_INTERNAL, line);
        return;
    }
    SG_ASSERT(group->n_held < SG_SESSION_MAX_HELD);
    group->held[group->n_held++] = (sg_session_held){.ticket = sg_session_ticket_copy(session, ticket)};
    session->has_trained = true;
    group->received = sg_session_is_sync(session) ? ticket->step->step + 1 : group->received + 1;
    sg_session_ticket_offer(session, now_ms, index);
}

void sg_session_tickets_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                                 const ProtobufCMessage *reply)
{
    ticket_answered(session, now_ms, request->group, (const Shardgrad__V1__TicketRequest *)request->message->body,
                    (const Shardgrad__V1__TicketResponse *)reply);
}

void sg_session_tickets_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                                const char *text)
{
    ticket_refused(session, now_ms, request->group, status, text);
}

void sg_session_ticket_rode(sg_session *session, uint64_t now_ms, uint32_t index,
                            const Shardgrad__V1__TicketRequest *asked, const Shardgrad__V1__TicketResponse *ticket)
{
    sg_session_group *group = &session->groups[index];
    if (ticket != NULL) {
        ticket_answered(session, now_ms, index, asked, ticket);
    } else {
        group->rides = false; /* until the next push: who is asked by itself says for whom it waits */
        sg_session_ticket_offer(session, now_ms, index);
    }
}

/* --- finishing ------------------------------------------------------------------------------------------------- */

sg_session_held *sg_session_held_find(sg_session *session, uint32_t index, uint64_t step)
{
    sg_session_group *group = &session->groups[index];
    for (uint32_t i = 0; i < group->n_held && group->held[i].given; i++)
        if (group->held[i].ticket->step.step == step)
            return &group->held[i];
    return NULL;
}

void sg_session_finish(sg_session *session, uint64_t now_ms, const sg_step *step)
{
    if (session->state != SG_SESSION_DECLARED || step->group >= session->plan->n_groups)
        return;
    sg_session_held *held = sg_session_held_find(session, step->group, step->number);
    if (held == NULL || held->n_handed_over < session->groups[step->group].n_slices)
        return;
    held->finished = true;
    held->loss = step->loss;
    held->examples = step->examples;
    held->iteration = step->iteration;
    held->tested = step->tested;
    sg_session_finish_due(session, now_ms, step->group);
}

void sg_session_finish_last(sg_session *session, uint64_t now_ms, const sg_step *step)
{
    if (session->state == SG_SESSION_DECLARED && step->group < session->plan->n_groups)
        session->groups[step->group].wanted = false;
    sg_session_finish(session, now_ms, step);
}

void sg_session_finish_due(sg_session *session, uint64_t now_ms, uint32_t index)
{
    sg_session_group *group = &session->groups[index];
    bool any = false;
    for (; group->n_held > 0 && group->held[0].finished && group->held[0].n_acknowledged == group->n_slices;
         any = true) {
        const sg_session_held *held = &group->held[0];
        group->finished = sg_session_is_sync(session) ? held->ticket->step.step + 1 : group->finished + 1;
        group->loss = held->loss;
        group->examples = held->examples;
        if (held->tested.of > 0) {
            group->tested = held->tested;
            group->tested_iteration = held->iteration;
            group->tested_at = group->finished;
        }
        sg_session_ticket_unref(held->ticket);
        group->held[0] = group->held[1];
        group->n_held--;
    }
    if (any)
        sg_session_ticket_offer(session, now_ms, index);
}
