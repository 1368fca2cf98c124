/* tests/cluster/cluster.h - ps on threads of this process, and what the tests of clients need around them. */
#ifndef SG_TESTS_CLUSTER_CLUSTER_H
#define SG_TESTS_CLUSTER_CLUSTER_H

#include <pthread.h>

#include "common/rpc_client.h"
#include "server/ps.h"
#include "shardgrad/shardgrad.h"

#define CLUSTER_MAX_PS 3

typedef struct cluster {
    sg_config *config;
    uint32_t n_ps;
    struct cluster_ps {
        sg_ps *ps;
        pthread_t thread;
        sg_status status;
        sg_error error;
    } ps[CLUSTER_MAX_PS];
} cluster;

/* `settings` are lines "KEY=VALUE", NULL-terminated, over defaults that suit tests: slices of 64 bytes, messages of
 * 256, rule sgd with learning rate 1. */
void cluster_start(cluster *c, uint32_t n_ps, const char *const *settings);
/* The same, and `faults` (NULL: none) befall the answers of every ps. */
void cluster_start_faulty(cluster *c, uint32_t n_ps, const char *const *settings, sg_rpc_faults *faults);
/* Waits until every ps has ended by itself; each must have ended so. */
void cluster_await(cluster *c, sg_status status);
/* Stops every ps, whatever goes on, and waits for it. */
void cluster_stop(cluster *c);

/* A client of worker `worker`, joined. */
sg_client *cluster_open(const cluster *c, uint32_t worker);
/* The same with these options for all but the address. */
sg_status cluster_try_open(const cluster *c, sg_client_options options, sg_client **client, sg_error *err);

/* A peer that speaks the protocol by hand, as a worker that dies does: it says what it is told and nothing else. */
typedef struct cluster_raw {
    sg_rpc_client *client;
    sg_rpc_channel *channel;
    uint64_t incarnation;
} cluster_raw;
/* Says hello as this worker. */
void cluster_raw_join(cluster_raw *raw, const cluster *c, uint32_t worker);
/* One call to ps 0; *reply (may be NULL) is freed by protobuf_c_message_free_unpacked. */
sg_status cluster_raw_call(cluster_raw *raw, const char *path, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms, ProtobufCMessage **reply,
                           sg_error *err);
void cluster_raw_leave_silently(cluster_raw *raw);

#endif
