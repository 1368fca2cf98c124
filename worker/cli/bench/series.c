/* worker/cli/bench/series.c - see series.h. */
#include "worker/cli/bench/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

void sg_bench_series_add(sg_bench_series *series, double value)
{
    series->values = sg_xrealloc(series->values, series->n + 1, sizeof(*series->values));
    series->values[series->n++] = value;
}

void sg_bench_series_deinit(sg_bench_series *series)
{
    free(series->values);
    *series = (sg_bench_series){0};
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double sg_bench_series_quantile(const sg_bench_series *series, double q)
{
    if (series->n == 0)
        return NAN;
    double *sorted = sg_xcalloc(series->n, sizeof(*sorted));
    memcpy(sorted, series->values, series->n * sizeof(*sorted));
    qsort(sorted, series->n, sizeof(*sorted), compare);
    double at = q * (double)(series->n - 1);
    size_t below = (size_t)at;
    size_t above = below + 1 < series->n ? below + 1 : below;
    double value = sorted[below] + (at - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return value;
}

double sg_bench_series_median(const sg_bench_series *series)
{
    return sg_bench_series_quantile(series, 0.5);
}

double sg_bench_series_spread(const sg_bench_series *series)
{
    double median = sg_bench_series_median(series);
    if (median == 0)
        return 0;
    return (sg_bench_series_quantile(series, 0.75) - sg_bench_series_quantile(series, 0.25)) / median;
}
