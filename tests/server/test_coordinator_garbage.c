/* A request never kills a server: random ones, each with random fields, in random order. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "server/coordinator.h"
#include "tests/support/seed.h"

TestSuite(coordinator_garbage, .timeout = 60);

#define N_RUNS    100
#define N_EVENTS  1000
#define N_WORKERS 4
#define N_GROUPS  2

typedef struct garbage {
    sg_seed seed;
    sg_config *config;
    sg_coordinator *coordinator;
    uint64_t now_ms;
    bool calm;                              /* for now everything makes sense */
    uint32_t worker;                        /* that the next call is from */
    uint32_t askers[N_EVENTS + 20];         /* by call */
    uint64_t incarnations[N_WORKERS];       /* that were given out last */
    uint64_t received[N_WORKERS][N_GROUPS]; /* as the last ticket says */
    uint64_t lives[2];                      /* of ps whose order is under way; 0: none */
    uint64_t n_calls, n_answers, n_tickets;
} garbage;

static uint64_t below(garbage *g, uint64_t limit)
{
    return sg_seed_below(&g->seed, limit);
}

/* True once in n times, while garbage is asked for. */
static bool odd(garbage *g, uint64_t n)
{
    return !g->calm && below(g, n) == 0;
}

/* Mostly plausible, sometimes anything. */
static uint64_t number(garbage *g, uint64_t usual)
{
    uint64_t kind = g->calm ? 2 : below(g, 20);
    if (kind == 0)
        return UINT64_MAX - below(g, 3);
    if (kind == 1)
        return below(g, UINT64_MAX);
    return below(g, usual);
}

static char *text(garbage *g)
{
    static const char *const texts[] = {"", "shardgrad", "host:1", "a b\n\"", "\xff\xfe", NULL};
    return (char *)texts[below(g, SG_ARRAY_LEN(texts))];
}

static uint64_t incarnation(garbage *g)
{
    return odd(g, 10) ? number(g, 3) : g->incarnations[g->worker];
}

static uint64_t generation(garbage *g)
{
    return odd(g, 20) ? number(g, 3) : 1;
}

static void *call_name(garbage *g)
{
    g->askers[++g->n_calls] = g->worker;
    return (void *)(uintptr_t)g->n_calls;
}

typedef struct shared {
    Shardgrad__V1__Setting items[64], *list[64];
    size_t n;
} shared;

static void add_setting(void *user, const char *key, const char *value)
{
    shared *s = user;
    shardgrad__v1__setting__init(&s->items[s->n]);
    s->items[s->n].key = sg_xstrdup(key);
    s->items[s->n].value = sg_xstrdup(value);
    s->list[s->n] = &s->items[s->n];
    s->n++;
}

static void send_register(garbage *g)
{
    shared s = {.n = 0};
    sg_config_each_shared(g->config, add_setting, &s);
    uint8_t bitmap[200] = {0xff};
    Shardgrad__V1__PsReport report = SHARDGRAD__V1__PS_REPORT__INIT;
    report.waiting_for = (ProtobufCBinaryData){.len = below(g, sizeof bitmap), .data = bitmap};
    Shardgrad__V1__RegisterRequest request = SHARDGRAD__V1__REGISTER_REQUEST__INIT;
    request.protocol_version = odd(g, 20) ? 9 : 1;
    request.job = odd(g, 20) ? text(g) : g->config->job;
    request.ps = (uint32_t)(g->calm ? g->worker % 2 : below(g, odd(g, 20) ? 5 : 2));
    request.life = odd(g, 400) ? number(g, 9) : 50 + request.ps;
    request.address = odd(g, 20) ? text(g) : (char *)"host:2";
    request.settings = s.list;
    request.n_settings = odd(g, 20) ? below(g, s.n) : s.n;
    request.report = odd(g, 2) ? &report : NULL;
    request.stopping = odd(g, 1000);
    sg_coordinator_on_register(g->coordinator, g->now_ms, &request, call_name(g));
    for (size_t i = 0; i < s.n; i++) {
        free(s.items[i].key);
        free(s.items[i].value);
    }
}

static void send_hello(garbage *g)
{
    Shardgrad__V1__HelloRequest request = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    request.protocol_version = odd(g, 20) ? 0 : 1;
    request.job = odd(g, 20) ? text(g) : g->config->job;
    request.worker = odd(g, 20) ? (uint32_t)number(g, N_WORKERS) : g->worker;
    request.life = odd(g, 30) ? number(g, 9) : 100 + g->worker;
    request.generation = odd(g, 10) ? number(g, 3) : 0;
    request.gives_up = incarnation(g);
    request.address = text(g);
    Shardgrad__V1__Setting setting = SHARDGRAD__V1__SETTING__INIT, *list = &setting;
    setting.key = text(g);
    setting.value = text(g);
    request.settings = &list;
    request.n_settings = odd(g, 20);
    sg_coordinator_on_hello(g->coordinator, g->now_ms, &request, call_name(g));
}

static void send_declare(garbage *g)
{
    uint64_t shape[12];
    for (size_t i = 0; i < SG_ARRAY_LEN(shape); i++)
        shape[i] = odd(g, 10) ? number(g, 3) : 4;
    Shardgrad__V1__Variable variables[3], *list[3];
    for (size_t i = 0; i < 3; i++) {
        shardgrad__v1__variable__init(&variables[i]);
        variables[i].name = odd(g, 20) ? text(g) : (char *)(i == 0 ? "a" : i == 1 ? "b" : "c");
        variables[i].shape = shape;
        variables[i].n_shape = odd(g, 10) ? below(g, SG_ARRAY_LEN(shape)) : 1;
        variables[i].group = odd(g, 10) ? (uint32_t)number(g, 4) : i > 1;
        variables[i].dtype = (Shardgrad__V1__DataType)(odd(g, 20) ? 7 : 1);
        list[i] = &variables[i];
    }
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.incarnation = incarnation(g);
    request.generation = generation(g);
    request.variables = list;
    request.n_variables = odd(g, 10) ? below(g, 4) : 3;
    sg_coordinator_on_declare(g->coordinator, g->now_ms, &request, call_name(g));
}

static void send_initialized(garbage *g)
{
    Shardgrad__V1__InitializedRequest request = SHARDGRAD__V1__INITIALIZED_REQUEST__INIT;
    request.incarnation = incarnation(g);
    request.generation = generation(g);
    request.attempt = odd(g, 3) ? number(g, 4) : 1;
    sg_coordinator_on_initialized(g->coordinator, g->now_ms, &request, call_name(g));
}

/* What the named worker would ask next, more often than not. */
static void send_ticket(garbage *g)
{
    Shardgrad__V1__TicketRequest request = SHARDGRAD__V1__TICKET_REQUEST__INIT;
    request.incarnation = incarnation(g);
    request.generation = generation(g);
    request.group = (uint32_t)number(g, N_GROUPS);
    uint64_t received = request.group < N_GROUPS ? g->received[g->worker][request.group] : 0;
    request.received = odd(g, 6) ? number(g, 12) : received;
    request.finished = below(g, 6) == 0 || request.received == 0 ? number(g, 12) : request.received - below(g, 2);
    if (below(g, 10) == 0) {
        request.iteration_presence_case = SHARDGRAD__V1__TICKET_REQUEST__ITERATION_PRESENCE_ITERATION;
        request.iteration = number(g, 12);
    }
    request.examples = number(g, 100);
    sg_coordinator_on_ticket(g->coordinator, g->now_ms, &request, call_name(g));
}

static void send_heartbeat(garbage *g)
{
    Shardgrad__V1__HeartbeatRequest request = SHARDGRAD__V1__HEARTBEAT_REQUEST__INIT;
    request.resting = below(g, 1000) == 0;
    request.incarnation = incarnation(g);
    request.generation = generation(g);
    sg_coordinator_on_heartbeat(g->coordinator, g->now_ms, &request, call_name(g));
}

static void send_leave(garbage *g)
{
    Shardgrad__V1__GroupProgress progress[3], *list[3];
    for (size_t i = 0; i < 3; i++) {
        shardgrad__v1__group_progress__init(&progress[i]);
        progress[i].group = (uint32_t)number(g, 2);
        progress[i].pushed = number(g, 4);
        list[i] = &progress[i];
    }
    Shardgrad__V1__LeaveRequest request = SHARDGRAD__V1__LEAVE_REQUEST__INIT;
    request.incarnation = incarnation(g);
    request.generation = generation(g);
    request.progress = list;
    request.n_progress = below(g, 4);
    sg_coordinator_on_leave(g->coordinator, g->now_ms, &request, call_name(g));
}

static void send_status(garbage *g)
{
    Shardgrad__V1__StatusRequest request = SHARDGRAD__V1__STATUS_REQUEST__INIT;
    sg_coordinator_on_status(g->coordinator, g->now_ms, &request, call_name(g));
}

static void answer_order(garbage *g)
{
    uint32_t ps = (uint32_t)below(g, 2);
    uint64_t life = odd(g, 20) ? number(g, 60) : g->lives[ps];
    sg_status status = SG_OK;
    if (below(g, 8) == 0)
        status = odd(g, 100) ? SG_INVALID : odd(g, 2) ? SG_UNAVAILABLE : SG_NOT_READY;
    sg_coordinator_on_ordered(g->coordinator, g->now_ms, ps, life, status, text(g), NULL);
}

static void learn(garbage *g, uint32_t worker, const ProtobufCMessage *body)
{
    if (body->descriptor == &shardgrad__v1__hello_response__descriptor) {
        const Shardgrad__V1__HelloResponse *hello = (const Shardgrad__V1__HelloResponse *)body;
        g->incarnations[worker] = hello->incarnation;
        memset(g->received[worker], 0, sizeof g->received[worker]);
    }
    if (body->descriptor == &shardgrad__v1__ticket_response__descriptor) {
        const Shardgrad__V1__Step *step = ((const Shardgrad__V1__TicketResponse *)body)->step;
        g->received[worker][step->group] = step->step + 1;
        g->n_tickets++;
    }
}

static void note_order(garbage *g, const sg_coordinator_action *action)
{
    g->lives[action->ps] = action->life;
    if (g->calm)
        sg_coordinator_on_ordered(g->coordinator, g->now_ms, action->ps, action->life, SG_OK, "", NULL);
}

static void drain(garbage *g)
{
    for (sg_coordinator_action action; sg_coordinator_next_action(g->coordinator, &action);
         sg_coordinator_action_deinit(&action)) {
        g->n_answers += action.kind == SG_COORDINATOR_REPLY || action.kind == SG_COORDINATOR_FAIL;
        if (action.kind == SG_COORDINATOR_ORDER)
            note_order(g, &action);
        if (action.kind == SG_COORDINATOR_REPLY)
            learn(g, g->askers[(uintptr_t)action.call], action.body);
    }
}

/* So that half the runs begin with a job that trains. */
static void start(garbage *g)
{
    static void (*const events[])(garbage *) = {send_register, send_hello, send_declare, send_initialized};
    g->calm = true;
    for (size_t i = 0; i < SG_ARRAY_LEN(events); i++) {
        for (g->worker = 0; g->worker < N_WORKERS; g->worker++) {
            events[i](g);
            drain(g);
        }
    }
    g->calm = false;
}

static void one_event(garbage *g)
{
    static void (*const events[])(garbage *) = {
        send_register, send_hello,   send_declare,   send_initialized, send_ticket, send_ticket,
        send_ticket,   send_ticket,  send_heartbeat, send_heartbeat,   send_leave,  answer_order,
        answer_order,  answer_order, answer_order,   send_status,
    };
    g->worker = (uint32_t)below(g, N_WORKERS);
    if (below(g, 4) == 0) {
        g->now_ms += below(g, 300);
        sg_coordinator_tick(g->coordinator, g->now_ms);
    } else {
        events[below(g, SG_ARRAY_LEN(events))](g);
    }
    if (below(g, 10000) == 0)
        sg_coordinator_stop(g->coordinator, g->now_ms);
    drain(g);
}

Test(coordinator_garbage, whatever_is_asked_gets_one_answer_and_kills_nobody)
{
    static const char *const modes[] = {"sync", "async", "ssp"};
    garbage g = {.seed = sg_seed_begin()};
    for (int run = 0; run < N_RUNS; run++) {
        sg_config_override overrides[] = {
            {.key = "ps", .value = "[\"a:1\",\"b:2\"]", .source = "test"},
            {.key = "security.insecure", .value = "true", .source = "test"},
            {.key = "update.mode", .value = modes[run % 3], .source = "test"},
            {.key = "max_workers", .value = "4", .source = "test"},
            {.key = "linger", .value = "true", .source = "test"},
        };
        sg_error err;
        cr_assert_eq(sg_config_load(NULL, overrides, SG_ARRAY_LEN(overrides), &g.config, &err), SG_OK, "%s",
                     err.message);
        g.coordinator = sg_coordinator_create(g.config);
        g.n_calls = g.n_answers = 0;
        memset(g.lives, 0, sizeof g.lives);
        memset(g.incarnations, 0, sizeof g.incarnations);
        memset(g.received, 0, sizeof g.received);
        if (run % 4 < 2)
            start(&g);
        for (int event = 0; event < N_EVENTS; event++)
            one_event(&g);
        g.now_ms += 100000;
        sg_coordinator_tick(g.coordinator, g.now_ms);
        drain(&g);
        cr_assert_eq(g.n_answers, g.n_calls, "seed %" PRIu64 ", run %d: %" PRIu64 " calls, %" PRIu64 " answers",
                     g.seed.first, run, g.n_calls, g.n_answers);
        sg_coordinator_destroy(g.coordinator);
        sg_config_destroy(g.config);
    }
    cr_assert_gt(g.n_tickets, 40, "the garbage got nowhere: seed %" PRIu64 ", %" PRIu64 " tickets", g.seed.first,
                 g.n_tickets);
}
