/* server/ps_restore.h - what a generation starts from: in ps 0, which checkpoint that is, and its record; in every ps,
 * its values and slots. Files, one thing at a time (disk_jobs.h).
 *
 * Threads: sg_ps_restore_load any, all else the loop's. */
#ifndef SG_SERVER_PS_RESTORE_H
#define SG_SERVER_PS_RESTORE_H

#include "common/config.h"
#include "server/coordinator.h"
#include "server/disk_jobs.h"
#include "server/mailbox.h"
#include "server/store.h"

typedef struct sg_ps_restore sg_ps_restore;

typedef struct sg_ps_restore_options {
    const sg_config *config;
    const sg_checkpoint *folder; /* NULL: there is none */
    uint64_t life;               /* random: of the coordinator, in its records */
    sg_store *store;
    sg_disk_jobs *jobs;
    sg_mailbox *mailbox;
    const sg_log *log;
    void (*on_begin)(void *user); /* another generation begins here: before anything is done for it */
    void (*on_recorded)(void *user, const sg_coordinator_recorded *recorded);
    void *user;
} sg_ps_restore_options;

sg_ps_restore *sg_ps_restore_create(const sg_ps_restore_options *options);
/* The store has been told to load (sg_store_options.on_load). */
void sg_ps_restore_load(sg_ps_restore *restore, const sg_store_load *load);
/* Records the generation above that of the action (SG_COORDINATOR_RECORD), and above all that were recorded;
 * on_recorded follows. own 0: the configuration says what it starts from; otherwise the newest usable checkpoint that
 * is older than `damaged`, where that is one. own 0 again: what was changed while the job ran before is what the newest
 * record says, if that is later than the checkpoint, else what the checkpoint says; the manifest that on_recorded gets
 * has that. */
void sg_ps_restore_record(sg_ps_restore *restore, const sg_coordinator_action *action);
/* No more news; what is under way is given up. */
void sg_ps_restore_close(sg_ps_restore *restore);
/* After the jobs. NULL is fine. */
void sg_ps_restore_destroy(sg_ps_restore *restore);

#endif
