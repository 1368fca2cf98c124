/* common/checkpoint_find.c - which sets there are, which may be used, and which are thrown away. */
#include <errno.h>
#include <stdio.h>

#include "common/checkpoint_internal.h"

#define MORE_BYTES 40u /* ", " and " and N more" */

typedef struct found_list {
    sg_checkpoint_found *items;
    size_t n;
} found_list;

typedef struct name_list {
    char **items;
    size_t n;
} name_list;

/* --- which there are ------------------------------------------------------------------------------------------------
 */

static bool collect_set(void *user, const char *name)
{
    found_list *list = user;
    sg_checkpoint_set set;
    if (sg_checkpoint_set_parse(name, &set)) {
        list->items = sg_xrealloc(list->items, list->n + 1, sizeof *list->items);
        list->items[list->n++] = (sg_checkpoint_found){.set = set};
    }
    return true;
}

static int newest_first(const void *a, const void *b)
{
    const sg_checkpoint_set left = ((const sg_checkpoint_found *)a)->set;
    const sg_checkpoint_set right = ((const sg_checkpoint_found *)b)->set;
    if (left.iteration != right.iteration)
        return left.iteration < right.iteration ? 1 : -1;
    return (left.generation < right.generation) - (left.generation > right.generation);
}

static void tell(sg_checkpoint_found *found, sg_checkpoint_state state, const char *text)
{
    found->state = state;
    if (text != NULL) {
        sg_status told = sg_error_set(&found->why, SG_NOT_FOUND, "%s", text);
        (void)told;
    }
}

/* The state of one set. Errors: EXHAUSTED, IO: nothing is known of the set. */
static sg_status look_at(const sg_checkpoint *folder, const sg_checkpoint_record *records, size_t n_records,
                         sg_checkpoint_found *found)
{
    char name[SG_CHECKPOINT_NAME_BYTES], restored[SG_CHECKPOINT_NAME_BYTES], text[SG_ERROR_MESSAGE_BYTES];
    const sg_checkpoint_record *record = sg_checkpoint_forbidding(records, n_records, found->set);
    if (record != NULL) {
        const bool anew = record->restored.generation == 0;
        snprintf(text, sizeof text, "%s is passed over: generation %" PRIu64 " %s%s",
                 sg_checkpoint_set_name(found->set, name), record->generation,
                 anew ? "began anew, or with imported values" : "went on from ",
                 anew ? "" : sg_checkpoint_set_name(record->restored, restored));
        tell(found, SG_CHECKPOINT_PASSED, text);
        return SG_OK;
    }
    sg_checkpoint_manifest manifest;
    bool newer = false;
    sg_status status = sg_checkpoint_load_manifest(folder, found->set, &manifest, &newer, &found->why);
    if (status == SG_NOT_FOUND) {
        snprintf(text, sizeof text, "%s is half-written: it has no manifest", sg_checkpoint_set_name(found->set, name));
        tell(found, SG_CHECKPOINT_HALF_WRITTEN, text);
        return SG_OK;
    }
    if (status == SG_OK) {
        status = sg_checkpoint_check_parts(folder, &manifest, &found->why);
        found->next_iteration = manifest.next_iteration;
        sg_checkpoint_manifest_deinit(&manifest);
    }
    tell(found, status == SG_OK ? SG_CHECKPOINT_USABLE : newer ? SG_CHECKPOINT_NEWER : SG_CHECKPOINT_DAMAGED, NULL);
    return status == SG_DATA ? SG_OK : status;
}

sg_status sg_checkpoint_list(const sg_checkpoint *folder, sg_checkpoint_found **found, size_t *n, sg_error *err)
{
    sg_checkpoint_record *records;
    size_t n_records;
    *found = NULL;
    *n = 0;
    sg_status status = sg_checkpoint_records(folder, &records, &n_records, err);
    if (status != SG_OK)
        return status;
    found_list list = {0};
    int error = folder->disk->list(folder->disk->user, folder->dir, collect_set, &list);
    if (error != 0) {
        free(list.items);
        status = sg_disk_error(err, error, "cannot read the folder %s", folder->dir);
    } else {
        if (list.n > 0)
            qsort(list.items, list.n, sizeof *list.items, newest_first);
        for (size_t i = 0; i < list.n && status == SG_OK; i++) {
            status = look_at(folder, records, n_records, &list.items[i]);
            if (status != SG_OK)
                (void)!sg_error_set(err, status, "%s", list.items[i].why.message);
        }
        *found = list.items;
        *n = list.n;
    }
    if (status != SG_OK && error == 0) {
        free(*found);
        *found = NULL;
        *n = 0;
    }
    free(records);
    return status;
}

/* --- which is taken -------------------------------------------------------------------------------------------------
 */

/* Where none can be used: what was trained must not be begun anew in silence. */
static sg_status check_none_damaged(const sg_checkpoint *folder, const sg_checkpoint_found *found, size_t n,
                                    sg_error *err)
{
    const sg_checkpoint_found *newest = NULL;
    size_t n_damaged = 0;
    for (size_t i = n; i-- > 0;) {
        if (found[i].state != SG_CHECKPOINT_DAMAGED)
            continue;
        newest = &found[i];
        n_damaged++;
    }
    if (newest == NULL)
        return SG_OK;
    return sg_error_set(err, SG_DATA,
                        "all checkpoints in %s that were complete are damaged (%zu): put back a copy of one, or say "
                        "restore: none to begin anew; of the newest: %s",
                        folder->dir, n_damaged, newest->why.message);
}

/* From the first one on that is older than `than`; NULL: from the newest. */
static sg_status find_from(const sg_checkpoint *folder, const sg_checkpoint_set *than, sg_checkpoint_set *chosen,
                           sg_checkpoint_found **skipped, size_t *n_skipped, sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n, i = 0;
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    while (than != NULL && i < n && newest_first(&found[i], &(sg_checkpoint_found){.set = *than}) <= 0)
        i++;
    if (i > 0) {
        n -= i;
        memmove(found, found + i, n * sizeof *found);
        i = 0;
    }
    for (; i < n && found[i].state != SG_CHECKPOINT_USABLE; i++) {
        if (found[i].state == SG_CHECKPOINT_NEWER) {
            status = sg_error_set(err, SG_DATA, "%s", found[i].why.message);
            free(found);
            return status;
        }
    }
    *chosen = i < n ? found[i].set : (sg_checkpoint_set){0};
    if (i == n && than == NULL)
        status = check_none_damaged(folder, found, n, err);
    if (skipped == NULL || status != SG_OK) {
        free(found);
    } else {
        *skipped = found;
        *n_skipped = i;
    }
    return status;
}

sg_status sg_checkpoint_find_newest(const sg_checkpoint *folder, sg_checkpoint_set *chosen,
                                    sg_checkpoint_found **skipped, size_t *n_skipped, sg_error *err)
{
    return find_from(folder, NULL, chosen, skipped, n_skipped, err);
}

sg_status sg_checkpoint_find_older(const sg_checkpoint *folder, sg_checkpoint_set than, sg_checkpoint_set *chosen,
                                   sg_checkpoint_found **skipped, size_t *n_skipped, sg_error *err)
{
    char name[SG_CHECKPOINT_NAME_BYTES];
    sg_status status = find_from(folder, &than, chosen, skipped, n_skipped, err);
    if (status != SG_OK || chosen->generation != 0)
        return status;
    if (skipped != NULL)
        free(*skipped);
    return sg_error_set(err, SG_DATA,
                        "%s is damaged, and %s has no usable checkpoint that is older: restore it from a copy, or say "
                        "restore: none to begin anew",
                        sg_checkpoint_set_name(than, name), folder->dir);
}

/* Which can be used, in a line for people: the newest that fit, and how many more. */
static void describe(const sg_checkpoint_found *found, size_t n, char *out, size_t out_bytes)
{
    size_t length = 0, n_left = 0;
    snprintf(out, out_bytes, "none");
    for (size_t i = 0; i < n; i++) {
        char name[SG_CHECKPOINT_NAME_BYTES];
        if (found[i].state != SG_CHECKPOINT_USABLE)
            continue;
        sg_checkpoint_set_name(found[i].set, name);
        if (n_left > 0 || length + strlen(name) + MORE_BYTES > out_bytes)
            n_left++;
        else
            length += (size_t)snprintf(out + length, out_bytes - length, "%s%s", length > 0 ? ", " : "", name);
    }
    if (n_left > 0)
        snprintf(out + length, out_bytes - length, " and %zu more", n_left);
}

sg_status sg_checkpoint_find(const sg_checkpoint *folder, uint64_t iteration, sg_checkpoint_set *chosen, sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n;
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    const sg_checkpoint_found *best = NULL;
    for (size_t i = 0; i < n; i++) {
        bool is_usable = found[i].state == SG_CHECKPOINT_USABLE;
        if (found[i].set.iteration == iteration && (best == NULL || (is_usable && best->state != SG_CHECKPOINT_USABLE)))
            best = &found[i];
    }
    char usable[SG_ERROR_MESSAGE_BYTES / 2];
    describe(found, n, usable, sizeof usable);
    if (best == NULL) {
        status = sg_error_set(err, SG_NOT_FOUND, "%s has no checkpoint of iteration %" PRIu64 "; usable are: %s",
                              folder->dir, iteration, usable);
    } else if (best->state != SG_CHECKPOINT_USABLE) {
        bool is_wrong = best->state == SG_CHECKPOINT_DAMAGED || best->state == SG_CHECKPOINT_NEWER;
        status = sg_error_set(err, is_wrong ? SG_DATA : SG_NOT_FOUND, "%s; usable are: %s", best->why.message, usable);
    } else {
        *chosen = best->set;
    }
    free(found);
    return status;
}

/* --- throwing away --------------------------------------------------------------------------------------------------
 */

static bool collect_name(void *user, const char *name)
{
    name_list *list = user;
    list->items = sg_xrealloc(list->items, list->n + 1, sizeof *list->items);
    list->items[list->n++] = sg_xstrdup(name);
    return true;
}

static int remove_in(const sg_disk *disk, const char *folder, const char *name)
{
    char *path = sg_xprintf("%s/%s", folder, name);
    int error = disk->remove(disk->user, path);
    free(path);
    return error == ENOENT ? 0 : error;
}

static int remove_files(const sg_disk *disk, const char *path)
{
    name_list names = {0};
    /* First what makes it a set: one that is removed by half is as good as half-written. */
    int error = remove_in(disk, path, SG_CHECKPOINT_MANIFEST);
    if (error == 0)
        error = disk->sync_folder(disk->user, path);
    if (error == 0)
        error = disk->list(disk->user, path, collect_name, &names);
    for (size_t i = 0; i < names.n; i++) {
        if (error == 0)
            error = remove_in(disk, path, names.items[i]);
        free(names.items[i]);
    }
    free(names.items);
    return error != 0 ? error : disk->remove(disk->user, path);
}

static sg_status remove_set(const sg_checkpoint *folder, sg_checkpoint_set set, sg_error *err)
{
    char *path = sg_checkpoint_set_path(folder, set);
    int error = remove_files(folder->disk, path);
    sg_status status = error == 0 ? SG_OK : sg_disk_error(err, error, "cannot remove %s", path);
    free(path);
    return status;
}

/* Async: is `newer` the same training, but perhaps for a push or two? */
static bool is_replaced(const sg_checkpoint_found *found, const sg_checkpoint_found *newer)
{
    return newer != NULL && newer->set.generation == found->set.generation &&
           newer->next_iteration == found->next_iteration;
}

sg_status sg_checkpoint_prune(const sg_checkpoint *folder, uint32_t keep, sg_checkpoint_set current, size_t *n_removed,
                              sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n, removed = 0;
    const sg_checkpoint_found *newer = NULL; /* usable; there are: */
    uint32_t n_usable = 0;
    if (n_removed != NULL)
        *n_removed = 0;
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < n && status == SG_OK; i++) {
        bool is_usable = found[i].state == SG_CHECKPOINT_USABLE;
        bool is_same = is_usable && is_replaced(&found[i], newer);
        bool is_waste = found[i].state == SG_CHECKPOINT_PASSED || is_same || (is_usable && n_usable >= keep) ||
                        (found[i].state == SG_CHECKPOINT_HALF_WRITTEN && n_usable > 0);
        n_usable += is_usable && !is_same;
        newer = is_usable ? &found[i] : newer;
        if (is_waste && !sg_checkpoint_set_equal(found[i].set, current)) {
            status = remove_set(folder, found[i].set, err);
            removed += status == SG_OK;
        }
    }
    free(found);
    if (n_removed != NULL)
        *n_removed = removed;
    return status;
}

/* A manifest that cannot be looked for may be there. */
static bool lacks_manifest(const sg_checkpoint *folder, sg_checkpoint_set set)
{
    char *set_path = sg_checkpoint_set_path(folder, set);
    char *path = sg_xprintf("%s/" SG_CHECKPOINT_MANIFEST, set_path);
    int file;
    int error = folder->disk->open(folder->disk->user, path, SG_DISK_READ, &file);
    if (error == 0)
        folder->disk->close(folder->disk->user, file);
    free(path);
    free(set_path);
    return error == ENOENT;
}

sg_status sg_checkpoint_remove_failed(const sg_checkpoint *folder, sg_checkpoint_set writing, size_t *n_removed,
                                      sg_error *err)
{
    found_list list = {0};
    int error = folder->disk->list(folder->disk->user, folder->dir, collect_set, &list);
    sg_status status = error == 0 ? SG_OK : sg_disk_error(err, error, "cannot read the folder %s", folder->dir);
    *n_removed = 0;
    for (size_t i = 0; i < list.n && status == SG_OK; i++) {
        sg_checkpoint_set set = list.items[i].set;
        bool is_before = set.iteration <= writing.iteration && set.generation <= writing.generation;
        if (!is_before || sg_checkpoint_set_equal(set, writing) || !lacks_manifest(folder, set))
            continue;
        status = remove_set(folder, set, err);
        *n_removed += status == SG_OK;
    }
    free(list.items);
    return status;
}
