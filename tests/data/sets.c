/* tests/data/sets.c - see sets.h. */
#include "tests/data/sets.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

sg_config *sg_sets_config_of(const char *text)
{
    sg_error err = {0};
    sg_config *config = NULL;
    cr_assert(sg_config_parse(text, strlen(text), "c.yaml", NULL, 0, &config, &err) == SG_OK, "%s", err.message);
    return config;
}

sg_config *sg_sets_config_with(const char *format, const char *train, const char *test, const char *more)
{
    char *text = sg_xprintf("data: {format: %s, train: [\"%s\"], test: [\"%s\"]%s}\n", format, train, test, more);
    sg_config *config = sg_sets_config_of(text);
    free(text);
    return config;
}

const char *sg_sets_write_text(sg_files *files, const char *text, bool gzip)
{
    return sg_files_write(files, text, strlen(text), gzip);
}

sg_dataset *sg_sets_load(const sg_config *config)
{
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_train(config, &dataset, &err) == SG_OK, "%s", err.message);
    return dataset;
}

sg_dataset *sg_sets_load_test(const sg_config *config, const sg_dataset *train)
{
    sg_error err = {0};
    sg_dataset *dataset = NULL;
    cr_assert(sg_dataset_load_test(config, train, &dataset, &err) == SG_OK, "%s", err.message);
    return dataset;
}

void sg_sets_assert_example(const sg_dataset *dataset, size_t index, uint32_t label, const float *features)
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

void sg_sets_refuse(const char *format, const void *bytes, size_t n_bytes, const char *more, const char *part)
{
    sg_files files = sg_files_make();
    const char *path = sg_files_write(&files, bytes, n_bytes, false);
    sg_config *config = sg_sets_config_with(format, path, path, more);
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

void sg_sets_refuse_text(const char *format, const char *text, const char *more, const char *part)
{
    sg_sets_refuse(format, text, strlen(text), more, part);
}
