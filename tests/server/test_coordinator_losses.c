/* Workers whose lease runs out: on_worker_loss, min_workers. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

#define EXCUSE SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE

TestSuite(coordinator_losses, .timeout = 10);

static uint64_t members_of(const rig_call *call)
{
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(call);
    return ticket->step->members.len == 0 ? 0 : ticket->step->members.data[0];
}

/* Two workers compute step 0 and hold step 1; then one falls silent. */
static void begin(rig *r, const char *const settings[], uint64_t workers[3])
{
    rig_init(r, settings);
    rig_start(r, 2, workers);
    rig_ticket(r, workers[1], 0, 0, 0);
    rig_granted(rig_ticket(r, workers[0], 0, 0, 0));
    rig_granted(rig_ticket(r, workers[1], 0, 0, 0));
    rig_granted(rig_ticket(r, workers[0], 0, 1, 0));
}

static void live_alone(rig *r, uint64_t worker, uint64_t ms)
{
    const uint64_t living[] = {worker, 0};
    rig_live(r, ms, living);
}

Test(coordinator_losses, continue_excuses_the_lost_from_all_that_was_handed_out_and_the_others_go_on)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, NULL, workers);
    live_alone(&r, workers[0], 6000);
    cr_assert(rig_logged(&r, "lost worker=1"));
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->worker, 1);
    cr_assert_eq(order->excuse->incarnation, workers[1]);
    cr_assert_eq(order->excuse->n_steps, 2);
    cr_assert_eq(order->excuse->steps[0]->members.data[0], 3, "its terms are those of the ticket");
    cr_assert_eq(members_of(rig_ticket(&r, workers[0], 0, 2, 1)), 1, "from the next step on it is alone");
    rig_failed(rig_heartbeat(&r, workers[1]), SG_FENCED, "given up for lost");
    rig_deinit(&r);
}

Test(coordinator_losses, below_min_workers_a_loss_is_held_back_until_another_asks_for_a_ticket)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"min_workers=2", NULL}, workers);
    live_alone(&r, workers[0], 6000);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->n_steps, 0, "it is only fenced");
    rig_call *next = rig_ticket(&r, workers[0], 0, 2, 1);
    cr_assert(rig_waits(next), "no step is opened meanwhile");
    live_alone(&r, workers[0], 3000);
    rig_failed(next, SG_WAITING, "worker 1 (node1:1001), which was lost");
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "min_workers is 2"));
    workers[1] = rig_join(&r, 1, 2000);
    rig_declare(&r, workers[1]);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, NULL), 1, "hello alone changes nothing");
    next = rig_ticket(&r, workers[0], 0, 2, 1);
    cr_assert(rig_waits(next));
    rig_call *joiner = rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 2);
    cr_assert_eq(order->excuse->n_steps, 2);
    cr_assert_neq(order->excuse->incarnation, workers[1], "the life that was lost is meant");
    cr_assert_eq(members_of(next), 3);
    cr_assert_eq(members_of(joiner), 3);
    rig_deinit(&r);
}

Test(coordinator_losses, a_loss_that_is_held_back_for_start_timeout_ends_the_job_naming_it)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"min_workers=2", "start_timeout_ms=20000", NULL}, workers);
    live_alone(&r, workers[0], 24000);
    cr_assert_eq(rig_heartbeat(&r, workers[0])->status, SG_OK);
    live_alone(&r, workers[0], 2000);
    rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST, "worker 1 (node1:1001), which was lost");
    rig_deinit(&r);
}

Test(coordinator_losses, the_last_worker_that_is_lost_is_waited_for)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, NULL, workers);
    cr_assert_eq(rig_leave(&r, workers[1], 1)->status, SG_OK);
    rig_live(&r, 10000, NULL);
    cr_assert_eq(r.n_ends, 0, "the job does not end as if all had left");
    workers[0] = rig_join(&r, 0, 2000);
    rig_declare(&r, workers[0]);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, workers[0], 0, 0, 0));
    cr_assert_eq(ticket->step->step, 2, "steps that were handed out close without it");
    cr_assert_eq(rig_leave(&r, workers[0], 3)->status, SG_OK);
    rig_live(&r, 1000, NULL);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_losses, async_below_min_workers_no_ticket_is_granted)
{
    rig r;
    uint64_t workers[3] = {0};
    rig_init(&r, (const char *[]){"min_workers=2", "update.mode=async", NULL});
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[1], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[0], 0, 0, 0));
    live_alone(&r, workers[0], 6000);
    rig_call *next = rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert(rig_waits(next));
    uint64_t third = rig_join(&r, 2, 2000);
    rig_declare(&r, third);
    rig_granted(rig_ticket(&r, third, 0, 0, 0));
    rig_granted(next);
    rig_deinit(&r);
}

Test(coordinator_losses, a_new_life_of_the_only_worker_goes_on_after_its_steps)
{
    rig r;
    uint64_t workers[3] = {0};
    rig_init(&r, (const char *[]){"workers=1", NULL});
    rig_start(&r, 1, workers);
    rig_granted(rig_ticket(&r, workers[0], 0, 0, 0));
    uint64_t again = rig_join(&r, 0, 2000);
    rig_declare(&r, again);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, again, 0, 0, 0));
    cr_assert_eq(ticket->step->step, 1);
    const Shardgrad__V1__OrderRequest *order = NULL;
    rig_ordered(&r, 0, EXCUSE, &order);
    cr_assert_eq(order->excuse->n_steps, 1);
    rig_deinit(&r);
}

/* --- wait --- */

/* The ps says what its slices lack of the worker, in group 0. */
static void lacks(rig *r, uint64_t step)
{
    static Shardgrad__V1__Lacking lacking;
    static Shardgrad__V1__Lacking *list[] = {&lacking};
    shardgrad__v1__lacking__init(&lacking);
    lacking.step = step;
    r->acknowledgement[0].lacking = list;
    r->acknowledgement[0].n_lacking = 1;
}

Test(coordinator_losses,
     wait_excuses_nobody_and_gives_the_next_life_the_frozen_ticket_of_the_lowest_step_that_is_lacking)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", NULL}, workers);
    lacks(&r, 0);
    live_alone(&r, workers[0], 6000);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->n_steps, 0, "it is only fenced");
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "worker 1 (node1:1001), which was lost, to come again"));
    uint64_t again = rig_join(&r, 1, 2000);
    rig_declare(&r, again);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, again, 0, 0, 0));
    cr_assert_eq(ticket->step->step, 0);
    cr_assert_eq(ticket->rank, 1);
    cr_assert_eq(ticket->size, 2);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 1, 0))->step->step, 1, "and then the next");
    cr_assert_eq(members_of(rig_ticket(&r, workers[0], 0, 2, 1)), 3);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_losses, wait_skips_steps_that_the_lost_life_had_contributed_to)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", NULL}, workers);
    lacks(&r, 1);
    live_alone(&r, workers[0], 6000);
    uint64_t again = rig_join(&r, 1, 2000);
    rig_declare(&r, again);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 0, 0))->step->step, 1);
    rig_deinit(&r);
}

Test(coordinator_losses, wait_a_life_that_is_superseded_hands_its_steps_on_too)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", NULL}, workers);
    lacks(&r, 0);
    uint64_t again = rig_join(&r, 1, 2000);
    rig_declare(&r, again);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 0, 0))->step->step, 0);
    uint64_t third = rig_join(&r, 1, 3000);
    rig_declare(&r, third);
    cr_assert_eq(rig_granted(rig_ticket(&r, third, 0, 0, 0))->step->step, 0);
    cr_assert_eq(rig_leave(&r, third, 1)->status, SG_OK);
    const Shardgrad__V1__OrderRequest *order = NULL;
    rig_ordered(&r, 0, EXCUSE, &order);
    cr_assert_eq(order->excuse->incarnation, third);
    cr_assert_eq(order->excuse->n_steps, 1, "step 1, which it did not push");
    rig_deinit(&r);
}

Test(coordinator_losses, wait_gives_no_ticket_before_every_ps_has_said_what_it_lacks)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", "ps=[\"a:1\",\"b:2\"]", NULL}, workers);
    lacks(&r, 0);
    r.silent[1] = true;
    live_alone(&r, workers[0], 6000);
    rig_call *hello = rig_hello(&r, 1, 2000);
    cr_assert(rig_waits(hello));
    r.silent[1] = false;
    live_alone(&r, workers[0], 1500);
    uint64_t again = rig_join(&r, 1, 2000);
    rig_declare(&r, again);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 0, 0))->step->step, 0);
    rig_deinit(&r);
}

Test(coordinator_losses, wait_ends_the_job_after_start_timeout)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", "start_timeout_ms=20000", NULL}, workers);
    live_alone(&r, workers[0], 26000);
    rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST, "worker 1 (node1:1001), which was lost, to come again");
    rig_deinit(&r);
}

Test(coordinator_losses, a_hello_after_an_incarnation_is_let_in_only_while_the_index_has_no_other)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, NULL, workers);
    live_alone(&r, workers[0], 6000);
    Shardgrad__V1__HelloRequest request = rig_hello_request(&r, 1, 2000);
    request.address = (char *)"node1:1001";
    request.after = workers[1];
    cr_assert_eq(rig_hello_with(&r, &request)->status, SG_OK);
    cr_assert_eq(rig_hello_with(&r, &request)->status, SG_OK, "a repeat");
    rig_join(&r, 1, 3000);
    request.life = 4000;
    rig_failed(rig_hello_with(&r, &request), SG_FENCED, "has taken the index of this process");
    rig_deinit(&r);
}

/* The lost life had pushed a part of step 0 of the second group, which therefore closes; the next leaves before it. */
Test(coordinator_losses, wait_the_last_checkpoint_has_what_the_lost_life_may_have_pushed)
{
    static const char *const settings[] = {"checkpoint.dir=/somewhere", "workers=1", "on_worker_loss=wait", NULL};
    rig r;
    uint64_t worker;
    rig_init(&r, settings);
    rig_start(&r, 1, &worker);
    rig_complete(&r, 0);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    rig_granted(rig_ticket(&r, worker, 1, 0, 0));
    Shardgrad__V1__Lacking lacking[2] = {SHARDGRAD__V1__LACKING__INIT, SHARDGRAD__V1__LACKING__INIT};
    Shardgrad__V1__Lacking *list[2] = {&lacking[0], &lacking[1]};
    lacking[1].group = 1;
    r.acknowledgement[0].lacking = list;
    r.acknowledgement[0].n_lacking = 2;
    uint64_t again = rig_join(&r, 0, 2000);
    rig_declare(&r, again);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 0, 0))->step->step, 0);
    rig_leave(&r, again, 1);
    cr_assert_eq(rig_cut(&r)->steps[0], 1);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    rig_deinit(&r);
}

/* libuv hands on what has arrived before the timer: a loss may be noted between the standstill and the tick. */
Test(coordinator_losses, one_that_is_lost_after_ps_0_stood_still_is_waited_for_from_then_on)
{
    rig r;
    uint64_t workers[3] = {0};
    begin(&r, (const char *[]){"on_worker_loss=wait", NULL}, workers);
    lacks(&r, 0);
    rig_pass(&r, 1000);
    rig_heartbeat(&r, workers[0]);
    r.now_ms += 700;
    rig_hello(&r, 1, 2000);
    r.tick_ms = r.now_ms + 5 - 100; /* a tick is 100 ms */
    rig_pass(&r, 5);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING, "%s", r.log);
    rig_deinit(&r);
}
