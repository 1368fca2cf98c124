/* worker/data/idx.h - reads IDX files, plain or gzip-compressed: the format of MNIST and its relatives.
 *
 * All numbers big-endian:
 *     0   2 bytes   zero
 *     2   1 byte    type of the elements; 8 = unsigned byte, the only one read here
 *     3   1 byte    number of dimensions n
 *     4   4n bytes  size of each dimension
 *     .   elements  in C order, nothing after them
 */
#ifndef SG_WORKER_DATA_IDX_H
#define SG_WORKER_DATA_IDX_H

#include "worker/data/file.h"

#define SG_IDX_MAX_RANK 4

typedef struct sg_idx {
    uint32_t rank;
    uint64_t shape[SG_IDX_MAX_RANK];
    size_t n_bytes; /* product of shape */
    uint8_t *bytes;
} sg_idx;

/* Reads the whole file, which must have `rank` dimensions. Errors: NOT_FOUND; DATA (naming path, what was found and
 * what was wanted); EXHAUSTED. Freed by sg_idx_deinit. */
SG_MUST_USE sg_status sg_idx_read(const char *path, uint32_t rank, sg_idx *idx, sg_error *err);
/* Its shape alone: the header. The same errors. */
SG_MUST_USE sg_status sg_idx_read_shape(const char *path, uint32_t rank, sg_idx *idx, sg_error *err);
void sg_idx_deinit(sg_idx *idx); /* a zeroed one is fine */

#endif
