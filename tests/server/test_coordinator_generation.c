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
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = r->config->job;
    hello.worker = worker;
    hello.life = life;
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
    rig_failed(waits, SG_ROLLED_BACK, "generation 2");
    rig_failed(rig_heartbeat(&r, workers[0]), SG_ROLLED_BACK, "generation 1 has passed");
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
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = r.config->job;
    hello.life = 7;
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
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = r.config->job;
    hello.worker = 1;
    hello.life = 8;
    hello.generation = UINT64_MAX;
    rig_failed(rig_hello_with(&r, &hello), SG_INVALID, "generation 18446744073709551615");
    rig_deinit(&r);
}
