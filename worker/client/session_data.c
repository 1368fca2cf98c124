/* worker/client/session_data.c - pushes and pulls: what may be sent when. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "worker/client/session_internal.h"

/* --- slices ---------------------------------------------------------------------------------------------------- */

static int slice_compare(const void *a, const void *b)
{
    const uint32_t left = *(const uint32_t *)a;
    const uint32_t right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

/* *sorted: the slices in plan order, `slices` itself where it is; else a copy, *taken, freed by sg_pool_free. INVALID
 * for one that does not exist or stands there twice. */
static sg_status slices_sort(const sg_session *session, const uint32_t *slices, size_t n, const uint32_t **sorted,
                             uint32_t **taken, sg_error *err)
{
    *sorted = slices;
    *taken = NULL;
    size_t i = 1;
    while (i < n && slices[i - 1] < slices[i])
        i++;
    if (i < n) {
        *sorted = *taken = sg_pool_alloc(session->pool, n * sizeof **taken);
        memcpy(*taken, slices, n * sizeof **taken);
        qsort(*taken, n, sizeof **taken, slice_compare);
    }
    if (n > 0 && (*sorted)[n - 1] >= session->plan->n_slices)
        return sg_error_set(err, SG_INVALID, "slice %" PRIu32 " does not exist: there are %" PRIu32, (*sorted)[n - 1],
                            session->plan->n_slices);
    for (i = 1; i < n; i++)
        if ((*sorted)[i] == (*sorted)[i - 1])
            return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " stands in the list twice",
                                session->plan->slices[(*sorted)[i]].variable);
    return SG_OK;
}

uint64_t sg_session_version(const sg_session *session, uint32_t index)
{
    if (session->plan == NULL || index >= session->plan->n_groups)
        return SG_SESSION_NO_VERSION;
    const sg_session_group *group = &session->groups[index];
    uint64_t low = SG_SESSION_NO_VERSION;
    for (uint32_t i = 0; i < group->n_slices; i++) {
        const uint64_t version = session->slices[group->slices[i]].version;
        if (version == SG_SESSION_NO_VERSION || (i > 0 && version != low && sg_session_is_sync(session)))
            return SG_SESSION_NO_VERSION;
        low = version < low ? version : low;
    }
    return low;
}

uint64_t sg_session_slice_version(const sg_session *session, uint32_t slice)
{
    SG_ASSERT(session->plan != NULL && slice < session->plan->n_slices);
    return session->slices[slice].version;
}

size_t sg_session_missing(const sg_session *session, const sg_step *step, uint32_t *slices)
{
    const sg_session_group *group = &session->groups[step->group];
    const bool sync = sg_session_is_sync(session);
    const bool any = sync ? group->n_ready < group->n_slices : sg_session_is_ssp(session);
    size_t n = 0;
    for (uint32_t i = 0; i < group->n_slices && any; i++) {
        const sg_session_slice *slice = &session->slices[group->slices[i]];
        if (sync ? slice->version == step->number || slice->coming == step->number + 1 : slice->asked > group->too_old)
            continue;
        if (slices != NULL)
            slices[n] = group->slices[i];
        n++;
    }
    return n;
}

/* --- push ------------------------------------------------------------------------------------------------------ */

typedef struct push_plan {
    sg_session_task *task;
    sg_session_method method;
    sg_session_held *held;
    uint64_t weight;
} push_plan;

/* A push may ask for the next ticket. */
typedef struct push_body {
    Shardgrad__V1__PushRequest request;
    Shardgrad__V1__TicketRequest ticket;
} push_body;

static void push_add(sg_session *session, void *user, uint32_t ps, const sg_session_pack_list *list)
{
    const push_plan *push = user;
    sg_session_held_ticket *ticket = push->held->ticket;
    uint64_t *steps;
    sg_session_message *message = sg_session_pack_message(session, list, sizeof(push_body), &steps);
    Shardgrad__V1__PushRequest *request = (Shardgrad__V1__PushRequest *)message->body;
    shardgrad__v1__push_request__init(request);
    for (size_t i = 0; i < message->n_slices; i++)
        steps[i] = ticket->step.step;
    request->worker = session->worker;
    request->incarnation = session->hello->incarnation;
    request->generation = session->hello->generation;
    request->step = &ticket->step;
    request->weight = push->weight;
    request->dtype = session->hello->gradients;
    request->slices = message->slices;
    request->n_slices = request->n_steps = message->n_slices;
    request->steps = steps;
    message->ticket = ticket;
    atomic_fetch_add_explicit(&ticket->n_references, 1, memory_order_relaxed);
    push_body *body = (push_body *)message->body;
    const bool rides = push->method == SG_SESSION_PUSH_PULL && ps == 0 &&
                       sg_session_ticket_ride(session, ticket->step.group, &body->ticket);
    request->ticket = rides ? &body->ticket : NULL;
    sg_session_request *made = sg_session_request_add_data(session, push->task, push->method, SG_SESSION_LANE_UP, ps,
                                                           message, ticket->step.step);
    made->weighs = push->weight != 0;
    if (rides)
        session->groups[ticket->step.group].riding = made;
}

static sg_status push_check_slice(const sg_session *session, const sg_step *step, uint32_t index, sg_error *err)
{
    const uint32_t variable = session->plan->slices[index].variable;
    if (session->plan->slices[index].group != step->group)
        return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " belongs to group %" PRIu32 ", not to %" PRIu32,
                            variable, session->plan->slices[index].group, step->group);
    if (!session->slices[index].trained)
        return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " is frozen: it cannot be pushed", variable);
    if (session->slices[index].pushed == step->number + 1)
        return sg_error_set(err, SG_INVALID, "variable %" PRIu32 " was pushed at step %" PRIu64 " before", variable,
                            step->number);
    return SG_OK;
}

static sg_status push_check(const sg_session *session, const sg_session_held *held, const sg_step *step,
                            const uint32_t *slices, size_t n, sg_error *err)
{
    if (!sg_session_step_is_ready(session, held))
        return sg_error_set(err, SG_INVALID,
                            "step %" PRIu64 " of group %" PRIu32 " needs its version pulled for every variable first",
                            step->number, step->group);
    sg_status status = SG_OK;
    for (size_t i = 0; i < n && status == SG_OK; i++)
        status = push_check_slice(session, step, slices[i], err);
    if (status == SG_OK && n > session->groups[step->group].n_slices - held->n_handed_over)
        return sg_error_set(err, SG_INVALID, "all variables were pushed at step %" PRIu64 " before", step->number);
    return status;
}

static void push_hand_over(sg_session *session, uint64_t now_ms, push_plan *push, const sg_step *step,
                           const uint32_t *slices, size_t n)
{
    for (size_t i = 0; i < n; i++)
        session->slices[slices[i]].pushed = step->number + 1;
    sg_session_group *group = &session->groups[step->group];
    if (sg_session_is_sync(session))
        group->begun = step->number + 1;
    else if (push->held->n_handed_over == 0 && n > 0)
        group->begun++;
    push->held->n_handed_over += (uint32_t)n;
    push->task->group = step->group;
    group->rides = push->method == SG_SESSION_PUSH_PULL && group->on_coordinator && !sg_session_is_ssp(session);
    if (!group->rides)
        sg_session_ticket_offer(session, now_ms, step->group);
    sg_session_pack(session, slices, n, push_add, push);
    if (push->task->n_requests == 0)
        sg_session_task_end(session, push->task, NULL, SG_OK, "%s", "");
}

static sg_status push_begin(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, sg_session_method method,
                            const sg_step *step, uint64_t weight, const uint32_t *slices, size_t n_slices,
                            uint64_t *task, sg_error *err)
{
    sg_status status = sg_session_stands(session, err);
    if (status != SG_OK)
        return status;
    sg_session_held *held = session->state == SG_SESSION_DECLARED && step->group < session->plan->n_groups
                                ? sg_session_held_find(session, step->group, step->number)
                                : NULL;
    if (held == NULL || session->leaving)
        return sg_error_set(err, SG_INVALID, "step %" PRIu64 " of group %" PRIu32 " is not the one that was begun",
                            step->number, step->group);
    const uint32_t *sorted;
    uint32_t *taken;
    status = slices_sort(session, slices, n_slices, &sorted, &taken, err);
    if (status == SG_OK)
        status = push_check(session, held, step, sorted, n_slices, err);
    if (status == SG_OK) {
        push_plan push = {.method = method, .held = held, .weight = weight};
        push.task = sg_session_task_add(session, SG_SESSION_TASK_PUSH, now_ms, deadline_ms);
        *task = push.task->number;
        push_hand_over(session, now_ms, &push, step, sorted, n_slices);
        sg_session_send_due(session, now_ms);
    }
    sg_pool_free(taken);
    return status;
}

sg_status sg_session_push(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, const sg_step *step,
                          uint64_t weight, const uint32_t *slices, size_t n_slices, uint64_t *task, sg_error *err)
{
    return push_begin(session, now_ms, deadline_ms, SG_SESSION_PUSH, step, weight, slices, n_slices, task, err);
}

sg_status sg_session_push_pull(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, const sg_step *step,
                               uint64_t weight, const uint32_t *slices, size_t n_slices, uint64_t *task, sg_error *err)
{
    return push_begin(session, now_ms, deadline_ms, SG_SESSION_PUSH_PULL, step, weight, slices, n_slices, task, err);
}

static void non_finite_tell(sg_session *session, uint64_t now_ms, const sg_session_request *request, size_t n_slices)
{
    session->non_finite += n_slices;
    const uint64_t n = sg_log_pace_count(&session->non_finite_pace, now_ms);
    if (n > 0)
        sg_session_log(session, SG_LOG_WARN, "non_finite",
                       "pushes=%" PRIu64 " group=%" PRIu32 " step=%" PRIu64 " slices=%zu message=\"left out\"", n,
                       request->group, request->at, n_slices);
}

/* The contributions of this request are stored. */
static void push_acknowledged(sg_session *session, uint64_t now_ms, const sg_session_request *request,
                              size_t n_non_finite)
{
    sg_session_group *group = &session->groups[request->group];
    sg_session_held *held = sg_session_held_find(session, request->group, request->at);
    if (held != NULL) {
        held->n_acknowledged += (uint32_t)request->message->n_slices;
        if (held->n_acknowledged == group->n_slices)
            group->pushed = sg_session_is_sync(session) ? request->at + 1 : group->pushed + 1;
        sg_session_finish_due(session, now_ms, request->group);
    }
    if (n_non_finite > 0 && request->weighs)
        non_finite_tell(session, now_ms, request, n_non_finite);
}

bool sg_session_is_pushed(const sg_session *session, const sg_step *step)
{
    if (session->state != SG_SESSION_DECLARED || step->group >= session->plan->n_groups)
        return false;
    const sg_session_group *group = &session->groups[step->group];
    for (uint32_t i = 0; i < group->n_held; i++)
        if (group->held[i].given && group->held[i].ticket->step.step == step->number)
            return group->held[i].n_acknowledged == group->n_slices;
    return false;
}

/* --- pull ------------------------------------------------------------------------------------------------------ */

typedef struct pull_plan {
    sg_session_task *task;
    sg_session_lane_kind kind;
    uint64_t version;
} pull_plan;

/* A frozen variable has one version only. */
static void pull_add(sg_session *session, void *user, uint32_t ps, const sg_session_pack_list *list)
{
    const pull_plan *pull = user;
    uint64_t *versions;
    sg_session_message *message = sg_session_pack_message(session, list, sizeof(Shardgrad__V1__PullRequest), &versions);
    Shardgrad__V1__PullRequest *request = (Shardgrad__V1__PullRequest *)message->body;
    shardgrad__v1__pull_request__init(request);
    for (size_t i = 0; i < message->n_slices; i++)
        versions[i] = session->slices[message->slices[i]].trained ? pull->version : 0;
    request->worker = session->worker;
    request->incarnation = session->hello->incarnation;
    request->generation = session->hello->generation;
    request->slices = message->slices;
    request->n_slices = request->n_versions = message->n_slices;
    request->versions = versions;
    sg_session_request_add_data(session, pull->task, SG_SESSION_PULL, pull->kind, ps, message, pull->version);
}

void sg_session_pull_add(sg_session *session, sg_session_task *task, sg_session_lane_kind kind, uint64_t version,
                         const uint32_t *slices, size_t n_slices)
{
    pull_plan pull = {.task = task, .kind = kind, .version = version};
    sg_session_pack(session, slices, n_slices, pull_add, &pull);
}

/* Is this worker the only member of the step that makes the version? */
static bool makes_alone(const sg_session *session, uint32_t group, uint64_t version)
{
    const sg_session_group *of = &session->groups[group];
    for (uint32_t i = 0; i < of->n_held; i++)
        if (of->held[i].ticket->step.step + 1 == version)
            return of->held[i].ticket->size == 1;
    return false;
}

/* What this worker's own push is a part of may have to wait for others'; all else is there, or soon will be. */
static sg_session_lane_kind pull_kind(const sg_session *session, uint64_t version, const uint32_t *slices, size_t n)
{
    for (size_t i = 0; i < n && sg_session_is_sync(session) && version > 0; i++)
        if (session->slices[slices[i]].trained && session->slices[slices[i]].pushed >= version)
            return makes_alone(session, session->plan->slices[slices[i]].group, version) ? SG_SESSION_LANE_DOWN
                                                                                         : SG_SESSION_LANE_PARKED;
    return SG_SESSION_LANE_DOWN;
}

uint64_t sg_session_pull(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, uint64_t version,
                         const uint32_t *slices, size_t n_slices)
{
    sg_error err;
    if (sg_session_stands(session, &err) != SG_OK)
        return sg_session_task_refuse(session, err.code, "%s", err.message);
    if (session->state != SG_SESSION_DECLARED || session->leaving)
        return sg_session_task_refuse(session, SG_INVALID, "values can be pulled once the variables are declared");
    const uint32_t *sorted;
    uint32_t *taken;
    if (slices_sort(session, slices, n_slices, &sorted, &taken, &err) != SG_OK) {
        sg_pool_free(taken);
        return sg_session_task_refuse(session, err.code, "%s", err.message);
    }
    sg_session_task *task = sg_session_task_add(session, SG_SESSION_TASK_PULL, now_ms, deadline_ms);
    const uint64_t number = task->number;
    sg_session_pull_add(session, task, pull_kind(session, version, sorted, n_slices), version, sorted, n_slices);
    sg_pool_free(taken);
    if (task->n_requests == 0)
        sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
    sg_session_send_due(session, now_ms);
    return number;
}

static bool versions_take(sg_session *session, const sg_session_request *request, uint64_t version,
                          const uint64_t *versions, size_t n_versions)
{
    const sg_session_message *message = request->message;
    const bool sync = sg_session_is_sync(session);
    bool good = n_versions == message->n_slices;
    for (size_t i = 0; i < message->n_slices; i++) {
        const uint64_t want = session->slices[message->slices[i]].trained ? version : 0;
        good = good && versions[i] >= want && (!sync || versions[i] == want);
        sg_session_slice_set(session, message->slices[i], good ? versions[i] : SG_SESSION_NO_VERSION);
        session->slices[message->slices[i]].asked = good ? request->number : 0;
    }
    return good;
}

/* --- answers --------------------------------------------------------------------------------------------------- */

static void task_end_if_done(sg_session *session, sg_session_task *task)
{
    if (task->n_requests > 0)
        return;
    if (task->kind == SG_SESSION_TASK_DECLARE)
        sg_session_declare_pulled(session, task);
    else
        sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
}

static void pulled(sg_session *session, sg_session_request *request, uint64_t version, const uint64_t *versions,
                   size_t n_versions)
{
    if (versions_take(session, request, version, versions, n_versions))
        task_end_if_done(session, request->task);
    else
        sg_session_task_end(session, request->task, NULL, SG_INTERNAL,
                            "ps %" PRIu32 " (%s) answered a pull of version %" PRIu64 " with other versions",
                            request->target, session->peers[request->target].address, version);
}

/* An answer without values says that another worker is waited for: they are pulled. */
static void push_pull_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                               const Shardgrad__V1__PushPullResponse *reply)
{
    const uint64_t version = sg_session_is_sync(session) ? request->at + 1 : 0;
    const Shardgrad__V1__TicketRequest *asked = ((const Shardgrad__V1__PushRequest *)request->message->body)->ticket;
    /* First: a request for the ticket that did not come reports what this push was to, not what it finishes itself. */
    if (asked != NULL)
        sg_session_ticket_rode(session, now_ms, request->group, asked, reply->ticket);
    push_acknowledged(session, now_ms, request, reply->n_non_finite);
    if (reply->n_versions > 0)
        pulled(session, request, version, reply->versions, reply->n_versions);
    else
        sg_session_pull_add(session, request->task, SG_SESSION_LANE_PARKED, version, request->message->slices,
                            request->message->n_slices);
}

/* --- no room --------------------------------------------------------------------------------------------------- */

static void refused_note(sg_session *session, sg_session_request *push, uint32_t focus)
{
    char text[SG_ERROR_MESSAGE_BYTES];
    push->task->focus = focus + 1;
    push->task->focus_step = push->at;
    snprintf(text, sizeof text,
             "ps %" PRIu32 " (%s) to have room for more gradients of step %" PRIu64 ": all wait for slice %" PRIu32,
             push->target, session->peers[push->target].address, push->at, focus);
    sg_session_task_wait(push->task, text);
    push->task->answered = true;
}

bool sg_session_data_repeat(sg_session *session, uint64_t now_ms, sg_session_request *request,
                            const ProtobufCMessage *reply)
{
    const bool pulls = request->method == SG_SESSION_PUSH_PULL;
    const Shardgrad__V1__PushResponse *push = (const Shardgrad__V1__PushResponse *)reply;
    const Shardgrad__V1__PushPullResponse *both = (const Shardgrad__V1__PushPullResponse *)reply;
    const size_t n_refused = pulls ? both->n_refused : push->n_refused;
    const uint32_t *refused = pulls ? both->refused : push->refused;
    const uint32_t focus = pulls ? both->focus : push->focus;
    if (n_refused == 0) {
        request->task->focus = 0;
        return false;
    }
    bool goes_on = false;
    for (size_t i = 0; i < n_refused; i++)
        goes_on = goes_on || refused[i] == focus;
    request->failures = 0;
    refused_note(session, request, focus);
    sg_session_lane_refuse(session, now_ms, request, focus, goes_on);
    return true;
}

bool sg_session_lacks(const sg_session *session, uint64_t number, uint32_t *slice)
{
    const sg_session_task *task = sg_slots_get(&session->tasks_by_number, number);
    if (task == NULL || task->focus == 0 || session->plan == NULL || task->focus > session->plan->n_slices ||
        session->slices[task->focus - 1].pushed > task->focus_step)
        return false;
    *slice = task->focus - 1;
    return true;
}

void sg_session_data_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                              const ProtobufCMessage *reply)
{
    if (request->method == SG_SESSION_PUSH) {
        push_acknowledged(session, now_ms, request, ((const Shardgrad__V1__PushResponse *)reply)->n_non_finite);
        task_end_if_done(session, request->task);
    } else if (request->method == SG_SESSION_PUSH_PULL) {
        push_pull_answered(session, now_ms, request, (const Shardgrad__V1__PushPullResponse *)reply);
    } else {
        const Shardgrad__V1__PullResponse *values = (const Shardgrad__V1__PullResponse *)reply;
        pulled(session, request, request->at, values->versions, values->n_versions);
    }
}

/* Version 0 is gone for one who declares when training has begun: its values come with its first step. */
void sg_session_data_refused(sg_session *session, uint64_t now_ms, sg_session_request *request, sg_status status,
                             const char *text)
{
    (void)now_ms;
    if (status == SG_LATE && request->task->kind == SG_SESSION_TASK_DECLARE)
        sg_session_declare_pulled(session, request->task);
    else
        sg_session_task_end(session, request->task, NULL, status, "%s", text);
}
