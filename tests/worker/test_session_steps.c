/* Tickets, pushes and pulls: what may be sent when, in both modes. */
#include "session_fixture.h"

#include <string.h>

static peer p;

static void begin(sg_mode mode)
{
    peer_init(&p, mode, 2);
    peer_join(&p);
    peer_declare(&p);
}

static void destroy(void)
{
    peer_deinit(&p);
}

TestSuite(session_steps, .fini = destroy, .timeout = 20);

static uint64_t push(const sg_step *step, const uint32_t *slices, size_t n)
{
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, step, 4, slices, n, &task, &err), SG_OK, "%s",
                 err.message);
    peer_drain(&p);
    return task;
}

static uint64_t pull(uint64_t version)
{
    const uint64_t task = sg_session_pull(p.session, p.now_ms, UINT64_MAX, version, peer_slices, 4);
    peer_drain(&p);
    return task;
}

static void exchange(const sg_step *step)
{
    const uint64_t pushed = push(step, peer_slices, 4);
    peer_answer_all(&p, SG_SESSION_PUSH);
    peer_expect(&p, pushed, SG_OK);
    const uint64_t pulled = pull(p.mode == SG_MODE_SYNC ? step->number + 1 : 0);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, pulled, SG_OK);
}

static Shardgrad__V1__TicketRequest *asked(sg_session_action *call)
{
    return (Shardgrad__V1__TicketRequest *)call->body;
}

Test(session_steps, the_next_ticket_is_asked_for_while_the_step_is_computed_and_no_third)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    cr_assert_eq(step.rank, 1);
    cr_assert_eq(step.size, 2);
    cr_assert_eq(step.learning_rate, 0.5f);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 1);
    cr_assert_eq(asked(&call)->finished, 0);
    peer_answer_well(&p, &call, 1);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 0, "a third ticket was asked for");
}

Test(session_steps, a_finished_step_is_reported_once_and_makes_room_for_a_ticket)
{
    begin(SG_MODE_SYNC);
    sg_step step = peer_step(&p, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_answer_well(&p, &call, 1);
    exchange(&step);
    step.loss = 1.5f;
    step.examples = 64;
    sg_session_finish(p.session, p.now_ms, &step);
    call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 2);
    cr_assert_eq(asked(&call)->finished, 1);
    cr_assert_eq(asked(&call)->loss, 1.5f);
    cr_assert_eq(asked(&call)->examples, 64);
    peer_fail(&p, &call, SG_UNAVAILABLE, "lost");
    peer_advance(&p, 50);
    call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->examples, 64, "a repeat must say the same");
    peer_answer_well(&p, &call, 2);
    step = peer_step(&p, 1);
    exchange(&step);
    step.examples = 0;
    sg_session_finish(p.session, p.now_ms, &step);
    call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->finished, 2);
    cr_assert_eq(asked(&call)->examples, 0, "the first step was reported twice");
    peer_answer_well(&p, &call, 3);
}

Test(session_steps, a_step_begins_only_when_the_one_before_is_finished)
{
    begin(SG_MODE_SYNC);
    peer_step(&p, 0);
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, task, SG_INVALID);
}

Test(session_steps, a_ticket_task_that_times_out_leaves_its_request_to_the_next)
{
    begin(SG_MODE_SYNC);
    const uint64_t first = sg_session_ticket(p.session, p.now_ms, p.now_ms + 100, 0);
    peer_drain(&p);
    peer_advance(&p, 100);
    peer_expect(&p, first, SG_TIMEOUT);
    const uint64_t second = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_TICKET), 1);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, second, SG_OK);
}

Test(session_steps, a_peer_that_stops_lets_the_step_under_way_be_finished)
{
    begin(SG_MODE_SYNC);
    sg_step step = peer_step(&p, 0);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_fail(&p, &call, SG_STOPPED, "ps 0 was told to stop");
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_OK);
    exchange(&step);
    sg_session_finish(p.session, p.now_ms, &step);
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, task, SG_STOPPED);
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_STOPPED);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    peer_answer_all(&p, SG_SESSION_LEAVE);
    peer_expect(&p, leave, SG_OK);
}

Test(session_steps, a_ticket_that_was_given_before_is_an_error)
{
    begin(SG_MODE_SYNC);
    sg_step step = peer_step(&p, 5);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    peer_answer_well(&p, &call, 5);
    const uint64_t pulled = pull(5);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, pulled, SG_OK);
    exchange(&step);
    sg_session_finish(p.session, p.now_ms, &step);
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    peer_expect(&p, task, SG_INTERNAL);
}

Test(session_steps, sync_a_step_is_pushed_only_on_its_own_version_of_every_slice)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 3); /* a joiner: it holds version 0 */
    uint64_t task;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &task, NULL), SG_INVALID);
    const uint64_t part = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 3, peer_slices, 3);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, part, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), UINT64_MAX);
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &task, NULL), SG_INVALID);
    const uint64_t rest = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 3, peer_slices + 3, 1);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, rest, SG_OK);
    push(&step, peer_slices, 4);
}

Test(session_steps, sync_a_step_is_pushed_in_pieces_while_its_first_values_come_back)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    const uint64_t first = push(&step, peer_slices, 2);
    peer_answer_all(&p, SG_SESSION_PUSH);
    peer_expect(&p, first, SG_OK);
    const uint64_t back = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, peer_slices, 2);
    peer_drain(&p);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, back, SG_OK);
    cr_assert_not(sg_session_is_pushed(p.session, &step));
    const uint64_t rest = push(&step, peer_slices + 2, 2);
    peer_answer_all(&p, SG_SESSION_PUSH);
    peer_expect(&p, rest, SG_OK);
    cr_assert(sg_session_is_pushed(p.session, &step));
}

Test(session_steps, a_push_repeats_what_the_ticket_said_and_goes_to_the_owner)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    push(&step, peer_slices, 4);
    const sg_plan *plan = sg_session_plan(p.session);
    uint32_t seen[8] = {0};
    while (peer_count(&p, SG_SESSION_PUSH) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
        const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)call.body;
        cr_assert_eq(request->worker, 1);
        cr_assert_eq(request->incarnation, PEER_INCARNATION);
        cr_assert_eq(request->weight, 4);
        cr_assert_eq(request->step->learning_rate, 0.5f);
        cr_assert_eq(request->step->members.len, 1);
        cr_assert_eq(request->n_steps, request->n_slices);
        for (size_t i = 0; i < request->n_slices; i++) {
            cr_assert_eq(plan->slices[request->slices[i]].ps, call.target);
            cr_assert_eq(request->steps[i], 0);
            seen[request->slices[i]]++;
        }
        peer_answer_well(&p, &call, 0);
    }
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(seen[i], i < 4 ? 1 : 0);
}

Test(session_steps, what_cannot_be_pushed_is_refused_and_sends_nothing)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    const uint32_t frozen[] = {4}, unknown[] = {9}, twice[] = {0, 0}, first[] = {0};
    uint64_t task;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, frozen, 1, &task, NULL), SG_INVALID);
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, unknown, 1, &task, NULL), SG_INVALID);
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, twice, 2, &task, NULL), SG_INVALID);
    sg_step other = step;
    other.number = 1;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &other, 1, first, 1, &task, NULL), SG_INVALID);
    other = step;
    other.group = 7;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &other, 1, first, 1, &task, NULL), SG_INVALID);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 0);
    push(&step, first, 1);
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &task, NULL), SG_INVALID);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 1);
}

Test(session_steps, async_a_slice_is_pushed_again_only_after_its_last_push_was_acknowledged)
{
    begin(SG_MODE_ASYNC);
    sg_step step = peer_step(&p, 10);
    push(&step, peer_slices, 4);
    sg_session_action held = peer_take(&p, SG_SESSION_PUSH);
    peer_answer_all(&p, SG_SESSION_PUSH);
    sg_session_finish(p.session, p.now_ms, &step);
    step = peer_step(&p, 17);
    push(&step, peer_slices, 4);
    const Shardgrad__V1__PushRequest *first = (const Shardgrad__V1__PushRequest *)held.body;
    for (size_t i = 0; i < p.n_calls; i++) {
        const Shardgrad__V1__PushRequest *next = (const Shardgrad__V1__PushRequest *)p.calls[i].body;
        if (p.calls[i].method != SG_SESSION_PUSH)
            continue;
        for (size_t k = 0; k < next->n_slices; k++)
            cr_assert_neq(next->slices[k], first->slices[0]);
    }
    const uint32_t slice = first->slices[0];
    peer_answer_well(&p, &held, 0);
    bool sent = false;
    for (size_t i = 0; i < p.n_calls; i++)
        if (p.calls[i].method == SG_SESSION_PUSH)
            sent = sent || ((const Shardgrad__V1__PushRequest *)p.calls[i].body)->slices[0] == slice;
    cr_assert(sent);
    peer_answer_all(&p, SG_SESSION_PUSH);
}

Test(session_steps, async_tickets_are_counted_and_any_newer_version_is_an_answer)
{
    begin(SG_MODE_ASYNC);
    sg_step step = peer_step(&p, 10);
    sg_session_action call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 1);
    peer_answer_well(&p, &call, 13);
    exchange(&step);
    sg_session_finish(p.session, p.now_ms, &step);
    call = peer_take(&p, SG_SESSION_TICKET);
    cr_assert_eq(asked(&call)->received, 2);
    cr_assert_eq(asked(&call)->finished, 1);
    peer_answer_well(&p, &call, 14);
    const uint64_t task = pull(3);
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        call = peer_take(&p, SG_SESSION_PULL);
        uint64_t newer[4] = {8, 8, 8, 8};
        Shardgrad__V1__PullResponse reply = SHARDGRAD__V1__PULL_RESPONSE__INIT;
        reply.versions = newer;
        reply.n_versions = ((const Shardgrad__V1__PullRequest *)call.body)->n_versions;
        peer_answer(&p, &call, &reply.base);
    }
    peer_expect(&p, task, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), 8);
}

Test(session_steps, a_pull_answered_with_another_version_is_an_error)
{
    begin(SG_MODE_SYNC);
    const uint64_t task = pull(1);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    uint64_t newer[4] = {2, 2, 2, 2};
    Shardgrad__V1__PullResponse reply = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    reply.versions = newer;
    reply.n_versions = ((const Shardgrad__V1__PullRequest *)call.body)->n_versions;
    peer_answer(&p, &call, &reply.base);
    peer_expect(&p, task, SG_INTERNAL);
    cr_assert_eq(sg_session_version(p.session, 0), UINT64_MAX);
}

Test(session_steps, pulls_are_sent_beside_pushes_that_are_not_acknowledged)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    push(&step, peer_slices, 4);
    pull(1);
    cr_assert_gt(peer_count(&p, SG_SESSION_PUSH), 0);
    cr_assert_gt(peer_count(&p, SG_SESSION_PULL), 0);
}

Test(session_steps, only_a_bounded_number_of_messages_is_under_way_and_all_arrive)
{
    static float memory[128 * 16];
    const sg_variable wide = {.name = "w", .rank = 1, .shape = {128 * 16}, .value = memory, .gradient = memory};
    peer_init(&p, SG_MODE_SYNC, 1);
    peer_join(&p);
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, &wide, 1, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    size_t n = 0;
    for (; peer_count(&p, SG_SESSION_PULL) > 0; n++) {
        cr_assert_leq(peer_count(&p, SG_SESSION_PULL), 16);
        sg_session_action call = peer_take(&p, SG_SESSION_PULL);
        peer_answer_well(&p, &call, 0);
    }
    cr_assert_eq(n, 64); /* 128 slices of 64 bytes in messages of 128 */
    peer_expect(&p, task, SG_OK);
}

Test(session_steps, slices_left_out_by_the_server_are_counted)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    push(&step, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    uint32_t bad[] = {0};
    Shardgrad__V1__PushResponse reply = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    reply.non_finite = bad;
    reply.n_non_finite = 1;
    peer_answer(&p, &call, &reply.base);
    sg_session_facts facts;
    sg_session_facts_get(p.session, &facts);
    cr_assert_eq(facts.non_finite, 1);
}

/* Whatever is lost, delayed or parked, in any order: the steps go on, one after the other, and every slice is counted
 * once. Lost means that the answer is: the peer has counted, and must hear the same again. */
static void run_random(uint64_t seed, sg_mode mode)
{
    uint64_t random = seed;
    begin(mode);
    uint64_t next_ticket = 0, counted[5] = {0};
    for (uint64_t number = 0; number < 20; number++) {
        const uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
        uint64_t pushed = 0, pulled = 0;
        sg_step step = {0};
        for (int turn = 0; turn < 100000; turn++) {
            peer_drain(&p);
            if (pushed == 0 && peer_done(&p, ticket) != NULL) {
                step = peer_done(&p, ticket)->step;
                cr_assert_eq(step.number, number, "seed %llu", (unsigned long long)seed);
                pushed = push(&step, peer_slices, 4);
                pulled = pull(mode == SG_MODE_SYNC ? number + 1 : 0);
            }
            if (pushed != 0 && peer_done(&p, pushed) != NULL && peer_done(&p, pulled) != NULL)
                break;
            random = random * 6364136223846793005u + 1442695040888963407u;
            if (p.n_calls == 0 || (random >> 60) < 2) {
                peer_advance(&p, 1 + (random >> 33) % 50);
                continue;
            }
            const size_t at = (random >> 20) % p.n_calls;
            sg_session_action call = p.calls[at];
            memmove(&p.calls[at], &p.calls[at + 1], (p.n_calls - at - 1) * sizeof call);
            p.n_calls--;
            const uint64_t fate = (random >> 40) % 8;
            if (fate == 0) {
                peer_fail(&p, &call, SG_WAITING, "waiting for worker 0");
                continue;
            }
            if (call.method == SG_SESSION_PUSH) {
                const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)call.body;
                for (size_t i = 0; i < request->n_slices; i++) {
                    uint64_t *count = &counted[request->slices[i]];
                    cr_assert(request->steps[i] == *count || request->steps[i] + 1 == *count);
                    *count = request->steps[i] + 1;
                }
            }
            if (fate == 1) {
                peer_fail(&p, &call, SG_UNAVAILABLE, "lost");
                continue;
            }
            if (call.method == SG_SESSION_TICKET)
                next_ticket = asked(&call)->received;
            peer_answer_well(&p, &call, next_ticket);
        }
        peer_expect(&p, pushed, SG_OK);
        peer_expect(&p, pulled, SG_OK);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(counted[i], number + 1, "seed %llu: slice %d", (unsigned long long)seed, i);
        cr_assert(sg_session_is_pushed(p.session, &step));
        sg_session_finish(p.session, p.now_ms, &step);
    }
}

Test(session_steps, twenty_steps_come_through_a_network_that_loses_and_delays)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        run_random(seed, seed % 2 == 0 ? SG_MODE_SYNC : SG_MODE_ASYNC);
        if (seed < 100)
            peer_deinit(&p);
    }
}
