/* common/rpc_credentials.h - TLS, or none, for servers and channels. */
#ifndef SG_COMMON_RPC_CREDENTIALS_H
#define SG_COMMON_RPC_CREDENTIALS_H

#include <grpc/grpc_security.h>

#include "common/security.h"

/* Plaintext where security is NULL or has no files; else mutual TLS: each side proves by a certificate that the other's
 * CA signed, and a client checks that it names the host that it called. The files are read again every
 * SG_RPC_CREDENTIALS_REFRESH_S, for connections made from then on. Released by gRPC's function for it. */
#define SG_RPC_CREDENTIALS_REFRESH_S 1
grpc_server_credentials *sg_rpc_credentials_server(const sg_security *security);
grpc_channel_credentials *sg_rpc_credentials_channel(const sg_security *security);

#endif
