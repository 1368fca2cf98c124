/* common/span.c - see span.h. */
#include "common/span.h"

#include <string.h>

void sg_span_reader_init(sg_span_reader *reader, const sg_span *spans, size_t n_spans, size_t limit_bytes)
{
    size_t left = 0;
    for (size_t i = 0; i < n_spans && left < limit_bytes; i++)
        left += spans[i].n_bytes < limit_bytes - left ? spans[i].n_bytes : limit_bytes - left;
    *reader = (sg_span_reader){.spans = spans, .n_spans = n_spans, .left = left};
}

sg_span_reader sg_span_reader_of_array(sg_span *span, const void *data, size_t n_bytes)
{
    *span = (sg_span){.data = data, .n_bytes = n_bytes};
    return (sg_span_reader){.spans = span, .n_spans = 1, .left = n_bytes};
}

bool sg_span_reader_next(sg_span_reader *reader, size_t max_bytes, sg_span *piece)
{
    size_t n_bytes = max_bytes < reader->left ? max_bytes : reader->left;
    if (n_bytes == 0)
        return false;
    while (reader->offset == reader->spans[reader->index].n_bytes) {
        reader->index++;
        reader->offset = 0;
    }
    const sg_span *span = &reader->spans[reader->index];
    if (n_bytes > span->n_bytes - reader->offset)
        n_bytes = span->n_bytes - reader->offset;
    *piece = (sg_span){.data = span->data + reader->offset, .n_bytes = n_bytes};
    reader->offset += n_bytes;
    reader->left -= n_bytes;
    return true;
}

bool sg_span_reader_read(sg_span_reader *reader, void *out, size_t n_bytes)
{
    uint8_t *to = out;
    sg_span piece;
    if (n_bytes > reader->left)
        return false;
    for (; n_bytes > 0 && sg_span_reader_next(reader, n_bytes, &piece); n_bytes -= piece.n_bytes) {
        if (to == NULL)
            continue;
        memcpy(to, piece.data, piece.n_bytes);
        to += piece.n_bytes;
    }
    return true;
}

void sg_span_reader_back(sg_span_reader *reader, size_t n_bytes)
{
    reader->left += n_bytes;
    while (n_bytes > reader->offset) {
        n_bytes -= reader->offset;
        reader->offset = reader->spans[--reader->index].n_bytes;
    }
    reader->offset -= n_bytes;
}

bool sg_span_reader_take(sg_span_reader *reader, size_t n_bytes, sg_span_reader *part)
{
    if (n_bytes > reader->left)
        return false;
    *part = *reader;
    part->left = n_bytes;
    return sg_span_reader_read(reader, NULL, n_bytes);
}
