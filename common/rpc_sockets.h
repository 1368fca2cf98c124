/* common/rpc_sockets.h - the TCP connections of this process, which gRPC keeps to itself. */
#ifndef SG_COMMON_RPC_SOCKETS_H
#define SG_COMMON_RPC_SOCKETS_H

#include <stdint.h>

#define SG_RPC_PEER_BYTES 80

typedef struct sg_rpc_socket {
    int fd;
    uint16_t port;                /* its own */
    char peer[SG_RPC_PEER_BYTES]; /* as gRPC calls it: "ipv4:127.0.0.1:4242" */
    uint32_t quiet_ms;            /* since it received something */
    uint64_t received_bytes;
} sg_rpc_socket;

/* Calls `each` for every connection that is open. Slow: it asks the kernel about every file descriptor. */
void sg_rpc_sockets_each(void (*each)(void *user, const sg_rpc_socket *connection), void *user);

#endif
