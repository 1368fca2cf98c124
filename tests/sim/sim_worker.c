/* tests/sim/sim_worker.c - a worker: the real session, and a trainer that drives it as client_steps.c does.
 *
 * An iteration is one step of each group. The trainer pushes all slices of the group and pulls their next version; at
 * the end of its quota it leaves, perhaps in the middle of a step. */
#include "tests/sim/sim_worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

#define COMPUTE_MS 60u
#define LEAVE_MS   10000u

static void advance(sim *s, sim_worker *worker);

/* --- the end of a process --------------------------------------------------------------------------------------- */

static void vanish(sim *s, sim_worker *worker)
{
    worker->running = false;
    worker->phase = SIM_ENDED;
    s->idle_since_ms = s->now_ms;
    sg_session_destroy(worker->session);
    worker->session = NULL;
    for (sim_call *call = s->calls; call != NULL; call = call->next) {
        if (call->sender == SIM_FROM_WORKER && call->from == worker->number)
            sim_cancel(s, call);
    }
}

static void end(sim *s, sim_worker *worker, sg_status status, const char *text)
{
    worker->status = status;
    snprintf(worker->text, sizeof worker->text, "%s", text);
    sim_trace(s, "worker %u (process %u) ends: %s %s", worker->index, worker->number, sg_status_name(status), text);
    if (status != SG_OK && text[0] == '\0')
        sim_fail(s, "worker %u failed (%s) without a word", worker->index, sg_status_name(status));
    vanish(s, worker);
}

void sim_worker_kill(sim *s, sim_worker *worker)
{
    if (!worker->running)
        return;
    sim_trace(s, "worker %u (process %u) is killed", worker->index, worker->number);
    worker->killed = true;
    vanish(s, worker);
}

void sim_workers_init(sim *s)
{
    s->workers = sg_xcalloc(SIM_MAX_WORKERS, sizeof *s->workers);
}

void sim_workers_deinit(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++)
        sim_worker_kill(s, &s->workers[i]);
    free(s->workers);
}

bool sim_workers_run(const sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        if (s->workers[i].running)
            return true;
    }
    return false;
}

/* --- calls ------------------------------------------------------------------------------------------------------ */

static void slices_of(const ProtobufCMessage *body, const uint32_t **slices, size_t *n)
{
    if (body->descriptor == &shardgrad__v1__initialize_request__descriptor) {
        *slices = ((const Shardgrad__V1__InitializeRequest *)body)->slices;
        *n = ((const Shardgrad__V1__InitializeRequest *)body)->n_slices;
    } else if (body->descriptor == &shardgrad__v1__push_request__descriptor) {
        *slices = ((const Shardgrad__V1__PushRequest *)body)->slices;
        *n = ((const Shardgrad__V1__PushRequest *)body)->n_slices;
    } else if (body->descriptor == &shardgrad__v1__pull_request__descriptor) {
        *slices = ((const Shardgrad__V1__PullRequest *)body)->slices;
        *n = ((const Shardgrad__V1__PullRequest *)body)->n_slices;
    } else {
        *slices = NULL;
        *n = 0;
    }
}

static uint64_t elems_of(const sim *s, uint32_t slice)
{
    return s->plan->slices[slice].n_elems;
}

/* The bytes go as they are at the moment of sending. */
static void lend_data(const sim *s, const sim_worker *worker, sim_call *call)
{
    const uint32_t *slices;
    size_t n;
    slices_of(call->body, &slices, &n);
    bool initialize = call->method == SG_SESSION_INITIALIZE;
    if (!initialize && call->method != SG_SESSION_PUSH)
        return;
    call->data = sg_xcalloc(n * SIM_SLICE_ELEMS + 1, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        size_t n_bytes = elems_of(s, slices[i]) * sizeof(float);
        memcpy(call->data + call->data_bytes, initialize ? worker->values[slices[i]] : worker->gradients[slices[i]],
               n_bytes);
        call->data_bytes += n_bytes;
    }
}

static void send(sim *s, sim_worker *worker, sg_session_action *action)
{
    sim_call call = {.sender = SIM_FROM_WORKER,
                     .from = worker->number,
                     .number = action->call,
                     .task = action->task,
                     .method = (int)action->method,
                     .to = action->target == SG_SESSION_COORDINATOR ? 0 : action->target,
                     .to_coordinator = action->target == SG_SESSION_COORDINATOR,
                     .body = action->body};
    action->body = NULL;
    lend_data(s, worker, &call);
    if (call.method == SG_SESSION_PUSH)
        sim_oracle_sent(s, &call);
    sim_send(s, &call, action->timeout_ms);
}

static void cancel_calls(sim *s, const sim_worker *worker, uint64_t task)
{
    for (sim_call *call = s->calls; call != NULL; call = call->next) {
        if (call->sender == SIM_FROM_WORKER && call->from == worker->number && call->task == task)
            sim_cancel(s, call);
    }
}

static void take_data(sim *s, sim_worker *worker, const sim_call *call, const ProtobufCMessage *reply,
                      const float *data)
{
    const Shardgrad__V1__PullResponse *response = (const Shardgrad__V1__PullResponse *)reply;
    const uint32_t *slices;
    size_t n;
    slices_of(call->body, &slices, &n);
    for (size_t i = 0; i < n && i < response->n_versions; i++) {
        memcpy(worker->values[slices[i]], data, elems_of(s, slices[i]) * sizeof(float));
        data += elems_of(s, slices[i]);
        sim_oracle_pulled(s, worker->index, slices[i], response->versions[i], worker->values[slices[i]]);
    }
}

void sim_worker_reply(sim *s, const sim_call *call, sg_status status, const char *text, const ProtobufCMessage *reply,
                      const float *data)
{
    sim_worker *worker = &s->workers[call->from];
    if (!worker->running)
        return;
    if (status == SG_OK && call->method == SG_SESSION_PULL)
        take_data(s, worker, call, reply, data);
    sg_session_on_reply(worker->session, s->now_ms, call->number, status, text, reply);
    advance(s, worker);
}

/* --- the trainer ------------------------------------------------------------------------------------------------ */

static size_t group_slices(const sim *s, uint32_t group, uint32_t slices[SIM_MAX_SLICES])
{
    size_t n_variables, n = 0;
    const sg_variable *variables = sim_scenario_variables(s, &n_variables);
    for (uint32_t i = 0; i < s->plan->n_slices; i++) {
        if (s->plan->slices[i].group == group && !variables[s->plan->slices[i].variable].frozen)
            slices[n++] = i;
    }
    return n;
}

static void leave(sim *s, sim_worker *worker)
{
    worker->phase = SIM_LEAVING;
    worker->task = sg_session_leave(worker->session, s->now_ms, s->now_ms + LEAVE_MS);
}

static void ask(sim *s, sim_worker *worker)
{
    if (worker->iterations_left == 0) {
        leave(s, worker);
        return;
    }
    bool first = worker->next_step[worker->group] == UINT64_MAX;
    worker->phase = SIM_ASKING;
    worker->task = sg_session_ticket(worker->session, s->now_ms,
                                     first ? s->now_ms + s->config->start_timeout_ms : UINT64_MAX, worker->group);
}

static void declare(sim *s, sim_worker *worker)
{
    size_t n;
    const sg_variable *variables = sim_scenario_variables(s, &n);
    sg_error err;
    worker->phase = SIM_DECLARING;
    if (sg_session_declare(worker->session, s->now_ms, s->now_ms + s->config->start_timeout_ms, variables, n,
                           &worker->task, &err) != SG_OK) {
        sim_fail(s, "declare was refused: %s", err.message);
        return;
    }
    const sg_plan *plan = sg_session_plan(worker->session);
    if (s->plan == NULL) {
        sg_plan_variable list[4];
        for (uint32_t i = 0; i < plan->n_variables; i++)
            list[i] = plan->variables[i];
        sg_status status = sg_plan_create(list, plan->n_variables, plan->n_ps, plan->slice_bytes, &s->plan, &err);
        SG_ASSERT(status == SG_OK && s->plan->n_slices <= SIM_MAX_SLICES);
    }
    for (uint32_t slice = 0; slice < plan->n_slices; slice++) {
        for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
            worker->values[slice][i] = sim_oracle_initial(slice, i);
    }
}

static void on_computed(sim *s, const sim_event *event)
{
    sim_worker *worker = event->subject;
    if (!worker->running || worker->phase != SIM_COMPUTING)
        return;
    uint32_t slices[SIM_MAX_SLICES];
    size_t n = group_slices(s, worker->group, slices);
    sg_session_facts facts;
    sg_session_facts_get(worker->session, &facts);
    worker->weight = sim_chance(s, 100) ? 0 : 1 + sim_below(s, 4);
    for (size_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < SIM_SLICE_ELEMS; k++)
            worker->gradients[slices[i]][k] = sim_oracle_gradient(facts.incarnation, worker->step.number, slices[i], k);
    }
    worker->leaves_early = worker->iterations_left == 1 && sim_chance(s, 400);
    if (worker->leaves_early)
        n = sim_below(s, n + 1);
    worker->phase = SIM_EXCHANGING;
    sg_error err;
    if (n > 0 && sg_session_push(worker->session, s->now_ms, UINT64_MAX, &worker->step, worker->weight, slices, n,
                                 &worker->push_task, &err) != SG_OK) {
        end(s, worker, err.code, err.message);
        return;
    }
    if (worker->leaves_early) {
        leave(s, worker);
    } else if (!s->scenario.async) {
        worker->pull_version = worker->step.number + 1;
        worker->pull_task = sg_session_pull(worker->session, s->now_ms, UINT64_MAX, worker->pull_version, slices, n);
    }
    advance(s, worker);
}

static void compute(sim *s, sim_worker *worker)
{
    worker->phase = SIM_COMPUTING;
    sim_at(s, s->now_ms + 1 + sim_below(s, COMPUTE_MS), on_computed, worker, 0);
}

/* A ticket has come: what is missing of the step's values is pulled first. */
static void begin_step(sim *s, sim_worker *worker, const sg_step *step)
{
    uint64_t *next = &worker->next_step[worker->group];
    if (!s->scenario.async && *next != UINT64_MAX && step->number != *next)
        sim_fail(s, "worker %u got step %" PRIu64 " after step %" PRIu64, worker->index, step->number, *next - 1);
    *next = step->number + 1;
    worker->step = *step;
    uint32_t slices[SIM_MAX_SLICES], missing[SIM_MAX_SLICES];
    size_t n = group_slices(s, worker->group, slices), n_missing = 0;
    for (size_t i = 0; i < n; i++) {
        if (sg_session_slice_version(worker->session, slices[i]) != step->number)
            missing[n_missing++] = slices[i];
    }
    if (s->scenario.async || n_missing == 0) {
        compute(s, worker);
        return;
    }
    worker->phase = SIM_FETCHING;
    worker->pull_version = step->number;
    worker->task = sg_session_pull(worker->session, s->now_ms, UINT64_MAX, step->number, missing, n_missing);
}

static void finish_step(sim *s, sim_worker *worker)
{
    worker->step.loss = 1;
    worker->step.examples = worker->weight;
    sg_session_finish(worker->session, s->now_ms, &worker->step);
    if (++worker->group == s->scenario.n_groups) {
        worker->group = 0;
        worker->iterations_left--;
    }
    ask(s, worker);
}

static void exchanged(sim *s, sim_worker *worker, uint64_t task)
{
    uint32_t slices[SIM_MAX_SLICES];
    if (task == worker->push_task) {
        worker->push_task = 0;
        if (s->scenario.async) {
            size_t n = group_slices(s, worker->group, slices);
            worker->pull_version = 0;
            worker->pull_task = sg_session_pull(worker->session, s->now_ms, UINT64_MAX, 0, slices, n);
        }
    } else {
        worker->pull_task = 0;
    }
    if (worker->push_task == 0 && worker->pull_task == 0)
        finish_step(s, worker);
}

/* --- what the session says -------------------------------------------------------------------------------------- */

static void done(sim *s, sim_worker *worker, const sg_session_action *action)
{
    cancel_calls(s, worker, action->task);
    sim_trace(s, "worker %u (process %u): task %" PRIu64 " done: %s %s", worker->index, worker->number, action->task,
              sg_status_name(action->status), action->text == NULL ? "" : action->text);
    if (worker->phase == SIM_LEAVING) {
        if (action->task == worker->task) {
            worker->leave_status = action->status;
            end(s, worker, SG_OK, action->text == NULL ? "" : action->text);
        }
        return;
    }
    if (action->status != SG_OK) {
        end(s, worker, action->status, action->text);
        return;
    }
    if (worker->phase == SIM_EXCHANGING)
        exchanged(s, worker, action->task);
    else if (worker->phase == SIM_JOINING) {
        worker->joined = true;
        declare(s, worker);
    } else if (worker->phase == SIM_DECLARING)
        ask(s, worker);
    else if (worker->phase == SIM_ASKING)
        begin_step(s, worker, &action->step);
    else if (worker->phase == SIM_FETCHING)
        compute(s, worker);
}

static void on_tick(sim *s, const sim_event *event)
{
    sim_worker *worker = event->subject;
    if (!worker->running || event->number != worker->tick_ms)
        return;
    worker->tick_ms = UINT64_MAX;
    sg_session_tick(worker->session, s->now_ms);
    advance(s, worker);
}

static void advance(sim *s, sim_worker *worker)
{
    sg_session_action action;
    while (worker->running && sg_session_next_action(worker->session, &action)) {
        if (action.kind == SG_SESSION_CALL)
            send(s, worker, &action);
        else if (action.kind == SG_SESSION_DONE)
            done(s, worker, &action);
        else
            sim_trace(s, "worker %u (process %u): %s %s", worker->index, worker->number, action.event, action.text);
        sg_session_action_deinit(&action);
    }
    if (!worker->running)
        return;
    uint64_t next_ms = sg_session_next_ms(worker->session);
    if (next_ms < worker->tick_ms) {
        worker->tick_ms = next_ms < s->now_ms ? s->now_ms : next_ms;
        sim_at(s, worker->tick_ms, on_tick, worker, worker->tick_ms);
    }
}

void sim_worker_start(sim *s, uint32_t index)
{
    SG_ASSERT(s->n_workers < SIM_MAX_WORKERS);
    sim_worker *worker = &s->workers[s->n_workers];
    char address[32];
    *worker = (sim_worker){.index = index,
                           .number = s->n_workers++,
                           .running = true,
                           .tick_ms = UINT64_MAX,
                           .iterations_left = s->scenario.quota[index]};
    s->newest_worker[index] = s->n_workers;
    for (uint32_t group = 0; group < SIM_MAX_GROUPS; group++)
        worker->next_step[group] = UINT64_MAX;
    snprintf(address, sizeof address, "process-%u", worker->number);
    worker->session = sg_session_create(&(sg_session_options){.job = s->config->job,
                                                              .worker = index,
                                                              .life = 1000 + worker->number,
                                                              .random_seed = s->seed_number + worker->number,
                                                              .address = address,
                                                              .settings = s->config,
                                                              .start_timeout_ms = s->config->start_timeout_ms,
                                                              .warn_after_ms = s->config->warn_after_ms});
    sim_trace(s, "worker %u starts as process %u", index, worker->number);
    worker->task = sg_session_join(worker->session, s->now_ms, s->now_ms + s->config->start_timeout_ms);
    advance(s, worker);
}
