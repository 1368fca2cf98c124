/* tests/data/test_shape.c - the shape of an example, for which as little is read as the format allows. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "tests/data/files.h"
#include "worker/data/dataset.h"

TestSuite(shape, .timeout = 20);

/* `train` and, below, `shape` stand for the two ways to read: NULL for what fails. */
static sg_status read_both(const char *yaml, sg_dataset **train, sg_dataset **shape, sg_error *err)
{
    sg_error first = {0};
    sg_config *config = NULL;
    cr_assert(sg_config_parse(yaml, strlen(yaml), "c.yaml", NULL, 0, &config, &first) == SG_OK, "%s", first.message);
    *train = *shape = NULL;
    const sg_status status = sg_dataset_load_train(config, train, &first);
    cr_assert(sg_dataset_load_shape(config, shape, err) == status, "%d; %s", (int)status, err->message);
    cr_assert(status == SG_OK || strcmp(first.message, err->message) == 0, "'%s', '%s'", first.message, err->message);
    sg_config_destroy(config);
    return status;
}

static void expect_same_shape(const char *yaml, bool without_examples)
{
    sg_error err = {0};
    sg_dataset *train, *shape;
    cr_assert(read_both(yaml, &train, &shape, &err) == SG_OK, "%s", err.message);
    cr_assert(shape->channels == train->channels && shape->height == train->height && shape->width == train->width);
    cr_assert(shape->n_features == train->n_features && shape->n_classes == train->n_classes);
    if (without_examples)
        cr_assert(shape->labels == NULL && shape->bytes == NULL && shape->reals == NULL);
    sg_dataset_destroy(train);
    sg_dataset_destroy(shape);
}

/* Both ways with the same message, which holds `part`. */
static void expect_refused(const char *yaml, sg_status wanted, const char *part)
{
    sg_error err = {0};
    sg_dataset *train, *shape;
    cr_assert(read_both(yaml, &train, &shape, &err) == wanted, "%s", part);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    cr_assert(train == NULL && shape == NULL);
}

Test(shape, of_synthetic_data_takes_no_example)
{
    expect_same_shape("data: {format: synthetic, shape: [3, 5, 7], train_rows: 4}\n", true);
    expect_same_shape("data: {format: synthetic, shape: [6], classes: 3, train_rows: 4}\n", true);
    static const char yaml[] = "data: {format: synthetic, shape: [4], train_rows: 4294967295}\n";
    sg_config *config = NULL;
    sg_dataset *shape;
    cr_assert(sg_config_parse(yaml, strlen(yaml), "c.yaml", NULL, 0, &config, NULL) == SG_OK);
    cr_assert(sg_dataset_load_shape(config, &shape, NULL) == SG_OK && shape->n_features == 4);
    sg_dataset_destroy(shape);
    sg_config_destroy(config);
    expect_refused("data: {format: synthetic, shape: [5], train_rows: 4294967295}\n", SG_EXHAUSTED, "no memory for");
}

Test(shape, of_cifar10_needs_its_files_but_reads_none)
{
    static uint8_t bytes[2 * 3073];
    for (int gzip = 0; gzip < 2; gzip++) {
        sg_files files = sg_files_make();
        const char *path = sg_files_write(&files, bytes, sizeof bytes, gzip);
        char *yaml = sg_xprintf("data: {format: cifar10, train: [%s, %s], test: [b]}\n", path, path);
        expect_same_shape(yaml, true);
        free(yaml);
        sg_files_remove(&files);
    }
    sg_files files = sg_files_make();
    const char *path = sg_files_write(&files, bytes, sizeof bytes - 1, false);
    char *yaml = sg_xprintf("data: {format: cifar10, train: [%s], test: [b]}\n", path);
    expect_refused(yaml, SG_DATA, "6145 bytes; wanted a multiple of 3073");
    free(yaml);
    sg_files_remove(&files);
    expect_refused("data: {format: cifar10, train: [/none], test: [b]}\n", SG_NOT_FOUND, "/none: no such file");
}

/* wanted: what is wrong of files of so many bytes; NULL: nothing. */
static void expect_raw(size_t n_feature_bytes, size_t n_label_bytes, bool gzip, const char *wanted)
{
    static const uint8_t bytes[64];
    sg_files files = sg_files_make();
    const char *features = sg_files_write(&files, bytes, n_feature_bytes, gzip);
    const char *labels = sg_files_write(&files, bytes, n_label_bytes, gzip);
    char *yaml =
        sg_xprintf("data: {format: raw, shape: [1, 2, 2], train_images: %s, train_labels: %s}\n", features, labels);
    if (wanted == NULL)
        expect_same_shape(yaml, true);
    else
        expect_refused(yaml, SG_DATA, wanted);
    free(yaml);
    sg_files_remove(&files);
}

Test(shape, of_raw_data_needs_its_files_but_reads_none)
{
    expect_raw(32, 8, false, NULL);
    expect_raw(32, 8, true, NULL);
    expect_raw(33, 8, false, ": 33 bytes; wanted a multiple of 16, 4 float32 for each example");
    expect_raw(32, 7, false, ": 7 bytes; wanted 8, an int32 for each of 2 examples");
    expect_raw(0, 0, false, "holds no examples");
    expect_refused("data: {format: raw, shape: [4], train_images: /none, train_labels: /none}\n", SG_NOT_FOUND,
                   "/none: no such file");
}

Test(shape, of_text_is_told_by_all_of_it)
{
    sg_files files = sg_files_make();
    const char *right = sg_files_write(&files, "1,2,0\n3,4,1\n", 12, false);
    const char *wrong = sg_files_write(&files, "1,2,0\n3,x,1\n", 12, false);
    char *yaml = sg_xprintf("data: {format: csv, train: [%s], test: [b]}\n", right);
    expect_same_shape(yaml, false);
    free(yaml);
    yaml = sg_xprintf("data: {format: csv, train: [%s], test: [b]}\n", wrong);
    expect_refused(yaml, SG_DATA, ":2: column 2 is 'x'; wanted a number");
    free(yaml);
    sg_files_remove(&files);
}
