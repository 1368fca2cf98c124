/* Backup workers: one that was too late joins again. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_late, .timeout = 20);

static rig r;
static uint64_t workers[3];

static void begin_with(const char *setting)
{
    rig_init(&r, (const char *[]){"workers=3", "update.backup_workers=1", setting, NULL});
    memset(workers, 0, sizeof workers);
    rig_start(&r, 3, workers);
    if (setting != NULL)
        rig_complete(&r, 0);
    for (uint32_t i = 0; i < 3; i++)
        rig_ticket(&r, workers[i], 0, 0, 0);
}

static void begin(void)
{
    begin_with(NULL);
}

static rig_call *ask(uint32_t worker, uint64_t received)
{
    return rig_ticket(&r, workers[worker], 0, received, received);
}

static rig_call *hello_late(uint32_t worker)
{
    Shardgrad__V1__HelloRequest request = rig_hello_request(&r, worker, 1000 + worker);
    request.late = workers[worker];
    return rig_hello_with(&r, &request);
}

static void hello_late_with(uint32_t worker, Shardgrad__V1__GroupProgress *progress)
{
    Shardgrad__V1__HelloRequest request = rig_hello_request(&r, worker, 1000 + worker);
    request.late = workers[worker];
    request.progress = &progress;
    request.n_progress = 1;
    rig_hello_with(&r, &request);
}

/* It says how many steps it began. */
static void hello_late_begun(uint32_t worker, uint64_t begun)
{
    Shardgrad__V1__GroupProgress progress = SHARDGRAD__V1__GROUP_PROGRESS__INIT;
    progress.begun_presence_case = SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE_BEGUN;
    progress.begun = begun;
    hello_late_with(worker, &progress);
}

static uint64_t life_of(uint32_t worker)
{
    return rig_status(&r)->workers[worker]->incarnation;
}

Test(coordinator_late, a_ticket_of_a_step_that_others_have_left_behind_is_refused)
{
    begin();
    for (uint64_t step = 1; step <= 4; step++) {
        rig_granted(ask(0, step));
        rig_granted(ask(1, step));
    }
    rig_failed(ask(2, 1), SG_LATE, "step 1 was closed without worker 2");
    rig_deinit(&r);
}

Test(coordinator_late, who_gives_up_is_excused_counts_what_it_missed_and_joins_with_the_next_iteration)
{
    begin();
    for (uint64_t step = 1; step <= 4; step++) {
        rig_granted(ask(0, step));
        rig_granted(ask(1, step));
    }
    const uint64_t old = life_of(2);
    rig_call *hello = hello_late(2);
    const uint64_t given = ((const Shardgrad__V1__HelloResponse *)hello->body)->incarnation;
    cr_assert_neq(given, old);
    cr_assert_eq(rig_status(&r)->workers[2]->late, 5);
    const Shardgrad__V1__OrderRequest *order;
    cr_assert_eq(rig_ordered(&r, 0, SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->incarnation, old);
    cr_assert_eq(order->excuse->n_steps, 2,
                 "steps 3 and 4: that the others push 3 proves that those before are closed");
    rig_call *again = hello_late(2);
    cr_assert_eq(((const Shardgrad__V1__HelloResponse *)again->body)->incarnation, given, "a repeat");
    cr_assert_eq(rig_status(&r)->workers[2]->late, 5);
    rig_declare(&r, workers[2] = given);
    rig_call *ticket = ask(2, 0);
    cr_assert(rig_waits(ticket));
    rig_granted(ask(0, 5));
    cr_assert_eq(rig_granted(ticket)->step->step, 5);
    cr_assert_eq(rig_granted(ticket)->size, 3);
    rig_deinit(&r);
}

/* All have a ticket of step 3, and 0 to 2 are finished. */
static void begin_step_3(void)
{
    begin_with("checkpoint.dir=/c");
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t i = 0; i < 3; i++)
            rig_granted(ask(i, step));
    }
}

/* All leave, the others without having begun step 3, and this is the last checkpoint. */
static void end_with(uint64_t iteration)
{
    rig_leave_begun(&r, life_of(2), UINT64_MAX, 0);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(rig_leave_begun(&r, workers[i], 3, 3)->status, SG_OK);
    rig_complete(&r, iteration);
    rig_deinit(&r);
}

/* The step after the last was opened with it as a member, but it never had a ticket for it. */
Test(coordinator_late, a_step_that_the_late_one_had_no_ticket_for_is_not_in_the_last_checkpoint)
{
    begin_with("checkpoint.dir=/c");
    for (uint64_t step = 1; step <= 3; step++) {
        rig_granted(ask(0, step));
        rig_granted(ask(1, step));
    }
    hello_late(2);
    end_with(3);
}

/* It asked for its ticket ahead, and was told that it was late before it pushed anything of it. */
Test(coordinator_late, a_step_that_the_late_one_says_it_did_not_begin_is_not_in_the_last_checkpoint)
{
    begin_step_3();
    hello_late_begun(2, 3);
    end_with(3);
}

Test(coordinator_late, a_step_that_only_the_late_one_began_is_in_the_last_checkpoint)
{
    begin_step_3();
    hello_late_begun(2, 4);
    end_with(4);
}

Test(coordinator_late, it_says_no_more_than_its_tickets_allow)
{
    begin_step_3();
    Shardgrad__V1__GroupProgress progress = SHARDGRAD__V1__GROUP_PROGRESS__INIT;
    progress.begun_presence_case = SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE_BEGUN;
    progress.begun = 3;
    progress.pushed = UINT64_MAX;
    hello_late_with(2, &progress);
    end_with(4);
}

Test(coordinator_late, in_async_nobody_is_late)
{
    uint64_t lives[2];
    rig_init(&r, (const char *[]){"update.backup_workers=1", "update.mode=async", "checkpoint.dir=/c", NULL});
    rig_start(&r, 2, lives);
    rig_complete(&r, 0);
    rig_call *first = rig_ticket(&r, lives[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, lives[1], 0, 0, 0));
    rig_granted(first);
    Shardgrad__V1__HelloRequest request = rig_hello_request(&r, 1, 1001);
    request.late = lives[1];
    rig_hello_with(&r, &request);
    cr_assert_eq(life_of(1), lives[1], "its incarnation goes on");
    rig_deinit(&r);
}
