/* worker/client/session_internal.h - what the files of the session share. Nobody else includes it.
 *
 *     session.c           life, tasks, actions, time
 *     session_messages.c  memory of messages and tickets
 *     session_requests.c  requests are made, and forgotten
 *     session_calls.c     their attempts, repeats, peers that fell silent
 *     session_lanes.c     which of the requests to a ps is sent next; how slices are packed into messages
 *     session_join.c      hello, heartbeats, leave
 *     session_declare.c   variables and their initial values
 *     session_back.c      back to an earlier step: another generation
 *     session_tickets.c   which step comes next
 *     session_data.c      pushes and pulls
 *
 * A task is what the owner waits for; it has any number of requests. A request is one message that is sent again,
 * unchanged, until it is answered; every sending of it is a call with a number of its own. Tasks, requests, messages
 * and tickets are recycled: steps that follow each other allocate nothing. */
#ifndef SG_WORKER_CLIENT_SESSION_INTERNAL_H
#define SG_WORKER_CLIENT_SESSION_INTERNAL_H

#include <stdatomic.h>
#include <sys/queue.h>

#include "common/pool.h"
#include "common/status.h"
#include "worker/client/session.h"
#include "worker/client/slots.h"

#define SG_SESSION_NEVER        UINT64_MAX
#define SG_SESSION_NO_VERSION   UINT64_MAX
#define SG_SESSION_MAX_HELD     2u /* tickets: the one that is computed and one more */
#define SG_SESSION_MAX_PS       65536u
#define SG_SESSION_NO_LANE      UINT32_MAX
#define SG_SESSION_LANES_PER_PS 3u /* sg_session_lane_kind */

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
    char *waiting;  /* for whom, in the words of the last answer that was none; may be NULL */
    uint32_t focus; /* PUSH: 1 + the slice that its refused pushes wait for; 0: none was refused since */
    uint64_t focus_step;
} sg_session_task;

/* What the coordinator said of a step, counted: a push repeats it, perhaps longer than the ticket is held. */
typedef struct sg_session_held_ticket {
    atomic_uint n_references;
    Shardgrad__V1__Step step;
    uint32_t rank, size;
    uint64_t lag; /* ssp */
} sg_session_held_ticket;

/* A message, counted: its request and every sending of it refer to the same one. Immutable once it was made. */
typedef struct sg_session_message {
    atomic_uint n_references;
    ProtobufCMessage *body;
    bool unpacked;                  /* the body is of protobuf-c's making, not a part of this */
    sg_session_held_ticket *ticket; /* that the body points into; NULL: none */
    uint32_t *slices;               /* of a data method: [n_slices], ascending */
    size_t n_slices;
    uint64_t slice_bytes; /* theirs together */
} sg_session_message;

typedef enum sg_session_request_state {
    SG_SESSION_REQUEST_BLOCKED, /* in its lane: a push behind one of the same slice that is not acknowledged */
    SG_SESSION_REQUEST_QUEUED,  /* in its lane: it may be sent when there is room */
    SG_SESSION_REQUEST_ACTIVE,  /* in the session's active list: without a lane, or its turn has come */
} sg_session_request_state;

typedef struct sg_session_request {
    TAILQ_ENTRY(sg_session_request) link; /* BLOCKED, ACTIVE */
    sg_session_task *task;                /* NULL: the session's own, or given up */
    sg_session_message *message;
    sg_session_method method;
    sg_session_request_state state;
    uint32_t target;        /* index of a ps, or SG_SESSION_COORDINATOR */
    uint32_t lane;          /* or SG_SESSION_NO_LANE */
    uint32_t group;         /* TICKET, data methods */
    uint64_t at;            /* pushes: step; PULL: version */
    uint64_t number;        /* of its making */
    bool weighs;            /* pushes: weight is not 0 */
    uint64_t call;          /* attempt under way; 0: none */
    uint64_t sent_ms;       /* of the last attempt */
    uint64_t not_before_ms; /* of the next one */
    uint32_t failures;      /* attempts since the last answer */
    uint32_t n_waits;       /* answers that another worker is waited for */
    bool urgent;            /* a push: there is room for one of its slices, and the others wait for it */
    bool resting;           /* ACTIVE: it has left its lane, and goes back to the queue at not_before_ms */
    /* ACTIVE: a push whose task has ended and whose call has not. It has left its lane; the peer may still read it, so
     * that until the call is reported the next push of its slices waits, and the goodbye. */
    bool given_up;
} sg_session_request;
TAILQ_HEAD(sg_session_requests, sg_session_request);

/* Pulls do not wait behind pushes, and those that the ps can answer not behind those that it parks: one that was
 * answered WAITING gives its room away, and is asked for again behind those that have waited less. All groups share the
 * lanes: else the pulls of one, all parked for a worker that needs an answer to its pull of another, would keep this
 * worker from what that one waits for. */
typedef enum sg_session_lane_kind {
    SG_SESSION_LANE_UP,
    SG_SESSION_LANE_DOWN,
    SG_SESSION_LANE_PARKED, /* pulls of what another worker is waited for */
} sg_session_lane_kind;

/* Requests of one kind to one ps. Few of them are under way at a time: so the deadline of a call measures the peer, not
 * the length of the queue before it. */
typedef struct sg_session_lane {
    STAILQ_ENTRY(sg_session_lane) link; /* of those that may have something to send */
    bool touched;                       /* it is among them */
    uint32_t n_active;
    uint64_t active_bytes;      /* of their slices */
    sg_session_request **queue; /* [n_queued] a heap: who waited least first, then the lowest slice, then the oldest */
    size_t n_queued, capacity;
    struct sg_session_requests blocked; /* oldest first */
    bool look;                          /* one was added, or a slice became free, since they were looked at */
    /* UP: the ps had no room for the last one, which rests; until it is back only urgent ones go. */
    bool full;
    uint32_t n_refusals; /* since something was let in */
} sg_session_lane;

typedef struct sg_session_peer {
    char *address;
    uint64_t heard_ms;        /* its last answer */
    uint64_t silent_since_ms; /* the first sending after it that was not answered; NEVER: none */
    uint32_t n_unanswered;    /* how often it was asked in vain since: what was on its way together counts as once */
    uint64_t in_vain_ms;      /* when that was seen last */
} sg_session_peer;

typedef struct sg_session_held {
    sg_session_held_ticket *ticket;
    bool given; /* to the owner */
    /* slices that were pushed; whose push was acknowledged; whose push ended without that */
    uint32_t n_handed_over, n_acknowledged, n_lost;
    bool finished; /* says the owner, with these: */
    float loss;
    uint64_t examples, iteration;
    sg_tested tested;
} sg_session_held;

typedef struct sg_session_group {
    uint32_t *slices; /* those that are trained: [n_slices], ascending */
    uint32_t n_slices;
    sg_session_held held[SG_SESSION_MAX_HELD]; /* in the order of their steps: those that were given come first */
    uint32_t n_held;
    /* Sync: slices that hold the version of the newest step that was given, or were pushed at it. */
    uint32_t n_ready;
    /* Ssp. The newest request when a step was given last; whether what was asked for since does for the next step, too;
     * and the newest request whose values are too old for the step that was given last. */
    uint64_t given_at, too_old;
    bool next_too;
    bool wanted;                          /* somebody has asked for a ticket of this group */
    bool seldom;                          /* it does not step in every iteration */
    bool on_coordinator;                  /* ps 0 owns a slice of it that is trained */
    bool rides;                           /* the next ticket is asked for with the next push, unless somebody waits */
    uint64_t received, finished, pushed;  /* as TicketRequest and GroupProgress mean them */
    uint64_t begun;                       /* the same, of which something was handed over */
    uint64_t late_begun;                  /* that of the incarnation that was too late */
    float loss;                           /* of the newest finished step */
    uint64_t examples;                    /* of it */
    uint64_t reported;                    /* as `finished`: what the coordinator has heard of */
    sg_tested tested;                     /* the newest; `of` 0: nothing was */
    uint64_t tested_iteration, tested_at; /* of it; `finished` when its step was */
    sg_session_request *asking;           /* the ticket request; NULL: none */
    sg_session_request *riding;           /* the push that asks for a ticket; NULL: none */
    sg_session_task *task;                /* that waits for a ticket; NULL: none */
    sg_status refused;                    /* how the last ticket request ended, for the next task */
    char *refused_text, *waiting;
} sg_session_group;

typedef struct sg_session_slice {
    uint64_t version; /* in the value buffer; NO_VERSION: none */
    uint64_t coming;  /* 1 + the version that the newest request for its values will bring; 0: there is none */
    uint64_t pushed;  /* 1 + the newest step for which it was handed over; 0: none */
    uint64_t asked;   /* number of the request that brought its values; 0: none */
    bool trained;
    bool push_pending; /* a push of it is queued or under way, if only one that was given up */
} sg_session_slice;

/* Slices on their way into a message for one ps, chained in session->pack_next. */
typedef struct sg_session_pack_list {
    uint32_t first, last, n;
    uint64_t bytes;
} sg_session_pack_list;

typedef enum sg_session_state {
    SG_SESSION_NEW,
    SG_SESSION_JOINED,
    SG_SESSION_DECLARING,
    SG_SESSION_DECLARED,
    SG_SESSION_LEFT,
} sg_session_state;

/* How far a session is that was rolled back, or fenced. */
typedef enum sg_session_back {
    SG_SESSION_STANDS,
    SG_SESSION_FENCED,       /* its incarnation does nothing more; it says hello as another when it is told to */
    SG_SESSION_BACK_HELLO,   /* it says hello again */
    SG_SESSION_BACK_DECLARE, /* it has joined, and declares when it is told to */
} sg_session_back;

struct sg_session {
    char *job, *address;
    uint32_t worker;
    uint64_t data_examples;
    uint64_t life, random, start_timeout_ms, warn_after_ms, park_ms, connections;
    uint32_t members; /* of the newest step that was given; 0: none was */
    Shardgrad__V1__Setting *settings;
    Shardgrad__V1__Setting **setting_list;
    size_t n_settings;

    sg_session_state state;
    bool leaving;
    bool said_hello;         /* at least once */
    bool has_trained;        /* it has had a ticket, in whatever generation */
    bool was_declared;       /* at least once: a declaration was answered to its end */
    bool resting, rest_told; /* no more tickets are asked for; a heartbeat has said so */
    sg_status failed;        /* OK, or that with which everything ends from now on */
    char *failed_text;
    sg_session_back back;
    sg_status back_status;  /* with which what was under way ends: ROLLED_BACK, or LATE */
    uint64_t after;         /* incarnation that it had when it was fenced, until hello is answered; 0: none */
    uint64_t seen_ms;       /* when it was last told the time */
    char *back_text;        /* why */
    uint64_t late;          /* incarnation that was too late and is given up; 0: none */
    uint64_t back_until_ms; /* the coordinator must have said something by then */
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
    uint32_t *every; /* [n_every] of groups, as DeclareRequest means it */
    uint32_t n_every;
    Shardgrad__V1__DeclareRequest *declared; /* NULL before declare */
    sg_session_slice *slices;                /* [plan->n_slices] */
    sg_session_group *groups;                /* [plan->n_groups] */

    sg_pool *pool;
    uint64_t last_task, last_call, last_request;
    TAILQ_HEAD(, sg_session_task) tasks;
    sg_slots tasks_by_number, requests_by_call;
    uint64_t due_ms;                   /* no task's time, and no repeat, comes before it */
    struct sg_session_requests active; /* without a lane, or their turn has come */
    uint32_t n_idle;                   /* of them: no attempt is under way */
    sg_session_lane *lanes;            /* [n_ps * LANES_PER_PS]: of each ps up, down, parked */
    STAILQ_HEAD(, sg_session_lane) touched;
    uint64_t n_pushes; /* requests that have not ended, those that were given up included */
    /* of sg_session_pack: [n_ps], ps that have a list now: [n_ps], [plan->n_slices] */
    sg_session_pack_list *pack_lists;
    uint32_t *pack_ps, *pack_next;
    /* a ring: [n_actions] from first_action on */
    sg_session_action *actions;
    size_t first_action, n_actions, actions_capacity;
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

/* Something may be due then. */
void sg_session_due(sg_session *session, uint64_t at_ms);

/* --- session_messages.c --------------------------------------------------------------------------------------- */

/* A copy of a head that carries no slices. */
sg_session_message *sg_session_message_copy(sg_session *session, const ProtobufCMessage *body);
/* With room for the slices (not filled in), as many numbers of theirs, and a zeroed body of body_bytes. */
sg_session_message *sg_session_message_create(sg_session *session, size_t body_bytes, size_t n_slices,
                                              uint64_t **numbers);
void sg_session_message_unref(sg_session_message *message); /* any thread */

sg_session_held_ticket *sg_session_ticket_copy(sg_session *session, const Shardgrad__V1__TicketResponse *response);
void sg_session_ticket_unref(sg_session_held_ticket *ticket);

/* --- session_requests.c --------------------------------------------------------------------------------------- */

/* A request that is sent as soon as may be (sg_session_send_due). `body` is copied. */
sg_session_request *sg_session_request_add(sg_session *session, sg_session_task *task, sg_session_method method,
                                           uint32_t target, const ProtobufCMessage *body);
/* The same for slices of one ps, in a lane of that ps. */
sg_session_request *sg_session_request_add_data(sg_session *session, sg_session_task *task, sg_session_method method,
                                                sg_session_lane_kind kind, uint32_t ps,
                                                sg_session_message *take_message, uint64_t at);
/* Forgets a request that is active, or was taken out of its lane; a push that is under way once its call was reported.
 */
void sg_session_request_remove(sg_session *session, sg_session_request *request);
void sg_session_requests_drop(sg_session *session, const sg_session_task *task);
void sg_session_requests_drop_all(sg_session *session);
/* Frees them all, those under way too: no call will be reported any more. */
void sg_session_requests_destroy(sg_session *session);
/* The parts of removing one. It has no task any more, and its room is free; so is what it asks for to be asked again.
 */
void sg_session_request_release(sg_session *session, sg_session_request *request);
/* No call of it is under way any more: for a push, the next one of its slices may follow. */
void sg_session_request_end(sg_session *session, sg_session_request *request);
void sg_session_request_free(sg_session_request *request);
/* It came to nothing: if it is a push, its step is never finished. */
void sg_session_push_lost(sg_session *session, const sg_session_request *request);

/* --- session_calls.c ------------------------------------------------------------------------------------------ */

/* Emits CALL for whatever may be sent now. */
void sg_session_send_due(sg_session *session, uint64_t now_ms);
/* Emits CALL for this one, which is active. */
void sg_session_request_send(sg_session *session, sg_session_request *request, uint64_t now_ms);
/* The pause before the n-th repeat: first_ms, doubled with each up to most_ms; of that at least half, at random. */
uint64_t sg_session_back_off(sg_session *session, uint64_t first_ms, uint64_t most_ms, uint32_t n);
/* Forgives peers what they did not say while the process stood still. */
void sg_session_look_at_clock(sg_session *session, uint64_t now_ms);
sg_session_peer *sg_session_peer_of(sg_session *session, uint32_t target);
void sg_session_peer_init(sg_session_peer *peer, const char *address);

/* --- session_lanes.c ------------------------------------------------------------------------------------------ */

void sg_session_lanes_create(sg_session *session);
void sg_session_lanes_destroy(sg_session *session);
void sg_session_lane_add(sg_session *session, sg_session_request *request);
/* A pull that is active was answered WAITING: others get its room. */
void sg_session_lane_rest(sg_session *session, sg_session_request *request);
/* A push that is active was refused for want of room: it rests, and others of its lane with it, but for the one that
 * has the slice `focus`. goes_on: this one has it, and it is not stored yet: it is sent again at once. */
void sg_session_lane_refuse(sg_session *session, uint64_t now_ms, sg_session_request *push, uint32_t focus,
                            bool goes_on);
/* Queues one that rests: a pull among the parked ones. */
void sg_session_lane_return(sg_session *session, sg_session_request *request);
/* Its room is free; it is active. */
void sg_session_lane_leave(sg_session *session, const sg_session_request *request);
/* Forgets requests that are not active; those of `task`, or all of them: NULL. */
void sg_session_lanes_drop(sg_session *session, const sg_session_task *task);
/* The slices of this push are free for their next one. */
void sg_session_lane_unblock(sg_session *session, const sg_session_request *push);
/* Sends from all lanes that were touched. */
void sg_session_lanes_send(sg_session *session, uint64_t now_ms);
/* Cuts `slices` ([n], ascending) into messages for one ps of at most message_bytes, in that order, and calls `each`
 * for every one. */
typedef void (*sg_session_pack_fn)(sg_session *session, void *user, uint32_t ps, const sg_session_pack_list *list);
void sg_session_pack(sg_session *session, const uint32_t *slices, size_t n, sg_session_pack_fn each, void *user);
/* A message for this list: sg_session_message_create with the slices filled in. */
sg_session_message *sg_session_pack_message(sg_session *session, const sg_session_pack_list *list, size_t body_bytes,
                                            uint64_t **numbers);
/* What sg_session_pack needs; the plan exists. */
void sg_session_pack_create(sg_session *session);
void sg_session_pack_destroy(sg_session *session);

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
/* Asks again where the ps had no room for all that was pushed. False: it had. */
bool sg_session_data_repeat(sg_session *session, uint64_t now_ms, sg_session_request *request,
                            const ProtobufCMessage *reply);
void sg_session_data_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                             const char *text);

/* --- session_join.c ------------------------------------------------------------------------------------------- */

void sg_session_hello_ask(sg_session *session, sg_session_task *task);
SG_MUST_USE sg_status sg_session_hello_check(const Shardgrad__V1__HelloResponse *hello, sg_error *err);
void sg_session_heartbeat_due(sg_session *session, uint64_t now_ms);
/* Sends Leave once the last push is acknowledged. */
void sg_session_leave_due(sg_session *session);

/* --- session_declare.c ---------------------------------------------------------------------------------------- */

/* A pull of a declaration has been answered: the last one ends it. */
void sg_session_declare_pulled(sg_session *session, sg_session_task *task);
void sg_session_groups_destroy(sg_session *session);

/* (Re)sends the declaration on behalf of the task. */
void sg_session_declare_ask(sg_session *session, sg_session_task *task);

/* --- session_back.c ------------------------------------------------------------------------------------------- */

/* The generation has passed, or this worker has given it up. `text` says why. */
void sg_session_roll_back(sg_session *session, uint64_t now_ms, const char *text);
/* Its incarnation was fenced: what is under way ends with FENCED, and so does everything until sg_session_resume.
 * Before it has declared it comes again at once, and a declaration that is under way begins anew. */
void sg_session_fence(sg_session *session, uint64_t now_ms, const char *text);
/* Backup workers: others closed a step without this one, which drops its tickets and joins again. */
void sg_session_fall_behind(sg_session *session, uint64_t now_ms, const char *text);
/* Whether LATE says that. */
bool sg_session_may_be_late(const sg_session *session);
/* Hello was answered once more. */
void sg_session_back_joined(sg_session *session, uint64_t now_ms, const Shardgrad__V1__HelloResponse *hello);
void sg_session_hello_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                              const char *text);
/* That declares, if only once hello was answered; NULL: none. */
sg_session_task *sg_session_back_task(const sg_session *session);
void sg_session_back_tick(sg_session *session, uint64_t now_ms);
/* OK; ROLLED_BACK or FENCED while it is not as it was declared; that with which everything ended. */
SG_MUST_USE sg_status sg_session_stands(const sg_session *session, sg_error *err);

/* --- session_tickets.c ---------------------------------------------------------------------------------------- */

bool sg_session_is_sync(const sg_session *session);
bool sg_session_is_ssp(const sg_session *session);
/* Gives out a ticket that is there, asks for one that may be asked for. */
void sg_session_ticket_offer(sg_session *session, uint64_t now_ms, uint32_t group);
/* The ticket of this step, if it was given; NULL if not. */
sg_session_held *sg_session_held_find(sg_session *session, uint32_t group, uint64_t step);
/* A request for a ticket that is to be repeated, because it was told to wait: with what was finished meanwhile. */
void sg_session_ticket_renew(sg_session *session, sg_session_request *request);
/* Asks for the next ticket with a push to ps 0, where one may be asked for; false: none may. */
bool sg_session_ticket_ride(sg_session *session, uint32_t group, Shardgrad__V1__TicketRequest *request);
/* What came with the answer to it; NULL: nothing. */
void sg_session_ticket_rode(sg_session *session, uint64_t now_ms, uint32_t group,
                            const Shardgrad__V1__TicketRequest *asked, const Shardgrad__V1__TicketResponse *ticket);
/* Examples of the newest finished step, if the coordinator has not heard of it. */
uint64_t sg_session_unreported(const sg_session_group *group);
/* Whether something was tested of which the coordinator has not heard. */
bool sg_session_has_tested(const sg_session_group *group);
/* Ends the task that waits for a ticket of this group, if none will come: a push of a step that is held was lost. */
void sg_session_ticket_lost(sg_session *session, uint32_t group);
/* Sync: whether the version of this step, the newest, was pulled for every slice. One that was pushed at it may hold
 * the next already. */
bool sg_session_step_is_ready(const sg_session *session, const sg_session_held *held);
/* Gives up the tickets of steps that are finished. */
void sg_session_finish_due(sg_session *session, uint64_t now_ms, uint32_t group);
/* Keeps n_ready right: what is in the value buffer of a slice from now on. */
void sg_session_slice_set(sg_session *session, uint32_t slice, uint64_t version);

/* --- session_data.c ------------------------------------------------------------------------------------------- */

/* kind: DOWN or PARKED. */
void sg_session_pull_add(sg_session *session, sg_session_task *task, sg_session_lane_kind kind, uint64_t version,
                         const uint32_t *slices, size_t n_slices);

#endif
