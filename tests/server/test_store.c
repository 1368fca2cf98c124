/* What becomes of contributions: sync and async, who is let in, who is excused, what is left out. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "server/store_internal.h"
#include "store_weight.h"

TestSuite(store, .timeout = 30);

/* --- sync --- */

Test(store, a_round_applies_the_mean_weighted_by_examples)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 10.0f);
    weight_expect(&f, 0, 10.0f);
    fixture_push push = fixture_a_push(0, 0, 0x3, weight_ones, 4);
    push.weight = 3;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    fixture_push_ok(&f, 1, 0, 0x3, weight_threes, 4); /* weight 1: (3 * 1 + 1 * 3) / 4 = 1.5 */
    weight_expect(&f, 1, 8.5f);
    fixture_stop(&f);
}

Test(store, a_repeat_is_acknowledged_and_counts_once)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    for (int i = 0; i < 3; i++)
        fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    fixture_push_ok(&f, 1, 0, 0x3, weight_threes, 4);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    fixture_push_ok(&f, 1, 0, 0x3, weight_threes, 4);
    weight_expect(&f, 1, -2.0f);
    fixture_stop(&f);
}

Test(store, a_push_of_several_slices_lying_in_odd_pieces_arrives_whole)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 1, 0.0f);
    float values[40];
    for (int i = 0; i < 40; i++)
        values[i] = (float)i;
    fixture_push push = fixture_a_push(0, 0, 0x1, values, 40);
    push.slices = weight_slices;
    push.n_slices = 3;
    push.split_bytes = 7;
    sg_error err = {0};
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
    fixture_answer answer;
    fixture_pull(&f, 0, weight_slices, 3, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    cr_assert_eq(answer.n_values, 40);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(answer.values[i], -(float)i);
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

Test(store, a_version_is_kept_until_the_first_contribution_to_the_step_after_the_next)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    weight_expect(&f, 0, 0.0f);
    fixture_push_ok(&f, 1, 0, 0x3, weight_ones, 4);
    weight_expect(&f, 0, 0.0f);
    weight_expect(&f, 1, -1.0f);
    fixture_push_ok(&f, 0, 1, 0x3, weight_ones, 4);
    fixture_answer answer;
    fixture_pull(&f, 1, &weight_first, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_LATE);
    cr_assert_not_null(strstr(answer.message, "version 0 of slice 0 is gone"), "%s", answer.message);
    weight_expect(&f, 1, -1.0f);
    fixture_stop(&f);
}

Test(store, steps_that_are_past_or_to_come_are_refused_by_name)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 3, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x1, weight_ones, 4);
    fixture_push push = fixture_a_push(1, 0, 0x3, weight_ones, 4);
    fixture_expect_refused(&f, &push, SG_LATE, "step 0 is closed; step 1 collects");
    push.step = 2;
    fixture_expect_refused(&f, &push, SG_EARLY, "step 2 has not begun; step 1 collects");
    fixture_stop(&f);
}

Test(store, a_push_that_breaks_its_contract_is_refused_and_leaves_nothing)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 2, 0.0f);
    const uint32_t unknown[] = {0, 99}, twice[] = {1, 0, 1}, frozen[] = {3}, other_group[] = {0, 4};
    fixture_push push = fixture_a_push(0, 0, 0x3, weight_ones, 15);
    fixture_expect_refused(&f, &push, SG_INVALID, "got 60 bytes of data for 1 slices, want 64");
    push.n_values = 40;
    push.slices = unknown;
    push.n_slices = 2;
    fixture_expect_refused(&f, &push, SG_INVALID, "slice 99 is unknown: the plan has 5");
    push.slices = twice;
    push.n_slices = 3;
    fixture_expect_refused(&f, &push, SG_INVALID, "slice 1 is listed twice");
    push.slices = frozen;
    push.n_slices = 1;
    fixture_expect_refused(&f, &push, SG_INVALID, "variable 'table' is frozen");
    push.slices = other_group;
    push.n_slices = 2;
    fixture_expect_refused(&f, &push, SG_INVALID, "slice 4 is of group 1");
    push = fixture_a_push(0, 0, 0x3, weight_ones, 16);
    push.dtype = 9;
    fixture_expect_refused(&f, &push, SG_INVALID, "dtype 9");
    push = fixture_a_push(0, 0, 0x2, weight_ones, 16);
    fixture_expect_refused(&f, &push, SG_INVALID, "worker 0 is not a member");
    push = fixture_a_push(0, 0, 0x10001, weight_ones, 16);
    fixture_expect_refused(&f, &push, SG_INVALID, "members name worker 16; max_workers is 16");
    push = fixture_a_push(0, 0, 0x3, weight_ones, 16);
    push.hyper = 7;
    fixture_expect_refused(&f, &push, SG_INVALID, "hyper-parameter set 7 is unknown");
    push = fixture_a_push(0, 0, 0x3, weight_ones, 16);
    push.learning_rate = NAN;
    fixture_expect_refused(&f, &push, SG_INVALID, "learning_rate");
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.pushes, 0);
    cr_assert_eq(report.waiting_for.len, 0, "no round was opened");
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

Test(store, terms_that_differ_from_the_rounds_are_refused_and_no_slice_of_the_push_is_stored)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 2, 0.0f);
    const uint32_t second = 1, both[] = {0, 1};
    fixture_push push = fixture_a_push(0, 0, 0x3, weight_ones, 16);
    push.slices = &second;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    push = fixture_a_push(1, 0, 0x3, weight_ones, 32);
    push.slices = both;
    push.n_slices = 2;
    push.learning_rate = 0.5f;
    fixture_expect_refused(&f, &push, SG_INVALID, "slice 1, step 0: learning_rate of the push differs");
    /* Slice 0 is as if the push had never come: another learning rate may begin its round. */
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 16);
    fixture_stop(&f);
}

/* --- variables that are averaged --- */

static const fixture_variable averaged[] = {{.name = "mean", .n_elems = 4, .average = true},
                                            {.name = "weight", .n_elems = 4}};

static void start_averaged(fixture *f, sg_mode mode, sg_rule rule, uint32_t n_workers)
{
    sg_store_options options = fixture_options(mode, rule);
    fixture_init(f, &options);
    fixture_start(f, averaged, 2, n_workers, 10.0f);
}

Test(store, a_variable_that_is_averaged_becomes_the_mean_of_what_is_pushed_whatever_the_rule_is)
{
    for (sg_rule rule = SG_RULE_SGD; rule < SG_N_RULES; rule++) {
        fixture f;
        start_averaged(&f, SG_MODE_SYNC, rule, 2);
        fixture_push push = fixture_a_push(0, 0, 0x3, weight_ones, 4);
        push.weight = 3;
        push.learning_rate = 0.25f;
        sg_error err;
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
        push.worker = 1;
        push.incarnation = FIXTURE_INCARNATION(2);
        push.weight = 1;
        push.values = weight_threes;
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
        weight_expect(&f, 1, 1.5f);
        Shardgrad__V1__PsReport report;
        sg_store_report(f.store, &report);
        cr_assert_eq(report.slot_bytes, sg_update_slots(rule) * 16, "it has no slots");
        sg_store_report_deinit(&report);
        fixture_stop(&f);
    }
}

Test(store, what_is_not_finite_is_left_out_of_the_mean)
{
    static const float bad[] = {1, NAN, 1, 1};
    fixture f;
    start_averaged(&f, SG_MODE_SYNC, SG_RULE_ADAM, 2);
    fixture_push_ok(&f, 0, 0, 0x3, weight_threes, 4);
    fixture_push_ok(&f, 1, 0, 0x3, bad, 4);
    weight_expect(&f, 1, 3.0f);
    fixture_push_ok(&f, 0, 1, 0x1, bad, 4);
    weight_expect(&f, 2, 3.0f);
    fixture_stop(&f);
}

Test(store, async_a_variable_that_is_averaged_goes_to_what_is_pushed_by_the_share_of_one_live_worker)
{
    fixture f;
    start_averaged(&f, SG_MODE_ASYNC, SG_RULE_SGD, 4);
    fixture_push_ok(&f, 0, 0, 0x1, weight_twos, 4);
    weight_expect(&f, 1, 8.0f); /* 10 + (2 - 10) / 4 */
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0);
    fixture_excuse(&f, 2, FIXTURE_INCARNATION(3), NULL, 0, 0);
    fixture_push_ok(&f, 3, 1, 0x8, weight_twos, 4);
    weight_expect(&f, 2, 5.0f);
    fixture_excuse(&f, 3, FIXTURE_INCARNATION(4), NULL, 0, 0);
    fixture_push_ok(&f, 0, 2, 0x1, weight_threes, 4);
    weight_expect(&f, 3, 3.0f);
    fixture_stop(&f);
}

/* --- incarnations and generations --- */

Test(store, only_the_current_incarnation_is_let_in)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    fixture_admit(&f, 1, FIXTURE_INCARNATION(9));
    fixture_push push = fixture_a_push(1, 0, 0x3, weight_ones, 4);
    fixture_expect_refused(&f, &push, SG_FENCED, "another life of worker 1 has its index");
    push.incarnation = FIXTURE_INCARNATION(9);
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    push.worker = 5;
    fixture_expect_refused(&f, &push, SG_FENCED, "worker 5 is not known");
    push.worker = 16;
    fixture_expect_refused(&f, &push, SG_INVALID, "worker 16 is out of range: max_workers is 16");
    fixture_stop(&f);
}

Test(store, a_new_incarnation_ends_the_pulls_of_the_old)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    fixture_answer mine, theirs;
    fixture_pull(&f, 1, &weight_first, 1, 1, 60000, &mine);
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &theirs);
    fixture_admit(&f, 1, FIXTURE_INCARNATION(9));
    cr_assert_eq(mine.status, SG_FENCED);
    cr_assert_not(theirs.answered);
    fixture_stop(&f);
    cr_assert_eq(theirs.status, SG_STOPPED);
}

Test(store, other_generations_are_refused)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 1, 0.0f);
    fixture_push push = fixture_a_push(0, 0, 0x1, weight_ones, 4);
    push.generation = 0;
    fixture_expect_refused(&f, &push, SG_ROLLED_BACK, "generation 0 has passed");
    push.generation = 2;
    fixture_expect_refused(&f, &push, SG_NOT_READY, "generation 2 has not begun");
    fixture_stop(&f);
}

/* --- excuses --- */

Test(store, an_excuse_fences_the_worker_and_closes_its_rounds_with_the_others)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &answer);
    cr_assert_not(answer.answered);
    const uint64_t steps[] = {1, 0};
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), steps, 2, 0x3);
    cr_assert_eq(answer.status, SG_OK);
    fixture_answer_deinit(&answer);
    fixture_push push = fixture_a_push(1, 1, 0x3, weight_ones, 4);
    fixture_expect_refused(&f, &push, SG_FENCED, "worker 1 was superseded, has left or was given up");
    fixture_push_ok(&f, 0, 1, 0x3, weight_ones, 4); /* step 1 was excused ahead: it closes with worker 0 alone */
    weight_expect(&f, 2, -2.0f);
    fixture_stop(&f);
}

Test(store, a_step_that_everyone_is_excused_from_shares_the_values_and_counts)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 3, 5.0f);
    const uint64_t steps[] = {0, 1};
    fixture_excuse(&f, 0, 1, steps, 2, 0x3); /* an old incarnation: worker 0 stays */
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), steps, 2, 0x3);
    weight_expect(&f, 0, 5.0f);
    weight_expect(&f, 1, 5.0f);
    weight_expect(&f, 2, 5.0f);
    fixture_push_ok(&f, 2, 2, 0x4, weight_ones, 4);
    weight_expect(&f, 3, 4.0f);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.empty, 2, "steps 0 and 1; somebody pushed to step 2");
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

Test(store, a_step_that_everything_was_left_out_of_advances_without_a_change)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 1, 5.0f);
    fixture_push push = fixture_a_push(0, 0, 0x1, weight_ones, 4);
    push.weight = 0;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    weight_expect(&f, 1, 5.0f);
    fixture_stop(&f);
}

/* --- what is not finite --- */

Test(store, a_contribution_with_a_nan_weighs_nothing_and_is_reported)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    const float bad[4] = {1, 2, NAN, 4};
    fixture_push push = fixture_a_push(0, 0, 0x3, bad, 4);
    uint32_t non_finite[1];
    size_t n_non_finite;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, non_finite, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 1);
    cr_assert_eq(non_finite[0], 0);
    cr_assert_eq(fixture_send(&f, &push, non_finite, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 1, "whoever missed the first answer learns it from that to the repeat");
    fixture_push_ok(&f, 1, 0, 0x3, weight_threes, 4);
    weight_expect(&f, 1, -3.0f);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.non_finite, 1);
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

typedef struct told {
    int n_lines;
    unsigned long n_contributions;
} told;

static void hear_non_finite(void *user, sg_log_level level, const char *event, const char *fields)
{
    told *all = user;
    if (level != SG_LOG_WARN || strcmp(event, "non_finite") != 0)
        return;
    all->n_lines++;
    cr_assert_eq(strncmp(fields, "contributions=", 14), 0, "%s", fields);
    all->n_contributions += strtoul(fields + 14, NULL, 10);
}

Test(store, a_training_that_diverges_is_told_at_doubling_intervals_and_not_for_every_slice)
{
    fixture f;
    told all = {0};
    sg_log log = {.fn = hear_non_finite, .user = &all, .min_level = SG_LOG_INFO};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.log = &log;
    fixture_init(&f, &options);
    fixture_start(&f, weight_small, 1, 1, 0.0f);
    const float bad[4] = {1, 2, NAN, 4};
    for (uint64_t step = 0; step <= 150; step++) { /* 100 ms each */
        fixture_push push = fixture_a_push(0, step, 0x1, bad, 4);
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, NULL), SG_OK);
        f.now_ms += 100;
    }
    cr_assert_eq(all.n_lines, 5, "at 0, 1, 3, 7 and 15 s; got %d lines", all.n_lines);
    cr_assert_eq(all.n_contributions, 151);
    fixture_stop(&f);
}

Test(store, non_finite_apply_lets_it_through)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.non_finite = SG_NON_FINITE_APPLY;
    fixture_init(&f, &options);
    fixture_start(&f, weight_small, 1, 1, 0.0f);
    const float bad[4] = {1, 1, INFINITY, 1};
    fixture_push push = fixture_a_push(0, 0, 0x1, bad, 4);
    size_t n_non_finite;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 0);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 1, 1000, &answer);
    cr_assert_eq(answer.values[0], -1.0f);
    cr_assert(isinf(answer.values[2]));
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

/* --- async --- */

Test(store, async_applies_each_push_and_answers_with_the_newest)
{
    fixture f;
    weight_start(&f, SG_MODE_ASYNC, weight_small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x1, weight_ones, 4);
    fixture_push_ok(&f, 1, 1, 0x2, weight_ones, 4);
    fixture_push_ok(&f, 1, 1, 0x2, weight_ones, 4); /* a repeat */
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    cr_assert_eq(answer.numbers[0], 2);
    cr_assert_eq(answer.values[0], -2.0f);
    fixture_answer_deinit(&answer);
    fixture_pull(&f, 0, &weight_first, 1, 3, 1000, &answer);
    cr_assert_not(answer.answered);
    fixture_push_ok(&f, 0, 2, 0x1, weight_ones, 4);
    cr_assert_eq(answer.numbers[0], 3);
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}
