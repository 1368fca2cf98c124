/* common/status.h - what our own code needs beside the public shardgrad/status.h: filling errors, broken
 * invariants, and allocation of small fixed objects.
 *
 * Three classes of failure, never mixed: (a) environment and peers: an sg_status is returned; (b) a broken invariant
 * of our own: SG_ASSERT aborts, in release builds too; (c) no memory for a small fixed object: sg_xcalloc and its kin
 * abort in one place. A size that comes from the wire or from a file is bounded first and allocated by the `try` form,
 * whose failure is SG_EXHAUSTED. */
#ifndef SG_COMMON_STATUS_H
#define SG_COMMON_STATUS_H

#include <stdarg.h>

#include "shardgrad/status.h"

#define SG_ARRAY_LEN(array)                    (sizeof(array) / sizeof((array)[0]))
#define SG_CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Fills err (may be NULL) and returns `code`, so that a failure is one statement. Newlines in the result become
 * spaces; too long a message loses the middle of its longest words first (shorten.h), so that what to do survives a
 * long path. */
SG_MUST_USE sg_status sg_error_set(sg_error *err, sg_status code, const char *format, ...) SG_PRINTF(3, 4);
SG_MUST_USE sg_status sg_error_set_v(sg_error *err, sg_status code, const char *format, va_list args) SG_PRINTF(3, 0);
/* Puts "prefix: " before the message that err (may be NULL) holds. Returns its code argument. */
SG_MUST_USE sg_status sg_error_prefix(sg_error *err, sg_status code, const char *format, ...) SG_PRINTF(3, 4);

/* The status whose name is `name` ("FENCED"); false if there is none. */
bool sg_status_from_name(const char *name, size_t n_bytes, sg_status *status);
/* False for a number that names no status. */
bool sg_status_from_number(uint32_t number, sg_status *status);
/* The gRPC code to send for it, and what a bare gRPC code (no trailer: a foreign server, the transport) means. */
int sg_status_to_grpc(sg_status status);
sg_status sg_status_from_grpc(int grpc_code);

#define SG_ASSERT(condition) ((condition) ? (void)0 : sg_assert_failed(__FILE__, __LINE__, __func__, #condition))
void sg_assert_failed(const char *file, int line, const char *function, const char *condition)
    __attribute__((noreturn));

/* Says that there is no memory for n x element_bytes, and aborts. */
void sg_out_of_memory(size_t n, size_t element_bytes) __attribute__((noreturn));
/* Zeroed; never NULL; aborts without memory or on overflow. Freed by free(). */
void *sg_xcalloc(size_t n, size_t element_bytes);
/* Grows or shrinks; new memory is not zeroed. */
void *sg_xrealloc(void *old, size_t n, size_t element_bytes);
char *sg_xstrdup(const char *text);
char *sg_xprintf(const char *format, ...) SG_PRINTF(1, 2);
/* n_bytes rounded up to a multiple of 64, 64-byte aligned, not zeroed; NULL without memory. Freed by free(). */
void *sg_try_alloc_aligned(size_t n_bytes);

/* Whether sg_status_exit_code gives it for some status. */
bool sg_status_is_exit_code(int code);

#endif
