/* Ssp: when a ticket is asked for, and which values a step is computed on. */
#include "session_fixture.h"

static peer p;

static void destroy(void)
{
    if (p.session != NULL)
        peer_deinit(&p);
}

TestSuite(session_clocks, .fini = destroy, .timeout = 20);

static void begin(uint64_t staleness)
{
    peer_init(&p, SG_MODE_SSP, 2);
    p.staleness = staleness;
    peer_join(&p);
    peer_declare(&p);
}

static size_t n_missing(const sg_step *step)
{
    return sg_session_missing(p.session, step, NULL);
}

static void exchange(const sg_step *step)
{
    uint64_t task;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, step, 4, peer_slices, 4, &task, NULL), SG_OK);
    sg_session_finish(p.session, p.now_ms, step);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_expect(&p, task, SG_OK);
}

static void pull_missing(const sg_step *step)
{
    uint32_t slices[PEER_MAX_SLICES];
    const size_t n = sg_session_missing(p.session, step, slices);
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, slices, n);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
}

Test(session_clocks, the_next_ticket_is_asked_for_when_this_step_is_acknowledged)
{
    begin(2);
    sg_step step = peer_step(&p, 0);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
    uint64_t task;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, &step, 4, peer_slices, 4, &task, NULL), SG_OK);
    sg_session_finish(p.session, p.now_ms, &step);
    peer_drain(&p);
    sg_session_action held = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0, "a push is under way");
    cr_assert_null(((const Shardgrad__V1__PushRequest *)held.body)->ticket, "none rides along");
    peer_answer_well(&p, &held, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    const Shardgrad__V1__TicketRequest *request = (const Shardgrad__V1__TicketRequest *)call.body;
    cr_assert_eq(request->received, 1);
    cr_assert_eq(request->finished, 1);
    peer_answer_well(&p, &call, 1);
}

Test(session_clocks, values_that_may_be_too_old_are_pulled_before_the_step)
{
    begin(2);
    sg_step step = peer_step(&p, 0);
    cr_assert_eq(n_missing(&step), 4, "others may have pushed since it declared");
    pull_missing(&step);
    cr_assert_eq(n_missing(&step), 0);
    p.lag = 1;
    exchange(&step);
    step = peer_step(&p, 1);
    cr_assert_eq(n_missing(&step), 0, "they were asked for at a lag of 0, the staleness is 2");
    p.lag = 2;
    exchange(&step);
    step = peer_step(&p, 2);
    cr_assert_eq(n_missing(&step), 0, "at a lag of 1");
    exchange(&step);
    step = peer_step(&p, 3);
    cr_assert_eq(n_missing(&step), 4, "at a lag of 2, it was not sure that they would do for this step");
    pull_missing(&step);
    cr_assert_eq(n_missing(&step), 0);
}

Test(session_clocks, what_was_only_pushed_is_pulled_before_the_step)
{
    begin(8);
    sg_step step = peer_step(&p, 0);
    pull_missing(&step);
    for (uint64_t number = 1; number <= 2; number++) {
        uint64_t task;
        cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 4, peer_slices, 4, &task, NULL), SG_OK);
        sg_session_finish(p.session, p.now_ms, &step);
        peer_drain(&p);
        peer_answer_all(&p, SG_SESSION_PUSH);
        step = peer_step(&p, number);
        cr_assert_eq(n_missing(&step), number == 1 ? 0 : 4, "values of step 0 do for step 1, not for step 2");
    }
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, peer_slices, 3);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    cr_assert_eq(n_missing(&step), 1);
}

Test(session_clocks, async_pulls_nothing_of_its_own_accord)
{
    peer_init(&p, SG_MODE_ASYNC, 2);
    peer_join(&p);
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    cr_assert_eq(n_missing(&step), 0);
}

Test(session_clocks, one_that_rests_says_so_at_once_and_begins_no_step)
{
    begin(0);
    sg_session_rest(p.session, p.now_ms);
    peer_drain(&p);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    cr_assert(((const Shardgrad__V1__HeartbeatRequest *)call.body)->resting);
    peer_answer_well(&p, &call, 0);
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, task, SG_INVALID);
    const uint64_t values = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, peer_slices, 4);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, values, SG_OK);
}

Test(session_clocks, one_that_rests_while_a_heartbeat_is_under_way_says_so_after_it)
{
    begin(0);
    peer_advance(&p, PEER_LEASE_MS / 3 + 10);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    sg_session_rest(p.session, p.now_ms);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_HEARTBEAT), 0);
    peer_answer_well(&p, &call, 0);
    peer_advance(&p, 10);
    call = peer_take(&p, SG_SESSION_HEARTBEAT);
    cr_assert(((const Shardgrad__V1__HeartbeatRequest *)call.body)->resting);
    peer_answer_well(&p, &call, 0);
    peer_advance(&p, 10);
    cr_assert_eq(peer_count(&p, SG_SESSION_HEARTBEAT), 0, "once is enough");
}
