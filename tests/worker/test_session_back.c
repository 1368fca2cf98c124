/* Back to an earlier step: what becomes of what is under way, and how the session goes on. */
#include "common/wire.h"
#include "session_fixture.h"

static peer p;

static void set_up(void)
{
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
    peer_declare(&p);
}

static void tear_down(void)
{
    peer_deinit(&p);
}

TestSuite(session_back, .init = set_up, .fini = tear_down);

static bool recovers;

static void answer_hello(sg_session_action *take_call, uint64_t generation, const char *second)
{
    char *addresses[] = {(char *)"ps:1", (char *)second};
    Shardgrad__V1__HelloResponse reply = SHARDGRAD__V1__HELLO_RESPONSE__INIT;
    reply.incarnation = generation << 32 | 9;
    reply.generation = generation;
    reply.mode = SHARDGRAD__V1__MODE__MODE_SYNC;
    reply.lease_ms = PEER_LEASE_MS;
    reply.park_ms = PEER_PARK_MS;
    reply.slice_bytes = p.slice_bytes;
    reply.message_bytes = p.message_bytes;
    reply.ps_addresses = addresses;
    reply.n_ps_addresses = 2;
    reply.workers = 2;
    reply.recovers = recovers;
    peer_answer(&p, take_call, &reply.base);
}

Test(session_back, rolled_back_from_anyone_ends_what_is_under_way_and_says_hello_again)
{
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    sg_session_finish(p.session, p.now_ms, &step);
    const uint64_t next = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed; ps 1 is in generation 2");
    peer_expect(&p, push, SG_ROLLED_BACK);
    peer_expect(&p, pull, SG_ROLLED_BACK);
    peer_expect(&p, next, SG_ROLLED_BACK);
    cr_assert(sg_session_is_back(p.session));
    const uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, ticket, SG_ROLLED_BACK);
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    const Shardgrad__V1__HelloRequest *request = (const Shardgrad__V1__HelloRequest *)hello.body;
    cr_assert_eq(request->life, 77);
    cr_assert_eq(request->generation, 1);
    cr_assert(request->has_trained);
    cr_assert_leq(hello.timeout_ms, PEER_PARK_MS + PEER_LEASE_MS / 3,
                  "one that is lost in silence is said again in time");
    sg_session_action_deinit(&hello);
}

/* What was logged last as this event. */
static sg_log_level level_of(const char *event)
{
    size_t i = p.n_logs;
    while (i > 0 && strcmp(p.logs[i - 1].event, event) != 0)
        i--;
    cr_assert(i > 0, "%s was not logged", event);
    return p.logs[i - 1].level;
}

Test(session_back, one_that_somebody_asked_for_is_no_warning)
{
    peer_step(&p, 0);
    sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_fail(&p, &call, SG_ROLLED_BACK, "the job is in generation 2 now: update.rule is adam from now on, as asked");
    cr_assert_eq(level_of("rolled_back"), SG_LOG_INFO);
    call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 2, "ps:9");
    sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    call = peer_take(&p, SG_SESSION_DECLARE);
    peer_fail(&p, &call, SG_ROLLED_BACK, "the job is in generation 3 now: ps 1 was lost");
    cr_assert_eq(level_of("rolled_back"), SG_LOG_WARN);
}

Test(session_back, it_declares_again_when_it_is_told_to_and_goes_on_with_the_step_that_it_is_given)
{
    peer_step(&p, 7);
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    Shardgrad__V1__HeartbeatResponse news = SHARDGRAD__V1__HEARTBEAT_RESPONSE__INIT;
    news.generation = 2;
    peer_answer(&p, &call, &news.base);
    call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 2, "ps:9");
    cr_assert_str_eq(sg_session_ps_address(p.session, 1), "ps:9");
    cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 0, "values may come with it: not without being told");
    const uint64_t resume = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    call = peer_take(&p, SG_SESSION_DECLARE);
    const Shardgrad__V1__DeclareRequest *declare = (const Shardgrad__V1__DeclareRequest *)call.body;
    cr_assert_eq(declare->n_variables, 3);
    cr_assert_eq(declare->generation, 2);
    cr_assert_eq(declare->incarnation, UINT64_C(2) << 32 | 9);
    Shardgrad__V1__DeclareResponse declared = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    peer_answer(&p, &call, &declared.base);
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        call = peer_take(&p, SG_SESSION_PULL);
        peer_fail(&p, &call, SG_LATE, "version 0 is gone");
    }
    peer_expect(&p, resume, SG_OK);
    cr_assert_not(sg_session_is_back(p.session));
    while (peer_count(&p, SG_SESSION_TICKET) > 0) { /* of the generation before */
        call = peer_take(&p, SG_SESSION_TICKET);
        peer_fail(&p, &call, SG_CANCELLED, "late");
    }
    const sg_step step = peer_step(&p, 4);
    cr_assert_eq(step.number, 4, "an earlier step than before");
    cr_assert_eq(sg_session_missing(p.session, &step, NULL), 4, "its values are to be pulled");
}

/* Of whom it does not hear how far the job was, it does not take part in one that begins anew. */
Test(session_back, where_generations_are_recorded_it_does_not_go_back_to_an_earlier_one)
{
    recovers = true;
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed");
    call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 3, "ps:2");
    const uint64_t resume = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    call = peer_take(&p, SG_SESSION_DECLARE);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 3 has passed");
    call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 1, "ps:2");
    peer_expect(&p, resume, SG_CONFIG);
    cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 0);
}

Test(session_back, a_declaration_that_is_under_way_begins_anew_by_itself)
{
    peer_deinit(&p);
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed");
    cr_assert_null(peer_done(&p, task));
    call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 2, "ps:2");
    call = peer_take(&p, SG_SESSION_DECLARE);
    cr_assert_eq(((const Shardgrad__V1__DeclareRequest *)call.body)->generation, 2);
    sg_session_action_deinit(&call);
}

/* Its owner tries again, perhaps with variables that it has corrected. */
static void declares_a_second_time(bool hello_first)
{
    peer_deinit(&p);
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, p.now_ms + 500, peer_variables, 3, &task, &err), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed");
    peer_advance(&p, 600);
    peer_expect(&p, task, SG_TIMEOUT);
    if (hello_first) {
        call = peer_take(&p, SG_SESSION_HELLO);
        answer_hello(&call, 2, "ps:2");
    }
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 2, &task, &err), SG_OK, "%s",
                 err.message);
    peer_drain(&p);
    if (!hello_first) {
        cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 0, "it follows the hello");
        call = peer_take(&p, SG_SESSION_HELLO);
        answer_hello(&call, 2, "ps:2");
    }
    call = peer_take(&p, SG_SESSION_DECLARE);
    const Shardgrad__V1__DeclareRequest *declare = (const Shardgrad__V1__DeclareRequest *)call.body;
    cr_assert(declare->generation == 2 && declare->n_variables == 2);
    peer_answer_well(&p, &call, 0);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
    cr_assert_not(sg_session_is_back(p.session));
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 2, &task, &err), SG_INVALID);
}

Test(session_back, a_first_declaration_that_ran_out_of_time_before_the_hello_can_be_made_again)
{
    declares_a_second_time(false);
}

Test(session_back, a_first_declaration_that_ran_out_of_time_can_be_made_again_after_the_hello)
{
    declares_a_second_time(true);
}

Test(session_back, a_goodbye_that_is_under_way_is_said_in_the_next_generation)
{
    const uint64_t task = sg_session_leave(p.session, p.now_ms, UINT64_MAX);
    sg_session_action leave = peer_take(&p, SG_SESSION_LEAVE);
    cr_assert_eq(((const Shardgrad__V1__LeaveRequest *)leave.body)->generation, 1);
    peer_fail(&p, &leave, SG_ROLLED_BACK, "generation 1 has passed, the job is in 2: say hello again");
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&hello, 2, "ps:2");
    leave = peer_take(&p, SG_SESSION_LEAVE);
    const Shardgrad__V1__LeaveRequest *request = (const Shardgrad__V1__LeaveRequest *)leave.body;
    cr_assert_eq(request->generation, 2);
    cr_assert_eq(request->incarnation, UINT64_C(2) << 32 | 9);
    const Shardgrad__V1__LeaveResponse response = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    peer_answer(&p, &leave, &response.base);
    peer_expect(&p, task, SG_OK);
}

Test(session_back, a_coordinator_that_never_comes_back_is_named)
{
    peer_step(&p, 0);
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_ROLLED_BACK, "ps 1 was started anew");
    for (int i = 0; i < 70; i++) {
        while (peer_count(&p, SG_SESSION_HELLO) > 0) {
            call = peer_take(&p, SG_SESSION_HELLO);
            peer_fail(&p, &call, SG_UNAVAILABLE, "connection refused");
        }
        peer_advance(&p, 1000);
    }
    sg_error err;
    cr_assert_eq(sg_session_failed(p.session, &err), SG_PEER_LOST);
    cr_assert(strstr(err.message, "ps 0, the coordinator, did not come back within 60000 ms") != NULL, "%s",
              err.message);
    cr_assert_gt(sg_session_next_ms(p.session), p.now_ms, "nothing is due any more, and it would be for ever");
}

Test(session_back, a_job_that_was_started_anew_with_another_plan_is_refused)
{
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed");
    call = peer_take(&p, SG_SESSION_HELLO);
    p.slice_bytes = 128;
    answer_hello(&call, 2, "ps:2");
    sg_error err;
    cr_assert_eq(sg_session_failed(p.session, &err), SG_CONFIG);
    cr_assert(strstr(err.message, "slice_bytes") != NULL, "%s", err.message);
}

/* --- fenced --- */

static void fence(void)
{
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    peer_fail(&p, &call, SG_FENCED, "worker 1 was given up for lost");
    peer_expect(&p, push, SG_FENCED);
    while (p.n_calls > 0) { /* of the incarnation that was fenced */
        call = p.calls[0];
        sg_session_action taken = peer_take(&p, call.method);
        peer_fail(&p, &taken, SG_CANCELLED, "cancelled");
    }
}

/* The hello that is under way, and what follows it, of one that joins when training has begun. */
static void come_again(uint64_t resume)
{
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    answer_hello(&call, 1, "ps:2");
    call = peer_take(&p, SG_SESSION_DECLARE);
    Shardgrad__V1__DeclareResponse declared = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    peer_answer(&p, &call, &declared.base);
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        call = peer_take(&p, SG_SESSION_PULL);
        peer_fail(&p, &call, SG_LATE, "version 0 is gone");
    }
    peer_expect(&p, resume, SG_OK);
}

Test(session_back, one_that_was_fenced_comes_again_as_a_new_life_that_names_its_last_incarnation)
{
    fence();
    peer_advance(&p, PEER_LEASE_MS);
    cr_assert_eq(p.n_calls, 0, "it says nothing before it is told to");
    const uint64_t resume = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_HELLO), 1);
    const Shardgrad__V1__HelloRequest *request = (const Shardgrad__V1__HelloRequest *)p.calls[0].body;
    cr_assert_neq(request->life, 77);
    cr_assert_eq(request->after, PEER_INCARNATION);
    cr_assert_eq(request->generation, 0);
    come_again(resume);
    cr_assert_eq(peer_step(&p, 5).number, 5);
}

Test(session_back, one_that_rested_and_was_fenced_may_begin_steps_again)
{
    sg_session_rest(p.session, p.now_ms);
    peer_drain(&p);
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_FENCED, "worker 1 was given up for lost");
    peer_expect(&p, pull, SG_FENCED);
    while (p.n_calls > 0) {
        call = p.calls[0];
        sg_session_action taken = peer_take(&p, call.method);
        peer_fail(&p, &taken, SG_CANCELLED, "cancelled");
    }
    come_again(sg_session_resume(p.session, p.now_ms, UINT64_MAX));
    cr_assert_eq(peer_step(&p, 5).number, 5);
}

Test(session_back, one_whose_index_another_process_has_is_fenced_for_good)
{
    fence();
    const uint64_t resume = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    sg_session_action call = peer_take(&p, SG_SESSION_HELLO);
    peer_fail(&p, &call, SG_FENCED, "worker 1 (elsewhere:1) has taken the index of this process: end");
    peer_expect(&p, resume, SG_FENCED);
    cr_assert_not(sg_session_is_back(p.session));
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_FENCED);
}

/* --- fenced before it has declared --- */

static void join_only(void)
{
    peer_deinit(&p);
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
}

static void fence_heartbeat(void)
{
    peer_advance(&p, PEER_LEASE_MS / 3);
    sg_session_action call = peer_take(&p, SG_SESSION_HEARTBEAT);
    peer_fail(&p, &call, SG_FENCED, "worker 1 was given up for lost");
}

/* The hello that is under way is that of a new life, which names this incarnation. */
static sg_session_action take_new_life(uint64_t after)
{
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    const Shardgrad__V1__HelloRequest *request = (const Shardgrad__V1__HelloRequest *)hello.body;
    cr_assert_neq(request->life, 77);
    cr_assert_eq(request->after, after);
    return hello;
}

static uint64_t declare_begin(void)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    peer_drain(&p);
    return task;
}

Test(session_back, one_that_was_fenced_before_it_declared_comes_again_by_itself)
{
    join_only();
    fence_heartbeat();
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_OK);
    sg_session_action hello = take_new_life(PEER_INCARNATION);
    answer_hello(&hello, 1, "ps:2");
    cr_assert_not(sg_session_is_back(p.session));
    const uint64_t task = declare_begin();
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    cr_assert_eq(((const Shardgrad__V1__DeclareRequest *)call.body)->incarnation, UINT64_C(1) << 32 | 9);
    Shardgrad__V1__DeclareResponse declared = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    peer_answer(&p, &call, &declared.base);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
}

Test(session_back, one_that_declares_while_it_comes_again_declares_after_the_hello)
{
    join_only();
    fence_heartbeat();
    const uint64_t task = declare_begin();
    cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 0);
    sg_session_action hello = take_new_life(PEER_INCARNATION);
    answer_hello(&hello, 1, "ps:2");
    cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 1);
    cr_assert_null(peer_done(&p, task));
}

Test(session_back, a_first_declaration_that_is_fenced_twice_begins_anew_each_time)
{
    join_only();
    const uint64_t task = declare_begin();
    uint64_t incarnation = PEER_INCARNATION;
    for (uint64_t generation = 1; generation < 3; generation++) {
        sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
        cr_assert_eq(((const Shardgrad__V1__DeclareRequest *)call.body)->incarnation, incarnation);
        peer_fail(&p, &call, SG_FENCED, "worker 1 was given up for lost");
        cr_assert_null(peer_done(&p, task));
        sg_session_action hello = take_new_life(incarnation);
        answer_hello(&hello, generation, "ps:2");
        incarnation = generation << 32 | 9;
    }
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    Shardgrad__V1__DeclareResponse declared = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    peer_answer(&p, &call, &declared.base);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
}

Test(session_back, one_that_was_fenced_before_it_declared_and_whose_index_another_has_is_fenced_for_good)
{
    join_only();
    fence_heartbeat();
    sg_session_action hello = take_new_life(PEER_INCARNATION);
    peer_fail(&p, &hello, SG_FENCED, "worker 1 (elsewhere:1) has taken the index of this process: end");
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_FENCED);
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_FENCED);
}

Test(session_back, a_process_that_stood_still_does_not_take_its_peers_for_lost)
{
    const uint64_t first = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 1);
    const uint64_t second = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices + 1, 1);
    sg_session_action a = peer_take(&p, SG_SESSION_PULL), b = peer_take(&p, SG_SESSION_PULL);
    p.now_ms += 3 * PEER_LEASE_MS;
    peer_fail(&p, &a, SG_TIMEOUT, "deadline");
    peer_fail(&p, &b, SG_TIMEOUT, "deadline");
    cr_assert_null(peer_done(&p, first));
    cr_assert_null(peer_done(&p, second));
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_OK);
}

Test(session_back, it_asks_for_the_time_every_third_of_a_lease_whatever_it_waits_for)
{
    for (uint32_t i = 0; i < 200; i++) { /* nothing is answered: heartbeats, too, are under way all the time */
        peer_advance(&p, 10);
        cr_assert_leq(sg_session_next_ms(p.session), p.now_ms + PEER_LEASE_MS / 3);
    }
}

/* The job goes back before its owner, who is about to say that it rests, has heard of it. */
Test(session_back, who_says_that_it_rests_when_the_job_has_gone_back_trains_on)
{
    peer_deinit(&p);
    peer_init(&p, SG_MODE_ASYNC, 2);
    peer_join(&p);
    peer_declare(&p);
    peer_step(&p, 0);
    const uint64_t pull = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, peer_slices, 1);
    peer_drain(&p);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    peer_fail(&p, &call, SG_ROLLED_BACK, "generation 1 has passed");
    peer_expect(&p, pull, SG_ROLLED_BACK);
    cr_assert(sg_session_is_back(p.session));
    sg_session_rest(p.session, p.now_ms);
    peer_drain(&p);
    const uint64_t resume = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    call = peer_take(&p, SG_SESSION_HELLO);
    peer_answer_well(&p, &call, 0);
    call = peer_take(&p, SG_SESSION_DECLARE);
    peer_answer_well(&p, &call, 0);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, resume, SG_OK);
    const uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    cr_assert_null(peer_done(&p, ticket), "it is waited for, as any other");
}
