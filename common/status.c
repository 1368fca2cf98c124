/* common/status.c - names of statuses, errors of one tidy line, and memory that cannot fail. */
#include "common/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/shorten.h"
#include "common/utf8.h"

#define LONG_BYTES 12288u /* of a message before it is shortened: two paths of PATH_MAX, and words */

typedef struct status_row {
    const char *name;
    const char *text;
    int grpc_code;
    int exit_code;
} status_row;

/* The numbers in SG_STATUS_MAP have no gaps; a gap would be a row without a name, which reads as "no such status". */
static const status_row rows[] = {
#define X(name, number, grpc_code, exit_code, text) [number] = {#name, text, grpc_code, exit_code},
    SG_STATUS_MAP(X)
#undef X
};

static const status_row *row_of(uint32_t number)
{
    return number < SG_ARRAY_LEN(rows) && rows[number].name != NULL ? &rows[number] : NULL;
}

const char *sg_status_name(sg_status status)
{
    const status_row *row = row_of((uint32_t)status);
    return row != NULL ? row->name : "UNKNOWN";
}

const char *sg_status_text(sg_status status)
{
    const status_row *row = row_of((uint32_t)status);
    return row != NULL ? row->text : "unknown status";
}

bool sg_status_is_exit_code(int code)
{
    bool found = false;
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++)
        found |= rows[i].exit_code == code;
    return found;
}

int sg_status_exit_code(sg_status status)
{
    const status_row *row = row_of((uint32_t)status);
    return row != NULL ? row->exit_code : rows[SG_INTERNAL].exit_code;
}

bool sg_status_from_name(const char *name, size_t n_bytes, sg_status *status)
{
    for (uint32_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        const char *candidate = rows[i].name;
        if (candidate != NULL && strlen(candidate) == n_bytes && memcmp(candidate, name, n_bytes) == 0) {
            *status = (sg_status)i;
            return true;
        }
    }
    return false;
}

bool sg_status_from_number(uint32_t number, sg_status *status)
{
    if (row_of(number) == NULL)
        return false;
    *status = (sg_status)number;
    return true;
}

int sg_status_to_grpc(sg_status status)
{
    const status_row *row = row_of((uint32_t)status);
    return row != NULL ? row->grpc_code : rows[SG_INTERNAL].grpc_code;
}

sg_status sg_status_from_grpc(int grpc_code)
{
    static const sg_status meanings[] = {
        [0] = SG_OK,
        [1] = SG_CANCELLED,
        [2] = SG_INTERNAL, /* unknown */
        [3] = SG_INVALID,
        [4] = SG_TIMEOUT,
        [5] = SG_NOT_FOUND,
        [6] = SG_INVALID, /* already exists */
        [7] = SG_DENIED,
        [8] = SG_EXHAUSTED,
        [9] = SG_INVALID,      /* failed precondition */
        [10] = SG_UNAVAILABLE, /* aborted: whoever aborted without a word may be asked again */
        [11] = SG_INVALID,     /* out of range */
        [12] = SG_UNIMPLEMENTED,
        [13] = SG_INTERNAL,
        [14] = SG_UNAVAILABLE,
        [15] = SG_DATA,
        [16] = SG_DENIED, /* unauthenticated */
    };
    return grpc_code >= 0 && (size_t)grpc_code < SG_ARRAY_LEN(meanings) ? meanings[grpc_code] : SG_INTERNAL;
}

/* Makes text one printable line: a control character becomes a space, a byte that is not UTF-8 a question mark. */
static void tidy(char *text)
{
    size_t n_bytes = strlen(text);
    for (size_t i = 0; i < n_bytes;) {
        uint32_t character;
        size_t length = sg_utf8_decode(text + i, n_bytes - i, &character);
        if (length == 0)
            text[i++] = '?';
        else if (length == 1 && (character < 0x20 || character == 0x7f))
            text[i++] = ' ';
        else if (length == 2 && character < 0xa0) /* C1 control characters move a terminal's cursor too */
            text[i++] = ' ', text[i++] = ' ';
        else
            i += length;
    }
}

/* What does not fit is formatted once more, with room for the longest path, and shortened. */
static void SG_PRINTF(2, 0) set_long(char message[SG_ERROR_MESSAGE_BYTES], const char *format, va_list args)
{
    char text[LONG_BYTES];
    vsnprintf(text, sizeof text, format, args);
    sg_shorten(text, SG_ERROR_MESSAGE_BYTES - 1);
    memcpy(message, text, strlen(text) + 1);
}

sg_status sg_error_set_v(sg_error *err, sg_status code, const char *format, va_list args)
{
    if (err == NULL)
        return code;
    char message[SG_ERROR_MESSAGE_BYTES]; /* apart from err->message, which may be among the arguments */
    va_list again;
    va_copy(again, args);
    int wanted = vsnprintf(message, sizeof message, format, args);
    if (wanted < 0)
        snprintf(message, sizeof message, "%s", sg_status_text(code));
    else if ((size_t)wanted >= sizeof message)
        set_long(message, format, again);
    va_end(again);
    tidy(message);
    err->code = code;
    memcpy(err->message, message, strlen(message) + 1);
    return code;
}

sg_status sg_error_set(sg_error *err, sg_status code, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    code = sg_error_set_v(err, code, format, args);
    va_end(args);
    return code;
}

sg_status sg_error_prefix(sg_error *err, sg_status code, const char *format, ...)
{
    if (err == NULL)
        return code;
    char prefix[LONG_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return sg_error_set(err, code, "%s: %s", prefix, err->message);
}

void sg_assert_failed(const char *file, int line, const char *function, const char *condition)
{
    fprintf(stderr, "%s:%d: %s: broken invariant: %s. This is a bug in shardgrad.\n", file, line, function, condition);
    abort();
}

void sg_out_of_memory(size_t n, size_t element_bytes)
{
    fprintf(stderr, "shardgrad: no memory for %zu x %zu bytes\n", n, element_bytes);
    abort();
}

void *sg_xcalloc(size_t n, size_t element_bytes)
{
    size_t n_bytes;
    bool fits = !__builtin_mul_overflow(n, element_bytes, &n_bytes);
    void *memory = fits ? calloc(n_bytes > 0 ? n_bytes : 1, 1) : NULL;
    if (memory == NULL)
        sg_out_of_memory(n, element_bytes);
    return memory;
}

void *sg_xrealloc(void *old, size_t n, size_t element_bytes)
{
    size_t n_bytes;
    bool fits = !__builtin_mul_overflow(n, element_bytes, &n_bytes);
    void *memory = fits ? realloc(old, n_bytes > 0 ? n_bytes : 1) : NULL;
    if (memory == NULL)
        sg_out_of_memory(n, element_bytes);
    return memory;
}

char *sg_xstrdup(const char *text)
{
    size_t n_bytes = strlen(text) + 1;
    return memcpy(sg_xcalloc(n_bytes, 1), text, n_bytes);
}

char *sg_xprintf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int length = vasprintf(&text, format, args);
    va_end(args);
    if (length < 0)
        sg_out_of_memory(1, strlen(format));
    return text;
}

void *sg_try_alloc_aligned(size_t n_bytes)
{
    if (n_bytes > SIZE_MAX - 63)
        return NULL;
    size_t rounded = (n_bytes + 63) & ~(size_t)63;
    return aligned_alloc(64, rounded > 0 ? rounded : 64);
}
