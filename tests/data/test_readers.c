/* tests/data/test_readers.c - what holds for each format but IDX, and data that are made up. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/data/sets.h"
#include "worker/data/readers.h"

TestSuite(readers, .timeout = 20);

/* --- synthetic ------------------------------------------------------------------------------------------------ */

Test(readers, synthetic_data_is_a_function_of_shape_classes_and_seed)
{
    const char *text =
        "seed: 9\ndata: {format: synthetic, shape: [2, 3, 5], classes: 3, train_rows: 7, test_rows: 4}\n";
    sg_config *config = sg_sets_config_of(text), *again = sg_sets_config_of(text);
    again->data.train_rows = 5;
    sg_dataset *a = sg_sets_load(config), *b = sg_sets_load(again), *test = sg_sets_load_test(config, a);
    cr_assert(a->n_examples == 7 && test->n_examples == 4 && a->n_features == 30 && a->channels == 2);
    cr_assert(memcmp(a->bytes, b->bytes, 5 * 30) == 0, "more rows change none of the first");
    cr_assert(memcmp(a->bytes, test->bytes, 4 * 30) != 0);
    for (size_t i = 0; i < 7; i++)
        cr_assert(a->labels[i] == i % 3);
    again->seed = 10;
    sg_dataset_destroy(b);
    b = sg_sets_load(again);
    cr_assert(memcmp(a->bytes, b->bytes, 30) != 0);
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_dataset_destroy(test);
    sg_config_destroy(config);
    sg_config_destroy(again);
}

/* Examples of a class lie nearer to each other than to those of another: a model can learn them. */
Test(readers, synthetic_classes_can_be_told_apart)
{
    sg_config *config = sg_sets_config_of("data: {format: synthetic, shape: [1000], classes: 2, train_rows: 4}\n");
    sg_dataset *a = sg_sets_load(config);
    double alike = 0, different = 0;
    for (size_t f = 0; f < 1000; f++) {
        alike += fabs((double)a->bytes[f] - (double)a->bytes[2000 + f]);
        different += fabs((double)a->bytes[f] - (double)a->bytes[1000 + f]);
    }
    cr_assert(alike < 0.8 * different, "%g, %g", alike, different);
    sg_dataset_destroy(a);
    sg_config_destroy(config);
}

/* --- all ------------------------------------------------------------------------------------------------------ */

Test(readers, a_file_that_is_missing_or_cut_is_named)
{
    sg_config *config = sg_sets_config_with("csv", "/nonexistent/a.csv", "b", "");
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/nonexistent/a.csv: no such file"));
    sg_config_destroy(config);

    sg_files files = sg_files_make();
    const char *whole = sg_sets_write_text(&files, "1,2,0\n3,4,1\n5,6,0\n", true);
    uint8_t bytes[256];
    FILE *in = fopen(whole, "rb");
    size_t n_bytes = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    const char *cut = sg_files_write(&files, bytes, n_bytes - 12, false);
    config = sg_sets_config_with("csv", cut, cut, "");
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_DATA);
    cr_assert_not_null(strstr(err.message, "compressed data"), "%s", err.message);
    cr_assert_null(dataset);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

/* Without a writer, opening one to read waits for ever. */
Test(readers, a_fifo_is_refused_at_once)
{
    static const char *const formats[] = {"csv", "libsvm", "cifar10"};
    sg_files files = sg_files_make();
    const char *path = sg_sets_write_text(&files, "", false);
    cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    for (size_t i = 0; i < SG_ARRAY_LEN(formats); i++) {
        sg_config *config = sg_sets_config_with(formats[i], path, path, i == 1 ? ", shape: [4]" : "");
        sg_error err = {0};
        sg_dataset *dataset = NULL;
        cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_NOT_FOUND);
        cr_assert_not_null(strstr(err.message, "/0: is not a plain file"), "%s", err.message);
        sg_config_destroy(config);
    }
    sg_files_remove(&files);
}

Test(readers, a_folder_is_refused)
{
    sg_config *config = sg_sets_config_with("csv", "/tmp", "/tmp", "");
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/tmp: cannot be read: Is a directory"), "%s", err.message);
    sg_config_destroy(config);
}

Test(readers, a_test_set_of_another_width_is_refused)
{
    sg_files files = sg_files_make();
    const char *train = sg_sets_write_text(&files, "1,2,0\n", false),
               *test = sg_sets_write_text(&files, "1,0\n", false);
    sg_config *config = sg_sets_config_with("csv", train, test, "");
    sg_dataset *a = sg_sets_load(config), *b = NULL;
    sg_error err = {0};
    cr_assert(sg_dataset_load_test(config, a, &b, &err) == SG_DATA);
    cr_assert_not_null(strstr(err.message, "examples of 1 features, but those of"), "%s", err.message);
    cr_assert_null(b);
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(readers, a_line_longer_than_what_is_read_at_once_is_whole)
{
    enum { n_columns = 200000 };
    sg_files files = sg_files_make();
    char *text = sg_xcalloc(2 * n_columns + 2, 1);
    for (size_t i = 0; i < n_columns; i++) {
        text[2 * i] = (char)('0' + i % 10);
        text[2 * i + 1] = ',';
    }
    text[2 * n_columns] = '7';
    const char *path = sg_sets_write_text(&files, text, false);
    sg_config *config = sg_sets_config_with("csv", path, path, "");
    sg_dataset *a = sg_xcalloc(1, sizeof *a);
    cr_assert(sg_read_csv(config, false, a, NULL) == SG_OK);
    cr_assert(a->n_examples == 1 && a->n_features == n_columns && a->labels[0] == 7);
    for (size_t i = 0; i < n_columns; i++)
        cr_assert(a->reals[i] == (float)(i % 10));
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    free(text);
    sg_files_remove(&files);
}
