/* worker/data/read_csv.c - see readers.h. Lines of numbers between commas, as many in each; no quotes. Empty lines are
 * passed over. */
#include <string.h>

#include "worker/data/readers.h"

typedef struct csv {
    const sg_config *config;
    sg_data_file file;
    sg_rows rows;
    size_t n_columns;  /* of the first line; 0: none was read */
    const char *first; /* where that was */
    uint64_t first_line;
    size_t label; /* column, from 0 */
} csv;

static char *trim(char *word)
{
    word += strspn(word, " \t");
    size_t length = strlen(word);
    while (length > 0 && (word[length - 1] == ' ' || word[length - 1] == '\t'))
        word[--length] = '\0';
    return word;
}

static size_t count_columns(const char *line)
{
    size_t n = 1;
    for (; *line != '\0'; line++)
        n += *line == ',';
    return n;
}

/* The first line says how many there are in all. */
static sg_status begin(csv *c, const char *line, sg_error *err)
{
    const sg_config *config = c->config;
    sg_dataset *d = c->rows.dataset;
    c->n_columns = count_columns(line);
    c->first = c->file.path;
    c->first_line = c->file.line;
    c->label = config->data.label_column > 0 ? config->data.label_column - 1 : c->n_columns - 1;
    if (c->n_columns < 2 || c->label >= c->n_columns)
        return sg_error_set(err, SG_DATA, "%s:%llu: found %zu column%s; wanted at least %zu, with commas between them",
                            c->file.path, (unsigned long long)c->file.line, c->n_columns, c->n_columns == 1 ? "" : "s",
                            c->label >= c->n_columns ? c->label + 1 : (size_t)2);
    if (config->data.shape.n == 0) {
        d->n_features = c->n_columns - 1;
        return SG_OK;
    }
    sg_reader_take_shape(config, d);
    if (d->n_features != c->n_columns - 1)
        return sg_error_set(err, SG_DATA, "%s:%llu: found %zu columns; data.shape wants %zu, and one for the label",
                            c->file.path, (unsigned long long)c->file.line, c->n_columns, d->n_features);
    return SG_OK;
}

static sg_status bad_field(const csv *c, size_t column, const char *word, sg_error *err)
{
    const bool maybe_header = c->file.line == 1 && !c->config->data.header;
    return sg_error_set(err, SG_DATA, "%s:%llu: column %zu %s%.40s%s; wanted a number%s", c->file.path,
                        (unsigned long long)c->file.line, column + 1, word[0] != '\0' ? "is '" : "is empty", word,
                        word[0] != '\0' ? "'" : "",
                        maybe_header ? " (data.header: true, if this line names the columns)" : "");
}

static sg_status take_line(csv *c, char *line, sg_error *err)
{
    sg_status status = c->n_columns == 0 ? begin(c, line, err) : SG_OK;
    if (status != SG_OK)
        return status;
    const size_t n_columns = count_columns(line);
    if (n_columns != c->n_columns)
        return sg_error_set(err, SG_DATA, "%s:%llu: found %zu column%s; wanted %zu, as in %s:%llu", c->file.path,
                            (unsigned long long)c->file.line, n_columns, n_columns == 1 ? "" : "s", c->n_columns,
                            c->first, (unsigned long long)c->first_line);
    float *row;
    status = sg_rows_add(&c->rows, &c->file, 0, &row, err);
    for (size_t i = 0; i < n_columns && status == SG_OK; i++) {
        char *word = line;
        line += strcspn(line, ",") + 1;
        line[-1] = '\0';
        word = trim(word);
        double value;
        if (!sg_text_is_real(word, &value))
            status = bad_field(c, i, word, err);
        else if (i == c->label)
            status = sg_rows_label(&c->rows, c->config, &c->file, word,
                                   &c->rows.dataset->labels[c->rows.dataset->n_examples - 1], err);
        else
            *row++ = (float)value;
    }
    return status;
}

/* An example that was taken for one would be lost in silence. Names that are the numbers of the columns are what pandas
 * writes where there are none. */
static sg_status check_header(const csv *c, char *line, sg_error *err)
{
    bool is_example = true, is_count = true;
    size_t n = 0;
    for (char *word = line, *next; word != NULL && is_example; word = next, n++) {
        double value;
        next = strchr(word, ',');
        if (next != NULL)
            *next++ = '\0';
        is_example = sg_text_is_real(trim(word), &value);
        is_count = is_example && is_count && value >= (double)n && value <= (double)n;
    }
    if (!is_example || is_count)
        return SG_OK;
    return sg_error_set(err, SG_DATA,
                        "%s:1: found numbers; wanted the names of the columns, as data.header: true says: false, if "
                        "this is an example",
                        c->file.path);
}

static sg_status read_file(csv *c, sg_error *err)
{
    for (;;) {
        char *line;
        sg_status status = sg_data_file_line(&c->file, &line, err);
        if (status != SG_OK || !line)
            return status;
        if (line[strspn(line, " \t")] == '\0')
            continue;
        if (c->file.line == 1 && c->config->data.header) {
            status = check_header(c, line, err);
            if (status != SG_OK)
                return status;
            continue;
        }
        status = take_line(c, line, err);
        if (status != SG_OK)
            return status;
    }
}

sg_status sg_read_csv(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const sg_config_strings *files = test ? &config->data.test : &config->data.train;
    csv c = {.config = config, .rows = {.dataset = d}};
    sg_status status = SG_OK;
    for (size_t i = 0; i < files->n && status == SG_OK; i++) {
        status = sg_data_file_open(files->items[i], &c.file, err);
        if (status == SG_OK)
            status = read_file(&c, err);
        sg_data_file_close(&c.file);
    }
    return status;
}
