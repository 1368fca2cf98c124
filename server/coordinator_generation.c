/* server/coordinator_generation.c - generations: each is one uninterrupted life of the job's state.
 *
 * A ps that is lost takes a part of the state with it. Then the next generation begins: every ps drops what it has,
 * every worker is told ROLLED_BACK and says hello again, and the job goes on from where it can. Before training has
 * started that is the beginning: workers declare again. */
#include <stdlib.h>

#include "server/coordinator_internal.h"

#define GENERATION_SHIFT 32u /* of an incarnation */

uint64_t sg_coordinator_generation_of(uint64_t incarnation)
{
    return incarnation >> GENERATION_SHIFT;
}

bool sg_coordinator_generation_may_follow(const sg_coordinator *c)
{
    return !c->started;
}

/* Calls of the generation before are not answered in this one; hellos go on to wait. */
static void answer_passed(sg_coordinator *c)
{
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (call->kind != SG_COORDINATOR_PARKED_HELLO) {
            sg_coordinator_fail(c, call->call, SG_ROLLED_BACK,
                                "the job is in generation %" PRIu64 " now: say hello again", c->generation);
            sg_coordinator_unpark(c, call);
        }
        call = next;
    }
}

static void forget_init(sg_coordinator *c)
{
    c->has_initializer = c->sealing = c->committing = false;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_ps *ps = &c->ps[i];
        ps->attempt = ps->sealed = 0;
        ps->seal_ordered = ps->committed = false;
    }
}

static void order_begin(sg_coordinator *c, uint32_t ps)
{
    Shardgrad__V1__Begin begin = SHARDGRAD__V1__BEGIN__INIT;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_BEGIN;
    order.begin = &begin;
    sg_coordinator_order(c, ps, &order.base);
}

/* A ps that missed no order of its generation has only to be told who was let in meanwhile. */
void sg_coordinator_generation_order(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_ps *ps = &c->ps[index];
    if (ps->generation != c->generation) {
        if (ps->generation != 0)
            order_begin(c, index);
        sg_coordinator_order_hyper(c, index);
        sg_coordinator_init_order_declare(c, index);
        ps->generation = c->generation;
    }
    sg_coordinator_ps_admit_all(c, index);
}

void sg_coordinator_generation_ready(sg_coordinator *c)
{
    if (c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS && sg_coordinator_ps_complete(c))
        c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES;
}

static bool is_up(const sg_coordinator_ps *ps)
{
    return ps->state == SG_COORDINATOR_PS_UP || ps->state == SG_COORDINATOR_PS_STOPPING;
}

static void enter(sg_coordinator *c, uint64_t generation)
{
    c->generation = generation;
    c->entered_ms = c->now_ms;
    c->started = false;
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS;
    sg_coordinator_losses_clear(c);
    sg_coordinator_steps_clear(c);
    sg_coordinator_save_reset(c);
    forget_init(c);
    answer_passed(c);
    for (uint32_t i = 0; i < c->n_workers; i++)
        sg_coordinator_members_recall(c, i);
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_orders_clear(c, i);
        if (is_up(&c->ps[i]))
            sg_coordinator_generation_order(c, i);
    }
    sg_coordinator_generation_ready(c);
}

void sg_coordinator_generation_next(sg_coordinator *c, uint64_t least, const char *why)
{
    uint64_t next = (least > c->generation ? least : c->generation) + 1;
    char quoted[2 * SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_log(c, SG_LOG_WARN, "generation", "begins=%" PRIu64 " reason=%s", next,
                       sg_log_quote(why, quoted, sizeof quoted));
    enter(c, next);
}

/* A ps that was lost must come back within the time that it had to come at all. */
void sg_coordinator_generation_tick(sg_coordinator *c)
{
    if (c->over || c->entered_ms == 0 || sg_coordinator_ps_complete(c) ||
        c->now_ms - c->entered_ms < c->config->start_timeout_ms)
        return;
    char name[SG_COORDINATOR_TEXT_BYTES];
    uint32_t missing = 0;
    while (c->ps[missing].state != SG_COORDINATOR_PS_WAITING)
        missing++;
    sg_coordinator_end_fail(c, SG_PEER_LOST,
                            "%s was lost and did not come back within %" PRIu64 " ms: look at its log, then start the "
                            "job again",
                            sg_coordinator_ps_name(c, missing, name), c->config->start_timeout_ms);
}
