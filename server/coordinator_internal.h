/* server/coordinator_internal.h - the state of the coordinator, shared by the coordinator_*.c files and nobody else.
 *
 *   coordinator.c            the public calls: check the caller, hand on to a file below, settle
 *   coordinator_settings.c   what all processes must agree on
 *   coordinator_actions.c    what goes out; calls that are parked
 *   coordinator_orders.c     the numbered sequence of orders of each ps
 *   coordinator_ps.c         registration and leases of ps
 *   coordinator_generation.c generations: what begins one, and how far it has come
 *   coordinator_members.c    workers: hello, heartbeat, leave, leases, fencing
 *   coordinator_losses.c     workers whose lease ran out: excused, held back, or the end of the job
 *   coordinator_variables.c  is a declared list valid, and the same as the one that is known?
 *   coordinator_init.c       declare, attempts, seal, commit
 *   coordinator_steps.c      iterations that are frozen, steps that were handed out, excuses from them
 *   coordinator_tickets.c    which ticket a request gets
 *   coordinator_clocks.c     ssp: how far workers may run ahead of each other
 *   coordinator_save.c       checkpoints: marks, cuts, reports; draining for the last one
 *   coordinator_manifest.c   what is written beside the values
 *   coordinator_hyper.c      sets of hyper-parameters
 *   coordinator_end.c        draining, failure, and telling everybody
 *   coordinator_status.c     for whom the job waits; the status message
 *
 * Every request is handled in two strokes: it changes the state or parks, and then sg_coordinator_settle looks at every
 * parked call again until nothing moves. So no event has to know who waits for it. */
#ifndef SG_SERVER_COORDINATOR_INTERNAL_H
#define SG_SERVER_COORDINATOR_INTERNAL_H

#include <inttypes.h>
#include <string.h>
#include <sys/queue.h>

#include "common/wire.h"
#include "common/workers.h"
#include "server/coordinator.h"

#define SG_COORDINATOR_PROTOCOL       1u
#define SG_COORDINATOR_MAX_HYPERS     4096u      /* hyper-parameter sets of a job */
#define SG_COORDINATOR_MAX_CHANGES    32u        /* keys that one set changes */
#define SG_COORDINATOR_MAX_GENERATION UINT32_MAX /* it is the upper half of an incarnation */
#define SG_COORDINATOR_MAX_GROUPS     64u
#define SG_COORDINATOR_MAX_RANK       8u
#define SG_COORDINATOR_TEXT_BYTES     256u
#define SG_COORDINATOR_TICK_MS        UINT64_C(100)
/* Lives that had an index before the one of now: a late repeat of their Hello must not count as a new life. */
#define SG_COORDINATOR_PAST_LIVES 8u
/* Of checkpoints that were asked for: requests that are known again, results that are remembered. */
#define SG_COORDINATOR_SAVE_ASKS    32u
#define SG_COORDINATOR_SAVE_RESULTS 8u
#define SG_COORDINATOR_SAVE_LATER   UINT64_MAX

/* --- what goes out, who waits --------------------------------------------------------------------------------- */

typedef struct sg_coordinator_queued {
    STAILQ_ENTRY(sg_coordinator_queued) link;
    sg_coordinator_action action;
} sg_coordinator_queued;

typedef enum sg_coordinator_parked_kind {
    SG_COORDINATOR_PARKED_HELLO,
    SG_COORDINATOR_PARKED_DECLARE,
    SG_COORDINATOR_PARKED_INITIALIZED,
    SG_COORDINATOR_PARKED_TICKET,
    SG_COORDINATOR_PARKED_SAVE, /* of no worker */
    SG_COORDINATOR_PARKED_SET,  /* of nobody in particular */
} sg_coordinator_parked_kind;

/* What is to be kept of a ticket request while it waits. */
typedef struct sg_coordinator_ask {
    uint32_t group;
    bool has_iteration;
    uint64_t iteration;
    uint64_t received, finished;
} sg_coordinator_ask;

typedef struct sg_coordinator_parked {
    TAILQ_ENTRY(sg_coordinator_parked) link;
    sg_coordinator_parked_kind kind;
    void *call;
    uint32_t worker;
    uint64_t incarnation;
    uint64_t until_ms;
    uint64_t after;         /* HELLO: it wants a later generation than this */
    uint64_t attempt;       /* INITIALIZED */
    uint64_t hyper;         /* SET: number */
    sg_coordinator_ask ask; /* TICKET */
    uint64_t save;          /* SAVE: number of the checkpoint that it waits for; LATER: its number is found later, */
    uint64_t save_id;       /* by this */
} sg_coordinator_parked;

/* --- ps ------------------------------------------------------------------------------------------------------- */

typedef struct sg_coordinator_order_item {
    STAILQ_ENTRY(sg_coordinator_order_item) link;
    uint64_t generation;    /* that it belongs to */
    ProtobufCMessage *body; /* PsDeclareRequest or OrderRequest, without its header */
} sg_coordinator_order_item;

typedef enum sg_coordinator_ps_state {
    SG_COORDINATOR_PS_WAITING, /* has not registered */
    SG_COORDINATOR_PS_UP,
    SG_COORDINATOR_PS_STOPPING,
    SG_COORDINATOR_PS_LOST,
} sg_coordinator_ps_state;

/* What a ps said of its part of the checkpoint under way. */
typedef struct sg_coordinator_saved {
    bool reported;
    sg_status status;
    uint64_t folder;
    sg_checkpoint_part part; /* of 0 bytes: it owns no slice */
    char message[SG_ERROR_MESSAGE_BYTES];
} sg_coordinator_saved;

typedef struct sg_coordinator_ps {
    sg_coordinator_ps_state state;
    uint64_t life;
    uint64_t past_lives[SG_COORDINATOR_PAST_LIVES];
    uint32_t n_past_lives; /* counts on; the array is a ring */
    char *address;
    uint64_t heard_ms;
    bool missed; /* the job waits for it, and ends when it has waited long enough; since: */
    uint64_t missed_ms;
    Shardgrad__V1__PsReport *report; /* NULL: none yet */
    uint64_t reported_ms;            /* when it came */
    uint64_t generation;             /* that its life has entered, or was ordered to; 0: none */

    STAILQ_HEAD(, sg_coordinator_order_item) orders;
    uint32_t n_orders;
    uint64_t sequence; /* of the order at the head */
    bool under_way;
    bool sent_once;    /* the order at the head was sent: it may have been applied */
    uint64_t retry_ms; /* not sent again before */
    uint64_t backoff_ms;

    uint64_t *admitted; /* [max_workers] newest incarnation of each index that it acknowledged */
    uint64_t attempt;   /* newest that it acknowledged */
    uint64_t sealed;    /* attempt that it acknowledged as complete; 0: none */
    uint64_t hyper;     /* newest set of hyper-parameters that it acknowledged */
    bool seal_ordered;  /* a Seal of the current attempt is in its queue */
    bool committed;
    bool loaded; /* the checkpoint that this generation starts from */
    bool ended;
    sg_coordinator_saved saved;
} sg_coordinator_ps;

/* --- workers -------------------------------------------------------------------------------------------------- */

typedef enum sg_coordinator_worker_state {
    SG_COORDINATOR_WORKER_WAITING, /* no life of it is known, or its hello was never answered and it fell silent */
    SG_COORDINATOR_WORKER_HELLO,   /* its hello is not answered yet */
    SG_COORDINATOR_WORKER_JOINED,
    SG_COORDINATOR_WORKER_LEFT,
    SG_COORDINATOR_WORKER_LOST, /* its lease ran out; fenced */
} sg_coordinator_worker_state;

/* How far one incarnation came in one group. */
typedef struct sg_coordinator_progress {
    bool asked;
    uint64_t granted;    /* sync: 1 + the newest step handed out; async: tickets handed out; 0: none */
    uint64_t granted_at; /* `received` of the request that got the newest ticket */
    uint64_t first;      /* sync: the first step handed out */
    uint64_t finished;   /* as reported */
    uint64_t step;       /* async: number of the newest ticket */
    uint64_t iteration;  /* async: of the newest ticket */
    uint64_t clock_from; /* ssp: its clock when it first asked */
    uint64_t hyper;      /* async: set of the newest ticket, */
    float learning_rate; /* and its rate */
    uint64_t lag;        /* ssp: how far its clock was above the slowest when it got the newest ticket */
} sg_coordinator_progress;

typedef struct sg_coordinator_past_life {
    uint64_t life; /* 0: it has another incarnation now */
    uint64_t incarnation;
} sg_coordinator_past_life;

typedef struct sg_coordinator_worker {
    uint64_t life, incarnation; /* 0: none yet */
    sg_coordinator_past_life past_lives[SG_COORDINATOR_PAST_LIVES];
    uint32_t n_past_lives;
    sg_coordinator_worker_state state;
    char *address; /* for people; never NULL */
    uint64_t heard_ms;
    uint64_t declared; /* 0: not; else its place in the order of declarations */
    bool called;       /* under its incarnation, so the answer to its hello has reached it */
    bool told;         /* the job's end */

    bool asked;   /* for a ticket of any group */
    bool resting; /* it asks for no more */
    bool member;  /* of every iteration >= member_from that is frozen while it lives */
    uint64_t member_from;
    sg_coordinator_progress *groups; /* [n_groups]; NULL before its first ticket request */

    uint64_t given_up; /* incarnation that was too late, whose heartbeats still keep its lease; 0: none */
    bool gives_up;     /* it missed a ps and gave this generation up; since when its hello waits: */
    uint64_t gave_up_ms;
    bool returned;          /* it did, was let in again, and has finished no step since */
    uint64_t data_examples; /* in its data set; 0: it did not say */
    float loss;             /* newest reported */
    uint64_t late;          /* steps that others closed without it, of all incarnations of its life */
    uint64_t examples;
} sg_coordinator_worker;

/* What the steps know of one incarnation. */
typedef struct sg_coordinator_life {
    uint32_t worker;
    uint64_t incarnation;
    bool member;
    uint64_t member_from;
} sg_coordinator_life;

/* A member that is lost, and not excused yet. */
typedef struct sg_coordinator_loss {
    TAILQ_ENTRY(sg_coordinator_loss) link;
    sg_coordinator_life life;
    bool returns; /* its process is there and takes its place again, whatever on_worker_loss says */
    uint64_t since_ms;
    uint32_t n_fenced; /* ps that acknowledged that it is fenced, and said: */
    uint64_t *lacking; /* [n_groups] lowest step that a slice lacks of it; UINT64_MAX: none said so */
} sg_coordinator_loss;

/* --- steps (sync) ----------------------------------------------------------------------------------------------- */

typedef struct sg_coordinator_gone {
    uint32_t worker;
    uint64_t incarnation;
} sg_coordinator_gone;

/* An iteration of which a ticket was handed out: its members are frozen, over all groups. */
typedef struct sg_coordinator_iteration {
    TAILQ_ENTRY(sg_coordinator_iteration) link;
    uint64_t number;
    sg_workers members;
    sg_workers gone_set;
    sg_coordinator_gone *gone; /* [n_gone] members that will not take part in steps that are opened later */
    uint32_t n_gone;
    uint32_t n_steps; /* records that refer to it */
} sg_coordinator_iteration;

/* A step of a group of which a ticket was handed out and which not all members have finished. */
typedef struct sg_coordinator_step {
    TAILQ_ENTRY(sg_coordinator_step) link;
    uint64_t number;
    sg_coordinator_iteration *iteration;
    float learning_rate;
    uint64_t mark;   /* the newest checkpoint that it is not in */
    uint64_t hyper;  /* number of its set */
    sg_workers done; /* members that finished it or are excused from it */
} sg_coordinator_step;

typedef struct sg_coordinator_group {
    uint64_t every; /* it steps in every so-manyth iteration; 0: nobody has declared that to this coordinator */
    TAILQ_HEAD(sg_coordinator_steps, sg_coordinator_step) steps; /* ascending */
    uint64_t next_step;                                          /* that nobody was given yet */
    uint64_t last_iteration;                                     /* of the newest step, if next_step > 0 */
    uint64_t clock;                                              /* ssp: the slowest, when a ticket was last granted */
    bool opened; /* a step was, in this generation; the first one was: */
    uint64_t first;
    uint64_t pushed; /* 1 + the newest step to which somebody has, or may have, pushed in this generation; 0: none */
    uint64_t pushed_iteration; /* of that step */
    uint64_t mark;             /* the newest checkpoint that its next steps are not in; 0: there is none */
} sg_coordinator_group;

/* --- checkpoints ---------------------------------------------------------------------------------------------- */

typedef enum sg_coordinator_save_phase {
    SG_COORDINATOR_SAVE_IDLE,
    SG_COORDINATOR_SAVE_MARKED,  /* its mark is set; the first step beyond it is not known of every group */
    SG_COORDINATOR_SAVE_CUT,     /* every ps is told, and writes */
    SG_COORDINATOR_SAVE_WRITING, /* the manifest */
} sg_coordinator_save_phase;

typedef struct sg_coordinator_save_ask {
    uint64_t id, number;
} sg_coordinator_save_ask;

typedef struct sg_coordinator_save_result {
    uint64_t number, iteration;
    sg_status status;
    char message[SG_ERROR_MESSAGE_BYTES];
} sg_coordinator_save_result;

typedef struct sg_coordinator_save {
    sg_coordinator_save_phase phase;
    bool complete;                             /* one is, of this generation, or this started from one: */
    bool failed;                               /* one has, since then */
    bool again;                                /* one is to be begun when that under way is over */
    bool urgent;                               /* somebody waits for the newest one that was begun */
    uint64_t number;                           /* of the newest one that was begun; they count from 1 */
    uint64_t mark;                             /* of the newest one: its iteration */
    uint64_t ticket_mark;                      /* what steps carry that are not in it; no two cuts have the same */
    uint64_t free_ticket_mark;                 /* least that none has had, in this generation */
    uint64_t steps[SG_COORDINATOR_MAX_GROUPS]; /* first that is not in it, */
    bool known[SG_COORDINATOR_MAX_GROUPS];     /* where that is known, */
    uint32_t n_known;                          /* of so many groups */
    sg_workers members;
    uint64_t began_ms;
    uint64_t tried;                  /* mark of the newest one that was cut */
    uint64_t hyper;                  /* number of the set that was in force at its cut */
    uint64_t iteration, complete_ms; /* of the newest complete one */
    sg_checkpoint_set current;       /* what this generation started from; generation 0: nothing */
    uint64_t failed_ms;
    char failure[SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_save_ask asks[SG_COORDINATOR_SAVE_ASKS]; /* a ring */
    uint32_t n_asks;
    sg_coordinator_save_result results[SG_COORDINATOR_SAVE_RESULTS]; /* by number */
} sg_coordinator_save;

/* The job is to end, and a last checkpoint is made first. */
typedef struct sg_coordinator_drain {
    bool on;
    bool tried; /* the last one was begun */
    bool stop;  /* because a ps was told to: this one, */
    uint32_t ps;
    uint64_t since_ms, by_ms; /* then, and not later than then */
} sg_coordinator_drain;

/* --- the whole ------------------------------------------------------------------------------------------------ */

typedef struct sg_coordinator_setting {
    char *key, *value;
} sg_coordinator_setting;

/* A set of hyper-parameters: the configuration with what was changed. */
typedef struct sg_coordinator_hyper {
    uint64_t request; /* that asked for it; 0: the cluster file */
    const sg_config *config;
    sg_config *owned; /* the same, or NULL */
    uint64_t *steps;  /* [n_steps] by group, the first that has it; once it is in force */
    uint32_t n_steps;
    sg_checkpoint_change *changes; /* [n_changes] what was changed since the cluster file, each key once */
    uint32_t n_changes;
} sg_coordinator_hyper;

struct sg_coordinator {
    const sg_config *config;
    sg_coordinator_hyper *hypers; /* [n_hypers] number i + 1 */
    uint64_t n_hypers;
    uint64_t in_force; /* number of the newest that every ps has: steps that are frozen from now on have it */
    sg_pool *pool;     /* of what comes and goes with every step */
    sg_coordinator_setting *settings; /* [n_settings] that everybody must agree on */
    size_t n_settings;
    uint64_t now_ms;
    uint64_t ticked_ms; /* valid if `ticked` */

    STAILQ_HEAD(, sg_coordinator_queued) actions;
    TAILQ_HEAD(sg_coordinator_parked_list, sg_coordinator_parked) parked;
    uint32_t n_parked;

    Shardgrad__V1__JobState state;
    uint64_t generation;
    uint64_t entered_ms;              /* the generation, for people */
    char why[SG_ERROR_MESSAGE_BYTES]; /* the next one begins */
    sg_workers awaited;               /* for the first step of this one; empty: `workers` of any index */
    bool has_returned;                /* somebody whom only a coordinator before this one knew: others may follow */
    uint64_t running_ms;              /* since when all is loaded */
    uint32_t n_ps;
    sg_coordinator_ps *ps;
    uint32_t n_workers; /* config->max_workers */
    sg_coordinator_worker *workers;
    uint64_t counter; /* of the newest incarnation; 0: none was given out */

    TAILQ_HEAD(sg_coordinator_losses, sg_coordinator_loss) losses; /* held back, oldest first */

    Shardgrad__V1__DeclareRequest *variables; /* as the first declared them; NULL: nobody has */
    uint32_t n_groups;
    uint64_t n_declared; /* declarations so far */
    uint64_t attempt;    /* of the initializer of now; 0: none was named yet */
    uint32_t initializer;

    sg_coordinator_group groups[SG_COORDINATOR_MAX_GROUPS];
    TAILQ_HEAD(sg_coordinator_iterations, sg_coordinator_iteration) iterations; /* retained, newest last */
    uint64_t frozen;                                                            /* 1 + the highest ever frozen */
    uint64_t examples;

    sg_coordinator_save save;
    sg_coordinator_drain drain;

    sg_status end_status; /* with which every call is failed once the job is over, STOPPED where it ended well */
    char *end_text;
    uint64_t over_ms;    /* since when it is over */
    uint64_t release_ms; /* since when every ps that lives knows it */

    char waiting_for[SG_ERROR_MESSAGE_BYTES]; /* as of the last tick */
    uint64_t waiting_since_ms, warn_at_ms;

    sg_checkpoint_set damaged; /* while recording: from which the next one cannot start; generation 0: none */

    bool ticked;
    bool recording; /* the next one; nobody is told of it before that is done */
    bool restores;  /* this one starts from c->save.current */
    bool is_first;  /* this one begins a job: ps may come when they like */
    bool has_initializer, sealing, committing;
    bool started;  /* `workers` have asked */
    bool over;     /* DRAINING, DONE or FAILED */
    bool stopped;  /* because a ps was told to stop */
    bool released; /* every ps that lives knows that it is over */
    bool end_told; /* the END action is out */
};

/* Async, or ssp: no step has members. */
static inline bool sg_coordinator_is_async(const sg_coordinator *c)
{
    return c->config->update.mode != SG_MODE_SYNC;
}

/* --- coordinator_actions.c -------------------------------------------------------------------------------------- */

void sg_coordinator_reply(sg_coordinator *c, void *call, const ProtobufCMessage *body); /* body is copied */
void sg_coordinator_fail(sg_coordinator *c, void *call, sg_status status, const char *format, ...) SG_PRINTF(4, 5);
void sg_coordinator_fail_error(sg_coordinator *c, void *call, const sg_error *error);
void sg_coordinator_log(sg_coordinator *c, sg_log_level level, const char *event, const char *format, ...)
    SG_PRINTF(4, 5);
void sg_coordinator_send(sg_coordinator *c, uint32_t ps, ProtobufCMessage *take_body);
void sg_coordinator_save_set(sg_coordinator *c, const sg_checkpoint_manifest *manifest); /* copied */
void sg_coordinator_record(sg_coordinator *c, uint64_t above);
void sg_coordinator_exit(sg_coordinator *c, sg_status status, const char *text);

/* Copies `call` and sets its time; fails it WAITING at once where too many are parked already. */
void sg_coordinator_park(sg_coordinator *c, const sg_coordinator_parked *call);
void sg_coordinator_unpark(sg_coordinator *c, sg_coordinator_parked *call); /* removes and frees, answers nothing */

/* --- coordinator.c ---------------------------------------------------------------------------------------------- */

/* Answers what can be answered and advances what can advance, until nothing moves. */
void sg_coordinator_settle(sg_coordinator *c);
/* A moment that the coordinator's own lateness puts off, though not beyond now. */
uint64_t sg_coordinator_put_off(const sg_coordinator *c, uint64_t ms, uint64_t late_ms);

/* --- coordinator_who.c ------------------------------------------------------------------------------------------ */

/* The worker with this incarnation, joined. NULL: the call was failed (FENCED, ROLLED_BACK, the job's end). */
sg_coordinator_worker *sg_coordinator_known(sg_coordinator *c, void *call, uint64_t incarnation, uint64_t generation);
/* Its index; n_workers: nobody has it now. */
uint32_t sg_coordinator_find_incarnation(const sg_coordinator *c, uint64_t incarnation);
uint32_t sg_coordinator_index(const sg_coordinator *c, const sg_coordinator_worker *worker);
/* "worker 1 (node7:4242)", "ps 0 (127.0.0.1:4000)"; return out. */
const char *sg_coordinator_worker_name(const sg_coordinator *c, uint32_t worker, char out[SG_COORDINATOR_TEXT_BYTES]);
const char *sg_coordinator_ps_name(const sg_coordinator *c, uint32_t ps, char out[SG_COORDINATOR_TEXT_BYTES]);
/* Text from the wire: NULL is "". */
const char *sg_coordinator_text(const char *text);
/* A copy of at most 255 bytes in which blanks and control characters are '?': fit for logs and messages. */
char *sg_coordinator_clean(const char *text);

/* --- coordinator_settings.c ------------------------------------------------------------------------------------- */

void sg_coordinator_settings_init(sg_coordinator *c);
void sg_coordinator_settings_deinit(sg_coordinator *c);
/* Every key of the job's configuration against `settings`, both ways. `whose` names the other side. Errors: CONFIG
 * naming the key and both values, INVALID. */
SG_MUST_USE sg_status sg_coordinator_settings_compare(const sg_coordinator *c, Shardgrad__V1__Setting *const *settings,
                                                      size_t n, const char *whose, sg_error *err);

/* --- coordinator_orders.c ------------------------------------------------------------------------------------- */

void sg_coordinator_order(sg_coordinator *c, uint32_t ps, const ProtobufCMessage *body); /* copied */
void sg_coordinator_order_all(sg_coordinator *c, const ProtobufCMessage *body);
void sg_coordinator_order_admit(sg_coordinator *c, uint32_t ps, uint32_t worker);
void sg_coordinator_order_admit_all(sg_coordinator *c, uint32_t worker);
/* Forgets what is not under way. */
void sg_coordinator_orders_clear(sg_coordinator *c, uint32_t ps);
/* Forgets everything: a new life begins with sequence 1. */
void sg_coordinator_orders_reset(sg_coordinator *c, uint32_t ps);
void sg_coordinator_orders_pump(sg_coordinator *c);
/* True if some ps has fallen so far behind that no more may be ordered. */
bool sg_coordinator_orders_full(const sg_coordinator *c);
void sg_coordinator_orders_result(sg_coordinator *c, uint32_t ps, uint64_t life, sg_status status, const char *message,
                                  const Shardgrad__V1__OrderResponse *response);

/* --- coordinator_generation.c ----------------------------------------------------------------------------------- */

/* May the job go on when a ps is lost? */
bool sg_coordinator_generation_may_follow(const sg_coordinator *c);
/* Is the job on its way back to a checkpoint? */
bool sg_coordinator_generation_recovers(const sg_coordinator *c);
/* Begins a generation above this one and above `least`: all that this one was is dropped. `why` is a line. */
void sg_coordinator_generation_next(sg_coordinator *c, uint64_t least, const char *why);
/* The ps found the checkpoint damaged that this generation starts from: another begins, from an older one. False: that
 * is not for it to choose, the job is to fail. */
bool sg_coordinator_generation_damaged(sg_coordinator *c, uint32_t ps, const char *message);
/* Orders to a ps, which is up, what holds now. */
void sg_coordinator_generation_order(sg_coordinator *c, uint32_t ps);
/* Every ps may be there now. */
void sg_coordinator_generation_ready(sg_coordinator *c);
/* Of a call: generation of the incarnation that it names. */
uint64_t sg_coordinator_generation_of(uint64_t incarnation);
void sg_coordinator_generation_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_generation_extend(sg_coordinator *c, uint64_t late_ms);
bool sg_coordinator_generation_advance(sg_coordinator *c);
void sg_coordinator_generation_recorded(sg_coordinator *c, const sg_coordinator_recorded *recorded);
/* The job makes checkpoints: its first generation is recorded, too. */
void sg_coordinator_generation_first(sg_coordinator *c);
/* Have all asked for a ticket that the first step waits for? */
/* Not all of those that were there when ps 0 went have had the time to notice that it is back. */
bool sg_coordinator_generation_others_may_return(const sg_coordinator *c);
bool sg_coordinator_generation_all_asked(const sg_coordinator *c);

/* --- coordinator_ps.c ----------------------------------------------------------------------------------------- */

void sg_coordinator_ps_register(sg_coordinator *c, const Shardgrad__V1__RegisterRequest *request, void *call);
bool sg_coordinator_ps_complete(const sg_coordinator *c);
/* It has registered, and was not lost since. */
bool sg_coordinator_ps_is_up(const sg_coordinator_ps *ps);
/* Lets in every worker that may be let in. */
void sg_coordinator_ps_admit_all(sg_coordinator *c, uint32_t ps);
void sg_coordinator_ps_tick(sg_coordinator *c);
/* It is not there: the job waits for it, from now on if not before. */
void sg_coordinator_ps_miss(sg_coordinator *c, uint32_t ps);
/* The coordinator itself was late. */
void sg_coordinator_ps_extend(sg_coordinator *c, uint64_t late_ms);

/* --- coordinator_members.c ------------------------------------------------------------------------------------ */

void sg_coordinator_members_hello(sg_coordinator *c, const Shardgrad__V1__HelloRequest *request, void *call);
bool sg_coordinator_members_answer_hello(sg_coordinator *c, const sg_coordinator_parked *call);
void sg_coordinator_members_heartbeat(sg_coordinator *c, void *call);
/* What a worker says of the newest step that it finished; the caller sees that it counts once. */
void sg_coordinator_members_report(sg_coordinator *c, sg_coordinator_worker *worker, float loss, uint64_t examples);
/* This life goes without having heard the answer to its hello: the lease that it would have is over. */
void sg_coordinator_members_withdraw(sg_coordinator *c, uint64_t life, void *call);
void sg_coordinator_members_leave(sg_coordinator *c, sg_coordinator_worker *worker,
                                  const Shardgrad__V1__LeaveRequest *request, void *call);
/* Its life goes on in the generation that begins, under another incarnation, if it says hello again. */
void sg_coordinator_members_recall(sg_coordinator *c, uint32_t worker);
/* Said hello, did not leave, lease not run out. */
bool sg_coordinator_members_live(const sg_coordinator_worker *worker);
uint32_t sg_coordinator_members_n_live(const sg_coordinator *c);
/* Takes anybody part in steps? */
bool sg_coordinator_members_any(const sg_coordinator *c);
/* Lets those in again who gave the generation up though no ps is lost. */
bool sg_coordinator_members_advance(sg_coordinator *c);
void sg_coordinator_members_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_members_extend(sg_coordinator *c, uint64_t late_ms);

sg_coordinator_life sg_coordinator_life_of(const sg_coordinator *c, uint32_t worker);

/* --- coordinator_losses.c --------------------------------------------------------------------------------------- */

/* The worker's lease ran out: on_worker_loss says what follows. */
void sg_coordinator_losses_lose(sg_coordinator *c, uint32_t worker);
/* The incarnation of now does nothing more, and did not leave: fences it, and excuses it or holds it back. */
void sg_coordinator_losses_take(sg_coordinator *c, uint32_t worker);
/* Its process drops what it has and goes on in the same generation under another incarnation: fences that of now, and
 * keeps its place in the steps that are frozen. */
void sg_coordinator_losses_return(sg_coordinator *c, uint32_t worker);
/* Is a loss held back? Then no step is opened and nobody becomes a member. */
bool sg_coordinator_losses_held(const sg_coordinator *c);
/* Of this worker. */
bool sg_coordinator_losses_holds(const sg_coordinator *c, uint32_t worker);
/* A ps has fenced a life, which may be one that is held back. */
void sg_coordinator_losses_fenced(sg_coordinator *c, const Shardgrad__V1__Excuse *excuse,
                                  const Shardgrad__V1__OrderResponse *response);
/* Excuses what is held back if there are enough workers now; wait: lets the next life of its index take its place. */
bool sg_coordinator_losses_advance(sg_coordinator *c);
/* A life of this index has left before it took the place of a lost one: which is excused as well. */
void sg_coordinator_losses_left(sg_coordinator *c, uint32_t worker);
void sg_coordinator_losses_tick(sg_coordinator *c);
/* The coordinator itself was late. */
void sg_coordinator_losses_extend(sg_coordinator *c, uint64_t late_ms);
/* For whom the job waits because of a loss; NULL: no loss is held back. */
const char *sg_coordinator_losses_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_losses_clear(sg_coordinator *c);

/* --- coordinator_variables.c ---------------------------------------------------------------------------------- */

/* Errors: INVALID, EXHAUSTED. */
SG_MUST_USE sg_status sg_coordinator_variables_check(const sg_coordinator *c,
                                                     const Shardgrad__V1__DeclareRequest *request, uint32_t *n_groups,
                                                     sg_error *err);
/* How often groups step: taken from the first declaration, compared with those after it. Errors: INVALID; MISMATCH
 * naming the group and both sides. */
SG_MUST_USE sg_status sg_coordinator_variables_take_every(sg_coordinator *c,
                                                          const Shardgrad__V1__DeclareRequest *request, sg_error *err);
/* MISMATCH naming the variable and both sides. */
SG_MUST_USE sg_status sg_coordinator_variables_compare(const Shardgrad__V1__DeclareRequest *known,
                                                       const Shardgrad__V1__DeclareRequest *request, sg_error *err);

/* --- coordinator_init.c ------------------------------------------------------------------------------------------- */

void sg_coordinator_init_declare(sg_coordinator *c, sg_coordinator_worker *worker,
                                 const Shardgrad__V1__DeclareRequest *request, void *call);
void sg_coordinator_init_initialized(sg_coordinator *c, sg_coordinator_worker *worker,
                                     const Shardgrad__V1__InitializedRequest *request, void *call);
bool sg_coordinator_init_answer_declare(sg_coordinator *c, const sg_coordinator_parked *call);
bool sg_coordinator_init_answer_initialized(sg_coordinator *c, const sg_coordinator_parked *call);
/* The worker is gone: if it was to initialize, another one is told. */
void sg_coordinator_init_gone(sg_coordinator *c, uint32_t worker);
void sg_coordinator_init_seal_refused(sg_coordinator *c, uint32_t ps, const char *message);
bool sg_coordinator_init_advance(sg_coordinator *c);
/* Tells a ps the variables, if they are known. */
void sg_coordinator_init_order_declare(sg_coordinator *c, uint32_t ps);

/* --- coordinator_steps.c -------------------------------------------------------------------------------------- */

/* The first iteration from this one on in which the group steps. */
uint64_t sg_coordinator_steps_iteration(const sg_coordinator *c, uint32_t group, uint64_t from);
sg_coordinator_step *sg_coordinator_steps_find(sg_coordinator *c, uint32_t group, uint64_t number);
/* The lowest step of the group, from `lowest` on, whose iteration is at least `from`; NULL if there is none yet. */
sg_coordinator_step *sg_coordinator_steps_from(sg_coordinator *c, uint32_t group, uint64_t lowest, uint64_t from);
/* Hands out the group's next step for this iteration; freezes the iteration if it is not. */
sg_coordinator_step *sg_coordinator_steps_open(sg_coordinator *c, uint32_t group, uint64_t iteration);
/* The worker has, or may have, pushed something of all steps before this one. */
void sg_coordinator_steps_begun(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t begun);
void sg_coordinator_steps_finished(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t finished);
/* Excuses this life from all frozen steps of which it is a member and which are >= pushed[group] (NULL: which it has
 * not finished), and fences it. */
void sg_coordinator_steps_excuse(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed);
/* The same for iterations below `before`. */
void sg_coordinator_steps_excuse_before(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed,
                                        uint64_t before);
/* Only fences it. */
void sg_coordinator_steps_fence(sg_coordinator *c, const sg_coordinator_life *life);
/* Forgets all steps and iterations. */
void sg_coordinator_steps_clear(sg_coordinator *c);

/* --- coordinator_tickets.c ------------------------------------------------------------------------------------ */

void sg_coordinator_tickets_ask(sg_coordinator *c, sg_coordinator_worker *worker,
                                const Shardgrad__V1__TicketRequest *request, void *call);
bool sg_coordinator_tickets_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* Lets training start when enough have asked. */
bool sg_coordinator_tickets_advance(sg_coordinator *c);
/* Distinct workers that asked for a ticket, or left before they did, of the `workers` with which training starts. */
uint32_t sg_coordinator_tickets_n_asked(const sg_coordinator *c);

/* --- coordinator_clocks.c ------------------------------------------------------------------------------------- */

/* Where the clock of one who asks for a ticket of the group for the first time starts. */
uint64_t sg_coordinator_clocks_start(const sg_coordinator *c, uint32_t group);
uint64_t sg_coordinator_clocks_of(const sg_coordinator_progress *progress);
/* May it have the next ticket of the group now? Notes how far ahead it is, if so. */
bool sg_coordinator_clocks_grant(sg_coordinator *c, uint32_t worker, uint32_t group);
/* For whom the request for a ticket waits; NULL: for no clock. */
const char *sg_coordinator_clocks_waiting(const sg_coordinator *c, const sg_coordinator_parked *call,
                                          char out[SG_ERROR_MESSAGE_BYTES]);

/* --- coordinator_save.c and coordinator_manifest.c -------------------------------------------------------------- */

/* Does this job make checkpoints? */
bool sg_coordinator_save_due(const sg_coordinator *c);
/* The initial values are safe, or need not be. */
bool sg_coordinator_save_may_start(const sg_coordinator *c);
/* The mark that a step carries which is handed out first now. */
uint64_t sg_coordinator_save_mark(sg_coordinator *c, uint32_t group, uint64_t step, uint64_t iteration);
void sg_coordinator_save_report(sg_coordinator *c, uint32_t ps, const Shardgrad__V1__SaveReport *report);
/* A ps has refused the order to cut. */
void sg_coordinator_save_refused(sg_coordinator *c, uint32_t ps, sg_status status, const char *message);
void sg_coordinator_save_written(sg_coordinator *c, uint64_t mark, sg_status status, const char *message);
void sg_coordinator_save_ask_for(sg_coordinator *c, const Shardgrad__V1__SaveRequest *request, void *call);
bool sg_coordinator_save_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* The job is to end: a last checkpoint is made first, and sg_coordinator_end_drained called then. False: none is. */
bool sg_coordinator_save_drain(sg_coordinator *c, bool stop, uint32_t ps);
/* A ps was lost. True: while the last checkpoint was made, for which nobody is waited any more; that is the end. */
bool sg_coordinator_save_give_up(sg_coordinator *c, const char *why);
bool sg_coordinator_save_advance(sg_coordinator *c);
/* For whom the one under way waits. Returns out. */
const char *sg_coordinator_save_waits_for(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_save_status(const sg_coordinator *c, Shardgrad__V1__CheckpointStatus *out);
void sg_coordinator_write_manifest(sg_coordinator *c);
/* The declaration that a manifest stands for, freed by sg_wire_head_free. */
Shardgrad__V1__DeclareRequest *sg_coordinator_read_manifest(const sg_checkpoint_manifest *manifest);
/* A generation begins, from this checkpoint; NULL: from nothing. */
void sg_coordinator_save_restart(sg_coordinator *c, const sg_checkpoint_manifest *manifest);

/* --- coordinator_hyper.c -------------------------------------------------------------------------------------- */

void sg_coordinator_hyper_init(sg_coordinator *c);
void sg_coordinator_hyper_deinit(sg_coordinator *c);
/* That in force. */
const sg_config *sg_coordinator_hyper_config(const sg_coordinator *c);
/* A job that is started goes on with what was changed while it ran before. Errors: CONFIG. */
SG_MUST_USE sg_status sg_coordinator_hyper_restore(sg_coordinator *c, const sg_checkpoint_manifest *manifest,
                                                   sg_error *err);
/* Orders that in force, and those that are on their way, to a ps that has none. */
void sg_coordinator_hyper_order(sg_coordinator *c, uint32_t ps);
void sg_coordinator_hyper_set(sg_coordinator *c, const Shardgrad__V1__SetRequest *request, void *call);
bool sg_coordinator_hyper_answer(sg_coordinator *c, const sg_coordinator_parked *call);
/* Puts in force what every ps has acknowledged. */
bool sg_coordinator_hyper_advance(sg_coordinator *c);

/* --- coordinator_end.c ---------------------------------------------------------------------------------------- */

/* The job has failed: every waiting and every later call is told so, and every ps. */
void sg_coordinator_end_fail(sg_coordinator *c, sg_status status, const char *format, ...) SG_PRINTF(3, 4);
/* A ps was told to stop. */
void sg_coordinator_end_stop(sg_coordinator *c, uint32_t ps);
/* The last checkpoint was made, or could not be. */
void sg_coordinator_end_drained(sg_coordinator *c, bool stop, uint32_t ps);
/* Begins the normal end if the last worker has left. */
void sg_coordinator_end_consider(sg_coordinator *c);
/* Fails a call with the job's end, and remembers that the worker (n_workers: nobody known) was told. */
void sg_coordinator_end_answer(sg_coordinator *c, void *call, uint32_t worker);
void sg_coordinator_end_advance(sg_coordinator *c);

/* --- coordinator_status.c ------------------------------------------------------------------------------------- */

void sg_coordinator_status_answer(sg_coordinator *c, void *call);
/* For whom the job waits; "" for nobody. Returns out. */
const char *sg_coordinator_status_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES]);
/* For whom this call waits. */
const char *sg_coordinator_status_parked(const sg_coordinator *c, const sg_coordinator_parked *call,
                                         char out[SG_ERROR_MESSAGE_BYTES]);
void sg_coordinator_status_tick(sg_coordinator *c);

#endif
