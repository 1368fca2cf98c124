/* worker/data/readers.h - one reader for each format, and what readers share; for dataset.c.
 *
 * A reader fills in a zeroed dataset: n_examples (0 is refused by the caller), the shape, labels and either bytes or
 * reals, and normalization is left NULL. Buffers belong to the dataset even after a failure. Errors as in dataset.h. */
#ifndef SG_WORKER_DATA_READERS_H
#define SG_WORKER_DATA_READERS_H

#include "worker/data/dataset.h"
#include "worker/data/file.h"

typedef sg_status sg_data_reader(const sg_config *config, bool test, sg_dataset *dataset, sg_error *err);

sg_data_reader sg_read_idx;       /* a file of images and one of labels */
sg_data_reader sg_read_cifar10;   /* CIFAR-10's binary version: records of a label and 3 x 32 x 32 bytes */
sg_data_reader sg_read_csv;       /* numbers between commas, one of them the label */
sg_data_reader sg_read_libsvm;    /* lines LABEL INDEX:VALUE ..., made dense */
sg_data_reader sg_read_raw;       /* a file of float32 and one of int32, both little endian */
sg_data_reader sg_read_synthetic; /* bytes made up from the seed, which a model can learn; no file */

/* For a look at the shape: as the readers, but without labels, bytes and reals. n_examples is at least 1 where it is
 * not known. Files must be there and, unless they are compressed, have a size that can be right. */
sg_data_reader sg_look_at_idx;
sg_data_reader sg_look_at_cifar10;
sg_data_reader sg_look_at_raw;
sg_data_reader sg_look_at_synthetic;

/* The shape of an example as data.shape tells it, which is not empty. */
void sg_reader_take_shape(const sg_config *config, sg_dataset *dataset);

/* Examples whose number is not known beforehand. begin: n_features is set. Then for each example sg_rows_add, which
 * gives a row of zeros to fill in. The path and the line of `file` are for messages. */
typedef struct sg_rows {
    sg_dataset *dataset;
    size_t room; /* in rows */

    /* Where sg_rows_label met -1 or 0 for the first time, and which; NULL: nowhere yet. */
    const char *first_class_path;
    uint64_t first_class_line;
    bool first_class_is_minus_1;
} sg_rows;
SG_MUST_USE sg_status sg_rows_add(sg_rows *rows, const sg_data_file *file, uint16_t label, float **row, sg_error *err);
/* A label in the file's own numbering. Of two classes, the first being 0, that one may be called -1 throughout the set,
 * as in many files. Errors: DATA, naming file, line and the word; so for a set with both -1 and 0, too. The file's path
 * must outlive the rows. */
SG_MUST_USE sg_status sg_rows_label(sg_rows *rows, const sg_config *config, const sg_data_file *file, const char *word,
                                    uint16_t *label, sg_error *err);

/* A decimal number, whole text, finite as a float: false for anything else. */
bool sg_text_is_real(const char *text, double *value);

#endif
