/* tests/sim/sim_trainer.c - what a worker does: it drives the real session as client_steps.c does.
 *
 * An iteration is one step of each group, or of the first one alone where the second steps seldom. The trainer sends
 * all slices of the group and gets their next version, in the way that was chosen for it: push and pull apart or in
 * one, at once or slice after slice, and it begins the next step when all values are there, or while they come. At the
 * end of its quota it leaves, perhaps in the middle of a step. */
#include <inttypes.h>

#include "common/status.h"
#include "tests/sim/sim_worker.h"

#define COMPUTE_MS 60u
#define LEAVE_MS   10000u

void sim_trainer_choose(sim *s, sim_worker *worker)
{
    worker->push_pulls = sim_chance(s, 700);
    worker->in_pieces = sim_chance(s, 400);
    worker->values_later = sim_chance(s, 500);
}

/* Of the generation that it is in. */
static sg_mode mode_of(const sim_worker *worker)
{
    return sg_session_mode(worker->session);
}

static bool is_async(const sim_worker *worker)
{
    return mode_of(worker) != SG_MODE_SYNC;
}

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

static void declare(sim *s, sim_worker *worker)
{
    size_t n;
    const sg_variable *variables = sim_scenario_variables(s, &n);
    sg_error err;
    worker->phase = SIM_DECLARING;
    if (s->scenario.n_groups > 1 &&
        sg_session_step_every(worker->session, 1, (uint32_t)s->scenario.every, NULL) != SG_OK)
        sim_fail(s, "worker %" PRIu32 " cannot say how often group 1 steps", worker->index);
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
            worker->values[slice][i] = sim_rules_initial(slice, i);
    }
}

void sim_trainer_resume(sim *s, sim_worker *worker)
{
    worker->phase = SIM_RESUMING;
    worker->n_ops = 0;
    worker->group = 0;
    worker->leaves_early = false;
    for (uint32_t group = 0; group < SIM_MAX_GROUPS; group++)
        worker->next_step[group] = UINT64_MAX;
    for (uint32_t slice = 0; slice < SIM_MAX_SLICES; slice++) {
        for (uint32_t i = 0; i < SIM_SLICE_ELEMS; i++)
            worker->values[slice][i] = sim_rules_initial(slice, i);
    }
    worker->task = sg_session_resume(worker->session, s->now_ms, UINT64_MAX);
}

/* --- sending ---------------------------------------------------------------------------------------------------- */

static bool group_moves(const sim_worker *worker)
{
    for (uint32_t i = 0; i < worker->n_ops; i++) {
        if (worker->ops[i].group == worker->group)
            return true;
    }
    return false;
}

static sim_op *op_add(sim_worker *worker, uint64_t task, uint32_t group, const uint32_t *slices, size_t n)
{
    SG_ASSERT(worker->n_ops < SIM_MAX_OPS);
    sim_op *op = &worker->ops[worker->n_ops++];
    *op = (sim_op){.task = task, .group = group, .n = n};
    for (size_t i = 0; i < n; i++)
        op->slices[i] = slices[i];
    return op;
}

static void pull(sim *s, sim_worker *worker, uint32_t group, uint64_t version, const uint32_t *slices, size_t n)
{
    op_add(worker, sg_session_pull(worker->session, s->now_ms, UINT64_MAX, version, slices, n), group, slices, n);
}

/* Sends these slices; false: the worker has ended. */
static bool send_slices(sim *s, sim_worker *worker, const uint32_t *slices, size_t n)
{
    sg_error err;
    uint64_t task;
    sg_status status = worker->push_pulls ? sg_session_push_pull(worker->session, s->now_ms, UINT64_MAX, &worker->step,
                                                                 worker->weight, slices, n, &task, &err)
                                          : sg_session_push(worker->session, s->now_ms, UINT64_MAX, &worker->step,
                                                            worker->weight, slices, n, &task, &err);
    if ((status == SG_LATE || status == SG_ROLLED_BACK) && sg_session_is_back(worker->session)) {
        sim_trainer_resume(s, worker);
        return false;
    }
    if (status != SG_OK) {
        sim_worker_end(s, worker, err.code, err.message);
        return false;
    }
    op_add(worker, task, worker->group, slices, n)->pull_after = is_async(worker) && !worker->push_pulls;
    if (!is_async(worker) && !worker->push_pulls && !worker->leaves_early)
        pull(s, worker, worker->group, worker->step.number + 1, slices, n);
    return true;
}

static void fill_gradients(sim *s, sim_worker *worker, const uint32_t *slices, size_t n)
{
    sg_session_facts facts;
    sg_session_facts_get(worker->session, &facts);
    worker->weight = sim_chance(s, 100) ? 0 : 1 + sim_below(s, 4);
    for (size_t i = 0; i < n; i++) {
        if (!sg_session_is_back(worker->session) && sg_session_failed(worker->session, NULL) == SG_OK &&
            !is_async(worker) && sg_session_slice_version(worker->session, slices[i]) != worker->step.number)
            sim_fail(s, "worker %" PRIu32 " computes step %" PRIu64 " on another version of slice %" PRIu32,
                     worker->index, worker->step.number, slices[i]);
        for (uint32_t k = 0; k < SIM_SLICE_ELEMS; k++)
            worker->gradients[slices[i]][k] = sim_rules_computed(facts.incarnation, worker->step.number, slices[i], k);
    }
}

static void ask(sim *s, sim_worker *worker);

/* The step is on its way whole: what comes next need not wait for the values. */
static void step_handed_over(sim *s, sim_worker *worker)
{
    worker->step.loss = 1;
    worker->step.examples = worker->weight;
    sg_session_finish(worker->session, s->now_ms, &worker->step);
    /* Async: steps are numbered over all workers. */
    const uint64_t at = is_async(worker) ? worker->iterations_left : worker->step.iteration;
    const bool both = s->scenario.n_groups > 1 && at % s->scenario.every == 0;
    if (worker->group == 0 && both) {
        worker->group = 1;
    } else {
        worker->group = 0;
        worker->iterations_left--;
    }
    ask(s, worker);
}

/* Which piece is the i-th of n: from the last to the first, as gradients come; others in other orders. */
static size_t piece_at(const sim_worker *worker, size_t i, size_t n)
{
    switch (worker->index % 3) {
    case 0:
        return n - 1 - i;
    case 1:
        return i;
    default:
        return (n / 2 + i) % n;
    }
}

static void exchange(sim *s, sim_worker *worker)
{
    uint32_t slices[SIM_MAX_SLICES];
    size_t n = group_slices(s, worker->group, slices);
    if (sg_session_is_back(worker->session)) {
        sim_trainer_resume(s, worker);
        return;
    }
    fill_gradients(s, worker, slices, n);
    worker->leaves_early = worker->iterations_left == 1 && sim_chance(s, 400);
    const size_t n_all = n;
    if (worker->leaves_early)
        n = sim_below(s, n + 1);
    const uint32_t *sent = s->seed_number % 8 == 7 ? slices + (n_all - n) : slices; /* the last ones, or the first */
    worker->phase = SIM_EXCHANGING;
    if (!worker->in_pieces && n > 0 && !send_slices(s, worker, sent, n))
        return;
    for (size_t i = 0; worker->in_pieces && i < n; i++) {
        if (!send_slices(s, worker, &sent[piece_at(worker, i, n)], 1))
            return;
    }
    if (worker->leaves_early)
        leave(s, worker);
    else if (worker->values_later && mode_of(worker) != SG_MODE_SSP) /* as the client does */
        step_handed_over(s, worker);
}

/* What must not be sent before all values of the step are there is refused. */
static void try_too_early(sim *s, sim_worker *worker)
{
    uint32_t slices[SIM_MAX_SLICES];
    const size_t n = group_slices(s, worker->group, slices);
    uint64_t task;
    if (is_async(worker) || sg_session_is_back(worker->session) || sg_session_failed(worker->session, NULL) != SG_OK ||
        sg_session_version(worker->session, worker->group) == worker->step.number)
        return;
    if (sg_session_push(worker->session, s->now_ms, UINT64_MAX, &worker->step, 1, slices, n, &task, NULL) != SG_INVALID)
        sim_fail(s, "worker %" PRIu32 " could push step %" PRIu64 " before its values were there", worker->index,
                 worker->step.number);
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

static void on_computed(sim *s, const sim_event *event)
{
    sim_worker *worker = event->subject;
    if (!worker->running || worker->phase != SIM_COMPUTING || event->number != worker->step.number)
        return;
    if (sg_session_is_back(worker->session)) {
        sim_trainer_resume(s, worker);
    } else if (group_moves(worker)) {
        worker->phase = SIM_AWAITING;
        try_too_early(s, worker);
    } else {
        exchange(s, worker);
    }
    sim_worker_advance(s, worker);
}

static void compute(sim *s, sim_worker *worker)
{
    worker->phase = SIM_COMPUTING;
    uint32_t slices[SIM_MAX_SLICES];
    const size_t n = mode_of(worker) == SG_MODE_SSP ? group_slices(s, worker->group, slices) : 0;
    sg_session_facts facts;
    sg_session_facts_get(worker->session, &facts);
    for (size_t i = 0; i < n; i++)
        sim_clocks_reads(s, facts.incarnation, slices[i], sg_session_slice_version(worker->session, slices[i]));
    const uint64_t slowness = s->scenario.backup > 0 && worker->index == 0 ? 8 : 1;
    sim_at(s, s->now_ms + 1 + slowness * sim_below(s, COMPUTE_MS), on_computed, worker, worker->step.number);
}

/* A ticket has come: what is missing of the step's values, and not on its way, is pulled first. */
static void begin_step(sim *s, sim_worker *worker, const sg_step *step)
{
    uint64_t *next = &worker->next_step[worker->group];
    if (!is_async(worker) && *next != UINT64_MAX && step->number != *next)
        sim_fail(s, "worker %u got step %" PRIu64 " after step %" PRIu64, worker->index, step->number, *next - 1);
    *next = step->number + 1;
    worker->step = *step;
    uint32_t missing[SIM_MAX_SLICES];
    const size_t n = sg_session_missing(worker->session, step, missing);
    if (n == 0) {
        compute(s, worker);
        return;
    }
    worker->phase = SIM_FETCHING;
    worker->task =
        sg_session_pull(worker->session, s->now_ms, UINT64_MAX, is_async(worker) ? 0 : step->number, missing, n);
}

static void ask(sim *s, sim_worker *worker)
{
    if (worker->iterations_left == 0) {
        leave(s, worker);
        return;
    }
    sg_step step;
    bool first = worker->next_step[worker->group] == UINT64_MAX;
    worker->phase = SIM_ASKING;
    if (sg_session_ticket_take(worker->session, s->now_ms, worker->group, &step))
        begin_step(s, worker, &step);
    else
        worker->task = sg_session_ticket(worker->session, s->now_ms,
                                         first ? s->now_ms + s->config->start_timeout_ms : UINT64_MAX, worker->group);
}

static void op_done(sim *s, sim_worker *worker, uint32_t at)
{
    const sim_op op = worker->ops[at];
    worker->ops[at] = worker->ops[--worker->n_ops];
    if (op.pull_after)
        pull(s, worker, op.group, 0, op.slices, op.n);
    if (group_moves(worker))
        return;
    if (worker->phase == SIM_EXCHANGING)
        step_handed_over(s, worker);
    else if (worker->phase == SIM_AWAITING)
        exchange(s, worker);
}

void sim_trainer_done(sim *s, sim_worker *worker, const sg_session_action *action)
{
    for (uint32_t i = 0; i < worker->n_ops; i++) {
        if (worker->ops[i].task == action->task) {
            op_done(s, worker, i);
            return;
        }
    }
    if (worker->phase == SIM_JOINING) {
        declare(s, worker);
    } else if (worker->phase == SIM_DECLARING || worker->phase == SIM_RESUMING) {
        worker->joined = true; /* before that it may have been sent back to hello */
        ask(s, worker);
    } else if (worker->phase == SIM_ASKING) {
        begin_step(s, worker, &action->step);
    } else if (worker->phase == SIM_FETCHING) {
        compute(s, worker);
    }
}
