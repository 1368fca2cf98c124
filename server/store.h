/* server/store.h - what a ps holds: variables, slices, their versions, slots and rounds; and what may touch them.
 *
 * The store knows nothing of sockets, threads or clocks: requests, orders and the time go in; answers come out. It is
 * driven by the rpc threads and the loop of a ps, and by tests/sim.
 *
 * Threads: every function may be called from any thread. Locks, in order: the store's own (declarations, incarnations,
 * attempt; a reader-writer lock), then one slice's. Never two slices' at once. No lock is held while an answer is
 * given, a line is logged, or the update pass runs.
 *
 * A pull is answered through options.answer_pull, at once or when the last of its versions is made; it may be
 * called from within any function here. Everything else is answered by the return value. */
#ifndef SG_SERVER_STORE_H
#define SG_SERVER_STORE_H

#include "common/config.h"
#include "common/log.h"
#include "common/plan.h"
#include "common/span.h"
#include "common/workers.h"
#include "server/version.h"
#include "shardgrad/v1/parameter.pb-c.h"

#define SG_STORE_MAX_GROUPS 64u

typedef struct sg_store sg_store;

/* The end of a pull. */
typedef struct sg_store_pull_answer {
    /* OK, WAITING (parked for park_ms), NOT_READY (no more may be parked now), TIMEOUT (its deadline), INVALID, LATE,
     * FENCED, EXHAUSTED, or the job's end */
    sg_status status;
    const char *message; /* where status is not OK */
    sg_version *const
        *versions;           /* where it is OK: [n] in the order asked, each with a reference, which is given away */
    const uint64_t *numbers; /* [n] the version's number to tell: its step, or for a frozen variable as asked */
    size_t n;
} sg_store_pull_answer;

/* The bytes of a push: its `data`, lying in spans. Contributions that have to wait for others may be left where they
 * lie: spans and bytes stay as they are while `owner` is held. */
typedef struct sg_store_data {
    const sg_span *spans;
    size_t n_spans;
    size_t kept_bytes; /* all that stays in memory while `owner` is held: the message, and what was unpacked of it */
    void *owner;
    void (*keep)(void *owner);    /* called at most once, by the thread that pushes; NULL: lent for the call alone */
    void (*release)(void *owner); /* once if it was kept; from any thread, perhaps before the call returns */
} sg_store_data;

/* What a push came to. Its arrays are made when the sender was let in: a stranger costs nothing. */
typedef struct sg_store_pushed {
    bool wants_versions;  /* given */
    uint32_t *non_finite; /* [n_non_finite] slices that were left out of their sums */
    size_t n_non_finite;
    /* [n_refused] slices that are not stored: contribution_bytes wait, and `focus` is what all wait for. Not an error:
     * they are to be sent again. */
    uint32_t *refused;
    size_t n_refused;
    uint32_t focus;
    /* [n_versions] The version of each slice that the push made, or found made (async: the newest), with a reference
     * that becomes the caller's. */
    sg_version **versions;
    size_t n_versions; /* request->n_slices; 0 where one of them could not be had at once, or they are not wanted */
} sg_store_pushed;

/* An order to cut. */
typedef struct sg_store_cut {
    uint64_t generation, number;
    uint64_t mark;        /* iteration */
    uint64_t ticket_mark; /* of the steps that are not in it */
    bool urgent;          /* somebody waits for it */
} sg_store_cut;

/* What this ps has of the norms of one step of a group, whose rounds wait for those of the others. */
typedef struct sg_store_norms {
    uint64_t number; /* names it, in this store */
    uint64_t generation;
    uint32_t group;
    uint64_t step;
    double *squares; /* [n_squares] as NormsRequest has them */
    size_t n_squares;
} sg_store_norms;

/* What all ps have, as NormsResponse has it. */
typedef struct sg_store_norms_sums {
    uint64_t number; /* and `group`: of the sg_store_norms that it answers */
    uint32_t group;
    double squares;
    const double *variables; /* [n_variables] */
    size_t n_variables;
} sg_store_norms_sums;

/* An order to load. */
typedef struct sg_store_load {
    uint64_t generation;                    /* of now: what begins with it */
    uint64_t set_iteration, set_generation; /* what it is */
} sg_store_load;

typedef struct sg_store_options {
    uint32_t ps;  /* own index */
    sg_mode mode; /* sync or async; this and the next: where the coordinator does not say (PsDeclareRequest) */
    sg_rule rule;
    sg_non_finite non_finite;
    uint64_t park_ms;       /* how long a pull is parked before it is answered WAITING */
    uint64_t warn_after_ms; /* who is waited for longer is logged, again at doubling intervals */
    uint64_t message_bytes; /* bound of one pull's bytes */
    /* Sync: contributions that wait for those of other workers; beyond it one slice of a group at a time is let in
     * (protocol, "Waiting"). 0: no bound. */
    uint64_t contribution_bytes;
    uint64_t held_bytes; /* bound of what contributions may hold where it was received (sg_store_data) */
    uint64_t max_workers;
    uint64_t backup_workers; /* sync: members of a step that are not waited for */
    bool makes_checkpoints;  /* memory for what a cut holds is taken, and touched, with the initial values */
    const sg_log *log;
    void (*answer_pull)(void *user, void *call, const sg_store_pull_answer *answer);
    /* The cut of a checkpoint is complete (OK: every slice has the version that is meant), or cannot be made: once for
     * each Cut order, from any thread, without a lock. NULL: nobody wants to know. */
    void (*on_cut)(void *user, const sg_store_cut *cut, sg_status status, const char *message);
    /* This generation starts from a checkpoint: sg_store_load of every slice, then sg_store_loaded, is to follow. Once
     * for each Load order, from any thread, without a lock. NULL: Load is refused. */
    void (*on_load)(void *user, const sg_store_load *load);
    /* The coordinator is to be asked, and sg_store_norms_answer called with what it says: once for each step of a group
     * whose update takes norms, from any thread, without a lock. `norms` is lent. NULL: no update here does. */
    void (*on_norms)(void *user, const sg_store_norms *norms);
    /* Somebody waits for this cut now. From any thread, without a lock. NULL: nobody wants to know. */
    void (*on_hurry)(void *user, uint64_t generation, uint64_t number);
    void *user;     /* of answer_pull */
    void *cut_user; /* of on_cut, on_load, on_norms and on_hurry */
} sg_store_options;

sg_store *sg_store_create(const sg_store_options *options);
/* Of what its versions are made, for what belongs to calls of the store; it lives as long as what was got from it. */
sg_pool *sg_store_pool(const sg_store *store);
/* After the last data call: lets go of messages that contributions lie in. Their rounds will not close. */
void sg_store_drop_contributions(sg_store *store);
/* All pulls must have been answered (sg_store_fail_pulls) and all versions released. NULL is fine. */
void sg_store_destroy(sg_store *store);

/* --- the coordinator's orders: each is applied once, in order; life and sequence are checked by the store --- */
/* An order that is refused uses up its number, too, and is refused the same way when it comes again; NOT_READY alone,
 * and what is wrong with the header (FENCED, EARLY, ROLLED_BACK), leaves the number for another try. */

/* Sets the life that orders must name; before it they are refused NOT_READY. Their numbers begin anew with it. */
void sg_store_set_life(sg_store *store, uint64_t life);
SG_MUST_USE sg_status sg_store_declare(sg_store *store, const Shardgrad__V1__PsDeclareRequest *request, sg_error *err);
/* End and Excuse may close rounds and so answer pulls. */
SG_MUST_USE sg_status sg_store_order(sg_store *store, uint64_t now_ms, const Shardgrad__V1__OrderRequest *request,
                                     sg_error *err);

/* What a ps says to an order that was applied. */
typedef struct sg_store_acknowledgement {
    Shardgrad__V1__OrderResponse response;
    Shardgrad__V1__Lacking lacking[SG_STORE_MAX_GROUPS], *list[SG_STORE_MAX_GROUPS];
} sg_store_acknowledgement;
/* The answer to `request`, whose end was OK. It points into itself. */
void sg_store_acknowledge(sg_store *store, const Shardgrad__V1__OrderRequest *request,
                          sg_store_acknowledgement *acknowledgement);

/* --- data calls --- */

/* data: the bytes of the request's `data` field, lying in spans that are borrowed for the call. */
SG_MUST_USE sg_status sg_store_initialize(sg_store *store, const Shardgrad__V1__InitializeRequest *request,
                                          const sg_span *data, size_t n_spans, sg_error *err);
/* Stores the contributions, or finds them counted, but those in pushed->refused; closes the rounds that are then
 * complete, which answers pulls. Errors: FENCED, ROLLED_BACK, NOT_READY, INVALID (unknown slice, wrong length, a Step
 * that differs), LATE, EARLY, EXHAUSTED, and the job's end. On INVALID nothing was stored, unless another worker fixes
 * other terms meanwhile. `pushed` is freed by sg_store_pushed_deinit, also on failure. */
SG_MUST_USE sg_status sg_store_push(sg_store *store, uint64_t now_ms, const Shardgrad__V1__PushRequest *request,
                                    const sg_store_data *data, sg_store_pushed *pushed, sg_error *err);
void sg_store_pushed_deinit(sg_store_pushed *pushed); /* the arrays alone; one without any is fine */
/* Is answered by answer_pull(user, call, ...), exactly once, at deadline_ms at the latest (given ticks). */
void sg_store_pull(sg_store *store, uint64_t now_ms, uint64_t deadline_ms, const Shardgrad__V1__PullRequest *request,
                   void *call);
/* Answers it CANCELLED if it is still parked. */
void sg_store_cancel_pull(sg_store *store, void *call);

/* --- norms --- */

/* Closes the rounds that waited for these, which may answer pulls. One that nobody waits for, or waits no more: nothing
 * happens. Errors: INVALID (sums of other variables than there are). */
SG_MUST_USE sg_status sg_store_norms_answer(sg_store *store, uint64_t now_ms, const sg_store_norms_sums *sums,
                                            sg_error *err);
/* The coordinator says for whom all wait: so do this store's pulls and log. */
void sg_store_norms_wait(sg_store *store, uint32_t group, uint64_t number, const char *text);

/* --- checkpoints --- */

/* What a checkpoint holds of one slice. */
typedef struct sg_store_kept {
    uint32_t slice;       /* index in the plan */
    sg_version *version;  /* the values */
    uint64_t step;        /* of which they are; that of `version`, or an earlier one with the same values */
    sg_version *slots[2]; /* [n_slots] */
    size_t n_slots;
    uint64_t n_applied; /* applications of the rule that made them */
} sg_store_kept;

/* Reads values and slots of a range of a variable: n_slots arrays; *step is the version that they are. */
typedef sg_status (*sg_store_read_fn)(void *user, uint32_t variable, uint64_t first_elem, uint64_t n_elems,
                                      float *values, float *const *slots, size_t n_slots, uint64_t *step,
                                      uint64_t *n_applied, sg_error *err);
/* Fills the slice at this place, on behalf of on_load; blocks as long as `read` does. Errors: those of `read`,
 * EXHAUSTED, ROLLED_BACK (another generation has begun), INVALID. */
SG_MUST_USE sg_status sg_store_fill(sg_store *store, uint64_t generation, uint32_t place, sg_store_read_fn read,
                                    void *user, sg_error *err);
/* How it went; the order is answered with it. */
void sg_store_loaded(sg_store *store, uint64_t generation, sg_status status, const char *message);

/* Of now: a generation may bring another one. */
sg_rule sg_store_rule_of_now(const sg_store *store);
/* After declare; valid as long as the store. */
const sg_plan *sg_store_plan(sg_store *store);
const char *sg_store_variable_name(sg_store *store, uint32_t variable);
/* Slices that this ps owns: their places are 0 to n - 1, in the order of the plan. After declare. */
uint32_t sg_store_n_slices(sg_store *store);
/* Of the slice at this place: its index in the plan, and how many slots it has. After declare. */
void sg_store_place(sg_store *store, uint32_t place, uint32_t *index, uint32_t *n_slots);
/* Gives away what is kept of a slice, once on_cut has said OK; copies the slots where no round has yet had to. Errors:
 * EXHAUSTED, CANCELLED (it was dropped, or its generation has passed). */
SG_MUST_USE sg_status sg_store_take_kept(sg_store *store, const sg_store_cut *cut, uint32_t place, sg_store_kept *kept,
                                         sg_error *err);
void sg_store_kept_deinit(sg_store_kept *kept);
/* Lets go of all that is kept and not taken: the checkpoint is written, or given up. */
void sg_store_drop_cut(sg_store *store, const sg_store_cut *cut);

/* --- time and news --- */

/* Answers parked pulls whose time has come, and logs who is waited for. Call every 100 ms or so. */
void sg_store_tick(sg_store *store, uint64_t now_ms);
/* Answers every parked pull and every later data call with this, unless one was set before: the job has ended, or the
 * ps is stopping or has lost its coordinator. */
void sg_store_fail_pulls(sg_store *store, sg_status status, const char *message);
/* How the job ended, once an End order was applied; message is written only then. */
bool sg_store_ended(sg_store *store, sg_status *status, char *message, size_t message_bytes);
/* Fills a report (waiting_for included); its bytes are owned by `report` and freed by sg_store_report_deinit. */
void sg_store_report(sg_store *store, Shardgrad__V1__PsReport *report);
void sg_store_report_deinit(Shardgrad__V1__PsReport *report);

#endif
