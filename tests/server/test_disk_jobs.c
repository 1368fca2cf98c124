#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "common/status.h"
#include "server/disk_jobs.h"

TestSuite(disk_jobs, .timeout = 60);

/* Jobs that count how many of them are being done. */
typedef struct world {
    uv_loop_t loop;
    sg_disk_jobs *jobs;
    _Atomic int running, most;
    size_t n_run, n_ended;
    int order[16];
} world;

typedef struct job {
    sg_disk_job on_disk;
    world *world;
    int number;
} job;

static void run(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    world *w = j->world;
    int n = atomic_fetch_add(&w->running, 1) + 1;
    if (n > atomic_load(&w->most))
        atomic_store(&w->most, n);
    for (int i = 0; i < 1000; i++) /* somebody else's turn, if they had one */
        sched_yield();
    w->order[w->n_run++] = j->number; /* with no other lock: the queue is what makes this safe */
    atomic_fetch_sub(&w->running, 1);
}

static void end(sg_disk_job *on_disk)
{
    job *j = SG_CONTAINER_OF(on_disk, job, on_disk);
    j->world->n_ended++;
    free(j);
}

static sg_disk_job *add(world *w, int number)
{
    job *j = sg_xcalloc(1, sizeof *j);
    *j = (job){.on_disk = {.run = run, .end = end}, .world = w, .number = number};
    sg_disk_jobs_add(w->jobs, &j->on_disk);
    return &j->on_disk;
}

static void world_init(world *w)
{
    *w = (world){0};
    cr_assert_eq(uv_loop_init(&w->loop), 0);
    w->jobs = sg_disk_jobs_create(&w->loop);
}

static void world_deinit(world *w)
{
    sg_disk_jobs_destroy(w->jobs);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&w->loop), 0);
}

Test(disk_jobs, one_is_done_at_a_time_in_the_order_in_which_they_came)
{
    world w;
    world_init(&w);
    for (int i = 0; i < 16; i++)
        add(&w, i);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    cr_assert_eq(w.n_ended, 16);
    cr_assert_eq(w.most, 1);
    for (int i = 0; i < 16; i++)
        cr_assert_eq(w.order[i], i);
    world_deinit(&w);
}

Test(disk_jobs, once_they_are_closed_those_that_wait_are_ended_without_being_done)
{
    world w;
    world_init(&w);
    add(&w, 0); /* is begun at once */
    sg_disk_jobs_close(w.jobs);
    for (int i = 1; i < 4; i++)
        add(&w, i);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    cr_assert_eq(w.n_run, 1);
    cr_assert_eq(w.n_ended, 1);
    sg_disk_jobs_destroy(w.jobs);
    cr_assert_eq(w.n_run, 1);
    cr_assert_eq(w.n_ended, 4);
    w.jobs = NULL;
    world_deinit(&w);
}
