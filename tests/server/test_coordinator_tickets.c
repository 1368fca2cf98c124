/* Who takes part in which step: tickets, joiners, excuses. */
#include <criterion/criterion.h>

#include "common/workers.h"
#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_tickets, .timeout = 20);

static const char *const alone[] = {"workers=1", NULL};

static Shardgrad__V1__OrderRequest__OrderCase const EXCUSE = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;

static uint64_t members_of(const Shardgrad__V1__Step *step)
{
    sg_workers set;
    cr_assert_eq(sg_workers_decode(step->members.data, step->members.len, &set, NULL), SG_OK);
    return set.bits[0];
}

/* Asserts what a call was granted. */
static void granted(const rig_call *call, uint64_t step, uint64_t members)
{
    const Shardgrad__V1__TicketResponse *response = rig_granted(call);
    cr_assert_eq(response->step->step, step, "step %lu, not %lu", (unsigned long)response->step->step,
                 (unsigned long)step);
    cr_assert_eq(members_of(response->step), members, "members %lx, not %lx", (unsigned long)members_of(response->step),
                 (unsigned long)members);
}

Test(coordinator_tickets, who_left_before_it_started_is_not_said_to_be_here)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 1, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert_str_eq(rig_status(&r)->waiting_for, "waiting for worker 1 to join (2 wanted, 1 here)");
    rig_leave(&r, workers[0], UINT64_MAX);
    cr_assert_str_eq(rig_status(&r)->waiting_for, "waiting for worker 1 to join (2 wanted, 0 here, 1 left)");
    rig_deinit(&r);
}

Test(coordinator_tickets, training_starts_when_the_wanted_number_of_workers_has_asked)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[4] = {0};
    rig_start(&r, 3, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_call *again = rig_ticket(&r, workers[0], 0, 0, 0);
    rig_live(&r, 2500, workers);
    rig_failed(first, SG_WAITING, "waiting for worker 1 (node1:1001) to ask for its first step (2 wanted, 1 here)");
    rig_failed(again, SG_WAITING, "waiting for worker 1");
    first = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(first));
    rig_call *second = rig_ticket(&r, workers[2], 0, 0, 0);
    granted(first, 0, 5);
    granted(second, 0, 5);
    cr_assert_eq(rig_granted(first)->rank, 0);
    cr_assert_eq(rig_granted(second)->rank, 1);
    cr_assert_eq(rig_granted(second)->size, 2);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_worker_that_left_before_it_asked_does_not_hold_up_the_start)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(first));
    rig_leave(&r, workers[1], 0);
    granted(first, 0, 1);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_repeat_gets_the_same_ticket)
{
    rig r;
    rig_init(&r, (const char *[]){"workers=1", "update.schedule=step", "update.decay_steps=1", NULL});
    uint64_t worker = 0;
    rig_start(&r, 1, &worker);
    granted(rig_ticket(&r, worker, 0, 0, 0), 0, 1);
    granted(rig_ticket(&r, worker, 0, 0, 0), 0, 1);
    granted(rig_ticket(&r, worker, 0, 1, 0), 1, 1);
    rig_call *repeat = rig_ticket(&r, worker, 0, 1, 0);
    granted(repeat, 1, 1);
    const Shardgrad__V1__Step *step = rig_granted(repeat)->step;
    cr_assert_eq(step->iteration, 1);
    cr_assert_eq(step->hyper, 1);
    cr_assert_eq(step->checkpoint_mark, 0);
    double rate = r.config->update.learning_rate * r.config->update.decay_factor;
    cr_assert_float_eq((double)step->learning_rate, rate, rate * 1e-6);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_worker_holds_at_most_the_ticket_it_computes_and_one_more)
{
    rig r;
    rig_init(&r, alone);
    uint64_t worker = 0;
    rig_start(&r, 1, &worker);
    granted(rig_ticket(&r, worker, 0, 0, 0), 0, 1);
    granted(rig_ticket(&r, worker, 0, 1, 0), 1, 1);
    rig_failed(rig_ticket(&r, worker, 0, 2, 0), SG_INVALID, "at most the step that it computes and one more");
    granted(rig_ticket(&r, worker, 0, 2, 1), 2, 1);
    rig_failed(rig_ticket(&r, worker, 0, 3, 1), SG_INVALID, "only 1 are finished");
    rig_failed(rig_ticket(&r, worker, 0, 4, 4), SG_INVALID, "only 3 were handed out");
    rig_failed(rig_ticket(&r, worker, 0, 2, 3), SG_INVALID, "3 tickets finished, but only 2 received");
    rig_deinit(&r);
}

Test(coordinator_tickets, tickets_need_variables_and_a_group_that_exists)
{
    rig r;
    rig_init(&r, alone);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8);
    rig_failed(rig_ticket(&r, a, 0, 0, 0), SG_NOT_READY, "declare them first");
    rig_declare(&r, a);
    rig_initialized(&r, a, 1);
    rig_failed(rig_ticket(&r, b, 0, 0, 0), SG_INVALID, "worker 1 has not declared");
    rig_failed(rig_ticket(&r, a, 2, 0, 0), SG_INVALID, "no group 2");
    granted(rig_ticket(&r, a, 1, 0, 0), 0, 1);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_joiner_becomes_a_member_when_a_member_opens_the_next_iteration)
{
    rig r;
    rig_init(&r, alone);
    uint64_t workers[2] = {0};
    rig_start(&r, 1, workers);
    granted(rig_ticket(&r, workers[0], 0, 0, 0), 0, 1);
    granted(rig_ticket(&r, workers[0], 0, 1, 0), 1, 1);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert(rig_waits(joiner));
    granted(rig_ticket(&r, workers[0], 0, 1, 0), 1, 1); /* a repeat opens nothing */
    cr_assert(rig_waits(joiner));
    granted(rig_ticket(&r, workers[0], 0, 2, 1), 2, 3);
    granted(joiner, 2, 3);
    granted(rig_ticket(&r, workers[1], 0, 3, 0), 3, 3);
    rig_failed(rig_ticket(&r, workers[1], 0, 4, 0), SG_INVALID, "one more");
    granted(rig_ticket(&r, workers[1], 0, 4, 3), 4, 3);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_joiner_goes_on_alone_when_the_last_member_leaves)
{
    rig r;
    rig_init(&r, alone);
    uint64_t workers[2] = {0};
    rig_start(&r, 1, workers);
    granted(rig_ticket(&r, workers[0], 0, 0, 0), 0, 1);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert(rig_waits(joiner));
    rig_leave(&r, workers[0], 0);
    granted(joiner, 1, 2);
    rig_deinit(&r);
}

Test(coordinator_tickets, leave_excuses_from_all_that_was_not_pushed)
{
    rig r;
    rig_init(&r, (const char *[]){"ps=[\"a:1\",\"b:2\"]", NULL});
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    granted(rig_ticket(&r, workers[1], 0, 0, 0), 0, 3);
    granted(rig_ticket(&r, workers[0], 0, 1, 0), 1, 3);
    granted(rig_ticket(&r, workers[0], 0, 2, 1), 2, 3);
    granted(rig_ticket(&r, workers[1], 0, 1, 0), 1, 3);
    rig_leave(&r, workers[1], 1);
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, EXCUSE, &order), 1);
        cr_assert_eq(order->excuse->worker, 1);
        cr_assert_eq(order->excuse->incarnation, workers[1]);
        cr_assert_eq(order->excuse->n_steps, 2, "steps 1 and 2, also the one it never asked for");
        cr_assert_eq(order->excuse->steps[0]->step, 1);
        cr_assert_eq(order->excuse->steps[1]->step, 2);
        cr_assert_eq(members_of(order->excuse->steps[1]), 3);
        cr_assert_eq(order->excuse->steps[1]->hyper, 1);
        cr_assert_gt(order->excuse->steps[1]->learning_rate, 0);
    }
    granted(rig_ticket(&r, workers[0], 0, 3, 2), 3, 1);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, NULL), 1);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_superseded_member_is_excused_and_its_successor_joins_anew)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    granted(rig_ticket(&r, workers[1], 0, 0, 0), 0, 3);
    granted(rig_ticket(&r, workers[1], 0, 1, 0), 1, 3);
    granted(rig_ticket(&r, workers[1], 0, 2, 1), 2, 3); /* so it has finished step 0 */
    uint64_t next = rig_join(&r, 1, 99);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->incarnation, workers[1]);
    cr_assert_eq(order->excuse->n_steps, 2);
    cr_assert_eq(order->excuse->steps[0]->step, 1);
    rig_declare(&r, next);
    rig_call *joiner = rig_ticket(&r, next, 0, 0, 0);
    cr_assert(rig_waits(joiner));
    granted(rig_ticket(&r, workers[0], 0, 1, 1), 1, 3);
    granted(rig_ticket(&r, workers[0], 0, 2, 2), 2, 3);
    cr_assert(rig_waits(joiner));
    granted(rig_ticket(&r, workers[0], 0, 3, 3), 3, 3);
    granted(joiner, 3, 3);
    rig_leave(&r, next, 0); /* the successor was a member of step 3 alone */
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 2);
    cr_assert_eq(order->excuse->n_steps, 1);
    cr_assert_eq(order->excuse->steps[0]->step, 3);
    cr_assert_eq(order->excuse->incarnation, next);
    rig_deinit(&r);
}

/* --- several groups ------------------------------------------------------------------------------------------ */

Test(coordinator_tickets, members_are_frozen_for_all_groups_of_an_iteration_at_once)
{
    rig r;
    rig_init(&r, alone);
    uint64_t workers[2] = {0};
    rig_start(&r, 1, workers);
    granted(rig_ticket(&r, workers[0], 0, 0, 0), 0, 1);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 0, 0, 0);
    granted(rig_ticket(&r, workers[0], 1, 0, 0), 0, 1); /* the other group of iteration 0 */
    cr_assert(rig_waits(joiner));
    granted(rig_ticket(&r, workers[0], 0, 1, 0), 1, 3);
    granted(joiner, 1, 3);
    rig_call *critic = rig_ticket(&r, workers[1], 1, 0, 0);
    cr_assert(rig_waits(critic), "those who were here before it open the group's step");
    granted(rig_ticket(&r, workers[0], 1, 1, 0), 1, 3);
    granted(critic, 1, 3);
    rig_deinit(&r);
}

Test(coordinator_tickets, who_left_is_excused_from_a_step_that_is_opened_later_in_a_frozen_iteration)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[0], 0, 0, 0);
    granted(rig_ticket(&r, workers[1], 0, 0, 0), 0, 3);
    rig_leave(&r, workers[1], 1);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->n_steps, 0, "all that was handed out was pushed");
    granted(rig_ticket(&r, workers[0], 1, 0, 0), 0, 3);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 2);
    cr_assert_eq(order->excuse->worker, 1);
    cr_assert_eq(order->excuse->incarnation, workers[1]);
    cr_assert_eq(order->excuse->n_steps, 1);
    cr_assert_eq(order->excuse->steps[0]->group, 1);
    granted(rig_ticket(&r, workers[0], 1, 1, 1), 1, 1);
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, NULL), 2);
    rig_deinit(&r);
}

Test(coordinator_tickets, the_first_asker_fixes_the_iteration_of_a_step)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *first = rig_ticket_for(&r, workers[0], 1, 0, 0, 5);
    rig_call *second = rig_ticket(&r, workers[1], 1, 0, 0);
    cr_assert_eq(rig_granted(first)->step->iteration, 5);
    cr_assert_eq(rig_granted(second)->step->iteration, 5);
    cr_assert_eq(rig_granted(rig_ticket_for(&r, workers[0], 1, 1, 0, 5))->step->step, 1, "twice in one iteration");
    rig_failed(rig_ticket_for(&r, workers[1], 1, 1, 0, 6), SG_INVALID, "step 1 is of iteration 5, not of 6");
    rig_failed(rig_ticket_for(&r, workers[0], 1, 2, 1, 4), SG_INVALID, "step 2 is of iteration 5, not of 4");
    rig_failed(rig_ticket_for(&r, workers[0], 1, 2, 1, UINT64_MAX), SG_INVALID, "out of range");
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, 0, 0))->step->iteration, 5, "members of 5 are of no less");
    rig_deinit(&r);
}

/* One member leaves in the middle of an iteration: the next one's steps must still meet in one iteration, or a joiner
 * becomes a member of this one in one group and of the next in the other. */
Test(coordinator_tickets, groups_that_step_in_turn_stay_level_when_an_iteration_is_left_out)
{
    rig r;
    rig_init(&r, alone);
    uint64_t workers[3] = {0};
    rig_start(&r, 1, workers);
    granted(rig_ticket(&r, workers[0], 0, 0, 0), 0, 1);
    granted(rig_ticket(&r, workers[0], 0, 1, 0), 1, 1);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *second = rig_ticket(&r, workers[1], 0, 0, 0);
    rig_leave(&r, workers[0], 1); /* group 1 has had no step at all */
    granted(second, 2, 2);
    cr_assert_eq(rig_granted(second)->step->iteration, 2);
    for (uint64_t step = 0; step < 3; step++) {
        rig_call *critic = rig_ticket(&r, workers[1], 1, step, step);
        granted(critic, step, 2);
        cr_assert_eq(rig_granted(critic)->step->iteration, step + 2);
        rig_call *weight = rig_ticket(&r, workers[1], 0, step + 3, step + 3);
        cr_assert_eq(rig_granted(weight)->step->iteration, step + 3);
    }
    rig_deinit(&r);
}

Test(coordinator_tickets, long_training_keeps_little)
{
    rig r;
    rig_init(&r, NULL);
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_ticket(&r, workers[1], 0, 0, 0);
    for (uint64_t step = 0; step < 500; step++) {
        granted(rig_ticket(&r, workers[0], 0, step, step > 0 ? step - 1 : 0), step, 3);
        granted(rig_ticket(&r, workers[1], 0, step, step > 0 ? step - 1 : 0), step, 3);
    }
    rig_leave(&r, workers[1], 498);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->n_steps, 2, "the two that it holds");
    cr_assert_eq(order->excuse->steps[1]->step, 499);
    rig_deinit(&r);
}

/* --- reports ------------------------------------------------------------------------------------------------- */

static rig_call *report(rig *r, uint64_t incarnation, uint64_t received, uint64_t finished, float loss)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = 1;
    request.received = received;
    request.finished = finished;
    request.loss = loss;
    request.examples = 32;
    return rig_ticket_with(r, &request);
}

Test(coordinator_tickets, a_report_counts_once_however_often_it_comes)
{
    rig r;
    rig_init(&r, alone);
    uint64_t worker = 0;
    rig_start(&r, 1, &worker);
    report(&r, worker, 0, 0, 9);
    report(&r, worker, 1, 0, 9);
    report(&r, worker, 2, 1, 0.5f);
    report(&r, worker, 2, 1, 0.5f);
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_eq(status->examples, 32);
    cr_assert_eq(status->steps, 3);
    cr_assert_float_eq((double)status->loss, 0.5, 1e-9);
    cr_assert_eq(status->workers[0]->finished, 1);
    cr_assert_eq(status->workers[0]->examples, 32);
    rig_deinit(&r);
}

Test(coordinator_tickets, a_goodbye_reports_the_last_step_if_no_ticket_request_did)
{
    for (uint64_t finished = 1; finished <= 2; finished++) {
        rig r;
        rig_init(&r, (const char *[]){"linger=true", NULL});
        uint64_t workers[2] = {0};
        rig_start(&r, 2, workers);
        report(&r, workers[0], 0, 0, 9);
        report(&r, workers[1], 0, 0, 9);
        report(&r, workers[0], 1, 0, 9);
        report(&r, workers[0], 2, finished, 0.5f);
        rig_leave_report(&r, workers[0], 2, 0.25f, 8);
        rig_leave_report(&r, workers[0], 2, 0.25f, 8);
        const Shardgrad__V1__StatusResponse *status = rig_status(&r);
        cr_assert_eq(status->workers[0]->finished, 2);
        cr_assert_eq(status->workers[0]->examples, finished == 1 ? 40 : 32, "%llu examples",
                     (unsigned long long)status->workers[0]->examples);
        cr_assert_eq(status->examples, status->workers[0]->examples);
        rig_deinit(&r);
    }
}

/* What this worker found when it finished `finished` steps; the rest of the request is as in report(). */
static void report_test(rig *r, uint64_t incarnation, uint64_t finished, const Shardgrad__V1__Evaluation *found)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = 1;
    request.received = finished;
    request.finished = finished;
    request.test_iteration = found->iteration;
    request.test_examples = found->examples;
    request.test_of = found->of;
    request.test_correct = found->correct;
    request.test_loss = found->loss;
    rig_ticket_with(r, &request);
}

static Shardgrad__V1__Evaluation found(uint64_t iteration, uint64_t examples, uint64_t correct, float loss)
{
    Shardgrad__V1__Evaluation evaluation = SHARDGRAD__V1__EVALUATION__INIT;
    evaluation.iteration = iteration;
    evaluation.examples = examples;
    evaluation.of = 100;
    evaluation.correct = correct;
    evaluation.loss = loss;
    return evaluation;
}

Test(coordinator_tickets, what_the_workers_found_of_the_test_set_is_added_up_once_by_iteration)
{
    rig r;
    rig_init(&r, (const char *[]){NULL});
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    report(&r, workers[0], 0, 0, 9);
    report(&r, workers[1], 0, 0, 9);
    const Shardgrad__V1__Evaluation of_first = found(0, 60, 30, 1), of_second = found(0, 40, 20, 2);
    const Shardgrad__V1__Evaluation next = found(1, 60, 50, 0.5F);
    report_test(&r, workers[0], 1, &of_first);
    cr_assert_eq(rig_status(&r)->n_evaluations, 1);
    cr_assert_eq(rig_status(&r)->evaluations[0]->examples, 60);
    report_test(&r, workers[1], 1, &of_second);
    report_test(&r, workers[1], 2, &of_second); /* its answer was lost, and it has gone on */
    report_test(&r, workers[0], 2, &next);
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_eq(status->n_evaluations, 2);
    const Shardgrad__V1__Evaluation *sum = status->evaluations[0];
    cr_assert(sum->iteration == 0 && sum->examples == 100 && sum->of == 100 && sum->correct == 50);
    cr_assert_float_eq((double)sum->loss, 1.4, 1e-6);
    cr_assert(status->evaluations[1]->iteration == 1 && status->evaluations[1]->correct == 50);
    rig_deinit(&r);
}

Test(coordinator_tickets, what_no_worker_can_have_found_is_passed_over_and_the_newest_are_kept)
{
    rig r;
    rig_init(&r, alone);
    uint64_t worker = 0;
    rig_start(&r, 1, &worker);
    report(&r, worker, 0, 0, 9);
    const Shardgrad__V1__Evaluation wrong[] = {found(0, 101, 1, 1), found(0, 10, 11, 1), found(0, UINT64_MAX, 1, 1),
                                               found(UINT64_MAX, 100, 1, 1), found(10, 100, 1, 1)};
    uint64_t finished = 1;
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++)
        report_test(&r, worker, finished++, &wrong[i]);
    cr_assert_eq(rig_status(&r)->n_evaluations, 0);
    for (uint64_t i = 0; i < 40; i++) {
        const uint64_t iteration = i ^ 1; /* not in order */
        const Shardgrad__V1__Evaluation right = found(iteration, 100, iteration, 1);
        report_test(&r, worker, finished++, &right);
    }
    const Shardgrad__V1__Evaluation old = found(23, 100, 1, 1);
    report_test(&r, worker, finished, &old);
    const Shardgrad__V1__StatusResponse *status = rig_status(&r);
    cr_assert_eq(status->n_evaluations, 16);
    for (size_t i = 0; i < 16; i++)
        cr_assert(status->evaluations[i]->iteration == 24 + i && status->evaluations[i]->correct == 24 + i);
    rig_deinit(&r);
}

/* --- async --------------------------------------------------------------------------------------------------- */

Test(coordinator_tickets, async_tickets_are_numbered_over_all_workers_and_unique)
{
    rig r;
    rig_init(&r, (const char *[]){"update.mode=async", NULL});
    uint64_t workers[2] = {0};
    rig_start(&r, 2, workers);
    rig_call *first = rig_ticket(&r, workers[0], 0, 0, 0);
    cr_assert(rig_waits(first));
    granted(rig_ticket(&r, workers[1], 0, 0, 0), 1, 2);
    granted(first, 0, 1);
    granted(rig_ticket(&r, workers[1], 0, 1, 0), 2, 2);
    granted(rig_ticket(&r, workers[1], 0, 1, 0), 2, 2);
    rig_failed(rig_ticket(&r, workers[1], 0, 2, 0), SG_INVALID, "at most");
    granted(rig_ticket(&r, workers[1], 0, 2, 1), 3, 2);
    granted(rig_ticket(&r, workers[0], 0, 1, 1), 4, 1);
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, 1, 1))->size, 1);
    rig_deinit(&r);
}

Test(coordinator_tickets, in_async_mode_a_joiner_starts_at_once)
{
    rig r;
    rig_init(&r, (const char *[]){"update.mode=async", "workers=1", NULL});
    uint64_t workers[2] = {0};
    rig_start(&r, 1, workers);
    granted(rig_ticket(&r, workers[0], 0, 0, 0), 0, 1);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    granted(rig_ticket(&r, workers[1], 0, 0, 0), 1, 2);
    rig_leave(&r, workers[0], 0);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, EXCUSE, &order), 1);
    cr_assert_eq(order->excuse->n_steps, 0);
    rig_deinit(&r);
}

Test(coordinator_tickets, one_that_floods_takes_no_places_from_others)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, (const char *const[]){rig_two_ps[0], "workers=3", NULL});
    rig_start(&r, 2, workers);
    for (unsigned i = 0; i < 16; i++)
        cr_assert(rig_waits(rig_ticket(&r, workers[0], 0, 0, 0)), "not all workers are there");
    for (unsigned i = 0; i < 1024; i++)
        rig_failed(rig_ticket(&r, workers[0], 0, 0, 0), SG_WAITING, "too many calls wait (16): ask again");
    rig_call *other = rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert(rig_waits(other), "%s", other->text);
    rig_deinit(&r);
}
