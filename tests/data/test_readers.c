/* tests/data/test_readers.c - the formats beside IDX: what is read, and what is said of files that are wrong. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/data/files.h"
#include "worker/data/readers.h"

TestSuite(readers, .timeout = 20);

/* The whole cluster file is this text. */
static sg_config *config_of(const char *text)
{
    sg_error err = {0};
    sg_config *config = NULL;
    cr_assert(sg_config_parse(text, strlen(text), "c.yaml", NULL, 0, &config, &err) == SG_OK, "%s", err.message);
    return config;
}

/* `more` is what stands in `data` beside the two files. */
static sg_config *config_with(const char *format, const char *train, const char *test, const char *more)
{
    char *text = sg_xprintf("data: {format: %s, train: [\"%s\"], test: [\"%s\"]%s}\n", format, train, test, more);
    sg_config *config = config_of(text);
    free(text);
    return config;
}

static const char *write_text(sg_files *files, const char *text, bool gzip)
{
    return sg_files_write(files, text, strlen(text), gzip);
}

static sg_dataset *load(const sg_config *config)
{
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_OK, "%s", err.message);
    return dataset;
}

static sg_dataset *load_test(const sg_config *config, const sg_dataset *train)
{
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_test(config, train, &dataset, &err) == SG_OK, "%s", err.message);
    return dataset;
}

static void assert_example(const sg_dataset *dataset, size_t index, uint32_t label, const float *features)
{
    float got[8];
    uint32_t got_label;
    cr_assert(dataset->n_features <= 8);
    sg_dataset_get(dataset, index, got, &got_label);
    cr_assert(got_label == label, "example %zu has the label %u", index, got_label);
    for (size_t f = 0; f < dataset->n_features; f++)
        cr_assert(fabsf(got[f] - features[f]) <= 1e-6F, "example %zu, feature %zu is %.9g, not %.9g", index, f,
                  (double)got[f], (double)features[f]);
}

/* The set that the bytes make is refused with DATA, in one line that names the file and holds `part`. */
static void refuse(const char *format, const void *bytes, size_t n_bytes, const char *more, const char *part)
{
    sg_files files = sg_files_make();
    const char *path = sg_files_write(&files, bytes, n_bytes, false);
    sg_config *config = config_with(format, path, path, more);
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_DATA, "%s", part);
    cr_assert_null(dataset);
    cr_assert(strncmp(err.message, path, strlen(path)) == 0, "'%s' does not begin with the file", err.message);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    cr_assert_null(strchr(err.message, '\n'));
    sg_config_destroy(config);
    sg_files_remove(&files);
}

static void refuse_text(const char *format, const char *text, const char *more, const char *part)
{
    refuse(format, text, strlen(text), more, part);
}

/* --- csv ------------------------------------------------------------------------------------------------------ */

Test(readers, csv_is_normalised_by_the_training_set_alone)
{
    sg_files files = sg_files_make();
    /* mean 0 and 7, deviation 1 and none */
    const char *train = write_text(&files, "-1,7,0\n1, 7.0 ,1\r\n\n", false);
    const char *test = write_text(&files, "3,9,1\n", true);
    sg_config *config = config_with("csv", train, test, ", classes: 2");
    sg_dataset *a = load(config), *b = load_test(config, a);
    cr_assert(a->n_examples == 2 && a->n_features == 2 && a->n_classes == 2 && a->channels == 0);
    assert_example(a, 0, 0, (float[]){-1, 0});
    assert_example(a, 1, 1, (float[]){1, 0});
    assert_example(b, 0, 1, (float[]){3, 2}); /* a column without a deviation is only moved */
    uint64_t n = 0;
    cr_assert(sg_dataset_count_train(config, &n, NULL) == SG_OK && n == 2);
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

/* Around 1e9 floats are 64 apart: the mean is none of them, and the deviation 2e-7 of it. */
Test(readers, a_csv_column_far_from_0_is_scaled_as_well)
{
    sg_files files = sg_files_make();
    char text[512] = "";
    for (size_t i = 0; i < 10; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%zu,1000000.1,%zu\n", 1000000000 + 64 * i, i % 2);
    const char *path = write_text(&files, text, false);
    sg_config *config = config_with("csv", path, path, ", classes: 2");
    sg_dataset *a = load(config), *b = load_test(config, a);
    for (size_t i = 0; i < 10; i++) {
        assert_example(a, i, i % 2, (float[]){(float)(((double)i - 4.5) / sqrt(8.25)), 0});
        assert_example(b, i, i % 2, (float[]){(float)(((double)i - 4.5) / sqrt(8.25)), 0});
    }
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(readers, csv_takes_the_label_from_any_column_and_passes_over_a_header)
{
    sg_files files = sg_files_make();
    const char *train = write_text(&files, "width,kind,height\n-2e0,5,10\n2,3,+30\n", false);
    sg_config *config =
        config_with("csv", train, train, ", header: true, label_column: 2, first_label: 3, classes: 3, shape: [2]");
    sg_dataset *a = load(config);
    assert_example(a, 0, 2, (float[]){-1, -1});
    assert_example(a, 1, 0, (float[]){1, 1});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(readers, csv_of_several_files_and_thousands_of_lines_is_one_set)
{
    enum { n_lines = 3000 };
    sg_files files = sg_files_make();
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    for (int i = 0; i < n_lines; i++)
        fprintf(out, "%d,%d,%.17g,%d\n", i, -i, i / 8.0 + 1e-14, i % 10);
    fclose(out);
    const char *first = sg_files_write(&files, text, n_bytes, true);
    const char *second = write_text(&files, "0.25,-1e-3,12345678901234567890,9", false); /* without an end of line */
    char *yaml = sg_xprintf("data: {format: csv, train: [%s, %s], test: [%s]}\n", first, second, second);
    sg_config *config = config_of(yaml);
    sg_dataset *a = sg_xcalloc(1, sizeof *a);
    a->n_classes = 10;
    sg_error err = {0};
    cr_assert(sg_read_csv(config, false, a, &err) == SG_OK, "%s", err.message);
    cr_assert(a->n_examples == n_lines + 1 && a->n_features == 3);
    for (size_t i = 0; i < n_lines; i++) {
        const float *row = a->reals + 3 * i;
        cr_assert(row[0] == (float)i && row[1] == -(float)i && row[2] == (float)((double)i / 8.0 + 1e-14));
        cr_assert(a->labels[i] == i % 10);
    }
    assert_example(a, n_lines, 9, (float[]){0.25F, -1e-3F, 12345678901234567890.F});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    free(yaml);
    free(text);
    sg_files_remove(&files);
}

Test(readers, csv_that_is_wrong_is_refused_by_line_and_column)
{
    refuse_text("csv", "1,2,0\n1,,0\n", "", ":2: column 2 is empty; wanted a number");
    refuse_text("csv", "1,2,0\n1,2,\n", "", ":2: column 3 is empty; wanted a number");
    refuse_text("csv", "1,2,0\n\n1,high,0\n", "", ":3: column 2 is 'high'; wanted a number");
    refuse_text("csv", "a,b,c\n1,2,0\n", "", ":1: column 1 is 'a'; wanted a number (data.header: true, if");
    refuse_text("csv", "1,2,0\n1,nan,0\n", "", ":2: column 2 is 'nan'; wanted a number");
    refuse_text("csv", "1,2,0\n1,1e60,0\n", "", ":2: column 2 is '1e60'; wanted a number");
    refuse_text("csv", "1,2,0\n1,0x10,0\n", "", ":2: column 2 is '0x10'; wanted a number");
    refuse_text("csv", "1,2,0\n1,1.2.3,0\n", "", ":2: column 2 is '1.2.3'; wanted a number");
    refuse_text("csv", "1,2,0\n1,\"2\",0\n", "", ":2: column 2 is '\"2\"'; wanted a number");
    refuse_text("csv", "1,2,0\n1,0\n", "", ":2: found 2 columns; wanted 3, as in ");
    refuse_text("csv", "1,2,0\n1,2,3,0\n", "", ":2: found 4 columns; wanted 3, as in ");
    refuse_text("csv", "1\n2\n", "", ":1: found 1 columns; wanted at least 2");
    refuse_text("csv", "1,2\n", ", label_column: 3", ":1: found 2 columns; wanted at least 3");
    refuse_text("csv", "1,2,0\n", ", shape: [3]", ":1: found 3 columns; data.shape wants 3, and one for the label");
    refuse_text("csv", "1,2,0\n1,2,10\n", "", ":2: the label is '10'; wanted a whole number from 0 to 9");
    refuse_text("csv", "1,2,0\n1,2,-1\n", "", ":2: the label is '-1'; wanted a whole number from 0 to 9");
    refuse_text("csv", "1,2,0.5\n", "", ":1: the label is '0.5'; wanted a whole number from 0 to 9");
    refuse_text("csv", "1,2,0\n", ", first_label: 1", ":1: the label is '0'; wanted a whole number from 1 to 10");
    refuse_text("csv", "\n \n", "", "holds no examples");
    refuse("csv", "1,2,0\n1,\0,0\n", 12, "", ":2: holds a byte 0; wanted text");
}

/* --- libsvm --------------------------------------------------------------------------------------------------- */

Test(readers, libsvm_is_made_dense)
{
    sg_files files = sg_files_make();
    const char *train = write_text(&files, "+1 1:.5 4:-2e-1 # a remark: 9:9\n-1\n\n+1\t2:3 \t3:1 \r\n", true);
    sg_config *config = config_with("libsvm", train, train, ", classes: 2, shape: [4]");
    sg_dataset *a = load(config);
    cr_assert(a->n_examples == 3 && a->n_features == 4 && a->channels == 0);
    assert_example(a, 0, 1, (float[]){.5F, 0, 0, -.2F});
    assert_example(a, 1, 0, (float[]){0, 0, 0, 0});
    assert_example(a, 2, 1, (float[]){0, 3, 1, 0});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(readers, libsvm_that_is_wrong_is_refused_by_line)
{
    const char *more = ", shape: [4]";
    refuse_text("libsvm", "0 1:1\n0 2:1 1:1\n", more, ":2: index 1 comes after 2; wanted ascending indices");
    refuse_text("libsvm", "0 1:1\n0 2:1 2:1\n", more, ":2: index 2 comes after 2; wanted ascending indices");
    refuse_text("libsvm", "0 1:1 5:1\n", more, ":1: index 5 is beyond the 4 features that data.shape declares");
    refuse_text("libsvm", "0 99999999999999999999999999:1\n", more, ":1: index 99999999999999999999999");
    refuse_text("libsvm", "0 0:1\n", more, ":1: index 0; wanted indices from 1 on");
    refuse_text("libsvm", "0 a:1\n", more, ":1: found 'a:1'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 1:\n", more, ":1: found '1:'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 :1\n", more, ":1: found ':1'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 -1:1\n", more, ":1: found '-1:1'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 1:inf\n", more, ":1: found '1:inf'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 qid:3 1:1\n", more, ":1: found 'qid:3'; wanted INDEX:VALUE");
    refuse_text("libsvm", "0 7\n", more, ":1: found '7'; wanted INDEX:VALUE");
    refuse_text("libsvm", "1:1\n", more, ":1: the label is '1:1'; wanted a whole number from 0 to 9");
    refuse_text("libsvm", "0 1:1\n10 1:1\n", more, ":2: the label is '10'; wanted a whole number from 0 to 9");
    refuse_text("libsvm", "0,1 1:1\n", more, ":1: the label is '0,1'");
}

Test(readers, one_of_two_classes_is_minus_1_or_0_but_not_both)
{
    refuse_text("csv", "5,1\n5,-1\n5,0\n", ", classes: 2", ":3: the label is '0', but ");
    refuse_text("csv", "5,0.0\n5,-1\n", ", classes: 2", ":2: the label is '-1', but ");
    refuse_text("libsvm", "-1 1:1\n+1\n-1\n0\n", ", classes: 2, shape: [4]", ":1 has '-1'; wanted one of them");
    refuse_text("libsvm", "0 1:1\n+1\n-1\n", ", classes: 2, shape: [4]", ":1 has '0'; wanted one of them");
    refuse_text("libsvm", "-1\n", ", classes: 2, first_label: 1, shape: [4]", ":1: the label is '-1'; wanted a whole");
}

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

Test(readers, cifar10_of_several_files_is_one_set_scaled_by_channel)
{
    sg_files files = sg_files_make();
    const char *first = write_cifar(&files, 0, 12, false), *second = write_cifar(&files, 12, 5, true);
    char *text = sg_xprintf("data: {format: cifar10, train: [%s, %s], test: [%s]}\n", first, second, second);
    sg_config *config = config_of(text);
    sg_dataset *a = load(config), *b = load_test(config, a);
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

Test(readers, cifar10_that_is_cut_or_has_other_labels_is_refused)
{
    static uint8_t bytes[2 * cifar_record];
    refuse("cifar10", bytes, cifar_record + 7, "", ": 3080 bytes; wanted a multiple of 3073");
    refuse("cifar10", bytes, 0, "", ": 0 bytes; wanted a multiple of 3073");
    bytes[cifar_record] = 10;
    refuse("cifar10", bytes, sizeof bytes, "", ": label 1 is 10; wanted 0 to 9");
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
    sg_config *config = config_of(text);
    sg_status status = sg_dataset_load_train(config, dataset, err);
    cr_assert(status == SG_OK || strstr(err->message, files.folder) != NULL, "'%s' names no file", err->message);
    sg_config_destroy(config);
    free(text);
    sg_files_remove(&files);
    return status;
}

Test(readers, raw_features_are_taken_as_they_are)
{
    const float x[8] = {1, -2, 3e30F, 1e-40F, 0, 5, 6, 7};
    const int32_t y[2] = {4, 1};
    sg_error err = {0};
    sg_dataset *a = NULL;
    cr_assert(load_raw(x, sizeof x, y, sizeof y, &a, &err) == SG_OK, "%s", err.message);
    cr_assert(a->n_examples == 2 && a->channels == 1 && a->height == 2 && a->width == 2);
    cr_assert(memcmp(a->reals, x, sizeof x) == 0);
    assert_example(a, 1, 0, x + 4);
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

Test(readers, raw_files_that_do_not_fit_are_refused)
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

/* --- synthetic ------------------------------------------------------------------------------------------------ */

Test(readers, synthetic_data_is_a_function_of_shape_classes_and_seed)
{
    const char *text =
        "seed: 9\ndata: {format: synthetic, shape: [2, 3, 5], classes: 3, train_rows: 7, test_rows: 4}\n";
    sg_config *config = config_of(text), *again = config_of(text);
    again->data.train_rows = 5;
    sg_dataset *a = load(config), *b = load(again), *test = load_test(config, a);
    cr_assert(a->n_examples == 7 && test->n_examples == 4 && a->n_features == 30 && a->channels == 2);
    cr_assert(memcmp(a->bytes, b->bytes, 5 * 30) == 0, "more rows change none of the first");
    cr_assert(memcmp(a->bytes, test->bytes, 4 * 30) != 0);
    for (size_t i = 0; i < 7; i++)
        cr_assert(a->labels[i] == i % 3);
    again->seed = 10;
    sg_dataset_destroy(b);
    b = load(again);
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
    sg_config *config = config_of("data: {format: synthetic, shape: [1000], classes: 2, train_rows: 4}\n");
    sg_dataset *a = load(config);
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
    sg_config *config = config_with("csv", "/nonexistent/a.csv", "b", "");
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "/nonexistent/a.csv: no such file"));
    sg_config_destroy(config);

    sg_files files = sg_files_make();
    const char *whole = write_text(&files, "1,2,0\n3,4,1\n5,6,0\n", true);
    uint8_t bytes[256];
    FILE *in = fopen(whole, "rb");
    size_t n_bytes = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    const char *cut = sg_files_write(&files, bytes, n_bytes - 12, false);
    config = config_with("csv", cut, cut, "");
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
    const char *path = write_text(&files, "", false);
    cr_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    for (size_t i = 0; i < SG_ARRAY_LEN(formats); i++) {
        sg_config *config = config_with(formats[i], path, path, ", shape: [4]");
        sg_error err = {0};
        sg_dataset *dataset = NULL;
        cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_DATA);
        cr_assert_not_null(strstr(err.message, "/0: is not a plain file"), "%s", err.message);
        sg_config_destroy(config);
    }
    sg_files_remove(&files);
}

Test(readers, a_folder_is_refused)
{
    sg_config *config = config_with("csv", "/tmp", "/tmp", "");
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_DATA);
    cr_assert_not_null(strstr(err.message, "/tmp: cannot be read: Is a directory"), "%s", err.message);
    sg_config_destroy(config);
}

Test(readers, a_test_set_of_another_width_is_refused)
{
    sg_files files = sg_files_make();
    const char *train = write_text(&files, "1,2,0\n", false), *test = write_text(&files, "1,0\n", false);
    sg_config *config = config_with("csv", train, test, "");
    sg_dataset *a = load(config), *b = NULL;
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
    const char *path = write_text(&files, text, false);
    sg_config *config = config_with("csv", path, path, "");
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
