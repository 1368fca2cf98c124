/* common/plain_file.c - see plain_file.h. */
#include "common/plain_file.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

int sg_plain_file_open(const char *path, int flags, int *fd)
{
    *fd = open(path, flags | O_CLOEXEC | O_NONBLOCK, 0666); /* a plain file does not care; a FIFO would wait */
    if (*fd < 0)
        return errno;
    struct stat info;
    int error = 0;
    if (fstat(*fd, &info) != 0)
        error = errno;
    else if (!S_ISREG(info.st_mode))
        error = S_ISDIR(info.st_mode) ? EISDIR : ENXIO;
    if (error != 0)
        close(*fd);
    return error;
}
