/* Ssp: how far workers may run ahead of each other. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_clocks, .timeout = 20);

static rig r;
static uint64_t workers[4];

/* Two workers with which training starts, of `n` that joined. */
static void begin(uint32_t n, const char *staleness)
{
    rig_init(&r, (const char *[]){"update.mode=ssp", staleness, NULL});
    memset(workers, 0, sizeof workers);
    rig_start(&r, n, workers);
}

static rig_call *ask(uint32_t worker, uint64_t finished)
{
    return rig_ticket(&r, workers[worker], 0, finished, finished);
}

static void expect_lag(const rig_call *call, uint64_t lag)
{
    cr_assert_eq(rig_granted(call)->lag, lag, "lag %lu, not %lu", (unsigned long)rig_granted(call)->lag,
                 (unsigned long)lag);
}

Test(coordinator_clocks, nobody_gets_a_ticket_more_than_the_staleness_ahead_of_the_slowest)
{
    begin(2, "update.staleness=3");
    rig_call *slow = ask(1, 0);
    for (uint64_t finished = 0; finished <= 3; finished++)
        expect_lag(ask(0, finished), finished);
    expect_lag(slow, 0);
    rig_call *parked = ask(0, 4);
    cr_assert(rig_waits(parked));
    expect_lag(ask(1, 1), 0);
    expect_lag(parked, 3);
    cr_assert(rig_waits(ask(0, 5)));
    rig_deinit(&r);
}

Test(coordinator_clocks, who_waits_is_told_for_whom_and_so_is_the_status)
{
    begin(2, "update.staleness=0");
    ask(1, 0);
    ask(0, 0);
    rig_call *parked = ask(0, 1);
    static const char words[] = "waiting for worker 1 (node1:1001), which is 1 steps of group 0 behind worker 0 "
                                "(update.staleness is 0)";
    cr_assert_str_eq(rig_status(&r)->waiting_for, words);
    rig_live(&r, 2500, workers);
    rig_failed(parked, SG_WAITING, words);
    rig_deinit(&r);
}

Test(coordinator_clocks, a_joiner_starts_at_the_slowest_clock_and_holds_nobody_back)
{
    begin(3, "update.staleness=1");
    ask(1, 0);
    ask(0, 0);
    ask(0, 1);
    ask(1, 1);
    expect_lag(ask(0, 2), 1);
    expect_lag(ask(2, 0), 0);
    cr_assert_eq(rig_status(&r)->workers[2]->clock, 1);
    expect_lag(ask(1, 2), 1); /* above the joiner */
    rig_call *parked = ask(0, 3);
    cr_assert(rig_waits(parked));
    expect_lag(ask(2, 1), 0);
    expect_lag(parked, 1);
    rig_deinit(&r);
}

Test(coordinator_clocks, one_that_leaves_is_not_waited_for)
{
    begin(2, "update.staleness=0");
    ask(1, 0);
    ask(0, 0);
    rig_call *parked = ask(0, 1);
    cr_assert(rig_waits(parked));
    rig_leave(&r, workers[1], 0);
    expect_lag(parked, 0);
    rig_deinit(&r);
}

Test(coordinator_clocks, one_that_is_superseded_is_not_waited_for_and_its_new_life_starts_at_the_slowest)
{
    begin(2, "update.staleness=0");
    ask(1, 0);
    ask(0, 0);
    rig_call *parked = ask(0, 1);
    cr_assert(rig_waits(parked));
    workers[1] = rig_join(&r, 1, 4711);
    expect_lag(parked, 0);
    rig_declare(&r, workers[1]);
    expect_lag(ask(1, 0), 0);
    cr_assert_eq(rig_status(&r)->workers[1]->clock, 1);
    rig_deinit(&r);
}

Test(coordinator_clocks, one_that_rests_is_not_waited_for_and_gets_no_more)
{
    begin(2, "update.staleness=0");
    ask(1, 0);
    ask(0, 0);
    rig_call *parked = ask(0, 1);
    rig_heartbeat(&r, workers[1]);
    cr_assert(rig_waits(parked));
    Shardgrad__V1__HeartbeatRequest request = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
    request.incarnation = workers[1];
    request.generation = 1;
    request.resting = true;
    rig_heartbeat_with(&r, &request);
    expect_lag(parked, 0);
    rig_failed(ask(1, 1), SG_INVALID, "asks for no more steps");
    rig_deinit(&r);
}

Test(coordinator_clocks, groups_have_clocks_of_their_own)
{
    begin(2, "update.staleness=0");
    ask(1, 0);
    ask(0, 0);
    expect_lag(rig_ticket(&r, workers[0], 1, 0, 0), 0);
    expect_lag(rig_ticket(&r, workers[0], 1, 1, 1), 0); /* worker 1 has not asked for this group */
    cr_assert(rig_waits(ask(0, 1)));
    rig_deinit(&r);
}

Test(coordinator_clocks, a_ticket_is_asked_for_when_the_one_before_is_finished_and_a_repeat_gets_the_same)
{
    begin(2, "update.staleness=2");
    ask(1, 0);
    rig_call *first = ask(0, 0), *again = ask(0, 0);
    cr_assert_eq(rig_granted(first)->step->step, rig_granted(again)->step->step);
    rig_failed(rig_ticket(&r, workers[0], 0, 1, 0), SG_INVALID, "asks when it has finished");
    ask(0, 1);
    expect_lag(ask(0, 2), 2);
    ask(1, 1);
    expect_lag(rig_ticket(&r, workers[0], 0, 2, 2), 2); /* as it was */
    rig_deinit(&r);
}
