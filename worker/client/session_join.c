/* worker/client/session_join.c - coming, staying and going: hello, heartbeats, leave. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/wire.h"
#include "worker/client/session_internal.h"

#define MAX_MESSAGE_BYTES (1u << 30)

/* --- hello ----------------------------------------------------------------------------------------------------- */

uint64_t sg_session_join(sg_session *session, uint64_t now_ms, uint64_t deadline_ms)
{
    if (session->state != SG_SESSION_NEW)
        return sg_session_task_refuse(session, SG_INVALID, "this session has joined before");
    sg_session_task *task = sg_session_task_add(session, SG_SESSION_TASK_JOIN, now_ms, deadline_ms);
    sg_session_hello_ask(session, task);
    sg_session_send_due(session, now_ms);
    return task->number;
}

/* How far the incarnation that was too late came. */
static Shardgrad__V1__GroupProgress **late_progress(const sg_session *session, size_t *n)
{
    *n = session->plan == NULL ? 0 : session->plan->n_groups;
    Shardgrad__V1__GroupProgress **list = sg_xcalloc(*n + 1u, sizeof(Shardgrad__V1__GroupProgress *));
    for (uint32_t i = 0; i < *n; i++) {
        list[i] = sg_xcalloc(1, sizeof *list[i]);
        shardgrad__v1__group_progress__init(list[i]);
        list[i]->group = i;
        list[i]->begun_presence_case = SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE_BEGUN;
        list[i]->begun = session->groups[i].late_begun;
    }
    return list;
}

static void late_progress_free(Shardgrad__V1__GroupProgress **list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

void sg_session_hello_ask(sg_session *session, sg_session_task *task)
{
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = session->job;
    hello.worker = session->worker;
    hello.life = session->life;
    hello.n_settings = session->n_settings;
    hello.settings = session->setting_list;
    hello.address = session->address;
    const bool goes_on = session->after != 0 || session->late != 0;
    hello.generation = session->hello == NULL || goes_on ? 0 : session->hello->generation;
    hello.gives_up = hello.generation == 0 ? 0 : session->hello->incarnation;
    hello.after = session->after;
    hello.late = session->late;
    hello.data_examples = session->data_examples;
    hello.has_trained = session->has_trained;
    hello.progress = session->late == 0 ? NULL : late_progress(session, &hello.n_progress);
    session->said_hello = true;
    sg_session_request_add(session, task, SG_SESSION_HELLO, SG_SESSION_COORDINATOR, &hello.base);
    late_progress_free(hello.progress, hello.n_progress);
}

sg_status sg_session_hello_check(const Shardgrad__V1__HelloResponse *hello, sg_error *err)
{
    const char *bad = NULL;
    if (hello->incarnation == 0)
        bad = "no incarnation";
    else if (hello->mode != SHARDGRAD__V1__MODE__MODE_SYNC && hello->mode != SHARDGRAD__V1__MODE__MODE_ASYNC &&
             hello->mode != SHARDGRAD__V1__MODE__MODE_SSP)
        bad = "an unknown mode";
    else if (hello->lease_ms == 0 || hello->park_ms == 0 || hello->lease_ms > UINT32_MAX || hello->park_ms > UINT32_MAX)
        bad = "a lease or a park time out of bounds";
    else if (hello->slice_bytes == 0 || hello->slice_bytes % 64 != 0)
        bad = "slice_bytes that is not a multiple of 64";
    else if (hello->message_bytes < hello->slice_bytes || hello->message_bytes > MAX_MESSAGE_BYTES)
        bad = "message_bytes out of bounds";
    else if (hello->n_ps_addresses == 0 || hello->n_ps_addresses > SG_SESSION_MAX_PS)
        bad = "a number of ps out of bounds";
    else if (hello->gradients > SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_BFLOAT16)
        bad = "an unknown type of gradients";
    for (size_t i = 0; bad == NULL && i < hello->n_ps_addresses; i++)
        if (hello->ps_addresses[i][0] == '\0')
            bad = "a ps without an address";
    return bad == NULL ? SG_OK : sg_error_set(err, SG_INTERNAL, "the coordinator's answer to hello has %s", bad);
}

static void peers_meet(sg_session *session, uint64_t now_ms)
{
    const Shardgrad__V1__HelloResponse *hello = session->hello;
    free(session->peers[0].address);
    free(session->peers);
    session->n_ps = (uint32_t)hello->n_ps_addresses;
    session->peers = sg_xcalloc(session->n_ps + 1u, sizeof *session->peers);
    for (uint32_t ps = 0; ps <= session->n_ps; ps++) {
        sg_session_peer_init(&session->peers[ps], hello->ps_addresses[ps == session->n_ps ? 0 : ps]);
        session->peers[ps].heard_ms = now_ms;
    }
    sg_session_lanes_create(session);
}

static void hello_answered(sg_session *session, uint64_t now_ms, sg_session_task *task,
                           const Shardgrad__V1__HelloResponse *hello)
{
    sg_error err;
    if (sg_session_hello_check(hello, &err) != SG_OK) {
        sg_session_task_end(session, task, NULL, err.code, "%s", err.message);
        return;
    }
    session->hello = (Shardgrad__V1__HelloResponse *)sg_wire_head_copy(&hello->base);
    session->state = SG_SESSION_JOINED;
    session->live_workers = 1;
    peers_meet(session, now_ms);
    session->heartbeat_ms = now_ms + hello->lease_ms / 3;
    sg_session_log(session, SG_LOG_INFO, "joined",
                   "worker=%" PRIu32 " incarnation=%" PRIx64 " generation=%" PRIu64 " mode=%s ps=%" PRIu32
                   " workers=%" PRIu32,
                   session->worker, hello->incarnation, hello->generation, sg_mode_name((sg_mode)hello->mode),
                   session->n_ps, hello->workers);
    sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
}

/* --- heartbeats ------------------------------------------------------------------------------------------------ */

void sg_session_heartbeat_due(sg_session *session, uint64_t now_ms)
{
    if (now_ms < session->heartbeat_ms)
        return;
    Shardgrad__V1__HeartbeatRequest request = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
    request.incarnation = session->hello->incarnation;
    request.generation = session->hello->generation;
    request.resting = session->resting;
    session->rest_told = session->resting;
    sg_session_request_add(session, NULL, SG_SESSION_HEARTBEAT, SG_SESSION_COORDINATOR, &request.base);
    session->heartbeat_ms = SG_SESSION_NEVER;
}

static void heartbeat_again(sg_session *session, uint64_t now_ms)
{
    if (session->state != SG_SESSION_LEFT && session->failed == SG_OK)
        session->heartbeat_ms = session->resting == session->rest_told ? now_ms + session->hello->lease_ms / 3 : now_ms;
}

void sg_session_rest(sg_session *session, uint64_t now_ms)
{
    if (session->hello == NULL || session->resting || session->back != SG_SESSION_STANDS)
        return; /* in the last case the job has gone back, and its owner is about to hear it */
    session->resting = true;
    session->live_workers = 0;
    for (uint32_t i = 0; session->groups != NULL && i < session->plan->n_groups; i++)
        session->groups[i].wanted = false;
    if (session->heartbeat_ms == SG_SESSION_NEVER) /* one is under way: another one follows it */
        return;
    session->heartbeat_ms = now_ms;
    sg_session_heartbeat_due(session, now_ms);
    sg_session_send_due(session, now_ms);
}

static void heartbeat_answered(sg_session *session, uint64_t now_ms, const Shardgrad__V1__HeartbeatResponse *reply)
{
    if (session->resting == session->rest_told)
        session->live_workers = reply->live_workers;
    session->draining = session->draining || reply->draining;
    heartbeat_again(session, now_ms);
    if (reply->generation == session->hello->generation)
        return;
    char line[SG_ERROR_MESSAGE_BYTES];
    snprintf(line, sizeof line, "the job is in generation %" PRIu64 ", this worker in %" PRIu64, reply->generation,
             session->hello->generation);
    sg_session_roll_back(session, now_ms, line);
}

/* --- leave ----------------------------------------------------------------------------------------------------- */

uint64_t sg_session_leave(sg_session *session, uint64_t now_ms, uint64_t deadline_ms)
{
    if (session->leaving)
        return sg_session_task_refuse(session, SG_INVALID, "this session is leaving already");
    session->leaving = true;
    for (uint32_t i = 0; session->plan != NULL && i < session->plan->n_groups; i++)
        if (session->groups[i].asking != NULL)
            sg_session_request_remove(session, session->groups[i].asking);
    sg_session_task *task = sg_session_task_add(session, SG_SESSION_TASK_LEAVE, now_ms, deadline_ms);
    const uint64_t number = task->number;
    sg_session_leave_due(session);
    sg_session_send_due(session, now_ms);
    return number;
}

static sg_session_task *leave_task(const sg_session *session)
{
    sg_session_task *task = TAILQ_FIRST(&session->tasks);
    while (task != NULL && task->kind != SG_SESSION_TASK_LEAVE)
        task = TAILQ_NEXT(task, link);
    return task;
}

static Shardgrad__V1__Evaluation *evaluation_fill(const sg_session_group *group, Shardgrad__V1__Evaluation *out)
{
    *out = (Shardgrad__V1__Evaluation)SHARDGRAD__V1__EVALUATION__INIT;
    out->iteration = group->tested_iteration;
    out->examples = group->tested.examples;
    out->of = group->tested.of;
    out->correct = group->tested.correct;
    out->loss = group->tested.loss;
    return out;
}

static void leave_ask(sg_session *session, sg_session_task *task)
{
    const uint32_t n_groups = session->plan == NULL ? 0 : session->plan->n_groups;
    Shardgrad__V1__GroupProgress *progress = sg_xcalloc(n_groups + 1u, sizeof *progress);
    Shardgrad__V1__GroupProgress **list = sg_xcalloc(n_groups + 1u, sizeof(Shardgrad__V1__GroupProgress *));
    Shardgrad__V1__Evaluation *evaluations = sg_xcalloc(n_groups + 1u, sizeof *evaluations);
    size_t n = 0;
    for (uint32_t i = 0; i < n_groups; i++) {
        if (session->groups[i].received == 0)
            continue;
        shardgrad__v1__group_progress__init(&progress[n]);
        progress[n].group = i;
        progress[n].pushed = session->groups[i].pushed;
        progress[n].begun_presence_case = SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE_BEGUN;
        progress[n].begun = session->groups[i].begun;
        progress[n].examples = sg_session_unreported(&session->groups[i]);
        progress[n].loss = progress[n].examples == 0 ? 0 : session->groups[i].loss;
        if (sg_session_has_tested(&session->groups[i]))
            progress[n].evaluation = evaluation_fill(&session->groups[i], &evaluations[n]);
        list[n] = &progress[n];
        n++;
    }
    Shardgrad__V1__LeaveRequest request = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    request.incarnation = session->hello == NULL ? 0 : session->hello->incarnation;
    request.generation = session->hello == NULL ? 0 : session->hello->generation;
    request.life = session->hello == NULL ? session->life : 0;
    request.progress = list;
    request.n_progress = n;
    sg_session_request_add(session, task, SG_SESSION_LEAVE, SG_SESSION_COORDINATOR, &request.base);
    free(progress);
    free(evaluations);
    free(list);
}

/* A push that waits for one of a slice that will not be handed over any more would wait for ever. */
static sg_session_task *hopeless_find(const sg_session *session, uint32_t *slice)
{
    sg_session_task *task = TAILQ_FIRST(&session->tasks);
    while (task != NULL && !sg_session_lacks(session, task->number, slice))
        task = TAILQ_NEXT(task, link);
    return task;
}

/* Whether the coordinator knows of this worker, or may: a hello that is not answered yet may be parked, and then all
 * would wait for the lease of one who is gone. */
static bool is_known(const sg_session *session)
{
    return session->hello != NULL || (session->said_hello && session->peers[0].n_unanswered == 0);
}

/* Nobody is told goodbye who was never met or whose job is over; a peer that stops still wants to hear it. One that is
 * late says it with the incarnation that it is about to get: nobody would take the leave of the one that it gave up,
 * and all would wait for the new one until its lease has run out. */
void sg_session_leave_due(sg_session *session)
{
    sg_session_task *task = session->leaving ? leave_task(session) : NULL;
    if (task == NULL || task->n_requests > 0 || (session->back == SG_SESSION_BACK_HELLO && session->failed == SG_OK))
        return; /* in the last case sg_session_back_joined goes on */
    uint32_t slice;
    sg_session_task *hopeless = hopeless_find(session, &slice);
    if (hopeless != NULL) /* the end of a task comes back here, for the next one or the goodbye */
        sg_session_task_end(session, hopeless, NULL, SG_CANCELLED,
                            "this worker leaves without a push of slice %" PRIu32 ", which all wait for", slice);
    else if (!is_known(session) || session->back == SG_SESSION_FENCED ||
             (session->failed != SG_OK && session->failed != SG_STOPPED))
        sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
    else if (session->n_pushes == 0)
        leave_ask(session, task);
}

static void leave_answered(sg_session *session, sg_session_task *task)
{
    session->state = SG_SESSION_LEFT;
    session->heartbeat_ms = SG_SESSION_NEVER;
    sg_session_log(session, SG_LOG_INFO, "left", "worker=%" PRIu32, session->worker);
    sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
}

/* --- answers --------------------------------------------------------------------------------------------------- */

void sg_session_join_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                              const ProtobufCMessage *reply)
{
    if (request->method == SG_SESSION_HELLO && request->task == NULL)
        sg_session_back_joined(session, now_ms, (const Shardgrad__V1__HelloResponse *)reply);
    else if (request->method == SG_SESSION_HELLO)
        hello_answered(session, now_ms, request->task, (const Shardgrad__V1__HelloResponse *)reply);
    else if (request->method == SG_SESSION_HEARTBEAT)
        heartbeat_answered(session, now_ms, (const Shardgrad__V1__HeartbeatResponse *)reply);
    else
        leave_answered(session, request->task);
}

/* One that is refused for a reason that ends nothing is only worth a line: the next one may be answered. */
void sg_session_heartbeat_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                                  const char *text)
{
    (void)request;
    char quoted[SG_LOG_QUOTED_BYTES];
    session->draining = session->draining || status == SG_STOPPED;
    if (status == SG_LATE) { /* of an incarnation that was given up */
        heartbeat_again(session, now_ms);
        return;
    }
    const bool is_end = status == SG_STOPPED || status == SG_CANCELLED; /* by the client, which ends */
    sg_session_log(session, is_end ? SG_LOG_DEBUG : SG_LOG_WARN, "heartbeat_refused", "status=%s reason=%s",
                   sg_status_name(status), sg_log_quote(text, quoted, sizeof quoted));
    heartbeat_again(session, now_ms);
}
