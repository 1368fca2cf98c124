/* common/rpc_address.c - see rpc_address.h. */
#include "common/rpc_address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/config.h"

static sg_status resolve(const char *address, struct addrinfo **found, sg_error *err)
{
    char host[256], service[8];
    uint16_t port;
    sg_status status = sg_config_split_address(address, host, sizeof(host), &port, err);
    if (status != SG_OK)
        return status;
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    int failed = getaddrinfo(host, service, &hints, found);
    if (failed != 0)
        return sg_error_set(err, SG_CONFIG, "address %s cannot be served: host %s does not resolve (%s)", address, host,
                            failed == EAI_SYSTEM ? strerror(errno) : gai_strerror(failed));
    return SG_OK;
}

sg_status sg_rpc_address_check(const char *address, sg_error *err)
{
    struct addrinfo *found;
    sg_status status = resolve(address, &found, err);
    if (status == SG_OK)
        freeaddrinfo(found);
    return status;
}

bool sg_rpc_address_is_loopback(const char *address)
{
    char host[256];
    uint16_t port;
    if (sg_config_split_address(address, host, sizeof(host), &port, NULL) != SG_OK)
        return false;
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == IN_LOOPBACKNET;
    if (inet_pton(AF_INET6, host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcmp(host, "localhost") == 0;
}

/* The errno of binding it as gRPC does, 0 if that works. */
static int bind_errno(const struct addrinfo *to)
{
    int fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC, 0);
    int on = 1, failed = 0;
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, to->ai_addr, to->ai_addrlen) != 0 || listen(fd, 1) != 0)
        failed = errno;
    close(fd);
    return failed;
}

static bool is_elsewhere(int failed)
{
    return failed == EADDRNOTAVAIL || failed == EAFNOSUPPORT;
}

/* *failed: why gRPC could not serve it, 0 if it can. A host name may have addresses that this machine lacks, such as
 * [::1] where there is no IPv6: one that it has is enough. */
static sg_status try_binding(const char *address, int *failed, sg_error *err)
{
    struct addrinfo *found;
    sg_status status = resolve(address, &found, err);
    *failed = 0;
    if (status != SG_OK)
        return status;
    bool any = false;
    for (const struct addrinfo *each = found; each != NULL && (*failed == 0 || is_elsewhere(*failed));
         each = each->ai_next) {
        const int why = bind_errno(each);
        any = any || why == 0;
        *failed = why != 0 ? why : *failed;
    }
    if (any && is_elsewhere(*failed))
        *failed = 0;
    freeaddrinfo(found);
    return SG_OK;
}

static sg_status describe(const char *address, int failed, sg_error *err)
{
    if (failed == EADDRINUSE)
        return sg_error_set(err, SG_CONFIG,
                            "address %s is in use by another program: stop that one or choose another port", address);
    if (failed == EADDRNOTAVAIL)
        return sg_error_set(err, SG_CONFIG, "address %s is not an address of this machine", address);
    return sg_error_set(err, SG_CONFIG, "address %s cannot be served: %s", address,
                        failed != 0 ? strerror(failed) : "gRPC refused it");
}

sg_status sg_rpc_address_try(const char *address, sg_error *err)
{
    int failed;
    sg_status status = try_binding(address, &failed, err);
    return status == SG_OK && failed != 0 ? describe(address, failed, err) : status;
}

sg_status sg_rpc_address_explain(const char *address, sg_error *err)
{
    int failed;
    sg_status status = try_binding(address, &failed, err);
    return status == SG_OK ? describe(address, failed, err) : status;
}
