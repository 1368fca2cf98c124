/* Rounds that close in two phases, with the norms of all ps between them. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "server/store_internal.h"
#include "tests/server/store_fixture.h"

TestSuite(store_norms, .timeout = 30);

/* Slices 0 and 1 (16 and 4 elements) and 2 are trained; 3 is averaged, 4 is of another group. */
static const fixture_variable variables[] = {{.name = "weight", .n_elems = 20},
                                             {.name = "bias", .n_elems = 4},
                                             {.name = "mean", .n_elems = 4, .average = true},
                                             {.name = "critic", .n_elems = 4, .group = 1}};
static const uint32_t all[] = {0, 1, 2}, averaged = 3;

typedef struct norms_rig {
    fixture f;
    unsigned n_asked;
    sg_store_norms asked; /* the newest */
    double squares[8];
    unsigned n_cut;
    sg_status cut_status;
} norms_rig;

static void on_norms(void *user, const sg_store_norms *norms)
{
    norms_rig *r = user;
    r->n_asked++;
    r->asked = *norms;
    cr_assert_leq(norms->n_squares, SG_ARRAY_LEN(r->squares));
    memcpy(r->squares, norms->squares, norms->n_squares * sizeof *norms->squares);
}

static void on_cut(void *user, const sg_store_cut *cut, sg_status status, const char *message)
{
    (void)cut;
    (void)message;
    norms_rig *r = user;
    r->n_cut++;
    r->cut_status = status;
}

/* All values are 8; set 2 of hyper-parameters clips at 10. */
static void start(norms_rig *r, sg_rule rule, uint32_t n_workers)
{
    *r = (norms_rig){.n_asked = 0};
    sg_store_options options = fixture_options(SG_MODE_SYNC, rule);
    options.on_norms = on_norms;
    options.on_cut = on_cut;
    options.cut_user = r;
    fixture_init(&r->f, &options);
    fixture_start(&r->f, variables, SG_ARRAY_LEN(variables), n_workers, 8.0f);
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    hyper.number = 2;
    hyper.momentum = 0.9f;
    hyper.clip_global_norm = 10;
    fixture_hyper(&r->f, &hyper);
}

static fixture_push a_push(uint32_t worker, uint64_t step, uint64_t members, const float *values)
{
    fixture_push push = fixture_a_push(worker, step, members, values, 24);
    push.slices = all;
    push.n_slices = SG_ARRAY_LEN(all);
    push.hyper = 2;
    return push;
}

static void send(norms_rig *r, uint32_t worker, uint64_t step, uint64_t members, float value)
{
    float values[24];
    for (size_t i = 0; i < SG_ARRAY_LEN(values); i++)
        values[i] = value;
    fixture_push push = a_push(worker, step, members, values);
    sg_error err = {0};
    cr_assert_eq(fixture_send(&r->f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
}

static sg_status answer(norms_rig *r, uint64_t number, double squares, sg_error *err)
{
    const sg_store_norms_sums sums = {.number = number, .squares = squares};
    return sg_store_norms_answer(r->f.store, r->f.now_ms, &sums, err);
}

static void answer_ok(norms_rig *r, double squares)
{
    sg_error err = {0};
    cr_assert_eq(answer(r, r->asked.number, squares, &err), SG_OK, "%s", err.message);
}

static void expect(norms_rig *r, uint64_t version, float want)
{
    fixture_answer got = {0};
    fixture_pull(&r->f, 0, all, 3, version, 60000, &got);
    cr_assert(got.answered, "version %lu is not there", version);
    cr_assert_eq(got.status, SG_OK, "%s", got.message);
    for (size_t i = 0; i < got.n_values; i++)
        cr_assert_float_eq(got.values[i], want, 1e-6, "element %zu is %g, wanted %g", i, (double)got.values[i],
                           (double)want);
    fixture_answer_deinit(&got);
}

static void expect_nothing(norms_rig *r, uint64_t version)
{
    fixture_answer got = {0};
    fixture_pull(&r->f, 0, all, 1, version, 60000, &got);
    cr_assert_not(got.answered);
    sg_store_cancel_pull(r->f.store, &got);
    cr_assert_eq(got.status, SG_CANCELLED);
    fixture_answer_deinit(&got);
}

Test(store_norms, a_group_asks_once_when_all_its_slices_have_their_contributions_and_closes_with_the_answer)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 2);
    send(&r, 0, 0, 0x3, 1);
    cr_assert_eq(r.n_asked, 0);
    fixture_answer waits = {0};
    fixture_pull(&r.f, 0, all, 3, 1, 60000, &waits);
    send(&r, 1, 0, 0x3, 3);
    cr_assert_eq(r.n_asked, 1);
    cr_assert_eq(r.asked.group, 0);
    cr_assert_eq(r.asked.step, 0);
    cr_assert_eq(r.asked.generation, 1);
    cr_assert_eq(r.asked.n_squares, 6, "two for each slice");
    const double want[] = {0, 64, 0, 16, 0, 16}; /* the mean is 2; nobody asks for the values */
    cr_assert_arr_eq(r.squares, want, sizeof want);
    cr_assert_not(waits.answered);
    cr_assert_eq(r.f.n_held, r.f.n_let_go, "what was pushed is not needed any more");
    answer_ok(&r, 400); /* others have more: the norm is 20, so that the mean is halved */
    cr_assert_eq(waits.status, SG_OK, "%s", waits.message);
    expect(&r, 1, 7);
    send(&r, 0, 1, 0x1, 2);
    answer_ok(&r, 96);
    expect(&r, 2, 5); /* the norm is below 10 */
    fixture_answer_deinit(&waits);
    fixture_stop(&r.f);
}

Test(store_norms, a_set_of_hyper_parameters_that_does_not_clip_closes_in_one_phase)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 1);
    float ones[24];
    for (size_t i = 0; i < SG_ARRAY_LEN(ones); i++)
        ones[i] = 1;
    fixture_push push = a_push(0, 0, 0x1, ones);
    push.hyper = 1;
    sg_error err;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    cr_assert_eq(r.n_asked, 0);
    expect(&r, 1, 7);
    fixture_stop(&r.f);
}

Test(store_norms, what_is_averaged_and_other_groups_do_not_wait)
{
    static const float twos[] = {2, 2, 2, 2};
    norms_rig r;
    start(&r, SG_RULE_SGD, 1);
    fixture_push push = a_push(0, 0, 0x1, twos);
    push.slices = &averaged;
    push.n_slices = 1;
    push.n_values = 4;
    sg_error err;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    fixture_answer got = {0};
    fixture_pull(&r.f, 0, &averaged, 1, 1, 60000, &got);
    cr_assert_eq(got.values[0], 2);
    cr_assert_eq(r.n_asked, 0);
    fixture_answer_deinit(&got);
    const uint32_t critic = 4;
    push.slices = &critic;
    push.group = 1;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    cr_assert_eq(r.asked.group, 1, "a group of one slice has all that it needs");
    fixture_stop(&r.f);
}

Test(store_norms, contributions_count_once_while_the_norms_are_awaited)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 2);
    send(&r, 0, 0, 0x3, 1);
    send(&r, 1, 0, 0x3, 3);
    send(&r, 1, 0, 0x3, 3); /* a repeat is acknowledged */
    cr_assert_eq(r.n_asked, 1);
    float ones[24] = {0};
    fixture_push next = a_push(0, 1, 0x3, ones);
    fixture_expect_refused(&r.f, &next, SG_EARLY, "has not begun");
    fixture_admit(&r.f, 2, FIXTURE_INCARNATION(3));
    fixture_push late = a_push(2, 0, 0x7, ones);
    fixture_expect_refused(&r.f, &late, SG_LATE, "is closed");
    answer_ok(&r, 96);
    expect(&r, 1, 6);
    fixture_stop(&r.f);
}

Test(store_norms, an_answer_counts_once_and_only_for_the_question)
{
    norms_rig r;
    sg_error err;
    start(&r, SG_RULE_SGD, 1);
    send(&r, 0, 0, 0x1, 1);
    const uint64_t first = r.asked.number;
    cr_assert_eq(answer(&r, first + 1, 1, &err), SG_OK);
    expect_nothing(&r, 1);
    answer_ok(&r, 24);
    expect(&r, 1, 7);
    send(&r, 0, 1, 0x1, 1);
    cr_assert_eq(answer(&r, first, 24, &err), SG_OK, "a repeat");
    expect_nothing(&r, 2);
    const double variables_of_lars[] = {1, 1};
    sg_store_norms_sums wrong = {.number = r.asked.number, .variables = variables_of_lars, .n_variables = 2};
    cr_assert_eq(sg_store_norms_answer(r.f.store, r.f.now_ms, &wrong, &err), SG_INVALID);
    wrong.number = first;
    cr_assert_eq(sg_store_norms_answer(r.f.store, r.f.now_ms, &wrong, &err), SG_OK, "the rule may have been another");
    expect_nothing(&r, 2);
    answer_ok(&r, 24);
    expect(&r, 2, 6);
    const sg_store_norms_sums nowhere = {.number = first, .group = 7};
    cr_assert_eq(sg_store_norms_answer(r.f.store, r.f.now_ms, &nowhere, &err), SG_INVALID);
    fixture_stop(&r.f);
}

Test(store_norms, whoever_waits_hears_for_whom)
{
    norms_rig r;
    char text[256];
    start(&r, SG_RULE_SGD, 2);
    const uint32_t first = 0;
    float ones[16] = {0};
    for (uint32_t worker = 0; worker < 2; worker++) { /* of slice 0 alone */
        fixture_push push = fixture_a_push(worker, 0, 0x3, ones, 16);
        push.slices = &first;
        push.n_slices = 1;
        push.hyper = 2;
        sg_error err;
        if (worker == 0)
            cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
        fixture_push rest = fixture_a_push(worker, 0, 0x3, ones, 4);
        rest.slices = &all[1];
        rest.hyper = 2;
        if (worker == 0)
            cr_assert_eq(fixture_send(&r.f, &rest, NULL, NULL, &err), SG_OK);
        else
            cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    }
    sg_store_describe_wait(r.f.store, &r.f.store->slices[0], 1, text, sizeof text);
    cr_assert_not_null(strstr(text, "waiting for worker 1 ("), "'%s'", text);
    fixture_stop(&r.f);

    start(&r, SG_RULE_SGD, 1);
    send(&r, 0, 0, 0x1, 1);
    sg_store_describe_wait(r.f.store, &r.f.store->slices[0], 1, text, sizeof text);
    cr_assert_str_eq(text, "waiting for ps 0 to add up the norms of group 0, step 0");
    sg_store_norms_wait(r.f.store, 0, r.asked.number, "waiting for the norms of ps 1 (host:9)");
    sg_store_describe_wait(r.f.store, &r.f.store->slices[0], 1, text, sizeof text);
    cr_assert_str_eq(text, "waiting for the norms of ps 1 (host:9)");
    fixture_stop(&r.f);
}

Test(store_norms, a_step_that_everyone_is_excused_from_waits_for_the_others_and_changes_nothing)
{
    norms_rig r;
    start(&r, SG_RULE_LARS, 1);
    const uint64_t steps[] = {0};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 1, 0x1);
    cr_assert_eq(r.n_asked, 1);
    const double want[] = {0, 0, 0, 0, 0, 0};
    cr_assert_arr_eq(r.squares, want, sizeof want);
    const double sums[] = {0, 5, 0, 0};
    const sg_store_norms_sums answered = {.number = r.asked.number, .squares = 5, .variables = sums, .n_variables = 4};
    sg_error err;
    cr_assert_eq(sg_store_norms_answer(r.f.store, r.f.now_ms, &answered, &err), SG_OK, "%s", err.message);
    fixture_admit(&r.f, 0, FIXTURE_INCARNATION(9));
    fixture_answer got = {0};
    fixture_pull_as(&r.f, 0, FIXTURE_INCARNATION(9), all, 3, 1, 60000, &got);
    cr_assert(got.answered);
    cr_assert_eq(got.values[0], 8);
    fixture_answer_deinit(&got);
    fixture_stop(&r.f);
}

static void cut(norms_rig *r, uint64_t mark, uint64_t first)
{
    uint64_t steps[] = {first, 0};
    Shardgrad__V1__Cut message = SHARDGRAD__V1__CUT__INIT;
    message.mark = message.ticket_mark = mark;
    message.number = 5;
    message.steps = steps;
    message.n_steps = 2;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    order.cut = &message;
    sg_error err = {0};
    cr_assert_eq(fixture_order(&r->f, &order, &err), SG_OK, "%s", err.message);
}

Test(store_norms, a_cut_waits_for_the_version_that_a_round_between_its_phases_is_about_to_make)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 1);
    send(&r, 0, 0, 0x1, 1);
    float twos[] = {2, 2, 2, 2};
    fixture_push push = a_push(0, 0, 0x1, twos);
    push.slices = &averaged;
    push.n_slices = 1;
    push.n_values = 4;
    sg_error err;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    cut(&r, 1, 1);
    cr_assert_eq(r.n_cut, 0);
    answer_ok(&r, 24);
    cr_assert_eq(r.n_cut, 1);
    cr_assert_eq(r.cut_status, SG_OK);
    fixture_stop(&r.f);
}

/* Nobody pushed that step, so it is the first that is not in the checkpoint, though its rounds are about to close. */
Test(store_norms, a_cut_before_a_step_that_nobody_pushed_does_not_wait_for_its_norms)
{
    norms_rig r;
    start(&r, SG_RULE_LARS, 1);
    const uint64_t steps[] = {0};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 1, 0x1);
    cr_assert_eq(r.n_asked, 1);
    cut(&r, 1, 0);
    cr_assert_eq(r.n_cut, 1);
    cr_assert_eq(r.cut_status, SG_OK);
    fixture_stop(&r.f);
}

/* The thread that has the answer took what slice 0 waits with, and gets no farther until the order was followed. */
Test(store_norms, a_cut_before_a_step_that_nobody_pushed_does_not_mind_that_it_is_answered_just_then)
{
    norms_rig r;
    start(&r, SG_RULE_LARS, 1);
    const uint64_t steps[] = {0};
    fixture_excuse(&r.f, 0, FIXTURE_INCARNATION(1), steps, 1, 0x1);
    sg_store_slice *slice = &r.f.store->slices[0];
    const sg_store_between taken = slice->between;
    slice->between.exchange = 0;
    slice->between.made = NULL;
    cut(&r, 1, 0);
    cr_assert_eq(r.n_cut, 1);
    cr_assert_eq(r.cut_status, SG_OK);
    const sg_update_squares_of none = {0};
    sg_store_close_second(r.f.store, r.f.now_ms, slice, &taken, &none, 0);
    cr_assert_eq(slice->newest->step, 1);
    cr_assert_eq(r.n_cut, 1);
    fixture_stop(&r.f);
}

Test(store_norms, gradients_that_are_not_finite_are_left_out_of_the_norm)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 2);
    send(&r, 0, 0, 0x3, 2);
    float bad[24] = {NAN};
    fixture_push push = a_push(1, 0, 0x3, bad);
    uint32_t non_finite[3];
    size_t n_non_finite = 0;
    sg_error err;
    cr_assert_eq(fixture_send(&r.f, &push, non_finite, &n_non_finite, &err), SG_OK);
    cr_assert_eq(n_non_finite, 1);
    const double want[] = {0, 64, 0, 4, 0, 4}; /* slice 0: of worker 0 alone; the others: half of its 2 */
    cr_assert_arr_eq(r.squares, want, sizeof want);
    fixture_stop(&r.f);
}

Test(store_norms, slices_of_a_group_at_different_steps_are_an_error_and_no_crash)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 1);
    float ones[16] = {0};
    fixture_push push = fixture_a_push(0, 0, 0x1, ones, 16);
    push.slices = all;
    push.n_slices = 1;
    push.hyper = 2;
    sg_error err;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK); /* slice 0 waits for the norms of step 0 */
    push.slices = &all[1];
    push.n_values = 4;
    push.hyper = 1;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK); /* slice 1 goes on to step 1 */
    push.hyper = 2;
    push.step = 1;
    cr_assert_eq(fixture_send(&r.f, &push, NULL, NULL, &err), SG_OK);
    fixture_expect_refused(&r.f, &push, SG_INVALID, "with other hyper-parameters than the rest of its group");
    fixture_stop(&r.f);
}

Test(store_norms, a_new_generation_drops_what_waits_and_an_answer_to_it_comes_to_nothing)
{
    norms_rig r;
    start(&r, SG_RULE_SGD, 1);
    send(&r, 0, 0, 0x1, 1);
    cr_assert_eq(fixture_begin(&r.f, 2, NULL), SG_OK);
    answer_ok(&r, 24);
    cr_assert_null(r.f.store->slices[0].newest);
    cr_assert_eq(r.f.store->slices[0].between.exchange, 0);
    cr_assert_not(r.f.store->slices[0].round.closing);
    fixture_deinit(&r.f);
}

static void on_cut_of(void *user, const sg_store_cut *made, sg_status status, const char *message)
{
    (void)message;
    cr_assert_eq(status, SG_OK);
    *(sg_store_cut *)user = *made;
}

static void on_norms_nothing(void *user, const sg_store_norms *norms)
{
    (void)user;
    (void)norms;
}

/* Step 2 carries the mark of the cut: its first phase changes the slots before the cut is ordered. */
Test(store_norms, of_lamb_a_cut_has_the_slots_of_before_the_first_phase_of_the_step_that_is_marked)
{
    fixture f;
    sg_store_cut made = {0};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_LAMB);
    options.on_norms = on_norms_nothing;
    options.on_cut = on_cut_of;
    options.cut_user = &made;
    fixture_init(&f, &options);
    const fixture_variable weight = {.name = "weight", .n_elems = 16};
    fixture_start(&f, &weight, 1, 1, 8.0f);
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    hyper.number = 2;
    hyper.beta1 = 0.5f;
    hyper.beta2 = 0.5f;
    hyper.epsilon = 1e-8f;
    fixture_hyper(&f, &hyper);
    static const float ones[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const uint32_t slice = 0;
    const double sums[] = {1, 1};
    sg_error err = {0};
    for (uint64_t step = 0; step < 3; step++) {
        fixture_push push = fixture_a_push(0, step, 0x1, ones, 16);
        push.slices = &slice;
        push.hyper = 2;
        push.mark = step == 2 ? 2 : 0;
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK, "%s", err.message);
        const sg_store_norms_sums answered = {
            .number = step + 1, .squares = 1, .variables = sums, .n_variables = SG_ARRAY_LEN(sums)};
        if (step < 2)
            cr_assert_eq(sg_store_norms_answer(f.store, f.now_ms, &answered, &err), SG_OK, "%s", err.message);
    }
    cr_assert_float_eq(f.store->slices[0].slots[0][0], 0.875f, 1e-6, "after three steps");
    uint64_t steps[] = {2};
    Shardgrad__V1__Cut message = SHARDGRAD__V1__CUT__INIT;
    message.mark = message.ticket_mark = 2;
    message.number = 5;
    message.steps = steps;
    message.n_steps = 1;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT;
    order.cut = &message;
    cr_assert_eq(fixture_order(&f, &order, &err), SG_OK, "%s", err.message);
    sg_store_kept kept;
    cr_assert_eq(sg_store_take_kept(f.store, &made, 0, &kept, &err), SG_OK, "%s", err.message);
    cr_assert_eq(kept.step, 2);
    cr_assert_eq(kept.n_applied, 2);
    cr_assert_eq(kept.n_slots, 2);
    cr_assert_float_eq(kept.slots[0]->values[0], 0.75f, 1e-6, "%g", (double)kept.slots[0]->values[0]);
    cr_assert_float_eq(kept.slots[1]->values[15], 0.75f, 1e-6, "%g", (double)kept.slots[1]->values[15]);
    cr_assert_float_eq(kept.version->values[0], 6.0f, 1e-4, "%g", (double)kept.version->values[0]);
    sg_store_kept_deinit(&kept);
    fixture_stop(&f);
}
