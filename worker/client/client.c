/* worker/client/client.c - see shardgrad/client.h; client_internal.h has the map and the threads. */
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "worker/client/transport.h"

#define CLOSE_MS 1500 /* of the 2 s that close may take; ending calls and threads needs the rest */

/* --- carrying out what the session decides --------------------------------------------------------------------- */

typedef struct todo_log {
    STAILQ_ENTRY(todo_log) link;
    sg_session_action action;
} todo_log;

typedef struct todo_list {
    struct sg_client_calls starts, cancels;
    STAILQ_HEAD(, todo_log) logs;
} todo_list;

void sg_client_lock(sg_client *client)
{
    pthread_mutex_lock(&client->mutex);
}

static void take_call(sg_client *client, todo_list *todo, sg_session_action *action)
{
    if (client->closing) {
        sg_session_action_deinit(action);
        return;
    }
    sg_client_call *call = sg_pool_alloc(client->pool, sizeof *call);
    call->client = client;
    call->action = *action;
    call->n_references = 2;
    call->channel = sg_transport_channel(client, action);
    if (call->channel != NULL)
        sg_rpc_channel_ref(call->channel);
    if (action->task != 0) {
        call->op = sg_op_find(client, action->task);
        SG_ASSERT(call->op != NULL);
        TAILQ_INSERT_TAIL(&call->op->calls, call, link);
    }
    TAILQ_INSERT_TAIL(&todo->starts, call, todo);
}

/* A call that was not started yet finds the mark; for one that was, this thread cancels it. Where the client is
 * closing, the transport cancels all that is left itself: nobody may hold on to a call, and so to its channel, until
 * after that.
 */
static void cancel_calls(sg_op *op, todo_list *todo)
{
    if (op->client->closing)
        return;
    sg_client_call *call;
    TAILQ_FOREACH(call, &op->calls, link)
    {
        if (call->cancel_wanted)
            continue;
        call->cancel_wanted = true;
        if (call->pending == NULL)
            continue;
        call->n_references++;
        TAILQ_INSERT_TAIL(&todo->cancels, call, todo);
    }
}

static void take_done(sg_client *client, todo_list *todo, sg_session_action *action)
{
    sg_op *op = sg_op_find(client, action->task);
    if (op != NULL) {
        op->done = true;
        op->step = action->step;
        op->error.code = action->status;
        if (action->text != NULL)
            snprintf(op->error.message, sizeof op->error.message, "%s", action->text);
        cancel_calls(op, todo);
        sg_op_settle(op);
    }
    sg_session_action_deinit(action);
}

static void take_log(todo_list *todo, const sg_session_action *action)
{
    todo_log *log = sg_xcalloc(1, sizeof *log);
    log->action = *action;
    STAILQ_INSERT_TAIL(&todo->logs, log, link);
}

static void take_all(sg_client *client, todo_list *todo)
{
    for (sg_session_action action; sg_session_next_action(client->session, &action);) {
        switch (action.kind) {
        case SG_SESSION_CALL:
            take_call(client, todo, &action);
            break;
        case SG_SESSION_MOVE:
            sg_transport_move(client);
            break;
        case SG_SESSION_DONE:
            take_done(client, todo, &action);
            break;
        case SG_SESSION_LOG:
            take_log(todo, &action);
            break;
        }
    }
}

static void perform(sg_client *client, todo_list *todo)
{
    for (todo_log *log; (log = STAILQ_FIRST(&todo->logs)) != NULL;) {
        STAILQ_REMOVE_HEAD(&todo->logs, link);
        sg_log_event(&client->log, log->action.level, log->action.event, "%s", log->action.text);
        sg_session_action_deinit(&log->action);
        free(log);
    }
    for (sg_client_call *call; (call = TAILQ_FIRST(&todo->cancels)) != NULL;) {
        TAILQ_REMOVE(&todo->cancels, call, todo);
        sg_transport_cancel(call);
    }
    for (sg_client_call *call; (call = TAILQ_FIRST(&todo->starts)) != NULL;) {
        TAILQ_REMOVE(&todo->starts, call, todo);
        sg_transport_start(call);
    }
    pthread_mutex_lock(&client->mutex);
    if (--client->n_performing == 0)
        pthread_cond_broadcast(&client->changed);
    pthread_mutex_unlock(&client->mutex);
}

void sg_client_unlock(sg_client *client)
{
    todo_list todo = {.starts = TAILQ_HEAD_INITIALIZER(todo.starts),
                      .cancels = TAILQ_HEAD_INITIALIZER(todo.cancels),
                      .logs = STAILQ_HEAD_INITIALIZER(todo.logs)};
    take_all(client, &todo);
    pthread_cond_t *woken[SG_CLIENT_MAX_WOKEN];
    const uint32_t n_woken = client->n_woken;
    for (uint32_t i = 0; i < n_woken; i++)
        woken[i] = client->woken[i];
    client->n_woken = 0;
    const bool idle =
        n_woken == 0 && TAILQ_EMPTY(&todo.starts) && TAILQ_EMPTY(&todo.cancels) && STAILQ_EMPTY(&todo.logs);
    client->n_performing += !idle;
    if (sg_session_next_ms(client->session) < client->timer_ms)
        uv_async_send(&client->wake);
    pthread_mutex_unlock(&client->mutex);
    for (uint32_t i = 0; i < n_woken; i++)
        pthread_cond_broadcast(woken[i]);
    if (!idle)
        perform(client, &todo);
}

void sg_client_performing_await(sg_client *client)
{
    while (client->n_performing > 0)
        pthread_cond_wait(&client->changed, &client->mutex);
}

/* --- declaring ------------------------------------------------------------------------------------------------- */

void sg_client_variables_forget(sg_client *client)
{
    for (size_t i = 0; i < client->n_variables; i++)
        free((char *)client->variables[i].name);
    free(client->variables);
    free(client->places);
    client->variables = NULL;
    client->places = NULL;
    client->n_variables = 0;
}

static void groups_make(sg_client *client)
{
    const sg_plan *plan = sg_session_plan(client->session);
    client->n_groups = plan->n_groups;
    client->groups = sg_xcalloc(plan->n_groups, sizeof *client->groups);
    for (uint32_t i = 0; i < plan->n_groups; i++)
        client->groups[i].slices = sg_xcalloc(plan->n_slices, sizeof(uint32_t));
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        sg_client_group *group = &client->groups[plan->slices[i].group];
        if (!client->variables[plan->slices[i].variable].frozen)
            group->slices[group->n_slices++] = i;
    }
}

static void variables_copy(sg_client *client, const sg_variable *variables, size_t n)
{
    sg_client_variables_forget(client);
    client->variables = sg_xcalloc(n, sizeof *variables);
    client->n_variables = n;
    for (size_t i = 0; i < n; i++) {
        client->variables[i] = variables[i];
        client->variables[i].name = sg_xstrdup(variables[i].name);
    }
    const sg_plan *plan = sg_session_plan(client->session);
    client->places = sg_xcalloc(plan->n_slices, sizeof *client->places);
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        const sg_plan_slice *slice = &plan->slices[i];
        const sg_variable *variable = &variables[slice->variable];
        client->places[i] = (sg_client_place){
            .value = variable->value + slice->first_elem,
            .gradient = variable->gradient == NULL ? NULL : variable->gradient + slice->first_elem,
            .n_bytes = slice->n_elems * sizeof(float),
        };
    }
}

sg_status sg_client_step_every(sg_client *client, uint32_t group, uint32_t every, sg_error *err)
{
    sg_client_lock(client);
    const sg_status status = sg_session_step_every(client->session, group, every, err);
    sg_client_unlock(client);
    return status;
}

sg_status sg_client_declare(sg_client *client, const sg_variable *variables, size_t n_variables, sg_error *err)
{
    sg_client_lock(client);
    sg_op *op = NULL;
    uint64_t task = 0;
    sg_status status = client->interrupted ? sg_error_set(err, SG_CANCELLED, "the client was interrupted") : SG_OK;
    const uint64_t now_ms = sg_clock_ms();
    if (status == SG_OK)
        status = sg_session_declare(client->session, now_ms, now_ms + client->start_timeout_ms, variables, n_variables,
                                    &task, err);
    if (status == SG_OK) {
        variables_copy(client, variables, n_variables);
        op = sg_op_create(client, task);
    }
    sg_client_unlock(client);
    if (status == SG_OK)
        status = sg_op_finish(op, NULL, err);
    if (status != SG_OK)
        return status;
    sg_client_lock(client);
    groups_make(client);
    sg_client_unlock(client);
    return SG_OK;
}

/* --- the rest -------------------------------------------------------------------------------------------------- */

sg_status sg_client_usable(sg_client *client, sg_error *err)
{
    if (client->interrupted)
        return sg_error_set(err, SG_CANCELLED, "the client was interrupted");
    const sg_status status = sg_session_failed(client->session, err);
    if (status != SG_OK)
        return status;
    return client->groups != NULL ? SG_OK : sg_error_set(err, SG_INVALID, "declare the variables first");
}

void sg_client_get_info(sg_client *client, sg_client_info *info)
{
    sg_session_facts facts;
    sg_client_lock(client);
    sg_session_facts_get(client->session, &facts);
    *info = (sg_client_info){
        .incarnation = facts.incarnation,
        .generation = facts.generation,
        .live_workers = facts.live_workers,
        .n_ps = facts.n_ps,
        .sync = sg_session_mode(client->session) == SG_MODE_SYNC,
        .mode = sg_mode_name(sg_session_mode(client->session)),
        .pushed_bytes = client->pushed_bytes,
        .pulled_bytes = client->pulled_bytes,
        .non_finite = facts.non_finite + client->non_finite,
        .slice_elems = client->groups == NULL ? 0 : sg_session_plan(client->session)->slice_bytes / sizeof(float),
    };
    sg_client_unlock(client);
}

void sg_client_rest(sg_client *client)
{
    sg_client_lock(client);
    sg_session_rest(client->session, sg_clock_ms());
    sg_client_unlock(client);
}

void sg_client_interrupt(sg_client *client)
{
    sg_client_lock(client);
    client->interrupted = true;
    const uint64_t now_ms = sg_clock_ms();
    const sg_op *op;
    LIST_FOREACH(op, &client->ops, link)
    sg_session_cancel(client->session, now_ms, op->task);
    sg_client_unlock(client);
}

void sg_client_close(sg_client *client)
{
    if (client == NULL)
        return;
    sg_client_lock(client);
    /* The report of the last step may be about to be sent; the goodbye comes after it. */
    sg_client_performing_await(client);
    const uint64_t now_ms = sg_clock_ms();
    for (uint32_t i = 0; i < client->n_groups; i++)
        if (client->groups[i].begun)
            sg_session_finish_last(client->session, now_ms, &client->groups[i].step);
    sg_op *op = sg_op_create(client, sg_session_leave(client->session, now_ms, now_ms + CLOSE_MS));
    sg_client_unlock(client);
    sg_error err;
    const sg_status status = sg_op_finish(op, NULL, &err);
    char quoted[SG_LOG_QUOTED_BYTES];
    if (status != SG_OK)
        sg_log_warn(&client->log, "left_without_goodbye", "status=%s reason=%s", sg_status_name(status),
                    sg_log_quote(err.message, quoted, sizeof quoted));
    sg_client_destroy(client);
}
