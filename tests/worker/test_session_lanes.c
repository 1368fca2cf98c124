/* What is sent before what: the lowest slice first, a slice's steps in their order, nothing held up by what it does not
 * need. */
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "session_fixture.h"
#include "tests/support/seed.h"

#define N_SLICES 64u
#define WINDOW   16u /* small messages under way */

static peer p;
static uint32_t connections = 1;
static float memory[1]; /* a session looks only whether there is one */

static void destroy(void)
{
    if (p.session != NULL)
        peer_deinit(&p);
}

TestSuite(session_lanes, .fini = destroy, .timeout = 60);

static void begin_variables(sg_mode mode, uint64_t slice_bytes, uint64_t message_bytes, const sg_variable *variables,
                            size_t n)
{
    uint64_t task;
    peer_init_connections(&p, mode, 1, connections);
    p.slice_bytes = slice_bytes;
    p.message_bytes = message_bytes;
    peer_join(&p);
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, variables, n, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
}

/* One variable of N_SLICES slices of slice_bytes on one ps. */
static void begin_with(sg_mode mode, uint64_t slice_bytes, uint64_t message_bytes)
{
    const sg_variable wide = {
        .name = "w", .rank = 1, .shape = {N_SLICES * slice_bytes / sizeof(float)}, .value = memory, .gradient = memory};
    begin_variables(mode, slice_bytes, message_bytes, &wide, 1);
}

static void begin(sg_mode mode)
{
    begin_with(mode, PEER_SLICE_BYTES, PEER_MESSAGE_BYTES);
}

static uint64_t send(const sg_step *step, const uint32_t *slices, size_t n)
{
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, step, 4, slices, n, &task, &err), SG_OK, "%s",
                 err.message);
    peer_drain(&p);
    return task;
}

static void send_one(const sg_step *step, uint32_t slice)
{
    send(step, &slice, 1);
}

/* The call under way for this slice; NULL: there is none. */
static sg_session_action *call_of(uint32_t slice)
{
    for (size_t i = 0; i < p.n_calls; i++)
        for (size_t k = 0; k < p.calls[i].n_slices; k++)
            if (p.calls[i].method == SG_SESSION_PUSH_PULL && p.calls[i].slices[k] == slice)
                return &p.calls[i];
    return NULL;
}

static uint64_t step_of(const sg_session_action *call)
{
    return ((const Shardgrad__V1__PushRequest *)call->body)->steps[0];
}

static sg_session_action take(sg_session_action *at)
{
    sg_session_action call = *at;
    memmove(at, at + 1, (size_t)(&p.calls[p.n_calls] - (at + 1)) * sizeof *at);
    p.n_calls--;
    return call;
}

static void answer(uint32_t slice)
{
    sg_session_action *at = call_of(slice);
    cr_assert_not_null(at, "slice %u is not under way", slice);
    sg_session_action call = take(at);
    peer_answer_well(&p, &call, 0);
}

/* The oldest push_pull. */
static void answer_one(void)
{
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_answer_well(&p, &call, 0);
}

Test(session_lanes, the_lowest_slice_overtakes_what_is_queued)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    for (uint32_t slice = N_SLICES; slice-- > 0;) /* as a backward pass does */
        send_one(&step, slice);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH_PULL), WINDOW);
    for (uint32_t i = 0; i < WINDOW; i++)
        cr_assert_not_null(call_of(N_SLICES - 1 - i));
    for (uint32_t next = 0; next < N_SLICES - WINDOW; next++) {
        cr_assert_null(call_of(next));
        answer(next < WINDOW ? N_SLICES - 1 - next : next - WINDOW);
        cr_assert_not_null(call_of(next), "slice %u is not the next one", next);
    }
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    cr_assert(sg_session_is_pushed(p.session, &step));
}

Test(session_lanes, pulls_are_asked_for_by_the_lowest_slice_too)
{
    begin(SG_MODE_SYNC);
    for (uint32_t slice = N_SLICES; slice-- > 0;)
        for (uint64_t i = 0; i < 2; i++)
            sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, &slice, 1);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), WINDOW);
    for (uint32_t next = 0; next < N_SLICES - WINDOW / 2; next++)
        for (uint64_t i = 0; i < 2; i++) {
            sg_session_action call = peer_take(&p, SG_SESSION_PULL);
            peer_answer_well(&p, &call, 0);
            cr_assert_eq(p.calls[p.n_calls - 1].slices[0], next);
        }
}

/* The next step's push of a slice stands aside, and does not hold up others of its lane. */
Test(session_lanes, async_a_push_behind_one_of_the_same_slice_holds_up_nobody_else)
{
    begin(SG_MODE_ASYNC);
    uint32_t all[N_SLICES];
    for (uint32_t i = 0; i < N_SLICES; i++)
        all[i] = i;
    const sg_step first = peer_step(&p, 10);
    send(&first, all, N_SLICES); /* two slices a message: 32, of which 16 are under way */
    sg_session_finish(p.session, p.now_ms, &first);
    const sg_step second = peer_step(&p, 17);
    send_one(&second, 0);  /* behind one that is under way */
    send_one(&second, 40); /* behind one that is queued */
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH_PULL), WINDOW);
    answer(2);
    cr_assert_eq(step_of(call_of(32)), 10, "the lane is held up by slice 0");
    cr_assert_eq(step_of(call_of(0)), 10);
    answer(0);
    cr_assert_eq(step_of(call_of(0)), 17);
    while (call_of(40) == NULL)
        answer_one();
    cr_assert_eq(step_of(call_of(40)), 10, "slice 40 went out of order");
    answer(40);
    while (call_of(40) == NULL)
        answer_one();
    cr_assert_eq(step_of(call_of(40)), 17);
}

Test(session_lanes, of_large_messages_few_are_under_way)
{
    static const struct {
        uint64_t slice_bytes;
        size_t n_under_way;
    } rows[] = {{4u << 20, 2}, {1u << 20, 2}, {512u << 10, 4}, {128u << 10, 16}};
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        begin_with(SG_MODE_SYNC, rows[i].slice_bytes, rows[i].slice_bytes);
        const sg_step step = peer_step(&p, 0);
        uint32_t all[N_SLICES];
        for (uint32_t k = 0; k < N_SLICES; k++)
            all[k] = k;
        const uint64_t task = send(&step, all, N_SLICES);
        for (size_t n = 0; n < N_SLICES; n++) {
            cr_assert_eq(peer_count(&p, SG_SESSION_PUSH_PULL),
                         N_SLICES - n < rows[i].n_under_way ? N_SLICES - n : rows[i].n_under_way);
            answer_one();
        }
        peer_expect(&p, task, SG_OK);
        peer_deinit(&p);
        p.session = NULL;
    }
}

Test(session_lanes, each_connection_has_its_own_under_way)
{
    connections = 3;
    begin_with(SG_MODE_SYNC, 1u << 20, 1u << 20);
    const sg_step step = peer_step(&p, 0);
    uint32_t all[N_SLICES];
    for (uint32_t k = 0; k < N_SLICES; k++)
        all[k] = k;
    send(&step, all, N_SLICES);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH_PULL), 4); /* two times two: two members share three connections */
}

/* What waits at the ps for another worker takes no room from what it can answer. */
Test(session_lanes, parked_pulls_do_not_hold_up_others)
{
    begin_with(SG_MODE_SYNC, 1u << 20, 1u << 20);
    const sg_step step = peer_step(&p, 0);
    for (uint32_t slice = 0; slice < 40; slice++)
        send_one(&step, slice);
    for (size_t n = 0; n < 40; n++) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_bare(&p, &call);
    }
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), 32);
    const uint32_t other = 50;
    const uint64_t task = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, &other, 1);
    peer_drain(&p);
    cr_assert_eq(p.calls[p.n_calls - 1].slices[0], 50);
    sg_session_action call = take(&p.calls[p.n_calls - 1]);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, task, SG_OK);
}

/* --- two groups share the lanes -------------------------------------------------------------------------------- */

#define N_FIRST 40u /* slices of group 0; group 1 has the one after them */

static sg_step begin_group(uint32_t group)
{
    const uint64_t task = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, group);
    peer_drain(&p);
    size_t i = 0; /* the other group may have asked for its next one */
    while (p.calls[i].method != SG_SESSION_TICKET ||
           ((const Shardgrad__V1__TicketRequest *)p.calls[i].body)->group != group)
        cr_assert_lt(++i, p.n_calls);
    sg_session_action call = take(&p.calls[i]);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, task, SG_OK);
    return peer_done(&p, task)->step;
}

/* Step 0 of group 0 is handed over whole, and acknowledged. */
static void begin_groups(sg_step *first)
{
    const uint64_t slice_bytes = 1u << 20, n_elems = slice_bytes / sizeof(float);
    const sg_variable two[] = {
        {.name = "d", .rank = 1, .shape = {N_FIRST * n_elems}, .value = memory, .gradient = memory},
        {.name = "g", .rank = 1, .shape = {n_elems}, .value = memory, .gradient = memory, .group = 1}};
    begin_variables(SG_MODE_SYNC, slice_bytes, slice_bytes, two, 2);
    *first = begin_group(0);
    for (uint32_t slice = 0; slice < N_FIRST; slice++) {
        uint64_t task;
        cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, first, 4, &slice, 1, &task, NULL), SG_OK);
        peer_answer_all(&p, SG_SESSION_PUSH);
        peer_expect(&p, task, SG_OK);
    }
}

static size_t n_pulls_of(uint32_t slice)
{
    size_t n = 0;
    for (size_t i = 0; i < p.n_calls; i++)
        n += p.calls[i].method == SG_SESSION_PULL && p.calls[i].slices[0] == slice;
    return n;
}

static void pull_first(void)
{
    for (uint32_t slice = 0; slice < N_FIRST; slice++)
        sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, &slice, 1);
    peer_drain(&p);
}

Test(session_lanes, a_pull_that_others_must_push_for_takes_no_room_from_one_that_can_be_answered)
{
    sg_step first;
    begin_groups(&first);
    pull_first();
    const uint32_t last = N_FIRST;
    sg_session_pull(p.session, p.now_ms, UINT64_MAX, 0, &last, 1);
    peer_drain(&p);
    cr_assert_eq(n_pulls_of(last), 1);
}

Test(session_lanes, a_pull_that_can_be_answered_is_sent_though_those_of_another_group_wait)
{
    sg_step first;
    begin_groups(&first);
    pull_first();
    const sg_step second = begin_group(1);
    send_one(&second, N_FIRST);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_answer_bare(&p, &call);
    cr_assert_eq(n_pulls_of(N_FIRST), 0);
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), 32);
    for (uint32_t slice = 0; slice < N_FIRST && n_pulls_of(N_FIRST) == 0; slice++) {
        peer_advance(&p, PEER_PARK_MS);
        call = peer_take(&p, SG_SESSION_PULL);
        peer_fail(&p, &call, SG_WAITING, "waiting for worker 0");
    }
    cr_assert_eq(n_pulls_of(N_FIRST), 1, "it waits for ever");
    peer_answer_all(&p, SG_SESSION_PULL);
    for (size_t i = 0; i < p.n_dones; i++)
        cr_assert_eq(p.dones[i].status, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), 1);
    cr_assert_eq(sg_session_version(p.session, 1), 1);
}

/* A pull that the ps had to park though it looked as if it could be answered: a joiner's, at a step not made yet. */
Test(session_lanes, who_was_answered_that_it_has_to_wait_gives_its_room_away)
{
    begin_with(SG_MODE_SYNC, 1u << 20, 1u << 20);
    for (uint32_t slice = 0; slice < 4; slice++)
        sg_session_pull(p.session, p.now_ms, UINT64_MAX, 1, &slice, 1);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), 2);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    peer_fail(&p, &call, SG_WAITING, "waiting for worker 0");
    cr_assert_eq(n_pulls_of(2), 1);
    cr_assert_eq(n_pulls_of(0), 0, "it was asked again without a pause");
    peer_advance(&p, 10);
    cr_assert_eq(n_pulls_of(0), 1);
    call = peer_take(&p, SG_SESSION_PULL);
    cr_assert_eq(call.slices[0], 1);
    peer_answer_well(&p, &call, 0);
    cr_assert_eq(n_pulls_of(3), 1);
    peer_answer_all(&p, SG_SESSION_PULL);
    for (size_t i = 0; i < p.n_dones; i++)
        cr_assert_eq(p.dones[i].status, SG_OK);
}

Test(session_lanes, what_is_queued_takes_the_room_of_what_is_cancelled)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    uint64_t tasks[WINDOW + 1];
    for (uint32_t slice = 0; slice <= WINDOW; slice++)
        tasks[slice] = send(&step, &slice, 1);
    cr_assert_null(call_of(WINDOW));
    sg_session_cancel(p.session, p.now_ms, tasks[3]);
    peer_drain(&p);
    cr_assert_not_null(call_of(WINDOW));
}

/* The network may still carry it: an older contribution must not arrive after a newer one. */
Test(session_lanes, a_push_waits_for_the_call_of_one_of_the_same_slice_that_was_cancelled)
{
    begin(SG_MODE_ASYNC);
    uint32_t all[N_SLICES];
    for (uint32_t i = 0; i < N_SLICES; i++)
        all[i] = i;
    const sg_step first = peer_step(&p, 10);
    const uint64_t task = send(&first, all, N_SLICES);
    sg_session_finish(p.session, p.now_ms, &first);
    const sg_step second = peer_step(&p, 17);
    send_one(&second, 1);            /* behind one that is under way */
    send_one(&second, N_SLICES - 1); /* behind one that is queued */
    sg_session_cancel(p.session, p.now_ms, task);
    peer_drain(&p);
    cr_assert_eq(step_of(call_of(1)), 10);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH_PULL), WINDOW + 1);
    cr_assert_eq(step_of(call_of(N_SLICES - 1)), 17, "its last push was never sent");
    sg_session_action call = take(call_of(1));
    peer_fail(&p, &call, SG_CANCELLED, "cancelled");
    cr_assert_not_null(call_of(1), "it waits for ever");
    cr_assert_eq(step_of(call_of(1)), 17);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
}

Test(session_lanes, a_task_that_is_cancelled_leaves_the_queue_in_order)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    uint64_t tasks[N_SLICES];
    for (uint32_t slice = N_SLICES; slice-- > 0;)
        tasks[slice] = send(&step, &slice, 1);
    for (uint32_t slice = 0; slice < N_SLICES - WINDOW; slice += 2)
        sg_session_cancel(p.session, p.now_ms, tasks[slice]);
    peer_drain(&p);
    for (uint32_t next = 1; next < N_SLICES - WINDOW; next += 2) {
        answer_one();
        cr_assert_not_null(call_of(next));
        cr_assert_null(call_of(next - 1));
    }
}

/* Steps that overlap, in pieces, over a network that loses: every slice goes through its steps in their order, one at a
 * time, and all come to their end. */
static void run_random(uint64_t number)
{
    sg_seed seed = {.first = number, .state = number};
    begin(SG_MODE_ASYNC);
    uint64_t newest[N_SLICES] = {0}, last_ticket = 0, begun = 0;
    uint32_t left[N_SLICES], n_left = 0;
    sg_step step = {0};
    uint64_t ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    for (int turn = 0; turn < 200000 && (begun < 12 || n_left > 0 || !sg_session_is_pushed(p.session, &step)); turn++) {
        peer_drain(&p);
        if (ticket != 0 && peer_done(&p, ticket) != NULL) {
            step = peer_done(&p, ticket)->step;
            begun++;
            ticket = 0;
            for (n_left = 0; n_left < N_SLICES; n_left++)
                left[n_left] = n_left;
        } else if (n_left > 0 && sg_seed_below(&seed, 3) == 0) { /* some slices, in any order */
            uint32_t some[N_SLICES];
            size_t n = 0;
            for (uint64_t want = 1 + sg_seed_below(&seed, 6); n < want && n_left > 0; n++) {
                const uint32_t at = (uint32_t)sg_seed_below(&seed, n_left);
                some[n] = left[at];
                left[at] = left[--n_left];
            }
            send(&step, some, n);
        } else if (n_left == 0 && ticket == 0 && begun < 12) {
            sg_session_finish(p.session, p.now_ms, &step);
            ticket = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
        } else if (p.n_calls == 0 || sg_seed_below(&seed, 8) == 0) {
            peer_advance(&p, 1 + sg_seed_below(&seed, 60));
        } else {
            sg_session_action call = take(&p.calls[sg_seed_below(&seed, p.n_calls)]);
            for (size_t k = 0; call.method == SG_SESSION_PUSH_PULL && k < call.n_slices; k++) {
                const uint32_t slice = call.slices[k];
                cr_assert_null(call_of(slice), "seed %llu: slice %u twice", (unsigned long long)number, slice);
                cr_assert(step_of(&call) >= newest[slice], "seed %llu: slice %u goes back", (unsigned long long)number,
                          slice);
                newest[slice] = step_of(&call);
            }
            const uint64_t fate = sg_seed_below(&seed, 8);
            if (fate == 0)
                peer_fail(&p, &call, SG_UNAVAILABLE, "lost");
            else if (fate == 1 && call.method == SG_SESSION_PUSH_PULL)
                peer_answer_bare(&p, &call);
            else
                peer_answer_well(&p, &call, call.method == SG_SESSION_TICKET ? (last_ticket += 3) : 0);
        }
    }
    cr_assert_eq(begun, 12, "seed %llu: only %llu steps", (unsigned long long)number, (unsigned long long)begun);
    cr_assert(sg_session_is_pushed(p.session, &step), "seed %llu", (unsigned long long)number);
    for (size_t i = 0; i < p.n_dones; i++)
        cr_assert_eq(p.dones[i].status, SG_OK, "seed %llu: %s", (unsigned long long)number, p.dones[i].text);
}

Test(session_lanes, steps_that_overlap_keep_the_order_of_every_slice)
{
    for (uint64_t seed = 1; seed <= 60; seed++) {
        run_random(seed);
        peer_deinit(&p);
        p.session = NULL;
    }
}

/* --- many small slices in one message --- */

#define MANY 70000u

Test(session_lanes, the_head_of_a_message_has_room_for_all_its_slices_whatever_message_bytes_is)
{
    const sg_variable wide = {.name = "w", .rank = 1, .shape = {MANY * 16}, .value = memory, .gradient = memory};
    uint64_t task;
    peer_init(&p, SG_MODE_SYNC, 1);
    p.message_bytes = (uint64_t)1 << 27;
    peer_join(&p);
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, &wide, 1, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    size_t n = 0;
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        sg_session_action pull = peer_take(&p, SG_SESSION_PULL);
        uint64_t *steps = sg_xcalloc(pull.n_slices, sizeof *steps);
        uint32_t *slices = sg_xcalloc(pull.n_slices, sizeof *slices);
        for (size_t i = 0; i < pull.n_slices; i++) {
            steps[i] = UINT64_MAX;
            slices[i] = UINT32_MAX;
        }
        Shardgrad__V1__PushRequest push = SHARDGRAD__V1__PUSH_REQUEST__INIT;
        push.slices = slices;
        push.steps = steps;
        push.n_slices = push.n_steps = pull.n_slices;
        cr_expect_lt(shardgrad__v1__push_request__get_packed_size(&push), SG_WIRE_HEAD_BYTES - 4096);
        n += pull.n_slices;
        free(steps);
        free(slices);
        peer_fail(&p, &pull, SG_CANCELLED, "that is all");
    }
    cr_assert_eq(n, MANY);
}
