/* common/checkpoint_json.c - JSON whose last member is a checksum of every byte before it:
 *
 *     {
 *      "format": 1,
 *      ...,
 *      "crc32c": "89abcdef"
 *     }
 *
 * So a flipped bit is found anywhere, also in a number, and the file can still be read by any tool. Later formats keep
 * the first and the last member. */
#include "common/checkpoint_internal.h"
#include "common/crc32c.h"

#define SEAL_FORMAT ",\n \"crc32c\": \"%08" PRIx32 "\"\n}\n"
#define SEAL_BYTES  (sizeof ",\n \"crc32c\": \"01234567\"\n}\n" - 1)

/* --- out -----------------------------------------------------------------------------------------------------------
 */

static char *seal(json_t *object)
{
    json_t *whole = json_pack("{s:i}", "format", (int)SG_CHECKPOINT_FORMAT);
    char *text = NULL;
    if (whole != NULL && object != NULL && json_object_update(whole, object) == 0)
        text = json_dumps(whole, JSON_INDENT(1));
    json_decref(whole);
    if (text == NULL)
        return NULL;
    int length = (int)strlen(text) - 2; /* without the last line, which is } */
    char *sealed = sg_xprintf("%.*s" SEAL_FORMAT, length, text, sg_crc32c(0, text, (size_t)length));
    free(text);
    return sealed;
}

sg_status sg_checkpoint_put_json(const sg_disk *disk, const char *folder, const char *name, uint64_t writer,
                                 json_t *object, bool exclusive, bool *existed, sg_error *err)
{
    char *text = seal(object);
    json_decref(object);
    if (text == NULL)
        return sg_error_set(err, SG_INVALID,
                            "%s/%s cannot be written: a name that is not UTF-8, a number that is not finite or too "
                            "large, or no memory",
                            folder, name);
    sg_status status = sg_disk_put(disk, folder, name, writer, text, strlen(text), exclusive, existed, err);
    free(text);
    return status;
}

/* --- in ------------------------------------------------------------------------------------------------------------
 */

static sg_status check_seal(const char *path, const char *text, size_t n_bytes, sg_error *err)
{
    if (n_bytes > SEAL_BYTES) {
        char wanted[SEAL_BYTES + 1];
        snprintf(wanted, sizeof wanted, SEAL_FORMAT, sg_crc32c(0, text, n_bytes - SEAL_BYTES));
        if (memcmp(text + n_bytes - SEAL_BYTES, wanted, SEAL_BYTES) == 0)
            return SG_OK;
    }
    return sg_error_set(err, SG_DATA, "%s is damaged: it does not end with the checksum of its bytes", path);
}

static sg_status check_format(const char *path, const json_t *object, bool *newer, sg_error *err)
{
    uint64_t format;
    if (!sg_checkpoint_json_number(object, "format", UINT32_MAX, &format) || format == 0)
        return sg_error_set(err, SG_DATA, "%s does not say its format", path);
    *newer = format > SG_CHECKPOINT_FORMAT;
    if (*newer)
        return sg_error_set(err, SG_DATA,
                            "%s has format %" PRIu64 ", this program reads up to %u: use the shardgrad that wrote it",
                            path, format, SG_CHECKPOINT_FORMAT);
    return SG_OK;
}

static sg_status parse(const char *path, const char *text, size_t n_bytes, json_t **object, bool *newer, sg_error *err)
{
    sg_status status = check_seal(path, text, n_bytes, err);
    if (status != SG_OK)
        return status;
    json_error_t fault;
    *object = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &fault);
    if (*object == NULL)
        return sg_error_set(err, SG_DATA, "%s:%d: %s", path, fault.line, fault.text);
    status = check_format(path, *object, newer, err);
    if (status != SG_OK)
        json_decref(*object);
    return status;
}

sg_status sg_checkpoint_get_json(const sg_disk *disk, const char *path, json_t **object, bool *newer, sg_error *err)
{
    char *text;
    size_t n_bytes;
    bool unused;
    if (newer == NULL)
        newer = &unused;
    *newer = false;
    sg_status status = sg_disk_get(disk, path, SG_CHECKPOINT_MAX_JSON_BYTES, &text, &n_bytes, err);
    if (status != SG_OK)
        return status;
    status = parse(path, text, n_bytes, object, newer, err);
    free(text);
    return status;
}

bool sg_checkpoint_json_number(const json_t *object, const char *key, uint64_t max, uint64_t *number)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 || (uint64_t)json_integer_value(value) > max)
        return false;
    *number = (uint64_t)json_integer_value(value);
    return true;
}

bool sg_checkpoint_json_text_number(const json_t *object, const char *key, int base, uint64_t *number)
{
    const char *text = sg_checkpoint_json_text(object, key);
    char *end;
    if (text[0] < '0' || text[0] > 'f') /* no blank, no sign */
        return false;
    unsigned long long value = strtoull(text, &end, base);
    if (end == text || *end != '\0')
        return false;
    *number = value;
    return true;
}

const char *sg_checkpoint_json_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}
