/* common/rpc_refusals.h - whom a server has refused: each peer and reason is told in the log once. */
#ifndef SG_COMMON_RPC_REFUSALS_H
#define SG_COMMON_RPC_REFUSALS_H

#include "common/log.h"

typedef struct sg_rpc_refusals sg_rpc_refusals;

sg_rpc_refusals *sg_rpc_refusals_create(const sg_log *log);
void sg_rpc_refusals_destroy(sg_rpc_refusals *refusals);

/* Logs `refused` if this peer was not refused with this reason before. peer is what gRPC calls it,
 * "ipv4:10.0.0.7:4242"; its port does not count, since it is another one for every connection. Beyond so many peers as
 * can be kept apart, further ones are told at growing intervals, with their number. Any thread. */
void sg_rpc_refusals_tell(sg_rpc_refusals *refusals, const char *peer, const char *method, const char *reason);

#endif
