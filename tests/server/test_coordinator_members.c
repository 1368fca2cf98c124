/* Registration, hello, leases, leave. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_members, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const ADMIT = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
static Shardgrad__V1__OrderRequest__OrderCase const EXCUSE = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
static Shardgrad__V1__OrderRequest__OrderCase const HYPER = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;

Test(coordinator_members, a_hello_waits_for_every_ps_and_its_admission)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.acknowledge = false;
    rig_register(&r, 0);
    rig_call *hello = rig_hello(&r, 3, 77);
    cr_assert(rig_waits(hello));
    rig_register(&r, 1);
    rig_acknowledge(&r, 0, SG_OK, ""); /* hyper-parameters */
    rig_acknowledge(&r, 0, SG_OK, ""); /* admission */
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert(rig_waits(hello));
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert_eq(hello->n_answers, 1);
    const Shardgrad__V1__HelloResponse *response = (const Shardgrad__V1__HelloResponse *)hello->body;
    cr_assert_eq(response->incarnation >> 32, 1);
    cr_assert_eq(response->generation, 1);
    cr_assert_eq(response->n_ps_addresses, 2);
    cr_assert_str_eq(response->ps_addresses[1], "host:1");
    cr_assert_eq(response->workers, 2);
    cr_assert_eq((int)response->mode, SG_MODE_SYNC);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 1, ADMIT, &order), 1);
    cr_assert_eq(order->admit->worker, 3);
    cr_assert_eq(order->admit->incarnation, response->incarnation);
    cr_assert_str_eq(order->admit->address, "node3:77");
    cr_assert_eq(order->header->sequence, 2);
    cr_assert_eq(rig_ordered(&r, 1, HYPER, &order), 1);
    cr_assert_eq(order->header->sequence, 1);
    cr_assert_eq(order->hyper->number, 1);
    rig_deinit(&r);
}

Test(coordinator_members, a_waiting_hello_is_told_for_whom_after_park_ms)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register(&r, 0);
    rig_call *hello = rig_hello(&r, 0, 77);
    rig_pass(&r, 1900);
    cr_assert(rig_waits(hello));
    rig_pass(&r, 200);
    rig_failed(hello, SG_WAITING, "waiting for ps 1 to register");
    rig_deinit(&r);
}

Test(coordinator_members, the_same_life_gets_the_same_incarnation_and_a_new_one_fences_the_old)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t first = rig_join(&r, 0, 7), again = rig_join(&r, 0, 7), next = rig_join(&r, 0, 8);
    cr_assert_eq(first, again);
    cr_assert_gt(next, first);
    rig_failed(rig_heartbeat(&r, first), SG_FENCED, "superseded");
    rig_failed(rig_ticket(&r, first, 0, 0, 0), SG_FENCED, "superseded by worker 0 (node0:8)");
    cr_assert_eq(rig_heartbeat(&r, next)->status, SG_OK);
    rig_failed(rig_hello(&r, 0, 7), SG_FENCED, "taken the index");
    cr_assert_eq(rig_heartbeat(&r, next)->status, SG_OK);
    rig_deinit(&r);
}

/* A worker that outlived ps 0 must not be taken for one that joined the new ps 0 in the same place. */
Test(coordinator_members, a_coordinator_that_was_started_anew_does_not_give_an_incarnation_out_again)
{
    rig before, after;
    rig_init(&before, NULL);
    rig_init(&after, NULL);
    rig_register_all(&before);
    rig_register_all(&after);
    uint64_t old = rig_join(&before, 0, UINT64_C(0x9e3779b97f4a7c15));
    uint64_t new = rig_join(&after, 0, UINT64_C(0xbf58476d1ce4e5b9));
    cr_assert_neq(old, new);
    cr_assert_eq(old >> 32, 1, "the upper half is the generation");
    cr_assert_eq(new >> 32, 1);
    rig_failed(rig_heartbeat(&after, old), SG_FENCED, "is not known here: say hello first");
    cr_assert_gt(rig_join(&after, 1, 7), new, "later ones are higher");
    rig_deinit(&before);
    rig_deinit(&after);
}

/* It would take the orders of this coordinator, numbered from 1, for repeats of the old one's. */
Test(coordinator_members, a_ps_that_served_an_earlier_coordinator_is_refused)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register(&r, 0);
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.orders = 3;
    rig_failed(rig_report(&r, 1, &report, false), SG_PEER_LOST, "ps 0 was started anew");
    report.orders = 0;
    cr_assert_eq(rig_report(&r, 1, &report, false)->status, SG_OK);
    report.orders = 3;
    cr_assert_eq(rig_report(&r, 1, &report, false)->status, SG_OK, "they are this coordinator's own");
    rig_deinit(&r);
}

Test(coordinator_members, a_ps_that_falls_silent_before_anything_is_declared_may_come_again)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    for (int i = 0; i < 6; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS);
    rig_call *hello = rig_hello(&r, 0, 7);
    cr_assert_eq(hello->n_answers, 0, "its admission waits for ps 1");
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    rig_pass(&r, 100);
    cr_assert(hello->n_answers == 1 && hello->status == SG_OK);
    rig_deinit(&r);
}

Test(coordinator_members, a_hello_of_another_job_version_or_index_is_refused_by_name)
{
    rig r;
    rig_init(&r, (const char *[]){"max_workers=4", NULL});
    rig_register_all(&r);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, 0, 5);
    hello.job = (char *)"other";
    rig_failed(rig_hello_with(&r, &hello), SG_MISMATCH, "job 'other'");
    hello.job = r.config->job;
    hello.worker = 4;
    rig_failed(rig_hello_with(&r, &hello), SG_CONFIG, "max_workers is 4");
    hello.worker = 0;
    hello.protocol_version = 2;
    rig_failed(rig_hello_with(&r, &hello), SG_MISMATCH, "protocol version 2");
    hello.protocol_version = 1;
    hello.life = 0;
    rig_failed(rig_hello_with(&r, &hello), SG_INVALID, "life 0");
    hello.life = 5;
    Shardgrad__V1__Setting setting = SHARDGRAD__V1__SETTING__INIT, *settings = &setting;
    setting.key = (char *)"no.such";
    setting.value = (char *)"1";
    hello.settings = &settings;
    hello.n_settings = 1;
    cr_assert_eq(rig_hello_with(&r, &hello)->status, SG_CONFIG);
    hello.n_settings = 0;
    cr_assert_eq(rig_hello_with(&r, &hello)->status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_members, a_ps_with_another_configuration_is_refused_naming_key_and_both_values)
{
    rig r, other;
    rig_init(&r, rig_two_ps);
    rig_init(&other, (const char *[]){"ps=[\"a:1\",\"b:2\"]", "update.rule=adam", NULL});
    sg_config *own = r.config;
    r.config = other.config; /* whose settings rig_register sends */
    rig_call *call = rig_register(&r, 1);
    rig_failed(call, SG_CONFIG, "update.rule: ps 1 has 'adam', the coordinator has 'sgd'");
    r.config = own;
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    rig_deinit(&other);
    rig_deinit(&r);
}

Test(coordinator_members, orders_are_sent_again_until_they_are_acknowledged_one_at_a_time)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.silent[1] = true;
    rig_register_all(&r);
    rig_call *hello = rig_hello(&r, 0, 7);
    rig_pass(&r, 1500);
    cr_assert(rig_waits(hello));
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_gt(rig_ordered(&r, 1, HYPER, &order), 2);
    cr_assert_eq(order->header->sequence, 1);
    cr_assert_eq(rig_ordered(&r, 1, ADMIT, NULL), 0);
    r.silent[1] = false;
    rig_pass(&r, 1500);
    cr_assert_eq(hello->status, SG_OK);
    cr_assert_eq(rig_ordered(&r, 1, ADMIT, &order), 1);
    cr_assert_eq(order->header->sequence, 2);
    rig_deinit(&r);
}

Test(coordinator_members, an_order_that_a_ps_refuses_ends_the_job_as_a_bug)
{
    rig r;
    rig_init(&r, NULL);
    r.acknowledge = false;
    rig_register_all(&r);
    rig_call *hello = rig_hello(&r, 0, 7);
    rig_acknowledge(&r, 0, SG_INVALID, "number 1 is not newer");
    rig_failed(hello, SG_INTERNAL, "ps 0 (host:0) refused an order of the coordinator (INVALID): number 1");
    rig_deinit(&r);
}

Test(coordinator_members, a_late_tick_extends_the_leases)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    rig_pass(&r, 100);
    r.now_ms = r.tick_ms += 60000;
    sg_coordinator_tick(r.coordinator, r.now_ms);
    cr_assert_eq(rig_heartbeat(&r, worker)->status, SG_OK);
    cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
    rig_deinit(&r);
}

/* --- requests that wait their turn ------------------------------------------------------------------------------ */

/* Registrations and heartbeats come late because others ask too much: ps 0, which is in the same process, shows it. */
Test(coordinator_members, nobody_is_lost_while_requests_wait_too_long_in_the_queue)
{
    rig r;
    uint64_t workers[3] = {0};
    rig_init(&r, rig_two_ps);
    rig_start(&r, 2, workers);
    rig_pass(&r, 30000);
    cr_assert(rig_logged(&r, "requests_late late_ms="), "%s", r.log);
    rig_register_all(&r);
    cr_assert(rig_logged(&r, "requests_in_time late_ms=28"), "%s", r.log);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(rig_heartbeat(&r, workers[i])->status, SG_OK);
    rig_live(&r, 20000, workers);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_not(rig_logged(&r, "lost"), "%s", r.log);
    rig_deinit(&r);
}

/* Only what the queue was late by is put off: who was silent before is lost that much later, and no more. */
Test(coordinator_members, what_is_put_off_is_how_long_requests_waited)
{
    rig r;
    uint64_t workers[3] = {0};
    rig_init(&r, rig_two_ps);
    rig_start(&r, 2, workers);
    rig_live(&r, 3000, (const uint64_t[]){workers[0], 0}); /* 3 s of the other's 5 s lease */
    rig_pass(&r, 12000);
    cr_assert_not(rig_logged(&r, "lost"), "%s", r.log);
    rig_live(&r, 3000, (const uint64_t[]){workers[0], 0});
    cr_assert(rig_logged(&r, "lost worker=1"), "%s", r.log);
    cr_assert_not(rig_logged(&r, "lost worker=0"), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_members, a_queue_that_never_moves_again_is_the_end_of_the_job_and_named)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, rig_two_ps);
    rig_start(&r, 2, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_granted(first);
    rig_pass(&r, r.config->start_timeout_ms);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_pass(&r, r.config->lease_ms + 1000);
    rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST,
               "ps 0 (host:0) did not get to answer itself for 65000 ms (requests come faster than it serves them)");
    r.silent[0] = r.silent[1] = true;
    rig_deinit(&r);
}

Test(coordinator_members, a_worker_that_never_declared_is_dropped_without_harm)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[3] = {0};
    rig_start(&r, 2, workers);
    uint64_t third = rig_join(&r, 2, 9);
    rig_live(&r, 8000, workers);
    cr_assert(rig_logged(&r, "lost worker=2"));
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_failed(rig_heartbeat(&r, third), SG_FENCED, "given up for lost");
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->incarnation, third);
    cr_assert_eq(order->excuse->n_steps, 0);
    rig_deinit(&r);
}

Test(coordinator_members, a_leave_that_claims_more_than_was_handed_out_is_refused)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_failed(rig_leave(&r, workers[0], 1), SG_INVALID, "only up to 0");
    rig_deinit(&r);
}

Test(coordinator_members, a_call_of_another_generation_is_refused)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = rig_join(&r, 0, 7);
    rig_failed(rig_ticket_with(&r, &request), SG_ROLLED_BACK, "generation 0");
    request.generation = 2;
    rig_failed(rig_ticket_with(&r, &request), SG_INVALID, "generation 2");
    request.incarnation = 0;
    rig_failed(rig_ticket_with(&r, &request), SG_FENCED, "say hello first");
    rig_deinit(&r);
}

Test(coordinator_members, a_forgotten_call_is_not_answered)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register(&r, 0);
    rig_call *gone = rig_hello(&r, 0, 7), *kept = rig_hello(&r, 0, 7);
    sg_coordinator_forget(r.coordinator, gone);
    rig_register(&r, 1);
    cr_assert_eq(gone->n_answers, 0);
    cr_assert_eq(kept->n_answers, 1);
    rig_deinit(&r);
}

Test(coordinator_members, a_heartbeat_that_its_workers_goodbye_overtook_is_answered)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_leave(&r, workers[0], 0);
    cr_assert_eq(rig_heartbeat(&r, workers[0])->status, SG_OK);
    rig_failed(rig_ticket(&r, workers[0], 0, 0, 0), SG_FENCED, "has left");
    rig_deinit(&r);
}

Test(coordinator_members, a_hello_that_fell_silent_before_a_ps_came_goes_on)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register(&r, 0);
    rig_hello(&r, 0, 7);
    for (int i = 0; i < 8; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    rig_register(&r, 1);
    rig_call *again = rig_hello(&r, 0, 7);
    cr_assert_eq(again->n_answers, 1);
    cr_assert_eq(again->status, SG_OK, "%s", again->text);
    rig_deinit(&r);
}

/* The answer may be lost in silence; whoever never got one goes on asking. */
Test(coordinator_members, a_life_that_never_used_the_answer_to_its_hello_may_say_it_again)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t first = rig_join(&r, 0, 7), none = 0;
    rig_live(&r, 8000, &none);
    cr_assert(rig_logged(&r, "lost worker=0"));
    rig_call *hello = rig_hello(&r, 0, 7);
    cr_assert_eq(hello->status, SG_OK, "%s", hello->text);
    uint64_t again = ((const Shardgrad__V1__HelloResponse *)hello->body)->incarnation;
    cr_assert_gt(again, first, "the first one is fenced by the ps");
    cr_assert_eq(rig_join(&r, 0, 7), again);
    rig_failed(rig_heartbeat(&r, first), SG_FENCED, "superseded");
    cr_assert_eq(rig_heartbeat(&r, again)->status, SG_OK);
    rig_live(&r, 8000, &none);
    rig_failed(rig_hello(&r, 0, 7), SG_FENCED, "given up for lost");
    rig_deinit(&r);
}

Test(coordinator_members, a_heartbeat_counts_the_live)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    const Shardgrad__V1__HeartbeatResponse *response =
        (const Shardgrad__V1__HeartbeatResponse *)rig_heartbeat(&r, workers[0])->body;
    cr_assert_eq(response->live_workers, 2);
    cr_assert_not(response->draining);
    rig_leave(&r, workers[1], 0);
    response = (const Shardgrad__V1__HeartbeatResponse *)rig_heartbeat(&r, workers[0])->body;
    cr_assert_eq(response->live_workers, 1);
    rig_deinit(&r);
}

/* --- one that goes before its hello is answered ------------------------------------------------------------------ */

static rig_call *withdraw(rig *r, uint64_t life)
{
    Shardgrad__V1__LeaveRequest request = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    request.life = life;
    return rig_leave_with(r, &request);
}

static const char *state_of(rig *r, uint32_t worker)
{
    return rig_status(r)->workers[worker]->state;
}

Test(coordinator_members, nobody_waits_for_the_lease_of_one_that_took_its_hello_back)
{
    rig r;
    rig_init(&r, (const char *[]){"workers=1", "max_workers=2", NULL});
    uint64_t worker;
    rig_start(&r, 1, &worker);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    r.acknowledge = false;
    cr_assert_eq(rig_hello(&r, 1, 7)->n_answers, 0, "no ps has admitted it");
    rig_leave(&r, worker, 1);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_eq(withdraw(&r, 8)->status, SG_OK, "of somebody else");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_eq(withdraw(&r, 7)->status, SG_OK);
    cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING, "all have left");
    rig_deinit(&r);
}

Test(coordinator_members, one_whose_answer_is_on_its_way_when_it_takes_its_hello_back_has_left)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    cr_assert_eq(rig_hello(&r, 0, 9)->status, SG_OK);
    cr_assert_eq(withdraw(&r, 9)->status, SG_OK);
    cr_assert_str_eq(state_of(&r, 0), "left");
    cr_assert_eq(withdraw(&r, 9)->status, SG_OK, "a repeat");
    rig_deinit(&r);
}

Test(coordinator_members, one_that_has_used_its_incarnation_cannot_be_withdrawn_by_its_life)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t worker;
    rig_start(&r, 1, &worker);
    cr_assert_eq(withdraw(&r, 1000)->status, SG_OK);
    cr_assert_str_eq(state_of(&r, 0), "joined");
    rig_deinit(&r);
}

/* --- data sets ---------------------------------------------------------------------------------------------------- */

static rig_call *hello_with_data(rig *r, uint32_t worker, uint64_t n_examples)
{
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = r->config->job;
    hello.worker = worker;
    hello.life = 100 + worker;
    hello.data_examples = n_examples;
    return rig_hello_with(r, &hello);
}

Test(coordinator_members, a_worker_with_a_data_set_of_another_size_is_refused_with_both)
{
    rig r;
    rig_init(&r, (const char *[]){"max_workers=4", NULL});
    rig_register_all(&r);
    cr_assert_eq(hello_with_data(&r, 0, 0)->status, SG_OK);
    rig_call *first = hello_with_data(&r, 1, 60000);
    cr_assert_eq(first->status, SG_OK);
    rig_failed(hello_with_data(&r, 2, 59999), SG_MISMATCH, "59999 examples, worker 1");
    rig_failed(hello_with_data(&r, 2, 59999), SG_MISMATCH, "one of 60000");
    cr_assert_eq(hello_with_data(&r, 2, 0)->status, SG_OK, "it does not say");
    cr_assert_eq(hello_with_data(&r, 3, 60000)->status, SG_OK);
    rig_deinit(&r);
}
