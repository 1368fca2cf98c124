/* common/log.h - one event is one line: a level, a word, and key=value pairs.
 *
 * An sg_log is a value that is passed to whoever logs; there is no global one. The library calls its user's callback,
 * or writes its warnings to standard error; the daemons install sg_log_file, which writes
 *     2026-11-29T10:15:02.123Z INFO ps-0 registered ps=1 address=127.0.0.1:4001
 * A value that holds a space, a quote or a control character is quoted by the caller through sg_log_quote. */
#ifndef SG_COMMON_LOG_H
#define SG_COMMON_LOG_H

#include <stdio.h>

#include "common/status.h"

typedef struct sg_log {
    sg_log_fn fn; /* NULL: silent */
    void *user;
    sg_log_level min_level;
} sg_log;

/* Formats (after the level test) and hands over one event. log may be NULL. No lock may be held. */
void sg_log_event(const sg_log *log, sg_log_level level, const char *event, const char *format, ...) SG_PRINTF(4, 5);

#define sg_log_debug(log, event, ...) sg_log_event(log, SG_LOG_DEBUG, event, __VA_ARGS__)
#define sg_log_info(log, event, ...)  sg_log_event(log, SG_LOG_INFO, event, __VA_ARGS__)
#define sg_log_warn(log, event, ...)  sg_log_event(log, SG_LOG_WARN, event, __VA_ARGS__)
#define sg_log_error(log, event, ...) sg_log_event(log, SG_LOG_ERROR, event, __VA_ARGS__)

#define SG_LOG_QUOTED_BYTES (SG_ERROR_MESSAGE_BYTES + 32) /* the longest message of an sg_error, and a few escapes */

/* Writes "text" quoted and escaped, cut to fit; returns out. */
const char *sg_log_quote(const char *text, char *out, size_t out_bytes);

/* The value of a `for=`: whom a text that says "waiting for worker 1 (...)" names, quoted; another text as it is. */
const char *sg_log_quote_whom(const char *text, char *out, size_t out_bytes);

/* An event that may come thousands of times a second is told at once, then at doubling intervals, each time with the
 * number of events since. A value; zeroed nothing was counted. Whoever owns it guards it. */
typedef struct sg_log_pace {
    uint64_t n_untold, due_ms, interval_ms;
} sg_log_pace;
/* Counts one event more. Returns the number to tell of, this one included, or 0 while no line is due. */
uint64_t sg_log_pace_count(sg_log_pace *pace, uint64_t now_ms);

/* The daemons' sink: a line to each of the streams that is not NULL, in one write each. */
typedef struct sg_log_file {
    FILE *streams[2];
    char who[32]; /* "ps-0", "worker-1" */
} sg_log_file;
/* An sg_log_fn; user is an sg_log_file. */
void sg_log_file_write(void *user, sg_log_level level, const char *event, const char *fields);

const char *sg_log_level_name(sg_log_level level);

#endif
