/* common/descriptors.c - see descriptors.h. What fails here fails silently: there may be nowhere to say so. */
#include "common/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

void sg_descriptors_open_standard(void)
{
    static const int contrary[] = {[STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDONLY};
    for (int i = STDIN_FILENO; i <= STDERR_FILENO; i++) /* open takes the lowest number that is free */
        if (fcntl(i, F_GETFD) < 0 && open("/dev/null", contrary[i]) < 0)
            return;
}

int sg_descriptors_end_output(const char *program, int code)
{
    struct stat found;
    errno = 0;
    const bool failed = fflush(stdout) != 0 || ferror(stdout) != 0;
    if (!failed || (fstat(STDOUT_FILENO, &found) == 0 && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode))))
        return code;
    fprintf(stderr, "%s: standard output could not be written%s%s\n", program, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    return code != 0 ? code : EX_IOERR;
}

void sg_descriptors_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
}

sg_status sg_descriptors_check(uint64_t wanted, const char *what_for, sg_error *err)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted)
        return SG_OK;
    return sg_error_set(err, SG_EXHAUSTED,
                        "this process may open %" PRIu64 " files, wanted at least %" PRIu64
                        " for %s: raise the limit (ulimit -n, LimitNOFILE of systemd)",
                        (uint64_t)limit.rlim_cur, wanted, what_for);
}
