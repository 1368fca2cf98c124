/* Generations that start from a checkpoint. */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "common/status.h"
#include "common/wire.h"
#include "tests/server/coordinator_fixture.h"

#define BEGIN   SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN
#define LOAD    SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD
#define HYPER   SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER
#define DECLARE SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET

static const char *const two_ps[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", "checkpoint.dir=/somewhere", NULL};

static uint64_t weight_shape[] = {784, 512}, critic_shape[] = {784}, steps[] = {50, 10};
static sg_checkpoint_variable variables[] = {
    {.name = (char *)"weight", .shape = weight_shape, .rank = 2, .lr_multiplier = 1, .decay_multiplier = 1},
    {.name = (char *)"critic", .shape = critic_shape, .rank = 1, .group = 1, .lr_multiplier = 1, .decay_multiplier = 1},
};

/* Cut at iteration 50, of workers 0 and 1; the second group steps at every fifth. */
static sg_checkpoint_manifest a_manifest(const rig *r)
{
    sg_checkpoint_manifest manifest = {.set = {.iteration = 50, .generation = 1},
                                       .steps = steps,
                                       .n_groups = 2,
                                       .next_iteration = 50,
                                       .n_ps = 2,
                                       .variables = variables,
                                       .n_variables = 2};
    snprintf(manifest.rule, sizeof manifest.rule, "%s", sg_rule_name(r->config->update.rule));
    snprintf(manifest.mode, sizeof manifest.mode, "sync");
    sg_workers_add(&manifest.members, 0);
    sg_workers_add(&manifest.members, 1);
    return manifest;
}

static rig_call *hello_again(rig *r, uint32_t worker, uint64_t life)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, worker, life);
    hello.generation = 1;
    return rig_hello_with(r, &hello);
}

static uint64_t incarnation_of(const rig_call *call)
{
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__HelloResponse *)call->body)->incarnation;
}

Test(coordinator_restore, nobody_is_told_of_a_generation_before_it_is_recorded)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    rig_failed(rig_heartbeat(&r, worker), SG_NOT_READY, "begins another generation");
    rig_failed(hello_again(&r, 0, 7), SG_NOT_READY, "begins another generation");
    cr_assert_eq(rig_ordered(&r, 0, BEGIN, NULL), 0);
    cr_assert_eq(rig_ordered(&r, 1, HYPER, NULL), 1, "nor the new life");
    rig_record(&r, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 0, BEGIN, NULL), 1);
    rig_failed(rig_heartbeat(&r, worker), SG_ROLLED_BACK, "generation 1 has passed");
    rig_deinit(&r);
}

Test(coordinator_restore, a_lost_ps_begins_a_generation_from_the_newest_checkpoint_when_all_have_loaded_it)
{
    rig r;
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    rig_join(&r, 1, 8);
    r.newest = &manifest;
    r.silent[0] = true;
    rig_register_as(&r, 1, 555, "host:9");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING);
    r.silent[0] = false;
    r.lives[1] = 555;
    rig_pass(&r, 300);
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, DECLARE, NULL), 1);
        cr_assert_eq(rig_ordered(&r, ps, LOAD, &order), 1);
        cr_assert_eq(order->load->iteration, 50);
        cr_assert_eq(order->load->generation, 1);
        cr_assert_eq(order->header->generation, 2);
    }
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    uint64_t workers[2] = {incarnation_of(hello_again(&r, 0, 7)), incarnation_of(hello_again(&r, 1, 8))};
    rig_call *declare = rig_declare(&r, workers[0]);
    cr_assert_eq(declare->status, SG_OK, "%s", declare->text);
    cr_assert_eq(((const Shardgrad__V1__DeclareResponse *)declare->body)->attempt, 0, "there are values");
    rig_declare(&r, workers[1]);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(first), "worker 1 was at it, too");
    rig_ticket(&r, workers[1], 0, 0, 0);
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(first);
    cr_assert_eq(ticket->step->step, 50);
    cr_assert_eq(ticket->step->iteration, 50);
    cr_assert_eq(ticket->size, 2);
    rig_deinit(&r);
}

Test(coordinator_restore, one_that_was_at_it_and_does_not_come_again_is_given_up_after_a_while)
{
    rig r;
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    uint64_t worker = incarnation_of(hello_again(&r, 0, 7));
    rig_declare(&r, worker);
    rig_ticket(&r, worker, 0, 0, 0);
    rig_live(&r, 2 * r.config->lease_ms + r.config->park_ms + 2000, (const uint64_t[]){worker, 0});
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    cr_assert_eq(ticket->step->step, 50);
    cr_assert_eq(ticket->size, 1);
    rig_deinit(&r);
}

/* Two workers compute a step, then worker 1 or both fall silent, their losses are held back, and ps 1 comes anew. */
static void train_and_lose(rig *r, sg_checkpoint_manifest *manifest, bool both)
{
    rig_init(r, (const char *const[]){two_ps[0], two_ps[1], "on_worker_loss=wait", NULL});
    *manifest = a_manifest(r);
    uint64_t workers[2];
    rig_start(r, 2, workers);
    rig_complete(r, 0);
    rig_call *first = rig_ticket(r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(r, workers[1], 0, 0, 0));
    rig_granted(first);
    rig_live(r, r->config->lease_ms + 1000, both ? NULL : (const uint64_t[]){workers[0], 0});
    cr_assert(rig_logged(r, "held_back worker=1"));
    r->newest = manifest;
    cr_assert_eq(rig_register_as(r, 1, 555, "host:9")->status, SG_OK);
    rig_pass(r, 300);
}

Test(coordinator_restore, one_whose_loss_is_held_back_is_waited_for_in_the_next_generation_too)
{
    rig r;
    sg_checkpoint_manifest manifest;
    train_and_lose(&r, &manifest, false);
    uint64_t worker = incarnation_of(hello_again(&r, 0, 1000));
    rig_declare(&r, worker);
    rig_call *first = rig_ticket(&r, worker, 0, 0, 0);
    cr_assert(rig_waits(first), "worker 1 was at it, too");
    rig_live(&r, 3 * r.config->lease_ms, (const uint64_t[]){worker, 0});
    rig_failed(first, SG_WAITING, "worker 1");
    uint64_t other = rig_join(&r, 1, 77);
    rig_declare(&r, other);
    first = rig_ticket(&r, worker, 0, 0, 0);
    rig_ticket(&r, other, 0, 0, 0);
    cr_assert_eq(rig_granted(first)->size, 2);
    rig_deinit(&r);
}

Test(coordinator_restore, a_ps_that_comes_again_while_all_losses_are_held_back_begins_a_generation)
{
    rig r;
    sg_checkpoint_manifest manifest;
    train_and_lose(&r, &manifest, true);
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, LOAD, &order), 1);
        cr_assert_eq(order->load->iteration, 50);
    }
    uint64_t workers[2] = {rig_join(&r, 0, 76), rig_join(&r, 1, 77)};
    rig_declare(&r, workers[0]);
    rig_declare(&r, workers[1]);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(first), "worker 1 was at it, too");
    rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert_eq(rig_granted(first)->size, 2);
    rig_deinit(&r);
}

Test(coordinator_restore, whoever_waits_for_one_that_was_at_it_hears_which)
{
    rig r;
    rig_init(&r,
             (const char *const[]){two_ps[0], two_ps[1], "workers=1", "max_workers=2", "on_worker_loss=wait", NULL});
    sg_checkpoint_manifest manifest = a_manifest(&r);
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    uint64_t worker = incarnation_of(hello_again(&r, 0, 7));
    rig_declare(&r, worker);
    rig_call *call = rig_ticket(&r, worker, 0, 0, 0);
    rig_pass(&r, r.config->park_ms + 100);
    rig_failed(call, SG_WAITING, "waiting for worker 1 to join (2 wanted, 1 here)");
    rig_deinit(&r);
}

/* The set is of two workers; one comes to a coordinator that was started for one. */
static rig_call *first_ticket_of_one(rig *r, sg_checkpoint_manifest *manifest, uint64_t generation_of_hello)
{
    rig_init(r, (const char *const[]){two_ps[0], two_ps[1], "workers=1", "max_workers=2", NULL});
    sg_coordinator_destroy(r->coordinator);
    *manifest = a_manifest(r);
    r->newest = manifest;
    r->coordinator = sg_coordinator_create(r->config);
    rig_register_all(r);
    rig_register_all(r);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, 0, 7);
    hello.generation = generation_of_hello;
    const uint64_t worker = incarnation_of(rig_hello_with(r, &hello));
    rig_declare(r, worker);
    return rig_ticket(r, worker, 0, 0, 0);
}

Test(coordinator_restore, a_job_that_is_started_anew_with_fewer_workers_waits_for_no_others)
{
    rig r;
    sg_checkpoint_manifest manifest;
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(first_ticket_of_one(&r, &manifest, 0));
    cr_assert_eq(ticket->step->step, 50);
    cr_assert_eq(ticket->size, 1);
    rig_deinit(&r);
}

Test(coordinator_restore, one_that_comes_again_to_ps_0_started_anew_waits_for_those_that_were_with_it)
{
    rig r;
    sg_checkpoint_manifest manifest;
    rig_call *call = first_ticket_of_one(&r, &manifest, 1);
    rig_pass(&r, r.config->park_ms + 100);
    rig_failed(call, SG_WAITING, "waiting for worker 1 to join (2 wanted, 1 here)");
    rig_deinit(&r);
}

Test(coordinator_restore, a_coordinator_that_is_started_goes_on_from_what_it_finds)
{
    rig r;
    rig_init(&r, two_ps);
    sg_coordinator_destroy(r.coordinator);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    r.newest = &manifest;
    r.coordinator = sg_coordinator_create(r.config);
    rig_failed(rig_register(&r, 0), SG_NOT_READY, "begins its generation");
    /* ps 1 served the coordinator before: it is to come as a new life, and then drops what it has. */
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.orders = 9;
    report.generation = 1;
    rig_failed(rig_report(&r, 1, &report, false), SG_ROLLED_BACK, "new life");
    report.orders = 0;
    cr_assert_eq(rig_report(&r, 1, &report, false)->status, SG_OK);
    rig_register(&r, 0);
    cr_assert_eq(rig_ordered(&r, 1, BEGIN, NULL), 1);
    cr_assert_eq(rig_ordered(&r, 0, BEGIN, NULL), 0);
    cr_assert_eq(rig_ordered(&r, 1, LOAD, NULL), 1);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_failed(rig_heartbeat(&r, (uint64_t)1 << 32 | 77), SG_ROLLED_BACK, "generation 1 has passed");
    rig_deinit(&r);
}

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

Test(coordinator_restore, a_checkpoint_that_a_ps_finds_damaged_is_skipped_for_an_older_one)
{
    rig r = {0}, any;
    rig_init(&any, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&any), older = manifest;
    older.set.iteration = 40;
    start_to_restore(&r, &manifest, two_ps);
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
    cr_assert_eq(hello_again(&r, 0, 7)->status, SG_OK);
    rig_register_as(&r, 1, 556, "host:9");
    cr_assert(r.record_due);
    cr_assert_eq(r.damaged.generation, 0, "the next one may start from whatever is newest then");
    rig_record(&r, SG_OK, "");
    rig_deinit(&r);
    rig_deinit(&any);
}

Test(coordinator_restore, a_damaged_checkpoint_that_was_asked_for_or_is_the_last_ends_the_job)
{
    const char *const asked[] = {two_ps[0], two_ps[1], "restore=50", NULL};
    rig r, any;
    rig_init(&any, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&any);
    start_to_restore(&r, &manifest, asked);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    cr_assert_not(r.record_due);
    rig_failed(rig_hello(&r, 0, 7), SG_DATA, "ps-0.safetensors is damaged");
    r.acknowledge = true;
    rig_pass(&r, 100);
    rig_deinit(&r);
    start_to_restore(&r, &manifest, two_ps);
    rig_acknowledge(&r, 1, SG_DATA, "ps-0.safetensors is damaged");
    r.acknowledge = true;
    rig_record(&r, SG_DATA, "there is none that is older");
    rig_failed(rig_hello(&r, 0, 7), SG_DATA, "there is none that is older");
    rig_deinit(&r);
    rig_deinit(&any);
}

Test(coordinator_restore, a_checkpoint_that_a_ps_cannot_read_now_ends_the_job_with_that_reason_and_is_not_skipped)
{
    static const sg_status reasons[] = {SG_IO, SG_NOT_FOUND, SG_EXHAUSTED};
    for (size_t i = 0; i < SG_ARRAY_LEN(reasons); i++) {
        rig r, any;
        rig_init(&any, two_ps);
        sg_checkpoint_manifest manifest = a_manifest(&any);
        start_to_restore(&r, &manifest, two_ps);
        rig_acknowledge(&r, 1, reasons[i], "cannot read ps-0.safetensors: why");
        cr_assert_not(r.record_due);
        rig_failed(rig_hello(&r, 0, 7), reasons[i], "cannot read ps-0.safetensors: why");
        r.acknowledge = true;
        rig_pass(&r, 100);
        rig_deinit(&r);
        rig_deinit(&any);
    }
}

/* It was lost before its first checkpoint was complete: workers wait for it, and it tells them so. */
Test(coordinator_restore, a_coordinator_that_is_started_again_before_any_checkpoint_does_not_wait_for_ever_for_a_ps)
{
    rig r;
    rig_init(&r, (const char *const[]){two_ps[0], two_ps[1], "start_timeout_ms=9000", NULL});
    sg_coordinator_destroy(r.coordinator);
    r.coordinator = sg_coordinator_create(r.config);
    rig_register(&r, 0); /* its generation is recorded */
    rig_register(&r, 0);
    rig_call *hello = hello_again(&r, 0, 7);
    for (unsigned second = 0; second < 9; second++) {
        cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
        rig_pass(&r, 1000);
        rig_register(&r, 0);
    }
    rig_failed(hello, SG_WAITING, "waiting for ps 1 to register");
    rig_failed(hello_again(&r, 0, 7), SG_PEER_LOST, "ps 1 was lost and did not come back");
    rig_deinit(&r);
}

Test(coordinator_restore, a_job_without_a_checkpoint_to_go_on_from_ends_naming_the_ps)
{
    rig r;
    rig_init(&r, (const char *const[]){two_ps[0], NULL});
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_failed(rig_register_as(&r, 1, 555, "host:1"), SG_PEER_LOST, "ps 1 (host:1) was started anew");
    rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST, "ps 1 (host:1)");
    rig_deinit(&r);
}

Test(coordinator_restore, a_coordinator_that_finds_a_later_record_ends_as_superseded)
{
    rig r;
    rig_init(&r, two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    rig_record(&r, SG_FENCED, "generation 5 is recorded in /somewhere, this one is in 1");
    rig_failed(rig_heartbeat(&r, worker), SG_FENCED, "another ps 0 has taken over");
    rig_deinit(&r);
}

Test(coordinator_restore, a_checkpoint_of_another_rule_is_refused)
{
    rig r;
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    snprintf(manifest.rule, sizeof manifest.rule, "adagrad");
    r.newest = &manifest;
    rig_register_all(&r);
    rig_join(&r, 0, 7);
    rig_register_as(&r, 1, 555, "host:9");
    rig_failed(rig_hello(&r, 1, 8), SG_CONFIG, "made with update.rule adagrad");
    rig_deinit(&r);
}

/* What they trained is there for whoever comes. */
Test(coordinator_restore, a_ps_that_is_lost_after_all_have_left_a_job_that_lingers_begins_a_generation)
{
    rig r;
    rig_init(&r, (const char *const[]){two_ps[0], two_ps[1], "linger=true", NULL});
    sg_checkpoint_manifest manifest = a_manifest(&r);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_leave(&r, workers[0], 1);
    rig_leave(&r, workers[1], 1);
    r.newest = &manifest;
    cr_assert_eq(rig_register_as(&r, 1, 555, "host:9")->status, SG_OK);
    rig_pass(&r, 300);
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++)
        cr_assert_eq(rig_ordered(&r, ps, LOAD, &order), 1, "ps %u", ps);
    uint64_t next = rig_join(&r, 2, 77);
    cr_assert_eq(rig_declare(&r, next)->status, SG_OK);
    rig_deinit(&r);
}

/* Begun, or asked for, while the job goes back. */
Test(coordinator_restore, whoever_asks_for_a_checkpoint_meanwhile_waits_until_the_job_goes_on)
{
    rig r;
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_call *before = rig_save(&r, 1);
    cr_assert(rig_waits(before));
    r.newest = &manifest;
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    rig_call *meanwhile = rig_save(&r, 2), *again = rig_save(&r, 1);
    rig_pass(&r, r.config->park_ms + 100);
    rig_failed(meanwhile, SG_WAITING, "waiting for the job to go back to its newest checkpoint (ps 1 (host:1)");
    rig_failed(before, SG_WAITING, "waiting for");
    rig_failed(again, SG_WAITING, "waiting for the job to go back");
    meanwhile = rig_save(&r, 2);
    rig_record(&r, SG_OK, "");
    cr_assert_eq(meanwhile->status, SG_OK, "%s", meanwhile->text);
    cr_assert_eq(((const Shardgrad__V1__SaveResponse *)meanwhile->body)->iteration, 50);
    cr_assert_eq(((const Shardgrad__V1__SaveResponse *)meanwhile->body)->generation, 2);
    rig_deinit(&r);
}

static double first_rate(rig *r, const char *const settings[], sg_checkpoint_manifest *manifest)
{
    rig_init(r, settings);
    sg_coordinator_destroy(r->coordinator);
    r->newest = manifest;
    r->coordinator = sg_coordinator_create(r->config);
    rig_register_all(r);
    rig_register_all(r);
    uint64_t workers[2] = {incarnation_of(hello_again(r, 0, 7)), incarnation_of(hello_again(r, 1, 8))};
    rig_declare(r, workers[0]);
    rig_declare(r, workers[1]);
    rig_ticket(r, workers[0], 0, 0, 0);
    return (double)rig_granted(rig_ticket(r, workers[1], 0, 0, 0))->step->learning_rate;
}

Test(coordinator_restore, what_was_set_before_the_checkpoint_holds_for_a_coordinator_that_is_started_again)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, (const char *const[]){two_ps[0], two_ps[1], "update.learning_rate=0.5", NULL});
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
    sg_checkpoint_manifest manifest = a_manifest(&r);
    manifest.changes = r.manifest.changes;
    manifest.n_changes = r.manifest.n_changes;
    const char *const again[] = {two_ps[0], two_ps[1], "update.learning_rate=0.5", NULL};
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
Test(coordinator_restore, what_was_set_holds_after_a_ps_was_lost)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_set(&r, 1, "update.learning_rate", "0.125");
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = incarnation_of(hello_again(&r, i, 1000 + i));
        rig_declare(&r, workers[i]);
    }
    rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert_float_eq((double)rig_granted(rig_ticket(&r, workers[1], 0, 0, 0))->step->learning_rate, 0.125, 1e-9);
    rig_deinit(&r);
}

/* Steps are handed out while it is made, and a slice that closes the first of them keeps what was before it. */
Test(coordinator_restore, steps_tell_a_cut_of_iteration_0_from_the_checkpoint_of_iteration_0_that_was_restored)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&r);
    manifest.set.iteration = 0;
    manifest.steps = (uint64_t[]){0, 0};
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_set(&r, 1, "update.learning_rate", "0.125");
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    for (uint32_t i = 0; i < 2; i++) {
        workers[i] = incarnation_of(hello_again(&r, i, 1000 + i));
        rig_declare(&r, workers[i]);
    }
    cr_assert(rig_waits(rig_save(&r, 9)), "it is to have what was set since");
    cr_assert_eq(rig_cut(&r)->mark, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    const Shardgrad__V1__Step *step = rig_granted(rig_ticket(&r, workers[1], 0, 0, 0))->step;
    cr_assert_eq(step->step, 0);
    cr_assert_eq(step->checkpoint_mark, rig_cut(&r)->ticket_mark);
    cr_assert_gt(step->checkpoint_mark, 0);
    rig_deinit(&r);
}

/* The coordinator finds a set in which something was set before. */
static void start_with_change(rig *r, sg_checkpoint_manifest *manifest, sg_checkpoint_change *change)
{
    rig_init(r, two_ps);
    *manifest = a_manifest(r);
    manifest->changes = change;
    manifest->n_changes = 1;
    sg_coordinator_destroy(r->coordinator);
    r->newest = manifest;
    r->coordinator = sg_coordinator_create(r->config);
}

Test(coordinator_restore, a_change_that_does_not_fit_the_cluster_file_of_now_ends_the_job_naming_it)
{
    rig r;
    sg_checkpoint_change change = {.key = (char *)"update.momentum", .value = (char *)"7"};
    sg_checkpoint_manifest manifest;
    start_with_change(&r, &manifest, &change);
    rig_register(&r, 0);
    rig_failed(rig_hello(&r, 0, 7), SG_CONFIG, "update.momentum");
    rig_deinit(&r);
}

Test(coordinator_restore, what_was_set_before_is_the_answer_to_no_request)
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

/* ps 0 is started again in a job of one worker, which others had joined, before anything was saved. */
static void start_again(rig *r, sg_checkpoint_manifest *manifest)
{
    static const char *const settings[] = {"ps=[\"127.0.0.1:0\",\"127.0.0.1:0\"]", "checkpoint.dir=/somewhere",
                                           "workers=1", NULL};
    static uint64_t first_steps[] = {0, 0};
    rig_init(r, settings);
    sg_coordinator_destroy(r->coordinator);
    *manifest = a_manifest(r);
    manifest->set.iteration = 0;
    manifest->steps = first_steps;
    manifest->members = (sg_workers){0};
    r->newest = manifest;
    r->tick_ms = r->now_ms += 100000; /* long after whatever the clock began with */
    r->coordinator = sg_coordinator_create(r->config);
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
    step_and_leave(&r, incarnation_of(hello_of(&r, generation_of_hello)));
    bool is_over = !is_running(&r);
    rig_live(&r, 3 * r.config->lease_ms, (const uint64_t[]){0});
    cr_assert_not(is_running(&r), "nobody is waited for for ever");
    rig_deinit(&r);
    return is_over;
}

Test(coordinator_restore, where_one_has_returned_others_get_the_time_to_before_all_have_left)
{
    cr_assert(is_over_when_the_first_has_left(0), "nobody was there before");
    cr_assert_not(is_over_when_the_first_has_left(1));
}

Test(coordinator_restore, others_get_that_time_from_when_all_is_loaded)
{
    rig r;
    sg_checkpoint_manifest manifest;
    start_again(&r, &manifest);
    rig_register(&r, 0);
    rig_call *hello = hello_of(&r, 1); /* ps 1 is not there yet */
    rig_pass(&r, 300);
    rig_register_all(&r);
    step_and_leave(&r, incarnation_of(hello));
    cr_assert(is_running(&r), "%s", r.log);
    rig_deinit(&r);
}

Test(coordinator_restore, a_job_that_waits_for_others_and_loses_a_ps_meanwhile_goes_back_before_it_ends)
{
    rig r;
    sg_checkpoint_manifest manifest;
    start_again(&r, &manifest);
    rig_register_all(&r);
    step_and_leave(&r, incarnation_of(hello_of(&r, 1)));
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

Test(coordinator_restore, a_hello_is_taken_back_only_when_the_generation_has_begun)
{
    rig r;
    uint64_t worker;
    rig_init(&r, (const char *const[]){two_ps[0], two_ps[1], "workers=1", NULL});
    rig_start(&r, 1, &worker);
    rig_complete(&r, 0);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    rig_hello(&r, 1, 1001);
    rig_leave(&r, worker, 1);
    sg_checkpoint_manifest manifest = a_manifest(&r);
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

Test(coordinator_restore, nothing_is_set_while_a_generation_is_recorded_and_what_the_checkpoint_says_holds)
{
    rig r;
    rig_init(&r, two_ps);
    sg_checkpoint_change change = {.key = (char *)"update.learning_rate", .value = (char *)"0.125"};
    sg_checkpoint_manifest manifest = a_manifest(&r);
    manifest.changes = &change;
    manifest.n_changes = 1;
    sg_coordinator_destroy(r.coordinator);
    r.newest = &manifest;
    r.keeps_records = true;
    r.coordinator = sg_coordinator_create(r.config);
    rig_register(&r, 0);
    rig_failed(rig_set(&r, 1, "update.weight_decay", "0.25"), SG_NOT_READY, "begins another generation");
    rig_record(&r, SG_OK, "");
    cr_assert(rig_logged(&r, "set_again") > 0);
    rig_deinit(&r);
}

/* --- what was declared with other ps, or another slice_bytes --------------------------------------------------- */

/* A coordinator that is started on a checkpoint of these variables. */
static void start_on(rig *r, const char *const settings[], sg_checkpoint_manifest *manifest,
                     sg_checkpoint_variable *list, uint32_t n)
{
    rig_init(r, settings);
    sg_coordinator_destroy(r->coordinator);
    *manifest = a_manifest(r);
    manifest->slice_bytes = 1048576;
    manifest->variables = list;
    manifest->n_variables = n;
    manifest->n_groups = 1;
    r->newest = manifest;
    r->coordinator = sg_coordinator_create(r->config);
    rig_failed(rig_register(r, 0), SG_NOT_READY, "begins its generation");
}

static sg_checkpoint_variable one_variable(uint64_t *shape)
{
    return (sg_checkpoint_variable){
        .name = (char *)"weight", .shape = shape, .rank = 1, .lr_multiplier = 1, .decay_multiplier = 1};
}

Test(coordinator_restore, a_checkpoint_of_more_slices_than_there_may_be_is_refused_and_kills_nobody)
{
    rig r;
    sg_checkpoint_manifest manifest;
    uint64_t shape = (UINT64_C(1) << 24) * 16 + 1;
    sg_checkpoint_variable weight = one_variable(&shape);
    start_on(&r, (const char *const[]){two_ps[0], two_ps[1], "slice_bytes=64", NULL}, &manifest, &weight, 1);
    rig_failed(rig_set(&r, 1, "update.clip_global_norm", "1"), SG_CONFIG, "cannot be restored with 2 and 64: ");
    rig_failed(rig_register(&r, 1), SG_CONFIG, "step-000000000050-g1 was made with 2 ps and slice_bytes 1048576");
    rig_deinit(&r);
}

Test(coordinator_restore, a_checkpoint_whose_norms_do_not_fit_into_a_message_is_refused)
{
    rig r;
    sg_checkpoint_manifest manifest;
    uint64_t shape = 16u * 2u * 70000u;
    sg_checkpoint_variable weight = one_variable(&shape);
    start_on(&r, (const char *const[]){two_ps[0], two_ps[1], "slice_bytes=64", "update.clip_global_norm=1", NULL},
             &manifest, &weight, 1);
    rig_failed(rig_register(&r, 1), SG_CONFIG, "ps 0 has 70000 slices of group 0, and where update.rule is lars");
    rig_deinit(&r);
}

/* What is left unsaid in a declaration is left unsaid to every ps. */
Test(coordinator_restore, a_list_that_fitted_into_a_message_when_it_was_declared_fits_when_it_is_restored)
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
    start_on(&r, two_ps, &manifest, list, n);
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

/* It may come when the next generation has begun: what it acknowledges is not what this one waits for. */
Test(coordinator_restore, a_load_of_the_generation_before_that_is_acknowledged_late_does_not_count)
{
    rig r = {0}, any;
    rig_init(&any, two_ps);
    sg_checkpoint_manifest manifest = a_manifest(&any), older = manifest;
    older.set.iteration = 40;
    start_to_restore(&r, &manifest, two_ps);
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
