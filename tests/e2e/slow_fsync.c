/* tests/e2e/slow_fsync.c - a library for LD_PRELOAD: the first fsync of a file whose path holds $SLOW_FSYNC takes 12
 * seconds, as on a disk with too much to do. Made by the scenario that uses it. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SLOW_SECONDS = 12 };

int fsync(int file)
{
    static int been_slow;
    char link[64], path[PATH_MAX] = "";
    const char *slow = getenv("SLOW_FSYNC");
    snprintf(link, sizeof(link), "/proc/self/fd/%d", file);
    if (slow != NULL && readlink(link, path, sizeof(path) - 1) > 0 && strstr(path, slow) != NULL &&
        !__atomic_exchange_n(&been_slow, 1, __ATOMIC_RELAXED))
        sleep(SLOW_SECONDS);
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    return real(file);
}
