/* worker/client/client_steps.c - steps: their tickets, and gradients and values that come and go with them. */
#include <inttypes.h>

#include "common/clock.h"
#include "kernels/update.h"
#include "worker/client/client_internal.h"

void sg_step_rows(const sg_step *step, uint64_t batch, uint64_t *begin, uint64_t *end)
{
    const uint64_t size = step->size == 0 ? 1 : step->size;
    *begin = (uint64_t)((unsigned __int128)batch * step->rank / size);
    *end = (uint64_t)((unsigned __int128)batch * (step->rank + (uint64_t)1) / size);
}

/* --- ops of the session's tasks. All with the lock held -------------------------------------------------------- */

static sg_op *op_of_group(sg_client *client, uint64_t task, uint32_t group)
{
    sg_op *op = sg_op_create(client, task);
    op->group = group;
    op->of_group = true;
    client->groups[group].n_moving++;
    return op;
}

sg_op *sg_client_pull_begin(sg_client *client, uint32_t group, uint64_t version, const uint32_t *slices, size_t n)
{
    const uint64_t wanted = sg_session_mode(client->session) == SG_MODE_SYNC ? version : 0;
    return op_of_group(client, sg_session_pull(client->session, sg_clock_ms(), UINT64_MAX, wanted, slices, n), group);
}

sg_status sg_client_push_begin(sg_client *client, sg_client_push_fn push, const sg_step *step, uint64_t weight,
                               const uint32_t *slices, size_t n, sg_op **op, sg_error *err)
{
    uint64_t task;
    const sg_status status = push(client->session, sg_clock_ms(), UINT64_MAX, step, weight, slices, n, &task, err);
    if (status == SG_OK)
        *op = op_of_group(client, task, step->group);
    return status;
}

static sg_status group_check(sg_client *client, const sg_step *step, sg_error *err)
{
    const sg_status status = sg_client_usable(client, err);
    if (status == SG_OK && step->group >= client->n_groups)
        return sg_error_set(err, SG_INVALID, "group %" PRIu32 " does not exist: there are %" PRIu32, step->group,
                            client->n_groups);
    return status;
}

sg_status sg_client_step_check(sg_client *client, const sg_step *step, sg_error *err)
{
    const sg_status status = group_check(client, step, err);
    if (status == SG_OK && client->groups[step->group].behind)
        return sg_error_set(err, client->back.code, "%s", client->back.message);
    return status;
}

/* --- begin ----------------------------------------------------------------------------------------------------- */

/* The step before: all of it must be on its way, and, unless the caller wants to wait for its values itself, there. In
 * ssp there is nothing to gain by that: the next ticket is asked for when this step is acknowledged; and its values may
 * have to be asked for anew, into the same buffers. */
static sg_status before_await(sg_client *client, const sg_step *step, sg_error *err)
{
    sg_status status = group_check(client, step, err);
    const bool values_later = step->values_later && sg_session_mode(client->session) != SG_MODE_SSP;
    while (status == SG_OK && !values_later && client->groups[step->group].n_moving > 0) {
        pthread_cond_wait(&client->changed, &client->mutex);
        status = group_check(client, step, err);
    }
    if (status != SG_OK)
        return status;
    const sg_client_group *group = &client->groups[step->group];
    if (group->begun)
        sg_session_finish(client->session, sg_clock_ms(), &group->step);
    return SG_OK;
}

/* One who joins late, or who did not pull after the last step, lacks the values that the step is computed on; in ssp
 * also one who pulled when others were too far behind. */
static sg_op *missing_begin(sg_client *client, const sg_step *step)
{
    const size_t n = sg_session_missing(client->session, step, NULL);
    if (n == 0)
        return NULL;
    uint32_t *missing = sg_pool_alloc(client->pool, n * sizeof *missing);
    sg_session_missing(client->session, step, missing);
    sg_op *op = sg_client_pull_begin(client, step->group, step->number, missing, n);
    sg_pool_free(missing);
    return op;
}

/* With the lock held: the step is begun. *op, if not NULL, brings what is missing of its values. */
static void step_begun(sg_client *client, const sg_step *given, sg_op **op)
{
    client->started = true;
    client->groups[given->group].step = *given;
    client->groups[given->group].begun = client->groups[given->group].used = true;
    client->groups[given->group].behind = false;
    *op = missing_begin(client, given);
}

/* With the lock held: asks for the ticket, with a task of the session. */
static sg_op *ticket_begin(sg_client *client, uint32_t group)
{
    const uint64_t now_ms = sg_clock_ms();
    const uint64_t deadline_ms = client->started ? UINT64_MAX : now_ms + client->start_timeout_ms;
    return sg_op_create(client, sg_session_ticket(client->session, now_ms, deadline_ms, group));
}

/* n_resumes: the client's when the ticket was asked for. If another thread has begun to bring it back since, it is
 * void.
 */
static sg_status ticket_await(sg_client *client, sg_op *take_op, uint64_t n_resumes, sg_step *given, sg_op **op,
                              sg_error *err)
{
    sg_status status = sg_op_finish(take_op, given, err);
    sg_client_lock(client);
    if (status == SG_OK)
        status = sg_client_usable(client, err);
    if (status == SG_OK && client->n_resumes != n_resumes)
        status = sg_error_set(err, client->back.code, "%s", client->back.message);
    if (status == SG_OK)
        step_begun(client, given, op);
    sg_client_unlock(client);
    return status;
}

static void step_give(sg_step *step, const sg_step *given)
{
    const sg_step asked = *step;
    *step = *given;
    step->loss = asked.loss;
    step->examples = asked.examples;
    step->values_later = asked.values_later;
}

/* An interrupt ends the ops that there are: so each is made under the lock under which it was found that there was
 * none. *n_resumed: the client's when it looked. */
static sg_status begin(sg_client *client, sg_step *step, uint64_t *n_resumed, sg_error *err)
{
    sg_op *op = NULL, *ticket = NULL;
    sg_step given;
    sg_client_lock(client);
    sg_status status = before_await(client, step, err);
    const uint64_t n_resumes = client->n_resumes;
    *n_resumed = client->n_resumed;
    const bool there = status == SG_OK && sg_session_ticket_take(client->session, sg_clock_ms(), step->group, &given);
    if (there)
        step_begun(client, &given, &op);
    else if (status == SG_OK)
        ticket = ticket_begin(client, step->group);
    sg_client_unlock(client);
    if (ticket != NULL)
        status = ticket_await(client, ticket, n_resumes, &given, &op, err);
    if (status == SG_OK && op != NULL)
        status = sg_op_finish(op, NULL, err);
    if (status == SG_OK)
        step_give(step, &given);
    return status;
}

static bool any_moves(const sg_client *client)
{
    for (uint32_t i = 0; i < client->n_groups; i++) {
        if (client->groups[i].n_moving > 0)
            return true;
    }
    return false;
}

/* With the lock held: what was done before counts no more, which whoever did it may be yet to hear. */
static void groups_fall_behind(sg_client *client)
{
    for (uint32_t i = 0; i < client->n_groups; i++) {
        client->groups[i].behind = client->groups[i].used;
        client->groups[i].begun = false;
    }
}

/* Joins and declares again, which may bring values: so everything that moved before has come to rest first. One thread
 * does it for all; one that comes second waits, and finds it done. *why: how what this thread did has ended; where this
 * fails, why it does. */
static sg_status resume(sg_client *client, sg_error *why)
{
    sg_op *op = NULL;
    sg_client_lock(client);
    while (client->resuming || (sg_session_is_back(client->session) && any_moves(client)))
        pthread_cond_wait(&client->changed, &client->mutex);
    sg_status status = sg_client_usable(client, why);
    if (status == SG_OK && sg_session_is_back(client->session)) {
        client->back = *why;
        client->resuming = true;
        client->n_resumes++;
        groups_fall_behind(client);
        op = sg_op_create(client, sg_session_resume(client->session, sg_clock_ms(), UINT64_MAX));
    }
    sg_client_unlock(client);
    if (op == NULL)
        return status;
    status = sg_op_finish(op, NULL, why);
    sg_client_lock(client);
    client->resuming = false;
    client->n_resumed += status == SG_OK;
    pthread_cond_broadcast(&client->changed);
    sg_client_unlock(client);
    return status;
}

/* It is to come back, or has since: then what this thread heard is of before. */
static bool is_back(sg_client *client, uint64_t n_resumed)
{
    sg_client_lock(client);
    const bool back = client->resuming || client->n_resumed != n_resumed || sg_session_is_back(client->session);
    const bool interrupted = client->interrupted;
    sg_client_unlock(client);
    return back && !interrupted;
}

bool sg_client_goes_on(sg_status status)
{
    return status == SG_OK || status == SG_ROLLED_BACK || status == SG_FENCED || status == SG_LATE;
}

sg_status sg_client_begin_step(sg_client *client, sg_step *step, sg_error *err)
{
    sg_error why;
    uint64_t n_resumed;
    sg_status status = begin(client, step, &n_resumed, &why);
    while (status != SG_OK && sg_client_goes_on(status) && is_back(client, n_resumed)) {
        status = resume(client, &why);
        if (status == SG_OK)
            status = begin(client, step, &n_resumed, &why);
    }
    return status == SG_OK ? SG_OK : sg_error_set(err, status, "%s", why.message);
}

/* --- end ------------------------------------------------------------------------------------------------------- */

static bool group_is_finite(const sg_client *client, uint32_t group, const char **variable)
{
    const sg_plan *plan = sg_session_plan(client->session);
    for (size_t i = 0; i < client->n_variables; i++) {
        *variable = client->variables[i].name;
        if (client->variables[i].group == group && !client->variables[i].frozen &&
            !sg_update_copy_is_finite(client->variables[i].gradient, NULL, plan->variables[i].n_elems))
            return false;
    }
    return true;
}

/* 0 where anything in the group is not finite: so that all of it is left out on every ps, and not parts. */
static uint64_t weight_of(sg_client *client, const sg_step *step)
{
    const char *variable;
    if (!client->check_finite || group_is_finite(client, step->group, &variable))
        return step->examples;
    sg_client_lock(client);
    client->non_finite += client->groups[step->group].n_slices;
    uint64_t n = sg_log_pace_count(&client->non_finite_pace, sg_clock_ms());
    sg_client_unlock(client);
    char quoted[512];
    if (n > 0)
        sg_log_warn(&client->log, "non_finite",
                    "steps=%" PRIu64 " group=%" PRIu32 " step=%" PRIu64
                    " variable=%s message=\"its gradients are left out; a lower learning rate may help\"",
                    n, step->group, step->number, sg_log_quote(variable, quoted, sizeof quoted));
    return 0;
}

/* With the lock held. The step counts as finished as soon as what is sent here is acknowledged. */
static sg_status exchange_begin(sg_client *client, const sg_step *step, uint64_t weight, sg_op **op, sg_error *err)
{
    sg_status status = sg_client_step_check(client, step, err);
    if (status != SG_OK)
        return status;
    sg_client_group *group = &client->groups[step->group];
    status = sg_client_push_begin(client, sg_session_push_pull, step, weight, group->slices, group->n_slices, op, err);
    if (status != SG_OK)
        return status;
    sg_session_finish(client->session, sg_clock_ms(), step);
    group->begun = false;
    return SG_OK;
}

sg_status sg_client_end_step(sg_client *client, sg_step *step, sg_error *err)
{
    sg_client_lock(client);
    sg_status status = sg_client_step_check(client, step, err);
    sg_client_unlock(client);
    if (status != SG_OK)
        return status;
    const uint64_t weight = weight_of(client, step);
    sg_op *op = NULL;
    sg_client_lock(client);
    status = exchange_begin(client, step, weight, &op, err);
    sg_client_unlock(client);
    return status == SG_OK ? sg_op_finish(op, NULL, err) : status;
}
