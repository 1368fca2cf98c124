/* A request never kills a ps: valid messages of a job under way, with bytes of them flipped, cut off or doubled,
 * through the wire's decoder and into the store. */
#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/wire.h"
#include "store_fixture.h"
#include "tests/support/seed.h"

TestSuite(store_garbage, .timeout = 60);

#define N_RUNS      60
#define N_MESSAGES  400
#define N_WORKERS   2u
#define MAX_MEMBERS 3u
#define N_VALUES    24u

/* Slices of 16 and 8 elements in group 0; one of 4 in group 1; one that is frozen. */
static const fixture_variable variables[] = {{.name = "weight", .n_elems = 24},
                                             {.name = "other", .n_elems = 4, .group = 1},
                                             {.name = "table", .n_elems = 4, .frozen = true}};
static const uint32_t slices[] = {0, 1, 2, 3};

typedef struct garbage {
    fixture f;
    sg_seed seed;
    fixture_answer pulls[N_MESSAGES];
    size_t n_pulls;
    float values[N_VALUES];
    size_t n_applied; /* pushes that were taken */
} garbage;

static uint64_t below(garbage *g, uint64_t limit)
{
    return sg_seed_below(&g->seed, limit);
}

/* --- bytes of a message, mostly with something wrong ------------------------------------------------------------ */

static void harm(garbage *g, uint8_t *bytes, size_t *n_bytes)
{
    for (uint64_t n = below(g, 4); n > 0 && *n_bytes > 0; n--)
        bytes[below(g, *n_bytes)] = below(g, 2) ? (uint8_t)below(g, 256) : (uint8_t)(below(g, 2) * 0xff);
    if (below(g, 10) == 0)
        *n_bytes = below(g, *n_bytes + 1);
    if (below(g, 10) == 0) { /* fields come twice: the last counts, lists grow */
        memcpy(bytes + *n_bytes, bytes, *n_bytes);
        *n_bytes *= 2;
    }
}

/* NULL: no longer a message. *message must outlive the parts. */
static const ProtobufCMessage *send_over_wire(garbage *g, const ProtobufCMessage *head, size_t data_bytes,
                                              sg_wire_message **message, sg_wire_parts *parts)
{
    uint8_t bytes[4096];
    size_t n_bytes = protobuf_c_message_pack(head, bytes);
    if (data_bytes > 0) {
        bytes[n_bytes++] = (uint8_t)(SG_WIRE_DATA_FIELD << 3 | 2);
        bytes[n_bytes++] = (uint8_t)data_bytes; /* below 128 */
        memcpy(bytes + n_bytes, g->values, data_bytes);
        n_bytes += data_bytes;
    }
    cr_assert_leq(n_bytes, sizeof bytes / 2);
    harm(g, bytes, &n_bytes);
    *message = sg_wire_message_from_bytes(bytes, n_bytes, 1 + below(g, 100));
    *parts = (sg_wire_parts){0};
    return sg_wire_unpack(*message, head->descriptor, parts, NULL) == SG_OK ? parts->head : NULL;
}

/* A push's message, which the store may hold. */
typedef struct received {
    unsigned references;
    sg_wire_message *message;
    sg_wire_parts parts;
} received;

static void received_keep(void *owner)
{
    received *r = owner;
    r->references++;
}

static void received_release(void *owner)
{
    received *r = owner;
    if (--r->references > 0)
        return;
    sg_wire_parts_deinit(&r->parts);
    sg_wire_message_destroy(r->message);
    free(r);
}

static void done(sg_wire_message *message, sg_wire_parts *parts)
{
    sg_wire_parts_deinit(parts);
    sg_wire_message_destroy(message);
}

/* --- messages --------------------------------------------------------------------------------------------------- */

static Shardgrad__V1__Step a_step(uint64_t number, uint8_t *members)
{
    Shardgrad__V1__Step step = SHARDGRAD__V1__STEP__INIT;
    *members = 0x3;
    step.step = step.iteration = number;
    step.members = (ProtobufCBinaryData){.len = 1, .data = members};
    step.hyper = 1;
    step.learning_rate = 0.5f;
    return step;
}

/* Most pushes that survive are of the steps that collect. */
static uint64_t some_step(garbage *g)
{
    Shardgrad__V1__PsReport report;
    sg_store_report(g->f.store, &report);
    uint64_t step = report.min_step + below(g, 2);
    sg_store_report_deinit(&report);
    return step;
}

static void send_push(garbage *g)
{
    uint32_t worker = (uint32_t)below(g, N_WORKERS);
    uint64_t steps[2] = {some_step(g), 0};
    steps[1] = steps[0];
    uint8_t members;
    Shardgrad__V1__Step step = a_step(steps[0], &members);
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = FIXTURE_INCARNATION(worker + 1);
    request.generation = 1;
    request.step = &step;
    request.weight = below(g, 3);
    bool other = below(g, 3) == 0;
    step.group = other;
    request.slices = (uint32_t *)&slices[other ? 2 : 0];
    request.n_slices = request.n_steps = other ? 1 : 2;
    request.steps = steps;
    received *r = calloc(1, sizeof *r);
    r->references = 1;
    const ProtobufCMessage *head = send_over_wire(g, &request.base, other ? 16 : 96, &r->message, &r->parts);
    if (head != NULL) {
        const Shardgrad__V1__PushRequest *got = (const Shardgrad__V1__PushRequest *)head;
        sg_store_data data = {.spans = r->parts.spans,
                              .n_spans = r->parts.n_spans,
                              .kept_bytes = sg_wire_message_bytes(r->message) + r->parts.memory_bytes,
                              .owner = r,
                              .keep = received_keep,
                              .release = received_release};
        sg_store_pushed pushed = {.wants_versions = below(g, 2) == 0};
        sg_status status = sg_store_push(g->f.store, g->f.now_ms, got, &data, &pushed, NULL);
        g->n_applied += status == SG_OK;
        cr_assert_leq(pushed.n_non_finite, got->n_slices);
        for (size_t i = 0; i < pushed.n_versions; i++)
            sg_version_release(pushed.versions[i]);
        sg_store_pushed_deinit(&pushed);
    }
    received_release(r);
}

static void send_pull(garbage *g)
{
    uint32_t worker = (uint32_t)below(g, N_WORKERS);
    uint64_t versions[4];
    for (size_t i = 0; i < SG_ARRAY_LEN(versions); i++)
        versions[i] = some_step(g);
    Shardgrad__V1__PullRequest request = SHARDGRAD__V1__PULL_REQUEST__INIT;
    request.worker = worker;
    request.incarnation = FIXTURE_INCARNATION(worker + 1);
    request.generation = 1;
    request.slices = (uint32_t *)slices;
    request.n_slices = request.n_versions = below(g, SG_ARRAY_LEN(slices) + 1);
    request.versions = versions;
    sg_wire_message *message;
    sg_wire_parts parts;
    const ProtobufCMessage *head = send_over_wire(g, &request.base, 0, &message, &parts);
    if (head != NULL)
        sg_store_pull(g->f.store, g->f.now_ms, g->f.now_ms + below(g, 3000), (const Shardgrad__V1__PullRequest *)head,
                      &g->pulls[g->n_pulls++]);
    done(message, &parts);
}

static void send_initialize(garbage *g)
{
    Shardgrad__V1__InitializeRequest request = SHARDGRAD__V1__INITIALIZE_REQUEST__INIT;
    request.incarnation = FIXTURE_INCARNATION(1);
    request.generation = request.attempt = 1;
    request.slices = (uint32_t *)slices;
    request.n_slices = 2;
    sg_wire_message *message;
    sg_wire_parts parts;
    sg_error err;
    const ProtobufCMessage *head = send_over_wire(g, &request.base, 96, &message, &parts);
    if (head != NULL) {
        sg_status status = sg_store_initialize(g->f.store, (const Shardgrad__V1__InitializeRequest *)head, parts.spans,
                                               parts.n_spans, &err);
        cr_assert_neq(status, SG_OK, "after the commit nothing is taken");
    }
    done(message, &parts);
}

static void count_order(garbage *g, const Shardgrad__V1__OrderHeader *header, sg_status status)
{
    bool used = header != NULL && header->life == FIXTURE_LIFE && header->generation == 1 &&
                header->sequence == g->f.sequence + 1 && status != SG_NOT_READY;
    g->f.sequence += used;
}

static void send_declare(garbage *g, const Shardgrad__V1__OrderHeader *header)
{
    uint64_t shape[] = {4, 6};
    float one = 1;
    Shardgrad__V1__Variable variable = SHARDGRAD__V1__VARIABLE__INIT, *list[] = {&variable, &variable};
    variable.name = (char *)"weight";
    variable.n_shape = 2;
    variable.shape = shape;
    variable.lr_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__LR_MULTIPLIER_PRESENCE_LR_MULTIPLIER;
    variable.lr_multiplier = one;
    Shardgrad__V1__PsDeclareRequest request = SHARDGRAD__V1__PS_DECLARE_REQUEST__INIT;
    request.header = (Shardgrad__V1__OrderHeader *)header;
    request.n_variables = 2;
    request.variables = list;
    request.n_ps = 1;
    request.slice_bytes = FIXTURE_SLICE_BYTES;
    sg_wire_message *message;
    sg_wire_parts parts;
    const ProtobufCMessage *head = send_over_wire(g, &request.base, 0, &message, &parts);
    if (head != NULL) {
        const Shardgrad__V1__PsDeclareRequest *got = (const Shardgrad__V1__PsDeclareRequest *)head;
        count_order(g, got->header, sg_store_declare(g->f.store, got, NULL));
    }
    done(message, &parts);
}

static void send_order(garbage *g, const Shardgrad__V1__OrderHeader *header)
{
    uint8_t members;
    Shardgrad__V1__Step step = a_step(some_step(g), &members), *steps[] = {&step};
    Shardgrad__V1__Excuse excuse = SHARDGRAD__V1__EXCUSE__INIT;
    Shardgrad__V1__Admit admit = SHARDGRAD__V1__ADMIT__INIT;
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    Shardgrad__V1__Seal seal = SHARDGRAD__V1__SEAL__INIT;
    Shardgrad__V1__OrderRequest request = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    request.header = (Shardgrad__V1__OrderHeader *)header;
    switch (below(g, 4)) {
    case 0:
        request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_EXCUSE;
        request.excuse = &excuse;
        excuse.worker = MAX_MEMBERS; /* nobody who pushes */
        excuse.n_steps = 1;
        excuse.steps = steps;
        break;
    case 1:
        request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_ADMIT;
        request.admit = &admit;
        admit.worker = (uint32_t)below(g, N_WORKERS);
        admit.incarnation = FIXTURE_INCARNATION(admit.worker + 1);
        admit.address = (char *)"host:1";
        break;
    case 2:
        request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;
        request.hyper = &hyper;
        hyper.number = 1 + below(g, 100);
        break;
    default:
        request.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_SEAL;
        request.seal = &seal;
        seal.attempt = 1;
    }
    sg_wire_message *message;
    sg_wire_parts parts;
    const ProtobufCMessage *head = send_over_wire(g, &request.base, 0, &message, &parts);
    if (head != NULL) {
        const Shardgrad__V1__OrderRequest *got = (const Shardgrad__V1__OrderRequest *)head;
        count_order(g, got->header, sg_store_order(g->f.store, g->f.now_ms, got, NULL));
    }
    done(message, &parts);
}

static void send_something(garbage *g)
{
    Shardgrad__V1__OrderHeader header = SHARDGRAD__V1__ORDER_HEADER__INIT;
    header.life = FIXTURE_LIFE;
    header.generation = 1;
    header.sequence = g->f.sequence + below(g, 3);
    uint64_t kind = below(g, 20);
    if (kind < 10)
        send_push(g);
    else if (kind < 16)
        send_pull(g);
    else if (kind < 17)
        send_initialize(g);
    else if (kind < 18)
        send_declare(g, &header);
    else
        send_order(g, &header);
    g->f.now_ms += below(g, 100);
    sg_store_tick(g->f.store, g->f.now_ms);
}

static size_t run(garbage *g, sg_mode mode)
{
    sg_store_options options = fixture_options(mode, SG_RULE_ADAM);
    fixture_init(&g->f, &options);
    g->n_pulls = g->n_applied = 0;
    memset(g->pulls, 0, sizeof g->pulls);
    for (size_t i = 0; i < N_VALUES; i++)
        g->values[i] = (float)i;
    fixture_start(&g->f, variables, SG_ARRAY_LEN(variables), N_WORKERS, 1.0f);
    for (size_t i = 0; i < N_MESSAGES; i++)
        send_something(g);
    sg_store_fail_pulls(g->f.store, SG_STOPPED, "stopped");
    for (size_t i = 0; i < g->n_pulls; i++) {
        cr_assert_eq(g->pulls[i].n_answers, 1, "pull %zu was answered %u times (seed %" PRIu64 ")", i,
                     g->pulls[i].n_answers, g->seed.first);
        fixture_answer_deinit(&g->pulls[i]);
    }
    fixture_deinit(&g->f);
    return g->n_applied;
}

static void run_many(sg_mode mode)
{
    garbage *g = calloc(1, sizeof *g);
    g->seed = sg_seed_begin();
    size_t n_applied = 0;
    for (int i = 0; i < N_RUNS; i++)
        n_applied += run(g, mode);
    cr_assert_gt(n_applied, N_RUNS, "it is garbage only in part (seed %" PRIu64 ")", g->seed.first);
    free(g);
}

Test(store_garbage, whatever_comes_every_pull_gets_one_answer_and_the_ps_lives)
{
    run_many(SG_MODE_SYNC);
}

Test(store_garbage, async_whatever_comes_every_pull_gets_one_answer_and_the_ps_lives)
{
    run_many(SG_MODE_ASYNC);
}
