/* common/signals.h - what a program of ours does about signals. For the mains, never for the library, whose host's they
 * are. */
#ifndef SG_COMMON_SIGNALS_H
#define SG_COMMON_SIGNALS_H

#include <stdbool.h>

/* A write that cannot be done (the reader has gone, the file would pass `ulimit -f`) fails from now on, and is told as
 * any other that fails; it does not end the process. */
void sg_signals_let_writes_fail(void);

/* Whether SIGHUP asks this process to end: not where it was started with nohup. Ask before it is handled. */
bool sg_signals_hangup_ends(void);

#endif
