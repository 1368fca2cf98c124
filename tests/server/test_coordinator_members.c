/* Registration, hello, leases, leave, and how a job ends. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_members, .timeout = 20);

static const char *const two_ps[] = {"ps=[\"a:1\",\"b:2\"]", NULL};

static Shardgrad__V1__OrderRequest__OrderCase const ADMIT = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
static Shardgrad__V1__OrderRequest__OrderCase const EXCUSE = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
static Shardgrad__V1__OrderRequest__OrderCase const HYPER = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;
static Shardgrad__V1__OrderRequest__OrderCase const END = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;

Test(coordinator_members, a_hello_waits_for_every_ps_and_its_admission)
{
    rig r;
    rig_init(&r, two_ps);
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
    rig_init(&r, two_ps);
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

Test(coordinator_members, a_hello_of_another_job_version_or_index_is_refused_by_name)
{
    rig r;
    rig_init(&r, (const char *[]){"max_workers=4", NULL});
    rig_register_all(&r);
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = (char *)"other";
    hello.life = 5;
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
    rig_init(&r, two_ps);
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

Test(coordinator_members, a_new_life_of_a_ps_replaces_the_old_while_nothing_is_declared)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    cr_assert_eq(rig_register_as(&r, 1, 555, "host:1")->status, SG_OK);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 1, HYPER, &order), 2);
    cr_assert_eq(order->header->sequence, 1);
    cr_assert_eq(order->header->life, 555);
    cr_assert_eq(rig_ordered(&r, 1, ADMIT, &order), 2);
    cr_assert_eq(order->header->sequence, 2);
    rig_failed(rig_register_as(&r, 1, 101, "host:1"), SG_FENCED, "another process");
    rig_deinit(&r);
}

Test(coordinator_members, a_new_life_of_a_ps_after_declare_ends_the_job)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    rig_declare(&r, worker);
    rig_failed(rig_register_as(&r, 1, 555, "host:1"), SG_PEER_LOST, "ps 1 (host:1)");
    rig_failed(rig_heartbeat(&r, worker), SG_PEER_LOST, "ps 1 (host:1)");
    rig_deinit(&r);
}

Test(coordinator_members, orders_are_sent_again_until_they_are_acknowledged_one_at_a_time)
{
    rig r;
    rig_init(&r, two_ps);
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

Test(coordinator_members, a_ps_that_falls_silent_ends_the_job_naming_it)
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
    rig_failed(rig_heartbeat(&r, worker), SG_PEER_LOST, "ps 1 (host:1) was not heard for 5000 ms");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, END, &order), 1);
    cr_assert_eq(order->end->status, SG_PEER_LOST);
    rig_pass(&r, 100);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_PEER_LOST);
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

Test(coordinator_members, a_worker_that_falls_silent_while_training_ends_the_job_naming_it_and_its_step)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[3] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[1], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[0], 0, 0, 0));
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 0));
    rig_call *parked = rig_hello(&r, 2, 9);
    cr_assert_eq(parked->status, SG_OK);
    uint64_t third = ((const Shardgrad__V1__HelloResponse *)parked->body)->incarnation;
    rig_declare(&r, third);
    rig_call *joiner = rig_ticket(&r, third, 0, 0, 0);
    for (int i = 0; i < 6; i++) {
        rig_register_all(&r);
        rig_heartbeat(&r, workers[0]);
        rig_heartbeat(&r, third);
        if (!rig_waits(joiner) && joiner->status == SG_WAITING)
            joiner = rig_ticket(&r, third, 0, 0, 0);
        rig_pass(&r, 1000);
    }
    rig_failed(joiner, SG_PEER_LOST, "worker 1 (node1:1001) was not heard for 5000 ms (group 0, step 0)");
    rig_failed(rig_ticket(&r, workers[0], 0, 2, 1), SG_PEER_LOST, "worker 1 (node1:1001)");
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_eq(status->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
    cr_assert_not_null(strstr(status->reason, "worker 1 (node1:1001)"));
    cr_assert_str_eq(status->workers[1]->state, "lost");
    rig_pass(&r, 100);
    cr_assert_eq(r.n_ends, 1, "both workers were told, so ps 0 may go");
    cr_assert_eq(r.end_status, SG_PEER_LOST);
    rig_deinit(&r);
}

Test(coordinator_members, a_failed_job_waits_for_workers_to_hear_of_it_but_not_for_ever)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    for (int i = 0; i < 5; i++) {
        rig_register_all(&r);
        rig_pass(&r, 900);
        rig_heartbeat(&r, workers[0]);
    }
    rig_pass(&r, 600);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
    cr_assert_eq(r.n_ends, 0);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert_eq(r.n_ends, 1);
    rig_pass(&r, 5000);
    cr_assert_eq(r.n_ends, 1);
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

Test(coordinator_members, the_last_leave_drains_ends_every_ps_and_then_the_job)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    r.silent[1] = true;
    cr_assert_eq(rig_leave(&r, workers[0], 0)->status, SG_OK);
    cr_assert_eq(rig_leave(&r, workers[0], 0)->status, SG_OK, "a repeat gets the same answer");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_eq(rig_leave(&r, workers[1], 0)->status, SG_OK);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    rig_pass(&r, 1000);
    cr_assert_eq(r.n_ends, 0);
    r.silent[1] = false;
    rig_pass(&r, 3000);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DONE);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_geq(rig_ordered(&r, 1, END, &order), 1);
    cr_assert_eq(order->end->status, 0);
    rig_failed(rig_hello(&r, 2, 9), SG_STOPPED, "the job is over");
    rig_deinit(&r);
}

Test(coordinator_members, a_job_that_lingers_takes_workers_again)
{
    rig r;
    rig_init(&r, (const char *[]){"linger=true", "workers=1", NULL});
    uint64_t worker = 0;
    rig_start(&r, 1, &worker);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    rig_leave(&r, worker, 1);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_failed(rig_hello(&r, 0, 1000), SG_FENCED, "has left");
    worker = rig_join(&r, 0, 8);
    cr_assert_eq(rig_declare(&r, worker)->status, SG_OK);
    cr_assert_eq(rig_granted(rig_ticket(&r, worker, 0, 0, 0))->step->step, 1);
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

Test(coordinator_members, a_ps_that_stops_is_named_to_everybody_and_the_job_ends_well)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *ticket = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert_eq(rig_report(&r, 1, NULL, true)->status, SG_OK);
    rig_failed(ticket, SG_STOPPED, "ps 1 (host:1) was told to stop");
    rig_failed(rig_heartbeat(&r, workers[1]), SG_STOPPED, "ps 1 (host:1)");
    cr_assert_eq(rig_leave(&r, workers[1], 0)->status, SG_OK);
    cr_assert_str_eq(rig_status(&r)->ps[1]->state, "stopping");
    rig_pass(&r, 200);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, END, &order), 1);
    cr_assert_eq(order->end->status, SG_STOPPED);
    rig_deinit(&r);
}

Test(coordinator_members, a_stop_is_over_within_the_grace_whoever_does_not_answer)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    r.silent[0] = r.silent[1] = true;
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms - 100);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
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
    rig_init(&r, two_ps);
    rig_register(&r, 0);
    rig_call *gone = rig_hello(&r, 0, 7), *kept = rig_hello(&r, 0, 7);
    sg_coordinator_forget(r.coordinator, gone);
    rig_register(&r, 1);
    cr_assert_eq(gone->n_answers, 0);
    cr_assert_eq(kept->n_answers, 1);
    rig_deinit(&r);
}

Test(coordinator_members, who_is_waited_for_is_logged_at_doubling_intervals)
{
    rig r;
    rig_init(&r, two_ps);
    for (int i = 0; i < 45; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    size_t n = 0;
    for (const char *at = r.log; (at = strstr(at, "for=\"waiting for ps 1 to register")) != NULL; at++)
        n++;
    cr_assert_eq(n, 3, "%zu lines after 45 s: %s", n, r.log); /* at 10, 20 and 40 s */
    rig_deinit(&r);
}

Test(coordinator_members, status_says_for_whom_the_job_waits)
{
    rig r;
    rig_init(&r, NULL);
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for ps 0 to register"));
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for worker 1 (node1:1001) to ask"));
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    cr_assert_str_eq(rig_status(&r)->waiting_for, "");
    uint8_t bitmap = 2;
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.slices = 9;
    report.min_step = 17;
    report.waiting_for = (ProtobufCBinaryData){.len = 1, .data = &bitmap};
    rig_report(&r, 0, &report, false);
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_str_eq(status->waiting_for, "waiting for worker 1 (node1:1001), step 17");
    cr_assert_eq(status->ps[0]->report->slices, 9);
    cr_assert_str_eq(status->ps[0]->state, "up");
    cr_assert_str_eq(status->ps[0]->address, "host:0");
    cr_assert_str_eq(status->workers[1]->state, "training");
    cr_assert_eq(status->n_workers, 2);
    cr_assert_eq(status->steps, 1);
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
