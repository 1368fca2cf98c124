/* worker/data/idx.c - see idx.h for the format. zlib reads plain files as they are, so both kinds take one path. */
#include "worker/data/idx.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "common/status.h"

#define TYPE_UNSIGNED_BYTE 8
#define READ_BYTES         (1U << 20)
/* Deflate makes at most 1032 bytes of one, so a header that promises more than this many per byte of file lies. */
#define MAX_EXPANSION ((uint64_t)1032)

typedef struct reader {
    const char *path;
    gzFile file;
    uint64_t file_bytes; /* on disk */
    sg_error *err;
} reader;

static sg_status open_failed(reader *r, int error)
{
    if (error != ENOENT)
        return sg_error_set(r->err, SG_DATA, "%s: cannot be read: %s", r->path, strerror(error));
    if (r->path[0] == '\0')
        return sg_error_set(r->err, SG_NOT_FOUND,
                            "a data file is not named: set data.train_images, train_labels, test_images and "
                            "test_labels to IDX files (plain or .gz)");
    bool is_debian_package = strncmp(r->path, "/usr/share/datasets/fashion-mnist/", 34) == 0;
    return sg_error_set(r->err, SG_NOT_FOUND, "%s: no such file; %s", r->path,
                        is_debian_package ? "install the Debian package dataset-fashion-mnist"
                                          : "set data.train_images and its neighbours to IDX files (plain or .gz)");
}

/* How many bytes came: fewer than n_bytes at the end of the file. Errors: DATA, for a stream that is damaged or cut. */
static sg_status read_up_to(reader *r, void *out, size_t n_bytes, size_t *n_read)
{
    *n_read = 0;
    while (*n_read < n_bytes) {
        size_t left = n_bytes - *n_read;
        errno = 0;
        int got = gzread(r->file, (uint8_t *)out + *n_read, left < READ_BYTES ? (unsigned)left : READ_BYTES);
        int code;
        (void)gzerror(r->file, &code);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
            return sg_error_set(r->err, SG_DATA, "%s: %s; wanted a whole IDX file: get it anew", r->path,
                                code == Z_ERRNO       ? strerror(errno)
                                : code == Z_BUF_ERROR ? "ends in the middle of its compressed data"
                                                      : "its compressed data is damaged");
        if (got == 0)
            return SG_OK;
        *n_read += (size_t)got;
    }
    return SG_OK;
}

static sg_status read_exactly(reader *r, const char *what, void *out, size_t n_bytes)
{
    size_t n_read;
    sg_status status = read_up_to(r, out, n_bytes, &n_read);
    if (status == SG_OK && n_read < n_bytes)
        status = sg_error_set(r->err, SG_DATA, "%s: ends after %zu of %zu bytes of its %s: get the file anew", r->path,
                              n_read, n_bytes, what);
    return status;
}

static sg_status read_shape(reader *r, uint32_t rank, sg_idx *idx)
{
    uint8_t magic[4];
    sg_status status = read_exactly(r, "header", magic, sizeof magic);
    if (status != SG_OK)
        return status;
    if (magic[0] || magic[1] || magic[2] != TYPE_UNSIGNED_BYTE || magic[3] != rank)
        return sg_error_set(r->err, SG_DATA,
                            "%s: begins with %02x %02x %02x %02x; wanted 00 00 08 %02x (IDX, unsigned bytes, %u "
                            "dimensions)",
                            r->path, magic[0], magic[1], magic[2], magic[3], rank, rank);
    uint8_t sizes[4 * SG_IDX_MAX_RANK] = {0};
    status = read_exactly(r, "header", sizes, (size_t)4 * rank);
    if (status != SG_OK)
        return status;
    uint64_t n_bytes = 1;
    for (uint32_t i = 0; i < rank; i++) {
        const uint8_t *size = sizes + (size_t)4 * i;
        idx->shape[i] = (uint64_t)size[0] << 24 | (uint64_t)size[1] << 16 | (uint64_t)size[2] << 8 | size[3];
        if (idx->shape[i] == 0)
            return sg_error_set(r->err, SG_DATA, "%s: dimension %u is 0; wanted at least 1", r->path, i);
        if (__builtin_mul_overflow(n_bytes, idx->shape[i], &n_bytes) || n_bytes > SG_IDX_MAX_BYTES)
            return sg_error_set(r->err, SG_DATA, "%s: its dimensions make more than %llu bytes; wanted fewer", r->path,
                                (unsigned long long)SG_IDX_MAX_BYTES);
    }
    idx->rank = rank;
    idx->n_bytes = n_bytes;
    return SG_OK;
}

static sg_status read_elements(reader *r, sg_idx *idx)
{
    uint64_t most = gzdirect(r->file) ? r->file_bytes : r->file_bytes * MAX_EXPANSION;
    if (idx->n_bytes + 4 + (uint64_t)4 * idx->rank > most)
        return sg_error_set(r->err, SG_DATA,
                            "%s: its header promises %zu bytes, but the file has only %llu: get the file anew", r->path,
                            idx->n_bytes, (unsigned long long)r->file_bytes);
    idx->bytes = sg_try_alloc_aligned(idx->n_bytes);
    if (!idx->bytes)
        return sg_error_set(r->err, SG_EXHAUSTED, "%s: no memory for its %zu bytes", r->path, idx->n_bytes);
    sg_status status = read_exactly(r, "elements", idx->bytes, idx->n_bytes);
    if (status != SG_OK)
        return status;
    uint8_t behind;
    size_t n_behind;
    status = read_up_to(r, &behind, 1, &n_behind);
    if (status == SG_OK && n_behind)
        status = sg_error_set(r->err, SG_DATA, "%s: goes on after the %zu bytes that its header promises", r->path,
                              idx->n_bytes);
    return status;
}

static sg_status read_all(reader *r, uint32_t rank, sg_idx *idx)
{
    struct stat about;
    r->file = gzopen(r->path, "rbe");
    if (!r->file)
        return open_failed(r, errno ? errno : ENOMEM);
    if (stat(r->path, &about) != 0)
        return open_failed(r, errno);
    r->file_bytes = (uint64_t)about.st_size;
    gzbuffer(r->file, READ_BYTES);
    sg_status status = read_shape(r, rank, idx);
    return status == SG_OK ? read_elements(r, idx) : status;
}

sg_status sg_idx_read(const char *path, uint32_t rank, sg_idx *idx, sg_error *err)
{
    SG_ASSERT(rank >= 1 && rank <= SG_IDX_MAX_RANK);
    reader r = {.path = path, .err = err};
    sg_idx made = {0};
    sg_status status = read_all(&r, rank, &made);
    if (r.file)
        gzclose_r(r.file);
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
