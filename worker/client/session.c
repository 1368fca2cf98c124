/* worker/client/session.c - life of a session, its tasks, the actions that wait to be drained, and time. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/client/session_internal.h"

#define ANSWER_LATE_MS 1000u /* longer than a peer needs to answer what it has held back */

typedef struct setting_list {
    sg_session *session;
    size_t capacity;
} setting_list;

static void setting_add(void *user, const char *key, const char *value)
{
    setting_list *list = user;
    sg_session *session = list->session;
    if (session->n_settings == list->capacity) {
        list->capacity = list->capacity == 0 ? 16 : 2 * list->capacity;
        session->settings = sg_xrealloc(session->settings, list->capacity, sizeof *session->settings);
    }
    Shardgrad__V1__Setting *setting = &session->settings[session->n_settings++];
    shardgrad__v1__setting__init(setting);
    setting->key = sg_xstrdup(key);
    setting->value = sg_xstrdup(value);
}

sg_session *sg_session_create(const sg_session_options *options)
{
    sg_session *session = sg_xcalloc(1, sizeof *session);
    session->job = sg_xstrdup(options->job);
    session->address = sg_xstrdup(options->address == NULL ? "" : options->address);
    session->worker = options->worker;
    session->life = options->life;
    session->random = options->random_seed;
    session->data_examples = options->data_examples;
    session->start_timeout_ms = options->start_timeout_ms;
    session->warn_after_ms = options->warn_after_ms;
    session->park_ms = options->park_ms;
    session->connections = options->connections > 1 ? options->connections : 1;
    if (options->settings != NULL)
        sg_config_each_shared(options->settings, setting_add, &(setting_list){.session = session});
    session->setting_list = sg_xcalloc(session->n_settings + 1, sizeof(Shardgrad__V1__Setting *));
    for (size_t i = 0; i < session->n_settings; i++)
        session->setting_list[i] = &session->settings[i];
    session->heartbeat_ms = session->due_ms = SG_SESSION_NEVER;
    session->pool = sg_pool_create();
    session->peers = sg_xcalloc(1, sizeof *session->peers);
    sg_session_peer_init(&session->peers[0], "");
    TAILQ_INIT(&session->tasks);
    TAILQ_INIT(&session->active);
    STAILQ_INIT(&session->touched);
    return session;
}

static void task_free(sg_session *session, sg_session_task *task)
{
    TAILQ_REMOVE(&session->tasks, task, link);
    sg_slots_remove(&session->tasks_by_number, task->number);
    if (task->kind == SG_SESSION_TASK_TICKET && session->groups[task->group].task == task)
        session->groups[task->group].task = NULL;
    free(task->waiting);
    sg_pool_free(task);
}

void sg_session_destroy(sg_session *session)
{
    if (session == NULL)
        return;
    sg_session_requests_destroy(session);
    for (sg_session_task *task = TAILQ_FIRST(&session->tasks), *next; task != NULL; task = next) {
        next = TAILQ_NEXT(task, link);
        task_free(session, task);
    }
    for (sg_session_action action; sg_session_next_action(session, &action);)
        sg_session_action_deinit(&action);
    free(session->actions);
    sg_slots_deinit(&session->tasks_by_number);
    sg_slots_deinit(&session->requests_by_call);
    sg_session_groups_destroy(session);
    for (size_t i = 0; i < session->n_settings; i++) {
        free(session->settings[i].key);
        free(session->settings[i].value);
    }
    free(session->settings);
    free(session->setting_list);
    for (uint32_t ps = 0; ps <= session->n_ps; ps++)
        free(session->peers[ps].address);
    free(session->peers);
    sg_session_lanes_destroy(session);
    if (session->hello != NULL)
        shardgrad__v1__hello_response__free_unpacked(session->hello, NULL);
    if (session->declared != NULL)
        shardgrad__v1__declare_request__free_unpacked(session->declared, NULL);
    free(session->every);
    free(session->failed_text);
    free(session->back_text);
    free(session->warned_of);
    free(session->job);
    free(session->address);
    sg_pool_destroy(session->pool);
    free(session);
}

/* --- actions --------------------------------------------------------------------------------------------------- */

static void actions_grow(sg_session *session)
{
    const size_t n = session->actions_capacity;
    sg_session_action *list = sg_xcalloc(n == 0 ? 16 : 2 * n, sizeof *list);
    for (size_t i = 0; i < n; i++)
        list[i] = session->actions[(session->first_action + i) & (n - 1)];
    free(session->actions);
    session->actions = list;
    session->actions_capacity = n == 0 ? 16 : 2 * n;
    session->first_action = 0;
}

/* Valid until the next one is added. */
sg_session_action *sg_session_action_add(sg_session *session, sg_session_action_kind kind)
{
    if (session->n_actions == session->actions_capacity)
        actions_grow(session);
    const size_t at = (session->first_action + session->n_actions++) & (session->actions_capacity - 1);
    session->actions[at] = (sg_session_action){.kind = kind};
    return &session->actions[at];
}

bool sg_session_next_action(sg_session *session, sg_session_action *action)
{
    if (session->n_actions == 0)
        return false;
    *action = session->actions[session->first_action];
    session->first_action = (session->first_action + 1) & (session->actions_capacity - 1);
    session->n_actions--;
    return true;
}

void sg_session_action_deinit(sg_session_action *action)
{
    sg_session_message_unref(action->message);
    free(action->text);
    action->message = NULL;
    action->body = NULL;
    action->text = NULL;
}

static char *text_format(const char *format, va_list args) SG_PRINTF(1, 0);

/* One tidy line, as errors are. */
static char *text_format(const char *format, va_list args)
{
    sg_error line;
    return sg_error_set_v(&line, SG_INTERNAL, format, args) == SG_INTERNAL ? sg_xstrdup(line.message) : NULL;
}

void sg_session_log(sg_session *session, sg_log_level level, const char *event, const char *format, ...)
{
    sg_session_action *action = sg_session_action_add(session, SG_SESSION_LOG);
    action->level = level;
    action->event = event;
    va_list args;
    va_start(args, format);
    action->text = text_format(format, args);
    va_end(args);
}

void sg_session_text_set(char **text, const char *with)
{
    char *copy = with == NULL ? NULL : sg_xstrdup(with);
    free(*text);
    *text = copy;
}

/* splitmix64: good enough for jitter, and one number of state. */
uint64_t sg_session_random(sg_session *session)
{
    uint64_t z = (session->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* --- tasks ----------------------------------------------------------------------------------------------------- */

sg_session_task *sg_session_task_add(sg_session *session, sg_session_task_kind kind, uint64_t now_ms,
                                     uint64_t deadline_ms)
{
    sg_session_task *task = sg_pool_alloc(session->pool, sizeof *task);
    task->number = ++session->last_task;
    task->kind = kind;
    task->begun_ms = now_ms;
    task->deadline_ms = deadline_ms;
    task->warn_interval_ms = session->warn_after_ms;
    task->warn_ms = session->warn_after_ms == 0 ? SG_SESSION_NEVER : now_ms + session->warn_after_ms;
    sg_session_due(session, task->deadline_ms < task->warn_ms ? task->deadline_ms : task->warn_ms);
    TAILQ_INSERT_TAIL(&session->tasks, task, link);
    sg_slots_put(&session->tasks_by_number, task->number, task);
    return task;
}

void sg_session_task_end(sg_session *session, sg_session_task *task, const sg_step *step, sg_status status,
                         const char *format, ...)
{
    sg_session_action *done = sg_session_action_add(session, SG_SESSION_DONE);
    done->task = task->number;
    done->status = status;
    if (step != NULL)
        done->step = *step;
    if (status != SG_OK) {
        va_list args;
        va_start(args, format);
        done->text = text_format(format, args);
        va_end(args);
    }
    sg_session_requests_drop(session, task);
    if (task->kind == SG_SESSION_TASK_DECLARE && status != SG_OK && session->state == SG_SESSION_DECLARING)
        session->state = session->was_declared ? SG_SESSION_DECLARED : SG_SESSION_JOINED;
    const bool pushed = task->kind == SG_SESSION_TASK_PUSH;
    const uint32_t group = task->group;
    task_free(session, task);
    if (pushed && status != SG_OK)
        sg_session_ticket_lost(session, group);
    sg_session_leave_due(session);
}

uint64_t sg_session_task_refuse(sg_session *session, sg_status status, const char *format, ...)
{
    sg_session_action *done = sg_session_action_add(session, SG_SESSION_DONE);
    done->task = ++session->last_task;
    done->status = status;
    va_list args;
    va_start(args, format);
    done->text = text_format(format, args);
    va_end(args);
    return done->task;
}

void sg_session_task_wait(sg_session_task *task, const char *text)
{
    sg_session_text_set(&task->waiting, text);
}

void sg_session_fail(sg_session *session, sg_status status, const char *text)
{
    if (session->failed != SG_OK)
        return;
    session->failed = status;
    session->failed_text = sg_xstrdup(text);
    session->heartbeat_ms = SG_SESSION_NEVER;
    sg_session_requests_drop_all(session);
    char quoted[SG_LOG_QUOTED_BYTES];
    sg_session_log(session, SG_LOG_ERROR, "failed", "status=%s reason=%s", sg_status_name(status),
                   sg_log_quote(text, quoted, sizeof quoted));
    for (sg_session_task *task; (task = TAILQ_FIRST(&session->tasks)) != NULL;)
        sg_session_task_end(session, task, NULL, status, "%s", session->failed_text);
}

void sg_session_cancel(sg_session *session, uint64_t now_ms, uint64_t number)
{
    sg_session_task *task = sg_slots_get(&session->tasks_by_number, number);
    if (task == NULL)
        return;
    sg_session_task_end(session, task, NULL, SG_CANCELLED, "cancelled by the caller");
    sg_session_send_due(session, now_ms);
}

/* The oldest of those that this task waits for; NULL: none. */
static const sg_session_request *request_of(const sg_session *session, const sg_session_task *task)
{
    const sg_session_request *request;
    TAILQ_FOREACH(request, &session->active, link)
    {
        const bool brings_ticket =
            task->kind == SG_SESSION_TASK_TICKET &&
            (request == session->groups[task->group].asking || request == session->groups[task->group].riding);
        if (request->task == task || brings_ticket)
            return request;
    }
    return NULL;
}

/* In the words of the last answer that was none; before there is one, whose answer is missing. */
static const char *task_waits_for(sg_session *session, const sg_session_task *task)
{
    const sg_session_request *request = task->waiting == NULL ? request_of(session, task) : NULL;
    if (request == NULL)
        return task->waiting != NULL ? task->waiting : "no answer yet";
    bool coordinator = request->target == SG_SESSION_COORDINATOR;
    const char *address = sg_session_peer_of(session, request->target)->address; /* the coordinator's: after Hello */
    snprintf(session->waits_for, sizeof session->waits_for, "waiting for ps %" PRIu32 "%s%s%s%s to answer",
             coordinator ? 0 : request->target, coordinator ? ", the coordinator" : "", address[0] == '\0' ? "" : " (",
             address, address[0] == '\0' ? "" : ")");
    return session->waits_for;
}

const char *sg_session_waiting_for(sg_session *session, uint64_t number)
{
    const sg_session_task *task = sg_slots_get(&session->tasks_by_number, number);
    return task == NULL ? "no answer yet" : task_waits_for(session, task);
}

/* --- time ------------------------------------------------------------------------------------------------------ */

/* Tasks that wait for the same, such as the push and the pull of a step, need one line between them. */
static bool is_warned_of(const sg_session *session, const sg_session_task *task, const char *text, uint64_t now_ms)
{
    return session->warned_of != NULL && strcmp(session->warned_of, text) == 0 &&
           now_ms - session->warned_ms < task->warn_interval_ms;
}

/* When a task of which nothing was heard can be said to wait for its peer: until then that may hold the call back, and
 * will say with the answer for whom. */
static uint64_t silent_from_ms(const sg_session *session, const sg_session_task *task)
{
    const sg_session_request *request = task->waiting == NULL ? request_of(session, task) : NULL;
    const uint64_t park_ms = session->hello == NULL ? session->park_ms : session->hello->park_ms;
    return request == NULL || request->call == 0 ? 0 : request->sent_ms + park_ms + ANSWER_LATE_MS;
}

static void task_warn(sg_session *session, sg_session_task *task, uint64_t now_ms)
{
    const uint64_t from_ms = silent_from_ms(session, task);
    if (now_ms < from_ms) {
        task->warn_ms = from_ms;
        return;
    }
    const char *text = task_waits_for(session, task);
    char quoted[SG_LOG_QUOTED_BYTES];
    if (!is_warned_of(session, task, text, now_ms)) {
        sg_session_log(session, SG_LOG_WARN, "waiting", "for=%s waited_ms=%" PRIu64,
                       sg_log_quote_whom(text, quoted, sizeof quoted), now_ms - task->begun_ms);
        sg_session_text_set(&session->warned_of, text);
        session->warned_ms = now_ms;
    }
    task->warn_interval_ms *= 2;
    task->warn_ms = now_ms + task->warn_interval_ms;
}

/* Nobody there at all is another fault, and another remedy, than somebody who has to wait. */
static void task_expire(sg_session *session, sg_session_task *task, uint64_t now_ms)
{
    const bool silence = task->kind == SG_SESSION_TASK_JOIN && !task->answered;
    sg_session_task_end(session, task, NULL, silence ? SG_UNAVAILABLE : SG_TIMEOUT, "gave up after %" PRIu64 " ms: %s",
                        now_ms - task->begun_ms, task_waits_for(session, task));
}

void sg_session_due(sg_session *session, uint64_t at_ms)
{
    session->due_ms = at_ms < session->due_ms ? at_ms : session->due_ms;
}

/* What is due after what has been done. */
static void due_find(sg_session *session)
{
    const bool comes_again = session->back == SG_SESSION_BACK_HELLO && session->failed == SG_OK;
    session->due_ms = comes_again ? session->back_until_ms : SG_SESSION_NEVER;
    const sg_session_task *task;
    TAILQ_FOREACH(task, &session->tasks, link)
    sg_session_due(session, task->deadline_ms < task->warn_ms ? task->deadline_ms : task->warn_ms);
    const sg_session_request *request;
    TAILQ_FOREACH(request, &session->active, link)
    if (request->call == 0)
        sg_session_due(session, request->not_before_ms);
    if (session->hello != NULL) /* whoever goes by this clock is told so often that standing still shows */
        sg_session_due(session, session->seen_ms + session->hello->lease_ms / 3);
}

void sg_session_tick(sg_session *session, uint64_t now_ms)
{
    sg_session_look_at_clock(session, now_ms);
    for (sg_session_task *task = TAILQ_FIRST(&session->tasks); task != NULL;) {
        if (task->deadline_ms > now_ms) {
            if (task->warn_ms <= now_ms)
                task_warn(session, task, now_ms);
            task = TAILQ_NEXT(task, link);
        } else {
            task_expire(session, task, now_ms); /* and others with it, perhaps */
            task = TAILQ_FIRST(&session->tasks);
        }
    }
    sg_session_heartbeat_due(session, now_ms);
    sg_session_back_tick(session, now_ms);
    sg_session_send_due(session, now_ms);
    due_find(session);
}

uint64_t sg_session_next_ms(const sg_session *session)
{
    return session->heartbeat_ms < session->due_ms ? session->heartbeat_ms : session->due_ms;
}

/* --- facts ----------------------------------------------------------------------------------------------------- */

void sg_session_facts_get(const sg_session *session, sg_session_facts *facts)
{
    *facts = (sg_session_facts){
        .non_finite = session->non_finite,
        .n_ps = session->n_ps,
        .live_workers = session->live_workers,
        .draining = session->draining,
    };
    if (session->hello == NULL)
        return;
    facts->incarnation = session->hello->incarnation;
    facts->generation = session->hello->generation;
    facts->message_bytes = session->hello->message_bytes;
    facts->mode = (sg_mode)session->hello->mode;
}

sg_mode sg_session_mode(const sg_session *session)
{
    return session->hello == NULL ? SG_MODE_SYNC : (sg_mode)session->hello->mode;
}

const char *sg_session_ps_address(const sg_session *session, uint32_t ps)
{
    SG_ASSERT(ps < session->n_ps);
    return session->peers[ps].address;
}

const sg_plan *sg_session_plan(const sg_session *session)
{
    return session->plan;
}

sg_status sg_session_failed(const sg_session *session, sg_error *err)
{
    return session->failed == SG_OK ? SG_OK : sg_error_set(err, session->failed, "%s", session->failed_text);
}
