/* Declaring, initializing, leaving. */
#include "session_fixture.h"

#include <math.h>
#include <string.h>

static peer p;

static void create(void)
{
    peer_init(&p, SG_MODE_SYNC, 2);
    peer_join(&p);
}

static void destroy(void)
{
    peer_deinit(&p);
}

TestSuite(session_join, .init = create, .fini = destroy, .timeout = 20);

static void refuse(const sg_variable *variables, size_t n)
{
    uint64_t task;
    sg_error err = {0};
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, variables, n, &task, &err), SG_INVALID, "%s",
                 err.message);
    cr_assert_neq(err.message[0], '\0');
    peer_drain(&p);
    cr_assert_eq(p.n_calls, 0);
}

Test(session_join, a_bad_list_of_variables_is_refused_before_anything_is_sent)
{
    float memory[4];
    const sg_variable good = {.name = "w", .rank = 1, .shape = {4}, .value = memory, .gradient = memory};
    sg_variable bad[2] = {good, good};
    refuse(bad, 0);
    refuse(bad, 2); /* two of one name */
    char long_name[300];
    memset(long_name, 'x', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    const char *const names[] = {NULL, "", "a\nb", long_name};
    for (size_t i = 0; i < SG_ARRAY_LEN(names); i++) {
        bad[0] = good;
        bad[0].name = names[i];
        refuse(bad, 1);
    }
    bad[0] = good, bad[0].rank = SG_MAX_RANK + 1;
    refuse(bad, 1);
    bad[0] = good, bad[0].shape[0] = 0;
    refuse(bad, 1);
    bad[0] = good, bad[0].rank = 2, bad[0].shape[0] = bad[0].shape[1] = 1ull << 40;
    refuse(bad, 1);
    bad[0] = good, bad[0].value = NULL;
    refuse(bad, 1);
    bad[0] = good, bad[0].gradient = NULL;
    refuse(bad, 1);
    bad[0] = good, bad[0].lr_multiplier = NAN;
    refuse(bad, 1);
    bad[0] = good, bad[0].decay_multiplier = -1;
    refuse(bad, 1);
    bad[0] = good, bad[0].group = 1; /* group 0 is missing */
    refuse(bad, 1);
}

Test(session_join, the_declaration_says_what_the_variables_are)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    const Shardgrad__V1__DeclareRequest *request = (const Shardgrad__V1__DeclareRequest *)call.body;
    cr_assert_eq(request->incarnation, PEER_INCARNATION);
    cr_assert_eq(request->n_variables, 3);
    cr_assert_str_eq(request->variables[0]->name, "a");
    cr_assert_eq(request->variables[0]->n_shape, 2);
    cr_assert_eq(request->variables[0]->lr_multiplier_presence_case, 0);
    cr_assert_neq(request->variables[1]->decay_multiplier_presence_case, 0);
    cr_assert_eq(request->variables[1]->decay_multiplier, 0);
    cr_assert(request->variables[2]->frozen);
    cr_assert(request->variables[1]->average && !request->variables[0]->average);
    cr_assert_eq(request->variables[2]->lr_multiplier, 2);
    peer_answer_well(&p, &call, 0);
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_INVALID);
}

Test(session_join, the_initializer_sends_every_slice_once_in_bounded_messages_and_then_reports)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    Shardgrad__V1__DeclareResponse declared = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    declared.attempt = 3;
    peer_answer(&p, &call, &declared.base);
    const sg_plan *plan = sg_session_plan(p.session);
    uint32_t seen[8] = {0};
    while (peer_count(&p, SG_SESSION_INITIALIZE) > 0) {
        cr_assert_eq(peer_count(&p, SG_SESSION_INITIALIZED), 0);
        call = peer_take(&p, SG_SESSION_INITIALIZE);
        const Shardgrad__V1__InitializeRequest *request = (const Shardgrad__V1__InitializeRequest *)call.body;
        cr_assert_eq(request->attempt, 3);
        uint64_t bytes = 0;
        for (size_t i = 0; i < request->n_slices; i++) {
            cr_assert_eq(plan->slices[request->slices[i]].ps, call.target);
            bytes += plan->slices[request->slices[i]].n_elems * sizeof(float);
            seen[request->slices[i]]++;
        }
        cr_assert_leq(bytes, PEER_MESSAGE_BYTES);
        peer_answer_well(&p, &call, 0);
    }
    cr_assert_eq(plan->n_slices, 5);
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(seen[i], 1);
    cr_assert_null(peer_done(&p, task));
    peer_answer_all(&p, SG_SESSION_INITIALIZED);
    peer_expect(&p, task, SG_OK);
    cr_assert_eq(peer_count(&p, SG_SESSION_PULL), 0, "what was sent need not be pulled");
    cr_assert_eq(sg_session_version(p.session, 0), 0);
}

Test(session_join, the_others_pull_version_0_of_everything)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    uint32_t seen[8] = {0};
    while (peer_count(&p, SG_SESSION_PULL) > 0) {
        sg_session_action call = peer_take(&p, SG_SESSION_PULL);
        const Shardgrad__V1__PullRequest *request = (const Shardgrad__V1__PullRequest *)call.body;
        for (size_t i = 0; i < request->n_slices; i++) {
            cr_assert_eq(request->versions[i], 0);
            seen[request->slices[i]]++;
        }
        peer_answer_well(&p, &call, 0);
    }
    for (uint32_t i = 0; i < 5; i++)
        cr_assert_eq(seen[i], 1);
    peer_expect(&p, task, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), 0);
}

Test(session_join, one_who_declares_when_version_0_is_gone_has_still_declared)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 3, &task, NULL), SG_OK);
    peer_answer_all(&p, SG_SESSION_DECLARE);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    peer_fail(&p, &call, SG_LATE, "version 0 is gone");
    peer_answer_all(&p, SG_SESSION_PULL);
    peer_expect(&p, task, SG_OK);
    cr_assert_eq(sg_session_version(p.session, 0), UINT64_MAX);
}

Test(session_join, a_declaration_that_was_refused_can_be_made_again)
{
    uint64_t task;
    cr_assert_eq(sg_session_declare(p.session, p.now_ms, UINT64_MAX, peer_variables, 2, &task, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_DECLARE);
    peer_fail(&p, &call, SG_MISMATCH, "2 variables, the cluster has 3");
    peer_expect(&p, task, SG_MISMATCH);
    peer_declare(&p);
}

Test(session_join, leave_waits_for_the_pushes_and_says_how_far_they_went)
{
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0);
    peer_answer_all(&p, SG_SESSION_PUSH);
    sg_session_action call = peer_take(&p, SG_SESSION_LEAVE);
    const Shardgrad__V1__LeaveRequest *request = (const Shardgrad__V1__LeaveRequest *)call.body;
    cr_assert_eq(request->n_progress, 1);
    cr_assert_eq(request->progress[0]->group, 0);
    cr_assert_eq(request->progress[0]->pushed, 1);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, leave, SG_OK);
    const size_t n = p.n_calls;
    peer_advance(&p, 20000);
    cr_assert_eq(p.n_calls, n, "one who has left still talks");
}

Test(session_join, a_push_that_nobody_acknowledges_makes_leave_give_up_at_its_deadline)
{
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    peer_drain(&p);
    peer_advance(&p, 2000);
    peer_expect(&p, leave, SG_TIMEOUT);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0);
}

Test(session_join, leave_waits_for_the_calls_of_pushes_that_were_cancelled)
{
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    sg_session_cancel(p.session, p.now_ms, push);
    peer_drain(&p);
    peer_expect(&p, push, SG_CANCELLED);
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    peer_drain(&p);
    cr_assert_gt(peer_count(&p, SG_SESSION_PUSH), 1);
    while (peer_count(&p, SG_SESSION_PUSH) > 0) {
        cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0, "it overtook a push");
        sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
        peer_fail(&p, &call, SG_CANCELLED, "cancelled");
    }
    sg_session_action call = peer_take(&p, SG_SESSION_LEAVE);
    cr_assert_eq(((const Shardgrad__V1__LeaveRequest *)call.body)->progress[0]->pushed, 0);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, leave, SG_OK);
}

Test(session_join, a_goodbye_to_a_coordinator_that_stopped_and_is_gone_is_not_said_again)
{
    peer_declare(&p);
    const sg_step step = peer_step(&p, 0);
    uint64_t push;
    cr_assert_eq(sg_session_push(p.session, p.now_ms, UINT64_MAX, &step, 1, peer_slices, 4, &push, NULL), SG_OK);
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH);
    peer_fail(&p, &call, SG_STOPPED, "ps 0 was told to stop");
    while (peer_count(&p, SG_SESSION_PUSH) > 0) {
        call = peer_take(&p, SG_SESSION_PUSH);
        peer_fail(&p, &call, SG_CANCELLED, "cancelled");
    }
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    call = peer_take(&p, SG_SESSION_LEAVE);
    peer_fail(&p, &call, SG_UNAVAILABLE, "connection refused");
    peer_expect(&p, leave, SG_OK);
}

Test(session_join, leave_before_any_ticket_names_no_group)
{
    const uint64_t leave = sg_session_leave(p.session, p.now_ms, p.now_ms + 2000);
    sg_session_action call = peer_take(&p, SG_SESSION_LEAVE);
    cr_assert_eq(((const Shardgrad__V1__LeaveRequest *)call.body)->n_progress, 0);
    peer_answer_well(&p, &call, 0);
    peer_expect(&p, leave, SG_OK);
}

Test(session_join, one_who_never_joined_leaves_without_a_word)
{
    peer other;
    peer_init(&other, SG_MODE_SYNC, 1);
    const uint64_t leave = sg_session_leave(other.session, other.now_ms, other.now_ms + 2000);
    peer_drain(&other);
    peer_expect(&other, leave, SG_OK);
    cr_assert_eq(other.n_calls, 0);
    peer_deinit(&other);
}
