/* common/signals.c - see signals.h. */
#include "common/signals.h"

#include <signal.h>
#include <stddef.h>

void sg_signals_let_writes_fail(void)
{
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
}

bool sg_signals_hangup_ends(void)
{
    struct sigaction found;
    return sigaction(SIGHUP, NULL, &found) != 0 || found.sa_handler != SIG_IGN;
}
