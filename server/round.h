/* server/round.h - who still has to contribute to a slice: the decisions of its rounds, and nothing else.
 *
 * Sync: contributions are taken for one step, `step`; the round of that step closes when members - contributed -
 * excused is empty, or all but `backup` members (but at least one) contributed; then the next step collects. Excuses
 * are kept for rounds that nobody contributed to yet. Async: every contribution closes a round of its own; `step`
 * counts them.
 *
 * A pure state machine: no lock, no clock, no values. Its owner (store_close.c) serialises. A round closes in two
 * calls, because the arithmetic between them runs while contributions go on arriving. */
#ifndef SG_SERVER_ROUND_H
#define SG_SERVER_ROUND_H

#include "common/workers.h"

/* What a ticket froze for all members of a step: the first contribution or excuse of a round fixes it. */
typedef struct sg_round_terms {
    sg_workers members;
    uint64_t iteration;
    uint64_t hyper;
    uint64_t checkpoint_mark;
    float learning_rate;
} sg_round_terms;

typedef struct sg_round_open {
    uint64_t step;
    uint32_t n_missing;
    uint32_t n_needed; /* contributions without which it closes only if nobody is missing; at least 1 */
    uint32_t n_contributed;
    sg_round_terms terms;
    sg_workers missing; /* [n_missing] members that neither contributed nor are excused */
} sg_round_open;

/* What was counted last of a worker index. */
typedef struct sg_round_count {
    uint64_t incarnation; /* async only */
    uint64_t next;        /* 1 + the step (async: ticket) that was counted last; 0: none */
    uint64_t given;       /* async: version that it was given last */
} sg_round_count;

typedef struct sg_round {
    bool async;
    bool closing;
    uint32_t backup;     /* sync: so many members are not waited for; set before the first contribution */
    uint64_t step;       /* collects */
    uint64_t pending;    /* async: contributions that wait for their round */
    sg_round_open *open; /* [n_open] fixed rounds of steps >= step, ascending */
    uint32_t n_open, open_capacity;
    sg_round_count *counts; /* [n_counts] by worker index */
    uint32_t n_counts;
} sg_round;

typedef enum sg_round_verdict {
    SG_ROUND_STORED,       /* it counts */
    SG_ROUND_REPEAT,       /* it was counted before */
    SG_ROUND_LATE,         /* the round is closed, without this worker */
    SG_ROUND_EARLY,        /* the step has not begun */
    SG_ROUND_DIFFERS,      /* its terms are not those of the round */
    SG_ROUND_NOT_A_MEMBER, /* of its own terms */
    SG_ROUND_FENCED,       /* async: a later incarnation was counted */
} sg_round_verdict;

/* A contribution. Async: step is the ticket. */
typedef struct sg_round_entry {
    uint32_t worker; /* below SG_MAX_WORKERS */
    uint64_t incarnation;
    uint64_t step;
    const sg_round_terms *terms;
    bool alone; /* true: the worker is known to be the only member; whoever makes many entries looks once */
} sg_round_entry;

void sg_round_init(sg_round *round, bool async);
void sg_round_deinit(sg_round *round);

/* What sg_round_contribute would say. DIFFERS: *field (may be NULL) names the first field that does. */
sg_round_verdict sg_round_look(const sg_round *round, const sg_round_entry *entry, const char **field);
/* Counts the contribution if the verdict is STORED, else changes nothing. */
sg_round_verdict sg_round_contribute(sg_round *round, const sg_round_entry *entry, const char **field);
/* Would the round of this one, whose verdict is STORED, begin to close at once if it were counted? */
bool sg_round_closes_with(const sg_round *round, const sg_round_entry *entry);
/* Contributes and, if the round can then close (*closes), begins to close it. The same as the calls one by one, and
 * cheaper for a round that has one member. */
sg_round_verdict sg_round_contribute_and_close(sg_round *round, const sg_round_entry *entry, const char **field,
                                               bool *closes);
/* The worker will contribute nothing (more) to this step. A past step: nothing happens. Sync only. */
void sg_round_excuse(sg_round *round, uint32_t worker, uint64_t step, const sg_round_terms *terms);

/* Sync: the lowest step that is not closed and that this worker has not contributed to. */
uint64_t sg_round_lacks(const sg_round *round, uint32_t worker);
bool sg_round_can_close(const sg_round *round);
void sg_round_begin_close(sg_round *round); /* only if it can */
void sg_round_end_close(sg_round *round);   /* the next step collects */

/* Checkpoint mark of the collecting round, where somebody has fixed its terms; else 0. */
uint64_t sg_round_mark(const sg_round *round);
/* Set of hyper-parameters of the collecting round, where somebody has fixed its terms; else 0. */
uint64_t sg_round_hyper(const sg_round *round);
/* Async: the worker was given this version. */
void sg_round_gave(sg_round *round, uint32_t worker, uint64_t version);
/* Async: versions that are made between the one that the worker was given last and that of its next contribution. */
uint64_t sg_round_staleness(const sg_round *round, uint32_t worker);

/* Members that the collecting round waits for; false if nobody is known to be waited for. */
bool sg_round_missing(const sg_round *round, sg_workers *missing);
/* The same, where somebody contributed: before that, though some may be excused, nobody is held up. */
bool sg_round_holds_up(const sg_round *round, sg_workers *missing);

#endif
