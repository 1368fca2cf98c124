/* How a job ends: who is told, when ps 0 may go; and what people are told meanwhile. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_end, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const END = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;

Test(coordinator_end, a_failed_job_waits_for_workers_to_hear_of_it_but_not_for_ever)
{
    rig r;
    rig_init(&r, (const char *[]){"on_worker_loss=abort", NULL});
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

Test(coordinator_end, the_last_leave_drains_ends_every_ps_and_then_the_job)
{
    rig r;
    rig_init(&r, rig_two_ps);
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

Test(coordinator_end, one_that_comes_and_goes_before_the_start_does_not_end_the_job)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    uint64_t early = rig_join(&r, 1, 7);
    rig_declare(&r, early);
    cr_assert_eq(rig_leave(&r, early, 0)->status, SG_OK);
    rig_pass(&r, 1000);
    cr_assert_eq(r.n_ends, 0);
    cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    uint64_t late = rig_join(&r, 0, 8);
    cr_assert_eq(rig_leave(&r, late, 0)->status, SG_OK, "now both have come and gone");
    rig_pass(&r, 1000);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_end, a_job_that_lingers_takes_workers_again)
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

Test(coordinator_end, a_ps_that_stops_is_named_to_everybody_and_the_job_ends_well)
{
    rig r;
    rig_init(&r, rig_two_ps);
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

/* Whoever would throw an answer away must not ask: a worker is waited for until it was told. */
Test(coordinator_end, a_job_is_known_to_be_over_without_anybody_counting_as_told)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t incarnation;
    rig_start(&r, 1, &incarnation);
    cr_assert(!sg_coordinator_is_over(r.coordinator));
    sg_coordinator_stop(r.coordinator, r.now_ms);
    cr_assert(sg_coordinator_is_over(r.coordinator));
    rig_pass(&r, 500);
    cr_assert_eq(r.n_ends, 0, "worker 0 does not know yet");
    rig_failed(rig_ticket(&r, incarnation, 0, 0, 0), SG_STOPPED, "stop");
    rig_pass(&r, 200);
    cr_assert_eq(r.n_ends, 1);
    rig_deinit(&r);
}

Test(coordinator_end, a_stop_is_over_within_the_grace_whoever_does_not_answer)
{
    rig r;
    rig_init(&r, rig_two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    r.silent[0] = r.silent[1] = true;
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms - 100);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_end, an_end_that_was_lost_goes_again_to_a_ps_that_keeps_its_lease)
{
    rig r;
    rig_init(&r, rig_two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    r.silent[1] = true;
    rig_leave(&r, workers[0], 0);
    rig_leave(&r, workers[1], 0);
    rig_live(&r, r.config->lease_ms + 1000, NULL);
    cr_assert_eq(r.n_ends, 0);
    r.silent[1] = false;
    rig_live(&r, 2000, NULL);
    cr_assert_eq(r.n_ends, 1);
    rig_deinit(&r);
}

Test(coordinator_end, a_ps_that_falls_silent_ends_the_job_naming_it)
{
    rig r;
    rig_init(&r, rig_two_ps);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0)); /* there is no way back any more */
    uint64_t worker = workers[0];
    for (int i = 0; i < 6; i++) {
        rig_heartbeat(&r, workers[1]);
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

Test(coordinator_end, a_worker_that_falls_silent_while_training_ends_the_job_naming_it_and_its_step)
{
    rig r;
    rig_init(&r, (const char *[]){"on_worker_loss=abort", NULL});
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

Test(coordinator_end, who_is_waited_for_is_logged_at_doubling_intervals)
{
    rig r;
    rig_init(&r, rig_two_ps);
    for (int i = 0; i < 45; i++) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    size_t n = 0;
    for (const char *at = r.log; (at = strstr(at, "for=\"ps 1 to register")) != NULL; at++)
        n++;
    cr_assert_eq(n, 3, "%zu lines after 45 s: %s", n, r.log); /* at 10, 20 and 40 s */
    rig_deinit(&r);
}

Test(coordinator_end, status_says_for_whom_the_job_waits)
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

/* One ps reports once: worker 1 is missing at step 0. */
static void report_missing_worker_1(rig *r, uint64_t step)
{
    uint8_t bitmap = 2;
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.min_step = step;
    report.waiting_for = (ProtobufCBinaryData){.len = 1, .data = &bitmap};
    rig_report(r, 0, &report, false);
}

Test(coordinator_end, who_has_finished_the_step_of_an_old_report_is_waited_for_no_more)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    report_missing_worker_1(&r, 0);
    cr_assert_str_eq(rig_status(&r)->waiting_for, "waiting for worker 1 (node1:1001), step 0");
    rig_granted(rig_ticket(&r, workers[1], 0, 1, 1));
    cr_assert_str_eq(rig_status(&r)->waiting_for, "");
    report_missing_worker_1(&r, 1);
    cr_assert_str_eq(rig_status(&r)->waiting_for, "waiting for worker 1 (node1:1001), step 1");
    rig_deinit(&r);
}

Test(coordinator_end, an_old_report_alone_is_no_reason_to_warn)
{
    rig r;
    rig_init(&r, (const char *const[]){"warn_after_ms=2000", "lease_ms=15000", NULL});
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    report_missing_worker_1(&r, 0);
    rig_pass(&r, 5000);
    cr_assert_not(rig_logged(&r, "waiting "), "the ps said so 5 s ago, and nothing since: %s", r.log);
    report_missing_worker_1(&r, 0);
    rig_pass(&r, 200);
    cr_assert(rig_logged(&r, "waiting for=\"worker 1 (node1:1001), step 0\""), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_end, the_steps_of_a_job_that_is_over_are_those_that_were_finished)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    for (uint64_t step = 0; step < 3; step++) { /* the ticket of step 2 is never used */
        rig_ticket(&r, workers[0], 0, step, step);
        rig_granted(rig_ticket(&r, workers[1], 0, step, step));
    }
    rig_leave(&r, workers[0], 2);
    cr_assert_eq(rig_status(&r)->steps, 3, "tickets handed out");
    rig_leave(&r, workers[1], 2);
    cr_assert(rig_logged(&r, "draining steps=2"), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_end, a_worker_whose_place_is_filled_is_neither_listed_nor_waited_for)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    cr_assert_eq(rig_status(&r)->n_workers, 2, "both are expected");
    uint64_t first = rig_join(&r, 0, 11), other = rig_join(&r, 7, 12);
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_eq(status->n_workers, 2);
    cr_assert_eq(status->workers[1]->worker, 7);
    rig_call *declared = rig_declare(&r, first);
    rig_initialized(&r, first, ((const Shardgrad__V1__DeclareResponse *)declared->body)->attempt);
    rig_declare(&r, other);
    rig_ticket(&r, first, 0, 0, 0);
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for worker 7 (node7:12) to ask"), "%s",
                       rig_status(&r)->waiting_for);
    rig_granted(rig_ticket(&r, other, 0, 0, 0));
    cr_assert_eq(rig_status(&r)->n_workers, 2);
    rig_deinit(&r);
}

Test(coordinator_end, of_a_long_address_its_end_is_told_too)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    char address[256];
    memset(address, 'x', sizeof address);
    memcpy(address, "trainer", strlen("trainer"));
    strcpy(address + sizeof address - sizeof "-pod-7:4242", "-pod-7:4242");
    Shardgrad__V1__HelloRequest request = rig_hello_request(&r, 1, 12);
    request.address = address;
    uint64_t first = rig_join(&r, 0, 11);
    rig_call *hello = rig_hello_with(&r, &request);
    cr_assert_eq(hello->status, SG_OK, "%s", hello->text);
    uint64_t other = ((const Shardgrad__V1__HelloResponse *)hello->body)->incarnation;
    rig_call *declared = rig_declare(&r, first);
    rig_initialized(&r, first, ((const Shardgrad__V1__DeclareResponse *)declared->body)->attempt);
    rig_declare(&r, other);
    rig_ticket(&r, first, 0, 0, 0);
    const char *waiting = rig_status(&r)->waiting_for;
    cr_assert_not_null(strstr(waiting, "waiting for worker 1 (trainerxxx"), "%s", waiting);
    cr_assert_not_null(strstr(waiting, "-pod-7:4242) to ask"), "%s", waiting);
    rig_deinit(&r);
}
