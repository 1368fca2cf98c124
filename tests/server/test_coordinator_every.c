/* Groups that step at different rates: of which iteration a step is, and with which one a worker joins. */
#include <criterion/criterion.h>

#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_every, .timeout = 20);

static const char *const alone[] = {"workers=1", NULL};

/* Of "weight" in every iteration, of "critic" in every fifth. */
static void start_one_to_five(rig *r, const char *const settings[], uint64_t *worker)
{
    rig_init(r, settings);
    r->every[0] = 0; /* as 1 */
    r->every[1] = 5;
    r->n_every = 2;
    rig_start(r, 1, worker);
}

static uint64_t iteration_of(const rig_call *call)
{
    return rig_granted(call)->step->iteration;
}

/* The iteration of the next step, the last one finished. */
static uint64_t take(rig *r, uint64_t worker, uint32_t group, uint64_t step)
{
    const rig_call *call = rig_ticket(r, worker, group, step, step);
    cr_assert_eq(rig_granted(call)->step->step, step);
    return iteration_of(call);
}

Test(coordinator_every, a_group_steps_in_the_iterations_that_were_declared)
{
    static const char *const modes[] = {"update.mode=sync", "update.mode=async"};
    for (size_t mode = 0; mode < SG_ARRAY_LEN(modes); mode++) {
        rig r;
        uint64_t worker;
        start_one_to_five(&r, (const char *const[]){"workers=1", modes[mode], NULL}, &worker);
        for (uint64_t step = 0; step < 11; step++) {
            cr_assert_eq(take(&r, worker, 0, step), step, "%s", modes[mode]);
            if (step % 5 == 0)
                cr_assert_eq(take(&r, worker, 1, step / 5), step, "%s", modes[mode]);
        }
        rig_deinit(&r);
    }
}

Test(coordinator_every, what_another_worker_declares_otherwise_is_refused_with_both_sides)
{
    rig r;
    uint64_t worker;
    start_one_to_five(&r, NULL, &worker);
    const uint64_t other = rig_join(&r, 1, 77);
    r.every[1] = 3;
    rig_failed(rig_declare(&r, other), SG_MISMATCH,
               "group 1 steps once in 3 iterations here, and once in 5 in the cluster");
    r.n_every = 0;
    rig_failed(rig_declare(&r, other), SG_MISMATCH, "group 1 steps once in 1 iterations here");
    r.n_every = 3;
    rig_failed(rig_declare(&r, other), SG_INVALID, "how often 3 groups step, but there are 2");
    r.n_every = 2;
    r.every[1] = UINT32_MAX;
    rig_failed(rig_declare(&r, other), SG_INVALID, "at most 65536");
    r.every[1] = 5;
    rig_call *call = rig_declare(&r, other);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    rig_deinit(&r);
}

Test(coordinator_every, with_ssp_all_groups_step_in_every_iteration)
{
    rig r;
    rig_init(&r, (const char *const[]){"workers=1", "update.mode=ssp", NULL});
    rig_register_all(&r);
    const uint64_t worker = rig_join(&r, 0, 1000);
    r.every[0] = 2;
    r.n_every = 1;
    rig_failed(rig_declare(&r, worker), SG_CONFIG, "update.mode ssp");
    r.every[0] = 1;
    cr_assert_eq(rig_declare(&r, worker)->status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_every, a_ticket_for_an_iteration_in_which_the_group_does_not_step_is_refused)
{
    rig r;
    uint64_t worker;
    start_one_to_five(&r, alone, &worker);
    rig_failed(rig_ticket_for(&r, worker, 1, 0, 0, 7), SG_INVALID, "no step in iteration 7");
    cr_assert_eq(iteration_of(rig_ticket_for(&r, worker, 1, 0, 0, 10)), 10);
    rig_deinit(&r);
}

/* The group that steps in every iteration opens them all: one that waits for the other must not wait for ever. */
Test(coordinator_every, a_joiner_that_waits_for_the_seldom_group_begins_with_its_next_step)
{
    rig r;
    uint64_t workers[2];
    start_one_to_five(&r, alone, workers);
    cr_assert_eq(take(&r, workers[0], 1, 0), 0);
    cr_assert_eq(take(&r, workers[0], 0, 0), 0);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 1, 0, 0);
    for (uint64_t step = 1; step < 5; step++) {
        cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, step, step))->size, 1, "step %lu", (unsigned long)step);
        cr_assert(rig_waits(joiner));
    }
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 1, 1, 1))->size, 2);
    cr_assert_eq(iteration_of(joiner), 5);
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, 5, 5))->size, 2);
    cr_assert_eq(iteration_of(rig_ticket(&r, workers[1], 0, 0, 0)), 5);
    rig_deinit(&r);
}

/* A worker that asks for the tickets of the seldom group ahead opens iterations that the other comes to later. */
Test(coordinator_every, a_joiner_that_waits_for_the_frequent_group_begins_with_an_iteration_that_the_other_opened)
{
    rig r;
    uint64_t workers[2];
    start_one_to_five(&r, alone, workers);
    cr_assert_eq(take(&r, workers[0], 0, 0), 0);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 0, 0, 0);
    cr_assert_eq(take(&r, workers[0], 1, 0), 0);
    cr_assert_eq(iteration_of(rig_ticket(&r, workers[0], 1, 1, 0)), 5, "ahead");
    cr_assert(rig_waits(joiner), "the other group is not there");
    for (uint64_t step = 1; step < 6; step++)
        cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, step, step))->size, 1);
    cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, 6, 6))->size, 2);
    cr_assert_eq(iteration_of(joiner), 6);
    rig_deinit(&r);
}

/* Nobody has said that the groups step at different rates: the members would wait for a joiner in the one that is
 * ahead, which waits for the one that is behind. */
Test(coordinator_every, a_joiner_that_waits_for_a_group_that_has_stayed_behind_is_not_waited_for)
{
    rig r;
    uint64_t workers[2];
    rig_init(&r, alone);
    rig_start(&r, 1, workers);
    cr_assert_eq(take(&r, workers[0], 1, 0), 0);
    for (uint64_t step = 0; step < 3; step++)
        take(&r, workers[0], 0, step);
    workers[1] = rig_join(&r, 1, 8);
    rig_declare(&r, workers[1]);
    rig_call *joiner = rig_ticket(&r, workers[1], 1, 0, 0);
    for (uint64_t step = 3; step < 30; step++)
        cr_assert_eq(rig_granted(rig_ticket(&r, workers[0], 0, step, step))->size, 1);
    cr_assert(rig_waits(joiner));
    rig_deinit(&r);
}
