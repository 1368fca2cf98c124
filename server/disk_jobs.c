/* server/disk_jobs.c - see disk_jobs.h. */
#include "server/disk_jobs.h"

#include <stdlib.h>

#include "common/clock.h"
#include "common/status.h"

struct sg_disk_jobs {
    uv_loop_t *loop;
    STAILQ_HEAD(, sg_disk_job) queue;
    bool working; /* at the first of them */
    bool closed;
};

sg_disk_jobs *sg_disk_jobs_create(uv_loop_t *loop)
{
    sg_disk_jobs *jobs = sg_xcalloc(1, sizeof *jobs);
    jobs->loop = loop;
    STAILQ_INIT(&jobs->queue);
    return jobs;
}

static void on_pool(uv_work_t *work)
{
    sg_disk_job *job = SG_CONTAINER_OF(work, sg_disk_job, work);
    job->run(job);
}

static void begin_next(sg_disk_jobs *jobs);

static void on_done(uv_work_t *work, int status)
{
    sg_disk_job *job = SG_CONTAINER_OF(work, sg_disk_job, work);
    sg_disk_jobs *jobs = job->jobs;
    SG_ASSERT(status == 0); /* nothing is cancelled by uv_cancel */
    jobs->working = false;
    STAILQ_REMOVE_HEAD(&jobs->queue, link);
    job->end(job);
    begin_next(jobs);
}

static void begin_next(sg_disk_jobs *jobs)
{
    sg_disk_job *job = STAILQ_FIRST(&jobs->queue);
    if (job == NULL || jobs->working || jobs->closed)
        return;
    jobs->working = true;
    job->began_ms = sg_clock_ms();
    int failed = uv_queue_work(jobs->loop, &job->work, on_pool, on_done);
    SG_ASSERT(failed == 0); /* it fails only without a callback */
}

void sg_disk_jobs_add(sg_disk_jobs *jobs, sg_disk_job *job)
{
    job->jobs = jobs;
    STAILQ_INSERT_TAIL(&jobs->queue, job, link);
    begin_next(jobs);
}

void sg_disk_jobs_close(sg_disk_jobs *jobs)
{
    jobs->closed = true;
}

void sg_disk_jobs_destroy(sg_disk_jobs *jobs)
{
    if (jobs == NULL)
        return;
    SG_ASSERT(!jobs->working);
    while (!STAILQ_EMPTY(&jobs->queue)) {
        sg_disk_job *job = STAILQ_FIRST(&jobs->queue);
        STAILQ_REMOVE_HEAD(&jobs->queue, link);
        job->end(job);
    }
    free(jobs);
}
