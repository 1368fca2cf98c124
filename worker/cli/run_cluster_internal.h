/* worker/cli/run_cluster_internal.h - what the run_cluster*.c files share, and nobody else. Everything on the thread of
 * the loop, but where it says so. */
#ifndef SG_WORKER_CLI_RUN_CLUSTER_INTERNAL_H
#define SG_WORKER_CLI_RUN_CLUSTER_INTERNAL_H

#include <uv.h>

#include "worker/cli/restart.h"
#include "worker/cli/run.h"
#include "worker/cli/run_heard.h"
#include "worker/cli/status_query.h"
#include "worker/cli/supervisor.h"

typedef struct sg_run_cluster_state {
    sg_run *run;
    const sg_config *config;
    uv_loop_t loop;
    uv_signal_t signals[3];
    uv_timer_t poll, ps_end, workers_end;
    sg_supervisor *supervisor;
    sg_restart restart;
    size_t n_workers_alive; /* that did not end well yet */
    bool ps_restarted;      /* a ps was started anew, and no step was seen to be finished since */
    uint64_t steps;         /* finished, as last seen */
    int signal_number;      /* the first that came; 0: none */
    uint64_t told_ms;       /* when it was told what the ps still do after the last worker; 0: never */
    uint64_t tested;        /* 1 + the iteration of the newest test that was told of; 0: none */
    char ended_ps[32];      /* the first that ended well while workers still ran; "": none */
    sg_run_heard heard;
    sg_error end; /* why the run was ended from here, by its code; SG_OK: it was not */

    uv_work_t asking;
    bool is_asking;
    sg_status_query *query;
    sg_status ask_status;
    Shardgrad__V1__StatusResponse *response;
} sg_run_cluster_state;

/* --- run_cluster_watch.c: what becomes of the processes ------------------------------------------------------------
 */

/* Makes the supervisor, whose children hold shared_fd. */
void sg_run_cluster_watch(sg_run_cluster_state *c, int shared_fd);
/* All workers are done, and what is left is the last checkpoint. ps 0 says whether it was made, and ends the job if
 * another ps is lost. */
bool sg_run_cluster_is_at_its_end(const sg_run_cluster_state *c);
/* From now on the ps get their time to end by themselves; after it they are told to. */
void sg_run_cluster_await_ps_end(sg_run_cluster_state *c);

/* --- run_cluster_status.c: what the coordinator says of the job -----------------------------------------------------
 */

/* For the timer `poll`: asks it, on libuv's pool, and shows what it answers. */
void sg_run_cluster_poll(uv_timer_t *timer);

/* --- run_cluster_end.c ----------------------------------------------------------------------------------------------
 */

/* Says how it ended; returns the exit code. */
int sg_run_cluster_conclude(sg_run_cluster_state *c, sg_status start_status, sg_error *err);

#endif
