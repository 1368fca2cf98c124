/* common/clock.c - see clock.h. */
#include "common/clock.h"

#include <errno.h>
#include <stdio.h>
#include <sys/random.h>
#include <time.h>

#include "common/status.h"

uint64_t sg_clock_ns(void)
{
    struct timespec now;
    SG_ASSERT(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t sg_clock_ms(void)
{
    return sg_clock_ns() / 1000000u;
}

void sg_clock_rfc3339(char out[SG_CLOCK_RFC3339_BYTES])
{
    struct timespec now;
    struct tm parts;
    SG_ASSERT(clock_gettime(CLOCK_REALTIME, &now) == 0);
    gmtime_r(&now.tv_sec, &parts);
    size_t length = strftime(out, SG_CLOCK_RFC3339_BYTES, "%Y-%m-%dT%H:%M:%S", &parts);
    snprintf(out + length, SG_CLOCK_RFC3339_BYTES - length, ".%03uZ", (unsigned)(now.tv_nsec / 1000000) % 1000u);
}

uint64_t sg_clock_random_id(void)
{
    uint64_t id = 0;
    while (id == 0) {
        ssize_t got = getrandom(&id, sizeof id, 0);
        if (got != (ssize_t)sizeof id) {
            SG_ASSERT(got >= 0 || errno == EINTR);
            id = 0;
        }
    }
    return id;
}
