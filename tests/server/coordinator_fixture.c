#include "tests/server/coordinator_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"

#define MAX_SETTINGS 16u
#define MAX_SHARED   64u /* keys that all processes share */

const char *const rig_two_ps[] = {"ps=[\"a:1\",\"b:2\"]", NULL};

static void drain(rig *r);

void rig_init(rig *r, const char *const settings[])
{
    sg_config_override overrides[MAX_SETTINGS] = {{.key = "linger", .value = "false", .source = "test"},
                                                  {.key = "security.insecure", .value = "true", .source = "test"}};
    char keys[MAX_SETTINGS][64];
    size_t n = 2;
    for (; settings != NULL && settings[n - 2] != NULL; n++) {
        cr_assert_lt(n, MAX_SETTINGS);
        const char *equals = strchr(settings[n - 2], '=');
        snprintf(keys[n], sizeof keys[n], "%.*s", (int)(equals - settings[n - 2]), settings[n - 2]);
        overrides[n] = (sg_config_override){.key = keys[n], .value = equals + 1, .source = "test"};
    }
    sg_error err;
    memset(r, 0, sizeof *r);
    cr_assert_eq(sg_config_load(NULL, overrides, n, &r->config, &err), SG_OK, "%s", err.message);
    cr_assert_leq(r->config->ps.n, RIG_MAX_PS);
    r->coordinator = sg_coordinator_create(r->config);
    r->now_ms = r->tick_ms = 1000;
    r->acknowledge = true;
    r->log = sg_xstrdup("");
    for (uint32_t ps = 0; ps < RIG_MAX_PS; ps++) {
        r->lives[ps] = 100 + ps;
        shardgrad__v1__order_response__init(&r->acknowledgement[ps]);
    }
    drain(r);
}

static ProtobufCMessage *keep(rig *r, ProtobufCMessage *body)
{
    r->bodies = sg_xrealloc(r->bodies, r->n_bodies + 1, sizeof *r->bodies);
    r->bodies[r->n_bodies++] = body;
    return body;
}

static void note_order(rig *r, sg_coordinator_action *action)
{
    uint32_t ps = action->ps;
    bool declare = action->body->descriptor == &shardgrad__v1__ps_declare_request__descriptor;
    const Shardgrad__V1__OrderHeader *header = declare ? ((Shardgrad__V1__PsDeclareRequest *)action->body)->header
                                                       : ((Shardgrad__V1__OrderRequest *)action->body)->header;
    cr_assert_lt(r->n_orders[ps], RIG_MAX_ORDERS);
    cr_assert_not(r->pending[ps], "a second order is under way to ps %u", ps);
    cr_assert_eq(header->life, action->life);
    cr_assert_geq(header->generation, 1);
    r->orders[ps][r->n_orders[ps]++] =
        (rig_order){.life = header->life, .sequence = header->sequence, .body = keep(r, action->body)};
    action->body = NULL;
    r->pending[ps] = true;
}

static void note_log(rig *r, const sg_coordinator_action *action)
{
    char *log = sg_xprintf("%s%s %s %s\n", r->log, sg_log_level_name(action->level), action->event, action->text);
    free(r->log);
    r->log = log;
}

static void note(rig *r, sg_coordinator_action *action)
{
    rig_call *call = action->call;
    switch (action->kind) {
    case SG_COORDINATOR_REPLY:
        call->n_answers++;
        call->status = SG_OK;
        call->body = keep(r, action->body);
        action->body = NULL;
        break;
    case SG_COORDINATOR_FAIL:
        call->n_answers++;
        call->status = action->status;
        snprintf(call->text, sizeof call->text, "%s", action->text);
        cr_assert_neq(action->status, SG_OK);
        break;
    case SG_COORDINATOR_ORDER:
        note_order(r, action);
        break;
    case SG_COORDINATOR_SAVE:
        r->n_manifests++;
        sg_checkpoint_manifest_deinit(&r->manifest);
        r->manifest = *action->manifest;
        free(action->manifest);
        action->manifest = NULL;
        break;
    case SG_COORDINATOR_RECORD:
        cr_assert_not(r->record_due, "two generations begin at once");
        r->record_due = true;
        r->damaged = action->damaged;
        sg_checkpoint_changes_free(r->record_changes, r->n_record_changes);
        r->record_changes = action->changes;
        r->n_record_changes = action->n_changes;
        action->changes = NULL;
        action->n_changes = 0;
        break;
    case SG_COORDINATOR_LOG:
        note_log(r, action);
        break;
    case SG_COORDINATOR_END:
        r->n_ends++;
        r->end_status = action->status;
        snprintf(r->end_text, sizeof r->end_text, "%s", action->text);
        break;
    }
}

static void recorded(rig *r, sg_status status, const char *why)
{
    r->record_due = false;
    sg_coordinator_on_recorded(
        r->coordinator, r->now_ms,
        &(sg_coordinator_recorded){.status = status, .why = why, .generation = ++r->n_recorded, .manifest = r->newest});
}

static void drain(rig *r)
{
    bool moved = true;
    while (moved) {
        moved = false;
        for (sg_coordinator_action action; sg_coordinator_next_action(r->coordinator, &action);
             sg_coordinator_action_deinit(&action)) {
            note(r, &action);
            moved = true;
        }
        if (r->record_due && !r->keeps_records) {
            recorded(r, SG_OK, "");
            moved = true;
        }
        for (uint32_t ps = 0; r->acknowledge && ps < RIG_MAX_PS; ps++) {
            if (!r->pending[ps])
                continue;
            r->pending[ps] = false;
            sg_coordinator_on_ordered(r->coordinator, r->now_ms, ps, r->orders[ps][r->n_orders[ps] - 1].life,
                                      r->silent[ps] ? SG_UNAVAILABLE : SG_OK, "", &r->acknowledgement[ps]);
            moved = true;
        }
    }
}

void rig_record(rig *r, sg_status status, const char *why)
{
    cr_assert(r->record_due, "no generation is to be recorded");
    recorded(r, status, why);
    drain(r);
}

void rig_acknowledge(rig *r, uint32_t ps, sg_status status, const char *message)
{
    cr_assert(r->pending[ps], "no order is under way to ps %u", ps);
    r->pending[ps] = false;
    sg_coordinator_on_ordered(r->coordinator, r->now_ms, ps, r->orders[ps][r->n_orders[ps] - 1].life, status, message,
                              &r->acknowledgement[ps]);
    drain(r);
}

void rig_deinit(rig *r)
{
    sg_coordinator_action action;
    cr_assert_not(sg_coordinator_next_action(r->coordinator, &action));
    sg_coordinator_destroy(r->coordinator);
    sg_config_destroy(r->config);
    for (size_t i = 0; i < r->n_bodies; i++)
        sg_wire_head_free(r->bodies[i]);
    for (size_t i = 0; i < r->n_calls; i++)
        free(r->calls[i]);
    sg_checkpoint_manifest_deinit(&r->manifest);
    sg_checkpoint_changes_free(r->record_changes, r->n_record_changes);
    free(r->bodies);
    free(r->calls);
    free(r->log);
}

void rig_pass(rig *r, uint64_t ms)
{
    uint64_t end_ms = r->now_ms + ms;
    while (r->tick_ms + 100 <= end_ms) {
        r->now_ms = r->tick_ms += 100;
        sg_coordinator_tick(r->coordinator, r->now_ms);
        drain(r);
    }
    r->now_ms = end_ms;
}

void rig_live(rig *r, uint64_t ms, const uint64_t *incarnations)
{
    uint64_t end_ms = r->now_ms + ms;
    while (r->now_ms < end_ms) {
        rig_register_all(r);
        for (size_t i = 0; incarnations != NULL && incarnations[i] != 0; i++)
            rig_heartbeat(r, incarnations[i]);
        rig_pass(r, end_ms - r->now_ms < 1000 ? end_ms - r->now_ms : 1000);
    }
}

static rig_call *new_call(rig *r)
{
    r->calls = sg_xrealloc(r->calls, r->n_calls + 1, sizeof *r->calls);
    return r->calls[r->n_calls++] = sg_xcalloc(1, sizeof(rig_call));
}

/* --- ps ------------------------------------------------------------------------------------------------------ */

typedef struct settings {
    Shardgrad__V1__Setting items[MAX_SHARED], *list[MAX_SHARED];
    size_t n;
} settings;

static void add_setting(void *user, const char *key, const char *value)
{
    settings *s = user;
    cr_assert_lt(s->n, MAX_SHARED);
    shardgrad__v1__setting__init(&s->items[s->n]);
    s->items[s->n].key = sg_xstrdup(key);
    s->items[s->n].value = sg_xstrdup(value);
    s->list[s->n] = &s->items[s->n];
    s->n++;
}

static void free_settings(settings *s)
{
    for (size_t i = 0; i < s->n; i++) {
        free(s->items[i].key);
        free(s->items[i].value);
    }
}

static rig_call *send_register(rig *r, uint32_t ps, const char *address, const Shardgrad__V1__PsReport *report,
                               bool stopping)
{
    settings s = {.n = 0};
    sg_config_each_shared(r->config, add_setting, &s);
    Shardgrad__V1__RegisterRequest request = SHARDGRAD__V1__REGISTER_REQUEST__INIT;
    request.protocol_version = 1;
    request.job = r->config->job;
    request.ps = ps;
    request.life = r->lives[ps];
    request.address = (char *)address;
    request.settings = s.list;
    request.n_settings = s.n;
    request.report = (Shardgrad__V1__PsReport *)report;
    request.stopping = stopping;
    if (r->saved[ps].number != 0)
        request.saved = &r->saved[ps];
    rig_call *call = new_call(r);
    sg_coordinator_on_register(r->coordinator, r->now_ms, &request, call);
    free_settings(&s);
    drain(r);
    return call;
}

rig_call *rig_register(rig *r, uint32_t ps)
{
    return rig_report(r, ps, NULL, false);
}

rig_call *rig_register_as(rig *r, uint32_t ps, uint64_t life, const char *address)
{
    uint64_t was = r->lives[ps];
    r->lives[ps] = life;
    rig_call *call = send_register(r, ps, address, NULL, false);
    if (call->status != SG_OK)
        r->lives[ps] = was;
    return call;
}

void rig_register_all(rig *r)
{
    for (uint32_t ps = 0; ps < r->config->ps.n; ps++)
        rig_register(r, ps);
}

rig_call *rig_report(rig *r, uint32_t ps, const Shardgrad__V1__PsReport *report, bool stopping)
{
    char address[32];
    snprintf(address, sizeof address, "host:%u", ps);
    return send_register(r, ps, address, report, stopping);
}

/* --- workers ------------------------------------------------------------------------------------------------- */

Shardgrad__V1__HelloRequest rig_hello_request(const rig *r, uint32_t worker, uint64_t life)
{
    Shardgrad__V1__HelloRequest request = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    request.protocol_version = 1;
    request.job = r->config->job;
    request.worker = worker;
    request.life = life;
    return request;
}

rig_call *rig_hello(rig *r, uint32_t worker, uint64_t life)
{
    char address[32];
    snprintf(address, sizeof address, "node%u:%u", worker, (unsigned)life);
    Shardgrad__V1__HelloRequest request = rig_hello_request(r, worker, life);
    request.address = address;
    return rig_hello_with(r, &request);
}

rig_call *rig_hello_with(rig *r, const Shardgrad__V1__HelloRequest *request)
{
    rig_call *call = new_call(r);
    sg_coordinator_on_hello(r->coordinator, r->now_ms, request, call);
    drain(r);
    return call;
}

uint64_t rig_join(rig *r, uint32_t worker, uint64_t life)
{
    rig_call *call = rig_hello(r, worker, life);
    cr_assert_eq(call->n_answers, 1, "hello of worker %u was not answered", worker);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    return ((const Shardgrad__V1__HelloResponse *)call->body)->incarnation;
}

rig_call *rig_declare_list(rig *r, uint64_t incarnation, Shardgrad__V1__Variable **variables, size_t n)
{
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = incarnation >> 32 == 0 ? 1 : incarnation >> 32;
    request.variables = variables;
    request.n_variables = n;
    request.every = r->every;
    request.n_every = r->n_every;
    rig_call *call = new_call(r);
    sg_coordinator_on_declare(r->coordinator, r->now_ms, &request, call);
    drain(r);
    return call;
}

/* "weight" of group 0 and "critic" of group 1. */
rig_call *rig_declare(rig *r, uint64_t incarnation)
{
    uint64_t shape[2] = {784, 512};
    Shardgrad__V1__Variable weight = SHARDGRAD__V1__VARIABLE__INIT, critic = SHARDGRAD__V1__VARIABLE__INIT;
    weight.name = (char *)"weight";
    weight.shape = shape;
    weight.n_shape = 2;
    critic.name = (char *)"critic";
    critic.shape = shape;
    critic.n_shape = 1;
    critic.group = 1;
    return rig_declare_list(r, incarnation, (Shardgrad__V1__Variable *[]){&weight, &critic}, 2);
}

rig_call *rig_initialized(rig *r, uint64_t incarnation, uint64_t attempt)
{
    Shardgrad__V1__InitializedRequest request = SHARDGRAD__V1__INITIALIZED_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = incarnation >> 32 == 0 ? 1 : incarnation >> 32;
    request.attempt = attempt;
    rig_call *call = new_call(r);
    sg_coordinator_on_initialized(r->coordinator, r->now_ms, &request, call);
    drain(r);
    return call;
}

rig_call *rig_ticket_with(rig *r, const Shardgrad__V1__TicketRequest *request)
{
    rig_call *call = new_call(r);
    sg_coordinator_on_ticket(r->coordinator, r->now_ms, request, call);
    drain(r);
    return call;
}

static Shardgrad__V1__TicketRequest ticket_request(uint64_t incarnation, uint32_t group, uint64_t received,
                                                   uint64_t finished)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = incarnation >> 32 == 0 ? 1 : incarnation >> 32;
    request.group = group;
    request.received = received;
    request.finished = finished;
    return request;
}

rig_call *rig_ticket(rig *r, uint64_t incarnation, uint32_t group, uint64_t received, uint64_t finished)
{
    Shardgrad__V1__TicketRequest request = ticket_request(incarnation, group, received, finished);
    return rig_ticket_with(r, &request);
}

rig_call *rig_ticket_for(rig *r, uint64_t incarnation, uint32_t group, uint64_t received, uint64_t finished,
                         uint64_t iteration)
{
    Shardgrad__V1__TicketRequest request = ticket_request(incarnation, group, received, finished);
    request.iteration_presence_case = SHARDGRAD__V1__TICKET_REQUEST__ITERATION_PRESENCE_ITERATION;
    request.iteration = iteration;
    return rig_ticket_with(r, &request);
}

rig_call *rig_heartbeat(rig *r, uint64_t incarnation)
{
    Shardgrad__V1__HeartbeatRequest request = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = incarnation >> 32 == 0 ? 1 : incarnation >> 32;
    return rig_heartbeat_with(r, &request);
}

rig_call *rig_heartbeat_with(rig *r, const Shardgrad__V1__HeartbeatRequest *request)
{
    rig_call *call = new_call(r);
    sg_coordinator_on_heartbeat(r->coordinator, r->now_ms, request, call);
    drain(r);
    return call;
}

rig_call *rig_leave(rig *r, uint64_t incarnation, uint64_t pushed)
{
    return rig_leave_report(r, incarnation, pushed, 0, 0);
}

rig_call *rig_leave_with(rig *r, const Shardgrad__V1__LeaveRequest *request)
{
    rig_call *call = new_call(r);
    sg_coordinator_on_leave(r->coordinator, r->now_ms, request, call);
    drain(r);
    return call;
}

static rig_call *leave(rig *r, uint64_t incarnation, uint64_t pushed, const uint64_t *begun, float loss,
                       uint64_t examples)
{
    Shardgrad__V1__GroupProgress progress = SHARDGRAD__V1__GROUP_PROGRESS__INIT, *list = &progress;
    progress.pushed = pushed;
    progress.loss = loss;
    progress.examples = examples;
    if (begun != NULL) {
        progress.begun_presence_case = SHARDGRAD__V1__GROUP_PROGRESS__BEGUN_PRESENCE_BEGUN;
        progress.begun = *begun;
    }
    Shardgrad__V1__LeaveRequest request = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    request.incarnation = incarnation;
    request.generation = incarnation >> 32 == 0 ? 1 : incarnation >> 32;
    request.progress = &list;
    request.n_progress = pushed == UINT64_MAX ? 0 : 1;
    return rig_leave_with(r, &request);
}

rig_call *rig_set_all(rig *r, uint64_t request, Shardgrad__V1__Setting **list, size_t n)
{
    Shardgrad__V1__SetRequest body = SHARDGRAD__V1__SET_REQUEST__INIT;
    body.request = request;
    body.job = (char *)r->job;
    body.settings = list;
    body.n_settings = n;
    rig_call *call = new_call(r);
    sg_coordinator_on_set(r->coordinator, r->now_ms, &body, call);
    drain(r);
    return call;
}

rig_call *rig_set(rig *r, uint64_t request, const char *key, const char *value)
{
    Shardgrad__V1__Setting setting = SHARDGRAD__V1__SETTING__INIT, *list[] = {&setting};
    setting.key = (char *)key;
    setting.value = (char *)value;
    return rig_set_all(r, request, list, 1);
}

rig_call *rig_leave_report(rig *r, uint64_t incarnation, uint64_t pushed, float loss, uint64_t examples)
{
    return leave(r, incarnation, pushed, NULL, loss, examples);
}

rig_call *rig_leave_begun(rig *r, uint64_t incarnation, uint64_t pushed, uint64_t begun)
{
    return leave(r, incarnation, pushed, &begun, 0, 0);
}

rig_call *rig_save(rig *r, uint64_t id)
{
    Shardgrad__V1__SaveRequest request = SHARDGRAD__V1__SAVE_REQUEST__INIT;
    request.id = id;
    request.job = (char *)r->job;
    rig_call *call = new_call(r);
    sg_coordinator_on_save(r->coordinator, r->now_ms, &request, call);
    drain(r);
    return call;
}

rig_call *rig_norms(rig *r, uint32_t ps, uint32_t group, uint64_t step, double *squares, size_t n_squares)
{
    Shardgrad__V1__NormsRequest request = SHARDGRAD__V1__NORMS_REQUEST__INIT;
    request.ps = ps;
    request.life = ps < RIG_MAX_PS ? r->lives[ps] : 1;
    request.generation = 1;
    request.group = group;
    request.step = step;
    request.squares = squares;
    request.n_squares = n_squares;
    rig_call *call = new_call(r);
    sg_coordinator_on_norms(r->coordinator, r->now_ms, &request, call);
    drain(r);
    return call;
}

uint32_t rig_n_cuts(const rig *r)
{
    return rig_ordered(r, 0, SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT, NULL);
}

const Shardgrad__V1__Cut *rig_cut(const rig *r)
{
    const Shardgrad__V1__OrderRequest *order = NULL;
    cr_assert_geq(rig_ordered(r, 0, SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT, &order), 1, "nothing was cut");
    return order->cut;
}

void rig_report_saved(rig *r)
{
    const Shardgrad__V1__OrderRequest *order = NULL;
    rig_ordered(r, 0, SHARDGRAD__V1__ORDER_REQUEST__ORDER_CUT, &order);
    cr_assert(order != NULL, "nothing was cut");
    for (uint32_t ps = 0; ps < r->config->ps.n; ps++) {
        shardgrad__v1__save_report__init(&r->saved[ps]);
        r->saved[ps].generation = order->header->generation;
        r->saved[ps].number = rig_cut(r)->number;
        r->saved[ps].bytes = 100 + ps;
        r->saved[ps].header_crc32c = 7 + ps;
        r->saved[ps].folder = 42;
    }
    rig_register_all(r);
}

void rig_written(rig *r, sg_status status, const char *message)
{
    sg_coordinator_on_written(r->coordinator, r->now_ms, r->manifest.set, status, message);
    drain(r);
}

void rig_complete(rig *r, uint64_t iteration)
{
    unsigned before = r->n_manifests;
    cr_assert_eq(rig_cut(r)->mark, iteration, "cut before %lu", rig_cut(r)->mark);
    rig_report_saved(r);
    cr_assert_eq(r->n_manifests, before + 1);
    cr_assert_eq(r->manifest.set.iteration, iteration);
    rig_written(r, SG_OK, "");
}

const Shardgrad__V1__StatusResponse *rig_status(rig *r)
{
    Shardgrad__V1__StatusRequest request = SHARDGRAD__V1__STATUS_REQUEST__INIT;
    rig_call *call = new_call(r);
    sg_coordinator_on_status(r->coordinator, r->now_ms, &request, call);
    drain(r);
    cr_assert_eq(call->n_answers, 1);
    cr_assert_eq(call->status, SG_OK);
    return (const Shardgrad__V1__StatusResponse *)call->body;
}

void rig_start(rig *r, uint32_t n, uint64_t *incarnations)
{
    rig_register_all(r);
    for (uint32_t worker = 0; worker < n; worker++) {
        incarnations[worker] = rig_join(r, worker, 1000 + worker);
        rig_declare(r, incarnations[worker]);
    }
    rig_call *call = rig_initialized(r, incarnations[0], 1);
    cr_assert_eq(call->n_answers, 1, "initialization did not end");
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
}

/* --- what came of it ----------------------------------------------------------------------------------------- */

uint64_t rig_saved_at(const rig_call *save)
{
    cr_assert_eq(save->status, SG_OK, "%s", save->text);
    return ((const Shardgrad__V1__SaveResponse *)save->body)->iteration;
}

const Shardgrad__V1__TicketResponse *rig_granted(const rig_call *call)
{
    cr_assert_eq(call->n_answers, 1, "%u answers", call->n_answers);
    cr_assert_eq(call->status, SG_OK, "%s", call->text);
    cr_assert_eq(call->body->descriptor, &shardgrad__v1__ticket_response__descriptor);
    return (const Shardgrad__V1__TicketResponse *)call->body;
}

bool rig_waits(const rig_call *call)
{
    return call->n_answers == 0;
}

void rig_failed(const rig_call *call, sg_status status, const char *words)
{
    cr_assert_eq(call->n_answers, 1, "%u answers", call->n_answers);
    cr_assert_eq(call->status, status, "%s: %s", sg_status_name(call->status), call->text);
    cr_assert_not_null(strstr(call->text, words), "'%s' does not contain '%s'", call->text, words);
}

uint32_t rig_ordered(const rig *r, uint32_t ps, Shardgrad__V1__OrderRequest__OrderCase kind,
                     const Shardgrad__V1__OrderRequest **last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_orders[ps]; i++) {
        const ProtobufCMessage *body = r->orders[ps][i].body;
        bool declare = body->descriptor == &shardgrad__v1__ps_declare_request__descriptor;
        const Shardgrad__V1__OrderRequest *order = (const Shardgrad__V1__OrderRequest *)body;
        bool matches = declare ? kind == SHARDGRAD__V1__ORDER_REQUEST__ORDER__NOT_SET : order->order_case == kind;
        if (!matches)
            continue;
        n++;
        if (last != NULL)
            *last = order;
    }
    return n;
}

bool rig_logged(const rig *r, const char *words)
{
    return strstr(r->log, words) != NULL;
}
