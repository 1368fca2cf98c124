#include <criterion/criterion.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config.h"
#include "common/config_options.h"
#include "common/workers.h"
#include "tests/support/seed.h"

TestSuite(config, .timeout = 20);

/* --- what is read --------------------------------------------------------------------------------------------- */

static sg_config *parse(const char *text)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    return config;
}

static char *print(const sg_config *config)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    sg_config_print(config, out);
    fclose(out);
    return text;
}

Test(config, defaults_are_those_of_the_header)
{
    sg_config *config = NULL;
    cr_assert_eq(sg_config_load(NULL, NULL, 0, &config, NULL), SG_OK);
    cr_assert_str_eq(config->job, "shardgrad");
    cr_assert_eq(config->seed, 1u);
    cr_assert_eq(config->ps.n, 1u);
    cr_assert_str_eq(config->ps.items[0], "127.0.0.1:0");
    cr_assert_eq(config->advertise.n, 0u);
    cr_assert_eq(config->workers, 2u);
    cr_assert_eq(config->max_workers, 64u);
    cr_assert_eq(config->threads, 1u);
    cr_assert_eq(config->rpc_threads, 1u);
    cr_assert_eq(config->connections, 2u);
    cr_assert_eq(config->slice_bytes, 1048576u);
    cr_assert_eq(config->message_bytes, 1048576u);
    cr_assert_eq(config->lease_ms, 5000u);
    cr_assert_eq(config->park_ms, 2000u);
    cr_assert_eq(config->warn_after_ms, 10000u);
    cr_assert_eq(config->start_timeout_ms, 60000u);
    cr_assert_eq(config->shutdown_grace_ms, 2000u);
    cr_assert_not(config->linger);
    cr_assert_str_eq(config->run_dir, "runs/shardgrad");
    cr_assert_eq(config->log_level, SG_LOG_INFO);
    cr_assert_eq(config->update.mode, SG_MODE_SYNC);
    cr_assert_eq(config->update.rule, SG_RULE_SGD);
    cr_assert_eq(config->update.schedule, SG_SCHEDULE_CONSTANT);
    cr_assert_eq(config->update.warmup_steps, 0u);
    cr_assert_eq(config->update.non_finite, SG_NON_FINITE_SKIP);
    cr_assert_eq(config->train.batch, 128u);
    cr_assert_eq(config->train.epochs, 5u);
    cr_assert_eq(config->train.steps, 0u);
    cr_assert_str_eq(config->model.name, "mlp");
    cr_assert_eq(config->model.hidden.n, 2u);
    cr_assert_eq(config->model.hidden.items[1], 512u);
    cr_assert_str_eq(config->data.train_images, "");
    sg_config_destroy(config);
}

static const char everything[] = "job: a.b-c_1\n"
                                 "seed: 18446744073709551615\n"
                                 "ps: [node1:5000, \"[fe80::1%eth0]:5001\"]\n"
                                 "advertise:\n"
                                 "  - node1.lan:5000\n"
                                 "  - 'node2:5001'\n"
                                 "workers: 3\n"
                                 "max_workers: 1024\n"
                                 "threads: 8\n"
                                 "rpc_threads: 2\n"
                                 "connections: 16\n"
                                 "slice_bytes: 64KiB\n"
                                 "message_bytes: 4194304\n"
                                 "lease_ms: 60001\n"
                                 "park_ms: 60000\n"
                                 "warn_after_ms: 1\n"
                                 "start_timeout_ms: 86400000\n"
                                 "shutdown_grace_ms: 17\n"
                                 "linger: true\n"
                                 "run_dir: 'it''s \"here\" \\ #1: \xc3\xa9'\n"
                                 "log_level: debug\n"
                                 "update:\n"
                                 "  mode: async\n"
                                 "  rule: adam\n"
                                 "  learning_rate: 1e-3\n"
                                 "  momentum: 0\n"
                                 "  beta1: .5\n"
                                 "  beta2: 0.1234567890123456789\n"
                                 "  epsilon: 1\n"
                                 "  weight_decay: 5e-324\n"
                                 "  schedule: cosine\n"
                                 "  warmup_steps: 9\n"
                                 "  decay_steps: 10\n"
                                 "  decay_factor: 0.30000000000000004\n"
                                 "  non_finite: apply\n"
                                 "train: {batch: 129, epochs: 1000000, steps: 20}\n"
                                 "model:\n"
                                 "  name: mlp\n"
                                 "  hidden: []\n"
                                 "data:\n"
                                 "  train_images: \"\"\n"
                                 "  train_labels: /a/b.gz\n"
                                 "  test_images: \"true\"\n"
                                 "  test_labels: \"07\"\n";

Test(config, every_key_reaches_its_field)
{
    sg_config *config = parse(everything);
    cr_assert_str_eq(config->job, "a.b-c_1");
    cr_assert_eq(config->seed, UINT64_MAX);
    cr_assert_str_eq(config->ps.items[1], "[fe80::1%eth0]:5001");
    cr_assert_eq(config->advertise.n, 2u);
    cr_assert_str_eq(config->advertise.items[1], "node2:5001");
    cr_assert_eq(config->workers, 3u);
    cr_assert_eq(config->max_workers, SG_MAX_WORKERS);
    cr_assert_eq(config->threads, 8u);
    cr_assert_eq(config->rpc_threads, 2u);
    cr_assert_eq(config->connections, 16u);
    cr_assert_eq(config->slice_bytes, 65536u);
    cr_assert_eq(config->message_bytes, 4194304u);
    cr_assert_eq(config->lease_ms, 60001u);
    cr_assert_eq(config->park_ms, 60000u);
    cr_assert_eq(config->warn_after_ms, 1u);
    cr_assert_eq(config->start_timeout_ms, 86400000u);
    cr_assert_eq(config->shutdown_grace_ms, 17u);
    cr_assert(config->linger);
    cr_assert_str_eq(config->run_dir, "it's \"here\" \\ #1: \xc3\xa9");
    cr_assert_eq(config->log_level, SG_LOG_DEBUG);
    cr_assert_eq(config->update.mode, SG_MODE_ASYNC);
    cr_assert_eq(config->update.rule, SG_RULE_ADAM);
    cr_assert_eq(config->update.learning_rate, 1e-3);
    cr_assert_eq(config->update.momentum, 0);
    cr_assert_eq(config->update.beta1, 0.5);
    cr_assert_eq(config->update.beta2, 0.1234567890123456789);
    cr_assert_eq(config->update.epsilon, 1);
    cr_assert_eq(config->update.weight_decay, 5e-324);
    cr_assert_eq(config->update.schedule, SG_SCHEDULE_COSINE);
    cr_assert_eq(config->update.warmup_steps, 9u);
    cr_assert_eq(config->update.decay_steps, 10u);
    cr_assert_eq(config->update.decay_factor, 0.30000000000000004);
    cr_assert_eq(config->update.non_finite, SG_NON_FINITE_APPLY);
    cr_assert_eq(config->train.batch, 129u);
    cr_assert_eq(config->train.epochs, 1000000u);
    cr_assert_eq(config->train.steps, 20u);
    cr_assert_eq(config->model.hidden.n, 0u);
    cr_assert_str_eq(config->data.train_labels, "/a/b.gz");
    cr_assert_str_eq(config->data.test_images, "true");
    cr_assert_str_eq(config->data.test_labels, "07");
    sg_config_destroy(config);
}

Test(config, the_text_above_names_every_key_of_the_table)
{
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const char *key = sg_config_option_at(i)->key;
        const char *dot = strchr(key, '.');
        char line[64];
        snprintf(line, sizeof(line), "%s:", dot != NULL ? dot + 1 : key);
        cr_assert_not_null(strstr(everything, line), "%s is not tested", key);
        if (dot != NULL) {
            snprintf(line, sizeof(line), "%.*s", (int)(dot - key), key);
            cr_assert(sg_config_option_is_section(line), "%s lies in no section", key);
        }
    }
}

/* --- what is printed ------------------------------------------------------------------------------------------ */

static void round_trip(const char *text)
{
    sg_config *first = parse(text);
    char *printed = print(first);
    sg_config *second = parse(printed);
    char *again = print(second);
    cr_assert_str_eq(printed, again);
    cr_assert_str_eq(first->run_dir, second->run_dir);
    cr_assert_str_eq(first->data.test_images, second->data.test_images);
    cr_assert_eq(memcmp(&first->update, &second->update, sizeof(first->update)), 0, "doubles keep every bit");
    cr_assert_eq(first->model.hidden.n, second->model.hidden.n);
    cr_assert_eq(first->ps.n, second->ps.n);
    free(printed);
    free(again);
    sg_config_destroy(first);
    sg_config_destroy(second);
}

Test(config, what_is_printed_loads_to_the_same)
{
    round_trip("{}");
    round_trip(everything);
    static const char *const texts[] = {
        "true", "null", "~",  "",    "yes", "1e3", "0x1F", ".inf", "- a",   "a: b", "#x",           "*x",
        "&x",   "!x",   "%x", "@x",  "`x",  "[x",  "{x",   "'x",   "a ",    " a",   "a #b",         "\\",
        "?",    ":",    "-",  "---", "...", "012", "a,b",  "<<",   "12:30", "a\"b", "\xe2\x82\xac", "2026-11-29"};
    for (size_t i = 0; i < SG_ARRAY_LEN(texts); i++) {
        sg_config_override override = {"data.test_images", texts[i], "--set data.test_images"};
        sg_config *config = NULL;
        sg_error err = {0};
        cr_assert_eq(sg_config_load(NULL, &override, 1, &config, &err), SG_OK, "%s", err.message);
        char *printed = print(config);
        round_trip(printed);
        sg_config *again = parse(printed);
        cr_assert_str_eq(again->data.test_images, texts[i]);
        sg_config_destroy(again);
        sg_config_destroy(config);
        free(printed);
    }
}

Test(config, any_number_keeps_its_bits_when_printed)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 300; round++) {
        double value = (double)sg_seed_below(&seed, UINT64_MAX) / 1.8446744073709552e19;
        char text[64];
        snprintf(text, sizeof(text), "update: {weight_decay: %.17g}", value);
        sg_config *config = parse(text);
        cr_assert_eq(config->update.weight_decay, value, "seed %lu: %s", seed.first, text);
        char *printed = print(config);
        sg_config *again = parse(printed);
        cr_assert_eq(again->update.weight_decay, value, "seed %lu: %s", seed.first, text);
        free(printed);
        sg_config_destroy(config);
        sg_config_destroy(again);
    }
}

Test(config, numbers_are_printed_in_their_shortest_form)
{
    sg_config *config = parse("update: {learning_rate: 0.0500, beta1: 0.30, weight_decay: -0}\nslice_bytes: 2048\n");
    char *printed = print(config);
    cr_assert_not_null(strstr(printed, "  learning_rate: 0.05\n"), "%s", printed);
    cr_assert_not_null(strstr(printed, "  beta1: 0.3\n"), "%s", printed);
    cr_assert_not_null(strstr(printed, "  weight_decay: 0\n"), "%s", printed);
    cr_assert_not_null(strstr(printed, "slice_bytes: 2KiB\n"), "%s", printed);
    free(printed);
    sg_config_destroy(config);
}

Test(config, the_locale_of_the_program_changes_nothing)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "fr_FR"};
    for (size_t i = 0; i < SG_ARRAY_LEN(names) && strcmp(localeconv()->decimal_point, ",") != 0; i++)
        setlocale(LC_ALL, names[i]);
    if (strcmp(localeconv()->decimal_point, ",") != 0)
        cr_skip_test("no locale with a decimal comma is installed");
    sg_config *config = parse("update: {learning_rate: 0.25}");
    cr_assert_eq(config->update.learning_rate, 0.25);
    char *printed = print(config);
    cr_assert_not_null(strstr(printed, "learning_rate: 0.25\n"));
    free(printed);
    sg_config_destroy(config);
}

typedef struct seen {
    size_t n;
    char last[64];
    char text[4096];
} seen;

static void see(void *user, const char *key, const char *value)
{
    seen *all = user;
    cr_assert(all->n == 0 || strcmp(all->last, key) < 0, "%s comes after %s", key, all->last);
    all->n++;
    snprintf(all->last, sizeof(all->last), "%s", key);
    size_t length = strlen(all->text);
    snprintf(all->text + length, sizeof(all->text) - length, "%s=%s\n", key, value);
}

Test(config, what_all_processes_must_agree_on_comes_sorted_and_in_one_form)
{
    sg_config *config = parse("ps: [a:1, b:2]\nslice_bytes: 65536\nthreads: 7\nupdate: {learning_rate: 5e-2}\n");
    seen all = {0};
    sg_config_each_shared(config, see, &all);
    static const char *const wanted[] = {"job=shardgrad\n",
                                         "seed=1\n",
                                         "ps=2\n",
                                         "workers=2\n",
                                         "max_workers=64\n",
                                         "rpc_threads=1\n",
                                         "connections=2\n",
                                         "slice_bytes=64KiB\n",
                                         "message_bytes=1MiB\n",
                                         "update.mode=sync\n",
                                         "update.learning_rate=0.05\n",
                                         "update.epsilon=1e-08\n",
                                         "update.non_finite=skip\n",
                                         "train.batch=128\n",
                                         "train.epochs=5\n",
                                         "train.steps=0\n",
                                         "model.hidden=[512, 512]\n",
                                         "model.name=mlp\n"};
    for (size_t i = 0; i < SG_ARRAY_LEN(wanted); i++)
        cr_assert_not_null(strstr(all.text, wanted[i]), "%s is missing in\n%s", wanted[i], all.text);
    static const char *const local[] = {"\nthreads", "advertise", "run_dir", "lease_ms",
                                        "park_ms",   "log_level", "linger",  "data."};
    for (size_t i = 0; i < SG_ARRAY_LEN(local); i++)
        cr_assert_null(strstr(all.text, local[i]), "%s need not agree", local[i]);
    sg_config_destroy(config);
}

/* --- the folder configs/ -------------------------------------------------------------------------------------- */

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file, "%s: tests run in the root of the repository", path);
    size_t room = 1u << 16;
    char *text = sg_xcalloc(room, 1);
    size_t n_bytes = fread(text, 1, room - 1, file);
    cr_assert_lt(n_bytes, room - 1, "%s is larger than this test", path);
    fclose(file);
    return text;
}

Test(config, the_reference_in_configs_is_that_of_the_table)
{
    char *readme = read_file("configs/README.md"), *reference = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&reference, &n_bytes);
    sg_config_print_reference(out);
    fclose(out);
    char *begin = strstr(readme, "```yaml\n");
    cr_assert_not_null(begin);
    begin += strlen("```yaml\n");
    char *end = strstr(begin, "```");
    cr_assert_not_null(end);
    *end = '\0';
    cr_assert_str_eq(begin, reference, "put what sg_config_print_reference writes into configs/README.md");
    for (size_t i = 0; i < sg_config_option_count(); i++)
        cr_assert_not_null(strstr(reference, sg_config_option_at(i)->help), "%s", sg_config_option_at(i)->key);
    free(readme);
    free(reference);
}

Test(config, the_example_files_load)
{
    static const char *const paths[] = {"configs/fashion-mnist.yaml", "configs/fashion-mnist-hosts.yaml"};
    for (size_t i = 0; i < SG_ARRAY_LEN(paths); i++) {
        sg_config *config = NULL;
        sg_error err = {0};
        cr_assert_eq(sg_config_load(paths[i], NULL, 0, &config, &err), SG_OK, "%s", err.message);
        cr_assert_eq(config->ps.n, 2u);
        cr_assert_eq(config->model.hidden.n, 2u);
        cr_assert_eq(config->update.rule, SG_RULE_MOMENTUM);
        sg_config_destroy(config);
    }
}

/* --- what is refused ------------------------------------------------------------------------------------------ */

typedef struct wrong {
    const char *text;    /* of the file */
    const char *message; /* beginning of what is said about it, after "c.yaml" */
} wrong;

static void refuse(const char *text, size_t n_bytes, const char *message)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, &err), SG_CONFIG, "%s", text);
    cr_assert_null(config);
    cr_assert_eq(strncmp(err.message, message, strlen(message)), 0, "%s\nsaid   %s\nwanted %s", text, err.message,
                 message);
    cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, NULL), SG_CONFIG);
}

static void refuse_all(const wrong *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        refuse(rows[i].text, strlen(rows[i].text), rows[i].message);
}

Test(config, a_key_that_is_none_is_refused_with_what_was_perhaps_meant)
{
    static const wrong rows[] = {
        {"update:\n  lerning_rate: 1\n",
         "c.yaml:2:3: update.lerning_rate: is not a key (did you mean update.learning_rate?)"},
        {"workrs: 1\n", "c.yaml:1:1: workrs: is not a key (did you mean workers?)"},
        {"learning_rate: 1\n", "c.yaml:1:1: learning_rate: is not a key (did you mean update.learning_rate?)"},
        {"updat:\n  mode: sync\n", "c.yaml:1:1: updat: is not a key (did you mean update?)"},
        {"workers: 2\n\n\nxyzzy: 1\n", "c.yaml:4:1: xyzzy: is not a key; configs/README.md lists them"},
        {"update.mode: sync\n",
         "c.yaml:1:1: update.mode: belongs into a map: write 'update:' and below it, indented, 'mode: ...'"},
        {"update: {momentum: 0.9, momemtum: 0.8}\n",
         "c.yaml:1:25: update.momemtum: is not a key (did you mean update.momentum?)"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, a_key_given_twice_is_refused_with_both_places)
{
    static const wrong rows[] = {
        {"workers: 2\nseed: 1\nworkers: 2\n", "c.yaml:3:1: workers: is here a second time, first in line 1"},
        {"update:\n  mode: sync\n  mode: sync\n", "c.yaml:3:3: update.mode: is here a second time, first in line 2"},
        {"update:\n  mode: sync\ntrain:\n  batch: 1\nupdate:\n  rule: sgd\n",
         "c.yaml:5:1: update: is here a second time, first in line 1"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, a_number_written_in_a_doubtful_way_is_refused_with_the_way_to_write_it)
{
    static const wrong rows[] = {
        {"workers: \"2\"\n",
         "c.yaml:1:10: workers: found the text \"2\", wanted a whole number from 1 to 1024 (in quotes "
         "it is text: write it without)"},
        {"workers: 07071\n",
         "c.yaml:1:10: workers: found '07071', wanted a whole number from 1 to 1024 (a leading zero "
         "means octal to some: write 7071)"},
        {"workers: 0x10\n",
         "c.yaml:1:10: workers: found '0x10', wanted a whole number from 1 to 1024 (write it in decimal: 16)"},
        {"workers: 0o17\n",
         "c.yaml:1:10: workers: found '0o17', wanted a whole number from 1 to 1024 (write it in decimal: 15)"},
        {"workers: 1_000\n",
         "c.yaml:1:10: workers: found '1_000', wanted a whole number from 1 to 1024 (write it without '_')"},
        {"update: {momentum: 00.5}\n",
         "c.yaml:1:20: update.momentum: found '00.5', wanted a number from 0 to below 1 (a "
         "leading zero means octal to some: write 0.5)"},
        {"update: {learning_rate: '0.1'}\n",
         "c.yaml:1:25: update.learning_rate: found the text \"0.1\", wanted a number"},
        {"slice_bytes: 01KiB\n", "c.yaml:1:14: slice_bytes: found '01KiB', wanted bytes such as 65536, 64KiB or 1MiB, "
                                 "from 64 to 1GiB (a leading zero means octal to some: write 1KiB)"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, a_number_that_is_none_or_out_of_range_is_refused)
{
    static const wrong rows[] = {
        {"workers: 0\n", "c.yaml:1:10: workers: found '0', wanted a whole number from 1 to 1024"},
        {"workers: 1025\n", "c.yaml:1:10: workers: found '1025', wanted a whole number from 1 to 1024"},
        {"workers: -1\n", "c.yaml:1:10: workers: found '-1'"},
        {"workers: +1\n", "c.yaml:1:10: workers: found '+1'"},
        {"workers: 2.0\n", "c.yaml:1:10: workers: found '2.0'"},
        {"workers: 1e3\n", "c.yaml:1:10: workers: found '1e3'"},
        {"workers: .inf\n", "c.yaml:1:10: workers: found '.inf'"},
        {"workers: two\n", "c.yaml:1:10: workers: found 'two'"},
        {"workers: true\n", "c.yaml:1:10: workers: found 'true'"},
        {"workers: 99999999999999999999999\n", "c.yaml:1:10: workers: found '99999999999999999999999'"},
        {"workers: 2 3\n", "c.yaml:1:10: workers: found '2 3'"},
        {"seed: 18446744073709551616\n", "c.yaml:1:7: seed: found '18446744073709551616'"},
        {"lease_ms: 5s\n", "c.yaml:1:11: lease_ms: found '5s', wanted whole milliseconds from 10 to 86400000"},
        {"slice_bytes: 1MB\n", "c.yaml:1:14: slice_bytes: found '1MB'"},
        {"slice_bytes: 1 MiB\n", "c.yaml:1:14: slice_bytes: found '1 MiB'"},
        {"slice_bytes: 2GiB\n", "c.yaml:1:14: slice_bytes: found '2GiB'"},
        {"slice_bytes: 18014398509481985KiB\n", "c.yaml:1:14: slice_bytes: found '18014398509481985KiB'"},
        {"update: {momentum: 1}\n", "c.yaml:1:20: update.momentum: found '1', wanted a number from 0 to below 1"},
        {"update: {beta1: -.1}\n", "c.yaml:1:17: update.beta1: found '-.1'"},
        {"update: {beta2: 1.0}\n", "c.yaml:1:17: update.beta2: found '1.0'"},
        {"update: {epsilon: 0}\n", "c.yaml:1:19: update.epsilon: found '0', wanted a number above 0 to 1"},
        {"update: {learning_rate: .nan}\n", "c.yaml:1:25: update.learning_rate: found '.nan'"},
        {"update: {learning_rate: inf}\n", "c.yaml:1:25: update.learning_rate: found 'inf'"},
        {"update: {learning_rate: 1e999}\n", "c.yaml:1:25: update.learning_rate: found '1e999'"},
        {"update: {learning_rate: 0x1p3}\n", "c.yaml:1:25: update.learning_rate: found '0x1p3'"},
        {"update: {learning_rate: 1e}\n", "c.yaml:1:25: update.learning_rate: found '1e'"},
        {"update: {learning_rate: .}\n", "c.yaml:1:25: update.learning_rate: found '.'"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, a_value_of_another_type_is_refused)
{
    static const wrong rows[] = {
        {"workers:\n", "c.yaml:1:1: workers: found nothing, wanted a whole number"},
        {"workers: {a: 1}\n", "c.yaml:1:10: workers: found a map, wanted a whole number"},
        {"workers: [1]\n", "c.yaml:1:10: workers: found a list of 1, wanted a whole number"},
        {"linger: yes\n", "c.yaml:1:9: linger: found 'yes', wanted true or false (write true)"},
        {"linger: \"true\"\n", "c.yaml:1:9: linger: found the text \"true\", wanted true or false (write true)"},
        {"linger: Off\n", "c.yaml:1:9: linger: found 'Off', wanted true or false (write false)"},
        {"job: 12\n", "c.yaml:1:6: job: found '12', wanted a name"},
        {"run_dir: true\n",
         "c.yaml:1:10: run_dir: found 'true', wanted a line of at most 4096 bytes (if text is meant, write \"true\")"},
        {"run_dir:\n", "c.yaml:1:1: run_dir: found nothing, wanted a line"},
        {"run_dir: [a]\n", "c.yaml:1:10: run_dir: found a list of 1, wanted a line"},
        {"run_dir: \"a\\nb\"\n", "c.yaml:1:10: run_dir: found the text \"a b\", wanted a line"},
        {"run_dir: \"a\\u2028b\"\n", "c.yaml:1:10: run_dir: found the text"},
        {"job: a/b\n", "c.yaml:1:6: job: found 'a/b', wanted a name of at most 64 letters, digits, '.', '_' and '-'"},
        {"job: ..\n", "c.yaml:1:6: job: found '..', wanted a name"},
        {"job: \"\"\n", "c.yaml:1:6: job: found the text \"\", wanted a name"},
        {"update: 5\n", "c.yaml:1:9: update: found a value, wanted a map"},
        {"update:\n", "c.yaml:1:1: update: found nothing, wanted a map"},
        {"update: []\n", "c.yaml:1:9: update: found a list, wanted a map"},
        {"update:\n  mode: [sync]\n", "c.yaml:2:9: update.mode: found a list of 1, wanted one of sync, async"},
        {"update:\n  mode:\n", "c.yaml:2:3: update.mode: found nothing, wanted one of sync, async"},
        {"model: {hidden: 64}\n", "c.yaml:1:17: model.hidden: found '64', wanted a list of at most 64 whole numbers"},
        {"model: {hidden: [64, x]}\n", "c.yaml:1:22: model.hidden: found 'x', wanted a whole number from 1"},
        {"model:\n  hidden:\n    - 64\n    - [1]\n",
         "c.yaml:4:7: model.hidden: found a list of 1, wanted a whole number"},
        {"ps: a:1\n", "c.yaml:1:5: ps: found 'a:1', wanted a list of 1 to 1024 host:port"},
        {"ps: []\n", "c.yaml:1:5: ps: found a list of 0, wanted a list of 1 to 1024 host:port"},
        {"ps: [[a]]\n", "c.yaml:1:6: ps: found a list of 1, wanted host:port"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, a_word_that_is_none_of_the_choices_is_refused_with_the_choices)
{
    static const wrong rows[] = {
        {"update:\n  mode: asink\n",
         "c.yaml:2:9: update.mode: 'asink' is not one of sync, async (did you mean async?)"},
        {"update: {rule: adamw}\n",
         "c.yaml:1:16: update.rule: 'adamw' is not one of sgd, momentum, nesterov, adam (did you mean adam?)"},
        {"update: {schedule: linear}\n", "c.yaml:1:20: update.schedule: 'linear' is not one of constant, step, cosine"},
        {"log_level: INFO\n", "c.yaml:1:12: log_level: 'INFO' is not one of debug, info, warn, error"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, an_address_that_is_none_is_refused_at_its_place)
{
    static const wrong rows[] = {
        {"ps: [a:1, b]\n", "c.yaml:1:11: ps: found 'b', wanted host:port, such as 127.0.0.1:5000"},
        {"ps:\n  - a:1\n  - a:70000\n",
         "c.yaml:3:5: ps: found port '70000' in 'a:70000', wanted a number from 0 to 65535"},
        {"ps: [a:01]\n", "c.yaml:1:6: ps: found port '01'"},
        {"ps: [a: 1]\n", "c.yaml:1:7: ps: found a map, wanted host:port"},
        {"ps: ['a:']\n", "c.yaml:1:6: ps: found port ''"},
        {"ps: [':1']\n", "c.yaml:1:6: ps: found ':1', wanted host:port"},
        {"ps: ['a b:1']\n", "c.yaml:1:6: ps: found 'a b:1', wanted host:port"},
        {"ps: ['http://a:1']\n", "c.yaml:1:6: ps: found 'http://a:1', wanted host:port"},
        {"ps: ['::1:5']\n",
         "c.yaml:1:6: ps: found '::1:5', wanted host:port (an IPv6 address goes in brackets: \"[::1]:5000\")"},
        {"ps: ['[::1]']\n", "c.yaml:1:6: ps: found '[::1]', wanted host:port"},
        {"ps: ['[::1']\n", "c.yaml:1:6: ps: found '[::1', wanted host:port"},
        {"ps: [a:1, A:1]\n", "c.yaml:1:5: ps: entries 0 and 1 are both A:1"},
        {"ps: ['0.0.0.0:1']\n", "c.yaml:1:5: ps: 0.0.0.0:1 is where a ps may listen but not where it is found"},
        {"ps: [a:1, b:1]\nadvertise: [c:1]\n", "c.yaml:2:12: advertise: ps has 2 entries and advertise 1"},
        {"ps: ['[::]:1', '[::]:1']\nadvertise: [c:1, c:1]\n", "c.yaml:2:12: advertise: entries 0 and 1 are both c:1"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    sg_config_destroy(parse("ps: [127.0.0.1:0, 127.0.0.1:0]\n"));
    sg_config_destroy(parse("ps: ['0.0.0.0:5', '0.0.0.0:5']\nadvertise: [a:5, b:5]\n"));
}

Test(config, keys_that_do_not_go_together_are_refused_where_the_fault_was_made)
{
    static const wrong rows[] = {
        {"slice_bytes: 100\n", "c.yaml:1:14: slice_bytes: found 100, wanted a multiple of 64, such as 64"},
        {"slice_bytes: 2MiB\n", "c.yaml:1:14: slice_bytes: slice_bytes is 2097152 and message_bytes is 1048576, wanted "
                                "slice_bytes at most message_bytes"},
        {"seed: 2\nmessage_bytes: 64KiB\n", "c.yaml:2:16: message_bytes: slice_bytes is 1048576"},
        {"workers: 65\n", "c.yaml:1:10: workers: workers is 65 and max_workers is 64"},
        {"park_ms: 5000\n",
         "c.yaml:1:10: park_ms: park_ms is 5000 and lease_ms is 5000, wanted park_ms below lease_ms"},
        {"update: {rule: nesterov, momentum: 0}\n", "c.yaml:1:36: update.momentum: rule is nesterov and momentum is 0"},
        {"update: {schedule: step}\n", "c.yaml:1:20: update.schedule: schedule is not constant and decay_steps is 0"},
        {"update: {schedule: cosine, warmup_steps: 10, decay_steps: 10}\n", "c.yaml:1:42: update.warmup_steps: "},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
}

Test(config, what_is_no_cluster_file_is_refused)
{
    static const wrong rows[] = {
        {"", "c.yaml: is empty; wanted a cluster file"},
        {"# nothing\n\n", "c.yaml: is empty; wanted a cluster file"},
        {"---\n", "c.yaml: is empty; wanted a cluster file"},
        {"hello\n", "c.yaml:1:1: found text, wanted lines of key: value"},
        {"[1]\n", "c.yaml:1:1: found a list, wanted lines of key: value"},
        {"\tworkers: 1\n", "c.yaml:1:1: found a tab, wanted spaces"},
        {"update:\n  mode: sync\n  \trule: sgd\n", "c.yaml:3:3: found a tab, wanted spaces"},
        {"workers: 1\nps: [a:1\nseed: 2\n", "c.yaml:"},
        {"run_dir: \"x\n", "c.yaml:1:11: double-quoted scalar without closing quote"},
        {"a: b: c\n", "c.yaml:1:5: "},
        {"workers: *x\n", "c.yaml:1:10: found an alias (*)"},
        {"workers: &x 2\n", "c.yaml:1:13: found an anchor (&)"},
        {"workers: !!int 2\n", "c.yaml:1:16: found a tag (!)"},
        {"seed: 1\n---\nseed: 2\n", "c.yaml:3:1: found a second document, wanted one in a file"},
        {"? [a]\n: 1\n", "c.yaml:1:3: found a list as a key, wanted a word"},
        {"x: [[[[[[[[[[[[1]]]]]]]]]]]]\n", "c.yaml:1:10: is nested more than 7 levels deep"},
        {"\xff\xfe\n", "c.yaml:1:1: found byte 0xff, wanted a text file in UTF-8"},
        {"seed: 1\nrun_dir: \xc3(\n", "c.yaml:2:10: found byte 0xc3, wanted a text file in UTF-8"},
        {"run_dir: \"a\\0b\"\n", "c.yaml:1:10: found the character \\0"},
    };
    refuse_all(rows, SG_ARRAY_LEN(rows));
    refuse("seed: 1\n\0", 9, "c.yaml:2:1: found byte 0x00, wanted a text file in UTF-8");
}

Test(config, tabs_where_they_do_no_harm_are_read)
{
    sg_config *config = parse("workers:\t3\t# so many\n\t\n\t# a comment\n");
    cr_assert_eq(config->workers, 3u);
    sg_config_destroy(config);
}

static char *temporary_file(size_t n_bytes, const char *content)
{
    char *path = sg_xstrdup("/tmp/shardgrad-test-XXXXXX");
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    if (content != NULL)
        cr_assert_eq(write(fd, content, strlen(content)), (ssize_t)strlen(content));
    else
        cr_assert_eq(ftruncate(fd, (off_t)n_bytes), 0);
    close(fd);
    return path;
}

static void refuse_path(const char *path, sg_status status, const char *message)
{
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_load(path, NULL, 0, &config, &err), status, "%s", err.message);
    cr_assert_not_null(strstr(err.message, message), "%s", err.message);
    cr_assert_not_null(strstr(err.message, path), "%s", err.message);
    cr_assert_null(config);
}

Test(config, a_file_that_is_missing_or_cannot_be_one_is_refused)
{
    refuse_path("/tmp/shardgrad-test-no-such-file", SG_NOT_FOUND, "No such file");
    refuse_path("/dev/null/x", SG_NOT_FOUND, "Not a directory");
    refuse_path("/tmp", SG_CONFIG, "is a folder, wanted a cluster file");
    refuse_path("/dev/zero", SG_CONFIG, "is larger than 1048576 bytes");
    refuse_path("/dev/null", SG_CONFIG, "is empty");
    char *large = temporary_file(100u << 20, NULL), *binary = temporary_file(1000, NULL);
    refuse_path(large, SG_CONFIG, "is larger than 1048576 bytes");
    refuse_path(binary, SG_CONFIG, "found byte 0x00");
    unlink(large);
    unlink(binary);
    free(large);
    free(binary);
}

Test(config, a_message_names_the_file_as_it_was_given)
{
    char *path = temporary_file(0, "workers: 2\nupdate:\n  mode: asink\n");
    char wanted[128];
    snprintf(wanted, sizeof(wanted), "%s:3:9: update.mode: 'asink' is not one of", path);
    refuse_path(path, SG_CONFIG, wanted);
    unlink(path);
    free(path);
}

/* The library must not write where it was not asked to: libfyaml would, to standard error. */
Test(config, a_fault_prints_nothing)
{
    FILE *caught = tmpfile();
    int before = dup(STDERR_FILENO);
    fflush(stderr);
    cr_assert_geq(dup2(fileno(caught), STDERR_FILENO), 0);
    static const char *const texts[] = {"a: [1\n", "a: \"x\n",  "%YAML 3.0\n---\na: 1\n",
                                        "@\n",     "a: b: c\n", "\t\n- a\nb\n"};
    sg_config *config;
    for (size_t i = 0; i < SG_ARRAY_LEN(texts); i++)
        cr_assert_neq(sg_config_parse(texts[i], strlen(texts[i]), "c", NULL, 0, &config, NULL), SG_OK);
    fflush(stderr);
    dup2(before, STDERR_FILENO);
    close(before);
    cr_assert_eq(lseek(fileno(caught), 0, SEEK_END), 0);
    fclose(caught);
}

/* Valid files, broken at random: whatever comes out, nothing crashes, and a failure has a message of one line. */
Test(config, no_garbage_harms_the_reader)
{
    sg_seed seed = sg_seed_begin();
    static const char alphabet[] = "[]{}:,-?#&*!|>'\"%@`\n\t \\01ax\xff\xc3\xa9";
    sg_error err;
    for (int round = 0; round < 3000; round++) {
        char text[sizeof(everything)];
        memcpy(text, everything, sizeof(text));
        size_t n_bytes = sizeof(text) - 1;
        for (uint64_t i = sg_seed_below(&seed, 6); i > 0; i--)
            text[sg_seed_below(&seed, n_bytes)] = alphabet[sg_seed_below(&seed, sizeof(alphabet))];
        if (round % 3 == 0)
            n_bytes = sg_seed_below(&seed, n_bytes);
        sg_config *config = NULL;
        err = (sg_error){0};
        sg_status status = sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, &err);
        cr_assert(status == SG_OK || status == SG_CONFIG, "seed %lu round %d", seed.first, round);
        cr_assert_eq(status == SG_OK, config != NULL, "seed %lu round %d", seed.first, round);
        cr_assert_eq(status != SG_OK, strncmp(err.message, "c.yaml", 6) == 0, "seed %lu: %s", seed.first, err.message);
        cr_assert_null(strchr(err.message, '\n'), "seed %lu: %s", seed.first, err.message);
        sg_config_destroy(config);
    }
}

Test(config, a_large_file_that_is_no_cluster_file_is_refused_in_no_time)
{
    static const char *const pieces[] = {"[",         "{",  "- ", "a: ", "a: 1\n", "[],",
                                         "\"\\x41\"", "? ", "#",  " ",   "&a ",    "*a,"};
    for (size_t i = 0; i < SG_ARRAY_LEN(pieces); i++) {
        size_t n_bytes = 1000000, length = strlen(pieces[i]);
        char *text = malloc(n_bytes);
        for (size_t at = 0; at < n_bytes; at++)
            text[at] = pieces[i][at % length];
        sg_config *config = NULL;
        cr_assert_eq(sg_config_parse(text, n_bytes, "c.yaml", NULL, 0, &config, NULL), SG_CONFIG, "%s", pieces[i]);
        free(text);
    }
}
