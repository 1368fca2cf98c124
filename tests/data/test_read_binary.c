/* tests/data/test_read_binary.c - CIFAR-10 and raw numbers: what is read, and what is said of files that are wrong. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/data/sets.h"

TestSuite(read_binary, .timeout = 20);

/* --- cifar10 -------------------------------------------------------------------------------------------------- */

enum { cifar_pixels = 3072, cifar_record = 3073 };

static uint8_t cifar_byte(size_t example, size_t pixel)
{
    return (uint8_t)(example * 31 + pixel * 7 + pixel / 1024 * 40);
}

static const char *write_cifar(sg_files *files, size_t first, size_t n, bool gzip)
{
    uint8_t *bytes = sg_xcalloc(n, cifar_record);
    for (size_t i = 0; i < n; i++) {
        bytes[i * cifar_record] = (uint8_t)((first + i) % 10);
        for (size_t p = 0; p < cifar_pixels; p++)
            bytes[i * cifar_record + 1 + p] = cifar_byte(first + i, p);
    }
    const char *path = sg_files_write(files, bytes, n * cifar_record, gzip);
    free(bytes);
    return path;
}

Test(read_binary, cifar10_of_several_files_is_one_set_scaled_by_channel)
{
    sg_files files = sg_files_make();
    const char *first = write_cifar(&files, 0, 12, false), *second = write_cifar(&files, 12, 5, true);
    char *text = sg_xprintf("data: {format: cifar10, train: [%s, %s], test: [%s]}\n", first, second, second);
    sg_config *config = sg_sets_config_of(text);
    sg_dataset *a = sg_sets_load(config), *b = sg_sets_load_test(config, a);
    cr_assert(a->n_examples == 17 && a->channels == 3 && a->height == 32 && a->width == 32);
    cr_assert(b->n_examples == 5);
    double sums[3] = {0}, squares[3] = {0};
    float x[cifar_pixels], y[cifar_pixels];
    for (size_t i = 0; i < 17; i++) {
        uint32_t label;
        sg_dataset_get(a, i, x, &label);
        cr_assert(label == i % 10);
        for (size_t p = 0; p < cifar_pixels; p++) {
            float byte = x[p] * a->deviation[p / 1024] + a->mean[p / 1024];
            cr_assert(fabsf(byte - (float)cifar_byte(i, p)) < 1e-3F, "example %zu, pixel %zu", i, p);
            sums[p / 1024] += (double)x[p];
            squares[p / 1024] += (double)x[p] * (double)x[p];
        }
    }
    for (size_t channel = 0; channel < 3; channel++) {
        cr_assert(fabs(sums[channel] / 17 / 1024) < 1e-5 && fabs(squares[channel] / 17 / 1024 - 1) < 1e-5);
        cr_assert(sg_dataset_black(a, channel) == (0 - a->mean[channel]) * (1 / a->deviation[channel]));
    }
    uint32_t label;
    sg_dataset_get(a, 13, x, &label);
    sg_dataset_get(b, 1, y, &label);
    cr_assert(label == 3);
    cr_assert_arr_eq(x, y, sizeof x);
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_config_destroy(config);
    free(text);
    sg_files_remove(&files);
}

Test(read_binary, cifar10_that_is_cut_or_has_other_labels_is_refused)
{
    static uint8_t bytes[2 * cifar_record];
    sg_sets_refuse("cifar10", bytes, cifar_record + 7, "", ": 3080 bytes; wanted a multiple of 3073");
    sg_sets_refuse("cifar10", bytes, 0, "", ": 0 bytes; wanted a multiple of 3073");
    bytes[cifar_record] = 10;
    sg_sets_refuse("cifar10", bytes, sizeof bytes, "", ": label 1 is 10; wanted 0 to 9");
}

/* --- raw ------------------------------------------------------------------------------------------------------ */

static sg_status load_raw(const void *features, size_t n_feature_bytes, const void *labels, size_t n_label_bytes,
                          sg_dataset **dataset, sg_error *err)
{
    sg_files files = sg_files_make();
    const char *x = sg_files_write(&files, features, n_feature_bytes, true);
    const char *y = sg_files_write(&files, labels, n_label_bytes, false);
    char *text = sg_xprintf("data: {format: raw, shape: [1, 2, 2], first_label: 1, classes: 4, train_images: %s, "
                            "train_labels: %s}\n",
                            x, y);
    sg_config *config = sg_sets_config_of(text);
    sg_status status = sg_dataset_load_train(config, dataset, err);
    cr_assert(status == SG_OK || strstr(err->message, files.folder) != NULL, "'%s' names no file", err->message);
    sg_config_destroy(config);
    free(text);
    sg_files_remove(&files);
    return status;
}

Test(read_binary, raw_features_are_taken_as_they_are)
{
    const float x[8] = {1, -2, 3e30F, 1e-40F, 0, 5, 6, 7};
    const int32_t y[2] = {4, 1};
    sg_error err = {0};
    sg_dataset *a = NULL;
    cr_assert(load_raw(x, sizeof x, y, sizeof y, &a, &err) == SG_OK, "%s", err.message);
    cr_assert(a->n_examples == 2 && a->channels == 1 && a->height == 2 && a->width == 2);
    cr_assert(memcmp(a->reals, x, sizeof x) == 0);
    sg_sets_assert_example(a, 1, 0, x + 4);
    cr_assert(sg_dataset_black(a, 0) == 0);
    sg_dataset_destroy(a);
}

static void refuse_raw(const float *x, size_t n_feature_bytes, const int32_t *y, size_t n_label_bytes, const char *part)
{
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(load_raw(x, n_feature_bytes, y, n_label_bytes, &dataset, &err) == SG_DATA, "%s", part);
    cr_assert_null(dataset);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
}

Test(read_binary, raw_files_that_do_not_fit_are_refused)
{
    float x[8] = {0};
    int32_t y[2] = {1, 4};
    refuse_raw(x, 31, y, 8, ": 31 bytes; wanted a multiple of 16, 4 float32 for each example");
    refuse_raw(x, 32, y, 4, ": 4 bytes; wanted 8, an int32 for each of 2 examples");
    refuse_raw(x, 0, y, 0, "holds no examples");
    y[1] = 5;
    refuse_raw(x, 32, y, 8, ": label 1 is 5; wanted 1 to 4");
    y[1] = 0;
    refuse_raw(x, 32, y, 8, ": label 1 is 0; wanted 1 to 4");
    y[1] = -1;
    refuse_raw(x, 32, y, 8, ": label 1 is -1; wanted 1 to 4");
    y[1] = 4;
    x[6] = NAN;
    refuse_raw(x, 32, y, 8, ": feature 2 of example 1 is not a finite number");
}
