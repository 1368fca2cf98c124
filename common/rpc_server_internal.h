/* common/rpc_server_internal.h - a server and its calls from inside: rpc_server.c has the life of the server,
 * rpc_call.c that of a call. */
#ifndef SG_COMMON_RPC_SERVER_INTERNAL_H
#define SG_COMMON_RPC_SERVER_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "common/rpc_library.h"
#include "common/rpc_server.h"
#include "common/wire_internal.h"

typedef struct sg_rpc_route {
    sg_rpc_method method;
    void *registered; /* gRPC's handle of the path */
} sg_rpc_route;

typedef struct sg_rpc_queue {
    sg_rpc_server *server;
    grpc_completion_queue *queue;
    pthread_t thread;
} sg_rpc_queue;

struct sg_rpc_server {
    /* immutable once it serves */
    grpc_server *grpc;
    sg_rpc_queue *queues;
    uint32_t n_queues;
    sg_rpc_route *routes; /* the health service's is the last */
    size_t n_routes;
    int message_limit;
    sg_pool *pool;
    const sg_log *log;
    uint16_t port;
    bool threads_run;
    /* atomic */
    atomic_bool serving, stopping;
    atomic_size_t holds; /* one for every call, armed ones included, one for every handler that runs, one until stop */
    /* guarded by mutex, which is never held over a callback or a call of gRPC's */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool shut_down, all_gone;
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
    int cancelled;    /* written by gRPC when the call is closed */
    atomic_uint refs; /* one until it is answered and the reply is through, one while it is watched */
    /* set by watch, before others know the call */
    bool watched;
    void (*on_gone)(void *user, sg_rpc_call *call);
    void *on_gone_user;
    /* guarded by the server's mutex */
    bool answered, notifying;
    pthread_t notifier;
};

void sg_rpc_server_hold(sg_rpc_server *server);
void sg_rpc_server_unhold(sg_rpc_server *server);

/* Waits for a call of this route (NULL: any that has none) on this queue. */
void sg_rpc_call_arm(sg_rpc_queue *queue, const sg_rpc_route *route);

#endif
