/* tests/data/test_dataset.c - images and labels belong together. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/data/files.h"
#include "worker/data/dataset.h"

TestSuite(dataset, .timeout = 20);

/* Of a job whose training or test set is a pair of IDX files. */
static sg_config *config_of(const char *key, const char *images, const char *labels)
{
    sg_error err = {0};
    sg_config *config = NULL;
    char *text = sg_xprintf("data: {%s_images: %s, %s_labels: %s}\n", key, images, key, labels);
    cr_assert(sg_config_parse(text, strlen(text), "c.yaml", NULL, 0, &config, &err) == SG_OK, "%s", err.message);
    free(text);
    return config;
}

/* train: NULL: this is the training set. */
static sg_dataset *load(sg_files *files, uint32_t n_images, unsigned modulus, const sg_dataset *train)
{
    const char *images = sg_files_write_idx(files, 3, (uint32_t[]){n_images, 2, 3}, modulus, true);
    const char *labels = sg_files_write_idx(files, 1, (uint32_t[]){n_images}, 10, false);
    sg_config *config = config_of(train ? "test" : "train", images, labels);
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    sg_status status =
        train ? sg_dataset_load_test(config, train, &dataset, &err) : sg_dataset_load_train(config, &dataset, &err);
    cr_assert(status == SG_OK, "%s", err.message);
    sg_config_destroy(config);
    return dataset;
}

static sg_status load_pair(const char *images, const char *labels, sg_dataset **dataset, sg_error *err)
{
    sg_config *config = config_of("train", images, labels);
    sg_status status = sg_dataset_load_train(config, dataset, err);
    sg_config_destroy(config);
    return status;
}

Test(dataset, a_pair_of_files_is_loaded_and_scaled_to_mean_0_and_deviation_1)
{
    sg_files files = sg_files_make();
    sg_dataset *dataset = load(&files, 40, 256, NULL);
    cr_assert(dataset->n_examples == 40 && dataset->n_features == 6 && dataset->n_classes == 10);
    double sum = 0;
    double squares = 0;
    float previous = 0;
    for (size_t i = 0; i < 40; i++) {
        float x[6];
        uint32_t label;
        sg_dataset_get(dataset, i, x, &label);
        cr_assert(label == i % 10);
        cr_assert(i == 0 || x[0] > previous, "bytes in the wrong place");
        previous = x[0];
        for (size_t f = 0; f < 6; f++) {
            sum += (double)x[f];
            squares += (double)x[f] * (double)x[f];
        }
    }
    cr_assert(fabs(sum / 240) < 1e-5 && fabs(squares / 240 - 1) < 1e-5, "mean %g, mean square %g", sum / 240,
              squares / 240);
    sg_dataset_destroy(dataset);
    sg_dataset_destroy(NULL);
    sg_files_remove(&files);
}

Test(dataset, a_test_set_is_scaled_as_the_training_set)
{
    sg_files files = sg_files_make();
    sg_dataset *train = load(&files, 40, 256, NULL);
    sg_dataset *test = load(&files, 8, 256, train);
    float of_train[6];
    float of_test[6];
    uint32_t label;
    sg_dataset_get(train, 7, of_train, &label);
    sg_dataset_get(test, 7, of_test, &label);
    cr_assert_arr_eq(of_train, of_test, sizeof of_train);
    sg_dataset_destroy(train);
    sg_dataset_destroy(test);
    sg_files_remove(&files);
}

Test(dataset, images_that_are_all_alike_stay_finite)
{
    sg_files files = sg_files_make();
    sg_dataset *dataset = load(&files, 4, 1, NULL);
    float x[6];
    uint32_t label;
    sg_dataset_get(dataset, 0, x, &label);
    cr_assert(x[0] == 0);
    sg_dataset_destroy(dataset);
    sg_files_remove(&files);
}

static void expect_data_error(uint32_t n_images, uint32_t n_labels, unsigned modulus, const char *part)
{
    sg_files files = sg_files_make();
    const char *images = sg_files_write_idx(&files, 3, (uint32_t[]){n_images, 2, 2}, 256, false);
    const char *labels = sg_files_write_idx(&files, 1, (uint32_t[]){n_labels}, modulus, true);
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(load_pair(images, labels, &dataset, &err) == SG_DATA);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    cr_assert_not_null(strstr(err.message, files.folder), "'%s' names no file", err.message);
    cr_assert_null(dataset);
    sg_files_remove(&files);
}

Test(dataset, files_that_do_not_belong_together_are_refused)
{
    expect_data_error(5, 4, 10, "has 5 images");
    expect_data_error(4, 5, 10, "has 5 labels");
    expect_data_error(11, 11, 11, "label 10 is 10; wanted 0 to 9");
    expect_data_error(0, 0, 10, "dimension 0 is 0");
}

Test(dataset, a_missing_file_of_the_pair_is_named)
{
    sg_files files = sg_files_make();
    const char *images = sg_files_write_idx(&files, 3, (uint32_t[]){4, 2, 2}, 256, false);
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(load_pair(images, "/nonexistent/labels", &dataset, &err) == SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/nonexistent/labels"));
    cr_assert(load_pair("/nonexistent/images", images, &dataset, &err) == SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/nonexistent/images"));
    sg_files_remove(&files);
}
