/* worker/data/read_idx.c - see readers.h; idx.h has the format. */
#include "worker/data/idx.h"
#include "worker/data/readers.h"

static sg_status check_numbers(const char *images_path, const sg_idx *images, const char *labels_path,
                               const sg_idx *labels, sg_error *err)
{
    if (images->shape[0] == labels->shape[0])
        return SG_OK;
    return sg_error_set(err, SG_DATA, "%s has %llu images, %s has %llu labels; wanted as many of both", images_path,
                        (unsigned long long)images->shape[0], labels_path, (unsigned long long)labels->shape[0]);
}

static sg_status check_pair(const char *images_path, const sg_idx *images, const char *labels_path,
                            const sg_idx *labels, uint32_t n_classes, sg_error *err)
{
    sg_status status = check_numbers(images_path, images, labels_path, labels, err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < labels->n_bytes; i++)
        if (labels->bytes[i] >= n_classes)
            return sg_error_set(err, SG_DATA, "%s: label %zu is %u; wanted 0 to %u (data.classes)", labels_path, i,
                                labels->bytes[i], n_classes - 1);
    return SG_OK;
}

static sg_status take_labels(const sg_idx *labels, const char *path, sg_dataset *d, sg_error *err)
{
    d->labels = sg_try_alloc_aligned(labels->n_bytes * sizeof *d->labels);
    if (!d->labels)
        return sg_error_set(err, SG_EXHAUSTED, "%s: no memory for its %zu labels", path, labels->n_bytes);
    for (size_t i = 0; i < labels->n_bytes; i++)
        d->labels[i] = labels->bytes[i];
    return SG_OK;
}

static void take_shape(const sg_idx *images, sg_dataset *d)
{
    d->n_examples = images->shape[0];
    d->channels = 1;
    d->height = images->shape[1];
    d->width = images->shape[2];
    d->n_features = d->height * d->width;
}

sg_status sg_read_idx(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const char *images_path = test ? config->data.test_images : config->data.train_images;
    const char *labels_path = test ? config->data.test_labels : config->data.train_labels;
    sg_idx images = {0};
    sg_idx labels = {0};
    sg_status status = sg_idx_read(images_path, 3, &images, err);
    if (status == SG_OK)
        status = sg_idx_read(labels_path, 1, &labels, err);
    if (status == SG_OK)
        status = check_pair(images_path, &images, labels_path, &labels, d->n_classes, err);
    if (status == SG_OK)
        status = take_labels(&labels, labels_path, d, err);
    sg_idx_deinit(&labels);
    if (status != SG_OK) {
        sg_idx_deinit(&images);
        return status;
    }
    take_shape(&images, d);
    d->bytes = images.bytes;
    return SG_OK;
}

sg_status sg_look_at_idx(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const char *images_path = test ? config->data.test_images : config->data.train_images;
    const char *labels_path = test ? config->data.test_labels : config->data.train_labels;
    sg_idx images = {0}, labels = {0};
    sg_status status = sg_idx_read_shape(images_path, 3, &images, err);
    if (status == SG_OK)
        status = sg_idx_read_shape(labels_path, 1, &labels, err);
    if (status == SG_OK)
        status = check_numbers(images_path, &images, labels_path, &labels, err);
    if (status == SG_OK)
        take_shape(&images, d);
    return status;
}
