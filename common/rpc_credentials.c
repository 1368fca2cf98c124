/* common/rpc_credentials.c - see rpc_credentials.h. */
#include "common/rpc_credentials.h"

static grpc_tls_credentials_options *options_create(const sg_security *security)
{
    grpc_tls_certificate_provider *provider = grpc_tls_certificate_provider_file_watcher_create(
        security->key, security->certificate, security->ca, SG_RPC_CREDENTIALS_REFRESH_S);
    grpc_tls_credentials_options *options = grpc_tls_credentials_options_create();
    grpc_tls_credentials_options_set_certificate_provider(options, provider);
    grpc_tls_certificate_provider_release(provider);
    grpc_tls_credentials_options_watch_root_certs(options);
    grpc_tls_credentials_options_watch_identity_key_cert_pairs(options);
    return options;
}

grpc_server_credentials *sg_rpc_credentials_server(const sg_security *security)
{
    if (security == NULL || security->ca == NULL)
        return grpc_insecure_server_credentials_create();
    grpc_tls_credentials_options *options = options_create(security);
    grpc_tls_credentials_options_set_cert_request_type(options,
                                                       GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
    return grpc_tls_server_credentials_create(options);
}

grpc_channel_credentials *sg_rpc_credentials_channel(const sg_security *security)
{
    if (security == NULL || security->ca == NULL)
        return grpc_insecure_credentials_create();
    return grpc_tls_credentials_create(options_create(security));
}
