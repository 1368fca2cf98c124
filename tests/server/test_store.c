#include <criterion/criterion.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "server/store_internal.h"
#include "store_fixture.h"
#include "tests/support/seed.h"

TestSuite(store, .timeout = 30);

/* Two slices of 16 and one of 8 elements; a frozen variable (slice 3); another group (slice 4). */
static const fixture_variable variables[] = {{"weight", 40, 0, false}, {"table", 4, 0, true}, {"other", 4, 1, false}};
static const fixture_variable small[] = {{"bias", 4, 0, false}};

static const uint32_t slice_0 = 0;
static const uint32_t all_weight[] = {0, 1, 2};

static void start(fixture *f, sg_mode mode, const fixture_variable *list, size_t n, uint32_t n_workers, float value)
{
    sg_store_options options = fixture_options(mode, SG_RULE_SGD);
    fixture_init(f, &options);
    fixture_start(f, list, n, n_workers, value);
}

static void stop(fixture *f)
{
    sg_store_fail_pulls(f->store, SG_STOPPED, "stopped");
    fixture_deinit(f);
}

static void expect_value(fixture *f, uint64_t version, float want)
{
    fixture_answer answer;
    fixture_pull(f, 0, &slice_0, 1, version, 1000, &answer);
    cr_assert(answer.answered);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    cr_assert_eq(answer.numbers[0], version);
    for (size_t i = 0; i < answer.n_values; i++)
        cr_assert_float_eq(answer.values[i], want, 1e-6f, "element %zu is %g, want %g", i, answer.values[i], want);
    fixture_answer_deinit(&answer);
}

static void expect_refused(fixture *f, const fixture_push *push, sg_status want, const char *text)
{
    sg_error err = {0};
    sg_status got = fixture_send(f, push, NULL, NULL, &err);
    cr_assert_eq(got, want, "got %s: %s", sg_status_name(got), err.message);
    cr_assert_not_null(strstr(err.message, text), "'%s' does not say '%s'", err.message, text);
}

static const float ones[40] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                               1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static const float threes[4] = {3, 3, 3, 3};

/* --- sync --- */

Test(store, a_round_applies_the_mean_weighted_by_examples)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 10.0f);
    expect_value(&f, 0, 10.0f);
    fixture_push push = fixture_a_push(0, 0, 0x3, ones, 4);
    push.weight = 3;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    fixture_push_ok(&f, 1, 0, 0x3, threes, 4); /* weight 1: (3 * 1 + 1 * 3) / 4 = 1.5 */
    expect_value(&f, 1, 8.5f);
    stop(&f);
}

Test(store, a_repeat_is_acknowledged_and_counts_once)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    for (int i = 0; i < 3; i++)
        fixture_push_ok(&f, 0, 0, 0x3, ones, 4);
    fixture_push_ok(&f, 1, 0, 0x3, threes, 4);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 4);
    fixture_push_ok(&f, 1, 0, 0x3, threes, 4);
    expect_value(&f, 1, -2.0f);
    stop(&f);
}

Test(store, a_push_of_several_slices_lying_in_odd_pieces_arrives_whole)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 1, 0.0f);
    float values[40];
    for (int i = 0; i < 40; i++)
        values[i] = (float)i;
    fixture_push push = fixture_a_push(0, 0, 0x1, values, 40);
    push.slices = all_weight;
    push.n_slices = 3;
    push.split_bytes = 7;
    sg_error err = {0};
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
    fixture_answer answer;
    fixture_pull(&f, 0, all_weight, 3, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    cr_assert_eq(answer.n_values, 40);
    for (int i = 0; i < 40; i++)
        cr_assert_eq(answer.values[i], -(float)i);
    fixture_answer_deinit(&answer);
    stop(&f);
}

Test(store, a_version_is_kept_until_the_first_contribution_to_the_step_after_the_next)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 4);
    expect_value(&f, 0, 0.0f);
    fixture_push_ok(&f, 1, 0, 0x3, ones, 4);
    expect_value(&f, 0, 0.0f);
    expect_value(&f, 1, -1.0f);
    fixture_push_ok(&f, 0, 1, 0x3, ones, 4);
    fixture_answer answer;
    fixture_pull(&f, 1, &slice_0, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_LATE);
    cr_assert_not_null(strstr(answer.message, "version 0 of slice 0 is gone"), "%s", answer.message);
    expect_value(&f, 1, -1.0f);
    stop(&f);
}

Test(store, steps_that_are_past_or_to_come_are_refused_by_name)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 3, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x1, ones, 4);
    fixture_push push = fixture_a_push(1, 0, 0x3, ones, 4);
    expect_refused(&f, &push, SG_LATE, "step 0 is closed; step 1 collects");
    push.step = 2;
    expect_refused(&f, &push, SG_EARLY, "step 2 has not begun; step 1 collects");
    stop(&f);
}

Test(store, a_push_that_breaks_its_contract_is_refused_and_leaves_nothing)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 2, 0.0f);
    const uint32_t unknown[] = {0, 99}, twice[] = {1, 0, 1}, frozen[] = {3}, other_group[] = {0, 4};
    fixture_push push = fixture_a_push(0, 0, 0x3, ones, 15);
    expect_refused(&f, &push, SG_INVALID, "got 60 bytes of data for 1 slices, want 64");
    push.n_values = 40;
    push.slices = unknown;
    push.n_slices = 2;
    expect_refused(&f, &push, SG_INVALID, "slice 99 is unknown: the plan has 5");
    push.slices = twice;
    push.n_slices = 3;
    expect_refused(&f, &push, SG_INVALID, "slice 1 is listed twice");
    push.slices = frozen;
    push.n_slices = 1;
    expect_refused(&f, &push, SG_INVALID, "variable 'table' is frozen");
    push.slices = other_group;
    push.n_slices = 2;
    expect_refused(&f, &push, SG_INVALID, "slice 4 is of group 1");
    push = fixture_a_push(0, 0, 0x3, ones, 16);
    push.dtype = 9;
    expect_refused(&f, &push, SG_INVALID, "dtype 9");
    push = fixture_a_push(0, 0, 0x2, ones, 16);
    expect_refused(&f, &push, SG_INVALID, "worker 0 is not a member");
    push = fixture_a_push(0, 0, 0x10001, ones, 16);
    expect_refused(&f, &push, SG_INVALID, "members name worker 16; max_workers is 16");
    push = fixture_a_push(0, 0, 0x3, ones, 16);
    push.hyper = 7;
    expect_refused(&f, &push, SG_INVALID, "hyper-parameter set 7 is unknown");
    push = fixture_a_push(0, 0, 0x3, ones, 16);
    push.learning_rate = NAN;
    expect_refused(&f, &push, SG_INVALID, "learning_rate");
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.pushes, 0);
    cr_assert_eq(report.waiting_for.len, 0, "no round was opened");
    sg_store_report_deinit(&report);
    stop(&f);
}

Test(store, terms_that_differ_from_the_rounds_are_refused_and_no_slice_of_the_push_is_stored)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 2, 0.0f);
    const uint32_t second = 1, both[] = {0, 1};
    fixture_push push = fixture_a_push(0, 0, 0x3, ones, 16);
    push.slices = &second;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    push = fixture_a_push(1, 0, 0x3, ones, 32);
    push.slices = both;
    push.n_slices = 2;
    push.learning_rate = 0.5f;
    expect_refused(&f, &push, SG_INVALID, "slice 1, step 0: learning_rate of the push differs");
    /* Slice 0 is as if the push had never come: another learning rate may begin its round. */
    fixture_push_ok(&f, 0, 0, 0x3, ones, 16);
    stop(&f);
}

/* --- incarnations and generations --- */

Test(store, only_the_current_incarnation_is_let_in)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    fixture_admit(&f, 1, FIXTURE_INCARNATION(9));
    fixture_push push = fixture_a_push(1, 0, 0x3, ones, 4);
    expect_refused(&f, &push, SG_FENCED, "another life of worker 1 has its index");
    push.incarnation = FIXTURE_INCARNATION(9);
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    push.worker = 5;
    expect_refused(&f, &push, SG_FENCED, "worker 5 is not known");
    push.worker = 16;
    expect_refused(&f, &push, SG_INVALID, "worker 16 is out of range: max_workers is 16");
    stop(&f);
}

Test(store, a_new_incarnation_ends_the_pulls_of_the_old)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    fixture_answer mine, theirs;
    fixture_pull(&f, 1, &slice_0, 1, 1, 60000, &mine);
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &theirs);
    fixture_admit(&f, 1, FIXTURE_INCARNATION(9));
    cr_assert_eq(mine.status, SG_FENCED);
    cr_assert_not(theirs.answered);
    stop(&f);
    cr_assert_eq(theirs.status, SG_STOPPED);
}

Test(store, other_generations_are_refused)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 1, 0.0f);
    fixture_push push = fixture_a_push(0, 0, 0x1, ones, 4);
    push.generation = 0;
    expect_refused(&f, &push, SG_ROLLED_BACK, "generation 0 has passed");
    push.generation = 2;
    expect_refused(&f, &push, SG_NOT_READY, "generation 2 has not begun");
    stop(&f);
}

/* --- excuses --- */

Test(store, an_excuse_fences_the_worker_and_closes_its_rounds_with_the_others)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 4);
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &answer);
    cr_assert_not(answer.answered);
    const uint64_t steps[] = {1, 0};
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), steps, 2, 0x3);
    cr_assert_eq(answer.status, SG_OK);
    fixture_answer_deinit(&answer);
    fixture_push push = fixture_a_push(1, 1, 0x3, ones, 4);
    expect_refused(&f, &push, SG_FENCED, "worker 1 was superseded, has left or was given up");
    fixture_push_ok(&f, 0, 1, 0x3, ones, 4); /* step 1 was excused ahead: it closes with worker 0 alone */
    expect_value(&f, 2, -2.0f);
    stop(&f);
}

Test(store, a_step_that_everyone_is_excused_from_shares_the_values_and_counts)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 3, 5.0f);
    const uint64_t steps[] = {0, 1};
    fixture_excuse(&f, 0, 1, steps, 2, 0x3); /* an old incarnation: worker 0 stays */
    fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), steps, 2, 0x3);
    expect_value(&f, 0, 5.0f);
    expect_value(&f, 1, 5.0f);
    expect_value(&f, 2, 5.0f);
    fixture_push_ok(&f, 2, 2, 0x4, ones, 4);
    expect_value(&f, 3, 4.0f);
    stop(&f);
}

Test(store, a_step_that_everything_was_left_out_of_advances_without_a_change)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 1, 5.0f);
    fixture_push push = fixture_a_push(0, 0, 0x1, ones, 4);
    push.weight = 0;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    expect_value(&f, 1, 5.0f);
    stop(&f);
}

/* --- what is not finite --- */

Test(store, a_contribution_with_a_nan_weighs_nothing_and_is_reported)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
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
    fixture_push_ok(&f, 1, 0, 0x3, threes, 4);
    expect_value(&f, 1, -3.0f);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.non_finite, 1);
    sg_store_report_deinit(&report);
    stop(&f);
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
    fixture_start(&f, small, 1, 1, 0.0f);
    const float bad[4] = {1, 2, NAN, 4};
    for (uint64_t step = 0; step <= 150; step++) { /* 100 ms each */
        fixture_push push = fixture_a_push(0, step, 0x1, bad, 4);
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, NULL), SG_OK);
        f.now_ms += 100;
    }
    cr_assert_eq(all.n_lines, 5, "at 0, 1, 3, 7 and 15 s; got %d lines", all.n_lines);
    cr_assert_eq(all.n_contributions, 151);
    stop(&f);
}

Test(store, non_finite_apply_lets_it_through)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.non_finite = SG_NON_FINITE_APPLY;
    fixture_init(&f, &options);
    fixture_start(&f, small, 1, 1, 0.0f);
    const float bad[4] = {1, 1, INFINITY, 1};
    fixture_push push = fixture_a_push(0, 0, 0x1, bad, 4);
    size_t n_non_finite;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 0);
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 1, 1000, &answer);
    cr_assert_eq(answer.values[0], -1.0f);
    cr_assert(isinf(answer.values[2]));
    fixture_answer_deinit(&answer);
    stop(&f);
}

/* --- async --- */

Test(store, async_applies_each_push_and_answers_with_the_newest)
{
    fixture f;
    start(&f, SG_MODE_ASYNC, small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x1, ones, 4);
    fixture_push_ok(&f, 1, 1, 0x2, ones, 4);
    fixture_push_ok(&f, 1, 1, 0x2, ones, 4); /* a repeat */
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    cr_assert_eq(answer.numbers[0], 2);
    cr_assert_eq(answer.values[0], -2.0f);
    fixture_answer_deinit(&answer);
    fixture_pull(&f, 0, &slice_0, 1, 3, 1000, &answer);
    cr_assert_not(answer.answered);
    fixture_push_ok(&f, 0, 2, 0x1, ones, 4);
    cr_assert_eq(answer.numbers[0], 3);
    fixture_answer_deinit(&answer);
    stop(&f);
}

/* --- pulls --- */

Test(store, a_frozen_variable_is_served_at_any_version)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 1, 4.0f);
    const uint32_t both[] = {3, 0};
    fixture_push_ok(&f, 0, 0, 0x1, ones, 16);
    fixture_answer answer;
    fixture_pull(&f, 0, both, 2, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    cr_assert_eq(answer.numbers[0], 1);
    cr_assert_eq(answer.values[0], 4.0f);
    cr_assert_eq(answer.values[4], 3.0f);
    fixture_answer_deinit(&answer);
    stop(&f);
}

Test(store, a_parked_pull_says_for_whom_it_waits)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 3, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 16);
    fixture_answer parked, due;
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &parked);
    fixture_pull(&f, 0, all_weight, 1, 1, 1500, &due);
    f.now_ms += 1499;
    sg_store_tick(f.store, f.now_ms);
    cr_assert_not(due.answered);
    f.now_ms += 1;
    sg_store_tick(f.store, f.now_ms);
    cr_assert_eq(due.status, SG_TIMEOUT);
    cr_assert_str_eq(due.message, "waiting for worker 1 (host1:4242), group 0, step 0");
    cr_assert_not(parked.answered);
    f.now_ms += 500;
    sg_store_tick(f.store, f.now_ms);
    cr_assert_eq(parked.status, SG_WAITING);
    cr_assert_str_eq(parked.message, "waiting for worker 1 (host1:4242), group 0, step 0");
    stop(&f);
}

Test(store, a_pull_before_the_commit_waits_for_initial_values)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_answer early, patient;
    fixture_pull(&f, 0, &slice_0, 1, 0, 100, &early);
    f.now_ms += 100;
    sg_store_tick(f.store, f.now_ms);
    cr_assert_eq(early.status, SG_TIMEOUT);
    cr_assert_str_eq(early.message, "waiting for initial values");
    fixture_pull(&f, 0, &slice_0, 1, 0, 60000, &patient);
    fixture_start(&f, small, 1, 1, 7.0f);
    cr_assert_eq(patient.status, SG_OK);
    cr_assert_eq(patient.values[3], 7.0f);
    fixture_answer_deinit(&patient);
    stop(&f);
}

Test(store, a_pull_of_what_is_not_here_is_refused)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 1, 0.0f);
    const uint32_t unknown = 8, twice[] = {0, 0}, too_many[] = {0, 1, 2, 3, 4, 5};
    fixture_answer answer;
    fixture_pull(&f, 0, &unknown, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    fixture_pull(&f, 0, twice, 2, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "twice"));
    fixture_pull(&f, 0, too_many, 6, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "more than the plan's 5"), "%s", answer.message);
    fixture_pull(&f, 9, too_many, 6, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_FENCED, "who is not let in is not told of the plan");
    stop(&f);
}

Test(store, a_push_of_more_slices_than_there_are_or_than_its_data_can_be_of_is_refused)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 3, 1, 0.0f);
    static const uint32_t too_many[] = {0, 1, 2, 3, 4, 5};
    static const float values[8] = {0};
    fixture_push push = fixture_a_push(0, 0, 0x1, values, 8);
    push.slices = too_many;
    push.n_slices = 6;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "more than the plan's 5"), "%s", err.message);
    push.n_slices = 3;
    push.n_values = 2;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "8 bytes of data"), "%s", err.message);
    stop(&f);
}

Test(store, a_pull_over_message_bytes_is_refused)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.message_bytes = 64;
    fixture_init(&f, &options);
    fixture_start(&f, variables, 3, 1, 0.0f);
    fixture_answer answer;
    fixture_pull(&f, 0, all_weight, 2, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "message_bytes is 64"), "%s", answer.message);
    stop(&f);
}

Test(store, a_cancelled_pull_is_answered_once_and_forgotten)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 1, 0.0f);
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &answer);
    sg_store_cancel_pull(f.store, &answer);
    sg_store_cancel_pull(f.store, &answer);
    cr_assert_eq(answer.status, SG_CANCELLED);
    fixture_push_ok(&f, 0, 0, 0x1, ones, 4);
    cr_assert_eq(answer.n_answers, 1);
    stop(&f);
}

Test(store, the_end_of_the_job_answers_pulls_and_later_calls)
{
    fixture f;
    start(&f, SG_MODE_SYNC, small, 1, 2, 0.0f);
    fixture_answer answer;
    sg_status status;
    char reason[64];
    cr_assert_not(sg_store_ended(f.store, &status, reason, sizeof reason));
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &answer);
    fixture_end(&f, SG_PEER_LOST, "worker 1 was lost at step 0");
    cr_assert_eq(answer.status, SG_PEER_LOST);
    cr_assert_str_eq(answer.message, "worker 1 was lost at step 0");
    fixture_push push = fixture_a_push(0, 0, 0x3, ones, 4);
    expect_refused(&f, &push, SG_PEER_LOST, "worker 1 was lost");
    fixture_pull(&f, 0, &slice_0, 1, 0, 60000, &answer);
    cr_assert_eq(answer.status, SG_PEER_LOST);
    cr_assert(sg_store_ended(f.store, &status, reason, sizeof reason));
    cr_assert_eq(status, SG_PEER_LOST);
    cr_assert_str_eq(reason, "worker 1 was lost at step 0");
    fixture_deinit(&f);
}

/* --- initialization and orders --- */

Test(store, a_higher_attempt_drops_the_values_of_a_lower_one)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_admit(&f, 1, FIXTURE_INCARNATION(2));
    fixture_declare(&f, small, 1, 1);
    sg_error err = {0};
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, ones, 4, &err), SG_NOT_READY);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 1, 0, ones, 4, &err), SG_INVALID);
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, ones, 4, &err), SG_OK, "%s", err.message);
    fixture_attempt(&f, 2, FIXTURE_INCARNATION(2));
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, ones, 4, &err), SG_LATE);
    cr_assert_eq(fixture_seal(&f, 2, &err), SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "slice 0 of variable 'bias' has no initial values"), "%s", err.message);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, threes, 4, &err), SG_OK);
    cr_assert_eq(fixture_seal(&f, 2, &err), SG_OK);
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, threes, 4, &err), SG_LATE);
    fixture_commit(&f, 2);
    expect_value(&f, 0, 3.0f);
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, threes, 4, &err), SG_LATE);
    stop(&f);
}

Test(store, initial_values_that_are_not_finite_or_too_short_are_refused_by_name)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, small, 1, 1);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    const float bad[4] = {0, INFINITY, 0, 0};
    sg_error err = {0};
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, bad, 4, &err), SG_NON_FINITE);
    cr_assert_not_null(strstr(err.message, "'bias'"));
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, ones, 3, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "got 12 bytes of data for 1 slices, want 16"), "%s", err.message);
    stop(&f);
}

Test(store, an_order_is_applied_once_in_order_and_for_this_life_alone)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    Shardgrad__V1__Seal seal = SHARDGRAD__V1__SEAL__INIT;
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.header = &header;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
    order.seal = &seal;
    sg_error err;
    header = (Shardgrad__V1__OrderHeader){.base = header.base, .life = 78, .sequence = 2, .generation = 1};
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_FENCED);
    header.life = FIXTURE_LIFE;
    header.sequence = 3;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_EARLY);
    header.sequence = 1;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_OK, "order 1 was applied");
    header.sequence = 2;
    header.generation = 2;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_NOT_READY);
    header.generation = 1;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_INVALID);
    order.header = NULL;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_INVALID);
    stop(&f);
}

Test(store, a_refused_order_is_refused_the_same_way_when_it_comes_again)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, small, 1, 1);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    sg_error err;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_NOT_FOUND);
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, ones, 4, &err), SG_OK);
    f.sequence--;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_NOT_FOUND, "the same order");
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_OK, "the next one");
    stop(&f);
}

/* Who fills gigabytes while a declaration waits for its answer lets leases run out meanwhile. */
Test(store, a_declaration_takes_no_memory_for_slots_before_values_come)
{
    fixture f;
    const fixture_variable huge = {"huge", UINT64_C(1) << 43, 0, false};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_ADAM);
    fixture_init(&f, &options);
    f.slice_bytes = UINT64_C(1) << 45;
    fixture_declare(&f, &huge, 1, 1);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.slices, 1);
    cr_assert_eq(report.slot_bytes, UINT64_C(2) << 45);
    sg_store_report_deinit(&report);
    stop(&f);
}

Test(store, a_ps_that_owns_nothing_goes_along)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_MOMENTUM);
    options.ps = 1;
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, small, 1, 2);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    sg_error err;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_OK);
    fixture_commit(&f, 1);
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "slice 0 belongs to ps 0; this is ps 1"), "%s", answer.message);
    stop(&f);
}

Test(store, a_report_counts_and_names_who_is_waited_for)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_ADAM);
    fixture_init(&f, &options);
    fixture_start(&f, variables, 3, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 16);
    fixture_answer answer;
    fixture_pull(&f, 0, &slice_0, 1, 1, 60000, &answer);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.slices, 5);
    cr_assert_eq(report.value_bytes, 48 * 4);
    cr_assert_eq(report.slot_bytes, 2 * 44 * 4, "a frozen variable has none");
    cr_assert_eq(report.pushes, 1);
    cr_assert_eq(report.pulls, 0);
    cr_assert_eq(report.parked, 1);
    cr_assert_eq(report.waiting_for.len, 1);
    cr_assert_eq(report.waiting_for.data[0], 0x2);
    sg_store_report_deinit(&report);
    stop(&f);
}

static void count_lines(void *user, sg_log_level level, const char *event, const char *fields)
{
    if (level == SG_LOG_WARN && strcmp(event, "waiting") == 0 && strstr(fields, "for=\"worker 1 (host1:4242)"))
        ++*(int *)user;
}

Test(store, who_is_waited_for_long_is_logged_at_growing_intervals)
{
    fixture f;
    int n_lines = 0;
    sg_log log = {.fn = count_lines, .user = &n_lines, .min_level = SG_LOG_INFO};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.log = &log;
    fixture_init(&f, &options);
    fixture_start(&f, small, 1, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, ones, 4);
    for (int second = 0; second < 45; second++) {
        sg_store_tick(f.store, f.now_ms);
        f.now_ms += 1000;
    }
    cr_assert_eq(n_lines, 3, "after 10, 20 and 40 s; got %d lines", n_lines);
    stop(&f);
}

/* --- the order of arrival does not matter --- */

#define SHUFFLE_WORKERS 5

static void train_shuffled(sg_rule rule, unsigned seed, float out[40])
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, rule);
    options.held_bytes = seed % 3 * (20u << 10); /* none, one message, some */
    fixture_init(&f, &options);
    f.lend = seed % 4 == 0 ? FIXTURE_LENT : FIXTURE_HELD;
    fixture_start(&f, variables, 1, SHUFFLE_WORKERS, 0.5f);
    for (uint64_t step = 0; step < 4; step++) {
        int order[SHUFFLE_WORKERS * 3];
        for (int i = 0; i < SHUFFLE_WORKERS * 3; i++) {
            int j = rand_r(&seed) % (i + 1);
            order[i] = order[j];
            order[j] = i;
        }
        for (int i = 0; i < SHUFFLE_WORKERS * 3; i++) {
            uint32_t worker = (uint32_t)order[i] / 3, slice = (uint32_t)order[i] % 3;
            float values[16];
            for (int k = 0; k < 16; k++)
                values[k] = sinf((float)(step * 1000 + worker * 100 + slice * 16) + (float)k) / 3.0f;
            fixture_push push = fixture_a_push(worker, step, 0x1f, values, slice == 2 ? 8 : 16);
            push.slices = &slice;
            push.weight = 3 + worker;
            push.learning_rate = 0.1f;
            push.split_bytes = 1 + (size_t)rand_r(&seed) % 80;
            sg_error err = {0};
            cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
        }
    }
    fixture_answer answer;
    fixture_pull(&f, 0, all_weight, 3, 4, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    memcpy(out, answer.values, 40 * sizeof(float));
    fixture_answer_deinit(&answer);
    stop(&f);
}

Test(store, the_result_has_the_same_bits_whatever_the_order_of_arrival)
{
    unsigned base = (unsigned)sg_seed_begin().first;
    for (sg_rule rule = SG_RULE_SGD; rule <= SG_RULE_ADAM; rule++) {
        float first[40], next[40];
        train_shuffled(rule, base, first);
        for (unsigned i = 1; i < 20; i++) {
            train_shuffled(rule, base + i, next);
            cr_assert_arr_eq(first, next, sizeof first, "rule %d, seeds %u and %u", (int)rule, base, base + i);
        }
    }
}

/* --- many threads --- */

#define N_THREADS    4u
#define N_STEPS      60u
#define N_SLICES     3
#define N_ASYNC_PUSH 200u

typedef struct trainer {
    fixture *f;
    uint32_t worker;
    unsigned seed;
    atomic_bool done;
} trainer;

static void pull_all(trainer *t, uint64_t version, fixture_answer *answer)
{
    fixture_pull(t->f, t->worker, all_weight, N_SLICES, version, UINT32_MAX, answer);
    fixture_wait(t->f, answer);
}

/* Pushes gradients whose mean is 1 in every element, slice by slice in an order of its own, repeating some. */
static void *train_sync(void *argument)
{
    trainer *t = argument;
    float values[16];
    for (int i = 0; i < 16; i++)
        values[i] = t->worker % 2 ? 0.5f : 1.5f;
    for (uint64_t step = 0; step < N_STEPS; step++) {
        uint32_t first = (uint32_t)rand_r(&t->seed) % N_SLICES;
        for (uint32_t i = 0; i < N_SLICES; i++) {
            uint32_t slice = (first + i) % N_SLICES;
            fixture_push push = fixture_a_push(t->worker, step, 0xf, values, slice == 2 ? 8 : 16);
            push.slices = &slice;
            for (int n = 1 + rand_r(&t->seed) % 2; n > 0; n--) {
                sg_error err = {0};
                sg_status status = fixture_send(t->f, &push, NULL, NULL, &err);
                SG_ASSERT(status == SG_OK);
            }
        }
        fixture_answer answer;
        pull_all(t, step + 1, &answer);
        SG_ASSERT(answer.status == SG_OK && answer.n_values == 40);
        for (int i = 0; i < 40; i++)
            SG_ASSERT(answer.values[i] == -(float)(step + 1));
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

static void *train_async(void *argument)
{
    trainer *t = argument;
    float values[40];
    for (int i = 0; i < 40; i++)
        values[i] = 1.0f;
    for (uint64_t ticket = 0; ticket < N_ASYNC_PUSH; ticket++) {
        fixture_push push = fixture_a_push(t->worker, ticket * N_THREADS + t->worker, 1u << t->worker, values, 40);
        push.slices = all_weight;
        push.n_slices = N_SLICES;
        for (int n = 1 + rand_r(&t->seed) % 2; n > 0; n--) {
            sg_error err = {0};
            sg_status status = fixture_send(t->f, &push, NULL, NULL, &err);
            SG_ASSERT(status == SG_OK);
        }
        fixture_answer answer;
        pull_all(t, ticket + 1, &answer); /* its own pushes alone made as many versions */
        SG_ASSERT(answer.status == SG_OK);
        for (int i = 0; i < 40; i++) /* a half-written slice would mix two numbers */
            SG_ASSERT(answer.values[i] == -(float)answer.numbers[i / 16]);
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

typedef struct ticker {
    fixture *f;
    atomic_bool stop;
    uint64_t n_reports;
} ticker;

/* Meanwhile the loop of the ps ticks and reports. */
static void *tick(void *argument)
{
    ticker *t = argument;
    for (uint64_t i = 0; !atomic_load(&t->stop); i++) {
        Shardgrad__V1__PsReport report;
        sg_store_tick(t->f->store, t->f->now_ms);
        sg_store_report(t->f->store, &report);
        t->n_reports += report.slices > 0;
        sg_store_report_deinit(&report);
    }
    return NULL;
}

static void run_threads(fixture *f, void *(*train)(void *), unsigned seed)
{
    pthread_t threads[N_THREADS], tick_thread;
    trainer trainers[N_THREADS];
    ticker t = {.f = f};
    pthread_create(&tick_thread, NULL, tick, &t);
    for (uint32_t i = 0; i < N_THREADS; i++) {
        trainers[i] = (trainer){.f = f, .worker = i, .seed = seed + i};
        pthread_create(&threads[i], NULL, train, &trainers[i]);
    }
    for (uint32_t i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&t.stop, true);
    pthread_join(tick_thread, NULL);
}

Test(store, threads_that_push_and_pull_at_random_get_exact_sums)
{
    unsigned seed = (unsigned)sg_seed_begin().first;
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 1, N_THREADS, 0.0f);
    run_threads(&f, train_sync, seed);
    expect_value(&f, N_STEPS, -(float)N_STEPS);
    stop(&f);
}

Test(store, threads_that_push_asynchronously_count_every_push_once)
{
    unsigned seed = (unsigned)sg_seed_begin().first;
    fixture f;
    start(&f, SG_MODE_ASYNC, variables, 1, N_THREADS, 0.0f);
    run_threads(&f, train_async, seed);
    expect_value(&f, N_THREADS * N_ASYNC_PUSH, -(float)(N_THREADS * N_ASYNC_PUSH));
    stop(&f);
}

/* Pushes one ticket after the other until it is refused. */
static void *push_until_fenced(void *argument)
{
    trainer *t = argument;
    sg_status status = SG_OK;
    for (uint64_t ticket = 0; status == SG_OK; ticket++) {
        fixture_push push = fixture_a_push(t->worker, ticket, 1u << t->worker, ones, 40);
        push.slices = all_weight;
        push.n_slices = N_SLICES;
        status = fixture_send(t->f, &push, NULL, NULL, NULL);
    }
    SG_ASSERT(status == SG_FENCED);
    return NULL;
}

static uint64_t count_of(fixture *f, uint32_t index)
{
    sg_store_slice *slice = &f->store->slices[index];
    pthread_mutex_lock(&slice->mutex);
    uint64_t n = slice->round.step + slice->round.pending;
    pthread_mutex_unlock(&slice->mutex);
    return n;
}

Test(store, no_contribution_enters_after_its_worker_was_fenced)
{
    for (int round = 0; round < 100; round++) {
        fixture f;
        start(&f, SG_MODE_ASYNC, variables, 1, 2, 0.0f);
        trainer t = {.f = &f, .worker = 1};
        pthread_t thread;
        uint64_t counts[N_SLICES];
        pthread_create(&thread, NULL, push_until_fenced, &t);
        while (count_of(&f, 0) < 5)
            ;
        fixture_excuse(&f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
        for (uint32_t i = 0; i < N_SLICES; i++)
            counts[i] = count_of(&f, i);
        pthread_join(thread, NULL);
        for (uint32_t i = 0; i < N_SLICES; i++)
            cr_assert_eq(count_of(&f, i), counts[i], "slice %u, round %d", i, round);
        stop(&f);
    }
}

static void *excuse_worker_1(void *argument)
{
    trainer *t = argument;
    fixture_excuse(t->f, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
    atomic_store(&t->done, true);
    return NULL;
}

/* Who holds a slice's mutex is about to count a contribution. */
Test(store, an_order_that_fences_waits_for_contributions_that_were_let_in_before)
{
    fixture f;
    start(&f, SG_MODE_SYNC, variables, 1, 2, 0.0f);
    trainer t = {.f = &f};
    pthread_t thread;
    sg_store_slice *slice = &f.store->slices[N_SLICES - 1];
    pthread_mutex_lock(&slice->mutex);
    pthread_create(&thread, NULL, excuse_worker_1, &t);
    fixture_push push = fixture_a_push(1, 7, 0x3, ones, 16);
    while (fixture_send(&f, &push, NULL, NULL, NULL) != SG_FENCED) /* EARLY before that */
        ;
    for (int i = 0; i < 1000; i++) {
        cr_assert_not(atomic_load(&t.done), "it was acknowledged too early");
        sched_yield();
    }
    pthread_mutex_unlock(&slice->mutex);
    pthread_join(thread, NULL);
    stop(&f);
}

static void fence_on_non_finite(void *user, sg_log_level level, const char *event, const char *fields)
{
    (void)level, (void)fields;
    if (strcmp(event, "non_finite") == 0)
        fixture_excuse(user, 1, FIXTURE_INCARNATION(2), NULL, 0, 0x3);
}

Test(store, a_worker_that_is_fenced_in_the_middle_of_its_push_adds_nothing_more)
{
    for (uint64_t held_bytes = 0; held_bytes <= 1u << 20; held_bytes += 1u << 20) {
        fixture f;
        sg_log log = {.fn = fence_on_non_finite, .user = &f, .min_level = SG_LOG_WARN};
        sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
        options.held_bytes = held_bytes;
        options.log = &log;
        fixture_init(&f, &options);
        fixture_start(&f, variables, 1, 2, 0.0f);
        float values[40];
        memcpy(values, ones, sizeof values);
        values[20] = NAN; /* in slice 1 */
        fixture_push push = fixture_a_push(1, 0, 0x3, values, 40);
        push.slices = all_weight;
        push.n_slices = N_SLICES;
        expect_refused(&f, &push, SG_FENCED, "worker 1 was superseded, has left or was given up");
        cr_assert_eq(f.store->slices[0].n_parts, 1);
        cr_assert_eq(f.store->slices[1].n_parts, 1);
        cr_assert_eq(f.store->slices[2].n_parts, 0);
        stop(&f);
    }
}

typedef struct puller {
    fixture *f;
    uint32_t worker;
    atomic_bool stop;
} puller;

static void *pull_for_ever(void *argument)
{
    puller *p = argument;
    while (!atomic_load(&p->stop)) {
        fixture_answer answer;
        fixture_pull(p->f, p->worker, all_weight, N_SLICES, 1, UINT32_MAX, &answer);
        fixture_wait(p->f, &answer);
        SG_ASSERT(answer.n_answers == 1);
        fixture_answer_deinit(&answer);
    }
    return NULL;
}

Test(store, pulls_that_time_out_while_the_version_is_made_are_answered_once)
{
    for (int round = 0; round < 20; round++) {
        fixture f;
        sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
        options.park_ms = 0;
        fixture_init(&f, &options);
        fixture_start(&f, variables, 1, 2, 0.0f);
        ticker t = {.f = &f};
        puller p = {.f = &f, .worker = 1};
        pthread_t tick_thread, pull_thread;
        pthread_create(&tick_thread, NULL, tick, &t);
        pthread_create(&pull_thread, NULL, pull_for_ever, &p);
        for (uint32_t slice = 0; slice < N_SLICES; slice++) {
            fixture_push push = fixture_a_push(0, 0, 0x1, ones, slice == 2 ? 8 : 16);
            push.slices = &slice;
            sg_error err;
            cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
        }
        atomic_store(&p.stop, true);
        pthread_join(pull_thread, NULL);
        atomic_store(&t.stop, true);
        pthread_join(tick_thread, NULL);
        stop(&f);
    }
}
