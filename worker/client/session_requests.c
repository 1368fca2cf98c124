/* worker/client/session_requests.c - requests are made, and forgotten. */
#include "worker/client/session_internal.h"

static sg_session_request *request_create(sg_session *session, sg_session_task *task, sg_session_method method,
                                          uint32_t target, sg_session_message *take_message)
{
    sg_session_request *request = sg_pool_alloc(session->pool, sizeof *request);
    request->task = task;
    request->message = take_message;
    request->method = method;
    request->target = target;
    request->lane = SG_SESSION_NO_LANE;
    request->number = ++session->last_request;
    if (task != NULL)
        task->n_requests++;
    if (sg_session_is_push(method))
        session->n_pushes++;
    return request;
}

sg_session_request *sg_session_request_add(sg_session *session, sg_session_task *task, sg_session_method method,
                                           uint32_t target, const ProtobufCMessage *body)
{
    sg_session_request *request = request_create(session, task, method, target, sg_session_message_copy(session, body));
    request->state = SG_SESSION_REQUEST_ACTIVE;
    TAILQ_INSERT_TAIL(&session->active, request, link);
    session->n_idle++;
    return request;
}

/* 1 + the version that this request brings; 0: it brings none. */
static uint64_t brings(const sg_session *session, const sg_session_request *request)
{
    if (request->method == SG_SESSION_PULL)
        return request->at + 1;
    if (request->method != SG_SESSION_PUSH_PULL)
        return 0;
    return sg_session_is_sync(session) ? request->at + 2 : 1;
}

sg_session_request *sg_session_request_add_data(sg_session *session, sg_session_task *task, sg_session_method method,
                                                sg_session_lane_kind kind, uint32_t ps,
                                                sg_session_message *take_message, uint64_t at)
{
    sg_session_request *request = request_create(session, task, method, ps, take_message);
    request->at = at;
    request->group = session->plan->slices[take_message->slices[0]].group;
    request->lane = ps * SG_SESSION_LANES_PER_PS + (uint32_t)kind;
    const uint64_t coming = brings(session, request);
    for (size_t i = 0; coming != 0 && i < take_message->n_slices; i++)
        session->slices[take_message->slices[i]].coming = coming;
    sg_session_lane_add(session, request);
    return request;
}

/* Nothing comes of what it was to bring. */
static void coming_clear(sg_session *session, const sg_session_request *request)
{
    const uint64_t coming = brings(session, request);
    for (size_t i = 0; coming != 0 && i < request->message->n_slices; i++) {
        sg_session_slice *slice = &session->slices[request->message->slices[i]];
        if (slice->coming == coming)
            slice->coming = 0;
    }
}

void sg_session_request_release(sg_session *session, sg_session_request *request)
{
    if (request->state == SG_SESSION_REQUEST_ACTIVE && request->lane != SG_SESSION_NO_LANE)
        sg_session_lane_leave(session, request);
    coming_clear(session, request);
    if (request->method == SG_SESSION_TICKET && session->groups[request->group].asking == request)
        session->groups[request->group].asking = NULL;
    if (request->method == SG_SESSION_PUSH_PULL && session->groups[request->group].riding == request)
        session->groups[request->group].riding = NULL;
    if (request->task != NULL)
        request->task->n_requests--;
}

void sg_session_request_end(sg_session *session, sg_session_request *request)
{
    if (request->state == SG_SESSION_REQUEST_ACTIVE) {
        TAILQ_REMOVE(&session->active, request, link);
        session->n_idle -= request->call == 0;
        sg_slots_remove(&session->requests_by_call, request->call);
    }
    if (!sg_session_is_push(request->method))
        return;
    session->n_pushes--;
    if (request->state != SG_SESSION_REQUEST_BLOCKED)
        sg_session_lane_unblock(session, request);
}

void sg_session_request_free(sg_session_request *request)
{
    sg_session_message_unref(request->message);
    sg_pool_free(request);
}

void sg_session_push_lost(sg_session *session, const sg_session_request *request)
{
    sg_session_held *held =
        sg_session_is_push(request->method) ? sg_session_held_find(session, request->group, request->at) : NULL;
    if (held != NULL)
        held->n_lost += (uint32_t)request->message->n_slices;
}

void sg_session_request_remove(sg_session *session, sg_session_request *request)
{
    sg_session_request_release(session, request);
    sg_session_push_lost(session, request);
    if (sg_session_is_push(request->method) && request->call != 0) {
        request->given_up = true;
        request->task = NULL;
    } else {
        sg_session_request_end(session, request);
        sg_session_request_free(request);
    }
}

static void drop(sg_session *session, const sg_session_task *task)
{
    for (sg_session_request *request = TAILQ_FIRST(&session->active), *next; request != NULL; request = next) {
        next = TAILQ_NEXT(request, link);
        if (!request->given_up && (task == NULL || request->task == task))
            sg_session_request_remove(session, request);
    }
    sg_session_lanes_drop(session, task);
}

void sg_session_requests_drop(sg_session *session, const sg_session_task *task)
{
    if (task->n_requests > 0)
        drop(session, task);
}

void sg_session_requests_drop_all(sg_session *session)
{
    drop(session, NULL);
}

void sg_session_requests_destroy(sg_session *session)
{
    drop(session, NULL);
    for (sg_session_request *request; (request = TAILQ_FIRST(&session->active)) != NULL;) {
        sg_session_request_end(session, request);
        sg_session_request_free(request);
    }
}
