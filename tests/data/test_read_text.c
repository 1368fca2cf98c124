/* tests/data/test_read_text.c - CSV and LIBSVM: what is read, and what is said of files that are wrong. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/data/sets.h"
#include "worker/data/readers.h"

TestSuite(read_text, .timeout = 20);

/* --- csv ------------------------------------------------------------------------------------------------------ */

Test(read_text, csv_is_normalised_by_the_training_set_alone)
{
    sg_files files = sg_files_make();
    /* mean 0 and 7, deviation 1 and none */
    const char *train = sg_sets_write_text(&files, "\xef\xbb\xbf-1,7,0\n1, 7.0 ,1\r\n\n", false);
    const char *test = sg_sets_write_text(&files, "3,9,1\n", true);
    sg_config *config = sg_sets_config_with("csv", train, test, ", classes: 2");
    sg_dataset *a = sg_sets_load(config), *b = sg_sets_load_test(config, a);
    cr_assert(a->n_examples == 2 && a->n_features == 2 && a->n_classes == 2 && a->channels == 0);
    sg_sets_assert_example(a, 0, 0, (float[]){-1, 0});
    sg_sets_assert_example(a, 1, 1, (float[]){1, 0});
    sg_sets_assert_example(b, 0, 1, (float[]){3, 2}); /* a column without a deviation is only moved */
    sg_dataset *measured;
    cr_assert(sg_dataset_measure(config, &measured, NULL) == SG_OK && measured->n_examples == 2);
    sg_dataset_destroy(measured);
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

/* Around 1e9 floats are 64 apart: the mean is none of them, and the deviation 2e-7 of it. */
Test(read_text, a_csv_column_far_from_0_is_scaled_as_well)
{
    sg_files files = sg_files_make();
    char text[512] = "";
    for (size_t i = 0; i < 10; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%zu,1000000.1,%zu\n", 1000000000 + 64 * i, i % 2);
    const char *path = sg_sets_write_text(&files, text, false);
    sg_config *config = sg_sets_config_with("csv", path, path, ", classes: 2");
    sg_dataset *a = sg_sets_load(config), *b = sg_sets_load_test(config, a);
    for (size_t i = 0; i < 10; i++) {
        sg_sets_assert_example(a, i, i % 2, (float[]){(float)(((double)i - 4.5) / sqrt(8.25)), 0});
        sg_sets_assert_example(b, i, i % 2, (float[]){(float)(((double)i - 4.5) / sqrt(8.25)), 0});
    }
    sg_dataset_destroy(a);
    sg_dataset_destroy(b);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(read_text, csv_takes_the_label_from_any_column_and_passes_over_a_header)
{
    sg_files files = sg_files_make();
    const char *train = sg_sets_write_text(&files, "width,kind,height\n-2e0,5,10\n2,3,+30\n", false);
    sg_config *config = sg_sets_config_with("csv", train, train,
                                            ", header: true, label_column: 2, first_label: 3, classes: 3, shape: [2]");
    sg_dataset *a = sg_sets_load(config);
    sg_sets_assert_example(a, 0, 2, (float[]){-1, -1});
    sg_sets_assert_example(a, 1, 0, (float[]){1, 1});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

static void expect_one_example(const char *text)
{
    sg_files files = sg_files_make();
    const char *path = sg_sets_write_text(&files, text, false);
    sg_config *config = sg_sets_config_with("csv", path, path, ", header: true, classes: 2");
    sg_dataset *a = sg_sets_load(config);
    cr_assert_eq(a->n_examples, 1u);
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(read_text, the_header_of_a_csv_may_count_its_columns_or_name_none)
{
    expect_one_example("0,1,2\n5,6,1\n");
    expect_one_example(",,\n5,6,1\n");
    expect_one_example(",1,\n5,6,1\n");
}

Test(read_text, csv_of_several_files_and_thousands_of_lines_is_one_set)
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
    const char *second =
        sg_sets_write_text(&files, "0.25,-1e-3,12345678901234567890,9", false); /* without an end of line */
    char *yaml = sg_xprintf("data: {format: csv, train: [%s, %s], test: [%s]}\n", first, second, second);
    sg_config *config = sg_sets_config_of(yaml);
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
    sg_sets_assert_example(a, n_lines, 9, (float[]){0.25F, -1e-3F, 12345678901234567890.F});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    free(yaml);
    free(text);
    sg_files_remove(&files);
}

Test(read_text, csv_that_is_wrong_is_refused_by_line_and_column)
{
    sg_sets_refuse_text("csv", "1,2,0\n1,,0\n", "", ":2: column 2 is empty; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,2,\n", "", ":2: column 3 is empty; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n\n1,high,0\n", "", ":3: column 2 is 'high'; wanted a number");
    sg_sets_refuse_text("csv", "a,b,c\n1,2,0\n", "", ":1: column 1 is 'a'; wanted a number (data.header: true, if");
    sg_sets_refuse_text("csv", "1, 2,0\n1,2,0\n", ", header: true",
                        ":1: found numbers; wanted the names of the columns");
    sg_sets_refuse_text("csv", "1,2,0\n1,nan,0\n", "", ":2: column 2 is 'nan'; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,1e60,0\n", "", ":2: column 2 is '1e60'; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,0x10,0\n", "", ":2: column 2 is '0x10'; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,1.2.3,0\n", "", ":2: column 2 is '1.2.3'; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,\"2\",0\n", "", ":2: column 2 is '\"2\"'; wanted a number");
    sg_sets_refuse_text("csv", "1,2,0\n1,0\n", "", ":2: found 2 columns; wanted 3, as in ");
    sg_sets_refuse_text("csv", "1,2,0\n1,2,3,0\n", "", ":2: found 4 columns; wanted 3, as in ");
    sg_sets_refuse_text("csv", "1\n2\n", "", ":1: found 1 column; wanted at least 2");
    sg_sets_refuse_text("csv", "1,2\n", ", label_column: 3", ":1: found 2 columns; wanted at least 3");
    sg_sets_refuse_text("csv", "1,2,0\n", ", shape: [3]",
                        ":1: found 3 columns; data.shape wants 3, and one for the label");
    sg_sets_refuse_text("csv", "1,2,0\n1,2,10\n", "", ":2: the label is '10'; wanted a whole number from 0 to 9");
    sg_sets_refuse_text("csv", "1,2,0\n1,2,-1\n", "", ":2: the label is '-1'; wanted a whole number from 0 to 9");
    sg_sets_refuse_text("csv", "1,2,0.5\n", "", ":1: the label is '0.5'; wanted a whole number from 0 to 9");
    sg_sets_refuse_text("csv", "1,2,0\n", ", first_label: 1",
                        ":1: the label is '0'; wanted a whole number from 1 to 10");
    sg_sets_refuse_text("csv", "\n \n", "", "holds no examples");
    sg_sets_refuse("csv", "1,2,0\n1,\0,0\n", 12, "", ":2: holds a byte 0; wanted text");
}

/* --- libsvm --------------------------------------------------------------------------------------------------- */

Test(read_text, libsvm_is_made_dense)
{
    sg_files files = sg_files_make();
    const char *train = sg_sets_write_text(&files, "+1 1:.5 4:-2e-1 # a remark: 9:9\n-1\n\n+1\t2:3 \t3:1 \r\n", true);
    sg_config *config = sg_sets_config_with("libsvm", train, train, ", classes: 2, shape: [4]");
    sg_dataset *a = sg_sets_load(config);
    cr_assert(a->n_examples == 3 && a->n_features == 4 && a->channels == 0);
    sg_sets_assert_example(a, 0, 1, (float[]){.5F, 0, 0, -.2F});
    sg_sets_assert_example(a, 1, 0, (float[]){0, 0, 0, 0});
    sg_sets_assert_example(a, 2, 1, (float[]){0, 3, 1, 0});
    sg_dataset_destroy(a);
    sg_config_destroy(config);
    sg_files_remove(&files);
}

Test(read_text, libsvm_that_is_wrong_is_refused_by_line)
{
    const char *more = ", shape: [4]";
    sg_sets_refuse_text("libsvm", "0 1:1\n0 2:1 1:1\n", more, ":2: index 1 comes after 2; wanted ascending indices");
    sg_sets_refuse_text("libsvm", "0 1:1\n0 2:1 2:1\n", more, ":2: index 2 comes after 2; wanted ascending indices");
    sg_sets_refuse_text("libsvm", "0 1:1 5:1\n", more, ":1: index 5 is beyond the 4 features that data.shape declares");
    sg_sets_refuse_text("libsvm", "0 99999999999999999999999999:1\n", more, ":1: index 99999999999999999999999");
    sg_sets_refuse_text("libsvm", "0 0:1\n", more, ":1: index 0; wanted indices from 1 on");
    sg_sets_refuse_text("libsvm", "0 a:1\n", more, ":1: found 'a:1'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 1:\n", more, ":1: found '1:'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 :1\n", more, ":1: found ':1'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 -1:1\n", more, ":1: found '-1:1'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 1:inf\n", more, ":1: found '1:inf'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 qid:3 1:1\n", more, ":1: found 'qid:3'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "0 7\n", more, ":1: found '7'; wanted INDEX:VALUE");
    sg_sets_refuse_text("libsvm", "1:1\n", more, ":1: the label is '1:1'; wanted a whole number from 0 to 9");
    sg_sets_refuse_text("libsvm", "0 1:1\n10 1:1\n", more, ":2: the label is '10'; wanted a whole number from 0 to 9");
    sg_sets_refuse_text("libsvm", "0,1 1:1\n", more, ":1: the label is '0,1'");
}

Test(read_text, one_of_two_classes_is_minus_1_or_0_but_not_both)
{
    sg_sets_refuse_text("csv", "5,1\n5,-1\n5,0\n", ", classes: 2", ":3: the label is '0', but ");
    sg_sets_refuse_text("csv", "5,0.0\n5,-1\n", ", classes: 2", ":2: the label is '-1', but ");
    sg_sets_refuse_text("libsvm", "-1 1:1\n+1\n-1\n0\n", ", classes: 2, shape: [4]", ":1 has '-1'; wanted one of them");
    sg_sets_refuse_text("libsvm", "0 1:1\n+1\n-1\n", ", classes: 2, shape: [4]", ":1 has '0'; wanted one of them");
    sg_sets_refuse_text("libsvm", "-1\n", ", classes: 2, first_label: 1, shape: [4]",
                        ":1: the label is '-1'; wanted a whole");
}
