/* worker/data/file.c - see file.h. */
#include "worker/data/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/plain_file.h"

#define READ_BYTES (1U << 20)
/* Deflate makes at most 1032 bytes of one, so a header that promises more than this many per byte of file lies. */
#define MAX_EXPANSION   ((uint64_t)1032)
#define FIRST_ROOM      ((size_t)64 << 10)
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

static sg_status open_failed(const char *path, int error, sg_error *err)
{
    if (error == ENXIO)
        return sg_error_set(err, SG_NOT_FOUND, "%s: is not a plain file", path);
    if (error != ENOENT)
        return sg_error_set(err, SG_NOT_FOUND, "%s: cannot be read: %s", path, strerror(error));
    if (path[0] == '\0')
        return sg_error_set(err, SG_NOT_FOUND,
                            "a data file is not named: set data.train_images, train_labels, test_images and "
                            "test_labels (plain or .gz), or data.format to the format of yours");
    char from[PATH_MAX] = "";
    if (path[0] != '/' && getcwd(from, sizeof from) == NULL)
        from[0] = '\0';
    bool is_debian_package = strncmp(path, "/usr/share/datasets/fashion-mnist/", 34) == 0;
    return sg_error_set(err, SG_NOT_FOUND, "%s: no such file%s%s; %s", path, from[0] != '\0' ? " seen from " : "", from,
                        is_debian_package ? "install the Debian package dataset-fashion-mnist"
                                          : "name files that are there (plain or .gz) in `data` of the cluster file");
}

sg_status sg_data_file_open(const char *path, sg_data_file *f, sg_error *err)
{
    *f = (sg_data_file){.path = path};
    int fd;
    const int error = sg_plain_file_open(path, O_RDONLY, &fd);
    if (error != 0)
        return open_failed(path, error, err);
    struct stat about;
    sg_status status = SG_OK;
    if (fstat(fd, &about) != 0)
        status = open_failed(path, errno, err);
    else if ((f->file = gzdopen(fd, "rb")) == NULL)
        status = open_failed(path, ENOMEM, err);
    if (status != SG_OK) {
        close(fd);
        return status;
    }
    f->file_bytes = (uint64_t)about.st_size;
    gzbuffer(f->file, READ_BYTES);
    return SG_OK;
}

void sg_data_file_close(sg_data_file *f)
{
    if (f->file)
        gzclose_r(f->file);
    free(f->text);
    *f = (sg_data_file){0};
}

sg_status sg_data_file_read(sg_data_file *f, void *out, size_t n_bytes, size_t *n_read, sg_error *err)
{
    *n_read = 0;
    while (*n_read < n_bytes) {
        size_t left = n_bytes - *n_read;
        errno = 0;
        int got = gzread(f->file, (uint8_t *)out + *n_read, left < READ_BYTES ? (unsigned)left : READ_BYTES);
        int code;
        (void)gzerror(f->file, &code);
        if (got < 0 || (code != Z_OK && code != Z_STREAM_END))
            return sg_error_set(err, SG_DATA, "%s: %s; wanted a whole file: get it anew", f->path,
                                code == Z_ERRNO       ? strerror(errno)
                                : code == Z_BUF_ERROR ? "ends in the middle of its compressed data"
                                                      : "its compressed data is damaged");
        if (got == 0)
            return SG_OK;
        *n_read += (size_t)got;
    }
    return SG_OK;
}

sg_status sg_data_file_read_exactly(sg_data_file *f, const char *what, void *out, size_t n_bytes, sg_error *err)
{
    size_t n_read;
    sg_status status = sg_data_file_read(f, out, n_bytes, &n_read, err);
    if (status == SG_OK && n_read < n_bytes)
        status = sg_error_set(err, SG_DATA, "%s: ends after %zu of %zu bytes of its %s: get the file anew", f->path,
                              n_read, n_bytes, what);
    return status;
}

uint64_t sg_data_file_most_bytes(const sg_data_file *f)
{
    return gzdirect(f->file) ? f->file_bytes : f->file_bytes * MAX_EXPANSION;
}

/* --- lines ---------------------------------------------------------------------------------------------------- */

/* Reads more behind what is left of the text; *more is false at the end of the file. */
static sg_status read_ahead(sg_data_file *f, bool *more, sg_error *err)
{
    const size_t left = f->end - f->begin;
    if (left > 0)
        memmove(f->text, f->text + f->begin, left);
    f->begin = 0;
    f->end = left;
    if (left + 1 >= f->room) {
        const size_t room = f->room > 0 ? 2 * f->room : FIRST_ROOM;
        char *grown = room <= SG_DATA_MAX_LINE ? realloc(f->text, room) : NULL;
        if (!grown)
            return sg_error_set(err, SG_DATA, "%s:%llu: a line of more than %zu bytes; wanted text", f->path,
                                (unsigned long long)f->line + 1, left);
        f->text = grown;
        f->room = room;
    }
    size_t n_read;
    sg_status status = sg_data_file_read(f, f->text + left, f->room - 1 - left, &n_read, err);
    f->end += status == SG_OK ? n_read : 0;
    *more = status == SG_OK && n_read > 0;
    return status;
}

sg_status sg_data_file_line(sg_data_file *f, char **line, sg_error *err)
{
    size_t searched = 0;
    char *stop = NULL;
    for (bool more = true; more;) {
        const size_t left = f->end - f->begin;
        stop = left > searched ? memchr(f->text + f->begin + searched, '\n', left - searched) : NULL;
        if (stop)
            break;
        searched = left;
        sg_status status = read_ahead(f, &more, err);
        if (status != SG_OK)
            return status;
    }
    if (!stop && f->begin == f->end) {
        *line = NULL;
        return SG_OK;
    }
    *line = f->text + f->begin;
    size_t length = stop ? (size_t)(stop - *line) : f->end - f->begin;
    f->begin += length + (stop ? 1 : 0);
    (*line)[length] = '\0';
    f->line++;
    if (memchr(*line, '\0', length))
        return sg_error_set(err, SG_DATA, "%s:%llu: holds a byte 0; wanted text", f->path, (unsigned long long)f->line);
    if (length > 0 && (*line)[length - 1] == '\r')
        (*line)[length - 1] = '\0';
    if (f->line == 1 && strncmp(*line, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
        *line += strlen(BYTE_ORDER_MARK); /* with which spreadsheets begin a file in UTF-8 */
    return SG_OK;
}

/* --- whole files ---------------------------------------------------------------------------------------------- */

static sg_status append_all(sg_data_file *f, uint8_t **bytes, size_t *n_bytes, sg_error *err)
{
    /* Beyond what a plain file has, so that its end is found without growing. */
    size_t step = (size_t)f->file_bytes + FIRST_ROOM;
    for (size_t n_read = step; n_read == step;) {
        uint8_t *grown = *n_bytes + step <= SG_DATA_MAX_BYTES ? realloc(*bytes, *n_bytes + step) : NULL;
        if (!grown)
            return sg_error_set(err, SG_EXHAUSTED, "%s: no memory for its more than %zu bytes", f->path, *n_bytes);
        *bytes = grown;
        sg_status status = sg_data_file_read(f, *bytes + *n_bytes, step, &n_read, err);
        if (status != SG_OK)
            return status;
        *n_bytes += n_read;
    }
    return SG_OK;
}

sg_status sg_data_file_look(const char *path, uint64_t *n_bytes, sg_error *err)
{
    sg_data_file f;
    sg_status status = sg_data_file_open(path, &f, err);
    if (status == SG_OK)
        *n_bytes = gzdirect(f.file) ? f.file_bytes : SG_DATA_UNKNOWN;
    sg_data_file_close(&f);
    return status;
}

sg_status sg_data_file_append(const char *path, uint8_t **bytes, size_t *n_bytes, sg_error *err)
{
    sg_data_file f;
    sg_status status = sg_data_file_open(path, &f, err);
    if (status == SG_OK)
        status = append_all(&f, bytes, n_bytes, err);
    sg_data_file_close(&f);
    return status;
}
