/* server/ps_save.c - see ps_save.h. */
#include "server/ps_save.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "server/ps_save_part.h"

/* One that was killed may need a moment to be gone. */
#define LOCK_WAIT_MS 2000u
/* So long, at most, the writing of a part gives way to everything else. */
#define MAX_PATIENCE_MS 30000u

/* One thing to be written. */
typedef struct job {
    sg_mailbox_item arrived; /* of a cut */
    sg_disk_job on_disk;
    sg_ps_save *save;
    bool completes; /* the manifest; else the part of: */
    sg_store_cut cut;
    LIST_ENTRY(job) link; /* of a cut that is to be written, or is being written */
    _Atomic bool stop;    /* nobody wants it any more */
    _Atomic bool hurry;   /* somebody waits for it */
    uint64_t cut_ms;      /* when it was cut; */
    uint64_t patience_ms; /* so long it gives way to others */
    sg_checkpoint_part part;
    uint64_t folder_id; /* where the part lies */
    sg_checkpoint_manifest manifest;
    sg_checkpoint_set current;
    sg_status status;
    sg_error error;
} job;

struct sg_ps_save {
    sg_ps_save_options options;
    sg_checkpoint *folder; /* NULL: checkpoint.dir is empty */
    sg_checkpoint_lock *lock;
    LIST_HEAD(, job) cuts;
    bool closed;
    uint64_t cut_ms;                             /* when the newest cut was made; 0: none yet */
    bool hurry;                                  /* somebody waits for whatever is written, */
    uint64_t hurried_generation, hurried_number; /* and for this one */
    Shardgrad__V1__SaveReport report;
    char message[SG_ERROR_MESSAGE_BYTES];
};

/* ps 0 stands for the job. Others of the job use the folder along with it. */
static sg_status lock_folder(sg_ps_save *save, sg_error *err)
{
    const sg_config *config = save->options.config;
    char owner[96];
    if (save->options.ps != 0)
        return SG_OK;
    snprintf(owner, sizeof owner, "ps 0 of job '%.64s'", config->job);
    sg_status status = sg_checkpoint_lock_take(save->folder, owner, LOCK_WAIT_MS, &save->lock, err);
    if (status == SG_OK && save->lock == NULL)
        sg_log_warn(save->options.log, "no_lock",
                    "folder=%s reason=\"its file system has no locks: a second job could use it\"",
                    sg_checkpoint_dir(save->folder));
    return status;
}

static sg_status open_folder(sg_ps_save *save, sg_error *err)
{
    const sg_config *config = save->options.config;
    sg_status status =
        sg_checkpoint_open(&sg_disk_posix, config->checkpoint.dir, config->job, save->options.life, &save->folder, err);
    if (status == SG_OK && sg_checkpoint_was_unmarked(save->folder))
        sg_log_warn(
            save->options.log, "marker_missing",
            "folder=%s reason=\"it has checkpoints, but not the file that says whose: it was made anew for this "
            "job\"",
            sg_checkpoint_dir(save->folder));
    return status == SG_OK ? lock_folder(save, err) : status;
}

sg_status sg_ps_save_create(const sg_ps_save_options *options, sg_ps_save **save, sg_error *err)
{
    sg_ps_save *made = sg_xcalloc(1, sizeof *made);
    made->options = *options;
    LIST_INIT(&made->cuts);
    shardgrad__v1__save_report__init(&made->report);
    sg_status status = SG_OK;
    if (options->config->checkpoint.dir[0] != '\0')
        status = open_folder(made, err);
    if (status != SG_OK) {
        sg_ps_save_destroy(made);
        return sg_error_prefix(err, status, "checkpoint.dir");
    }
    *save = made;
    return SG_OK;
}

const sg_checkpoint *sg_ps_save_folder(const sg_ps_save *save)
{
    return save->folder;
}

/* --- on the pool -------------------------------------------------------------------------------------------------- */

/* What could not be completed takes room that this one may need. */
static void remove_failed(const job *j)
{
    const sg_ps_save *save = j->save;
    size_t n_removed = 0;
    char quoted[SG_ERROR_MESSAGE_BYTES + 16];
    sg_error err;
    sg_checkpoint_set writing = {.iteration = j->cut.mark, .generation = j->cut.generation};
    if (save->options.ps != 0)
        return;
    if (sg_checkpoint_remove_failed(save->folder, writing, &n_removed, &err) != SG_OK)
        sg_log_warn(save->options.log, "failed_checkpoints_stay", "reason=%s",
                    sg_log_quote(err.message, quoted, sizeof quoted));
    if (n_removed > 0)
        sg_log_info(save->options.log, "failed_checkpoints_removed", "n=%zu", n_removed);
}

/* As its marker has it now: a ps 0 that was started anew makes one where somebody has removed it. */
static uint64_t read_id(const sg_checkpoint *folder)
{
    sg_checkpoint *now;
    if (sg_checkpoint_open_existing(&sg_disk_posix, sg_checkpoint_dir(folder), &now, NULL) != SG_OK)
        return sg_checkpoint_id(folder);
    const uint64_t id = sg_checkpoint_id(now);
    sg_checkpoint_close(now);
    return id;
}

static sg_status write_part(job *j)
{
    sg_ps_save *save = j->save;
    remove_failed(j);
    j->folder_id = read_id(save->folder);
    return sg_ps_save_part_write(&(sg_ps_save_part){.config = save->options.config,
                                                    .ps = save->options.ps,
                                                    .store = save->options.store,
                                                    .folder = save->folder,
                                                    .cut = j->cut,
                                                    .cut_ms = j->cut_ms,
                                                    .patience_ms = j->patience_ms,
                                                    .hurry = &j->hurry,
                                                    .stop = &j->stop},
                                 &j->part, &j->error);
}

static sg_status complete(job *j)
{
    sg_ps_save *save = j->save;
    char quoted[SG_ERROR_MESSAGE_BYTES + 16];
    sg_error err;
    sg_status status = sg_checkpoint_commit(save->folder, &j->manifest, &j->error);
    if (status == SG_OK && sg_checkpoint_prune(save->folder, (uint32_t)save->options.config->checkpoint.keep,
                                               j->current, NULL, &err) != SG_OK)
        sg_log_warn(save->options.log, "old_checkpoints_stay", "reason=%s",
                    sg_log_quote(err.message, quoted, sizeof quoted));
    return status;
}

static void on_pool(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    j->status = j->completes ? complete(j) : write_part(j);
}

/* --- on the loop ----------------------------------------------------------------------------------------------------
 */

static void report(sg_ps_save *save, const job *j)
{
    Shardgrad__V1__SaveReport *r = &save->report;
    snprintf(save->message, sizeof save->message, "%s", j->status == SG_OK ? "" : j->error.message);
    r->generation = j->cut.generation;
    r->number = j->cut.number;
    r->status = (uint32_t)j->status;
    r->message = save->message;
    r->bytes = j->part.n_bytes;
    r->header_crc32c = j->part.header_crc32c;
    r->folder = j->folder_id;
    save->options.on_report(save->options.user, r);
}

static void tell(sg_ps_save *save, const job *j)
{
    char quoted[SG_ERROR_MESSAGE_BYTES + 16];
    if (j->completes) {
        save->options.on_written(save->options.user, j->manifest.set, j->status, j->error.message);
        return;
    }
    if (j->status == SG_OK)
        sg_log_info(save->options.log, "checkpoint_part", "iteration=%" PRIu64 " bytes=%" PRIu64 " ms=%" PRIu64,
                    j->cut.mark, j->part.n_bytes, sg_clock_ms() - j->on_disk.began_ms);
    else
        sg_log_warn(save->options.log, "checkpoint_part_failed", "iteration=%" PRIu64 " status=%s reason=%s",
                    j->cut.mark, sg_status_name(j->status), sg_log_quote(j->error.message, quoted, sizeof quoted));
    report(save, j);
}

static void end(job *j)
{
    sg_ps_save *save = j->save;
    if (!j->completes)
        sg_store_drop_cut(save->options.store, &j->cut);
    if (!save->closed)
        tell(save, j);
    if (j->completes)
        sg_checkpoint_manifest_deinit(&j->manifest);
    free(j);
}

static void on_done(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    if (!j->completes)
        LIST_REMOVE(j, link);
    end(j);
}

static void add(job *j)
{
    j->on_disk.run = on_pool;
    j->on_disk.end = on_done;
    if (!j->completes)
        LIST_INSERT_HEAD(&j->save->cuts, j, link);
    sg_disk_jobs_add(j->save->options.jobs, &j->on_disk);
}

/* It is to be complete long before the next one is due: when that will be is taken from when the last one was. */
static void set_patience(job *j)
{
    const uint64_t since_ms = sg_clock_ms() - j->save->cut_ms;
    j->patience_ms = j->save->cut_ms != 0 && since_ms / 2 < MAX_PATIENCE_MS ? since_ms / 2 : MAX_PATIENCE_MS;
    j->cut_ms = j->save->cut_ms = sg_clock_ms();
}

static void on_cut(sg_mailbox_item *item)
{
    job *j = SG_CONTAINER_OF(item, job, arrived);
    if (j->status == SG_OK && !j->save->folder)
        j->status =
            sg_error_set(&j->error, SG_CONFIG, "checkpoint.dir is not set for ps %" PRIu32, j->save->options.ps);
    set_patience(j);
    const sg_ps_save *save = j->save;
    j->hurry = save->hurry || (save->hurried_generation == j->cut.generation && save->hurried_number == j->cut.number);
    if (j->status != SG_OK || j->save->closed)
        end(j);
    else
        add(j);
}

void sg_ps_save_cut(sg_ps_save *save, const sg_store_cut *cut, sg_status status, const char *message)
{
    job *j = sg_xcalloc(1, sizeof *j);
    j->arrived.run = on_cut;
    j->save = save;
    j->cut = *cut;
    j->status = status == SG_OK ? SG_OK : sg_error_set(&j->error, status, "%s", message);
    sg_mailbox_post(save->options.mailbox, &j->arrived);
}

void sg_ps_save_complete(sg_ps_save *save, const sg_checkpoint_manifest *manifest, sg_checkpoint_set current)
{
    job *j = sg_xcalloc(1, sizeof *j);
    j->save = save;
    j->completes = true;
    j->current = current;
    sg_checkpoint_manifest_copy(&j->manifest, manifest);
    add(j);
}

typedef struct hurry {
    sg_mailbox_item arrived;
    sg_ps_save *save;
    uint64_t generation, number;
} hurry;

static void on_hurry(sg_mailbox_item *item)
{
    hurry *h = SG_CONTAINER_OF(item, hurry, arrived);
    job *j;
    h->save->hurried_generation = h->generation;
    h->save->hurried_number = h->number;
    LIST_FOREACH(j, &h->save->cuts, link)
    {
        if (j->cut.generation == h->generation && j->cut.number == h->number)
            j->hurry = true;
    }
    free(h);
}

void sg_ps_save_hurry_cut(sg_ps_save *save, uint64_t generation, uint64_t number)
{
    hurry *h = sg_xcalloc(1, sizeof *h);
    *h = (hurry){.arrived.run = on_hurry, .save = save, .generation = generation, .number = number};
    sg_mailbox_post(save->options.mailbox, &h->arrived);
}

void sg_ps_save_hurry(sg_ps_save *save)
{
    job *j;
    save->hurry = true;
    LIST_FOREACH(j, &save->cuts, link)
    j->hurry = true;
}

void sg_ps_save_give_up(sg_ps_save *save)
{
    job *j;
    LIST_FOREACH(j, &save->cuts, link)
    j->stop = true;
}

void sg_ps_save_close(sg_ps_save *save)
{
    save->closed = true;
    sg_ps_save_give_up(save);
}

void sg_ps_save_destroy(sg_ps_save *save)
{
    if (!save)
        return;
    SG_ASSERT(LIST_EMPTY(&save->cuts));
    sg_checkpoint_lock_release(save->lock);
    sg_checkpoint_close(save->folder);
    free(save);
}
