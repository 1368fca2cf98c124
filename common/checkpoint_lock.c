/* common/checkpoint_lock.c - a folder of checkpoints is one job's at a time.
 *
 * An open file description lock (fcntl): gone with the process that has it, however that ends; another of the same
 * process is refused, too. NFS hands it to the server, for all machines; there it outlives a machine that is lost by
 * the lease that the server gave (some 90 s). A file system without locks lets everybody in. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/checkpoint_internal.h"
#include "common/clock.h"

#define LOCK           "lock"
#define OWNER_BYTES    200
#define RETRY_PAUSE_NS 20000000

struct sg_checkpoint_lock {
    int file;
};

/* Who has it, as far as it has said so. */
static void read_owner(int file, char owner[OWNER_BYTES])
{
    ssize_t n = pread(file, owner, OWNER_BYTES - 1, 0);
    owner[n > 0 ? n : 0] = '\0';
    owner[strcspn(owner, "\n")] = '\0';
    if (owner[0] == '\0')
        snprintf(owner, OWNER_BYTES, "another process");
}

static void write_owner(int file, const char *owner)
{
    char host[64] = "", line[OWNER_BYTES];
    (void)!gethostname(host, sizeof host - 1);
    int n = snprintf(line, sizeof line, "%.80s, process %ld on %s\n", owner, (long)getpid(), host);
    if (ftruncate(file, 0) != 0 || pwrite(file, line, (size_t)n, 0) != n)
        return; /* it is locked all the same, by somebody without a name */
}

/* 0, or an errno. */
static int try_lock(int file)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(file, F_OFD_SETLK, &whole) == 0 ? 0 : errno;
}

static int wait_for_lock(int file, uint64_t wait_ms)
{
    uint64_t began_ms = sg_clock_ms();
    for (;;) {
        int error = try_lock(file);
        bool is_taken = error == EAGAIN || error == EACCES;
        if (!is_taken || sg_clock_ms() - began_ms >= wait_ms)
            return is_taken ? EAGAIN : error;
        nanosleep(&(struct timespec){.tv_nsec = RETRY_PAUSE_NS}, NULL);
    }
}

sg_status sg_checkpoint_lock_take(const sg_checkpoint *folder, const char *owner, uint64_t wait_ms,
                                  sg_checkpoint_lock **lock, sg_error *err)
{
    char *path = sg_xprintf("%s/" LOCK, folder->dir), other[OWNER_BYTES];
    *lock = NULL;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    int error = file >= 0 ? wait_for_lock(file, wait_ms) : errno;
    sg_status status = SG_OK;
    if (file < 0) {
        status = sg_disk_error(err, error, "cannot open %s", path);
    } else if (error == 0) {
        write_owner(file, owner);
        *lock = sg_xcalloc(1, sizeof **lock);
        (*lock)->file = file;
    } else if (error == EAGAIN) {
        read_owner(file, other);
        status = sg_error_set(err, SG_CONFIG,
                              "the checkpoints in %s are in use by %s: end that job first, or give this one a "
                              "checkpoint.dir of its own",
                              folder->dir, other);
    }
    if (file >= 0 && error != 0)
        close(file);
    free(path);
    return status;
}

void sg_checkpoint_lock_release(sg_checkpoint_lock *lock)
{
    if (lock == NULL)
        return;
    (void)!ftruncate(lock->file, 0);
    close(lock->file);
    free(lock);
}
