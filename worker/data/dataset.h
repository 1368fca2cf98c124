/* worker/data/dataset.h - labelled examples, held whole in memory as bytes.
 *
 * Immutable once loaded, so any thread may read. */
#ifndef SG_WORKER_DATA_DATASET_H
#define SG_WORKER_DATA_DATASET_H

#include "common/status.h"

typedef struct sg_dataset {
    size_t n_examples; /* at least 1 */
    size_t height, width;
    size_t n_features; /* per example: height * width of an image */
    uint32_t n_classes;
    uint8_t *images;       /* [n_examples, n_features] */
    uint8_t *labels;       /* [n_examples], each below n_classes */
    float mean, deviation; /* of all bytes of `images`; deviation at least 1 */
} sg_dataset;

/* Reads a pair of IDX files: images (3 dimensions) and labels (1). Errors: NOT_FOUND, DATA, EXHAUSTED; the message
 * names the file. Freed by sg_dataset_destroy. */
SG_MUST_USE sg_status sg_dataset_load(const char *images_path, const char *labels_path, uint32_t n_classes,
                                      sg_dataset **dataset, sg_error *err);
void sg_dataset_destroy(sg_dataset *dataset); /* NULL is fine */

/* Makes `dataset` be scaled as `other` is: a test set as the training set. Before anyone else uses it. */
void sg_dataset_scale_as(sg_dataset *dataset, const sg_dataset *other);

/* Example `index` as floats: (byte - mean) / deviation. */
void sg_dataset_get(const sg_dataset *dataset, size_t index, float *features, uint32_t *label);

#endif
