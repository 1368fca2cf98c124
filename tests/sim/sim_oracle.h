/* tests/sim/sim_oracle.h - what the oracle remembers of a cluster, and what it is told. It works out beside the
 * cluster, by other means, what must hold after every event.
 *
 *   sim_oracle.c    tickets, contributions and orders
 *   sim_rules.c     what a step makes of a slice
 *   sim_versions.c  the versions that the stores have, and where a generation begins
 *   sim_clocks.c    what ssp promises */
#ifndef SG_TESTS_SIM_ORACLE_H
#define SG_TESTS_SIM_ORACLE_H

#include "common/checkpoint.h"
#include "common/workers.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

#define SIM_MAX_PS            3u
#define SIM_MAX_INDICES       5u  /* of workers */
#define SIM_MAX_WORKERS       12u /* processes over the whole run */
#define SIM_MAX_INCARNATIONS  96u /* of all processes */
#define SIM_MAX_SLICES        12u
#define SIM_SLICE_ELEMS       16u
#define SIM_MAX_SLOTS         2u
#define SIM_MAX_GROUPS        2u
#define SIM_MAX_STEPS         160u /* async: tickets */
#define SIM_MAX_HYPERS        16u
#define SIM_MAX_CONTRIBUTIONS (SIM_MAX_INDICES + 8u) /* to a step */
/* Bits of an incarnation that count; those above say where its coordinator began. */
#define SIM_COUNTER_MASK UINT64_C(0xfff)
/* Of sim_scenario_variables. */
#define SIM_MATRIX_VARIABLE   0u
#define SIM_AVERAGED_VARIABLE 1u
#define SIM_FROZEN_VARIABLE   2u
#define SIM_NO_PS             UINT32_MAX

typedef struct sim sim;
typedef struct sim_call sim_call;

/* --- what is remembered ----------------------------------------------------------------------------------------- */

/* What one incarnation contributed to a step, slice by slice. */
typedef struct sim_contribution {
    uint32_t index;
    uint64_t incarnation, weight;
    uint64_t sent, counted; /* slices, as bits */
    uint64_t given_up;      /* that there was no room for, or whose call was cancelled */
} sim_contribution;

/* Of a step whose update takes norms. */
typedef struct sim_scales {
    bool known, worked_out;
    float clip;        /* on the gradient */
    float matrix_rate; /* instead of the learning rate, of the variable that has two dimensions */
} sim_scales;

typedef struct sim_step_record {
    bool handed_out;
    sg_workers members;
    uint64_t iteration, hyper;
    float learning_rate;
    uint64_t incarnations[SIM_MAX_INDICES]; /* that were given a ticket */
    sim_contribution contributions[SIM_MAX_CONTRIBUTIONS];
    uint32_t n_contributions;
    sg_workers excused[SIM_MAX_PS];
    sim_scales scales;
} sim_step_record;

typedef float sim_slots[SIM_MAX_SLOTS][SIM_SLICE_ELEMS];

typedef struct sim_slice_record {
    uint64_t newest; /* version that was seen last */
    bool seen;
    bool known[SIM_MAX_STEPS + 1];
    float values[SIM_MAX_STEPS + 1][SIM_SLICE_ELEMS];
    bool has_slots[SIM_MAX_STEPS + 1];  /* sync, of each version: */
    sim_slots *slots;                   /* [SIM_MAX_STEPS + 1]; NULL: no rule had any yet */
    uint64_t uncounted;                 /* sync: version to which the rule had not been applied yet */
    float expected[SIM_SLICE_ELEMS];    /* async: initial values minus all that counted */
    uint64_t n_counted;                 /* async */
    uint64_t makers[SIM_MAX_STEPS + 1]; /* async: incarnation whose contribution made the version */
} sim_slice_record;

/* Ssp: what is known of where the clock of an incarnation began. */
typedef struct sim_clock {
    uint64_t incarnation;   /* 0: it has no ticket yet */
    bool from_zero;         /* it began at 0; else */
    uint64_t start_at_most; /* it began no higher */
} sim_clock;

/* Whom a ps was told to let in and to fence, in one generation of one of its lives. */
typedef struct sim_roster {
    uint64_t life, generation;
    uint64_t incarnations[SIM_MAX_INDICES]; /* 0: nobody yet */
    bool fenced[SIM_MAX_INDICES];
} sim_roster;

/* Sets of hyper-parameters, by number - 1, as one life of the coordinator ordered them. */
typedef struct sim_hypers {
    uint64_t life;
    Shardgrad__V1__Hyper sets[SIM_MAX_HYPERS]; /* number 0: not seen */
} sim_hypers;

/* What the ps wrote for one cut. */
typedef struct sim_set {
    uint64_t generation, number;
    uint64_t mark;
    float values[SIM_MAX_SLICES][SIM_SLICE_ELEMS];
    sim_slots slots[SIM_MAX_SLICES];
    uint64_t n_applied[SIM_MAX_SLICES];
    bool has[SIM_MAX_SLICES];
    uint64_t steps[SIM_MAX_SLICES];
} sim_set;

/* --- what it is told -------------------------------------------------------------------------------------------- */

void sim_oracle_hello(sim *s, uint32_t index, uint64_t incarnation);
void sim_oracle_ticket(sim *s, uint64_t incarnation, const Shardgrad__V1__TicketResponse *ticket);
void sim_oracle_sent(sim *s, const sim_call *push);
/* refused: [n] slices that are not stored although the status is OK. */
void sim_oracle_pushed(sim *s, const sim_call *push, sg_status status, const uint32_t *refused, size_t n_refused);
void sim_oracle_cancelled(sim *s, const sim_call *push);
/* A ps has taken this order of this life of ps 0; it may be a repeat. */
void sim_oracle_ordered(sim *s, uint32_t ps, uint64_t by_life, const Shardgrad__V1__OrderRequest *order);
void sim_oracle_left(sim *s, uint64_t incarnation);
/* Where a step is out of bounds the run has failed, and it is any. */
sim_step_record *sim_oracle_record(sim *s, uint32_t group, uint64_t step);

/* What is computed and pushed; and what of it arrives. */
float sim_rules_computed(uint64_t incarnation, uint64_t step, uint32_t slice, uint32_t elem);
float sim_rules_initial(uint32_t slice, uint32_t elem);
bool sim_rules_is_averaged(const sim *s, uint32_t slice);
/* Those that make the next version of a slice, in the order of worker indices; returns how many. */
uint32_t sim_rules_contributors(const sim_step_record *record, uint32_t slice,
                                const sim_contribution *list[SIM_MAX_CONTRIBUTIONS]);
/* Sync: version step + 1, and its slots, from version `step`, which is known. False: nobody knows all that it takes. */
bool sim_rules_make(sim *s, uint32_t slice, uint64_t step, float values[SIM_SLICE_ELEMS], sim_slots slots);
/* Async: what one contribution makes of the values, where so many workers are let in. */
void sim_rules_make_alone(const sim *s, const Shardgrad__V1__PushRequest *push, uint32_t slice, uint64_t n_live,
                          float values[SIM_SLICE_ELEMS]);
/* Slots of the rule that the job has now. */
size_t sim_rules_n_slots(const sim *s);
/* Does the job's update take norms in this step? */
bool sim_rules_takes_norms(sim *s, const sim_step_record *record);

/* When the job's rule is known. */
void sim_versions_init(sim *s);
void sim_versions_deinit(sim *s);
void sim_versions_look(sim *s, uint32_t ps);
void sim_versions_pulled(sim *s, uint32_t worker, uint32_t slice, uint64_t version, const float *values);
/* A slice's part of a checkpoint. */
void sim_versions_check_kept(sim *s, uint32_t slice, uint64_t step, uint64_t n_applied, const float *values,
                             const float *const *slots, size_t n_slots);
/* A generation begins, from this checkpoint; NULL: at the beginning. */
void sim_versions_roll_back(sim *s, uint64_t generation, const sg_checkpoint_manifest *manifest, const sim_set *set);
/* Its mode and rule are in force: async may have become sync, in which all slices of a group go on at one step, and
 * slots of another rule are zeros. */
void sim_versions_entered(sim *s, const sg_checkpoint_manifest *manifest, const sim_set *set);

/* An incarnation was given a ticket for the first time; sim_oracle_ticket has noted it. */
void sim_clocks_granted(sim *s, uint64_t incarnation, uint32_t group);
/* It begins to compute its newest ticket on this version of this slice. */
void sim_clocks_reads(sim *s, uint64_t incarnation, uint32_t slice, uint64_t version);

#endif
