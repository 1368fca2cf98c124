/* common/checkpoint_folder.c - the folder that all ps share, and how things in it are named. */
#include <errno.h>
#include <stdio.h>

#include "common/checkpoint_internal.h"

#define MARKER "shardgrad.json"

/* --- opening ------------------------------------------------------------------------------------------------------ */

/* Makes `path` and what is above it; what was made is synced into the folder that it is in. */
static int make_folders(const sg_disk *disk, const char *path)
{
    int error = disk->make_folder(disk->user, path);
    if (error == EEXIST)
        return 0;
    const char *slash = strrchr(path, '/');
    char *above = slash == NULL ? sg_xstrdup(".") : sg_xprintf("%.*s", slash == path ? 1 : (int)(slash - path), path);
    if (error == ENOENT && slash != NULL && slash != path) {
        error = make_folders(disk, above);
        if (error == 0)
            error = disk->make_folder(disk->user, path);
        if (error == EEXIST)
            error = 0;
    }
    if (error == 0)
        error = disk->sync_folder(disk->user, above);
    free(above);
    return error;
}

/* *newer: it is of a later format, and nothing is wrong with it. */
static sg_status read_marker(sg_checkpoint *folder, bool *newer, sg_error *err)
{
    char *path = sg_xprintf("%s/" MARKER, folder->dir);
    json_t *marker;
    sg_status status = sg_checkpoint_get_json(folder->disk, path, &marker, newer, err);
    if (status == SG_OK) {
        const char *job = sg_checkpoint_json_text(marker, "job");
        if (job[0] == '\0' || !sg_checkpoint_json_text_number(marker, "id", 16, &folder->id))
            status = sg_error_set(err, SG_DATA, "%s does not name a job and an id", path);
        folder->job = sg_xstrdup(job);
        json_decref(marker);
    }
    free(path);
    return status;
}

static sg_status make_marker(const sg_checkpoint *folder, const char *job, uint64_t id, sg_error *err)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, id);
    bool existed;
    return sg_checkpoint_put_json(folder->disk, folder->dir, MARKER, id,
                                  json_pack("{s:s, s:s}", "job", job, "id", text), true, &existed, err);
}

static sg_checkpoint *create(const sg_disk *disk, const char *dir)
{
    sg_checkpoint *folder = sg_xcalloc(1, sizeof *folder);
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/')
        length--;
    *folder = (sg_checkpoint){.disk = disk, .dir = sg_xprintf("%.*s", (int)length, dir)};
    return folder;
}

static bool is_set(void *user, const char *name)
{
    bool *found = user;
    sg_checkpoint_set set;
    *found = sg_checkpoint_set_parse(name, &set);
    return !*found;
}

static bool has_marker(const sg_checkpoint *folder)
{
    int file;
    char *path = sg_xprintf("%s/" MARKER, folder->dir);
    bool has = folder->disk->open(folder->disk->user, path, SG_DISK_READ, &file) == 0;
    if (has)
        folder->disk->close(folder->disk->user, file);
    free(path);
    return has;
}

sg_status sg_checkpoint_open(const sg_disk *disk, const char *dir, const char *job, uint64_t id, sg_checkpoint **folder,
                             sg_error *err)
{
    sg_checkpoint *f = create(disk, dir);
    sg_status status = SG_OK;
    int error = make_folders(disk, f->dir);
    if (error != 0)
        status = sg_disk_error(err, error, "cannot make the folder %s", f->dir);
    if (status == SG_OK && !has_marker(f)) {
        (void)disk->list(disk->user, f->dir, is_set, &f->was_unmarked);
        status = make_marker(f, job, id, err);
    }
    bool newer = false;
    if (status == SG_OK && (status = read_marker(f, &newer, err)) == SG_DATA && !newer)
        status = sg_error_prefix(err, status,
                                 "put back a copy of the file that says whose checkpoints these are, or, if they are "
                                 "of the job '%.100s', remove it: it is made anew",
                                 job);
    if (status == SG_OK && strcmp(f->job, job) != 0)
        status = sg_error_set(err, SG_MISMATCH,
                              "the checkpoints in %s are of the job '%.100s', this one is '%.100s': give it a "
                              "checkpoint.dir of its own",
                              f->dir, f->job, job);
    if (status != SG_OK)
        sg_checkpoint_close(f);
    else
        *folder = f;
    return status;
}

sg_status sg_checkpoint_open_existing(const sg_disk *disk, const char *dir, sg_checkpoint **folder, sg_error *err)
{
    sg_checkpoint *f = create(disk, dir);
    sg_status status = read_marker(f, NULL, err);
    if (status == SG_NOT_FOUND)
        status = sg_error_prefix(err, status, "%s is no folder of checkpoints", f->dir);
    if (status != SG_OK)
        sg_checkpoint_close(f);
    else
        *folder = f;
    return status;
}

void sg_checkpoint_close(sg_checkpoint *folder)
{
    if (folder == NULL)
        return;
    free(folder->dir);
    free(folder->job);
    free(folder);
}

uint64_t sg_checkpoint_id(const sg_checkpoint *folder)
{
    return folder->id;
}

const char *sg_checkpoint_dir(const sg_checkpoint *folder)
{
    return folder->dir;
}

const char *sg_checkpoint_job(const sg_checkpoint *folder)
{
    return folder->job;
}

bool sg_checkpoint_was_unmarked(const sg_checkpoint *folder)
{
    return folder->was_unmarked;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

const char *sg_checkpoint_set_name(sg_checkpoint_set set, char out[SG_CHECKPOINT_NAME_BYTES])
{
    if (set.generation == 0)
        return memcpy(out, "none", sizeof "none");
    snprintf(out, SG_CHECKPOINT_NAME_BYTES, "step-%012" PRIu64 "-g%" PRIu64, set.iteration, set.generation);
    return out;
}

bool sg_checkpoint_set_parse(const char *name, sg_checkpoint_set *set)
{
    sg_checkpoint_set found;
    char again[SG_CHECKPOINT_NAME_BYTES];
    if (sscanf(name, "step-%" SCNu64 "-g%" SCNu64, &found.iteration, &found.generation) != 2 || found.generation == 0)
        return false;
    if (strcmp(sg_checkpoint_set_name(found, again), name) != 0)
        return false;
    *set = found;
    return true;
}

bool sg_checkpoint_set_equal(sg_checkpoint_set a, sg_checkpoint_set b)
{
    return a.generation == b.generation && (a.generation == 0 || a.iteration == b.iteration);
}

char *sg_checkpoint_set_path(const sg_checkpoint *folder, sg_checkpoint_set set)
{
    char name[SG_CHECKPOINT_NAME_BYTES];
    return sg_xprintf("%s/%s", folder->dir, sg_checkpoint_set_name(set, name));
}

const char *sg_checkpoint_part_name(uint32_t ps, char out[SG_CHECKPOINT_PART_BYTES])
{
    snprintf(out, SG_CHECKPOINT_PART_BYTES, "ps-%" PRIu32 ".safetensors", ps);
    return out;
}

json_t *sg_checkpoint_set_json(sg_checkpoint_set set)
{
    char name[SG_CHECKPOINT_NAME_BYTES];
    return set.generation == 0 ? json_null() : json_string(sg_checkpoint_set_name(set, name));
}

bool sg_checkpoint_json_set(const json_t *value, sg_checkpoint_set *set)
{
    if (json_is_null(value)) {
        *set = (sg_checkpoint_set){0};
        return true;
    }
    return json_is_string(value) && sg_checkpoint_set_parse(json_string_value(value), set);
}
