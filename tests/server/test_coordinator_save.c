/* Checkpoints: where one is cut, when it is complete, and what happens when it is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_save, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const END = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;

static const char *const two_ps[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", NULL};
static const char *const every_4[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=4", NULL};
static const char *const async_4[] = {"checkpoint.dir=/c", "checkpoint.every=4", "update.mode=async", NULL};

/* Started, with set 0 complete. */
static void begin(rig *r, const char *const settings[], uint64_t workers[2])
{
    rig_init(r, settings);
    rig_start(r, 2, workers);
    rig_complete(r, 0);
}

/* Both workers ask for this step of group 0, having finished all before; returns its mark. */
static uint64_t step(rig *r, const uint64_t workers[2], uint64_t number)
{
    rig_call *first = rig_ticket(r, workers[0], 0, number, number),
             *second = rig_ticket(r, workers[1], 0, number, number);
    cr_assert_eq(rig_granted(first)->step->step, number);
    cr_assert_eq(rig_granted(second)->step->checkpoint_mark, rig_granted(first)->step->checkpoint_mark);
    return rig_granted(first)->step->checkpoint_mark;
}

/* This step of group 1, of this iteration. */
static uint64_t critic(rig *r, const uint64_t workers[2], uint64_t number, uint64_t iteration)
{
    rig_call *first = rig_ticket_for(r, workers[0], 1, number, number, iteration);
    rig_granted(rig_ticket_for(r, workers[1], 1, number, number, iteration));
    return rig_granted(first)->step->checkpoint_mark;
}

Test(coordinator_save, the_initial_values_are_safe_before_the_first_ticket)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0), *second = rig_ticket(&r, workers[1], 0, 0, 0);
    const Shardgrad__V1__Cut *cut = rig_cut(&r);
    cr_assert_eq(cut->mark, 0);
    cr_assert_eq(cut->n_steps, 2);
    cr_assert_eq(cut->steps[0], 0);
    cr_assert(cut->urgent, "training waits for it");
    cr_assert(rig_waits(first));
    rig_report_saved(&r);
    cr_assert(rig_waits(first), "the manifest is not written");
    cr_assert_not_null(strstr(rig_status(&r)->waiting_for, "waiting for ps 0 to complete checkpoint 0"), "%s",
                       rig_status(&r)->waiting_for);
    cr_assert_eq(r.manifest.n_parts, 2);
    cr_assert_eq(r.manifest.parts[1].header_crc32c, 8);
    cr_assert_eq(r.manifest.n_groups, 2);
    cr_assert_str_eq(r.manifest.mode, "sync");
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_granted(first)->step->checkpoint_mark, 0);
    rig_granted(second);
    cr_assert(rig_logged(&r, "checkpoint iteration=0 bytes=201"));
    cr_assert(rig_status(&r)->checkpoint->complete);
    rig_deinit(&r);
}

Test(coordinator_save, without_a_folder_nothing_is_cut_and_none_can_be_asked_for)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    cr_assert_eq(step(&r, workers, 0), 0);
    cr_assert_eq(rig_n_cuts(&r), 0);
    cr_assert_null(rig_status(&r)->checkpoint);
    rig_failed(rig_save(&r, 1), SG_CONFIG, "set checkpoint.dir");
    rig_deinit(&r);
}

Test(coordinator_save, a_folder_that_cannot_be_used_ends_the_job_before_it_trains)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *ticket = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_report_saved(&r);
    rig_written(&r, SG_EXHAUSTED, "/c/step-0: no space left on device");
    rig_failed(ticket, SG_EXHAUSTED, "no space left on device; see to checkpoint.dir");
    rig_deinit(&r);
}

Test(coordinator_save, every_so_many_iterations_a_cut_follows_the_first_step_beyond_of_every_group)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(step(&r, workers, i), 0, "step %lu", i);
    cr_assert_eq(critic(&r, workers, 0, 3), 0);
    cr_assert_eq(step(&r, workers, 4), 4);
    cr_assert_eq(step(&r, workers, 5), 4);
    cr_assert_eq(rig_n_cuts(&r), 1, "group 1 is not beyond the mark");
    cr_assert_eq(critic(&r, workers, 1, 5), 4);
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    cr_assert_eq(rig_cut(&r)->steps[0], 4);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    cr_assert_not(rig_cut(&r)->urgent, "the steps that overlap it come first");
    for (uint64_t i = 6; i < 10; i++)
        cr_assert_eq(step(&r, workers, i), 4, "one at a time");
    rig_complete(&r, 4);
    cr_assert(sg_workers_has(&r.manifest.members, 0) && sg_workers_has(&r.manifest.members, 1));
    cr_assert_eq(step(&r, workers, 10), 4);
    cr_assert_eq(step(&r, workers, 11), 4);
    cr_assert_eq(step(&r, workers, 12), 12, "8 was missed");
    rig_deinit(&r);
}

Test(coordinator_save, a_group_that_is_not_stepped_any_more_holds_up_no_checkpoint)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    cr_assert_eq(critic(&r, workers, 0, 0), 0);
    uint64_t i = 0;
    for (; i < 20; i++)
        step(&r, workers, i);
    cr_assert_eq(rig_n_cuts(&r), 1);
    step(&r, workers, i);
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->steps[0], 4);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    cr_assert_eq(critic(&r, workers, 1, 20), 4, "the first that is not in it says so");
    rig_deinit(&r);
}

Test(coordinator_save, save_cuts_at_the_next_iteration_and_answers_when_it_is_complete)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    rig_call *at_once = rig_save(&r, 4);
    cr_assert_eq(at_once->status, SG_OK, "nothing has happened since");
    cr_assert_eq(rig_saved_at(at_once), 0);
    step(&r, workers, 0);
    step(&r, workers, 1);
    critic(&r, workers, 0, 0);
    rig_call *save = rig_save(&r, 5);
    cr_assert(rig_waits(save));
    cr_assert_eq(rig_n_cuts(&r), 1);
    cr_assert_eq(step(&r, workers, 2), 2);
    critic(&r, workers, 1, 2);
    cr_assert(rig_cut(&r)->urgent, "somebody waits for it");
    rig_call *repeat = rig_save(&r, 5);
    rig_complete(&r, 2);
    cr_assert_eq(save->status, SG_OK, "%s", save->text);
    cr_assert_eq(rig_saved_at(save), 2);
    cr_assert_eq(repeat->status, SG_OK);
    rig_call *later = rig_save(&r, 5);
    cr_assert_eq(rig_saved_at(later), 2);
    cr_assert_eq(rig_n_cuts(&r), 2, "a repeat makes no other");
    rig_deinit(&r);
}

Test(coordinator_save, save_while_one_is_being_written_gets_the_next)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        step(&r, workers, i);
    critic(&r, workers, 0, 4);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    rig_call *save = rig_save(&r, 9);
    cr_assert_not(rig_cut(&r)->urgent);
    rig_complete(&r, 4);
    cr_assert(rig_waits(save));
    cr_assert_eq(step(&r, workers, 5), 5);
    critic(&r, workers, 1, 5);
    cr_assert(rig_cut(&r)->urgent);
    rig_complete(&r, 5);
    cr_assert_eq(rig_saved_at(save), 5);
    rig_deinit(&r);
}

/* Of a job that lingers: everybody did one step and left. */
static void linger_after_a_step(rig *r)
{
    uint64_t workers[2] = {0};
    rig_init(r, (const char *const[]){"checkpoint.dir=/c", "linger=true", NULL});
    rig_start(r, 2, workers);
    rig_complete(r, 0);
    step(r, workers, 0);
    rig_leave(r, workers[0], 1);
    rig_leave(r, workers[1], 1);
}

Test(coordinator_save, whoever_comes_to_wait_for_one_that_is_written_in_peace_has_it_hurried_once)
{
    static Shardgrad__V1__OrderRequest__OrderCase const HURRY = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HURRY;
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        step(&r, workers, i);
    critic(&r, workers, 0, 4);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    cr_assert_not(rig_cut(&r)->urgent);
    cr_assert_eq(rig_ordered(&r, 0, HURRY, NULL), 0);
    rig_save(&r, 1);
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, HURRY, &order), 1);
        cr_assert_eq(order->hurry->number, rig_cut(&r)->number);
    }
    rig_save(&r, 2);
    cr_assert_eq(rig_ordered(&r, 0, HURRY, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_save, save_with_nobody_training_takes_what_there_is)
{
    rig r;
    linger_after_a_step(&r);
    cr_assert_eq(rig_n_cuts(&r), 1);
    rig_call *save = rig_save(&r, 3);
    cr_assert_eq(rig_cut(&r)->mark, 1);
    cr_assert_eq(rig_cut(&r)->steps[0], 1);
    cr_assert_eq(rig_cut(&r)->steps[1], 0);
    rig_complete(&r, 1);
    cr_assert_eq(save->status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_save, save_while_one_is_being_written_gets_that_one_if_nothing_is_trained_meanwhile)
{
    rig r;
    linger_after_a_step(&r);
    rig_call *first = rig_save(&r, 3), *second = rig_save(&r, 4);
    cr_assert(rig_waits(second));
    rig_complete(&r, 1);
    cr_assert_eq(rig_saved_at(first), 1);
    cr_assert_eq(rig_saved_at(second), 1);
    cr_assert_eq(rig_n_cuts(&r), 2, "no other was made");
    rig_deinit(&r);
}

Test(coordinator_save, what_one_ps_cannot_write_fails_and_training_goes_on_to_the_next)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        step(&r, workers, i);
    critic(&r, workers, 0, 4);
    rig_call *save = rig_save(&r, 9);
    shardgrad__v1__save_report__init(&r.saved[0]);
    r.saved[0].generation = 1;
    r.saved[0].number = rig_cut(&r)->number;
    r.saved[0].status = SG_EXHAUSTED;
    r.saved[0].message = (char *)"/c/step-4/ps-0: no space left on device";
    rig_register_all(&r);
    cr_assert_not(rig_logged(&r, "checkpoint_failed"), "ps 1 has not reported");
    r.saved[1] = r.saved[0];
    r.saved[1].status = 0;
    rig_register_all(&r);
    cr_assert(rig_logged(&r, "checkpoint_failed iteration=4 status=EXHAUSTED reason=\"ps 0 (host:0): /c/step-4/ps-0"));
    cr_assert_eq(r.n_manifests, 1);
    const Shardgrad__V1__CheckpointStatus *status = rig_status(&r)->checkpoint;
    cr_assert(status->complete);
    cr_assert_eq(status->iteration, 0);
    cr_assert_not_null(strstr(status->failure, "no space left"));
    cr_assert(rig_waits(save), "it was asked for after the one that failed had begun");
    cr_assert_eq(step(&r, workers, 5), 5);
    critic(&r, workers, 1, 5);
    rig_complete(&r, 5);
    cr_assert_str_eq(rig_status(&r)->checkpoint->failure, "");
    cr_assert_eq(save->status, SG_OK);
    rig_deinit(&r);
}

/* Both ps report that they could not write their part of the newest cut. */
static void report_full(rig *r)
{
    for (uint32_t ps = 0; ps < 2; ps++) {
        shardgrad__v1__save_report__init(&r->saved[ps]);
        r->saved[ps].generation = 1;
        r->saved[ps].number = rig_cut(r)->number;
        r->saved[ps].status = SG_EXHAUSTED;
        r->saved[ps].message = (char *)"no space left on device";
    }
    rig_register_all(r);
}

/* Workers 2 and 3 take over, one after the other. Slices keep nothing when they meet a mark that they have met. */
Test(coordinator_save, what_failed_is_cut_again_at_the_same_iteration_with_another_mark)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    for (uint64_t i = 0; i < 4; i++)
        step(&r, workers, i);
    uint64_t third = rig_join(&r, 2, 1002), fourth = rig_join(&r, 3, 1003);
    rig_declare(&r, third);
    rig_declare(&r, fourth);
    rig_leave_begun(&r, workers[0], 4, 4);
    rig_leave_begun(&r, workers[1], 4, 4);
    uint64_t number = rig_cut(&r)->number, mark = rig_cut(&r)->ticket_mark;
    cr_assert_eq(rig_cut(&r)->mark, 4, "%lu", rig_cut(&r)->mark);
    report_full(&r);
    cr_assert_eq(rig_granted(rig_ticket(&r, third, 0, 0, 0))->step->checkpoint_mark, mark);
    rig_leave_begun(&r, third, 4, 4);
    cr_assert_gt(rig_cut(&r)->number, number, "nobody is left to ask for the step at which it is due");
    cr_assert_eq(rig_cut(&r)->mark, 4, "%lu", rig_cut(&r)->mark);
    cr_assert_gt(rig_cut(&r)->ticket_mark, mark);
    cr_assert_eq(rig_granted(rig_ticket(&r, fourth, 0, 0, 0))->step->checkpoint_mark, rig_cut(&r)->ticket_mark);
    cr_assert_not_null(strstr(rig_status(&r)->checkpoint->failure, "no space left"));
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_complete(&r, 4);
    cr_assert(sg_workers_has(&r.manifest.members, 3), "who is to go on from it");
    cr_assert_eq(sg_workers_count(&r.manifest.members), 1, "and none of those that had left");
    rig_deinit(&r);
}

Test(coordinator_save, ps_that_do_not_share_a_folder_are_found_out)
{
    rig r;
    rig_init(&r, two_ps);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    r.silent[0] = r.silent[1] = false;
    for (uint32_t ps = 0; ps < 2; ps++) {
        shardgrad__v1__save_report__init(&r.saved[ps]);
        r.saved[ps].generation = 1;
        r.saved[ps].number = rig_cut(&r)->number;
        r.saved[ps].folder = 42 + ps;
    }
    rig_register_all(&r);
    cr_assert(rig_logged(&r, "ps 1 (host:1) sees another folder"));
    rig_deinit(&r);
}

Test(coordinator_save, a_report_of_an_earlier_one_is_not_taken_for_this_one)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
    critic(&r, workers, 0, 0);
    rig_save(&r, 3);
    step(&r, workers, 1);
    critic(&r, workers, 1, 1);
    cr_assert_eq(rig_n_cuts(&r), 2);
    rig_register_all(&r); /* they still say how number 1 went */
    cr_assert_eq(r.n_manifests, 1);
    rig_complete(&r, 1);
    rig_deinit(&r);
}

Test(coordinator_save, the_normal_end_leaves_a_last_one)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    for (uint64_t i = 0; i < 3; i++)
        step(&r, workers, i);
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

Test(coordinator_save, told_to_stop_begun_steps_are_finished_and_cut_before_anybody_is_told)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
    rig_call *ahead = rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert_eq(rig_granted(ahead)->step->step, 1);
    rig_report(&r, 1, NULL, true);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[1], 0, 1, 1))->step->step, 1, "it has begun");
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

Test(coordinator_save, told_to_stop_with_the_workers_what_nobody_pushed_is_not_in_it)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    for (uint64_t i = 0; i < 4; i++)
        step(&r, workers, i);
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

Test(coordinator_save, told_to_stop_a_cut_that_does_not_come_in_time_is_logged_and_the_job_ends)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert(rig_logged(&r, "no_checkpoint iteration=1 newest=0 reason=\"waiting for ps 0 (host:0) to write"), "%s",
              r.log);
    rig_pass(&r, r.config->shutdown_grace_ms);
    cr_assert_eq(r.n_ends, 1);
    cr_assert_eq(r.end_status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_save, told_to_stop_with_nothing_new_ends_at_once)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    rig_report(&r, 1, NULL, true);
    cr_assert_eq(rig_n_cuts(&r), 1);
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_save, async_it_is_cut_when_so_many_tickets_were_handed_out)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, async_4, workers);
    cr_assert_eq(rig_cut(&r)->n_steps, 0);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_granted(first);
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    cr_assert_eq(rig_n_cuts(&r), 1);
    rig_granted(rig_ticket(&r, workers[1], 0, 1, 1));
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    rig_complete(&r, 4);
    cr_assert_eq(r.manifest.steps[0], 4);
    rig_deinit(&r);
}

/* Everybody has left after one step, and its checkpoint is being cut. */
static void leave_after_a_step(rig *r, const char *const settings[])
{
    uint64_t workers[2];
    begin(r, settings, workers);
    step(r, workers, 0);
    rig_leave(r, workers[0], 1);
    rig_leave(r, workers[1], 1);
}

Test(coordinator_save, a_ps_that_is_lost_while_the_last_one_is_made_ends_the_job_which_says_that_there_is_none)
{
    for (uint32_t is_silent = 0; is_silent < 2; is_silent++) {
        rig r;
        leave_after_a_step(&r, two_ps);
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

Test(coordinator_save, told_to_stop_a_ps_that_is_lost_meanwhile_is_not_waited_for)
{
    rig r;
    uint64_t workers[2];
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
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

/* --- what is set and not trained with --------------------------------------------------------------------------- */

static void expect_stored(const rig *r, uint64_t iteration, const char *rate)
{
    cr_assert_eq(r->manifest.set.iteration, iteration);
    cr_assert_eq(r->manifest.n_changes, 1);
    cr_assert_str_eq(r->manifest.changes[0].key, "update.learning_rate");
    cr_assert_str_eq(r->manifest.changes[0].value, rate);
    cr_assert_float_eq(r->manifest.hyper.learning_rate, strtod(rate, NULL), 1e-9);
    cr_assert_eq(r->manifest.n_parts, 2, "those that were written");
    cr_assert_eq(r->manifest.parts[1].header_crc32c, 8);
}

Test(coordinator_save, what_was_set_since_is_saved_without_another_cut)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    const uint32_t before = rig_n_cuts(&r);
    rig_set(&r, 7, "update.learning_rate", "0.5");
    rig_call *save = rig_save(&r, 1);
    cr_assert(rig_waits(save));
    cr_assert_eq(rig_n_cuts(&r), before, "its parts stay");
    expect_stored(&r, 0, "0.5");
    const unsigned n_manifests = r.n_manifests;
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_saved_at(save), 0);
    cr_assert_eq(rig_saved_at(rig_save(&r, 2)), 0);
    cr_assert_eq(r.n_manifests, n_manifests, "it is in it");
    for (uint64_t i = 0; i < 2; i++)
        step(&r, workers, i);
    rig_call *next = rig_save(&r, 3);
    step(&r, workers, 2);
    critic(&r, workers, 0, 2);
    rig_complete(&r, 2);
    expect_stored(&r, 2, "0.5");
    cr_assert_eq(r.manifest.steps[0], 2);
    cr_assert_eq(rig_saved_at(next), 2);
    rig_deinit(&r);
}

Test(coordinator_save, what_was_set_since_and_could_not_be_written_is_written_by_the_next)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, every_4, workers);
    rig_set(&r, 7, "update.learning_rate", "0.5");
    rig_call *save = rig_save(&r, 1);
    rig_written(&r, SG_EXHAUSTED, "the disk is full");
    rig_failed(save, SG_EXHAUSTED, "the disk is full");
    rig_set(&r, 8, "update.learning_rate", "0.25");
    save = rig_save(&r, 2);
    expect_stored(&r, 0, "0.25");
    rig_set(&r, 9, "update.learning_rate", "0.125"); /* while it is being written */
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_saved_at(save), 0);
    save = rig_save(&r, 3);
    expect_stored(&r, 0, "0.125");
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_saved_at(save), 0);
    rig_deinit(&r);
}

Test(coordinator_save, told_to_stop_what_was_set_since_is_saved)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    const uint32_t before = rig_n_cuts(&r);
    rig_set(&r, 7, "update.learning_rate", "0.5");
    rig_report(&r, 1, NULL, true);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING);
    expect_stored(&r, 0, "0.5");
    cr_assert_eq(rig_n_cuts(&r), before);
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 0);
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 1, END, NULL), 1);
    cr_assert_not(rig_logged(&r, "no_checkpoint"));
    rig_deinit(&r);
}

Test(coordinator_save, what_was_set_after_the_last_worker_left_is_saved)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r,
          (const char *const[]){"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=4", "linger=true", NULL},
          workers);
    for (uint64_t i = 0; i < 3; i++)
        step(&r, workers, i);
    rig_leave(&r, workers[0], 3);
    rig_leave(&r, workers[1], 3);
    rig_complete(&r, 3);
    const uint32_t before = rig_n_cuts(&r);
    rig_set(&r, 7, "update.learning_rate", "0.5");
    rig_call *save = rig_save(&r, 1);
    cr_assert(rig_waits(save));
    expect_stored(&r, 3, "0.5");
    cr_assert_eq(r.manifest.steps[0], 3);
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_saved_at(save), 3);
    rig_set(&r, 8, "update.learning_rate", "0.25");
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, 100);
    expect_stored(&r, 3, "0.25");
    rig_written(&r, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 0, END, NULL), 1);
    cr_assert_eq(rig_n_cuts(&r), before);
    rig_deinit(&r);
}

static void fail_one(rig *r, const uint64_t workers[2], uint64_t number)
{
    step(r, workers, number);
    critic(r, workers, number, number);
    report_full(r);
}

/* However late it comes. */
Test(coordinator_save, a_repeat_hears_that_the_one_it_asked_for_has_failed_when_others_were_made_since)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
    critic(&r, workers, 0, 0);
    rig_call *save = rig_save(&r, 5);
    fail_one(&r, workers, 1);
    rig_failed(save, SG_EXHAUSTED, "no space left on device");
    memset(r.saved, 0, sizeof r.saved);
    for (uint64_t i = 2; i < 14; i++) {
        rig_call *other = rig_save(&r, 100 + i);
        step(&r, workers, i);
        critic(&r, workers, i, i);
        rig_complete(&r, i);
        cr_assert_eq(rig_saved_at(other), i);
    }
    rig_failed(rig_save(&r, 5), SG_EXHAUSTED, "no space left on device");
    rig_deinit(&r);
}

/* Nobody is to lose the last checkpoint because ps 0 did not get to make it. */
Test(coordinator_save, told_to_stop_its_own_lateness_takes_no_time_from_the_last_one)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
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

Test(coordinator_save, what_was_meant_for_another_job_saves_nothing)
{
    rig r;
    uint64_t workers[2] = {0};
    begin(&r, two_ps, workers);
    step(&r, workers, 0);
    const uint32_t n_cuts = rig_n_cuts(&r);
    r.job = "another";
    rig_failed(rig_save(&r, 1), SG_MISMATCH, "job 'another' was meant, this coordinator belongs to job 'shardgrad'");
    cr_assert_eq(rig_n_cuts(&r), n_cuts);
    r.job = "shardgrad";
    cr_assert(rig_waits(rig_save(&r, 1)));
    rig_deinit(&r);
}

/* --- near the end ----------------------------------------------------------------------------------------------- */

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

Test(coordinator_save, who_asked_for_one_gets_the_last_of_the_job)
{
    rig r;
    uint64_t workers[2];
    begin_one_group(&r, two_ps, workers);
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

Test(coordinator_save, who_asked_for_one_hears_why_the_last_of_the_job_failed)
{
    rig r;
    uint64_t workers[2];
    begin_one_group(&r, two_ps, workers);
    rig_call *save = rig_save(&r, 5);
    for (uint32_t i = 0; i < 2; i++)
        rig_leave_begun(&r, workers[i], 1, 1);
    rig_report_saved(&r);
    rig_written(&r, SG_EXHAUSTED, "the disk is full");
    rig_failed(save, SG_EXHAUSTED, "the disk is full");
    rig_deinit(&r);
}
