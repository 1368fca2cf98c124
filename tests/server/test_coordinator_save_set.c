/* What is set, and not trained with, is saved, too. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "tests/server/saving_fixture.h"

TestSuite(coordinator_save_set, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const END = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;

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

Test(coordinator_save_set, what_was_set_since_is_saved_without_another_cut)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_every_4, workers);
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
        saving_step(&r, workers, i);
    rig_call *next = rig_save(&r, 3);
    saving_step(&r, workers, 2);
    saving_critic(&r, workers, 0, 2);
    rig_complete(&r, 2);
    expect_stored(&r, 2, "0.5");
    cr_assert_eq(r.manifest.steps[0], 2);
    cr_assert_eq(rig_saved_at(next), 2);
    rig_deinit(&r);
}

Test(coordinator_save_set, what_was_set_since_and_could_not_be_written_is_written_by_the_next)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_every_4, workers);
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

Test(coordinator_save_set, told_to_stop_what_was_set_since_is_saved)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
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

Test(coordinator_save_set, what_was_set_after_the_last_worker_left_is_saved)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(
        &r,
        (const char *const[]){"ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/c", "checkpoint.every=4", "linger=true", NULL},
        workers);
    for (uint64_t i = 0; i < 3; i++)
        saving_step(&r, workers, i);
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

Test(coordinator_save_set, nothing_is_set_while_the_last_one_is_made)
{
    rig r;
    uint64_t workers[2] = {0};
    saving_begin(&r, saving_two_ps, workers);
    saving_step(&r, workers, 0);
    rig_leave(&r, workers[0], 1);
    rig_leave(&r, workers[1], 1);
    rig_failed(rig_set(&r, 7, "update.learning_rate", "0.5"), SG_STOPPED, "the job is about to end");
    rig_complete(&r, 1);
    cr_assert_eq(rig_ordered(&r, 0, END, NULL), 1);
    rig_failed(rig_set(&r, 7, "update.learning_rate", "0.5"), SG_STOPPED, "");
    cr_assert_not(rig_logged(&r, "no_checkpoint"));
    rig_deinit(&r);
}
