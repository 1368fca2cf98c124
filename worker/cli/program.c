/* worker/cli/program.c - see program.h. */
#include "worker/cli/program.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/status.h"

char *sg_program_self(void)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return sg_xstrdup("shardgrad");
    self[n] = '\0';
    return sg_xstrdup(self);
}

char *sg_program_beside(const char *name)
{
    char *self = sg_program_self();
    const char *slash = strrchr(self, '/');
    char *beside = slash == NULL ? NULL : sg_xprintf("%.*s/%s", (int)(slash - self), self, name);
    free(self);
    if (beside != NULL && access(beside, X_OK) == 0)
        return beside;
    free(beside);
    return NULL;
}

char *sg_program_find(const char *name)
{
    char *beside = sg_program_beside(name);
    return beside != NULL ? beside : sg_xstrdup(name);
}
