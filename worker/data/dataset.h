/* worker/data/dataset.h - labelled examples, held whole in memory: images as bytes, other features as floats.
 *
 * Immutable once loaded, so any thread may read. A new format is a reader in a file of its own (readers.h). */
#ifndef SG_WORKER_DATA_DATASET_H
#define SG_WORKER_DATA_DATASET_H

#include "common/config.h"

#define SG_DATASET_MAX_SCALES 4u

typedef struct sg_dataset {
    size_t n_examples;              /* at least 1 */
    size_t channels, height, width; /* of images; all 0: the examples are not images */
    size_t n_features;              /* per example: channels * height * width of an image */
    uint32_t n_classes;             /* 2 to 65536 */
    uint16_t *labels;               /* [n_examples], each below n_classes */
    uint8_t *bytes;                 /* [n_examples, n_features]; NULL: the features are floats */
    float *reals;                   /* [n_examples, n_features]; NULL: they are bytes */

    /* Of bytes: mean and deviation (at least 1) of the training set, of each of the n_scales equal parts of an example:
     * of each channel, where there are at most SG_DATASET_MAX_SCALES. */
    size_t n_scales;
    float mean[SG_DATASET_MAX_SCALES], deviation[SG_DATASET_MAX_SCALES];
    /* Of reals that were brought to mean 0 and deviation 1: what was taken from each feature and then multiplied with
     * it, [2, n_features]; NULL: they are as they were in the file. */
    double *normalization;
} sg_dataset;

/* Reads the training set that `data` of the cluster file names, and finds out how it is to be scaled. Errors:
 * NOT_FOUND, DATA (the message names file and line, or example), EXHAUSTED. Freed by sg_dataset_destroy. */
SG_MUST_USE sg_status sg_dataset_load_train(const sg_config *config, sg_dataset **dataset, sg_error *err);
/* What the examples of the training set look like, for which as little is read as the format allows: of cifar10, raw
 * and synthetic the result has neither labels nor features, and as n_examples any number. Errors: as above. */
SG_MUST_USE sg_status sg_dataset_load_shape(const sg_config *config, sg_dataset **dataset, sg_error *err);
/* As sg_dataset_load_train for the test set, which is scaled as `train` is. DATA, too, if its examples have another
 * shape. */
SG_MUST_USE sg_status sg_dataset_load_test(const sg_config *config, const sg_dataset *train, sg_dataset **dataset,
                                           sg_error *err);
void sg_dataset_destroy(sg_dataset *dataset); /* NULL is fine */

/* The same with the number of examples, which takes more to read: of idx the headers of both files, of synthetic
 * nothing, of all others everything. Errors: as above. */
SG_MUST_USE sg_status sg_dataset_measure(const sg_config *config, sg_dataset **dataset, sg_error *err);

/* Example `index` as floats, [n_features]: bytes as (byte - mean) / deviation. */
void sg_dataset_get(const sg_dataset *dataset, size_t index, float *features, uint32_t *label);
/* What a black pixel of this channel is among them; where features are floats, 0. */
float sg_dataset_black(const sg_dataset *dataset, size_t channel);

#endif
