/* common/rpc_sockets.c - see rpc_sockets.h. */
#include "common/rpc_sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

typedef union any_address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
} any_address;

static uint16_t port_of(const any_address *address)
{
    return ntohs(address->any.sa_family == AF_INET6 ? address->six.sin6_port : address->four.sin_port);
}

static void print_peer(const any_address *peer, char out[SG_RPC_PEER_BYTES])
{
    char host[INET6_ADDRSTRLEN] = "";
    if (peer->any.sa_family != AF_INET6)
        inet_ntop(AF_INET, &peer->four.sin_addr, host, sizeof host);
    else if (IN6_IS_ADDR_V4MAPPED(&peer->six.sin6_addr))
        inet_ntop(AF_INET, &peer->six.sin6_addr.s6_addr[12], host, sizeof host);
    else
        inet_ntop(AF_INET6, &peer->six.sin6_addr, host, sizeof host);
    bool is_v6 = strchr(host, ':') != NULL;
    snprintf(out, SG_RPC_PEER_BYTES, is_v6 ? "ipv6:[%s]:%u" : "ipv4:%s:%u", host, port_of(peer));
}

static bool look_at(int fd, sg_rpc_socket *found)
{
    any_address own = {.any.sa_family = AF_UNSPEC}, peer = {.any.sa_family = AF_UNSPEC};
    socklen_t own_bytes = sizeof own, peer_bytes = sizeof peer;
    struct tcp_info info = {0};
    socklen_t info_bytes = sizeof info;
    if (getsockname(fd, &own.any, &own_bytes) != 0 || (own.any.sa_family != AF_INET && own.any.sa_family != AF_INET6) ||
        getpeername(fd, &peer.any, &peer_bytes) != 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) != 0)
        return false;
    *found = (sg_rpc_socket){.fd = fd,
                             .port = port_of(&own),
                             .quiet_ms = info.tcpi_last_data_recv,
                             .received_bytes = info.tcpi_bytes_received};
    print_peer(&peer, found->peer);
    return true;
}

void sg_rpc_sockets_each(void (*each)(void *user, const sg_rpc_socket *connection), void *user)
{
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        char *end;
        long fd = strtol(entry->d_name, &end, 10);
        sg_rpc_socket found;
        if (end != entry->d_name && look_at((int)fd, &found))
            each(user, &found);
    }
    if (folder != NULL)
        closedir(folder);
}
