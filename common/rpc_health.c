/* common/rpc_health.c - see rpc_health.h. */
#include "common/rpc_health.h"

#include <string.h>

#include "common/rpc_server_internal.h"
#include "grpc/health/v1/health.pb-c.h"

/* Is path "/service/..."? */
static bool path_belongs_to(const char *path, const char *service)
{
    size_t n_bytes = strlen(service);
    return path[0] == '/' && strncmp(path + 1, service, n_bytes) == 0 && path[1 + n_bytes] == '/';
}

static bool service_is_known(const sg_rpc_server *server, const char *service)
{
    if (service[0] == '\0')
        return true;
    for (size_t i = 0; i < server->n_routes; i++) {
        if (path_belongs_to(server->routes[i].method.path, service))
            return true;
    }
    return false;
}

void sg_rpc_health_check(void *user, sg_rpc_call *call)
{
    sg_rpc_server *server = user;
    sg_wire_parts parts = {0};
    sg_error err;
    sg_status status =
        sg_wire_unpack(sg_rpc_call_request(call), &grpc__health__v1__health_check_request__descriptor, &parts, &err);
    if (status != SG_OK) {
        sg_rpc_call_fail(call, status, "%s", err.message);
        return;
    }
    const char *service = ((Grpc__Health__V1__HealthCheckRequest *)parts.head)->service;
    if (service_is_known(server, service)) {
        Grpc__Health__V1__HealthCheckResponse response = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
        response.status = atomic_load(&server->serving)
                              ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                              : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
        sg_rpc_call_reply(call, &response.base, NULL, 0);
    } else {
        sg_rpc_call_fail(call, SG_NOT_FOUND, "no service %s here", service);
    }
    sg_wire_parts_deinit(&parts);
}
