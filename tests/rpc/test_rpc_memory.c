/* tests/rpc/test_rpc_memory.c - in the steady state nothing of ours is allocated, and a request that was taken from its
 * call lives on. */
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "fixture.h"
#include "tests/support/allocations.h"

TestSuite(rpc_memory, .timeout = 60);

#define PUSH (&shardgrad__v1__push_request__descriptor)

/* One method at ECHO, whose handler gets `user`. */
static sg_rpc_server *server_make(sg_rpc_handler handler, void *user, char address[64])
{
    sg_rpc_method method = {ECHO, handler, user};
    sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = MESSAGE_BYTES, .methods = &method, .n_methods = 1};
    sg_rpc_server *server;
    sg_error err = {0};
    cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_OK, "%s", err.message);
    snprintf(address, 64, "127.0.0.1:%u", sg_rpc_server_port(server));
    return server;
}

/* --- no allocation --- */

/* Twice as many calls are under way while it warms up: the busiest moment decides how much the pools hold. */
enum { N_WARM = 200, N_CALLS = 200, N_UNDER_WAY = 4, N_PIECES = 5, N_BYTES = 1 << 20 };
/* Lent and copied ones in turn. */
static const size_t piece_bytes[N_PIECES] = {300000, 100, 500000, 4096, N_BYTES - 804196};

typedef struct load {
    sg_rpc_channel *channel;
    uint8_t *data; /* [N_BYTES] */
    atomic_size_t n_served, n_lent;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    size_t n_started, n_done, n_wrong; /* guarded by mutex */
} load;

static void counted_release(void *owner)
{
    atomic_fetch_sub((atomic_size_t *)owner, 1);
}

static size_t pieces_make(const uint8_t *data, atomic_size_t *n_lent, sg_wire_piece pieces[N_PIECES])
{
    for (size_t i = 0, at = 0; i < N_PIECES; at += piece_bytes[i], i++)
        pieces[i] = (sg_wire_piece){data + at, piece_bytes[i], counted_release, n_lent};
    atomic_fetch_add(n_lent, N_PIECES);
    return N_PIECES;
}

static bool is_right(const load *l, const sg_wire_message *message, const ProtobufCMessageDescriptor *type)
{
    sg_wire_parts parts;
    if (sg_wire_unpack(message, type, &parts, NULL) != SG_OK)
        return false;
    bool right = parts.data_bytes == N_BYTES;
    size_t at = 0;
    for (size_t i = 0; right && i < parts.n_spans; at += parts.spans[i].n_bytes, i++)
        right = memcmp(parts.spans[i].data, l->data + at, parts.spans[i].n_bytes) == 0;
    sg_wire_parts_deinit(&parts);
    return right;
}

/* Answers with the data, if it was sent them. Every other request is taken from its call and ended afterwards. */
static void check_and_answer(void *user, sg_rpc_call *call)
{
    load *l = user;
    bool right = is_right(l, sg_rpc_call_request(call), PUSH);
    sg_wire_message *taken = atomic_fetch_add(&l->n_served, 1) % 2 == 0 ? sg_rpc_call_take_request(call) : NULL;
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_wire_piece pieces[N_PIECES];
    sg_rpc_call_reply(call, &response.base, pieces, right ? pieces_make(l->data, &l->n_lent, pieces) : 0);
    sg_wire_message_destroy(taken);
}

static void load_send(load *l);

static void load_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    (void)error;
    load *l = user;
    bool right = status == SG_OK && is_right(l, reply, &shardgrad__v1__pull_response__descriptor);
    pthread_mutex_lock(&l->mutex);
    l->n_wrong += !right;
    l->n_done++;
    bool fewer = l->n_done > N_WARM - N_UNDER_WAY && l->n_done <= N_WARM;
    bool more = !fewer && l->n_started < N_WARM + N_CALLS;
    l->n_started += more;
    if (l->n_done == N_WARM)
        sg_allocations_begin();
    if (l->n_done == N_WARM + N_CALLS)
        pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    if (more)
        load_send(l);
}

static void load_send(load *l)
{
    uint32_t slices[] = {1, 2, 300, 4, 5};
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = 3;
    request.slices = slices;
    request.n_slices = SG_ARRAY_LEN(slices);
    sg_wire_piece pieces[N_PIECES];
    sg_wire_message *message;
    SG_ASSERT(sg_wire_pack(sg_rpc_channel_pool(l->channel), &request.base, pieces,
                           pieces_make(l->data, &l->n_lent, pieces), &message, NULL) == SG_OK);
    sg_rpc_pending_release(sg_rpc_channel_call(l->channel, ECHO, message, 30000, load_done, l));
}

static void load_run(load *l)
{
    l->n_started = 2 * N_UNDER_WAY;
    for (size_t i = 0; i < 2 * N_UNDER_WAY; i++)
        load_send(l);
    pthread_mutex_lock(&l->mutex);
    while (l->n_done < N_WARM + N_CALLS)
        pthread_cond_wait(&l->changed, &l->mutex);
    pthread_mutex_unlock(&l->mutex);
}

Test(rpc_memory, in_the_steady_state_messages_of_a_megabyte_allocate_nothing)
{
    char address[64], report[4096];
    load l = {.data = malloc(N_BYTES), .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    for (size_t i = 0; i < N_BYTES; i++)
        l.data[i] = (uint8_t)(i * 7 + i / 1000);
    sg_rpc_server *server = server_make(check_and_answer, &l, address);
    /* One thread on either side, so that no chance decides how many work at once. */
    sg_rpc_client *client =
        sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1, .message_bytes = MESSAGE_BYTES});
    l.channel = sg_rpc_client_channel(client, address);
    load_run(&l);
    size_t n = sg_allocations_end(report, sizeof(report));
    cr_assert_eq(n, 0, "%zu allocations in %d calls:\n%s", n, N_CALLS, report);
    cr_assert_eq(l.n_wrong, 0);
    sg_rpc_client_destroy(client);
    sg_rpc_server_destroy(server);
    cr_assert_eq(atomic_load(&l.n_lent), 0);
    free(l.data);
}

Test(rpc_memory, an_allocation_is_counted_and_its_caller_named)
{
    char report[4096];
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    free(malloc(1));
    sg_allocations_begin();
    void *counted = sg_xcalloc(3, 5);
    ProtobufCMessage *copy = sg_wire_head_copy(&request.base); /* once by us, once by protobuf-c */
    size_t n = sg_allocations_end(report, sizeof(report));
    free(malloc(1));
    cr_assert_eq(n, 3, "%zu:\n%s", n, report);
    cr_assert(strstr(report, "sg_xcalloc") != NULL || strstr(report, "+0x") != NULL, "%s", report);
    protobuf_c_message_free_unpacked(copy, NULL);
    free(counted);
}

/* --- a request that was taken --- */

enum { N_TAKEN = 3 };

typedef struct shelf {
    sg_wire_message *messages[N_TAKEN];
    sg_wire_parts parts[N_TAKEN];
    size_t n, n_wrong;
} shelf;

static void take(void *user, sg_rpc_call *call)
{
    shelf *s = user;
    sg_wire_parts *parts = &s->parts[s->n];
    sg_error err;
    if (sg_wire_unpack(sg_rpc_call_request(call), PUSH, parts, &err) != SG_OK) {
        sg_rpc_call_fail(call, err.code, "%s", err.message);
        return;
    }
    s->messages[s->n++] = sg_rpc_call_take_request(call);
    s->n_wrong += sg_wire_message_bytes(sg_rpc_call_request(call)) != 0;
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_rpc_call_reply(call, &response.base, NULL, 0);
}

static void check_kept(const sg_wire_parts *parts, uint32_t worker, const uint8_t *sent, size_t n_bytes)
{
    cr_assert_eq(((const Shardgrad__V1__PushRequest *)parts->head)->worker, worker);
    cr_assert_eq(parts->data_bytes, n_bytes);
    for (size_t i = 0, at = 0; i < parts->n_spans; at += parts->spans[i].n_bytes, i++)
        cr_assert_arr_eq(parts->spans[i].data, sent + at, parts->spans[i].n_bytes);
}

Test(rpc_memory, a_request_that_was_taken_is_whole_after_its_server_and_client_have_gone)
{
    static const size_t sizes[N_TAKEN] = {0, 9, 1000000};
    shelf s = {0};
    char address[64];
    uint8_t *sent = malloc(sizes[2]);
    for (size_t i = 0; i < sizes[2]; i++)
        sent[i] = (uint8_t)(i * 31 + i / 256);
    sg_rpc_server *server = server_make(take, &s, address);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, address);
    outcome o = OUTCOME_INIT;
    for (uint32_t i = 0; i < N_TAKEN; i++)
        cr_assert_eq(call_and_wait(channel, ECHO, push_message(i, sent, sizes[i], NULL), 10000, &o), SG_OK, "%s",
                     o.error.message);
    sg_rpc_client_destroy(client);
    sg_rpc_server_destroy(server);
    cr_assert_eq(s.n_wrong, 0);
    for (uint32_t i = 0; i < N_TAKEN; i++) {
        sg_wire_parts again;
        check_kept(&s.parts[i], i, sent, sizes[i]);
        cr_assert_eq(sg_wire_unpack(s.messages[i], PUSH, &again, NULL), SG_OK);
        sg_wire_parts_deinit(&s.parts[i]);
        check_kept(&again, i, sent, sizes[i]);
        sg_wire_parts_deinit(&again);
        sg_wire_message_destroy(s.messages[i]);
    }
    outcome_deinit(&o);
    free(sent);
}
