/* worker/cli/bench/series.h - samples of one measure, and what they come to: median, quantiles, spread. */
#ifndef SG_WORKER_CLI_BENCH_SERIES_H
#define SG_WORKER_CLI_BENCH_SERIES_H

#include <stddef.h>

/* Zero-initialised it is empty. Freed by sg_bench_series_deinit. */
typedef struct sg_bench_series {
    double *values; /* [n], in the order in which they came */
    size_t n;
} sg_bench_series;

void sg_bench_series_add(sg_bench_series *series, double value);
void sg_bench_series_deinit(sg_bench_series *series);

/* The value below which a part q of 0 to 1 of the samples lies, interpolated between the two nearest; NAN of none. */
double sg_bench_series_quantile(const sg_bench_series *series, double q);
double sg_bench_series_median(const sg_bench_series *series);
/* The distance between the quartiles over the median: 0.1 says that half of the samples lie within 10 % of each other.
 * NAN of none, 0 where the median is 0. */
double sg_bench_series_spread(const sg_bench_series *series);

#endif
