#include "common/folder.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "common/address.h"

TestSuite(folder, .timeout = 20);
TestSuite(address, .timeout = 20);

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/sg-folder-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof(command), "rm -r %s", folder);
    cr_assert_eq(system(command), 0);
}

static size_t count_files(const char *path)
{
    size_t n = 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;)
        n += entry->d_name[0] != '.';
    if (dir != NULL)
        closedir(dir);
    return n;
}

static void read_text(const char *path, char out[64])
{
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    size_t n = fread(out, 1, 63, file);
    out[n] = '\0';
    fclose(file);
}

Test(folder, a_file_is_replaced_whole_and_nothing_is_left_beside_it, .init = make_folder, .fini = remove_folder)
{
    char *path = sg_xprintf("%s/a/b/file", folder), *parent = sg_xprintf("%s/a/b", folder), text[64];
    cr_assert_eq(sg_folder_write(path, "first text", 10, NULL), SG_OK);
    cr_assert_eq(sg_folder_write(path, "second", 6, NULL), SG_OK);
    read_text(path, text);
    cr_assert_str_eq(text, "second");
    cr_assert_eq(count_files(parent), 1);
    free(parent);
    free(path);
}

Test(folder, what_cannot_be_made_is_named, .init = make_folder, .fini = remove_folder)
{
    char *file = sg_xprintf("%s/file", folder), *below = sg_xprintf("%s/file/x", folder);
    sg_error err;
    cr_assert_eq(sg_folder_write(file, "x", 1, NULL), SG_OK);
    cr_assert_eq(sg_folder_make(file, &err), SG_NOT_FOUND);
    cr_assert(strstr(err.message, file) != NULL);
    cr_assert_eq(sg_folder_make(below, &err), SG_NOT_FOUND);
    cr_assert_eq(sg_folder_write(below, "x", 1, &err), SG_NOT_FOUND);
    cr_assert_eq(sg_folder_write(folder, "x", 1, &err), SG_NOT_FOUND, "a folder is not replaced by a file");
    cr_assert_eq(count_files(folder), 1, "nothing is left beside it");
    free(below);
    free(file);
}

Test(folder, a_log_is_appended_to, .init = make_folder, .fini = remove_folder)
{
    char text[64];
    for (int i = 0; i < 2; i++) {
        FILE *file;
        cr_assert_eq(sg_folder_open_log(folder, "ps-0", &file, NULL), SG_OK);
        fputs("line\n", file);
        fclose(file);
    }
    char *path = sg_xprintf("%s/log/ps-0.log", folder);
    read_text(path, text);
    cr_assert_str_eq(text, "line\nline\n");
    free(path);
}

static sg_config *config_with(const char *ps, const char *advertise)
{
    char *text =
        sg_xprintf("ps: [%s]\nadvertise: [%s]\nrun_dir: %s\nsecurity: {insecure: true}\n", ps, advertise, folder);
    sg_config *config;
    sg_error err = {0};
    cr_assert_eq(sg_config_parse(text, strlen(text), "test.yaml", NULL, 0, &config, &err), SG_OK, "%s", err.message);
    free(text);
    return config;
}

Test(address, an_entry_with_a_port_stands_for_itself, .init = make_folder, .fini = remove_folder)
{
    char found[SG_ADDRESS_BYTES];
    sg_config *config = config_with("0.0.0.0:7070, 0.0.0.0:7071", "a.example:7070, b.example:7071");
    cr_assert_eq(sg_address_find(config, 1, found, NULL), SG_OK);
    cr_assert_str_eq(found, "b.example:7071");
    cr_assert_eq(sg_address_find(config, 2, found, NULL), SG_CONFIG);
    sg_config_destroy(config);
}

Test(address, one_with_port_0_is_known_once_it_is_published, .init = make_folder, .fini = remove_folder)
{
    char found[SG_ADDRESS_BYTES];
    sg_error err;
    sg_config *config = config_with("127.0.0.1:0", "");
    cr_assert_eq(sg_address_find(config, 0, found, &err), SG_NOT_READY);
    cr_assert(strstr(err.message, "address/ps-0") != NULL, "%s", err.message);
    cr_assert_eq(sg_address_publish(config, 0, "127.0.0.1:4242", NULL), SG_OK);
    cr_assert_eq(sg_address_find(config, 0, found, NULL), SG_OK);
    cr_assert_str_eq(found, "127.0.0.1:4242");
    sg_address_withdraw(config, 0, "127.0.0.1:1");
    cr_assert_eq(sg_address_find(config, 0, found, NULL), SG_OK, "that of another ps stays");
    sg_address_withdraw(config, 0, "127.0.0.1:4242");
    cr_assert_eq(sg_address_find(config, 0, found, NULL), SG_NOT_READY);
    sg_config_destroy(config);
}
