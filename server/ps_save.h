/* server/ps_save.h - a ps's part of each checkpoint and, in ps 0, what completes it: files, written on libuv's pool.
 *
 * Nothing of it is on the way of a push or a pull. One thing is done at a time (disk_jobs.h).
 *
 * Threads: sg_ps_save_cut and sg_ps_save_hurry_cut any, all else the loop's. */
#ifndef SG_SERVER_PS_SAVE_H
#define SG_SERVER_PS_SAVE_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "server/disk_jobs.h"
#include "server/mailbox.h"
#include "server/store.h"
#include "shardgrad/v1/coordinator.pb-c.h"

typedef struct sg_ps_save sg_ps_save;

typedef struct sg_ps_save_options {
    const sg_config *config;
    uint32_t ps;
    uint64_t life; /* random: becomes the folder's id where this ps is the first to use it */
    sg_store *store;
    sg_disk_jobs *jobs;
    sg_mailbox *mailbox;
    const sg_log *log;
    /* There is news for the coordinator; the report is valid until the next call. */
    void (*on_report)(void *user, const Shardgrad__V1__SaveReport *report);
    void (*on_written)(void *user, sg_checkpoint_set set, sg_status status, const char *message);
    void *user;
} sg_ps_save_options;

/* Opens checkpoint.dir, if one is set; in ps 0 it is locked for the life of this. Blocks. Errors: as of
 * sg_checkpoint_open; CONFIG (another job runs with it). */
SG_MUST_USE sg_status sg_ps_save_create(const sg_ps_save_options *options, sg_ps_save **save, sg_error *err);
/* NULL: checkpoint.dir is empty. */
const sg_checkpoint *sg_ps_save_folder(const sg_ps_save *save);
/* The store has made a cut, or could not (sg_store_options.on_cut): on_report follows. */
void sg_ps_save_cut(sg_ps_save *save, const sg_store_cut *cut, sg_status status, const char *message);
/* Completes a checkpoint of which all parts are written, and removes old ones: on_written follows. `current`: what this
 * generation started from. */
void sg_ps_save_complete(sg_ps_save *save, const sg_checkpoint_manifest *manifest, sg_checkpoint_set current);
/* Somebody waits for this cut from now on (sg_store_options.on_hurry), which may still be to come. */
void sg_ps_save_hurry_cut(sg_ps_save *save, uint64_t generation, uint64_t number);
/* From now on somebody waits for whatever is being written: this ps is to end. */
void sg_ps_save_hurry(sg_ps_save *save);
/* Another generation begins: parts that are still to be written, or are being written, are given up. What completes a
 * checkpoint is not. */
void sg_ps_save_give_up(sg_ps_save *save);
/* No more news, and the same. */
void sg_ps_save_close(sg_ps_save *save);
/* After the jobs. NULL is fine. */
void sg_ps_save_destroy(sg_ps_save *save);

#endif
