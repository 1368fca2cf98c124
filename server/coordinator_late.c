/* server/coordinator_late.c - how late the coordinator hears what it is told.
 *
 * Nobody is lost because it did not get to listen: be it that its loop stood still, or that requests come faster than
 * they are served and wait their turn. ps 0 tells which: it lives in the same process, and its registrations wait with
 * all other requests. While one of them is overdue no lease runs. If that lasts for as long as a start may take, the
 * job serves nobody any more: leases run again, and that of ps 0, which runs out, names it. */
#include "server/coordinator_internal.h"

/* A registration comes every third of a lease; a tick may be late, and the way takes time. */
#define SLACK_MS (3 * SG_COORDINATOR_TICK_MS)

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void sg_coordinator_late_heard(sg_coordinator *c)
{
    sg_coordinator_late *late = &c->late;
    if (late->said_ms > 0)
        sg_coordinator_log(c, SG_LOG_INFO, "requests_in_time", "late_ms=%" PRIu64, late->total_ms);
    *late = (sg_coordinator_late){.heard_ms = c->now_ms};
}

static void say(sg_coordinator *c)
{
    sg_coordinator_late *late = &c->late;
    uint64_t patience_ms = least(c->config->warn_after_ms, c->config->lease_ms);
    if (late->total_ms < (late->said_ms > 0 ? 2 * late->said_ms : patience_ms))
        return;
    late->said_ms = late->total_ms;
    sg_coordinator_log(c, SG_LOG_WARN, "requests_late",
                       "late_ms=%" PRIu64 " at_most_ms=%" PRIu64
                       " reason=\"ps 0 did not get to answer itself: requests come faster than it serves them\"",
                       late->total_ms, c->config->start_timeout_ms);
}

/* Of the time since the last tick, in which a registration of ps 0 was overdue. */
static uint64_t requests_late_ms(sg_coordinator *c)
{
    sg_coordinator_late *late = &c->late;
    uint64_t due_ms = late->heard_ms + c->config->lease_ms / 3 + SLACK_MS;
    if (c->over || c->ps[0].state != SG_COORDINATOR_PS_UP || c->now_ms <= due_ms)
        return 0;
    uint64_t ms = least(c->now_ms - due_ms, c->now_ms - c->ticked_ms);
    ms = least(ms, c->config->start_timeout_ms - least(late->total_ms, c->config->start_timeout_ms));
    late->total_ms += ms;
    say(c);
    return ms;
}

uint64_t sg_coordinator_late_ms(sg_coordinator *c)
{
    if (!c->ticked)
        return 0;
    uint64_t gap_ms = c->now_ms - c->ticked_ms;
    uint64_t loop_ms = gap_ms > 2 * SG_COORDINATOR_TICK_MS ? gap_ms - SG_COORDINATOR_TICK_MS : 0;
    c->late.heard_ms = sg_coordinator_put_off(c, c->late.heard_ms, loop_ms); /* nor did ps 0 get to register */
    uint64_t requests_ms = requests_late_ms(c);
    return requests_ms > loop_ms ? requests_ms : loop_ms;
}
