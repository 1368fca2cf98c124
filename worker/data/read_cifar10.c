/* worker/data/read_cifar10.c - see readers.h. A record: the label, one byte; then 32 x 32 bytes of red, of green, of
 * blue, row by row. Nothing else is in a file. */
#include <stdlib.h>
#include <string.h>

#include "worker/data/readers.h"

#define N_PIXELS     ((size_t)3 * 32 * 32)
#define RECORD_BYTES (1 + N_PIXELS)

/* The pixels move together, over the labels that stood between them. */
static sg_status take_apart(const char *path, size_t first, sg_dataset *d, sg_error *err)
{
    for (size_t i = first; i < d->n_examples; i++) {
        const uint8_t *record = d->bytes + first * N_PIXELS + (i - first) * RECORD_BYTES;
        if (record[0] >= d->n_classes)
            return sg_error_set(err, SG_DATA, "%s: label %zu is %u; wanted 0 to %u", path, i - first, record[0],
                                d->n_classes - 1);
        d->labels[i] = record[0];
        memmove(d->bytes + i * N_PIXELS, record + 1, N_PIXELS);
    }
    return SG_OK;
}

static sg_status check_size(const char *path, uint64_t n_bytes, sg_error *err)
{
    if (n_bytes > 0 && n_bytes % RECORD_BYTES == 0)
        return SG_OK;
    return sg_error_set(err, SG_DATA,
                        "%s: %llu bytes; wanted a multiple of %zu, whole records of CIFAR-10's binary version", path,
                        (unsigned long long)n_bytes, RECORD_BYTES);
}

static sg_status read_file(const char *path, sg_dataset *d, sg_error *err)
{
    const size_t first = d->n_examples;
    size_t n_bytes = first * N_PIXELS;
    sg_status status = sg_data_file_append(path, &d->bytes, &n_bytes, err);
    if (status != SG_OK)
        return status;
    const size_t n_new = n_bytes - first * N_PIXELS;
    status = check_size(path, n_new, err);
    if (status != SG_OK)
        return status;
    d->n_examples += n_new / RECORD_BYTES;
    uint16_t *labels = realloc(d->labels, d->n_examples * sizeof *labels);
    if (!labels)
        return sg_error_set(err, SG_EXHAUSTED, "%s: no memory for its %zu labels", path, n_new / RECORD_BYTES);
    d->labels = labels;
    return take_apart(path, first, d, err);
}

static void take_shape(sg_dataset *d)
{
    d->channels = 3;
    d->height = d->width = 32;
    d->n_features = N_PIXELS;
}

sg_status sg_look_at_cifar10(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const sg_config_strings *files = test ? &config->data.test : &config->data.train;
    take_shape(d);
    sg_status status = SG_OK;
    for (size_t i = 0; i < files->n && status == SG_OK; i++) {
        uint64_t n_bytes;
        status = sg_data_file_look(files->items[i], &n_bytes, err);
        if (status == SG_OK && n_bytes != SG_DATA_UNKNOWN)
            status = check_size(files->items[i], n_bytes, err);
        d->n_examples++;
    }
    return status;
}

sg_status sg_read_cifar10(const sg_config *config, bool test, sg_dataset *d, sg_error *err)
{
    const sg_config_strings *files = test ? &config->data.test : &config->data.train;
    take_shape(d);
    sg_status status = SG_OK;
    for (size_t i = 0; i < files->n && status == SG_OK; i++)
        status = read_file(files->items[i], d, err);
    return status;
}
