/* Initial values and the coordinator's orders; what a ps tells of itself. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "store_weight.h"

TestSuite(store_orders, .timeout = 30);

Test(store_orders, a_higher_attempt_drops_the_values_of_a_lower_one)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_admit(&f, 1, FIXTURE_INCARNATION(2));
    fixture_declare(&f, weight_small, 1, 1);
    sg_error err = {0};
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, weight_ones, 4, &err), SG_NOT_READY);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 1, 0, weight_ones, 4, &err), SG_INVALID);
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, weight_ones, 4, &err), SG_OK, "%s",
                 err.message);
    fixture_attempt(&f, 2, FIXTURE_INCARNATION(2));
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, weight_ones, 4, &err), SG_LATE);
    cr_assert_eq(fixture_seal(&f, 2, &err), SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "slice 0 of variable 'bias' has no initial values"), "%s", err.message);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, weight_threes, 4, &err), SG_OK);
    cr_assert_eq(fixture_seal(&f, 2, &err), SG_OK);
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, weight_threes, 4, &err), SG_LATE);
    fixture_commit(&f, 2);
    weight_expect(&f, 0, 3.0f);
    cr_assert_eq(fixture_initialize(&f, 1, FIXTURE_INCARNATION(2), 2, 0, weight_threes, 4, &err), SG_LATE);
    fixture_stop(&f);
}

Test(store_orders, initial_values_that_are_not_finite_or_too_short_are_refused_by_name)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, weight_small, 1, 1);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    const float bad[4] = {0, INFINITY, 0, 0};
    sg_error err = {0};
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, bad, 4, &err), SG_NON_FINITE);
    cr_assert_not_null(strstr(err.message, "'bias'"));
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, weight_ones, 3, &err), SG_INVALID);
    cr_assert_not_null(strstr(err.message, "got 12 bytes of data for 1 slices, want 16"), "%s", err.message);
    fixture_stop(&f);
}

Test(store_orders, an_order_is_applied_once_in_order_and_for_this_life_alone)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    Shardgrad__V1__Seal seal = SHARDGRAD__V1__SEAL__INIT;
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.header = &header;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
    order.seal = &seal;
    sg_error err;
    header = (Shardgrad__V1__OrderHeader){.base = header.base, .life = 78, .sequence = 2, .generation = 1};
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_FENCED);
    header.life = FIXTURE_LIFE;
    header.sequence = 3;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_EARLY);
    header.sequence = 1;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_OK, "order 1 was applied");
    header.sequence = 2;
    header.generation = 2;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_NOT_READY);
    header.generation = 1;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_INVALID);
    order.header = NULL;
    cr_assert_eq(sg_store_order(f.store, 0, &order, &err), SG_INVALID);
    fixture_stop(&f);
}

Test(store_orders, a_refused_order_is_refused_the_same_way_when_it_comes_again)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, weight_small, 1, 1);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    sg_error err;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_NOT_FOUND);
    cr_assert_eq(fixture_initialize(&f, 0, FIXTURE_INCARNATION(1), 1, 0, weight_ones, 4, &err), SG_OK);
    f.sequence--;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_NOT_FOUND, "the same order");
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_OK, "the next one");
    fixture_stop(&f);
}

/* Who fills gigabytes while a declaration waits for its answer lets leases run out meanwhile. */
Test(store_orders, a_declaration_takes_no_memory_for_slots_before_values_come)
{
    fixture f;
    const fixture_variable huge = {.name = "huge", .n_elems = UINT64_C(1) << 43};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_ADAM);
    fixture_init(&f, &options);
    f.slice_bytes = UINT64_C(1) << 45;
    fixture_declare(&f, &huge, 1, 1);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.slices, 1);
    cr_assert_eq(report.slot_bytes, UINT64_C(2) << 45);
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

Test(store_orders, a_ps_that_owns_nothing_goes_along)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_MOMENTUM);
    options.ps = 1;
    fixture_init(&f, &options);
    fixture_admit(&f, 0, FIXTURE_INCARNATION(1));
    fixture_declare(&f, weight_small, 1, 2);
    fixture_attempt(&f, 1, FIXTURE_INCARNATION(1));
    sg_error err;
    cr_assert_eq(fixture_seal(&f, 1, &err), SG_OK);
    fixture_commit(&f, 1);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 0, 1000, &answer);
    cr_assert_eq(answer.status, SG_INVALID);
    cr_assert_not_null(strstr(answer.message, "slice 0 belongs to ps 0; this is ps 1"), "%s", answer.message);
    fixture_stop(&f);
}

Test(store_orders, a_report_counts_and_names_who_is_waited_for)
{
    fixture f;
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_ADAM);
    fixture_init(&f, &options);
    fixture_start(&f, weight_variables, 3, 2, 0.0f);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 16);
    fixture_answer answer;
    fixture_pull(&f, 0, &weight_first, 1, 1, 60000, &answer);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.slices, 5);
    cr_assert_eq(report.value_bytes, 48 * 4);
    cr_assert_eq(report.slot_bytes, 2 * 44 * 4, "a frozen variable has none");
    cr_assert_eq(report.pushes, 1);
    cr_assert_eq(report.pulls, 0);
    cr_assert_eq(report.parked, 1);
    cr_assert_eq(report.waiting_for.len, 1);
    cr_assert_eq(report.waiting_for.data[0], 0x2);
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}

static void count_lines(void *user, sg_log_level level, const char *event, const char *fields)
{
    if (level == SG_LOG_WARN && strcmp(event, "waiting") == 0 && strstr(fields, "for=\"worker 1 (host1:4242)"))
        ++*(int *)user;
}

/* Of a sync job that counts what it says of worker 1. */
static void start_counting(fixture *f, sg_log *log, int *n_lines, uint32_t n_workers)
{
    *log = (sg_log){.fn = count_lines, .user = n_lines, .min_level = SG_LOG_INFO};
    sg_store_options options = fixture_options(SG_MODE_SYNC, SG_RULE_SGD);
    options.log = log;
    fixture_init(f, &options);
    fixture_start(f, weight_small, 1, n_workers, 0.0f);
}

/* Ticks for so many seconds. */
static void pass(fixture *f, int seconds)
{
    for (int second = 0; second < seconds; second++) {
        sg_store_tick(f->store, f->now_ms);
        f->now_ms += 1000;
    }
}

Test(store_orders, who_is_waited_for_long_is_logged_at_growing_intervals)
{
    fixture f;
    sg_log log;
    int n_lines = 0;
    start_counting(&f, &log, &n_lines, 2);
    fixture_push_ok(&f, 0, 0, 0x3, weight_ones, 4);
    pass(&f, 45);
    cr_assert_eq(n_lines, 3, "after 10, 20 and 40 s; got %d lines", n_lines);
    fixture_stop(&f);
}

/* At the end of a job the first that leaves is excused from a step that nobody will push. */
Test(store_orders, nobody_is_waited_for_in_a_step_that_others_are_excused_from_and_nobody_pushed_to)
{
    fixture f;
    sg_log log;
    int n_lines = 0;
    start_counting(&f, &log, &n_lines, 3);
    const uint64_t step = 0;
    fixture_excuse(&f, 0, FIXTURE_INCARNATION(1), &step, 1, 0x7);
    pass(&f, 25);
    cr_assert_eq(n_lines, 0, "got %d lines", n_lines);
    Shardgrad__V1__PsReport report;
    sg_store_report(f.store, &report);
    cr_assert_eq(report.waiting_for.len, 0);
    sg_store_report_deinit(&report);
    fixture_push_ok(&f, 2, 0, 0x7, weight_ones, 4); /* now it is */
    pass(&f, 15);
    cr_assert_eq(n_lines, 1, "got %d lines", n_lines);
    sg_store_report(f.store, &report);
    cr_assert_eq(report.waiting_for.data[0], 0x2);
    sg_store_report_deinit(&report);
    fixture_stop(&f);
}
