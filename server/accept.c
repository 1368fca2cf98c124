/* server/accept.c - see accept.h. The count is process-wide, as the descriptors are. */
#include "server/accept.h"

#include <errno.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_uint_least64_t n_closed;

uint64_t sg_accept_closed(void)
{
    return atomic_load(&n_closed);
}

/* A new descriptor has the lowest number that is free: a high one says how many there are. */
static int is_one_too_many(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
           (rlim_t)fd + SG_ACCEPT_RESERVE >= limit.rlim_cur;
}

/* gRPC takes any other error than EAGAIN and EINTR for the end of its listener. What accept(2) says of one connection,
 * or of the network, is none: the next is taken. Without room it is asked again when the next one comes. */
static int is_of_the_listener(int error)
{
    return error == EBADF || error == EFAULT || error == EINVAL || error == ENOTSOCK;
}

static int is_want_of_room(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    for (;;) {
        const int accepted = (int)syscall(SYS_accept4, fd, address, length, flags);
        if (accepted < 0 && is_want_of_room(errno))
            errno = EAGAIN;
        if (accepted < 0 && errno != EAGAIN && errno != EINTR && !is_of_the_listener(errno))
            continue;
        if (accepted < 0 || !is_one_too_many(accepted))
            return accepted;
        close(accepted);
        atomic_fetch_add(&n_closed, 1);
    }
}
