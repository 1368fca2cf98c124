/* worker/client/op.c - an operation under way: complete when the session has ended its task, every call of it has
 * ended, and the transport has let go of every buffer. Until then its buffers are not the caller's. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>

#include "common/clock.h"
#include "worker/client/client_internal.h"

static void cond_init_monotonic(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

sg_op *sg_op_create(sg_client *client, uint64_t task)
{
    sg_op *op = LIST_FIRST(&client->free_ops);
    if (op != NULL) {
        LIST_REMOVE(op, link);
        op->of_group = op->done = op->complete = false;
        op->error.code = SG_OK;
    } else {
        op = sg_xcalloc(1, sizeof *op);
        op->client = client;
        TAILQ_INIT(&op->calls);
        cond_init_monotonic(&op->completed);
    }
    op->task = task;
    atomic_store(&op->n_lent, 0);
    LIST_INSERT_HEAD(&client->ops, op, link);
    sg_slots_put(&client->ops_by_task, task, op);
    return op;
}

void sg_ops_free(sg_client *client)
{
    for (sg_op *op; (op = LIST_FIRST(&client->free_ops)) != NULL;) {
        LIST_REMOVE(op, link);
        pthread_cond_destroy(&op->completed);
        free(op);
    }
    sg_slots_deinit(&client->ops_by_task);
}

sg_op *sg_op_find(const sg_client *client, uint64_t task)
{
    return sg_slots_get(&client->ops_by_task, task);
}

/* A thread that is woken while the mutex is held would go to sleep again at once. */
static void wake(sg_client *client, pthread_cond_t *cond)
{
    if (client->n_woken < SG_CLIENT_MAX_WOKEN)
        client->woken[client->n_woken++] = cond;
    else
        pthread_cond_broadcast(cond);
}

void sg_op_settle(sg_op *op)
{
    if (op->complete || !op->done || !TAILQ_EMPTY(&op->calls) ||
        (atomic_fetch_or(&op->n_lent, SG_OP_AWAITS_LENT) & ~SG_OP_AWAITS_LENT) > 0)
        return;
    op->complete = true;
    wake(op->client, &op->completed);
    if (op->of_group && --op->client->groups[op->group].n_moving == 0)
        pthread_cond_broadcast(&op->client->changed);
}

bool sg_op_is_complete(sg_op *op)
{
    pthread_mutex_lock(&op->client->mutex);
    const bool complete = op->complete;
    pthread_mutex_unlock(&op->client->mutex);
    return complete;
}

static struct timespec time_at(uint64_t ms)
{
    return (struct timespec){.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
}

void sg_op_note_lack(sg_op *op)
{
    uint32_t slice;
    if (sg_session_lacks(op->client->session, op->task, &slice))
        wake(op->client, &op->completed);
}

static sg_status error_of_lack(const sg_client *client, uint32_t slice, sg_error *err)
{
    const sg_plan *plan = sg_session_plan(client->session);
    const uint32_t variable = plan->slices[slice].variable;
    return sg_error_set(err, SG_WAITING,
                        "the ps has no room for these gradients before those of variable %" PRIu32
                        " ('%s', slice %" PRIu32 "): push that, then wait again",
                        variable, client->variables[variable].name, slice);
}

sg_status sg_op_wait(sg_op *op, uint64_t timeout_ms, sg_error *err)
{
    sg_client *client = op->client;
    const uint64_t now_ms = sg_clock_ms();
    const bool limited = timeout_ms <= UINT32_MAX * (uint64_t)1000;
    const struct timespec limit = time_at(limited ? now_ms + timeout_ms : 0);
    pthread_mutex_lock(&client->mutex);
    int waited = 0;
    uint32_t slice;
    while (!op->complete && waited != ETIMEDOUT && !sg_session_lacks(client->session, op->task, &slice))
        waited = limited ? pthread_cond_timedwait(&op->completed, &client->mutex, &limit)
                         : pthread_cond_wait(&op->completed, &client->mutex);
    sg_status status = SG_OK;
    if (!op->complete && sg_session_lacks(client->session, op->task, &slice))
        status = error_of_lack(client, slice, err);
    else if (!op->complete)
        status =
            sg_error_set(err, SG_TIMEOUT, "not complete after %llu ms: %s", (unsigned long long)timeout_ms,
                         op->done ? "its calls are being ended" : sg_session_waiting_for(client->session, op->task));
    else if (op->error.code != SG_OK)
        status = sg_error_set(err, op->error.code, "%s", op->error.message);
    pthread_mutex_unlock(&client->mutex);
    return status;
}

void sg_op_cancel(sg_op *op)
{
    sg_client_lock(op->client);
    sg_session_cancel(op->client->session, sg_clock_ms(), op->task);
    sg_client_unlock(op->client);
}

void sg_op_destroy(sg_op *op)
{
    if (op == NULL)
        return;
    sg_client *client = op->client;
    pthread_mutex_lock(&client->mutex);
    while (!op->complete)
        pthread_cond_wait(&op->completed, &client->mutex);
    LIST_REMOVE(op, link);
    sg_slots_remove(&client->ops_by_task, op->task);
    LIST_INSERT_HEAD(&client->free_ops, op, link);
    pthread_mutex_unlock(&client->mutex);
}

sg_status sg_op_finish(sg_op *op, sg_step *step, sg_error *err)
{
    const sg_status status = sg_op_wait(op, UINT64_MAX, err);
    if (status == SG_OK && step != NULL)
        *step = op->step;
    sg_op_destroy(op);
    return status;
}
