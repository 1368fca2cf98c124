/* common/safetensors.h - files of named tensors, as the safetensors library of Hugging Face defines them:
 *
 *     u64 little endian N | N bytes of JSON: {"name": {"dtype", "shape", "data_offsets"}, ..., "__metadata__"} | data
 *
 * The data has no holes and ends with the file. The writer streams: bytes come in the order of the tensors, and the
 * header, which may hold checksums of them, is put in front last, so that a file that was cut short has none. The
 * reader checks all that the header says before it is used. Not for several threads at once. */
#ifndef SG_COMMON_SAFETENSORS_H
#define SG_COMMON_SAFETENSORS_H

#include "common/disk.h"

#define SG_SAFETENSORS_MAX_HEADER_BYTES ((size_t)100000000) /* what other readers take */
#define SG_SAFETENSORS_MAX_RANK         64u
#define SG_SAFETENSORS_DTYPE_BYTES      8u

typedef struct sg_safetensors_tensor {
    const char *name;
    const uint64_t *shape; /* [rank] outermost first */
    uint32_t rank;
    char dtype[SG_SAFETENSORS_DTYPE_BYTES]; /* "F32" */
    uint64_t first_byte, n_bytes;           /* in the data; found by the writer itself */
} sg_safetensors_tensor;

/* Of a dtype such as "F32"; 0: one that is not known. */
size_t sg_safetensors_element_bytes(const char *dtype);

/* --- reading -------------------------------------------------------------------------------------------------------
 */

typedef struct sg_safetensors {
    const sg_safetensors_tensor *tensors; /* [n_tensors] in the order of their data */
    size_t n_tensors;
    uint64_t n_bytes;       /* of the file */
    uint32_t header_crc32c; /* of all in front of the data */
} sg_safetensors;

/* Errors: those of sg_disk_error; DATA (what is wrong with it). Closed by sg_safetensors_close. The disk is borrowed.
 */
SG_MUST_USE sg_status sg_safetensors_open(const sg_disk *disk, const char *path, sg_safetensors **file, sg_error *err);
void sg_safetensors_close(sg_safetensors *file); /* NULL is fine */
/* NULL if there is none of this key. */
const char *sg_safetensors_metadata(const sg_safetensors *file, const char *key);
/* Bytes [first_byte, first_byte + n_bytes) of a tensor of this file, which must have them. Errors: those of
 * sg_disk_read. */
SG_MUST_USE sg_status sg_safetensors_read(const sg_safetensors *file, const sg_safetensors_tensor *tensor,
                                          uint64_t first_byte, void *out, size_t n_bytes, sg_error *err);

/* --- writing -------------------------------------------------------------------------------------------------------
 */

typedef struct sg_safetensors_metadata_entry {
    const char *key, *value;
} sg_safetensors_metadata_entry;

typedef struct sg_safetensors_content {
    sg_safetensors_tensor *tensors; /* [n_tensors]; first_byte and n_bytes are filled in */
    size_t n_tensors;
    const sg_safetensors_metadata_entry *metadata; /* [n_metadata] */
    size_t n_metadata;
} sg_safetensors_content;

typedef struct sg_safetensors_writer sg_safetensors_writer;

/* Makes the file. All of the content stays as it is until the end, but for the values of the metadata: they may change
 * to others of the same length. Errors: INVALID (text that is not UTF-8, an unknown dtype), EXHAUSTED (too long a
 * header), those of sg_disk_error. Ended by sg_safetensors_end, which is called in any case. */
SG_MUST_USE sg_status sg_safetensors_begin(const sg_disk *disk, const char *path, const sg_safetensors_content *content,
                                           sg_safetensors_writer **writer, sg_error *err);
/* The next bytes of the data, in pieces of any size. */
SG_MUST_USE sg_status sg_safetensors_append(sg_safetensors_writer *writer, const void *data, size_t n_bytes,
                                            sg_error *err);
/* With `complete`, all bytes having come: writes the header and syncs the file, whose size and checksum of the header
 * are told. Otherwise, and on failure, removes the file. Frees the writer. */
SG_MUST_USE sg_status sg_safetensors_end(sg_safetensors_writer *writer, bool complete, uint64_t *n_bytes,
                                         uint32_t *header_crc32c, sg_error *err);

#endif
