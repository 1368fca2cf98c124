/* From declared variables to version 0. */
#include <criterion/criterion.h>
#include <math.h>

#include "common/wire.h"
#include "tests/server/coordinator_fixture.h"

TestSuite(coordinator_init, .timeout = 20);

static Shardgrad__V1__OrderRequest__OrderCase const DECLARE = SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET;
static Shardgrad__V1__OrderRequest__OrderCase const ATTEMPT = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ATTEMPT;
static Shardgrad__V1__OrderRequest__OrderCase const SEAL = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
static Shardgrad__V1__OrderRequest__OrderCase const COMMIT = SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT;

static uint64_t attempt_of(const rig_call *call)
{
    cr_assert_eq(call->n_answers, 1);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__DeclareResponse *)call->body)->attempt;
}

Test(coordinator_init, the_first_to_declare_initializes_and_the_others_wait_for_its_commit)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8);
    cr_assert_eq(attempt_of(rig_declare(&r, b)), 1);
    rig_call *other = rig_declare(&r, a);
    cr_assert(rig_waits(other));
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 1, DECLARE, NULL), 1);
    cr_assert_eq(rig_ordered(&r, 1, ATTEMPT, &order), 1);
    cr_assert_eq(order->attempt->attempt, 1);
    cr_assert_eq(order->attempt->incarnation, b);
    rig_call *initialized = rig_initialized(&r, b, 1);
    cr_assert_eq(initialized->status, SG_OK);
    cr_assert_eq(initialized->n_answers, 1);
    cr_assert_eq(rig_ordered(&r, 0, SEAL, NULL), 1);
    cr_assert_eq(rig_ordered(&r, 0, COMMIT, NULL), 1);
    cr_assert_eq(attempt_of(other), 0);
    cr_assert_eq(attempt_of(rig_declare(&r, b)), 0, "after the commit everybody is told to pull");
    cr_assert_eq(rig_initialized(&r, b, 1)->status, SG_OK, "a repeat gets the same answer");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_deinit(&r);
}

Test(coordinator_init, nobody_is_told_to_initialize_before_every_ps_knows_the_attempt)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    r.acknowledge = false;
    rig_call *declare = rig_declare(&r, worker);
    rig_acknowledge(&r, 0, SG_OK, ""); /* declaration */
    rig_acknowledge(&r, 0, SG_OK, ""); /* attempt */
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert(rig_waits(declare));
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert_eq(attempt_of(declare), 1);
    rig_deinit(&r);
}

Test(coordinator_init, commit_is_ordered_only_when_every_ps_has_sealed)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    rig_declare(&r, worker);
    r.acknowledge = false;
    rig_call *initialized = rig_initialized(&r, worker, 1);
    rig_acknowledge(&r, 0, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 0, COMMIT, NULL), 0);
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert_eq(rig_ordered(&r, 0, COMMIT, NULL), 1);
    cr_assert_eq(rig_ordered(&r, 1, COMMIT, NULL), 1);
    rig_acknowledge(&r, 1, SG_OK, "");
    cr_assert(rig_waits(initialized));
    rig_acknowledge(&r, 0, SG_OK, "");
    cr_assert_eq(initialized->status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_init, a_ps_that_lacks_values_is_named_and_the_report_may_come_again)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    rig_declare(&r, worker);
    r.acknowledge = false;
    rig_call *initialized = rig_initialized(&r, worker, 1);
    rig_acknowledge(&r, 0, SG_OK, "");
    rig_acknowledge(&r, 1, SG_NOT_FOUND, "slice 3 is missing");
    rig_failed(initialized, SG_NOT_FOUND, "ps 1 (host:1) does not hold all initial values: slice 3 is missing");
    r.acknowledge = true;
    cr_assert_eq(rig_initialized(&r, worker, 1)->status, SG_OK);
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_eq(rig_ordered(&r, 0, SEAL, NULL), 1);
    cr_assert_eq(rig_ordered(&r, 1, SEAL, &order), 2);
    cr_assert_eq(order->header->sequence, 6, "a refusal uses up its number");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING);
    rig_deinit(&r);
}

Test(coordinator_init, another_is_told_when_the_initializers_lease_runs_out)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8);
    cr_assert_eq(attempt_of(rig_declare(&r, a)), 1);
    rig_call *other = rig_declare(&r, b);
    rig_pass(&r, 2100);
    rig_failed(other, SG_WAITING, "waiting for worker 0 (node0:7) to initialize");
    other = rig_declare(&r, b);
    uint64_t alive[2] = {b, 0};
    rig_live(&r, 1900, alive);
    cr_assert(rig_waits(other));
    rig_call *again = rig_declare(&r, b);
    rig_live(&r, 1500, alive);
    cr_assert_eq(attempt_of(again), 2);
    rig_failed(rig_initialized(&r, a, 1), SG_FENCED, "given up for lost");
    cr_assert_eq(rig_initialized(&r, b, 2)->status, SG_OK);
    rig_deinit(&r);
}

Test(coordinator_init, another_is_told_when_the_initializer_leaves_or_is_superseded)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8), third = rig_join(&r, 2, 9);
    rig_declare(&r, a);
    rig_call *second = rig_declare(&r, b), *last = rig_declare(&r, third);
    rig_leave(&r, a, UINT64_MAX);
    cr_assert_eq(attempt_of(second), 2);
    cr_assert(rig_waits(last));
    uint64_t new_b = rig_join(&r, 1, 88);
    cr_assert_eq(attempt_of(last), 3);
    rig_call *waits = rig_declare(&r, new_b);
    cr_assert(rig_waits(waits));
    rig_failed(rig_initialized(&r, new_b, 2), SG_LATE, "attempt 3");
    rig_failed(rig_initialized(&r, third, 4), SG_INVALID, "no attempt 4");
    cr_assert_eq(rig_initialized(&r, third, 3)->status, SG_OK);
    cr_assert_eq(attempt_of(waits), 0);
    rig_deinit(&r);
}

Test(coordinator_init, without_another_the_next_to_declare_is_told)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7);
    rig_declare(&r, a);
    uint64_t again = rig_join(&r, 0, 70);
    cr_assert_eq(attempt_of(rig_declare(&r, again)), 2);
    rig_deinit(&r);
}

Test(coordinator_init, a_commit_that_was_ordered_is_finished_without_the_initializer)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8);
    rig_declare(&r, a);
    rig_call *other = rig_declare(&r, b);
    r.acknowledge = false;
    rig_initialized(&r, a, 1);
    rig_acknowledge(&r, 0, SG_OK, ""); /* seal */
    cr_assert_eq(rig_ordered(&r, 0, COMMIT, NULL), 1);
    rig_join(&r, 0, 7);
    rig_leave(&r, a, UINT64_MAX);
    r.acknowledge = true;
    rig_acknowledge(&r, 0, SG_OK, "");
    cr_assert_eq(attempt_of(other), 0);
    cr_assert_eq(rig_ordered(&r, 0, ATTEMPT, NULL), 1);
    rig_deinit(&r);
}

/* --- lists --------------------------------------------------------------------------------------------------- */

static Shardgrad__V1__Variable variable(const char *name, uint64_t *shape, size_t rank)
{
    Shardgrad__V1__Variable v = SHARDGRAD__V1__VARIABLE__INIT;
    v.name = (char *)name;
    v.shape = shape;
    v.n_shape = rank;
    return v;
}

Test(coordinator_init, a_list_that_differs_is_refused_naming_the_variable_and_both_sides)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t a = rig_join(&r, 0, 7), b = rig_join(&r, 1, 8);
    uint64_t shape[2] = {784, 512}, swapped[2] = {512, 784};
    Shardgrad__V1__Variable weight = variable("weight", shape, 2), bias = variable("bias", shape + 1, 1);
    Shardgrad__V1__Variable *list[2] = {&weight, &bias}, *reordered[2] = {&bias, &weight};
    rig_declare_list(&r, a, list, 2);
    rig_failed(rig_declare_list(&r, b, reordered, 2), SG_MISMATCH,
               "variable 0 is 'bias' here and 'weight' in the cluster");
    weight.shape = swapped;
    rig_failed(rig_declare_list(&r, b, list, 2), SG_MISMATCH,
               "variable 0 'weight' has shape 512x784 here and 784x512 in the cluster");
    weight.shape = shape;
    bias.frozen = true;
    rig_failed(rig_declare_list(&r, b, list, 2), SG_MISMATCH, "variable 1 'bias' is frozen here and trained");
    bias.frozen = false;
    bias.average = true;
    rig_failed(rig_declare_list(&r, b, list, 2), SG_MISMATCH, "variable 1 'bias' is averaged here and trained");
    bias.average = false;
    bias.lr_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__LR_MULTIPLIER_PRESENCE_LR_MULTIPLIER;
    bias.lr_multiplier = 2;
    rig_failed(rig_declare_list(&r, b, list, 2), SG_MISMATCH, "lr_multiplier 2 here and 1 in the cluster");
    bias.lr_multiplier = 1;
    rig_failed(rig_declare_list(&r, b, list, 1), SG_MISMATCH, "1 variables were declared, the cluster has 2");
    cr_assert(rig_waits(rig_declare_list(&r, b, list, 2)));
    rig_deinit(&r);
}

Test(coordinator_init, a_list_that_makes_no_sense_is_refused_and_leaves_the_job_as_it_was)
{
    rig r;
    rig_init(&r, NULL);
    rig_register_all(&r);
    uint64_t worker = rig_join(&r, 0, 7);
    uint64_t shape[9] = {2, 2, 2, 2, 2, 2, 2, 2, 2}, empty = 0, huge[2] = {UINT64_MAX / 2, 3};
    Shardgrad__V1__Variable v = variable("w", shape, 2), twin = variable("w", shape, 2);
    Shardgrad__V1__Variable *list[2] = {&v, &twin};
    rig_failed(rig_declare_list(&r, worker, list, 0), SG_INVALID, "0 variables");
    rig_failed(rig_declare_list(&r, worker, list, 2), SG_INVALID, "two variables are named 'w'");
    v.n_shape = 9;
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "9 dimensions");
    v = variable("w", &empty, 1);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "dimension 0 is 0");
    v = variable("w", huge, 2);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_EXHAUSTED, "too many elements");
    v = variable("", shape, 1);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "name of 0 bytes");
    v = variable("a\nb", shape, 1);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "control character");
    v = variable("ok\xff", shape, 1);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "not UTF-8: byte 3 of it is 0xff");
    v = variable("cut\xe2\x82", shape, 1);
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "not UTF-8: byte 4");
    v = variable("w", shape, 1);
    v.group = 64;
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "group 64");
    v.group = 1;
    cr_assert_eq(rig_declare_list(&r, worker, list, 1)->status, SG_INVALID, "groups have a gap");
    v.group = 0;
    v.dtype = (Shardgrad__V1__DataType)9;
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "dtype 9");
    v = variable("w", shape, 1);
    v.decay_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__DECAY_MULTIPLIER_PRESENCE_DECAY_MULTIPLIER;
    v.decay_multiplier = NAN;
    rig_failed(rig_declare_list(&r, worker, list, 1), SG_INVALID, "decay_multiplier");
    cr_assert_eq(rig_status(&r)->state, SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES);
    v = variable("w", shape, 1);
    cr_assert_eq(attempt_of(rig_declare_list(&r, worker, list, 1)), 1);
    rig_deinit(&r);
}

Test(coordinator_init, declared_variables_reach_every_ps_as_they_were_declared)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    rig_declare(&r, rig_join(&r, 0, 7));
    const Shardgrad__V1__OrderRequest *order = NULL;
    for (uint32_t ps = 0; ps < 2; ps++) {
        cr_assert_eq(rig_ordered(&r, ps, DECLARE, &order), 1);
        const Shardgrad__V1__PsDeclareRequest *declare = (const Shardgrad__V1__PsDeclareRequest *)order;
        cr_assert_eq(declare->n_ps, 2);
        cr_assert_eq(declare->slice_bytes, r.config->slice_bytes);
        cr_assert_eq(declare->n_variables, 2);
        cr_assert_str_eq(declare->variables[0]->name, "weight");
        cr_assert_eq(declare->variables[0]->shape[1], 512);
        cr_assert_eq(declare->variables[1]->group, 1);
    }
    rig_deinit(&r);
}

/* As large as a request may be, and a little more is said to every ps. */
Test(coordinator_init, a_list_that_no_ps_can_be_told_in_one_message_is_refused)
{
    rig r;
    rig_init(&r, rig_two_ps);
    rig_register_all(&r);
    const uint64_t worker = rig_join(&r, 0, 7);
    enum { N = 4096, LENGTH = 249 };
    static char names[N][LENGTH + 1];
    static Shardgrad__V1__Variable variables[N], *list[N];
    for (unsigned i = 0; i < N; i++) {
        snprintf(names[i], sizeof names[i], "%0*u", LENGTH, i);
        shardgrad__v1__variable__init(&variables[i]);
        variables[i].name = names[i];
        list[i] = &variables[i];
    }
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.variables = list;
    request.n_variables = N;
    size_t n_bytes = protobuf_c_message_get_packed_size(&request.base);
    for (unsigned i = 0; n_bytes < SG_WIRE_HEAD_BYTES - 30;
         i++, n_bytes = protobuf_c_message_get_packed_size(&request.base)) {
        variables[i].frozen = true; /* two bytes each */
    }
    rig_failed(rig_declare_list(&r, worker, list, N), SG_EXHAUSTED, "give them shorter names, or declare fewer");
    cr_assert_eq(rig_declare(&r, worker)->status, SG_OK);
    rig_deinit(&r);
}
