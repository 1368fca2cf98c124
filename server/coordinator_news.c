/* server/coordinator_news.c - async: was anything pushed since the newest checkpoint was cut?
 *
 * Sync knows it by the steps that were pushed. Async tickets are handed out ahead, beyond the last step too, and nobody
 * says when something of one is pushed: it is known of those that are finished, and possible of all others. */
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

/* Tickets of which something may have been counted; `surely`: all. One that is not there was fenced, and cuts are
 * ordered after that: what it began to push is in the next one, or never comes. One that rests has finished, as a rule;
 * if not, its goodbye says so. */
static uint64_t n_counted(const sg_coordinator *c, uint32_t index, bool surely)
{
    const sg_coordinator_worker *worker = &c->workers[index];
    const sg_coordinator_progress *groups = worker->groups;
    bool goes_on = worker->state == SG_COORDINATOR_WORKER_JOINED && !worker->resting;
    uint64_t n = 0;
    for (uint32_t group = 0; groups != NULL && group < c->n_groups; group++)
        n += goes_on && surely ? groups[group].finished : groups[group].granted - groups[group].unbegun;
    return n;
}

bool sg_coordinator_news_any(const sg_coordinator *c, bool surely)
{
    if (c->save.past > c->save.past_in_newest)
        return true;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (n_counted(c, i, surely) > c->workers[i].in_newest)
            return true;
    }
    return false;
}

void sg_coordinator_news_restart(sg_coordinator *c)
{
    c->save.past = c->save.past_in_cut = c->save.past_in_newest = 0;
    for (uint32_t i = 0; i < c->n_workers; i++) /* of those who are there another incarnation begins */
        c->workers[i].in_cut = c->workers[i].in_newest = n_counted(c, i, false);
}

void sg_coordinator_news_note_past(sg_coordinator *c, uint32_t worker)
{
    c->save.past += n_counted(c, worker, false) > c->workers[worker].in_newest;
}

void sg_coordinator_news_note_cut(sg_coordinator *c)
{
    c->save.past_in_cut = c->save.past;
    for (uint32_t i = 0; i < c->n_workers; i++)
        c->workers[i].in_cut = n_counted(c, i, true);
}

void sg_coordinator_news_note_complete(sg_coordinator *c)
{
    c->save.past_in_newest = c->save.past_in_cut;
    for (uint32_t i = 0; i < c->n_workers; i++)
        c->workers[i].in_newest = c->workers[i].in_cut;
}

/* --- where training goes on ------------------------------------------------------------------------------------- */

/* It left in this generation, and did not begin its ticket of this number: it has one, and may have asked for another.
 */
static bool gave_back(const sg_coordinator *c, const sg_coordinator_worker *worker, uint32_t group, uint64_t step)
{
    if (worker->state != SG_COORDINATOR_WORKER_LEFT ||
        sg_coordinator_generation_of(worker->incarnation) != c->generation || worker->groups == NULL)
        return false;
    const sg_coordinator_progress *progress = &worker->groups[group];
    return (progress->unbegun > 0 && progress->step == step) || (progress->unbegun > 1 && progress->before == step);
}

/* When all have left, tickets that were handed out ahead and that nobody began to push are for whoever comes next: a
 * job that is to train for longer would do without their batches. */
uint64_t sg_coordinator_news_next_step(const sg_coordinator *c, uint32_t group)
{
    uint64_t next = c->groups[group].next_step;
    for (uint32_t i = 0; i < c->n_workers && !sg_coordinator_losses_any_member(c);) {
        const bool is_last = next > 0 && gave_back(c, &c->workers[i], group, next - 1);
        next -= is_last;
        i = is_last ? 0 : i + 1;
    }
    return next;
}

static uint64_t iteration_of(const sg_coordinator *c, uint32_t group, uint64_t step)
{
    return sg_coordinator_steps_iteration(c, group, step * c->groups[group].every + c->ahead);
}

/* Whether iterations follow from steps alone: a trainer may name its own. */
static bool are_counted(const sg_coordinator *c)
{
    for (uint32_t i = 0; i < c->n_workers; i++) {
        const sg_coordinator_progress *groups = c->workers[i].groups;
        for (uint32_t group = 0; groups != NULL && group < c->n_groups; group++) {
            if (sg_coordinator_generation_of(c->workers[i].incarnation) == c->generation && groups[group].granted > 0 &&
                groups[group].iteration != iteration_of(c, group, groups[group].step))
                return false;
        }
    }
    return c->knows_ahead;
}

uint64_t sg_coordinator_news_next_iteration(const sg_coordinator *c)
{
    uint64_t next = 0;
    bool is_less = false;
    for (uint32_t group = 0; group < c->n_groups; group++) {
        const uint64_t step = sg_coordinator_news_next_step(c, group);
        const uint64_t iteration = step > 0 ? iteration_of(c, group, step - 1) + 1 : 0;
        is_less = is_less || step < c->groups[group].next_step;
        next = iteration > next ? iteration : next;
    }
    return is_less && next < c->frozen && are_counted(c) ? next : c->frozen;
}

bool sg_coordinator_news_gave_back(const sg_coordinator *c)
{
    const sg_checkpoint_manifest *newest = &c->save.newest;
    if (newest->set.generation != c->generation || sg_coordinator_losses_any_member(c))
        return false;
    bool any = newest->next_iteration > sg_coordinator_news_next_iteration(c);
    for (uint32_t group = 0; group < c->n_groups; group++)
        any = any || newest->steps[group] > sg_coordinator_news_next_step(c, group);
    return any;
}

/* Where one is to be cut when no ticket was handed out since the newest: what is in the two is not the same, and so
 * their names must not be. It is only a name: where training goes on the manifest tells. */
uint64_t sg_coordinator_news_free_name(const sg_coordinator *c)
{
    const uint64_t newest = c->save.iteration, next = sg_coordinator_news_next_iteration(c);
    if (!c->save.complete || next > newest)
        return next;
    return c->save.newest.set.generation == c->generation ? newest + 1 : newest;
}
