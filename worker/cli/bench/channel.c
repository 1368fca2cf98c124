/* worker/cli/bench/channel.c - see channel.h. */
#include "worker/cli/bench/channel.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

sg_status sg_bench_channel_init(sg_bench_channel *c, const char *path, size_t n_workers, sg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    *c = (sg_bench_channel){.listener = -1, .n_workers = n_workers};
    c->sockets = sg_xcalloc(n_workers, sizeof(*c->sockets));
    for (size_t i = 0; i < n_workers; i++)
        c->sockets[i] = -1;
    if (strlen(path) >= sizeof(address.sun_path))
        return sg_error_set(err, SG_CONFIG, "%s is too long a path for a socket: set TMPDIR to a shorter one", path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    c->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (c->listener < 0 || bind(c->listener, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        listen(c->listener, (int)n_workers) != 0)
        return sg_error_set(err, SG_NOT_FOUND, "cannot listen at %s: %s", path, strerror(errno));
    return SG_OK;
}

void sg_bench_channel_deinit(sg_bench_channel *c)
{
    for (size_t i = 0; i < c->n_workers; i++)
        if (c->sockets[i] >= 0)
            close(c->sockets[i]);
    if (c->listener >= 0)
        close(c->listener);
    free(c->sockets);
    *c = (sg_bench_channel){.listener = -1};
}

static sg_status lost(sg_error *err)
{
    return sg_error_set(err, SG_PEER_LOST, "a process of the cluster has ended");
}

static sg_status receive(int socket, sg_bench_reply *reply, sg_error *err)
{
    ssize_t n;
    do
        n = recv(socket, reply, sizeof(*reply), 0);
    while (n < 0 && errno == EINTR);
    return n == sizeof(*reply) ? SG_OK : lost(err);
}

static sg_status welcome_one(sg_bench_channel *c, sg_error *err)
{
    int socket;
    do
        socket = accept4(c->listener, NULL, NULL, SOCK_CLOEXEC);
    while (socket < 0 && errno == EINTR);
    sg_bench_reply hello = {0};
    sg_status status = socket < 0 ? lost(err) : receive(socket, &hello, err);
    if (status == SG_OK && (hello.worker >= c->n_workers || c->sockets[hello.worker] >= 0))
        status = sg_error_set(err, SG_INTERNAL, "worker %" PRIu32 " said hello unasked", hello.worker);
    if (status == SG_OK)
        c->sockets[hello.worker] = socket;
    else if (socket >= 0)
        close(socket);
    return status;
}

sg_status sg_bench_channel_welcome(sg_bench_channel *c, sg_error *err)
{
    sg_status status = SG_OK;
    for (size_t i = 0; i < c->n_workers && status == SG_OK; i++)
        status = welcome_one(c, err);
    return status;
}

void sg_bench_channel_give_up(sg_bench_channel *c)
{
    shutdown(c->listener, SHUT_RDWR);
}

sg_status sg_bench_channel_send(const sg_bench_channel *c, sg_bench_command command, uint32_t n_times, sg_error *err)
{
    sg_bench_request request = {.command = command, .n_times = n_times};
    for (size_t i = 0; i < c->n_workers; i++)
        if (send(c->sockets[i], &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
            return lost(err);
    return SG_OK;
}

void sg_bench_channel_send_leave(const sg_bench_channel *c)
{
    sg_bench_request leave = {.command = SG_BENCH_LEAVE};
    for (size_t i = 0; i < c->n_workers; i++)
        if (c->sockets[i] >= 0)
            (void)!send(c->sockets[i], &leave, sizeof(leave), MSG_NOSIGNAL);
}

sg_status sg_bench_channel_receive(const sg_bench_channel *c, size_t worker, sg_bench_reply *reply, sg_error *err)
{
    return receive(c->sockets[worker], reply, err);
}
