/* worker/client/session_calls.c - requests and their repeats.
 *
 * A request waits in the lane of its ps until the window has room; from then on it is active: an attempt of it is
 * under way, or it waits for its next one. What became of an attempt decides: WAITING is asked again at once,
 * NOT_READY nearly so, a peer that cannot be reached after a back-off. A peer that has not answered anything for a
 * lease, though asked at least twice, is lost, and the job with it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/client/session_internal.h"

#define WINDOW            8u /* requests under way in a lane */
#define BACK_OFF_FIRST_MS 50u
#define BACK_OFF_MOST_MS  1000u
#define NOT_READY_MS      50u
#define WAITING_REPEAT_MS 5u /* a peer that does not really park is not asked in a loop */
#define HELLO_TIMEOUT_MS  10000u
#define MIN_TIMEOUT_MS    100u
#define MIN_ASKED_IN_VAIN 2u

typedef struct method_row {
    const ProtobufCMessageDescriptor *request, *reply;
    /* A good answer. The request is in no list any more and is freed afterwards. */
    void (*answered)(sg_session *session, uint64_t now_ms, sg_session_request *request, const ProtobufCMessage *reply);
    /* A refusal that is neither "ask again" nor the end of everything; NULL: it ends the task. */
    void (*refused)(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                    const char *text);
} method_row;

static const method_row methods[] = {
    [SG_SESSION_HELLO] = {&shardgrad__v1__hello_request__descriptor, &shardgrad__v1__hello_response__descriptor,
                          sg_session_join_answered, NULL},
    [SG_SESSION_DECLARE] = {&shardgrad__v1__declare_request__descriptor, &shardgrad__v1__declare_response__descriptor,
                            sg_session_declare_answered, NULL},
    [SG_SESSION_INITIALIZE] = {&shardgrad__v1__initialize_request__descriptor,
                               &shardgrad__v1__initialize_response__descriptor, sg_session_declare_answered, NULL},
    [SG_SESSION_INITIALIZED] = {&shardgrad__v1__initialized_request__descriptor,
                                &shardgrad__v1__initialized_response__descriptor, sg_session_declare_answered, NULL},
    [SG_SESSION_TICKET] = {&shardgrad__v1__ticket_request__descriptor, &shardgrad__v1__ticket_response__descriptor,
                           sg_session_tickets_answered, sg_session_tickets_refused},
    [SG_SESSION_PUSH] = {&shardgrad__v1__push_request__descriptor, &shardgrad__v1__push_response__descriptor,
                         sg_session_data_answered, sg_session_data_refused},
    [SG_SESSION_PULL] = {&shardgrad__v1__pull_request__descriptor, &shardgrad__v1__pull_response__descriptor,
                         sg_session_data_answered, sg_session_data_refused},
    [SG_SESSION_PUSH_PULL] = {&shardgrad__v1__push_request__descriptor, &shardgrad__v1__push_pull_response__descriptor,
                              sg_session_data_answered, sg_session_data_refused},
    [SG_SESSION_HEARTBEAT] = {&shardgrad__v1__heartbeat_request__descriptor,
                              &shardgrad__v1__heartbeat_response__descriptor, sg_session_join_answered,
                              sg_session_heartbeat_refused},
    [SG_SESSION_LEAVE] = {&shardgrad__v1__leave_request__descriptor, &shardgrad__v1__leave_response__descriptor,
                          sg_session_join_answered, NULL},
};

bool sg_session_is_push(sg_session_method method)
{
    return method == SG_SESSION_PUSH || method == SG_SESSION_PUSH_PULL;
}

void sg_session_peer_init(sg_session_peer *peer, const char *address)
{
    *peer = (sg_session_peer){.address = sg_xstrdup(address), .silent_since_ms = SG_SESSION_NEVER};
}

sg_session_peer *sg_session_peer_of(sg_session *session, uint32_t target)
{
    return &session->peers[target == SG_SESSION_COORDINATOR ? session->n_ps : target];
}

/* --- making and forgetting them -------------------------------------------------------------------------------- */

static sg_session_request *request_create(sg_session *session, sg_session_task *task, sg_session_method method,
                                          uint32_t target, const ProtobufCMessage *message)
{
    sg_session_request *request = sg_xcalloc(1, sizeof *request);
    request->task = task;
    request->method = method;
    request->target = target;
    request->lane = SG_SESSION_NO_LANE;
    request->packed_bytes = protobuf_c_message_get_packed_size(message);
    request->packed = sg_xcalloc(request->packed_bytes + 1, 1);
    protobuf_c_message_pack(message, request->packed);
    if (task != NULL)
        task->n_requests++;
    if (sg_session_is_push(method))
        session->n_pushes++;
    return request;
}

sg_session_request *sg_session_request_add(sg_session *session, sg_session_task *task, sg_session_method method,
                                           uint32_t target, const ProtobufCMessage *message)
{
    sg_session_request *request = request_create(session, task, method, target, message);
    TAILQ_INSERT_TAIL(&session->active, request, link);
    return request;
}

sg_session_request *sg_session_request_add_data(sg_session *session, sg_session_task *task, sg_session_method method,
                                                uint32_t ps, const uint32_t *slices, size_t n_slices, uint64_t at,
                                                const ProtobufCMessage *message)
{
    sg_session_request *request = request_create(session, task, method, ps, message);
    request->slices = sg_xcalloc(n_slices, sizeof *slices);
    memcpy(request->slices, slices, n_slices * sizeof *slices);
    request->n_slices = n_slices;
    request->at = at;
    request->group = session->plan->slices[slices[0]].group;
    request->lane = ps * SG_SESSION_LANES_PER_PS + (method == SG_SESSION_PULL ? 1 : 0);
    TAILQ_INSERT_TAIL(&session->lanes[request->lane].queue, request, link);
    return request;
}

/* Requests without a lane are active from the start; those with one are once they were sent. */
static bool request_is_active(const sg_session_request *request)
{
    return request->lane == SG_SESSION_NO_LANE || request->sent_ms != 0;
}

static void push_settle(sg_session *session, const sg_session_request *request)
{
    session->n_pushes--;
    if (request_is_active(request))
        for (size_t i = 0; i < request->n_slices; i++)
            session->slices[request->slices[i]].push_under_way = false;
}

/* Takes it out of its list. The request itself stays readable. */
static void request_detach(sg_session *session, sg_session_request *request)
{
    if (request_is_active(request)) {
        TAILQ_REMOVE(&session->active, request, link);
        if (request->lane != SG_SESSION_NO_LANE)
            session->lanes[request->lane].n_active--;
    } else {
        TAILQ_REMOVE(&session->lanes[request->lane].queue, request, link);
    }
    if (sg_session_is_push(request->method))
        push_settle(session, request);
    if (request->method == SG_SESSION_TICKET && session->groups[request->group].asking == request)
        session->groups[request->group].asking = NULL;
    if (request->task != NULL)
        request->task->n_requests--;
}

static void request_free(sg_session_request *request)
{
    free(request->slices);
    free(request->packed);
    free(request);
}

void sg_session_request_remove(sg_session *session, sg_session_request *request)
{
    request_detach(session, request);
    request_free(request);
}

/* Those of `task`; NULL: all. */
static void drop_from(sg_session *session, struct sg_session_requests *list, const sg_session_task *task)
{
    for (sg_session_request *request = TAILQ_FIRST(list), *next; request != NULL; request = next) {
        next = TAILQ_NEXT(request, link);
        if (task == NULL || request->task == task)
            sg_session_request_remove(session, request);
    }
}

static void drop(sg_session *session, const sg_session_task *task)
{
    drop_from(session, &session->active, task);
    for (uint32_t lane = 0; session->lanes != NULL && lane < session->n_ps * SG_SESSION_LANES_PER_PS; lane++)
        drop_from(session, &session->lanes[lane].queue, task);
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

/* --- packing --------------------------------------------------------------------------------------------------- */

void sg_session_pack(sg_session *session, const uint32_t *slices, size_t n, sg_session_pack_fn each, void *user)
{
    uint32_t *list = sg_xcalloc(n + 1, sizeof *list);
    for (uint32_t ps = 0; ps < session->n_ps; ps++) {
        uint64_t bytes = 0;
        size_t n_list = 0;
        for (size_t i = 0; i < n; i++) {
            const sg_plan_slice *slice = &session->plan->slices[slices[i]];
            if (slice->ps != ps)
                continue;
            if (n_list > 0 && bytes + slice->n_elems * sizeof(float) > session->hello->message_bytes) {
                each(session, user, ps, list, n_list);
                bytes = 0;
                n_list = 0;
            }
            bytes += slice->n_elems * sizeof(float);
            list[n_list++] = slices[i];
        }
        if (n_list > 0)
            each(session, user, ps, list, n_list);
    }
    free(list);
}

/* --- sending --------------------------------------------------------------------------------------------------- */

/* Calls that may be parked get the time to be; those that are answered at once are given up sooner, so that a peer
 * that is there but dead is noticed within a lease. */
static uint64_t request_timeout_ms(const sg_session *session, sg_session_method method)
{
    if (session->hello == NULL)
        return HELLO_TIMEOUT_MS;
    const uint64_t lease_ms = session->hello->lease_ms;
    if (method == SG_SESSION_HEARTBEAT)
        return lease_ms / 3 > MIN_TIMEOUT_MS ? lease_ms / 3 : MIN_TIMEOUT_MS;
    return session->hello->park_ms + (lease_ms > MIN_TIMEOUT_MS ? lease_ms : MIN_TIMEOUT_MS);
}

static void request_send(sg_session *session, sg_session_request *request, uint64_t now_ms)
{
    request->call = ++session->last_call;
    request->sent_ms = now_ms == 0 ? 1 : now_ms;
    sg_session_action *action = sg_session_action_add(session, SG_SESSION_CALL);
    action->call = request->call;
    action->task = request->task == NULL ? 0 : request->task->number;
    action->method = request->method;
    action->target = request->target;
    action->body =
        protobuf_c_message_unpack(methods[request->method].request, NULL, request->packed_bytes, request->packed);
    SG_ASSERT(action->body != NULL);
    action->timeout_ms = request_timeout_ms(session, request->method);
}

static bool slices_are_free(const sg_session *session, const sg_session_request *request)
{
    if (!sg_session_is_push(request->method))
        return true;
    for (size_t i = 0; i < request->n_slices; i++)
        if (session->slices[request->slices[i]].push_under_way)
            return false;
    return true;
}

/* A slice whose last push is not acknowledged holds up its lane: that push is in the same lane, so this ends. */
static void lane_send(sg_session *session, sg_session_lane *lane, uint64_t now_ms)
{
    sg_session_request *request;
    while (lane->n_active < WINDOW && (request = TAILQ_FIRST(&lane->queue)) != NULL &&
           slices_are_free(session, request)) {
        TAILQ_REMOVE(&lane->queue, request, link);
        TAILQ_INSERT_TAIL(&session->active, request, link);
        lane->n_active++;
        if (sg_session_is_push(request->method))
            for (size_t i = 0; i < request->n_slices; i++)
                session->slices[request->slices[i]].push_under_way = true;
        request_send(session, request, now_ms);
    }
}

void sg_session_send_due(sg_session *session, uint64_t now_ms)
{
    sg_session_request *request;
    TAILQ_FOREACH(request, &session->active, link)
    if (request->call == 0 && request->not_before_ms <= now_ms)
        request_send(session, request, now_ms);
    for (uint32_t lane = 0; session->lanes != NULL && lane < session->n_ps * SG_SESSION_LANES_PER_PS; lane++)
        lane_send(session, &session->lanes[lane], now_ms);
}

/* --- answers --------------------------------------------------------------------------------------------------- */

static void waiting_note(sg_session *session, sg_session_request *request, bool answered, const char *text)
{
    sg_session_task *task = request->task;
    if (request->method == SG_SESSION_TICKET) {
        sg_session_group *group = &session->groups[request->group];
        sg_session_text_set(&group->waiting, text);
        task = group->task;
    }
    if (task == NULL)
        return;
    sg_session_task_wait(task, text);
    task->answered = task->answered || answered;
}

static void peer_heard(sg_session *session, const sg_session_request *request, uint64_t now_ms)
{
    sg_session_peer *peer = sg_session_peer_of(session, request->target);
    peer->heard_ms = now_ms;
    peer->silent_since_ms = SG_SESSION_NEVER;
    peer->n_unanswered = 0;
}

static uint64_t back_off_ms(sg_session *session, uint32_t failures)
{
    uint64_t most = BACK_OFF_FIRST_MS;
    for (uint32_t i = 1; i < failures && most < BACK_OFF_MOST_MS; i++)
        most *= 2;
    most = most < BACK_OFF_MOST_MS ? most : BACK_OFF_MOST_MS;
    return most / 2 + sg_session_random(session) % (most / 2 + 1);
}

static void repeat_unheard(sg_session *session, sg_session_request *request, uint64_t now_ms, const char *text)
{
    sg_session_peer *peer = sg_session_peer_of(session, request->target);
    const uint64_t since = request->sent_ms > peer->heard_ms ? request->sent_ms : peer->heard_ms;
    peer->silent_since_ms = since < peer->silent_since_ms ? since : peer->silent_since_ms;
    peer->n_unanswered++;
    request->failures++;
    request->not_before_ms = now_ms + back_off_ms(session, request->failures);
    waiting_note(session, request, false, text);
    if (session->hello == NULL || peer->n_unanswered < MIN_ASKED_IN_VAIN ||
        now_ms < peer->silent_since_ms + session->hello->lease_ms)
        return;
    const bool coordinator = request->target == SG_SESSION_COORDINATOR;
    char line[SG_ERROR_MESSAGE_BYTES];
    snprintf(line, sizeof line, "ps %" PRIu32 "%s (%s) has not answered for %" PRIu64 " ms: %s",
             coordinator ? 0 : request->target, coordinator ? ", the coordinator," : "", peer->address,
             now_ms - peer->silent_since_ms, text);
    sg_session_fail(session, SG_PEER_LOST, line);
}

static void repeat_answered(sg_session *session, sg_session_request *request, uint64_t now_ms, sg_status status,
                            const char *text)
{
    request->failures = 0;
    if (status == SG_NOT_READY)
        request->not_before_ms = now_ms + NOT_READY_MS / 2 + sg_session_random(session) % (NOT_READY_MS / 2);
    else
        request->not_before_ms = now_ms < request->sent_ms + WAITING_REPEAT_MS ? now_ms + WAITING_REPEAT_MS : now_ms;
    waiting_note(session, request, true, text);
}

/* Whether this refusal, heard by this request, is the end of the session and not of its task alone. A ticket that is
 * refused because the peer stops is told to who asks for the step: the one before may still be finished. */
static bool ends_everything(sg_session_method method, sg_status status)
{
    if (method == SG_SESSION_HELLO || method == SG_SESSION_LEAVE)
        return false;
    if (status == SG_STOPPED)
        return method != SG_SESSION_TICKET && method != SG_SESSION_HEARTBEAT;
    return status == SG_FENCED || status == SG_ROLLED_BACK || status == SG_PEER_LOST;
}

/* The request has been detached. */
static void settle(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                   const char *text, const ProtobufCMessage *reply)
{
    const method_row *row = &methods[request->method];
    if (ends_everything(request->method, status))
        sg_session_fail(session, status, text);
    else if (status == SG_OK)
        row->answered(session, now_ms, request, reply);
    else if (row->refused != NULL)
        row->refused(session, now_ms, request, status, text);
    else
        sg_session_task_end(session, request->task, NULL, status, "%s", text);
}

void sg_session_on_reply(sg_session *session, uint64_t now_ms, uint64_t call, sg_status status, const char *error,
                         const ProtobufCMessage *reply)
{
    sg_session_request *request = TAILQ_FIRST(&session->active);
    while (request != NULL && request->call != call)
        request = TAILQ_NEXT(request, link);
    if (request == NULL)
        return;
    request->call = 0;
    const char *text = error != NULL && error[0] != '\0' ? error : sg_status_text(status);
    if (status == SG_OK && (reply == NULL || reply->descriptor != methods[request->method].reply)) {
        status = SG_INTERNAL;
        text = "the answer is a message of another type than the method's";
    }
    if (status == SG_UNAVAILABLE || status == SG_TIMEOUT) {
        repeat_unheard(session, request, now_ms, text);
    } else {
        peer_heard(session, request, now_ms);
        if (status == SG_WAITING || status == SG_NOT_READY) {
            repeat_answered(session, request, now_ms, status, text);
        } else {
            request_detach(session, request);
            settle(session, now_ms, request, status, text, reply);
            request_free(request);
        }
    }
    sg_session_leave_due(session);
    sg_session_send_due(session, now_ms);
}
