#include "worker/cli/bench/series.h"

#include <criterion/criterion.h>
#include <math.h>

TestSuite(bench_series, .timeout = 20);

static sg_bench_series make(const double *values, size_t n)
{
    sg_bench_series series = {0};
    for (size_t i = 0; i < n; i++)
        sg_bench_series_add(&series, values[i]);
    return series;
}

Test(bench_series, the_median_is_the_middle_in_whatever_order)
{
    sg_bench_series odd = make((double[]){5, 1, 3}, 3), even = make((double[]){4, 1, 3, 2}, 4);
    cr_assert_eq(sg_bench_series_median(&odd), 3);
    cr_assert_eq(sg_bench_series_median(&even), 2.5);
    cr_assert_eq(odd.values[0], 5, "the order of the samples stays");
    sg_bench_series_deinit(&odd);
    sg_bench_series_deinit(&even);
}

Test(bench_series, quantiles_are_interpolated)
{
    sg_bench_series series = make((double[]){30, 10, 20, 40, 50}, 5);
    cr_assert_eq(sg_bench_series_quantile(&series, 0), 10);
    cr_assert_eq(sg_bench_series_quantile(&series, 1), 50);
    cr_assert_eq(sg_bench_series_quantile(&series, 0.25), 20);
    cr_assert_float_eq(sg_bench_series_quantile(&series, 0.9), 46, 1e-9);
    sg_bench_series_deinit(&series);
}

Test(bench_series, the_spread_is_the_distance_of_the_quartiles_over_the_median)
{
    sg_bench_series series = make((double[]){10, 20, 30, 40, 50}, 5), same = make((double[]){7, 7}, 2);
    cr_assert_float_eq(sg_bench_series_spread(&series), 20.0 / 30, 1e-12);
    cr_assert_eq(sg_bench_series_spread(&same), 0);
    sg_bench_series_deinit(&series);
    sg_bench_series_deinit(&same);
}

Test(bench_series, of_nothing_there_is_no_median_and_zeros_have_no_spread)
{
    sg_bench_series none = {0}, zeros = make((double[]){0, 0, 0}, 3), one = make((double[]){2}, 1);
    cr_assert(isnan(sg_bench_series_median(&none)));
    cr_assert(isnan(sg_bench_series_spread(&none)));
    cr_assert_eq(sg_bench_series_spread(&zeros), 0);
    cr_assert_eq(sg_bench_series_quantile(&one, 0.99), 2);
    sg_bench_series_deinit(&zeros);
    sg_bench_series_deinit(&one);
}
