/* worker/cli/bench/settings.h - what `shardgrad bench` is asked for: words become numbers within bounds. Pure. */
#ifndef SG_WORKER_CLI_BENCH_SETTINGS_H
#define SG_WORKER_CLI_BENCH_SETTINGS_H

#include "common/config.h"
#include "worker/cli/bench/results.h"

/* The options as the user wrote them; NULL: not given. */
typedef struct sg_bench_words {
    const char *bytes, *variables, *variable_bytes, *repetitions, *only;
    bool quick;
} sg_bench_words;

/* Errors: USAGE, naming the option, what was found and what was wanted. */
SG_MUST_USE sg_status sg_bench_settings_init(sg_bench_settings *settings, const sg_bench_words *words, sg_error *err);

/* Whether the values can be foretold under this configuration: sync, sgd, a constant rate, no decay. Errors: CONFIG,
 * naming the key. */
SG_MUST_USE sg_status sg_bench_settings_check_config(const sg_config *config, sg_error *err);

/* Leaves the stage scale out (and *left_out is true) where there are not 1 ps and 1 worker, to which it is compared.
 * Errors: USAGE, if it was the only stage. */
SG_MUST_USE sg_status sg_bench_settings_fit_stages(sg_bench_settings *settings, const sg_config *config, bool *left_out,
                                                   sg_error *err);
/* Whether a chosen stage is compared with the yardstick. */
bool sg_bench_settings_wants_yardstick(const sg_bench_settings *settings);

/* The most workers that run at once in any stage; the configuration says how many there are in most. */
uint64_t sg_bench_settings_max_workers(const sg_bench_settings *settings, const sg_config *config);
/* Whether what the run needs is there: available_bytes of memory. Errors: EXHAUSTED, with both figures. */
SG_MUST_USE sg_status sg_bench_settings_check_memory(const sg_bench_settings *settings, const sg_config *config,
                                                     bool has_yardstick, uint64_t available_bytes, sg_error *err);

/* The word for a stage, as --only takes it. */
const char *sg_bench_settings_stage_name(sg_bench_stage stage);

#define SG_BENCH_BYTES_TEXT 32
/* "128 MiB", "4 KiB", "12 B", "1.5 GiB". Returns text. */
const char *sg_bench_settings_bytes_text(double bytes, char text[SG_BENCH_BYTES_TEXT]);

#endif
