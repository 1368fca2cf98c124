/* server/coordinator.c - the coordinator's public calls: check who calls, hand on, settle. */
#include <stdlib.h>

#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* --- life ------------------------------------------------------------------------------------------------------- */

sg_coordinator *sg_coordinator_create(const sg_config *config)
{
    sg_coordinator *c = sg_xcalloc(1, sizeof *c);
    c->config = config;
    c->generation = 1;
    c->is_first = c->started_anew = true;
    sg_coordinator_settings_init(c);
    sg_coordinator_hyper_init(c);
    STAILQ_INIT(&c->actions);
    TAILQ_INIT(&c->parked);
    TAILQ_INIT(&c->losses);
    TAILQ_INIT(&c->iterations);
    for (uint32_t group = 0; group < SG_COORDINATOR_MAX_GROUPS; group++)
        TAILQ_INIT(&c->groups[group].steps);
    c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS;
    c->pool = sg_pool_create();
    c->n_ps = (uint32_t)config->ps.n;
    c->n_workers = (uint32_t)config->max_workers;
    c->ps = sg_xcalloc(c->n_ps, sizeof *c->ps);
    for (uint32_t i = 0; i < c->n_ps; i++) {
        STAILQ_INIT(&c->ps[i].orders);
        c->ps[i].admitted = sg_xcalloc(c->n_workers, sizeof *c->ps[i].admitted);
    }
    c->workers = sg_xcalloc(c->n_workers, sizeof *c->workers);
    for (uint32_t i = 0; i < c->n_workers; i++)
        c->workers[i].address = sg_xstrdup("");
    c->end_text = sg_xstrdup("");
    if (sg_coordinator_save_due(c))
        sg_coordinator_generation_first(c);
    return c;
}

static void destroy_queues(sg_coordinator *c)
{
    for (sg_coordinator_action action; sg_coordinator_next_action(c, &action);)
        sg_coordinator_action_deinit(&action);
    while (!TAILQ_EMPTY(&c->parked))
        sg_coordinator_unpark(c, TAILQ_FIRST(&c->parked));
}

void sg_coordinator_destroy(sg_coordinator *c)
{
    if (c == NULL)
        return;
    destroy_queues(c);
    sg_coordinator_losses_clear(c);
    sg_coordinator_steps_clear(c);
    for (uint32_t i = 0; i < c->n_ps; i++) {
        sg_coordinator_orders_reset(c, i);
        free(c->ps[i].admitted);
        free(c->ps[i].address);
        if (c->ps[i].report != NULL)
            shardgrad__v1__ps_report__free_unpacked(c->ps[i].report, NULL);
    }
    for (uint32_t i = 0; i < c->n_workers; i++) {
        free(c->workers[i].address);
        free(c->workers[i].groups);
    }
    sg_coordinator_settings_deinit(c);
    sg_coordinator_change_deinit(c);
    sg_coordinator_save_deinit(c);
    sg_coordinator_norms_deinit(c);
    sg_coordinator_hyper_deinit(c);
    if (c->variables != NULL)
        shardgrad__v1__declare_request__free_unpacked(c->variables, NULL);
    free(c->ps);
    free(c->workers);
    free(c->end_text);
    sg_pool_destroy(c->pool);
    free(c);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static bool answer(sg_coordinator *c, const sg_coordinator_parked *call)
{
    if (call->kind == SG_COORDINATOR_PARKED_SAVE)
        return sg_coordinator_save_answer(c, call);
    if (call->kind == SG_COORDINATOR_PARKED_SET)
        return sg_coordinator_hyper_answer(c, call);
    if (c->over) {
        sg_coordinator_end_answer(c, call->call, call->worker);
        return true;
    }
    if (call->kind == SG_COORDINATOR_PARKED_NORMS)
        return sg_coordinator_norms_answer(c, call);
    const sg_coordinator_worker *worker = &c->workers[call->worker];
    bool hers = worker->incarnation == call->incarnation;
    if (hers && call->kind == SG_COORDINATOR_PARKED_HELLO && worker->state == SG_COORDINATOR_WORKER_LOST) {
        /* It holds nothing of its lost incarnation any more: when it asks again it gets another. */
        sg_coordinator_fail(c, call->call, SG_WAITING, "worker %" PRIu32 " was given up for lost: ask again",
                            call->worker);
        return true;
    }
    if (!hers || worker->state == SG_COORDINATOR_WORKER_LEFT || worker->state == SG_COORDINATOR_WORKER_LOST) {
        sg_coordinator_fail(
            c, call->call, SG_FENCED,
            "worker %" PRIu32 " was superseded, has left or was given up for lost while its call waited", call->worker);
        return true;
    }
    switch (call->kind) {
    case SG_COORDINATOR_PARKED_HELLO:
        return sg_coordinator_members_answer_hello(c, call);
    case SG_COORDINATOR_PARKED_DECLARE:
        return sg_coordinator_init_answer_declare(c, call);
    case SG_COORDINATOR_PARKED_INITIALIZED:
        return sg_coordinator_init_answer_initialized(c, call);
    case SG_COORDINATOR_PARKED_TICKET:
    case SG_COORDINATOR_PARKED_SAVE:
    case SG_COORDINATOR_PARKED_SET:
    case SG_COORDINATOR_PARKED_NORMS:
        break;
    }
    return sg_coordinator_tickets_answer(c, call);
}

static bool answer_parked(sg_coordinator *c)
{
    bool moved = false;
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (answer(c, call)) {
            sg_coordinator_unpark(c, call);
            moved = true;
        }
        call = next;
    }
    return moved;
}

/* Answers what can be answered and advances what can advance, until nothing moves. */
static void settle(sg_coordinator *c)
{
    bool moved = true;
    while (moved) {
        moved = false;
        if (c->recording && !c->over)
            return; /* nobody is told anything meanwhile */
        if (!c->over) {
            moved |= sg_coordinator_generation_advance(c);
            moved |= sg_coordinator_members_advance(c);
            moved |= sg_coordinator_hyper_advance(c);
            moved |= sg_coordinator_init_advance(c);
            moved |= sg_coordinator_save_advance(c);
            moved |= sg_coordinator_change_advance(c);
            if (c->recording && !c->over)
                return;
            moved |= sg_coordinator_tickets_advance(c);
            moved |= sg_coordinator_losses_advance(c);
        }
        moved |= answer_parked(c);
    }
    sg_coordinator_end_advance(c);
    sg_coordinator_orders_pump(c);
}

static void enter(sg_coordinator *c, uint64_t now_ms)
{
    if (now_ms > c->now_ms)
        c->now_ms = now_ms;
}

void sg_coordinator_on_register(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__RegisterRequest *request,
                                void *call)
{
    enter(c, now_ms);
    sg_coordinator_ps_register(c, request, call);
    settle(c);
}

void sg_coordinator_on_hello(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__HelloRequest *request, void *call)
{
    enter(c, now_ms);
    sg_coordinator_members_hello(c, request, call);
    settle(c);
}

void sg_coordinator_on_declare(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__DeclareRequest *request,
                               void *call)
{
    enter(c, now_ms);
    sg_coordinator_worker *worker = sg_coordinator_known(c, call, request->incarnation, request->generation);
    if (worker != NULL)
        sg_coordinator_init_declare(c, worker, request, call);
    settle(c);
}

void sg_coordinator_on_initialized(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__InitializedRequest *request,
                                   void *call)
{
    enter(c, now_ms);
    sg_coordinator_worker *worker = sg_coordinator_known(c, call, request->incarnation, request->generation);
    if (worker != NULL)
        sg_coordinator_init_initialized(c, worker, request, call);
    settle(c);
}

void sg_coordinator_on_ticket(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__TicketRequest *request,
                              void *call)
{
    enter(c, now_ms);
    sg_coordinator_worker *worker = sg_coordinator_known(c, call, request->incarnation, request->generation);
    if (worker != NULL)
        sg_coordinator_tickets_ask(c, worker, request, call);
    settle(c);
}

/* Of a worker that was too late, and has not got the answer to its hello yet: it keeps its lease. */
static bool is_of_given_up(sg_coordinator *c, uint64_t incarnation)
{
    for (uint32_t i = 0; i < c->n_workers && incarnation != 0 && !c->over; i++) {
        if (c->workers[i].given_up != incarnation)
            continue;
        if (c->workers[i].state == SG_COORDINATOR_WORKER_HELLO)
            c->workers[i].heard_ms = c->now_ms;
        return sg_coordinator_members_live(&c->workers[i]);
    }
    return false;
}

void sg_coordinator_on_heartbeat(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__HeartbeatRequest *request,
                                 void *call)
{
    enter(c, now_ms);
    uint32_t index = sg_coordinator_find_incarnation(c, request->incarnation);
    bool left = index < c->n_workers && c->workers[index].state == SG_COORDINATOR_WORKER_LEFT && !c->over;
    left = left || is_of_given_up(c, request->incarnation);
    /* A heartbeat that was overtaken by its worker's goodbye must not sound like trouble. */
    sg_coordinator_worker *worker =
        left ? NULL : sg_coordinator_known(c, call, request->incarnation, request->generation);
    if (worker != NULL && request->resting)
        worker->resting = true;
    if (left || worker != NULL)
        sg_coordinator_leases_heartbeat(c, call);
    settle(c);
}

void sg_coordinator_on_leave(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__LeaveRequest *request, void *call)
{
    enter(c, now_ms);
    uint32_t index = sg_coordinator_find_incarnation(c, request->incarnation);
    bool unheard = request->incarnation == 0 && request->life != 0;
    bool left = index < c->n_workers && c->workers[index].state == SG_COORDINATOR_WORKER_LEFT;
    if (unheard) {
        if (sg_coordinator_takes(c, call, c->n_workers))
            sg_coordinator_leases_withdraw(c, request->life, call);
    } else if (left || (c->stopped && index < c->n_workers)) {
        /* A repeat; or everybody is to leave, so that one need not say how far it came. */
        if (!left)
            c->workers[index].state = SG_COORDINATOR_WORKER_LEFT;
        Shardgrad__V1__LeaveResponse response = SHARDGRAD__V1__LEAVE_RESPONSE__INIT;
        sg_coordinator_reply(c, call, &response.base);
    } else {
        sg_coordinator_worker *worker = sg_coordinator_known(c, call, request->incarnation, request->generation);
        if (worker != NULL)
            sg_coordinator_leases_leave(c, worker, request, call);
    }
    settle(c);
}

void sg_coordinator_on_norms(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__NormsRequest *request, void *call)
{
    enter(c, now_ms);
    sg_coordinator_norms_ask(c, request, call);
    settle(c);
}

void sg_coordinator_on_save(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__SaveRequest *request, void *call)
{
    enter(c, now_ms);
    sg_coordinator_save_ask_for(c, request, call);
    settle(c);
}

void sg_coordinator_on_written(sg_coordinator *c, uint64_t now_ms, sg_checkpoint_set set, sg_status status,
                               const char *message)
{
    enter(c, now_ms);
    if (!c->over && set.generation == c->generation)
        sg_coordinator_save_written(c, set.iteration, status, sg_coordinator_text(message));
    settle(c);
}

void sg_coordinator_on_status(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__StatusRequest *request,
                              void *call)
{
    (void)request;
    enter(c, now_ms);
    sg_coordinator_status_answer(c, call);
}

void sg_coordinator_on_set(sg_coordinator *c, uint64_t now_ms, const Shardgrad__V1__SetRequest *request, void *call)
{
    enter(c, now_ms);
    sg_coordinator_hyper_set(c, request, call);
    settle(c);
}

void sg_coordinator_on_ordered(sg_coordinator *c, uint64_t now_ms, uint32_t ps, uint64_t life, sg_status status,
                               const char *message, const Shardgrad__V1__OrderResponse *response)
{
    enter(c, now_ms);
    SG_ASSERT(ps < c->n_ps);
    sg_coordinator_orders_result(c, ps, life, status, sg_coordinator_text(message), response);
    settle(c);
}

void sg_coordinator_on_recorded(sg_coordinator *c, uint64_t now_ms, const sg_coordinator_recorded *recorded)
{
    enter(c, now_ms);
    sg_coordinator_generation_recorded(c, recorded);
    settle(c);
}

/* --- time ------------------------------------------------------------------------------------------------------- */

uint64_t sg_coordinator_put_off(const sg_coordinator *c, uint64_t ms, uint64_t late_ms)
{
    return c->now_ms - ms > late_ms ? ms + late_ms : c->now_ms;
}

/* Nobody is lost because the coordinator itself did not get to listen. */
static void extend_leases(sg_coordinator *c)
{
    uint64_t late_ms = sg_coordinator_late_ms(c);
    if (late_ms == 0)
        return;
    sg_coordinator_ps_extend(c, late_ms);
    sg_coordinator_leases_extend(c, late_ms);
    sg_coordinator_losses_extend(c, late_ms);
    sg_coordinator_generation_extend(c, late_ms);
    sg_coordinator_change_extend(c, late_ms);
    sg_coordinator_drain_extend(c, late_ms);
}

static void answer_waiting(sg_coordinator *c)
{
    char text[SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (c->now_ms >= call->until_ms || sg_coordinator_change_hurries(c, call)) {
            sg_coordinator_fail(c, call->call, SG_WAITING, "%s", sg_coordinator_waits_parked(c, call, text));
            sg_coordinator_unpark(c, call);
        }
        call = next;
    }
}

void sg_coordinator_tick(sg_coordinator *c, uint64_t now_ms)
{
    enter(c, now_ms);
    extend_leases(c);
    c->ticked = true;
    c->ticked_ms = c->now_ms;
    sg_coordinator_ps_tick(c);
    sg_coordinator_generation_tick(c);
    sg_coordinator_orders_tick(c);
    if (!c->recording)
        sg_coordinator_leases_tick(c);
    sg_coordinator_losses_tick(c);
    sg_coordinator_change_tick(c);
    settle(c);
    answer_waiting(c);
    sg_coordinator_waits_tick(c);
}

void sg_coordinator_stop(sg_coordinator *c, uint64_t now_ms)
{
    enter(c, now_ms);
    sg_coordinator_end_stop(c, 0);
    settle(c);
}
