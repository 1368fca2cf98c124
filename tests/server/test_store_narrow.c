/* Gradients that come as bfloat16: widened when they come, whatever becomes of them then. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "common/status.h"
#include "kernels/bf16.h"
#include "tests/server/store_fixture.h"

TestSuite(store_narrow, .timeout = 30);

#define BFLOAT16 2

/* Slices of 16 and 5 elements, and one of 3 that is averaged. */
static const fixture_variable variables[] = {{.name = "weight", .n_elems = 21},
                                             {.name = "mean", .n_elems = 3, .average = true}};
static const uint32_t all[] = {0, 1, 2};

typedef struct message {
    uint8_t bytes[21 * 2 + 3 * 4];
} message;

/* Of gradients base + i, and values 0.1 (which no bfloat16 is). */
static message make(float base)
{
    message m;
    const float tenth = 0.1f;
    float gradients[21];
    for (size_t i = 0; i < 21; i++)
        gradients[i] = base + (float)i;
    sg_bf16_narrow_to_bytes(gradients, m.bytes, 21);
    for (size_t i = 0; i < 3; i++)
        memcpy(m.bytes + 42 + i * sizeof tenth, &tenth, sizeof tenth);
    return m;
}

static void start(fixture *f, sg_mode mode, sg_rule rule, uint32_t n_workers)
{
    sg_store_options options = fixture_options(mode, rule);
    fixture_init(f, &options);
    fixture_start(f, variables, 2, n_workers, 100.0f);
}

static fixture_push a_push(uint32_t worker, uint64_t step, uint64_t members, const message *m)
{
    fixture_push push = fixture_a_push(worker, step, members, (const float *)(const void *)m->bytes, 0);
    push.dtype = BFLOAT16;
    push.slices = all;
    push.n_slices = 3;
    push.n_bytes = sizeof m->bytes;
    return push;
}

static void send(fixture *f, const fixture_push *push)
{
    sg_error err = {0};
    cr_assert_eq(fixture_send(f, push, NULL, NULL, &err), SG_OK, "%s", err.message);
}

/* Of sgd with rate 1: 100 - (base + i). */
static void expect(fixture *f, uint64_t version, float base)
{
    fixture_answer got = {0};
    fixture_pull(f, 0, all, 3, version, 60000, &got);
    cr_assert(got.answered && got.status == SG_OK, "%s", got.message);
    for (size_t i = 0; i < 21; i++)
        cr_assert_eq(got.values[i], 100 - (base + (float)i), "element %zu is %g", i, (double)got.values[i]);
    for (size_t i = 21; i < 24; i++)
        cr_assert_eq(got.values[i], 0.1f, "what is averaged is not rounded");
    fixture_answer_deinit(&got);
}

Test(store_narrow, counts_as_what_it_is_widened_to_wherever_the_message_is_cut)
{
    for (size_t split = 0; split < 8; split++) {
        fixture f;
        start(&f, SG_MODE_SYNC, SG_RULE_SGD, 1);
        const message m = make(3);
        fixture_push push = a_push(0, 0, 0x1, &m);
        push.split_bytes = split;
        send(&f, &push);
        expect(&f, 1, 3);
        fixture_stop(&f);
    }
}

Test(store_narrow, waits_for_those_of_others_which_may_be_float32)
{
    fixture f;
    start(&f, SG_MODE_SYNC, SG_RULE_SGD, 3);
    const message narrow = make(2);
    fixture_push push = a_push(0, 0, 0x7, &narrow);
    push.weight = 1;
    send(&f, &push);
    send(&f, &push); /* a repeat counts once */
    float wide[24];
    for (size_t i = 0; i < 24; i++)
        wide[i] = i < 21 ? 4 + (float)i : 0.1f;
    fixture_push other = fixture_a_push(1, 0, 0x7, wide, 24);
    other.slices = all;
    other.n_slices = 3;
    other.weight = 1;
    send(&f, &other);
    const message third = make(6);
    push = a_push(2, 0, 0x7, &third);
    push.weight = 2;
    send(&f, &push);
    expect(&f, 1, 4.5f);
    fixture_stop(&f);
}

Test(store_narrow, async_each_is_applied_as_it_comes)
{
    fixture f;
    start(&f, SG_MODE_ASYNC, SG_RULE_SGD, 1);
    const message m = make(1);
    for (uint64_t ticket = 0; ticket < 3; ticket++) {
        fixture_push push = a_push(0, ticket, 0x1, &m);
        send(&f, &push);
    }
    fixture_answer got = {0};
    fixture_pull(&f, 0, all, 3, 3, 60000, &got);
    cr_assert_eq(got.values[20], 100 - 3 * 21);
    fixture_answer_deinit(&got);
    fixture_stop(&f);
}

Test(store_narrow, what_is_not_finite_is_left_out_and_told)
{
    fixture f;
    start(&f, SG_MODE_SYNC, SG_RULE_ADAM, 1);
    message m = make(1);
    const uint16_t nan = 0x7fc0, infinity = 0xff80;
    uint32_t told[3];
    size_t n_told = 0;
    sg_error err;
    memcpy(m.bytes + 40, &nan, sizeof nan); /* the last of slice 1 */
    fixture_push push = a_push(0, 0, 0x1, &m);
    cr_assert_eq(fixture_send(&f, &push, told, &n_told, &err), SG_OK);
    cr_assert(n_told == 1 && told[0] == 1);
    memcpy(m.bytes, &infinity, sizeof infinity);
    push = a_push(0, 1, 0x1, &m);
    push.weight = 0; /* and what weighs nothing is looked at */
    cr_assert_eq(fixture_send(&f, &push, told, &n_told, &err), SG_OK);
    cr_assert_eq(n_told, 2);
    fixture_stop(&f);
}

Test(store_narrow, other_lengths_and_types_are_refused)
{
    fixture f;
    start(&f, SG_MODE_SYNC, SG_RULE_SGD, 1);
    const message m = make(1);
    fixture_push push = a_push(0, 0, 0x1, &m);
    push.n_bytes--;
    fixture_expect_refused(&f, &push, SG_INVALID, "got 53 bytes of data for 3 slices, want 54");
    push.n_bytes++;
    push.dtype = 1;
    fixture_expect_refused(&f, &push, SG_INVALID, "got 54 bytes of data for 3 slices, want 96");
    push.dtype = 3;
    fixture_expect_refused(&f, &push, SG_INVALID, "dtype 3 is unknown");
    push.dtype = BFLOAT16;
    const uint32_t unknown[] = {0, 1, 9};
    push.slices = unknown;
    fixture_expect_refused(&f, &push, SG_INVALID, "slice 9 is unknown");
    push.slices = all;
    send(&f, &push);
    expect(&f, 1, 1);
    fixture_stop(&f);
}
