/* worker/data/idx.c - see idx.h for the format. */
#include "worker/data/idx.h"

#include <stdlib.h>

#include "worker/data/file.h"

#define TYPE_UNSIGNED_BYTE 8

static sg_status read_shape(sg_data_file *f, uint32_t rank, sg_idx *idx, sg_error *err)
{
    uint8_t magic[4];
    sg_status status = sg_data_file_read_exactly(f, "header", magic, sizeof magic, err);
    if (status != SG_OK)
        return status;
    if (magic[0] || magic[1] || magic[2] != TYPE_UNSIGNED_BYTE || magic[3] != rank)
        return sg_error_set(err, SG_DATA,
                            "%s: begins with %02x %02x %02x %02x; wanted 00 00 08 %02x (IDX, unsigned bytes, %u "
                            "dimensions)",
                            f->path, magic[0], magic[1], magic[2], magic[3], rank, rank);
    uint8_t sizes[4 * SG_IDX_MAX_RANK] = {0};
    status = sg_data_file_read_exactly(f, "header", sizes, (size_t)4 * rank, err);
    if (status != SG_OK)
        return status;
    uint64_t n_bytes = 1;
    for (uint32_t i = 0; i < rank; i++) {
        const uint8_t *size = sizes + (size_t)4 * i;
        idx->shape[i] = (uint64_t)size[0] << 24 | (uint64_t)size[1] << 16 | (uint64_t)size[2] << 8 | size[3];
        if (idx->shape[i] == 0)
            return sg_error_set(err, SG_DATA, "%s: dimension %u is 0; wanted at least 1", f->path, i);
        if (__builtin_mul_overflow(n_bytes, idx->shape[i], &n_bytes) || n_bytes > SG_DATA_MAX_BYTES)
            return sg_error_set(err, SG_DATA, "%s: its dimensions make more than %llu bytes; wanted fewer", f->path,
                                (unsigned long long)SG_DATA_MAX_BYTES);
    }
    idx->rank = rank;
    idx->n_bytes = n_bytes;
    return SG_OK;
}

static sg_status read_elements(sg_data_file *f, sg_idx *idx, sg_error *err)
{
    if (idx->n_bytes + 4 + (uint64_t)4 * idx->rank > sg_data_file_most_bytes(f))
        return sg_error_set(err, SG_DATA,
                            "%s: its header promises %zu bytes, but the file has only %llu: get the file anew", f->path,
                            idx->n_bytes, (unsigned long long)f->file_bytes);
    idx->bytes = sg_try_alloc_aligned(idx->n_bytes);
    if (!idx->bytes)
        return sg_error_set(err, SG_EXHAUSTED, "%s: no memory for its %zu bytes", f->path, idx->n_bytes);
    sg_status status = sg_data_file_read_exactly(f, "elements", idx->bytes, idx->n_bytes, err);
    if (status != SG_OK)
        return status;
    uint8_t behind;
    size_t n_behind;
    status = sg_data_file_read(f, &behind, 1, &n_behind, err);
    if (status == SG_OK && n_behind)
        status = sg_error_set(err, SG_DATA, "%s: goes on after the %zu bytes that its header promises", f->path,
                              idx->n_bytes);
    return status;
}

sg_status sg_idx_read_shape(const char *path, uint32_t rank, sg_idx *idx, sg_error *err)
{
    SG_ASSERT(rank >= 1 && rank <= SG_IDX_MAX_RANK);
    sg_data_file file;
    *idx = (sg_idx){0};
    sg_status status = sg_data_file_open(path, &file, err);
    if (status == SG_OK)
        status = read_shape(&file, rank, idx, err);
    sg_data_file_close(&file);
    return status;
}

sg_status sg_idx_read(const char *path, uint32_t rank, sg_idx *idx, sg_error *err)
{
    SG_ASSERT(rank >= 1 && rank <= SG_IDX_MAX_RANK);
    sg_data_file file;
    sg_idx made = {0};
    sg_status status = sg_data_file_open(path, &file, err);
    if (status == SG_OK)
        status = read_shape(&file, rank, &made, err);
    if (status == SG_OK)
        status = read_elements(&file, &made, err);
    sg_data_file_close(&file);
    if (status == SG_OK)
        *idx = made;
    else
        sg_idx_deinit(&made);
    return status;
}

void sg_idx_deinit(sg_idx *idx)
{
    free(idx->bytes);
    *idx = (sg_idx){0};
}
