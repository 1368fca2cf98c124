/* server/pace.h - how fast a checkpoint is written for which nobody waits: a decision without a clock.
 *
 * Writing takes memory bandwidth, processor and disk from the steps that overlap it, whatever its niceness. Done at a
 * stretch it slows a few of them by a lot; so it rests after every piece, three times as long as the piece took, and
 * many steps are slowed by little. It rests less, or not at all, where it would not be done in time otherwise, by what
 * is known so far of how long pieces take. */
#ifndef SG_SERVER_PACE_H
#define SG_SERVER_PACE_H

#include <stdint.h>

typedef struct sg_pace {
    uint64_t began_us, by_us; /* it is to be done by then; both as the clock of the caller says */
    uint64_t n_bytes, n_done; /* of n_bytes in all, so many are written, */
    uint64_t worked_us;       /* which took so long */
} sg_pace;

/* How long to rest now, before the next piece. */
uint64_t sg_pace_rest_us(const sg_pace *pace, uint64_t now_us);

#endif
