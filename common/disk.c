/* common/disk.c - the machine's own disk, and what is done with any. */
#include "common/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/plain_file.h"

/* --- the machine's own -------------------------------------------------------------------------------------------- */

static int result_of(int returned)
{
    return returned == 0 ? 0 : errno;
}

static int posix_open(void *user, const char *path, sg_disk_open how, int *file)
{
    (void)user;
    return sg_plain_file_open(path, how == SG_DISK_READ ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, file);
}

static int posix_size(void *user, int file, uint64_t *n_bytes)
{
    (void)user;
    struct stat info;
    if (fstat(file, &info) != 0)
        return errno;
    *n_bytes = (uint64_t)info.st_size;
    return 0;
}

static int posix_read(void *user, int file, uint64_t offset, void *out, size_t n_bytes, size_t *n_read)
{
    (void)user;
    *n_read = 0;
    while (*n_read < n_bytes) {
        ssize_t n = pread(file, (char *)out + *n_read, n_bytes - *n_read, (off_t)(offset + *n_read));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno;
        if (n == 0)
            break;
        *n_read += (size_t)n;
    }
    return 0;
}

static int posix_write(void *user, int file, uint64_t offset, const void *data, size_t n_bytes)
{
    (void)user;
    for (size_t written = 0; written < n_bytes;) {
        ssize_t n = pwrite(file, (const char *)data + written, n_bytes - written, (off_t)(offset + written));
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : EIO;
        written += (size_t)n;
    }
    return 0;
}

static int posix_sync(void *user, int file)
{
    (void)user;
    return result_of(fsync(file));
}

static int posix_close(void *user, int file)
{
    (void)user;
    return result_of(close(file));
}

static int posix_make_folder(void *user, const char *path)
{
    (void)user;
    return result_of(mkdir(path, 0777));
}

static int posix_sync_folder(void *user, const char *path)
{
    (void)user;
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return errno;
    int error = result_of(fsync(folder));
    close(folder);
    return error;
}

static int posix_link(void *user, const char *from, const char *to)
{
    (void)user;
    return result_of(link(from, to));
}

static int posix_rename(void *user, const char *from, const char *to)
{
    (void)user;
    return result_of(rename(from, to));
}

static int posix_remove(void *user, const char *path)
{
    (void)user;
    if (unlink(path) == 0)
        return 0;
    return errno == EISDIR || errno == EPERM ? result_of(rmdir(path)) : errno;
}

static int posix_list(void *user, const char *path, bool (*each)(void *user, const char *name), void *each_user)
{
    (void)user;
    DIR *folder = opendir(path);
    if (folder == NULL)
        return errno;
    int error = 0;
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(folder);
        if (entry == NULL) {
            error = errno;
            break;
        }
        bool is_dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
        if (!is_dots && !each(each_user, entry->d_name))
            break;
    }
    closedir(folder);
    return error;
}

const sg_disk sg_disk_posix = {
    .open = posix_open,
    .size = posix_size,
    .read = posix_read,
    .write = posix_write,
    .sync = posix_sync,
    .close = posix_close,
    .make_folder = posix_make_folder,
    .sync_folder = posix_sync_folder,
    .link = posix_link,
    .rename = posix_rename,
    .remove = posix_remove,
    .list = posix_list,
};

/* --- any disk ----------------------------------------------------------------------------------------------------- */

static sg_status status_of(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
        return SG_EXHAUSTED;
    case ENOENT:
    case ENOTDIR:
        return SG_NOT_FOUND;
    case EISDIR:
    case ENXIO:
        return SG_DATA;
    default:
        return SG_IO;
    }
}

sg_status sg_disk_error(sg_error *err, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const sg_status status = sg_error_set_v(err, status_of(error), format, args);
    va_end(args);
    return err == NULL ? status
                       : sg_error_set(err, status, "%s: %s", err->message,
                                      error == ENXIO ? "It is no plain file" : strerror(error));
}

/* Written and synced, or not there. */
static int write_new(const sg_disk *disk, const char *path, const void *data, size_t n_bytes)
{
    int file;
    int error = disk->open(disk->user, path, SG_DISK_REPLACE, &file);
    if (error != 0)
        return error;
    error = disk->write(disk->user, file, 0, data, n_bytes);
    if (error == 0)
        error = disk->sync(disk->user, file);
    int closed = disk->close(disk->user, file);
    return error != 0 ? error : closed;
}

sg_status sg_disk_put(const sg_disk *disk, const char *folder, const char *name, uint64_t writer, const void *data,
                      size_t n_bytes, bool exclusive, bool *existed, sg_error *err)
{
    char *path = sg_xprintf("%s/%s", folder, name);
    char *beside = sg_xprintf("%s.%016" PRIx64 ".tmp", path, writer);
    int error = write_new(disk, beside, data, n_bytes);
    bool is_there = false;
    if (error == 0) {
        error = exclusive ? disk->link(disk->user, beside, path) : disk->rename(disk->user, beside, path);
        is_there = exclusive && error == EEXIST;
        if (is_there)
            error = 0;
    }
    if (error != 0 || exclusive)
        disk->remove(disk->user, beside); /* what cannot be removed is a stray file that nobody reads */
    if (error == 0)                       /* also when it was there: its maker may have lost power before this */
        error = disk->sync_folder(disk->user, folder);
    sg_status status = error == 0 ? SG_OK : sg_disk_error(err, error, "cannot write %s", path);
    if (existed != NULL)
        *existed = is_there;
    free(beside);
    free(path);
    return status;
}

sg_status sg_disk_read(const sg_disk *disk, int file, const char *path, uint64_t offset, void *out, size_t n_bytes,
                       sg_error *err)
{
    size_t n_read;
    int error = disk->read(disk->user, file, offset, out, n_bytes, &n_read);
    if (error != 0)
        return sg_disk_error(err, error, "cannot read %s", path);
    if (n_read != n_bytes)
        return sg_error_set(err, SG_DATA, "%s ends after %" PRIu64 " bytes, wanted %" PRIu64 ": it was cut short", path,
                            offset + n_read, offset + n_bytes);
    return SG_OK;
}

static sg_status read_all(const sg_disk *disk, int file, const char *path, size_t max_bytes, char **data,
                          size_t *n_bytes, sg_error *err)
{
    uint64_t size;
    int error = disk->size(disk->user, file, &size);
    if (error != 0)
        return sg_disk_error(err, error, "cannot read %s", path);
    if (size > max_bytes)
        return sg_error_set(err, SG_DATA, "%s has %" PRIu64 " bytes, wanted at most %zu", path, size, max_bytes);
    *n_bytes = (size_t)size;
    *data = malloc(*n_bytes + 1);
    if (*data == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu bytes of %s", *n_bytes, path);
    sg_status status = sg_disk_read(disk, file, path, 0, *data, *n_bytes, err);
    if (status != SG_OK)
        free(*data);
    else
        (*data)[*n_bytes] = '\0';
    return status;
}

sg_status sg_disk_get(const sg_disk *disk, const char *path, size_t max_bytes, char **data, size_t *n_bytes,
                      sg_error *err)
{
    int file;
    int error = disk->open(disk->user, path, SG_DISK_READ, &file);
    if (error != 0)
        return sg_disk_error(err, error, "cannot read %s", path);
    sg_status status = read_all(disk, file, path, max_bytes, data, n_bytes, err);
    disk->close(disk->user, file);
    return status;
}
