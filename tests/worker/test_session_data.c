/* A push that brings values back: what its two kinds of answer mean, and what its repeats are. */
#include <stdlib.h>
#include <string.h>

#include "session_fixture.h"

static peer p;

static void destroy(void)
{
    if (p.session != NULL)
        peer_deinit(&p);
}

TestSuite(session_data, .fini = destroy, .timeout = 20);

static void begin(sg_mode mode)
{
    peer_init(&p, mode, 2);
    peer_join(&p);
    peer_declare(&p);
}

static uint64_t push_pull(const sg_step *step, const uint32_t *slices, size_t n)
{
    uint64_t task;
    sg_error err;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, step, 4, slices, n, &task, &err), SG_OK, "%s",
                 err.message);
    peer_drain(&p);
    return task;
}

Test(session_data, an_answer_with_versions_settles_push_and_pull)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    const uint64_t task = push_pull(&step, peer_slices, 4);
    cr_assert_gt(peer_count(&p, SG_SESSION_PUSH_PULL), 1);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_answer_well(&p, &call, 0);
    cr_assert_null(peer_done(&p, task));
    cr_assert_not(sg_session_is_pushed(p.session, &step));
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_expect(&p, task, SG_OK);
    cr_assert(sg_session_is_pushed(p.session, &step));
    cr_assert_eq(sg_session_version(p.session, 0), 1);
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL) + peer_count(&p, SG_SESSION_PUSH), 0);
}

Test(session_data, an_answer_without_versions_is_an_acknowledgement_and_the_values_are_pulled)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    const uint64_t task = push_pull(&step, peer_slices, 4);
    const size_t n = peer_count(&p, SG_SESSION_PUSH_PULL);
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_bare(&p, &call);
    }
    cr_assert(sg_session_is_pushed(p.session, &step));
    cr_assert_null(peer_done(&p, task));
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), n);
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PULL);
        const Shardgrad__V1__PullRequest *request = (const Shardgrad__V1__PullRequest *)call.body;
        cr_assert_eq(call.task, task);
        for (size_t i = 0; i < request->n_versions; i++)
            cr_assert_eq(request->versions[i], 1);
        peer_answer_well(&p, &call, 0);
    }
    peer_expect(&p, task, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), 1);
}

Test(session_data, async_any_version_is_an_answer_and_a_bare_one_pulls_the_newest)
{
    begin(SG_MODE_ASYNC);
    const sg_step step = peer_step(&p, 40);
    const uint64_t task = push_pull(&step, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    uint64_t versions[] = {3, 9, 9, 9};
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    reply.versions = versions;
    reply.n_versions = ((const Shardgrad__V1__PushRequest *)call.body)->n_slices;
    const uint32_t slice = ((const Shardgrad__V1__PushRequest *)call.body)->slices[0];
    peer_answer(&p, &call, &reply.base);
    cr_assert_eq(sg_session_slice_version(p.session, slice), 3);
    while (peer_count(&p, SG_SESSION_PUSH_PULL) > 0) {
        call = peer_take(&p, SG_SESSION_PUSH_PULL);
        peer_answer_bare(&p, &call);
    }
    call = peer_take(&p, SG_SESSION_PULL);
    cr_assert_eq(((const Shardgrad__V1__PullRequest *)call.body)->versions[0], 0);
    peer_answer_well(&p, &call, 0);
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
}

Test(session_data, versions_that_were_not_asked_for_are_an_error)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    const uint64_t task = push_pull(&step, peer_slices, 4);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    uint64_t versions[] = {2, 2, 2, 2};
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    reply.versions = versions;
    reply.n_versions = ((const Shardgrad__V1__PushRequest *)call.body)->n_slices;
    peer_answer(&p, &call, &reply.base);
    peer_expect(&p, task, SG_INTERNAL);
}

Test(session_data, a_repeat_is_the_same_message)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    push_pull(&step, peer_slices, 2);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    size_t n_bytes = protobuf_c_message_get_packed_size(call.body);
    uint8_t *first = sg_xcalloc(n_bytes, 1), *again = sg_xcalloc(n_bytes, 1);
    protobuf_c_message_pack(call.body, first);
    const uint32_t target = call.target;
    peer_fail(&p, &call, SG_UNAVAILABLE, "lost");
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_advance(&p, 60);
    call = peer_take(&p, SG_SESSION_PUSH_PULL);
    cr_assert_eq(call.target, target);
    cr_assert_eq(protobuf_c_message_get_packed_size(call.body), n_bytes);
    protobuf_c_message_pack(call.body, again);
    cr_assert_eq(memcmp(first, again, n_bytes), 0);
    free(first);
    free(again);
    peer_answer_well(&p, &call, 0);
}

Test(session_data, what_holds_for_a_push_holds_for_it)
{
    begin(SG_MODE_SYNC);
    const sg_step step = peer_step(&p, 0);
    push_pull(&step, peer_slices, 2);
    uint64_t task;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, &step, 4, peer_slices, 1, &task, NULL),
                 SG_INVALID, "one slice twice at a step");
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0, "it left with a push under way");
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    uint32_t bad[] = {0};
    Shardgrad__V1__PushPullResponse reply = SHARDGRAD__V1__PUSH_PULL_RESPONSE__INIT;
    reply.non_finite = bad;
    reply.n_non_finite = 1;
    peer_answer(&p, &call, &reply.base);
    peer_answer_all(&p, SG_SESSION_PUSH_PULL);
    peer_answer_all(&p, SG_SESSION_LEAVE);
    peer_expect(&p, leave, SG_OK);
    sg_session_facts facts;
    sg_session_facts_get(p.session, &facts);
    cr_assert_eq(facts.non_finite, 1);
}
