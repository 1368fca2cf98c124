/* common/memory_limit.c - see memory_limit.h. What a program takes was measured, and has some room; the limits are
 * looked at once, and how much of the address space is in use already is not. */
#include "common/memory_limit.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/status.h"

#define MIB         ((uint64_t)1 << 20)
#define OWN_BYTES   (128 * MIB) /* the program, its libraries, what they allocate at the start; measured: 100 */
#define OWN_THREADS 32u /* with those of gRPC, which starts more of them the more CPUs there are; measured: 14 */

static uint64_t stack_bytes(void)
{
    pthread_attr_t attributes;
    size_t n_bytes = 0;
    if (pthread_getattr_default_np(&attributes) != 0)
        return 0;
    pthread_attr_getstacksize(&attributes, &n_bytes);
    pthread_attr_destroy(&attributes);
    return n_bytes;
}

void sg_memory_limit_require(const char *program, uint64_t more_bytes)
{
    static const struct {
        int what; /* __rlimit_resource_t is an enumeration of glibc's own */
        const char *option;
    } limits[] = {{RLIMIT_AS, "-v"}, {RLIMIT_DATA, "-d"}};
    const uint64_t wanted = OWN_BYTES + OWN_THREADS * stack_bytes() + more_bytes;
    for (size_t i = 0; i < SG_ARRAY_LEN(limits); i++) {
        struct rlimit limit;
        if (getrlimit((__rlimit_resource_t)limits[i].what, &limit) != 0 || limit.rlim_cur >= wanted)
            continue;
        fprintf(stderr,
                "%s: this process may have %" PRIu64 " MiB of address space, wanted at least %" PRIu64
                " MiB: raise the limit (ulimit %s)\n",
                program, (uint64_t)limit.rlim_cur / MIB, wanted / MIB, limits[i].option);
        _exit(sg_status_exit_code(SG_EXHAUSTED));
    }
}
