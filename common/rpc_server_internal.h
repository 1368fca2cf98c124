/* common/rpc_server_internal.h - a server and its calls from inside: rpc_server.c has the life of the server,
 * rpc_call.c that of a call, rpc_unsent.c what is not sent of their answers. */
#ifndef SG_COMMON_RPC_SERVER_INTERNAL_H
#define SG_COMMON_RPC_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "common/rpc_handshakes.h"
#include "common/rpc_library.h"
#include "common/rpc_refusals.h"
#include "common/rpc_server.h"
#include "common/wire_internal.h"

typedef struct sg_rpc_route {
    sg_rpc_method method;
    sg_role needs;
    void *registered; /* gRPC's handle of the path */
} sg_rpc_route;

typedef struct sg_rpc_queue {
    sg_rpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
    bool has_thread;
} sg_rpc_queue;

/* Calls that were answered and whose answers are not sent, the oldest first. */
typedef struct sg_rpc_unsent {
    pthread_mutex_t mutex; /* guards the rest */
    TAILQ_HEAD(, sg_rpc_call) calls;
    uint64_t n_bytes;
} sg_rpc_unsent;

struct sg_rpc_server {
    /* immutable once it serves */
    grpc_server *grpc;
    sg_rpc_queue *queues;
    uint32_t n_queues;
    sg_rpc_route *routes; /* the health service's is the last */
    size_t n_routes;
    int message_limit;
    uint64_t drain_ms;
    size_t max_calls;
    uint64_t unsent_limit_bytes;
    sg_pool *pool;
    const sg_security *security;
    sg_rpc_refusals *refusals;
    sg_rpc_faults *faults;
    sg_rpc_handshakes_server handshakes; /* where there is TLS */
    const sg_log *log;
    uint16_t port;
    bool serves; /* and is to be stopped before it is freed */
    /* atomic */
    atomic_bool serving, stopping;
    atomic_size_t n_calls;  /* that are handled or wait for their answer; */
    atomic_size_t n_probes; /* health checks among them */
    atomic_size_t holds; /* one for every call, armed ones included, one for every handler that runs, one until stop */
    /* guarded by mutex, which is never held over a callback or a call of gRPC's */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut_down, all_gone;
    sg_rpc_unsent unsent;
    /* the tag of shutting down */
    sg_rpc_event on_shut_down;
};

/* One RPC, from being armed until gRPC has reported the end of every batch. */
struct sg_rpc_call {
    sg_rpc_event on_arrived, on_replied, on_closed; /* tags */
    sg_rpc_server *server;
    sg_rpc_queue *queue;
    const sg_rpc_route *route; /* NULL: a method that nobody registered */
    grpc_call *grpc;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_call_details details; /* only without a route */
    sg_wire_message request;
    char *peer;
    bool has_arrived;   /* and counts among n_calls */
    sg_rpc_fault fault; /* that befalls it, in a test */
    bool is_repeat;     /* of a call, by a fault: without gRPC's, and its answer goes nowhere */
    int cancelled;      /* written by gRPC when the call is closed */
    atomic_uint refs;   /* one until it is answered and the reply is through, one while it is watched */
    /* set by watch, before others know the call */
    bool watched;
    void (*on_gone)(void *user, sg_rpc_call *call);
    void *on_gone_user;
    /* guarded by the server's mutex */
    bool answered, notifying;
    pthread_t notifier;
    /* guarded by unsent.mutex */
    TAILQ_ENTRY(sg_rpc_call) unsent_link;
    bool is_unsent; /* it is among them */
    uint64_t unsent_bytes, answered_ms;
};

void sg_rpc_server_hold(sg_rpc_server *server);
void sg_rpc_server_unhold(sg_rpc_server *server);

/* --- rpc_unsent.c --- */

void sg_rpc_unsent_init(sg_rpc_unsent *unsent);
void sg_rpc_unsent_deinit(sg_rpc_unsent *unsent);
/* An answer of so many bytes is about to be sent. */
void sg_rpc_unsent_add(sg_rpc_call *call, uint64_t n_bytes);
/* It was sent, or ended. Before the call is released. */
void sg_rpc_unsent_remove(sg_rpc_call *call);

/* Waits for a call of this route (NULL: any that has none) on this queue. */
void sg_rpc_call_arm(sg_rpc_queue *queue, const sg_rpc_route *route);

#endif
