/* common/clock.h - the only place that asks what time it is. Decisions get the time as an argument. */
#ifndef SG_COMMON_CLOCK_H
#define SG_COMMON_CLOCK_H

#include <stdint.h>

/* Monotonic, for durations and deadlines. */
uint64_t sg_clock_ms(void);
uint64_t sg_clock_ns(void);

#define SG_CLOCK_RFC3339_BYTES 25
/* Wall clock, UTC, "2026-11-29T10:15:02.123Z", for log lines only. */
void sg_clock_rfc3339(char out[SG_CLOCK_RFC3339_BYTES]);

/* A random 64-bit number from the operating system, never 0: life ids. */
uint64_t sg_clock_random_id(void);

#endif
