/* common/checkpoint_record.c - the records of generations: which exist, and which sets they forbid.
 *
 * A record is made whole or not at all and never changed. One that cannot be read is an error and not as good as none:
 * what it forbids is not known. */
#include <stdio.h>

#include "common/checkpoint_internal.h"

#define NAME_BYTES 48

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
    if (sscanf(name, "generation-%" SCNu64, &generation) != 1 || strcmp(record_name(generation, again), name) != 0)
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

static sg_status read_record(const sg_checkpoint *folder, uint64_t generation, sg_checkpoint_record *record,
                             sg_error *err)
{
    char name[NAME_BYTES];
    char *path = sg_xprintf("%s/%s", folder->dir, record_name(generation, name));
    json_t *object;
    sg_status status = sg_checkpoint_get_json(folder->disk, path, &object, NULL, err);
    if (status == SG_OK) {
        bool is_record = sg_checkpoint_json_number(object, "generation", UINT64_MAX, &record->generation) &&
                         record->generation == generation &&
                         sg_checkpoint_json_text_number(object, "life", 16, &record->life) &&
                         sg_checkpoint_json_set(json_object_get(object, "restored"), &record->restored);
        if (!is_record)
            status = sg_error_set(err, SG_DATA, "%s is not a record of generation %" PRIu64, path, generation);
        json_decref(object);
    }
    free(path);
    return status;
}

sg_status sg_checkpoint_records(const sg_checkpoint *folder, sg_checkpoint_record **records, size_t *n, sg_error *err)
{
    numbers found;
    sg_status status = list_numbers(folder, &found, err);
    if (status != SG_OK)
        return status;
    *records = sg_xcalloc(found.n, sizeof **records);
    *n = found.n;
    for (size_t i = 0; i < found.n && status == SG_OK; i++)
        status = read_record(folder, found.items[i], &(*records)[i], err);
    if (status != SG_OK)
        free(*records);
    free(found.items);
    return status;
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

sg_status sg_checkpoint_record_highest(const sg_checkpoint *folder, sg_checkpoint_record *record, sg_error *err)
{
    numbers found;
    *record = (sg_checkpoint_record){0};
    sg_status status = list_numbers(folder, &found, err);
    if (status != SG_OK)
        return status;
    if (found.n > 0)
        status = read_record(folder, found.items[found.n - 1], record, err);
    free(found.items);
    return status;
}

/* No other coordinator has made this record or a later one. */
static sg_status check_not_fenced(const sg_checkpoint *folder, const sg_checkpoint_record *record, sg_error *err)
{
    sg_checkpoint_record highest;
    sg_status status = sg_checkpoint_record_highest(folder, &highest, err);
    if (status != SG_OK || highest.generation < record->generation)
        return status;
    if (highest.generation == record->generation && highest.life == record->life &&
        sg_checkpoint_set_equal(highest.restored, record->restored))
        return SG_OK;
    return sg_error_set(err, SG_FENCED,
                        "%s has a record of generation %" PRIu64
                        " by another coordinator, this one wants to begin %" PRIu64 ": it has been superseded",
                        folder->dir, highest.generation, record->generation);
}

sg_status sg_checkpoint_record_create(const sg_checkpoint *folder, const sg_checkpoint_record *record, sg_error *err)
{
    SG_ASSERT(record->generation > 0);
    sg_status status = check_not_fenced(folder, record, err);
    if (status != SG_OK)
        return status;
    char name[NAME_BYTES], life[17];
    snprintf(life, sizeof life, "%016" PRIx64, record->life);
    json_t *object = json_pack("{s:I, s:s, s:o}", "generation", (json_int_t)record->generation, "life", life,
                               "restored", sg_checkpoint_set_json(record->restored));
    bool existed;
    status = sg_checkpoint_put_json(folder->disk, folder->dir, record_name(record->generation, name), record->life,
                                    object, true, &existed, err);
    if (status == SG_OK) /* whoever was quicker, or made a later one meanwhile, is seen now */
        status = check_not_fenced(folder, record, err);
    return status;
}
