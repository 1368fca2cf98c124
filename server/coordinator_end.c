/* server/coordinator_end.c - the job is over: well, by failure, or because a ps was told to stop. Everybody is told,
 * then ps 0 may go. */
#include <stdlib.h>

#include "server/coordinator_internal.h"

static void order_end(sg_coordinator *c, sg_status status, const char *reason)
{
    Shardgrad__V1__End end = SHARDGRAD__V1__END__INIT;
    end.status = (uint32_t)status;
    end.reason = (char *)reason;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_END;
    order.end = &end;
    for (uint32_t i = 0; i < c->n_ps; i++)
        sg_coordinator_orders_clear(c, i);
    sg_coordinator_order_all(c, &order.base);
}

static void begin(sg_coordinator *c, sg_status status, char *take_text)
{
    c->over = true;
    c->over_ms = c->now_ms;
    c->end_status = status;
    free(c->end_text);
    c->end_text = take_text;
}

void sg_coordinator_end_fail(sg_coordinator *c, sg_status status, const char *format, ...)
{
    if (c->over)
        return;
    sg_error line;
    va_list args;
    va_start(args, format);
    sg_status ignored = sg_error_set_v(&line, status, format, args);
    (void)ignored;
    va_end(args);
    begin(c, status, sg_xstrdup(line.message));
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED;
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_log(c, SG_LOG_ERROR, "failed", "status=%s reason=%s", sg_status_name(status),
                       sg_log_quote(c->end_text, quoted, sizeof quoted));
    order_end(c, status, c->end_text);
}

static void stop(sg_coordinator *c, uint32_t ps)
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    begin(c, SG_STOPPED, sg_xprintf("%s was told to stop", sg_coordinator_ps_name(c, ps, name)));
    c->stopped = true;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING;
    sg_coordinator_log(c, SG_LOG_INFO, "stopping", "ps=%" PRIu32, ps);
    order_end(c, SG_STOPPED, c->end_text);
}

void sg_coordinator_end_stop(sg_coordinator *c, uint32_t ps)
{
    if (!c->over && !sg_coordinator_drain_begin(c, true, ps))
        stop(c, ps);
}

/* Steps of group 0 that are finished; async, ssp: of all workers. Tickets are handed out ahead and may be more. */
static uint64_t n_finished(const sg_coordinator *c)
{
    uint64_t sum = 0, most = 0;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        uint64_t finished = c->workers[i].groups == NULL ? 0 : c->workers[i].groups[0].finished;
        sum += finished;
        most = finished > most ? finished : most;
    }
    return sg_coordinator_is_async(c) ? sum : most;
}

static void finish(sg_coordinator *c)
{
    begin(c, SG_STOPPED, sg_xprintf("the job is over: all workers have left"));
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING;
    sg_coordinator_log(c, SG_LOG_INFO, "draining", "steps=%" PRIu64, n_finished(c));
    order_end(c, SG_OK, "");
}

void sg_coordinator_end_consider(sg_coordinator *c)
{
    uint64_t n_left = 0;
    for (uint32_t i = 0; i < c->n_workers; i++)
        n_left += c->workers[i].state == SG_COORDINATOR_WORKER_LEFT;
    /* Before training has started, one that came and went leaves the job waiting as it found it. */
    bool all_came = c->started ? n_left > 0 : n_left >= c->config->workers;
    if (c->over || c->recording || sg_coordinator_losses_held(c) || c->config->linger || !all_came ||
        sg_coordinator_members_n_live(c) > 0 || sg_coordinator_generation_others_may_return(c))
        return;
    if (!sg_coordinator_drain_begin(c, false, 0))
        finish(c);
}

void sg_coordinator_end_drained(sg_coordinator *c, bool told_to_stop, uint32_t ps)
{
    if (told_to_stop)
        stop(c, ps);
    else
        finish(c);
}

bool sg_coordinator_is_over(const sg_coordinator *c)
{
    return c->over;
}

void sg_coordinator_end_answer(sg_coordinator *c, void *call, uint32_t worker)
{
    sg_coordinator_fail(c, call, c->end_status, "%s", c->end_text);
    if (worker < c->n_workers)
        c->workers[worker].told = true;
}

/* --- may ps 0 go? ----------------------------------------------------------------------------------------------- */

static bool all_ps_know(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (sg_coordinator_ps_is_up(&c->ps[i]) && !c->ps[i].ended)
            return false;
    }
    return true;
}

static bool all_workers_know(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (sg_coordinator_members_live(&c->workers[i]) && !c->workers[i].told)
            return false;
    }
    return true;
}

/* How long a ps that does not acknowledge, and yet keeps its lease, is waited for: so that an order which was lost can
 * go again. A stop must be over within shutdown_grace_ms as a whole; a last checkpoint may have taken half of it. */
static uint64_t ps_grace_ms(const sg_coordinator *c)
{
    return c->stopped ? c->config->shutdown_grace_ms / (c->drain.stop ? 8 : 2) : 2 * c->config->lease_ms;
}

static uint64_t workers_grace_ms(const sg_coordinator *c)
{
    return c->stopped ? c->config->shutdown_grace_ms / (c->drain.stop ? 8 : 4) : c->config->shutdown_grace_ms;
}

void sg_coordinator_end_advance(sg_coordinator *c)
{
    if (!c->over || c->end_told)
        return;
    if (!c->released) {
        if (!all_ps_know(c) && c->now_ms - c->over_ms < ps_grace_ms(c))
            return;
        c->released = true;
        c->release_ms = c->now_ms;
    }
    /* Workers learn it by their next call: keep answering for a moment. */
    if (!all_workers_know(c) && c->now_ms - c->release_ms < workers_grace_ms(c))
        return;
    c->end_told = true;
    if (c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING)
        c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_DONE;
    bool failed = c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED;
    sg_coordinator_exit(c, failed ? c->end_status : SG_OK, failed ? c->end_text : "");
}
