/* tests/bench/yardstick_store.h - the values of the yardstick's server, cut as the messages of a pass are.
 *
 * Any thread may call push and lend, but one message is pushed by one thread at a time. */
#ifndef SG_TESTS_BENCH_YARDSTICK_STORE_H
#define SG_TESTS_BENCH_YARDSTICK_STORE_H

#include <stdatomic.h>

#include "tests/bench/yardstick.h"

typedef struct yardstick_version yardstick_version;

typedef struct yardstick_store {
    size_t n_bytes; /* set by the owner; all else by start */
    size_t message_bytes, version_bytes;
    size_t n_messages, n_versions;
    char *values;
    yardstick_version *versions;
    _Atomic(yardstick_version *) *current; /* [n_messages] */
    /* The free versions, last in first out, as what was used last is in the cache: index + 1 of the first (0: none)
     * below; above it a count of changes, without which a thread could take the list for the one that it saw before. */
    _Atomic uint64_t free_list;
    atomic_size_t n_free;
} yardstick_store;

/* Version 0 of all values, cut anew. The request holds a yardstick_start. No other call is under way. */
void yardstick_store_start(yardstick_store *store, const grpc_byte_buffer *request);
/* Frees what start made, when all that was lent is back. */
void yardstick_store_clear(yardstick_store *store);

/* The request holds a yardstick_header and the gradients of that message: applies them. */
void yardstick_store_push(yardstick_store *store, const grpc_byte_buffer *request);
/* The current values of the request's message, as gRPC is to send them: lent, not copied. */
grpc_byte_buffer *yardstick_store_lend(yardstick_store *store, const grpc_byte_buffer *request);

#endif
