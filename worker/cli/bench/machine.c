/* worker/cli/bench/machine.c - see machine.h. */
#include "worker/cli/bench/machine.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/clock.h"
#include "kernels/isa.h"

#define WRITE_BYTES ((size_t)1 << 20)

struct sg_bench_tcp {
    int socket;
    pid_t peer;
    unsigned char *buffer; /* [WRITE_BYTES] */
};

static bool write_all(int fd, const void *data, size_t n_bytes)
{
    const unsigned char *at = data;
    while (n_bytes > 0) {
        ssize_t n = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

static bool read_all(int fd, void *data, size_t n_bytes)
{
    unsigned char *at = data;
    while (n_bytes > 0) {
        ssize_t n = read(fd, at, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        n_bytes -= (size_t)n;
    }
    return true;
}

/* The other process: a length, so many bytes, one byte back; until the stream ends. It is a fork of a program with
 * threads, so it does nothing but system calls. */
static void swallow(int fd, unsigned char *buffer)
{
    uint64_t left;
    while (read_all(fd, &left, sizeof(left))) {
        while (left > 0) {
            ssize_t n = read(fd, buffer, left < WRITE_BYTES ? (size_t)left : WRITE_BYTES);
            if (n <= 0 && errno != EINTR)
                _exit(1);
            left -= n > 0 ? (uint64_t)n : 0;
        }
        if (!write_all(fd, "", 1))
            break;
    }
    _exit(0);
}

/* Two connected sockets over TCP: socketpair() has none. */
static bool connect_pair(int pair[2])
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pair[1] = -1;
    if (listener >= 0 && pair[0] >= 0 && bind(listener, (struct sockaddr *)&address, n) == 0 &&
        listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&address, &n) == 0 &&
        connect(pair[0], (struct sockaddr *)&address, n) == 0)
        pair[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    int failure = errno;
    if (listener >= 0)
        close(listener);
    if (pair[1] < 0 && pair[0] >= 0)
        close(pair[0]);
    errno = failure;
    return pair[1] >= 0;
}

sg_status sg_bench_tcp_create(sg_bench_tcp **tcp, sg_error *err)
{
    int pair[2];
    if (!connect_pair(pair))
        return sg_error_set(err, SG_UNAVAILABLE, "no TCP connection over loopback: %s", strerror(errno));
    setsockopt(pair[0], IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    sg_bench_tcp *t = sg_xcalloc(1, sizeof(*t));
    t->buffer = sg_xcalloc(1, WRITE_BYTES);
    memset(t->buffer, 1, WRITE_BYTES);
    t->socket = pair[0];
    pid_t parent = getpid();
    t->peer = fork();
    if (t->peer == 0) {
        close(pair[0]);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            swallow(pair[1], t->buffer);
        _exit(1);
    }
    close(pair[1]);
    if (t->peer < 0) {
        sg_status status = sg_error_set(err, SG_EXHAUSTED, "cannot start a process: %s", strerror(errno));
        sg_bench_tcp_destroy(t);
        return status;
    }
    *tcp = t;
    return SG_OK;
}

void sg_bench_tcp_destroy(sg_bench_tcp *t)
{
    if (t == NULL)
        return;
    close(t->socket);
    if (t->peer > 0) {
        kill(t->peer, SIGKILL);
        while (waitpid(t->peer, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    free(t->buffer);
    free(t);
}

sg_status sg_bench_tcp_send(sg_bench_tcp *t, uint64_t n_bytes, double *seconds, sg_error *err)
{
    unsigned char answer;
    uint64_t began_ns = sg_clock_ns();
    bool sent = write_all(t->socket, &n_bytes, sizeof(n_bytes));
    for (uint64_t left = n_bytes; sent && left > 0;) {
        size_t n = left < WRITE_BYTES ? (size_t)left : WRITE_BYTES;
        sent = write_all(t->socket, t->buffer, n);
        left -= n;
    }
    if (!sent || !read_all(t->socket, &answer, 1))
        return sg_error_set(err, SG_UNAVAILABLE, "the process at the other end of the TCP stream has ended");
    *seconds = (double)(sg_clock_ns() - began_ns) / 1e9;
    return SG_OK;
}

double sg_bench_machine_copy(void *to, const void *from, size_t n_bytes)
{
    uint64_t began_ns = sg_clock_ns();
    memcpy(to, from, n_bytes);
    return (double)(sg_clock_ns() - began_ns) / 1e9;
}

/* Vectors by hand: at -O2 not every compiler makes them by itself, and the processor would be what is measured. In the
 * same versions as the fused pass, which is compared with it. */
typedef float vector __attribute__((vector_size(64), may_alias));

SG_ISA_INLINE void add(size_t n_vectors, const vector *a, const vector *b, vector *sum)
{
    for (size_t i = 0; i < n_vectors; i++)
        sum[i] = a[i] + b[i];
}

SG_ISA_TARGET_AVX512 static void add_avx512(size_t n_vectors, const vector *a, const vector *b, vector *sum)
{
    add(n_vectors, a, b, sum);
}

SG_ISA_TARGET_AVX2 static void add_avx2(size_t n_vectors, const vector *a, const vector *b, vector *sum)
{
    add(n_vectors, a, b, sum);
}

static void add_portable(size_t n_vectors, const vector *a, const vector *b, vector *sum)
{
    add(n_vectors, a, b, sum);
}

double sg_bench_machine_pass(float *sum, const float *a, const float *b, size_t n_elems)
{
    static void (*const versions[SG_ISA_COUNT])(size_t, const vector *, const vector *, vector *) = {
        [SG_ISA_PORTABLE] = add_portable, [SG_ISA_AVX2] = add_avx2, [SG_ISA_AVX512] = add_avx512};
    uint64_t began_ns = sg_clock_ns();
    versions[sg_isa_best()](n_elems / (sizeof(vector) / sizeof(float)), (const vector *)(const void *)a,
                            (const vector *)(const void *)b, (vector *)(void *)sum);
    return (double)(sg_clock_ns() - began_ns) / 1e9;
}
