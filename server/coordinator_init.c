/* server/coordinator_init.c - from declared variables to version 0: one worker initializes, under an attempt number;
 * the coordinator's commit alone makes its values version 0. */
#include <stdlib.h>

#include "server/coordinator_internal.h"

void sg_coordinator_init_order_declare(sg_coordinator *c, uint32_t ps)
{
    if (c->variables == NULL)
        return;
    Shardgrad__V1__PsDeclareRequest order = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    order.variables = c->variables->variables;
    order.n_variables = c->variables->n_variables;
    order.n_ps = c->n_ps;
    order.slice_bytes = c->config->slice_bytes;
    order.mode = (Shardgrad__V1__Mode)c->config->update.mode;
    order.rule = (char *)sg_rule_name(c->config->update.rule);
    order.backup_workers = c->config->update.backup_workers;
    sg_coordinator_order(c, ps, &order.base);
}

static void order_attempt(sg_coordinator *c)
{
    Shardgrad__V1__Attempt attempt = SHARDGRAD__V1__ATTEMPT__INIT;
    attempt.attempt = c->attempt;
    attempt.incarnation = c->workers[c->initializer].incarnation;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ATTEMPT;
    order.attempt = &attempt;
    sg_coordinator_order_all(c, &order.base);
}

static void order_seal(sg_coordinator *c)
{
    Shardgrad__V1__Seal seal = SHARDGRAD__V1__SEAL__INIT;
    seal.attempt = c->attempt;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
    order.seal = &seal;
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].seal_ordered || c->ps[i].sealed == c->attempt)
            continue;
        c->ps[i].seal_ordered = true;
        sg_coordinator_order(c, i, &order.base);
    }
}

static void order_commit(sg_coordinator *c)
{
    Shardgrad__V1__Commit commit = SHARDGRAD__V1__COMMIT__INIT;
    commit.attempt = c->attempt;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_COMMIT;
    order.commit = &commit;
    sg_coordinator_order_all(c, &order.base);
}

/* The first of those that declared; n_workers: none is there. */
static uint32_t first_declared(const sg_coordinator *c)
{
    uint32_t first = c->n_workers;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_worker *worker = &c->workers[i];
        if (worker->state == SG_COORDINATOR_WORKER_JOINED && worker->declared != 0 &&
            (first == c->n_workers || worker->declared < c->workers[first].declared))
            first = i;
    }
    return first;
}

static void name_initializer(sg_coordinator *c)
{
    uint32_t index = first_declared(c);
    if (index == c->n_workers)
        return;
    c->initializer = index;
    c->has_initializer = true;
    c->attempt++;
    c->sealing = false;
    for (uint32_t i = 0; i < c->n_ps; i++)
        c->ps[i].seal_ordered = false;
    order_attempt(c);
    sg_coordinator_log(c, SG_LOG_INFO, "initializing", "worker=%" PRIu32 " attempt=%" PRIu64, index, c->attempt);
}

static bool initializing(const sg_coordinator *c)
{
    return c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_INITIALIZING;
}

/* --- declare ---------------------------------------------------------------------------------------------------- */

/* A model that was changed since the checkpoint. */
static sg_status tell_of_checkpoint(const sg_coordinator *c, sg_status status, sg_error *err)
{
    if (status != SG_MISMATCH || c->save.current.generation == 0 || err == NULL)
        return status;
    const sg_error was = *err;
    return sg_error_set(err, status,
                        "%s, which goes on from iteration %" PRIu64
                        " in its checkpoint.dir: name another folder there, or say restore: none to begin anew",
                        was.message, c->save.current.iteration);
}

static sg_status take_list(sg_coordinator *c, const Shardgrad__V1__DeclareRequest *request, sg_error *err)
{
    bool known = c->variables != NULL; /* of an earlier generation, too */
    uint32_t n_groups = c->n_groups;
    sg_status status = known ? sg_coordinator_variables_compare(c->variables, request, err)
                             : sg_coordinator_variables_check(request, err);
    if (status == SG_OK && !known)
        status = sg_coordinator_variables_fit(c, request, &n_groups, err);
    if (status == SG_OK)
        status = sg_coordinator_variables_take_every(c, n_groups, request, err);
    if (status != SG_OK)
        return tell_of_checkpoint(c, status, err);
    c->n_groups = n_groups;
    if (c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES)
        c->state = SHARDGRAD__V1__JOB_STATE__JOB_STATE_INITIALIZING;
    if (known)
        return SG_OK;
    c->variables = (Shardgrad__V1__DeclareRequest *)sg_wire_head_copy(&request->base);
    for (uint32_t i = 0; i < c->n_ps; i++)
        sg_coordinator_init_order_declare(c, i);
    return SG_OK;
}

void sg_coordinator_init_declare(sg_coordinator *c, sg_coordinator_worker *worker,
                                 const Shardgrad__V1__DeclareRequest *request, void *call)
{
    sg_error err;
    uint32_t index = sg_coordinator_index(c, worker);
    if (take_list(c, request, &err) != SG_OK) {
        sg_coordinator_log_refused(c, "worker", index, worker->address, &err);
        sg_coordinator_fail_error(c, call, &err);
        return;
    }
    if (worker->declared == 0)
        worker->declared = ++c->n_declared;
    sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_DECLARE,
                                                    .call = call,
                                                    .worker = index,
                                                    .incarnation = worker->incarnation});
}

static bool is_initializer(const sg_coordinator *c, uint32_t worker)
{
    return c->has_initializer && c->initializer == worker;
}

static bool all_know_attempt(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].attempt != c->attempt)
            return false;
    }
    return true;
}

bool sg_coordinator_init_answer_declare(sg_coordinator *c, const sg_coordinator_parked *call)
{
    Shardgrad__V1__DeclareResponse response = SHARDGRAD__V1__DECLARE_RESPONSE__INIT;
    if (c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING)
        return false;
    if (initializing(c)) {
        if (!is_initializer(c, call->worker) || c->committing || !all_know_attempt(c))
            return false;
        response.attempt = c->attempt;
    }
    sg_coordinator_reply(c, call->call, &response.base);
    return true;
}

/* --- initialized ------------------------------------------------------------------------------------------------ */

void sg_coordinator_init_initialized(sg_coordinator *c, sg_coordinator_worker *worker,
                                     const Shardgrad__V1__InitializedRequest *request, void *call)
{
    uint32_t index = sg_coordinator_index(c, worker);
    bool is_current = request->attempt != 0 && request->attempt == c->attempt;
    if (!is_current && (request->attempt == 0 || request->attempt > c->attempt)) {
        sg_coordinator_fail(c, call, SG_INVALID, "there is no attempt %" PRIu64 ": the newest is %" PRIu64,
                            request->attempt, c->attempt);
        return;
    }
    if (!is_current || !is_initializer(c, index)) {
        sg_coordinator_fail(c, call, SG_LATE,
                            "worker %" PRIu32 " reports attempt %" PRIu64 ", but another worker initializes now "
                            "(attempt %" PRIu64 "): declare again",
                            index, request->attempt, c->attempt);
        return;
    }
    if (initializing(c) && !c->sealing) {
        c->sealing = true;
        order_seal(c);
    }
    sg_coordinator_park(c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_INITIALIZED,
                                                    .call = call,
                                                    .worker = index,
                                                    .incarnation = worker->incarnation,
                                                    .attempt = request->attempt});
}

bool sg_coordinator_init_answer_initialized(sg_coordinator *c, const sg_coordinator_parked *call)
{
    if (initializing(c))
        return false;
    Shardgrad__V1__InitializedResponse response = SHARDGRAD__V1__INITIALIZED_RESPONSE__INIT;
    sg_coordinator_reply(c, call->call, &response.base);
    return true;
}

/* --- what happens meanwhile ------------------------------------------------------------------------------------- */

void sg_coordinator_init_gone(sg_coordinator *c, uint32_t worker)
{
    if (!initializing(c) || c->committing || !is_initializer(c, worker))
        return;
    c->has_initializer = false; /* init_advance names another */
}

void sg_coordinator_init_seal_refused(sg_coordinator *c, uint32_t ps, const char *message)
{
    c->ps[ps].seal_ordered = false;
    c->sealing = false;
    char name[SG_COORDINATOR_TEXT_BYTES];
    sg_coordinator_ps_name(c, ps, name);
    sg_coordinator_log(c, SG_LOG_WARN, "incomplete", "ps=%" PRIu32 " attempt=%" PRIu64, ps, c->attempt);
    sg_coordinator_parked *call = TAILQ_FIRST(&c->parked);
    while (call != NULL) {
        sg_coordinator_parked *next = TAILQ_NEXT(call, link);
        if (call->kind == SG_COORDINATOR_PARKED_INITIALIZED && call->attempt == c->attempt) {
            sg_coordinator_fail(c, call->call, SG_NOT_FOUND, "%s does not hold all initial values: %s", name, message);
            sg_coordinator_unpark(c, call);
        }
        call = next;
    }
}

static bool all_sealed(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].sealed != c->attempt)
            return false;
    }
    return true;
}

static bool all_committed(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (!c->ps[i].committed)
            return false;
    }
    return true;
}

bool sg_coordinator_init_advance(sg_coordinator *c)
{
    if (!initializing(c))
        return false;
    if (!c->has_initializer && !c->committing) {
        name_initializer(c);
        return c->has_initializer;
    }
    if (c->sealing && !c->committing && all_sealed(c)) {
        c->committing = true;
        order_commit(c);
        return true;
    }
    if (c->committing && all_committed(c)) {
        sg_coordinator_generation_run(c);
        sg_coordinator_log(c, SG_LOG_INFO, "running", "variables=%zu groups=%" PRIu32 " attempt=%" PRIu64,
                           c->variables->n_variables, c->n_groups, c->attempt);
        return true;
    }
    return false;
}
