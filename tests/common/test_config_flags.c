#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/config.h"
#include "common/config_options.h"

TestSuite(config_flags, .timeout = 20);

#define MAX_ARGS 32

/* Splits a line at blanks, as a shell would do with a simple one, and reads its flags. */
typedef struct command {
    char text[512];
    char *argv[MAX_ARGS];
    int argc;
    sg_config_flags flags;
    sg_error err;
} command;

static sg_status read_line(command *line, const char *text)
{
    *line = (command){.argc = 0};
    snprintf(line->text, sizeof(line->text), "program %s", text);
    char *rest = line->text;
    for (char *word; (word = strsep(&rest, " ")) != NULL && line->argc < MAX_ARGS;)
        if (*word != '\0')
            line->argv[line->argc++] = word;
    return sg_config_flags_init(&line->flags, line->argc, line->argv, &line->err);
}

static sg_config *load(const char *text)
{
    command line;
    sg_config *config = NULL;
    sg_error err = {0};
    cr_assert_eq(read_line(&line, text), SG_OK, "%s", line.err.message);
    cr_assert_eq(sg_config_load(line.flags.path, line.flags.overrides, line.flags.n_overrides, &config, &err), SG_OK,
                 "%s", err.message);
    sg_config_flags_deinit(&line.flags);
    return config;
}

Test(config_flags, flags_of_common_keys_and_set_reach_the_configuration)
{
    sg_config *config = load("--mode async --workers 4 --seed=7 --run-dir /tmp/a --log-level warn --set train.batch=32 "
                             "--set model.hidden=[64,32] --set update.learning_rate=5e-2 --set linger=true");
    cr_assert_eq(config->update.mode, SG_MODE_ASYNC);
    cr_assert_eq(config->workers, 4u);
    cr_assert_eq(config->seed, 7u);
    cr_assert_str_eq(config->run_dir, "/tmp/a");
    cr_assert_eq(config->log_level, SG_LOG_WARN);
    cr_assert_eq(config->train.batch, 32u);
    cr_assert_eq(config->model.hidden.n, 2u);
    cr_assert_eq(config->model.hidden.items[1], 32u);
    cr_assert_eq(config->update.learning_rate, 0.05);
    cr_assert(config->linger);
    sg_config_destroy(config);
}

Test(config_flags, a_flag_overrides_the_file_and_the_last_one_wins)
{
    sg_config *config = load("--config configs/fashion-mnist.yaml --set train.epochs=9 --workers 3 --workers 5");
    cr_assert_str_eq(config->job, "fashion-mnist");
    cr_assert_eq(config->train.epochs, 9u);
    cr_assert_eq(config->workers, 5u);
    sg_config_destroy(config);
}

Test(config_flags, so_many_ps_means_loopback_whatever_the_file_advertises)
{
    sg_config *config = load("--config configs/fashion-mnist-hosts.yaml --ps 3");
    cr_assert_eq(config->ps.n, 3u);
    cr_assert_eq(config->advertise.n, 0u);
    for (size_t i = 0; i < config->ps.n; i++)
        cr_assert_str_eq(config->ps.items[i], "127.0.0.1:0");
    sg_config_destroy(config);
    config = load("--ps 1024");
    cr_assert_eq(config->ps.n, 1024u);
    sg_config_destroy(config);
}

Test(config_flags, text_on_the_command_line_is_taken_as_it_stands)
{
    sg_config *config = load("--run-dir 12 --set job=true --set data.test_images=[a:b");
    cr_assert_str_eq(config->run_dir, "12");
    cr_assert_str_eq(config->job, "true");
    cr_assert_str_eq(config->data.test_images, "[a:b");
    sg_config_destroy(config);
    config = load("--set run_dir= --set job=x");
    cr_assert_str_eq(config->run_dir, "runs/x");
    sg_config_destroy(config);
}

Test(config_flags, what_is_not_known_is_left_in_order)
{
    command line;
    cr_assert_eq(read_line(&line, "run a.yaml --workers 4 --index 3 --quiet --set seed=2 -- --mode async"), SG_OK);
    static const char *const rest[] = {"run", "a.yaml", "--index", "3", "--quiet", "--", "--mode", "async"};
    cr_assert_eq(line.flags.n_rest, (int)SG_ARRAY_LEN(rest));
    for (size_t i = 0; i < SG_ARRAY_LEN(rest); i++)
        cr_assert_str_eq(line.flags.rest[i], rest[i]);
    cr_assert_eq(line.flags.n_overrides, 2u);
    cr_assert_null(line.flags.path);
    sg_config_flags_deinit(&line.flags);
}

Test(config_flags, no_arguments_are_no_flags)
{
    sg_config_flags flags;
    cr_assert_eq(sg_config_flags_init(&flags, 0, NULL, NULL), SG_OK);
    cr_assert_eq(flags.n_rest, 0);
    cr_assert_eq(flags.n_overrides, 0u);
    sg_config_flags_deinit(&flags);
    sg_config_flags_deinit(&flags);
}

Test(config_flags, a_line_that_makes_no_sense_is_wrong_usage)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"--workers", "--workers: wanted a value after it"},
        {"--config", "--config: wanted a value after it"},
        {"--mode --ps 2", "--mode: wanted a value after it"},
        {"--set workers", "--set: found 'workers', wanted KEY=VALUE"},
        {"--set =2", "--set: found '=2', wanted KEY=VALUE"},
        {"--ps 0", "--ps: found '0', wanted a number from 1 to 1024"},
        {"--ps two", "--ps: found 'two', wanted a number from 1 to 1024"},
        {"--ps -1", "--ps: found '-1', wanted a number from 1 to 1024"},
        {"--ps=", "--ps: found '', wanted a number from 1 to 1024"},
        {"--ps 99999999999999999999", "--ps: found '99999999999999999999', wanted a number from 1 to 1024"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        command line;
        cr_assert_eq(read_line(&line, rows[i].text), SG_USAGE, "%s", rows[i].text);
        cr_assert_eq(strncmp(line.err.message, rows[i].message, strlen(rows[i].message)), 0, "%s\nsaid   %s\nwanted %s",
                     rows[i].text, line.err.message, rows[i].message);
        sg_config_flags_deinit(&line.flags);
        sg_config_flags_deinit(&line.flags);
    }
}

Test(config_flags, a_fault_names_the_flag_as_it_was_written)
{
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"--mode asink", "--mode: 'asink' is not one of sync, async, ssp (did you mean async?)"},
        {"--set update.mode=asink", "--set update.mode: 'asink' is not one of sync, async, ssp (did you mean async?)"},
        {"--workers abc", "--workers: found 'abc', wanted a whole number from 1 to 1024"},
        {"--set workers=", "--set workers: found nothing, wanted a whole number from 1 to 1024"},
        {"--set workers=\"2\"", "--set workers: found the text \"2\", wanted a whole number"},
        {"--set updat.mode=sync", "--set updat.mode: is not a key (did you mean update.mode?)"},
        {"--set update={}", "--set update: is a map: set its keys one by one, such as --set update.KEY=VALUE"},
        {"--set model.hidden=[64", "--set model.hidden: found '[64', which is not valid YAML"},
        {"--set model.hidden=[64,x]", "--set model.hidden: found 'x', wanted a whole number"},
        {"--set ps=[a:1,a:1]", "--set ps: entries 0 and 1 are both a:1"},
        {"--set message_bytes=64KiB", "--set message_bytes: found 65536, and slice_bytes is 524288"},
        {"--config configs/fashion-mnist.yaml --set update.rule=nesterov --set update.momentum=0",
         "--set update.momentum: rule is nesterov and momentum is 0"},
        {"--config configs/fashion-mnist.yaml --set max_workers=1", "--set max_workers: found 1, and workers is 2"},
        {"--set job=a/b", "--set job: found the text \"a/b\", wanted a name"},
        {"--run-dir \xff", "--run-dir: found the text \"?\", wanted a line"},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        command line;
        sg_config *config = NULL;
        sg_error err = {0};
        cr_assert_eq(read_line(&line, rows[i].text), SG_OK, "%s", rows[i].text);
        cr_assert_eq(sg_config_load(line.flags.path, line.flags.overrides, line.flags.n_overrides, &config, &err),
                     SG_CONFIG, "%s", rows[i].text);
        cr_assert_null(config);
        cr_assert_eq(strncmp(err.message, rows[i].message, strlen(rows[i].message)), 0, "%s\nsaid   %s\nwanted %s",
                     rows[i].text, err.message, rows[i].message);
        sg_config_flags_deinit(&line.flags);
    }
}

Test(config_flags, help_names_every_flag)
{
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    sg_config_flags_help(out);
    fclose(out);
    static const char *const flags[] = {"--config FILE", "--set KEY=VALUE", "--mode MODE", "--ps N",
                                        "--workers N",   "--run-dir DIR",   "--seed N",    "--log-level LEVEL"};
    for (size_t i = 0; i < SG_ARRAY_LEN(flags); i++)
        cr_assert_not_null(strstr(text, flags[i]), "%s", flags[i]);
    free(text);
}

Test(config_flags, an_address_is_split_into_host_and_port)
{
    char host[32];
    uint16_t port = 0;
    cr_assert_eq(sg_config_split_address("node1.lan:5000", host, sizeof(host), &port, NULL), SG_OK);
    cr_assert_str_eq(host, "node1.lan");
    cr_assert_eq(port, 5000);
    cr_assert_eq(sg_config_split_address("[::1]:0", host, sizeof(host), &port, NULL), SG_OK);
    cr_assert_str_eq(host, "::1");
    cr_assert_eq(port, 0);
    cr_assert_eq(sg_config_split_address("a:65535", host, 2, &port, NULL), SG_OK);
    cr_assert_eq(port, 65535);
}

Test(config_flags, an_address_that_cannot_be_split_changes_nothing)
{
    static const char *const bad[] = {"",      "a",    ":1",   "a:",     "a:x",     "a:65536", "a:00",
                                      "a:1 ",  " a:1", "a:+1", "a:-1",   "a b:1",   "a:1:2",   "::1:2",
                                      "[::1]", "[::1", "[]:1", "[::1]1", "[a b]:1", "a/b:1",   "a:123456789"};
    for (size_t i = 0; i < SG_ARRAY_LEN(bad); i++) {
        char host[32] = "before";
        uint16_t port = 7;
        sg_error err = {0};
        cr_assert_eq(sg_config_split_address(bad[i], host, sizeof(host), &port, &err), SG_CONFIG, "'%s'", bad[i]);
        cr_assert_str_eq(host, "before");
        cr_assert_eq(port, 7);
        cr_assert_not_null(strstr(err.message, "wanted"), "%s", err.message);
    }
    char host[4] = "abc";
    uint16_t port = 7;
    cr_assert_eq(sg_config_split_address("abcd:1", host, sizeof(host), &port, NULL), SG_CONFIG, "no room for it");
    cr_assert_eq(port, 7);
    char *far = calloc(400, 1);
    memset(far, 'a', 300);
    strcat(far, ":1");
    char room[400];
    cr_assert_eq(sg_config_split_address(far, room, sizeof(room), &port, NULL), SG_CONFIG, "no host is so long");
    free(far);
}
