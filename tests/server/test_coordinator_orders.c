/* What becomes of orders that are not simply acknowledged. */
#include <criterion/criterion.h>
#include <string.h>

#include "coordinator_fixture.h"

TestSuite(coordinator_orders, .timeout = 20);

Test(coordinator_orders, a_ps_that_is_about_to_end_is_asked_again_until_it_is_known_why)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.acknowledge = false;
    rig_register_all(&r);
    rig_acknowledge(&r, 1, SG_STOPPED, "the server is stopping");
    cr_assert_eq(r.n_ends, 0);
    cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED, "%s", r.log);
    rig_report(&r, 1, NULL, true);
    cr_assert(rig_logged(&r, "stopping ps=1"), "%s", r.log);
    rig_pass(&r, 10000);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK, "%s", r.end_text);
    rig_deinit(&r);
}

Test(coordinator_orders, a_ps_that_ended_without_a_word_is_waited_for_when_its_lease_is_over)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.acknowledge = false;
    rig_register_all(&r);
    rig_acknowledge(&r, 1, SG_STOPPED, "the server is stopping");
    for (int i = 0; i < 6; i++) {
        rig_pass(&r, 1000);
        rig_register(&r, 0);
    }
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS);
    cr_assert(rig_logged(&r, "ps_silent ps=1 address=host:1 silent_ms=5000"), "%s", r.log);
    rig_deinit(&r);
}

/* It renews its lease: it reaches ps 0, but not the other way round, since the address that it is told by is wrong. */
Test(coordinator_orders, a_ps_that_cannot_be_reached_is_named_with_the_reason_and_ends_the_job_in_the_end)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.silent[1] = true;
    rig_register_all(&r);
    const rig_call *hello = rig_hello(&r, 0, 7);
    rig_live(&r, 3000, (const uint64_t[]){0});
    rig_failed(hello, SG_WAITING, "waiting for ps 0 to reach ps 1 (host:1): ");
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for ps 0 to reach ps 1 (host:1): "), "%s",
                       rig_status(&r)->waiting_for);
    r.silent[1] = false;
    rig_live(&r, 2000, (const uint64_t[]){0});
    cr_assert_null(strstr(rig_status(&r)->waiting_for, "reach"), "%s", rig_status(&r)->waiting_for);
    r.silent[1] = true;
    hello = rig_hello(&r, 1, 8);
    rig_live(&r, r.config->start_timeout_ms - 1000, (const uint64_t[]){0});
    cr_assert_eq(r.n_ends, 0);
    rig_live(&r, 2000 + 2 * r.config->shutdown_grace_ms, (const uint64_t[]){0});
    rig_failed(rig_hello(&r, 1, 8), SG_UNAVAILABLE, "ps 0 did not reach ps 1 (host:1) for 60000 ms, though that");
    rig_deinit(&r);
}

Test(coordinator_orders, a_coordinator_that_stood_still_takes_nobody_for_out_of_reach)
{
    rig r;
    rig_init(&r, rig_two_ps);
    r.silent[1] = true;
    rig_register_all(&r);
    rig_pass(&r, 200);
    r.silent[1] = false;
    r.now_ms += r.config->start_timeout_ms + 10000;
    r.tick_ms = r.now_ms - r.now_ms % 100;
    rig_pass(&r, 100);
    cr_assert_eq(r.n_ends, 0, "%s", r.log);
    rig_deinit(&r);
}

/* ps 1 renews its lease, but ps 0 does not reach it any more, when worker 1 is lost: the order that excuses it waits.
 */
Test(coordinator_orders, a_ps_that_is_not_reached_while_the_job_trains_is_named)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, rig_two_ps);
    rig_start(&r, 2, workers);
    for (uint32_t i = 0; i < 2; i++)
        rig_ticket(&r, workers[i], 0, 0, 0);
    r.silent[1] = true;
    uint8_t missing[] = {2};
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.waiting_for = (ProtobufCBinaryData){.len = 1, .data = missing};
    report.orders = 5;
    report.generation = 1;
    for (uint32_t second = 0; second < 30; second++) {
        rig_register(&r, 0);
        rig_report(&r, 1, &report, false);
        rig_heartbeat(&r, workers[0]);
        rig_pass(&r, 1000);
    }
    cr_assert(rig_logged(&r, "excused worker=1"));
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for ps 0 to reach ps 1"), "%s",
                       rig_status(&r)->waiting_for);
    rig_deinit(&r);
}

/* Nobody misses it, for the job is new. The first order since takes its time. */
Test(coordinator_orders, a_ps_that_comes_back_is_not_taken_for_out_of_reach_before_that_was_tried)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    r.silent[1] = true;
    rig_hello(&r, 0, 7);
    for (uint64_t ms = 0; ms < r.config->start_timeout_ms + 30000; ms += 1000) {
        rig_register(&r, 0);
        rig_pass(&r, 1000);
    }
    r.acknowledge = false;
    cr_assert_eq(rig_register(&r, 1)->status, SG_OK);
    rig_hello(&r, 0, 7);
    rig_pass(&r, 200);
    cr_assert_not(rig_logged(&r, "failed"), "%s", r.log);
    rig_deinit(&r);
}
