/* server/coordinator_losses.c - what becomes of a worker whose lease ran out: on_worker_loss and min_workers.
 *
 * A worker that takes part in steps is a loss from the moment in which its incarnation is fenced. `continue` excuses it
 * from its steps as soon as min_workers others train, or a new life of its index; until then the loss is held back: no
 * step is opened, no joiner becomes a member, and when start_timeout_ms have passed the job ends. It is judged again at
 * every event, so whoever asks for a ticket lets the job go on.
 *
 * `wait` excuses nobody (sync; elsewhere no round waits for anybody, and it is `continue`): the next life of the index
 * takes the lost one's place in the steps that are frozen, from the lowest one on that a slice lacks of it. The ps say
 * which, when they acknowledge that the lost life is fenced. */
#include <stdlib.h>

#include "server/coordinator_internal.h"

/* It trains, or would if there were a step for it. */
static bool trains(const sg_coordinator_worker *worker)
{
    return worker->state == SG_COORDINATOR_WORKER_JOINED && worker->asked;
}

static uint32_t n_training(const sg_coordinator *c)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n_workers; i++)
        n += trains(&c->workers[i]);
    return n;
}

static bool waits_for_the_lost(const sg_coordinator *c)
{
    return c->config->on_worker_loss == SG_WORKER_LOSS_WAIT && !sg_coordinator_is_async(c);
}

/* May the others go on without this life? */
static bool is_dispensable(const sg_coordinator *c, const sg_coordinator_life *life)
{
    if (waits_for_the_lost(c))
        return false;
    return n_training(c) >= c->config->min_workers || trains(&c->workers[life->worker]);
}

static void forget(sg_coordinator *c, sg_coordinator_loss *loss)
{
    TAILQ_REMOVE(&c->losses, loss, link);
    free(loss->lacking);
    free(loss);
}

void sg_coordinator_losses_clear(sg_coordinator *c)
{
    for (sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses), *next; loss != NULL; loss = next) {
        next = TAILQ_NEXT(loss, link);
        free(loss->lacking);
        free(loss);
    }
    TAILQ_INIT(&c->losses);
}

bool sg_coordinator_losses_held(const sg_coordinator *c)
{
    return !TAILQ_EMPTY(&c->losses);
}

bool sg_coordinator_losses_any_member(const sg_coordinator *c)
{
    return sg_coordinator_losses_held(c) || sg_coordinator_members_any(c);
}

bool sg_coordinator_losses_holds(const sg_coordinator *c, uint32_t worker)
{
    const sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses);
    while (loss != NULL && loss->life.worker != worker)
        loss = TAILQ_NEXT(loss, link);
    return loss != NULL;
}

static void excuse(sg_coordinator *c, const sg_coordinator_life *life)
{
    sg_coordinator_steps_excuse(c, life, NULL);
    sg_coordinator_log(c, SG_LOG_WARN, "excused", "worker=%" PRIu32 " incarnation=%" PRIx64 " training=%" PRIu32,
                       life->worker, life->incarnation, n_training(c));
}

/* Nothing that it still sends counts, whatever becomes of the steps in which it takes part. */
static void hold_back(sg_coordinator *c, const sg_coordinator_life *life, bool returns)
{
    sg_coordinator_loss *loss = sg_xcalloc(1, sizeof *loss);
    loss->life = *life;
    loss->returns = returns;
    loss->since_ms = c->now_ms;
    loss->lacking = sg_xcalloc(c->n_groups, sizeof *loss->lacking);
    for (uint32_t group = 0; group < c->n_groups; group++)
        loss->lacking[group] = UINT64_MAX;
    sg_coordinator_steps_fence(c, life);
    TAILQ_INSERT_TAIL(&c->losses, loss, link);
    sg_coordinator_log(c, SG_LOG_WARN, "held_back",
                       "worker=%" PRIu32 " incarnation=%" PRIx64 " training=%" PRIu32 " wanted=%" PRIu64, life->worker,
                       life->incarnation, n_training(c), c->config->min_workers);
}

void sg_coordinator_losses_take(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_worker *worker = &c->workers[index];
    SG_ASSERT(!sg_coordinator_members_live(worker));
    sg_coordinator_life life = sg_coordinator_life_of(c, index);
    worker->member = false;
    if (!life.member)
        sg_coordinator_steps_fence(c, &life);
    else if (is_dispensable(c, &life))
        excuse(c, &life);
    else
        hold_back(c, &life, false);
    sg_coordinator_init_gone(c, index);
}

void sg_coordinator_losses_return(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_life life = sg_coordinator_life_of(c, index);
    c->workers[index].member = false;
    if (!life.member)
        sg_coordinator_steps_fence(c, &life);
    else if (!sg_coordinator_is_async(c))
        hold_back(c, &life, true);
    else
        sg_coordinator_steps_excuse(c, &life, NULL);
    sg_coordinator_init_gone(c, index);
}

/* Group and step at which the others will wait for it. */
static void oldest_held(const sg_coordinator *c, const sg_coordinator_worker *worker, uint32_t *group, uint64_t *step)
{
    *group = 0;
    *step = 0;
    for (uint32_t i = 0; worker->groups != NULL && i < c->n_groups; i++) {
        const sg_coordinator_progress *progress = &worker->groups[i];
        if (progress->granted == 0)
            continue;
        *group = i;
        if (sg_coordinator_is_async(c))
            *step = progress->step;
        else
            *step = progress->finished > progress->first ? progress->finished : progress->first;
        return;
    }
}

static void abort_job(sg_coordinator *c, uint32_t index)
{
    char name[SG_COORDINATOR_TEXT_BYTES];
    uint32_t group;
    uint64_t step;
    oldest_held(c, &c->workers[index], &group, &step);
    sg_coordinator_end_fail(c, SG_PEER_LOST,
                            "%s was not heard for %" PRIu64 " ms (group %" PRIu32 ", step %" PRIu64
                            "); the job ends: look at its log, then start the job again",
                            sg_coordinator_worker_name(c, index, name), c->config->lease_ms, group, step);
}

void sg_coordinator_losses_lose(sg_coordinator *c, uint32_t index)
{
    sg_coordinator_worker *worker = &c->workers[index];
    bool running = c->state == SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING;
    bool trained = running && (worker->declared != 0 || worker->asked);
    sg_coordinator_log(c, SG_LOG_WARN, "lost", "worker=%" PRIu32 " was=%s lease_ms=%" PRIu64, index,
                       worker->address[0] == '\0' ? "-" : worker->address, c->config->lease_ms);
    worker->state = SG_COORDINATOR_WORKER_LOST;
    if (trained && c->config->on_worker_loss == SG_WORKER_LOSS_ABORT) {
        abort_job(c, index);
        return;
    }
    sg_coordinator_losses_take(c, index);
    if (running)
        sg_coordinator_end_consider(c);
}

void sg_coordinator_losses_left(sg_coordinator *c, uint32_t index)
{
    for (sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses), *next; loss != NULL; loss = next) {
        next = TAILQ_NEXT(loss, link);
        if (loss->life.worker != index)
            continue;
        excuse(c, &loss->life);
        forget(c, loss);
    }
}

void sg_coordinator_losses_fenced(sg_coordinator *c, const Shardgrad__V1__Excuse *excuse,
                                  const Shardgrad__V1__OrderResponse *response)
{
    sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses);
    while (loss != NULL && loss->life.incarnation != excuse->incarnation)
        loss = TAILQ_NEXT(loss, link);
    if (loss == NULL)
        return;
    loss->n_fenced++;
    for (size_t i = 0; response != NULL && i < response->n_lacking; i++) {
        const Shardgrad__V1__Lacking *lacking = response->lacking[i];
        if (lacking->group < c->n_groups && lacking->step < loss->lacking[lacking->group])
            loss->lacking[lacking->group] = lacking->step;
    }
}

/* The first iteration of which no group has got anything that the others have not: a trainer goes through the groups of
 * an iteration in its own order, and waits in one of them for what it does in another. */
static uint64_t first_iteration(sg_coordinator *c, const sg_coordinator_loss *loss)
{
    uint64_t first = loss->life.member_from;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        const sg_coordinator_step *step =
            sg_coordinator_steps_from(c, group, loss->lacking[group], loss->life.member_from);
        uint64_t iteration = step != NULL                      ? step->iteration->number
                             : c->groups[group].next_step == 0 ? 0
                                                               : c->groups[group].last_iteration + 1;
        first = iteration > first ? iteration : first;
    }
    return first;
}

/* The life of now is a member in the place of the lost one. It begins with the lowest step that a slice lacks; where
 * the lost one got stuck between the groups of an iteration, with the next iteration, and the lost one is excused from
 * the rest of that one. */
static void replace(sg_coordinator *c, const sg_coordinator_loss *loss)
{
    uint64_t first = first_iteration(c, loss);
    uint32_t index = loss->life.worker;
    sg_coordinator_steps_excuse_before(c, &loss->life, loss->lacking, first);
    for (uint32_t group = 0; group < c->n_groups; group++) /* a part of any of them may have come from the lost one */
        sg_coordinator_steps_begun(c, group, index, c->groups[group].next_step);
    sg_coordinator_worker *worker = &c->workers[index];
    worker->member = true;
    worker->member_from = first;
    sg_coordinator_log(c, SG_LOG_INFO, "replaced", "worker=%" PRIu32 " incarnation=%" PRIx64 " by=%" PRIx64, index,
                       loss->life.incarnation, worker->incarnation);
}

/* A loss that is one no more: excused, or replaced. */
static bool settle_loss(sg_coordinator *c, const sg_coordinator_loss *loss)
{
    const sg_coordinator_worker *worker = &c->workers[loss->life.worker];
    bool returns = loss->returns && sg_coordinator_members_live(worker);
    if (loss->returns && !returns && c->config->on_worker_loss == SG_WORKER_LOSS_ABORT) {
        abort_job(c, loss->life.worker);
        return true;
    }
    if (!returns && is_dispensable(c, &loss->life)) {
        excuse(c, &loss->life);
        return true;
    }
    if ((!returns && !waits_for_the_lost(c)) || loss->n_fenced < c->n_ps || !trains(worker))
        return false;
    replace(c, loss);
    return true;
}

bool sg_coordinator_losses_advance(sg_coordinator *c)
{
    bool moved = false;
    for (sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses), *next; loss != NULL; loss = next) {
        next = TAILQ_NEXT(loss, link);
        if (!settle_loss(c, loss))
            continue;
        forget(c, loss);
        moved = true;
    }
    return moved;
}

void sg_coordinator_losses_tick(sg_coordinator *c)
{
    const sg_coordinator_loss *oldest = TAILQ_FIRST(&c->losses);
    if (oldest == NULL || c->over || c->now_ms - oldest->since_ms < c->config->start_timeout_ms)
        return;
    char waiting[SG_ERROR_MESSAGE_BYTES];
    sg_coordinator_losses_waiting(c, waiting);
    sg_coordinator_end_fail(c, SG_PEER_LOST, "%s in vain for %" PRIu64 " ms: start the job again", waiting,
                            c->config->start_timeout_ms);
}

void sg_coordinator_losses_extend(sg_coordinator *c, uint64_t late_ms)
{
    sg_coordinator_loss *loss;
    TAILQ_FOREACH(loss, &c->losses, link)
    loss->since_ms = sg_coordinator_put_off(c, loss->since_ms, late_ms);
}

const char *sg_coordinator_losses_waiting(const sg_coordinator *c, char out[SG_ERROR_MESSAGE_BYTES])
{
    const sg_coordinator_loss *loss = TAILQ_FIRST(&c->losses);
    if (loss == NULL)
        return NULL;
    char name[SG_COORDINATOR_TEXT_BYTES];
    sg_coordinator_worker_name(c, loss->life.worker, name);
    bool returns = loss->returns && sg_coordinator_members_live(&c->workers[loss->life.worker]);
    if (returns || waits_for_the_lost(c)) {
        snprintf(out, SG_ERROR_MESSAGE_BYTES, "waiting for %s, which %s, to come again", name,
                 returns ? "missed a ps" : "was lost");
        return out;
    }
    snprintf(out, SG_ERROR_MESSAGE_BYTES,
             "waiting for %s, which was lost, or another worker to come (%" PRIu32 " train, min_workers is %" PRIu64
             ")",
             name, n_training(c), c->config->min_workers);
    return out;
}
