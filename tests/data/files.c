/* tests/data/files.c - see files.h. */
#include "tests/data/files.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include <zlib.h>

#include "common/status.h"

sg_files sg_files_make(void)
{
    sg_files files = {.folder = "/tmp/sg-test-data-XXXXXX"};
    cr_assert_not_null(mkdtemp(files.folder));
    return files;
}

void sg_files_remove(sg_files *files)
{
    while (files->n)
        sg_files_remove_last(files);
    cr_assert(rmdir(files->folder) == 0, "%s is not empty", files->folder);
}

void sg_files_remove_last(sg_files *files)
{
    files->n--;
    cr_assert(unlink(files->path[files->n]) == 0);
    free(files->path[files->n]);
}

const char *sg_files_write(sg_files *files, const void *bytes, size_t n_bytes, bool gzip)
{
    cr_assert(files->n < SG_ARRAY_LEN(files->path));
    char *path = sg_xprintf("%s/%zu%s", files->folder, files->n, gzip ? ".gz" : "");
    files->path[files->n++] = path;
    gzFile out = gzopen(path, gzip ? "wb" : "wbT"); /* T: as it is */
    cr_assert_not_null(out);
    cr_assert(n_bytes == 0 || gzwrite(out, bytes, (unsigned)n_bytes) == (int)n_bytes);
    cr_assert(gzclose(out) == Z_OK);
    return path;
}

uint8_t *sg_files_idx_bytes(uint32_t rank, const uint32_t *shape, unsigned modulus, size_t *n_bytes)
{
    size_t n_elems = 1;
    for (uint32_t i = 0; i < rank; i++)
        n_elems *= shape[i];
    size_t head = 4 + 4 * (size_t)rank;
    uint8_t *bytes = sg_xcalloc(1, head + n_elems);
    bytes[2] = 8;
    bytes[3] = (uint8_t)rank;
    for (uint32_t i = 0; i < rank; i++)
        for (int byte = 0; byte < 4; byte++)
            bytes[4 + 4 * i + (uint32_t)byte] = (uint8_t)(shape[i] >> (24 - 8 * byte));
    for (size_t i = 0; i < n_elems; i++)
        bytes[head + i] = (uint8_t)(i % modulus);
    *n_bytes = head + n_elems;
    return bytes;
}

const char *sg_files_write_idx(sg_files *files, uint32_t rank, const uint32_t *shape, unsigned modulus, bool gzip)
{
    size_t n_bytes;
    uint8_t *bytes = sg_files_idx_bytes(rank, shape, modulus, &n_bytes);
    const char *path = sg_files_write(files, bytes, n_bytes, gzip);
    free(bytes);
    return path;
}
