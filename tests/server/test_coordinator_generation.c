/* Generations without a checkpoint: what is lost before training has started is made again. */
#include <criterion/criterion.h>

#include "common/status.h"
#include "tests/server/coordinator_fixture.h"

#define BEGIN   SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN
#define DECLARE SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET

static const char *const two_ps[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", NULL};

/* Says hello again in generation 2; returns the incarnation. */
static uint64_t come_again(rig *r, uint32_t worker, uint64_t life, uint64_t given_up)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, worker, life);
    hello.generation = given_up;
    rig_call *call = rig_hello_with(r, &hello);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__HelloResponse *)call->body)->incarnation;
}

Test(coordinator_generation, a_new_life_of_a_ps_before_training_begins_the_next_generation_and_workers_declare_again)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_call *waits = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(waits));
    cr_assert_eq(rig_register_as(&r, 1, 555, "host:9")->status, SG_OK);
    rig_failed(waits, SG_ROLLED_BACK, "generation 2 now: ps 1 (host:1) was started anew");
    rig_failed(rig_heartbeat(&r, workers[0]), SG_ROLLED_BACK,
               "generation 1 has passed, the job is in 2: ps 1 (host:1) was started anew");
    cr_assert_eq(rig_status(&r)->generation, 2);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, BEGIN, &order), 1, "the ps that lives is told");
    cr_assert_eq(order->header->generation, 2);
    cr_assert_eq(rig_ordered(&r, 1, BEGIN, NULL), 0, "the new one has nothing to drop");
    cr_assert_eq(rig_ordered(&r, 1, DECLARE, NULL), 2);
    uint64_t again = come_again(&r, 0, 1000, 1);
    cr_assert_eq(again >> 32, 2);
    cr_assert_neq(again, workers[0]);
    rig_deinit(&r);
}

Test(coordinator_generation, the_next_generation_trains_as_the_first_would_have)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_register_as(&r, 1, 555, "host:9");
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = come_again(&r, i, 1000 + i, 1);
    rig_call *declare = rig_declare(&r, workers[1]);
    cr_assert_eq(declare->status, SG_OK, "%s", declare->text);
    uint64_t attempt = ((const Shardgrad__V1__DeclareResponse *)declare->body)->attempt;
    cr_assert_gt(attempt, 1, "attempts count on");
    cr_assert_eq(rig_initialized(&r, workers[1], attempt)->status, SG_OK);
    cr_assert_eq(rig_declare(&r, workers[0])->status, SG_OK);
    rig_ticket(&r, workers[0], 0, 0, 0);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    cr_assert_eq(ticket->step->step, 0);
    cr_assert_eq(ticket->size, 2);
    rig_deinit(&r);
}

Test(coordinator_generation, a_ps_that_falls_silent_before_training_is_waited_for_and_then_named)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    for (int i = 0; i < 6; i++) {
        rig_register(&r, 0);
        rig_heartbeat(&r, worker);
        rig_pass(&r, 1000);
    }
    rig_failed(rig_heartbeat(&r, worker), SG_ROLLED_BACK, "generation 1 has passed");
    rig_call *hello = rig_hello(&r, 0, 7);
    for (uint64_t ms = 0; ms < r.config->start_timeout_ms; ms += 1000) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    rig_failed(hello, SG_WAITING, "waiting for ps 1 to register");
    rig_failed(rig_hello(&r, 0, 7), SG_PEER_LOST, "ps 1 (host:1) was lost and did not come back");
    rig_deinit(&r);
}

Test(coordinator_generation, one_that_only_was_silent_comes_back_and_drops_what_it_had)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    for (int i = 0; i < 6; i++) {
        rig_register(&r, 0);
        rig_heartbeat(&r, worker);
        rig_pass(&r, 1000);
    }
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    cr_assert_eq(rig_ordered(&r, 1, BEGIN, NULL), 1);
    cr_assert_eq(come_again(&r, 0, 7, 1) >> 32, 2);
    rig_deinit(&r);
}

Test(coordinator_generation, one_that_fell_silent_before_it_was_answered_gets_an_incarnation_of_the_generation)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register(&r, 0);
    rig_call *hello = rig_hello(&r, 0, 7);
    for (uint64_t ms = 0; ms <= r.config->lease_ms + 2 * r.config->park_ms; ms += 100) {
        rig_register(&r, 0);
        rig_pass(&r, 100);
    }
    rig_failed(hello, SG_WAITING, "waiting for ps 1 to register");
    rig_register(&r, 1);
    rig_join(&r, 1, 8); /* to whom the ps matters */
    cr_assert_eq(rig_register_as(&r, 1, 555, "host:9")->status, SG_OK);
    cr_assert_eq(rig_status(&r)->generation, 2);
    cr_assert_eq(come_again(&r, 0, 7, 0) >> 32, 2);
    rig_deinit(&r);
}

Test(coordinator_generation, who_has_given_a_generation_up_is_answered_in_the_next)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 0, 7);
    hello.generation = 1;
    rig_call *waits = rig_hello_with(&r, &hello);
    cr_assert(rig_waits(waits));
    rig_register_as(&r, 1, 555, "host:1");
    cr_assert_eq(waits->status, SG_OK);
    const Shardgrad__V1__HelloResponse *answer = (const Shardgrad__V1__HelloResponse *)waits->body;
    cr_assert_eq(answer->generation, 2);
    cr_assert_neq(answer->incarnation, worker);
    rig_deinit(&r);
}

Test(coordinator_generation, a_coordinator_that_was_started_anew_goes_beyond_what_a_worker_knows)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    cr_assert_eq(come_again(&r, 0, 7, 4) >> 32, 5);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 1, 8);
    hello.generation = UINT64_MAX;
    rig_failed(rig_hello_with(&r, &hello), SG_INVALID, "generation 18446744073709551615");
    rig_deinit(&r);
}

/* An incarnation has 32 bits for it. */
Test(coordinator_generation, after_the_last_that_there_may_be_the_job_ends)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    cr_assert_eq(come_again(&r, 0, 7, UINT32_MAX - 1) >> 32, UINT32_MAX);
    rig_failed(rig_register_as(&r, 1, 555, "host:1"), SG_EXHAUSTED, "generation 4294967295 is the last");
    rig_deinit(&r);
}

Test(coordinator_generation, what_is_ordered_while_a_ps_is_silent_reaches_it_when_it_is_heard_again)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    for (int i = 0; i < 6; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    cr_assert_str_eq(rig_status(&r)->ps[1]->state, "waiting");
    rig_call *set = rig_set(&r, 9, "update.momentum", "0.5");
    cr_assert(rig_waits(set));
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    cr_assert_not(rig_waits(set));
    cr_assert_eq(set->status, SG_OK, "%s", set->text);
    rig_deinit(&r);
}

/* The time begins when it is lost, however old the generation is. */
Test(coordinator_generation, a_ps_that_falls_silent_long_after_a_recovery_has_its_whole_time)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    cr_assert_eq(rig_register_as(&r, 1, 555, "host:1")->status, SG_OK);
    uint64_t worker = come_again(&r, 0, 7, 1);
    cr_assert_eq(rig_leave(&r, worker, UINT64_MAX)->status, SG_OK);
    rig_live(&r, 2 * r.config->start_timeout_ms, NULL);
    for (int i = 0; i < 7; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    cr_assert_str_eq(rig_status(&r)->ps[1]->state, "waiting");
    cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED, "%s", r.log);
    rig_deinit(&r);
}

/* --- one that gives a generation up in which nobody is lost ----------------------------------------------------- */

static rig_call *give_up(rig *r, uint32_t worker, uint64_t incarnation)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, worker, 1000 + worker);
    hello.generation = incarnation >> 32;
    hello.gives_up = incarnation;
    return rig_hello_with(r, &hello);
}

/* Two workers compute a step; then nobody hears of ps 0 for longer than a lease, and its clock goes on at once. */
static void train_and_stand_still(rig *r, uint64_t workers[2], const char *loss)
{
    rig_init(r, (const char *const[]){two_ps[0], loss, NULL});
    rig_start(r, 2, workers);
    rig_call *first = rig_ticket(r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(r, workers[1], 0, 0, 0));
    rig_granted(first);
    for (uint32_t ps = 0; ps < 2; ps++) { /* nobody had pushed anything */
        static Shardgrad__V1__Lacking none = SHARDGRAD__V1__LACKING__INIT, *list[] = {&none};
        r->acknowledgement[ps].lacking = list;
        r->acknowledgement[ps].n_lacking = 1;
    }
    rig_pass(r, 200);
    r->now_ms += 2 * r->config->lease_ms;
    r->tick_ms = r->now_ms - r->now_ms % 100;
}

/* Whatever on_worker_loss says: nobody is lost. */
static void stands_still_and_goes_on(const char *loss)
{
    rig r;
    uint64_t workers[2];
    train_and_stand_still(&r, workers, loss);
    rig_call *hello[2] = {give_up(&r, 0, workers[0]), give_up(&r, 1, workers[1])};
    cr_assert(rig_waits(hello[0]), "a ps may be lost after all");
    rig_pass(&r, 500);
    rig_register_all(&r);
    for (uint32_t i = 0; i < 2; i++) {
        cr_assert_eq(hello[i]->status, SG_OK, "%s", hello[i]->text);
        uint64_t again = ((const Shardgrad__V1__HelloResponse *)hello[i]->body)->incarnation;
        cr_assert_neq(again, workers[i]);
        cr_assert_eq(again >> 32, 1, "the generation goes on");
        cr_assert_eq(give_up(&r, i, workers[i])->status, SG_OK, "a repeat gets the same answer");
        rig_failed(rig_heartbeat(&r, workers[i]), SG_FENCED, "was let in again, and calls as incarnation");
        workers[i] = again;
        rig_declare(&r, again);
    }
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    cr_assert_eq(ticket->step->step, 0, "nobody is excused from what they began");
    cr_assert_eq(ticket->size, 2);
    cr_assert_eq(rig_granted(first)->step->step, 0);
    cr_assert_not(rig_logged(&r, "lost worker"), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_generation, a_coordinator_that_stood_still_lets_those_who_missed_it_take_their_places_again)
{
    stands_still_and_goes_on("on_worker_loss=continue");
    stands_still_and_goes_on("on_worker_loss=wait");
    stands_still_and_goes_on("on_worker_loss=abort");
}

/* Its way to a ps is broken: others must not wait for it for ever. */
Test(coordinator_generation, one_that_gives_up_again_before_it_finished_a_step_is_lost)
{
    rig r;
    uint64_t workers[2];
    train_and_stand_still(&r, workers, "on_worker_loss=continue");
    rig_call *hello = give_up(&r, 1, workers[1]);
    rig_pass(&r, 500);
    rig_register_all(&r);
    uint64_t again = ((const Shardgrad__V1__HelloResponse *)hello->body)->incarnation;
    rig_declare(&r, again);
    cr_assert_eq(rig_granted(rig_ticket(&r, again, 0, 0, 0))->step->step, 0);
    hello = give_up(&r, 1, again);
    for (unsigned second = 0; second < 10; second++) {
        rig_live(&r, 1000, (const uint64_t[]){workers[0], 0});
        if (!rig_waits(hello))
            hello = give_up(&r, 1, again);
    }
    cr_assert(rig_logged(&r, "lost worker=1"), "%s", r.log);
    cr_assert(rig_logged(&r, "excused worker=1"), "%s", r.log);
    cr_assert_eq(hello->status, SG_OK, "it may come again as one who joins: %s", hello->text);
    rig_deinit(&r);
}

Test(coordinator_generation, one_whose_place_is_kept_and_that_does_not_come_is_lost_as_any_other)
{
    static const char *const losses[] = {"on_worker_loss=continue", "on_worker_loss=abort"};
    for (uint32_t i = 0; i < 2; i++) {
        rig r;
        uint64_t workers[2];
        train_and_stand_still(&r, workers, losses[i]);
        give_up(&r, 1, workers[1]);
        rig_pass(&r, 500);
        rig_register_all(&r);
        rig_live(&r, 2 * r.config->lease_ms, (const uint64_t[]){workers[0], 0});
        if (i == 0)
            cr_assert(rig_logged(&r, "excused worker=1"), "%s", r.log);
        else
            rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST, "worker 1 (node1:1001)");
        rig_deinit(&r);
    }
}

Test(coordinator_generation, those_that_gave_a_ps_up_before_the_late_tick_came_are_waited_for)
{
    rig r;
    uint64_t workers[2];
    train_and_stand_still(&r, workers, "on_worker_loss=continue");
    r.tick_ms = r.now_ms + 5 - 100;
    give_up(&r, 0, workers[0]);
    give_up(&r, 1, workers[1]);
    r.now_ms += 2;
    rig_register_all(&r);
    rig_pass(&r, 3);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING, "%s", r.log);
    rig_deinit(&r);
}
