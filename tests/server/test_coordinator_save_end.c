/* The last checkpoint: of a job that ends by itself, and of one that is told to stop. */
#include <criterion/criterion.h>

#include "tests/server/saving_fixture.h"

TestSuite(coordinator_save_end, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const END = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;

Test(coordinator_save_end, the_normal_end_leaves_a_last_one)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    for (uint64_t i = 0; i < 3; i++)
        saving_step(&r, workers, i);
    rig_leave(&r, workers[0], 3);
    rig_leave(&r, workers[1], 3);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    cr_assert_eq(rig_ordered(&r, 0, END, NULL), 0);
    cr_assert_eq(rig_cut(&r)->steps[0], 3);
    cr_assert(rig_cut(&r)->urgent);
    rig_complete(&r, 3);
    cr_assert(sg_workers_has(&r.manifest.members, 1), "those of the last iteration");
    cr_assert_eq(rig_ordered(&r, 0, END, NULL), 1);
    rig_pass(&r, 200);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_save_end, told_to_stop_begun_steps_are_finished_and_cut_before_anybody_is_told)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    saving_critic(&r, workers, 0, 0);
    rig_call *ahead = rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert_eq(rig_granted(ahead)->step->step, 1);
    rig_report(&r, 1, NULL, true);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[1], 0, 1, 1))->step->step, 1, "it has begun");
    saving_critic(&r, workers, 1, 1);
    rig_call *more = rig_ticket(&r, workers[0], 0, 2, 2);
    cr_assert(rig_waits(more));
    cr_assert_eq(rig_n_cuts(&r), 1, "they may be about to leave");
    rig_pass(&r, r.config->shutdown_grace_ms / 8 + 100);
    cr_assert_eq(rig_cut(&r)->mark, 2);
    cr_assert_eq(rig_cut(&r)->steps[0], 2);
    cr_assert(rig_cut(&r)->urgent);
    cr_assert(((const Shardgrad__V1__HeartbeatResponse *)rig_heartbeat(&r, workers[0])->body)->draining);
    rig_report_saved(&r);
    rig_written(&r, SG_OK, "");
    rig_failed(more, SG_STOPPED, "ps 1 (host:1) was told to stop");
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 1);
    rig_deinit(&r);
}

/* Both have pushed iteration 1 in group 0, and ask for its step of group 1 only then. */
Test(coordinator_save_end, told_to_stop_an_iteration_that_was_begun_in_one_group_is_finished_in_the_others)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    saving_critic(&r, workers, 0, 0);
    saving_step(&r, workers, 1);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_call *more = rig_ticket(&r, workers[0], 0, 2, 2);
    rig_pass(&r, r.config->shutdown_grace_ms / 8 + 200);
    cr_assert_eq(rig_n_cuts(&r), 1, "group 1 is about to come");
    cr_assert(rig_waits(more), "no iteration is begun");
    saving_critic(&r, workers, 1, 1);
    rig_pass(&r, 100);
    cr_assert_eq(rig_cut(&r)->mark, 2);
    cr_assert_eq(rig_cut(&r)->steps[0], 2);
    cr_assert_eq(rig_cut(&r)->steps[1], 2);
    rig_deinit(&r);
}

/* Nor is such a group waited for long: there is as much time to write as ever. */
Test(coordinator_save_end, told_to_stop_a_group_that_does_not_come_is_not_waited_for_long)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    const uint64_t grace_ms = r.config->shutdown_grace_ms;
    rig_pass(&r, grace_ms / 4 + 100);
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->mark, 1);
    cr_assert(rig_waits(rig_ticket_for(&r, workers[0], 1, 0, 0, 0)), "it would not be in it");
    rig_pass(&r, grace_ms * 3 / 8 - 300);
    cr_assert_not(rig_logged(&r, "no_checkpoint"), "%s", r.log);
    rig_complete(&r, 1);
    cr_assert_eq(rig_ordered(&r, 0, END, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_save_end, told_to_stop_with_the_workers_what_nobody_pushed_is_not_in_it)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    for (uint64_t i = 0; i < 4; i++)
        saving_step(&r, workers, i);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_leave_begun(&r, workers[0], 3, 3);
    rig_leave_begun(&r, workers[1], 3, 3);
    cr_assert_eq(rig_cut(&r)->mark, 3);
    cr_assert_eq(rig_cut(&r)->steps[0], 3);
    cr_assert_eq(rig_cut(&r)->steps[1], 0);
    rig_complete(&r, 3);
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_save_end, told_to_stop_a_cut_that_does_not_come_in_time_is_logged_and_the_job_ends)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert(rig_logged(&r, "no_checkpoint iteration=1 newest=0 reason=\"waiting for ps 0 (host:0) to write"), "%s",
              r.log);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_save_end, told_to_stop_with_nothing_new_ends_at_once)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    rig_report(&r, 1, NULL, true);
    cr_assert_eq(rig_n_cuts(&r), 1);
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 1);
    rig_deinit(&r);
}

/* Nobody is to lose the last checkpoint because ps 0 did not get to make it. */
Test(coordinator_save_end, told_to_stop_its_own_lateness_takes_no_time_from_the_last_one)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    saving_critic(&r, workers, 0, 0);
    rig_pass(&r, 100);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, 100);
    r.now_ms += 3 * r.config->shutdown_grace_ms;
    r.tick_ms = r.now_ms - r.now_ms % 100;
    rig_pass(&r, 200);
    cr_assert_not(rig_logged(&r, "no_checkpoint"), "%s", r.log);
    rig_complete(&r, 1);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert_not(rig_logged(&r, "no_checkpoint"), "%s", r.log);
    rig_deinit(&r);
}

/* Everybody has left after one step, and its checkpoint is being cut. */
static void leave_after_a_step(rig *r, const char *const settings[])
{
    uint64_t workers[2];
    saving_begin(r, settings, workers);
    saving_step(r, workers, 0);
    rig_leave(r, workers[0], 1);
    rig_leave(r, workers[1], 1);
}

Test(coordinator_save_end, a_ps_that_is_lost_while_the_last_one_is_made_ends_the_job_which_says_that_there_is_none)
{
    for (uint32_t is_silent = 0; is_silent < 2; is_silent++) {
        rig r;
        leave_after_a_step(&r, saving_two_ps);
        cr_assert_eq(rig_cut(&r)->mark, 1);
        for (unsigned second = 0; is_silent && second < 7; second++) {
            rig_register(&r, 0);
            rig_pass(&r, 1000);
        }
        if (!is_silent)
            rig_failed(rig_register_as(&r, 1, 555, "host:1"), SG_STOPPED, "all workers have left");
        cr_assert(rig_logged(&r, "no_checkpoint iteration=1 newest=0 reason=\"ps 1 (host:1) was"), "%s", r.log);
        rig_live(&r, 3 * r.config->lease_ms, NULL);
        cr_assert_eq(r.n_ends, 1);
        cr_assert_eq(r.end_status, SG_OK, "%s", r.end_text);
        rig_deinit(&r);
    }
}

Test(coordinator_save_end, told_to_stop_a_ps_that_is_lost_meanwhile_is_not_waited_for)
{
    rig r;
    uint64_t workers[2];
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_register_as(&r, 1, 555, "host:1");
    rig_failed(rig_heartbeat(&r, workers[0]), SG_STOPPED, "was told to stop");
    rig_failed(rig_heartbeat(&r, workers[1]), SG_STOPPED, "was told to stop");
    cr_assert(rig_logged(&r, "no_checkpoint"), "%s", r.log);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

/* One group, and both workers have the ticket of step 0. */
static void begin_one_group(rig *r, const char *const settings[], uint64_t workers[2])
{
    uint64_t shape[1] = {784};
    rig_init(r, settings);
    rig_register_all(r);
    for (uint32_t i = 0; i < 2; i++) {
        Shardgrad__V1__Variable variable = SHARDGRAD__V1__VARIABLE__INIT;
        variable.name = (char *)"weight";
        variable.shape = shape;
        variable.n_shape = 1;
        workers[i] = rig_join(r, i, 1000 + i);
        rig_declare_list(r, workers[i], (Shardgrad__V1__Variable *[]){&variable}, 1);
    }
    cr_assert_eq(rig_initialized(r, workers[0], 1)->status, SG_OK);
    rig_complete(r, 0);
    for (uint32_t i = 0; i < 2; i++)
        rig_ticket(r, workers[i], 0, 0, 0);
}

Test(coordinator_save_end, who_asked_for_one_gets_the_last_of_the_job)
{
    rig r;
    uint64_t workers[2];
    begin_one_group(&r, saving_two_ps, workers);
    rig_call *before = rig_save(&r, 5);
    for (uint32_t i = 0; i < 2; i++)
        rig_leave_begun(&r, workers[i], 1, 1);
    rig_call *meanwhile = rig_save(&r, 6);
    cr_assert(rig_waits(before));
    cr_assert(rig_waits(meanwhile));
    rig_complete(&r, 1);
    cr_assert_eq(rig_saved_at(before), 1u);
    cr_assert_eq(rig_saved_at(meanwhile), 1u);
    rig_deinit(&r);
}

Test(coordinator_save_end, who_asked_for_one_hears_why_the_last_of_the_job_failed)
{
    rig r;
    uint64_t workers[2];
    begin_one_group(&r, saving_two_ps, workers);
    rig_call *save = rig_save(&r, 5);
    for (uint32_t i = 0; i < 2; i++)
        rig_leave_begun(&r, workers[i], 1, 1);
    rig_report_saved(&r);
    rig_written(&r, SG_EXHAUSTED, "the disk is full");
    rig_failed(save, SG_EXHAUSTED, "the disk is full");
    rig_deinit(&r);
}

/* Its answer may have crossed with the end, or been lost. */
Test(coordinator_save_end, who_asks_again_for_one_that_was_the_last_hears_of_it)
{
    rig r;
    uint64_t workers[2];
    begin_one_group(&r, saving_two_ps, workers);
    rig_call *save = rig_save(&r, 5);
    for (uint32_t i = 0; i < 2; i++)
        rig_leave_begun(&r, workers[i], 1, 1);
    rig_live(&r, r.config->park_ms + 100, NULL);
    cr_assert_eq(save->status, SG_WAITING, "%s", save->text);
    rig_complete(&r, 1);
    cr_assert_eq(rig_saved_at(rig_save(&r, 5)), 1u);
    rig_failed(rig_save(&r, 6), SG_STOPPED, "all workers have left");
    rig_deinit(&r);
}
