/* worker/data/read_raw.c - see readers.h. Nothing but numbers: as numpy writes them by tofile(). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/readers.h"

static sg_status count_examples(const char *path, uint64_t n_bytes, sg_dataset *d, sg_error *err)
{
    const size_t example_bytes = d->n_features * sizeof *d->reals;
    if (n_bytes % example_bytes != 0)
        return sg_error_set(err, SG_DATA, "%s: %llu bytes; wanted a multiple of %zu, %zu float32 for each example",
                            path, (unsigned long long)n_bytes, example_bytes, d->n_features);
    d->n_examples = n_bytes / example_bytes;
    return SG_OK;
}

static sg_status take_features(const char *path, sg_dataset *d, sg_error *err)
{
    uint8_t *bytes = NULL;
    size_t n_bytes = 0;
    sg_status status = sg_data_file_append(path, &bytes, &n_bytes, err);
    d->reals = (float *)(void *)bytes; /* little endian, as every machine that this is built for */
    if (status != SG_OK)
        return status;
    status = count_examples(path, n_bytes, d, err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < d->n_examples * d->n_features; i++)
        if (!isfinite(d->reals[i]))
            return sg_error_set(err, SG_DATA, "%s: feature %zu of example %zu is not a finite number", path,
                                i % d->n_features, i / d->n_features);
    return SG_OK;
}

static sg_status check_labels_size(const char *path, uint64_t n_bytes, size_t n_examples, sg_error *err)
{
    if (n_bytes == n_examples * sizeof(int32_t))
        return SG_OK;
    return sg_error_set(err, SG_DATA,
                        "%s: %llu bytes; wanted %zu, an int32 for each of %zu examples, if data.shape is right", path,
                        (unsigned long long)n_bytes, n_examples * sizeof(int32_t), n_examples);
}

static sg_status check_label(const sg_config *config, const char *path, size_t i, int32_t label, sg_error *err)
{
    const uint64_t first = config->data.first_label, n_classes = config->data.classes;
    if (label >= 0 && (uint64_t)label >= first && (uint64_t)label - first < n_classes)
        return SG_OK;
    return sg_error_set(err, SG_DATA, "%s: label %zu is %d; wanted %llu to %llu (data.classes, data.first_label)", path,
                        i, label, (unsigned long long)first, (unsigned long long)(first + n_classes - 1));
}

static sg_status take_labels(const sg_config *config, const char *path, const uint8_t *bytes, size_t n_bytes,
                             sg_dataset *d, sg_error *err)
{
    sg_status status = check_labels_size(path, n_bytes, d->n_examples, err);
    if (status != SG_OK)
        return status;
    d->labels = sg_try_alloc_aligned(d->n_examples * sizeof *d->labels);
    if (!d->labels)
        return sg_error_set(err, SG_EXHAUSTED, "%s: no memory for its %zu labels", path, d->n_examples);
    for (size_t i = 0; i < d->n_examples; i++) {
        int32_t label;
        memcpy(&label, bytes + i * sizeof label, sizeof label);
        status = check_label(config, path, i, label, err);
        if (status != SG_OK)
            return status;
        d->labels[i] = (uint16_t)((uint64_t)label - config->data.first_label);
    }
    return SG_OK;
}

sg_status sg_look_at_raw(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const char *features_path = test ? config->data.test_images : config->data.train_images;
    const char *labels_path = test ? config->data.test_labels : config->data.train_labels;
    uint64_t n_feature_bytes, n_label_bytes;
    sg_reader_take_shape(config, d);
    d->n_examples = 1;
    sg_status status = sg_data_file_look(features_path, &n_feature_bytes, err);
    if (status == SG_OK && n_feature_bytes != SG_DATA_UNKNOWN)
        status = count_examples(features_path, n_feature_bytes, d, err);
    if (status == SG_OK)
        status = sg_data_file_look(labels_path, &n_label_bytes, err);
    if (status == SG_OK && n_feature_bytes != SG_DATA_UNKNOWN && n_label_bytes != SG_DATA_UNKNOWN)
        status = check_labels_size(labels_path, n_label_bytes, d->n_examples, err);
    return status;
}

sg_status sg_read_raw(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const char *labels_path = test ? config->data.test_labels : config->data.train_labels;
    uint8_t *labels = NULL;
    size_t n_bytes = 0;
    sg_reader_take_shape(config, d);
    sg_status status = take_features(test ? config->data.test_images : config->data.train_images, d, err);
    if (status == SG_OK)
        status = sg_data_file_append(labels_path, &labels, &n_bytes, err);
    if (status == SG_OK)
        status = take_labels(config, labels_path, labels, n_bytes, d, err);
    free(labels);
    return status;
}
