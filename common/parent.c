/* common/parent.c - see parent.h. */
#include "common/parent.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

sg_status sg_parent_bind(const char *pid_text, sg_error *err)
{
    if (pid_text == NULL)
        return SG_OK;
    char *end;
    errno = 0;
    long pid = strtol(pid_text, &end, 10);
    if (errno != 0 || end == pid_text || *end != '\0' || pid < 1)
        return sg_error_set(err, SG_USAGE, "--parent: '%s' is not a process id", pid_text);
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) != 0)
        return sg_error_set(err, SG_INTERNAL, "prctl(PR_SET_PDEATHSIG): %s", strerror(errno));
    /* The parent may have died before the kernel was told; then this process has another one by now. */
    if (getppid() != (pid_t)pid)
        return sg_error_set(err, SG_STOPPED, "process %ld, which started this one, is gone", pid);
    return SG_OK;
}
