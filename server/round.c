/* server/round.c - see round.h. */
#include "server/round.h"

#include <stdlib.h>
#include <string.h>

void sg_round_init(sg_round *round, bool async)
{
    *round = (sg_round){.async = async};
}

void sg_round_deinit(sg_round *round)
{
    free(round->open);
    free(round->counts);
    *round = (sg_round){0};
}

/* --- what was counted --- */

static sg_round_count count_of(const sg_round *round, uint32_t worker)
{
    return worker < round->n_counts ? round->counts[worker] : (sg_round_count){0};
}

static sg_round_count *make_count(sg_round *round, uint32_t worker)
{
    SG_ASSERT(worker < SG_MAX_WORKERS);
    if (worker >= round->n_counts) {
        round->counts = sg_xrealloc(round->counts, worker + 1, sizeof *round->counts);
        memset(round->counts + round->n_counts, 0, (worker + 1 - round->n_counts) * sizeof *round->counts);
        round->n_counts = worker + 1;
    }
    return &round->counts[worker];
}

static void count(sg_round *round, const sg_round_entry *entry)
{
    sg_round_count *made = make_count(round, entry->worker);
    made->incarnation = entry->incarnation;
    made->next = entry->step + 1;
}

/* --- rounds that are fixed --- */

static sg_round_open *find_open(const sg_round *round, uint64_t step)
{
    for (uint32_t i = 0; i < round->n_open; i++) {
        if (round->open[i].step == step)
            return &round->open[i];
    }
    return NULL;
}

static uint32_t needed(const sg_round *round, uint32_t n_members)
{
    return n_members > round->backup ? n_members - round->backup : 1;
}

static bool is_complete(const sg_round_open *open)
{
    return open->n_missing == 0 || open->n_contributed >= open->n_needed;
}

/* Few rounds are open at once (a worker holds two tickets), so the list stays short and is searched linearly. */
static sg_round_open *open_round(sg_round *round, uint64_t step, const sg_round_terms *terms)
{
    sg_round_open *found = find_open(round, step);
    if (found)
        return found;
    if (round->n_open == round->open_capacity) {
        round->open_capacity = round->open_capacity ? 2 * round->open_capacity : 2;
        round->open = sg_xrealloc(round->open, round->open_capacity, sizeof *round->open);
    }
    uint32_t at = round->n_open;
    while (at > 0 && round->open[at - 1].step > step)
        at--;
    memmove(round->open + at + 1, round->open + at, (round->n_open - at) * sizeof *round->open);
    round->n_open++;
    round->open[at].step = step;
    round->open[at].terms = *terms;
    round->open[at].missing = terms->members;
    round->open[at].n_missing = sg_workers_count(&terms->members);
    round->open[at].n_needed = needed(round, round->open[at].n_missing);
    round->open[at].n_contributed = 0;
    return &round->open[at];
}

static void settle(sg_round_open *open, uint32_t worker)
{
    if (!sg_workers_has(&open->missing, worker))
        return;
    sg_workers_remove(&open->missing, worker);
    open->n_missing--;
}

static void contributed(sg_round_open *open, uint32_t worker)
{
    settle(open, worker);
    open->n_contributed++;
}

static const char *differing_field(const sg_round_terms *a, const sg_round_terms *b)
{
    if (!sg_workers_equal(&a->members, &b->members))
        return "members";
    if (a->iteration != b->iteration)
        return "iteration";
    if (a->hyper != b->hyper)
        return "hyper";
    if (a->learning_rate != b->learning_rate)
        return "learning_rate";
    return a->checkpoint_mark != b->checkpoint_mark ? "checkpoint_mark" : NULL;
}

/* --- contributions --- */

static sg_round_verdict look_async(const sg_round *round, const sg_round_entry *entry)
{
    sg_round_count last = count_of(round, entry->worker);
    if (last.incarnation > entry->incarnation)
        return SG_ROUND_FENCED;
    return last.incarnation == entry->incarnation && entry->step < last.next ? SG_ROUND_REPEAT : SG_ROUND_STORED;
}

sg_round_verdict sg_round_look(const sg_round *round, const sg_round_entry *entry, const char **field)
{
    if (!sg_workers_has(&entry->terms->members, entry->worker))
        return SG_ROUND_NOT_A_MEMBER;
    if (round->async)
        return look_async(round, entry);
    /* A worker pushes a step only when the one before was acknowledged, so all up to its last one are settled. */
    if (entry->step < count_of(round, entry->worker).next)
        return SG_ROUND_REPEAT;
    if (entry->step > round->step)
        return SG_ROUND_EARLY;
    if (entry->step < round->step || round->closing)
        return SG_ROUND_LATE;
    const sg_round_open *open = find_open(round, entry->step);
    const char *differs = open ? differing_field(&open->terms, entry->terms) : NULL;
    if (differs && field)
        *field = differs;
    return differs ? SG_ROUND_DIFFERS : SG_ROUND_STORED;
}

sg_round_verdict sg_round_contribute(sg_round *round, const sg_round_entry *entry, const char **field)
{
    sg_round_verdict verdict = sg_round_look(round, entry, field);
    if (verdict != SG_ROUND_STORED)
        return verdict;
    if (round->async)
        round->pending++;
    else
        contributed(open_round(round, entry->step, entry->terms), entry->worker);
    count(round, entry);
    return SG_ROUND_STORED;
}

/* Nobody else is waited for. */
static bool is_enough(const sg_round *round, const sg_round_entry *entry)
{
    if (entry->alone)
        return true;
    if (round->backup > 0)
        return needed(round, sg_workers_count(&entry->terms->members)) == 1;
    sg_workers others = entry->terms->members;
    sg_workers_remove(&others, entry->worker);
    return sg_workers_is_empty(&others);
}

bool sg_round_closes_with(const sg_round *round, const sg_round_entry *entry)
{
    if (round->async)
        return !round->closing && round->pending == 0;
    const sg_round_open *open = find_open(round, round->step);
    if (!open)
        return is_enough(round, entry);
    return is_complete(open) || open->n_contributed + 1 >= open->n_needed ||
           (open->n_missing == 1 && sg_workers_has(&open->missing, entry->worker));
}

sg_round_verdict sg_round_contribute_and_close(sg_round *round, const sg_round_entry *entry, const char **field,
                                               bool *closes)
{
    sg_round_verdict verdict = sg_round_look(round, entry, field);
    *closes = verdict == SG_ROUND_STORED && sg_round_closes_with(round, entry);
    if (verdict != SG_ROUND_STORED)
        return verdict;
    if (*closes && !round->async && !find_open(round, entry->step)) { /* its terms would be forgotten in a moment */
        count(round, entry);
        round->closing = true;
        return verdict;
    }
    verdict = sg_round_contribute(round, entry, NULL);
    if (*closes)
        sg_round_begin_close(round);
    return verdict;
}

void sg_round_excuse(sg_round *round, uint32_t worker, uint64_t step, const sg_round_terms *terms)
{
    SG_ASSERT(!round->async);
    if (step < round->step || (step == round->step && round->closing))
        return;
    settle(open_round(round, step, terms), worker);
}

/* --- staleness --- */

void sg_round_gave(sg_round *round, uint32_t worker, uint64_t version)
{
    make_count(round, worker)->given = version;
}

uint64_t sg_round_staleness(const sg_round *round, uint32_t worker)
{
    uint64_t before = round->step + round->pending, given = count_of(round, worker).given;
    return before > given ? before - given : 0;
}

/* --- closing --- */

uint64_t sg_round_mark(const sg_round *round)
{
    const sg_round_open *open = round->async ? NULL : find_open(round, round->step);
    return open ? open->terms.checkpoint_mark : 0;
}

uint64_t sg_round_hyper(const sg_round *round)
{
    const sg_round_open *open = round->async ? NULL : find_open(round, round->step);
    return open ? open->terms.hyper : 0;
}

bool sg_round_missing(const sg_round *round, sg_workers *missing)
{
    const sg_round_open *open = round->async ? NULL : find_open(round, round->step);
    if (!open)
        return false;
    *missing = open->missing;
    return !is_complete(open);
}

bool sg_round_holds_up(const sg_round *round, sg_workers *missing)
{
    const sg_round_open *open = round->async ? NULL : find_open(round, round->step);
    return open && open->n_contributed > 0 && sg_round_missing(round, missing);
}

uint64_t sg_round_lacks(const sg_round *round, uint32_t worker)
{
    uint64_t next = count_of(round, worker).next, collects = round->step + round->closing;
    return next > collects ? next : collects;
}

bool sg_round_can_close(const sg_round *round)
{
    if (round->closing)
        return false;
    if (round->async)
        return round->pending > 0;
    const sg_round_open *open = find_open(round, round->step);
    return open && is_complete(open);
}

void sg_round_begin_close(sg_round *round)
{
    SG_ASSERT(sg_round_can_close(round));
    round->closing = true;
}

void sg_round_end_close(sg_round *round)
{
    SG_ASSERT(round->closing);
    round->closing = false;
    if (round->async) {
        round->pending--;
    } else if (round->n_open > 0 && round->open[0].step == round->step) {
        round->n_open--;
        memmove(round->open, round->open + 1, round->n_open * sizeof *round->open);
    }
    round->step++;
}
