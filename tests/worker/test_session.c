/* What every request has in common: repeats, deadlines, peers that fall silent, the end of everything. */
#include "session_fixture.h"

#include <string.h>

static peer p;

static void create(void)
{
    peer_init(&p, SG_MODE_SYNC, 2);
}

static void destroy(void)
{
    peer_deinit(&p);
}

TestSuite(session, .init = create, .fini = destroy, .timeout = 20);

static size_t count_logs(const char *event)
{
    size_t n = 0;
    for (size_t i = 0; i < p.n_logs; i++)
        n += strcmp(p.logs[i].event, event) == 0;
    return n;
}

Test(session, hello_is_repeated_word_for_word_with_growing_pauses_until_it_is_answered)
{
    const uint64_t task = sg_session_join(p.session, p.now_ms, p.now_ms + 60000);
    uint64_t longest_ms = 0;
    for (int i = 0; i < 12; i++) {
        sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
        const Shardgrad__V1__HelloRequest *hello = (const Shardgrad__V1__HelloRequest *)call.body;
        cr_assert_str_eq(hello->job, "job");
        cr_assert_eq(hello->life, 77);
        cr_assert_not(hello->has_trained);
        cr_assert_eq(hello->worker, 1);
        cr_assert_eq(call.target, SG_SESSION_COORDINATOR);
        peer_fail(&p, &call, SG_UNAVAILABLE, "connection refused");
        cr_assert_eq(p.n_calls, 0, "it was sent again without a pause");
        const uint64_t pause_ms = sg_session_next_ms(p.session) - p.now_ms;
        cr_assert(pause_ms >= 25 && pause_ms <= 1000);
        longest_ms = pause_ms > longest_ms ? pause_ms : longest_ms;
        peer_advance(&p, pause_ms);
    }
    cr_assert_gt(longest_ms, 499);
    peer_answer_all(&p, SG_SESSION_HELLO);
    peer_expect(&p, task, SG_OK);
    sg_session_facts facts;
    sg_session_facts_get(p.session, &facts);
    cr_assert_eq(facts.incarnation, PEER_INCARNATION);
    cr_assert_eq(facts.mode, SG_MODE_SYNC);
    cr_assert_eq(facts.n_ps, 2);
    cr_assert_str_eq(sg_session_ps_address(p.session, 1), "ps:2");
}

Test(session, a_coordinator_that_never_answers_is_unavailable_at_the_deadline)
{
    const uint64_t task = sg_session_join(p.session, p.now_ms, p.now_ms + 500);
    for (peer_drain(&p); peer_done(&p, task) == NULL; peer_advance(&p, 10)) {
        if (peer_count(&p, SG_SESSION_HELLO) == 0)
            continue;
        sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
        peer_fail(&p, &call, SG_UNAVAILABLE, "127.0.0.1:1: connection refused");
    }
    peer_expect(&p, task, SG_UNAVAILABLE);
    cr_assert_not_null(strstr(peer_done(&p, task)->text, "ps 0 at 127.0.0.1:1: connection refused; start shardgrad-ps "
                                                         "--index 0"),
                       "%s", peer_done(&p, task)->text);
}

Test(session, who_has_to_wait_asks_at_once_and_a_timeout_says_for_whom)
{
    const uint64_t task = sg_session_join(p.session, p.now_ms, p.now_ms + 5000);
    peer_drain(&p);
    peer_advance(&p, 1000);
    cr_assert_str_eq(sg_session_waiting_for(p.session, task), "waiting for ps 0, the coordinator to answer");
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    peer_fail(&p, &call, SG_WAITING, "waiting for ps 1");
    cr_assert_eq(peer_count(&p, SG_SESSION_HELLO), 1);
    cr_assert_str_eq(sg_session_waiting_for(p.session, task), "waiting for ps 1");
    peer_advance(&p, 4000);
    peer_expect(&p, task, SG_TIMEOUT);
    cr_assert_not_null(strstr(peer_done(&p, task)->text, "waiting for ps 1"));
}

Test(session, long_waits_are_logged_at_doubling_intervals)
{
    sg_session_join(p.session, p.now_ms, p.now_ms + 200000);
    peer_drain(&p);
    peer_advance(&p, 9990);
    cr_assert_eq(count_logs("waiting"), 0);
    peer_advance(&p, 20);
    cr_assert_eq(count_logs("waiting"), 1);
    peer_advance(&p, 19960);
    cr_assert_eq(count_logs("waiting"), 1);
    peer_advance(&p, 40);
    cr_assert_eq(count_logs("waiting"), 2);
    peer_advance(&p, 40040);
    cr_assert_eq(count_logs("waiting"), 3);
}

Test(session, a_log_line_says_once_for_whom_and_once_for_all_that_wait_for_it)
{
    peer_join(&p);
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    peer_advance(&p, 10);
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    peer_advance(&p, 10100);
    cr_assert_eq(count_logs("waiting"), 1);
    peer_advance(&p, 20100);
    cr_assert_eq(count_logs("waiting"), 2);
    for (size_t i = 0; i < p.n_logs; i++) {
        if (strcmp(p.logs[i].event, "waiting") == 0)
            cr_assert_eq(strncmp(p.logs[i].text, "for=\"ps 0 (ps:1) to answer\"", 27), 0, "%s", p.logs[i].text);
    }
}

static void join_with_short_patience(void)
{
    const sg_session_options options = {
        .job = "job", .life = 77, .start_timeout_ms = 60000, .warn_after_ms = PEER_PARK_MS, .park_ms = PEER_PARK_MS};
    sg_session_destroy(p.session);
    p.session = sg_session_create(&options);
    sg_session_join(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
}

static void expect_waiting(const char *whom)
{
    const sg_session_action *line = &p.logs[p.n_logs - 1];
    cr_assert_eq(strncmp(line->text, whom, strlen(whom)), 0, "%s", line->text);
}

Test(session, who_may_be_held_back_for_as_long_as_warn_after_is_not_said_to_wait_for_an_answer)
{
    join_with_short_patience();
    peer_advance(&p, PEER_PARK_MS + 20);
    cr_assert_eq(count_logs("waiting"), 0);
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    peer_fail(&p, &call, SG_WAITING, "waiting for ps 1 to register");
    peer_advance(&p, 1000);
    cr_assert_eq(count_logs("waiting"), 1);
    expect_waiting("for=\"ps 1 to register\"");
}

Test(session, one_that_holds_back_longer_than_it_may_is_silent)
{
    join_with_short_patience();
    peer_advance(&p, PEER_PARK_MS + 1020);
    cr_assert_eq(count_logs("waiting"), 1);
    expect_waiting("for=\"ps 0, the coordinator to answer\"");
}

Test(session, a_heartbeat_that_its_own_client_cancelled_is_no_trouble)
{
    peer_join(&p);
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_CANCELLED, "ps:1: /shardgrad.v1.CoordinatorService/Heartbeat was cancelled");
    cr_assert_str_eq(p.logs[p.n_logs - 1].event, "heartbeat_refused");
    cr_assert_eq(p.logs[p.n_logs - 1].level, SG_LOG_DEBUG);
}

Test(session, an_answer_of_the_wrong_type_or_without_sense_is_an_error_and_no_more)
{
    uint64_t task = sg_session_join(p.session, p.now_ms, UINT64_MAX);
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    Shardgrad__V1__LeaveResponse other = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    peer_answer(&p, &call, &other.base);
    peer_expect(&p, task, SG_INTERNAL);

    task = sg_session_join(p.session, p.now_ms, UINT64_MAX);
    call = peer_take(&p, SG_SESSION_HELLO);
    Shardgrad__V1__HelloResponse empty = SHARDGRAD__V1__HELLO_RESPONSE__INIT;
    peer_answer(&p, &call, &empty.base);
    peer_expect(&p, task, SG_INTERNAL);
}

Test(session, a_refused_hello_ends_the_task_with_the_peers_words)
{
    const uint64_t task = sg_session_join(p.session, p.now_ms, UINT64_MAX);
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    peer_fail(&p, &call, SG_MISMATCH, "job 'other', not 'job'");
    peer_expect(&p, task, SG_MISMATCH);
    cr_assert_str_eq(peer_done(&p, task)->text, "job 'other', not 'job'");
}

Test(session, heartbeats_go_out_three_times_a_lease_and_carry_news)
{
    peer_join(&p);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(peer_count(&p, SG_SESSION_HEARTBEAT), 0);
        peer_advance(&p, PEER_LEASE_MS / 3);
        cr_assert_eq(peer_count(&p, SG_SESSION_HEARTBEAT), 1);
        peer_answer_all(&p, SG_SESSION_HEARTBEAT);
    }
    sg_session_facts facts;
    sg_session_facts_get(p.session, &facts);
    cr_assert_eq(facts.live_workers, 2);
    cr_assert_not(facts.draining);
}

static uint32_t live_workers(void)
{
    sg_session_facts facts;
    sg_session_facts_get(p.session, &facts);
    return facts.live_workers;
}

Test(session, one_that_rests_knows_who_is_there_only_from_a_heartbeat_that_was_sent_since)
{
    peer_join(&p);
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action before = peer_take(&p, SG_SESSION_HEARTBEAT);
    sg_session_rest(p.session, p.now_ms);
    cr_assert_eq(live_workers(), 0);
    peer_answer_well(&p, &before, 0);
    cr_assert_eq(live_workers(), 0, "it was sent before");
    peer_advance(&p, 10);
    peer_answer_all(&p, SG_SESSION_HEARTBEAT);
    cr_assert_eq(live_workers(), 2);
}

Test(session, fenced_from_anyone_ends_everything_now_and_later)
{
    peer_join(&p);
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    peer_fail(&p, &call, SG_FENCED, "another life of worker 1");
    peer_expect(&p, push, SG_FENCED);
    peer_expect(&p, pull, SG_FENCED);
    const uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, ticket, SG_FENCED);
    const size_t n = p.n_calls;
    peer_advance(&p, 20000);
    cr_assert_eq(p.n_calls, n, "a fenced session still talks");
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    peer_drain(&p);
    peer_expect(&p, leave, SG_OK);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0);
}

static void fail_all(sg_session_method method, uint32_t target)
{
    for (size_t i = 0; i < p.n_calls;) {
        if (p.calls[i].method != method || p.calls[i].target != target) {
            i++;
            continue;
        }
        sg_session_action call = p.calls[i];
        memmove(&p.calls[i], &p.calls[i + 1], (p.n_calls - i - 1) * sizeof call);
        p.n_calls--;
        peer_fail(&p, &call, SG_UNAVAILABLE, "connection refused");
        i = 0;
        if (sg_session_failed(p.session, NULL) != SG_OK)
            return;
    }
}

Test(session, a_ps_that_does_not_answer_for_a_lease_is_lost_by_name)
{
    peer_join(&p);
    peer_declare(&p);
    peer_step(&p, 0); /* before it the job could begin anew */
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    peer_drain(&p);
    const uint64_t begun_ms = p.now_ms;
    while (peer_done(&p, pull) == NULL && p.now_ms < begun_ms + 60000) {
        peer_answer_all(&p, SG_SESSION_HEARTBEAT);
        fail_all(SG_SESSION_PULL, 1);
        peer_advance(&p, 10);
    }
    peer_expect(&p, pull, SG_PEER_LOST);
    cr_assert(p.now_ms - begun_ms >= PEER_LEASE_MS && p.now_ms - begun_ms <= PEER_LEASE_MS + 1100,
              "found out after %llu ms", (unsigned long long)(p.now_ms - begun_ms));
    cr_assert_not_null(strstr(peer_done(&p, pull)->text, "ps 1 (ps:2)"));
}

/* As when a firewall forgets the connection: all that was on it is lost, and the ps is there all the same. */
Test(session, a_ps_is_asked_once_more_before_it_is_lost_for_calls_that_were_lost_together)
{
    peer one;
    peer_init(&one, SG_MODE_SYNC, 1);
    peer_join(&one);
    peer_declare(&one);
    const sg_step step = peer_step(&one, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(one.session, one.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    peer_drain(&one);
    sg_session_action calls[PEER_MAX];
    size_t n = 0;
    for (; peer_count(&one, SG_SESSION_PUSH) > 0; n++)
        calls[n] = peer_take(&one, SG_SESSION_PUSH);
    cr_assert_gt(n, 1);
    while (one.now_ms < calls[0].timeout_ms) {
        peer_answer_all(&one, SG_SESSION_HEARTBEAT);
        peer_advance(&one, 10);
    }
    for (size_t i = 0; i < n; i++)
        peer_fail(&one, &calls[i], SG_TIMEOUT, "deadline exceeded");
    cr_assert_eq(sg_session_failed(one.session, NULL), SG_OK);
    for (int i = 0; i < 1000 && peer_count(&one, SG_SESSION_PUSH) < n; i++) {
        peer_answer_all(&one, SG_SESSION_HEARTBEAT);
        peer_advance(&one, 10);
    }
    peer_answer_all(&one, SG_SESSION_PUSH);
    peer_expect(&one, push, SG_OK);
    peer_deinit(&one);
}

Test(session, a_peer_that_is_silent_only_because_nobody_asked_is_not_lost)
{
    peer_join(&p);
    peer_declare(&p);
    for (int i = 0; i < 10; i++) {
        peer_advance(&p, PEER_LEASE_MS / 3);
        peer_answer_all(&p, SG_SESSION_HEARTBEAT);
    }
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, peer_slices, 4);
    peer_drain(&p);
    fail_all(SG_SESSION_PULL, 0);
    peer_advance(&p, 50);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, pull, SG_OK);
}

Test(session, a_cancelled_task_ends_and_its_late_answer_is_ignored)
{
    peer_join(&p);
    peer_declare(&p);
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    sg_session_cancel(p.session, p.now_ms, pull);
    peer_drain(&p);
    peer_expect(&p, pull, SG_CANCELLED);
    peer_answer_well(&p, &call, 0);
    cr_assert_eq(sg_session_version(p.session, 0), 0);
    sg_session_cancel(p.session, p.now_ms, pull);
    peer_drain(&p);
}

/* --- one that goes before its hello is answered ------------------------------------------------------------------ */

static void cancel_join(uint64_t task)
{
    sg_session_cancel(p.session, p.now_ms, task);
    peer_drain(&p);
    peer_expect(&p, task, SG_CANCELLED);
}

Test(session, a_hello_that_may_be_parked_is_taken_back)
{
    const uint64_t join = sg_session_join(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    const uint64_t life = ((const Shardgrad__V1__HelloRequest *)hello.body)->life;
    cancel_join(join);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 500);
    peer_drain(&p);
    sg_session_action call = peer_take(&p, SG_SESSION_LEAVE);
    const Shardgrad__V1__LeaveRequest *request = (const Shardgrad__V1__LeaveRequest *)call.body;
    cr_assert_eq(request->life, life);
    cr_assert_eq(request->incarnation, 0);
    Shardgrad__V1__LeaveResponse reply = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    peer_answer(&p, &call, &reply.base);
    peer_expect(&p, leave, SG_OK);
    sg_session_action_deinit(&hello);
}

Test(session, a_hello_that_nobody_has_heard_need_not_be_taken_back)
{
    const uint64_t join = sg_session_join(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    peer_fail(&p, &hello, SG_UNAVAILABLE, "connection refused");
    cancel_join(join);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 500);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0);
    peer_expect(&p, leave, SG_OK);
}
