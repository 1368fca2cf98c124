/* common/rpc_args.h - how servers and clients set up gRPC: every argument whose default is not what shardgrad wants. */
#ifndef SG_COMMON_RPC_ARGS_H
#define SG_COMMON_RPC_ARGS_H

#include <stdint.h>

#include <grpc/grpc.h>

/* How a call carries a token. */
#define SG_RPC_TOKEN_HEADER "authorization"
#define SG_RPC_TOKEN_SCHEME "Bearer "

typedef struct sg_rpc_args {
    grpc_arg items[24];
    grpc_channel_args list; /* for gRPC; points to items */
    grpc_resource_quota *quota;
} sg_rpc_args;

/* Bound of a whole message: data and head. Clamped to what gRPC's int-valued arguments can say. */
int sg_rpc_args_message_limit(uint64_t message_bytes);

/* Of all that a server receives and has not let go of. */
size_t sg_rpc_args_quota_bytes(uint64_t message_bytes);

/* Needed only until the server or channel is created; freed by sg_rpc_args_deinit. address: where the server listens,
 * or whom the client calls. A server ends connections that are age_ms old, and gives what is under way on them
 * drain_ms; drain_ms 0: it ends none. */
void sg_rpc_args_init_server(sg_rpc_args *args, const char *address, uint64_t message_bytes, uint64_t age_ms,
                             uint64_t drain_ms);
void sg_rpc_args_init_client(sg_rpc_args *args, const char *address, uint64_t message_bytes);
void sg_rpc_args_deinit(sg_rpc_args *args);

#endif
