/* server/coordinator_clocks.c - ssp: how far workers may run ahead of each other.
 *
 * The clock of a worker in a group is the number of its tickets that it has finished, counted on from the slowest clock
 * at the moment when it first asked: a joiner holds nobody back. It gets a ticket while its clock is at most
 * `staleness` above the slowest. Only those count who may still push: one that has left, is lost or rests holds nobody
 * back, and neither does one that has not asked for a ticket of the group. */
#include "server/coordinator_internal.h"

uint64_t sg_coordinator_clocks_of(const sg_coordinator_progress *progress)
{
    return progress->clock_from + progress->finished;
}

static bool counts(const sg_coordinator_worker *worker, uint32_t group)
{
    return worker->state == SG_COORDINATOR_WORKER_JOINED && !worker->resting && worker->groups != NULL &&
           worker->groups[group].asked;
}

/* The worker whose clock is the slowest, the lowest index of several; n_workers: nobody counts. */
static uint32_t find_slowest(const sg_coordinator *c, uint32_t group)
{
    uint32_t slowest = c->n_workers;
    uint64_t clock = UINT64_MAX;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (!counts(&c->workers[i], group) || sg_coordinator_clocks_of(&c->workers[i].groups[group]) >= clock)
            continue;
        slowest = i;
        clock = sg_coordinator_clocks_of(&c->workers[i].groups[group]);
    }
    return slowest;
}

uint64_t sg_coordinator_clocks_start(const sg_coordinator *c, uint32_t group)
{
    uint32_t slowest = find_slowest(c, group);
    return slowest == c->n_workers ? c->groups[group].clock
                                   : sg_coordinator_clocks_of(&c->workers[slowest].groups[group]);
}

bool sg_coordinator_clocks_grant(sg_coordinator *c, uint32_t worker, uint32_t group)
{
    sg_coordinator_progress *progress = &c->workers[worker].groups[group];
    const uint64_t slowest = sg_coordinator_clocks_start(c, group), clock = sg_coordinator_clocks_of(progress);
    /* Below it: a worker that asked and then said that it rests. */
    const uint64_t lag = clock > slowest ? clock - slowest : 0;
    if (lag > c->config->update.staleness)
        return false;
    progress->lag = lag;
    c->groups[group].clock = slowest;
    return true;
}

const char *sg_coordinator_clocks_waiting(const sg_coordinator *c, const sg_coordinator_parked *call,
                                          char out[SG_ERROR_MESSAGE_BYTES])
{
    uint32_t group = call->ask.group, slowest = find_slowest(c, group);
    if (c->config->update.mode != SG_MODE_SSP || slowest == c->n_workers || slowest == call->worker)
        return NULL;
    uint64_t behind = sg_coordinator_clocks_of(&c->workers[slowest].groups[group]),
             clock = sg_coordinator_clocks_of(&c->workers[call->worker].groups[group]);
    if (clock < behind)
        return NULL;
    char name[SG_COORDINATOR_TEXT_BYTES];
    snprintf(out, SG_ERROR_MESSAGE_BYTES,
             "waiting for %s, which is %" PRIu64 " steps of group %" PRIu32 " behind worker %" PRIu32
             " (update.staleness is %" PRIu64 ")",
             sg_coordinator_worker_name(c, slowest, name), clock - behind, group, call->worker,
             c->config->update.staleness);
    return out;
}
