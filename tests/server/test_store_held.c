/* Contributions that wait where they were received: each message is let go of once, whatever becomes of its round, and
 * the result does not depend on where a contribution waited. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "store_weight.h"
#include "tests/support/seed.h"

TestSuite(store_held, .timeout = 60);

static void start_with(fixture *f, const sg_store_options *options, uint32_t n_workers)
{
    fixture_init(f, options);
    fixture_start(f, weight_variables, 1, n_workers, 0.0f);
}

static void start(fixture *f, uint32_t n_workers)
{
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    start_with(f, &options, n_workers);
}

static void push_all(fixture *f, uint32_t worker, uint64_t step, uint64_t members)
{
    fixture_push push = fixture_a_push(worker, step, members, weight_ones, 40);
    push.slices = weight_slices;
    push.n_slices = 3;
    sg_error err = {0};
    cr_assert_eq(fixture_send(f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
}

static void push_one(fixture *f, uint32_t worker, uint32_t slice, uint64_t step, uint64_t members)
{
    fixture_push push = fixture_a_push(worker, step, members, weight_ones, slice == 2 ? 8 : 16);
    push.slices = &slice;
    sg_error err = {0};
    cr_assert_eq(fixture_send(f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
}

static void expect_held(const fixture *f, unsigned n_held, unsigned n_let_go)
{
    cr_assert_eq(f->n_held, n_held, "%u messages were held, want %u", f->n_held, n_held);
    cr_assert_eq(f->n_let_go, n_let_go, "%u messages were let go of, want %u", f->n_let_go, n_let_go);
}

static void expect_value(fixture *f, uint64_t version, float want)
{
    fixture_answer answer;
    fixture_pull(f, 0, weight_slices, 3, version, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    for (size_t i = 0; i < answer.n_values; i++)
        cr_assert_eq(answer.values[i], want, "element %zu is %g, want %g", i, answer.values[i], want);
    fixture_answer_deinit(&answer);
}

Test(store_held, a_message_is_held_once_for_all_its_slices_until_the_last_of_their_rounds_closes)
{
    fixture f;
    start(&f, 2);
    push_all(&f, 0, 0, 0x3);
    expect_held(&f, 1, 0);
    push_one(&f, 1, 1, 0, 0x3);
    push_one(&f, 1, 0, 0, 0x3);
    expect_held(&f, 1, 0);
    push_one(&f, 1, 2, 0, 0x3);
    expect_held(&f, 1, 1);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, the_contribution_that_completes_its_round_is_never_held)
{
    fixture f;
    start(&f, 1);
    for (uint64_t step = 0; step < 3; step++)
        push_all(&f, 0, step, 0x1);
    expect_held(&f, 0, 0);
    expect_value(&f, 3, -3.0f);
    fixture_stop(&f);
}

Test(store_held, a_message_of_which_some_slices_wait_is_held_for_those)
{
    fixture f;
    start(&f, 2);
    push_one(&f, 1, 1, 0, 0x3);
    expect_held(&f, 1, 0);
    push_all(&f, 0, 0, 0x3); /* closes slice 1; 0 and 2 wait */
    expect_held(&f, 2, 1);
    push_one(&f, 1, 0, 0, 0x3);
    expect_held(&f, 2, 1);
    push_one(&f, 1, 2, 0, 0x3);
    expect_held(&f, 2, 2);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, repeats_and_refused_pushes_hold_nothing)
{
    fixture f;
    start(&f, 2);
    push_all(&f, 0, 0, 0x3);
    push_all(&f, 0, 0, 0x3);
    expect_held(&f, 1, 0);
    fixture_push early = fixture_a_push(0, 1, 0x3, weight_ones, 16),
                 differs = fixture_a_push(1, 0, 0x3, weight_ones, 40);
    differs.slices = weight_slices;
    differs.n_slices = 3;
    differs.hyper = 1;
    differs.learning_rate = 0.5f;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &early, NULL, NULL, &err), SG_EARLY);
    cr_assert_eq(fixture_send(&f, &differs, NULL, NULL, &err), SG_INVALID);
    expect_held(&f, 1, 0);
    push_all(&f, 1, 0, 0x3);
    expect_held(&f, 1, 1);
    fixture_stop(&f);
}

Test(store_held, what_weighs_nothing_is_not_held)
{
    fixture f;
    start(&f, 2);
    float values[16];
    memcpy(values, weight_ones, sizeof values);
    values[3] = NAN;
    fixture_push bad = fixture_a_push(0, 0, 0x3, values, 16), idle = fixture_a_push(1, 0, 0x3, weight_ones, 16);
    idle.weight = 0;
    size_t n_non_finite;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &bad, NULL, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 1);
    cr_assert_eq(f.n_held, f.n_let_go);
    cr_assert_eq(fixture_send(&f, &idle, NULL, NULL, &err), SG_OK);
    fixture_answer answer;
    fixture_pull(&f, 0, weight_slices, 1, 1, 1000, &answer);
    cr_assert_eq(answer.values[0], 0.0f);
    fixture_answer_deinit(&answer);
    cr_assert_eq(f.n_held, f.n_let_go);
    fixture_stop(&f);
}

Test(store_held, an_excuse_that_closes_the_round_lets_the_others_go)
{
    fixture f;
    start(&f, 2);
    push_all(&f, 0, 0, 0x3);
    const uint64_t step = 0;
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), &step, 1, 0x3);
    expect_held(&f, 1, 1);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, what_a_fenced_worker_contributed_before_counts_from_where_it_lies)
{
    fixture f;
    start(&f, 2);
    push_all(&f, 1, 0, 0x3);
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
    expect_held(&f, 1, 0);
    push_all(&f, 0, 0, 0x3);
    expect_held(&f, 1, 1);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, the_end_lets_go_of_what_still_waits)
{
    fixture f;
    start(&f, 2);
    push_all(&f, 0, 0, 0x3);
    sg_store_fail_pulls(f.store, SG_STOPPED, "stopped");
    expect_held(&f, 1, 0);
    sg_store_drop_contributions(f.store);
    expect_held(&f, 1, 1);
    fixture_deinit(&f);
    start(&f, 2);
    push_all(&f, 0, 0, 0x3);
    fixture_stop(&f); /* which asserts that it was let go of */
}

/* 16 KiB are counted beside the bytes of a message. */
Test(store_held, beyond_its_bound_contributions_are_copied_and_count_the_same)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.held_bytes = (16u << 10) + 64;
    start_with(&f, &options, 3);
    for (uint64_t step = 0; step < 3; step++) {
        unsigned before = (unsigned)step;
        push_one(&f, 0, 0, step, 0x7);
        expect_held(&f, before + 1, before);
        push_one(&f, 1, 0, step, 0x7);
        push_one(&f, 0, 1, step, 0x7);
        push_one(&f, 0, 2, step, 0x7);
        expect_held(&f, before + 1, before);
        push_all(&f, 2, step, 0x7);
        expect_held(&f, before + 1, before + 1);
        push_one(&f, 1, 1, step, 0x7);
        push_one(&f, 1, 2, step, 0x7);
        expect_value(&f, step + 1, -(float)(step + 1));
    }
    fixture_stop(&f);
}

/* 48 KiB beside 64 bytes of data: two of them fit, with the 16 KiB of each. */
Test(store_held, a_message_is_counted_with_all_that_it_keeps_in_memory)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.held_bytes = 2 * ((64u << 10) + 64);
    start_with(&f, &options, 2);
    f.kept_beside_bytes = 48u << 10;
    push_one(&f, 0, 0, 0, 0x3);
    push_one(&f, 0, 1, 0, 0x3);
    expect_held(&f, 2, 0);
    push_one(&f, 0, 2, 0, 0x3);
    expect_held(&f, 2, 0);
    push_all(&f, 1, 0, 0x3);
    expect_held(&f, 2, 2);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, a_message_that_is_nearly_all_head_is_copied)
{
    fixture f;
    start(&f, 2);
    f.kept_beside_bytes = 65u << 10;
    push_one(&f, 0, 0, 0, 0x3);
    expect_held(&f, 0, 0);
    f.kept_beside_bytes = 64u << 10;
    push_one(&f, 0, 1, 0, 0x3);
    expect_held(&f, 1, 0);
    push_one(&f, 0, 2, 0, 0x3);
    push_all(&f, 1, 0, 0x3);
    expect_held(&f, 2, 2);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_held, nothing_is_held_where_nothing_may_be)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.held_bytes = 0;
    start_with(&f, &options, 2);
    push_all(&f, 0, 0, 0x3);
    push_all(&f, 1, 0, 0x3);
    expect_held(&f, 0, 0);
    expect_value(&f, 1, -1.0f);
    fixture_stop(&f);
}

/* --- the same bits from everywhere --- */

#define N_WORKERS 4u
#define N_STEPS   6u

typedef struct outcome {
    float values[40];
    uint32_t non_finite[N_STEPS][N_WORKERS];
    uint64_t n_non_finite;
} outcome;

/* What worker contributes at a step: the same whatever the order; now and then not finite, or weightless. */
static fixture_push contribution(uint64_t seed, uint32_t worker, uint64_t step, float values[40])
{
    sg_seed random = {.first = seed, .state = seed * 1000 + step * 16 + worker};
    for (int i = 0; i < 40; i++)
        values[i] = sinf((float)sg_seed_below(&random, 100000)) / 3.0f;
    if (sg_seed_below(&random, 3) == 0)
        values[sg_seed_below(&random, 40)] = sg_seed_below(&random, 2) ? NAN : -INFINITY;
    fixture_push push = fixture_a_push(worker, step, (1u << N_WORKERS) - 1, values, 40);
    push.slices = weight_slices;
    push.n_slices = 3;
    push.weight = sg_seed_below(&random, 5);
    push.learning_rate = 0.1f;
    push.split_bytes = 1 + sg_seed_below(&random, 90);
    return push;
}

static void train(sg_rule rule, uint64_t seed, sg_seed *order, uint64_t held_bytes, outcome *out)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, rule);
    options.held_bytes = held_bytes;
    start_with(&f, &options, N_WORKERS);
    *out = (outcome){.n_non_finite = 0};
    for (uint64_t step = 0; step < N_STEPS; step++) {
        uint32_t first = (uint32_t)sg_seed_below(order, N_WORKERS);
        for (uint32_t i = 0; i < N_WORKERS; i++) {
            uint32_t worker = (first + i) % N_WORKERS, non_finite[3];
            float values[40];
            fixture_push push = contribution(seed, worker, step, values);
            size_t n;
            sg_error err = {0};
            for (uint64_t n_times = 1 + sg_seed_below(order, 2); n_times > 0; n_times--) {
                cr_assert_eq(fixture_send(&f, &push, non_finite, &n, &err), SG_OK, "%s", err.message);
                out->non_finite[step][worker] = 0;
                for (size_t k = 0; k < n; k++)
                    out->non_finite[step][worker] |= 1u << non_finite[k];
            }
        }
    }
    fixture_answer answer;
    fixture_pull(&f, 0, weight_slices, 3, N_STEPS, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    memcpy(out->values, answer.values, sizeof out->values);
    fixture_answer_deinit(&answer);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    out->n_non_finite = report.non_finite;
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

Test(store_held, values_and_reports_have_the_same_bits_wherever_contributions_waited)
{
    static const uint64_t bounds[] = {0, (16u << 10) + 200, 2 * ((16u << 10) + 200), 1u << 20};
    sg_seed random = sg_seed_begin();
    for (int run = 0; run < 40; run++) {
        sg_rule rule = (sg_rule)(run % (SG_RULE_ADAM + 1));
        uint64_t seed = random.first + (uint64_t)run;
        outcome first, next;
        train(rule, seed, &random, bounds[0], &first);
        cr_assert_gt(first.n_non_finite, 0);
        for (size_t i = 0; i < SG_ARRAY_LEN(bounds); i++) {
            train(rule, seed, &random, bounds[i], &next);
            cr_assert_eq(memcmp(&first, &next, sizeof first), 0, "rule %d, bound %zu, seed %lu", (int)rule, i,
                         (unsigned long)random.first);
        }
        for (size_t i = 0; i < 40; i++)
            cr_assert(isfinite(first.values[i]));
    }
}
