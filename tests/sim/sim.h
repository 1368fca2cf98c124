/* tests/sim/sim.h - a whole cluster in one thread: the real coordinator, the real stores of several ps and the real
 * sessions of several workers, on a simulated network and clock, all of it decided by one seed. README.md says what is
 * simulated and what is checked.
 *
 *   sim.c               the world: events, time, the end
 *   sim_network.c       calls: delayed, reordered, lost, repeated
 *   sim_ps.c            a ps: its store, its life
 *   sim_coordinator.c   the coordinator of ps 0
 *   sim_register.c      its registration
 *   sim_norms.c         what it asks the coordinator about norms
 *   sim_worker.c        a worker: its session (sim_worker.h: the worker side of the world; the names of its headers and
 *                       the server's must not meet)
 *   sim_trainer.c       what drives the session
 *   sim_oracle.h        what must hold after every event
 *   sim_save.c          checkpoints and their disk
 *   sim_change.c        an admin who changes mode or rule
 *   sim_ask.c           an admin who sets the learning rate and asks for checkpoints
 *   sim_scenario.c      what a seed means: sizes, faults
 *   sim_judge.c         how the job must end */
#ifndef SG_TESTS_SIM_H
#define SG_TESTS_SIM_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "common/plan.h"
#include "common/workers.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"
#include "tests/sim/sim_oracle.h"
#include "tests/support/seed.h"

#define SIM_MOMENTUM     0.5f /* of lars */
#define SIM_MAX_FAULTS   3u
#define SIM_MAX_CHANGES  2u
#define SIM_MAX_SETTERS  3u
#define SIM_MAX_ASKS     6u
#define SIM_MAX_SETS     200u /* checkpoints that were cut */
#define SIM_MAX_SETTINGS 64u
#define SIM_END_MS       200000u /* nothing takes so long: it hangs */

typedef struct sim_worker sim_worker; /* sim_worker.h */
typedef struct sg_store sg_store;
typedef struct sg_store_cut sg_store_cut;
typedef struct sg_store_load sg_store_load;
typedef struct sg_store_norms sg_store_norms;
typedef struct sg_coordinator sg_coordinator;
typedef struct sg_coordinator_action sg_coordinator_action;

/* --- scenario --------------------------------------------------------------------------------------------------- */

typedef enum sim_phase {
    SIM_JOINING,
    SIM_DECLARING,
    SIM_ASKING,   /* for a ticket */
    SIM_RESUMING, /* rolled back: joins and declares again */
    SIM_FETCHING, /* a joiner pulls the values of its first step */
    SIM_COMPUTING,
    SIM_AWAITING,   /* computed, but values are still on their way */
    SIM_EXCHANGING, /* push and pull are under way */
    SIM_LEAVING,
    SIM_ENDED,
} sim_phase;

typedef enum sim_fault_kind {
    SIM_FAULT_KILL_WORKER, /* `target`: index; its newest process vanishes */
    SIM_FAULT_SUPERSEDE,   /* a second process of index `target` starts while the first lives on */
    SIM_FAULT_KILL_PS,     /* `target`: ps */
    SIM_FAULT_STOP_PS,     /* it is told to stop */
    SIM_FAULT_RESTART_PS,  /* it vanishes and starts anew at once, before anything was declared */
    SIM_FAULT_RECOVER_PS,  /* it vanishes at any time, and starts anew a while later: `again_ms` */
    SIM_FAULT_PAUSE_PS,    /* it stands still for `again_ms` */
    SIM_N_FAULTS,
} sim_fault_kind;

typedef struct sim_fault {
    sim_fault_kind kind;
    uint32_t target;
    uint64_t at_ms;
    uint64_t revive_ms; /* KILL_WORKER: its index comes again so long after; 0: never */
    uint64_t again_ms;  /* RECOVER_PS: so long after; PAUSE_PS: for so long */
    bool happened;
    sim_phase phase;  /* KILL_WORKER: where its process was */
    uint32_t process; /* KILL_WORKER */
} sim_fault;

/* Of mode, and perhaps rule. */
typedef struct sim_change {
    uint64_t at_ms, request;
    sg_mode mode;
    uint64_t staleness; /* of ssp */
    uint32_t backup;    /* of sync */
    bool names_rule, names_clip;
    sg_rule rule;
    float clip;
    bool sent, answered; /* so: */
    sg_status status;
    bool over; /* by a coordinator whose job had ended */
} sim_change;

/* For a learning rate, or a checkpoint. */
typedef struct sim_ask {
    uint64_t at_ms, request;
    bool saves;
    bool then_saves; /* SET: when it is answered a checkpoint is asked for */
    bool sent, answered;
    sg_status status;
    bool over;                           /* the answer: the job is, or is about to be */
    uint64_t asked_ms, asked_generation; /* SAVE: when it was sent first, */
    uint64_t steps[SIM_MAX_SLICES];      /* and the newest versions then */
    bool promised;                       /* SET: it was answered as in force, and is, by what anybody knows; so: */
    uint64_t promised_ms, life, number;  /* life of ps 0 */
    uint64_t first[SIM_MAX_GROUPS];      /* step that has it, in this generation */
} sim_ask;

/* The first six lines, and `backup`: of the generation that the oracle looks at. */
typedef struct sim_scenario {
    bool async; /* or ssp: */
    bool ssp;
    uint64_t staleness;
    uint32_t backup; /* sync */
    sg_worker_loss on_loss;
    uint32_t min_workers;
    uint32_t n_ps, n_workers, n_joiners, n_groups;
    uint64_t every; /* in so many iterations the second group makes one step */
    uint64_t message_bytes;
    bool saves;
    uint32_t save_every, disk_full_per_mille;
    uint32_t lost_per_mille, repeated_per_mille, slow_per_mille;
    uint64_t ps_start_ms[SIM_MAX_PS];
    uint64_t worker_start_ms[SIM_MAX_INDICES];
    uint32_t quota[SIM_MAX_INDICES]; /* iterations that a process of this index does before it leaves */
    sim_fault faults[SIM_MAX_FAULTS];
    uint32_t n_faults;
    float clip;   /* sync: update.clip_global_norm; 0: none */
    sg_rule rule; /* sgd, or with sync lars or lamb */
    bool narrow;  /* gradients travel as bfloat16 */
    sim_change changes[SIM_MAX_CHANGES];
    uint32_t n_changes;
    sim_ask asks[SIM_MAX_ASKS];
    uint32_t n_asks;
} sim_scenario;

/* --- network ---------------------------------------------------------------------------------------------------- */

typedef enum sim_sender { SIM_FROM_WORKER, SIM_FROM_PS, SIM_FROM_COORDINATOR, SIM_FROM_ADMIN } sim_sender;

/* Between two of them. */
typedef struct sim_link {
    uint32_t sure;     /* calls to come that are not lost */
    uint32_t n_silent; /* lost calls whose callers have not noticed */
} sim_link;

/* One call from its sending to its end; kept until the world ends. */
struct sim_call {
    sim_call *next; /* all of the world */
    sim_sender sender;
    uint32_t from;        /* process number of the worker, or ps; ADMIN: which change, or MAX_CHANGES + which ask */
    uint64_t sender_life; /* of the ps that sends */
    uint64_t number;      /* WORKER: of the session's call; COORDINATOR: life of the ps that is ordered */
    uint64_t task;
    int method;  /* WORKER: an sg_session_method */
    uint32_t to; /* ps */
    bool to_coordinator;
    ProtobufCMessage *body;
    uint8_t *data; /* of INITIALIZE and PUSH */
    size_t data_bytes;
    bool wants_values; /* a PUSH_PULL, whose body is that of a PUSH */
    uint64_t deadline_ms;
    bool lost;    /* in silence: only its deadline tells */
    bool settled; /* the caller has its answer */
};

/* One arrival of a call at a server: a repeated call arrives twice. It is the `call` that coordinator and store know.
 */
typedef struct sim_arrival {
    struct sim_arrival *next;
    sim_call *call;
    uint64_t arrived_ms;
    uint64_t life; /* of the process that has it */
    bool answered;
    sg_status status;
    char text[SG_ERROR_MESSAGE_BYTES];
    ProtobufCMessage *reply;
    float *data; /* of an answer with values */
    size_t n_elems;
} sim_arrival;

/* --- processes -------------------------------------------------------------------------------------------------- */

/* What a ps asks the coordinator about a step of a group. */
typedef struct sim_norms {
    uint64_t number; /* 0: nothing */
    uint64_t generation, step;
    double squares[2 * SIM_MAX_SLICES];
    size_t n_squares;
    bool under_way;
    uint64_t next_ms;
} sim_norms;

typedef struct sim_ps {
    sim *world;
    uint64_t told_life;       /* that it registers with: another than that of the process when ps 0 was started anew */
    uint64_t load_generation; /* of the load under way */
    uint64_t still_until_ms;  /* it stands still, or did, */
    uint64_t ticked_ms;
    bool running;
    uint64_t life;
    sg_store *store;
    sg_coordinator *coordinator; /* ps 0 */
    ProtobufCMessage *ticket;    /* that a push asks for; its address is the `call` */
    uint64_t register_at_ms, accepted_ms, sent_ms;
    bool registering, registered, stopping, says_stopping, said_stopping;
    uint64_t cut_generation, cut_number, cut_mark, cut_ticket_mark; /* of the newest; number 0: none yet */
    Shardgrad__V1__SaveReport saved;                                /* number 0: nothing to say */
    char saved_text[SG_ERROR_MESSAGE_BYTES];
    uint64_t end_at_ms; /* 0: not yet */
    sim_norms norms[SIM_MAX_GROUPS];
    bool ended; /* with this: */
    bool killed;
    sg_status status;
    char text[SG_ERROR_MESSAGE_BYTES];
} sim_ps;

/* What every process has of the cluster file. */
typedef struct sim_settings {
    Shardgrad__V1__Setting items[SIM_MAX_SETTINGS], *list[SIM_MAX_SETTINGS];
    size_t n;
} sim_settings;

/* --- world ------------------------------------------------------------------------------------------------------ */

typedef struct sim_event sim_event;
typedef void (*sim_run)(sim *s, const sim_event *event);
struct sim_event {
    uint64_t at_ms, order;
    sim_run run;
    void *subject;
    uint64_t number;
};

struct sim {
    uint64_t seed_number;
    sg_seed seed;
    sim_scenario scenario;
    sg_config *config;
    sim_settings settings;
    uint64_t now_ms;
    sim_event *events; /* a heap */
    size_t n_events, events_capacity;
    uint64_t n_run;
    sim_ps ps[SIM_MAX_PS];
    sim_worker *workers;                     /* [n_workers] of SIM_MAX_WORKERS */
    uint32_t n_workers, n_to_start;          /* processes so far; first ones in all */
    uint64_t idle_since_ms;                  /* since when no worker runs */
    uint32_t newest_worker[SIM_MAX_INDICES]; /* 1 + number of the newest process; 0: none */
    uint64_t n_lives;
    sim_call *calls;
    sim_arrival *arrivals;
    sim_arrival **waiting; /* [n_waiting] not answered at once; those that are by now are thrown out now and then */
    size_t n_waiting, waiting_capacity;
    uint64_t n_refused;                                               /* pushes for which there was no room */
    sim_link links[SIM_MAX_WORKERS + SIM_MAX_PS + 2][SIM_MAX_PS + 2]; /* by sender; by ps, coordinator, heartbeats */
    uint64_t n_generations;                                           /* recorded */
    bool job_ended;
    sg_status job_status;
    char job_text[SG_ERROR_MESSAGE_BYTES];
    sg_plan *plan;                              /* as the sessions make it */
    uint32_t indices[SIM_MAX_INCARNATIONS + 1]; /* by counter of the incarnation */
    bool hellos[SIM_MAX_INCARNATIONS + 1];
    sim_step_record steps[SIM_MAX_GROUPS][SIM_MAX_STEPS];
    uint32_t n_steps[SIM_MAX_GROUPS]; /* those after it have not been touched */
    sim_slice_record slices[SIM_MAX_SLICES];
    sim_roster rosters[SIM_MAX_PS];
    sim_hypers hypers;
    sg_workers returned; /* that were let in again, and have the place of their last incarnation */
    sim_clock clocks[SIM_MAX_GROUPS][SIM_MAX_INCARNATIONS + 1]; /* by counter of the incarnation */
    sim_set *sets[SIM_MAX_SETS];                                /* [n_cuts] */
    uint32_t n_cuts;
    sg_checkpoint_set pending_set; /* whose manifest is being written */
    bool has_set;                  /* one is complete, the newest at: */
    uint64_t set_iteration;
    const sim_set *newest_set;
    sg_checkpoint_manifest newest_manifest; /* of it */
    sg_checkpoint_record record, recording; /* the newest, and that under way: what they say of changes */
    uint64_t pending_number;
    sg_checkpoint_manifest *pending_manifest;
    uint64_t generation;  /* that the oracle looks at: the newest that is recorded */
    bool was_sync;        /* some generation, at any time */
    sg_mode settled_mode; /* of the newest generation; at first those of the file */
    sg_rule settled_rule;
    uint32_t n_promised, n_saved;      /* sets and saves that the coordinator answered */
    uint32_t n_changed;                /* generations that began with a change, */
    uint32_t n_to_norms, n_from_norms; /* to, or from, a rule that takes norms */
    uint32_t n_to_recover;             /* ps that are to be started anew */
    uint32_t n_sets;
    uint32_t n_normed; /* versions whose update took norms, and that were worked out */
    bool failed;
    char failure[1024];
    FILE *trace; /* NULL: silent */
};

/* Runs one seed; false: s->failure says what did not hold. The caller zeroes nothing and calls sim_destroy. */
sim *sim_create(uint64_t seed);
bool sim_play(sim *s);
void sim_destroy(sim *s);
/* Ends the run; only the first one counts. */
void sim_fail(sim *s, const char *format, ...) SG_PRINTF(2, 3);
void sim_trace(sim *s, const char *format, ...) SG_PRINTF(2, 3);
uint64_t sim_below(sim *s, uint64_t limit);
bool sim_chance(sim *s, uint32_t per_mille);
void sim_at(sim *s, uint64_t at_ms, sim_run run, void *subject, uint64_t number);

void sim_scenario_choose(sim *s);
/* At the end: did it end as it had to? */
void sim_judge(sim *s);

void sim_send(sim *s, const sim_call *call, uint64_t timeout_ms); /* takes body and data */
/* The caller wants no answer any more. */
void sim_cancel(sim *s, sim_call *call);
void sim_answer(sim *s, sim_arrival *arrival, sg_status status, const char *text, const ProtobufCMessage *reply);

void sim_ps_start(sim *s, uint32_t ps);
void sim_ps_stop(sim *s, uint32_t ps);
void sim_ps_pause(sim *s, uint32_t ps, uint64_t for_ms);
/* It stands still: what happens to it happens when it goes on. */
bool sim_ps_put_off(sim *s, const sim_ps *ps, const sim_event *event);
void sim_ps_kill(sim *s, uint32_t ps);
void sim_ps_arrive(sim *s, sim_arrival *arrival);
void sim_ps_gone(sim *s, sim_arrival *arrival); /* its caller has given it up */
void sim_ps_end(sim *s, sim_ps *ps, sg_status status, const char *text, uint64_t linger_ms);

void sim_coordinator_arrive(sim *s, sim_ps *ps, sim_arrival *arrival);
void sim_coordinator_ordered(sim *s, const sim_call *call, sg_status status, const char *text,
                             const ProtobufCMessage *reply);
void sim_coordinator_drain(sim *s, sim_ps *ps); /* does what it wants done */
/* Does the generation begin that is being recorded because of a change? */
bool sim_coordinator_changes(const sim_ps *ps);
/* Of the generation that the coordinator is in. */
const sg_config *sim_coordinator_config(const sim_ps *ps);
/* May the coordinator still wait for this incarnation? */
bool sim_coordinator_counts(const sim *s, uint64_t incarnation);

void sim_save_cut(void *ps, const sg_store_cut *cut, sg_status status, const char *message);
void sim_save_complete(sim *s, sim_ps *ps, const sg_checkpoint_manifest *manifest);
void sim_save_record(sim *s, sim_ps *ps, const sg_coordinator_action *action);
void sim_save_load(void *ps, const sg_store_load *load);
void sim_save_deinit(sim *s);
void sim_save_ticket(sim *s);
void sim_save_judge(sim *s);

void sim_change_choose(sim *s);
void sim_change_schedule(sim *s);
void sim_change_answered(sim *s, const sim_call *call, sg_status status, const char *text,
                         const ProtobufCMessage *reply);
/* A generation is recorded because of one, from this set. */
void sim_change_begins(sim *s, const sg_checkpoint_manifest *manifest, const sim_set *set);
/* A ps was told to clip at this norm. */
void sim_change_clips(sim *s, float clip);
/* The coordinator has entered one, with this configuration. */
void sim_change_entered(sim *s, const sg_config *config);
void sim_change_judge(sim *s);

void sim_norms_ask(void *ps, const sg_store_norms *what);
void sim_norms_answered(sim *s, const sim_call *call, sg_status status, const char *text,
                        const ProtobufCMessage *reply);
void sim_norms_keep(sim *s, uint32_t ps);

void sim_ask_choose(sim *s);
void sim_ask_schedule(sim *s);
void sim_ask_answered(sim *s, const sim_call *call, sg_status status, const char *text);
/* The coordinator answers it, with OK. */
void sim_ask_promised(sim *s, const sim_call *call, const ProtobufCMessage *reply);
/* A ticket of this step was handed out for the first time. */
void sim_ask_step(sim *s, uint32_t group, uint64_t step);
void sim_ask_roll_back(sim *s, const sg_checkpoint_manifest *manifest);
void sim_ask_judge(sim *s);

void sim_register_init(sim *s);
void sim_register_deinit(sim *s);
void sim_register_keep(sim *s, uint32_t ps);
/* Of a call. */
void sim_register_free(ProtobufCMessage *request);
void sim_register_answered(sim *s, const sim_call *call, sg_status status, const char *text);

void sim_workers_init(sim *s);
void sim_workers_deinit(sim *s);
bool sim_workers_run(const sim *s); /* any of them */
void sim_worker_start(sim *s, uint32_t index);
void sim_worker_reply(sim *s, const sim_call *call, sg_status status, const char *text, const ProtobufCMessage *reply,
                      const float *data);

#endif
