/* common/safetensors_write.c - a file of tensors, streamed; the header comes last. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "common/safetensors.h"
#include "common/utf8.h"

#define BUFFER_BYTES ((size_t)1 << 20)
#define DIRECT_BYTES ((size_t)256 << 10) /* pieces of at least so many are not gathered first */

struct sg_safetensors_writer {
    const sg_disk *disk;
    char *path;
    int file;
    sg_safetensors_content content;
    size_t header_bytes; /* with the 8 that hold its length */
    uint64_t data_bytes, offset;
    char *buffer; /* [BUFFER_BYTES] */
    size_t n_buffered;
};

size_t sg_safetensors_element_bytes(const char *dtype)
{
    static const struct {
        const char *name;
        size_t n_bytes;
    } rows[] = {{"F32", 4}, {"F64", 8}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"I32", 4},     {"I16", 2},    {"I8", 1},
                {"U64", 8}, {"U32", 4}, {"U16", 2}, {"U8", 1},   {"BOOL", 1}, {"F8_E5M2", 1}, {"F8_E4M3", 1}};
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].name, dtype) == 0)
            return rows[i].n_bytes;
    }
    return 0;
}

/* False if it is not UTF-8. */
static bool print_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (size_t left = strlen(text); left > 0;) {
        uint32_t character;
        size_t length = sg_utf8_decode(text, left, &character);
        if (length == 0)
            return false;
        if (character < 0x20)
            fprintf(out, "\\u%04" PRIx32, character);
        else
            fprintf(out, "%s%.*s", character == '"' || character == '\\' ? "\\" : "", (int)length, text);
        text += length;
        left -= length;
    }
    fputc('"', out);
    return true;
}

static bool print_tensor(FILE *out, const sg_safetensors_tensor *tensor)
{
    fputc(',', out);
    if (!print_text(out, tensor->name))
        return false;
    fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", tensor->dtype);
    for (uint32_t i = 0; i < tensor->rank; i++)
        fprintf(out, "%s%" PRIu64, i > 0 ? "," : "", tensor->shape[i]);
    fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->first_byte,
            tensor->first_byte + tensor->n_bytes);
    return true;
}

static bool print_metadata(FILE *out, const sg_safetensors_content *content)
{
    fputs("\"__metadata__\":{", out);
    for (size_t i = 0; i < content->n_metadata; i++) {
        if (i > 0)
            fputc(',', out);
        if (!print_text(out, content->metadata[i].key))
            return false;
        fputc(':', out);
        if (!print_text(out, content->metadata[i].value))
            return false;
    }
    fputc('}', out);
    return true;
}

/* The header with its length in front, to be freed by free(). */
static sg_status make_header(const sg_safetensors_writer *w, char **header, size_t *n_bytes, sg_error *err)
{
    *header = NULL;
    FILE *out = open_memstream(header, n_bytes);
    if (out == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the header of %s", w->path);
    fwrite("\0\0\0\0\0\0\0", 1, 8, out);
    fputc('{', out);
    bool is_text = print_metadata(out, &w->content);
    for (size_t i = 0; i < w->content.n_tensors && is_text; i++)
        is_text = print_tensor(out, &w->content.tensors[i]);
    fputc('}', out);
    for (long at = ftell(out); at % 8 != 0; at++)
        fputc(' ', out);
    bool failed = ferror(out) != 0;
    failed |= fclose(out) != 0;
    sg_status status = SG_OK;
    if (failed)
        status = sg_error_set(err, SG_EXHAUSTED, "no memory for the header of %s", w->path);
    else if (!is_text)
        status = sg_error_set(err, SG_INVALID, "%s: a name is not UTF-8", w->path);
    else if (*n_bytes - 8 > SG_SAFETENSORS_MAX_HEADER_BYTES)
        status = sg_error_set(err, SG_EXHAUSTED,
                              "%s: the header of %zu tensors takes %zu bytes, wanted at most %zu: use a larger "
                              "slice_bytes or more ps",
                              w->path, w->content.n_tensors, *n_bytes - 8, SG_SAFETENSORS_MAX_HEADER_BYTES);
    if (status != SG_OK) {
        free(*header);
        return status;
    }
    uint64_t length = *n_bytes - 8;
    memcpy(*header, &length, sizeof length);
    return SG_OK;
}

static sg_status lay_out(sg_safetensors_writer *w, sg_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < w->content.n_tensors; i++) {
        sg_safetensors_tensor *tensor = &w->content.tensors[i];
        uint64_t n_bytes = sg_safetensors_element_bytes(tensor->dtype);
        if (n_bytes == 0)
            return sg_error_set(err, SG_INVALID, "%s: '%.100s' has dtype %s", w->path, tensor->name, tensor->dtype);
        for (uint32_t dim = 0; dim < tensor->rank; dim++) {
            if (__builtin_mul_overflow(n_bytes, tensor->shape[dim], &n_bytes))
                return sg_error_set(err, SG_INVALID, "%s: '%.100s' has too many elements", w->path, tensor->name);
        }
        tensor->first_byte = at;
        tensor->n_bytes = n_bytes;
        if (__builtin_add_overflow(at, n_bytes, &at))
            return sg_error_set(err, SG_INVALID, "%s: there are too many elements", w->path);
    }
    w->data_bytes = at;
    return SG_OK;
}

static void destroy(sg_safetensors_writer *w)
{
    free(w->buffer);
    free(w->path);
    free(w);
}

sg_status sg_safetensors_begin(const sg_disk *disk, const char *path, const sg_safetensors_content *content,
                               sg_safetensors_writer **writer, sg_error *err)
{
    sg_safetensors_writer *w = sg_xcalloc(1, sizeof *w);
    *w = (sg_safetensors_writer){.disk = disk, .path = sg_xstrdup(path), .content = *content};
    w->buffer = sg_xcalloc(1, BUFFER_BYTES);
    char *header = NULL;
    sg_status status = lay_out(w, err);
    if (status == SG_OK)
        status = make_header(w, &header, &w->header_bytes, err);
    if (status == SG_OK) {
        int error = disk->open(disk->user, path, SG_DISK_REPLACE, &w->file);
        if (error != 0)
            status = sg_disk_error(err, error, "cannot write %s", path);
        free(header);
    }
    if (status != SG_OK)
        destroy(w);
    else
        w->offset = w->header_bytes, *writer = w;
    return status;
}

static int write_at_end(sg_safetensors_writer *w, const void *data, size_t n_bytes)
{
    int error = w->disk->write(w->disk->user, w->file, w->offset, data, n_bytes);
    w->offset += n_bytes;
    return error;
}

static int flush(sg_safetensors_writer *w)
{
    size_t n_bytes = w->n_buffered;
    w->n_buffered = 0;
    return n_bytes > 0 ? write_at_end(w, w->buffer, n_bytes) : 0;
}

sg_status sg_safetensors_append(sg_safetensors_writer *w, const void *data, size_t n_bytes, sg_error *err)
{
    int error = 0;
    if (n_bytes >= DIRECT_BYTES || n_bytes > BUFFER_BYTES - w->n_buffered)
        error = flush(w);
    if (error == 0 && n_bytes >= DIRECT_BYTES) {
        error = write_at_end(w, data, n_bytes);
    } else if (error == 0 && n_bytes > 0) {
        memcpy(w->buffer + w->n_buffered, data, n_bytes);
        w->n_buffered += n_bytes;
    }
    return error == 0 ? SG_OK : sg_disk_error(err, error, "cannot write %s", w->path);
}

static sg_status complete_file(sg_safetensors_writer *w, uint32_t *header_crc32c, sg_error *err)
{
    int error = flush(w);
    if (error != 0)
        return sg_disk_error(err, error, "cannot write %s", w->path);
    SG_ASSERT(w->offset == w->header_bytes + w->data_bytes);
    char *header;
    size_t n_bytes;
    sg_status status = make_header(w, &header, &n_bytes, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(n_bytes == w->header_bytes);
    *header_crc32c = sg_crc32c(0, header, n_bytes);
    error = w->disk->write(w->disk->user, w->file, 0, header, n_bytes);
    if (error == 0)
        error = w->disk->sync(w->disk->user, w->file);
    free(header);
    return error == 0 ? SG_OK : sg_disk_error(err, error, "cannot write %s", w->path);
}

sg_status sg_safetensors_end(sg_safetensors_writer *w, bool complete, uint64_t *n_bytes, uint32_t *header_crc32c,
                             sg_error *err)
{
    sg_status status = SG_OK;
    if (complete) {
        status = complete_file(w, header_crc32c, err);
        *n_bytes = w->header_bytes + w->data_bytes;
    }
    int error = w->disk->close(w->disk->user, w->file);
    if (complete && status == SG_OK && error != 0)
        status = sg_disk_error(err, error, "cannot write %s", w->path);
    if (!complete || status != SG_OK)
        w->disk->remove(w->disk->user, w->path);
    destroy(w);
    return status;
}
