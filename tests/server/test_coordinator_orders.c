/* What becomes of orders that are not simply acknowledged. */
#include <criterion/criterion.h>

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
