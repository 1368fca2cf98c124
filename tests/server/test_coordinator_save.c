/* Checkpoints: where one is cut, when it is complete, and what happens when it is not. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/saving_fixture.h"

TestSuite(coordinator_save, .timeout = 20);

static const char *const async_4[] = {"checkpoint.dir=/c", "checkpoint.every=4", "update.mode=async", NULL};

Test(coordinator_save, the_initial_values_are_safe_before_the_first_ticket)
{
    rig r;
    rig_init(&r, saving_two_ps);
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
    cr_assert_eq(saving_step(&r, workers, 0), 0);
    cr_assert_eq(rig_n_cuts(&r), 0);
    cr_assert_null(rig_status(&r)->checkpoint);
    rig_failed(rig_save(&r, 1), SG_CONFIG, "set checkpoint.dir");
    rig_deinit(&r);
}

Test(coordinator_save, a_folder_that_cannot_be_used_ends_the_job_before_it_trains)
{
    rig r;
    rig_init(&r, saving_two_ps);
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
    saving_begin(&r, saving_every_4, workers);
    for (uint64_t i = 0; i < 4; i++)
        cr_assert_eq(saving_step(&r, workers, i), 0, "step %lu", i);
    cr_assert_eq(saving_critic(&r, workers, 0, 3), 0);
    cr_assert_eq(saving_step(&r, workers, 4), 4);
    cr_assert_eq(saving_step(&r, workers, 5), 4);
    cr_assert_eq(rig_n_cuts(&r), 1, "group 1 is not beyond the mark");
    cr_assert_eq(saving_critic(&r, workers, 1, 5), 4);
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    cr_assert_eq(rig_cut(&r)->steps[0], 4);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    cr_assert_not(rig_cut(&r)->urgent, "the steps that overlap it come first");
    for (uint64_t i = 6; i < 10; i++)
        cr_assert_eq(saving_step(&r, workers, i), 4, "one at a time");
    rig_complete(&r, 4);
    cr_assert(sg_workers_has(&r.manifest.members, 0) && sg_workers_has(&r.manifest.members, 1));
    cr_assert_eq(saving_step(&r, workers, 10), 4);
    cr_assert_eq(saving_step(&r, workers, 11), 4);
    cr_assert_eq(saving_step(&r, workers, 12), 12, "8 was missed");
    rig_deinit(&r);
}

Test(coordinator_save, a_group_that_is_not_stepped_any_more_holds_up_no_checkpoint)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_every_4, workers);
    cr_assert_eq(saving_critic(&r, workers, 0, 0), 0);
    uint64_t i = 0;
    for (; i < 20; i++)
        saving_step(&r, workers, i);
    cr_assert_eq(rig_n_cuts(&r), 1);
    saving_step(&r, workers, i);
    cr_assert_eq(rig_n_cuts(&r), 2);
    cr_assert_eq(rig_cut(&r)->steps[0], 4);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    cr_assert_eq(saving_critic(&r, workers, 1, 20), 4, "the first that is not in it says so");
    rig_deinit(&r);
}

Test(coordinator_save, save_cuts_at_the_next_iteration_and_answers_when_it_is_complete)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    rig_call *at_once = rig_save(&r, 4);
    cr_assert_eq(at_once->status, SG_OK, "nothing has happened since");
    cr_assert_eq(rig_saved_at(at_once), 0);
    saving_step(&r, workers, 0);
    saving_step(&r, workers, 1);
    saving_critic(&r, workers, 0, 0);
    rig_call *save = rig_save(&r, 5);
    cr_assert(rig_waits(save));
    cr_assert_eq(rig_n_cuts(&r), 1);
    cr_assert_eq(saving_step(&r, workers, 2), 2);
    saving_critic(&r, workers, 1, 2);
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
    saving_begin(&r, saving_every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        saving_step(&r, workers, i);
    saving_critic(&r, workers, 0, 4);
    cr_assert_eq(rig_cut(&r)->mark, 4);
    rig_call *save = rig_save(&r, 9);
    cr_assert_not(rig_cut(&r)->urgent);
    rig_complete(&r, 4);
    cr_assert(rig_waits(save));
    cr_assert_eq(saving_step(&r, workers, 5), 5);
    saving_critic(&r, workers, 1, 5);
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
    saving_step(r, workers, 0);
    rig_leave(r, workers[0], 1);
    rig_leave(r, workers[1], 1);
}

Test(coordinator_save, whoever_comes_to_wait_for_one_that_is_written_in_peace_has_it_hurried_once)
{
    static Shardgrad__V1__OrderRequest__OrderCase const HURRY = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HURRY;
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        saving_step(&r, workers, i);
    saving_critic(&r, workers, 0, 4);
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
    saving_begin(&r, saving_every_4, workers);
    for (uint64_t i = 0; i < 5; i++)
        saving_step(&r, workers, i);
    saving_critic(&r, workers, 0, 4);
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
    cr_assert_eq(saving_step(&r, workers, 5), 5);
    saving_critic(&r, workers, 1, 5);
    rig_complete(&r, 5);
    cr_assert_str_eq(rig_status(&r)->checkpoint->failure, "");
    cr_assert_eq(save->status, SG_OK);
    rig_deinit(&r);
}

/* Workers 2 and 3 take over, one after the other. Slices keep nothing when they meet a mark that they have met. */
Test(coordinator_save, what_failed_is_cut_again_at_the_same_iteration_with_another_mark)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_every_4, workers);
    for (uint64_t i = 0; i < 4; i++)
        saving_step(&r, workers, i);
    uint64_t third = rig_join(&r, 2, 1002), fourth = rig_join(&r, 3, 1003);
    rig_declare(&r, third);
    rig_declare(&r, fourth);
    rig_leave_begun(&r, workers[0], 4, 4);
    rig_leave_begun(&r, workers[1], 4, 4);
    uint64_t number = rig_cut(&r)->number, mark = rig_cut(&r)->ticket_mark;
    cr_assert_eq(rig_cut(&r)->mark, 4, "%lu", rig_cut(&r)->mark);
    saving_report_full(&r);
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
    rig_init(&r, saving_two_ps);
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
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    saving_critic(&r, workers, 0, 0);
    rig_save(&r, 3);
    saving_step(&r, workers, 1);
    saving_critic(&r, workers, 1, 1);
    cr_assert_eq(rig_n_cuts(&r), 2);
    rig_register_all(&r); /* they still say how number 1 went */
    cr_assert_eq(r.n_manifests, 1);
    rig_complete(&r, 1);
    rig_deinit(&r);
}

Test(coordinator_save, async_it_is_cut_when_so_many_tickets_were_handed_out)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, async_4, workers);
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

static void fail_one(rig *r, const uint64_t workers[2], uint64_t number)
{
    saving_step(r, workers, number);
    saving_critic(r, workers, number, number);
    saving_report_full(r);
}

/* However late it comes. */
Test(coordinator_save, a_repeat_hears_that_the_one_it_asked_for_has_failed_when_others_were_made_since)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    saving_critic(&r, workers, 0, 0);
    rig_call *save = rig_save(&r, 5);
    fail_one(&r, workers, 1);
    rig_failed(save, SG_EXHAUSTED, "no space left on device");
    memset(r.saved, 0, sizeof r.saved);
    for (uint64_t i = 2; i < 14; i++) {
        rig_call *other = rig_save(&r, 100 + i);
        saving_step(&r, workers, i);
        saving_critic(&r, workers, i, i);
        rig_complete(&r, i);
        cr_assert_eq(rig_saved_at(other), i);
    }
    rig_failed(rig_save(&r, 5), SG_EXHAUSTED, "no space left on device");
    rig_deinit(&r);
}

Test(coordinator_save, what_was_meant_for_another_job_saves_nothing)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    const uint32_t n_cuts = rig_n_cuts(&r);
    r.job = "another";
    rig_failed(rig_save(&r, 1), SG_MISMATCH, "job 'another' was meant, this coordinator belongs to job 'shardgrad'");
    cr_assert_eq(rig_n_cuts(&r), n_cuts);
    r.job = "shardgrad";
    cr_assert(rig_waits(rig_save(&r, 1)));
    rig_deinit(&r);
}
