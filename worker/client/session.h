/* worker/client/session.h - what a client decides: what to send to whom, again when, and what may be sent next.
 *
 * A pure state machine: what the user wants, replies and the time go in, actions come out. No socket, thread, clock or
 * bulk byte inside: data calls name slices, and the shell around the session (client.c, tests/sim) lends and fills the
 * buffers. The rules it keeps (proto/README.md, each with its test):
 *   - a request is repeated with the same content until it is answered; WAITING and NOT_READY at once or nearly so,
 *     UNAVAILABLE after a back-off with jitter;
 *   - sync: step s+1 of a group is pushed only after version s+1 of every slice of the group was pulled;
 *   - async: a slice is pushed again only after its last push was acknowledged, or, where that was cancelled, after
 *     its call has ended;
 *   - at most the ticket that is computed and one more are held; the next step may be begun once this one's gradients
 *     were all handed over, and this one is finished once they are acknowledged; ssp: the next ticket is asked for when
 *     this one is finished, and the values of a step are asked for anew where those that are here may be too old;
 *   - Leave goes out only after all pushes are acknowledged, or, where they were cancelled, their calls have ended, and
 *     says how far they went;
 *   - FENCED from anyone ends everything with FENCED: its incarnation does and says nothing more. The owner may let it
 *     come again, as a new life that never contests another's place (sg_session_resume). One that has not declared yet
 *     comes again by itself;
 *   - ROLLED_BACK from anyone, or, where the cluster recovers, a ps that falls silent, ends what is under way with
 *     ROLLED_BACK: the session says hello again, and waits for sg_session_resume to declare again;
 *   - a push for which the ps has no room is sent again, and before it the one of the slice that all wait for.
 *
 * Threads: none; the owner serialises. */
#ifndef SG_WORKER_CLIENT_SESSION_H
#define SG_WORKER_CLIENT_SESSION_H

#include "common/config.h"
#include "common/plan.h"
#include "shardgrad/client.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

typedef struct sg_session sg_session;

/* Index of a ps, or this. Until Hello was answered only the coordinator is known. */
#define SG_SESSION_COORDINATOR UINT32_MAX

typedef enum sg_session_method {
    SG_SESSION_HELLO,
    SG_SESSION_DECLARE,
    SG_SESSION_INITIALIZE, /* data from the value buffers of the slices */
    SG_SESSION_INITIALIZED,
    SG_SESSION_TICKET,
    SG_SESSION_PUSH,      /* data from the gradient buffers */
    SG_SESSION_PULL,      /* the reply's data goes to the value buffers */
    SG_SESSION_PUSH_PULL, /* both */
    SG_SESSION_HEARTBEAT,
    SG_SESSION_LEAVE,
} sg_session_method;

/* PUSH or PUSH_PULL. */
bool sg_session_is_push(sg_session_method method);

typedef enum sg_session_action_kind {
    SG_SESSION_CALL, /* send `body`; report by sg_session_on_reply(call) exactly once */
    SG_SESSION_MOVE, /* the ps may have other addresses from here on: sg_session_ps_address */
    SG_SESSION_DONE, /* `task` ended with `status`, `text` (and `step`, for a ticket) */
    SG_SESSION_LOG,  /* log `event` with fields `text` at `level` */
} sg_session_action_kind;

typedef struct sg_session_action {
    sg_session_action_kind kind;
    uint64_t call;            /* CALL: its number, never used twice */
    uint64_t task;            /* CALL: on whose behalf (0: the session's own); DONE */
    sg_session_method method; /* CALL */
    uint32_t target;          /* CALL: ps index or SG_SESSION_COORDINATOR */
    ProtobufCMessage *body;   /* CALL; lent until action_deinit; its data is found by the next three */
    const uint32_t *slices;   /* CALL of a data method, lent with the body: [n_slices] */
    size_t n_slices;
    uint64_t slice_bytes;               /* theirs together */
    uint64_t timeout_ms;                /* CALL */
    sg_status status;                   /* DONE */
    sg_step step;                       /* DONE of a ticket */
    sg_log_level level;                 /* LOG */
    const char *event;                  /* LOG */
    char *text;                         /* DONE with a failure, LOG */
    struct sg_session_message *message; /* the session's: holds the body */
} sg_session_action;

/* An action that was taken may outlive the session. action_deinit may be called from any thread. */
bool sg_session_next_action(sg_session *session, sg_session_action *action);
void sg_session_action_deinit(sg_session_action *action);

typedef struct sg_session_options {
    const char *job;
    uint32_t worker;
    uint64_t life;             /* random, not 0 */
    uint64_t random_seed;      /* of the jitter */
    const char *address;       /* for people */
    uint64_t data_examples;    /* in the data set, to compare; 0: unknown */
    const sg_config *settings; /* shared settings to compare in Hello; NULL: none. Read during create only */
    uint64_t start_timeout_ms, warn_after_ms;
    uint64_t park_ms;     /* how long a peer may hold back what it answers, as far as is known before Hello */
    uint64_t connections; /* to each ps: each has calls under way of its own; 0: 1 */
} sg_session_options;

sg_session *sg_session_create(const sg_session_options *options);
void sg_session_destroy(sg_session *session); /* NULL is fine */

/* What the user wants. Each returns a task number (never 0) that a DONE action ends, perhaps within the call; several
 * tasks may be under way. deadline_ms is absolute (UINT64_MAX: none); a task that passes it ends with TIMEOUT and a
 * message that says for whom it waited. Calls of a task that has ended are to be cancelled by the owner; their replies
 * are still to be reported, and are ignored.
 * Once one has failed with PEER_LOST or STOPPED all others fail the same way, now and later; so with ROLLED_BACK and
 * FENCED, until sg_session_resume has ended well. */

/* Ends with UNAVAILABLE, not TIMEOUT, where the coordinator never answered. */
uint64_t sg_session_join(sg_session *session, uint64_t now_ms, uint64_t deadline_ms);
/* Before sg_session_declare, which says it to the cluster: the group makes one step in every so-manyth iteration. */
SG_MUST_USE sg_status sg_session_step_every(sg_session *session, uint32_t group, uint32_t every, sg_error *err);
/* variables are checked and copied; the plan exists afterwards. INVALID at once for a bad list. */
SG_MUST_USE sg_status sg_session_declare(sg_session *session, uint64_t now_ms, uint64_t deadline_ms,
                                         const sg_variable *variables, size_t n_variables, uint64_t *task,
                                         sg_error *err);
/* The job went on in another generation, or will, or without this worker, which was fenced: nothing can be begun but
 * this. Ends well when the session has joined and declared again, which may bring initial values as sg_session_declare
 * does; a further ROLLED_BACK or FENCED on the way only begins it anew. FENCED, for good, where another life has this
 * worker's index. No call of an earlier task may be under way. */
uint64_t sg_session_resume(sg_session *session, uint64_t now_ms, uint64_t deadline_ms);
bool sg_session_is_back(const sg_session *session);
/* DONE carries the step. The ticket after it is asked for in the background (calls of task 0) or with a push_pull,
 * and what is known of finished steps with it. INVALID while the step before was not handed over whole, or when one of
 * its pushes came to nothing. */
uint64_t sg_session_ticket(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, uint32_t group);
/* The same without a task, if the ticket is there. */
bool sg_session_ticket_take(sg_session *session, uint64_t now_ms, uint32_t group, sg_step *step);
/* Pushes these slices at `step` (as DONE of its ticket gave it) with this weight. INVALID: no such ticket, a slice of
 * another group or of a frozen variable, one that was pushed at this step before, or (sync) the step's version was not
 * pulled for every slice of the group. */
SG_MUST_USE sg_status sg_session_push(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, const sg_step *step,
                                      uint64_t weight, const uint32_t *slices, size_t n_slices, uint64_t *task,
                                      sg_error *err);
/* The same, and brings the version that the push makes of these slices (async: the newest): with the answer of the push
 * where that has it, by a pull of its own where it has not. */
SG_MUST_USE sg_status sg_session_push_pull(sg_session *session, uint64_t now_ms, uint64_t deadline_ms,
                                           const sg_step *step, uint64_t weight, const uint32_t *slices,
                                           size_t n_slices, uint64_t *task, sg_error *err);
/* Pulls `version` (sync: exactly; async: at least; frozen variables: 0) of these slices. */
uint64_t sg_session_pull(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, uint64_t version,
                         const uint32_t *slices, size_t n_slices);
/* Says that a step was handed over whole (ignored if not): as soon as all its pushes are acknowledged its ticket is
 * given up, and the next ticket request reports loss and examples. */
void sg_session_finish(sg_session *session, uint64_t now_ms, const sg_step *step);
/* The same before leaving: no ticket of the group is asked for any more, the goodbye reports it. */
void sg_session_finish_last(sg_session *session, uint64_t now_ms, const sg_step *step);
/* No more tickets are asked for, and the cluster is told so at once: in ssp nobody waits for this worker any more. */
void sg_session_rest(sg_session *session, uint64_t now_ms);
/* Waits for the pushes under way, then says goodbye; nothing else can be begun from here on. Where a join was cancelled
 * it takes the hello back that was not answered, if somebody may have heard it. */
uint64_t sg_session_leave(sg_session *session, uint64_t now_ms, uint64_t deadline_ms);
/* Ends a task with CANCELLED. One that has ended is left alone. */
void sg_session_cancel(sg_session *session, uint64_t now_ms, uint64_t task);
/* For whom it waits, in words. Valid until the next call. */
const char *sg_session_waiting_for(sg_session *session, uint64_t task);

/* The end of a call. reply: the head of the response where status is OK, borrowed; data has been put in its place by
 * the owner. An `error` from a peer carries its message. */
void sg_session_on_reply(sg_session *session, uint64_t now_ms, uint64_t call, sg_status status, const char *error,
                         const ProtobufCMessage *reply);
/* Repeats, heartbeats, deadlines. Call at sg_session_next_ms at the latest. */
void sg_session_tick(sg_session *session, uint64_t now_ms);
/* When tick is next needed, absolute; UINT64_MAX: not before another event. */
uint64_t sg_session_next_ms(const sg_session *session);

/* What Hello gave; valid after join has ended well. */
typedef struct sg_session_facts {
    uint64_t incarnation, generation, message_bytes, non_finite;
    sg_mode mode;
    uint32_t n_ps, live_workers;
    bool draining;
} sg_session_facts;
void sg_session_facts_get(const sg_session *session, sg_session_facts *facts);
/* Of the generation that it is in; SYNC before it has joined. */
sg_mode sg_session_mode(const sg_session *session);
const char *sg_session_ps_address(const sg_session *session, uint32_t ps);
const sg_plan *sg_session_plan(const sg_session *session); /* NULL before declare */
/* Version that was pulled for every trained slice of the group (async: the lowest of them); UINT64_MAX: none. */
uint64_t sg_session_version(const sg_session *session, uint32_t group);
/* The same of one slice. */
uint64_t sg_session_slice_version(const sg_session *session, uint32_t slice);
/* Lists the trained slices of the group of the step, the newest that was given, whose values are to be pulled before it
 * is computed, and returns how many there are; slices may be NULL. Sync: those of which the step's version is neither
 * there nor on its way; async: none; ssp: those that were asked for when they could be too old. */
size_t sg_session_missing(const sg_session *session, const sg_step *step, uint32_t *slices);
/* Whether all trained slices of the step, which was begun and is not finished, were acknowledged. */
bool sg_session_is_pushed(const sg_session *session, const sg_step *step);
/* Whether a push of this task was refused for want of room (contribution_bytes) while all wait for a slice of the same
 * step that was not handed over yet: then it waits for who hands that over. */
bool sg_session_lacks(const sg_session *session, uint64_t task, uint32_t *slice);
/* OK, or that with which everything ends. */
sg_status sg_session_failed(const sg_session *session, sg_error *err);

#endif
