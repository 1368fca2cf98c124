/* common/folder.c - see folder.h. */
#include "common/folder.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

sg_status sg_folder_make(const char *path, sg_error *err)
{
    char *part = sg_xstrdup(path);
    sg_status status = SG_OK;
    for (char *at = part; status == SG_OK && at != NULL;) {
        at = strchr(at + 1, '/');
        if (at != NULL)
            *at = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST)
            status = sg_error_set(err, SG_NOT_FOUND, "cannot make the folder %s: %s", part, strerror(errno));
        if (at != NULL)
            *at = '/';
    }
    free(part);
    struct stat info;
    if (status == SG_OK && (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)))
        return sg_error_set(err, SG_NOT_FOUND, "%s is not a folder", path);
    return status;
}

static sg_status make_folder_of(const char *path, sg_error *err)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return SG_OK;
    char *folder = sg_xprintf("%.*s", (int)(slash - path), path);
    sg_status status = sg_folder_make(folder, err);
    free(folder);
    return status;
}

sg_status sg_folder_write(const char *path, const void *data, size_t n_bytes, sg_error *err)
{
    sg_status status = make_folder_of(path, err);
    if (status != SG_OK)
        return status;
    char *beside = sg_xprintf("%s.%ld.tmp", path, (long)getpid());
    FILE *file = fopen(beside, "we");
    bool done = file != NULL && fwrite(data, 1, n_bytes, file) == n_bytes;
    if (file != NULL && fclose(file) != 0)
        done = false;
    if (!done || rename(beside, path) != 0) {
        status = sg_error_set(err, SG_NOT_FOUND, "cannot write %s: %s", path, strerror(errno));
        unlink(beside);
    }
    free(beside);
    return status;
}

sg_status sg_folder_open_log(const char *run_dir, const char *who, FILE **file, sg_error *err)
{
    char *path = sg_xprintf("%s/log/%s.log", run_dir, who);
    sg_status status = make_folder_of(path, err);
    if (status == SG_OK) {
        *file = fopen(path, "ae");
        if (*file == NULL)
            status = sg_error_set(err, SG_NOT_FOUND, "cannot write %s: %s", path, strerror(errno));
    }
    free(path);
    return status;
}
