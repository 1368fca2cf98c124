/* A push that brings values back: with them where they can be had at once, otherwise a bare acknowledgement. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "store_weight.h"

TestSuite(store_push_pull, .timeout = 30);

static void start(fixture *f, sg_mode mode, uint32_t n_workers)
{
    weight_start(f, mode, weight_variables, 2, n_workers, 0.0f);
}

static fixture_push whole_push(uint32_t worker, uint64_t step, uint64_t members, const float *values)
{
    fixture_push push = fixture_a_push(worker, step, members, values, 40);
    push.slices = weight_slices;
    push.n_slices = 3;
    return push;
}

static void expect_values(fixture_answer *answer, uint64_t version, float want)
{
    cr_assert_eq(answer->status, SG_OK, "%s", answer->message);
    cr_assert_eq(answer->n, 3);
    cr_assert_eq(answer->n_values, 40);
    for (size_t i = 0; i < answer->n; i++)
        cr_assert_eq(answer->numbers[i], version);
    for (size_t i = 0; i < answer->n_values; i++)
        cr_assert_eq(answer->values[i], want, "element %zu is %g, want %g", i, answer->values[i], want);
    fixture_answer_deinit(answer);
}

static void expect_bare(const fixture_answer *answer)
{
    cr_assert_eq(answer->status, SG_OK, "%s", answer->message);
    cr_assert_eq(answer->n, 0);
}

static void expect_counts(fixture *f, uint64_t pushes, uint64_t pulls)
{
    Shardgrad__V1__PsReport report;
    sg_store_report(f->store, &report);
    cr_assert_eq(report.pushes, pushes);
    cr_assert_eq(report.pulls, pulls);
    cr_assert_eq(report.parked, 0);
    sg_store_report_deinit(&report);
}

Test(store_push_pull, the_contribution_that_closes_the_rounds_brings_their_versions_and_the_others_do_not)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_SYNC, 2);
    fixture_push first = whole_push(0, 0, 0x3, weight_ones), last = whole_push(1, 0, 0x3, weight_twos);
    fixture_push_pull(&f, &first, &answer);
    expect_bare(&answer);
    fixture_push_pull(&f, &last, &answer);
    expect_values(&answer, 1, -1.5f);
    expect_counts(&f, 2, 1);
    fixture_stop(&f);
}

Test(store_push_pull, a_repeat_brings_the_versions_while_they_are_there)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_SYNC, 1);
    fixture_push push = whole_push(0, 0, 0x1, weight_ones), next = whole_push(0, 1, 0x1, weight_ones);
    for (int i = 0; i < 3; i++) {
        fixture_push_pull(&f, &push, &answer);
        expect_values(&answer, 1, -1.0f);
    }
    fixture_push_pull(&f, &next, &answer);
    expect_values(&answer, 2, -2.0f);
    fixture_push_pull(&f, &push, &answer); /* version 1 waits for a proof that nobody needs it */
    expect_values(&answer, 1, -1.0f);
    next.step = next.iteration = 2;
    fixture_push_pull(&f, &next, &answer);
    expect_values(&answer, 3, -3.0f);
    fixture_push_pull(&f, &push, &answer); /* it is gone, and no other version is an answer */
    expect_bare(&answer);
    fixture_stop(&f);
}

Test(store_push_pull, one_version_that_is_missing_leaves_all_of_them_for_a_pull)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_SYNC, 2);
    static const uint32_t first_two[] = {0, 1};
    fixture_push some = fixture_a_push(0, 0, 0x3, weight_ones, 32), all = whole_push(1, 0, 0x3, weight_ones);
    some.slices = first_two;
    some.n_slices = 2;
    fixture_push_pull(&f, &some, &answer);
    expect_bare(&answer);
    fixture_push_pull(&f, &all, &answer); /* closes two rounds of three */
    expect_bare(&answer);
    static const uint32_t third = 2;
    some = fixture_a_push(0, 0, 0x3, weight_ones, 8);
    some.slices = &third;
    fixture_push_pull(&f, &some, &answer);
    cr_assert_eq(answer.n, 1);
    fixture_answer_deinit(&answer);
    fixture_push_pull(&f, &all, &answer);
    expect_values(&answer, 1, -1.0f);
    fixture_stop(&f);
}

Test(store_push_pull, async_it_brings_the_newest)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_ASYNC, 2);
    fixture_push push = whole_push(0, 0, 0x1, weight_ones), other = whole_push(1, 1, 0x2, weight_twos);
    fixture_push_pull(&f, &push, &answer);
    expect_values(&answer, 1, -1.0f);
    fixture_push_pull(&f, &other, &answer);
    expect_values(&answer, 2, -3.0f);
    fixture_push_pull(&f, &push, &answer); /* a repeat */
    expect_values(&answer, 2, -3.0f);
    fixture_stop(&f);
}

/* Contributions of this staleness, of all that were counted. */
static void expect_staleness(const fixture *f, uint64_t staleness, uint64_t n, uint64_t n_all)
{
    Shardgrad__V1__PsReport report;
    sg_store_report(f->store, &report);
    cr_assert_eq(report.n_staleness, 33);
    uint64_t sum = 0;
    for (size_t i = 0; i < report.n_staleness; i++)
        sum += report.staleness[i];
    cr_assert_eq(report.staleness[staleness], n, "%lu of staleness %lu", (unsigned long)report.staleness[staleness],
                 (unsigned long)staleness);
    cr_assert_eq(sum, n_all);
    sg_store_report_deinit(&report);
}

Test(store_push_pull, async_contributions_are_counted_by_the_versions_made_since_their_sender_got_one)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_ASYNC, 2);
    fixture_pull(&f, 1, weight_slices, 3, 0, 1000, &answer);
    fixture_answer_deinit(&answer);
    for (uint64_t ticket = 0; ticket < 40; ticket++) { /* each brings the version that it makes */
        fixture_push push = whole_push(0, ticket, 0x1, weight_ones);
        fixture_push_pull(&f, &push, &answer);
        fixture_answer_deinit(&answer);
    }
    expect_staleness(&f, 0, 3 * 40, 3 * 40);
    fixture_push push = whole_push(1, 0, 0x2, weight_ones);
    fixture_push_pull(&f, &push, &answer); /* 40 versions have come since version 0 */
    fixture_answer_deinit(&answer);
    expect_staleness(&f, 32, 3, 3 * 41);
    fixture_push_pull(&f, &push, &answer); /* a repeat counts nowhere */
    fixture_answer_deinit(&answer);
    push = whole_push(0, 40, 0x1, weight_ones);
    fixture_push_pull(&f, &push, &answer);
    fixture_answer_deinit(&answer);
    expect_staleness(&f, 1, 3, 3 * 42);
    for (uint64_t ticket = 1; ticket <= 2; ticket++) { /* brings nothing: the second one is staler */
        push = whole_push(1, ticket, 0x2, weight_ones);
        cr_assert_eq(fixture_send(&f, &push, NULL, NULL, NULL), SG_OK);
    }
    expect_staleness(&f, 2, 3, 3 * 44);
    fixture_stop(&f);
}

Test(store_push_pull, sync_has_no_staleness)
{
    fixture f;
    start(&f, SG_MODE_SYNC, 1);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.n_staleness, 0);
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

Test(store_push_pull, it_is_refused_as_a_push_is_and_stores_nothing)
{
    fixture f;
    fixture_answer answer;
    start(&f, SG_MODE_SYNC, 1);
    static const uint32_t frozen[] = {0, 1, 3};
    fixture_push push = whole_push(0, 0, 0x1, weight_ones);
    push.slices = frozen;
    push.n_values = 36;
    fixture_push_pull(&f, &push, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "variable 'table' is frozen"), "%s", answer.message);
    push = whole_push(0, 1, 0x1, weight_ones);
    fixture_push_pull(&f, &push, &answer);
    cr_assert_eq(answer.status, SG_EARLY, "%s", answer.message);
    push = whole_push(0, 0, 0x1, weight_ones);
    push.incarnation++;
    fixture_push_pull(&f, &push, &answer);
    cr_assert_eq(answer.status, SG_FENCED, "%s", answer.message);
    cr_assert_eq(answer.n, 0);
    expect_counts(&f, 0, 0);
    fixture_stop(&f);
}

Test(store_push_pull, what_is_not_finite_is_named_and_left_out_of_the_values)
{
    fixture f;
    start(&f, SG_MODE_SYNC, 1);
    float values[40];
    memcpy(values, weight_ones, sizeof values);
    values[17] = NAN;
    fixture_push push = whole_push(0, 0, 0x1, values);
    for (int i = 0; i < 2; i++) { /* and a repeat */
        sg_store_pushed pushed = {.wants_versions = true};
        sg_error err = {0};
        cr_assert_eq(fixture_send_for(&f, &push, &pushed, &err), SG_OK, "%s", err.message);
        cr_assert_eq(pushed.n_non_finite, 1);
        cr_assert_eq(pushed.non_finite[0], 1);
        cr_assert_eq(pushed.n_versions, 3);
        const float want[3] = {-1, 0, -1};
        for (size_t k = 0; k < 3; k++) {
            cr_assert_eq(pushed.versions[k]->values[1], want[k]);
            sg_version_release(pushed.versions[k]);
        }
        sg_store_pushed_deinit(&pushed);
    }
    fixture_stop(&f);
}
