/* common/checkpoint_record.c - the records of generations: which exist, and which sets they forbid.
 *
 * A record is made whole or not at all, never changed, and never removed: a set that it forbids may come back after its
 * own removal, from a backup or since the power was lost before that was on the disk, and nothing else tells then that
 * it was given up. The newest one fences. One that cannot be read is an error and not as good as none: what it forbids
 * is not known. That matters no more once a later generation began from nothing. */
#include <stdio.h>

#include "common/checkpoint_internal.h"

#define NAME_BYTES     48
#define MAX_GENERATION ((uint64_t)1 << 62) /* that is seen at all; none above SG_CHECKPOINT_MAX_GENERATION is taken */

typedef struct numbers {
    uint64_t *items;
    size_t n;
} numbers;

static const char *record_name(uint64_t generation, char out[NAME_BYTES])
{
    snprintf(out, NAME_BYTES, "generation-%06" PRIu64 ".json", generation);
    return out;
}

static bool collect(void *user, const char *name)
{
    numbers *found = user;
    uint64_t generation;
    char again[NAME_BYTES];
    if (sscanf(name, "generation-%" SCNu64, &generation) != 1 || strcmp(record_name(generation, again), name) != 0 ||
        generation > MAX_GENERATION)
        return true;
    found->items = sg_xrealloc(found->items, found->n + 1, sizeof *found->items);
    found->items[found->n++] = generation;
    return true;
}

static int ascending(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

/* Of all that there are, ascending. */
static sg_status list_numbers(const sg_checkpoint *folder, numbers *found, sg_error *err)
{
    *found = (numbers){0};
    int error = folder->disk->list(folder->disk->user, folder->dir, collect, found);
    if (error != 0) {
        free(found->items);
        *found = (numbers){0};
        return sg_disk_error(err, error, "cannot read the folder %s", folder->dir);
    }
    if (found->n > 0)
        qsort(found->items, found->n, sizeof *found->items, ascending);
    return SG_OK;
}

/* With its changes. */
static sg_status read_record(const sg_checkpoint *folder, uint64_t generation, sg_checkpoint_record *record,
                             sg_error *err)
{
    char name[NAME_BYTES];
    char *path = sg_xprintf("%s/%s", folder->dir, record_name(generation, name));
    json_t *object;
    bool newer;
    *record = (sg_checkpoint_record){0};
    sg_status status = sg_checkpoint_get_json(folder->disk, path, &object, &newer, err);
    if (status == SG_OK) {
        bool is_record =
            sg_checkpoint_json_number(object, "generation", UINT64_MAX, &record->generation) &&
            record->generation == generation && sg_checkpoint_json_text_number(object, "life", 16, &record->life) &&
            sg_checkpoint_json_set(json_object_get(object, "restored"), &record->restored) &&
            sg_checkpoint_json_changes(json_object_get(object, "changes"), &record->changes, &record->n_changes);
        if (!is_record)
            status = sg_error_set(err, SG_DATA, "%s is not a record of generation %" PRIu64, path, generation);
        json_decref(object);
    }
    if (status == SG_DATA && !newer)
        status = sg_error_prefix(err, status,
                                 "which checkpoints may be used is not known: put back a copy of the record, or say "
                                 "restore: none to begin anew");
    free(path);
    return status;
}

static void forget_changes(sg_checkpoint_record *record)
{
    sg_checkpoint_changes_free(record->changes, record->n_changes);
    record->changes = NULL;
    record->n_changes = 0;
}

sg_status sg_checkpoint_records(const sg_checkpoint *folder, sg_checkpoint_record **records, size_t *n, sg_error *err)
{
    numbers found;
    sg_status status = list_numbers(folder, &found, err);
    if (status != SG_OK)
        return status;
    sg_checkpoint_record *read = sg_xcalloc(found.n, sizeof *read);
    size_t first = found.n;
    while (status == SG_OK && first > 0) {
        first--;
        status = read_record(folder, found.items[first], &read[first], err);
        forget_changes(&read[first]);
        if (status == SG_OK && read[first].restored.generation == 0)
            break; /* it forbids all that those before it could */
    }
    free(found.items);
    if (status != SG_OK) {
        free(read);
        return status;
    }
    *n = found.n - first;
    memmove(read, read + first, *n * sizeof *read);
    *records = read;
    return SG_OK;
}

const sg_checkpoint_record *sg_checkpoint_forbidding(const sg_checkpoint_record *records, size_t n,
                                                     sg_checkpoint_set set)
{
    for (size_t i = 0; i < n; i++) {
        bool is_later = records[i].generation > set.generation;
        if (is_later && (records[i].restored.generation == 0 || records[i].restored.iteration < set.iteration))
            return &records[i];
    }
    return NULL;
}

sg_status sg_checkpoint_recorded(const sg_checkpoint *folder, uint64_t *highest, sg_error *err)
{
    numbers found;
    *highest = 0;
    sg_status status = list_numbers(folder, &found, err);
    if (status == SG_OK && found.n > 0)
        *highest = found.items[found.n - 1];
    free(found.items);
    return status;
}

sg_status sg_checkpoint_newest_record(const sg_checkpoint *folder, sg_checkpoint_record *record, sg_error *err)
{
    uint64_t highest;
    *record = (sg_checkpoint_record){0};
    sg_status status = sg_checkpoint_recorded(folder, &highest, err);
    if (status != SG_OK || highest == 0)
        return status;
    status = read_record(folder, highest, record, err);
    if (status != SG_OK)
        forget_changes(record);
    return status;
}

static bool has(const numbers *found, uint64_t generation)
{
    return found->n > 0 && bsearch(&generation, found->items, found->n, sizeof generation, ascending) != NULL;
}

static bool collect_of_set(void *user, const char *name)
{
    numbers *found = user;
    sg_checkpoint_set set;
    if (sg_checkpoint_set_parse(name, &set) && set.generation <= MAX_GENERATION) {
        found->items = sg_xrealloc(found->items, found->n + 1, sizeof *found->items);
        found->items[found->n++] = set.generation;
    }
    return true;
}

sg_status sg_checkpoint_last_generation(const sg_checkpoint *folder, uint64_t *last, uint64_t *unrecorded,
                                        sg_error *err)
{
    numbers records, sets = {0};
    *last = *unrecorded = 0;
    sg_status status = list_numbers(folder, &records, err);
    if (status != SG_OK)
        return status;
    const int error = folder->disk->list(folder->disk->user, folder->dir, collect_of_set, &sets);
    if (error != 0)
        status = sg_disk_error(err, error, "cannot read the folder %s", folder->dir);
    if (records.n > 0)
        *last = records.items[records.n - 1];
    for (size_t i = 0; i < sets.n; i++) {
        const uint64_t generation = sets.items[i];
        *last = generation > *last ? generation : *last;
        if (generation > *unrecorded && !has(&records, generation))
            *unrecorded = generation;
    }
    free(records.items);
    free(sets.items);
    if (status == SG_OK && *last >= SG_CHECKPOINT_MAX_GENERATION)
        status = sg_error_set(err, SG_DATA,
                              "%s has generation-%06" PRIu64 ".json, or a checkpoint of that generation, and %u is the "
                              "last that there may be: look how it got there, and move it away or name another folder",
                              folder->dir, *last, SG_CHECKPOINT_MAX_GENERATION);
    return status;
}

/* No other coordinator has made this record or a later one. */
static sg_status check_not_fenced(const sg_checkpoint *folder, const sg_checkpoint_record *record, sg_error *err)
{
    uint64_t highest;
    sg_checkpoint_record found = {0};
    sg_status status = sg_checkpoint_recorded(folder, &highest, err);
    if (status == SG_OK && highest == record->generation)
        status = read_record(folder, highest, &found, err);
    forget_changes(&found);
    if (status != SG_OK || highest < record->generation)
        return status;
    if (found.generation == record->generation && found.life == record->life &&
        sg_checkpoint_set_equal(found.restored, record->restored))
        return SG_OK;
    return sg_error_set(err, SG_FENCED,
                        "%s has a record of generation %" PRIu64
                        " by another coordinator, this one wants to begin %" PRIu64 ": it has been superseded",
                        folder->dir, highest, record->generation);
}

static sg_status write_record(const sg_checkpoint *folder, const sg_checkpoint_record *record, sg_error *err)
{
    char name[NAME_BYTES], life[17];
    snprintf(life, sizeof life, "%016" PRIx64, record->life);
    json_t *object = json_pack("{s:I, s:s, s:o, s:o}", "generation", (json_int_t)record->generation, "life", life,
                               "restored", sg_checkpoint_set_json(record->restored), "changes",
                               sg_checkpoint_changes_json(record->changes, record->n_changes));
    bool existed;
    return sg_checkpoint_put_json(folder->disk, folder->dir, record_name(record->generation, name), record->life,
                                  object, true, &existed, err);
}

/* The checkpoint that filled the disk was left half-written, and nobody makes it whole once this generation begins. */
static bool make_room(const sg_checkpoint *folder, const sg_checkpoint_record *record)
{
    size_t n_removed;
    const sg_checkpoint_set last = {.iteration = UINT64_MAX, .generation = record->generation - 1};
    return sg_checkpoint_remove_failed(folder, last, &n_removed, NULL) == SG_OK && n_removed > 0;
}

sg_status sg_checkpoint_record_create(const sg_checkpoint *folder, const sg_checkpoint_record *record, sg_error *err)
{
    SG_ASSERT(record->generation > 0);
    sg_status status = check_not_fenced(folder, record, err);
    if (status != SG_OK)
        return status;
    status = write_record(folder, record, err);
    if (status == SG_EXHAUSTED && make_room(folder, record))
        status = write_record(folder, record, err);
    if (status == SG_OK) /* whoever was quicker, or made a later one meanwhile, is seen now */
        status = check_not_fenced(folder, record, err);
    return status;
}
