/* common/rpc_handshakes.h - who failed to shake hands with a TLS server. gRPC tells nobody: it writes a line into its
 * own log, mostly without an address, and so this listens there. */
#ifndef SG_COMMON_RPC_HANDSHAKES_H
#define SG_COMMON_RPC_HANDSHAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "common/rpc_refusals.h"

typedef struct sg_rpc_handshakes_server {
    uint16_t port;
    sg_rpc_refusals *refusals; /* are told */
    /* private */
    size_t in_use;
    struct sg_rpc_handshakes_server *next;
} sg_rpc_handshakes_server;

/* From now until unwatch, failed handshakes of the server at `port` are told. Makes gRPC say more to its log function,
 * in the whole process. */
void sg_rpc_handshakes_watch(sg_rpc_handshakes_server *server);
/* Waits for what is being told. One that is not watched is left alone. */
void sg_rpc_handshakes_unwatch(sg_rpc_handshakes_server *server);

/* To find a connection the kernel is asked about every descriptor, which whoever fails to shake hands, again and again,
 * must not make a server do all day: so many in a row, then one each so often. Whom that leaves without an address is
 * told as "unknown". A value; zeroed nothing was looked for. */
#define SG_RPC_HANDSHAKES_LOOKS   32u
#define SG_RPC_HANDSHAKES_LOOK_MS 100u
typedef struct sg_rpc_handshakes_looks {
    uint64_t full_ms; /* when all of them will be there again */
} sg_rpc_handshakes_looks;
bool sg_rpc_handshakes_may_look(sg_rpc_handshakes_looks *looks, uint64_t now_ms);

/* A line of gRPC's log, on the thread that wrote it. True: it is of a handshake that failed, which is told otherwise,
 * by this or by the client's call that fails. */
bool sg_rpc_handshakes_hear(const char *line);

#endif
