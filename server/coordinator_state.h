/* server/coordinator_state.h - the state of the coordinator: types and bounds, for the coordinator_*.c files and nobody
 * else. What these do with it stands in coordinator_internal.h. */
#ifndef SG_SERVER_COORDINATOR_STATE_H
#define SG_SERVER_COORDINATOR_STATE_H

#include <inttypes.h>
#include <string.h>
#include <sys/queue.h>

#include "common/wire.h"
#include "common/workers.h"
#include "server/coordinator.h"

#define SG_COORDINATOR_PROTOCOL       1u
#define SG_COORDINATOR_MAX_HYPERS     4096u /* hyper-parameter sets of a job */
#define SG_COORDINATOR_MAX_CHANGES    32u   /* keys that one set changes */
#define SG_COORDINATOR_MAX_GENERATION SG_CHECKPOINT_MAX_GENERATION
#define SG_COORDINATOR_MAX_GROUPS     64u
#define SG_COORDINATOR_TEXT_BYTES     256u
#define SG_COORDINATOR_TICK_MS        UINT64_C(100)
/* Lives that had an index before the one of now: a late repeat of their Hello must not count as a new life. */
#define SG_COORDINATOR_PAST_LIVES 8u
/* Of checkpoints that were asked for: requests that are known again, results that are remembered. */
#define SG_COORDINATOR_SAVE_ASKS    32u
#define SG_COORDINATOR_SAVE_RESULTS 8u
#define SG_COORDINATOR_SAVE_LATER   UINT64_MAX
/* Changes of mode or rule of which nothing came, and whose requests are known again. */
#define SG_COORDINATOR_CHANGE_RESULTS 8u

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
    SG_COORDINATOR_PARKED_SAVE,  /* of no worker */
    SG_COORDINATOR_PARKED_SET,   /* of nobody in particular */
    SG_COORDINATOR_PARKED_NORMS, /* of a ps */
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
    uint32_t group;         /* NORMS */
    uint64_t step;          /* NORMS */
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
    char
        unreached[SG_COORDINATOR_TEXT_BYTES]; /* why the order at the head does not get there; "": it was not in vain */
    uint64_t unreached_ms;                    /* since when */

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
    uint64_t unbegun;    /* of those granted, that it had not begun to push when it left or was late */
    uint64_t first;      /* sync: the first step handed out */
    uint64_t finished;   /* as reported */
    uint64_t step;       /* async: number of the newest ticket, */
    uint64_t before;     /* and of the one before it, if there is one */
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

    uint64_t in_cut, in_newest; /* async: of its tickets, how many surely are in the checkpoint under way, the newest */
    uint64_t given_up;          /* incarnation that was too late, whose heartbeats still keep its lease; 0: none */
    bool gives_up;              /* it missed a ps and gave this generation up; since when its hello waits: */
    uint64_t gave_up_ms;
    uint64_t replaced;      /* the incarnation of this life that the one of now took the place of; 0: none */
    uint32_t n_parked;      /* of its calls */
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

/* What the workers found of the test set with the values of an iteration. */
#define SG_COORDINATOR_EVALUATIONS 16u
typedef struct sg_coordinator_evaluation {
    uint64_t iteration, of, examples, correct;
    double loss_sum;
    sg_workers reported;
} sg_coordinator_evaluation;

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

typedef struct sg_coordinator_save_result {
    uint64_t number;
    sg_checkpoint_set set; /* that has what was asked for */
    sg_status status;
    char message[SG_ERROR_MESSAGE_BYTES];
} sg_coordinator_save_result;

typedef struct sg_coordinator_save_ask {
    uint64_t id, number;
    sg_coordinator_save_result result; /* of that number, for repeats however late; number 0: it is not over */
} sg_coordinator_save_ask;

typedef struct sg_coordinator_save {
    sg_coordinator_save_phase phase;
    bool complete;                             /* one is, of this generation, or this started from one: */
    bool failed;                               /* one has, since then */
    bool again;                                /* one is to be begun when that under way is over */
    bool urgent;                               /* somebody waits for the newest one that was begun; */
    bool hurried;                              /* and every ps was told */
    uint64_t number;                           /* of the newest one that was begun; they count from 1 */
    uint64_t mark;                             /* of the newest one: its iteration */
    uint64_t ticket_mark;                      /* what steps carry that are not in it; no two cuts have the same */
    uint64_t free_ticket_mark;                 /* least that none has had, in this generation */
    uint64_t steps[SG_COORDINATOR_MAX_GROUPS]; /* first that is not in it, */
    uint64_t next_iteration;                   /* where training goes on that starts from it */
    bool known[SG_COORDINATOR_MAX_GROUPS];     /* where that is known, */
    uint32_t n_known;                          /* of so many groups */
    sg_workers members;
    uint64_t began_ms;
    uint64_t tried;                  /* mark of the newest one that was cut */
    uint64_t hyper;                  /* number of the set that was in force at its cut */
    uint64_t iteration, complete_ms; /* of the newest complete one; */
    uint64_t stored;                 /* the number of the hyper-parameters that are in it; 0: others */
    uint64_t past; /* async: incarnations that were followed by others of their index, and had pushed what the newest */
    uint64_t past_in_cut, past_in_newest; /* one lacked; of them, those that the cut under way and the newest have */
    sg_checkpoint_manifest newest;        /* its own; generation 0: it is of an earlier generation, or there is none */
    sg_checkpoint_manifest writing;       /* WRITING: what is to be complete */
    sg_checkpoint_set current;            /* what this generation started from; generation 0: nothing */
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
    bool closed;              /* the last one is being cut: nothing that is begun from now on would be in it */
    uint64_t lagged_ms;       /* of that time, spent on groups that finish an iteration: the end is put off by it */
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
    uint64_t generation, iteration; /* that began with it, and where; 0: none did */
    bool fresh_slots;               /* and its slots were zeros */
    bool other_rule;                /* a set before it had, or may have had: so may checkpoints */
} sg_coordinator_hyper;

typedef enum sg_coordinator_change_phase {
    SG_COORDINATOR_CHANGE_NONE,
    SG_COORDINATOR_CHANGE_HALTING,   /* no iteration is begun, what was begun closes, a checkpoint is cut */
    SG_COORDINATOR_CHANGE_BEGINNING, /* the generation that has it is being recorded */
} sg_coordinator_change_phase;

/* Of mode or rule. */
typedef struct sg_coordinator_change {
    sg_coordinator_change_phase phase;
    bool quiet;              /* HALTING: all is begun, or finished, that is to be in the checkpoint */
    uint64_t number;         /* of the set that it makes */
    uint64_t since_ms;       /* HALTING */
    sg_coordinator_hyper to; /* HALTING, BEGINNING: that set, which is not among the others yet */
} sg_coordinator_change;

/* What became of one of which nothing came. */
typedef struct sg_coordinator_change_result {
    uint64_t request; /* 0: none */
    sg_status status;
    char why[SG_ERROR_MESSAGE_BYTES];
} sg_coordinator_change_result;

typedef struct sg_coordinator_norms sg_coordinator_norms;

/* Requests wait too long: the registrations of ps 0 tell. */
typedef struct sg_coordinator_late {
    uint64_t heard_ms; /* when the newest came; */
    uint64_t total_ms; /* that the next one is overdue and leases were put off for it, */
    uint64_t said_ms;  /* when that was last logged; 0: never */
} sg_coordinator_late;

struct sg_coordinator {
    const sg_config *config;      /* of this generation: the cluster file with what was changed before it began */
    sg_coordinator_hyper *hypers; /* [n_hypers] number i + 1 */
    uint64_t n_hypers;
    uint64_t in_force; /* number of the newest that every ps has: steps that are frozen from now on have it */
    sg_pool *pool;     /* of what comes and goes with every step */
    sg_coordinator_setting *settings; /* [n_settings] that everybody must agree on */
    size_t n_settings;
    uint64_t now_ms;
    uint64_t ticked_ms; /* valid if `ticked` */
    sg_coordinator_late late;

    STAILQ_HEAD(, sg_coordinator_queued) actions;
    TAILQ_HEAD(sg_coordinator_parked_list, sg_coordinator_parked) parked;
    uint32_t n_parked; /* calls of people */

    Shardgrad__V1__JobState state;
    uint64_t generation;
    uint64_t entered_ms;              /* the generation, for people */
    char why[SG_ERROR_MESSAGE_BYTES]; /* the next one begins */
    sg_workers awaited;               /* for the first step of this one; empty: `workers` of any index */
    bool started_anew;                /* before this one nobody trained here, nor returned: who comes may be others */
    bool knows_ahead;                 /* async: `ahead`: there was a ticket in it */
    bool has_returned;                /* somebody whom only a coordinator before this one knew: others may follow */
    uint64_t running_ms;              /* since when all is loaded */
    uint32_t n_change_results;        /* of change_results */
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
    uint64_t ahead; /* async: of iterations before the numbers of tickets, when this generation began */
    uint64_t examples;
    sg_coordinator_evaluation evaluations[SG_COORDINATOR_EVALUATIONS]; /* [n_evaluations] the newest, ascending */
    uint32_t n_evaluations;

    uint32_t n_parked_norms;     /* calls of ps that wait for norms */
    struct sg_plan *plan;        /* of the variables; NULL: nobody has asked for norms yet, nor are there: */
    sg_coordinator_norms *norms; /* [SG_COORDINATOR_MAX_GROUPS] coordinator_norms.c */
    sg_coordinator_save save;
    sg_coordinator_drain drain;
    sg_coordinator_change change;
    sg_coordinator_change_result change_results[SG_COORDINATOR_CHANGE_RESULTS]; /* a ring */

    sg_status end_status; /* with which every call is failed once the job is over, STOPPED where it ended well */
    char *end_text;
    uint64_t over_ms;    /* since when it is over */
    uint64_t release_ms; /* since when every ps that lives knows it */

    char waiting_for[SG_ERROR_MESSAGE_BYTES]; /* as of the last tick */
    uint64_t waiting_since_ms, warn_at_ms;

    sg_checkpoint_set damaged; /* while recording: from which the next one cannot start; generation 0: none */

    bool ticked;
    bool recording;               /* the next one; nobody is told of it before that is done */
    bool restores;                /* this one starts from c->save.current, */
    bool fresh_slots, sets_steps; /* which is of another rule; of an async job, while this one is sync */
    bool is_first;                /* this one begins a job: ps may come when they like */
    bool has_initializer, sealing, committing;
    bool started;     /* `workers` have asked */
    bool has_trained; /* they had, in this generation or one before */
    bool over;        /* DRAINING, DONE or FAILED */
    bool stopped;     /* because a ps was told to stop */
    bool released;    /* every ps that lives knows that it is over */
    bool end_told;    /* the END action is out */
};

/* Async, or ssp: no step has members. */
static inline bool sg_coordinator_is_async(const sg_coordinator *c)
{
    return c->config->update.mode != SG_MODE_SYNC;
}

static inline bool sg_coordinator_is_running(const sg_coordinator *c)
{
    return c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
}

#endif
