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

__attribute__((visibility("default"))) int accept4(int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    for (;;) {
        const int accepted = (int)syscall(SYS_accept4, fd, address, length, flags);
        if (accepted < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            errno = EAGAIN; /* it is asked again when the next one comes */
        if (accepted < 0 || !is_one_too_many(accepted))
            return accepted;
        close(accepted);
        atomic_fetch_add(&n_closed, 1);
    }
}
