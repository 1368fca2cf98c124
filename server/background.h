/* server/background.h - work that gives way to everything else. */
#ifndef SG_SERVER_BACKGROUND_H
#define SG_SERVER_BACKGROUND_H

/* Calls work(user) on a thread of its own whose niceness is 10 higher than the caller's, and returns when it has: where
 * a processor has nothing better to do it is as fast as ever, otherwise it gets about a tenth of one. Not the caller's
 * own thread, because nobody but root may take niceness back. The work must hold no lock that others wait for. Without
 * a thread to be had it is done by the caller. */
void sg_background_run(void (*work)(void *user), void *user);

#endif
