/* tests/rpc/fixture.c - see fixture.h. */
#include "fixture.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

/* --- the service --- */

typedef struct loan {
    service *to;
    uint8_t bytes[];
} loan;

static void loan_release(void *owner)
{
    atomic_fetch_add(&((loan *)owner)->to->n_released, 1);
    free(owner);
}

static loan *loan_make(service *s, size_t n_bytes)
{
    loan *l = sg_xcalloc(1, sizeof(*l) + n_bytes);
    l->to = s;
    return l;
}

static void reply_loan(sg_rpc_call *call, service *s, loan *l, size_t n_bytes)
{
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_wire_piece piece = {.data = l->bytes, .n_bytes = n_bytes, .release = loan_release, .owner = l};
    atomic_fetch_add(&s->n_lent, 1);
    sg_rpc_call_reply(call, &response.base, &piece, 1);
}

/* Unpacks a PushRequest, or fails the call. */
static bool request_unpack(sg_rpc_call *call, sg_wire_parts *parts)
{
    sg_error err;
    sg_status status = sg_wire_unpack(sg_rpc_call_request(call), &shardgrad__v1__push_request__descriptor, parts, &err);
    if (status != SG_OK)
        sg_rpc_call_fail(call, status, "%s", err.message);
    return status == SG_OK;
}

static void echo(void *user, sg_rpc_call *call)
{
    service *s = user;
    sg_wire_parts parts;
    if (!request_unpack(call, &parts))
        return;
    size_t n_bytes = parts.data_bytes;
    loan *l = loan_make(s, n_bytes);
    uint8_t *out = l->bytes;
    for (size_t i = 0; i < parts.n_spans; out += parts.spans[i].n_bytes, i++)
        memcpy(out, parts.spans[i].data, parts.spans[i].n_bytes);
    sg_wire_parts_deinit(&parts);
    atomic_fetch_add(&s->n_echoed, 1);
    reply_loan(call, s, l, n_bytes);
}

static void fail_with(void *user, sg_rpc_call *call)
{
    (void)user;
    sg_wire_parts parts;
    if (!request_unpack(call, &parts))
        return;
    sg_status status = (sg_status)((Shardgrad__V1__PushRequest *)parts.head)->worker;
    sg_wire_parts_deinit(&parts);
    sg_rpc_call_fail(call, status, "worker %d says 100%% \"no\"\nmore", 7);
}

static void oversize(void *user, sg_rpc_call *call)
{
    sg_wire_parts parts;
    if (!request_unpack(call, &parts))
        return;
    size_t n_bytes = ((Shardgrad__V1__PushRequest *)parts.head)->worker;
    sg_wire_parts_deinit(&parts);
    reply_loan(call, user, loan_make(user, n_bytes), n_bytes);
}

static bool unpark(service *s, const sg_rpc_call *call)
{
    for (size_t i = 0; i < s->n_parked; i++) {
        if (s->parked[i] == call) {
            s->parked[i] = s->parked[--s->n_parked];
            return true;
        }
    }
    return false;
}

static void on_gone(void *user, sg_rpc_call *call)
{
    service *s = user;
    pthread_mutex_lock(&s->mutex);
    bool mine = unpark(s, call);
    pthread_mutex_unlock(&s->mutex);
    if (!mine)
        return;
    sg_rpc_call_fail(call, SG_CANCELLED, "nobody waits any more");
    pthread_mutex_lock(&s->mutex);
    s->n_gone++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void park(void *user, sg_rpc_call *call)
{
    service *s = user;
    atomic_store(&s->deadline_ms, sg_rpc_call_deadline_ms(call));
    pthread_mutex_lock(&s->mutex);
    bool closed = s->closed;
    if (!closed) {
        snprintf(s->peer, sizeof(s->peer), "%s", sg_rpc_call_peer(call));
        cr_assert_lt(s->n_parked, PARKED_MAX);
        sg_rpc_call_watch(call, on_gone, s);
        s->parked[s->n_parked++] = call;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
    if (closed)
        sg_rpc_call_fail(call, SG_STOPPED, "closed");
}

static sg_role role_needed(const char *path)
{
    return strcmp(path, ECHO) == 0 ? SG_ROLE_WORKER : strcmp(path, FAIL_WITH) == 0 ? SG_ROLE_OBSERVER : SG_ROLE_ADMIN;
}

/* options: those that differ from one test to another. */
static void start(service *s, sg_rpc_server_options options)
{
    *s = (service){.message_bytes = MESSAGE_BYTES};
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    sg_rpc_method methods[] = {{ECHO, echo, s}, {PARK, park, s}, {FAIL_WITH, fail_with, s}, {OVERSIZE, oversize, s}};
    if (options.address == NULL)
        options.address = "127.0.0.1:0";
    options.message_bytes = s->message_bytes;
    options.methods = methods;
    options.n_methods = SG_ARRAY_LEN(methods);
    options.role_needed = role_needed;
    sg_error err = {0};
    cr_assert_eq(sg_rpc_server_create(&options, &s->server, &err), SG_OK, "%s", err.message);
    snprintf(s->address, sizeof(s->address), "127.0.0.1:%u", sg_rpc_server_port(s->server));
}

void service_start(service *s, const char *address, uint32_t threads)
{
    start(s, (sg_rpc_server_options){.address = address, .threads = threads});
}

void service_start_secured(service *s, const sg_security *security, const sg_log *log)
{
    start(s, (sg_rpc_server_options){.threads = 1, .security = security, .log = log});
}

void service_start_limited(service *s, const sg_rpc_server_options *limits)
{
    sg_rpc_server_options options = *limits;
    options.threads = 1;
    start(s, options);
}

void service_close(service *s)
{
    pthread_mutex_lock(&s->mutex);
    s->closed = true;
    while (s->n_parked > 0) {
        sg_rpc_call *call = s->parked[--s->n_parked];
        pthread_mutex_unlock(&s->mutex);
        sg_rpc_call_fail(call, SG_STOPPED, "closed");
        pthread_mutex_lock(&s->mutex);
    }
    pthread_mutex_unlock(&s->mutex);
}

void service_deinit(service *s)
{
    cr_assert_eq(atomic_load(&s->n_lent), atomic_load(&s->n_released));
    cr_assert_eq(s->n_parked, 0);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
}

void service_stop(service *s, uint64_t grace_ms)
{
    service_close(s);
    sg_rpc_server_stop(s->server, grace_ms);
    sg_rpc_server_destroy(s->server);
    service_deinit(s);
}

static void wait_for(service *s, const size_t *count, size_t n)
{
    pthread_mutex_lock(&s->mutex);
    while (*count < n)
        pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
}

void service_wait_parked(service *s, size_t n)
{
    wait_for(s, &s->n_parked, n);
}

void service_wait_gone(service *s, size_t n)
{
    wait_for(s, &s->n_gone, n);
}

bool service_answer_one(service *s)
{
    pthread_mutex_lock(&s->mutex);
    sg_rpc_call *call = s->n_parked > 0 ? s->parked[--s->n_parked] : NULL;
    pthread_mutex_unlock(&s->mutex);
    if (call == NULL)
        return false;
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_rpc_call_reply(call, &response.base, NULL, 0);
    return true;
}

/* --- calls --- */

void outcome_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    outcome *o = user;
    sg_wire_parts parts = {0};
    sg_error err;
    pthread_mutex_lock(&o->mutex);
    o->status = status;
    if (status != SG_OK) {
        o->error = *error;
        o->status = error->code == status ? status : SG_INTERNAL;
    } else if (sg_wire_unpack(reply, &shardgrad__v1__pull_response__descriptor, &parts, &err) != SG_OK) {
        o->status = SG_INTERNAL;
    }
    free(o->data);
    o->data = sg_xcalloc(parts.data_bytes, 1);
    o->data_bytes = 0;
    for (size_t i = 0; i < parts.n_spans; o->data_bytes += parts.spans[i].n_bytes, i++)
        memcpy(o->data + o->data_bytes, parts.spans[i].data, parts.spans[i].n_bytes);
    sg_wire_parts_deinit(&parts);
    o->n_done++;
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->mutex);
}

void outcome_wait(outcome *o, size_t n_done)
{
    pthread_mutex_lock(&o->mutex);
    while (o->n_done < n_done)
        pthread_cond_wait(&o->changed, &o->mutex);
    pthread_mutex_unlock(&o->mutex);
}

void outcome_deinit(outcome *o)
{
    free(o->data);
    o->data = NULL;
}

sg_rpc_client *client_make(uint64_t message_bytes)
{
    return sg_rpc_client_create(&(sg_rpc_client_options){.threads = 2, .message_bytes = message_bytes});
}

typedef struct counted {
    atomic_size_t *released;
    uint8_t bytes[];
} counted;

static void counted_release(void *owner)
{
    counted *c = owner;
    atomic_size_t *released = c->released;
    free(c);
    if (released != NULL)
        atomic_fetch_add(released, 1);
}

sg_wire_message *push_message(uint32_t worker, const void *data, size_t n_bytes, atomic_size_t *released)
{
    Shardgrad__V1__PushRequest request = SHARDGRAD__V1__PUSH_REQUEST__INIT;
    request.worker = worker;
    counted *c = sg_xcalloc(1, sizeof(*c) + n_bytes);
    c->released = released;
    if (data != NULL)
        memcpy(c->bytes, data, n_bytes);
    sg_wire_piece piece = {.data = c->bytes, .n_bytes = n_bytes, .release = counted_release, .owner = c};
    sg_wire_message *message;
    sg_error err;
    sg_pool *pool = sg_pool_create();
    cr_assert_eq(sg_wire_pack(pool, &request.base, &piece, 1, &message, &err), SG_OK, "%s", err.message);
    sg_pool_destroy(pool); /* the message holds it */
    return message;
}

sg_status call_and_wait(sg_rpc_channel *channel, const char *path, sg_wire_message *take_request, uint64_t timeout_ms,
                        outcome *o)
{
    size_t n_done = o->n_done;
    sg_rpc_pending_release(sg_rpc_channel_call(channel, path, take_request, timeout_ms, outcome_done, o));
    outcome_wait(o, n_done + 1);
    return o->status;
}

void check_echo(sg_rpc_channel *channel)
{
    uint8_t sent[1000];
    outcome o = OUTCOME_INIT;
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t)(i * 7);
    cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, sent, sizeof(sent), NULL), 10000, &o), SG_OK, "%s",
                 o.error.message);
    cr_assert_eq(o.data_bytes, sizeof(sent));
    cr_assert_arr_eq(o.data, sent, sizeof(sent));
    outcome_deinit(&o);
}

uint16_t unused_port(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(to);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(fd >= 0 && bind(fd, (struct sockaddr *)&to, length) == 0);
    cr_assert_eq(getsockname(fd, (struct sockaddr *)&to, &length), 0);
    close(fd);
    return ntohs(to.sin_port);
}
