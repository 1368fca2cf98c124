/* Data files. The first byte tells the format: up to 3 IDX of so many dimensions and one, then the others. */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "worker/data/idx.h"
#include "worker/data/readers.h"

enum { n_features_at_most = 4096 }; /* inputs are no longer than that */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void read_idx(uint32_t rank, const char *path)
{
    sg_idx idx;
    sg_error err;
    if (sg_idx_read(path, rank, &idx, &err) != SG_OK)
        return;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < idx.n_bytes; i++)
        sum = (uint8_t)(sum + idx.bytes[i]);
    sg_idx_deinit(&idx);
}

/* The file is training and test set, features and labels at once. */
static void read_dataset(sg_data_format format, char *path)
{
    const bool in_pairs = format == SG_DATA_RAW;
    uint64_t shape = 3;
    sg_config config = {0};
    config.data.format = format;
    config.data.classes = format == SG_DATA_CIFAR10 ? 10 : 2;
    config.data.train_images = config.data.train_labels = in_pairs ? path : (char[]){""};
    config.data.train.items = &path;
    config.data.train.n = in_pairs ? 0 : 1;
    config.data.shape.items = &shape;
    config.data.shape.n = format == SG_DATA_CSV ? 0 : 1;
    sg_dataset *dataset;
    sg_error err;
    if (sg_dataset_load_train(&config, &dataset, &err) != SG_OK) {
        SG_ASSERT(strchr(err.message, '\n') == NULL);
        return;
    }
    SG_ASSERT(dataset->n_features <= n_features_at_most);
    float row[n_features_at_most];
    uint32_t label;
    for (size_t i = 0; i < dataset->n_examples; i++) {
        sg_dataset_get(dataset, i, row, &label);
        SG_ASSERT(label < dataset->n_classes);
    }
    sg_dataset_destroy(dataset);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const sg_data_format formats[] = {SG_DATA_CSV, SG_DATA_LIBSVM, SG_DATA_CIFAR10, SG_DATA_RAW};
    if (n_bytes < 1)
        return 0;
    char path[64];
    int fd = memfd_create("fuzz", MFD_CLOEXEC);
    SG_ASSERT(fd >= 0 && write(fd, data + 1, n_bytes - 1) == (ssize_t)n_bytes - 1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const uint8_t kind = data[0] % (SG_IDX_MAX_RANK + SG_ARRAY_LEN(formats));
    if (kind < SG_IDX_MAX_RANK)
        read_idx(1 + kind, path);
    else
        read_dataset(formats[kind - SG_IDX_MAX_RANK], path);
    close(fd);
    return 0;
}
