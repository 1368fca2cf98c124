/* ps 0 is started again, and not all that were there have come back when those that have leave. */
#include <criterion/criterion.h>

#include "tests/server/restored_fixture.h"

/* ps 0 is started again in a job of one worker, which others had joined, before anything was saved. */
static void start_again(rig *r, sg_checkpoint_manifest *manifest)
{
    static const char *const settings[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", "checkpoint.dir=/somewhere",
                                           "workers=1", NULL};
    static uint64_t first_steps[] = {0, 0};
    rig_init(r, settings);
    *manifest = restored_manifest(r);
    manifest->set.iteration = 0;
    manifest->steps = first_steps;
    manifest->members = (sg_workers){0};
    r->tick_ms = r->now_ms += 100000; /* long after whatever the clock began with */
    restored_coordinator(r, manifest);
    rig_failed(rig_register(r, 0), SG_NOT_READY, "begins its generation");
}

static rig_call *hello_of(rig *r, uint64_t generation)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, 0, 7);
    hello.generation = generation;
    return rig_hello_with(r, &hello);
}

static void step_and_leave(rig *r, uint64_t worker)
{
    rig_declare(r, worker);
    rig_granted(rig_ticket(r, worker, 0, 0, 0));
    rig_leave(r, worker, 1);
}

static bool is_running(rig *r)
{
    return rig_status(r)->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
}

static bool is_over_when_the_first_has_left(uint64_t generation_of_hello)
{
    rig r;
    sg_checkpoint_manifest manifest;
    start_again(&r, &manifest);
    rig_register_all(&r);
    step_and_leave(&r, restored_incarnation(hello_of(&r, generation_of_hello)));
    bool is_over = !is_running(&r);
    rig_live(&r, 3 * r.config->lease_ms, (const uint64_t[]){0});
    cr_assert_not(is_running(&r), "nobody is waited for for ever");
    rig_deinit(&r);
    return is_over;
}

Test(coordinator_return, where_one_has_returned_others_get_the_time_to_before_all_have_left)
{
    cr_assert(is_over_when_the_first_has_left(0), "nobody was there before");
    cr_assert_not(is_over_when_the_first_has_left(1));
}

Test(coordinator_return, others_get_that_time_from_when_all_is_loaded)
{
    rig r;
    sg_checkpoint_manifest manifest;
    start_again(&r, &manifest);
    rig_register(&r, 0);
    rig_call *hello = hello_of(&r, 1); /* ps 1 is not there yet */
    rig_pass(&r, 300);
    rig_register_all(&r);
    step_and_leave(&r, restored_incarnation(hello));
    cr_assert(is_running(&r), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_return, a_job_that_waits_for_others_and_loses_a_ps_meanwhile_goes_back_before_it_ends)
{
    rig r;
    sg_checkpoint_manifest manifest;
    start_again(&r, &manifest);
    rig_register_all(&r);
    step_and_leave(&r, restored_incarnation(hello_of(&r, 1)));
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    rig_live(&r, 4 * r.config->lease_ms, (const uint64_t[]){0});
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING, "%s", r.log);
    rig_record(&r, SG_OK, "");
    rig_pass(&r, 300);
    rig_live(&r, 4 * r.config->lease_ms, (const uint64_t[]){0});
    cr_assert_not(is_running(&r), "and then it ends, for nobody else came");
    rig_deinit(&r);
}

Test(coordinator_return, a_hello_is_taken_back_only_when_the_generation_has_begun)
{
    rig r;
    uint64_t worker;
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "workers=1", NULL});
    rig_start(&r, 1, &worker);
    rig_complete(&r, 0);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    rig_hello(&r, 1, 1001);
    rig_leave(&r, worker, 1);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    r.newest = &manifest;
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    Shardgrad__V1__LeaveRequest leave = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    leave.life = 1001;
    rig_failed(rig_leave_with(&r, &leave), SG_NOT_READY, "begins another generation");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING);
    r.record_due = false;
    rig_deinit(&r);
}
