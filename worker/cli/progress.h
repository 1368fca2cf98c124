/* worker/cli/progress.h - shows how training goes: one line that is drawn again and again on a terminal, a plain line
 * every few seconds elsewhere. Other lines are printed through it, so that they never cut into the drawn one.
 *
 * Threads: one at a time. */
#ifndef SG_WORKER_CLI_PROGRESS_H
#define SG_WORKER_CLI_PROGRESS_H

#include <stdio.h>

#include "common/status.h"

#define SG_PROGRESS_SAMPLES 16u

/* How far the job is. */
typedef struct sg_progress_state {
    uint64_t steps;       /* finished, those before a restore included */
    uint64_t examples;    /* seen since this job was started */
    float loss;           /* newest; NaN: none yet */
    double test_accuracy; /* newest over all of test_of examples */
    uint64_t test_of;     /* 0: none yet */
    const char *waiting;  /* for whom the job waits before its first step; "" or NULL: nobody */
} sg_progress_state;

typedef struct sg_progress_sample {
    uint64_t at_ms, examples, steps;
} sg_progress_sample;

/* A value; zeroed and then filled in by sg_progress_init. */
typedef struct sg_progress {
    FILE *out;
    bool terminal; /* redraw one line */
    uint64_t total_steps, steps_per_epoch;
    sg_progress_sample samples[SG_PROGRESS_SAMPLES]; /* the newest, for the speed: a ring */
    size_t n_samples;
    uint64_t printed_ms; /* when the last plain line was printed, or 0: then the first update sets it */
    bool spoke;          /* a plain line about steps was printed */
    bool drawn;          /* a line stands on the terminal */
} sg_progress;

void sg_progress_init(sg_progress *progress, FILE *out, bool terminal, uint64_t total_steps, uint64_t steps_per_epoch);
/* Draws or prints, if it is time. */
void sg_progress_update(sg_progress *progress, uint64_t now_ms, const sg_progress_state *state);
/* Prints a line of its own. */
void sg_progress_print(sg_progress *progress, const char *format, ...) SG_PRINTF(2, 3);
/* Takes the drawn line away. */
void sg_progress_clear(sg_progress *progress);

/* The line itself, without a newline: "epoch 2/5  step 612/2345  loss 0.4312  21034 examples/s  0:41 left". */
void sg_progress_format(const sg_progress *progress, const sg_progress_state *state, char *out, size_t out_bytes);

#endif
