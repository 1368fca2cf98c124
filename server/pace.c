/* server/pace.c - see pace.h. */
#include "server/pace.h"

/* Of the time that it takes, one part in so many is work. */
#define SHARE 4u

uint64_t sg_pace_rest_us(const sg_pace *pace, uint64_t now_us)
{
    const uint64_t until_us = pace->began_us + SHARE * pace->worked_us;
    if (pace->n_done == 0 || until_us <= now_us)
        return 0;
    const double left = (double)(pace->n_bytes - pace->n_done) / (double)pace->n_done;
    const uint64_t left_us = (uint64_t)((double)pace->worked_us * left) + 1; /* rounded up */
    const uint64_t latest_us = pace->by_us > left_us ? pace->by_us - left_us : 0;
    const uint64_t end_us = until_us < latest_us ? until_us : latest_us;
    return end_us > now_us ? end_us - now_us : 0;
}
