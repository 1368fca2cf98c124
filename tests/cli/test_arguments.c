#include "worker/cli/arguments.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/folder.h"

TestSuite(arguments, .timeout = 20);

static bool flag;
static const char *value;
static const sg_arguments_option options[] = {{"--flag", "", "a flag", &flag, NULL},
                                              {"--value", "TEXT", "a value", NULL, &value}};
static const sg_arguments_command command = {
    .usage = "shardgrad test FILE", .summary = "Tests.", .options = options, .n_options = 2, .needs_file = true};

/* Parses "test" and up to 6 words after it. */
static sg_status parse(sg_arguments *arguments, sg_error *err, const char *words[6])
{
    char *argv[8] = {(char[]){"test"}};
    int argc = 1;
    for (int i = 0; i < 6 && words[i] != NULL; i++)
        argv[argc++] = (char *)(uintptr_t)words[i];
    flag = false;
    value = NULL;
    return sg_arguments_init(arguments, &command, argc, argv, err);
}

static char file[64];

static void write_file(void)
{
    strcpy(file, "/tmp/sg-arguments-XXXXXX");
    int fd = mkstemp(file);
    cr_assert(fd >= 0);
    close(fd);
    cr_assert_eq(sg_folder_write(file, "job: x\n", 7, NULL), SG_OK);
}

static void remove_file(void)
{
    unlink(file);
}

Test(arguments, file_options_and_flags_come_in_any_order, .init = write_file, .fini = remove_file)
{
    sg_arguments a;
    cr_assert_eq(parse(&a, NULL, (const char *[6]){"--value", "v", file, "--seed", "7", "--flag"}), SG_OK);
    cr_assert(flag);
    cr_assert_str_eq(value, "v");
    cr_assert_str_eq(a.flags.path, file);
    cr_assert_eq(a.config->seed, 7);
    sg_arguments_deinit(&a);
}

Test(arguments, a_wrong_line_is_usage_and_names_the_word, .init = write_file, .fini = remove_file)
{
    const struct {
        const char *words[6], *message;
    } cases[] = {{{"--flak", file}, "'--flak'"},
                 {{file, "other"}, "other"},
                 {{NULL}, "wanted a cluster file"},
                 {{file, "--value"}, "--value: wanted TEXT"}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        sg_arguments a;
        sg_error err;
        cr_assert_eq(parse(&a, &err, (const char **)(uintptr_t)cases[i].words), SG_USAGE);
        cr_assert(strstr(err.message, cases[i].message) != NULL, "%s", err.message);
        sg_arguments_deinit(&a);
    }
}

Test(arguments, a_missing_file_is_not_found)
{
    sg_arguments a;
    sg_error err;
    cr_assert_eq(parse(&a, &err, (const char *[6]){"/no/such/file.yaml"}), SG_NOT_FOUND);
    cr_assert(strstr(err.message, "/no/such/file.yaml") != NULL);
    sg_arguments_deinit(&a);
}
