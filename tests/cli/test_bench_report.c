#include "worker/cli/bench/report.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "worker/cli/bench/settings.h"

TestSuite(bench_report, .timeout = 20);

static sg_bench_settings settings;
static sg_bench_results results;

static void add(sg_bench_series *series, double a, double b)
{
    sg_bench_series_add(series, a);
    sg_bench_series_add(series, b);
}

/* A run in which shardgrad moves 1 GB/s each way, the yardstick 2 and raw TCP 4. */
static void make_run(void)
{
    cr_assert_eq(sg_bench_settings_init(&settings, &(sg_bench_words){0}, NULL), SG_OK);
    results = (sg_bench_results){
        .n_ps = 1, .n_workers = 1, .connections = 2, .rpc_threads = 3, .has_yardstick = true, .first_round_seconds = 6};
    results.machine.tcp_bytes = 1e9;
    add(&results.machine.tcp_seconds, 0.25, 0.25);
    for (size_t i = 0; i < SG_BENCH_OP_COUNT; i++) {
        sg_bench_op_result *op = &results.ops[i];
        double gigabytes = i == SG_BENCH_OP_BOTH ? 2 : 1;
        op->bytes = op->yardstick_bytes = gigabytes * 1e9;
        add(&op->seconds, gigabytes, gigabytes);
        add(&op->worker_cpu_seconds, 1, 1);
        add(&op->ps_cpu_seconds, 1, 1);
        add(&op->worker_faults, 3, 3);
        add(&op->ps_faults, 4, 4);
        add(&op->yardstick.seconds, gigabytes / 2, gigabytes / 2);
        add(&op->yardstick.client_cpu_seconds, 1, 1);
        add(&op->yardstick.server_cpu_seconds, 1, 1);
        add(&op->yardstick.client_faults, 1, 1);
        add(&op->yardstick.server_faults, 1, 1);
        op->combination = (sg_bench_combination){1 << 20, 1, 2, 4};
    }
    add(&results.step_worker_faults, 0, 40);
    add(&results.step_ps_faults, 50, 50);
}

static void free_run(void)
{
    sg_bench_results_deinit(&results);
}

static const sg_bench_floor *find(const sg_bench_floor *floors, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(floors[i].name, name) == 0)
            return &floors[i];
    return NULL;
}

Test(bench_report, ratios_are_goodput_over_goodput_and_have_a_verdict, .init = make_run, .fini = free_run)
{
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = sg_bench_floors_list(&settings, &results, floors);
    const sg_bench_floor *push = find(floors, n, "push / yardstick push");
    cr_assert(push != NULL && push->found == 0.5 && push->floor == 0.9 && !sg_bench_floors_is_met(push));
    const sg_bench_floor *tcp = find(floors, n, "push_pull both ways / raw TCP one way");
    cr_assert(tcp != NULL && tcp->found == 0.25 && !tcp->at_most);
    const sg_bench_floor *worker = find(floors, n, "minor page faults per step, worker");
    cr_assert(worker != NULL && worker->found == 20 && sg_bench_floors_is_met(worker), "at most 20");
    const sg_bench_floor *ps = find(floors, n, "minor page faults per step, ps");
    cr_assert(ps != NULL && ps->found == 50 && !sg_bench_floors_is_met(ps));
    const sg_bench_floor *first = find(floors, n, "first round / steady state");
    cr_assert(first != NULL && first->found == 3 && sg_bench_floors_is_met(first) && isnan(first->aim));
}

Test(bench_report, what_was_not_measured_is_not_judged, .init = make_run, .fini = free_run)
{
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = sg_bench_floors_list(&settings, &results, floors);
    cr_assert_null(find(floors, n, "whole 4 KiB step / bare echo of 4 KiB"));
    cr_assert_null(find(floors, n, "fused pass, momentum, 1 part / memory pass"));
    sg_bench_results none = {0};
    cr_assert_eq(sg_bench_floors_list(&settings, &none, floors), 0);
}

Test(bench_report, a_ratio_is_the_median_of_pairs_and_not_the_ratio_of_medians)
{
    sg_bench_series ours = {0}, other = {0};
    add(&ours, 1, 4);
    add(&other, 2, 4);
    sg_bench_series_add(&ours, 100);
    cr_assert_eq(sg_bench_floors_paired(1, &ours, 1, &other), 1.5, "of 2 and 1; the third has no partner");
    sg_bench_series_deinit(&ours);
    sg_bench_series_deinit(&other);
}

Test(bench_report, floors_apply_to_one_and_one_with_128_mib_alone, .init = make_run, .fini = free_run)
{
    cr_assert(sg_bench_floors_apply(&results, &settings));
    results.n_workers = 2;
    cr_assert_not(sg_bench_floors_apply(&results, &settings));
    results.n_workers = 1;
    settings.quick = true;
    cr_assert_not(sg_bench_floors_apply(&results, &settings));
    settings.quick = false;
    settings.shape.total_bytes /= 2;
    cr_assert_not(sg_bench_floors_apply(&results, &settings));
}

Test(bench_report, every_row_fits_when_all_was_measured, .init = make_run, .fini = free_run)
{
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    results.machine.pass_bytes = 3e9;
    add(&results.machine.pass_seconds, 1, 1);
    for (size_t i = 1; i <= SG_BENCH_PASS_MAX_PARTS; i *= 2) {
        results.machine.fused_bytes[i] = 3e9;
        add(&results.machine.fused_seconds[i], 1, 1);
    }
    add(&results.small.p50_seconds, 3, 3);
    add(&results.small.echo_p50_seconds, 2, 2);
    results.many.n_variables = 10000;
    add(&results.many.seconds, 0.035, 0.035);
    add(&results.many.copy_seconds, 0.01, 0.01);
    results.memory.parameter_bytes = 100;
    results.memory.peak_bytes = 250;
    for (size_t i = 0; i < SG_ARRAY_LEN(results.scale); i++) {
        results.scale[i].bytes = 2e9;
        add(&results.scale[i].seconds, 2.5, 2.5);
    }
    size_t n = sg_bench_floors_list(&settings, &results, floors);
    cr_assert_eq(n, 17);
    const sg_bench_floor *step = find(floors, n, "whole 4 KiB step / bare echo of 4 KiB");
    cr_assert(step != NULL && step->found == 1.5 && step->at_most);
    const sg_bench_floor *many = find(floors, n, "step of 10000 variables of 1 KiB / (3 memcpy + 5 ms)");
    cr_assert(many != NULL && fabs(many->found - 1) < 1e-12);
    for (size_t i = 0; i < n; i++)
        cr_assert(strlen(floors[i].name) < sizeof(floors[i].name) - 1, "%s", floors[i].name);
}

Test(bench_report, a_check_is_refused_where_a_floor_of_a_chosen_stage_could_not_be_measured, .init = make_run,
     .fini = free_run)
{
    cr_assert_eq(sg_bench_floors_check(&settings, 1, 1, true, NULL), SG_OK);
    cr_assert_eq(sg_bench_floors_expected(&settings), 17);
    sg_error err;
    cr_assert_eq(sg_bench_floors_check(&settings, 1, 2, true, &err), SG_USAGE);
    cr_assert_not_null(strstr(err.message, "128 MiB"), "%s", err.message);
    cr_assert_eq(sg_bench_floors_check(&settings, 1, 1, false, &err), SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "shardgrad-yardstick"), "%s", err.message);
    settings.only[SG_BENCH_STAGE_OPS] = settings.only[SG_BENCH_STAGE_SMALL] = false;
    cr_assert_eq(sg_bench_floors_check(&settings, 1, 1, false, &err), SG_USAGE);
    cr_assert_not_null(strstr(err.message, "scale"), "%s", err.message);
    settings.only[SG_BENCH_STAGE_SCALE] = false;
    cr_assert_eq(sg_bench_floors_check(&settings, 1, 1, false, NULL), SG_OK);
    cr_assert_eq(sg_bench_floors_expected(&settings), 5);
}

Test(bench_report, json_has_every_part_and_null_for_what_was_not_measured, .init = make_run, .fini = free_run)
{
    char *text = sg_bench_report_json(&settings, &results);
    json_t *root = json_loads(text, 0, NULL);
    cr_assert_not_null(root);
    cr_assert_eq(json_integer_value(json_object_get(root, "ps")), 1);
    cr_assert_eq(json_integer_value(json_object_get(root, "connections")), 2);
    cr_assert_eq(json_integer_value(json_object_get(root, "rpc_threads")), 3);
    cr_assert_eq(json_integer_value(json_object_get(root, "bytes")), 128 << 20);
    cr_assert_eq(json_integer_value(json_object_get(root, "variables")), 8);
    json_t *push = json_object_get(root, "push");
    cr_assert_float_eq(json_number_value(json_object_get(push, "bytes_per_second")), 1e9, 1);
    json_t *seconds = json_object_get(push, "seconds");
    cr_assert_eq(json_number_value(json_object_get(seconds, "median")), 1);
    cr_assert_eq(json_array_size(json_object_get(seconds, "values")), 2);
    cr_assert(json_is_object(json_object_get(push, "yardstick")));
    cr_assert(json_is_null(json_object_get(root, "small")));
    cr_assert(json_is_null(json_object_get(root, "many")));
    cr_assert(json_is_null(json_object_get(root, "memory")));
    cr_assert(json_is_null(json_object_get(json_object_get(root, "machine"), "memcpy")));
    cr_assert_eq(json_array_size(json_object_get(root, "scale")), 0);
    json_t *first = json_array_get(json_object_get(root, "ratios"), 0);
    cr_assert_str_eq(json_string_value(json_object_get(first, "name")), "push / yardstick push");
    cr_assert(json_is_false(json_object_get(first, "met")));
    cr_assert(json_is_false(json_object_get(first, "noisy")));
    cr_assert_eq(json_number_value(json_object_get(first, "spread")), 0);
    cr_assert_str_eq(json_string_value(json_object_get(first, "direction")), "at_least");
    json_decref(root);
    free(text);
}

static char *print(void)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    sg_bench_report_print(&settings, &results, out);
    fclose(out);
    return text;
}

Test(bench_report, the_table_says_met_or_missed_or_why_it_does_not, .init = make_run, .fini = free_run)
{
    char *text = print();
    cr_assert_not_null(strstr(text, "push / yardstick push"), "%s", text);
    cr_assert_not_null(strstr(text, "  missed\n"), "%s", text);
    cr_assert_not_null(strstr(text, "  met\n"), "%s", text);
    cr_assert_not_null(strstr(text, "with 2 connections to each ps, 3 rpc threads in it"), "%s", text);
    cr_assert_not_null(strstr(text, "1 MiB messages, 1 server thread, 2 connections, 4 calls in flight"), "%s", text);
    cr_assert_null(strstr(text, "nan"), "%s", text);
    free(text);
    settings.quick = true;
    results.has_yardstick = false;
    text = print();
    cr_assert_null(strstr(text, "  missed\n"), "%s", text);
    cr_assert_not_null(strstr(text, "no ratios and no verdict"), "%s", text);
    cr_assert_null(strstr(text, "push / yardstick push"), "%s", text);
    cr_assert_not_null(strstr(text, "without shardgrad-yardstick"), "%s", text);
    free(text);
}

Test(bench_report, a_yardstick_that_no_stage_wants_is_not_missed, .init = make_run, .fini = free_run)
{
    settings.only[SG_BENCH_STAGE_OPS] = settings.only[SG_BENCH_STAGE_SMALL] = false;
    results.has_yardstick = false;
    char *text = print();
    cr_assert_null(strstr(text, "without shardgrad-yardstick"), "%s", text);
    free(text);
}

Test(bench_report, a_row_of_which_a_measure_spreads_by_more_than_a_tenth_is_marked, .init = make_run, .fini = free_run)
{
    char *text = print();
    cr_assert_null(strstr(text, "noisy"), "%s", text);
    free(text);
    add(&results.machine.tcp_seconds, 0.1, 0.4);
    sg_bench_floor floors[SG_BENCH_FLOORS_MAX];
    size_t n = sg_bench_floors_list(&settings, &results, floors);
    cr_assert(sg_bench_floors_is_noisy(find(floors, n, "push / raw TCP one way")));
    cr_assert_not(sg_bench_floors_is_noisy(find(floors, n, "push / yardstick push")));
    cr_assert_not(sg_bench_floors_is_noisy(find(floors, n, "minor page faults per step, worker")), "is no time");
    text = print();
    cr_assert_not_null(strstr(text, "  missed (noisy)\n"), "%s", text);
    cr_assert_not_null(strstr(text, "  missed\n"), "%s", text);
    cr_assert_not_null(strstr(text, "noisy: a measure of the row has a spread above 10 %"), "%s", text);
    free(text);
    settings.quick = true;
    text = print();
    cr_assert_null(strstr(text, "noisy"), "without a verdict it says nothing: %s", text);
    free(text);
}

Test(bench_report, quick_leaves_out_what_says_nothing_of_a_small_model, .init = make_run, .fini = free_run)
{
    results.memory.parameter_bytes = results.memory.peak_bytes = 1 << 20;
    results.machine.copy_bytes = 1e6;
    add(&results.machine.copy_seconds, 1e-3, 1e-3);
    char *text = print();
    cr_assert_not_null(strstr(text, "memory of all ps"), "%s", text);
    cr_assert_not_null(strstr(text, "ps resident memory / parameters"), "%s", text);
    cr_assert_null(strstr(text, "in caches"), "%s", text);
    free(text);
    settings.quick = true;
    text = print();
    cr_assert_null(strstr(text, "memory of all ps"), "%s", text);
    cr_assert_null(strstr(text, "ps resident memory / parameters"), "%s", text);
    cr_assert_not_null(strstr(text, "in caches, not in memory"), "%s", text);
    free(text);
}
