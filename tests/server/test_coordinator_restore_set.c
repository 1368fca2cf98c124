/* What was set before a checkpoint was made, or since, holds in the generation that starts from it. */
#include <criterion/criterion.h>

#include "tests/server/restored_fixture.h"

#define HYPER SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER

static double first_rate(rig *r, const char *const settings[], sg_checkpoint_manifest *manifest)
{
    rig_init(r, settings);
    restored_coordinator(r, manifest);
    rig_register_all(r);
    rig_register_all(r);
    uint64_t workers[2] = {restored_incarnation(restored_hello(r, 0, 7)),
                           restored_incarnation(restored_hello(r, 1, 8))};
    rig_declare(r, workers[0]);
    rig_declare(r, workers[1]);
    rig_ticket(r, workers[0], 0, 0, 0);
    return (double)rig_granted(rig_ticket(r, workers[1], 0, 0, 0))->step->learning_rate;
}

Test(coordinator_restore_set, what_was_set_before_the_checkpoint_holds_for_a_coordinator_that_is_started_again)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "update.learning_rate=0.5", NULL});
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    cr_assert_eq(r.manifest.n_changes, 0);
    rig_set(&r, 1, "update.learning_rate", "0.1");
    rig_set(&r, 2, "update.weight_decay", "0.25");
    rig_set(&r, 3, "update.learning_rate", "0.125");
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_save(&r, 9);
    rig_ticket(&r, workers[0], 0, 1, 1);
    rig_ticket(&r, workers[1], 0, 1, 1);
    for (uint32_t i = 0; i < 2; i++)
        rig_ticket_for(&r, workers[i], 1, 0, 0, 1);
    rig_complete(&r, 1);
    cr_assert_eq(r.manifest.n_changes, 2);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    manifest.changes = r.manifest.changes;
    manifest.n_changes = r.manifest.n_changes;
    const char *const again[] = {restored_two_ps[0], restored_two_ps[1], "update.learning_rate=0.5", NULL};
    rig other;
    double rate = first_rate(&other, again, &manifest); /* the macro would call it twice */
    cr_assert_float_eq(rate, 0.125, 1e-9);
    cr_assert(rig_logged(&other, "set_again hyper=2 key=update.learning_rate value=0.125"), "%s", other.log);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_geq(rig_ordered(&other, 1, HYPER, &order), 1);
    cr_assert_eq(order->hyper->number, 2);
    cr_assert_float_eq((double)order->hyper->weight_decay, 0.25, 1e-9);
    rig_deinit(&other);
    rig_deinit(&r);
}

/* The set that was acknowledged holds, though the checkpoint is older than it. */
Test(coordinator_restore_set, what_was_set_holds_after_a_ps_was_lost)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_set(&r, 1, "update.learning_rate", "0.125");
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = restored_again(&r, i);
    rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert_float_eq((double)rig_granted(rig_ticket(&r, workers[1], 0, 0, 0))->step->learning_rate, 0.125, 1e-9);
    rig_deinit(&r);
}

/* The coordinator finds a set in which something was set before. */
static void start_with_change(rig *r, sg_checkpoint_manifest *manifest, sg_checkpoint_change *change)
{
    rig_init(r, restored_two_ps);
    *manifest = restored_manifest(r);
    manifest->changes = change;
    manifest->n_changes = 1;
    restored_coordinator(r, manifest);
}

Test(coordinator_restore_set, a_change_that_does_not_fit_the_cluster_file_of_now_ends_the_job_naming_it)
{
    rig r;
    sg_checkpoint_change change = {.key = (char *)"update.momentum", .value = (char *)"7"};
    sg_checkpoint_manifest manifest;
    start_with_change(&r, &manifest, &change);
    rig_register(&r, 0);
    rig_failed(rig_hello(&r, 0, 7), SG_CONFIG, "update.momentum");
    rig_deinit(&r);
}

Test(coordinator_restore_set, what_was_set_before_is_the_answer_to_no_request)
{
    rig r;
    sg_checkpoint_change change = {.key = (char *)"update.learning_rate", .value = (char *)"0.125"};
    sg_checkpoint_manifest manifest;
    start_with_change(&r, &manifest, &change);
    rig_register_all(&r);
    rig_register_all(&r);
    rig_failed(rig_set(&r, 0, "update.learning_rate", "0.5"), SG_INVALID, "request 0");
    rig_deinit(&r);
}

Test(coordinator_restore_set, nothing_is_set_while_a_generation_is_recorded_and_what_the_checkpoint_says_holds)
{
    rig r;
    rig_init(&r, restored_two_ps);
    sg_checkpoint_change change = {.key = (char *)"update.learning_rate", .value = (char *)"0.125"};
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    manifest.changes = &change;
    manifest.n_changes = 1;
    r.keeps_records = true;
    restored_coordinator(&r, &manifest);
    rig_register(&r, 0);
    rig_failed(rig_set(&r, 1, "update.weight_decay", "0.25"), SG_NOT_READY, "begins another generation");
    rig_record(&r, SG_OK, "");
    cr_assert(rig_logged(&r, "set_again") > 0);
    rig_deinit(&r);
}
