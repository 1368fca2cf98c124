/* worker/data/dataset.c - see dataset.h. */
#include "worker/data/dataset.h"

#include <math.h>
#include <stdlib.h>

#include "common/status.h"
#include "worker/data/idx.h"

#define MAX_EXAMPLES UINT32_MAX /* their order is kept as 32-bit numbers */

static sg_status check_pair(const char *images_path, const sg_idx *images, const char *labels_path,
                            const sg_idx *labels, uint32_t n_classes, sg_error *err)
{
    if (images->shape[0] != labels->shape[0])
        return sg_error_set(err, SG_DATA, "%s has %llu images, %s has %llu labels; wanted as many of both", images_path,
                            (unsigned long long)images->shape[0], labels_path, (unsigned long long)labels->shape[0]);
    if (images->shape[0] > MAX_EXAMPLES)
        return sg_error_set(err, SG_DATA, "%s: %llu images; wanted at most %llu", images_path,
                            (unsigned long long)images->shape[0], (unsigned long long)MAX_EXAMPLES);
    for (size_t i = 0; i < labels->n_bytes; i++)
        if (labels->bytes[i] >= n_classes)
            return sg_error_set(err, SG_DATA, "%s: label %zu is %u; wanted 0 to %u", labels_path, i, labels->bytes[i],
                                n_classes - 1);
    return SG_OK;
}

/* Sums of whole numbers, so that the result does not depend on their order or on the machine. */
static void measure(sg_dataset *dataset)
{
    uint64_t counts[256] = {0};
    size_t n = dataset->n_examples * dataset->n_features;
    for (size_t i = 0; i < n; i++)
        counts[dataset->images[i]]++;
    double mean = 0;
    double square = 0;
    for (int byte = 0; byte < 256; byte++) {
        mean += (double)counts[byte] / (double)n * byte;
        square += (double)counts[byte] / (double)n * byte * byte;
    }
    double variance = square - mean * mean;
    dataset->mean = (float)mean;
    dataset->deviation = variance > 1 ? (float)sqrt(variance) : 1;
}

sg_status sg_dataset_load(const char *images_path, const char *labels_path, uint32_t n_classes, sg_dataset **dataset,
                          sg_error *err)
{
    sg_idx images = {0};
    sg_idx labels = {0};
    sg_status status = sg_idx_read(images_path, 3, &images, err);
    if (status == SG_OK)
        status = sg_idx_read(labels_path, 1, &labels, err);
    if (status == SG_OK)
        status = check_pair(images_path, &images, labels_path, &labels, n_classes, err);
    if (status != SG_OK) {
        sg_idx_deinit(&images);
        sg_idx_deinit(&labels);
        return status;
    }
    sg_dataset *made = sg_xcalloc(1, sizeof *made);
    *made = (sg_dataset){.n_examples = images.shape[0],
                         .height = images.shape[1],
                         .width = images.shape[2],
                         .n_features = images.shape[1] * images.shape[2],
                         .n_classes = n_classes,
                         .images = images.bytes,
                         .labels = labels.bytes};
    measure(made);
    *dataset = made;
    return SG_OK;
}

void sg_dataset_destroy(sg_dataset *dataset)
{
    if (!dataset)
        return;
    free(dataset->images);
    free(dataset->labels);
    free(dataset);
}

void sg_dataset_scale_as(sg_dataset *dataset, const sg_dataset *other)
{
    dataset->mean = other->mean;
    dataset->deviation = other->deviation;
}

void sg_dataset_get(const sg_dataset *dataset, size_t index, float *features, uint32_t *label)
{
    SG_ASSERT(index < dataset->n_examples);
    const uint8_t *bytes = dataset->images + index * dataset->n_features;
    float mean = dataset->mean;
    float scale = 1 / dataset->deviation;
    for (size_t i = 0; i < dataset->n_features; i++)
        features[i] = ((float)bytes[i] - mean) * scale;
    *label = dataset->labels[index];
}
