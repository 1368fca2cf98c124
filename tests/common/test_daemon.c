#include <criterion/criterion.h>
#include <string.h>

#include "common/daemon.h"

TestSuite(daemon, .timeout = 20);

#define MAX_WORDS 12

/* Takes a command line of words that are divided by spaces. */
static sg_status take(const char *line, sg_daemon *daemon, sg_error *err)
{
    static char text[256];
    static char *argv[MAX_WORDS + 1];
    int argc = 0;
    snprintf(text, sizeof text, "shardgrad-ps %s", line);
    for (char *word = strtok(text, " "); word != NULL && argc < MAX_WORDS; word = strtok(NULL, " "))
        argv[argc++] = word;
    return sg_daemon_init(daemon, "shardgrad-ps", argc, argv, err);
}

Test(daemon, words_are_taken_apart)
{
    sg_daemon d;
    cr_assert_eq(take("--config c.yaml --index 3 --coordinator a:1 --parent 7", &d, NULL), SG_OK);
    cr_assert_str_eq(d.flags.path, "c.yaml");
    cr_assert_str_eq(d.coordinator, "a:1");
    cr_assert_str_eq(d.parent, "7");
    uint32_t index = 0;
    cr_assert_eq(sg_daemon_index(&d, 4, "max_workers", &index, NULL), SG_OK);
    cr_assert_eq(index, 3);
    cr_assert(!d.help && !d.version);
    sg_daemon_deinit(&d);
}

Test(daemon, a_wrong_word_is_wrong_usage)
{
    static const char *const lines[] = {"--nope", "--index", "--coordinator foo", "fashion.yaml"};
    for (size_t i = 0; i < SG_ARRAY_LEN(lines); i++) {
        sg_daemon d;
        sg_error err;
        cr_assert_eq(take(lines[i], &d, &err), SG_USAGE, "%s", lines[i]);
        cr_assert_gt(strlen(err.message), 0);
        sg_daemon_deinit(&d);
    }
}

Test(daemon, an_index_out_of_range_names_its_bound)
{
    sg_daemon d;
    sg_error err;
    uint32_t index = 77;
    cr_assert_eq(take("--index 4", &d, &err), SG_OK);
    cr_assert_eq(sg_daemon_index(&d, 4, "max_workers", &index, &err), SG_CONFIG);
    cr_assert_str_eq(err.message, "--index 4: max_workers is 4, so the highest index is 3");
    cr_assert_eq(index, 77);
    sg_daemon_deinit(&d);
    static const char *const lines[] = {"--index x", "--index -1", "--index 1x", "--index 99999999999999999999", ""};
    for (size_t i = 0; i < SG_ARRAY_LEN(lines); i++) {
        cr_assert_eq(take(lines[i], &d, &err), SG_OK);
        cr_assert_eq(sg_daemon_index(&d, 4, "max_workers", &index, &err), SG_USAGE, "'%s'", lines[i]);
        sg_daemon_deinit(&d);
    }
}

Test(daemon, without_a_file_it_says_so)
{
    sg_daemon d;
    sg_error err;
    sg_config *config;
    cr_assert_eq(take("--index 0", &d, &err), SG_OK);
    cr_assert_eq(sg_daemon_load(&d, &config, &err), SG_USAGE);
    cr_assert(strstr(err.message, "--config"));
    sg_daemon_deinit(&d);
}
