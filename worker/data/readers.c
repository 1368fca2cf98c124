/* worker/data/readers.c - what readers share: rows that are added one by one, and words of text. */
#include "worker/data/readers.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_ROOM_BYTES ((size_t)1 << 20)

void sg_reader_take_shape(const sg_config *config, sg_dataset *dataset)
{
    const sg_config_numbers *shape = &config->data.shape;
    SG_ASSERT(shape->n == 1 || shape->n == 3);
    if (shape->n == 3) {
        dataset->channels = shape->items[0];
        dataset->height = shape->items[1];
        dataset->width = shape->items[2];
    }
    dataset->n_features = 1;
    for (size_t i = 0; i < shape->n; i++)
        dataset->n_features *= shape->items[i];
}

static sg_status grow(sg_rows *rows, const sg_data_file *file, sg_error *err)
{
    sg_dataset *d = rows->dataset;
    const size_t row_bytes = d->n_features * sizeof *d->reals;
    const size_t room = (rows->room > 0 ? rows->room + rows->room / 2 : FIRST_ROOM_BYTES / row_bytes) + 1;
    const bool fits = rows->room + 1 <= SG_DATA_MAX_BYTES / row_bytes;
    const size_t wanted = fits && room > SG_DATA_MAX_BYTES / row_bytes ? SG_DATA_MAX_BYTES / row_bytes : room;
    float *reals = fits ? realloc(d->reals, wanted * row_bytes) : NULL;
    if (reals)
        d->reals = reals;
    uint16_t *labels = reals ? realloc(d->labels, wanted * sizeof *labels) : NULL;
    if (!labels)
        return sg_error_set(err, SG_EXHAUSTED, "%s:%llu: no memory for more than %zu examples of %zu features",
                            file->path, (unsigned long long)file->line, d->n_examples, d->n_features);
    d->labels = labels;
    rows->room = wanted;
    return SG_OK;
}

sg_status sg_rows_add(sg_rows *rows, const sg_data_file *file, uint16_t label, float **row, sg_error *err)
{
    sg_dataset *d = rows->dataset;
    sg_status status = d->n_examples == rows->room ? grow(rows, file, err) : SG_OK;
    if (status != SG_OK)
        return status;
    d->labels[d->n_examples] = label;
    *row = d->reals + d->n_examples * d->n_features;
    memset(*row, 0, d->n_features * sizeof **row);
    d->n_examples++;
    return SG_OK;
}

/* strtod takes words and hexadecimal numbers, too, and in a program that has set a locale it wants its decimal sign. */
bool sg_text_is_real(const char *text, double *value)
{
    if (text[0] == '\0' || text[strspn(text, "0123456789+-.eE")] != '\0')
        return false;
    static const double tens[] = {1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    const char *at = text + (text[0] == '-' || text[0] == '+');
    const size_t whole = strspn(at, "0123456789");
    const size_t fraction = at[whole] == '.' ? strspn(at + whole + 1, "0123456789") : 0;
    const char *behind = at + whole + (at[whole] == '.') + fraction;
    if (whole + fraction == 0)
        return false;
    if (*behind == '\0' && whole + fraction <= 15) { /* both are exact in double, so their quotient is the nearest */
        double digits = 0;
        for (; at < behind; at++)
            digits = *at == '.' ? digits : 10 * digits + (*at - '0');
        *value = (text[0] == '-' ? -digits : digits) / tens[fraction];
        return true;
    }
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    SG_ASSERT(c != (locale_t)0);
    char *end;
    *value = strtod_l(text, &end, c);
    freelocale(c);
    return *end == '\0' && isfinite((float)*value);
}

/* -1 and 0 beside each other would be two classes that become one. */
static sg_status take_first_class(sg_rows *rows, const sg_data_file *file, bool is_minus_1, sg_error *err)
{
    if (rows->first_class_path == NULL) {
        rows->first_class_path = file->path;
        rows->first_class_line = file->line;
        rows->first_class_is_minus_1 = is_minus_1;
    }
    if (rows->first_class_is_minus_1 == is_minus_1)
        return SG_OK;
    return sg_error_set(err, SG_DATA, "%s:%llu: the label is '%s', but %s:%llu has '%s'; wanted one of them throughout",
                        file->path, (unsigned long long)file->line, is_minus_1 ? "-1" : "0", rows->first_class_path,
                        (unsigned long long)rows->first_class_line, is_minus_1 ? "0" : "-1");
}

sg_status sg_rows_label(sg_rows *rows, const sg_config *config, const sg_data_file *file, const char *word,
                        uint16_t *label, sg_error *err)
{
    const uint64_t first = config->data.first_label, n_classes = config->data.classes;
    const bool may_be_minus_1 = n_classes == 2 && first == 0;
    const char *digits = word + (word[0] == '+');
    double value;
    /* Of two classes, many files call the first one -1. */
    if (may_be_minus_1 && strcmp(word, "-1") == 0) {
        *label = 0;
        return take_first_class(rows, file, true, err);
    }
    if (sg_text_is_real(digits, &value) && value == floor(value) && value >= (double)first &&
        value < (double)(first + n_classes)) {
        *label = (uint16_t)((uint64_t)value - first);
        return may_be_minus_1 && *label == 0 ? take_first_class(rows, file, false, err) : SG_OK;
    }
    return sg_error_set(err, SG_DATA,
                        "%s:%llu: the label is '%.40s'; wanted a whole number from %llu to %llu (data.classes, "
                        "data.first_label)",
                        file->path, (unsigned long long)file->line, word, (unsigned long long)first,
                        (unsigned long long)(first + n_classes - 1));
}
