/* server/store_internal.h - what the files of the store share. Nobody else includes it.
 *
 *   store.c             create, destroy, admission of a data call, reports
 *   store_orders.c      the coordinator's orders
 *   store_load.c        values and slots of a checkpoint
 *   store_generation.c  a new generation begins: all that the one before left is dropped
 *   store_declare.c     variables and slices
 *   store_initialize.c  initial values
 *   store_push.c        pushes: checked as a whole, then stored slice by slice
 *   store_contribute.c  one contribution: looked at, perhaps kept or copied, counted
 *   store_close.c       the one function that closes rounds
 *   store_norms.c       rounds that close in two phases: what lies between them
 *   store_pull.c        pulls, parked and answered
 *   store_pull_now.c    pulls of what is there
 *   store_quota.c       what may wait: bounds of parked pulls and of contributions
 *   store_watch.c       who is waited for, in words and in the log
 *   store_cut.c         what is kept of each slice for a checkpoint, while rounds go on
 *
 * Locks, in order: store.lock, then one slice's mutex, then pulls_mutex. */
#ifndef SG_SERVER_STORE_INTERNAL_H
#define SG_SERVER_STORE_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/plan.h"
#include "kernels/update_norms.h"
#include "server/round.h"
#include "server/store.h"

/* So much may be held in any case. */
#define SG_STORE_HELD_MIN_BYTES ((uint64_t)4 << 20)
/* Parked pulls: of one worker, and of all. A client of ours has at most a few hundred at a ps. Each is a call of
 * gRPC's, too, of some 10 KiB. */
#define SG_STORE_PARKED_CALLS_PER_WORKER 1024u
#define SG_STORE_PARKED_CALLS            16384u
/* What those of a worker may take of our own memory: this, and twice what it takes to ask for every slice. */
#define SG_STORE_PARKED_MIN_BYTES   ((uint64_t)4 << 20)
#define SG_STORE_PARKED_SLICE_BYTES 128u
/* Async: contributions are counted by their staleness, from 0 on; the last count is of as much and more. */
#define SG_STORE_N_STALENESS 33u

typedef struct sg_store_variable {
    char *name;
    bool frozen, average;
    bool exempt;      /* one dimension at most: see sg_update.exempt */
    _Atomic int rule; /* of now; a generation may bring another one */
    float lr_multiplier, decay_multiplier;
} sg_store_variable;

typedef struct sg_store_held sg_store_held; /* a received message that contributions lie in: store_contribute.c */

/* One contribution of a round. */
typedef struct sg_store_part {
    uint32_t worker;
    float learning_rate;
    uint64_t weight; /* 0: its elements are not read */
    uint64_t hyper;
    uint64_t mark;           /* the newest checkpoint that its step is not in */
    bool look;               /* the pass is to look whether it is finite */
    sg_span_reader gradient; /* where it lies, unless it was copied */
    sg_store_held *held;     /* what keeps it there; NULL: lent by the push that closes the round */
    sg_version *copy;        /* not published, nobody else's */
    uint64_t room_bytes;     /* what it has of contribution_bytes */
} sg_store_part;

typedef struct sg_store_keeping sg_store_keeping; /* of one slice, for a checkpoint: store_cut.c */
typedef struct sg_store_parked sg_store_parked;   /* a pull from its beginning to its end: store_pull.c */

/* A pull's place in the list of the slice that it waits for. Linked: it holds a reference to the pull. */
typedef struct sg_store_waiter {
    sg_store_parked *pull;
    size_t index; /* in the pull */
    bool linked;
    struct sg_store_waiter *prev, *next;
} sg_store_waiter;

/* A round between the two phases of its closing (kernels/update_norms.h). `round.closing` all the while. */
typedef struct sg_store_between {
    uint64_t exchange; /* whose sums it waits for; 0: it is not between them */
    sg_version *made;  /* of the first phase; one that shares the values (`base`) where nothing was contributed */
    sg_update update;
} sg_store_between;

/* The norms of one step of a group, as far as this ps has them. */
typedef struct sg_store_exchange {
    uint64_t number; /* 0: none is under way. No two of a store have the same */
    uint64_t step;
    uint32_t n_slices, n_lacking;           /* that take part; that have not closed yet */
    double *squares;                        /* [2 * n_slices] by their order */
    char waits_for[SG_ERROR_MESSAGE_BYTES]; /* what the coordinator said of others; "": nothing yet */
} sg_store_exchange;

typedef struct sg_store_slice {
    pthread_mutex_t mutex;
    /* Immutable after declare. */
    uint32_t index; /* in the plan */
    uint32_t group;
    uint32_t place_in_group; /* among those of the group that this ps owns and that are trained and not averaged */
    uint64_t n_elems;
    const sg_store_variable *variable;
    /* Guarded by mutex, up to the next blank line. */
    sg_round round;
    sg_version *newest;  /* version round.step; NULL before the commit. While the round closes nobody else changes it */
    sg_version *spare;   /* not published, nobody else's: the next version is made in it. May be NULL */
    sg_version *older;   /* a list: kept until a contribution proves that nobody needs them */
    sg_version *initial; /* values of the attempt, before the commit */
    sg_store_part *parts; /* [n_parts] sync: by worker; async: in order of arrival */
    uint32_t n_parts, parts_capacity;
    sg_store_waiter *waiters;
    uint64_t opened_ms;    /* when the collecting round got its first contribution */
    uint64_t mark;         /* sync: the newest checkpoint that a closed step is not in */
    sg_store_keeping *cut; /* what is kept for a checkpoint; NULL: nothing */
    sg_version *reserve;   /* a list of buffers for that, until the first is kept */
    bool had_reserve;

    /* Guarded by mutex, too: whoever takes it out of here goes on with the closing. */
    sg_store_between between;
    bool shares; /* while the round closes: nobody contributed, so that values and slots stay as they are */

    /* Touched only by the thread that closes a round (round.closing); slots are made, under mutex, before the first
     * initial values are stored. */
    float *slots[SG_UPDATE_MAX_SLOTS];
    uint64_t n_applied; /* applications of the rule */
    uint64_t uncounted; /* sync: the version of which none had been applied yet; 0, or where another rule began */
} sg_store_slice;

/* Where the focus of a group was last: every slice of the group before `place` has all that `step` needs. */
typedef struct sg_store_focus {
    uint64_t step;
    uint32_t place;
} sg_store_focus;

/* Pulls that are parked. */
typedef struct sg_store_parking {
    uint64_t n_calls, n_bytes;
} sg_store_parking;

typedef struct sg_store_worker {
    uint64_t incarnation; /* the current one; 0: none yet */
    bool fenced;          /* it, too: the worker has left or is given up */
    char *address;        /* for messages; may be NULL */
} sg_store_worker;

/* How rounds close, and what they do. */
typedef struct sg_store_way {
    sg_mode mode; /* sync or async */
    sg_rule rule;
    uint64_t backup_workers;
} sg_store_way;

struct sg_store {
    sg_store_options options; /* immutable: of its mode, rule and backup_workers only the beginning, see below */
    sg_pool *pool;
    /* The way of now: changed under `lock`, while there are no values. Read anywhere: who was let in before finds out
     * by `admission` that it is none of its business any more. */
    _Atomic int mode, rule;

    pthread_rwlock_t lock;            /* guards what follows, up to the next blank line */
    uint64_t life, sequence;          /* of the newest order that was applied or refused for good */
    sg_error order_result;            /* what was said to it, for when it comes again */
    uint64_t generation;              /* 0: none yet */
    uint64_t backup_workers;          /* of the way of now */
    char why[SG_ERROR_MESSAGE_BYTES]; /* it began; "": not told */
    struct {
        enum { SG_STORE_LOAD_NONE, SG_STORE_LOAD_UNDER_WAY, SG_STORE_LOAD_ENDED } state;
        sg_store_load what;
        uint64_t steps[SG_STORE_MAX_GROUPS]; /* [n_steps] at which the slices of each group go on; none: at their own */
        size_t n_steps;
        bool fresh_slots;
        sg_error result;
    } load;
    sg_plan *plan; /* this and the next five: immutable once set by declare */
    sg_store_variable *variables;
    sg_store_slice *slices; /* [n_slices] those that this ps owns, ascending */
    uint32_t n_slices;
    uint32_t *places; /* [plan->n_slices] where in slices it is; UINT32_MAX: another ps owns it */
    uint64_t value_bytes, slot_bytes;
    sg_store_worker *workers; /* [options.max_workers] */
    uint64_t attempt, attempt_incarnation;
    bool sealed, committed;
    bool following; /* an order was applied, and what follows from it is being done: none is taken or acknowledged */
    bool beginning; /* of the generation: what the one before left is being dropped, and no order is taken */
    Shardgrad__V1__Hyper *hypers; /* [n_hypers] values, ascending by number */
    size_t n_hypers;
    bool ended;
    sg_status end_status; /* of the End order */
    char *end_reason;
    sg_status failure; /* what every data call is answered with; OK: none */
    char *failure_message;

    pthread_mutex_t pulls_mutex; /* guards the list of parked pulls, and how many there are */
    sg_store_parked *pulls;
    sg_store_parking parked;
    sg_store_parking *parked_of; /* [options.max_workers] */

    struct {
        bool ordered; /* this and the next two lines: guarded by `lock` */
        uint64_t mark, ticket_mark, number;
        bool urgent;
        _Atomic uint32_t n_lacking; /* slices without their version, and one while the order is being followed */
        atomic_bool failed;
    } cut;

    struct { /* the thread that ticks */
        uint64_t looked_ms, opened_ms, interval_ms;
    } watch;
    pthread_mutex_t non_finite_mutex;
    sg_log_pace non_finite_pace; /* guarded by it */
    _Atomic uint64_t n_pushed, n_pulled, n_non_finite, n_empty;
    _Atomic uint64_t staleness[SG_STORE_N_STALENESS];
    /* Another number when somebody who was let in may not be any more; changed under `lock`. A contribution that is
     * counted under its slice's mutex compares it with what it was when its push was let in. */
    _Atomic uint64_t admission;
    _Atomic uint64_t live;          /* workers that are let in; changed under `lock` */
    _Atomic uint64_t held_bytes;    /* of messages that contributions lie in */
    _Atomic uint64_t waiting_bytes; /* of contributions that have room: sg_store_room_take */
    pthread_mutex_t norms_mutex;    /* guards the next three; no other is taken under it */
    sg_store_exchange *exchanges;   /* [n_exchanges] by group; none before the first is begun */
    size_t n_exchanges;
    uint64_t exchange_number;    /* of the newest */
    pthread_mutex_t focus_mutex; /* guards the next three; taken before a slice's */
    sg_store_focus *focus;       /* [n_focus] by group; grows */
    size_t n_focus;
    sg_log_pace refused_pace;
};

static inline bool sg_store_is_sync(const sg_store *store)
{
    return atomic_load_explicit(&store->mode, memory_order_relaxed) == SG_MODE_SYNC;
}

static inline sg_rule sg_store_variable_rule(const sg_store_variable *variable)
{
    return (sg_rule)atomic_load_explicit(&variable->rule, memory_order_relaxed);
}

/* Is it made by the rule of the job, and part of the norms? */
static inline bool sg_store_is_trained(const sg_store_variable *variable)
{
    return !variable->frozen && !variable->average;
}

static inline sg_rule sg_store_rule(const sg_store *store)
{
    return (sg_rule)atomic_load_explicit(&store->rule, memory_order_relaxed);
}

/* --- store.c --- */

/* Under store.lock, when one was let in or fenced: counts store.live anew. */
void sg_store_count_live(sg_store *store);
/* Under store.lock: is this incarnation let in? Errors: the failure, ROLLED_BACK, NOT_READY, INVALID, FENCED. */
SG_MUST_USE sg_status sg_store_admit(sg_store *store, uint32_t worker, uint64_t incarnation, uint64_t generation,
                                     sg_error *err);
/* The slice, if this ps owns it. After declare. Errors: INVALID. */
SG_MUST_USE sg_status sg_store_find_slice(const sg_store *store, uint32_t index, sg_store_slice **slice, sg_error *err);
/* Is no slice listed twice? Errors: INVALID, EXHAUSTED. */
SG_MUST_USE sg_status sg_store_check_distinct(const uint32_t *indices, size_t n, sg_error *err);
/* Of the bytes of a request, or of a variable. Errors: INVALID. */
SG_MUST_USE sg_status sg_store_check_dtype(Shardgrad__V1__DataType dtype, sg_error *err);
/* Copies n_elems floats from the reader, testing each while it is in cache. *finite: all of them were.
 * narrow: they are bfloat16 there; out may be NULL: it only looks. */
void sg_store_gather(sg_span_reader *reader, float *out, uint64_t n_elems, bool *finite);
void sg_store_gather_narrow(sg_span_reader *reader, float *out, uint64_t n_elems, bool *finite);
/* Under store.lock: the hyper-parameter set of this number; NULL: none is known. */
const Shardgrad__V1__Hyper *sg_store_find_hyper(const sg_store *store, uint64_t number);
/* Under the slice's mutex: this worker gets that version. */
void sg_store_gave(const sg_store *store, sg_store_slice *slice, uint32_t worker, uint64_t version);
/* Waits until every contribution that was let in before this call is counted. Without a lock. */
void sg_store_settle_contributions(sg_store *store);

/* --- store_generation.c --- */

/* Under store.lock, for writing: nobody of the generation before is let in any more. */
SG_MUST_USE sg_status sg_store_begin_generation(sg_store *store, uint64_t generation, const char *why, sg_error *err);
/* Without a lock, after that: drops what it left. */
void sg_store_follow_begin(sg_store *store);

/* --- store_load.c --- */

/* Under store.lock, for writing. NOT_READY until sg_store_loaded; *starts: on_load is to be called. */
SG_MUST_USE sg_status sg_store_load_order(sg_store *store, const Shardgrad__V1__Load *order, bool *starts,
                                          sg_error *err);

/* --- store_declare.c --- */

/* Under store.lock, for writing. Leaves the store as it was on failure. */
SG_MUST_USE sg_status sg_store_set_variables(sg_store *store, const Shardgrad__V1__PsDeclareRequest *request,
                                             sg_error *err);
void sg_store_free_variables(sg_store *store);
/* Slots that the slice needs. */
size_t sg_store_n_slots(const sg_store_slice *slice);
/* Under store.lock, for reading at least. */
sg_store_way sg_store_way_of_now(const sg_store *store);
/* Under the slice's mutex, or before anybody knows it: its rounds begin anew, in this way. */
void sg_store_renew_round(const sg_store_way *way, sg_store_slice *slice);

/* --- store_initialize.c, parts of orders: under store.lock, for writing --- */

SG_MUST_USE sg_status sg_store_begin_attempt(sg_store *store, const Shardgrad__V1__Attempt *attempt, sg_error *err);
SG_MUST_USE sg_status sg_store_seal(sg_store *store, const Shardgrad__V1__Seal *seal, sg_error *err);
SG_MUST_USE sg_status sg_store_commit(sg_store *store, const Shardgrad__V1__Commit *commit, sg_error *err);

/* --- store_push.c and store_contribute.c --- */

/* One slice of a push. */
typedef struct sg_store_item {
    sg_store_slice *slice;
    uint64_t step;
    sg_span_reader gradient;
    sg_round_verdict verdict;
    bool closes;         /* its round can close at once, as far as it was seen */
    bool look;           /* whether it is finite is still to be found out, by the pass */
    bool finite;         /* where that is known */
    bool can_wait;       /* it is kept, copied or weighs nothing */
    bool refused;        /* there is no room for it to wait */
    bool narrow;         /* its elements are bfloat16: it is widened, or only looked at */
    uint64_t room_bytes; /* that it has, until it is counted */
    sg_version *copy;    /* until it is counted */
} sg_store_item;

/* Of its elements in the message. */
static inline uint64_t sg_store_item_bytes(const sg_store_item *item)
{
    return item->slice->n_elems * (item->narrow ? sizeof(uint16_t) : sizeof(float));
}

typedef struct sg_store_push_state {
    sg_store *store;
    uint64_t now_ms;
    const Shardgrad__V1__PushRequest *request;
    const sg_store_data *data;
    uint64_t data_bytes;
    sg_store_pushed *pushed;
    sg_round_terms terms;
    bool alone; /* the sender is the only member */
    Shardgrad__V1__Hyper hyper;
    uint64_t admission;
    sg_store_item *items; /* [n] */
    size_t n;
    sg_store_held *held; /* the message, once a contribution has to wait in it */
    size_t n_kept;       /* contributions that do */
    bool took_room;      /* some item has room_bytes */
    bool copies;         /* no more may be held: they are copied instead */
    bool narrow;         /* the data is bfloat16, but that of averaged variables */
    size_t n_versions;   /* that pushed->versions has, up to the first that is missing */
    bool lacks_version;
} sg_store_push_state;

/* Is the sender let in, now? Errors: as sg_store_admit, NOT_READY before the commit, INVALID (no step, or of an unknown
 * hyper-parameter set). */
SG_MUST_USE sg_status sg_store_admit_push(sg_store_push_state *p, sg_error *err);
/* Looks at item i's bytes, unless the pass will, and finds it a place if it has to wait. Errors: EXHAUSTED. */
SG_MUST_USE sg_status sg_store_prepare(sg_store_push_state *p, size_t i, sg_error *err);
/* Counts it and closes what is then complete. */
SG_MUST_USE sg_status sg_store_contribute(sg_store_push_state *p, size_t i, sg_error *err);
/* What is owed in the end, however it went. */
void sg_store_end_push(sg_store_push_state *p);
sg_round_entry sg_store_entry(const sg_store_push_state *p, size_t i);
/* What a verdict other than STORED and REPEAT is told as; otherwise OK. */
SG_MUST_USE sg_status sg_store_verdict_error(const sg_store_push_state *p, size_t i, const char *field,
                                             uint64_t collecting, sg_error *err);
/* Lets go of the elements of a part. Without a lock. */
void sg_store_part_deinit(sg_store *store, sg_store_part *part);

/* --- store_close.c --- */

/* A round that closes, from when it was taken from its slice. */
typedef struct sg_store_closing {
    sg_version *old;
    sg_version *spare;
    /* Sync: the slice's own array or &one, and nobody else's while the round closes; async: &one. */
    sg_store_part *parts;
    size_t n_parts;
    sg_store_part one;
    const Shardgrad__V1__Hyper *hyper; /* perhaps that of the parts; NULL: to be looked up */
    uint64_t hyper_number;             /* of the step; 0: nobody fixed it */
    bool wants_made, left_out;         /* given; found: the part that was looked at counts with weight 0 */
    sg_version *made;                  /* found, where it is wanted: the next version, with a reference */
} sg_store_closing;

/* Under the slice's mutex, where sg_round_begin_close was called: takes what is needed. part: one more, or NULL. */
void sg_store_begin_close(sg_store *store, sg_store_slice *slice, const sg_store_part *part, sg_store_closing *closing);
/* Without a lock, after that: makes the next version, closes every round that can close then, and answers the pulls
 * that waited. */
void sg_store_close(sg_store *store, uint64_t now_ms, sg_store_slice *slice, sg_store_closing *closing);
/* Under the slice's mutex: adds it to those that wait for their round. */
void sg_store_add_part(const sg_store *store, sg_store_slice *slice, const sg_store_part *part);
/* Closes every round of the slice that can close, and answers the pulls that waited. Call it, without a lock, after
 * every other event that could close one. */
void sg_store_close_rounds(sg_store *store, uint64_t now_ms, sg_store_slice *slice);

/* After the second phase's sums came, for a round that waited with `between`, which is used up: as sg_store_close. */
void sg_store_close_second(sg_store *store, uint64_t now_ms, sg_store_slice *slice, const sg_store_between *between,
                           const sg_update_squares_of *variable, double group_made);

/* A slice has got through the first phase: what it waits with, and what it found. */
typedef struct sg_store_first_phase {
    sg_store_between between;
    sg_update_squares_of squares;
} sg_store_first_phase;

/* --- store_norms.c --- */

/* The round of this step is between its phases now. May ask for the norms. Without a lock. */
void sg_store_norms_add(sg_store *store, sg_store_slice *slice, uint64_t step, const sg_store_first_phase *first);
/* Under the slice's mutex: what the round waits with is thrown away, for good. */
void sg_store_norms_drop(sg_store_slice *slice);
/* All that is under way has passed. Without a lock. */
void sg_store_norms_forget(sg_store *store);
/* "waiting for ps 1 ..., group 0, step 17" if the slice is between its phases. Without a lock. */
bool sg_store_norms_describe(sg_store *store, sg_store_slice *slice, char *out, size_t out_bytes);
void sg_store_norms_deinit(sg_store *store);

/* --- store_pull.c --- */

/* Under the slice's mutex: hands the newest version to the waiters that it satisfies; the list that is returned is to
 * be given to sg_store_answer_waiters without a lock. */
sg_store_waiter *sg_store_satisfy_waiters(const sg_store *store, sg_store_slice *slice);
void sg_store_answer_waiters(sg_store *store, sg_store_waiter *satisfied);
/* Answers parked pulls of fenced incarnations; of all, if there is a failure. Attaches those that waited for the
 * commit. */
void sg_store_review_pulls(sg_store *store);

/* --- store_quota.c --- */

/* Takes a place for a pull of a worker that was let in. Errors: NOT_READY (there is none now: ask again). */
SG_MUST_USE sg_status sg_store_park(sg_store *store, uint32_t worker, size_t n_bytes, sg_error *err);
/* Under pulls_mutex: gives it back. */
void sg_store_unpark(sg_store *store, uint32_t worker, size_t n_bytes);

/* Sync, without a lock: room among the contributions that wait, for one to this slice. False: there is none. */
bool sg_store_room_take(sg_store *store, const sg_store_slice *slice);
/* The slice of a trained group, one of which has none, that there always is room for. Without a lock. */
uint32_t sg_store_focus_of(sg_store *store, uint32_t group);
void sg_store_room_give(sg_store *store, uint64_t n_bytes);
/* All steps begin anew. Without a lock. */
void sg_store_focus_forget(sg_store *store);
void sg_store_room_deinit(sg_store *store);

/* --- store_pull_now.c --- */

/* Under the slice's mutex, after the commit: the version that answers a pull, if it is there. */
sg_version *sg_store_find_version(const sg_store *store, const sg_store_slice *slice, uint64_t wanted);
/* Of a pull that was let in at this state of store.admission, after the commit: answers it if all that it asks for is
 * there. False: nothing was done. */
bool sg_store_pull_now(sg_store *store, const Shardgrad__V1__PullRequest *request, uint64_t admission, void *call);

/* --- store_cut.c --- */

/* Under store.lock, for writing. */
SG_MUST_USE sg_status sg_store_cut_begin(sg_store *store, const Shardgrad__V1__Cut *order, sg_error *err);
/* Without a lock, after that. */
void sg_store_cut_follow(sg_store *store, const Shardgrad__V1__Cut *order);
/* Under the slice's mutex, before the pass of a round that begins to close, and whose mark this is: keeps what the pass
 * would take away. */
void sg_store_cut_before_pass(sg_store *store, sg_store_slice *slice, uint64_t mark);
/* Under the slice's mutex, where a version was published and something is kept. True: call sg_store_cut_reached once
 * the mutex is free. */
bool sg_store_cut_published(sg_store *store, sg_store_slice *slice);
void sg_store_cut_reached(sg_store *store);
void sg_store_cut_free(sg_store_slice *slice);
/* Once for a slice, with its first values: memory for what a cut holds of it while rounds go on. Without the slice's
 * mutex. */
void sg_store_cut_reserve(sg_store *store, sg_store_slice *slice);
void sg_store_cut_release_reserve(sg_store_slice *slice);

/* --- store_watch.c --- */

/* "waiting for worker 1 (host:4242), group 0, step 17": why the slice has no version `wanted` yet. */
void sg_store_describe_wait(sg_store *store, sg_store_slice *slice, uint64_t wanted, char *out, size_t out_bytes);
void sg_store_watch(sg_store *store, uint64_t now_ms);

#endif
