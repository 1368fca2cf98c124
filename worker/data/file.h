/* worker/data/file.h - reads data files, plain or gzip-compressed, as bytes or as lines of text.
 *
 * zlib reads plain files as they are, so both kinds take one path. What follows the end of a compressed stream is not
 * looked at, as gzip does. Errors of all: NOT_FOUND (no such file, or none that can be opened), DATA (damaged, cut, too
 * large), EXHAUSTED; the message names the file. */
#ifndef SG_WORKER_DATA_FILE_H
#define SG_WORKER_DATA_FILE_H

#include <zlib.h>

#include "common/status.h"

#define SG_DATA_MAX_BYTES ((uint64_t)16 << 30) /* of the examples of one set: more is taken for a mistake */
#define SG_DATA_MAX_LINE  ((size_t)1 << 28)

/* Made by sg_data_file_open. */
typedef struct sg_data_file {
    const char *path;
    gzFile file;
    uint64_t file_bytes; /* on disk */

    uint64_t line; /* number of the line that was read last, from 1 */
    char *text;    /* [room]: what was read ahead; the next line begins at text + begin */
    size_t begin, end, room;
} sg_data_file;

/* path must outlive the file. Closed by sg_data_file_close, also after a failure. */
SG_MUST_USE sg_status sg_data_file_open(const char *path, sg_data_file *file, sg_error *err);
void sg_data_file_close(sg_data_file *file); /* a zeroed one is fine */

/* How many bytes came: fewer than n_bytes at the end of the file. */
SG_MUST_USE sg_status sg_data_file_read(sg_data_file *file, void *out, size_t n_bytes, size_t *n_read, sg_error *err);
/* Exactly n_bytes; `what` is what they are, for the message. */
SG_MUST_USE sg_status sg_data_file_read_exactly(sg_data_file *file, const char *what, void *out, size_t n_bytes,
                                                sg_error *err);
/* Most bytes that the file may hold when it is unpacked. */
uint64_t sg_data_file_most_bytes(const sg_data_file *file);

/* The next line, without its end (LF or CR LF) and a byte order mark before the first, NUL-terminated and without
 * another NUL, to be written to at will; valid until the next call. NULL: the file is over. */
SG_MUST_USE sg_status sg_data_file_line(sg_data_file *file, char **line, sg_error *err);

/* Looks for a file, of which no more is read than tells whether it is compressed. *n_bytes: what it holds;
 * SG_DATA_UNKNOWN: it is compressed. */
#define SG_DATA_UNKNOWN UINT64_MAX
SG_MUST_USE sg_status sg_data_file_look(const char *path, uint64_t *n_bytes, sg_error *err);

/* A whole file, appended to *bytes (grown by realloc, so freed by free(); NULL at first), which hold *n_bytes. */
SG_MUST_USE sg_status sg_data_file_append(const char *path, uint8_t **bytes, size_t *n_bytes, sg_error *err);

#endif
