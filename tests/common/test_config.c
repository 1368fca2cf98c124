#include <criterion/criterion.h>
#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/config_options.h"
#include "common/workers.h"
#include "config_fixture.h"
#include "tests/support/seed.h"

TestSuite(config, .timeout = 20);

/* --- what is read --------------------------------------------------------------------------------------------- */

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
    cr_assert_eq(config->min_workers, 1u);
    cr_assert_eq(config->on_worker_loss, SG_WORKER_LOSS_CONTINUE);
    cr_assert_eq(config->threads, 1u);
    cr_assert_eq(config->rpc_threads, 1u);
    cr_assert_eq(config->connections, 2u);
    cr_assert_eq(config->slice_bytes, 524288u);
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
    cr_assert_eq(config->update.staleness, 3);
    cr_assert_eq(config->update.backup_workers, 0);
    cr_assert_eq(config->update.rule, SG_RULE_SGD);
    cr_assert_eq(config->update.schedule, SG_SCHEDULE_CONSTANT);
    cr_assert_eq(config->update.warmup_steps, 0u);
    cr_assert_eq(config->update.base_batch, 0u);
    cr_assert_eq(config->update.non_finite, SG_NON_FINITE_SKIP);
    cr_assert_eq(config->train.batch, 128u);
    cr_assert_eq(config->train.epochs, 5u);
    cr_assert_eq(config->train.steps, 0u);
    cr_assert_eq(config->train.test_every_steps + config->train.test_every_epochs, 0u);
    cr_assert_eq(config->train.label_smoothing, 0);
    cr_assert_eq(config->train.backend, SG_BACKEND_AUTO);
    cr_assert_str_eq(config->model.name, "mlp");
    cr_assert_eq(config->model.hidden.n, 2u);
    cr_assert_eq(config->model.hidden.items[1], 512u);
    cr_assert_str_eq(config->data.train_images, "");
    cr_assert_eq(config->data.format, SG_DATA_IDX);
    cr_assert_eq(config->data.classes, 10u);
    cr_assert_eq(config->data.train.n + config->data.test.n + config->data.shape.n, 0u);
    cr_assert_eq(config->data.first_label + config->data.label_column, 0u);
    cr_assert_not(config->data.header || config->data.flip);
    cr_assert_eq(config->data.crop, 0u);
    cr_assert(config->data.train_rows == 10000u && config->data.test_rows == 2000u);
    sg_config_destroy(config);
}

Test(config, every_key_reaches_its_field)
{
    sg_config *config = config_parsed(config_everything);
    cr_assert_str_eq(config->job, "a.b-c_1");
    cr_assert_eq(config->seed, UINT64_MAX);
    cr_assert_str_eq(config->ps.items[1], "[fe80::1%eth0]:5001");
    cr_assert_eq(config->advertise.n, 2u);
    cr_assert_str_eq(config->advertise.items[1], "node2:5001");
    cr_assert_eq(config->workers, 3u);
    cr_assert_eq(config->max_workers, SG_MAX_WORKERS);
    cr_assert_eq(config->min_workers, 2u);
    cr_assert_eq(config->on_worker_loss, SG_WORKER_LOSS_ABORT);
    cr_assert_eq(config->threads, 8u);
    cr_assert_eq(config->rpc_threads, 2u);
    cr_assert_eq(config->connections, 16u);
    cr_assert_eq(config->slice_bytes, 65536u);
    cr_assert_eq(config->message_bytes, 4194304u);
    cr_assert_eq(config->contribution_bytes, 104857600u);
    cr_assert_eq(config->lease_ms, 60001u);
    cr_assert_eq(config->park_ms, 60000u);
    cr_assert_eq(config->warn_after_ms, 1u);
    cr_assert_eq(config->start_timeout_ms, 86400000u);
    cr_assert_eq(config->shutdown_grace_ms, 17u);
    cr_assert(config->linger);
    cr_assert_str_eq(config->run_dir, "it's \"here\" \\ #1: \xc3\xa9");
    cr_assert_eq(config->log_level, SG_LOG_DEBUG);
    cr_assert_eq(config->update.mode, SG_MODE_ASYNC);
    cr_assert_eq(config->update.staleness, 7);
    cr_assert_eq(config->update.backup_workers, 1);
    cr_assert_eq(config->update.rule, SG_RULE_ADAM);
    cr_assert_eq(config->update.learning_rate, 1e-3);
    cr_assert_eq(config->update.base_batch, 256u);
    cr_assert_eq(config->update.momentum, 0);
    cr_assert_eq(config->update.beta1, 0.5);
    cr_assert_eq(config->update.beta2, 0.1234567890123456789);
    cr_assert_eq(config->update.epsilon, 1);
    cr_assert_eq(config->update.weight_decay, 5e-324);
    cr_assert_eq(config->update.trust, 1);
    cr_assert_eq(config->update.wire, SG_WIRE_BF16);
    cr_assert_eq(config->update.clip_global_norm, 0);
    cr_assert_eq(config->update.schedule, SG_SCHEDULE_COSINE);
    cr_assert_eq(config->update.warmup_steps, 9u);
    cr_assert_eq(config->update.decay_steps, 10u);
    cr_assert_eq(config->update.decay_factor, 0.30000000000000004);
    cr_assert_eq(config->update.non_finite, SG_NON_FINITE_APPLY);
    cr_assert_eq(config->train.batch, 129u);
    cr_assert_eq(config->train.epochs, 1000000u);
    cr_assert_eq(config->train.steps, 20u);
    cr_assert_eq(config->train.test_every_steps, 5u);
    cr_assert_eq(config->train.test_every_epochs, 6u);
    cr_assert_eq(config->train.label_smoothing, 0.125);
    cr_assert_eq(config->train.backend, SG_BACKEND_CUDA);
    cr_assert_eq(config->model.hidden.n, 0u);
    cr_assert_eq(config->model.layers.n, 4u);
    cr_assert_str_eq(config->model.layers.items[0], "conv2d 4 window 3");
    cr_assert_str_eq(config->model.layers.items[3], "12");
    cr_assert_eq(config->model.width, 24u);
    cr_assert_str_eq(config->data.train_labels, "/a/b.gz");
    cr_assert_str_eq(config->data.test_images, "true");
    cr_assert_str_eq(config->data.test_labels, "07");
    cr_assert_eq(config->data.format, SG_DATA_RAW);
    cr_assert(config->data.shape.n == 3 && config->data.shape.items[2] == 16);
    cr_assert_eq(config->data.classes, 65536u);
    cr_assert_eq(config->data.first_label, 1u);
    cr_assert_eq(config->data.label_column, 5u);
    cr_assert(config->data.header && config->data.flip);
    cr_assert_eq(config->data.crop, 15u);
    cr_assert_eq(config->data.train_rows, 7u);
    cr_assert_eq(config->data.test_rows, UINT32_MAX);
    sg_config_destroy(config);
}

Test(config, what_takes_norms_is_for_sync)
{
    sg_config *config = config_parsed("update: {rule: lars, clip_global_norm: 2.5, trust: 0.01}\n");
    cr_assert_eq(config->update.rule, SG_RULE_LARS);
    cr_assert_eq(config->update.clip_global_norm, 2.5);
    cr_assert_eq(config->update.trust, 0.01);
    sg_config_destroy(config);
    config = config_parsed("update: {rule: lamb}\n");
    cr_assert_eq(config->update.rule, SG_RULE_LAMB);
    cr_assert_eq(config->update.trust, 0.001);
    sg_config_destroy(config);
}

Test(config, a_text_by_itself_is_a_list_of_one)
{
    static const char text[] = "data: {format: csv, train: a b.csv, test: [c.csv]}\n";
    const sg_config_override override = {"data.test", "d.csv", "--set data.test"};
    sg_error err = {0};
    sg_config *config = NULL;
    cr_assert(sg_config_parse(text, strlen(text), "c.yaml", &override, 1, &config, &err) == SG_OK, "%s", err.message);
    cr_assert(config->data.train.n == 1 && config->data.test.n == 1);
    cr_assert_str_eq(config->data.train.items[0], "a b.csv");
    cr_assert_str_eq(config->data.test.items[0], "d.csv");
    sg_config_destroy(config);
}

Test(config, the_text_above_names_every_key_of_the_table)
{
    for (size_t i = 0; i < sg_config_option_count(); i++) {
        const char *key = sg_config_option_at(i)->key;
        const char *dot = strchr(key, '.');
        char line[64];
        snprintf(line, sizeof(line), "%s:", dot != NULL ? dot + 1 : key);
        cr_assert_not_null(strstr(config_everything, line), "%s is not tested", key);
        if (dot != NULL) {
            snprintf(line, sizeof(line), "%.*s", (int)(dot - key), key);
            cr_assert(sg_config_option_is_section(line), "%s lies in no section", key);
        }
    }
}

/* --- what is printed ------------------------------------------------------------------------------------------ */

static void round_trip(const char *text)
{
    sg_config *first = config_parsed(text);
    char *printed = print(first);
    sg_config *second = config_parsed(printed);
    char *again = print(second);
    cr_assert_str_eq(printed, again);
    cr_assert_str_eq(first->run_dir, second->run_dir);
    cr_assert_str_eq(first->data.test_images, second->data.test_images);
    cr_assert_eq(memcmp(&first->update, &second->update, sizeof(first->update)), 0, "doubles keep every bit");
    cr_assert_eq(first->model.hidden.n, second->model.hidden.n);
    cr_assert_eq(first->model.layers.n, second->model.layers.n);
    for (size_t i = 0; i < first->model.layers.n; i++)
        cr_assert_str_eq(first->model.layers.items[i], second->model.layers.items[i]);
    cr_assert_eq(first->ps.n, second->ps.n);
    free(printed);
    free(again);
    sg_config_destroy(first);
    sg_config_destroy(second);
}

Test(config, what_is_printed_loads_to_the_same)
{
    round_trip("{}");
    round_trip(config_everything);
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
        sg_config *again = config_parsed(printed);
        cr_assert_str_eq(again->data.test_images, texts[i]);
        sg_config_destroy(again);
        sg_config_destroy(config);
        free(printed);
    }
}

Test(config, what_was_changed_is_a_copy_of_its_own)
{
    static const sg_config_override changes[] = {{"update.learning_rate", "0.125", "update.learning_rate"},
                                                 {"update.mode", "async", "update.mode"}},
                                    wrong = {"update.momentum", "2", "update.momentum"},
                                    another = {"seed", "3", "seed"};
    sg_config *from = config_parsed(config_everything), *copy = sg_config_copy(from), *changed = NULL;
    sg_error err = {0};
    char *before = print(from);
    cr_assert_eq(sg_config_change(from, changes, SG_ARRAY_LEN(changes), &changed, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_config_change(from, &wrong, 1, &changed, &err), SG_CONFIG);
    cr_assert_eq(sg_config_change(from, &another, 1, &changed, &err), SG_CONFIG);
    char *unchanged = print(from);
    cr_assert_str_eq(before, unchanged);
    sg_config_destroy(from);
    cr_assert_eq(changed->update.mode, SG_MODE_ASYNC);
    cr_assert_float_eq(changed->update.learning_rate, 0.125, 0);
    changed->update.mode = copy->update.mode;
    changed->update.learning_rate = copy->update.learning_rate;
    char *copied = print(copy), *after = print(changed);
    cr_assert_str_eq(before, copied);
    cr_assert_str_eq(before, after, "only what was asked for is another");
    sg_config_destroy(copy);
    sg_config_destroy(changed);
    free(before);
    free(unchanged);
    free(copied);
    free(after);
}

Test(config, a_text_in_quotes_is_on_the_command_line_what_it_is_in_the_file)
{
    static const char *const texts[][2] = {{"\"\"", ""},        {"''", ""},      {"\"a b\"", "a b"},
                                           {"'it''s'", "it's"}, {"\"a", "\"a"},  {"a \"b\"", "a \"b\""},
                                           {"\"", "\""},        {"'a\"", "'a\""}};
    for (size_t i = 0; i < SG_ARRAY_LEN(texts); i++) {
        sg_config_override override = {"data.test_images", texts[i][0], "--set data.test_images"};
        sg_config *config = NULL;
        sg_error err = {0};
        cr_assert_eq(sg_config_load(NULL, &override, 1, &config, &err), SG_OK, "%s", err.message);
        cr_assert_str_eq(config->data.test_images, texts[i][1]);
        sg_config_destroy(config);
    }
}

Test(config, any_number_keeps_its_bits_when_printed)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 300; round++) {
        double value = (double)sg_seed_below(&seed, UINT64_MAX) / 1.8446744073709552e19;
        char text[64];
        snprintf(text, sizeof(text), "update: {weight_decay: %.17g}", value);
        sg_config *config = config_parsed(text);
        cr_assert_eq(config->update.weight_decay, value, "seed %lu: %s", seed.first, text);
        char *printed = print(config);
        sg_config *again = config_parsed(printed);
        cr_assert_eq(again->update.weight_decay, value, "seed %lu: %s", seed.first, text);
        free(printed);
        sg_config_destroy(config);
        sg_config_destroy(again);
    }
}

Test(config, numbers_are_printed_in_their_shortest_form)
{
    sg_config *config =
        config_parsed("update: {learning_rate: 0.0500, beta1: 0.30, weight_decay: -0}\nslice_bytes: 2048\n");
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
    sg_config *config = config_parsed("update: {learning_rate: 0.25}");
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
    sg_config *config = config_parsed(
        "ps: [127.0.0.1:1, 127.0.0.2:2]\nslice_bytes: 65536\nthreads: 7\nupdate: {learning_rate: 5e-2}\n");
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
                                         "model.layers=[]\n",
                                         "model.width=64\n",
                                         "model.name=mlp\n",
                                         "data.format=idx\n",
                                         "data.shape=[]\n",
                                         "data.classes=10\n"};
    for (size_t i = 0; i < SG_ARRAY_LEN(wanted); i++)
        cr_assert_not_null(strstr(all.text, wanted[i]), "%s is missing in\n%s", wanted[i], all.text);
    static const char *const local[] = {"\nthreads", "advertise", "run_dir",           "lease_ms",   "park_ms",
                                        "log_level", "linger",    "data.train_images", "data.train="};
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

static void refuse_note(void *user, const char *note)
{
    (void)user;
    cr_assert(false, "%s", note);
}

Test(config, the_example_files_load)
{
    static const char *const paths[] = {"configs/fashion-mnist.yaml",
                                        "configs/fashion-mnist-lenet.yaml",
                                        "configs/fashion-mnist-resnet18.yaml",
                                        "configs/fashion-mnist-checkpoints.yaml",
                                        "configs/fashion-mnist-hosts.yaml",
                                        "configs/cifar10.yaml",
                                        "configs/synthetic.yaml"};
    for (size_t i = 0; i < SG_ARRAY_LEN(paths); i++) {
        sg_config *config = NULL;
        sg_error err = {0};
        cr_assert_eq(sg_config_load(paths[i], NULL, 0, &config, &err), SG_OK, "%s", err.message);
        cr_assert_eq(config->ps.n, 2u);
        cr_assert_eq(config->model.hidden.n, 2u);
        cr_assert_eq(config->update.rule, SG_RULE_MOMENTUM);
        sg_config_each_idle(config, refuse_note, NULL);
        sg_config_destroy(config);
    }
}

static sg_config *with_model(const char *text, const char *name)
{
    sg_config *config = NULL;
    sg_error err = {0};
    const sg_config_override override = {.key = "model.name", .value = name, .source = "--set model.name"};
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", &override, 1, &config, &err), SG_OK, "%s", err.message);
    return config;
}

Test(config, another_model_on_the_command_line_does_without_what_the_file_says_for_its_own)
{
    sg_config *config = with_model("model: {name: mlp, hidden: [7]}\n", "lenet");
    cr_assert_eq(config->model.hidden.n, 2u, "as if the file had not said it");
    char *printed = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&printed, &n_bytes);
    sg_config_print(config, out);
    fclose(out);
    cr_assert_not_null(strstr(printed, "  name: lenet\n  # hidden: [512, 512]\n  # layers: []\n  # width: 64\n"), "%s",
                       printed);
    sg_config_destroy(config_parsed(printed));
    free(printed);
    sg_config_destroy(config);
    config = with_model("model: {name: lenet}\n", "mlp");
    cr_assert_eq(config->model.hidden.n, 2u);
    sg_config_destroy(config);
}

Test(config, another_format_on_the_command_line_does_without_the_files_of_the_first)
{
    const char *text = "data: {train_images: a, train_labels: b, classes: 4}\n";
    const sg_config_override overrides[] = {{.key = "data.format", .value = "synthetic", .source = "--set data.format"},
                                            {.key = "data.shape", .value = "[4]", .source = "--set data.shape"}};
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", overrides, 2, &config, &err), SG_OK, "%s", err.message);
    cr_assert_str_eq(config->data.train_images, "");
    cr_assert_eq(config->data.classes, 4u, "every format has classes");
    sg_config_destroy(config);
}

static void expect_located(const sg_config *config, sg_status status, const char *message, const char *wanted)
{
    sg_error err = {0};
    cr_assert_eq(sg_config_locate(config, sg_error_set(&err, status, "%s", message), &err), status);
    cr_assert_str_eq(err.message, wanted);
}

Test(config, what_is_found_wrong_after_loading_is_told_with_its_place)
{
    const char *text =
        "seed: 1\nmodel:\n  name: layers\n  layers:\n    - flatten\n    - dense 10\ndata: {classes: 2}\n";
    const sg_config_override override = {.key = "data.crop", .value = "3", .source = "--set data.crop"};
    sg_config *config = NULL, *copy;
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", &override, 1, &config, NULL), SG_OK);
    expect_located(config, SG_CONFIG, "model.layers[1]: no", "c.yaml:6:7: model.layers[1]: no");
    expect_located(config, SG_CONFIG, "model.layers[7]: no", "c.yaml:5:5: model.layers[7]: no");
    expect_located(config, SG_CONFIG, "model.layers: no", "c.yaml:5:5: model.layers: no");
    expect_located(config, SG_CONFIG, "data.classes is 2", "c.yaml:7:17: data.classes is 2");
    expect_located(config, SG_CONFIG, "data.crop: is large", "--set data.crop: is large");
    expect_located(config, SG_CONFIG, "data.crop is large", "--set data.crop: data.crop is large");
    expect_located(config, SG_CONFIG, "workers: no", "c.yaml: workers: no");
    expect_located(config, SG_CONFIG, "data.csv:3: no", "data.csv:3: no");
    expect_located(config, SG_DATA, "seed: no", "seed: no");
    copy = sg_config_copy(config);
    expect_located(copy, SG_CONFIG, "seed: no", "seed: no");
    sg_config_destroy(copy);
    sg_config_destroy(config);
}

/* --- what has no effect --------------------------------------------------------------------------------------------
 */

static void add_note(void *user, const char *note)
{
    char *notes = user;
    const size_t length = strlen(notes);
    cr_assert_lt(length + strlen(note) + 2, 2048);
    sprintf(notes + length, "%s\n", note);
}

static void expect_idle(const char *text, const sg_config_override *overrides, size_t n, const char *wanted)
{
    char notes[2048] = "";
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "c.yaml", overrides, n, &config, &err), SG_OK, "%s", err.message);
    sg_config_each_idle(config, add_note, notes);
    cr_assert_str_eq(notes, wanted, "%s", text);
    sg_config_destroy(config);
}

Test(config, what_was_given_and_has_no_effect_is_told_with_its_place)
{
    expect_idle(
        "seed: 1\nupdate:\n  momentum: 0.5\n", NULL, 0,
        "c.yaml:3:13: update.momentum has no effect while update.rule is sgd: it is for momentum, nesterov, lars\n");
    const sg_config_override momentum = {.key = "update.momentum", .value = "0.5", .source = "--set update.momentum"};
    expect_idle("update: {rule: adam}\n", &momentum, 1,
                "--set update.momentum has no effect while update.rule is adam: it is for momentum, nesterov, lars\n");
    expect_idle("update: {rule: lars}\n", &momentum, 1, "");
    expect_idle("update: {rule: adamw, beta1: 0.5, beta2: 0.5, epsilon: 0.5}\n", NULL, 0, "");
    expect_idle("update: {rule: rmsprop, beta1: 0.5, beta2: 0.5, epsilon: 0.5}\n", NULL, 0,
                "c.yaml:1:32: update.beta1 has no effect while update.rule is rmsprop: it is for adam, adamw, lamb\n");
    expect_idle("update: {rule: adagrad, beta2: 0.5, epsilon: 0.5}\n", NULL, 0,
                "c.yaml:1:32: update.beta2 has no effect while update.rule is adagrad: it is for adam, adamw, lamb, "
                "rmsprop\n");
    expect_idle("update: {epsilon: 0.5}\n", NULL, 0,
                "c.yaml:1:19: update.epsilon has no effect while update.rule is sgd: it is for adam, adamw, lamb, "
                "rmsprop, adagrad\n");
    expect_idle("update: {decay_steps: 5, decay_factor: 0.5}\n", NULL, 0,
                "c.yaml:1:23: update.decay_steps has no effect while update.schedule is constant: it is for step, "
                "cosine\n"
                "c.yaml:1:40: update.decay_factor has no effect while update.schedule is constant: it is for step\n");
    expect_idle("update: {schedule: step, decay_steps: 5, decay_factor: 0.5}\n", NULL, 0, "");
    expect_idle("update: {mode: ssp, staleness: 1}\n", NULL, 0, "");
    expect_idle("update: {backup_workers: 1}\n", NULL, 0, "");
    expect_idle(config_everything, NULL, 0,
                "c.yaml:27:14: update.staleness has no effect while update.mode is async: it is for ssp\n"
                "c.yaml:28:19: update.backup_workers has no effect while update.mode is async: it is for sync\n"
                "c.yaml:32:13: update.momentum has no effect while update.rule is adam: it is for momentum, nesterov, "
                "lars\n"
                "c.yaml:37:10: update.trust has no effect while update.rule is adam: it is for lars\n"
                "c.yaml:43:17: update.decay_factor has no effect while update.schedule is cosine: it is for step\n");
}

Test(config, a_default_that_was_given_is_not_told_of_whatever_it_is_for)
{
    expect_idle("seed: 2\n", NULL, 0, "");
    expect_idle(
        "update: {staleness: 3, backup_workers: 0, momentum: .90, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, trust: "
        "1e-3, decay_steps: 0, decay_factor: 0.10}\n",
        NULL, 0, "");
}

Test(config, what_has_no_effect_is_kept_printed_and_compared_as_ever)
{
    sg_config *config = config_parsed("update: {momentum: 0.5}\n"), *changed = NULL;
    cr_assert_eq(config->update.momentum, 0.5);
    char *printed = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&printed, &n_bytes);
    sg_config_print(config, out);
    fclose(out);
    cr_assert_not_null(strstr(printed, "\n  momentum: 0.5\n"), "%s", printed);
    free(printed);
    const sg_config_override rule = {.key = "update.rule", .value = "momentum", .source = "update.rule"};
    cr_assert_eq(sg_config_change(config, &rule, 1, &changed, NULL), SG_OK);
    cr_assert_eq(changed->update.momentum, 0.5, "for a rule that comes later");
    char notes[2048] = "";
    sg_config_each_idle(changed, add_note, notes); /* nobody gave it: it is a copy */
    cr_assert_str_eq(notes, "");
    sg_config_destroy(changed);
    sg_config_destroy(config);
}
