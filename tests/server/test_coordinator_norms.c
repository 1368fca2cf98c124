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
    const char *const settings[] = {rig_two_ps[0], "slice_bytes=1MiB", rule, NULL};
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

/* Each ps has a slice of both groups. */
Test(coordinator_norms, who_waits_for_a_group_is_not_told_of_another)
{
    const char *const settings[] = {rig_two_ps[0], "update.rule=lamb", "slice_bytes=64", NULL};
    rig r;
    rig_init(&r, settings);
    rig_register_all(&r);
    const uint64_t incarnation[] = {rig_join(&r, 0, 1000), 0};
    uint64_t shape[] = {32};
    Shardgrad__V1__Variable actor = SHARDGRAD__V1__VARIABLE__INIT, critic = SHARDGRAD__V1__VARIABLE__INIT;
    actor.name = (char *)"actor";
    critic.name = (char *)"critic";
    actor.shape = critic.shape = shape;
    actor.n_shape = critic.n_shape = 1;
    critic.group = 1;
    rig_declare_list(&r, incarnation[0], (Shardgrad__V1__Variable *[]){&actor, &critic}, 2);
    rig_initialized(&r, incarnation[0], 1);
    double squares[] = {1, 1};
    rig_norms(&r, 0, 0, 3, squares, 2);
    rig_call *call = rig_norms(&r, 0, 1, 5, squares, 2);
    rig_live(&r, 2200, incarnation);
    rig_failed(call, SG_WAITING, "waiting for the norms of ps 1 (host:1), group 1, step 5");
    rig_deinit(&r);
}

Test(coordinator_norms, calls_that_wait_for_norms_are_not_counted_among_those_of_workers)
{
    const char *const settings[] = {rig_two_ps[0], "slice_bytes=1MiB", "update.rule=lars",
                                    "workers=1",   "max_workers=1",    NULL};
    rig r;
    rig_init(&r, settings);
    uint64_t incarnation[2] = {0};
    rig_start(&r, 1, incarnation);
    double squares[] = {1, 1};
    r.acknowledge = false;
    for (uint64_t request = 1; request <= 16; request++)
        cr_assert(rig_waits(rig_set(&r, request, "update.learning_rate", "0.5")));
    rig_failed(rig_set(&r, 17, "update.learning_rate", "0.5"), SG_WAITING, "too many calls wait (16): ask again");
    for (unsigned i = 0; i < 8; i++)
        cr_assert(rig_waits(rig_norms(&r, 0, 0, 0, squares, 2)));
    rig_failed(rig_norms(&r, 0, 0, 0, squares, 2), SG_WAITING, "too many calls wait (8): ask again");
    rig_deinit(&r);
}

static rig_call *declare_one(rig *r, uint64_t incarnation, uint64_t n_elems)
{
    uint64_t shape[] = {n_elems};
    Shardgrad__V1__Variable weight = SHARDGRAD__V1__VARIABLE__INIT;
    weight.name = (char *)"weight";
    weight.shape = shape;
    weight.n_shape = 1;
    return rig_declare_list(r, incarnation, (Shardgrad__V1__Variable *[]){&weight}, 1);
}

/* Of 64 bytes; 2 * 65,280 slices are as many as fit. */
#define ELEMS_THAT_FIT (16u * 2u * 65280u)

Test(coordinator_norms, variables_whose_sums_do_not_fit_into_a_message_are_refused_where_norms_are_taken)
{
    const char *const rules[] = {"update.rule=lars", "update.clip_global_norm=1"};
    for (size_t i = 0; i < SG_ARRAY_LEN(rules); i++) {
        const char *const settings[] = {rig_two_ps[0], rules[i], "slice_bytes=64", NULL};
        rig r;
        rig_init(&r, settings);
        rig_register_all(&r);
        const uint64_t incarnation = rig_join(&r, 0, 1000);
        rig_failed(declare_one(&r, incarnation, ELEMS_THAT_FIT + 1), SG_CONFIG,
                   "ps 0 has 65281 slices of group 0, and where update.rule is lars or lamb, or "
                   "update.clip_global_norm is set, it may have 65280: use a larger slice_bytes, or more ps");
        cr_assert_neq(declare_one(&r, incarnation, ELEMS_THAT_FIT)->status, SG_CONFIG);
        cr_assert_eq(rig_ordered(&r, 0, SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET, NULL), 1);
        rig_deinit(&r);
    }
}

Test(coordinator_norms, a_change_that_would_take_norms_of_what_does_not_fit_is_refused)
{
    const char *const settings[] = {rig_two_ps[0], "slice_bytes=64", NULL};
    rig r;
    rig_init(&r, settings);
    rig_register_all(&r);
    const uint64_t incarnation = rig_join(&r, 0, 1000);
    declare_one(&r, incarnation, ELEMS_THAT_FIT + 1);
    rig_initialized(&r, incarnation, 1);
    rig_failed(rig_set(&r, 1, "update.clip_global_norm", "1"), SG_CONFIG, "use a larger slice_bytes, or more ps");
    cr_assert_eq(rig_set(&r, 2, "update.learning_rate", "0.5")->status, SG_OK);
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
