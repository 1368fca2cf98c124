/* worker/train/trainer.h - the built-in trainer: one worker of a cluster, on the public client interface alone.
 *
 * Worker 0 evaluates when the training is over and writes summary.json. Threads: sg_trainer_stop may be called from
 * any; everything else from one. A process may hold any number of trainers. */
#ifndef SG_WORKER_TRAIN_TRAINER_H
#define SG_WORKER_TRAIN_TRAINER_H

#include "worker/train/summary.h"

typedef struct sg_trainer sg_trainer;

typedef struct sg_trainer_options {
    const sg_config *config; /* as loaded from config_path with `set`; must outlive the trainer */
    const char *config_path; /* for the client, which reads it itself */
    const char *const *set;  /* sg_client_options.set */
    const char *coordinator; /* sg_client_options.coordinator */
    uint32_t worker;         /* index */
    const sg_log *log;       /* must outlive the trainer; NULL is silent */
    /* Called after every step that this worker finished; may be NULL. */
    void (*on_step)(void *user, const sg_step *step);
    void *user;
} sg_trainer_options;

/* A trainer that has done nothing yet. Never fails. Destroyed by sg_trainer_destroy. */
sg_trainer *sg_trainer_create(const sg_trainer_options *options);
void sg_trainer_destroy(sg_trainer *trainer); /* NULL is fine; not while it runs */

/* Reads the data, joins the cluster, trains until the last step is done, evaluates (worker 0), leaves. Errors:
 * CANCELLED (sg_trainer_stop; the worker has left as it should), and those of the workload and of the client. */
SG_MUST_USE sg_status sg_trainer_run(sg_trainer *trainer, sg_error *err);
/* Makes sg_trainer_run end soon, within 2 s, whatever it waits for. */
void sg_trainer_stop(sg_trainer *trainer);

/* The summary that worker 0 had when all was done, but could not write; NULL: it wrote it, or there is none. */
const sg_summary *sg_trainer_unwritten(const sg_trainer *trainer);

/* What sg_trainer_run trained; NULL before. Its values are the newest that this worker pulled. */
const sg_workload *sg_trainer_workload(const sg_trainer *trainer);

#endif
