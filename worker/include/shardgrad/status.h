/* shardgrad/status.h - result codes, errors and log events: what every part of shardgrad shares.
 *
 * Every function that can fail returns an sg_status and takes an sg_error as its last argument. The error is the
 * caller's, may be NULL, and is written only on failure: its code is the returned status, its message one line that
 * says what was found, what was wanted, and what to do. Nothing here allocates; all of it may be called from any
 * thread. */
#ifndef SHARDGRAD_STATUS_H
#define SHARDGRAD_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SG_API                        __attribute__((visibility("default")))
#define SG_MUST_USE                   __attribute__((warn_unused_result))
#define SG_PRINTF(format_at, args_at) __attribute__((format(printf, format_at, args_at)))
#else
#define SG_API
#define SG_MUST_USE
#define SG_PRINTF(format_at, args_at)
#endif

/* X(name, number, gRPC status code, exit code of a program that ends with it, text) */
#define SG_STATUS_MAP(X)                                                                                               \
    X(OK, 0, 0, 0, "ok")                                                                                               \
    X(USAGE, 1, 3, 64, "wrong usage")                   /* a command line that makes no sense */                       \
    X(CONFIG, 2, 9, 78, "wrong configuration")          /* a cluster file or settings that differ */                   \
    X(INVALID, 3, 3, 70, "invalid argument")            /* a call that breaks its contract */                          \
    X(DATA, 4, 15, 65, "wrong data")                    /* a file whose content is wrong */                            \
    X(NOT_FOUND, 5, 5, 66, "not found")                 /* a file or a thing that is missing */                        \
    X(MISMATCH, 6, 9, 78, "differs from the cluster")   /* variables or a job other than the cluster's */              \
    X(UNAVAILABLE, 7, 14, 69, "peer cannot be reached") /* no connection; sending again may help */                    \
    X(TIMEOUT, 8, 4, 69, "timed out")                   /* the deadline came first */                                  \
    X(WAITING, 9, 14, 69, "waiting")                    /* nothing is wrong: ask again */                              \
    X(NOT_READY, 10, 14, 69, "not ready")               /* the peer has not come that far: ask again */                \
    X(FENCED, 11, 10, 75, "superseded")                 /* a newer incarnation has this worker's index */              \
    X(LATE, 12, 9, 75, "too late")                      /* the step is closed or the version gone */                   \
    X(EARLY, 13, 9, 70, "too early")                    /* the step has not begun */                                   \
    X(ROLLED_BACK, 14, 10, 75, "generation has passed") /* the job went on in another generation */                    \
    X(PEER_LOST, 15, 10, 69, "peer was lost")           /* a worker or ps died and the job with it */                  \
    X(STOPPED, 16, 14, 69, "stopped")                   /* the peer was told to stop */                                \
    X(CANCELLED, 17, 1, 130, "cancelled")               /* by the caller */                                            \
    X(EXHAUSTED, 18, 8, 69, "out of resources")         /* a limit or memory */                                        \
    X(NON_FINITE, 19, 11, 65, "not finite")             /* NaN or infinity in values: a training that diverged */      \
    X(UNIMPLEMENTED, 20, 12, 78, "not implemented")     /* a method the peer does not have */                          \
    X(INTERNAL, 21, 13, 70, "internal error")           /* a bug */                                                    \
    X(DENIED, 22, 7, 77, "not allowed")                 /* credentials, or the role that they give */                  \
    X(IO, 23, 13, 66, "file cannot be used")            /* it is there, but cannot be read or written */

typedef enum sg_status {
#define X(name, number, rpc_code, exit_code, text) SG_##name = number,
    SG_STATUS_MAP(X)
#undef X
} sg_status;

#define SG_ERROR_MESSAGE_BYTES 512

typedef struct sg_error {
    sg_status code;
    char message[SG_ERROR_MESSAGE_BYTES]; /* one line, without a newline, always terminated */
} sg_error;

/* "FENCED" for SG_FENCED; "UNKNOWN" for a number that is none. Static storage. */
SG_API const char *sg_status_name(sg_status status);
/* A few words for people. Static storage. */
SG_API const char *sg_status_text(sg_status status);
/* The exit code that a program ends with when this status ended it: see README.md. */
SG_API int sg_status_exit_code(sg_status status);

/* Severity of a log event, the gravest last. */
typedef enum sg_log_level { SG_LOG_DEBUG, SG_LOG_INFO, SG_LOG_WARN, SG_LOG_ERROR } sg_log_level;

/* Receives one event: `event` is a word such as "joined", `fields` a line of key=value pairs, possibly empty.
 * Both are valid during the call only. Called from any thread, several at once; must not call back into the object
 * that logs. */
typedef void (*sg_log_fn)(void *user, sg_log_level level, const char *event, const char *fields);

#ifdef __cplusplus
}
#endif

#endif
