#include "worker/cli/bench/settings.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(bench_settings, .timeout = 20);

#define MIB ((uint64_t)1 << 20)

static sg_bench_settings accept(sg_bench_words words)
{
    sg_bench_settings settings;
    sg_error err = {0};
    cr_assert_eq(sg_bench_settings_init(&settings, &words, &err), SG_OK, "%s", err.message);
    return settings;
}

static void refuse(sg_bench_words words, const char *text)
{
    sg_bench_settings settings;
    sg_error err = {0};
    cr_assert_eq(sg_bench_settings_init(&settings, &words, &err), SG_USAGE);
    cr_assert_not_null(strstr(err.message, text), "found '%s', wanted '%s' in it", err.message, text);
}

Test(bench_settings, without_options_128_mib_in_variables_of_16_are_moved_20_times)
{
    sg_bench_settings s = accept((sg_bench_words){0});
    cr_assert_eq(s.shape.total_bytes, 128 * MIB);
    cr_assert_eq(sg_bench_shape_variables(&s.shape), 8);
    cr_assert_eq(s.repetitions, 20);
    cr_assert_eq(s.fault_steps, 200);
    cr_assert_eq(sg_bench_shape_variables(&s.many), 10000);
    cr_assert(s.search);
    cr_assert(s.array_bytes >= 64 * MIB);
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++)
        cr_assert(s.only[i]);
}

Test(bench_settings, quick_is_small_and_does_not_search_but_does_what_it_is_told)
{
    sg_bench_settings s = accept((sg_bench_words){.quick = true});
    cr_assert(s.shape.total_bytes <= 4 * MIB && s.repetitions <= 3 && s.small_steps * s.small_blocks <= 100);
    cr_assert_not(s.search);
    s = accept((sg_bench_words){.quick = true, .bytes = "8MiB", .repetitions = "5"});
    cr_assert_eq(s.shape.total_bytes, 8 * MIB);
    cr_assert_eq(s.repetitions, 5);
}

Test(bench_settings, a_model_is_given_by_its_bytes_or_by_its_variables)
{
    sg_bench_settings s = accept((sg_bench_words){.bytes = "4"});
    cr_assert_eq(s.shape.total_bytes, 4);
    cr_assert_eq(sg_bench_shape_variables(&s.shape), 1);
    s = accept((sg_bench_words){.bytes = "40MiB"});
    cr_assert_eq(sg_bench_shape_variables(&s.shape), 3, "the last one is smaller");
    s = accept((sg_bench_words){.variables = "100", .variable_bytes = "12"});
    cr_assert_eq(s.shape.total_bytes, 1200);
    cr_assert_eq(sg_bench_shape_variables(&s.shape), 100);
    refuse((sg_bench_words){.variables = "100"}, "go together");
    refuse((sg_bench_words){.variable_bytes = "100"}, "go together");
    refuse((sg_bench_words){.variables = "1", .variable_bytes = "4", .bytes = "4"}, "give one");
}

Test(bench_settings, impossible_sizes_are_refused_naming_the_option_and_what_was_found)
{
    static const char *const sizes[] = {"0", "6", "-4", "4.5", "", "x", "1025GiB", "18446744073709551616", "128mib"};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        char text[64];
        snprintf(text, sizeof(text), "--bytes: found '%s', wanted a multiple of 4", sizes[i]);
        refuse((sg_bench_words){.bytes = sizes[i]}, text);
        refuse((sg_bench_words){.variables = "2", .variable_bytes = sizes[i]}, "--variable-bytes: found");
    }
    refuse((sg_bench_words){.variables = "0", .variable_bytes = "4"}, "--variables: found '0'");
    refuse((sg_bench_words){.variables = "65537", .variable_bytes = "4"}, "--variables: found '65537'");
    refuse((sg_bench_words){.variables = "65536", .variable_bytes = "1GiB"}, "at most 1024GiB");
    refuse((sg_bench_words){.repetitions = "0"}, "--repetitions: found '0'");
    refuse((sg_bench_words){.repetitions = "10001"}, "from 1 to 10000");
}

Test(bench_settings, only_names_stages)
{
    sg_bench_settings s = accept((sg_bench_words){.only = "small,ops"});
    for (size_t i = 0; i < SG_BENCH_STAGE_COUNT; i++)
        cr_assert_eq(s.only[i], i == SG_BENCH_STAGE_OPS || i == SG_BENCH_STAGE_SMALL);
    for (sg_bench_stage i = 0; i < SG_BENCH_STAGE_COUNT; i++)
        cr_assert(accept((sg_bench_words){.only = sg_bench_settings_stage_name(i)}).only[i]);
    static const char *const wrong[] = {"", "op", "opss", "ops,", ",ops", "ops small"};
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++)
        refuse((sg_bench_words){.only = wrong[i]}, "--only: found");
}

static sg_config *load(const sg_config_override *overrides, size_t n)
{
    sg_config *config;
    cr_assert_eq(sg_config_load(NULL, overrides, n, &config, NULL), SG_OK);
    return config;
}

Test(bench_settings, what_cannot_be_foretold_is_refused)
{
    static const sg_config_override wrong[] = {
        {"update.mode", "async", "x"},     {"update.rule", "momentum", "x"}, {"update.weight_decay", "0.1", "x"},
        {"update.warmup_steps", "3", "x"}, {"update.base_batch", "64", "x"},
    };
    sg_config *config = load(NULL, 0);
    cr_assert_eq(sg_bench_settings_check_config(config, NULL), SG_OK);
    sg_config_destroy(config);
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++) {
        sg_error err;
        config = load(&wrong[i], 1);
        cr_assert_eq(sg_bench_settings_check_config(config, &err), SG_CONFIG);
        cr_assert_eq(strncmp(err.message, wrong[i].key, strlen(wrong[i].key)), 0, "%s", err.message);
        sg_config_destroy(config);
    }
    config = load((sg_config_override[]){{"update.schedule", "step", "x"}, {"update.decay_steps", "9", "x"}}, 2);
    cr_assert_eq(sg_bench_settings_check_config(config, NULL), SG_CONFIG);
    sg_config_destroy(config);
}

Test(bench_settings, the_stage_scale_is_for_one_and_one_and_refused_where_it_is_all_there_is)
{
    static const sg_config_override one[] = {{"workers", "1", "x"}}, two[] = {{"workers", "2", "x"}};
    sg_config *config = load(two, 1), *fits = load(one, 1);
    bool left_out;
    sg_error err;
    sg_bench_settings s = accept((sg_bench_words){.only = "scale"});
    cr_assert_eq(sg_bench_settings_fit_stages(&s, fits, &left_out, NULL), SG_OK);
    cr_assert(!left_out && s.only[SG_BENCH_STAGE_SCALE]);
    cr_assert_eq(sg_bench_settings_fit_stages(&s, config, &left_out, &err), SG_USAGE);
    cr_assert_not_null(strstr(err.message, "1 ps and 2 workers"), "%s", err.message);
    s = accept((sg_bench_words){.only = "scale,ops"});
    cr_assert_eq(sg_bench_settings_fit_stages(&s, config, &left_out, NULL), SG_OK);
    cr_assert(left_out && !s.only[SG_BENCH_STAGE_SCALE] && s.only[SG_BENCH_STAGE_OPS]);
    s = accept((sg_bench_words){.only = "ops"});
    cr_assert_eq(sg_bench_settings_fit_stages(&s, config, &left_out, NULL), SG_OK);
    cr_assert_not(left_out, "it was not asked for");
    sg_config_destroy(config);
    sg_config_destroy(fits);
}

Test(bench_settings, only_ops_and_small_want_a_yardstick)
{
    for (sg_bench_stage i = 0; i < SG_BENCH_STAGE_COUNT; i++) {
        sg_bench_settings s = accept((sg_bench_words){.only = sg_bench_settings_stage_name(i)});
        cr_assert_eq(sg_bench_settings_wants_yardstick(&s), i == SG_BENCH_STAGE_OPS || i == SG_BENCH_STAGE_SMALL);
    }
}

Test(bench_settings, more_than_the_memory_is_refused_with_both_figures)
{
    sg_config *config = load((sg_config_override[]){{"workers", "1", "x"}}, 1);
    sg_bench_settings s = accept((sg_bench_words){.bytes = "1GiB", .only = "ops"});
    sg_error err;
    cr_assert_eq(sg_bench_settings_max_workers(&s, config), 1);
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, false, 6144 * MIB, &err), SG_OK);
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, false, 5000 * MIB, &err), SG_EXHAUSTED);
    cr_assert_not_null(strstr(err.message, "1 GiB"), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "4.883 GiB are available"), "%s", err.message);
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, true, 6144 * MIB, &err), SG_EXHAUSTED,
                 "the yardstick needs its own");
    sg_bench_settings without = accept((sg_bench_words){.bytes = "1GiB", .only = "memory"});
    cr_assert_eq(sg_bench_settings_check_memory(&without, config, true, 9216 * MIB, NULL), SG_OK,
                 "it is not started for the stage memory");
    s = accept((sg_bench_words){.bytes = "1GiB"});
    cr_assert_eq(sg_bench_settings_max_workers(&s, config), 4, "of the stage scale");
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, false, 6144 * MIB, &err), SG_EXHAUSTED);
    s = accept((sg_bench_words){.bytes = "1024GiB"});
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, true, 1 << 30, &err), SG_EXHAUSTED);
    cr_assert_eq(sg_bench_settings_check_memory(&s, config, true, UINT64_MAX, &err), SG_OK, "the kernel did not tell");
    sg_config_destroy(config);
}

Test(bench_settings, bytes_are_told_in_the_unit_that_fits)
{
    char text[SG_BENCH_BYTES_TEXT];
    cr_assert_str_eq(sg_bench_settings_bytes_text(12, text), "12 B");
    cr_assert_str_eq(sg_bench_settings_bytes_text(4096, text), "4 KiB");
    cr_assert_str_eq(sg_bench_settings_bytes_text(128.0 * (double)MIB, text), "128 MiB");
    cr_assert_str_eq(sg_bench_settings_bytes_text(1.5 * 1024 * (double)MIB, text), "1.5 GiB");
}
