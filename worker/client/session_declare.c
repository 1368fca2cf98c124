/* worker/client/session_declare.c - which variables there are, and their initial values: sent by the one worker that
 * is told to, pulled by all others. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "worker/client/session_internal.h"

#define NAME_BYTES 255u
/* The coordinator's, too. */
#define MAX_GROUPS 64u
#define MAX_EVERY  65536u

/* --- declare --------------------------------------------------------------------------------------------------- */

static bool name_is_good(const char *name)
{
    const size_t n_bytes = name == NULL ? 0 : strnlen(name, NAME_BYTES + 1);
    for (size_t i = 0; i < n_bytes; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return false;
    return n_bytes > 0 && n_bytes <= NAME_BYTES;
}

static sg_status variable_check(const sg_variable *variable, size_t index, uint64_t *n_elems, sg_error *err)
{
    if (!name_is_good(variable->name))
        return sg_error_set(err, SG_INVALID,
                            "variable %zu: its name must have 1 to 255 bytes, none a control character", index);
    if (variable->rank > SG_MAX_RANK)
        return sg_error_set(err, SG_INVALID, "variable '%s': rank %" PRIu32 " is above %d", variable->name,
                            variable->rank, SG_MAX_RANK);
    *n_elems = 1;
    for (uint32_t i = 0; i < variable->rank; i++)
        if (variable->shape[i] == 0 || __builtin_mul_overflow(*n_elems, variable->shape[i], n_elems) ||
            *n_elems > INT64_MAX / sizeof(float))
            return sg_error_set(err, SG_INVALID, "variable '%s': dimension %" PRIu32 " of its shape is 0 or too large",
                                variable->name, i);
    if (variable->value == NULL)
        return sg_error_set(err, SG_INVALID, "variable '%s': has no value buffer", variable->name);
    if (variable->gradient == NULL && !variable->frozen)
        return sg_error_set(err, SG_INVALID, "variable '%s': has no gradient buffer and is not frozen", variable->name);
    if (!isfinite(variable->lr_multiplier) || !isfinite(variable->decay_multiplier) || variable->lr_multiplier < 0 ||
        variable->decay_multiplier < 0)
        return sg_error_set(err, SG_INVALID, "variable '%s': its multipliers must be finite and not negative",
                            variable->name);
    return SG_OK;
}

sg_status sg_session_step_every(sg_session *session, uint32_t group, uint32_t every, sg_error *err)
{
    if (session->state != SG_SESSION_JOINED)
        return sg_error_set(err, SG_INVALID, "how often groups step is said before the variables are declared");
    if (group >= MAX_GROUPS || every < 1 || every > MAX_EVERY)
        return sg_error_set(err, SG_INVALID,
                            "group %" PRIu32 " to step in every %" PRIu32 "th iteration: groups are 0 to %u, and step "
                            "at least once in %u iterations",
                            group, every, MAX_GROUPS - 1, MAX_EVERY);
    if (group >= session->n_every) {
        session->every = sg_xrealloc(session->every, group + 1u, sizeof *session->every);
        for (; session->n_every <= group; session->n_every++)
            session->every[session->n_every] = 1;
    }
    session->every[group] = every;
    return SG_OK;
}

static int name_compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static sg_status names_check(const sg_variable *variables, size_t n, sg_error *err)
{
    const char **names = sg_xcalloc(n, sizeof *names);
    for (size_t i = 0; i < n; i++)
        names[i] = variables[i].name;
    qsort(names, n, sizeof *names, name_compare);
    sg_status status = SG_OK;
    for (size_t i = 1; i < n && status == SG_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = sg_error_set(err, SG_INVALID, "two variables have the name '%s'", names[i]);
    free(names);
    return status;
}

static sg_status plan_make(const sg_session *session, const sg_variable *variables, size_t n, sg_plan **plan,
                           sg_error *err)
{
    if (n == 0 || n > SG_PLAN_MAX_VARIABLES)
        return sg_error_set(err, SG_INVALID, "%zu variables: must be 1 to %u", n, SG_PLAN_MAX_VARIABLES);
    sg_plan_variable *list = sg_xcalloc(n, sizeof *list);
    sg_status status = SG_OK;
    for (size_t i = 0; i < n && status == SG_OK; i++) {
        status = variable_check(&variables[i], i, &list[i].n_elems, err);
        list[i].group = variables[i].group;
    }
    if (status == SG_OK)
        status = names_check(variables, n, err);
    if (status == SG_OK)
        status = sg_plan_create(list, (uint32_t)n, session->n_ps, session->hello->slice_bytes, plan, err);
    free(list);
    return status;
}

void sg_session_groups_destroy(sg_session *session)
{
    for (uint32_t i = 0; session->plan != NULL && i < session->plan->n_groups; i++) {
        sg_session_group *group = &session->groups[i];
        for (uint32_t k = 0; k < group->n_held; k++)
            sg_session_ticket_unref(group->held[k].ticket);
        free(group->slices);
        free(group->refused_text);
        free(group->waiting);
    }
    free(session->groups);
    free(session->slices);
    sg_session_pack_destroy(session);
    sg_plan_destroy(session->plan);
    session->groups = NULL;
    session->slices = NULL;
    session->plan = NULL;
}

static void groups_make(sg_session *session, const sg_variable *variables)
{
    const sg_plan *plan = session->plan;
    SG_ASSERT(plan != NULL);
    session->groups = sg_xcalloc(plan->n_groups, sizeof *session->groups);
    session->slices = sg_xcalloc(plan->n_slices, sizeof *session->slices);
    sg_session_pack_create(session);
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        session->slices[i].version = SG_SESSION_NO_VERSION;
        session->slices[i].trained = !variables[plan->slices[i].variable].frozen;
        sg_session_group *group = &session->groups[plan->slices[i].group];
        group->n_slices += session->slices[i].trained;
        group->on_coordinator = group->on_coordinator || (session->slices[i].trained && plan->slices[i].ps == 0);
    }
    for (uint32_t i = 0; i < plan->n_groups; i++) {
        session->groups[i].seldom = i < session->n_every && session->every[i] > 1;
        session->groups[i].slices = sg_xcalloc(session->groups[i].n_slices + 1u, sizeof(uint32_t));
        session->groups[i].n_slices = 0;
    }
    for (uint32_t i = 0; i < plan->n_slices; i++) {
        sg_session_group *group = &session->groups[plan->slices[i].group];
        if (session->slices[i].trained)
            group->slices[group->n_slices++] = i;
    }
}

static void variable_encode(const sg_variable *variable, Shardgrad__V1__Variable *encoded)
{
    shardgrad__v1__variable__init(encoded);
    encoded->name = (char *)variable->name;
    encoded->n_shape = variable->rank;
    encoded->shape = (uint64_t *)variable->shape;
    encoded->dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    encoded->group = variable->group;
    encoded->frozen = variable->frozen;
    encoded->average = variable->average;
    if (variable->lr_multiplier != 0 && variable->lr_multiplier != 1) {
        encoded->lr_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__LR_MULTIPLIER_PRESENCE_LR_MULTIPLIER;
        encoded->lr_multiplier = variable->lr_multiplier;
    }
    if (variable->no_decay || (variable->decay_multiplier != 0 && variable->decay_multiplier != 1)) {
        encoded->decay_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__DECAY_MULTIPLIER_PRESENCE_DECAY_MULTIPLIER;
        encoded->decay_multiplier = variable->no_decay ? 0 : variable->decay_multiplier;
    }
}

static void list_keep(sg_session *session, const sg_variable *variables, size_t n)
{
    Shardgrad__V1__Variable *encoded = sg_xcalloc(n, sizeof *encoded);
    Shardgrad__V1__Variable **list = sg_xcalloc(n, sizeof(Shardgrad__V1__Variable *));
    for (size_t i = 0; i < n; i++) {
        variable_encode(&variables[i], &encoded[i]);
        list[i] = &encoded[i];
    }
    Shardgrad__V1__DeclareRequest declare = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    declare.n_variables = n;
    declare.variables = list;
    declare.n_every = session->n_every;
    declare.every = session->every;
    if (session->declared != NULL)
        shardgrad__v1__declare_request__free_unpacked(session->declared, NULL);
    session->declared = (Shardgrad__V1__DeclareRequest *)sg_wire_head_copy(&declare.base);
    free(encoded);
    free(list);
}

void sg_session_declare_ask(sg_session *session, sg_session_task *task)
{
    session->declared->incarnation = session->hello->incarnation;
    session->declared->generation = session->hello->generation;
    sg_session_request_add(session, task, SG_SESSION_DECLARE, SG_SESSION_COORDINATOR, &session->declared->base);
}

sg_status sg_session_declare(sg_session *session, uint64_t now_ms, uint64_t deadline_ms, const sg_variable *variables,
                             size_t n_variables, uint64_t *task, sg_error *err)
{
    sg_status status = sg_session_failed(session, err);
    if (status != SG_OK)
        return status;
    if (session->state != SG_SESSION_JOINED || session->leaving)
        return sg_error_set(err, SG_INVALID, "variables are declared once, after joining");
    sg_plan *plan = NULL;
    if ((status = plan_make(session, variables, n_variables, &plan, err)) != SG_OK)
        return status;
    SG_ASSERT(plan != NULL);
    if (session->n_every > plan->n_groups) {
        status = sg_error_set(
            err, SG_INVALID, "it was said how often group %" PRIu32 " steps, but the variables have %" PRIu32 " groups",
            session->n_every - 1, plan->n_groups);
        sg_plan_destroy(plan);
        return status;
    }
    sg_session_groups_destroy(session);
    session->plan = plan;
    groups_make(session, variables);
    session->state = SG_SESSION_DECLARING;
    sg_session_task *declare = sg_session_task_add(session, SG_SESSION_TASK_DECLARE, now_ms, deadline_ms);
    list_keep(session, variables, n_variables);
    if (session->back != SG_SESSION_BACK_HELLO) /* else it follows the hello that is under way */
        sg_session_declare_ask(session, declare);
    sg_session_send_due(session, now_ms);
    *task = declare->number;
    return SG_OK;
}

static void declare_end(sg_session *session, sg_session_task *task)
{
    session->state = SG_SESSION_DECLARED;
    session->was_declared = true;
    session->back = SG_SESSION_STANDS;
    uint64_t bytes = 0;
    for (uint32_t ps = 0; ps < session->n_ps; ps++)
        bytes += session->plan->ps_bytes[ps];
    sg_session_log(session, SG_LOG_INFO, "declared",
                   "variables=%" PRIu32 " slices=%" PRIu32 " bytes=%" PRIu64 " initializer=%s",
                   session->plan->n_variables, session->plan->n_slices, bytes, task->attempt != 0 ? "true" : "false");
    sg_session_task_end(session, task, NULL, SG_OK, "%s", "");
}

/* --- initialization -------------------------------------------------------------------------------------------- */

static void initialize_add(sg_session *session, void *user, uint32_t ps, const sg_session_pack_list *list)
{
    sg_session_task *task = user;
    sg_session_message *message =
        sg_session_pack_message(session, list, sizeof(Shardgrad__V1__InitializeRequest), NULL);
    Shardgrad__V1__InitializeRequest *request = (Shardgrad__V1__InitializeRequest *)message->body;
    shardgrad__v1__initialize_request__init(request);
    request->worker = session->worker;
    request->incarnation = session->hello->incarnation;
    request->generation = session->hello->generation;
    request->attempt = task->attempt;
    request->dtype = SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32;
    request->slices = message->slices;
    request->n_slices = message->n_slices;
    sg_session_request_add_data(session, task, SG_SESSION_INITIALIZE, SG_SESSION_LANE_UP, ps, message, 0);
}

static uint32_t *all_slices(const sg_session *session)
{
    uint32_t *slices = sg_xcalloc(session->plan->n_slices, sizeof *slices);
    for (uint32_t i = 0; i < session->plan->n_slices; i++)
        slices[i] = i;
    return slices;
}

static void declare_answered(sg_session *session, sg_session_task *task, const Shardgrad__V1__DeclareResponse *reply)
{
    uint32_t *slices = all_slices(session);
    task->attempt = reply->attempt;
    sg_session_task_wait(task, NULL);
    if (task->attempt != 0)
        sg_session_pack(session, slices, session->plan->n_slices, initialize_add, task);
    else
        sg_session_pull_add(session, task, SG_SESSION_LANE_DOWN, 0, slices, session->plan->n_slices);
    free(slices);
}

static void initialize_answered(sg_session *session, sg_session_task *task)
{
    if (task->n_requests > 0)
        return;
    Shardgrad__V1__InitializedRequest request = SHARDGRAD__V1__INITIALIZED_REQUEST__INIT;
    request.incarnation = session->hello->incarnation;
    request.generation = session->hello->generation;
    request.attempt = task->attempt;
    sg_session_request_add(session, task, SG_SESSION_INITIALIZED, SG_SESSION_COORDINATOR, &request.base);
}

/* What was sent is what was committed: nothing need be pulled. */
static void initialized_answered(sg_session *session, sg_session_task *task)
{
    for (uint32_t i = 0; i < session->plan->n_slices; i++)
        sg_session_slice_set(session, i, 0);
    declare_end(session, task);
}

void sg_session_declare_pulled(sg_session *session, sg_session_task *task)
{
    if (task->n_requests == 0)
        declare_end(session, task);
}

void sg_session_declare_answered(sg_session *session, uint64_t now_ms, sg_session_request *request,
                                 const ProtobufCMessage *reply)
{
    (void)now_ms;
    if (request->method == SG_SESSION_DECLARE)
        declare_answered(session, request->task, (const Shardgrad__V1__DeclareResponse *)reply);
    else if (request->method == SG_SESSION_INITIALIZE)
        initialize_answered(session, request->task);
    else
        initialized_answered(session, request->task);
}
