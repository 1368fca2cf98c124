/* tests/bench/yardstick_client.c - the client of the yardstick.
 *
 * Threads: the user's (main) begins a pass and sleeps until it is over; the poller, which owns the completion queue,
 * copies what arrives into the values and sends the next message. Gradients are sent from where they lie. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <grpc/byte_buffer.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>

#include "tests/bench/yardstick.h"

#define CONNECT_SECONDS   10
#define ECHO_WARMUP_CALLS 200

typedef struct connection {
    grpc_channel *channel;
    void *methods[YARDSTICK_METHODS];
} connection;

typedef struct call call;

/* What is under way. The user's thread fills it before it begins the calls. */
typedef struct work {
    yardstick_method method;
    uint32_t flags; /* of the initial metadata */
    gpr_timespec deadline;
    const connection *connections;
    unsigned n_connections;
    size_t message_bytes, n_messages;
    const void *request; /* of a single call (n_messages is 0), as the next three */
    size_t request_bytes;
    void *reply;
    size_t reply_bytes;
    /* atomic */
    atomic_size_t next_message, n_done;
    /* guarded by the client's mutex */
    bool over;
} work;

struct call {
    yardstick_client *of;
    const connection *on;
    atomic_size_t message; /* which one it carries; atomic so that the poller sees what the user's thread wrote */
    yardstick_header header;
    grpc_call *grpc;
    grpc_metadata_array initial, trailing;
    grpc_status_code status;
    grpc_slice words;
    grpc_byte_buffer *reply;
};

struct yardstick_client {
    /* immutable */
    size_t n_bytes;
    float *gradients;
    char *values;
    grpc_completion_queue *queue;
    pthread_t poller;
    connection servers[YARDSTICK_MAX_THREADS][YARDSTICK_WINDOWS][YARDSTICK_MAX_CONNECTIONS];
    call calls[YARDSTICK_MAX_IN_FLIGHT];
    pthread_mutex_t mutex;
    pthread_cond_t over;
    work now;
};

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- calls --- */

static size_t pass_bytes(const yardstick_client *client, size_t message)
{
    size_t begin = message * client->now.message_bytes;
    return client->n_bytes - begin < client->now.message_bytes ? client->n_bytes - begin : client->now.message_bytes;
}

static grpc_byte_buffer *request_of(call *c, size_t message)
{
    yardstick_client *client = c->of;
    const work *now = &client->now;
    if (now->n_messages == 0) {
        grpc_slice whole = grpc_slice_from_static_buffer(now->request, now->request_bytes);
        return grpc_raw_byte_buffer_create(&whole, 1);
    }
    c->header.message = message;
    grpc_slice slices[2] = {grpc_slice_from_copied_buffer((const char *)&c->header, sizeof(c->header))};
    size_t n_slices = 1;
    if (now->method != YARDSTICK_PULL)
        slices[n_slices++] = grpc_slice_from_static_buffer((char *)client->gradients + message * now->message_bytes,
                                                           pass_bytes(client, message));
    return grpc_raw_byte_buffer_create(slices, n_slices); /* neither slice is counted: none to give back */
}

static void call_start(call *c, size_t message)
{
    yardstick_client *client = c->of;
    const work *now = &client->now;
    grpc_byte_buffer *request = request_of(c, message);
    c->initial.count = c->trailing.count = 0;
    c->reply = NULL;
    c->grpc = grpc_channel_create_registered_call(c->on->channel, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue,
                                                  c->on->methods[now->method], now->deadline, NULL);
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = now->flags},
                      {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &c->reply},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &c->initial;
    ops[5].data.recv_status_on_client.trailing_metadata = &c->trailing;
    ops[5].data.recv_status_on_client.status = &c->status;
    ops[5].data.recv_status_on_client.status_details = &c->words;
    atomic_store_explicit(&c->message, message, memory_order_release);
    grpc_call_error error = grpc_call_start_batch(c->grpc, ops, 6, c, NULL);
    if (error != GRPC_CALL_OK)
        yardstick_fail(YARDSTICK_BUG, "gRPC does not send: %s", grpc_call_error_to_string(error));
    grpc_byte_buffer_destroy(request);
}

static void copy_reply(const call *c, char *to, size_t n_bytes)
{
    const grpc_slice_buffer *slices = &c->reply->data.raw.slice_buffer;
    if (slices->length != n_bytes)
        yardstick_fail(YARDSTICK_BUG, "%s was answered by %zu bytes, not %zu", yardstick_path(c->of->now.method),
                       slices->length, n_bytes);
    for (size_t i = 0; i < slices->count; i++) {
        memcpy(to, GRPC_SLICE_START_PTR(slices->slices[i]), GRPC_SLICE_LENGTH(slices->slices[i]));
        to += GRPC_SLICE_LENGTH(slices->slices[i]);
    }
}

static void take_reply(call *c, size_t message)
{
    yardstick_client *client = c->of;
    const work *now = &client->now;
    if (c->status != GRPC_STATUS_OK || c->reply == NULL) {
        char *words = grpc_slice_to_c_string(c->words);
        yardstick_fail(YARDSTICK_LOST, "%s failed with gRPC status %d: %s", yardstick_path(now->method), c->status,
                       words);
    }
    if (now->n_messages == 0)
        copy_reply(c, now->reply, now->reply_bytes);
    else if (now->method == YARDSTICK_PUSH)
        copy_reply(c, client->values, 0);
    else
        copy_reply(c, client->values + message * now->message_bytes, pass_bytes(client, message));
    grpc_byte_buffer_destroy(c->reply);
    grpc_slice_unref(c->words);
    grpc_call_unref(c->grpc);
}

static void work_over(yardstick_client *client)
{
    pthread_mutex_lock(&client->mutex);
    client->now.over = true;
    pthread_mutex_unlock(&client->mutex);
    pthread_cond_signal(&client->over); /* not before: who is woken would have to wait for the mutex */
}

static void *poller_run(void *argument)
{
    yardstick_client *client = argument;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(client->queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        call *c = event.tag;
        work *now = &client->now;
        take_reply(c, atomic_load_explicit(&c->message, memory_order_acquire));
        size_t n_messages = now->n_messages;
        size_t next = n_messages > 0 ? atomic_fetch_add(&now->next_message, 1) : 0;
        if (next < n_messages)
            call_start(c, next);
        if (atomic_fetch_add(&now->n_done, 1) + 1 >= n_messages)
            work_over(client);
    }
}

/* --- work of the user's thread --- */

static void work_await(yardstick_client *client)
{
    pthread_mutex_lock(&client->mutex);
    while (!client->now.over)
        pthread_cond_wait(&client->over, &client->mutex);
    client->now.over = false;
    pthread_mutex_unlock(&client->mutex);
}

/* What a call needs that is not said otherwise. */
static void work_init(yardstick_client *client, yardstick_method method, const connection *connections)
{
    work *now = &client->now;
    now->method = method;
    now->flags = 0;
    now->deadline = gpr_inf_future(GPR_CLOCK_MONOTONIC);
    now->connections = connections;
    now->n_connections = 1;
    now->n_messages = 0;
    now->request_bytes = now->reply_bytes = 0;
    now->request = now->reply = NULL;
    atomic_store(&now->next_message, 0);
    atomic_store(&now->n_done, 0);
}

static void single_call(yardstick_client *client)
{
    client->calls[0].on = client->now.connections;
    atomic_store_explicit(&client->now.n_done, 0, memory_order_relaxed);
    call_start(&client->calls[0], 0);
    work_await(client);
}

static yardstick_used server_used(yardstick_client *client, const connection *to)
{
    yardstick_used used;
    work_init(client, YARDSTICK_USED, to);
    client->now.reply = &used;
    client->now.reply_bytes = sizeof(used);
    single_call(client);
    return used;
}

static const connection *connections_of(const yardstick_client *client, const yardstick_shape *shape)
{
    return client->servers[shape->threads - 1][yardstick_window_of(shape->message_bytes)];
}

static void pass(yardstick_client *client, const yardstick_shape *shape)
{
    work *now = &client->now;
    work_init(client, shape->method, connections_of(client, shape));
    now->n_connections = shape->connections;
    now->message_bytes = shape->message_bytes;
    now->n_messages = (client->n_bytes + shape->message_bytes - 1) / shape->message_bytes;
    for (unsigned i = 0; i < shape->in_flight; i++) {
        size_t message = atomic_fetch_add(&now->next_message, 1);
        if (message >= now->n_messages)
            break;
        client->calls[i].on = &now->connections[i % shape->connections];
        call_start(&client->calls[i], message);
    }
    work_await(client);
}

static yardstick_used used_since(yardstick_used before, yardstick_used now)
{
    return (yardstick_used){.cpu_seconds = now.cpu_seconds - before.cpu_seconds,
                            .minor_faults = now.minor_faults - before.minor_faults};
}

static yardstick_pass measured_pass(yardstick_client *client, const yardstick_shape *shape)
{
    yardstick_pass result;
    const connection *server = connections_of(client, shape);
    yardstick_used server_before = server_used(client, server);
    yardstick_used before = yardstick_used_by_now();
    double begin = seconds_now();
    pass(client, shape);
    result.seconds = seconds_now() - begin;
    result.client = used_since(before, yardstick_used_by_now());
    result.server = used_since(server_before, server_used(client, server));
    return result;
}

static void check(yardstick_client *client, const yardstick_shape *shape, size_t n_passes)
{
    size_t n_steps = shape->method == YARDSTICK_PULL ? 0 : n_passes;
    if (shape->method == YARDSTICK_PUSH) {
        yardstick_shape pull = *shape;
        pull.method = YARDSTICK_PULL;
        pass(client, &pull);
    }
    size_t n_elems = client->n_bytes / sizeof(float);
    size_t wrong = yardstick_kernel_first_wrong((const float *)(const void *)client->values, n_elems, n_steps);
    if (wrong < n_elems)
        yardstick_fail(YARDSTICK_BUG, "%s: value %zu of %zu is not what %zu steps make of it",
                       yardstick_path(shape->method), wrong, n_elems, n_steps);
}

void yardstick_client_measure(yardstick_client *client, const yardstick_shape *shape, size_t n_passes,
                              yardstick_pass *passes)
{
    yardstick_start start = {.message_bytes = shape->message_bytes, .in_flight = shape->in_flight};
    work_init(client, YARDSTICK_START, connections_of(client, shape));
    client->now.request = &start;
    client->now.request_bytes = sizeof(start);
    single_call(client);
    pass(client, shape);
    memset(client->values, 0xff, client->n_bytes); /* what does not arrive from now on is seen to be missing */
    for (size_t i = 0; i < n_passes; i++)
        passes[i] = measured_pass(client, shape);
    check(client, shape, n_passes + 1);
}

void yardstick_client_echo(yardstick_client *client, size_t n_bytes, size_t n_calls, double *seconds)
{
    char *there = yardstick_alloc(n_bytes), *back = yardstick_alloc(n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        there[i] = (char)(i * 31 + i / 251);
    work_init(client, YARDSTICK_ECHO, client->servers[0][yardstick_window_of(n_bytes)]);
    client->now.request = there;
    client->now.reply = back;
    client->now.request_bytes = client->now.reply_bytes = n_bytes;
    for (size_t i = 0; i < ECHO_WARMUP_CALLS + n_calls; i++) {
        memset(back, 0, n_bytes);
        double begin = seconds_now();
        single_call(client);
        double end = seconds_now();
        if (memcmp(there, back, n_bytes) != 0)
            yardstick_fail(YARDSTICK_BUG, "echo: call %zu of %zu came back changed", i, n_calls);
        if (i >= ECHO_WARMUP_CALLS)
            seconds[i - ECHO_WARMUP_CALLS] = end - begin;
    }
    free(there);
    free(back);
}

/* --- life --- */

static void connect_to(connection *made, uint16_t port, unsigned window)
{
    char address[32];
    snprintf(address, sizeof(address), "127.0.0.1:%u", (unsigned)port);
    grpc_arg args[YARDSTICK_SHARED_ARGS + 4];
    size_t n_args = yardstick_shared_args(window, args);
    args[n_args++] = yardstick_arg(GRPC_ARG_ENABLE_RETRIES, 0);
    args[n_args++] = yardstick_arg(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    args[n_args++] = yardstick_arg(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1); /* or two channels are one connection */
    args[n_args++] = yardstick_arg(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    grpc_channel_credentials *plain = grpc_insecure_credentials_create();
    made->channel = grpc_channel_create(address, plain, &(grpc_channel_args){.num_args = n_args, .args = args});
    grpc_channel_credentials_release(plain);
    for (yardstick_method i = 0; i < YARDSTICK_METHODS; i++)
        made->methods[i] = grpc_channel_register_call(made->channel, yardstick_path(i), NULL, NULL);
}

/* Waits until the server has answered once. */
static void await_ready(yardstick_client *client, const connection *to)
{
    yardstick_used used;
    work_init(client, YARDSTICK_USED, to);
    client->now.flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY;
    client->now.deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(CONNECT_SECONDS, GPR_TIMESPAN));
    client->now.reply = &used;
    client->now.reply_bytes = sizeof(used);
    single_call(client);
}

yardstick_client *yardstick_client_create(size_t n_bytes, const yardstick_server *servers)
{
    yardstick_client *client = yardstick_alloc(sizeof(*client));
    client->n_bytes = n_bytes;
    client->gradients = yardstick_alloc(n_bytes);
    client->values = yardstick_alloc(n_bytes);
    yardstick_kernel_fill_gradients(client->gradients, n_bytes / sizeof(float));
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->over, NULL);
    for (size_t i = 0; i < YARDSTICK_MAX_IN_FLIGHT; i++) {
        client->calls[i].of = client;
        grpc_metadata_array_init(&client->calls[i].initial);
        grpc_metadata_array_init(&client->calls[i].trailing);
    }
    client->queue = grpc_completion_queue_create_for_next(NULL);
    int error = pthread_create(&client->poller, NULL, poller_run, client);
    if (error != 0)
        yardstick_fail(YARDSTICK_EXHAUSTED, "a thread: %s", strerror(error));
    for (unsigned i = 0; i < YARDSTICK_MAX_THREADS * YARDSTICK_WINDOWS * YARDSTICK_MAX_CONNECTIONS; i++) {
        unsigned server = i / YARDSTICK_MAX_CONNECTIONS / YARDSTICK_WINDOWS;
        unsigned window = i / YARDSTICK_MAX_CONNECTIONS % YARDSTICK_WINDOWS;
        connection *made = &client->servers[server][window][i % YARDSTICK_MAX_CONNECTIONS];
        connect_to(made, servers[server].ports[window], window);
        await_ready(client, made);
    }
    return client;
}

void yardstick_client_destroy(yardstick_client *client)
{
    connection *all = &client->servers[0][0][0];
    for (size_t i = 0; i < sizeof(client->servers) / sizeof(*all); i++)
        grpc_channel_destroy(all[i].channel);
    grpc_completion_queue_shutdown(client->queue);
    pthread_join(client->poller, NULL);
    grpc_completion_queue_destroy(client->queue);
    for (size_t i = 0; i < YARDSTICK_MAX_IN_FLIGHT; i++) {
        grpc_metadata_array_destroy(&client->calls[i].initial);
        grpc_metadata_array_destroy(&client->calls[i].trailing);
    }
    pthread_cond_destroy(&client->over);
    pthread_mutex_destroy(&client->mutex);
    free(client->gradients);
    free(client->values);
    free(client);
}
