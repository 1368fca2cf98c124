/* Generations that start from a checkpoint. */
#include <criterion/criterion.h>
#include <inttypes.h>

#include "common/status.h"
#include "tests/server/restored_fixture.h"

#define BEGIN   SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN
#define LOAD    SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD
#define HYPER   SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER
#define DECLARE SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET

Test(coordinator_restore, nobody_is_told_of_a_generation_before_it_is_recorded)
{
    rig r;
    rig_init(&r, restored_two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    rig_failed(rig_heartbeat(&r, worker), SG_NOT_READY, "begins another generation");
    rig_failed(restored_hello(&r, 0, 7), SG_NOT_READY, "begins another generation");
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
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
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
    uint64_t workers[2] = {restored_incarnation(restored_hello(&r, 0, 7)),
                           restored_incarnation(restored_hello(&r, 1, 8))};
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
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    r.newest = &manifest;
    restored_new_ps(&r, 555);
    const uint64_t worker = restored_again(&r, 0);
    rig_ticket(&r, worker, 0, 0, 0);
    rig_live(&r, 2 * r.config->lease_ms + r.config->park_ms + 2000, (const uint64_t[]){worker, 0});
    const Shardgrad__V1__TicketResponse *ticket = rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    cr_assert_eq(ticket->step->step, 50);
    cr_assert_eq(ticket->size, 1);
    rig_deinit(&r);
}

/* Of three workers one was lost long ago; then ps 1 is started anew, so many times before the next step, and before
 * anything but the initial values was saved. */
static void go_back_to_the_beginning(rig *r, sg_checkpoint_manifest *manifest, uint64_t n_times, uint64_t workers[2])
{
    static uint64_t zeros[] = {0, 0};
    uint64_t all[3];
    rig_init(r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "workers=3", NULL});
    rig_start(r, 3, all);
    rig_complete(r, 0);
    for (uint32_t i = 0; i < 3; i++)
        rig_ticket(r, all[i], 0, 0, 0);
    rig_live(r, r->config->lease_ms + 2000, (const uint64_t[]){all[0], all[1], 0});
    cr_assert(rig_logged(r, "excused worker=2"), "%s", r->log);
    *manifest = restored_manifest(r);
    manifest->set.iteration = manifest->next_iteration = 0;
    manifest->steps = zeros;
    r->newest = manifest;
    for (uint64_t life = 555; life < 555 + n_times; life++) {
        restored_new_ps(r, life);
        rig_pass(r, 300);
    }
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = restored_incarnation(restored_hello(r, i, 1000 + i));
}

Test(coordinator_restore, one_that_was_lost_before_a_recovery_from_the_initial_values_is_not_waited_for)
{
    for (uint64_t n_times = 1; n_times < 3; n_times++) {
        rig r;
        sg_checkpoint_manifest manifest;
        uint64_t workers[2];
        go_back_to_the_beginning(&r, &manifest, n_times, workers);
        for (uint32_t i = 0; i < 2; i++)
            rig_declare(&r, workers[i]);
        rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
        rig_ticket(&r, workers[1], 0, 0, 0);
        cr_assert_eq(rig_granted(first)->size, 2);
        rig_deinit(&r);
    }
}

/* It went on alone from a set of two; then ps 1 is lost, and lost again before the next step. */
Test(coordinator_restore, one_that_was_never_in_this_job_is_not_waited_for_after_two_recoveries_either)
{
    rig r;
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "workers=1", "max_workers=3",
                                       "on_worker_loss=abort", NULL});
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    restored_coordinator(&r, &manifest);
    rig_register_all(&r);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    rig_declare(&r, worker);
    rig_granted(rig_ticket(&r, worker, 0, 0, 0));
    for (uint64_t life = 555; life < 557; life++) {
        restored_new_ps(&r, life);
        rig_pass(&r, 300);
    }
    worker = restored_incarnation(restored_hello(&r, 0, 7));
    rig_declare(&r, worker);
    cr_assert_eq(rig_granted(rig_ticket(&r, worker, 0, 0, 0))->size, 1);
    rig_deinit(&r);
}

Test(coordinator_restore, after_a_recovery_from_the_initial_values_the_job_ends_when_those_who_were_at_it_have_left)
{
    rig r;
    sg_checkpoint_manifest manifest;
    uint64_t workers[2];
    go_back_to_the_beginning(&r, &manifest, 1, workers);
    for (uint32_t i = 0; i < 2; i++)
        cr_assert_eq(rig_leave(&r, workers[i], UINT64_MAX)->status, SG_OK);
    rig_live(&r, 60000, NULL);
    cr_assert_eq(r.n_ends, 1, "it waits: %s", rig_status(&r)->waiting_for);
    rig_deinit(&r);
}

/* Two workers compute a step, then worker 1 or both fall silent, their losses are held back, and ps 1 comes anew. */
static void train_and_lose(rig *r, sg_checkpoint_manifest *manifest, bool both)
{
    rig_init(r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "on_worker_loss=wait", NULL});
    *manifest = restored_manifest(r);
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
    const uint64_t worker = restored_again(&r, 0);
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

/* As long as it would be without a recovery. */
Test(coordinator_restore, one_that_was_at_it_is_not_waited_for_without_end)
{
    rig r;
    sg_checkpoint_manifest manifest;
    train_and_lose(&r, &manifest, false);
    const uint64_t worker = restored_again(&r, 0);
    rig_call *first = rig_ticket(&r, worker, 0, 0, 0);
    rig_live(&r, r.config->start_timeout_ms + 1000, (const uint64_t[]){worker, 0});
    rig_failed(rig_ticket(&r, worker, 0, 0, 0), SG_PEER_LOST, "worker 1 did not come again within 60");
    cr_assert_not(rig_waits(first));
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

/* The set is of two workers; one comes to a coordinator that was started for one. */
static rig_call *first_ticket_of_one(rig *r, sg_checkpoint_manifest *manifest, uint64_t generation_of_hello)
{
    rig_init(r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "workers=1", "max_workers=2", NULL});
    *manifest = restored_manifest(r);
    restored_coordinator(r, manifest);
    rig_register_all(r);
    rig_register_all(r);
    Shardgrad__V1__HelloRequest hello = rig_hello_request(r, 0, 7);
    hello.generation = generation_of_hello;
    const uint64_t worker = restored_incarnation(rig_hello_with(r, &hello));
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

/* Who is not awaited is not missed. */
Test(coordinator_restore, workers_of_a_job_that_is_started_anew_may_come_late)
{
    for (uint32_t n_workers = 2; n_workers < 4; n_workers++) { /* as many as made the set, and more */
        rig r;
        char wanted[32];
        snprintf(wanted, sizeof wanted, "workers=%" PRIu32, n_workers);
        rig_init(&r,
                 (const char *const[]){restored_two_ps[0], restored_two_ps[1], wanted, "on_worker_loss=abort", NULL});
        sg_checkpoint_manifest manifest = restored_manifest(&r);
        restored_coordinator(&r, &manifest);
        rig_register_all(&r);
        rig_register_all(&r);
        const uint64_t worker = rig_join(&r, 1, 7);
        rig_declare(&r, worker);
        rig_ticket(&r, worker, 0, 0, 0);
        rig_live(&r, 20000, (const uint64_t[]){worker, 0});
        cr_assert_not(rig_logged(&r, "failed"), "%s", r.log);
        cr_assert_not(rig_logged(&r, "lost worker="), "%s", r.log);
        rig_deinit(&r);
    }
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
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    restored_coordinator(&r, &manifest);
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

/* It was lost before its first checkpoint was complete: workers wait for it, and it tells them so. */
Test(coordinator_restore, a_coordinator_that_is_started_again_before_any_checkpoint_does_not_wait_for_ever_for_a_ps)
{
    rig r;
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "start_timeout_ms=9000", NULL});
    sg_coordinator_destroy(r.coordinator);
    r.coordinator = sg_coordinator_create(r.config);
    rig_register(&r, 0); /* its generation is recorded */
    rig_register(&r, 0);
    rig_call *hello = restored_hello(&r, 0, 7);
    for (unsigned second = 0; second < 9; second++) {
        cr_assert_neq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED);
        rig_pass(&r, 1000);
        rig_register(&r, 0);
    }
    rig_failed(hello, SG_WAITING, "waiting for ps 1 to register");
    rig_failed(restored_hello(&r, 0, 7), SG_PEER_LOST, "ps 1 was lost and did not come back");
    rig_deinit(&r);
}

Test(coordinator_restore, a_job_without_a_checkpoint_to_go_on_from_ends_naming_the_ps)
{
    rig r;
    rig_init(&r, (const char *const[]){restored_two_ps[0], NULL});
    uint64_t workers[2];
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    rig_granted(rig_ticket(&r, workers[1], 0, 0, 0));
    rig_failed(rig_register_as(&r, 1, 555, "host:1"), SG_PEER_LOST, "ps 1 (host:1) was started anew");
    rig_failed(rig_heartbeat(&r, workers[0]), SG_PEER_LOST,
               "is lost, for checkpoint.dir is not set: start the job again");
    rig_deinit(&r);
}

Test(coordinator_restore, a_coordinator_that_finds_a_later_record_ends_as_superseded)
{
    rig r;
    rig_init(&r, restored_two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    rig_record(&r, SG_FENCED, "generation 5 is recorded in /somewhere, this one is in 1");
    rig_failed(rig_heartbeat(&r, worker), SG_FENCED, "another ps 0 has taken over");
    rig_deinit(&r);
}

/* What they trained is there for whoever comes. */
Test(coordinator_restore, a_ps_that_is_lost_after_all_have_left_a_job_that_lingers_begins_a_generation)
{
    rig r;
    rig_init(&r, (const char *const[]){restored_two_ps[0], restored_two_ps[1], "linger=true", NULL});
    sg_checkpoint_manifest manifest = restored_manifest(&r);
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
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
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
    cr_assert_eq(((const Shardgrad__V1__SaveResponse *)meanwhile->body)->generation, 1, "of the set, not of the job");
    rig_deinit(&r);
}

/* Steps are handed out while it is made, and a slice that closes the first of them keeps what was before it. */
Test(coordinator_restore, steps_tell_a_cut_of_iteration_0_from_the_checkpoint_of_iteration_0_that_was_restored)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, restored_two_ps);
    sg_checkpoint_manifest manifest = restored_manifest(&r);
    manifest.set.iteration = 0;
    manifest.steps = (uint64_t[]){0, 0};
    rig_start(&r, 2, workers);
    rig_complete(&r, 0);
    rig_set(&r, 1, "update.learning_rate", "0.125");
    r.newest = &manifest;
    rig_register_as(&r, 1, 555, "host:9");
    for (uint32_t i = 0; i < 2; i++)
        workers[i] = restored_again(&r, i);
    cr_assert(rig_waits(rig_save(&r, 9)), "it is to have what was set since");
    cr_assert_eq(rig_cut(&r)->mark, 0);
    rig_ticket(&r, workers[0], 0, 0, 0);
    const Shardgrad__V1__Step *step = rig_granted(rig_ticket(&r, workers[1], 0, 0, 0))->step;
    cr_assert_eq(step->step, 0);
    cr_assert_eq(step->checkpoint_mark, rig_cut(&r)->ticket_mark);
    cr_assert_gt(step->checkpoint_mark, 0);
    rig_deinit(&r);
}
