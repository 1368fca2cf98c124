/* tests/data/files.h - IDX files made for a test, in a folder that is removed with them. */
#ifndef SG_TESTS_DATA_FILES_H
#define SG_TESTS_DATA_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sg_files {
    char folder[64];
    char *path[8]; /* of the files written, in order */
    size_t n;
} sg_files;

sg_files sg_files_make(void);
void sg_files_remove(sg_files *files);
void sg_files_remove_last(sg_files *files);

/* Writes the bytes to a new file, compressed if wanted; returns its path. */
const char *sg_files_write(sg_files *files, const void *bytes, size_t n_bytes, bool gzip);
/* An IDX file of `rank` dimensions whose element i is i % modulus. */
const char *sg_files_write_idx(sg_files *files, uint32_t rank, const uint32_t *shape, unsigned modulus, bool gzip);

/* The bytes of such a file; freed by free(). */
uint8_t *sg_files_idx_bytes(uint32_t rank, const uint32_t *shape, unsigned modulus, size_t *n_bytes);

#endif
