/* Async: what the newest checkpoint has of what was trained, its name, and where a job goes on that starts from it. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_news, .timeout = 20);

static const char *const async_two_ps[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "update.mode=async", NULL};
static const char *const ssp_two_ps[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "update.mode=ssp", NULL};

/* Started with set 0 complete, and both workers have their first ticket. */
static void begin(rig *r, const char *const settings[], uint64_t workers[2])
{
    rig_init(r, settings);
    rig_start(r, 2, workers);
    rig_complete(r, 0);
    rig_call *first = rig_ticket(r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(r, workers[1], 0, 0, 0));
    rig_granted(first);
}

/* The job was started anew, from this set. */
static void begin_from(rig *r, const char *const settings[], const sg_checkpoint_manifest *from, uint64_t workers[2])
{
    rig_init(r, settings);
    sg_coordinator_destroy(r->coordinator);
    r->newest = from;
    r->n_recorded = from->set.generation;
    r->coordinator = sg_coordinator_create(r->config);
    rig_register_all(r);
    rig_register_all(r);
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = rig_join(r, i, 100 + i);
    for (uint32_t i = 0; i < 2; i++)
        rig_declare(r, workers[i]);
}

/* Both have a ticket, and the newest set has another name than the tickets say, because nothing of either was in the
 * one before. Returns a copy. */
static sg_checkpoint_manifest set_with_a_later_name(const char *const settings[])
{
    rig r;
    uint64_t workers[2];
    sg_checkpoint_manifest copy;
    begin(&r, settings, workers);
    rig_save(&r, 1);
    rig_complete(&r, 2);
    rig_leave(&r, workers[0], 1);
    rig_leave(&r, workers[1], 1);
    rig_complete(&r, 3);
    cr_assert_eq(r.manifest.steps[0], 2);
    sg_checkpoint_manifest_copy(&copy, &r.manifest);
    rig_deinit(&r);
    return copy;
}

/* Who was at the end goes before anybody has said how often a group steps: the job starts, for one who comes later. */
Test(coordinator_news, ticket_i_is_batch_i_though_the_first_goes_before_it_declares)
{
    static const char *const settings[] = {
        "ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "update.mode=async", "workers=1", "max_workers=2", NULL};
    sg_checkpoint_manifest from = set_with_a_later_name(async_two_ps);
    rig r;
    rig_init(&r, settings);
    sg_coordinator_destroy(r.coordinator);
    r.newest = &from;
    r.n_recorded = from.set.generation;
    r.coordinator = sg_coordinator_create(r.config);
    rig_register_all(&r);
    rig_register_all(&r);
    const uint64_t first = rig_join(&r, 0, 100), second = rig_join(&r, 1, 101);
    rig_leave(&r, first, UINT64_MAX);
    rig_declare(&r, second);
    const Shardgrad__V1__Step *step = rig_granted(rig_ticket(&r, second, 0, 0, 0))->step;
    cr_assert(step->step == 2 && step->iteration == 2, "ticket %lu is of iteration %lu", (unsigned long)step->step,
              (unsigned long)step->iteration);
    rig_deinit(&r);
    sg_checkpoint_manifest_deinit(&from);
}

Test(coordinator_news, ticket_i_is_batch_i_though_a_set_was_named_later_than_the_tickets)
{
    const char *const *const modes[] = {async_two_ps, ssp_two_ps};
    for (size_t i = 0; i < 2; i++) {
        rig r;
        uint64_t workers[2];
        sg_checkpoint_manifest from = set_with_a_later_name(modes[i]);
        cr_assert_eq(from.next_iteration, 2);
        begin_from(&r, modes[i], &from, workers);
        rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0), *second = rig_ticket(&r, workers[1], 0, 0, 0);
        cr_assert(rig_logged(&r, "restored iteration=2 "), "%s", r.log);
        cr_assert_eq(rig_granted(second)->step->step + rig_granted(first)->step->step, 2 + 3);
        cr_assert_eq(rig_granted(first)->step->iteration, rig_granted(first)->step->step);
        cr_assert_eq(rig_granted(second)->step->iteration, rig_granted(second)->step->step);
        rig_deinit(&r);
        sg_checkpoint_manifest_deinit(&from);
    }
}

Test(coordinator_news, the_next_ticket_is_the_next_batch_however_often_it_was_saved)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    for (uint64_t i = 0; i < 3; i++) {
        rig_save(&r, i + 1);
        rig_complete(&r, 2 + i);
        cr_assert_eq(r.manifest.next_iteration, 2);
    }
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, 1, 1))->step->iteration, 2);
    rig_save(&r, 7);
    rig_complete(&r, 5);
    cr_assert_eq(r.manifest.next_iteration, 3);
    rig_deinit(&r);
}

/* Another generation may use the name again: the sets are told apart by their generation. */
Test(coordinator_news, names_do_not_run_away_with_the_number_of_starts)
{
    sg_checkpoint_manifest from = set_with_a_later_name(async_two_ps);
    for (unsigned life = 0; life < 5; life++) {
        rig r;
        uint64_t workers[2];
        begin_from(&r, async_two_ps, &from, workers);
        rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
        rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
        rig_granted(first);
        rig_save(&r, 1);
        rig_report_saved(&r);
        rig_written(&r, SG_OK, "");
        rig_leave(&r, workers[0], 1);
        rig_leave(&r, workers[1], 1);
        rig_report_saved(&r);
        rig_written(&r, SG_OK, "");
        sg_checkpoint_manifest_deinit(&from);
        sg_checkpoint_manifest_copy(&from, &r.manifest);
        cr_assert_eq(from.steps[0], 2 * (life + 2));
        cr_assert_eq(from.next_iteration, from.steps[0]);
        cr_assert_eq(from.set.iteration, from.steps[0] + 1);
        rig_deinit(&r);
    }
    sg_checkpoint_manifest_deinit(&from);
}

Test(coordinator_news, sync_goes_on_where_the_name_of_an_async_set_says)
{
    rig r;
    uint64_t workers[2];
    static const char *const sync_two_ps[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", NULL};
    sg_checkpoint_manifest from = set_with_a_later_name(async_two_ps);
    begin_from(&r, sync_two_ps, &from, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    cr_assert_eq(rig_granted(first)->step->iteration, 3);
    rig_leave(&r, workers[0], 3);
    rig_leave(&r, workers[1], 3);
    rig_complete(&r, 4);
    rig_deinit(&r);
    sg_checkpoint_manifest_deinit(&from);
}

/* --- what is new ------------------------------------------------------------------------------------------------ */

Test(coordinator_news, tickets_of_which_nobody_pushed_anything_need_no_last_one)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_leave_begun(&r, workers[0], 0, 0);
    rig_leave_begun(&r, workers[1], 0, 0);
    cr_assert_eq(rig_n_cuts(&r), 1, "set 0 has all that there is");
    cr_assert_not(rig_logged(&r, "saving iteration"), "and nothing is said of another");
    cr_assert(rig_logged(&r, "draining steps=0"));
    rig_deinit(&r);
}

Test(coordinator_news, what_may_have_been_pushed_in_part_is_in_the_last_one)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_leave_begun(&r, workers[0], 0, 1);
    cr_assert_eq(rig_n_cuts(&r), 1);
    rig_leave_begun(&r, workers[1], 0, 0);
    cr_assert_eq(rig_n_cuts(&r), 2);
    rig_complete(&r, 1);
    rig_deinit(&r);
}

/* Workers ask for a ticket while they compute, beyond the last step, too. */
Test(coordinator_news, tickets_that_nobody_began_are_for_whoever_goes_on)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    for (uint64_t n = 1; n < 3; n++) {
        rig_granted(rig_ticket(&r, workers[0], 0, n, n));
        rig_granted(rig_ticket(&r, workers[1], 0, n, n));
    }
    rig_leave_begun(&r, workers[1], 2, 2); /* holds batch 5 */
    rig_leave_begun(&r, workers[0], 2, 2); /* holds batch 4 */
    rig_complete(&r, 4);
    cr_assert_eq(r.manifest.next_iteration, 4u);
    cr_assert_eq(r.manifest.steps[0], 4u);
    rig_deinit(&r);
}

/* One asks for the ticket after the next while it has one that it will not begin. */
Test(coordinator_news, both_tickets_of_one_who_leaves_are_given_back)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_leave_begun(&r, workers[1], 1, 1);
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    rig_granted(rig_ticket(&r, workers[0], 0, 2, 1));
    rig_leave_begun(&r, workers[0], 1, 1);
    rig_complete(&r, 2);
    cr_assert_eq(r.manifest.next_iteration, 2u);
    cr_assert_eq(r.manifest.steps[0], 2u);
    rig_deinit(&r);
}

/* A batch below one that was trained stays away: nobody trains it twice. */
Test(coordinator_news, a_ticket_that_is_given_back_below_one_that_was_begun_is_lost)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_leave_begun(&r, workers[0], 0, 0); /* holds batch 0 */
    rig_leave_begun(&r, workers[1], 0, 1); /* began batch 1 */
    rig_complete(&r, 2);
    cr_assert_eq(r.manifest.next_iteration, 2u);
    rig_deinit(&r);
}

Test(coordinator_news, no_periodic_one_is_cut_before_anything_was_finished)
{
    rig r;
    uint64_t workers[2];
    static const char *const every_1[] = {"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=1",
                                          "update.mode=async", NULL};
    begin(&r, every_1, workers);
    cr_assert_eq(rig_n_cuts(&r), 1);
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    cr_assert_eq(rig_n_cuts(&r), 2, "now one ticket is finished");
    rig_complete(&r, 2);
    rig_deinit(&r);
}

Test(coordinator_news, what_was_pushed_since_the_newest_one_is_in_another)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_call *save = rig_save(&r, 1);
    rig_complete(&r, 2);
    cr_assert_eq(rig_saved_at(save), 2);
    save = rig_save(&r, 2);
    cr_assert(rig_waits(save), "both may have pushed after the cut");
    rig_complete(&r, 3);
    cr_assert_eq(rig_saved_at(save), 3, "under a name of its own");
    rig_leave_begun(&r, workers[0], 1, 1);
    rig_leave_begun(&r, workers[1], 1, 1);
    rig_complete(&r, 4);
    cr_assert_not(rig_logged(&r, "no_checkpoint"));
    rig_deinit(&r);
}

Test(coordinator_news, what_a_worker_pushed_counts_though_another_has_its_index)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    rig_leave_begun(&r, workers[1], 0, 0);
    uint64_t next = rig_join(&r, 0, 77);
    rig_leave(&r, next, UINT64_MAX);
    cr_assert_eq(rig_n_cuts(&r), 2);
    rig_complete(&r, 1);
    rig_deinit(&r);
}

Test(coordinator_news, one_that_rests_has_finished_unless_its_goodbye_says_otherwise)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    for (size_t i = 0; i < 2; i++) {
        Shardgrad__V1__HeartbeatRequest rests = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
        rests.incarnation = workers[i];
        rests.generation = 1;
        rests.resting = true;
        rig_heartbeat_with(&r, &rests);
    }
    rig_save(&r, 1);
    rig_complete(&r, 2);
    cr_assert_eq(rig_saved_at(rig_save(&r, 2)), 2);
    cr_assert_eq(rig_n_cuts(&r), 2, "nothing is new");
    rig_leave_begun(&r, workers[0], 1, 1);
    rig_leave_begun(&r, workers[1], 0, 0);
    cr_assert_eq(rig_n_cuts(&r), 3, "its last push may have come after the cut");
    rig_complete(&r, 3);
    rig_deinit(&r);
}

/* --- the end ---------------------------------------------------------------------------------------------------- */

Test(coordinator_news, told_to_stop_it_does_not_complain_of_the_checkpoint_that_it_made)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms / 8 + 100);
    rig_complete(&r, 2);
    rig_pass(&r, 200);
    cr_assert_not(rig_logged(&r, "no_checkpoint"), "%s", r.log);
    cr_assert(rig_logged(&r, "checkpoint iteration=2"));
    rig_deinit(&r);
}

Test(coordinator_news, told_to_stop_it_complains_of_the_one_that_could_not_be_made)
{
    rig r;
    uint64_t workers[2];
    begin(&r, async_two_ps, workers);
    sg_coordinator_stop(r.coordinator, r.now_ms);
    rig_pass(&r, r.config->shutdown_grace_ms / 8 + 100);
    rig_report_saved(&r);
    rig_written(&r, SG_EXHAUSTED, "the disk is full");
    rig_pass(&r, 200);
    cr_assert(rig_logged(&r, "no_checkpoint iteration=2 newest=0 reason=\"the disk is full\""), "%s", r.log);
    rig_deinit(&r);
}

/* All that was pushed is in a periodic set, which was cut when tickets beyond the last step were out. Those go back
 * when all leave, and the newest set says so. */
static void leave_after_a_periodic_cut(const char *mode)
{
    rig r;
    uint64_t workers[2];
    begin(&r, (const char *[]){"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=4", mode, NULL}, workers);
    for (uint32_t i = 0; i < 2; i++)
        rig_granted(rig_ticket(&r, workers[i], 0, 1, 1));
    rig_complete(&r, 4);
    cr_assert_eq(r.manifest.next_iteration, 4u, "others may go on from there");
    for (uint32_t i = 0; i < 2; i++)
        rig_leave_begun(&r, workers[i], 1, 1);
    rig_complete(&r, 5);
    cr_assert_eq(r.manifest.next_iteration, 2u, "batches 2 and 3 were never begun, and it goes on at %lu",
                 (unsigned long)r.manifest.next_iteration);
    rig_deinit(&r);
}

Test(coordinator_news, ssp_tickets_that_a_periodic_set_counts_are_given_back_when_all_leave)
{
    leave_after_a_periodic_cut("update.mode=ssp");
}

Test(coordinator_news, async_tickets_that_a_periodic_set_counts_are_given_back_when_all_leave)
{
    leave_after_a_periodic_cut("update.mode=async");
}
