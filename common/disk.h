/* common/disk.h - files through a table of functions, so that a test can take the power away.
 *
 * What a checkpoint relies on is the order in which bytes reach the disk. So every call that matters to it goes through
 * an sg_disk: sg_disk_posix is the machine's own; tests have one that forgets what was not synced, one that is full and
 * one that fails. Calls block; a table may be used from any thread. */
#ifndef SG_COMMON_DISK_H
#define SG_COMMON_DISK_H

#include "common/status.h"

typedef enum sg_disk_open { SG_DISK_READ, SG_DISK_REPLACE /* made new, or emptied, to write */ } sg_disk_open;

/* Each function returns 0 or an errno. */
typedef struct sg_disk {
    void *user;
    /* Plain files alone: EISDIR of a folder, ENXIO of anything else, and it never waits for somebody at the other end.
     */
    int (*open)(void *user, const char *path, sg_disk_open how, int *file);
    int (*size)(void *user, int file, uint64_t *n_bytes);
    /* *n_read: less than n_bytes only at the end of the file. */
    int (*read)(void *user, int file, uint64_t offset, void *out, size_t n_bytes, size_t *n_read);
    int (*write)(void *user, int file, uint64_t offset, const void *data, size_t n_bytes);
    int (*sync)(void *user, int file);
    int (*close)(void *user, int file); /* the file is closed whatever it returns */
    int (*make_folder)(void *user, const char *path);
    int (*sync_folder)(void *user, const char *path);          /* names that were made, replaced or removed in it */
    int (*link)(void *user, const char *from, const char *to); /* EEXIST if `to` is there */
    int (*rename)(void *user, const char *from, const char *to);
    int (*remove)(void *user, const char *path); /* a file, or an empty folder */
    /* Calls `each` for every name in the folder but . and .., in any order, until it returns false. */
    int (*list)(void *user, const char *path, bool (*each)(void *user, const char *name), void *each_user);
} sg_disk;

extern const sg_disk sg_disk_posix;

/* What an errno means: EXHAUSTED where there is no room or no memory; NOT_FOUND where the file or folder is not there;
 * DATA where something else has its name, such as a folder or a FIFO; IO otherwise: nothing is known of its content.
 * The message is the format, ": " and the errno in words. */
SG_MUST_USE sg_status sg_disk_error(sg_error *err, int error, const char *format, ...) SG_PRINTF(3, 4);

/* Makes the file folder/name with this content, whole or not at all, so that it survives a loss of power: written
 * beside it as folder/name.WRITER.tmp, synced, then renamed and the folder synced. With `exclusive` a file that is
 * there already stays, and *existed tells (otherwise existed may be NULL). Errors: those of sg_disk_error. */
SG_MUST_USE sg_status sg_disk_put(const sg_disk *disk, const char *folder, const char *name, uint64_t writer,
                                  const void *data, size_t n_bytes, bool exclusive, bool *existed, sg_error *err);
/* Reads a whole file. Errors: those of sg_disk_error; DATA (longer than max_bytes). *data is freed by free(), and is
 * followed by a 0 byte. */
SG_MUST_USE sg_status sg_disk_get(const sg_disk *disk, const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                                  sg_error *err);
/* Reads exactly n_bytes at the offset. Errors: those of sg_disk_error; DATA (the file ends before). */
SG_MUST_USE sg_status sg_disk_read(const sg_disk *disk, int file, const char *path, uint64_t offset, void *out,
                                   size_t n_bytes, sg_error *err);

#endif
