/* worker/train/interruptible.h - runs the work of a program on a thread of its own, while the calling thread takes
 * signals.
 *
 * The first SIGTERM, SIGINT or SIGHUP asks the work to stop, if it has not ended by itself within patience_ms; the next
 * one ends the process at once, with 128 plus its number. With nohup SIGHUP does nothing. Once the work has ended they
 * are ignored: the program is about to end by itself, and with its own exit code. For the main thread of a program
 * only: signals belong to the process. */
#ifndef SG_WORKER_TRAIN_INTERRUPTIBLE_H
#define SG_WORKER_TRAIN_INTERRUPTIBLE_H

#include "common/status.h"

typedef struct sg_interruptible {
    sg_status (*work)(void *user, sg_error *err);
    void (*stop)(void *user); /* called at most once, while work runs, from the calling thread */
    void *user;
    uint64_t patience_ms; /* 0: it is asked at once */
} sg_interruptible;

/* Keeps these signals for sg_interruptible_run, so that one that comes before it is not lost. For the start of main. */
void sg_interruptible_hold_signals(void);

/* Returns what work returned; *signal_number is the signal that came, 0 if none did. */
SG_MUST_USE sg_status sg_interruptible_run(const sg_interruptible *interruptible, int *signal_number, sg_error *err);

/* The exit code of a program whose work ended with this status after this signal: a work that was asked to stop and
 * ended OK or CANCELLED gives 0 for SIGTERM and SIGHUP, 130 for SIGINT. */
int sg_interruptible_exit_code(sg_status status, int signal_number);

#endif
