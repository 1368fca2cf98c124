/* The public interface against a ps that does as the test says. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/address.h"
#include "common/clock.h"
#include "common/status.h"
#include "fake_ps.h"
#include "shardgrad/shardgrad.h"
#include "tests/support/allocations.h"

#define N 40 /* elements: three slices */

static fake_ps *ps;
static float value[N], gradient[N], other_value[8], other_gradient[8];
static const sg_variable variables[2] = {
    {.name = "w", .rank = 1, .shape = {N}, .value = value, .gradient = gradient},
    {.name = "v", .rank = 2, .shape = {2, 4}, .value = other_value, .gradient = other_gradient},
};

static void create(void)
{
    ps = fake_ps_create();
}

static void destroy(void)
{
    if (ps != NULL)
        fake_ps_destroy(ps);
}

TestSuite(client, .init = create, .fini = destroy, .timeout = 30);

static sg_client *open_logged(const char *address, sg_log_fn log, void *user)
{
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {
        .coordinator = address, .job = "job", .start_timeout_ms = 5000, .log = log, .log_user = user};
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_OK, "%s", err.message);
    return client;
}

static sg_client *open_to(const char *address)
{
    return open_logged(address, NULL, NULL);
}

static sg_client *open_declared(const sg_variable *list, size_t n)
{
    sg_client *client = open_to(ps->address);
    sg_error err;
    cr_assert_eq(sg_client_declare(client, list, n, &err), SG_OK, "%s", err.message);
    return client;
}

static void begin(sg_client *client, sg_step *step)
{
    sg_error err;
    cr_assert_eq(sg_client_begin_step(client, step, &err), SG_OK, "%s", err.message);
}

static void fill(float *list, size_t n, float with)
{
    for (size_t i = 0; i < n; i++)
        list[i] = with;
}

/* The report of the last step is on its way when the next one begins. */
static void await_reported(uint64_t examples)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    while (fake_ps_get(ps, &ps->reported_examples) < examples)
        nanosleep(&pause, NULL);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), examples);
}

Test(client, wrong_options_are_refused_with_the_right_code)
{
    sg_client *client = NULL;
    cr_assert_eq(sg_client_open(&(sg_client_options){0}, &client, NULL), SG_INVALID);
    cr_assert_eq(sg_client_open(&(sg_client_options){.config = "/nowhere/at/all.yaml"}, &client, NULL), SG_NOT_FOUND);
    const char *const set[] = {"workers", NULL};
    cr_assert_eq(sg_client_open(&(sg_client_options){.coordinator = "127.0.0.1:1", .set = set}, &client, NULL),
                 SG_CONFIG);
    cr_assert_null(client);
}

Test(client, open_where_nobody_listens_is_unavailable_and_names_the_address)
{
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {.coordinator = "127.0.0.1:1", .start_timeout_ms = 300};
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_UNAVAILABLE, "%s", err.message);
    cr_assert_null(client);
    cr_assert_not_null(strstr(err.message, "127.0.0.1:1"), "%s", err.message);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2300);
}

static bool always(void *user)
{
    ++*(int *)user;
    return true;
}

Test(client, open_ends_when_it_is_interrupted)
{
    sg_client *client = NULL;
    int n_asked = 0;
    const sg_client_options options = {
        .coordinator = "127.0.0.1:1", .start_timeout_ms = 20000, .interrupted = always, .interrupted_user = &n_asked};
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_open(&options, &client, NULL), SG_CANCELLED);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000);
    cr_assert_gt(n_asked, 0);
}

Test(client, a_refused_hello_is_the_end_of_open)
{
    fake_ps_set(ps, refuse_hello, SG_MISMATCH);
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {.coordinator = ps->address, .start_timeout_ms = 5000};
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_MISMATCH);
    cr_assert_str_eq(err.message, "the fake refuses you");
}

Test(client, the_loop_of_the_manual_adds_up_exactly)
{
    fill(value, N, 1), fill(gradient, N, 2), fill(other_value, 8, 3), fill(other_gradient, 8, -1);
    sg_client *client = open_declared(variables, 2);
    sg_step step = {0};
    sg_error err;
    for (begin(client, &step); step.number < 10; begin(client, &step)) {
        cr_assert_eq(value[N - 1], 1 + 2 * (float)step.number);
        cr_assert_eq(step.learning_rate, 0.25f);
        step.examples = 8;
        cr_assert_eq(sg_client_end_step(client, &step, &err), SG_OK, "%s", err.message);
    }
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(value[i], 21);
    for (size_t i = 0; i < 8; i++)
        cr_assert_eq(other_value[i], -7);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 10 * (N + 8) * sizeof(float));
    cr_assert_eq(info.pulled_bytes, 10 * (N + 8) * sizeof(float));
    cr_assert(info.sync);
    cr_assert_eq(info.n_ps, 1);
    sg_client_close(client);
    cr_assert_eq(fake_ps_count(ps, &ps->n_leaves), 1);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 80);
    cr_assert_eq(fake_ps_count(ps, &ps->n_tickets), 2, "the tickets but the first two come with the pushes");
}

Test(client, a_ticket_that_does_not_come_with_the_push_is_asked_for)
{
    fake_ps_set(ps, no_rides, true);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {.examples = 1};
    for (begin(client, &step); step.number < 5; begin(client, &step))
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 5);
    cr_assert_geq(fake_ps_count(ps, &ps->n_tickets), 6);
}

Test(client, async_steps_bring_the_newest_values)
{
    fake_ps_set(ps, async, true);
    fill(value, N, 0), fill(gradient, N, 1);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {0};
    for (begin(client, &step); step.number < 5; begin(client, &step)) {
        step.examples = 1;
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
        cr_assert_eq(value[0], (float)step.number + 1);
    }
    sg_client_close(client);
}

Test(client, a_step_can_be_sent_in_pieces)
{
    fill(value, N, 0), fill(gradient, N, 1), fill(other_value, 8, 0), fill(other_gradient, 8, 1);
    sg_client *client = open_declared(variables, 2);
    sg_step step = {0};
    for (begin(client, &step); step.number < 3; begin(client, &step)) {
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
        cr_assert_eq(value[7], (float)step.number + 1);
        cr_assert_eq(other_value[7], (float)step.number + 1);
    }
    await_reported(15);
    sg_client_close(client);
}

/* Both kinds of answer: with the values, and without. */
static void push_pull_steps(bool bare)
{
    fake_ps_set(ps, bare_answers, bare);
    fill(value, N, 0), fill(gradient, N, 1), fill(other_value, 8, 0), fill(other_gradient, 8, 1);
    sg_client *client = open_declared(variables, 2);
    sg_step step = {0};
    for (begin(client, &step); step.number < 3; begin(client, &step)) {
        step.examples = 5;
        sg_op *ops[2];
        for (uint32_t i = 2; i-- > 0;)
            cr_assert_eq(sg_client_push_pull(client, &step, &i, 1, &ops[i], NULL), SG_OK);
        for (uint32_t i = 0; i < 2; i++) {
            cr_assert_eq(sg_op_wait(ops[i], UINT64_MAX, NULL), SG_OK);
            cr_assert_eq(i == 0 ? value[7] : other_value[7], (float)step.number + 1);
            sg_op_destroy(ops[i]);
        }
    }
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 3 * (N + 8) * sizeof(float));
    cr_assert_eq(info.pulled_bytes, 3 * (N + 8) * sizeof(float));
    cr_assert_eq(fake_ps_count(ps, &ps->n_pulls), bare ? 6 : 0);
    cr_assert_eq(fake_ps_count(ps, &ps->n_push_pulls), 6);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 15);
}

Test(client, the_last_step_that_was_sent_in_pieces_is_reported_by_the_goodbye)
{
    fill(gradient, N, 1), fill(other_gradient, 8, 1);
    sg_client *client = open_declared(variables, 2);
    sg_step step = {.examples = 7};
    begin(client, &step);
    for (uint32_t i = 0; i < 2; i++) {
        sg_op *op;
        cr_assert_eq(sg_client_push_pull(client, &step, &i, 1, &op, NULL), SG_OK);
        cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
        sg_op_destroy(op);
    }
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 7);
}

Test(client, a_push_pull_brings_the_values_that_it_makes)
{
    push_pull_steps(false);
}

Test(client, a_push_pull_whose_values_are_not_there_yet_pulls_them)
{
    push_pull_steps(true);
}

/* Slices have 16 elements. */
Test(client, parts_of_a_variable_travel_on_their_own)
{
    fill(value, N, 0), fill(other_value, 8, 0), fill(other_gradient, 8, 1);
    for (int i = 0; i < N; i++)
        gradient[i] = (float)i;
    sg_client *client = open_to(ps->address);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.slice_elems, 0);
    cr_assert_eq(sg_client_declare(client, variables, 2, NULL), SG_OK);
    sg_client_get_info(client, &info);
    cr_assert_eq(info.slice_elems, 16);
    const sg_range parts[][2] = {{{0, 32, 8}, {1, 0, 8}}, {{0, 0, 16}, {0, 16, 16}}};
    sg_step step = {0};
    for (begin(client, &step); step.number < 3; begin(client, &step)) {
        step.examples = 5;
        for (size_t i = 0; i < 2; i++) {
            sg_op *op;
            sg_error err;
            cr_assert_eq(sg_client_push_pull_ranges(client, &step, parts[i], 2, &op, &err), SG_OK, "%s", err.message);
            cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
            sg_op_destroy(op);
            const float before = (float)step.number, after = before + 1;
            cr_assert_eq(value[33], 33 * after);
            cr_assert_eq(value[31], 31 * (i == 0 ? before : after), "what was not sent has changed");
            cr_assert_eq(other_value[7], after);
        }
    }
    sg_client_get_info(client, &info);
    cr_assert_eq(info.pushed_bytes, 3 * (N + 8) * sizeof(float));
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 15);
}

static void expect_refused(sg_client *client, const sg_step *step, const sg_range *ranges, size_t n, const char *says)
{
    sg_op *op = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_client_push_pull_ranges(client, step, ranges, n, &op, &err), SG_INVALID, "%s", says);
    cr_assert_not_null(strstr(err.message, says), "'%s' lacks '%s'", err.message, says);
    cr_assert_null(op);
}

Test(client, parts_with_other_bounds_than_slices_are_refused_and_harm_nothing)
{
    fill(value, N, 0), fill(gradient, N, 1);
    sg_client *client = open_to(ps->address);
    sg_step step = {.examples = 1};
    expect_refused(client, &step, &(sg_range){0, 0, N}, 1, "declare");
    cr_assert_eq(sg_client_declare(client, variables, 1, NULL), SG_OK);
    begin(client, &step);
    expect_refused(client, &step, &(sg_range){1, 0, 8}, 1, "variable 1 does not exist");
    const sg_range bad[] = {{0, 1, 15},  {0, 0, 15},          {0, 0, 0},          {0, N, 0},
                            {0, 16, 25}, {0, 0, N + 8},       {0, 48, 16},        {0, UINT64_MAX - 15, 16},
                            {0, 32, 7},  {0, 16, UINT64_MAX}, {0, 0, UINT64_MAX}, {0, UINT64_MAX, 1}};
    for (size_t i = 0; i < SG_ARRAY_LEN(bad); i++)
        expect_refused(client, &step, &bad[i], 1, "ends at a multiple of 16");
    expect_refused(client, &step, (sg_range[]){{0, 0, 32}, {0, 16, 16}}, 2, "twice");
    expect_refused(client, &step, (sg_range[]){{0, 0, N}, {0, 0, N}}, 2, "more than all");
    step.group = 1;
    expect_refused(client, &step, &(sg_range){0, 0, N}, 1, "group 1");
    step.group = 0;
    sg_op *op, *rest;
    cr_assert_eq(sg_client_push_pull_ranges(client, &step, &(sg_range){0, 16, 16}, 1, &op, NULL), SG_OK);
    expect_refused(client, &step, &(sg_range){0, 0, N}, 1, "was pushed at step 0 before");
    cr_assert_eq(sg_client_push_pull_ranges(client, &step, (sg_range[]){{0, 32, 8}, {0, 0, 16}}, 2, &rest, NULL),
                 SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(rest, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    sg_op_destroy(rest);
    begin(client, &step);
    cr_assert_eq(step.number, 1);
    for (int i = 0; i < N; i++)
        cr_assert_eq(value[i], 1);
    sg_client_close(client);
}

Test(client, a_step_begins_while_its_values_are_on_their_way_if_the_caller_wants_it)
{
    fake_ps_set(ps, bare_answers, true);
    fake_ps_set(ps, hold_pulls, true);
    fill(value, N, 0), fill(gradient, N, 1);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {.examples = 3, .values_later = true};
    const uint32_t first = 0;
    sg_op *op, *next;
    begin(client, &step);
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &op, NULL), SG_OK);
    begin(client, &step);
    cr_assert_eq(step.number, 1);
    cr_assert(step.values_later);
    cr_assert_eq(sg_op_wait(op, 0, NULL), SG_TIMEOUT, "the values were waited for");
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &next, NULL), SG_INVALID, "pushed without its values");
    fake_ps_await_held(ps, 1);
    fake_ps_set(ps, hold_pulls, false);
    fake_ps_set(ps, bare_answers, false);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK); /* the ps is asked again */
    sg_op_destroy(op);
    cr_assert_eq(value[0], 1);
    cr_assert_eq(sg_client_push_pull(client, &step, &first, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    begin(client, &step);
    sg_client_close(client);
    cr_assert_eq(fake_ps_get(ps, &ps->reported_examples), 6);
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
        const sg_range parts[2][2] = {{{0, 16, N - 16}, {1, 0, 8}}, {{0, 0, 16}, {0}}};
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
Test(client, steps_that_follow_each_other_allocate_nothing)
{
    enum { N_STEPS = 300, N_ROUNDS = 20 };
    fill(value, N, 0), fill(gradient, N, 1), fill(other_value, 8, 0), fill(other_gradient, 8, 1);
    sg_client *client = open_declared(variables, 2);
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

Test(client, misuse_is_an_error_and_harms_nothing)
{
    sg_client *client = open_to(ps->address);
    sg_step step = {0};
    const uint32_t first = 0, unknown = 9;
    sg_op *op = NULL;
    cr_assert_eq(sg_client_begin_step(client, &step, NULL), SG_INVALID);
    cr_assert_eq(sg_client_declare(client, variables, 0, NULL), SG_INVALID);
    cr_assert_eq(sg_client_declare(client, variables, 1, NULL), SG_OK);
    cr_assert_eq(sg_client_declare(client, variables, 1, NULL), SG_INVALID);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_INVALID);
    begin(client, &step);
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
    begin(client, &step);
    cr_assert_eq(step.number, 1);
    sg_client_close(client);
}

Test(client, a_wait_that_times_out_does_not_give_the_buffer_back)
{
    fill(value, N, 4), fill(gradient, N, 0);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {0};
    begin(client, &step);
    const uint32_t first = 0;
    sg_op *push, *pull;
    fake_ps_set(ps, hold_pulls, true);
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &push, NULL), SG_OK);
    cr_assert_eq(sg_client_pull(client, &step, &first, 1, &pull, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(push, UINT64_MAX, NULL), SG_OK);
    sg_error err;
    cr_assert_eq(sg_op_wait(pull, 0, &err), SG_TIMEOUT);
    cr_assert_eq(sg_op_wait(pull, 50, &err), SG_TIMEOUT);
    cr_assert_not_null(strstr(err.message, "50 ms"));
    fake_ps_await_held(ps, 1);
    /* Whatever is still to come for this buffer comes before the op is complete. */
    fake_ps_set(ps, hold_pulls, false);
    sg_op_cancel(pull);
    cr_assert_eq(sg_op_wait(pull, UINT64_MAX, &err), SG_CANCELLED);
    fill(value, N, 99);
    sg_op_destroy(pull);
    sg_op_destroy(push);
    sg_client_close(client);
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(value[i], 99, "element %zu was written after the op was complete", i);
}

Test(client, a_pull_of_the_wrong_size_is_an_error_and_leaves_the_values_alone)
{
    fill(value, N, 4), fill(gradient, N, 1);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {0};
    begin(client, &step);
    fake_ps_set(ps, short_pulls, true);
    step.examples = 1;
    sg_error err;
    cr_assert_eq(sg_client_end_step(client, &step, &err), SG_INTERNAL, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "bytes"));
    for (size_t i = 0; i < N; i++)
        cr_assert_eq(value[i], 4);
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

Test(client, gradients_that_are_not_finite_are_told_now_and_then_and_not_at_every_step)
{
    fill(value, N, 4), fill(gradient, N, 1), fill(other_value, 8, 4), fill(other_gradient, 8, 1);
    gradient[0] = NAN;
    told all = {0};
    sg_client *client = open_logged(ps->address, hear_non_finite, &all);
    cr_assert_eq(sg_client_declare(client, variables, 2, NULL), SG_OK);
    const uint64_t began_ms = sg_clock_ms();
    sg_step step = {.examples = 7};
    for (int i = 0; i < 20; i++) {
        begin(client, &step);
        cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    }
    int most = 1;
    for (uint64_t due_ms = 1000; began_ms + due_ms <= sg_clock_ms(); due_ms = 2 * due_ms + 1000)
        most++;
    sg_client_close(client);
    cr_assert(all.n_lines >= 1 && all.n_lines <= most, "%d lines", all.n_lines);
    cr_assert_eq(strncmp(all.fields, "steps=1 group=0 step=0 variable=", 32), 0, "%s", all.fields);
}

Test(client, a_gradient_that_is_not_finite_is_left_out_as_a_whole)
{
    fill(value, N, 4), fill(gradient, N, 1), fill(other_value, 8, 4), fill(other_gradient, 8, 1);
    other_gradient[3] = NAN;
    sg_client *client = open_declared(variables, 2);
    sg_step step = {.examples = 7};
    begin(client, &step);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    cr_assert_eq(fake_ps_get(ps, &ps->last_weight), 0);
    cr_assert_eq(value[0], 4);
    cr_assert_eq(other_value[0], 4);
    sg_client_info info;
    sg_client_get_info(client, &info);
    cr_assert_eq(info.non_finite, 4); /* slices */
    other_gradient[3] = 1;
    begin(client, &step);
    cr_assert_eq(sg_client_end_step(client, &step, NULL), SG_OK);
    cr_assert_eq(fake_ps_get(ps, &ps->last_weight), 7);
    cr_assert_eq(value[0], 5);
    sg_client_close(client);
}

typedef struct begin_job {
    sg_client *client;
    sg_step step;
    sg_status status;
} begin_job;

static void *begin_in_thread(void *user)
{
    begin_job *job = user;
    job->status = sg_client_begin_step(job->client, &job->step, NULL);
    return NULL;
}

Test(client, an_interrupt_ends_what_waits_and_what_comes_later)
{
    sg_client *client = open_declared(variables, 1);
    fake_ps_set(ps, hold_tickets, true);
    begin_job job = {.client = client};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, begin_in_thread, &job), 0);
    fake_ps_await_held(ps, 1);
    sg_client_interrupt(client);
    pthread_join(thread, NULL);
    cr_assert_eq(job.status, SG_CANCELLED);
    cr_assert_eq(sg_client_begin_step(client, &job.step, NULL), SG_CANCELLED);
    const uint64_t begun_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000);
    cr_assert_eq(fake_ps_count(ps, &ps->n_leaves), 1);
}

Test(client, a_ps_that_goes_away_is_lost_by_name_and_close_is_quick)
{
    fill(gradient, N, 1);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {.examples = 1};
    begin(client, &step);
    char address[64];
    memcpy(address, ps->address, sizeof address);
    fake_ps_destroy(ps);
    ps = NULL;
    sg_error err;
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_end_step(client, &step, &err), SG_PEER_LOST, "%s", err.message);
    cr_assert_not_null(strstr(err.message, address), "%s", err.message);
    cr_assert_lt(sg_clock_ms() - begun_ms, FAKE_PS_LEASE_MS + 2000);
    cr_assert_eq(sg_client_begin_step(client, &step, NULL), SG_PEER_LOST);
    const uint64_t close_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - close_ms, 2000);
}

Test(client, close_takes_at_most_two_seconds_where_nobody_hears_the_goodbye)
{
    sg_client *client = open_declared(variables, 1);
    fake_ps_destroy(ps);
    ps = NULL;
    const uint64_t begun_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000);
}

Test(client, close_with_a_push_that_is_never_acknowledged_takes_at_most_two_seconds)
{
    fill(gradient, N, 1);
    sg_client *client = open_declared(variables, 1);
    sg_step step = {.examples = 1};
    begin(client, &step);
    fake_ps_set(ps, refuse_push, SG_NOT_READY);
    const uint32_t first = 0;
    sg_op *op;
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, 100, NULL), SG_TIMEOUT);
    const uint64_t begun_ms = sg_clock_ms();
    sg_op_cancel(op);
    sg_op_destroy(op);
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000);
}

Test(client, the_lease_is_renewed_while_the_caller_computes)
{
    sg_client *client = open_declared(variables, 1);
    const struct timespec pause = {.tv_nsec = 10000000};
    const uint64_t begun_ms = sg_clock_ms();
    while (fake_ps_count(ps, &ps->n_heartbeats) < 4 && sg_clock_ms() < begun_ms + 10000)
        nanosleep(&pause, NULL);
    cr_assert_geq(fake_ps_count(ps, &ps->n_heartbeats), 4);
    sg_client_close(client);
}

static size_t count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

Test(client, a_hundred_clients_one_after_the_other_leave_nothing_behind, .timeout = 60)
{
    size_t threads = 0, files = 0;
    for (int i = 0; i < 100; i++) {
        sg_client_close(open_declared(variables, 1));
        if (i == 4) {
            threads = count_entries("/proc/self/task");
            files = count_entries("/proc/self/fd");
        }
    }
    /* gRPC's own threads come and go. */
    cr_assert_leq(count_entries("/proc/self/task"), threads + 8);
    cr_assert_leq(count_entries("/proc/self/fd"), files + 8);
}

Test(client, several_clients_live_side_by_side_in_one_process)
{
    fake_ps *second = fake_ps_create();
    fill(value, N, 0), fill(gradient, N, 1), fill(other_value, 8, 0), fill(other_gradient, 8, 2);
    sg_client *a = open_declared(variables, 1);
    sg_client *b = open_to(second->address);
    cr_assert_eq(sg_client_declare(b, variables + 1, 1, NULL), SG_OK);
    sg_step of_a = {.examples = 1}, of_b = {.examples = 1};
    for (int i = 0; i < 3; i++) {
        begin(a, &of_a);
        begin(b, &of_b);
        cr_assert_eq(sg_client_end_step(b, &of_b, NULL), SG_OK);
        cr_assert_eq(sg_client_end_step(a, &of_a, NULL), SG_OK);
    }
    cr_assert_eq(value[0], 3);
    cr_assert_eq(other_value[0], 6);
    sg_client_close(a);
    sg_client_close(b);
    fake_ps_destroy(second);
}

typedef struct group_job {
    sg_client *client;
    uint32_t group;
    sg_status status;
} group_job;

static void *train_group(void *user)
{
    group_job *job = user;
    sg_step step = {.group = job->group, .examples = 1};
    for (int i = 0; i < 50 && job->status == SG_OK; i++) {
        job->status = sg_client_begin_step(job->client, &step, NULL);
        if (job->status == SG_OK)
            job->status = sg_client_end_step(job->client, &step, NULL);
    }
    return NULL;
}

Test(client, two_threads_train_two_groups_through_one_client)
{
    fill(value, N, 0), fill(gradient, N, 1), fill(other_value, 8, 0), fill(other_gradient, 8, 2);
    sg_variable list[2] = {variables[0], variables[1]};
    list[1].group = 1;
    sg_client *client = open_declared(list, 2);
    group_job jobs[2] = {{.client = client}, {.client = client, .group = 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, train_group, &jobs[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(jobs[i].status, SG_OK);
    }
    cr_assert_eq(value[N - 1], 50);
    cr_assert_eq(other_value[7], 100);
    sg_client_close(client);
}

static void *publish_later(void *user)
{
    const struct timespec pause = {.tv_nsec = 200000000};
    nanosleep(&pause, NULL);
    SG_ASSERT(sg_address_publish(user, 0, ps->address, NULL) == SG_OK);
    return NULL;
}

Test(client, a_port_that_the_kernel_chose_is_found_in_the_run_directory_even_when_it_changes)
{
    char folder[] = "/tmp/sg-client-XXXXXX", set[64], path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(set, sizeof set, "run_dir=%s", folder);
    snprintf(path, sizeof path, "%s/cluster.yaml", folder);
    FILE *file = fopen(path, "w");
    fputs("job: job\nps: [\"127.0.0.1:0\"]\n", file);
    fclose(file);
    const sg_config_override override = {.key = "run_dir", .value = folder, .source = "test"};
    sg_config *config;
    cr_assert_eq(sg_config_load(path, &override, 1, &config, NULL), SG_OK);
    cr_assert_eq(sg_address_publish(config, 0, "127.0.0.1:1", NULL), SG_OK); /* of a ps that is no more */
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, publish_later, config), 0);
    const char *const list[] = {set, NULL};
    sg_client *client = NULL;
    sg_error err;
    cr_assert_eq(sg_client_open(&(sg_client_options){.config = path, .set = list}, &client, &err), SG_OK, "%s",
                 err.message);
    pthread_join(thread, NULL);
    sg_client_close(client);
    sg_address_withdraw(config, 0, ps->address);
    sg_config_destroy(config);
    unlink(path);
    snprintf(path, sizeof path, "%s/address", folder);
    rmdir(path);
    rmdir(folder);
}

Test(client, rows_of_all_ranks_are_the_whole_batch_without_overlap)
{
    for (uint32_t size = 1; size <= 7; size++)
        for (uint64_t batch = 0; batch <= 20; batch++) {
            uint64_t next = 0;
            for (uint32_t rank = 0; rank < size; rank++) {
                uint64_t first, last;
                sg_step_rows(&(sg_step){.rank = rank, .size = size}, batch, &first, &last);
                cr_assert_eq(first, next);
                cr_assert_geq(last, first);
                next = last;
            }
            cr_assert_eq(next, batch);
        }
}
