/* tests/bench/yardstick.h - the yardstick: the best that gRPC core can do here for what a ps does.
 *
 * Pushing gradients and pulling parameters with gRPC core and nothing else: no protobuf, no locks, no identity, no
 * rounds, none of shardgrad's libraries (only the allocator's settings, which are the daemons' own). shardgrad's speed
 * is told as a share of this one's, measured in the same run. What it leaves out is what shardgrad is for.
 *
 * Processes: the client (yardstick_client.c) in the one that is started, and two servers (yardstick_server.c) forked
 * before gRPC is initialised, one with one thread and one with two; yardstick_store.c has their values. They are
 * processes apart because all threads of a process that wait in gRPC share one set of sockets, so that idle threads of
 * one server would work for the other. yardstick.c reads what to measure and prints what was found; yardstick_kernel.c
 * has the arithmetic. */
#ifndef SG_TESTS_BENCH_YARDSTICK_H
#define SG_TESTS_BENCH_YARDSTICK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <grpc/grpc.h>

#define YARDSTICK_MAX_THREADS       2
#define YARDSTICK_MAX_CONNECTIONS   2
#define YARDSTICK_MAX_IN_FLIGHT     64
#define YARDSTICK_MAX_MESSAGE_BYTES ((size_t)64 << 20)
#define YARDSTICK_MAX_REPETITIONS   100000

/* Exit codes, those of the README. */
enum { YARDSTICK_USAGE = 64, YARDSTICK_LOST = 69, YARDSTICK_EXHAUSTED = 69, YARDSTICK_BUG = 70 };

/* Prints "shardgrad-yardstick: " and one line on stderr and ends this process. The other processes notice: a server
 * sees the end of its lifeline, the client a call that fails. */
void yardstick_fail(int exit_code, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* malloc that fails by YARDSTICK_EXHAUSTED; 64-byte aligned, every page written. */
void *yardstick_alloc(size_t n_bytes);

/* --- what client and server say to each other: native structs, as both are on one machine --- */

typedef enum yardstick_method {
    YARDSTICK_PUSH,      /* header and gradients -> nothing */
    YARDSTICK_PULL,      /* header -> values */
    YARDSTICK_PUSH_PULL, /* header and gradients -> the new values */
    YARDSTICK_ECHO,      /* bytes -> the same bytes */
    YARDSTICK_START,     /* yardstick_start -> nothing: values begin anew, cut into messages of another size */
    YARDSTICK_USED,      /* nothing -> yardstick_used of the server process */
    YARDSTICK_METHODS
} yardstick_method;

/* "/yardstick/Push"... */
const char *yardstick_path(yardstick_method method);

/* Begins a request: which message of the pass it is. Gradients follow without padding. */
typedef struct yardstick_header {
    uint64_t message;
} yardstick_header;

typedef struct yardstick_start {
    uint64_t message_bytes;
    uint64_t in_flight; /* calls at most under way at once */
} yardstick_start;

/* What a process has used since it began. */
typedef struct yardstick_used {
    double cpu_seconds;
    int64_t minor_faults;
} yardstick_used;
yardstick_used yardstick_used_by_now(void);

/* How many bytes of a message may be on their way before its receiver has read any: common/rpc_args.c makes that a
 * message, from 64 KiB to 4 MiB, where both sides are on one machine, as they are here. Here there are so many choices,
 * each a port of its own: the first that holds a message, or the last. */
#define YARDSTICK_WINDOWS 3
unsigned yardstick_window_of(size_t message_bytes);
/* Channel arguments that both sides share: windows and frames as common/rpc_args.c sets them on one machine. Returns
 * how many were written, at most YARDSTICK_SHARED_ARGS. */
#define YARDSTICK_SHARED_ARGS 8
size_t yardstick_shared_args(unsigned window, grpc_arg args[YARDSTICK_SHARED_ARGS]);
grpc_arg yardstick_arg(const char *key, int value);

/* --- yardstick_kernel.c --- */

/* Value i of version 0, and gradient i of every step. */
void yardstick_kernel_fill_values(float *values, size_t begin, size_t n_elems);
void yardstick_kernel_fill_gradients(float *gradients, size_t n_elems);
/* new = fma(-learning rate, gradient, old). The gradients may begin at any address. */
void yardstick_kernel_sgd(const void *gradients, const float *old_values, float *new_values, size_t n_elems);
/* The first of n_elems that is not, bit for bit, what n_steps steps make of version 0; n_elems if all are. */
size_t yardstick_kernel_first_wrong(const float *values, size_t n_elems, size_t n_steps);

/* --- yardstick_server.c --- */

typedef struct yardstick_server {
    pid_t pid;
    uint16_t ports[YARDSTICK_WINDOWS]; /* on 127.0.0.1 */
} yardstick_server;

/* Forks a server with so many threads; it ends when every copy of lifeline[1], which is not its own, is closed. Only
 * before grpc_init. */
yardstick_server yardstick_server_fork(size_t n_bytes, unsigned threads, const int lifeline[2]);

/* --- yardstick_client.c --- */

typedef struct yardstick_client yardstick_client;

/* Connects to servers[0..YARDSTICK_MAX_THREADS), of which server i has i + 1 threads. */
yardstick_client *yardstick_client_create(size_t n_bytes, const yardstick_server *servers);
void yardstick_client_destroy(yardstick_client *client);

typedef struct yardstick_shape {
    yardstick_method method; /* PUSH, PULL or PUSH_PULL */
    size_t message_bytes;    /* of gradients or values in one message */
    unsigned threads;        /* of the server */
    unsigned connections;
    unsigned in_flight; /* calls, over all connections */
} yardstick_shape;

/* One pass over all bytes. */
typedef struct yardstick_pass {
    double seconds;
    yardstick_used client, server; /* used by the pass */
} yardstick_pass;

/* Values begin at version 0; then one pass that is not measured, then n_passes; then every value is checked. */
void yardstick_client_measure(yardstick_client *client, const yardstick_shape *shape, size_t n_passes,
                              yardstick_pass *passes);
/* n_calls of n_bytes there and back, one at a time: the seconds of each, as the calling thread sees them. */
void yardstick_client_echo(yardstick_client *client, size_t n_bytes, size_t n_calls, double *seconds);

#endif
