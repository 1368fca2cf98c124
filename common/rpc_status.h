/* common/rpc_status.h - an sg_status on the wire and back, and gRPC's words for a lost connection made readable. */
#ifndef SG_COMMON_RPC_STATUS_H
#define SG_COMMON_RPC_STATUS_H

#include <grpc/grpc.h>

#include "common/status.h"

/* The trailer whose value is the name of an sg_status. */
#define SG_RPC_STATUS_TRAILER "shardgrad-status"

/* Trailing metadata that says `status`; static memory, nothing to free. */
grpc_metadata sg_rpc_status_trailer(sg_status status);
/* What the trailer says; false if there is none that is known. */
bool sg_rpc_status_from_trailers(const grpc_metadata_array *trailers, sg_status *status);

/* Fills err with `code` and with what gRPC's words about a failed connection to `address` come down to:
 * "127.0.0.1:4001: connection refused". Returns code. */
SG_MUST_USE sg_status sg_rpc_status_transport(sg_error *err, sg_status code, const char *address, const char *words);

#endif
