/* worker/cli/run_heard.h - what `shardgrad run` makes of the lines that its processes write.
 *
 * From the logs it learns from where the job goes on, what an earlier `shardgrad set` left, what was tested on the way,
 * and a result that found no room on the disk; and it tells the user what of that is news. Threads: one at a time. */
#ifndef SG_WORKER_CLI_RUN_HEARD_H
#define SG_WORKER_CLI_RUN_HEARD_H

#include "common/config.h"
#include "worker/cli/evaluations.h"
#include "worker/cli/progress.h"

typedef struct sg_run_heard {
    sg_progress *progress; /* where news is printed */
    const sg_config *config;
    uint64_t restored; /* iteration of the checkpoint from which the job went on; 0: none */
    char *set_again;   /* "KEY=VALUE, ...": what ps 0 has said that was set before; NULL: nothing */
    sg_evaluations evaluations;
    sg_summary unwritten; /* of worker 0, which could not write it; mode "": there is none */
} sg_run_heard;

/* Nothing yet. progress and config must outlive it. */
void sg_run_heard_init(sg_run_heard *heard, sg_progress *progress, const sg_config *config);
void sg_run_heard_deinit(sg_run_heard *heard);

/* The text of a line (without its time, level and role) of "ps-0". stopping: all processes were told to stop. True: it
 * was for this program alone, and is not to be shown. */
bool sg_run_heard_line(sg_run_heard *heard, const char *who, const char *text, bool stopping);
/* This process was started anew. */
void sg_run_heard_restart(sg_run_heard *heard, const char *who);

/* For the end of a run that ended well: says so where the job was finished already when it was begun. */
void sg_run_heard_tell_whether_all_was_done(const sg_run_heard *heard);

#endif
