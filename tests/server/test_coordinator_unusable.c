/* Checkpoints that a job cannot go on from: damaged, or made by another one. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/wire.h"
#include "tests/server/restored_fixture.h"

#define LOAD    SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD
#define DECLARE SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET

/* Up to the moment in which both ps have been told to load the set of iteration 50. */
static void start_to_restore(rig *r, const sg_checkpoint_manifest *manifest, const char *const settings[])
{
    rig_init(r, settings);
    rig_register_all(r);
    rig_join(r, 0, 7);
    r->newest = manifest;
    r->acknowledge = false;
    rig_register_as(r, 1, 555, "host:9");
    r->lives[1] = 555;
    for (uint32_t ps = 0; ps < 2; ps++) {
        while (rig_ordered(r, ps, LOAD, NULL) == 0)
            rig_acknowledge(r, ps, SG_OK, "");
    }
    r->keeps_records = true;
}

Test(coordinator_unusable, a_checkpoint_that_a_ps_finds_damaged_is_skipped_for_an_older_one)
{
    rig r = {0}, any;
    rig_init(&any, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&any), older = manifest;
    older.set.iteration = 40;
    start_to_restore(&r, &manifest, restored_two_ps);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    cr_assert(r.record_due);
    cr_assert(sg_checkpoint_set_equal(r.damaged, manifest.set));
    cr_assert_not_null(strstr(r.log, "checkpoint step-000000000050-g1 is skipped, ps 1 (host:9) found it damaged"));
    rig_acknowledge(&r, 0, SG_DATA, "ps-0.safetensors is damaged"); /* it is too late to be news */
    r.newest = &older;
    r.acknowledge = true;
    rig_record(&r, SG_OK, "");
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, LOAD, &order), 2);
        cr_assert_eq(order->load->iteration, 40);
    }
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_eq(restored_hello(&r, 0, 7)->status, SG_OK);
    rig_register_as(&r, 1, 556, "host:9");
    cr_assert(r.record_due);
    cr_assert_eq(r.damaged.generation, 0, "the next one may start from whatever is newest then");
    rig_record(&r, SG_OK, "");
    rig_deinit(&r);
    rig_deinit(&any);
}

/* ps 1 finds it damaged when the only worker has said hello. */
Test(coordinator_unusable, a_job_of_fewer_workers_waits_for_no_others_after_it_took_an_older_one_either)
{
    rig r;
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "workers=1", "max_workers=2",
                                       "on_worker_loss=wait", NULL});
    sg_checkpoint_manifest manifest = restored_manifest(&r), older = manifest;
    restored_coordinator(&r, &manifest);
    r.acknowledge = false;
    rig_register_all(&r);
    rig_register_all(&r);
    while (rig_ordered(&r, 1, LOAD, NULL) == 0)
        rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert(rig_waits(rig_hello(&r, 0, 7)));
    older.set.iteration = older.next_iteration = 40;
    r.newest = &older;
    rig_acknowledge(&r, 1, SG_DATA, "ps-1.safetensors is damaged");
    r.acknowledge = true;
    rig_pass(&r, 300);
    const uint64_t worker = rig_join(&r, 0, 7);
    rig_declare(&r, worker);
    cr_assert_eq(rig_granted(rig_ticket(&r, worker, 0, 0, 0))->size, 1);
    rig_deinit(&r);
}

Test(coordinator_unusable, a_damaged_checkpoint_that_was_asked_for_or_is_the_last_ends_the_job)
{
    const char *const asked[] = {restored_two_ps[0], restored_two_ps[1], "restore=50", NULL};
    rig r, any;
    rig_init(&any, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&any);
    start_to_restore(&r, &manifest, asked);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    cr_assert_not(r.record_due);
    rig_failed(rig_hello(&r, 0, 7), SG_DATA, "ps-0.safetensors is damaged");
    r.acknowledge = true;
    rig_pass(&r, 100);
    rig_deinit(&r);
    start_to_restore(&r, &manifest, restored_two_ps);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    r.acknowledge = true;
    rig_record(&r, SG_DATA, "there is none that is older");
    rig_failed(rig_hello(&r, 0, 7), SG_DATA, "there is none that is older");
    rig_deinit(&r);
    rig_deinit(&any);
}

Test(coordinator_unusable, a_checkpoint_that_a_ps_cannot_read_now_ends_the_job_with_that_reason_and_is_not_skipped)
{
    static const sg_status reasons[] = {SG_IO, SG_NOT_FOUND, SG_EXHAUSTED};
    for (size_t i = 0; i < SG_ARRAY_LEN(reasons); i++) {
        rig r, any;
        rig_init(&any, restored_two_ps);
        sg_checkpoint_manifest manifest = restored_manifest(&any);
        start_to_restore(&r, &manifest, restored_two_ps);
        rig_acknowledge(&r, 1, reasons[i], "cannot read ps-0.safetensors: why");
        cr_assert_not(r.record_due);
        rig_failed(rig_hello(&r, 0, 7), reasons[i], "cannot read ps-0.safetensors: why");
        r.acknowledge = true;
        rig_pass(&r, 100);
        rig_deinit(&r);
        rig_deinit(&any);
    }
}

/* It may come when the next generation has begun: what it acknowledges is not what this one waits for. */
Test(coordinator_unusable, a_load_of_the_generation_before_that_is_acknowledged_late_does_not_count)
{
    rig r = {0}, any;
    rig_init(&any, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&any), older = manifest;
    older.set.iteration = 40;
    start_to_restore(&r, &manifest, restored_two_ps);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    r.newest = &older;
    rig_record(&r, SG_OK, "");
    rig_acknowledge(&r, 0, SG_OK, ""); /* the load of generation 2 */
    while (r.pending[1])
        rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 1, LOAD, NULL), 2);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING, "ps 0 has not loaded");
    while (r.pending[0])
        rig_acknowledge(&r, 0, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 0, LOAD, NULL), 2);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_deinit(&r);
    rig_deinit(&any);
}

Test(coordinator_unusable, a_checkpoint_of_another_rule_is_refused)
{
    rig r;
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    snprintf(manifest.rule, sizeof manifest.rule, "adagrad");
    r.newest = &manifest;
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    rig_register_as(&r, 1, 555, "host:9");
    rig_failed(rig_hello(&r, 1, 8), SG_CONFIG, "made with update.rule adagrad");
    rig_deinit(&r);
}

/* --- what was declared with other ps, or another slice_bytes --------------------------------------------------- */

/* A coordinator that is started on a checkpoint of these variables. */
static void start_on(rig *r, const char *const settings[], sg_checkpoint_manifest *manifest,
                     sg_checkpoint_variable *list, uint32_t n)
{
    rig_init(r, settings);
    *manifest = restored_manifest(r);
    manifest->slice_bytes = 1048576;
    manifest->variables = list;
    manifest->n_variables = n;
    manifest->n_groups = 1;
    restored_coordinator(r, manifest);
    rig_failed(rig_register(r, 0), SG_NOT_READY, "begins its generation");
}

static sg_checkpoint_variable one_variable(uint64_t *shape)
{
    return (sg_checkpoint_variable){
        .name = (char *)"weight", .shape = shape, .rank = 1, .lr_multiplier = 1, .decay_multiplier = 1};
}

Test(coordinator_unusable, a_checkpoint_of_more_slices_than_there_may_be_is_refused_and_kills_nobody)
{
    rig r;
    sg_checkpoint_manifest manifest;
    uint64_t shape = (UINT64_C(1) << 24) * 16 + 1;
    sg_checkpoint_variable weight = one_variable(&shape);
    start_on(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "slice_bytes=64", NULL}, &manifest,
             &weight, 1);
    rig_failed(rig_set(&r, 1, "update.clip_global_norm", "1"), SG_CONFIG, "cannot be restored with 2 and 64: ");
    rig_failed(rig_register(&r, 1), SG_CONFIG, "step-000000000050-g1 was made with 2 ps and slice_bytes 1048576");
    rig_deinit(&r);
}

Test(coordinator_unusable, a_checkpoint_whose_norms_do_not_fit_into_a_message_is_refused)
{
    rig r;
    sg_checkpoint_manifest manifest;
    uint64_t shape = 16u * 2u * 70000u;
    sg_checkpoint_variable weight = one_variable(&shape);
    start_on(&r,
             (const char *const[]){restored_two_ps[0], restored_two_ps[1], "slice_bytes=64",
                                   "update.clip_global_norm=1", NULL},
             &manifest, &weight, 1);
    rig_failed(rig_register(&r, 1), SG_CONFIG, "ps 0 has 70000 slices of group 0, and where update.rule is lars");
    rig_deinit(&r);
}

/* What is left unsaid in a declaration is left unsaid to every ps. */
Test(coordinator_unusable, a_list_that_fitted_into_a_message_when_it_was_declared_fits_when_it_is_restored)
{
    rig r;
    sg_checkpoint_manifest manifest;
    const uint32_t n = 21000;
    uint64_t shape = 64;
    sg_checkpoint_variable *list = sg_xcalloc(n, sizeof *list);
    for (uint32_t i = 0; i < n; i++) {
        list[i] = one_variable(&shape);
        list[i].name = sg_xprintf("encoder.layer%05u.output.weight", i);
    }
    list[1].lr_multiplier = 2;
    list[2].decay_multiplier = 0;
    start_on(&r, restored_two_ps, &manifest, list, n);
    rig_register_all(&r);
    cr_assert_eq(rig_ordered(&r, 0, DECLARE, NULL), 1, "%s", r.log);
    for (uint32_t i = 0; i < r.n_orders[0]; i++) {
        if (r.orders[0][i].body->descriptor != &shardgrad__v1__ps_declare_request__descriptor)
            continue;
        const Shardgrad__V1__PsDeclareRequest *order = (const Shardgrad__V1__PsDeclareRequest *)r.orders[0][i].body;
        cr_assert_leq(protobuf_c_message_get_packed_size(&order->base), SG_WIRE_HEAD_BYTES);
        cr_assert_eq(order->variables[1]->lr_multiplier, 2);
        cr_assert_eq(order->variables[2]->decay_multiplier_presence_case,
                     SHARDGRAD__V1__VARIABLE__DECAY_MULTIPLIER_PRESENCE_DECAY_MULTIPLIER);
        cr_assert_eq(order->variables[2]->decay_multiplier, 0);
    }
    rig_deinit(&r);
    for (uint32_t i = 0; i < n; i++)
        free(list[i].name);
    free(list);
}
