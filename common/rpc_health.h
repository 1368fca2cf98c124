/* common/rpc_health.h - the method Check of the standard grpc.health.v1.Health.
 *
 * Known services are "", which means the whole server, and those of which the server has methods. Watch is not
 * implemented, as the standard allows. */
#ifndef SG_COMMON_RPC_HEALTH_H
#define SG_COMMON_RPC_HEALTH_H

#include "common/rpc_server.h"

#define SG_RPC_HEALTH_CHECK "/grpc.health.v1.Health/Check"

/* An sg_rpc_handler; user is the sg_rpc_server. */
void sg_rpc_health_check(void *user, sg_rpc_call *call);

#endif
