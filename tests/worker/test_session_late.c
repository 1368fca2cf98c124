/* Backup workers: others closed a step without this one. */
#include "session_fixture.h"

static peer p;

static void begin(uint64_t backup_workers)
{
    peer_init(&p, SG_MODE_SYNC, 2);
    p.backup_workers = backup_workers;
    peer_join(&p);
    peer_declare(&p);
}

static void tear_down(void)
{
    peer_deinit(&p);
}

TestSuite(session_late, .fini = tear_down, .timeout = 20);

static uint64_t push(const sg_step *step)
{
    uint64_t task;
    cr_assert_eq(sg_session_push_pull(p.session, p.now_ms, UINT64_MAX, step, 4, peer_slices, 4, &task, NULL), SG_OK);
    sg_session_finish(p.session, p.now_ms, step);
    peer_drain(&p);
    return task;
}

static void too_late(void)
{
    sg_session_action call = peer_take(&p, SG_SESSION_PUSH_PULL);
    peer_fail(&p, &call, SG_LATE, "slice 0: step 0 is closed; step 3 collects");
}

Test(session_late, it_drops_its_tickets_gives_its_incarnation_up_and_joins_again)
{
    begin(1);
    const sg_step step = peer_step(&p, 0);
    const uint64_t task = push(&step), next = sg_session_ticket(p.session, p.now_ms, UINT64_MAX, 0);
    peer_drain(&p);
    too_late();
    peer_expect(&p, task, SG_LATE);
    peer_expect(&p, next, SG_LATE);
    cr_assert(sg_session_is_back(p.session));
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    const Shardgrad__V1__HelloRequest *request = (const Shardgrad__V1__HelloRequest *)hello.body;
    cr_assert_eq(request->late, PEER_INCARNATION);
    cr_assert_eq(request->generation, 0, "its generation goes on");
    cr_assert_eq(request->n_progress, 1);
    cr_assert_eq(request->progress[0]->begun, 1, "of step 0 it pushed, of the next it has no ticket yet");
    peer_answer_well(&p, &hello, 0);
    const uint64_t again = sg_session_resume(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_DECLARE), 1);
    cr_assert_null(peer_done(&p, again));
}

Test(session_late, it_keeps_its_lease_until_hello_is_answered)
{
    begin(1);
    const sg_step step = peer_step(&p, 0);
    push(&step);
    too_late();
    peer_advance(&p, PEER_LEASE_MS / 3 + 10);
    sg_session_action heartbeat = peer_take(&p, SG_SESSION_HEARTBEAT);
    cr_assert_eq(((const Shardgrad__V1__HeartbeatRequest *)heartbeat.body)->incarnation, PEER_INCARNATION);
    peer_fail(&p, &heartbeat, SG_FENCED, "not known here");
    cr_assert_eq(sg_session_failed(p.session, NULL), SG_OK, "it was given up, and may be unknown by now");
}

Test(session_late, one_that_leaves_says_goodbye_when_it_has_joined_again)
{
    begin(1);
    const sg_step step = peer_step(&p, 0);
    push(&step);
    too_late();
    sg_session_action hello = peer_take(&p, SG_SESSION_HELLO);
    const uint64_t task = sg_session_leave(p.session, p.now_ms, UINT64_MAX);
    peer_drain(&p);
    cr_assert_eq(peer_count(&p, SG_SESSION_LEAVE), 0, "the old one is given up, the new one not known yet");
    peer_answer_well(&p, &hello, 0);
    too_late(); /* the other ps says so, too: its push was under way */
    sg_session_action leave = peer_take(&p, SG_SESSION_LEAVE);
    peer_answer_well(&p, &leave, 0);
    peer_expect(&p, task, SG_OK);
}

Test(session_late, without_backup_workers_a_version_that_is_gone_ends_its_op_alone)
{
    begin(0);
    const uint64_t task = sg_session_pull(p.session, p.now_ms, UINT64_MAX, 5, peer_slices, 1);
    peer_drain(&p);
    sg_session_action call = peer_take(&p, SG_SESSION_PULL);
    peer_fail(&p, &call, SG_LATE, "version 5 is gone");
    peer_expect(&p, task, SG_LATE);
    cr_assert_not(sg_session_is_back(p.session));
}
