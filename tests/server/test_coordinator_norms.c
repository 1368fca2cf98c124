/* Norms of which every ps has a part. The rig's model, on two ps in slices of 1 MiB: "weight" is slices 0 and 1,
 * "critic", of group 1, is slice 2. */
#include <criterion/criterion.h>
#include <string.h>

#include "common/status.h"
#include "coordinator_fixture.h"

TestSuite(coordinator_norms, .timeout = 20);

static const Shardgrad__V1__NormsResponse *answered(const rig_call *call)
{
    cr_assert_eq(call->n_answers, 1);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return (const Shardgrad__V1__NormsResponse *)call->body;
}

/* incarnation: [2], 0-terminated. */
static void start(rig *r, const char *rule, uint64_t *incarnation)
{
    const char *const settings[] = {rig_two_ps[0], rule, NULL};
    rig_init(r, settings);
    incarnation[1] = 0;
    rig_start(r, 1, incarnation);
}

Test(coordinator_norms, all_ps_are_told_the_sums_in_the_order_of_slices_when_the_last_has_said_its_own)
{
    rig r;
    uint64_t incarnation[2];
    start(&r, "update.rule=lars", incarnation);
    double of_0[] = {1, 0x1p60}, of_1[] = {3, 8};
    rig_call *first = rig_norms(&r, 0, 0, 0, of_0, 2);
    cr_assert(rig_waits(first));
    rig_call *again = rig_norms(&r, 0, 0, 0, of_0, 2);
    rig_call *second = rig_norms(&r, 1, 0, 0, of_1, 2);
    const Shardgrad__V1__NormsResponse *said = answered(first);
    cr_assert_eq(said->squares, 0x1p60 + 8);
    cr_assert_eq(said->n_variables, 2);
    cr_assert_eq(said->variables[0], 4);
    cr_assert_eq(said->variables[1], 0x1p60 + 8);
    cr_assert_eq(answered(again)->variables[0], 4);
    cr_assert_eq(answered(second)->variables[0], 4);
    cr_assert_eq(answered(rig_norms(&r, 1, 0, 0, of_1, 2))->squares, 0x1p60 + 8, "the answer was lost");
    cr_assert(rig_waits(rig_norms(&r, 1, 0, 1, of_1, 2)), "another step");
    cr_assert_eq(answered(rig_norms(&r, 0, 0, 0, of_0, 2))->squares, 0x1p60 + 8, "one had not got it yet");
    answered(rig_norms(&r, 0, 0, 1, of_0, 2));
    rig_failed(rig_norms(&r, 0, 0, 0, of_0, 2), SG_LATE, "step 0 of group 0 has passed");
    rig_deinit(&r);
}

Test(coordinator_norms, a_ps_that_has_nothing_of_a_group_is_not_waited_for_and_variables_are_for_those_who_ask)
{
    rig r;
    uint64_t incarnation[2];
    start(&r, "update.clip_global_norm=1", incarnation);
    double squares[] = {0, 9};
    const Shardgrad__V1__NormsResponse *said = answered(rig_norms(&r, 1, 1, 0, squares, 2));
    cr_assert_eq(said->squares, 9);
    cr_assert_eq(said->n_variables, 0);
    rig_deinit(&r);
}

Test(coordinator_norms, who_waits_is_told_for_which_ps)
{
    rig r;
    uint64_t incarnation[2];
    start(&r, "update.rule=lamb", incarnation);
    double squares[] = {1, 1};
    rig_call *call = rig_norms(&r, 0, 0, 17, squares, 2);
    rig_live(&r, 2200, incarnation);
    rig_failed(call, SG_WAITING, "waiting for the norms of ps 1 (host:1), group 0, step 17");
    rig_deinit(&r);
}

Test(coordinator_norms, what_makes_no_sense_is_refused_and_changes_nothing)
{
    rig r;
    uint64_t incarnation[2];
    start(&r, "update.rule=lars", incarnation);
    double squares[] = {1, 1, 1, 1};
    rig_failed(rig_norms(&r, 7, 0, 0, squares, 2), SG_INVALID, "there is no ps 7");
    rig_failed(rig_norms(&r, 0, 0, 0, squares, 4), SG_INVALID, "gave 4 sums of squares of group 0, wanted 2");
    rig_failed(rig_norms(&r, 0, 1, 0, squares, 2), SG_INVALID, "gave 2 sums of squares of group 1, wanted 0");
    rig_failed(rig_norms(&r, 0, 9, 0, squares, 2), SG_INVALID, "of group 9, of which none are wanted");
    cr_assert(rig_waits(rig_norms(&r, 0, 0, 3, squares, 2)));
    rig_failed(rig_norms(&r, 1, 0, 4, squares, 2), SG_INVALID, "step 4, before step 3 was complete");
    r.lives[1] = 999;
    rig_failed(rig_norms(&r, 1, 0, 3, squares, 2), SG_FENCED, "another life of ps 1");
    rig_deinit(&r);
}

Test(coordinator_norms, before_variables_are_declared_and_in_async_none_are_wanted)
{
    rig r;
    uint64_t incarnation[2];
    double squares[] = {1, 1};
    const char *const settings[] = {rig_two_ps[0], "update.mode=async", NULL};
    rig_init(&r, settings);
    rig_register_all(&r);
    rig_failed(rig_norms(&r, 0, 0, 0, squares, 2), SG_INVALID, "none are wanted");
    rig_start(&r, 1, incarnation);
    rig_failed(rig_norms(&r, 0, 0, 0, squares, 2), SG_INVALID, "none are wanted");
    rig_deinit(&r);
}
