/* worker/cli/bench/settings.c - see settings.h. */
#include "worker/cli/bench/settings.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "common/config_scalar.h"
#include "common/plan.h"

#define MIB              ((uint64_t)1 << 20)
#define MAX_BYTES        ((uint64_t)1 << 40)
#define MAX_REPETITIONS  10000u
#define VARIABLE_BYTES   (16 * MIB)
#define PROCESS_BYTES    (64 * MIB) /* of a process, whatever the model */
#define YARDSTICK_COPIES 8u         /* as the program itself asks for */
#define PASS_ARRAYS      (3u + SG_BENCH_PASS_MAX_PARTS)
#define MEMORY_WORKERS   2u /* of the stage memory, at least */
#define SCALE_WORKERS    4u

static const char *const stage_names[SG_BENCH_STAGE_COUNT] = {
    [SG_BENCH_STAGE_MACHINE] = "machine", [SG_BENCH_STAGE_OPS] = "ops",       [SG_BENCH_STAGE_SMALL] = "small",
    [SG_BENCH_STAGE_MANY] = "many",       [SG_BENCH_STAGE_MEMORY] = "memory", [SG_BENCH_STAGE_SCALE] = "scale",
};

const char *sg_bench_settings_stage_name(sg_bench_stage stage)
{
    return stage_names[stage];
}

const char *sg_bench_settings_bytes_text(double bytes, char text[SG_BENCH_BYTES_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    size_t unit = 0;
    for (; bytes >= 1024 && unit + 1 < SG_ARRAY_LEN(units); unit++)
        bytes /= 1024;
    snprintf(text, SG_BENCH_BYTES_TEXT, "%.4g %s", bytes, units[unit]);
    return text;
}

/* --- words ---------------------------------------------------------------------------------------------------- */

static sg_status read_bytes(const char *option, const char *word, uint64_t *bytes, sg_error *err)
{
    if (!sg_config_scalar_read_bytes(word, bytes) || *bytes == 0 || *bytes % sizeof(float) != 0 || *bytes > MAX_BYTES)
        return sg_error_set(
            err, SG_USAGE, "%s: found '%.40s', wanted a multiple of 4 from 4 to 1024GiB, such as 128MiB", option, word);
    return SG_OK;
}

static sg_status read_count(const char *option, const char *word, uint64_t max, uint64_t *count, sg_error *err)
{
    if (!sg_config_scalar_read_whole(word, count) || *count == 0 || *count > max)
        return sg_error_set(err, SG_USAGE, "%s: found '%.40s', wanted a whole number from 1 to %" PRIu64, option, word,
                            max);
    return SG_OK;
}

static sg_status read_shape(const sg_bench_words *words, sg_bench_shape *shape, sg_error *err)
{
    if ((words->variables == NULL) != (words->variable_bytes == NULL))
        return sg_error_set(err, SG_USAGE, "--variables and --variable-bytes go together: give both");
    if (words->variables != NULL && words->bytes != NULL)
        return sg_error_set(err, SG_USAGE, "--bytes and --variables both say how large the model is: give one");
    if (words->variables == NULL) {
        sg_status status = read_bytes("--bytes", words->bytes, &shape->total_bytes, err);
        shape->variable_bytes = shape->total_bytes < VARIABLE_BYTES ? shape->total_bytes : VARIABLE_BYTES;
        return status;
    }
    uint64_t n = 0;
    sg_status status = read_count("--variables", words->variables, SG_PLAN_MAX_VARIABLES, &n, err);
    if (status == SG_OK)
        status = read_bytes("--variable-bytes", words->variable_bytes, &shape->variable_bytes, err);
    if (status == SG_OK && shape->variable_bytes > MAX_BYTES / n)
        return sg_error_set(err, SG_USAGE, "--variables %s of %s bytes: wanted at most 1024GiB in all",
                            words->variables, words->variable_bytes);
    shape->total_bytes = shape->variable_bytes * n;
    return status;
}

static bool add_stage(const char *name, size_t n_name, bool only[SG_BENCH_STAGE_COUNT])
{
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++) {
        if (strlen(stage_names[i]) == n_name && strncmp(stage_names[i], name, n_name) == 0)
            return only[i] = true;
    }
    return false;
}

static sg_status read_only(const char *words, bool only[SG_BENCH_STAGE_COUNT], sg_error *err)
{
    for (const char *at = words;; at++) {
        size_t n = strcspn(at, ",");
        if (!add_stage(at, n, only))
            return sg_error_set(
                err, SG_USAGE,
                "--only: found '%.40s', wanted some of machine, ops, small, many, memory, scale with commas between",
                words);
        at += n;
        if (*at == '\0')
            return SG_OK;
    }
}

/* Far more than the caches hold, in all three arrays of a plain pass together. */
static uint64_t array_bytes(void)
{
    long cache = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = cache > 0 ? ((uint64_t)cache + MIB - 1) / MIB * MIB : 0;
    return bytes < 64 * MIB ? 64 * MIB : bytes > 256 * MIB ? 256 * MIB : bytes;
}

sg_status sg_bench_settings_init(sg_bench_settings *s, const sg_bench_words *words, sg_error *err)
{
    sg_bench_words given = *words;
    if (given.bytes == NULL && given.variables == NULL && given.variable_bytes == NULL)
        given.bytes = words->quick ? "2MiB" : "128MiB";
    if (given.repetitions == NULL)
        given.repetitions = words->quick ? "2" : "20";
    *s = (sg_bench_settings){
        .fault_steps = words->quick ? 3 : 200,
        .small_blocks = words->quick ? 2 : 8,
        .small_steps = words->quick ? 20 : 500,
        .many = {.total_bytes = (uint64_t)1024 * (words->quick ? 200 : 10000), .variable_bytes = 1024},
        .many_steps = words->quick ? 2 : 30,
        .array_bytes = words->quick ? MIB : array_bytes(),
        .search = !words->quick,
        .quick = words->quick,
    };
    uint64_t repetitions = 0;
    sg_status status = read_shape(&given, &s->shape, err);
    if (status == SG_OK)
        status = read_count("--repetitions", given.repetitions, MAX_REPETITIONS, &repetitions, err);
    s->repetitions = (uint32_t)repetitions;
    if (status == SG_OK && given.only != NULL)
        return read_only(given.only, s->only, err);
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++)
        s->only[i] = true;
    return status;
}

/* --- what the machine and the configuration must allow --------------------------------------------------------- */

sg_status sg_bench_settings_check_config(const sg_config *config, sg_error *err)
{
    const struct {
        bool wrong;
        const char *key, *wanted;
    } checks[] = {
        {config->update.mode != SG_MODE_SYNC, "update.mode", "sync"},
        {config->update.rule != SG_RULE_SGD, "update.rule", "sgd"},
        {config->update.weight_decay > 0, "update.weight_decay", "0"},
        {config->update.schedule != SG_SCHEDULE_CONSTANT, "update.schedule", "constant"},
        {config->update.warmup_steps != 0, "update.warmup_steps", "0"},
        {config->update.base_batch != 0, "update.base_batch", "0"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(checks); i++) {
        if (checks[i].wrong)
            return sg_error_set(err, SG_CONFIG, "%s: bench foretells every value and wants %s: leave it out",
                                checks[i].key, checks[i].wanted);
    }
    return SG_OK;
}

sg_status sg_bench_settings_fit_stages(sg_bench_settings *s, const sg_config *config, bool *left_out, sg_error *err)
{
    *left_out = s->only[SG_BENCH_STAGE_SCALE] && (config->ps.n != 1 || config->workers != 1);
    if (!*left_out)
        return SG_OK;
    s->only[SG_BENCH_STAGE_SCALE] = false;
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++) {
        if (s->only[i])
            return SG_OK;
    }
    return sg_error_set(err, SG_USAGE,
                        "--only scale: found %zu ps and %" PRIu64
                        " workers, wanted 1 and 1, to which it compares more: leave out --ps and --workers",
                        config->ps.n, config->workers);
}

bool sg_bench_settings_wants_yardstick(const sg_bench_settings *s)
{
    return s->only[SG_BENCH_STAGE_OPS] || s->only[SG_BENCH_STAGE_SMALL];
}

uint64_t sg_bench_settings_max_workers(const sg_bench_settings *s, const sg_config *config)
{
    uint64_t most = config->workers;
    if (s->only[SG_BENCH_STAGE_MEMORY] && most < MEMORY_WORKERS)
        most = MEMORY_WORKERS;
    if (s->only[SG_BENCH_STAGE_SCALE])
        most = SCALE_WORKERS;
    return most;
}

/* A worker has values and gradients; the ps has an old and a new version, and a contribution of each worker that waits
 * for the others. */
sg_status sg_bench_settings_check_memory(const sg_bench_settings *s, const sg_config *config, bool has_yardstick,
                                         uint64_t available_bytes, sg_error *err)
{
    uint64_t workers = sg_bench_settings_max_workers(s, config);
    uint64_t copies = 3 * workers + 2 + (has_yardstick && sg_bench_settings_wants_yardstick(s) ? YARDSTICK_COPIES : 0);
    uint64_t needed = s->shape.total_bytes * copies + (workers + config->ps.n) * PROCESS_BYTES;
    if (s->only[SG_BENCH_STAGE_MACHINE] && needed < PASS_ARRAYS * s->array_bytes)
        needed = PASS_ARRAYS * s->array_bytes;
    char bytes[SG_BENCH_BYTES_TEXT], wanted[SG_BENCH_BYTES_TEXT], found[SG_BENCH_BYTES_TEXT];
    if (needed <= available_bytes)
        return SG_OK;
    return sg_error_set(err, SG_EXHAUSTED,
                        "a model of %s with up to %" PRIu64 " workers needs about %s of memory, %s are available: give "
                        "fewer --bytes or fewer workers",
                        sg_bench_settings_bytes_text((double)s->shape.total_bytes, bytes), workers,
                        sg_bench_settings_bytes_text((double)needed, wanted),
                        sg_bench_settings_bytes_text((double)available_bytes, found));
}
