/* server/coordinator_leases.c - workers that are in: heartbeats, leases, and how they leave. */
#include "server/coordinator_internal.h"

void sg_coordinator_leases_report(sg_coordinator *c, sg_coordinator_worker *worker, float loss, uint64_t examples)
{
    if (examples == 0)
        return;
    worker->loss = loss;
    worker->examples += examples;
    c->examples += examples;
}

/* --- heartbeat, leave ------------------------------------------------------------------------------------------- */

void sg_coordinator_leases_heartbeat(sg_coordinator *c, void *call)
{
    Shardgrad__V1__HeartbeatResponse response = SHARDGRAD__V1__HEARTBEAT_RESPONSE__INIT;
    response.generation = c->generation;
    response.live_workers = sg_coordinator_members_n_live(c);
    response.draining = c->over || c->drain.on;
    sg_coordinator_reply(c, call, &response.base);
}

/* pushed[group] as the request says it; groups that it does not name: nothing was pushed. */
static sg_status read_progress(const sg_coordinator *c, const sg_coordinator_worker *worker,
                               const Shardgrad__V1__LeaveRequest *request, uint64_t pushed[SG_COORDINATOR_MAX_GROUPS],
                               sg_error *err)
{
    memset(pushed, 0, SG_COORDINATOR_MAX_GROUPS * sizeof *pushed);
    for (size_t i = 0; i < request->n_progress; i++) {
        const Shardgrad__V1__GroupProgress *progress = request->progress[i];
        if (progress->group >= c->n_groups)
            return sg_error_set(err, SG_INVALID, "leave names group %" PRIu32 ", the job has %" PRIu32, progress->group,
                                c->n_groups);
        uint64_t granted = worker->groups == NULL ? 0 : worker->groups[progress->group].granted;
        if (progress->pushed > granted)
            return sg_error_set(err, SG_INVALID,
                                "leave says that %" PRIu64 " steps of group %" PRIu32 " were pushed, but tickets went "
                                "only up to %" PRIu64,
                                progress->pushed, progress->group, granted);
        if (progress->pushed > pushed[progress->group])
            pushed[progress->group] = progress->pushed;
    }
    return SG_OK;
}

/* How many of its tickets it had begun to push. */
static uint64_t n_begun(const sg_coordinator_worker *worker, uint32_t group, Shardgrad__V1__GroupProgress *const *list,
                        size_t n)
{
    const uint64_t granted = worker->groups[group].granted;
    uint64_t begun = granted;
    for (size_t i = 0; i < n; i++) {
        const Shardgrad__V1__GroupProgress *progress = list[i];
        bool says = progress->begun_presence_case != SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE__NOT_SET;
        if (progress->group == group && says && progress->begun < begun)
            begun = progress->begun > progress->pushed ? progress->begun : progress->pushed;
    }
    return begun < granted ? begun : granted;
}

void sg_coordinator_leases_note_begun(sg_coordinator *c, sg_coordinator_worker *worker,
                                      Shardgrad__V1__GroupProgress *const *list, size_t n)
{
    for (uint32_t group = 0; worker->groups != NULL && group < c->n_groups; group++)
        worker->groups[group].unbegun = worker->groups[group].granted - n_begun(worker, group, list, n);
}

/* For the last checkpoint. One that rested was taken for one that had finished all. */
static void take_begun(sg_coordinator *c, uint32_t index, const Shardgrad__V1__LeaveRequest *request)
{
    sg_coordinator_worker *worker = &c->workers[index];
    sg_coordinator_leases_note_begun(c, worker, request->progress, request->n_progress);
    for (uint32_t group = 0; worker->groups != NULL && group < c->n_groups; group++) {
        const uint64_t begun = worker->groups[group].granted - worker->groups[group].unbegun;
        if (worker->resting && begun > worker->groups[group].finished)
            worker->in_cut = worker->in_newest = 0;
        sg_coordinator_steps_begun(c, group, index, begun);
    }
}

void sg_coordinator_leases_leave(sg_coordinator *c, sg_coordinator_worker *worker,
                                 const Shardgrad__V1__LeaveRequest *request, void *call)
{
    uint64_t pushed[SG_COORDINATOR_MAX_GROUPS];
    sg_error err;
    if (read_progress(c, worker, request, pushed, &err) != SG_OK) {
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    uint32_t index = sg_coordinator_index(c, worker);
    take_begun(c, index, request);
    for (size_t i = 0; worker->groups != NULL && i < request->n_progress; i++) {
        const Shardgrad__V1__GroupProgress *progress = request->progress[i];
        if (worker->groups[progress->group].finished >= progress->pushed)
            continue;
        worker->groups[progress->group].finished = progress->pushed; /* it asked for no ticket since */
        sg_coordinator_leases_report(c, worker, progress->loss, progress->examples);
        sg_coordinator_evaluations_take(c, index, progress->evaluation);
    }
    worker->state = SG_COORDINATOR_WORKER_LEFT;
    sg_coordinator_members_fence(c, index, pushed);
    sg_coordinator_losses_left(c, index);
    sg_coordinator_log(c, SG_LOG_INFO, "left", "worker=%" PRIu32 " was=%s live=%" PRIu32, index,
                       worker->address[0] == '\0' ? "-" : worker->address, sg_coordinator_members_n_live(c));
    Shardgrad__V1__LeaveResponse response = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    sg_coordinator_reply(c, call, &response.base);
    sg_coordinator_end_consider(c);
}

/* The answer may be on its way, or its worker admitted already. */
void sg_coordinator_leases_withdraw(sg_coordinator *c, uint64_t life, void *call)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        sg_coordinator_worker *worker = &c->workers[i];
        if (worker->life != life || worker->called || !sg_coordinator_members_live(worker))
            continue;
        if (worker->state == SG_COORDINATOR_WORKER_JOINED) {
            Shardgrad__V1__LeaveRequest nothing = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
            sg_coordinator_leases_leave(c, worker, &nothing, call);
            return;
        }
        worker->state = SG_COORDINATOR_WORKER_WAITING;
        sg_coordinator_log(c, SG_LOG_INFO, "withdrew", "worker=%" PRIu32, i);
        sg_coordinator_end_consider(c);
    }
    Shardgrad__V1__LeaveResponse response = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
    sg_coordinator_reply(c, call, &response.base);
}

/* --- leases ----------------------------------------------------------------------------------------------------- */

void sg_coordinator_leases_extend(sg_coordinator *c, uint64_t late_ms)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        c->workers[i].heard_ms = sg_coordinator_put_off(c, c->workers[i].heard_ms, late_ms);
        c->workers[i].gave_up_ms = sg_coordinator_put_off(c, c->workers[i].gave_up_ms, late_ms);
    }
}

void sg_coordinator_leases_tick(sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_workers && !c->over; i++) {
        sg_coordinator_worker *worker = &c->workers[i];
        uint64_t silent_ms = c->now_ms - worker->heard_ms;
        /* No heartbeats come before hello is answered: only its repeats, when the parked one was answered. */
        bool says_hello = worker->state == SG_COORDINATOR_WORKER_HELLO || worker->gives_up;
        if (silent_ms < c->config->lease_ms + (says_hello ? c->config->park_ms : 0))
            continue;
        if (worker->state == SG_COORDINATOR_WORKER_JOINED) {
            sg_coordinator_losses_lose(c, i);
        } else if (worker->state == SG_COORDINATOR_WORKER_HELLO) {
            worker->state = SG_COORDINATOR_WORKER_WAITING;
            sg_coordinator_end_consider(c);
        }
    }
}
