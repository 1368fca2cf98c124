/* worker/client/transport.h - the calls that a session wants, on gRPC: buffers are lent as they lie, replies are
 * checked against the plan and copied into the value buffers. */
#ifndef SG_WORKER_CLIENT_TRANSPORT_H
#define SG_WORKER_CLIENT_TRANSPORT_H

#include "worker/client/client_internal.h"

/* The connection for hello, heartbeats and leave. Errors: EXHAUSTED (no thread for it). */
SG_MUST_USE sg_status sg_transport_open(sg_client *client, sg_error *err);
/* The connections for all else, once Hello was answered. Errors: EXHAUSTED. */
SG_MUST_USE sg_status sg_transport_connect(sg_client *client, sg_error *err);
/* The same, to the addresses of now. With the lock held. */
void sg_transport_move(sg_client *client);
/* The one that a call goes by; NULL: it is looked up when it starts. With the lock held. */
sg_rpc_channel *sg_transport_channel(const sg_client *client, const sg_session_action *action);
/* Ends all calls and connections; every call was reported when this returns. */
void sg_transport_close(sg_client *client);

/* Carries out a call: the session is told of its end. Without the lock. */
void sg_transport_start(sg_client_call *call);
/* Makes it end soon. Without the lock. */
void sg_transport_cancel(sg_client_call *call);

#endif
