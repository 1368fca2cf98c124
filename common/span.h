/* common/span.h - bytes that lie scattered in memory, read as if they were one run.
 *
 * What gRPC receives is a list of buffers. Slices are handed on as spans into them, so that no byte is moved before
 * the pass that uses it. A span list borrows the memory. */
#ifndef SG_COMMON_SPAN_H
#define SG_COMMON_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sg_span {
    const uint8_t *data;
    size_t n_bytes;
} sg_span;

/* A position in a list of spans. Cheap to copy: a copy is a mark to come back to. */
typedef struct sg_span_reader {
    const sg_span *spans;
    size_t n_spans;
    size_t index;  /* span that is read next */
    size_t offset; /* bytes of it that were read */
    size_t left;   /* bytes left in all, counted down from the limit given to init */
} sg_span_reader;

/* Reads at most limit_bytes of the list (SIZE_MAX: all of it). */
void sg_span_reader_init(sg_span_reader *reader, const sg_span *spans, size_t n_spans, size_t limit_bytes);

/* A reader over one contiguous array. The caller keeps *span, which is set here. */
sg_span_reader sg_span_reader_of_array(sg_span *span, const void *data, size_t n_bytes);

/* The longest contiguous piece at the position, at most max_bytes; advances past it. False at the end. */
bool sg_span_reader_next(sg_span_reader *reader, size_t max_bytes, sg_span *piece);

/* Copies exactly n_bytes to out (NULL: skips them). False, with nothing read, if fewer are left. */
bool sg_span_reader_read(sg_span_reader *reader, void *out, size_t n_bytes);

/* Goes back by n_bytes, which it had moved past. */
void sg_span_reader_back(sg_span_reader *reader, size_t n_bytes);

/* A reader over the next n_bytes; advances past them. False, with nothing changed, if fewer are left. */
bool sg_span_reader_take(sg_span_reader *reader, size_t n_bytes, sg_span_reader *part);

#endif
