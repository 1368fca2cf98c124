/* worker/data/read_libsvm.c - see readers.h. A line is LABEL INDEX:VALUE INDEX:VALUE ..., indices from 1, ascending;
 * what is not there is 0; what follows # is a remark. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/readers.h"

#define BLANKS " \t"

typedef struct libsvm {
    const sg_config *config;
    sg_data_file file;
    sg_rows rows;
} libsvm;

static sg_status bad_pair(const libsvm *l, const char *word, sg_error *err)
{
    return sg_error_set(err, SG_DATA, "%s:%" PRIu64 ": found '%.40s'; wanted INDEX:VALUE, two numbers", l->file.path,
                        l->file.line, word);
}

/* previous: the index before it in its line; 0: none. */
static sg_status take_pair(const libsvm *l, char *word, uint64_t *previous, float *row, sg_error *err)
{
    const uint64_t n_features = l->rows.dataset->n_features;
    char *colon = strchr(word, ':');
    const size_t n_digits = strspn(word, "0123456789");
    double value;
    if (!colon || n_digits == 0 || word + n_digits != colon || !sg_text_is_real(colon + 1, &value))
        return bad_pair(l, word, err);
    const uint64_t index = n_digits < 19 ? strtoull(word, NULL, 10) : UINT64_MAX;
    if (index == 0)
        return sg_error_set(err, SG_DATA, "%s:%" PRIu64 ": index 0; wanted indices from 1 on", l->file.path,
                            l->file.line);
    if (index > n_features)
        return sg_error_set(err, SG_DATA,
                            "%s:%" PRIu64 ": index %.*s is beyond the %" PRIu64 " features that data.shape declares",
                            l->file.path, l->file.line, (int)(n_digits < 24 ? n_digits : 24), word, n_features);
    if (index <= *previous)
        return sg_error_set(err, SG_DATA,
                            "%s:%" PRIu64 ": index %" PRIu64 " comes after %" PRIu64 "; wanted ascending indices",
                            l->file.path, l->file.line, index, *previous);
    row[index - 1] = (float)value;
    *previous = index;
    return SG_OK;
}

static sg_status take_line(libsvm *l, char *line, sg_error *err)
{
    char *rest;
    char *word = strtok_r(line, BLANKS, &rest);
    if (!word)
        return SG_OK;
    uint16_t label;
    float *row;
    sg_status status = sg_rows_label(&l->rows, l->config, &l->file, word, &label, err);
    if (status == SG_OK)
        status = sg_rows_add(&l->rows, &l->file, label, &row, err);
    uint64_t previous = 0;
    while (status == SG_OK && (word = strtok_r(NULL, BLANKS, &rest)) != NULL)
        status = take_pair(l, word, &previous, row, err);
    return status;
}

static sg_status read_file(libsvm *l, sg_error *err)
{
    for (;;) {
        char *line;
        sg_status status = sg_data_file_line(&l->file, &line, err);
        if (status != SG_OK || !line)
            return status;
        line[strcspn(line, "#")] = '\0';
        status = take_line(l, line, err);
        if (status != SG_OK)
            return status;
    }
}

sg_status sg_read_libsvm(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const sg_config_strings *files = test ? &config->data.test : &config->data.train;
    libsvm l = {.config = config, .rows = {.dataset = d}};
    sg_reader_take_shape(config, d);
    sg_status status = SG_OK;
    for (size_t i = 0; i < files->n && status == SG_OK; i++) {
        status = sg_data_file_open(files->items[i], &l.file, err);
        if (status == SG_OK)
            status = read_file(&l, err);
        sg_data_file_close(&l.file);
    }
    return status;
}
