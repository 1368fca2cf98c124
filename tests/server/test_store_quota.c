/* How much may wait, and what becomes of the rest. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "server/store_internal.h"
#include "store_weight.h"

TestSuite(store_quota, .timeout = 60);

static fixture_answer *park(fixture *f, uint32_t worker, size_t n)
{
    fixture_answer *answers = calloc(n, sizeof *answers);
    for (size_t i = 0; i < n; i++)
        fixture_pull(f, worker, &weight_first, 1, 1, 60000, &answers[i]);
    return answers;
}

static void unpark(fixture_answer *answers, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fixture_answer_deinit(&answers[i]);
    free(answers);
}

static size_t count(const fixture_answer *answers, size_t n, sg_status status)
{
    size_t n_such = 0;
    for (size_t i = 0; i < n; i++)
        n_such += answers[i].answered && answers[i].status == status;
    return n_such;
}

Test(store_quota, a_worker_parks_as_many_pulls_as_it_may_and_is_told_to_ask_again_for_the_rest)
{
    fixture f;
    weight_start(&f, SG_MODE_SYNC, weight_small, 1, 2, 0.0f);
    const size_t n = SG_STORE_PARKED_CALLS_PER_WORKER;
    fixture_answer *answers = park(&f, 0, n), *more = park(&f, 0, 3), others;
    cr_assert_eq(count(answers, n, SG_OK), 0);
    cr_assert_eq(count(more, 3, SG_NOT_READY), 3);
    cr_assert_not_null(strstr(more[0].message, "worker 0 has 1024 pulls"), "%s", more[0].message);
    fixture_pull(&f, 1, &weight_first, 1, 1, 60000, &others);
    cr_assert_not(others.answered, "another worker has places of its own");
    sg_store_cancel_pull(f.store, &answers[0]);
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &more[0]);
    cr_assert_not(more[0].answered, "a place that was given back is free");
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    fixture_push_ok(&f, 1, 0, 0x3, weight_ones, 4);
    cr_assert_eq(count(answers, n, SG_OK), n - 1);
    cr_assert_eq(more[0].status, SG_OK);
    cr_assert_eq(others.status, SG_OK);
    unpark(answers, n);
    answers = park(&f, 0, n);
    cr_assert_eq(count(answers, n, SG_NOT_READY), 0, "every place was given back");
    fixture_stop(&f);
    unpark(answers, n);
    unpark(more, 3);
    fixture_answer_deinit(&others);
}

Test(store_quota, all_workers_together_park_no_more_than_they_may)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.max_workers = 32;
    enum { N_WORKERS = SG_STORE_PARKED_CALLS / SG_STORE_PARKED_CALLS_PER_WORKER };
    const size_t n = SG_STORE_PARKED_CALLS_PER_WORKER;
    fixture_answer *answers[N_WORKERS];
    fixture_init(&f, &options);
    fixture_start(&f, weight_small, 1, N_WORKERS + 1, 0.0f);
    for (uint32_t i = 0; i < N_WORKERS; i++) {
        answers[i] = park(&f, i, n);
        cr_assert_eq(count(answers[i], n, SG_NOT_READY), 0);
    }
    fixture_answer answer;
    fixture_pull(&f, N_WORKERS, &weight_first, 1, 1, 60000, &answer);
    cr_assert_eq(answer.status, SG_NOT_READY);
    cr_assert_not_null(strstr(answer.message, "of all workers"), "%s", answer.message);
    fixture_pull(&f, N_WORKERS, &weight_first, 1, 0, 60000, &answer);
    cr_assert_eq(answer.status, SG_OK, "what is there needs no place");
    fixture_stop(&f);
    for (uint32_t i = 0; i < N_WORKERS; i++)
        unpark(answers[i], n);
    fixture_answer_deinit(&answer);
}

/* One element a slice: a pull of all takes far more of the ps than of the wire. */
Test(store_quota, long_pulls_have_a_bound_in_bytes)
{
    enum { N = 60000, ASKED = 40 };
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    static const fixture_variable many[] = {{.name = "many", .n_elems = N * FIXTURE_SLICE_BYTES / sizeof(float)}};
    fixture_declare(&f, many, 1, 1);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    uint32_t *slices = calloc(N, sizeof *slices);
    for (uint32_t i = 0; i < N; i++)
        slices[i] = i;
    fixture_answer answers[ASKED] = {0};
    for (size_t i = 0; i < ASKED; i++)
        fixture_pull(&f, 0, slices, N, 0, 60000, &answers[i]);
    const size_t n_refused = count(answers, ASKED, SG_NOT_READY);
    cr_assert_gt(n_refused, ASKED - 5, "%zu were refused", n_refused);
    cr_assert_lt(n_refused, ASKED - 1, "who asks for each slice twice is let in");
    fixture_stop(&f);
    free(slices);
}

Test(store_quota, an_async_ticket_that_none_can_follow_is_refused)
{
    fixture f;
    weight_start(&f, SG_MODE_ASYNC, weight_small, 1, 1, 0.0f);
    fixture_push push = fixture_a_push(0, UINT64_MAX, 0x1, weight_ones, 4);
    fixture_expect_refused(&f, &push, SG_INVALID, "is none");
    fixture_expect_refused(&f, &push, SG_INVALID, "is none");
    push.step = UINT64_MAX - 1;
    sg_error err;
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    cr_assert_eq(fixture_send(&f, &push, NULL, NULL, &err), SG_OK);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 1, 1000, &answer);
    cr_assert_eq(answer.numbers[0], 1, "it counted once");
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

/* --- contributions --- */

static const float gradient[48] = {1, 2, 3};

static void send_slice(fixture *f, uint32_t worker, uint32_t slice, sg_store_pushed *pushed)
{
    fixture_push push = fixture_a_push(worker, 0, 0x3, gradient, 16);
    push.slices = &slice;
    push.n_slices = 1;
    sg_store_pushed_deinit(pushed); /* of the push before */
    sg_error err = {0};
    cr_assert_eq(fixture_send_for(f, &push, pushed, &err), SG_OK, "%s", err.message);
}

/* Three slices of 16 elements; room for two contributions. */
static void start_with_room_for_two(fixture *f)
{
    static const fixture_variable three[] = {{.name = "three", .n_elems = 48}};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.contribution_bytes = 128;
    fixture_init(f, &options);
    fixture_start(f, three, 1, 2, 0.0f);
}

Test(store_quota, beyond_contribution_bytes_only_the_slice_that_all_wait_for_is_let_in)
{
    fixture f;
    start_with_room_for_two(&f);
    sg_store_pushed pushed = {0};
    send_slice(&f, 0, 2, &pushed);
    cr_assert_eq(pushed.n_refused, 0);
    send_slice(&f, 1, 1, &pushed);
    cr_assert_eq(pushed.n_refused, 0);
    send_slice(&f, 0, 1, &pushed);
    cr_assert_eq(pushed.n_refused, 0, "what closes its round does not wait");
    send_slice(&f, 1, 0, &pushed);
    cr_assert_eq(pushed.n_refused, 0, "there is room again");
    sg_store_pushed_deinit(&pushed);
    fixture_stop(&f);
    start_with_room_for_two(&f);
    send_slice(&f, 0, 2, &pushed);
    send_slice(&f, 0, 1, &pushed);
    cr_assert_eq(pushed.n_refused, 0);
    send_slice(&f, 0, 0, &pushed);
    cr_assert_eq(pushed.n_refused, 0, "the focus is let in beyond the bound");
    send_slice(&f, 1, 0, &pushed);
    cr_assert_eq(pushed.n_refused, 0);
    send_slice(&f, 1, 2, &pushed);
    send_slice(&f, 1, 1, &pushed);
    sg_store_pushed_deinit(&pushed);
    fixture_answer answer;
    fixture_pull(&f, 0, (const uint32_t[]){0, 1, 2}, 3, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}

Test(store_quota, a_push_is_let_in_as_far_as_there_is_room_and_told_of_the_rest)
{
    fixture f;
    start_with_room_for_two(&f);
    sg_store_pushed pushed = {0};
    send_slice(&f, 0, 1, &pushed);
    send_slice(&f, 0, 2, &pushed);
    fixture_push push = fixture_a_push(1, 0, 0x7, gradient, 48);
    push.members = 0x3;
    push.slices = (const uint32_t[]){0, 1, 2};
    push.n_slices = 3;
    sg_error err = {0};
    sg_store_pushed_deinit(&pushed);
    cr_assert_eq(fixture_send_for(&f, &push, &pushed, &err), SG_OK, "%s", err.message);
    cr_assert_eq(pushed.n_refused, 0, "slices 1 and 2 close, slice 0 is the focus");
    sg_store_pushed_deinit(&pushed);
    fixture_stop(&f);

    start_with_room_for_two(&f);
    push.worker = 0;
    push.incarnation = FIXTURE_INCARNATION(1);
    pushed.wants_versions = true;
    cr_assert_eq(fixture_send_for(&f, &push, &pushed, &err), SG_OK, "%s", err.message);
    cr_assert_eq(pushed.n_refused, 1);
    cr_assert_eq(pushed.refused[0], 2);
    cr_assert_eq(pushed.focus, 0, "slice 0 lacks worker 1");
    cr_assert_eq(pushed.n_versions, 0);
    sg_store_pushed_deinit(&pushed);
    pushed.wants_versions = false;
    send_slice(&f, 1, 0, &pushed);
    send_slice(&f, 1, 1, &pushed);
    sg_store_pushed_deinit(&pushed);
    cr_assert_eq(fixture_send_for(&f, &push, &pushed, &err), SG_OK, "%s", err.message);
    cr_assert_eq(pushed.n_refused, 0, "a repeat counts what was refused, and nothing twice");
    send_slice(&f, 1, 2, &pushed);
    sg_store_pushed_deinit(&pushed);
    fixture_answer answer;
    fixture_pull(&f, 0, push.slices, 3, 1, 1000, &answer);
    cr_assert_eq(answer.status, SG_OK);
    cr_assert_eq(answer.values[2], -3.0f);
    cr_assert_eq(answer.values[34], -1.5f, "worker 1 pushed 3 there, worker 0 nothing");
    fixture_answer_deinit(&answer);
    fixture_stop(&f);
}
