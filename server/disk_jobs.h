/* server/disk_jobs.h - what a ps does with the files of checkpoints: one thing after another, on libuv's pool.
 *
 * One queue for all of it: a record says which checkpoints may be used while another thing would remove or complete
 * them, so the two must never be done at once.
 *
 * Threads: all the loop's, but for `run`. */
#ifndef SG_SERVER_DISK_JOBS_H
#define SG_SERVER_DISK_JOBS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <uv.h>

typedef struct sg_disk_jobs sg_disk_jobs;

/* One thing to be done; part of what it is about. Zeroed but for the two functions. */
typedef struct sg_disk_job {
    STAILQ_ENTRY(sg_disk_job) link;
    sg_disk_jobs *jobs;
    uv_work_t work;
    uint64_t began_ms;                    /* when `run` was about to be called */
    void (*run)(struct sg_disk_job *job); /* on the pool; may block */
    /* Afterwards, on the loop: it is the caller's again, to be freed. Without `run` before where the jobs were closed.
     */
    void (*end)(struct sg_disk_job *job);
} sg_disk_job;

sg_disk_jobs *sg_disk_jobs_create(uv_loop_t *loop);
/* It is done when all that were added before are. */
void sg_disk_jobs_add(sg_disk_jobs *jobs, sg_disk_job *job);
/* None is begun any more. The loop must run until the one under way is done. */
void sg_disk_jobs_close(sg_disk_jobs *jobs);
/* After the loop has run to its end; ends those that were not begun. NULL is fine. */
void sg_disk_jobs_destroy(sg_disk_jobs *jobs);

#endif
