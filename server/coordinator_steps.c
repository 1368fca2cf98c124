/* server/coordinator_steps.c - who takes part in what (sync): iterations whose members are frozen, steps of groups
 * that were handed out, and excuses from them.
 *
 * An iteration is frozen when its first ticket is handed out. It is retained while a step refers to it, and after that
 * among the newest few, so that another group's step of the same iteration finds the same members. Where it was
 * forgotten, the members are those of its members that are still here: nobody who joined later. */
#include <stdlib.h>

#include "common/schedule.h"
#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

#define KEPT_ITERATIONS 64u /* without a step that refers to them */

/* --- iterations ------------------------------------------------------------------------------------------------- */

static void free_iteration(sg_coordinator *c, sg_coordinator_iteration *iteration)
{
    TAILQ_REMOVE(&c->iterations, iteration, link);
    free(iteration->gone);
    sg_pool_free(iteration);
}

static void forget_old_iterations(sg_coordinator *c)
{
    uint32_t unused = 0;
    sg_coordinator_iteration *iteration = TAILQ_LAST(&c->iterations, sg_coordinator_iterations);
    while (iteration != NULL) {
        sg_coordinator_iteration *older = TAILQ_PREV(iteration, sg_coordinator_iterations, link);
        if (iteration->n_steps == 0 && ++unused > KEPT_ITERATIONS)
            free_iteration(c, iteration);
        iteration = older;
    }
}

uint64_t sg_coordinator_steps_iteration(const sg_coordinator *c, uint32_t group, uint64_t from)
{
    uint64_t every = c->groups[group].every;
    return every <= 1 ? from : (from + every - 1) / every * every;
}

/* The first iteration, `iteration` or later, with which a joiner can begin that has asked for these groups; UINT64_MAX:
 * none. One that waits for the group that opens `iteration` begins with that. One that waits for a group that steps
 * more seldom, and so opens none, begins with the next one in which that steps; unless the group has stayed behind the
 * one that opens: it may take for ever to come up, and the members would wait for the joiner in the other one. */
static uint64_t first_for(const sg_coordinator *c, const sg_coordinator_worker *joiner, uint32_t opener,
                          uint64_t iteration)
{
    uint64_t first = joiner->groups[opener].asked ? iteration : UINT64_MAX;
    for (uint32_t i = 0; i < c->n_groups; i++) {
        const sg_coordinator_group *group = &c->groups[i];
        uint64_t next = sg_coordinator_steps_iteration(c, i, group->next_step > 0 ? group->last_iteration + 1 : 0);
        if (!joiner->groups[i].asked || next < iteration)
            continue;
        uint64_t steps = sg_coordinator_steps_iteration(c, i, iteration);
        first = steps < first ? steps : first;
    }
    return first;
}

/* Those who asked for a ticket and wait to become members are admitted at the first iteration that is not frozen: all
 * of them where nobody is a member now. */
static void admit_joiners(sg_coordinator *c, uint32_t group, uint64_t iteration)
{
    bool any_member = sg_coordinator_members_any(c);
    for (uint32_t i = 0; i < c->n_workers; i++) {
        sg_coordinator_worker *worker = &c->workers[i];
        if (worker->state != SG_COORDINATOR_WORKER_JOINED || !worker->asked || worker->member)
            continue;
        uint64_t first = any_member ? first_for(c, worker, group, iteration) : iteration;
        if (first == UINT64_MAX)
            continue;
        worker->member = true;
        worker->member_from = first;
        sg_coordinator_log(c, SG_LOG_INFO, "training", "worker=%" PRIu32 " iteration=%" PRIu64, i, first);
    }
}

static sg_coordinator_iteration *freeze(sg_coordinator *c, uint32_t group, uint64_t number)
{
    sg_coordinator_iteration *iteration;
    TAILQ_FOREACH(iteration, &c->iterations, link)
    {
        if (iteration->number == number)
            return iteration;
    }
    if (number >= c->frozen) {
        admit_joiners(c, group, number);
        c->frozen = number + 1;
    }
    iteration = sg_pool_alloc(c->pool, sizeof *iteration);
    iteration->number = number;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].member && c->workers[i].member_from <= number)
            sg_workers_add(&iteration->members, i);
    }
    TAILQ_INSERT_TAIL(&c->iterations, iteration, link);
    return iteration;
}

/* --- excuses ---------------------------------------------------------------------------------------------------- */

static void fill_step(uint32_t group, const sg_coordinator_step *step, uint8_t members[SG_WORKERS_WIRE_BYTES],
                      Shardgrad__V1__Step *out)
{
    *out = (Shardgrad__V1__Step)SHARDGRAD__V1__STEP__INIT;
    out->group = group;
    out->step = step->number;
    out->iteration = step->iteration->number;
    out->members.len = sg_workers_encode(&step->iteration->members, members);
    out->members.data = members;
    out->hyper = step->hyper;
    out->learning_rate = step->learning_rate;
    out->checkpoint_mark = step->mark;
}

static void order_excuse(sg_coordinator *c, uint32_t worker, uint64_t incarnation, Shardgrad__V1__Step **steps,
                         size_t n_steps)
{
    Shardgrad__V1__Excuse excuse = SHARDGRAD__V1__EXCUSE__INIT;
    excuse.worker = worker;
    excuse.incarnation = incarnation;
    excuse.steps = steps;
    excuse.n_steps = n_steps;
    Shardgrad__V1__OrderRequest order = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    order.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
    order.excuse = &excuse;
    sg_coordinator_order_all(c, &order.base);
}

/* Members that went before this group opened the step will not contribute to it either. */
static void excuse_gone(sg_coordinator *c, uint32_t group, sg_coordinator_step *step)
{
    const sg_coordinator_iteration *iteration = step->iteration;
    for (uint32_t i = 0; i < iteration->n_gone; i++) {
        uint8_t members[SG_WORKERS_WIRE_BYTES];
        Shardgrad__V1__Step message, *messages[] = {&message};
        fill_step(group, step, members, &message);
        order_excuse(c, iteration->gone[i].worker, iteration->gone[i].incarnation, messages, 1);
        sg_workers_add(&step->done, iteration->gone[i].worker);
    }
}

/* From iterations below `before`. */
static void note_gone(sg_coordinator *c, const sg_coordinator_life *life, uint64_t before)
{
    sg_coordinator_iteration *iteration;
    TAILQ_FOREACH(iteration, &c->iterations, link)
    {
        /* An earlier incarnation of the index may have been the member that this iteration means. */
        if (!life->member || life->member_from > iteration->number || iteration->number >= before ||
            !sg_workers_has(&iteration->members, life->worker) || sg_workers_has(&iteration->gone_set, life->worker))
            continue;
        sg_workers_add(&iteration->gone_set, life->worker);
        iteration->gone = sg_xrealloc(iteration->gone, iteration->n_gone + 1, sizeof *iteration->gone);
        iteration->gone[iteration->n_gone++] =
            (sg_coordinator_gone){.worker = life->worker, .incarnation = life->incarnation};
    }
}

/* --- steps ------------------------------------------------------------------------------------------------------ */

sg_coordinator_step *sg_coordinator_steps_find(sg_coordinator *c, uint32_t group, uint64_t number)
{
    sg_coordinator_step *step;
    TAILQ_FOREACH(step, &c->groups[group].steps, link)
    {
        if (step->number == number)
            return step;
    }
    return NULL;
}

sg_coordinator_step *sg_coordinator_steps_from(sg_coordinator *c, uint32_t group, uint64_t lowest, uint64_t from)
{
    sg_coordinator_step *step;
    TAILQ_FOREACH(step, &c->groups[group].steps, link)
    {
        if (step->number >= lowest && step->iteration->number >= from)
            return step;
    }
    return NULL;
}

static void note_pushed(sg_coordinator_group *group, const sg_coordinator_step *step)
{
    if (step->number < group->pushed)
        return;
    group->pushed = step->number + 1;
    group->pushed_iteration = step->iteration->number;
}

static void forget_done_steps(sg_coordinator *c, uint32_t group)
{
    struct sg_coordinator_steps *steps = &c->groups[group].steps;
    sg_coordinator_step *step = TAILQ_FIRST(steps);
    while (step != NULL) {
        sg_coordinator_step *next = TAILQ_NEXT(step, link);
        sg_workers missing = sg_workers_minus(&step->iteration->members, &step->done);
        if (sg_workers_count(&missing) == 0) {
            TAILQ_REMOVE(steps, step, link);
            step->iteration->n_steps--;
            sg_pool_free(step);
        }
        step = next;
    }
    forget_old_iterations(c);
}

sg_coordinator_step *sg_coordinator_steps_open(sg_coordinator *c, uint32_t group, uint64_t iteration)
{
    sg_coordinator_group *state = &c->groups[group];
    sg_coordinator_step *step = sg_pool_alloc(c->pool, sizeof *step);
    step->number = state->next_step++;
    if (!state->opened)
        state->first = step->number;
    state->opened = true;
    state->last_iteration = iteration;
    step->iteration = freeze(c, group, iteration);
    step->iteration->n_steps++;
    step->learning_rate = sg_schedule_rate(sg_coordinator_hyper_config(c), iteration);
    step->hyper = c->in_force;
    step->mark = sg_coordinator_save_mark(c, group, step->number, iteration);
    TAILQ_INSERT_TAIL(&state->steps, step, link);
    excuse_gone(c, group, step);
    return step;
}

void sg_coordinator_steps_begun(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t begun)
{
    sg_coordinator_step *step;
    TAILQ_FOREACH(step, &c->groups[group].steps, link)
    {
        if (step->number < begun && sg_workers_has(&step->iteration->members, worker))
            note_pushed(&c->groups[group], step);
    }
}

void sg_coordinator_steps_finished(sg_coordinator *c, uint32_t group, uint32_t worker, uint64_t finished)
{
    sg_coordinator_step *step;
    TAILQ_FOREACH(step, &c->groups[group].steps, link)
    {
        /* A worker pushes step s + 1 when all rounds of s are closed, whoever took part in them. */
        if (c->config->update.backup_workers > 0 && step->number + 1 < finished)
            step->done = step->iteration->members;
        if (step->number < finished && c->workers[worker].member &&
            c->workers[worker].member_from <= step->iteration->number) {
            sg_workers_add(&step->done, worker);
            note_pushed(&c->groups[group], step);
        }
    }
    forget_done_steps(c, group);
}

/* True if this life takes part in the step and did not finish it. */
static bool takes_part(const sg_coordinator_life *life, const sg_coordinator_step *step)
{
    return life->member && life->member_from <= step->iteration->number &&
           sg_workers_has(&step->iteration->members, life->worker) && !sg_workers_has(&step->done, life->worker);
}

static size_t count_steps(const sg_coordinator *c)
{
    size_t n = 0;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        sg_coordinator_step *step;
        TAILQ_FOREACH(step, &c->groups[group].steps, link)
        n++;
    }
    return n;
}

void sg_coordinator_steps_fence(sg_coordinator *c, const sg_coordinator_life *life)
{
    order_excuse(c, life->worker, life->incarnation, NULL, 0);
}

/* A goodbye, and the hello of one that was late, say what was begun; nothing is without a ticket. */
static bool may_have_begun(const sg_coordinator *c, const sg_coordinator_life *life, uint32_t group, uint64_t step)
{
    const sg_coordinator_worker *worker = &c->workers[life->worker];
    return worker->incarnation != life->incarnation || worker->groups == NULL ||
           step < worker->groups[group].granted - worker->groups[group].unbegun;
}

/* Of iterations below `before`. */
static void excuse(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed, uint64_t before)
{
    size_t capacity = count_steps(c), n = 0;
    Shardgrad__V1__Step *messages = sg_xcalloc(capacity, sizeof *messages);
    Shardgrad__V1__Step **steps = sg_xcalloc(capacity, sizeof(Shardgrad__V1__Step *));
    uint8_t(*members)[SG_WORKERS_WIRE_BYTES] = sg_xcalloc(capacity, sizeof *members);
    for (uint32_t group = 0; group < c->n_groups; group++) {
        sg_coordinator_step *step;
        TAILQ_FOREACH(step, &c->groups[group].steps, link)
        {
            if (step->iteration->number >= before || !takes_part(life, step))
                continue;
            sg_workers_add(&step->done, life->worker);
            if ((pushed == NULL || before < UINT64_MAX) && may_have_begun(c, life, group, step->number))
                note_pushed(&c->groups[group], step);
            if (pushed != NULL && step->number < pushed[group])
                continue;
            fill_step(group, step, members[n], &messages[n]);
            steps[n] = &messages[n];
            n++;
        }
    }
    if (n > 0 || before == UINT64_MAX)
        order_excuse(c, life->worker, life->incarnation, steps, n);
    free(members);
    free(steps);
    free(messages);
}

static void forget_all_done(sg_coordinator *c)
{
    for (uint32_t group = 0; group < c->n_groups; group++)
        forget_done_steps(c, group);
}

void sg_coordinator_steps_excuse(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed)
{
    excuse(c, life, pushed, UINT64_MAX);
    note_gone(c, life, UINT64_MAX);
    forget_all_done(c);
}

void sg_coordinator_steps_excuse_before(sg_coordinator *c, const sg_coordinator_life *life, const uint64_t *pushed,
                                        uint64_t before)
{
    excuse(c, life, pushed, before);
    note_gone(c, life, before);
    forget_all_done(c);
}

void sg_coordinator_steps_clear(sg_coordinator *c)
{
    for (uint32_t group = 0; group < SG_COORDINATOR_MAX_GROUPS; group++) {
        struct sg_coordinator_steps *steps = &c->groups[group].steps;
        while (!TAILQ_EMPTY(steps)) {
            sg_coordinator_step *step = TAILQ_FIRST(steps);
            TAILQ_REMOVE(steps, step, link);
            sg_pool_free(step);
        }
        c->groups[group].next_step = c->groups[group].last_iteration = c->groups[group].clock = 0;
        c->groups[group].opened = false;
        c->groups[group].pushed = c->groups[group].pushed_iteration = 0;
    }
    while (!TAILQ_EMPTY(&c->iterations))
        free_iteration(c, TAILQ_FIRST(&c->iterations));
    c->frozen = 0;
}
