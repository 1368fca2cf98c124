/* worker/client/session_calls.c - the calls of requests, and their repeats.
 *
 * A request waits in the lane of its ps until its turn comes; from then on it is active: an attempt of it is
 * under way, or it waits for its next one. What became of an attempt decides: WAITING is asked again at once,
 * NOT_READY nearly so, a peer that cannot be reached after a back-off. A peer that has not answered anything for a
 * lease, though asked at least twice, is lost, and the job with it. */
#include <inttypes.h>
#include <string.h>

#include "worker/client/session_internal.h"

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
                          sg_session_join_answered, sg_session_hello_refused},
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

/* --- sending --------------------------------------------------------------------------------------------------- */

/* Calls that may be parked get the time to be; those that are answered at once are given up sooner, so that a peer
 * that is there but dead is noticed within a lease; and so are those that ask one again that did not answer. */
static uint64_t request_timeout_ms(const sg_session *session, sg_session_method method, bool again)
{
    if (session->hello == NULL)
        return HELLO_TIMEOUT_MS;
    const uint64_t lease_ms = session->hello->lease_ms;
    const uint64_t beat_ms = lease_ms / 3 > MIN_TIMEOUT_MS ? lease_ms / 3 : MIN_TIMEOUT_MS;
    if (method == SG_SESSION_HEARTBEAT)
        return beat_ms;
    if (again || method == SG_SESSION_HELLO) /* of one who comes again: until then, nothing else keeps its lease */
        return session->hello->park_ms + beat_ms;
    return session->hello->park_ms + (lease_ms > MIN_TIMEOUT_MS ? lease_ms : MIN_TIMEOUT_MS);
}

void sg_session_request_send(sg_session *session, sg_session_request *request, uint64_t now_ms)
{
    session->n_idle--;
    request->call = ++session->last_call;
    request->sent_ms = now_ms;
    sg_slots_put(&session->requests_by_call, request->call, request);
    sg_session_action *action = sg_session_action_add(session, SG_SESSION_CALL);
    action->call = request->call;
    action->task = request->task == NULL ? 0 : request->task->number;
    action->method = request->method;
    action->target = request->target;
    action->message = request->message;
    atomic_fetch_add_explicit(&request->message->n_references, 1, memory_order_relaxed);
    action->body = request->message->body;
    action->slices = request->message->slices;
    action->n_slices = request->message->n_slices;
    action->slice_bytes = request->message->slice_bytes;
    const sg_session_peer *peer = sg_session_peer_of(session, request->target);
    action->timeout_ms = request_timeout_ms(session, request->method, peer->n_unanswered > 0);
}

void sg_session_send_due(sg_session *session, uint64_t now_ms)
{
    sg_session_request *request = session->n_idle > 0 ? TAILQ_FIRST(&session->active) : NULL;
    for (sg_session_request *next; request != NULL; request = next) {
        next = TAILQ_NEXT(request, link);
        if (request->call != 0 || request->not_before_ms > now_ms)
            continue;
        if (request->resting)
            sg_session_lane_return(session, request);
        else
            sg_session_request_send(session, request, now_ms);
    }
    sg_session_lanes_send(session, now_ms);
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
    if (request->method == SG_SESSION_HELLO && task == NULL)
        task = sg_session_back_task(session);
    if (task == NULL)
        return;
    sg_session_task_wait(task, text);
    task->answered = task->answered || answered;
}

/* Or is taken to have been. */
static void peer_heard(sg_session_peer *peer, uint64_t now_ms)
{
    peer->heard_ms = now_ms;
    peer->silent_since_ms = SG_SESSION_NEVER;
    peer->n_unanswered = 0;
    peer->in_vain_ms = 0;
}

uint64_t sg_session_back_off(sg_session *session, uint64_t first_ms, uint64_t most_ms, uint32_t n)
{
    uint64_t pause_ms = first_ms;
    for (uint32_t i = 1; i < n && pause_ms < most_ms; i++)
        pause_ms *= 2;
    pause_ms = pause_ms < most_ms ? pause_ms : most_ms;
    return pause_ms / 2 + sg_session_random(session) % (pause_ms / 2 + 1);
}

/* Whether the job can go on without what a silent ps holds. Before the first step that is for the coordinator to say,
 * if it can still be asked. */
static bool may_come_back(const sg_session *session, bool with_coordinator)
{
    return session->hello->recovers || (session->members == 0 && !with_coordinator);
}

/* "ps 0 at 127.0.0.1:5000: connection refused; start shardgrad-ps --index 0", of a text that begins with an address.
 * Who has joined waits for one that was there: others see to it. */
static const char *name_silent(sg_session *session, const sg_session_request *request, const char *text,
                               char out[SG_ERROR_MESSAGE_BYTES])
{
    const char *address = sg_session_peer_of(session, request->target)->address;
    if (strncmp(text, address, strlen(address)) != 0)
        return text;
    const uint32_t ps = request->target == SG_SESSION_COORDINATOR ? 0 : request->target;
    const bool is_missing = session->hello == NULL && strstr(text, "connection refused") != NULL;
    int n = snprintf(out, SG_ERROR_MESSAGE_BYTES, "ps %" PRIu32 " at %s", ps, text);
    if (is_missing && n > 0 && n < SG_ERROR_MESSAGE_BYTES)
        snprintf(out + n, (size_t)(SG_ERROR_MESSAGE_BYTES - n), "; start shardgrad-ps --index %" PRIu32, ps);
    return out;
}

static void repeat_unheard(sg_session *session, sg_session_request *request, uint64_t now_ms, const char *text)
{
    sg_session_peer *peer = sg_session_peer_of(session, request->target);
    const uint64_t since = request->sent_ms > peer->heard_ms ? request->sent_ms : peer->heard_ms;
    peer->silent_since_ms = since < peer->silent_since_ms ? since : peer->silent_since_ms;
    if (request->sent_ms >= peer->in_vain_ms) {
        peer->n_unanswered++;
        peer->in_vain_ms = now_ms;
    }
    request->failures++;
    request->not_before_ms =
        now_ms + sg_session_back_off(session, BACK_OFF_FIRST_MS, BACK_OFF_MOST_MS, request->failures);
    sg_session_due(session, request->not_before_ms);
    char whom[SG_ERROR_MESSAGE_BYTES];
    waiting_note(session, request, false, name_silent(session, request, text, whom));
    if (session->hello == NULL || request->method == SG_SESSION_HELLO || peer->n_unanswered < MIN_ASKED_IN_VAIN ||
        now_ms < peer->silent_since_ms + session->hello->lease_ms)
        return;
    const bool coordinator = request->target == SG_SESSION_COORDINATOR;
    char line[SG_ERROR_MESSAGE_BYTES];
    snprintf(line, sizeof line, "ps %" PRIu32 "%s (%s) has not answered for %" PRIu64 " ms: %s",
             coordinator ? 0 : request->target, coordinator ? ", the coordinator," : "", peer->address,
             now_ms - peer->silent_since_ms, text);
    if (may_come_back(session, coordinator || request->target == 0))
        sg_session_roll_back(session, now_ms, line);
    else
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
    if (status == SG_WAITING && request->method == SG_SESSION_PULL)
        sg_session_lane_rest(session, request);
    if (request->not_before_ms > now_ms)
        sg_session_due(session, request->not_before_ms);
    waiting_note(session, request, true, text);
    if (request->method == SG_SESSION_TICKET)
        sg_session_ticket_renew(session, request);
}

/* Whether this refusal, heard by this request, is the end of the session and not of its task alone. A ticket that is
 * refused because the peer stops is told to who asks for the step: the one before may still be finished. */
static bool ends_everything(sg_session_method method, sg_status status)
{
    if (method == SG_SESSION_HELLO || method == SG_SESSION_LEAVE)
        return false;
    if (status == SG_STOPPED)
        return method != SG_SESSION_TICKET && method != SG_SESSION_HEARTBEAT;
    return status == SG_PEER_LOST;
}

/* A step was closed without this worker. One that declares, or leaves, may not know the newest steps. */
static bool is_too_late(const sg_session *session, const sg_session_request *request)
{
    return sg_session_may_be_late(session) && !session->leaving &&
           (request->task == NULL || request->task->kind != SG_SESSION_TASK_DECLARE);
}

/* A heartbeat of the incarnation that this worker gave up, because it was too late. */
static bool is_of_given_up(const sg_session *session, const sg_session_request *request)
{
    return request->method == SG_SESSION_HEARTBEAT && session->late != 0 &&
           ((const Shardgrad__V1__HeartbeatRequest *)request->message->body)->incarnation == session->late;
}

/* The request has been released and ended. */
static void settle(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                   const char *text, const ProtobufCMessage *reply)
{
    const method_row *row = &methods[request->method];
    if (is_of_given_up(session, request)) {
        sg_session_heartbeat_refused(session, now_ms, request, SG_LATE, text);
        return;
    }
    const bool back = status == SG_ROLLED_BACK && request->method != SG_SESSION_HELLO;
    const bool late = status == SG_LATE && is_too_late(session, request);
    if (status != SG_OK && !back && !late)
        sg_session_push_lost(session, request);
    if (back)
        sg_session_roll_back(session, now_ms, text);
    else if (late)
        sg_session_fall_behind(session, now_ms, text);
    else if (status == SG_FENCED && request->method != SG_SESSION_HELLO && request->method != SG_SESSION_LEAVE)
        sg_session_fence(session, now_ms, text);
    else if (ends_everything(request->method, status))
        sg_session_fail(session, status, text);
    else if (status == SG_OK)
        row->answered(session, now_ms, request, reply);
    else if (row->refused != NULL)
        row->refused(session, now_ms, request, status, text);
    else
        sg_session_task_end(session, request->task, NULL, status, "%s", text);
}

/* A goodbye to a coordinator that had told that it stops: it has gone meanwhile, and nobody waits for this worker. */
static bool is_for_nobody(const sg_session *session, const sg_session_request *request, sg_status status)
{
    return request->method == SG_SESSION_LEAVE && session->failed == SG_STOPPED && status == SG_UNAVAILABLE;
}

static void call_ended(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                       const char *error, const ProtobufCMessage *reply)
{
    request->call = 0;
    session->n_idle++;
    const char *text = error != NULL && error[0] != '\0' ? error : sg_status_text(status);
    if (status == SG_OK && (reply == NULL || reply->descriptor != methods[request->method].reply)) {
        status = SG_INTERNAL;
        text = "the answer is a message of another type than the method's";
    }
    if (is_for_nobody(session, request, status)) {
        sg_session_request_release(session, request);
        sg_session_request_end(session, request);
        sg_session_task_end(session, request->task, NULL, SG_OK, "%s", "");
        sg_session_request_free(request);
    } else if (status == SG_UNAVAILABLE || status == SG_TIMEOUT) {
        repeat_unheard(session, request, now_ms, text);
    } else {
        peer_heard(sg_session_peer_of(session, request->target), now_ms);
        session->back_until_ms = now_ms + session->start_timeout_ms;
        if (status == SG_WAITING || status == SG_NOT_READY) {
            repeat_answered(session, request, now_ms, status, text);
        } else if (status != SG_OK || !sg_session_is_push(request->method) ||
                   !sg_session_data_repeat(session, now_ms, request, reply)) {
            sg_session_request_release(session, request);
            sg_session_request_end(session, request);
            settle(session, now_ms, request, status, text, reply);
            sg_session_request_free(request);
        }
    }
}

/* It asks to be told the time every third of a lease, whatever it waits for. If it was not, its process stood still,
 * and who did not answer meanwhile need not be silent. */
void sg_session_look_at_clock(sg_session *session, uint64_t now_ms)
{
    const bool stood_still = session->hello != NULL && now_ms > session->seen_ms + session->hello->lease_ms / 2;
    session->seen_ms = now_ms;
    for (uint32_t ps = 0; stood_still && ps <= session->n_ps; ps++)
        peer_heard(&session->peers[ps], now_ms);
}

void sg_session_on_reply(sg_session *session, uint64_t now_ms, uint64_t call, sg_status status, const char *error,
                         const ProtobufCMessage *reply)
{
    sg_session_look_at_clock(session, now_ms);
    sg_session_request *request = sg_slots_get(&session->requests_by_call, call);
    if (request != NULL)
        sg_slots_remove(&session->requests_by_call, call);
    if (request != NULL && request->given_up) {
        sg_session_request_end(session, request);
        sg_session_request_free(request);
    } else if (request != NULL) {
        call_ended(session, now_ms, request, status, error, reply);
    }
    sg_session_leave_due(session);
    sg_session_send_due(session, now_ms);
}
