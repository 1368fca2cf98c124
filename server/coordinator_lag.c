/* server/coordinator_lag.c - sync, several groups: an iteration was begun in one of them, and its step of another is
 * about to be asked for. Who ends something waits for that: a step that is left out then is never made up for. */
#include "server/coordinator_internal.h"

/* So far behind, a group is on its way: of the other one the step of the same iteration, the next and the one
 * after that may have been handed out. One that is farther behind is stepped when its trainer likes. */
#define NEAR_ITERATIONS 3u

/* Iterations of the members, and of those who are missed and whose places others will take. */
typedef struct members_view {
    uint64_t first;   /* that one of them takes part in */
    uint64_t n_later; /* of them take part from a later iteration on than was asked about */
} members_view;

static void view_add(members_view *view, uint64_t member_from, uint64_t iteration)
{
    view->first = member_from < view->first ? member_from : view->first;
    view->n_later += member_from > iteration;
}

static members_view view_members(const sg_coordinator *c, uint64_t iteration)
{
    members_view view = {.first = UINT64_MAX};
    const sg_coordinator_loss *loss;
    for (uint32_t i = 0; i < c->n_workers; i++) {
        if (c->workers[i].member)
            view_add(&view, c->workers[i].member_from, iteration);
    }
    TAILQ_FOREACH(loss, &c->losses, link)
    view_add(&view, loss->life.member_from, iteration);
    if (view.first == UINT64_MAX)
        view.first = 0;
    return view;
}

/* Each joiner may have got a step farther than the one who let it in. */
static bool lags(const sg_coordinator *c, uint32_t index)
{
    const sg_coordinator_group *group = &c->groups[index];
    const uint64_t from = group->next_step > 0 ? group->last_iteration + 1 : 0;
    const members_view view = view_members(c, from);
    const uint64_t next = sg_coordinator_steps_iteration(c, index, from > view.first ? from : view.first);
    return next < c->frozen && c->frozen - next <= NEAR_ITERATIONS + view.n_later;
}

bool sg_coordinator_lag_any(const sg_coordinator *c)
{
    for (uint32_t group = 0; group < c->n_groups && sg_coordinator_losses_any_member(c); group++) {
        if (lags(c, group))
            return true;
    }
    return false;
}
