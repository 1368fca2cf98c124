/* Pulls: answered, parked, refused, ended. */
#include <criterion/criterion.h>
#include <string.h>

#include "store_weight.h"

TestSuite(store_pulls, .timeout = 30);

Test(store_pulls, a_frozen_variable_is_served_at_any_version)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 1, 4.0f);
    const uint32_t both[] = {3, 0};
    fixture_push_ok(&f, 0, 0, 0x1, weight_ones, 16);
    fixture_answer answer;
    fixture_pull(&f, 0, both, 2, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK, "%s", answer.message);
    cr_assert_eq(answer.numbers[0], 1);
    cr_assert_eq(answer.values[0], 4.0f);
    cr_assert_eq(answer.values[4], 3.0f);
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

Test(store_pulls, a_parked_pull_says_for_whom_it_waits)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 3, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 16);
    fixture_answer parked, due;
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &parked);
    fixture_pull(&f, 0, weight_slices, 1, 1, 1500, &due);
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
    fixture_stop(&f);
}

Test(store_pulls, a_pull_before_the_commit_waits_for_initial_values)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_answer early, patient;
    fixture_pull(&f, 0, &weight_first, 1, 0, 100, &early);
    f.now_ms += 100;
    sg_store_tick(f.store, f.now_ms);
    cr_assert_eq(early.status, SG_TIMEOUT);
    cr_assert_str_eq(early.message, "waiting for initial values");
    fixture_pull(&f, 0, &weight_first, 1, 0, 60000, &patient);
    fixture_start(&f, weight_small, 1, 1, 7.0f);
    cr_assert_eq(patient.status, SG_OK);
    cr_assert_eq(patient.values[3], 7.0f);
    fixture_answer_deinit(&patient);
    fixture_stop(&f);
}

Test(store_pulls, a_pull_of_what_is_not_here_is_refused)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 1, 0.0f);
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
    fixture_stop(&f);
}

Test(store_pulls, a_push_of_more_slices_than_there_are_or_than_its_data_can_be_of_is_refused)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_variables, 3, 1, 0.0f);
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
    fixture_stop(&f);
}

Test(store_pulls, a_pull_over_message_bytes_is_refused)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.message_bytes = 64;
    fixture_init(&f, &options);
    fixture_start(&f, weight_variables, 3, 1, 0.0f);
    fixture_answer answer;
    fixture_pull(&f, 0, weight_slices, 2, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "message_bytes is 64"), "%s", answer.message);
    fixture_stop(&f);
}

Test(store_pulls, a_cancelled_pull_is_answered_once_and_forgotten)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 1, 0.0f);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &answer);
    sg_store_cancel_pull(f.store, &answer);
    sg_store_cancel_pull(f.store, &answer);
    cr_assert_eq(answer.status, SG_CANCELLED);
    fixture_push_ok(&f, 0, 0, 0x1, weight_ones, 4);
    cr_assert_eq(answer.n_answers, 1);
    fixture_stop(&f);
}

Test(store_pulls, the_end_of_the_job_answers_pulls_and_later_calls)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    fixture_answer answer;
    sg_status status;
    char reason[64];
    cr_assert_not(sg_store_ended(f.store, &status, reason, sizeof reason));
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &answer);
    fixture_end(&f, SG_PEER_LOST, "worker 1 was lost at step 0");
    cr_assert_eq(answer.status, SG_PEER_LOST);
    cr_assert_str_eq(answer.message, "worker 1 was lost at step 0");
    fixture_push push = fixture_a_push(0, 0, 0x3, weight_ones, 4);
    fixture_expect_refused(&f, &push, SG_PEER_LOST, "worker 1 was lost");
    fixture_pull(&f, 0, &weight_first, 1, 0, 60000, &answer);
    cr_assert_eq(answer.status, SG_PEER_LOST);
    cr_assert(sg_store_ended(f.store, &status, reason, sizeof reason));
    cr_assert_eq(status, SG_PEER_LOST);
    cr_assert_str_eq(reason, "worker 1 was lost at step 0");
    fixture_deinit(&f);
}
