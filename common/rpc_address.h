/* common/rpc_address.h - why an address cannot be served, which gRPC only says in its log. */
#ifndef SG_COMMON_RPC_ADDRESS_H
#define SG_COMMON_RPC_ADDRESS_H

#include "common/status.h"

/* Is it host:port, and does the host resolve? May block on the name service. Errors: CONFIG, naming the address. */
SG_MUST_USE sg_status sg_rpc_address_check(const char *address, sg_error *err);

/* Does what goes there, or comes in there, stay on this machine? host:port with 127.x.x.x, [::1] or localhost does; no
 * name is looked up, so another one that resolves to these does not count. */
bool sg_rpc_address_is_loopback(const char *address);

/* Could it be served now? Binds it for a moment. Errors: CONFIG, with the reason. */
SG_MUST_USE sg_status sg_rpc_address_try(const char *address, sg_error *err);

/* After gRPC could not bind it: finds out why by trying. Always returns CONFIG. */
SG_MUST_USE sg_status sg_rpc_address_explain(const char *address, sg_error *err);

#endif
