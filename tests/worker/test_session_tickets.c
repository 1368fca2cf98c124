/* A step that begins while values of it are on their way, and when the one before it is finished. */
#include "session_fixture.h"

static peer p;

static void destroy(void)
{
    if (p.session != NULL)
        peer_deinit(&p);
}

TestSuite(session_tickets, .fini = destroy, .timeout = 20);

static void begin(sg_mode mode)
{
    peer_init(&p, mode, 2);
    peer_join(&p);
    peer_declare(&p);
}

static sg_status try_send(const sg_step *step, const uint32_t *slices, size_t n, uint64_t *task)
{
    const sg_status status = sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, step, 4, slices, n, task, NULL);
    peer_drain(&p);
    return status;
}

static uint64_t send(const sg_step *step)
{
    uint64_t task;
    cr_assert_eq(try_send(step, peer_slices, 4, &task), SG_OK);
    return task;
}

static void push_only(const sg_step *step)
{
    uint64_t task;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, step, 4, peer_slices, 4, &task, NULL), SG_OK);
    peer_drain(&p);
}

static const Shardgrad__V1__TicketRequest *asked(const sg_session_action *call)
{
    return (const Shardgrad__V1__TicketRequest *)call->body;
}

/* Step 0 is handed over whole, step 1 is begun. */
static uint64_t begin_two(sg_step *first, sg_step *second)
{
    *first = peer_step(&p, 0);
    const uint64_t task = send(first);
    first->loss = 1.5f;
    first->examples = 64;
    sg_session_finish(p.session, p.now_ms, first);
    *second = peer_step(&p, 1);
    return task;
}

Test(session_tickets, the_next_step_begins_once_this_one_was_handed_over_and_counts_once_it_is_acknowledged)
{
    begin(SG_MODE_SYNC);
    sg_step first, second, third;
    begin_two(&first, &second);
    const uint64_t task = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
    push_only(&second);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0, "a third ticket is held");
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_bare(&p, &call);
    }
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 2);
    cr_assert_eq(asked(&call)->finished, 1);
    cr_assert_eq(asked(&call)->loss, 1.5f);
    cr_assert_eq(asked(&call)->examples, 64);
    peer_answer_well(&p, &call, 2);
    peer_answer_all(&p, SG_SESSION_PUSH);
    sg_session_finish(p.session, p.now_ms, &second);
    cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &third));
    cr_assert_eq(third.number, 2);
}

Test(session_tickets, a_step_is_pushed_only_when_all_its_values_have_come)
{
    begin(SG_MODE_SYNC);
    sg_step first, second;
    const uint64_t before = begin_two(&first, &second);
    uint64_t task;
    for (size_t i = 0; peer_count(&p, SG_SESSION_PUSH_PULL) > 0; i++) {
        cr_assert_eq(try_send(&second, peer_slices, 4, &task), SG_INVALID);
        cr_assert_eq(try_send(&second, peer_slices + i % 4, 1, &task), SG_INVALID);
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_well(&p, &call, 0);
    }
    peer_expect(&p, before, SG_OK);
    cr_assert_eq(try_send(&first, peer_slices, 1, &task), SG_INVALID, "step 0 twice");
    const uint64_t next = send(&second);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_expect(&p, next, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), 2);
}

Test(session_tickets, a_third_step_waits_until_the_first_is_acknowledged)
{
    begin(SG_MODE_ASYNC);
    sg_step first, second;
    begin_two(&first, &second);
    sg_session_action held = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    send(&second);
    sg_session_finish(p.session, p.now_ms, &second);
    sg_step third;
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &third));
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
    peer_answer_well(&p, &held, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_geq(asked(&call)->finished, 1);
    peer_answer_well(&p, &call, 2);
    peer_expect(&p, task, SG_OK);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
}

Test(session_tickets, a_ticket_that_is_there_is_taken_without_a_task)
{
    begin(SG_MODE_SYNC);
    sg_step step;
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &step), "nobody has asked for one");
    const sg_step first = peer_step(&p, 0);
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_answer_well(&p, &call, 1);
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &step), "step 0 is not finished");
    send(&first);
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &step), "nor is it said to be");
    sg_session_finish(p.session, p.now_ms, &first);
    cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
    cr_assert_eq(step.number, 1);
    cr_assert_eq(step.size, 2);
}

Test(session_tickets, a_step_that_was_not_handed_over_whole_is_not_finished)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    uint64_t task;
    cr_assert_eq(try_send(&step, peer_slices, 3, &task), SG_OK);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    sg_session_finish(p.session, p.now_ms, &step);
    const uint64_t next = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, next, SG_INVALID);
}

Test(session_tickets, a_push_that_came_to_nothing_ends_the_wait_for_the_next_step)
{
    begin(SG_MODE_SYNC);
    sg_step first, second;
    const uint64_t task = begin_two(&first, &second);
    sg_session_cancel(p.session, p.now_ms, task);
    peer_drain(&p);
    sg_step third;
    cr_assert_not(sg_session_ticket_take(p.session, p.now_ms, 0, &third));
    /* The values of step 1 can still be had, but what was lost of step 0 cannot be made good. */
    const uint64_t values = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 4);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, values, SG_OK);
    send(&second);
    sg_session_finish(p.session, p.now_ms, &second);
    const uint64_t next = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, next, SG_INVALID);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
}

Test(session_tickets, a_push_that_expires_takes_the_wait_for_the_next_step_along)
{
    begin(SG_MODE_ASYNC);
    sg_step first = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, p.now_ms + 100, &first, 4, peer_slices, 4, &push, NULL), SG_OK);
    sg_session_finish(p.session, p.now_ms, &first);
    const uint64_t next = sg_session_ticket(p.session, p.now_ms, p.now_ms + 100, 0);
    const uint64_t after = sg_session_pull(p.session, p.now_ms, p.now_ms + 100, 0, peer_slices, 4);
    peer_advance(&p, 100);
    peer_expect(&p, push, SG_TIMEOUT);
    peer_expect(&p, next, SG_INVALID);
    peer_expect(&p, after, SG_TIMEOUT);
    cr_assert_eq(p.n_dones, 6, "a task ended twice"); /* with those that joined, declared and began */
}

Test(session_tickets, a_wait_for_a_step_ends_when_a_push_is_lost_meanwhile)
{
    begin(SG_MODE_ASYNC);
    sg_step first, second;
    const uint64_t task = begin_two(&first, &second);
    send(&second);
    sg_session_finish(p.session, p.now_ms, &second);
    const uint64_t next = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    cr_assert_null(peer_done(&p, next));
    sg_session_cancel(p.session, p.now_ms, task);
    peer_drain(&p);
    peer_expect(&p, next, SG_INVALID);
}

Test(session_tickets, what_is_missing_of_a_step_is_what_no_request_brings)
{
    begin(SG_MODE_SYNC);
    uint32_t slices[4];
    sg_step step = peer_step(&p, 3); /* a joiner: it holds version 0 */
    cr_assert_eq(sg_session_missing(p.session, &step, slices), 4);
    const uint64_t task = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 3, slices, 3);
    peer_drain(&p);
    cr_assert_eq(sg_session_missing(p.session, &step, slices), 1);
    cr_assert_eq(slices[0], 3);
    sg_session_cancel(p.session, p.now_ms, task);
    cr_assert_eq(sg_session_missing(p.session, &step, slices), 4, "nothing comes of what was cancelled");
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, 3, slices, 4);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    cr_assert_eq(sg_session_missing(p.session, &step, slices), 0);
    send(&step);
    sg_session_finish(p.session, p.now_ms, &step);
    step = peer_step(&p, 4);
    cr_assert_eq(sg_session_missing(p.session, &step, slices), 0, "all are on their way");
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_bare(&p, &call);
        cr_assert_eq(sg_session_missing(p.session, &step, slices), 0);
    }
}

Test(session_tickets, the_end_of_a_push_that_was_cancelled_does_not_hide_what_a_later_pull_brings)
{
    begin(SG_MODE_SYNC);
    uint32_t slices[4];
    sg_step first, second;
    const uint64_t task = begin_two(&first, &second);
    cr_assert_eq(sg_session_missing(p.session, &second, slices), 0);
    sg_session_cancel(p.session, p.now_ms, task);
    peer_drain(&p);
    cr_assert_eq(sg_session_missing(p.session, &second, slices), 4);
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, second.number, slices, 4);
    peer_drain(&p);
    cr_assert_eq(sg_session_missing(p.session, &second, slices), 0);
    cr_assert_gt(peer_count(&p, SG_SESSION_PUSH_PULL), 0);
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_fail(&p, &call, SG_CANCELLED, "cancelled");
        cr_assert_eq(sg_session_missing(p.session, &second, slices), 0, "it would be pulled twice");
    }
    peer_answer_all(&p, SG_SESSION_PULL);
    cr_assert_eq(sg_session_version(p.session, 0), second.number);
}

/* --- tickets that ride along with a push ---------------------------------------------------------------------- */

static const Shardgrad__V1__TicketRequest *riding(const sg_session_action *call)
{
    return ((const Shardgrad__V1__PushRequest *)call->body)->ticket;
}

/* Answers all push_pulls; with the ticket of this step where one is asked for. Returns how many asked. */
static size_t answer_riding(uint64_t number, Shardgrad__V1__TicketRequest *request)
{
    size_t n = 0;
    peer_drain(&p);
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        if (riding(&call) == NULL) {
            peer_answer_well(&p, &call, 0);
            continue;
        }
        cr_assert_eq(call.target, 0, "ps %u has no coordinator", call.target);
        *request = *riding(&call);
        peer_answer_riding(&p, &call, number);
        n++;
    }
    return n;
}

/* The tickets of steps 0 and 1 are asked for by themselves; from then on they ride. Step 1 is begun. */
static sg_step begin_riding(void)
{
    sg_step first, second;
    Shardgrad__V1__TicketRequest request;
    begin_two(&first, &second);
    cr_assert_eq(answer_riding(0, &request), 0, "two tickets are held");
    return second;
}

Test(session_tickets, the_next_ticket_rides_with_the_push_and_the_report_with_it)
{
    begin(SG_MODE_SYNC);
    sg_step step = begin_riding();
    for (uint64_t number = 1; number < 5; number++) {
        cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
        send(&step);
        step.loss = (float)number;
        step.examples = 10 * number;
        step.tested = number % 2 == 0 ? (sg_tested){.examples = 50, .of = 100, .correct = number} : (sg_tested){0};
        sg_session_finish(p.session, p.now_ms, &step);
        Shardgrad__V1__TicketRequest request;
        cr_assert_eq(answer_riding(number + 1, &request), 1);
        const bool tells = number == 3; /* what step 2 has found, once; step 4 is finished after the last request */
        cr_assert(request.test_of == (tells ? 100 : 0) && request.test_correct == (tells ? 2 : 0));
        cr_assert(request.test_iteration == (tells ? 2 : 0) && request.test_examples == (tells ? 50 : 0));
        cr_assert_eq(request.received, number + 1);
        cr_assert_eq(request.finished, number);
        cr_assert_eq(request.examples, number == 1 ? 64 : 10 * (number - 1));
        cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
        cr_assert_eq(step.number, number + 1);
    }
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, UINT64_MAX);
    sg_session_action call = peer_take(&p, SG_SESSION_LEAVE);
    const Shardgrad__V1__LeaveRequest *goodbye = (const Shardgrad__V1__LeaveRequest *)call.body;
    cr_assert_eq(goodbye->progress[0]->pushed, 5);
    cr_assert_eq(goodbye->progress[0]->loss, 4);
    cr_assert_eq(goodbye->progress[0]->examples, 40, "the last step was not reported");
    cr_assert_not_null(goodbye->progress[0]->evaluation);
    cr_assert(goodbye->progress[0]->evaluation->iteration == 4 && goodbye->progress[0]->evaluation->correct == 4);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, leave, SG_OK);
}

Test(session_tickets, a_push_that_brings_no_ticket_lets_it_be_asked_for_and_the_report_is_not_lost)
{
    begin(SG_MODE_SYNC);
    sg_step step = begin_riding();
    const uint64_t task = send(&step);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_expect(&p, task, SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 2);
    cr_assert_eq(asked(&call)->examples, 64);
    peer_answer_well(&p, &call, 2);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
}

Test(session_tickets, what_a_push_was_to_report_is_reported_before_what_it_finishes)
{
    begin(SG_MODE_SYNC);
    sg_step step = begin_riding();
    send(&step);
    step.examples = 10;
    sg_session_finish(p.session, p.now_ms, &step);
    sg_session_action last = peer_take(&p, SG_SESSION_PUSH_PULL);
    while (riding(&last) == NULL) {
        peer_answer_well(&p, &last, 0);
        last = peer_take(&p, SG_SESSION_PUSH_PULL);
    }
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_answer_well(&p, &last, 0);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 1);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->finished, 1);
    cr_assert_eq(asked(&call)->examples, 64);
    peer_answer_well(&p, &call, 2);
    cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
}

Test(session_tickets, who_waits_for_a_ticket_does_not_wait_for_a_push)
{
    begin(SG_MODE_SYNC);
    sg_step step = begin_riding();
    push_only(&step); /* it asks for none */
    peer_answer_all(&p, SG_SESSION_PUSH);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_answer_well(&p, &call, 2);
    sg_session_finish(p.session, p.now_ms, &step);
    cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
}

Test(session_tickets, a_repeated_push_asks_for_the_same_ticket)
{
    begin(SG_MODE_SYNC);
    sg_step step = begin_riding();
    send(&step);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    while (riding(&call) == NULL) {
        peer_answer_well(&p, &call, 0);
        call = peer_take(&p, SG_SESSION_PUSH_PULL);
    }
    const Shardgrad__V1__TicketRequest request = *riding(&call);
    peer_fail(&p, &call, SG_UNAVAILABLE, "lost");
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_advance(&p, 60);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
    call = peer_take(&p, SG_SESSION_PUSH_PULL);
    cr_assert_not_null(riding(&call));
    cr_assert_eq(riding(&call)->received, request.received);
    cr_assert_eq(riding(&call)->examples, request.examples);
    peer_answer_riding(&p, &call, 2);
    sg_session_finish(p.session, p.now_ms, &step);
    cr_assert(sg_session_ticket_take(p.session, p.now_ms, 0, &step));
}

/* --- groups that step at different rates ------------------------------------------------------------------------ */

static const Shardgrad__V1__DeclareRequest *declared(const sg_session_action *call)
{
    return (const Shardgrad__V1__DeclareRequest *)call->body;
}

/* "b" is of group 1, which steps in every fifth iteration. */
static void begin_seldom(void)
{
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
    cr_assert_eq(sg_session_step_every(p.session, 1, 5, NULL), SG_OK);
    sg_variable list[] = {peer_variables[0], peer_variables[1], peer_variables[2]};
    list[1].group = 1;
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, list, 3, &task, NULL), SG_OK);
    peer_drain(&p);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    cr_assert_eq(declared(&call)->n_every, 2);
    cr_assert_eq(declared(&call)->every[0], 1);
    cr_assert_eq(declared(&call)->every[1], 5);
    peer_answer_well(&p, &call, 0);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
}

Test(session_tickets, no_ticket_is_asked_for_ahead_of_a_group_that_steps_seldom)
{
    begin_seldom();
    for (uint64_t number = 0; number < 3; number++) {
        const uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 1);
        peer_drain(&p);
        sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
        cr_assert_eq(asked(&call)->group, 1);
        cr_assert_eq(asked(&call)->received, number);
        peer_answer_well(&p, &call, number);
        peer_expect(&p, ticket, SG_OK);
        const sg_step step = peer_done(&p, ticket)->step;
        uint64_t task;
        cr_assert_eq(try_send(&step, &(uint32_t){3}, 1, &task), SG_OK);
        sg_session_action push = peer_take(&p, SG_SESSION_PUSH_PULL);
        cr_assert_null(((const Shardgrad__V1__PushRequest *)push.body)->ticket);
        sg_session_finish(p.session, p.now_ms, &step);
        peer_answer_well(&p, &push, 0);
        peer_expect(&p, task, SG_OK);
        peer_advance(&p, 10);
        cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0);
    }
}

Test(session_tickets, how_often_a_group_steps_is_checked_and_said_before_the_variables_are_declared)
{
    peer_init(&p, SG_MODE_SYNC, 2);
    cr_assert_eq(sg_session_step_every(p.session, 0, 2, NULL), SG_INVALID, "before it has joined");
    peer_join(&p);
    cr_assert_eq(sg_session_step_every(p.session, 0, 0, NULL), SG_INVALID);
    cr_assert_eq(sg_session_step_every(p.session, 0, 65537, NULL), SG_INVALID);
    cr_assert_eq(sg_session_step_every(p.session, 64, 2, NULL), SG_INVALID);
    cr_assert_eq(sg_session_step_every(p.session, 3, 2, NULL), SG_OK);
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "group 3"), "%s", err.message);
}
