/* worker/client/session_lanes.c - which of the requests to a ps is sent next, and how slices become messages.
 *
 * The lowest slice goes first: the next forward pass needs it first, and where gradients become ready from the last
 * layer to the first, it was handed over last. So a request overtakes others, but never one of the same slice: a push
 * of a slice whose last push is not acknowledged is blocked, and stands in no queue until it is; what is queued can
 * always be sent. The push that blocks it is queued or under way, so this ends. */
#include <stdlib.h>

#include "common/wire.h"
#include "worker/client/session_internal.h"

/* What is under way of UP and of DOWN: two messages on each connection, or as many small ones as are together no more
 * than two usual ones. Measured with messages of 1 MiB on one machine: with three on one connection the processor's
 * caches do not hold what is on its way any more, and a gigabyte costs a quarter more of its time; with eight, half as
 * much again. Where there are several ps, or several members of a step, they share what several connections allow, but
 * each has two: one would wait for its answer with nothing behind it. */
#define FEW_MESSAGES    2u
#define MANY_MESSAGES   16u
#define UNDER_WAY_BYTES (2u << 20)
/* Parked ones take no part in that: each comes back when the last worker has pushed. */
#define PARKED_MESSAGES 32u
/* A push for which there was no room is sent again, at first after so long; then less and less often, as long as
 * nothing is let in. */
#define REFUSED_FIRST_MS 20u
#define REFUSED_MOST_MS  160u
/* Of one message: each takes at most 5 bytes of its head for the index and 10 for the step, here or in the answer. */
#define MAX_SLICES (SG_WIRE_HEAD_BYTES / 16)

/* --- a lane's queue: a heap ------------------------------------------------------------------------------------ */

static bool is_before(const sg_session_request *a, const sg_session_request *b)
{
    const uint32_t left = a->message->slices[0], right = b->message->slices[0];
    if (a->urgent != b->urgent)
        return a->urgent;
    if (a->n_waits != b->n_waits)
        return a->n_waits < b->n_waits;
    return left != right ? left < right : a->number < b->number;
}

static void sift_up(sg_session_lane *lane, size_t at)
{
    sg_session_request *request = lane->queue[at];
    for (; at > 0 && is_before(request, lane->queue[(at - 1) / 2]); at = (at - 1) / 2)
        lane->queue[at] = lane->queue[(at - 1) / 2];
    lane->queue[at] = request;
}

static void sift_down(sg_session_lane *lane, size_t at)
{
    sg_session_request *request = lane->queue[at];
    for (size_t child; (child = 2 * at + 1) < lane->n_queued; at = child) {
        if (child + 1 < lane->n_queued && is_before(lane->queue[child + 1], lane->queue[child]))
            child++;
        if (!is_before(lane->queue[child], request))
            break;
        lane->queue[at] = lane->queue[child];
    }
    lane->queue[at] = request;
}

static void queue_put(sg_session_lane *lane, sg_session_request *request)
{
    if (lane->n_queued == lane->capacity) {
        lane->capacity = lane->capacity == 0 ? 16 : 2 * lane->capacity;
        lane->queue = sg_xrealloc(lane->queue, lane->capacity, sizeof(sg_session_request *));
    }
    request->state = SG_SESSION_REQUEST_QUEUED;
    lane->queue[lane->n_queued++] = request;
    sift_up(lane, lane->n_queued - 1);
}

static sg_session_request *queue_take(sg_session_lane *lane)
{
    sg_session_request *request = lane->queue[0];
    lane->queue[0] = lane->queue[--lane->n_queued];
    if (lane->n_queued > 0)
        sift_down(lane, 0);
    return request;
}

/* --- lanes ----------------------------------------------------------------------------------------------------- */

static uint32_t n_lanes(const sg_session *session)
{
    return session->lanes == NULL ? 0 : session->n_ps * SG_SESSION_LANES_PER_PS;
}

void sg_session_lanes_create(sg_session *session)
{
    session->lanes = sg_xcalloc((size_t)session->n_ps * SG_SESSION_LANES_PER_PS, sizeof *session->lanes);
    for (uint32_t i = 0; i < n_lanes(session); i++)
        TAILQ_INIT(&session->lanes[i].blocked);
}

void sg_session_lanes_destroy(sg_session *session)
{
    for (uint32_t i = 0; i < n_lanes(session); i++)
        free(session->lanes[i].queue);
    free(session->lanes);
}

/* Something may have become possible in this lane. */
static void touch_lane(sg_session *session, uint32_t index)
{
    sg_session_lane *lane = &session->lanes[index];
    if (!lane->touched)
        STAILQ_INSERT_TAIL(&session->touched, lane, link);
    lane->touched = true;
}

void sg_session_lane_add(sg_session *session, sg_session_request *request)
{
    sg_session_lane *lane = &session->lanes[request->lane];
    if (sg_session_is_push(request->method)) {
        request->state = SG_SESSION_REQUEST_BLOCKED;
        TAILQ_INSERT_TAIL(&lane->blocked, request, link);
        lane->look = true;
    } else {
        queue_put(lane, request);
    }
    touch_lane(session, request->lane);
}

void sg_session_lane_leave(sg_session *session, const sg_session_request *request)
{
    sg_session_lane *lane = &session->lanes[request->lane];
    if (!request->resting) {
        lane->n_active--;
        lane->active_bytes -= request->message->slice_bytes;
    }
    lane->full = lane->full && !request->resting;
    touch_lane(session, request->lane);
}

void sg_session_lane_rest(sg_session *session, sg_session_request *request)
{
    sg_session_lane_leave(session, request);
    request->resting = true;
    request->n_waits++;
}

/* --- pushes for which there was no room ------------------------------------------------------------------------ */

static bool has_slice(const sg_session_request *request, uint32_t slice)
{
    const sg_session_message *message = request->message;
    size_t i = 0;
    while (i < message->n_slices && message->slices[i] < slice)
        i++;
    return i < message->n_slices && message->slices[i] == slice;
}

/* The slice is of the same step: at most one push of it is queued or under way. */
static void hurry(sg_session *session, uint64_t now_ms, sg_session_lane *lane, const sg_session_request *but,
                  uint32_t slice)
{
    for (size_t i = 0; i < lane->n_queued; i++) {
        if (!has_slice(lane->queue[i], slice))
            continue;
        lane->queue[i]->urgent = true;
        sift_up(lane, i);
        return;
    }
    sg_session_request *request;
    TAILQ_FOREACH(request, &session->active, link)
    {
        if (request != but && request->resting && &session->lanes[request->lane] == lane && has_slice(request, slice)) {
            request->urgent = true;
            request->not_before_ms = now_ms;
            return;
        }
    }
}

void sg_session_lane_refuse(sg_session *session, uint64_t now_ms, sg_session_request *push, uint32_t focus,
                            bool goes_on)
{
    sg_session_lane *lane = &session->lanes[push->lane];
    sg_session_lane_rest(session, push);
    lane->full = true;
    lane->n_refusals += !goes_on;
    push->urgent = goes_on;
    push->not_before_ms =
        goes_on ? now_ms : now_ms + sg_session_back_off(session, REFUSED_FIRST_MS, REFUSED_MOST_MS, lane->n_refusals);
    sg_session_due(session, push->not_before_ms);
    if (!goes_on)
        hurry(session, now_ms, lane, push, focus);
}

/* A push goes back to its own lane; it stands in the way of the next one of its slices as before. */
static void refused_return(sg_session *session, sg_session_request *push)
{
    sg_session_lane *lane = &session->lanes[push->lane];
    lane->full = false;
    queue_put(lane, push);
    touch_lane(session, push->lane);
}

void sg_session_lane_return(sg_session *session, sg_session_request *request)
{
    TAILQ_REMOVE(&session->active, request, link);
    session->n_idle--;
    request->resting = false;
    if (sg_session_is_push(request->method)) {
        refused_return(session, request);
        return;
    }
    request->lane = request->target * SG_SESSION_LANES_PER_PS + SG_SESSION_LANE_PARKED;
    sg_session_lane_add(session, request);
}

static void blocked_drop(sg_session *session, sg_session_lane *lane, const sg_session_task *task)
{
    for (sg_session_request *request = TAILQ_FIRST(&lane->blocked), *next; request != NULL; request = next) {
        next = TAILQ_NEXT(request, link);
        if (task != NULL && request->task != task)
            continue;
        TAILQ_REMOVE(&lane->blocked, request, link);
        sg_session_request_remove(session, request);
    }
}

/* Those that stay become a heap of their own; those that go lie behind it until they are gone. */
static void queue_drop(sg_session *session, sg_session_lane *lane, const sg_session_task *task)
{
    const size_t n = lane->n_queued;
    lane->n_queued = 0;
    for (size_t i = 0; i < n; i++) {
        sg_session_request *request = lane->queue[i];
        if (task == NULL || request->task == task)
            continue;
        lane->queue[i] = lane->queue[lane->n_queued];
        lane->queue[lane->n_queued++] = request;
    }
    if (lane->n_queued == n)
        return;
    for (size_t i = lane->n_queued / 2; i-- > 0;)
        sift_down(lane, i);
    for (size_t i = lane->n_queued; i < n; i++)
        sg_session_request_remove(session, lane->queue[i]);
}

void sg_session_lanes_drop(sg_session *session, const sg_session_task *task)
{
    for (uint32_t i = 0; i < n_lanes(session); i++) {
        blocked_drop(session, &session->lanes[i], task);
        queue_drop(session, &session->lanes[i], task);
    }
}

/* None of its slices has a push that is queued or under way. At most two steps overlap: so no two pushes that are
 * blocked have a slice in common. */
static bool is_free(const sg_session *session, const sg_session_message *message)
{
    for (size_t i = 0; i < message->n_slices; i++)
        if (session->slices[message->slices[i]].push_pending)
            return false;
    return true;
}

void sg_session_lane_unblock(sg_session *session, const sg_session_request *push)
{
    for (size_t i = 0; i < push->message->n_slices; i++)
        session->slices[push->message->slices[i]].push_pending = false;
    sg_session_lane *lane = &session->lanes[push->lane];
    lane->look = true;
    lane->full = false;
    lane->n_refusals = 0;
    touch_lane(session, push->lane);
}

/* Queues those that are free by now. */
static void blocked_look(sg_session *session, sg_session_lane *lane)
{
    sg_session_request *request = lane->look ? TAILQ_FIRST(&lane->blocked) : NULL;
    lane->look = false;
    for (sg_session_request *next; request != NULL; request = next) {
        next = TAILQ_NEXT(request, link);
        const sg_session_message *message = request->message;
        if (!is_free(session, message))
            continue;
        for (size_t i = 0; i < message->n_slices; i++)
            session->slices[message->slices[i]].push_pending = true;
        TAILQ_REMOVE(&lane->blocked, request, link);
        queue_put(lane, request);
    }
}

static bool has_room(const sg_session *session, const sg_session_lane *lane, sg_session_lane_kind kind, uint64_t bytes)
{
    if (kind == SG_SESSION_LANE_PARKED)
        return lane->n_active < PARKED_MESSAGES;
    const uint64_t n_sharing = session->members > session->n_ps ? session->members : session->n_ps;
    const uint64_t share = (session->connections + n_sharing - 1) / n_sharing;
    return lane->n_active < FEW_MESSAGES * share ||
           (lane->n_active < MANY_MESSAGES * share && lane->active_bytes + bytes <= UNDER_WAY_BYTES * share);
}

static void lane_send(sg_session *session, sg_session_lane *lane, uint64_t now_ms)
{
    const sg_session_lane_kind kind = (sg_session_lane_kind)((lane - session->lanes) % SG_SESSION_LANES_PER_PS);
    blocked_look(session, lane);
    while (lane->n_queued > 0 && (!lane->full || lane->queue[0]->urgent) &&
           has_room(session, lane, kind, lane->queue[0]->message->slice_bytes)) {
        sg_session_request *request = queue_take(lane);
        lane->n_active++;
        lane->active_bytes += request->message->slice_bytes;
        request->state = SG_SESSION_REQUEST_ACTIVE;
        TAILQ_INSERT_TAIL(&session->active, request, link);
        session->n_idle++;
        sg_session_request_send(session, request, now_ms);
    }
}

void sg_session_lanes_send(sg_session *session, uint64_t now_ms)
{
    for (sg_session_lane *lane; (lane = STAILQ_FIRST(&session->touched)) != NULL;) {
        STAILQ_REMOVE_HEAD(&session->touched, link);
        lane->touched = false;
        lane_send(session, lane, now_ms);
    }
}

/* --- packing --------------------------------------------------------------------------------------------------- */

void sg_session_pack_create(sg_session *session)
{
    session->pack_lists = sg_xcalloc(session->n_ps, sizeof *session->pack_lists);
    session->pack_ps = sg_xcalloc(session->n_ps, sizeof *session->pack_ps);
    session->pack_next = sg_xcalloc(session->plan->n_slices, sizeof *session->pack_next);
}

void sg_session_pack_destroy(sg_session *session)
{
    free(session->pack_lists);
    free(session->pack_ps);
    free(session->pack_next);
    session->pack_lists = NULL;
    session->pack_ps = session->pack_next = NULL;
}

static void list_close(sg_session *session, uint32_t ps, sg_session_pack_fn each, void *user)
{
    each(session, user, ps, &session->pack_lists[ps]);
    session->pack_lists[ps] = (sg_session_pack_list){0};
}

void sg_session_pack(sg_session *session, const uint32_t *slices, size_t n, sg_session_pack_fn each, void *user)
{
    uint32_t n_used = 0;
    for (size_t i = 0; i < n; i++) {
        const sg_plan_slice *slice = &session->plan->slices[slices[i]];
        const uint64_t bytes = slice->n_elems * sizeof(float);
        sg_session_pack_list *list = &session->pack_lists[slice->ps];
        if (list->n > 0 && (list->bytes + bytes > session->hello->message_bytes || list->n == MAX_SLICES))
            list_close(session, slice->ps, each, user);
        else if (list->n == 0)
            session->pack_ps[n_used++] = slice->ps;
        if (list->n++ == 0)
            list->first = slices[i];
        else
            session->pack_next[list->last] = slices[i];
        list->last = slices[i];
        list->bytes += bytes;
    }
    for (uint32_t i = 0; i < n_used; i++)
        list_close(session, session->pack_ps[i], each, user);
}

sg_session_message *sg_session_pack_message(sg_session *session, const sg_session_pack_list *list, size_t body_bytes,
                                            uint64_t **numbers)
{
    sg_session_message *message = sg_session_message_create(session, body_bytes, list->n, numbers);
    message->slice_bytes = list->bytes;
    uint32_t slice = list->first;
    for (size_t i = 0; i < list->n; i++) {
        message->slices[i] = slice;
        slice = session->pack_next[slice];
    }
    return message;
}
