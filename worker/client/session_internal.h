/* worker/client/session_internal.h - what the files of the session share. Nobody else includes it.
 *
 *     session.c          life, tasks, actions, time
 *     session_calls.c    requests: queues, attempts, repeats, peers that fell silent
 *     session_join.c     hello, heartbeats, leave
 *     session_declare.c  variables and their initial values
 *     session_tickets.c  which step comes next
 *     session_data.c     pushes and pulls
 *
 * A task is what the owner waits for; it has any number of requests. A request is one message that is sent again,
 * unchanged, until it is answered; every sending of it is a call with a number of its own. */
#ifndef SG_WORKER_CLIENT_SESSION_INTERNAL_H
#define SG_WORKER_CLIENT_SESSION_INTERNAL_H

#include <sys/queue.h>

#include "common/status.h"
#include "worker/client/session.h"

#define SG_SESSION_NEVER        UINT64_MAX
#define SG_SESSION_NO_VERSION   UINT64_MAX
#define SG_SESSION_MAX_HELD     2u /* tickets: the one that is computed and one more */
#define SG_SESSION_MAX_PS       65536u
#define SG_SESSION_NO_LANE      UINT32_MAX
#define SG_SESSION_LANES_PER_PS 2u

typedef enum sg_session_task_kind {
    SG_SESSION_TASK_JOIN,
    SG_SESSION_TASK_DECLARE,
    SG_SESSION_TASK_TICKET,
    SG_SESSION_TASK_PUSH,
    SG_SESSION_TASK_PULL,
    SG_SESSION_TASK_LEAVE,
} sg_session_task_kind;

typedef struct sg_session_task {
    TAILQ_ENTRY(sg_session_task) link;
    uint64_t number;
    sg_session_task_kind kind;
    uint32_t group;      /* TICKET */
    uint64_t n_requests; /* that are not settled */
    uint64_t attempt;    /* DECLARE: not 0 once this worker was told to initialize */
    bool answered;       /* somebody has answered, if only that one has to wait */
    uint64_t begun_ms, deadline_ms, warn_ms, warn_interval_ms;
    char *waiting; /* for whom, in the words of the last answer that was none; may be NULL */
} sg_session_task;

typedef struct sg_session_request {
    TAILQ_ENTRY(sg_session_request) link; /* in its lane, or in the session's active list */
    sg_session_task *task;                /* NULL: the session's own */
    sg_session_method method;
    uint32_t target;  /* index of a ps, or SG_SESSION_COORDINATOR */
    uint32_t lane;    /* or SG_SESSION_NO_LANE */
    uint32_t group;   /* TICKET, pushes */
    uint64_t at;      /* pushes: step; PULL: version */
    bool weighs;      /* pushes: weight is not 0 */
    uint32_t *slices; /* data calls: [n_slices], ascending */
    size_t n_slices;
    uint8_t *packed; /* the message */
    size_t packed_bytes;
    uint64_t call;          /* attempt under way; 0: none */
    uint64_t sent_ms;       /* of the last attempt */
    uint64_t not_before_ms; /* of the next one */
    uint32_t failures;      /* attempts since the last answer */
} sg_session_request;
TAILQ_HEAD(sg_session_requests, sg_session_request);

/* Requests to one ps in one direction. At most WINDOW of them are under way: so the deadline of a call measures the
 * peer, not the length of the queue before it, and pulls never wait behind pushes. */
typedef struct sg_session_lane {
    struct sg_session_requests queue; /* not sent yet */
    uint32_t n_active;
} sg_session_lane;

typedef struct sg_session_peer {
    char *address;
    uint64_t heard_ms;        /* its last answer */
    uint64_t silent_since_ms; /* the first sending after it that was not answered; NEVER: none */
    uint32_t n_unanswered;
} sg_session_peer;

typedef struct sg_session_held {
    Shardgrad__V1__TicketResponse *ticket;
    bool given;              /* to the owner, by DONE */
    uint32_t n_acknowledged; /* slices that were pushed */
} sg_session_held;

typedef struct sg_session_group {
    uint32_t *slices; /* those that are trained: [n_slices], ascending */
    uint32_t n_slices;
    sg_session_held held[SG_SESSION_MAX_HELD];
    uint32_t n_held;
    bool wanted;                         /* somebody has asked for a ticket of this group */
    uint64_t received, finished, pushed; /* as TicketRequest and GroupProgress mean them */
    float loss;                          /* not reported yet */
    uint64_t examples;                   /* 0: nothing to report */
    sg_session_request *asking;          /* the ticket request; NULL: none */
    sg_session_task *task;               /* that waits for a ticket; NULL: none */
    sg_status refused;                   /* how the last ticket request ended, for the next task */
    char *refused_text, *waiting;
} sg_session_group;

typedef struct sg_session_slice {
    uint64_t version; /* in the value buffer; NO_VERSION: none */
    uint64_t pushed;  /* 1 + the newest step for which it was handed over; 0: none */
    bool trained;
    bool push_under_way;
} sg_session_slice;

typedef struct sg_session_queued {
    TAILQ_ENTRY(sg_session_queued) link;
    sg_session_action action;
} sg_session_queued;

typedef enum sg_session_state {
    SG_SESSION_NEW,
    SG_SESSION_JOINED,
    SG_SESSION_DECLARING,
    SG_SESSION_DECLARED,
    SG_SESSION_LEFT,
} sg_session_state;

struct sg_session {
    char *job, *address;
    uint32_t worker;
    uint64_t life, random, start_timeout_ms, warn_after_ms;
    Shardgrad__V1__Setting *settings;
    Shardgrad__V1__Setting **setting_list;
    size_t n_settings;

    sg_session_state state;
    bool leaving;
    sg_status failed; /* OK, or that with which everything ends from now on */
    char *failed_text;
    char waits_for[SG_ERROR_MESSAGE_BYTES]; /* the answer of sg_session_waiting_for */

    Shardgrad__V1__HelloResponse *hello;
    sg_session_peer *peers; /* [n_ps + 1], the coordinator last; before Hello that one alone */
    uint32_t n_ps;
    uint32_t live_workers;
    bool draining;
    char *warned_of; /* for whom it waited at warned_ms, when that was logged last; NULL: never */
    uint64_t warned_ms;
    uint64_t non_finite;
    sg_log_pace non_finite_pace;
    uint64_t heartbeat_ms; /* when the next one is due; NEVER */

    sg_plan *plan;
    sg_session_slice *slices; /* [plan->n_slices] */
    sg_session_group *groups; /* [plan->n_groups] */

    uint64_t last_task, last_call;
    TAILQ_HEAD(, sg_session_task) tasks;
    struct sg_session_requests active; /* sent at least once, not settled */
    sg_session_lane *lanes;            /* [n_ps * LANES_PER_PS]: up, down */
    uint64_t n_pushes;                 /* requests not settled */
    TAILQ_HEAD(, sg_session_queued) actions;
};

/* --- session.c ------------------------------------------------------------------------------------------------ */

sg_session_task *sg_session_task_add(sg_session *session, sg_session_task_kind kind, uint64_t now_ms,
                                     uint64_t deadline_ms);
/* Emits DONE, forgets the task's requests and frees it. `format` is read where status is not OK. step may be NULL. */
void sg_session_task_end(sg_session *session, sg_session_task *task, const sg_step *step, sg_status status,
                         const char *format, ...) SG_PRINTF(5, 6);
/* A number for a task that has ended before it began. */
uint64_t sg_session_task_refuse(sg_session *session, sg_status status, const char *format, ...) SG_PRINTF(3, 4);
void sg_session_task_wait(sg_session_task *task, const char *text);
/* Ends everything with this, now and from now on. Only the first one counts. text is copied. */
void sg_session_fail(sg_session *session, sg_status status, const char *text);
void sg_session_log(sg_session *session, sg_log_level level, const char *event, const char *format, ...)
    SG_PRINTF(4, 5);
sg_session_action *sg_session_action_add(sg_session *session, sg_session_action_kind kind);
uint64_t sg_session_random(sg_session *session);
/* Replaces *text by a copy of `with` (NULL: nothing). */
void sg_session_text_set(char **text, const char *with);

/* --- session_calls.c ------------------------------------------------------------------------------------------ */

/* A request that is sent as soon as its lane allows (sg_session_send_due). `message` is packed here. */
sg_session_request *sg_session_request_add(sg_session *session, sg_session_task *task, sg_session_method method,
                                           uint32_t target, const ProtobufCMessage *message);
/* The same for slices of one ps; `slices` is copied. It is queued in the lane of its ps. */
sg_session_request *sg_session_request_add_data(sg_session *session, sg_session_task *task, sg_session_method method,
                                                uint32_t ps, const uint32_t *slices, size_t n_slices, uint64_t at,
                                                const ProtobufCMessage *message);
/* Forgets a request: settled, or given up. */
void sg_session_request_remove(sg_session *session, sg_session_request *request);
void sg_session_requests_drop(sg_session *session, const sg_session_task *task);
void sg_session_requests_drop_all(sg_session *session);
/* Emits CALL for whatever may be sent now. */
void sg_session_send_due(sg_session *session, uint64_t now_ms);
sg_session_peer *sg_session_peer_of(sg_session *session, uint32_t target);
/* PUSH or PUSH_PULL. */
bool sg_session_is_push(sg_session_method method);
void sg_session_peer_init(sg_session_peer *peer, const char *address);
/* Cuts `slices` ([n], ascending) into lists of one ps and at most message_bytes; calls `each` for every one. */
typedef void (*sg_session_pack_fn)(sg_session *session, void *user, uint32_t ps, uint32_t *slices, size_t n);
void sg_session_pack(sg_session *session, const uint32_t *slices, size_t n, sg_session_pack_fn each, void *user);

/* --- what became of requests: the rows of session_calls.c ----------------------------------------------------- */

void sg_session_join_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                              const ProtobufCMessage *reply);
void sg_session_heartbeat_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                                  const char *text);
void sg_session_declare_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                                 const ProtobufCMessage *reply);
void sg_session_tickets_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                                 const ProtobufCMessage *reply);
void sg_session_tickets_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                                const char *text);
void sg_session_data_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                              const ProtobufCMessage *reply);
void sg_session_data_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                             const char *text);

/* --- session_join.c ------------------------------------------------------------------------------------------- */

void sg_session_heartbeat_due(sg_session *session, uint64_t now_ms);
/* Sends Leave once the last push is acknowledged. */
void sg_session_leave_due(sg_session *session);

/* --- session_declare.c ---------------------------------------------------------------------------------------- */

/* A pull of a declaration has been answered: the last one ends it. */
void sg_session_declare_pulled(sg_session *session, sg_session_task *task);
void sg_session_groups_destroy(sg_session *session);

/* --- session_tickets.c ---------------------------------------------------------------------------------------- */

bool sg_session_is_sync(const sg_session *session);
/* Gives out a ticket that is there, asks for one that may be asked for. */
void sg_session_ticket_offer(sg_session *session, uint64_t now_ms, uint32_t group);
/* The ticket that is being computed, if it is this step's; NULL if not. */
sg_session_held *sg_session_held_find(sg_session *session, uint32_t group, uint64_t step);

/* --- session_data.c ------------------------------------------------------------------------------------------- */

void sg_session_pull_add(sg_session *session, sg_session_task *task, uint64_t version, const uint32_t *slices,
                         size_t n_slices);

#endif
