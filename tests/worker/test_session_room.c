/* A ps that has no room for more gradients: what is sent again, and what goes first. */
#include <string.h>

#include "session_fixture.h"

#define N_SLICES 64u

static peer p;
static float memory[1]; /* a session looks only whether there is one */

static void destroy(void)
{
    if (p.session != NULL)
        peer_deinit(&p);
}

TestSuite(session_room, .fini = destroy, .timeout = 60);

static sg_step begin_mode(sg_mode mode)
{
    const sg_variable wide = {.name = "w",
                              .rank = 1,
                              .shape = {N_SLICES * PEER_SLICE_BYTES / sizeof(float)},
                              .value = memory,
                              .gradient = memory};
    uint64_t task;
    peer_init_connections(&p, mode, 1, 1);
    peer_join(&p);
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, &wide, 1, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
    return peer_step(&p, 0);
}

static sg_step begin(void)
{
    return begin_mode(SG_MODE_SYNC);
}

static uint64_t push(const sg_step *step, uint32_t slice)
{
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, step, 4, &slice, 1, &task, &err), SG_OK, "%s",
                 err.message);
    peer_drain(&p);
    return task;
}

/* The oldest push is answered so. */
static uint32_t refuse(uint32_t focus)
{
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    uint32_t slice = call.slices[0];
    Shardgrad__V1__PushResponse response = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    response.refused = &slice;
    response.n_refused = 1;
    response.focus = focus;
    peer_answer(&p, &call, &response.base);
    return slice;
}

static uint32_t let_in(void)
{
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    const uint32_t slice = call.slices[0];
    Shardgrad__V1__PushResponse response = SHARDGRAD__V1__PUSH_RESPONSE__INIT;
    peer_answer(&p, &call, &response.base);
    return slice;
}

Test(session_room, a_push_that_was_refused_is_sent_again_until_it_is_let_in)
{
    const sg_step step = begin();
    const uint64_t task = push(&step, 5);
    uint32_t slice;
    for (int i = 0; i < 10; i++) {
        refuse(0);
        cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 0);
        cr_assert_null(peer_done(&p, task));
        cr_assert_not_null(strstr(sg_session_waiting_for(p.session, task), "all wait for slice 0"));
        peer_advance(&p, 200);
        cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 1);
    }
    cr_assert(sg_session_lacks(p.session, task, &slice));
    cr_assert_eq(slice, 0);
    cr_assert_eq(let_in(), 5);
    peer_expect(&p, task, SG_OK);
    cr_assert_not(sg_session_lacks(p.session, task, &slice));
}

/* In async the next step may begin while a push of this one is still refused. */
Test(session_room, a_slice_that_was_pushed_at_a_later_step_is_not_lacked)
{
    const sg_step step = begin_mode(SG_MODE_ASYNC);
    const uint64_t first = push(&step, 0), refused = push(&step, 5);
    cr_assert_eq(let_in(), 0);
    peer_expect(&p, first, SG_OK);
    cr_assert_eq(refuse(0), 5);
    uint32_t slice;
    cr_assert_not(sg_session_lacks(p.session, refused, &slice), "it was handed over");
    for (uint32_t i = 1; i < N_SLICES; i++)
        if (i != 5)
            push(&step, i);
    sg_session_finish(p.session, p.now_ms, &step);
    const sg_step next = peer_step(&p, 1);
    push(&next, 0);
    cr_assert_not(sg_session_lacks(p.session, refused, &slice), "and once more, at the next step");
}

Test(session_room, the_slice_that_all_wait_for_goes_next_and_others_rest)
{
    const sg_step step = begin();
    for (uint32_t slice = N_SLICES; slice-- > 1;)
        push(&step, slice);
    const size_t n_under_way = peer_count(&p, SG_SESSION_PUSH);
    cr_assert_lt(n_under_way, N_SLICES - 10);
    for (size_t i = 0; i < n_under_way; i++)
        refuse(7);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 1, "only the one of slice 7, which was far behind, is sent");
    cr_assert_eq(let_in(), 7);
    cr_assert_gt(peer_count(&p, SG_SESSION_PUSH), 1, "there may be room again");
    while (peer_count(&p, SG_SESSION_PUSH) > 0)
        refuse(0);
    uint32_t slice;
    const uint64_t last = push(&step, 0);
    cr_assert_eq(peer_count(&p, SG_SESSION_PUSH), 0, "it has its turn when the ps was asked again");
    peer_advance(&p, 400);
    cr_assert_not(sg_session_lacks(p.session, last, &slice));
    bool sent[N_SLICES] = {false};
    sent[7] = true;
    for (size_t i = 0; i < 1000 && !sg_session_is_pushed(p.session, &step); i++) {
        if (peer_count(&p, SG_SESSION_PUSH) > 0)
            sent[let_in()] = true;
        else
            peer_advance(&p, 10);
    }
    for (uint32_t i = 0; i < N_SLICES; i++)
        cr_assert(sent[i], "slice %u", i);
}

Test(session_room, who_leaves_gives_up_what_waits_for_a_slice_that_it_does_not_push)
{
    const sg_step step = begin();
    const uint64_t task = push(&step, 5), other = push(&step, 6);
    refuse(0);
    refuse(0);
    const uint64_t left = sg_session_leave(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    peer_expect(&p, task, SG_CANCELLED);
    peer_expect(&p, other, SG_CANCELLED);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 1);
    peer_answer_all(&p, SG_SESSION_LEAVE);
    peer_expect(&p, left, SG_OK);
}
