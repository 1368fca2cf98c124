/* A change of mode or rule while the job runs. */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/server/coordinator_fixture.h"

#define BEGIN   SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN
#define LOAD    SHARDGRAD__V1__ORDER_REQUEST__ORDER_LOAD
#define CUT     SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT
#define DECLARE SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET

TestSuite(coordinator_change, .timeout = 20);

static rig r;
static uint64_t workers[3];
static rig_call *tickets[3];

/* The manifest that was written, as the next generation finds it. */
static sg_checkpoint_manifest written;

static void complete(uint64_t iteration)
{
    cr_assert_eq(rig_cut(&r)->mark, iteration, "cut before %lu", rig_cut(&r)->mark);
    rig_report_saved(&r);
    sg_checkpoint_manifest_deinit(&written);
    sg_checkpoint_manifest_copy(&written, &r.manifest);
    r.newest = &written;
    rig_written(&r, SG_OK, "");
}

/* Two workers that have the first step of each group, after the checkpoint of the initial values. */
static void begin(const char *mode, const char *rule, const char *more)
{
    rig_init(
        &r, (const char *[]){"workers=2", "ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/somewhere", mode, rule, more, NULL});
    memset(workers, 0, sizeof workers);
    rig_start(&r, 2, workers);
    for (uint32_t i = 0; i < 2; i++)
        tickets[i] = rig_ticket(&r, workers[i], 0, 0, 0);
    complete(0);
    for (uint32_t i = 0; i < 2; i++) {
        rig_granted(tickets[i]);
        rig_granted(rig_ticket(&r, workers[i], 1, 0, 0));
    }
}

/* It has finished its step of the second group. */
static void finish_other(uint32_t worker)
{
    rig_ticket(&r, workers[worker], 1, 1, 1);
}

static const Shardgrad__V1__SetResponse *answered(const rig_call *call)
{
    cr_assert_eq(call->n_answers, 1);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return (const Shardgrad__V1__SetResponse *)call->body;
}

static const Shardgrad__V1__PsDeclareRequest *declared(uint32_t ps)
{
    for (uint32_t i = r.n_orders[ps]; i-- > 0;) {
        if (r.orders[ps][i].body->descriptor == &shardgrad__v1__ps_declare_request__descriptor)
            return (const Shardgrad__V1__PsDeclareRequest *)r.orders[ps][i].body;
    }
    cr_assert_fail("nothing was declared");
    return NULL;
}

static uint64_t come_again(uint32_t worker)
{
    Shardgrad__V1__HelloRequest hello = rig_hello_request(&r, worker, 1000 + worker);
    hello.generation = 1;
    rig_call *call = rig_hello_with(&r, &hello);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__HelloResponse *)call->body)->incarnation;
}

static void end(void)
{
    sg_checkpoint_manifest_deinit(&written);
    written = (sg_checkpoint_manifest){0};
    rig_deinit(&r);
}

Test(coordinator_change, begun_steps_close_a_checkpoint_is_cut_and_a_generation_begins_that_has_it)
{
    begin("update.mode=sync", "update.rule=momentum", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    rig_call *next = rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert(rig_waits(next), "no step is begun");
    cr_assert_eq(rig_cut(&r)->mark, 1, "the cut is behind the step that was begun");
    cr_assert_eq(rig_cut(&r)->steps[0], 1);
    cr_assert(rig_waits(call));
    complete(1);
    cr_assert_str_eq(written.mode, "sync");
    cr_assert_eq(written.n_changes, 0, "nothing was changed yet");
    rig_failed(next, SG_ROLLED_BACK, "update.mode is async from now on, as asked");
    cr_assert(rig_logged(&r, "INFO generation above=1"), "nobody is to be alarmed: %s", r.log);
    rig_failed(rig_heartbeat(&r, workers[1]), SG_ROLLED_BACK,
               "the job is in 2: update.mode is async from now on, as asked");
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, BEGIN, NULL), 1);
        cr_assert_eq(declared(ps)->mode, SHARDGRAD__V1__MODE__MODE_ASYNC);
        cr_assert_str_eq(declared(ps)->rule, "momentum");
        cr_assert_eq(rig_ordered(&r, ps, LOAD, &order), 1);
        cr_assert_not(order->load->fresh_slots);
        cr_assert_eq(order->load->n_steps, 0);
    }
    cr_assert_eq(answered(call)->generation, 2);
    cr_assert_eq(answered(call)->iteration, 1);
    cr_assert_eq(answered(call)->number, 2);
    cr_assert_eq(answered(call)->steps[0], 1);
    cr_assert_eq(rig_status(&r)->mode, SHARDGRAD__V1__MODE__MODE_ASYNC);
    end();
}

/* So a coordinator that is started anew has it, too, though no checkpoint does. */
Test(coordinator_change, the_record_of_the_new_generation_has_the_change_and_nobody_is_told_before_it_is_made)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    r.keeps_records = true;
    complete(1);
    cr_assert(rig_waits(call));
    cr_assert_eq(r.n_record_changes, 1);
    cr_assert_str_eq(r.record_changes[0].key, "update.mode");
    cr_assert_str_eq(r.record_changes[0].value, "async");
    rig_record(&r, SG_OK, "");
    cr_assert_eq(answered(call)->generation, 2);
    end();
}

Test(coordinator_change, told_to_stop_while_it_is_recorded_nobody_is_told_more_than_is_known)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    r.keeps_records = true;
    complete(1);
    rig_report(&r, 0, NULL, true);
    rig_failed(call, SG_STOPPED, "was told to stop; its change was being recorded: when the job is started again");
    rig_record(&r, SG_OK, "");
    rig_failed(rig_set(&r, 8, "update.mode", "ssp"), SG_STOPPED, "was told to stop; nothing is changed");
    end();
}

Test(coordinator_change, what_was_refused_because_the_job_was_about_to_end_is_not_begun_by_a_late_repeat)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_leave(&r, workers[0], 1);
    rig_leave(&r, workers[1], 1);
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_STOPPED, "about to end: nothing is changed any more");
    rig_join(&r, 0, 77); /* so it does not end */
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_STOPPED, "about to end: nothing is changed any more");
    end();
}

Test(coordinator_change, told_to_stop_before_it_is_recorded_nothing_is_changed)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    rig_report(&r, 0, NULL, true);
    rig_failed(call, SG_STOPPED, "nothing is changed");
    end();
}

Test(coordinator_change, told_to_stop_once_it_is_recorded_it_holds)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    r.silent[1] = true; /* it does not load */
    complete(1);
    cr_assert(rig_waits(call));
    rig_report(&r, 0, NULL, true);
    cr_assert_eq(answered(call)->generation, 2);
    end();
}

Test(coordinator_change, the_next_generation_has_it_in_its_record_though_it_began_from_the_same_checkpoint)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.mode", "async");
    complete(1);
    r.keeps_records = true;
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    cr_assert(r.record_due);
    cr_assert_eq(r.n_record_changes, 1);
    cr_assert_str_eq(r.record_changes[0].value, "async");
    rig_record(&r, SG_OK, "");
    cr_assert_eq(rig_status(&r)->mode, SHARDGRAD__V1__MODE__MODE_ASYNC);
    end();
}

Test(coordinator_change, steps_of_the_new_generation_have_it)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.mode", "async");
    complete(1);
    uint64_t again[3] = {come_again(0), come_again(1)};
    rig_declare(&r, again[0]);
    rig_declare(&r, again[1]);
    rig_call *one = rig_ticket(&r, again[0], 0, 0, 0), *other = rig_ticket(&r, again[1], 0, 0, 0);
    cr_assert_eq(rig_granted(one)->step->step, 1);
    cr_assert_eq(rig_granted(one)->step->iteration, 1);
    cr_assert_eq(rig_granted(other)->step->step, 2);
    cr_assert_eq(rig_granted(one)->step->hyper, 2);
    end();
}

/* A trainer goes through the groups of an iteration in its own order. */
Test(coordinator_change, steps_of_an_iteration_that_was_begun_are_handed_out_still)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    cr_assert_eq(rig_cut(&r)->mark, 0, "the second group is still to come");
    cr_assert(rig_waits(rig_ticket(&r, workers[0], 0, 2, 2)));
    rig_granted(rig_ticket(&r, workers[0], 1, 1, 1));
    cr_assert_eq(rig_cut(&r)->mark, 2);
    cr_assert_eq(rig_cut(&r)->steps[1], 2);
    complete(2);
    cr_assert_eq(answered(call)->iteration, 2);
    end();
}

/* Each joiner is a member from the iteration on that the one before it has opened, and opens the next. */
Test(coordinator_change, a_group_of_which_joiners_are_far_ahead_is_waited_for)
{
    rig_init(&r, (const char *[]){"workers=2", "max_workers=8", "ps=[\"a:1\",\"b:2\"]", "checkpoint.dir=/somewhere",
                                  "update.mode=sync", NULL});
    memset(workers, 0, sizeof workers);
    rig_start(&r, 2, workers);
    for (uint32_t i = 0; i < 2; i++)
        tickets[i] = rig_ticket(&r, workers[i], 0, 0, 0);
    complete(0);
    uint64_t ahead = workers[0];
    for (uint32_t joiner = 2; joiner < 6; joiner++) {
        uint64_t next = rig_join(&r, joiner, 1000 + joiner);
        rig_declare(&r, next);
        rig_call *first = rig_ticket(&r, next, 0, 0, 0);
        cr_assert(rig_waits(first));
        rig_granted(rig_ticket(&r, ahead, 0, joiner - 1, 0));
        cr_assert_eq(rig_granted(first)->step->iteration, joiner - 1);
        ahead = next;
    }
    rig_set(&r, 7, "update.mode", "async");
    cr_assert_eq(rig_ordered(&r, 0, CUT, NULL), 1, "iteration 0 of the other group is still to come");
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 1, 0, 0))->step->iteration, 0);
    end();
}

Test(coordinator_change, a_group_that_does_not_come_is_not_waited_for_for_ever)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    rig_set(&r, 7, "update.mode", "async");
    rig_live(&r, 29800, workers);
    cr_assert_eq(rig_cut(&r)->mark, 0);
    rig_live(&r, 400, workers);
    cr_assert_eq(rig_cut(&r)->mark, 2);
    cr_assert_eq(rig_cut(&r)->steps[1], 1);
    rig_granted(rig_ticket(&r, workers[0], 1, 1, 1)); /* the step of the first group may wait for it */
    end();
}

/* Who takes its place again in an iteration that was begun has groups of it still to step. */
Test(coordinator_change, a_lost_worker_that_is_waited_for_belongs_to_what_was_begun)
{
    static Shardgrad__V1__Lacking lacking, *list[] = {&lacking};
    begin("update.mode=sync", "update.rule=sgd", "on_worker_loss=wait");
    rig_granted(rig_ticket(&r, workers[0], 0, 1, 1));
    rig_granted(rig_ticket(&r, workers[1], 0, 1, 1));
    rig_set(&r, 7, "update.rule", "momentum");
    rig_live(&r, 6000, (const uint64_t[]){workers[1], 0});
    const uint64_t first = rig_join(&r, 0, 2000);
    rig_declare(&r, first);
    rig_ticket(&r, first, 0, 0, 0);
    cr_assert(rig_logged(&r, "replaced worker=0"), "from the next iteration on: %s", r.log);
    shardgrad__v1__lacking__init(&lacking);
    lacking.step = 1;
    for (uint32_t ps = 0; ps < 2; ps++) {
        r.acknowledgement[ps].lacking = list;
        r.acknowledgement[ps].n_lacking = 1;
    }
    rig_live(&r, 6000, (const uint64_t[]){first, 0});
    cr_assert(rig_logged(&r, "lost worker=1"));
    cr_assert_eq(rig_cut(&r)->mark, 0, "the second group is still to come, with worker 1");
    const uint64_t second = rig_join(&r, 1, 3000);
    rig_declare(&r, second);
    cr_assert_eq(rig_granted(rig_ticket(&r, second, 0, 0, 0))->step->step, 1);
    cr_assert_eq(rig_granted(rig_ticket(&r, second, 1, 0, 0))->step->step, 1);
    cr_assert_eq(rig_cut(&r)->mark, 2);
    cr_assert_eq(rig_cut(&r)->steps[1], 2);
    complete(2);
    cr_assert_str_eq(declared(0)->rule, "momentum");
    end();
}

Test(coordinator_change, async_it_waits_until_every_ticket_is_finished)
{
    begin("update.mode=async", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "sync");
    finish_other(0);
    finish_other(1);
    rig_call *one = rig_ticket(&r, workers[0], 0, 1, 0), *other = rig_ticket(&r, workers[1], 0, 1, 1);
    cr_assert(rig_waits(other));
    cr_assert_eq(rig_cut(&r)->mark, 0, "worker 0 is still at it");
    rig_live(&r, 200, workers);
    rig_failed(one, SG_WAITING, "waiting for worker 0");
    cr_assert(rig_waits(other), "it has no news to tell");
    rig_ticket(&r, workers[0], 0, 1, 1);
    complete(2);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, LOAD, &order), 1);
    cr_assert_eq(order->load->n_steps, 2);
    cr_assert_eq(order->load->steps[0], 2, "all slices go on at one step");
    cr_assert_eq(declared(0)->mode, SHARDGRAD__V1__MODE__MODE_SYNC);
    complete(2);
    cr_assert_eq(answered(call)->generation, 2);
    end();
}

Test(coordinator_change, a_worker_that_leaves_or_rests_is_not_waited_for)
{
    begin("update.mode=async", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.rule", "adam");
    finish_other(0);
    rig_ticket(&r, workers[0], 0, 1, 1);
    cr_assert_eq(rig_cut(&r)->mark, 0);
    Shardgrad__V1__HeartbeatRequest rests = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
    rests.incarnation = workers[1];
    rests.generation = 1;
    rests.resting = true;
    rig_heartbeat_with(&r, &rests);
    cr_assert_eq(rig_cut(&r)->mark, 2);
    end();
}

Test(coordinator_change, another_rule_begins_with_slots_of_zeros_unless_they_mean_the_same)
{
    static const struct {
        const char *from, *to;
        bool fresh, told;
    } rows[] = {{"update.rule=sgd", "momentum", true, true},
                {"update.rule=momentum", "nesterov", false, false},
                {"update.rule=adagrad", "rmsprop", true, true},
                {"update.rule=adam", "adamw", false, false},
                {"update.rule=adam", "sgd", true, false}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin("update.mode=sync", rows[i].from, NULL);
        rig_call *call = rig_set(&r, 7, "update.rule", rows[i].to);
        complete(1);
        const Shardgrad__V1__OrderRequest *order = NULL;
        cr_assert_eq(rig_ordered(&r, 1, LOAD, &order), 1);
        cr_assert_eq(order->load->fresh_slots, rows[i].fresh, "%s", rows[i].to);
        cr_assert_str_eq(declared(1)->rule, rows[i].to);
        cr_assert_eq(answered(call)->fresh_slots, rows[i].told, "%s", rows[i].to);
        end();
    }
}

Test(coordinator_change, a_checkpoint_that_fails_leaves_all_as_it_was)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    rig_call *next = rig_ticket(&r, workers[0], 0, 1, 1);
    rig_report_saved(&r);
    rig_written(&r, SG_EXHAUSTED, "the disk is full");
    rig_failed(call, SG_EXHAUSTED, "nothing is changed, because the checkpoint for it could not be made");
    cr_assert_eq(rig_granted(next)->step->step, 1);
    cr_assert_eq(rig_status(&r)->mode, SHARDGRAD__V1__MODE__MODE_SYNC);
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_EXHAUSTED, "nothing is changed"); /* a late repeat */
    cr_assert_eq(answered(rig_set(&r, 8, "update.momentum", "0.5"))->number, 2);
    end();
}

Test(coordinator_change, what_holds_already_is_in_the_next_checkpoint)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.mode", "async");
    complete(1);
    rig_call *save = rig_save(&r, 1);
    cr_assert(rig_waits(save), "what it started from lacks the change");
    rig_report_saved(&r);
    cr_assert_eq(r.manifest.n_changes, 1);
    cr_assert_str_eq(r.manifest.mode, "async");
    rig_written(&r, SG_OK, "");
    cr_assert_eq(save->status, SG_OK, "%s", save->text);
    end();
}

Test(coordinator_change, a_ps_that_is_lost_meanwhile_comes_first)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async");
    cr_assert(rig_waits(call));
    r.silent[0] = true;
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    rig_failed(call, SG_WAITING, "was started anew, and the job goes back to its newest checkpoint first: ask again");
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_WAITING, "goes back to its newest checkpoint first");
    r.silent[0] = false;
    rig_pass(&r, 300);
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    cr_assert_eq(rig_status(&r)->mode, SHARDGRAD__V1__MODE__MODE_SYNC);
    cr_assert_eq(answered(rig_set(&r, 7, "update.mode", "async"))->generation, 3, "now it is made");
    cr_assert(rig_logged(&r, "WARN generation above="), "%s", r.log);
    end();
}

/* Steps that were handed out before are handed out again, and have it then. */
Test(coordinator_change, a_set_before_the_job_goes_back_is_in_force_from_where_it_goes_on)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    cr_assert_eq(answered(rig_set(&r, 7, "update.learning_rate", "0.5"))->steps[0], 1, "step 0 was handed out");
    rig_register_as(&r, 1, 555, "host:9");
    r.lives[1] = 555;
    rig_pass(&r, 300);
    cr_assert_eq(rig_status(&r)->generation, 2);
    cr_assert_eq(answered(rig_set(&r, 7, "update.learning_rate", "0.5"))->steps[0], 0);
    for (uint32_t i = 0; i < 2; i++)
        rig_declare(&r, workers[i] = come_again(i));
    tickets[0] = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_ticket(&r, workers[1], 0, 0, 0);
    rig_report_saved(&r);
    rig_written(&r, SG_OK, "");
    const Shardgrad__V1__Step *step = rig_granted(tickets[0])->step;
    cr_assert_eq(step->step, 0);
    cr_assert_float_eq((double)step->learning_rate, 0.5, 1e-6);
    end();
}

Test(coordinator_change, a_repeat_of_the_request_gets_the_same_answer_and_another_one_waits)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_call *call = rig_set(&r, 7, "update.mode", "async"), *again = rig_set(&r, 7, "update.mode", "async");
    cr_assert(rig_waits(again));
    rig_failed(rig_set(&r, 8, "update.momentum", "0.5"), SG_WAITING, "being changed: ask again");
    complete(1);
    cr_assert_eq(answered(call)->generation, 2);
    cr_assert_eq(answered(again)->generation, 2);
    cr_assert_eq(answered(rig_set(&r, 7, "update.mode", "async"))->generation, 2);
    cr_assert_eq(answered(rig_set(&r, 9, "update.mode", "async"))->generation, 0, "so it is already");
    end();
}

Test(coordinator_change, what_cannot_be_is_refused)
{
    begin("update.mode=sync", "update.rule=sgd", "on_worker_loss=wait");
    rig_failed(rig_set(&r, 7, "update.mode", "async"), SG_CONFIG, "as on_worker_loss: wait wants");
    rig_failed(rig_set(&r, 7, "update.mode", "asink"), SG_CONFIG, "asink");
    rig_failed(rig_set(&r, 7, "update.rule", "average"), SG_CONFIG, "average takes values");
    rig_failed(rig_set(&r, 7, "update.rule", "adan"), SG_CONFIG, "adan");
    rig_failed(rig_set(&r, 7, "update.backup_workers", "2"), SG_CONFIG, "workers is 2");
    cr_assert_eq(answered(rig_set(&r, 7, "update.staleness", "5"))->generation, 0, "it means nothing in sync");
    end();
}

Test(coordinator_change, what_is_said_to_be_another_is_what_was_set)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.backup_workers", "1");
    complete(1);
    cr_assert(rig_logged(&r, "to=\"update.backup_workers is 1 from now on, as asked\""), "%s", r.log);
    cr_assert_not(rig_logged(&r, "update.mode is"));
    end();
}

Test(coordinator_change, a_rule_that_was_set_and_is_no_other_lets_no_other_checkpoint_fit)
{
    begin("update.mode=sync", "update.rule=sgd", NULL);
    cr_assert_eq(answered(rig_set(&r, 7, "update.rule", "sgd"))->number, 2);
    snprintf(written.rule, sizeof written.rule, "adam");
    rig_register_as(&r, 1, 777, "b:2"); /* a new life */
    cr_assert(rig_logged(&r, "was made with update.rule adam, the job has sgd"), "%s", r.log);
    end();
}

Test(coordinator_change, the_lateness_of_the_coordinator_itself_is_no_reason_to_give_it_up)
{
    begin("update.mode=async", "update.rule=sgd", NULL);
    rig_set(&r, 7, "update.rule", "adam");
    finish_other(0);
    rig_ticket(&r, workers[0], 0, 1, 1);
    rig_live(&r, 200, workers);
    r.now_ms += 2 * r.config->start_timeout_ms;
    r.tick_ms = r.now_ms - r.now_ms % 100;
    rig_live(&r, 300, workers);
    rig_call *call = rig_set(&r, 7, "update.rule", "adam");
    cr_assert(rig_waits(call), "%s", call->text);
    rig_live(&r, r.config->start_timeout_ms, workers);
    rig_failed(rig_set(&r, 7, "update.rule", "adam"), SG_PEER_LOST, "in vain for 6");
    end();
}
