/* Hyper-parameters that are changed while the job runs. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_hyper, .timeout = 20);

static rig r;
static uint64_t workers[3];

static void begin(const char *mode)
{
    rig_init(&r, (const char *[]){"workers=2", "ps=[\"a:1\",\"b:2\"]", mode, "update.rule=momentum", NULL});
    memset(workers, 0, sizeof workers);
    rig_start(&r, 2, workers);
    for (uint32_t i = 0; i < 2; i++)
        rig_ticket(&r, workers[i], 0, 0, 0);
}

static const Shardgrad__V1__SetResponse *answered(const rig_call *call)
{
    cr_assert_eq(call->n_answers, 1);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return (const Shardgrad__V1__SetResponse *)call->body;
}

static void expect_step(const rig_call *call, uint64_t hyper, double rate)
{
    const Shardgrad__V1__Step *step = rig_granted(call)->step;
    cr_assert_eq(step->hyper, hyper, "step %lu has set %lu", (unsigned long)step->step, (unsigned long)step->hyper);
    cr_assert_float_eq((double)step->learning_rate, rate, 1e-6);
}

Test(coordinator_hyper, a_set_is_in_force_when_every_ps_has_acknowledged_it)
{
    begin("update.mode=sync");
    r.acknowledge = false;
    rig_call *call = rig_set(&r, 7, "update.momentum", "0.5");
    cr_assert(rig_waits(call));
    expect_step(rig_ticket(&r, workers[0], 0, 1, 1), 1, 0.01);
    rig_acknowledge(&r, 0, SG_OK, "");
    expect_step(rig_ticket(&r, workers[1], 0, 1, 1), 1, 0.01);
    cr_assert(rig_waits(call));
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert_eq(answered(call)->number, 2);
    cr_assert(answered(call)->unsaved, "without checkpoint.dir");
    cr_assert_eq(answered(call)->n_steps, 2);
    cr_assert_eq(answered(call)->steps[0], 2, "step 1 was handed out");
    cr_assert_eq(answered(call)->steps[1], 0);
    const Shardgrad__V1__OrderRequest *order;
    cr_assert_eq(rig_ordered(&r, 1, SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER, &order), 2);
    cr_assert_eq(order->hyper->number, 2);
    cr_assert_float_eq((double)order->hyper->momentum, 0.5, 1e-9);
    expect_step(rig_ticket(&r, workers[0], 0, 2, 2), 2, 0.01);
    expect_step(rig_ticket(&r, workers[1], 0, 2, 2), 2, 0.01);
    r.acknowledge = true;
    rig_deinit(&r);
}

Test(coordinator_hyper, a_learning_rate_comes_with_the_first_step_that_is_named)
{
    begin("update.mode=async");
    cr_assert_eq(answered(rig_set(&r, 7, "update.learning_rate", "0.5"))->steps[0], 2);
    rig_call *ticket = rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert_eq(rig_granted(ticket)->step->step, 2);
    expect_step(ticket, 2, 0.5);
    rig_set(&r, 8, "update.learning_rate", "0.25");
    expect_step(rig_ticket(&r, workers[0], 0, 1, 1), 2, 0.5); /* a repeat gets the same ticket */
    expect_step(rig_ticket(&r, workers[0], 0, 2, 2), 3, 0.25);
    rig_deinit(&r);
}

Test(coordinator_hyper, a_repeat_of_a_request_changes_nothing_and_gets_the_same_answer)
{
    begin("update.mode=sync");
    cr_assert_eq(answered(rig_set(&r, 7, "update.momentum", "0.5"))->number, 2);
    rig_ticket(&r, workers[0], 0, 1, 1);
    const Shardgrad__V1__SetResponse *again = answered(rig_set(&r, 7, "update.momentum", "0.5"));
    cr_assert_eq(again->number, 2);
    cr_assert_eq(again->steps[0], 1, "as it was");
    cr_assert_eq(answered(rig_set(&r, 8, "update.momentum", "0.5"))->number, 3);
    rig_deinit(&r);
}

Test(coordinator_hyper, a_key_that_is_set_twice_at_once_is_refused_with_the_first_value)
{
    Shardgrad__V1__Setting settings[3], *list[3];
    static const char *const given[][2] = {
        {"update.learning_rate", "0.1"}, {"update.momentum", "0.5"}, {"update.learning_rate", "0.2"}};
    for (size_t i = 0; i < SG_ARRAY_LEN(given); i++) {
        settings[i] = (Shardgrad__V1__Setting)SHARDGRAD__V1__SETTING__INIT;
        settings[i].key = (char *)given[i][0];
        settings[i].value = (char *)given[i][1];
        list[i] = &settings[i];
    }
    begin("update.mode=sync");
    rig_failed(rig_set_all(&r, 7, list, 3), SG_CONFIG,
               "update.learning_rate: is here a second time, first with the value '0.1': remove one");
    cr_assert_eq(answered(rig_set_all(&r, 7, list, 2))->number, 2);
    rig_deinit(&r);
}

Test(coordinator_hyper, what_cannot_be_changed_is_refused_with_what_to_do)
{
    begin("update.mode=sync");
    rig_failed(rig_set(&r, 7, "train.batch", "64"), SG_CONFIG, "train.batch cannot be changed while the job runs");
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_CONFIG, "only in a job that makes checkpoints");
    rig_failed(rig_set(&r, 7, "update.momentun", "1"), SG_CONFIG, "did you mean update.momentum?");
    rig_failed(rig_set(&r, 7, "update.momentum", "1.5"), SG_CONFIG, "update.momentum");
    rig_failed(rig_set(&r, 7, "update.schedule", "cosine"), SG_CONFIG, "decay_steps");
    rig_failed(rig_set(&r, 0, "update.momentum", "0.5"), SG_INVALID, "request 0");
    cr_assert_eq(answered(rig_set(&r, 7, "update.momentum", "0.5"))->number, 2, "those that were refused left nothing");
    rig_deinit(&r);
}

/* It is kept as long as the job runs. */
Test(coordinator_hyper, a_value_that_is_longer_than_any_number_is_refused)
{
    char value[80];
    begin("update.mode=sync");
    snprintf(value, sizeof value, "0.%0*u5", 64, 0);
    rig_failed(rig_set(&r, 7, "update.momentum", value), SG_CONFIG, "the value has 67 bytes, at most 64 are allowed");
    snprintf(value, sizeof value, "0.5%0*u", 61, 0);
    cr_assert_eq(answered(rig_set(&r, 7, "update.momentum", value))->number, 2);
    rig_deinit(&r);
}

Test(coordinator_hyper, what_was_meant_for_another_job_changes_nothing)
{
    begin("update.mode=sync");
    r.job = "another";
    rig_failed(rig_set(&r, 7, "update.momentum", "0.5"), SG_MISMATCH, "job 'another' was meant");
    rig_failed(rig_set(&r, 7, "update.momentum", "0.5"), SG_MISMATCH, "belongs to job 'shardgrad'");
    cr_assert_eq(rig_status(&r)->hyper, 1);
    r.job = "shardgrad";
    cr_assert_eq(answered(rig_set(&r, 7, "update.momentum", "0.5"))->number, 2);
    r.job = "";
    cr_assert_eq(answered(rig_set(&r, 8, "update.momentum", "0.25"))->number, 3, "a client that does not say it");
    rig_deinit(&r);
}
