/* worker/cli/bench/report.h - what a run found, as a table for people and as JSON. */
#ifndef SG_WORKER_CLI_BENCH_REPORT_H
#define SG_WORKER_CLI_BENCH_REPORT_H

#include <stdio.h>

#include "worker/cli/bench/floors.h"

void sg_bench_report_print(const sg_bench_settings *settings, const sg_bench_results *results, FILE *out);

/* Everything as JSON, which is described in tests/bench/README.md; freed by free(). */
char *sg_bench_report_json(const sg_bench_settings *settings, const sg_bench_results *results);

#endif
