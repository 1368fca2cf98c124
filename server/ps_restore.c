/* server/ps_restore.c - see ps_restore.h. */
#include "server/ps_restore.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

typedef struct job {
    sg_mailbox_item arrived; /* of a load */
    sg_disk_job on_disk;
    sg_ps_restore *restore;
    bool records; /* else it loads: */
    sg_store_load load;
    uint64_t above, own, generation;
    sg_checkpoint_set set, damaged;
    sg_checkpoint_change *changes; /* [n_changes] of the generation to be recorded, where own is not 0 */
    uint32_t n_changes;
    sg_checkpoint_manifest manifest; /* where set.generation is not 0 */
    bool has_manifest;
    sg_status status;
    sg_error error;
} job;

struct sg_ps_restore {
    sg_ps_restore_options options;
    _Atomic bool closed;
};

sg_ps_restore *sg_ps_restore_create(const sg_ps_restore_options *options)
{
    sg_ps_restore *restore = sg_xcalloc(1, sizeof *restore);
    restore->options = *options;
    return restore;
}

/* --- on the pool: a record ---------------------------------------------------------------------------------------- */

static void log_skipped(const sg_ps_restore *restore, const sg_checkpoint_found *skipped, size_t n)
{
    char name[SG_CHECKPOINT_NAME_BYTES], quoted[SG_ERROR_MESSAGE_BYTES + 16];
    for (size_t i = 0; i < n; i++) {
        /* That of a generation that was given up is as it should be. */
        const bool is_news = skipped[i].state != SG_CHECKPOINT_PASSED;
        sg_log_event(restore->options.log, is_news ? SG_LOG_WARN : SG_LOG_INFO, "checkpoint_skipped",
                     "set=%s reason=%s", sg_checkpoint_set_name(skipped[i].set, name),
                     sg_log_quote(skipped[i].why.message, quoted, sizeof quoted));
    }
}

static sg_status find_newest(job *j)
{
    sg_checkpoint_found *skipped = NULL;
    size_t n = 0;
    const sg_checkpoint *folder = j->restore->options.folder;
    sg_status status = j->damaged.generation == 0
                           ? sg_checkpoint_find_newest(folder, &j->set, &skipped, &n, &j->error)
                           : sg_checkpoint_find_older(folder, j->damaged, &j->set, &skipped, &n, &j->error);
    if (status != SG_OK)
        return status;
    log_skipped(j->restore, skipped, n);
    free(skipped);
    return SG_OK;
}

/* By the configuration, for a job that is started; what is on the way goes on from the newest. */
static sg_status choose(job *j)
{
    const char *wanted = j->own == 0 ? j->restore->options.config->restore : "latest";
    if (strcmp(wanted, "none") == 0)
        return SG_OK;
    if (strcmp(wanted, "latest") == 0)
        return find_newest(j);
    return sg_checkpoint_find(j->restore->options.folder, strtoull(wanted, NULL, 10), &j->set, &j->error);
}

/* Is the folder still as this coordinator left it? */
static sg_status check_own(job *j)
{
    const sg_checkpoint *folder = j->restore->options.folder;
    uint64_t highest;
    sg_status status = sg_checkpoint_recorded(folder, &highest, &j->error);
    if (status != SG_OK || j->own == 0 || highest == j->own)
        return status;
    if (highest > j->own)
        return sg_error_set(&j->error, SG_FENCED, "generation %" PRIu64 " is recorded in %s, this one is in %" PRIu64,
                            highest, sg_checkpoint_dir(folder), j->own);
    return sg_error_set(&j->error, SG_NOT_FOUND,
                        "%s does not have the record of generation %" PRIu64 " any more: it was emptied, or is "
                        "not mounted; put back what was in it, then start the job again",
                        sg_checkpoint_dir(folder), j->own);
}

static void log_other(const job *j, const char *key, uint64_t then, uint64_t now)
{
    if (then != now)
        sg_log_warn(j->restore->options.log, "restored_with_other",
                    "key=%s then=%" PRIu64 " now=%" PRIu64 " reason=\"examples come in another order than in one run\"",
                    key, then, now);
}

/* What a job that is started may say otherwise than the one that made its checkpoint, but mostly does not mean to. */
static void log_others(const job *j)
{
    const sg_config *config = j->restore->options.config;
    if (j->own != 0 || !j->has_manifest || j->set.iteration == 0)
        return;
    log_other(j, "seed", j->manifest.seed, config->seed);
    log_other(j, "train.batch", j->manifest.batch, config->train.batch);
}

static void log_unrecorded(const job *j, uint64_t unrecorded)
{
    if (unrecorded > 0)
        sg_log_warn(j->restore->options.log, "record_missing",
                    "generation=%" PRIu64 " folder=%s reason=\"it has checkpoints of it: somebody removed its record, "
                    "and checkpoints that it forbade may be used again\"",
                    unrecorded, sg_checkpoint_dir(j->restore->options.folder));
}

/* A generation that began with other settings than its checkpoint has, and left no checkpoint of its own. */
static sg_status take_recorded_changes(job *j)
{
    sg_checkpoint_record newest;
    sg_status status = sg_checkpoint_newest_record(j->restore->options.folder, &newest, &j->error);
    if (status != SG_OK)
        return status;
    const bool went_on =
        strcmp(j->restore->options.config->restore, "latest") == 0 || sg_checkpoint_set_equal(newest.restored, j->set);
    if (newest.n_changes == 0 || newest.generation <= j->set.generation || !went_on) {
        sg_checkpoint_changes_free(newest.changes, newest.n_changes);
        return SG_OK;
    }
    sg_checkpoint_changes_free(j->manifest.changes, j->manifest.n_changes);
    j->manifest.changes = newest.changes;
    j->manifest.n_changes = newest.n_changes;
    return SG_OK;
}

static sg_status read_manifest(job *j)
{
    sg_status status = sg_checkpoint_read_manifest(j->restore->options.folder, j->set, &j->manifest, &j->error);
    j->has_manifest = status == SG_OK;
    return status == SG_OK && j->own == 0 ? take_recorded_changes(j) : status;
}

static sg_status record(job *j)
{
    const sg_checkpoint *folder = j->restore->options.folder;
    uint64_t last, unrecorded;
    sg_status status = check_own(j);
    if (status == SG_OK)
        status = sg_checkpoint_last_generation(folder, &last, &unrecorded, &j->error);
    if (status == SG_OK)
        status = choose(j);
    if (status == SG_OK && j->set.generation != 0)
        status = read_manifest(j);
    if (status != SG_OK)
        return status;
    log_unrecorded(j, unrecorded);
    log_others(j);
    j->generation = (last > j->above ? last : j->above) + 1;
    const bool is_first = j->own == 0;
    return sg_checkpoint_record_create(
        folder,
        &(sg_checkpoint_record){.generation = j->generation,
                                .life = j->restore->options.life,
                                .restored = j->set,
                                .changes = is_first ? j->manifest.changes : j->changes,
                                .n_changes = is_first ? j->manifest.n_changes : j->n_changes},
        &j->error);
}

/* --- on the pool: a load ------------------------------------------------------------------------------------------ */

static sg_status read_range(void *user, uint32_t variable, uint64_t first_elem, uint64_t n_elems, float *values,
                            float *const *slots, size_t n_slots, uint64_t *step, uint64_t *n_applied, sg_error *err)
{
    float *wanted[SG_CHECKPOINT_MAX_SLOTS] = {NULL};
    SG_ASSERT(n_slots <= SG_CHECKPOINT_MAX_SLOTS);
    for (size_t i = 0; i < n_slots; i++)
        wanted[i] = slots[i];
    return sg_checkpoint_read(user, variable, first_elem, n_elems, values, wanted, step, n_applied, err);
}

static sg_status load(job *j)
{
    sg_ps_restore *restore = j->restore;
    sg_checkpoint_reader *reader;
    sg_status status = sg_checkpoint_reader_open(
        restore->options.folder,
        (sg_checkpoint_set){.iteration = j->load.set_iteration, .generation = j->load.set_generation}, &reader,
        &j->error);
    if (status != SG_OK)
        return status;
    uint32_t n = sg_store_n_slices(restore->options.store);
    for (uint32_t place = 0; place < n && status == SG_OK; place++)
        status = atomic_load(&restore->closed)
                     ? sg_error_set(&j->error, SG_CANCELLED, "this ps ends")
                     : sg_store_fill(restore->options.store, j->load.generation, place, read_range, reader, &j->error);
    sg_checkpoint_reader_close(reader);
    return status;
}

static void on_pool(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    if (!j->restore->options.folder)
        j->status = sg_error_set(&j->error, SG_CONFIG, "checkpoint.dir is not set here");
    else
        j->status = j->records ? record(j) : load(j);
}

/* --- on the loop -------------------------------------------------------------------------------------------------- */

static void tell_recorded(const job *j)
{
    const sg_ps_restore *restore = j->restore;
    char name[SG_CHECKPOINT_NAME_BYTES];
    if (j->status == SG_OK)
        sg_log_info(restore->options.log, "generation_recorded", "generation=%" PRIu64 " from=%s", j->generation,
                    sg_checkpoint_set_name(j->set, name));
    restore->options.on_recorded(restore->options.user,
                                 &(sg_coordinator_recorded){.status = j->status,
                                                            .why = j->error.message,
                                                            .generation = j->generation,
                                                            .manifest = j->has_manifest ? &j->manifest : NULL});
}

static void tell_loaded(const job *j)
{
    const sg_ps_restore *restore = j->restore;
    char quoted[SG_ERROR_MESSAGE_BYTES + 16];
    if (j->status == SG_OK)
        sg_log_info(restore->options.log, "loaded", "iteration=%" PRIu64 " ms=%" PRIu64, j->load.set_iteration,
                    sg_clock_ms() - j->on_disk.began_ms);
    else if (j->status != SG_ROLLED_BACK)
        sg_log_error(restore->options.log, "load_failed", "iteration=%" PRIu64 " status=%s reason=%s",
                     j->load.set_iteration, sg_status_name(j->status),
                     sg_log_quote(j->error.message, quoted, sizeof quoted));
    sg_store_loaded(restore->options.store, j->load.generation, j->status, j->error.message);
}

static void on_done(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    if (!atomic_load(&j->restore->closed)) {
        if (j->records)
            tell_recorded(j);
        else
            tell_loaded(j);
    }
    if (j->has_manifest)
        sg_checkpoint_manifest_deinit(&j->manifest);
    sg_checkpoint_changes_free(j->changes, j->n_changes);
    free(j);
}

/* What is on the way to the disk is of a generation that has passed. */
static void add(job *j)
{
    const sg_ps_restore_options *options = &j->restore->options;
    j->on_disk.run = on_pool;
    j->on_disk.end = on_done;
    options->on_begin(options->user);
    sg_disk_jobs_add(options->jobs, &j->on_disk);
}

static void on_load(sg_mailbox_item *item)
{
    add(SG_CONTAINER_OF(item, job, arrived));
}

void sg_ps_restore_load(sg_ps_restore *restore, const sg_store_load *what)
{
    job *j = sg_xcalloc(1, sizeof *j);
    j->arrived.run = on_load;
    j->restore = restore;
    j->load = *what;
    sg_mailbox_post(restore->options.mailbox, &j->arrived);
}

void sg_ps_restore_record(sg_ps_restore *restore, const sg_coordinator_action *action)
{
    job *j = sg_xcalloc(1, sizeof *j);
    j->restore = restore;
    j->records = true;
    j->above = action->generation;
    j->own = action->own;
    j->damaged = action->damaged;
    j->changes = sg_checkpoint_changes_copy(action->changes, action->n_changes);
    j->n_changes = action->n_changes;
    add(j);
}

void sg_ps_restore_close(sg_ps_restore *restore)
{
    atomic_store(&restore->closed, true);
}

void sg_ps_restore_destroy(sg_ps_restore *restore)
{
    free(restore);
}
