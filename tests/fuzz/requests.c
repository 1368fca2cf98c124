/* A ps, its store and its coordinator, and requests as they come from the wire, one after the other. Each is a byte for
 * the method, two for the length (the lower first), and so many of the message. Whatever comes is answered. */
#include "common/wire.h"
#include "server/coordinator.h"
#include "server/store.h"

#define LIFE        77u /* that orders must name */
#define MAX_WORKERS 8u

typedef struct target {
    sg_store *store;
    sg_coordinator *coordinator;
    uint64_t now_ms;
} target;

static void answer_pull(void *user, void *call, const sg_store_pull_answer *answer)
{
    (void)user;
    (void)call;
    for (size_t i = 0; i < answer->n; i++)
        sg_version_release(answer->versions[i]);
}

static void drain(target *t)
{
    for (sg_coordinator_action action; sg_coordinator_next_action(t->coordinator, &action);
         sg_coordinator_action_deinit(&action)) {
        if (action.kind == SG_COORDINATOR_ORDER)
            sg_coordinator_on_ordered(t->coordinator, t->now_ms, action.ps, action.life, SG_OK, "", NULL);
    }
}

static void push(target *t, const sg_wire_parts *parts, bool wants_versions)
{
    sg_store_data data = {.spans = parts->spans, .n_spans = parts->n_spans, .kept_bytes = parts->data_bytes};
    sg_store_pushed pushed = {.wants_versions = wants_versions};
    if (sg_store_push(t->store, t->now_ms, (const Shardgrad__V1__PushRequest *)parts->head, &data, &pushed, NULL) ==
        SG_OK) {
        for (size_t i = 0; i < pushed.n_versions; i++)
            sg_version_release(pushed.versions[i]);
    }
    sg_store_pushed_deinit(&pushed);
}

#define HEAD(type) ((const Shardgrad__V1__##type *)parts->head)

static void on_store(target *t, unsigned method, const sg_wire_parts *parts)
{
    sg_status status = SG_OK;
    if (method == 0)
        status = sg_store_declare(t->store, HEAD(PsDeclareRequest), NULL);
    else if (method == 1)
        status = sg_store_order(t->store, t->now_ms, HEAD(OrderRequest), NULL);
    else if (method == 2)
        status = sg_store_initialize(t->store, HEAD(InitializeRequest), parts->spans, parts->n_spans, NULL);
    else if (method < 5)
        push(t, parts, method == 4);
    else
        sg_store_pull(t->store, t->now_ms, t->now_ms + 1000, HEAD(PullRequest), t);
    (void)status;
}

static void on_coordinator(target *t, unsigned method, const sg_wire_parts *parts)
{
    static int call;
    if (method == 6)
        sg_coordinator_on_register(t->coordinator, t->now_ms, HEAD(RegisterRequest), &call);
    else if (method == 7)
        sg_coordinator_on_hello(t->coordinator, t->now_ms, HEAD(HelloRequest), &call);
    else if (method == 8)
        sg_coordinator_on_declare(t->coordinator, t->now_ms, HEAD(DeclareRequest), &call);
    else if (method == 9)
        sg_coordinator_on_initialized(t->coordinator, t->now_ms, HEAD(InitializedRequest), &call);
    else if (method == 10)
        sg_coordinator_on_ticket(t->coordinator, t->now_ms, HEAD(TicketRequest), &call);
    else if (method == 11)
        sg_coordinator_on_heartbeat(t->coordinator, t->now_ms, HEAD(HeartbeatRequest), &call);
    else
        sg_coordinator_on_leave(t->coordinator, t->now_ms, HEAD(LeaveRequest), &call);
    drain(t);
}

static const ProtobufCMessageDescriptor *const types[] = {
    &shardgrad__v1__ps_declare_request__descriptor, &shardgrad__v1__order_request__descriptor,
    &shardgrad__v1__initialize_request__descriptor, &shardgrad__v1__push_request__descriptor,
    &shardgrad__v1__push_request__descriptor,       &shardgrad__v1__pull_request__descriptor,
    &shardgrad__v1__register_request__descriptor,   &shardgrad__v1__hello_request__descriptor,
    &shardgrad__v1__declare_request__descriptor,    &shardgrad__v1__initialized_request__descriptor,
    &shardgrad__v1__ticket_request__descriptor,     &shardgrad__v1__heartbeat_request__descriptor,
    &shardgrad__v1__leave_request__descriptor,
};

static void arrive(target *t, unsigned method, const uint8_t *data, size_t n_bytes)
{
    sg_wire_message *message = sg_wire_message_from_bytes(data, n_bytes, 50);
    sg_wire_parts parts;
    if (sg_wire_unpack(message, types[method], &parts, NULL) == SG_OK) {
        if (method < 6)
            on_store(t, method, &parts);
        else
            on_coordinator(t, method, &parts);
        sg_wire_parts_deinit(&parts);
    }
    sg_wire_message_destroy(message);
    t->now_ms += 100;
    sg_store_tick(t->store, t->now_ms);
    sg_coordinator_tick(t->coordinator, t->now_ms);
    drain(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    static const sg_config_override small = {.key = "max_workers", .value = "8", .source = "fuzz"};
    sg_config *config;
    SG_ASSERT(sg_config_load(NULL, &small, 1, &config, NULL) == SG_OK);
    target t = {.coordinator = sg_coordinator_create(config), .now_ms = 1000};
    t.store = sg_store_create(&(sg_store_options){.mode = SG_MODE_SYNC,
                                                  .rule = SG_RULE_SGD,
                                                  .park_ms = 500,
                                                  .warn_after_ms = 500,
                                                  .message_bytes = 1u << 16,
                                                  .contribution_bytes = 128,
                                                  .max_workers = MAX_WORKERS,
                                                  .answer_pull = answer_pull});
    sg_store_set_life(t.store, LIFE);
    for (size_t at = 0; at + 3 <= n_bytes;) {
        const size_t wanted = data[at + 1] + ((size_t)data[at + 2] << 8), left = n_bytes - at - 3;
        const size_t n = wanted < left ? wanted : left;
        arrive(&t, data[at] % SG_ARRAY_LEN(types), data + at + 3, n);
        at += 3 + n;
    }
    sg_store_fail_pulls(t.store, SG_STOPPED, "the end");
    sg_store_drop_contributions(t.store);
    sg_store_destroy(t.store);
    sg_coordinator_destroy(t.coordinator);
    sg_config_destroy(config);
    return 0;
}
