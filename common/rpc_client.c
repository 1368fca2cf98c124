/* common/rpc_client.c - see rpc_client.h.
 *
 * A call is one batch of six operations and so one event. Its memory is counted: one reference is the caller's, one
 * is the event's. */
#include "common/rpc_client.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/slice.h>
#include <grpc/support/alloc.h>
#include <grpc/support/time.h>
#include <openssl/crypto.h>

#include "common/clock.h"
#include "common/rpc_address.h"
#include "common/rpc_args.h"
#include "common/rpc_credentials.h"
#include "common/rpc_library.h"
#include "common/rpc_status.h"
#include "common/wire_internal.h"

/* A channel that failed is told to forget its back-off when it is used again, but not more often than this: gRPC's
 * resolver would wait up to two minutes, whatever the arguments say. */
#define FORGET_BACKOFF_MS 1000

#define TIMEOUT_MAX_MS ((uint64_t)1 << 40)

struct sg_rpc_channel {
    sg_rpc_client *client;
    char *address;
    grpc_channel *grpc;
    bool sends_token;
    atomic_bool failed;
    atomic_uint_least64_t backoff_forgotten_ms;
    atomic_uint refs;             /* those who may start calls on it, and the calls under way */
    sg_rpc_channel *next, **link; /* guarded by the client's mutex */
};

struct sg_rpc_client {
    /* immutable after create */
    grpc_completion_queue *queue;
    pthread_t *threads;
    uint32_t n_threads;
    bool on_demand;
    uint64_t message_bytes;
    sg_pool *pool;
    const sg_security *security;
    grpc_channel_credentials *credentials;
    atomic_bool admitted; /* a peer has answered something: TLS, if any, works in principle */
    char *authorization;  /* the header of every call that carries the token; NULL: none does */
    const sg_log *log;
    /* guarded by mutex; taken before a pending's */
    pthread_mutex_t mutex;
    pthread_cond_t idle, busy; /* no call is under way; one is, or the queue was shut down */
    bool queue_is_shut;
    sg_rpc_channel *channels;
    sg_rpc_pending *under_way;
    bool closing;
};

struct sg_rpc_pending {
    sg_rpc_event event; /* the tag */
    atomic_uint refs;
    sg_rpc_channel *channel;
    const char *path;
    uint64_t timeout_ms;
    size_t request_bytes;
    bool too_large;
    sg_rpc_done done;
    void *user;
    /* links of under_way, guarded by the client's mutex */
    sg_rpc_pending *next, **link;
    /* guarded by mutex */
    pthread_mutex_t mutex;
    grpc_call *grpc; /* NULL before and after */
    bool cancel_wanted;
    /* written by gRPC until the event */
    grpc_metadata_array initial, trailing;
    grpc_status_code code;
    grpc_slice words;
    sg_wire_message reply;
};

/* --- client and channels --- */

/* Waits until a call is under way; false: there will be none. */
static bool call_await(sg_rpc_client *client)
{
    pthread_mutex_lock(&client->mutex);
    while (client->under_way == NULL && !client->queue_is_shut)
        pthread_cond_wait(&client->busy, &client->mutex);
    const bool there = client->under_way != NULL;
    pthread_mutex_unlock(&client->mutex);
    return there;
}

static void *poller_run(void *user)
{
    sg_rpc_client *client = user;
    while (client->on_demand && call_await(client))
        sg_rpc_library_poll_once(client->queue);
    sg_rpc_library_poll(client->queue);
    return NULL;
}

sg_pool *sg_rpc_client_pool(const sg_rpc_client *client)
{
    return client->pool;
}

/* Over plaintext a token goes no further than this machine, unless its owner said so. */
static bool may_send_token(const sg_rpc_client *client, const char *address)
{
    return client->authorization != NULL &&
           (client->security->ca != NULL || client->security->insecure || sg_rpc_address_is_loopback(address));
}

sg_rpc_channel *sg_rpc_client_channel(sg_rpc_client *client, const char *address)
{
    sg_rpc_channel *channel = sg_xcalloc(1, sizeof(*channel));
    channel->client = client;
    channel->address = sg_xstrdup(address);
    channel->sends_token = may_send_token(client, address);
    atomic_init(&channel->failed, false);
    atomic_init(&channel->backoff_forgotten_ms, 0);
    sg_rpc_args args;
    sg_rpc_args_init_client(&args, address, client->message_bytes);
    channel->grpc = grpc_channel_create(address, client->credentials, &args.list);
    sg_rpc_args_deinit(&args);
    atomic_init(&channel->refs, 1);
    pthread_mutex_lock(&client->mutex);
    channel->next = client->channels;
    channel->link = &client->channels;
    if (channel->next != NULL)
        channel->next->link = &channel->next;
    client->channels = channel;
    pthread_mutex_unlock(&client->mutex);
    return channel;
}

const char *sg_rpc_channel_address(const sg_rpc_channel *channel)
{
    return channel->address;
}

sg_pool *sg_rpc_channel_pool(const sg_rpc_channel *channel)
{
    return channel->client->pool;
}

sg_status sg_rpc_channel_unpack(const sg_rpc_channel *channel, const sg_wire_message *reply,
                                const ProtobufCMessageDescriptor *type, sg_wire_parts *parts, sg_error *err)
{
    sg_error why;
    const sg_status status = sg_wire_unpack(reply, type, parts, &why);
    if (status == SG_OK)
        return SG_OK;
    return sg_error_set(err, status,
                        "%s: its answer makes no sense (%s): is another program listening there, or another version of "
                        "shardgrad?",
                        channel->address, why.message);
}

static void channel_destroy(sg_rpc_channel *channel)
{
    grpc_channel_destroy(channel->grpc);
    free(channel->address);
    free(channel);
}

sg_rpc_channel *sg_rpc_channel_ref(sg_rpc_channel *channel)
{
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
    return channel;
}

void sg_rpc_channel_release(sg_rpc_channel *channel)
{
    if (channel == NULL || atomic_fetch_sub_explicit(&channel->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&channel->client->mutex);
    *channel->link = channel->next;
    if (channel->next != NULL)
        channel->next->link = channel->link;
    pthread_mutex_unlock(&channel->client->mutex);
    channel_destroy(channel);
}

static void channels_destroy(sg_rpc_channel *channel)
{
    for (sg_rpc_channel *next; channel != NULL; channel = next) {
        next = channel->next;
        channel_destroy(channel);
    }
}

void sg_rpc_client_destroy(sg_rpc_client *client)
{
    if (client == NULL)
        return;
    pthread_mutex_lock(&client->mutex);
    client->closing = true;
    for (sg_rpc_pending *each = client->under_way; each != NULL; each = each->next)
        sg_rpc_pending_cancel(each);
    while (client->under_way != NULL)
        pthread_cond_wait(&client->idle, &client->mutex);
    pthread_mutex_unlock(&client->mutex);
    channels_destroy(client->channels);
    grpc_completion_queue_shutdown(client->queue);
    pthread_mutex_lock(&client->mutex);
    client->queue_is_shut = true;
    pthread_cond_broadcast(&client->busy);
    pthread_mutex_unlock(&client->mutex);
    for (uint32_t i = 0; i < client->n_threads; i++)
        pthread_join(client->threads[i], NULL);
    grpc_completion_queue_destroy(client->queue);
    grpc_channel_credentials_release(client->credentials);
    sg_rpc_library_release();
    sg_rpc_library_log_detach(client->log);
    pthread_cond_destroy(&client->idle);
    pthread_cond_destroy(&client->busy);
    pthread_mutex_destroy(&client->mutex);
    sg_pool_destroy(client->pool);
    if (client->authorization != NULL)
        OPENSSL_cleanse(client->authorization, strlen(client->authorization));
    free(client->authorization);
    free(client->threads);
    free(client);
}

sg_rpc_client *sg_rpc_client_create(const sg_rpc_client_options *options)
{
    SG_ASSERT(options->threads > 0);
    sg_rpc_library_retain();
    sg_rpc_library_log_attach(options->log);
    sg_rpc_client *client = sg_xcalloc(1, sizeof(*client));
    client->queue = grpc_completion_queue_create_for_next(NULL);
    client->message_bytes = options->message_bytes;
    client->on_demand = options->on_demand;
    client->pool = sg_pool_create();
    client->security = options->security;
    client->credentials = sg_rpc_credentials_channel(options->security);
    if (options->security != NULL && options->security->own[0] != '\0')
        client->authorization = sg_xprintf(SG_RPC_TOKEN_SCHEME "%s", options->security->own);
    client->log = options->log;
    pthread_mutex_init(&client->mutex, NULL);
    pthread_cond_init(&client->idle, NULL);
    pthread_cond_init(&client->busy, NULL);
    client->threads = sg_xcalloc(options->threads, sizeof(*client->threads));
    while (client->n_threads < options->threads) {
        if (pthread_create(&client->threads[client->n_threads], NULL, poller_run, client) != 0) {
            sg_rpc_client_destroy(client);
            return NULL;
        }
        client->n_threads++;
    }
    return client;
}

/* --- the end of a call --- */

static void pending_unref(sg_rpc_pending *pending)
{
    if (atomic_fetch_sub_explicit(&pending->refs, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_destroy(&pending->mutex);
    sg_pool_free(pending);
}

void sg_rpc_pending_release(sg_rpc_pending *pending)
{
    if (pending != NULL)
        pending_unref(pending);
}

void sg_rpc_pending_cancel(sg_rpc_pending *pending)
{
    pthread_mutex_lock(&pending->mutex);
    pending->cancel_wanted = true;
    if (pending->grpc != NULL)
        grpc_call_cancel(pending->grpc, NULL);
    pthread_mutex_unlock(&pending->mutex);
}

static bool holds(const char *words, const char *what)
{
    return strstr(words, what) != NULL;
}

/* What went wrong with TLS, or perhaps did, NULL: nothing that is known. *denied: trying again will not help, unless
 * certificates are just being replaced. */
static const char *failure_of_tls(const sg_rpc_client *client, const char *words, bool *denied)
{
    bool secure = client->security != NULL && client->security->ca != NULL;
    *denied = secure;
    if (holds(words, "certificate verify failed"))
        return "its certificate is not one of security.ca that is valid today";
    if (holds(words, "Hostname Verification Check failed"))
        return "its certificate does not name this host";
    *denied = false;
    if (holds(words, "wrong version number"))
        return "it does not speak TLS";
    if (holds(words, "ocket closed") && !atomic_load(&client->admitted))
        return secure ? "it hung up before it answered anything: perhaps it does not accept security.certificate"
                      : "it hung up before it answered anything: perhaps it wants TLS (security.ca)";
    return NULL;
}

/* What a failure without the trailer means: the transport, a time-out, a cancel, or a server that is not ours. */
static sg_status failure_of_transport(sg_rpc_pending *pending, bool cancel_wanted, const char *words, sg_error *err)
{
    const sg_rpc_channel *channel = pending->channel;
    sg_status status = sg_status_from_grpc((int)pending->code);
    if (status == SG_TIMEOUT) {
        bool ready = grpc_channel_check_connectivity_state(channel->grpc, 0) == GRPC_CHANNEL_READY;
        return sg_error_set(err, status, "%s: %s within %llu ms (%s)", channel->address,
                            ready ? "no answer" : "no connection", (unsigned long long)pending->timeout_ms,
                            pending->path);
    }
    if (status == SG_CANCELLED && cancel_wanted)
        return sg_error_set(err, status, "%s: %s was cancelled", channel->address, pending->path);
    /* The peer reset the stream, or gRPC forgot why it was lost: both are what a server that goes away looks like. */
    if (status == SG_CANCELLED || strstr(words, "Stream removed") != NULL)
        status = SG_UNAVAILABLE;
    bool denied;
    const char *reason = status == SG_UNAVAILABLE ? failure_of_tls(channel->client, words, &denied) : NULL;
    if (reason != NULL)
        return sg_error_set(err, denied && !atomic_load(&channel->client->admitted) ? SG_DENIED : status, "%s: %s",
                            channel->address, reason);
    return sg_rpc_status_transport(err, status, channel->address, words);
}

static void peer_answered(sg_rpc_client *client)
{
    if (!atomic_load_explicit(&client->admitted, memory_order_relaxed))
        atomic_store(&client->admitted, true);
}

static sg_status status_of(sg_rpc_pending *pending, bool cancel_wanted, sg_error *err)
{
    sg_rpc_channel *channel = pending->channel;
    if (pending->too_large)
        return sg_error_set(err, SG_EXHAUSTED, "%s: the message for %s has %zu bytes, at most %d are allowed",
                            channel->address, pending->path, pending->request_bytes,
                            sg_rpc_args_message_limit(channel->client->message_bytes));
    if (pending->code == GRPC_STATUS_OK)
        peer_answered(channel->client);
    if (pending->code == GRPC_STATUS_OK && pending->reply.buffer != NULL)
        return SG_OK;
    if (pending->code == GRPC_STATUS_OK)
        return sg_error_set(err, SG_INTERNAL, "%s: answered %s without a message", channel->address, pending->path);
    sg_status status;
    char *words = grpc_slice_to_c_string(pending->words);
    if (sg_rpc_status_from_trailers(&pending->trailing, &status)) {
        peer_answered(channel->client);
        status = words[0] != '\0' ? sg_error_set(err, status, "%s", words)
                                  : sg_error_set(err, status,
                                                 "%s: refused %s and did not say why: is another program listening "
                                                 "there, or another version of shardgrad?",
                                                 channel->address, pending->path);
    } else {
        status = failure_of_transport(pending, cancel_wanted, words, err);
        if (status == SG_UNAVAILABLE)
            atomic_store(&channel->failed, true);
    }
    gpr_free(words);
    return status;
}

/* Its channel is released before the client may think that all is over. */
static void pending_unlink(sg_rpc_pending *pending)
{
    sg_rpc_client *client = pending->channel->client;
    sg_rpc_channel_release(pending->channel);
    pthread_mutex_lock(&client->mutex);
    *pending->link = pending->next;
    if (pending->next != NULL)
        pending->next->link = pending->link;
    if (client->under_way == NULL)
        pthread_cond_broadcast(&client->idle);
    pthread_mutex_unlock(&client->mutex);
}

static void on_done(sg_rpc_event *event, bool ok)
{
    (void)ok; /* always true: the code says how it went */
    sg_rpc_pending *pending = SG_CONTAINER_OF(event, sg_rpc_pending, event);
    pthread_mutex_lock(&pending->mutex);
    grpc_call *call = pending->grpc;
    bool cancel_wanted = pending->cancel_wanted;
    pending->grpc = NULL;
    pthread_mutex_unlock(&pending->mutex);

    sg_error err;
    sg_status status = status_of(pending, cancel_wanted, &err);
    pending->done(pending->user, status, status == SG_OK ? NULL : &err, status == SG_OK ? &pending->reply : NULL);

    sg_wire_message_deinit(&pending->reply);
    grpc_slice_unref(pending->words);
    grpc_metadata_array_destroy(&pending->initial);
    grpc_metadata_array_destroy(&pending->trailing);
    grpc_call_unref(call);
    pending_unlink(pending);
    pending_unref(pending);
}

/* --- the start of a call --- */

static sg_rpc_pending *pending_create(sg_rpc_channel *channel, const char *path, uint64_t timeout_ms, sg_rpc_done done,
                                      void *user)
{
    sg_rpc_pending *pending = sg_pool_alloc(channel->client->pool, sizeof(*pending));
    pending->reply.pool = channel->client->pool;
    atomic_init(&pending->refs, 2);
    pending->channel = sg_rpc_channel_ref(channel);
    pending->path = path;
    pending->timeout_ms = timeout_ms;
    pending->done = done;
    pending->user = user;
    pending->words = grpc_empty_slice();
    grpc_metadata_array_init(&pending->initial);
    grpc_metadata_array_init(&pending->trailing);
    pthread_mutex_init(&pending->mutex, NULL);
    return pending;
}

static void pending_link(sg_rpc_pending *pending)
{
    sg_rpc_client *client = pending->channel->client;
    pthread_mutex_lock(&client->mutex);
    pending->cancel_wanted = client->closing;
    pending->next = client->under_way;
    pending->link = &client->under_way;
    if (pending->next != NULL)
        pending->next->link = &pending->next;
    client->under_way = pending;
    if (client->on_demand)
        pthread_cond_broadcast(&client->busy);
    pthread_mutex_unlock(&client->mutex);
}

static void backoff_forget(sg_rpc_channel *channel)
{
    uint64_t now_ms = sg_clock_ms();
    if (now_ms - atomic_load(&channel->backoff_forgotten_ms) < FORGET_BACKOFF_MS ||
        !atomic_exchange(&channel->failed, false))
        return;
    atomic_store(&channel->backoff_forgotten_ms, now_ms);
    grpc_channel_reset_connect_backoff(channel->grpc);
}

static void batch_start(sg_rpc_pending *pending, grpc_byte_buffer *request)
{
    grpc_op ops[6] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
                      {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
                      {.op = GRPC_OP_RECV_INITIAL_METADATA},
                      {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &pending->reply.buffer},
                      {.op = GRPC_OP_RECV_STATUS_ON_CLIENT}};
    grpc_metadata token;
    if (pending->channel->sends_token) {
        token = (grpc_metadata){.key = grpc_slice_from_static_string(SG_RPC_TOKEN_HEADER),
                                .value = grpc_slice_from_static_string(pending->channel->client->authorization)};
        ops[0].data.send_initial_metadata.metadata = &token;
        ops[0].data.send_initial_metadata.count = 1;
    }
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &pending->initial;
    ops[5].data.recv_status_on_client.trailing_metadata = &pending->trailing;
    ops[5].data.recv_status_on_client.status = &pending->code;
    ops[5].data.recv_status_on_client.status_details = &pending->words;
    sg_rpc_library_prepare_event(&pending->event, on_done);
    SG_ASSERT(grpc_call_start_batch(pending->grpc, ops, SG_ARRAY_LEN(ops), &pending->event, NULL) == GRPC_CALL_OK);
}

sg_rpc_pending *sg_rpc_channel_call(sg_rpc_channel *channel, const char *path, sg_wire_message *take_request,
                                    uint64_t timeout_ms, sg_rpc_done done, void *user)
{
    sg_rpc_client *client = channel->client;
    if (timeout_ms > TIMEOUT_MAX_MS)
        timeout_ms = TIMEOUT_MAX_MS;
    sg_rpc_pending *pending = pending_create(channel, path, timeout_ms, done, user);
    pending->request_bytes = sg_wire_message_bytes(take_request);
    pending->too_large = pending->request_bytes > (size_t)sg_rpc_args_message_limit(client->message_bytes);
    backoff_forget(channel);
    pending_link(pending);
    gpr_timespec deadline =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_millis((int64_t)timeout_ms, GPR_TIMESPAN));
    /* The lock keeps a cancel, and the event, from the call until it is started. */
    pthread_mutex_lock(&pending->mutex);
    pending->grpc = grpc_channel_create_call(channel->grpc, NULL, GRPC_PROPAGATE_DEFAULTS, client->queue,
                                             grpc_slice_from_static_string(path), NULL, deadline, NULL);
    /* gRPC offers no way to put an event into a queue, so a call that must not be sent is one that was cancelled. */
    if (pending->too_large || pending->cancel_wanted)
        grpc_call_cancel(pending->grpc, NULL);
    batch_start(pending, take_request->buffer);
    pthread_mutex_unlock(&pending->mutex);
    sg_wire_message_destroy(take_request);
    return pending;
}
