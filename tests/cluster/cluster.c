#include "cluster.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "shardgrad/v1/coordinator.pb-c.h"

#define MAX_SETTINGS 32

static const char *const defaults[] = {"job=test",      "slice_bytes=64",         "message_bytes=256",
                                       "rpc_threads=3", "update.rule=sgd",        "update.learning_rate=1",
                                       "park_ms=200",   "start_timeout_ms=20000", NULL};

static size_t overrides_add(const char *const *settings, sg_config_override *overrides, char (*keys)[64], size_t n)
{
    for (size_t i = 0; settings != NULL && settings[i] != NULL; i++, n++) {
        const size_t n_key = strcspn(settings[i], "=");
        cr_assert_lt(n, MAX_SETTINGS);
        snprintf(keys[n], sizeof keys[n], "%.*s", (int)n_key, settings[i]);
        overrides[n] = (sg_config_override){.key = keys[n], .value = settings[i] + n_key + 1, .source = settings[i]};
    }
    return n;
}

static void *run_ps(void *user)
{
    struct cluster_ps *p = user;
    p->status = sg_ps_run(p->ps, &p->error);
    return NULL;
}

void cluster_start(cluster *c, uint32_t n_ps, const char *const *settings)
{
    cluster_start_faulty(c, n_ps, settings, NULL);
}

void cluster_start_faulty(cluster *c, uint32_t n_ps, const char *const *settings, sg_rpc_faults *faults)
{
    static const char *const lists[] = {"ps=[127.0.0.1:0]", "ps=[127.0.0.1:0, 127.0.0.1:0]",
                                        "ps=[127.0.0.1:0, 127.0.0.1:0, 127.0.0.1:0]"};
    const char *const list[] = {lists[n_ps - 1], NULL};
    char keys[MAX_SETTINGS][64], run_dir[] = "run_dir=/tmp/sg-cluster-XXXXXX";
    sg_config_override overrides[MAX_SETTINGS];
    cr_assert_not_null(mkdtemp(strchr(run_dir, '=') + 1));
    const char *const folder[] = {run_dir, NULL};
    size_t n = overrides_add(defaults, overrides, keys, 0);
    n = overrides_add(list, overrides, keys, n);
    n = overrides_add(folder, overrides, keys, n);
    n = overrides_add(settings, overrides, keys, n);
    sg_error err;
    *c = (cluster){.n_ps = n_ps};
    cr_assert_eq(sg_config_load(NULL, overrides, n, &c->config, &err), SG_OK, "%s", err.message);
    for (uint32_t i = 0; i < n_ps; i++) {
        const sg_ps_options options = {.config = c->config,
                                       .index = i,
                                       .coordinator = i == 0 ? NULL : sg_ps_address(c->ps[0].ps),
                                       .faults = faults};
        cr_assert_eq(sg_ps_create(&options, &c->ps[i].ps, &err), SG_OK, "%s", err.message);
        cr_assert_eq(pthread_create(&c->ps[i].thread, NULL, run_ps, &c->ps[i]), 0);
    }
}

static void forget(cluster *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++)
        sg_ps_destroy(c->ps[i].ps);
    char *command = sg_xprintf("rm -rf '%s'", c->config->run_dir);
    cr_assert_eq(system(command), 0);
    free(command);
    sg_config_destroy(c->config);
}

void cluster_await(cluster *c, sg_status status)
{
    for (uint32_t i = 0; i < c->n_ps; i++) {
        pthread_join(c->ps[i].thread, NULL);
        cr_assert_eq(c->ps[i].status, status, "ps %u ended with %s: %s", i, sg_status_name(c->ps[i].status),
                     c->ps[i].status == SG_OK ? "" : c->ps[i].error.message);
    }
    forget(c);
}

void cluster_stop(cluster *c)
{
    for (uint32_t i = 0; i < c->n_ps; i++)
        sg_ps_stop(c->ps[i].ps);
    for (uint32_t i = 0; i < c->n_ps; i++)
        pthread_join(c->ps[i].thread, NULL);
    forget(c);
}

sg_status cluster_try_open(const cluster *c, sg_client_options options, sg_client **client, sg_error *err)
{
    options.coordinator = sg_ps_address(c->ps[0].ps);
    options.job = options.job == NULL ? c->config->job : options.job;
    return sg_client_open(&options, client, err);
}

sg_client *cluster_open(const cluster *c, uint32_t worker)
{
    sg_client *client = NULL;
    sg_error err;
    /* Called by workers on threads of their own, where Criterion's assertions do not belong. */
    if (cluster_try_open(c, (sg_client_options){.worker = worker}, &client, &err) != SG_OK)
        fprintf(stderr, "worker %u: %s\n", worker, err.message);
    SG_ASSERT(client != NULL);
    return client;
}

/* --- by hand --------------------------------------------------------------------------------------------------- */

typedef struct raw_call {
    pthread_mutex_t mutex;
    pthread_cond_t ended;
    bool is_ended;
    const ProtobufCMessageDescriptor *type;
    sg_status status;
    sg_error error;
    ProtobufCMessage *reply;
} raw_call;

static void raw_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *message)
{
    raw_call *call = user;
    pthread_mutex_lock(&call->mutex);
    call->status = status;
    if (status != SG_OK)
        call->error = *error;
    sg_wire_parts parts;
    if (status == SG_OK && sg_wire_unpack(message, call->type, &parts, &call->error) == SG_OK) {
        call->reply = sg_wire_head_copy(parts.head);
        sg_wire_parts_deinit(&parts);
    }
    call->is_ended = true;
    pthread_cond_signal(&call->ended);
    pthread_mutex_unlock(&call->mutex);
}

sg_status cluster_raw_call(cluster_raw *raw, const char *path, const ProtobufCMessage *request,
                           const ProtobufCMessageDescriptor *reply_type, uint64_t timeout_ms, ProtobufCMessage **reply,
                           sg_error *err)
{
    raw_call call = {.mutex = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER, .type = reply_type};
    sg_wire_message *message;
    cr_assert_eq(sg_wire_pack(sg_rpc_client_pool(raw->client), request, NULL, 0, &message, err), SG_OK);
    sg_rpc_pending *pending = sg_rpc_channel_call(raw->channel, path, message, timeout_ms, raw_done, &call);
    pthread_mutex_lock(&call.mutex);
    while (!call.is_ended)
        pthread_cond_wait(&call.ended, &call.mutex);
    pthread_mutex_unlock(&call.mutex);
    sg_rpc_pending_release(pending);
    if (err != NULL)
        *err = call.error;
    if (reply != NULL)
        *reply = call.reply;
    else if (call.reply != NULL)
        protobuf_c_message_free_unpacked(call.reply, NULL);
    return call.status;
}

void cluster_raw_join(cluster_raw *raw, const cluster *c, uint32_t worker)
{
    raw->client = sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1, .message_bytes = 1u << 20});
    raw->channel = sg_rpc_client_channel(raw->client, sg_ps_address(c->ps[0].ps));
    Shardgrad__V1__HelloRequest hello = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    hello.protocol_version = 1;
    hello.job = c->config->job;
    hello.worker = worker;
    hello.life = 4711;
    hello.address = (char *)"mute:1";
    ProtobufCMessage *reply = NULL;
    sg_error err;
    sg_status status;
    do
        status = cluster_raw_call(raw, "/shardgrad.v1.CoordinatorService/Hello", &hello.base,
                                  &shardgrad__v1__hello_response__descriptor, 5000, &reply, &err);
    while (status == SG_WAITING || status == SG_UNAVAILABLE);
    cr_assert_eq(status, SG_OK, "%s", err.message);
    raw->incarnation = ((const Shardgrad__V1__HelloResponse *)reply)->incarnation;
    protobuf_c_message_free_unpacked(reply, NULL);
}

void cluster_raw_leave_silently(cluster_raw *raw)
{
    sg_rpc_client_destroy(raw->client);
}
