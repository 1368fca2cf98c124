/* common/safetensors_read.c - a file of tensors, which may be anything until it was looked at. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "common/safetensors.h"

typedef struct reader {
    sg_safetensors public;
    const sg_disk *disk;
    char *path;
    int file;
    uint64_t data_start;
    json_t *header; /* owns the names */
    sg_safetensors_tensor *tensors;
    uint64_t *shapes;
} reader;

/* --- the header -----------------------------------------------------------------------------------------------------
 */

static sg_status wrong(const reader *r, sg_error *err, const char *name, const char *what)
{
    return sg_error_set(err, SG_DATA, "%s: '%.100s' %s", r->path, name, what);
}

/* Of a count or an offset; false if it is none. */
static bool get_number(const json_t *value, uint64_t *number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

static sg_status parse_shape(const reader *r, const json_t *shape, sg_safetensors_tensor *tensor, uint64_t *dims,
                             sg_error *err)
{
    uint64_t n_bytes = sg_safetensors_element_bytes(tensor->dtype);
    bool overflows = false;
    tensor->rank = (uint32_t)json_array_size(shape);
    tensor->shape = dims;
    for (uint32_t i = 0; i < tensor->rank; i++) {
        if (!get_number(json_array_get(shape, i), &dims[i]))
            return wrong(r, err, tensor->name, "has a shape that is not of whole numbers");
        overflows |= __builtin_mul_overflow(n_bytes, dims[i], &n_bytes);
    }
    bool is_known = sg_safetensors_element_bytes(tensor->dtype) > 0;
    if (is_known && (overflows || n_bytes != tensor->n_bytes))
        return wrong(r, err, tensor->name, "has data of another length than its shape says");
    return SG_OK;
}

static sg_status parse_tensor(const reader *r, const char *name, const json_t *entry, sg_safetensors_tensor *tensor,
                              uint64_t *dims, sg_error *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t end;
    *tensor = (sg_safetensors_tensor){.name = name};
    if (dtype == NULL || strlen(dtype) >= sizeof tensor->dtype)
        return wrong(r, err, name, "has no dtype");
    memcpy(tensor->dtype, dtype, strlen(dtype) + 1);
    if (json_array_size(offsets) != 2 || !get_number(json_array_get(offsets, 0), &tensor->first_byte) ||
        !get_number(json_array_get(offsets, 1), &end) || end < tensor->first_byte)
        return wrong(r, err, name, "has no data_offsets of two ascending numbers");
    tensor->n_bytes = end - tensor->first_byte;
    return parse_shape(r, json_object_get(entry, "shape"), tensor, dims, err);
}

static int by_place(const void *a, const void *b)
{
    const sg_safetensors_tensor *left = a, *right = b;
    if (left->first_byte != right->first_byte)
        return left->first_byte < right->first_byte ? -1 : 1;
    return (left->n_bytes > right->n_bytes) - (left->n_bytes < right->n_bytes);
}

static sg_status check_places(const reader *r, sg_error *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < r->public.n_tensors; i++) {
        if (r->tensors[i].first_byte != at)
            return wrong(r, err, r->tensors[i].name, "does not begin where the one before ends");
        at += r->tensors[i].n_bytes;
    }
    uint64_t data_bytes = r->public.n_bytes - r->data_start;
    if (at != data_bytes)
        return sg_error_set(err, SG_DATA,
                            "%s has %" PRIu64 " bytes of data, its header says %" PRIu64 ": it was cut short "
                            "or is not what it was",
                            r->path, data_bytes, at);
    return SG_OK;
}

/* How many tensors, and dimensions in all. */
static sg_status count_tensors(const reader *r, size_t *n_tensors, size_t *n_dims, sg_error *err)
{
    const char *name;
    json_t *entry;
    *n_tensors = *n_dims = 0;
    json_object_foreach(r->header, name, entry)
    {
        if (!json_is_object(entry))
            return wrong(r, err, name, "is not an object");
        if (strcmp(name, "__metadata__") == 0)
            continue;
        const json_t *shape = json_object_get(entry, "shape");
        if (!json_is_array(shape) || json_array_size(shape) > SG_SAFETENSORS_MAX_RANK)
            return wrong(r, err, name, "has no shape, or one of too many dimensions");
        ++*n_tensors;
        *n_dims += json_array_size(shape);
    }
    return SG_OK;
}

static sg_status parse_tensors(reader *r, sg_error *err)
{
    size_t n_dims;
    sg_status status = count_tensors(r, &r->public.n_tensors, &n_dims, err);
    if (status != SG_OK)
        return status;
    r->tensors = calloc(r->public.n_tensors + 1, sizeof *r->tensors);
    r->shapes = calloc(n_dims + 1, sizeof *r->shapes);
    if (r->tensors == NULL || r->shapes == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the header of %s", r->path);
    uint64_t *dims = r->shapes;
    size_t n = 0;
    const char *name;
    json_t *entry;
    json_object_foreach(r->header, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        status = parse_tensor(r, name, entry, &r->tensors[n], dims, err);
        if (status != SG_OK)
            return status;
        dims += r->tensors[n++].rank;
    }
    qsort(r->tensors, n, sizeof *r->tensors, by_place);
    r->public.tensors = r->tensors;
    return check_places(r, err);
}

/* `text` is the whole header, with its length in front. */
static sg_status parse_header(reader *r, const char *text, size_t n_bytes, sg_error *err)
{
    r->public.header_crc32c = sg_crc32c(0, text, n_bytes);
    r->data_start = n_bytes;
    json_error_t fault;
    r->header = json_loadb(text + 8, n_bytes - 8, JSON_REJECT_DUPLICATES, &fault);
    if (r->header == NULL)
        return sg_error_set(err, SG_DATA, "%s: the header is not JSON: %s", r->path, fault.text);
    if (!json_is_object(r->header))
        return sg_error_set(err, SG_DATA, "%s: the header is not an object", r->path);
    return parse_tensors(r, err);
}

static sg_status read_header(reader *r, sg_error *err)
{
    int error = r->disk->size(r->disk->user, r->file, &r->public.n_bytes);
    if (error != 0)
        return sg_disk_error(err, error, "cannot read %s", r->path);
    uint64_t length = 0;
    sg_status status = sg_disk_read(r->disk, r->file, r->path, 0, &length, sizeof length, err);
    if (status != SG_OK)
        return status;
    if (length < 2 || length > SG_SAFETENSORS_MAX_HEADER_BYTES || length > r->public.n_bytes - 8)
        return sg_error_set(err, SG_DATA,
                            "%s is not a safetensors file: a header of %" PRIu64 " bytes in a file of %" PRIu64,
                            r->path, length, r->public.n_bytes);
    size_t n_bytes = (size_t)length + 8;
    char *text = malloc(n_bytes);
    if (text == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the header of %s", r->path);
    status = sg_disk_read(r->disk, r->file, r->path, 0, text, n_bytes, err);
    if (status == SG_OK)
        status = parse_header(r, text, n_bytes, err);
    free(text);
    return status;
}

/* --- the file -------------------------------------------------------------------------------------------------------
 */

sg_status sg_safetensors_open(const sg_disk *disk, const char *path, sg_safetensors **file, sg_error *err)
{
    int opened;
    int error = disk->open(disk->user, path, SG_DISK_READ, &opened);
    if (error != 0)
        return sg_disk_error(err, error, "cannot read %s", path);
    reader *r = sg_xcalloc(1, sizeof *r);
    *r = (reader){.disk = disk, .path = sg_xstrdup(path), .file = opened};
    sg_status status = read_header(r, err);
    if (status != SG_OK)
        sg_safetensors_close(&r->public);
    else
        *file = &r->public;
    return status;
}

void sg_safetensors_close(sg_safetensors *file)
{
    if (file == NULL)
        return;
    reader *r = SG_CONTAINER_OF(file, reader, public);
    r->disk->close(r->disk->user, r->file);
    json_decref(r->header);
    free(r->tensors);
    free(r->shapes);
    free(r->path);
    free(r);
}

const char *sg_safetensors_metadata(const sg_safetensors *file, const char *key)
{
    const reader *r = SG_CONTAINER_OF(file, const reader, public);
    return json_string_value(json_object_get(json_object_get(r->header, "__metadata__"), key));
}

sg_status sg_safetensors_read(const sg_safetensors *file, const sg_safetensors_tensor *tensor, uint64_t first_byte,
                              void *out, size_t n_bytes, sg_error *err)
{
    const reader *r = SG_CONTAINER_OF(file, const reader, public);
    SG_ASSERT(first_byte <= tensor->n_bytes && n_bytes <= tensor->n_bytes - first_byte);
    return sg_disk_read(r->disk, r->file, r->path, r->data_start + tensor->first_byte + first_byte, out, n_bytes, err);
}
