#include "server/round.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/seed.h"

TestSuite(round, .timeout = 20);

static sg_round_terms terms_of(uint64_t members)
{
    sg_round_terms terms = {.iteration = 5, .hyper = 1, .learning_rate = 0.1f};
    terms.members.bits[0] = members;
    return terms;
}

static sg_round_verdict contribute(sg_round *round, uint32_t worker, uint64_t step, uint64_t members)
{
    sg_round_terms terms = terms_of(members);
    return sg_round_contribute(round, &(sg_round_entry){worker, 1, step, &terms, false}, NULL);
}

static void excuse(sg_round *round, uint32_t worker, uint64_t step, uint64_t members)
{
    sg_round_terms terms = terms_of(members);
    sg_round_excuse(round, worker, step, &terms);
}

static void close_one(sg_round *round)
{
    sg_round_begin_close(round);
    sg_round_end_close(round);
}

Test(round, it_closes_when_all_members_contributed)
{
    sg_round round;
    sg_round_init(&round, false);
    cr_assert_not(sg_round_can_close(&round));
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_STORED);
    cr_assert_not(sg_round_can_close(&round));
    cr_assert_eq(contribute(&round, 1, 0, 0x3), SG_ROUND_STORED);
    cr_assert(sg_round_can_close(&round));
    close_one(&round);
    cr_assert_eq(round.step, 1);
    cr_assert_not(sg_round_can_close(&round));
    sg_round_deinit(&round);
}

Test(round, a_repeated_push_counts_once)
{
    sg_round round;
    sg_round_init(&round, false);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_STORED);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_REPEAT);
    cr_assert_not(sg_round_can_close(&round));
    contribute(&round, 1, 0, 0x3);
    sg_round_begin_close(&round);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_REPEAT, "while it closes");
    sg_round_end_close(&round);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_REPEAT, "when it is closed");
    sg_round_deinit(&round);
}

Test(round, what_it_lacks_of_a_worker_is_the_lowest_step_that_is_open_and_not_contributed_to)
{
    sg_round round;
    sg_round_init(&round, false);
    cr_assert_eq(sg_round_lacks(&round, 1), 0);
    contribute(&round, 1, 0, 0x3);
    cr_assert_eq(sg_round_lacks(&round, 1), 1, "it waits for the other");
    cr_assert_eq(sg_round_lacks(&round, 0), 0);
    excuse(&round, 0, 0, 0x3);
    sg_round_begin_close(&round);
    cr_assert_eq(sg_round_lacks(&round, 0), 1, "the round closes without it");
    sg_round_end_close(&round);
    cr_assert_eq(sg_round_lacks(&round, 0), 1);
    sg_round_deinit(&round);
}

Test(round, a_closed_step_is_late_for_who_did_not_count_and_a_future_one_is_early)
{
    sg_round round;
    sg_round_init(&round, false);
    contribute(&round, 0, 0, 0x1);
    sg_round_begin_close(&round);
    cr_assert_eq(contribute(&round, 1, 0, 0x3), SG_ROUND_LATE, "while it closes");
    cr_assert_eq(contribute(&round, 1, 1, 0x3), SG_ROUND_EARLY, "while it closes");
    sg_round_end_close(&round);
    cr_assert_eq(contribute(&round, 1, 0, 0x3), SG_ROUND_LATE);
    cr_assert_eq(contribute(&round, 1, 2, 0x3), SG_ROUND_EARLY);
    sg_round_deinit(&round);
}

Test(round, who_is_no_member_is_refused)
{
    sg_round round;
    sg_round_init(&round, false);
    cr_assert_eq(contribute(&round, 2, 0, 0x3), SG_ROUND_NOT_A_MEMBER);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_STORED, "the refused one fixed nothing");
    sg_round_deinit(&round);
}

static const char *field_that_differs(const sg_round *round, sg_round_terms terms)
{
    const char *field = "none";
    sg_round_verdict verdict = sg_round_look(round, &(sg_round_entry){1, 1, 0, &terms, false}, &field);
    cr_assert_eq(verdict, SG_ROUND_DIFFERS);
    return field;
}

Test(round, the_first_contribution_fixes_the_terms_and_a_different_one_is_refused_by_field)
{
    sg_round round;
    sg_round_init(&round, false);
    contribute(&round, 0, 0, 0x3);
    sg_round_terms terms = terms_of(0x7);
    cr_assert_str_eq(field_that_differs(&round, terms), "members");
    terms = terms_of(0x3);
    terms.iteration++;
    cr_assert_str_eq(field_that_differs(&round, terms), "iteration");
    terms = terms_of(0x3);
    terms.hyper++;
    cr_assert_str_eq(field_that_differs(&round, terms), "hyper");
    terms = terms_of(0x3);
    terms.learning_rate *= 2;
    cr_assert_str_eq(field_that_differs(&round, terms), "learning_rate");
    terms = terms_of(0x3);
    terms.checkpoint_mark++;
    cr_assert_str_eq(field_that_differs(&round, terms), "checkpoint_mark");
    sg_round_deinit(&round);
}

Test(round, an_excuse_closes_what_waited_for_the_worker)
{
    sg_round round;
    sg_round_init(&round, false);
    contribute(&round, 0, 0, 0x3);
    sg_workers missing;
    cr_assert(sg_round_missing(&round, &missing));
    cr_assert(sg_workers_has(&missing, 1));
    cr_assert_eq(sg_workers_count(&missing), 1);
    excuse(&round, 1, 0, 0x3);
    cr_assert_not(sg_round_missing(&round, &missing));
    cr_assert(sg_round_can_close(&round));
    sg_round_deinit(&round);
}

Test(round, an_excuse_is_kept_for_a_round_that_does_not_exist_yet)
{
    sg_round round;
    sg_round_init(&round, false);
    excuse(&round, 1, 2, 0x3);
    excuse(&round, 1, 1, 0x3);
    cr_assert_not(sg_round_can_close(&round));
    contribute(&round, 0, 0, 0x1);
    close_one(&round);
    for (uint64_t step = 1; step <= 2; step++) {
        cr_assert_not(sg_round_can_close(&round));
        cr_assert_eq(contribute(&round, 0, step, 0x3), SG_ROUND_STORED);
        cr_assert(sg_round_can_close(&round));
        close_one(&round);
    }
    sg_round_deinit(&round);
}

Test(round, a_step_whose_members_are_all_excused_closes_without_a_contribution)
{
    sg_round round;
    sg_round_init(&round, false);
    excuse(&round, 0, 0, 0x3);
    cr_assert_not(sg_round_can_close(&round));
    excuse(&round, 1, 0, 0x3);
    cr_assert(sg_round_can_close(&round));
    close_one(&round);
    cr_assert_eq(round.step, 1);
    excuse(&round, 0, 0, 0x3);
    cr_assert_eq(round.n_open, 0, "an excuse from a past step leaves nothing");
    sg_round_deinit(&round);
}

Test(round, a_contribution_counts_although_its_sender_is_excused_while_the_round_is_open)
{
    sg_round round;
    sg_round_init(&round, false);
    excuse(&round, 0, 0, 0x3);
    cr_assert_eq(contribute(&round, 0, 0, 0x3), SG_ROUND_STORED);
    cr_assert_not(sg_round_can_close(&round), "worker 1 is still waited for");
    sg_round_deinit(&round);
}

static sg_round_verdict contribute_async(sg_round *round, uint32_t worker, uint64_t incarnation, uint64_t ticket)
{
    sg_round_terms terms = terms_of((uint64_t)1 << worker);
    return sg_round_contribute(round, &(sg_round_entry){worker, incarnation, ticket, &terms, false}, NULL);
}

Test(round, backup_workers_are_not_waited_for)
{
    sg_round round;
    sg_round_init(&round, false);
    round.backup = 1;
    cr_assert_eq(contribute(&round, 0, 0, 0x7), SG_ROUND_STORED);
    sg_workers missing;
    cr_assert_not(sg_round_can_close(&round));
    cr_assert(sg_round_missing(&round, &missing));
    cr_assert(sg_round_closes_with(&round, &(sg_round_entry){2, 1, 0, &(sg_round_terms){.iteration = 0}, false}));
    cr_assert_eq(contribute(&round, 2, 0, 0x7), SG_ROUND_STORED);
    cr_assert_not(sg_round_missing(&round, &missing), "nobody is waited for");
    close_one(&round);
    cr_assert_eq(contribute(&round, 1, 0, 0x7), SG_ROUND_LATE);
    cr_assert_eq(contribute(&round, 0, 0, 0x7), SG_ROUND_REPEAT);
    cr_assert_eq(contribute(&round, 0, 1, 0x1), SG_ROUND_STORED);
    cr_assert(sg_round_can_close(&round), "one contribution is needed, and there is one");
    sg_round_deinit(&round);
}

Test(round, with_backup_workers_one_contribution_is_needed_unless_all_are_excused)
{
    sg_round round;
    sg_round_init(&round, false);
    round.backup = 5;
    excuse(&round, 0, 0, 0x7);
    excuse(&round, 1, 0, 0x7);
    cr_assert_not(sg_round_can_close(&round));
    excuse(&round, 2, 0, 0x7);
    cr_assert(sg_round_can_close(&round));
    close_one(&round);
    cr_assert(
        sg_round_closes_with(&round, &(sg_round_entry){2, 1, 1, &(sg_round_terms){.members = {.bits = {7}}}, false}));
    sg_round_deinit(&round);
}

Test(round, async_every_contribution_closes_a_round_of_its_own)
{
    sg_round round;
    sg_round_init(&round, true);
    cr_assert_eq(contribute_async(&round, 0, 1, 0), SG_ROUND_STORED);
    cr_assert_eq(contribute_async(&round, 1, 2, 1), SG_ROUND_STORED);
    close_one(&round);
    cr_assert(sg_round_can_close(&round));
    close_one(&round);
    cr_assert_not(sg_round_can_close(&round));
    cr_assert_eq(round.step, 2);
    sg_round_deinit(&round);
}

Test(round, async_a_ticket_counts_once_per_incarnation)
{
    sg_round round;
    sg_round_init(&round, true);
    cr_assert_eq(contribute_async(&round, 0, 1, 5), SG_ROUND_STORED);
    cr_assert_eq(contribute_async(&round, 0, 1, 5), SG_ROUND_REPEAT);
    cr_assert_eq(contribute_async(&round, 0, 1, 3), SG_ROUND_REPEAT);
    cr_assert_eq(contribute_async(&round, 0, 2, 5), SG_ROUND_STORED, "another life begins anew");
    cr_assert_eq(contribute_async(&round, 0, 1, 9), SG_ROUND_FENCED);
    sg_round_deinit(&round);
}

/* --- counting and closing in one --- */

static sg_round_verdict contribute_in_steps(sg_round *round, const sg_round_entry *entry, bool *closes)
{
    sg_round_verdict verdict = sg_round_contribute(round, entry, NULL);
    *closes = verdict == SG_ROUND_STORED && sg_round_can_close(round);
    if (*closes)
        sg_round_begin_close(round);
    return verdict;
}

static void check_same(const sg_round *a, const sg_round *b, unsigned seed)
{
    sg_workers missing_a = {{0}}, missing_b = {{0}};
    cr_assert_eq(a->step, b->step, "seed %u", seed);
    cr_assert_eq(sg_round_can_close(a), sg_round_can_close(b), "seed %u", seed);
    cr_assert_eq(sg_round_missing(a, &missing_a), sg_round_missing(b, &missing_b), "seed %u", seed);
    cr_assert(a->closing || sg_workers_equal(&missing_a, &missing_b), "seed %u", seed);
}

/* The same random events, with the calls one by one and in one. */
static void run_both_ways(unsigned seed, bool async)
{
    const unsigned first_seed = seed;
    sg_round a, b;
    sg_round_init(&a, async);
    sg_round_init(&b, async);
    for (unsigned event = 0; event < 60; event++) {
        uint32_t worker = (uint32_t)rand_r(&seed) % 3;
        uint64_t step = a.step + (uint64_t)rand_r(&seed) % 3 - (a.step > 0), members = 1u << worker;
        if (rand_r(&seed) % 2)
            members |= 1u << rand_r(&seed) % 3;
        sg_round_terms terms = terms_of(members);
        sg_round_entry entry = {worker, 1, step, &terms, members == 1u << worker && rand_r(&seed) % 2};
        bool closes_a = false, closes_b = false;
        if (rand_r(&seed) % 4 == 0 && !async) {
            excuse(&a, worker, step, members);
            excuse(&b, worker, step, members);
        } else {
            bool predicted = sg_round_look(&b, &entry, NULL) == SG_ROUND_STORED && sg_round_closes_with(&b, &entry);
            cr_assert_eq(sg_round_contribute_and_close(&b, &entry, NULL, &closes_b),
                         contribute_in_steps(&a, &entry, &closes_a), "seed %u, event %u", first_seed, event);
            cr_assert_eq(closes_a, closes_b, "seed %u, event %u", first_seed, event);
            cr_assert_eq(predicted, closes_b, "seed %u, event %u", first_seed, event);
        }
        check_same(&a, &b, first_seed);
        if (a.closing && rand_r(&seed) % 2) {
            sg_round_end_close(&a);
            sg_round_end_close(&b);
        }
        while (sg_round_can_close(&a)) { /* as their owner does, whatever made it so */
            close_one(&a);
            close_one(&b);
        }
        check_same(&a, &b, first_seed);
    }
    sg_round_deinit(&a);
    sg_round_deinit(&b);
}

Test(round, counting_and_closing_in_one_is_the_same_as_one_by_one)
{
    unsigned base = (unsigned)sg_seed_begin().first;
    for (unsigned i = 0; i < 2000; i++)
        run_both_ways(base + i, i % 4 == 0);
}

/* --- a simple model, driven by the same random events --- */

#define MODEL_WORKERS 5u
#define MODEL_STEPS   12u
#define MODEL_AHEAD   3u

typedef struct model {
    bool contributed[MODEL_STEPS + MODEL_AHEAD][MODEL_WORKERS], excused[MODEL_STEPS + MODEL_AHEAD][MODEL_WORKERS];
    bool known[MODEL_STEPS + MODEL_AHEAD]; /* somebody contributed or was excused */
    uint64_t members[MODEL_STEPS + MODEL_AHEAD];
    uint64_t step;
} model;

static bool model_can_close(const model *m)
{
    if (!m->known[m->step])
        return false;
    for (uint32_t worker = 0; worker < MODEL_WORKERS; worker++) {
        if ((m->members[m->step] >> worker & 1) && !m->contributed[m->step][worker] && !m->excused[m->step][worker])
            return false;
    }
    return true;
}

static sg_round_verdict model_contribute(model *m, uint32_t worker, uint64_t step)
{
    if (!(m->members[step] >> worker & 1))
        return SG_ROUND_NOT_A_MEMBER;
    if (m->contributed[step][worker])
        return SG_ROUND_REPEAT;
    /* A worker that counted in a later step settled this one with it. */
    for (uint64_t later = step + 1; later < MODEL_STEPS + MODEL_AHEAD; later++) {
        if (m->contributed[later][worker])
            return SG_ROUND_REPEAT;
    }
    if (step != m->step)
        return step < m->step ? SG_ROUND_LATE : SG_ROUND_EARLY;
    m->known[step] = true;
    m->contributed[step][worker] = true;
    return SG_ROUND_STORED;
}

static void run_against_model(unsigned seed)
{
    const unsigned first_seed = seed;
    model m = {0};
    sg_round round;
    sg_round_init(&round, false);
    for (uint64_t step = 0; step < MODEL_STEPS + MODEL_AHEAD; step++)
        m.members[step] = 1 + (uint64_t)rand_r(&seed) % ((1u << MODEL_WORKERS) - 1);
    for (unsigned event = 0; m.step < MODEL_STEPS; event++) {
        cr_assert_lt(event, 100000u, "seed %u", first_seed);
        uint32_t worker = (uint32_t)rand_r(&seed) % MODEL_WORKERS;
        uint64_t low = m.step < 2 ? 0 : m.step - 2, step = low + (uint64_t)rand_r(&seed) % (m.step - low + MODEL_AHEAD);
        if (rand_r(&seed) % 4 > 0) {
            sg_round_verdict got = contribute(&round, worker, step, m.members[step]);
            cr_assert_eq(got, model_contribute(&m, worker, step), "seed %u, event %u: worker %u step %lu", first_seed,
                         event, worker, step);
        } else if (m.members[step] >> worker & 1) {
            excuse(&round, worker, step, m.members[step]);
            m.excused[step][worker] = m.known[step] = true;
        }
        cr_assert_eq(round.step, m.step, "seed %u, event %u", first_seed, event);
        cr_assert_eq(sg_round_can_close(&round), model_can_close(&m), "seed %u, event %u", first_seed, event);
        while (m.step < MODEL_STEPS && model_can_close(&m)) {
            close_one(&round);
            m.step++;
        }
    }
    sg_round_deinit(&round);
}

Test(round, random_events_give_what_a_simple_model_gives)
{
    unsigned base = (unsigned)sg_seed_begin().first; /* SG_TEST_SEED=N begins with the run of seed N */
    for (unsigned i = 0; i < 2000; i++)
        run_against_model(base + i);
}
