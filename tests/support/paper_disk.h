/* tests/support/paper_disk.h - a disk in memory that can lose its power, fill up, or fail.
 *
 * What was written is on it for good only once it was synced: a file's bytes by sync, its name by sync_folder. A loss
 * of power leaves of the rest what a seed says: nothing, all, or the first bytes. For one thread at a time. */
#ifndef SG_TESTS_SUPPORT_PAPER_DISK_H
#define SG_TESTS_SUPPORT_PAPER_DISK_H

#include "common/disk.h"
#include "seed.h"

typedef struct paper_disk {
    sg_disk disk; /* the table; user is this struct */
    struct paper_file *files;
    size_t n_files;
    struct paper_name *names;
    size_t n_names;
    uint64_t n_calls; /* that change something or could */
    /* From this call on (1 is the first) every one fails with `error`; 0: none does. ENOSPC fails only what needs room;
     * others (EROFS, EIO) everything that changes something. */
    uint64_t fails_from;
    int error;
    bool never_syncs; /* it says that it did */
} paper_disk;

void paper_disk_init(paper_disk *paper);
void paper_disk_deinit(paper_disk *paper);
/* The power is lost and comes back: what was not synced is as the seed says; it fails no more. */
void paper_disk_cut_power(paper_disk *paper, sg_seed *seed);
/* Turns over one bit, from now on. */
void paper_disk_flip(paper_disk *paper, const char *path, uint64_t byte);
/* Cuts the file off after n_bytes. */
void paper_disk_truncate(paper_disk *paper, const char *path, uint64_t n_bytes);
/* The bytes of a file, which stay the disk's; NULL: there is none. */
const uint8_t *paper_disk_bytes(const paper_disk *paper, const char *path, size_t *n_bytes);
/* Makes or replaces a file, for good. */
void paper_disk_write(paper_disk *paper, const char *path, const void *data, size_t n_bytes);
/* Calls `each` with every file's path. */
void paper_disk_each(const paper_disk *paper, void (*each)(void *user, const char *path), void *user);

#endif
