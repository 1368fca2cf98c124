/* worker/data/dataset.c - see dataset.h. */
#include "worker/data/dataset.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "worker/data/readers.h"

#define MAX_EXAMPLES UINT32_MAX /* their order is kept as 32-bit numbers */

static sg_data_reader *const readers[] = {
    [SG_DATA_IDX] = sg_read_idx,       [SG_DATA_CIFAR10] = sg_read_cifar10, [SG_DATA_CSV] = sg_read_csv,
    [SG_DATA_LIBSVM] = sg_read_libsvm, [SG_DATA_RAW] = sg_read_raw,         [SG_DATA_SYNTHETIC] = sg_read_synthetic,
};

/* NULL: the shape is known when all is read. */
static sg_data_reader *const lookers[SG_ARRAY_LEN(readers)] = {
    [SG_DATA_CIFAR10] = sg_look_at_cifar10,
    [SG_DATA_RAW] = sg_look_at_raw,
    [SG_DATA_SYNTHETIC] = sg_look_at_synthetic,
};

/* For messages: the file that stands for the set. */
static const char *name_of(const sg_config *config, bool test)
{
    const sg_config_strings *files = test ? &config->data.test : &config->data.train;
    if (files->n > 0)
        return files->items[0];
    return config->data.format == SG_DATA_SYNTHETIC ? "data.format synthetic"
           : test                                   ? config->data.test_images
                                                    : config->data.train_images;
}

/* --- scaling -------------------------------------------------------------------------------------------------- */

/* Sums of whole numbers, so that the result does not depend on their order or on the machine. */
static void measure_bytes(sg_dataset *d, size_t scale)
{
    uint64_t counts[256] = {0};
    const size_t n_part = d->n_features / d->n_scales;
    const size_t n = d->n_examples * n_part;
    for (size_t i = 0; i < d->n_examples; i++) {
        const uint8_t *part = d->bytes + i * d->n_features + scale * n_part;
        for (size_t f = 0; f < n_part; f++)
            counts[part[f]]++;
    }
    double mean = 0;
    double square = 0;
    for (int byte = 0; byte < 256; byte++) {
        mean += (double)counts[byte] / (double)n * byte;
        square += (double)counts[byte] / (double)n * byte * byte;
    }
    double variance = square - mean * mean;
    d->mean[scale] = (float)mean;
    d->deviation[scale] = variance > 1 ? (float)sqrt(variance) : 1;
}

/* Mean and deviation of each feature, in double, examples in order. One that is the same everywhere, as far as floats
 * of its size can tell, is only moved: it becomes 0. */
static sg_status measure_reals(sg_dataset *d, sg_error *err)
{
    const size_t n = d->n_features;
    double *sums = calloc(2 * n, sizeof *sums);
    d->normalization = calloc(2 * n, sizeof *d->normalization);
    if (!sums || !d->normalization) {
        free(sums);
        return sg_error_set(err, SG_EXHAUSTED, "data: no memory for the means of %zu features", n);
    }
    for (size_t i = 0; i < d->n_examples; i++)
        for (size_t f = 0; f < n; f++)
            sums[f] += (double)d->reals[i * n + f];
    for (size_t f = 0; f < n; f++)
        sums[f] /= (double)d->n_examples;
    for (size_t i = 0; i < d->n_examples; i++)
        for (size_t f = 0; f < n; f++) {
            double away = (double)d->reals[i * n + f] - sums[f];
            sums[n + f] += away * away;
        }
    for (size_t f = 0; f < n; f++) {
        double deviation = sqrt(sums[n + f] / (double)d->n_examples);
        d->normalization[f] = sums[f];
        d->normalization[n + f] =
            deviation > (double)FLT_EPSILON * fabs(sums[f]) && deviation > 1e-30 ? 1 / deviation : 1;
    }
    free(sums);
    return SG_OK;
}

static void normalize(sg_dataset *d, const double *normalization)
{
    const size_t n = d->n_features;
    for (size_t i = 0; i < d->n_examples; i++)
        for (size_t f = 0; f < n; f++)
            d->reals[i * n + f] = (float)(((double)d->reals[i * n + f] - normalization[f]) * normalization[n + f]);
}

/* --- loading -------------------------------------------------------------------------------------------------- */

static sg_status read_set(sg_data_reader *reader, const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    d->n_classes = (uint32_t)config->data.classes;
    sg_status status = reader(config, test, d, err);
    if (status != SG_OK)
        return status;
    if (d->n_examples == 0)
        return sg_error_set(err, SG_DATA, "%s: holds no examples", name_of(config, test));
    if (d->n_examples > MAX_EXAMPLES)
        return sg_error_set(err, SG_DATA, "%s: %zu examples; wanted at most %u", name_of(config, test), d->n_examples,
                            MAX_EXAMPLES);
    return SG_OK;
}

static sg_status load(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    sg_status status = read_set(readers[config->data.format], config, test, d, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT((d->bytes == NULL) != (d->reals == NULL));
    d->n_scales = d->channels >= 1 && d->channels <= SG_DATASET_MAX_SCALES ? d->channels : 1;
    return SG_OK;
}

static sg_status scale_by_itself(const sg_config *config, sg_dataset *d, sg_error *err)
{
    for (size_t i = 0; d->bytes && i < d->n_scales; i++)
        measure_bytes(d, i);
    if (config->data.format != SG_DATA_CSV)
        return SG_OK;
    sg_status status = measure_reals(d, err);
    if (status == SG_OK)
        normalize(d, d->normalization);
    return status;
}

sg_status sg_dataset_load_train(const sg_config *config, sg_dataset **dataset, sg_error *err)
{
    sg_dataset *d = sg_xcalloc(1, sizeof *d);
    sg_status status = load(config, false, d, err);
    if (status == SG_OK)
        status = scale_by_itself(config, d, err);
    if (status == SG_OK)
        *dataset = d;
    else
        sg_dataset_destroy(d);
    return status;
}

static sg_status look_at(sg_data_reader *look, const sg_config *config, sg_dataset **dataset, sg_error *err)
{
    sg_dataset *d = sg_xcalloc(1, sizeof *d);
    sg_status status = read_set(look, config, false, d, err);
    if (status == SG_OK)
        *dataset = d;
    else
        sg_dataset_destroy(d);
    return status;
}

sg_status sg_dataset_load_shape(const sg_config *config, sg_dataset **dataset, sg_error *err)
{
    sg_data_reader *look = lookers[config->data.format];
    return look == NULL ? sg_dataset_load_train(config, dataset, err) : look_at(look, config, dataset, err);
}

sg_status sg_dataset_measure(const sg_config *config, sg_dataset **dataset, sg_error *err)
{
    if (config->data.format == SG_DATA_SYNTHETIC)
        return look_at(sg_look_at_synthetic, config, dataset, err);
    if (config->data.format == SG_DATA_IDX)
        return look_at(sg_look_at_idx, config, dataset, err);
    return sg_dataset_load_train(config, dataset, err);
}

static sg_status check_shape(const sg_config *config, const sg_dataset *train, const sg_dataset *test, sg_error *err)
{
    const char *test_name = name_of(config, true);
    const char *train_name = name_of(config, false);
    if (test->height != train->height || test->width != train->width)
        return sg_error_set(err, SG_DATA, "%s: images of %zu x %zu pixels, but those of %s have %zu x %zu", test_name,
                            test->height, test->width, train_name, train->height, train->width);
    if (test->n_features != train->n_features)
        return sg_error_set(err, SG_DATA, "%s: examples of %zu features, but those of %s have %zu", test_name,
                            test->n_features, train_name, train->n_features);
    return SG_OK;
}

sg_status sg_dataset_load_test(const sg_config *config, const sg_dataset *train, sg_dataset **dataset, sg_error *err)
{
    sg_dataset *d = sg_xcalloc(1, sizeof *d);
    sg_status status = load(config, true, d, err);
    if (status == SG_OK)
        status = check_shape(config, train, d, err);
    if (status != SG_OK) {
        sg_dataset_destroy(d);
        return status;
    }
    memcpy(d->mean, train->mean, sizeof d->mean);
    memcpy(d->deviation, train->deviation, sizeof d->deviation);
    if (train->normalization)
        normalize(d, train->normalization);
    *dataset = d;
    return SG_OK;
}

void sg_dataset_destroy(sg_dataset *dataset)
{
    if (!dataset)
        return;
    free(dataset->labels);
    free(dataset->bytes);
    free(dataset->reals);
    free(dataset->normalization);
    free(dataset);
}

/* --- use ------------------------------------------------------------------------------------------------------ */

void sg_dataset_get(const sg_dataset *dataset, size_t index, float *features, uint32_t *label)
{
    SG_ASSERT(index < dataset->n_examples);
    *label = dataset->labels[index];
    if (dataset->reals) {
        memcpy(features, dataset->reals + index * dataset->n_features, dataset->n_features * sizeof *features);
        return;
    }
    const size_t n_part = dataset->n_features / dataset->n_scales;
    for (size_t part = 0; part < dataset->n_scales; part++) {
        const uint8_t *bytes = dataset->bytes + index * dataset->n_features + part * n_part;
        float *out = features + part * n_part;
        float mean = dataset->mean[part];
        float scale = 1 / dataset->deviation[part];
        for (size_t i = 0; i < n_part; i++)
            out[i] = ((float)bytes[i] - mean) * scale;
    }
}

float sg_dataset_black(const sg_dataset *dataset, size_t channel)
{
    if (dataset->reals)
        return 0;
    const size_t part = channel < dataset->n_scales ? channel : 0;
    return (0 - dataset->mean[part]) * (1 / dataset->deviation[part]);
}
