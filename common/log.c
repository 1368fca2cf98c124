/* common/log.c - see log.h. Nothing here allocates; a line that is too long is cut. */
#include "common/log.h"

#include <string.h>

#include "common/clock.h"
#include "common/utf8.h"

#define FIELDS_BYTES  2048u
#define PACE_FIRST_MS 1000u /* between the first line about an event that comes often and the next */
/* Time, level, who, event and the blanks between them, besides the fields. */
#define LINE_BYTES (FIELDS_BYTES + 256u)

/* An event is one line whatever a value holds: quoting is the caller's, this is the net below it. */
static void flatten(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = ' ';
    }
}

void sg_log_event(const sg_log *log, sg_log_level level, const char *event, const char *format, ...)
{
    if (log == NULL || log->fn == NULL || level < log->min_level)
        return;
    char fields[FIELDS_BYTES];
    va_list args;
    va_start(args, format);
    int wanted = vsnprintf(fields, sizeof fields, format, args);
    va_end(args);
    if (wanted < 0)
        fields[0] = '\0';
    else if ((size_t)wanted >= sizeof fields)
        memcpy(fields + sizeof fields - sizeof "...", "...", sizeof "...");
    flatten(fields);
    log->fn(log->user, level, event, fields);
}

#define ESCAPED_BYTES 9u /* of one character: two bytes as \xNN, and the end */

/* Writes one byte of ASCII as it stands between quotes; returns its length. */
static size_t escape(unsigned char byte, char out[ESCAPED_BYTES])
{
    const char *names = byte == '\n' ? "\\n" : byte == '\r' ? "\\r" : byte == '\t' ? "\\t" : NULL;
    if (names != NULL)
        return (size_t)sprintf(out, "%s", names);
    if (byte == '"' || byte == '\\')
        return (size_t)sprintf(out, "\\%c", byte);
    if (byte < 0x20 || byte == 0x7f)
        return (size_t)sprintf(out, "\\x%02x", byte);
    return (size_t)sprintf(out, "%c", byte);
}

/* The same of the character that text begins with, of *n_bytes. What is no UTF-8, and control characters beyond ASCII,
 * which a terminal may obey, are written as bytes. */
static size_t escape_character(const char *text, size_t *n_bytes, char out[ESCAPED_BYTES])
{
    uint32_t character = 0;
    *n_bytes = sg_utf8_decode(text, strnlen(text, 4), &character);
    if (*n_bytes == 1)
        return escape((unsigned char)*text, out);
    if (*n_bytes > 1 && character >= 0xa0) {
        memcpy(out, text, *n_bytes);
        return *n_bytes;
    }
    if (*n_bytes == 2)
        return (size_t)sprintf(out, "\\x%02x\\x%02x", (unsigned char)text[0], (unsigned char)text[1]);
    *n_bytes = 1;
    return (size_t)sprintf(out, "\\x%02x", (unsigned char)*text);
}

const char *sg_log_quote(const char *text, char *out, size_t out_bytes)
{
    size_t length = 0, n_bytes;
    if (out_bytes < sizeof "\"\"") {
        if (out_bytes > 0)
            out[0] = '\0';
        return out;
    }
    out[length++] = '"';
    for (; *text != '\0'; text += n_bytes) {
        char escaped[ESCAPED_BYTES];
        const size_t n_escaped = escape_character(text, &n_bytes, escaped);
        if (length + n_escaped + sizeof "\"" > out_bytes)
            break;
        memcpy(out + length, escaped, n_escaped);
        length += n_escaped;
    }
    out[length++] = '"';
    out[length] = '\0';
    return out;
}

const char *sg_log_quote_whom(const char *text, char *out, size_t out_bytes)
{
    static const char said[] = "waiting for ";
    return sg_log_quote(strncmp(text, said, sizeof said - 1) == 0 ? text + sizeof said - 1 : text, out, out_bytes);
}

uint64_t sg_log_pace_count(sg_log_pace *pace, uint64_t now_ms)
{
    pace->n_untold++;
    if (now_ms < pace->due_ms)
        return 0;
    uint64_t n = pace->n_untold;
    pace->n_untold = 0;
    pace->interval_ms = pace->interval_ms == 0 ? PACE_FIRST_MS : 2 * pace->interval_ms;
    pace->due_ms = now_ms + pace->interval_ms;
    return n;
}

void sg_log_file_write(void *user, sg_log_level level, const char *event, const char *fields)
{
    const sg_log_file *file = user;
    char now[SG_CLOCK_RFC3339_BYTES];
    char line[LINE_BYTES];
    sg_clock_rfc3339(now);
    int wanted = snprintf(line, sizeof line - 1, "%s %s %s %s%s%s", now, sg_log_level_name(level), file->who, event,
                          fields[0] != '\0' ? " " : "", fields);
    SG_ASSERT(wanted >= 0);
    size_t length = (size_t)wanted < sizeof line - 1 ? (size_t)wanted : sizeof line - 2;
    line[length++] = '\n';
    for (size_t i = 0; i < SG_ARRAY_LEN(file->streams); i++) {
        FILE *stream = file->streams[i];
        if (stream == NULL)
            continue;
        /* Held over the flush, so that another thread's line never makes the buffer spill in the middle of one. A
         * log that cannot be written has nowhere to say so. */
        flockfile(stream);
        (void)fwrite(line, 1, length, stream);
        (void)fflush(stream);
        funlockfile(stream);
    }
}

const char *sg_log_level_name(sg_log_level level)
{
    static const char *const names[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    return (size_t)level < SG_ARRAY_LEN(names) ? names[level] : "ERROR";
}
