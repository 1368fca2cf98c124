/* server/coordinator_drain.c - before the job ends, or stops as it was told to: no step is begun any more, and a last
 * checkpoint is made of all that was trained. */
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

bool sg_coordinator_is_at_work(const sg_coordinator *c)
{
    return sg_coordinator_is_running(c) || c->drain.on;
}

/* It is given up then: half of the grace is for what is begun and for writing, and writing gets as much as ever. */
static void set_by(sg_coordinator *c)
{
    c->drain.by_ms = c->drain.since_ms + c->config->shutdown_grace_ms / 2 + c->drain.lagged_ms;
}

bool sg_coordinator_drain_begin(sg_coordinator *c, bool stop, uint32_t ps)
{
    if (!sg_coordinator_save_due(c) || !sg_coordinator_is_at_work(c) || !c->save.complete)
        return false;
    sg_coordinator_change_interrupt(c, SG_STOPPED, "the job is about to end: nothing is changed any more");
    if (!c->drain.on && !sg_coordinator_save_is_up_to_date(c))
        sg_coordinator_log(c, SG_LOG_INFO, "saving", "iteration=%" PRIu64 " reason=%s",
                           sg_coordinator_save_end_iteration(c), stop ? "told_to_stop" : "all_workers_left");
    if (stop && !c->drain.stop) {
        c->drain.stop = true;
        c->drain.ps = ps;
        c->drain.since_ms = c->now_ms;
        set_by(c);
    }
    c->drain.on = true;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING;
    return true;
}

/* Time for those who were told to stop along with the ps: they leave at once, and what they did not push is in no
 * checkpoint. Groups that lag get as much again. */
static uint64_t patience_ms(const sg_coordinator *c)
{
    return c->config->shutdown_grace_ms / 8;
}

bool sg_coordinator_drain_waits(const sg_coordinator *c)
{
    if (!c->drain.stop || !sg_coordinator_losses_any_member(c))
        return false;
    const bool lags = !sg_coordinator_is_async(c) && sg_coordinator_lag_any(c);
    return c->now_ms - c->drain.since_ms < (lags ? 2 : 1) * patience_ms(c);
}

void sg_coordinator_drain_close(sg_coordinator *c)
{
    const uint64_t waited_ms = c->now_ms - c->drain.since_ms, patience = patience_ms(c);
    if (c->drain.stop && !c->drain.closed && waited_ms > patience)
        c->drain.lagged_ms = waited_ms - patience < patience ? waited_ms - patience : patience;
    c->drain.closed = true;
    set_by(c);
}

/* It has come to its end, perhaps without one: then there is a reason, else "". */
static void end(sg_coordinator *c, const char *reason)
{
    char quoted[SG_ERROR_MESSAGE_BYTES + 16];
    if (reason[0] != '\0' ? !sg_coordinator_save_is_up_to_date(c) : sg_coordinator_save_lacks(c))
        sg_coordinator_log(c, SG_LOG_WARN, "no_checkpoint", "iteration=%" PRIu64 " newest=%" PRIu64 " reason=%s",
                           c->frozen, c->save.iteration, sg_log_quote(reason, quoted, sizeof quoted));
    c->drain.on = false;
    c->drain.tried = false;
    sg_coordinator_end_drained(c, c->drain.stop, c->drain.ps);
}

/* Nobody would make again what it took with it. */
bool sg_coordinator_drain_give_up(sg_coordinator *c, const char *why)
{
    if (!c->drain.on || (!c->drain.stop && sg_coordinator_members_n_live(c) > 0))
        return false;
    c->save.phase = SG_COORDINATOR_SAVE_IDLE;
    end(c, why);
    return true;
}

bool sg_coordinator_drain_advance(sg_coordinator *c)
{
    const sg_coordinator_save *save = &c->save;
    bool late = c->drain.stop && c->now_ms >= c->drain.by_ms;
    bool done = save->phase == SG_COORDINATOR_SAVE_IDLE && (sg_coordinator_save_is_up_to_date(c) || c->drain.tried);
    if (!late && !done)
        return false;
    char text[SG_ERROR_MESSAGE_BYTES];
    const char *reason = late ? sg_coordinator_save_waits_for(c, text) : save->failed ? save->failure : "";
    if (late)
        c->save.phase = SG_COORDINATOR_SAVE_IDLE;
    end(c, reason);
    return true;
}

void sg_coordinator_drain_extend(sg_coordinator *c, uint64_t late_ms)
{
    c->drain.since_ms = sg_coordinator_put_off(c, c->drain.since_ms, late_ms);
    set_by(c);
}

bool sg_coordinator_drain_call_off(sg_coordinator *c)
{
    if (!c->drain.on || c->drain.stop || sg_coordinator_members_n_live(c) == 0)
        return false;
    c->drain.on = c->drain.tried = c->drain.closed = false;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
    return true;
}
