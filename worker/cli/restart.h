/* worker/cli/restart.h - with what `shardgrad run` starts a process anew.
 *
 * `restore: none` and `restore: N` say what a job begins with. Once it has begun, a ps that is started anew goes on
 * from the newest checkpoint, or what was trained since would be thrown away; before, it begins as the user has told.
 * The records of generations in checkpoint.dir tell whether it has begun.
 *
 * Blocks for a few small files. Threads: one at a time. */
#ifndef SG_WORKER_CLI_RESTART_H
#define SG_WORKER_CLI_RESTART_H

#include "common/config.h"

/* A value, with nothing to free. */
typedef struct sg_restart {
    const sg_config *config;
    uint64_t generation; /* the highest that was recorded before the run; 0: none */
} sg_restart;

/* Before any process of the run is started. config must outlive it. */
void sg_restart_init(sg_restart *restart, const sg_config *config);

/* Words to be put behind the command line of a process that is started anew, up to a NULL; NULL: none. */
const char *const *sg_restart_words(const sg_restart *restart);

/* How many complete checkpoints the job will give up, and remove, since it begins with `restore: none` or with an older
 * one. 0, too, where it cannot be looked. */
size_t sg_restart_n_given_up(const sg_config *config);

/* Whether checkpoint.dir, which is set, holds a checkpoint that the job can go on from. False, too, where it cannot be
 * looked at. */
bool sg_restart_has_checkpoint(const sg_config *config);

#endif
