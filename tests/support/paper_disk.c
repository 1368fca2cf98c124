#include "paper_disk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

typedef struct paper_file {
    uint8_t *bytes, *synced;
    size_t n_bytes, n_synced;
    bool is_folder;
} paper_file;

/* A path, and the file that it means: now, and on the disk for good. */
typedef struct paper_name {
    char *path;
    ptrdiff_t now, synced; /* index of the file; -1: there is none */
} paper_name;

/* --- names and files ------------------------------------------------------------------------------------------------
 */

static paper_name *name_of(paper_disk *p, const char *path)
{
    for (size_t i = 0; i < p->n_names; i++) {
        if (strcmp(p->names[i].path, path) == 0)
            return &p->names[i];
    }
    p->names = sg_xrealloc(p->names, p->n_names + 1, sizeof *p->names);
    p->names[p->n_names] = (paper_name){sg_xstrdup(path), -1, -1};
    return &p->names[p->n_names++];
}

static paper_file *file_of(const paper_disk *p, const char *path)
{
    for (size_t i = 0; i < p->n_names; i++) {
        if (strcmp(p->names[i].path, path) == 0)
            return p->names[i].now >= 0 ? &p->files[p->names[i].now] : NULL;
    }
    return NULL;
}

static ptrdiff_t add_file(paper_disk *p, bool is_folder)
{
    p->files = sg_xrealloc(p->files, p->n_files + 1, sizeof *p->files);
    p->files[p->n_files] = (paper_file){.is_folder = is_folder};
    return (ptrdiff_t)p->n_files++;
}

/* "" of what lies at the top. */
static bool is_in(const char *path, const char *folder)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash != NULL ? (size_t)(slash - path) : 0;
    return strlen(folder) == n && strncmp(path, folder, n) == 0;
}

static bool has_folder_of(const paper_disk *p, const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return true;
    char *folder = sg_xprintf("%.*s", (int)(slash - path), path);
    const paper_file *file = file_of(p, folder);
    free(folder);
    return file != NULL && file->is_folder;
}

/* Of a call that changes something. */
static int begin_call(paper_disk *p, bool needs_room)
{
    p->n_calls++;
    bool fails = p->fails_from != 0 && p->n_calls >= p->fails_from;
    return fails && (needs_room || p->error != ENOSPC) ? p->error : 0;
}

/* --- the table ------------------------------------------------------------------------------------------------------
 */

static int paper_open(void *user, const char *path, sg_disk_open how, int *file)
{
    paper_disk *p = user;
    if (how == SG_DISK_REPLACE) {
        int error = begin_call(p, true);
        if (error != 0)
            return error;
        if (!has_folder_of(p, path))
            return ENOENT;
        paper_name *name = name_of(p, path);
        if (name->now < 0)
            name->now = add_file(p, false);
        p->files[name->now].n_bytes = 0;
    }
    const paper_file *found = file_of(p, path);
    if (found == NULL)
        return ENOENT;
    *file = (int)(found - p->files);
    return 0;
}

static int paper_size(void *user, int file, uint64_t *n_bytes)
{
    const paper_disk *p = user;
    *n_bytes = p->files[file].n_bytes;
    return p->files[file].is_folder ? EISDIR : 0;
}

static int paper_read(void *user, int file, uint64_t offset, void *out, size_t n_bytes, size_t *n_read)
{
    const paper_disk *p = user;
    const paper_file *f = &p->files[file];
    size_t left = offset < f->n_bytes ? f->n_bytes - (size_t)offset : 0;
    *n_read = n_bytes < left ? n_bytes : left;
    if (*n_read > 0)
        memcpy(out, f->bytes + offset, *n_read);
    return 0;
}

static int paper_write(void *user, int file, uint64_t offset, const void *data, size_t n_bytes)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error != 0)
        return error;
    paper_file *f = &p->files[file];
    size_t end = (size_t)offset + n_bytes;
    if (end > f->n_bytes) {
        f->bytes = sg_xrealloc(f->bytes, end, 1);
        memset(f->bytes + f->n_bytes, 0, end - f->n_bytes);
        f->n_bytes = end;
    }
    if (n_bytes > 0)
        memcpy(f->bytes + offset, data, n_bytes);
    return 0;
}

static void sync_bytes(paper_file *f)
{
    f->synced = sg_xrealloc(f->synced, f->n_bytes, 1);
    f->n_synced = f->n_bytes;
    if (f->n_bytes > 0)
        memcpy(f->synced, f->bytes, f->n_bytes);
}

static int paper_sync(void *user, int file)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error == 0 && !p->never_syncs)
        sync_bytes(&p->files[file]);
    return error;
}

static int paper_close(void *user, int file)
{
    (void)user, (void)file;
    return 0;
}

static int paper_make_folder(void *user, const char *path)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error != 0)
        return error;
    if (!has_folder_of(p, path))
        return ENOENT;
    paper_name *name = name_of(p, path);
    if (name->now >= 0)
        return EEXIST;
    name->now = add_file(p, true);
    return 0;
}

static int paper_sync_folder(void *user, const char *path)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error != 0 || p->never_syncs)
        return error;
    const char *folder = strcmp(path, "/") == 0 || strcmp(path, ".") == 0 ? "" : path;
    for (size_t i = 0; i < p->n_names; i++) {
        if (is_in(p->names[i].path, folder))
            p->names[i].synced = p->names[i].now;
    }
    return 0;
}

static int paper_link(void *user, const char *from, const char *to)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error != 0)
        return error;
    if (file_of(p, from) == NULL)
        return ENOENT;
    if (name_of(p, to)->now >= 0)
        return EEXIST;
    ptrdiff_t file = name_of(p, from)->now;
    name_of(p, to)->now = file;
    return 0;
}

static int paper_rename(void *user, const char *from, const char *to)
{
    paper_disk *p = user;
    int error = begin_call(p, true);
    if (error != 0)
        return error;
    if (file_of(p, from) == NULL)
        return ENOENT;
    ptrdiff_t file = name_of(p, from)->now;
    name_of(p, from)->now = -1;
    name_of(p, to)->now = file;
    return 0;
}

static int paper_remove(void *user, const char *path)
{
    paper_disk *p = user;
    int error = begin_call(p, false);
    if (error != 0)
        return error;
    const paper_file *file = file_of(p, path);
    if (file == NULL)
        return ENOENT;
    for (size_t i = 0; i < p->n_names && file->is_folder; i++) {
        if (p->names[i].now >= 0 && is_in(p->names[i].path, path))
            return ENOTEMPTY;
    }
    name_of(p, path)->now = -1;
    return 0;
}

static int paper_list(void *user, const char *path, bool (*each)(void *user, const char *name), void *each_user)
{
    const paper_disk *p = user;
    const paper_file *folder = file_of(p, path);
    if (folder == NULL || !folder->is_folder)
        return folder == NULL ? ENOENT : ENOTDIR;
    for (size_t i = 0; i < p->n_names; i++) {
        if (p->names[i].now >= 0 && is_in(p->names[i].path, path) &&
            !each(each_user, strrchr(p->names[i].path, '/') + 1))
            break;
    }
    return 0;
}

/* --- what a test does -----------------------------------------------------------------------------------------------
 */

void paper_disk_init(paper_disk *paper)
{
    *paper = (paper_disk){
        .disk =
            {
                .user = paper,
                .open = paper_open,
                .size = paper_size,
                .read = paper_read,
                .write = paper_write,
                .sync = paper_sync,
                .close = paper_close,
                .make_folder = paper_make_folder,
                .sync_folder = paper_sync_folder,
                .link = paper_link,
                .rename = paper_rename,
                .remove = paper_remove,
                .list = paper_list,
            },
    };
}

void paper_disk_deinit(paper_disk *paper)
{
    for (size_t i = 0; i < paper->n_files; i++) {
        free(paper->files[i].bytes);
        free(paper->files[i].synced);
    }
    for (size_t i = 0; i < paper->n_names; i++)
        free(paper->names[i].path);
    free(paper->files);
    free(paper->names);
}

/* Bytes that were not synced: all of them, none, or the first few behind what else lay there. */
static void lose_bytes(paper_file *f, sg_seed *seed)
{
    bool is_synced = f->n_bytes == f->n_synced && (f->n_bytes == 0 || memcmp(f->bytes, f->synced, f->n_bytes) == 0);
    uint64_t fate = sg_seed_below(seed, 3);
    if (is_synced || fate == 0)
        return;
    if (fate == 1) {
        free(f->bytes);
        f->bytes = sg_xcalloc(f->n_synced, 1);
        f->n_bytes = f->n_synced;
        if (f->n_synced > 0)
            memcpy(f->bytes, f->synced, f->n_synced);
    } else {
        f->n_bytes = (size_t)sg_seed_below(seed, f->n_bytes + 1);
    }
}

void paper_disk_cut_power(paper_disk *paper, sg_seed *seed)
{
    for (size_t i = 0; i < paper->n_names; i++) {
        paper_name *name = &paper->names[i];
        if (name->now != name->synced && sg_seed_below(seed, 2) == 0)
            name->now = name->synced;
    }
    bool is_lost = true; /* with a folder goes all that is in it */
    while (is_lost) {
        is_lost = false;
        for (size_t i = 0; i < paper->n_names; i++) {
            if (paper->names[i].now >= 0 && !has_folder_of(paper, paper->names[i].path)) {
                paper->names[i].now = -1;
                is_lost = true;
            }
        }
    }
    for (size_t i = 0; i < paper->n_files; i++) {
        lose_bytes(&paper->files[i], seed);
        sync_bytes(&paper->files[i]);
    }
    for (size_t i = 0; i < paper->n_names; i++)
        paper->names[i].synced = paper->names[i].now;
    paper->fails_from = 0;
    paper->n_calls = 0;
}

void paper_disk_flip(paper_disk *paper, const char *path, uint64_t byte)
{
    file_of(paper, path)->bytes[byte] ^= 0x10;
}

void paper_disk_truncate(paper_disk *paper, const char *path, uint64_t n_bytes)
{
    file_of(paper, path)->n_bytes = (size_t)n_bytes;
}

const uint8_t *paper_disk_bytes(const paper_disk *paper, const char *path, size_t *n_bytes)
{
    const paper_file *file = file_of(paper, path);
    if (file == NULL)
        return NULL;
    *n_bytes = file->n_bytes;
    return file->bytes;
}

void paper_disk_write(paper_disk *paper, const char *path, const void *data, size_t n_bytes)
{
    paper_name *name = name_of(paper, path);
    if (name->now < 0)
        name->now = add_file(paper, false);
    paper_file *file = &paper->files[name->now];
    file->n_bytes = 0;
    free(file->bytes);
    file->bytes = sg_xcalloc(n_bytes, 1);
    file->n_bytes = n_bytes;
    memcpy(file->bytes, data, n_bytes);
    sync_bytes(file);
    name->synced = name->now;
}

void paper_disk_each(const paper_disk *paper, void (*each)(void *user, const char *path), void *user)
{
    for (size_t i = 0; i < paper->n_names; i++) {
        if (paper->names[i].now >= 0 && !paper->files[paper->names[i].now].is_folder)
            each(user, paper->names[i].path);
    }
}
