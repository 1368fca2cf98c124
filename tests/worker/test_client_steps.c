/* The public interface against a ps that does as the test says: steps, whole and in pieces, and their buffers. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "client_fixture.h"
#include "common/clock.h"
#include "common/status.h"
#include "tests/support/allocations.h"

TestSuite(client_steps, .init = client_create, .fini = client_destroy, .timeout = 30);

Test(client_steps, the_loop_of_the_manual_adds_up_exactly)
{
    client_fill(client_value, CLIENT_N, 1), client_fill(client_gradient, CLIENT_N, 2),
        client_fill(client_other_value, 8, 3), client_fill(client_other_gradient, 8, -1);
    sg_client *client = client_open_declared(client_variables, 2);
    sg_step step = {0};
    sg_error err;
    for (client_begin(client, &step); step.number < 10; client_begin(client, &step)) {
        cr_assert_eq(client_value[CLIENT_N - 1], 1 + 2 * (float)step.number);
        cr_assert_eq(step.learning_rate, 0.25f);
        step.examples = 8;
        cr_assert_eq(sg_client_end_step(client, &step, &err), SG_OK, "%s", err.message);
    }
    for (size_t i = 0; i < CLIENT_N; i++)
        cr_assert_eq(client_value[i], 21);
    for (size_t i = 0; i < 8; i++)
        cr_assert_eq(client_other_value[i], -7);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 10 * (CLIENT_N + 8) * sizeof(float));
    cr_assert_eq(info.pulled_bytes, 10 * (CLIENT_N + 8) * sizeof(float));
    cr_assert(info.sync);
    cr_assert_eq(info.n_ps, 1);
    sg_client_close(client);
    cr_assert_eq(fake_ps_count(client_ps, &client_ps->n_leaves), 1);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 80);
    cr_assert_eq(fake_ps_count(client_ps, &client_ps->n_tickets), 2,
                 "the tickets but the first two come with the pushes");
}

Test(client_steps, a_ticket_that_does_not_come_with_the_push_is_asked_for)
{
    fake_ps_set(client_ps, no_rides, true);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {.examples = 1};
    for (client_begin(client, &step); step.number < 5; client_begin(client, &step))
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 5);
    cr_assert_geq(fake_ps_count(client_ps, &client_ps->n_tickets), 6);
}

Test(client_steps, async_steps_bring_the_newest_values)
{
    fake_ps_set(client_ps, async, true);
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {0};
    for (client_begin(client, &step); step.number < 5; client_begin(client, &step)) {
        step.examples = 1;
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
        cr_assert_eq(client_value[0], (float)step.number + 1);
    }
    sg_client_close(client);
}

Test(client_steps, a_step_can_be_sent_in_pieces)
{
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 0), client_fill(client_other_gradient, 8, 1);
    sg_client *client = client_open_declared(client_variables, 2);
    sg_step step = {0};
    for (client_begin(client, &step); step.number < 3; client_begin(client, &step)) {
        step.examples = 5;
        sg_op *ops[4];
        for (uint32_t i = 0; i < 2; i++) {
            cr_assert_eq(sg_client_push(client, &step, &i, 1, &ops[i], NULL), SG_OK);
            cr_assert_eq(sg_client_pull(client, &step, &i, 1, &ops[2 + i], NULL), SG_OK);
        }
        for (int i = 0; i < 4; i++)
            cr_assert_eq(sg_op_wait(ops[i], UINT64_MAX, NULL), SG_OK);
        for (int i = 0; i < 4; i++)
            sg_op_destroy(ops[i]);
        cr_assert_eq(client_value[7], (float)step.number + 1);
        cr_assert_eq(client_other_value[7], (float)step.number + 1);
    }
    client_await_reported(15);
    sg_client_close(client);
}

/* Both kinds of answer: with the values, and without. */
static void push_pull_steps(bool bare)
{
    fake_ps_set(client_ps, bare_answers, bare);
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 0), client_fill(client_other_gradient, 8, 1);
    sg_client *client = client_open_declared(client_variables, 2);
    sg_step step = {0};
    for (client_begin(client, &step); step.number < 3; client_begin(client, &step)) {
        step.examples = 5;
        sg_op *ops[2];
        for (uint32_t i = 2; i-- > 0;)
            cr_assert_eq(sg_client_push_pull(client, &step, &i, 1, &ops[i], NULL), SG_OK);
        for (uint32_t i = 0; i < 2; i++) {
            cr_assert_eq(sg_op_wait(ops[i], UINT64_MAX, NULL), SG_OK);
            cr_assert_eq(i == 0 ? client_value[7] : client_other_value[7], (float)step.number + 1);
            sg_op_destroy(ops[i]);
        }
    }
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 3 * (CLIENT_N + 8) * sizeof(float));
    cr_assert_eq(info.pulled_bytes, 3 * (CLIENT_N + 8) * sizeof(float));
    cr_assert_eq(fake_ps_count(client_ps, &client_ps->n_pulls), bare ? 6 : 0);
    cr_assert_eq(fake_ps_count(client_ps, &client_ps->n_push_pulls), 6);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 15);
}

Test(client_steps, the_last_step_that_was_sent_in_pieces_is_reported_by_the_goodbye)
{
    client_fill(client_gradient, CLIENT_N, 1), client_fill(client_other_gradient, 8, 1);
    sg_client *client = client_open_declared(client_variables, 2);
    sg_step step = {.examples = 7};
    client_begin(client, &step);
    for (uint32_t i = 0; i < 2; i++) {
        sg_op *op;
        cr_assert_eq(sg_client_push_pull(client, &step, &i, 1, &op, NULL), SG_OK);
        cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
        sg_op_destroy(op);
    }
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 7);
}

Test(client_steps, a_push_pull_brings_the_values_that_it_makes)
{
    push_pull_steps(false);
}

Test(client_steps, a_push_pull_whose_values_are_not_there_yet_pulls_them)
{
    push_pull_steps(true);
}

/* Slices have 16 elements. */
Test(client_steps, parts_of_a_variable_travel_on_their_own)
{
    client_fill(client_value, CLIENT_N, 0), client_fill(client_other_value, 8, 0),
        client_fill(client_other_gradient, 8, 1);
    for (int i = 0; i < CLIENT_N; i++)
        client_gradient[i] = (float)i;
    sg_client *client = client_open_to(client_ps->address);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.slice_elems, 0);
    cr_assert_eq(sg_client_declare(client, client_variables, 2, NULL), SG_OK);
    sg_client_get_info(client, &info);
    cr_assert_eq(info.slice_elems, 16);
    const sg_range parts[][2] = {{{0, 32, 8}, {1, 0, 8}}, {{0, 0, 16}, {0, 16, 16}}};
    sg_step step = {0};
    for (client_begin(client, &step); step.number < 3; client_begin(client, &step)) {
        step.examples = 5;
        for (size_t i = 0; i < 2; i++) {
            sg_op *op;
            sg_error err;
            cr_assert_eq(sg_client_push_pull_ranges(client, &step, parts[i], 2, &op, &err), SG_OK, "%s", err.message);
            cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
            sg_op_destroy(op);
            const float before = (float)step.number, after = before + 1;
            cr_assert_eq(client_value[33], 33 * after);
            cr_assert_eq(client_value[31], 31 * (i == 0 ? before : after), "what was not sent has changed");
            cr_assert_eq(client_other_value[7], after);
        }
    }
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 3 * (CLIENT_N + 8) * sizeof(float));
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 15);
}

static void expect_refused(sg_client *client, const sg_step *step, const sg_range *ranges, size_t n, const char *says)
{
    sg_op *op = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_client_push_pull_ranges(client, step, ranges, n, &op, &err), SG_INVALID, "%s", says);
    cr_assert_not_null(strstr(err.message, says), "'%s' lacks '%s'", err.message, says);
    cr_assert_null(op);
}

Test(client_steps, parts_with_other_bounds_than_slices_are_refused_and_harm_nothing)
{
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_to(client_ps->address);
    sg_step step = {.examples = 1};
    expect_refused(client, &step, &(sg_range){0, 0, CLIENT_N}, 1, "declare");
    cr_assert_eq(sg_client_declare(client, client_variables, 1, NULL), SG_OK);
    client_begin(client, &step);
    expect_refused(client, &step, &(sg_range){1, 0, 8}, 1, "variable 1 does not exist");
    const sg_range bad[] = {{0, 1, 15},  {0, 0, 15},           {0, 0, 0},          {0, CLIENT_N, 0},
                            {0, 16, 25}, {0, 0, CLIENT_N + 8}, {0, 48, 16},        {0, UINT64_MAX - 15, 16},
                            {0, 32, 7},  {0, 16, UINT64_MAX},  {0, 0, UINT64_MAX}, {0, UINT64_MAX, 1}};
    for (size_t i = 0; i < SG_ARRAY_LEN(bad); i++)
        expect_refused(client, &step, &bad[i], 1, "ends at a multiple of 16");
    expect_refused(client, &step, (sg_range[]){{0, 0, 32}, {0, 16, 16}}, 2, "twice");
    expect_refused(client, &step, (sg_range[]){{0, 0, CLIENT_N}, {0, 0, CLIENT_N}}, 2, "more than all");
    step.group = 1;
    expect_refused(client, &step, &(sg_range){0, 0, CLIENT_N}, 1, "group 1");
    step.group = 0;
    sg_op *op, *rest;
    cr_assert_eq(sg_client_push_pull_ranges(client, &step, &(sg_range){0, 16, 16}, 1, &op, NULL), SG_OK);
    expect_refused(client, &step, &(sg_range){0, 0, CLIENT_N}, 1, "was pushed at step 0 before");
    cr_assert_eq(sg_client_push_pull_ranges(client, &step, (sg_range[]){{0, 32, 8}, {0, 0, 16}}, 2, &rest, NULL),
                 SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(rest, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    sg_op_destroy(rest);
    client_begin(client, &step);
    cr_assert_eq(step.number, 1);
    for (int i = 0; i < CLIENT_N; i++)
        cr_assert_eq(client_value[i], 1);
    sg_client_close(client);
}

Test(client_steps, a_step_begins_while_its_values_are_on_their_way_if_the_caller_wants_it)
{
    fake_ps_set(client_ps, bare_answers, true);
    fake_ps_set(client_ps, hold_pulls, true);
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {.examples = 3, .values_later = true};
    const uint32_t first = 0;
    sg_op *op, *next;
    client_begin(client, &step);
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &op, NULL), SG_OK);
    client_begin(client, &step);
    cr_assert_eq(step.number, 1);
    cr_assert(step.values_later);
    cr_assert_eq(sg_op_wait(op, 0, NULL), SG_TIMEOUT, "the values were waited for");
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &next, NULL), SG_INVALID, "pushed without its values");
    fake_ps_await_held(client_ps, 1);
    fake_ps_set(client_ps, hold_pulls, false);
    fake_ps_set(client_ps, bare_answers, false);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK); /* the ps is asked again */
    sg_op_destroy(op);
    cr_assert_eq(client_value[0], 1);
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    client_begin(client, &step);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->reported_examples), 6);
}

static void steps_of_every_kind(sg_client *client, int n)
{
    sg_step step = {.examples = 5};
    for (int i = 0; i < n; i++) {
        step.values_later = i % 2 == 1;
        SG_ASSERT(sg_client_begin_step(client, &step, NULL) == SG_OK);
        if (i % 3 == 0) {
            SG_ASSERT(sg_client_end_step(client, &step, NULL) == SG_OK);
            continue;
        }
        sg_op *ops[2];
        const sg_range parts[2][2] = {{{0, 16, CLIENT_N - 16}, {1, 0, 8}}, {{0, 0, 16}, {0}}};
        for (uint32_t k = 0; k < 2; k++)
            SG_ASSERT((i % 3 == 1
                           ? sg_client_push_pull(client, &step, &k, 1, &ops[k], NULL)
                           : sg_client_push_pull_ranges(client, &step, parts[k], 2 - k, &ops[k], NULL)) == SG_OK);
        for (uint32_t k = 0; k < 2; k++) {
            SG_ASSERT(sg_op_wait(ops[k], UINT64_MAX, NULL) == SG_OK);
            sg_op_destroy(ops[k]);
        }
    }
}

/* What is recycled was allocated in the busiest moment so far. Such a moment may still come while we count, but not
 * again and again. */
Test(client_steps, steps_that_follow_each_other_allocate_nothing)
{
    enum { N_STEPS = 300, N_ROUNDS = 20 };
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 0), client_fill(client_other_gradient, 8, 1);
    sg_client *client = client_open_declared(client_variables, 2);
    char report[4096];
    size_t n = 1;
    for (int round = 0; round < N_ROUNDS && n > 0; round++) {
        steps_of_every_kind(client, N_STEPS);
        sg_allocations_begin();
        steps_of_every_kind(client, N_STEPS);
        n = sg_allocations_end(report, sizeof report);
    }
    sg_client_close(client);
    cr_assert_eq(n, 0, "%zu allocations in %d steps:\n%s", n, N_STEPS, report);
}

Test(client_steps, misuse_is_an_error_and_harms_nothing)
{
    sg_client *client = client_open_to(client_ps->address);
    sg_step step = {0};
    const uint32_t first = 0, unknown = 9;
    sg_op *op = NULL;
    cr_assert_eq(sg_client_begin_step(client, &step, NULL), SG_INVALID);
    cr_assert_eq(sg_client_declare(client, client_variables, 0, NULL), SG_INVALID);
    cr_assert_eq(sg_client_declare(client, client_variables, 1, NULL), SG_OK);
    cr_assert_eq(sg_client_declare(client, client_variables, 1, NULL), SG_INVALID);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_INVALID);
    client_begin(client, &step);
    cr_assert_eq(sg_client_begin_step(client, &step, NULL), SG_INVALID);
    cr_assert_eq(sg_client_push(client, &step, &unknown, 1, &op, NULL), SG_INVALID);
    step.group = 3;
    cr_assert_eq(sg_client_pull(client, &step, &first, 1, &op, NULL), SG_INVALID);
    step.group = 0;
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &op, NULL), SG_OK);
    sg_op *again;
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &again, NULL), SG_INVALID);
    sg_op_destroy(op);
    cr_assert_eq(sg_client_pull(client, &step, &first, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    client_begin(client, &step);
    cr_assert_eq(step.number, 1);
    sg_client_close(client);
}

Test(client_steps, a_wait_that_times_out_does_not_give_the_buffer_back)
{
    client_fill(client_value, CLIENT_N, 4), client_fill(client_gradient, CLIENT_N, 0);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {0};
    client_begin(client, &step);
    const uint32_t first = 0;
    sg_op *push, *pull;
    fake_ps_set(client_ps, hold_pulls, true);
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &push, NULL), SG_OK);
    cr_assert_eq(sg_client_pull(client, &step, &first, 1, &pull, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(push, UINT64_MAX, NULL), SG_OK);
    sg_error err;
    cr_assert_eq(sg_op_wait(pull, 0, &err), SG_TIMEOUT);
    cr_assert_eq(sg_op_wait(pull, 50, &err), SG_TIMEOUT);
    cr_assert_not_null(strstr(err.message, "50 ms"));
    fake_ps_await_held(client_ps, 1);
    /* Whatever is still to come for this buffer comes before the op is complete. */
    fake_ps_set(client_ps, hold_pulls, false);
    sg_op_cancel(pull);
    cr_assert_eq(sg_op_wait(pull, UINT64_MAX, &err), SG_CANCELLED);
    client_fill(client_value, CLIENT_N, 99);
    sg_op_destroy(pull);
    sg_op_destroy(push);
    sg_client_close(client);
    for (size_t i = 0; i < CLIENT_N; i++)
        cr_assert_eq(client_value[i], 99, "element %zu was written after the op was complete", i);
}

Test(client_steps, a_pull_of_the_wrong_size_is_an_error_and_leaves_the_values_alone)
{
    client_fill(client_value, CLIENT_N, 4), client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {0};
    client_begin(client, &step);
    fake_ps_set(client_ps, short_pulls, true);
    step.examples = 1;
    sg_error err;
    cr_assert_eq(sg_client_end_step(client, &step, &err), SG_INTERNAL, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "bytes"));
    for (size_t i = 0; i < CLIENT_N; i++)
        cr_assert_eq(client_value[i], 4);
    sg_client_close(client);
}

typedef struct told {
    int n_lines;
    char fields[256]; /* of the first */
} told;

static void hear_non_finite(void *user, sg_log_level level, const char *event, const char *fields)
{
    told *all = user;
    if (level == SG_LOG_WARN && strcmp(event, "non_finite") == 0 && all->n_lines++ == 0)
        snprintf(all->fields, sizeof(all->fields), "%s", fields);
}

Test(client_steps, gradients_that_are_not_finite_are_told_now_and_then_and_not_at_every_step)
{
    client_fill(client_value, CLIENT_N, 4), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 4), client_fill(client_other_gradient, 8, 1);
    client_gradient[0] = NAN;
    told all = {0};
    sg_client *client = client_open_logged(client_ps->address, hear_non_finite, &all);
    cr_assert_eq(sg_client_declare(client, client_variables, 2, NULL), SG_OK);
    const uint64_t began_ms = sg_clock_ms();
    sg_step step = {.examples = 7};
    for (int i = 0; i < 20; i++) {
        client_begin(client, &step);
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    }
    int most = 1;
    for (uint64_t due_ms = 1000; began_ms + due_ms <= sg_clock_ms(); due_ms = 2 * due_ms + 1000)
        most++;
    sg_client_close(client);
    cr_assert(all.n_lines >= 1 && all.n_lines <= most, "%d lines", all.n_lines);
    cr_assert_eq(strncmp(all.fields, "steps=1 group=0 step=0 variable=", 32), 0, "%s", all.fields);
}

Test(client_steps, a_gradient_that_is_not_finite_is_left_out_as_a_whole)
{
    client_fill(client_value, CLIENT_N, 4), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 4), client_fill(client_other_gradient, 8, 1);
    client_other_gradient[3] = NAN;
    sg_client *client = client_open_declared(client_variables, 2);
    sg_step step = {.examples = 7};
    client_begin(client, &step);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->last_weight), 0);
    cr_assert_eq(client_value[0], 4);
    cr_assert_eq(client_other_value[0], 4);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.non_finite, 4); /* slices */
    client_other_gradient[3] = 1;
    client_begin(client, &step);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    cr_assert_eq(fake_ps_get(client_ps, &client_ps->last_weight), 7);
    cr_assert_eq(client_value[0], 5);
    sg_client_close(client);
}
