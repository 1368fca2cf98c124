/* worker/cli/bench/floors.h - the ratios that a run comes to, beside what they must be. Pure. */
#ifndef SG_WORKER_CLI_BENCH_FLOORS_H
#define SG_WORKER_CLI_BENCH_FLOORS_H

#include "common/status.h"
#include "worker/cli/bench/results.h"

typedef struct sg_bench_floor {
    char name[64];
    double found;
    double floor, aim; /* aim NAN: there is none beside the floor */
    double spread;     /* the largest of the times it is made of; NAN where it is made of none */
    bool at_most;      /* found must be at most floor, not at least */
} sg_bench_floor;

#define SG_BENCH_FLOORS_MAX 24

/* Those of the measures that were taken; returns their number. With --quick those are left out that say nothing of a
 * small model: the passes, which stay in caches; the memory of a ps, which is mostly the program; many variables. */
size_t sg_bench_floors_list(const sg_bench_settings *settings, const sg_bench_results *results,
                            sg_bench_floor floors[SG_BENCH_FLOORS_MAX]);
bool sg_bench_floors_is_met(const sg_bench_floor *floor);
/* Whether the machine was too restless for a verdict to say much: a spread above 10 %. Counts with the verdict alone.
 */
bool sg_bench_floors_is_noisy(const sg_bench_floor *floor);
/* Whether the floors were set for such a run: 1 ps, 1 worker, 128 MiB, not --quick. Others have ratios, no verdict. */
bool sg_bench_floors_apply(const sg_bench_results *results, const sg_bench_settings *settings);
/* How many floors the chosen stages have when everything can be measured. */
size_t sg_bench_floors_expected(const sg_bench_settings *settings);
/* Whether a run so set can be held against all of them, before it begins. Errors: USAGE (the floors are not for such a
 * run, or a stage is left out that another is compared with), NOT_FOUND (there is no yardstick). */
SG_MUST_USE sg_status sg_bench_floors_check(const sg_bench_settings *settings, uint64_t n_ps, uint64_t n_workers,
                                            bool has_yardstick, sg_error *err);

/* The median of bytes / seconds against the yardstick's: the median over repetitions of the ratio of each pair. NAN
 * where there are no pairs. Series of different lengths pair up as far as the shorter one goes. */
double sg_bench_floors_paired(double bytes, const sg_bench_series *seconds, double other_bytes,
                              const sg_bench_series *other_seconds);

#endif
