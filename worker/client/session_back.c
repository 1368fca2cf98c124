/* worker/client/session_back.c - back to an earlier step.
 *
 * When the job goes on in another generation, or a ps has fallen silent in a cluster that recovers, nothing that is
 * under way means anything any more: every task ends with ROLLED_BACK, save a declaration, which begins anew, and a
 * goodbye, which is said in the next generation. The session says hello again by itself, so that it keeps its place; it
 * declares again when its owner is ready (sg_session_resume), because values may come with that.
 *
 * Where there are backup workers a step may be closed without this one: the same is done then, and what was under way
 * ends with LATE. The coordinator gives out another incarnation and lets it join as one who comes late.
 *
 * One whose incarnation was fenced, because it was given up for lost, ends everything with FENCED and falls silent. Its
 * owner may let it come again: then it says hello as a new life, naming the incarnation that it had, and where another
 * process has the index by then it has failed for good. One that has not declared yet, or declares again, comes again
 * by itself. */
#include <inttypes.h>
#include <stdlib.h>

#include "common/asked.h"
#include "common/wire.h"
#include "worker/client/session_internal.h"

bool sg_session_is_back(const sg_session *session)
{
    return session->back != SG_SESSION_STANDS && session->failed == SG_OK;
}

sg_status sg_session_stands(const sg_session *session, sg_error *err)
{
    const sg_status status = sg_session_failed(session, err);
    if (status != SG_OK || session->back == SG_SESSION_STANDS)
        return status;
    return sg_error_set(err, session->back == SG_SESSION_FENCED ? SG_FENCED : session->back_status, "%s",
                        session->back_text);
}

/* --- forgetting ------------------------------------------------------------------------------------------------ */

static void group_forget(sg_session_group *group)
{
    for (uint32_t i = 0; i < group->n_held; i++)
        sg_session_ticket_unref(group->held[i].ticket);
    group->n_held = group->n_ready = 0;
    group->wanted = group->rides = false;
    group->late_begun = group->begun;
    group->received = group->finished = group->pushed = group->begun = group->reported = group->examples = 0;
    group->given_at = group->too_old = 0;
    group->next_too = false;
    group->loss = 0;
    group->tested = (sg_tested){0};
    group->tested_at = 0;
    group->refused = SG_OK;
    sg_session_text_set(&group->waiting, NULL);
}

/* A push under way keeps its mark: until its call is reported the buffer is the transport's. */
static void steps_forget(sg_session *session)
{
    if (session->plan == NULL)
        return;
    for (uint32_t i = 0; i < session->plan->n_groups; i++)
        group_forget(&session->groups[i]);
    for (uint32_t i = 0; i < session->plan->n_slices; i++) {
        session->slices[i].version = SG_SESSION_NO_VERSION;
        session->slices[i].coming = session->slices[i].pushed = session->slices[i].asked = 0;
    }
}

sg_session_task *sg_session_back_task(const sg_session *session)
{
    sg_session_task *task = TAILQ_FIRST(&session->tasks);
    while (task != NULL && task->kind != SG_SESSION_TASK_DECLARE)
        task = TAILQ_NEXT(task, link);
    return task;
}

static void tasks_end(sg_session *session, sg_status status)
{
    for (sg_session_task *task = TAILQ_FIRST(&session->tasks); task != NULL;) {
        if (status != SG_FENCED && (task->kind == SG_SESSION_TASK_DECLARE || task->kind == SG_SESSION_TASK_LEAVE)) {
            task->attempt = 0;
            task = TAILQ_NEXT(task, link);
        } else {
            sg_session_task_end(session, task, NULL, status, "%s", session->back_text);
            task = TAILQ_FIRST(&session->tasks); /* others may have ended with it */
        }
    }
}

static void say_hello(sg_session *session, uint64_t now_ms)
{
    session->back = SG_SESSION_BACK_HELLO;
    session->back_until_ms = now_ms + session->start_timeout_ms;
    sg_session_hello_ask(session, NULL);
    sg_session_due(session, session->back_until_ms);
}

/* Of a new life, which takes the place of its own last one alone. */
static void begin_life(sg_session *session)
{
    session->after = session->hello->incarnation;
    session->late = 0;
    do
        session->life = sg_session_random(session);
    while (session->life == 0);
}

static void come_again(sg_session *session, uint64_t now_ms)
{
    begin_life(session);
    session->back_status = SG_ROLLED_BACK;
    say_hello(session, now_ms);
}

/* A late one keeps its lease until hello is answered. */
static void begin_anew(sg_session *session, uint64_t now_ms, sg_status status, const char *text)
{
    session->back_status = status;
    session->late = status == SG_LATE ? session->hello->incarnation : 0;
    sg_session_text_set(&session->back_text, text);
    session->back = SG_SESSION_BACK_HELLO;
    session->heartbeat_ms = status == SG_LATE ? now_ms + session->hello->lease_ms / 3 : SG_SESSION_NEVER;
    session->resting = session->rest_told = false;
    sg_session_requests_drop_all(session);
    tasks_end(session, status);
    steps_forget(session);
    say_hello(session, now_ms);
}

void sg_session_roll_back(sg_session *session, uint64_t now_ms, const char *text)
{
    if (session->failed != SG_OK || session->back == SG_SESSION_BACK_HELLO || session->back == SG_SESSION_FENCED)
        return;
    char quoted[SG_LOG_QUOTED_BYTES];
    sg_session_log(session, sg_is_asked(text) ? SG_LOG_INFO : SG_LOG_WARN, "rolled_back",
                   "generation=%" PRIu64 " reason=%s", session->hello->generation,
                   sg_log_quote(text, quoted, sizeof quoted));
    begin_anew(session, now_ms, SG_ROLLED_BACK, text);
}

bool sg_session_may_be_late(const sg_session *session)
{
    return session->hello != NULL && session->hello->backup_workers > 0;
}

void sg_session_fall_behind(sg_session *session, uint64_t now_ms, const char *text)
{
    if (session->failed != SG_OK || session->back != SG_SESSION_STANDS || session->leaving)
        return;
    char quoted[SG_LOG_QUOTED_BYTES];
    sg_session_log(session, SG_LOG_INFO, "late", "reason=%s", sg_log_quote(text, quoted, sizeof quoted));
    begin_anew(session, now_ms, SG_LATE, text);
}

void sg_session_fence(sg_session *session, uint64_t now_ms, const char *text)
{
    if (session->failed != SG_OK || session->back == SG_SESSION_FENCED)
        return;
    if (session->leaving) {
        sg_session_fail(session, SG_FENCED, text);
        return;
    }
    char quoted[SG_LOG_QUOTED_BYTES];
    sg_session_log(session, SG_LOG_WARN, "fenced", "incarnation=%" PRIx64 " reason=%s", session->hello->incarnation,
                   sg_log_quote(text, quoted, sizeof quoted));
    if (session->state != SG_SESSION_DECLARED) { /* no step is lost: its owner need not hear of it */
        begin_life(session);
        begin_anew(session, now_ms, SG_ROLLED_BACK, text);
        return;
    }
    sg_session_text_set(&session->back_text, text);
    session->back = SG_SESSION_FENCED;
    session->heartbeat_ms = SG_SESSION_NEVER;
    session->resting = session->rest_told = false;
    sg_session_requests_drop_all(session);
    tasks_end(session, SG_FENCED);
    steps_forget(session);
}

/* --- coming again ---------------------------------------------------------------------------------------------- */

/* The plan stays. (The mode need not: it is that of the generation.) */
static const char *difference(const Shardgrad__V1__HelloResponse *old, const Shardgrad__V1__HelloResponse *new)
{
    if (new->n_ps_addresses != old->n_ps_addresses)
        return "number of ps";
    if (new->slice_bytes != old->slice_bytes)
        return "slice_bytes";
    return new->message_bytes == old->message_bytes ? NULL : "message_bytes";
}

static void peers_renew(sg_session *session, uint64_t now_ms)
{
    for (uint32_t ps = 0; ps <= session->n_ps; ps++) {
        sg_session_peer *peer = &session->peers[ps];
        free(peer->address);
        sg_session_peer_init(peer, session->hello->ps_addresses[ps == session->n_ps ? 0 : ps]);
        peer->heard_ms = now_ms;
    }
    sg_session_action_add(session, SG_SESSION_MOVE);
}

static void declare_again(sg_session *session, sg_session_task *task)
{
    session->state = SG_SESSION_DECLARING;
    sg_session_declare_ask(session, task);
}

/* A job that recovers records its generations, and they only grow. */
static sg_status check_later(const sg_session *session, const Shardgrad__V1__HelloResponse *hello, sg_error *err)
{
    if (!hello->recovers || hello->generation >= session->hello->generation)
        return SG_OK;
    return sg_error_set(err, SG_CONFIG,
                        "this worker was in generation %" PRIu64 ", and ps 0 has begun generation %" PRIu64
                        ": its checkpoint.dir is not the job's folder, or was emptied. Mount the right one and start "
                        "the job again; or, to begin anew, stop all its processes first",
                        session->hello->generation, hello->generation);
}

void sg_session_back_joined(sg_session *session, uint64_t now_ms, const Shardgrad__V1__HelloResponse *hello)
{
    sg_error err;
    const char *other = difference(session->hello, hello);
    sg_status status = sg_session_hello_check(hello, &err);
    if (status == SG_OK && other != NULL)
        status = sg_error_set(&err, SG_CONFIG, "the job was started anew with another %s: start this worker anew, too",
                              other);
    if (status == SG_OK)
        status = check_later(session, hello, &err);
    if (status != SG_OK) {
        sg_session_fail(session, status, err.message);
        return;
    }
    shardgrad__v1__hello_response__free_unpacked(session->hello, NULL);
    session->hello = (Shardgrad__V1__HelloResponse *)sg_wire_head_copy(&hello->base);
    peers_renew(session, now_ms);
    session->heartbeat_ms = now_ms + hello->lease_ms / 3;
    session->after = 0;
    sg_session_log(session, SG_LOG_INFO, "joined_again",
                   "worker=%" PRIu32 " incarnation=%" PRIx64 " generation=%" PRIu64 " mode=%s", session->worker,
                   hello->incarnation, hello->generation, sg_mode_name((sg_mode)hello->mode));
    session->back = session->declared == NULL ? SG_SESSION_STANDS : SG_SESSION_BACK_DECLARE;
    sg_session_task *task = sg_session_back_task(session);
    if (task != NULL)
        declare_again(session, task);
    sg_session_leave_due(session);
}

void sg_session_hello_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                              const char *text)
{
    (void)now_ms;
    if (request->task != NULL)
        sg_session_task_end(session, request->task, NULL, status, "%s", text);
    else
        sg_session_fail(session, status, text);
}

uint64_t sg_session_resume(sg_session *session, uint64_t now_ms, uint64_t deadline_ms)
{
    sg_error err;
    if (sg_session_failed(session, &err) != SG_OK)
        return sg_session_task_refuse(session, err.code, "%s", err.message);
    if (session->leaving || sg_session_back_task(session) != NULL)
        return sg_session_task_refuse(session, SG_INVALID, "this session is leaving, or declares already");
    sg_session_task *task = sg_session_task_add(session, SG_SESSION_TASK_DECLARE, now_ms, deadline_ms);
    const uint64_t number = task->number;
    if (session->back == SG_SESSION_STANDS)
        sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
    else if (session->back == SG_SESSION_BACK_DECLARE)
        declare_again(session, task);
    else
        session->state = SG_SESSION_DECLARING;
    if (session->back == SG_SESSION_FENCED)
        come_again(session, now_ms);
    sg_session_send_due(session, now_ms);
    return number;
}

void sg_session_back_tick(sg_session *session, uint64_t now_ms)
{
    if (session->back != SG_SESSION_BACK_HELLO || session->failed != SG_OK || now_ms < session->back_until_ms)
        return;
    sg_error why;
    (void)!sg_error_set(&why, SG_PEER_LOST, "ps 0, the coordinator, did not come back within %" PRIu64 " ms: %s",
                        session->start_timeout_ms, session->back_text);
    sg_session_fail(session, SG_PEER_LOST, why.message);
}
