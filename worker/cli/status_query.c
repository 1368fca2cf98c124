/* worker/cli/status_query.c - see status_query.h. */
#include "worker/cli/status_query.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/address.h"
#include "common/clock.h"
#include "common/rpc_client.h"
#include "worker/cli/run_directory.h"

/* Beyond park_ms, within which a good coordinator answers. */
#define ANSWER_MS 10000u
/* For so long nobody need be there, or be ready: at first; and once the request was waiting, so that somebody was, who
 * may be started anew. */
#define NOBODY_MS        2000u
#define SOMEBODY_MS      30000u
#define WAITING_PAUSE_MS 20u /* a coordinator that does not really park is not asked in a loop */
#define SILENCE_PAUSE_MS 200u

struct sg_status_query {
    const sg_config *config;
    char *coordinator; /* NULL: from the config */
    sg_role role;
    bool warns; /* of files with secrets that others can read */
    sg_security *security;
    sg_rpc_client *client;   /* NULL until it is asked for the first time */
    sg_rpc_channel *channel; /* NULL until the address is known */
    bool may_have_arrived;   /* a request has, for all that is known */
    /* guarded by mutex: the outcome of the call under way */
    pthread_mutex_t mutex;
    pthread_cond_t finished;
    bool done;
    sg_status status;
    sg_error error;
    const ProtobufCMessageDescriptor *type; /* of the reply */
    ProtobufCMessage *reply;
};

sg_status_query *sg_status_query_create(const sg_config *config, const char *coordinator, sg_role role)
{
    sg_status_query *query = sg_xcalloc(1, sizeof(*query));
    query->config = config;
    query->role = role;
    query->coordinator = coordinator != NULL ? sg_xstrdup(coordinator) : NULL;
    pthread_mutex_init(&query->mutex, NULL);
    pthread_cond_init(&query->finished, NULL);
    return query;
}

sg_status sg_status_query_open(const sg_arguments_command *command, int argc, char **argv,
                               const char *const *coordinator, sg_role role, sg_arguments *arguments,
                               sg_status_query **query, sg_error *err)
{
    *query = NULL;
    sg_status status = sg_arguments_init(arguments, command, argc, argv, err);
    if (status != SG_OK || arguments->help)
        return status;
    status = sg_arguments_check_coordinator(arguments, command, *coordinator, err);
    if (status != SG_OK)
        return status;
    *query = sg_status_query_create(arguments->config, *coordinator, role);
    (*query)->warns = true;
    return SG_OK;
}

void sg_status_query_destroy(sg_status_query *query)
{
    if (query == NULL)
        return;
    sg_rpc_client_destroy(query->client);
    pthread_cond_destroy(&query->finished);
    pthread_mutex_destroy(&query->mutex);
    sg_security_destroy(query->security);
    free(query->coordinator);
    free(query);
}

static sg_status open_client(sg_status_query *query, sg_error *err)
{
    sg_status status = sg_security_create(query->config, query->role, &query->security, err);
    if (status != SG_OK)
        return status;
    if (query->warns && query->security->warning != NULL)
        fprintf(stderr, "shardgrad: %s\n", query->security->warning);
    query->client = sg_rpc_client_create(&(sg_rpc_client_options){
        .threads = 1, .message_bytes = query->config->message_bytes, .security = query->security});
    return query->client != NULL ? SG_OK : sg_error_set(err, SG_EXHAUSTED, "no thread for the calls to the ps");
}

/* The channel to ps 0. A local ps that chose its port may have written another address since: then a new one. */
static sg_status find_channel(sg_status_query *query, sg_error *err)
{
    char address[SG_ADDRESS_BYTES];
    sg_status status = query->client == NULL ? open_client(query, err) : SG_OK;
    if (status == SG_OK && query->coordinator != NULL)
        snprintf(address, sizeof(address), "%s", query->coordinator);
    else if (status == SG_OK)
        status = sg_address_find(query->config, 0, address, err);
    if (status == SG_NOT_READY) {
        char known[SG_ERROR_MESSAGE_BYTES];
        if (err != NULL && sg_run_directory_describe(query->config->run_dir, known, sizeof(known)))
            return sg_error_set(err, status, "no answer from the coordinator: %s", known);
        return sg_error_prefix(err, status,
                               "no answer from the coordinator: the job does not run, or it was started with --run-dir "
                               "DIR (give it, too) or from another folder");
    }
    if (status != SG_OK)
        return status;
    if (query->channel == NULL || strcmp(sg_rpc_channel_address(query->channel), address) != 0)
        query->channel = sg_rpc_client_channel(query->client, address);
    return SG_OK;
}

/* An sg_rpc_done, on the poller thread. */
static void take_reply(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    sg_status_query *query = user;
    sg_wire_parts parts = {0};
    sg_error unpack_error = {0};
    if (status == SG_OK) {
        status = sg_wire_unpack(reply, query->type, &parts, &unpack_error);
        error = &unpack_error;
    }
    pthread_mutex_lock(&query->mutex);
    query->status = status;
    if (status == SG_OK)
        query->reply = sg_wire_head_copy(parts.head);
    else
        query->error = *error;
    query->done = true;
    pthread_cond_signal(&query->finished);
    pthread_mutex_unlock(&query->mutex);
    sg_wire_parts_deinit(&parts);
}

static sg_status explain(const sg_status_query *query, sg_error *err)
{
    char known[SG_ERROR_MESSAGE_BYTES] = "";
    const char *address = sg_rpc_channel_address(query->channel), *text = query->error.message;
    const bool is_whose = strncmp(text, address, strlen(address)) == 0; /* the transport has said it */
    const bool nobody = query->status == SG_UNAVAILABLE || query->status == SG_TIMEOUT;
    if (nobody && query->coordinator == NULL && err != NULL)
        sg_run_directory_describe(query->config->run_dir, known, sizeof(known));
    return sg_error_set(err, query->status, "%s%s%s%s%s%s", nobody ? "no answer from the coordinator: " : "",
                        is_whose ? "" : address, is_whose ? "" : ": ", text, known[0] != '\0' ? "; " : "", known);
}

sg_status sg_status_query_call(sg_status_query *query, const char *method, const ProtobufCMessage *request,
                               const ProtobufCMessageDescriptor *type, uint64_t timeout_ms, ProtobufCMessage **reply,
                               sg_error *err)
{
    sg_status status = find_channel(query, err);
    if (status != SG_OK)
        return status;
    sg_wire_message *message;
    status = sg_wire_pack(sg_rpc_client_pool(query->client), request, NULL, 0, &message, err);
    if (status != SG_OK)
        return status;
    query->done = false;
    query->type = type;
    sg_rpc_pending *pending = sg_rpc_channel_call(query->channel, method, message, timeout_ms, take_reply, query);
    pthread_mutex_lock(&query->mutex);
    while (!query->done)
        pthread_cond_wait(&query->finished, &query->mutex);
    pthread_mutex_unlock(&query->mutex);
    sg_rpc_pending_release(pending);
    query->may_have_arrived |=
        query->status != SG_UNAVAILABLE || strstr(query->error.message, "connection refused") == NULL;
    if (query->status != SG_OK)
        return explain(query, err);
    *reply = query->reply;
    return SG_OK;
}

static void rest(uint64_t ms)
{
    const struct timespec pause = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&pause, NULL);
}

/* Whether it is worth asking again after this answer, which came at now_ms; since_ms: when it was waiting last, or
 * asked first. */
static bool is_to_be_repeated(sg_status status, bool waited, uint64_t now_ms, uint64_t since_ms)
{
    if (status == SG_WAITING)
        return true;
    return (status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_NOT_READY) &&
           now_ms - since_ms < (waited ? SOMEBODY_MS : NOBODY_MS);
}

/* Says the words of a waiting coordinator: when they are others, and again at growing intervals. */
typedef struct teller {
    void (*say)(const char *text); /* may be NULL */
    char said[SG_ERROR_MESSAGE_BYTES];
    uint64_t since_ms, again_ms, warn_after_ms; /* since when they are these; when they are said again */
} teller;

static void tell(teller *t, const char *text, uint64_t now_ms)
{
    char line[SG_ERROR_MESSAGE_BYTES + 64];
    const bool is_new = strcmp(t->said, text) != 0;
    if (is_new) {
        snprintf(t->said, sizeof t->said, "%s", text);
        t->since_ms = now_ms;
    } else if (now_ms < t->again_ms) {
        return;
    }
    const uint64_t waited_ms = now_ms - t->since_ms;
    t->again_ms = now_ms + (waited_ms > t->warn_after_ms ? waited_ms : t->warn_after_ms);
    snprintf(line, sizeof line, "%s (for %" PRIu64 " s so far)", text, waited_ms / 1000);
    if (t->say != NULL)
        t->say(is_new ? text : line);
}

sg_status sg_status_query_call_until(sg_status_query *query, const char *method, const ProtobufCMessage *request,
                                     const ProtobufCMessageDescriptor *type, uint64_t limit_ms,
                                     void (*waiting)(const char *text), ProtobufCMessage **reply, sg_error *err)
{
    const uint64_t began_ms = sg_clock_ms();
    uint64_t since_ms = began_ms;
    bool waited = false;
    teller words = {.say = waiting, .warn_after_ms = query->config->warn_after_ms};
    for (;;) {
        sg_error why;
        const uint64_t timeout_ms = query->config->park_ms + ANSWER_MS;
        const sg_status status = sg_status_query_call(query, method, request, type, timeout_ms, reply, &why);
        const uint64_t now_ms = sg_clock_ms();
        if (status == SG_OK)
            return SG_OK;
        if (!is_to_be_repeated(status, waited, now_ms, since_ms))
            return sg_error_set(err, status, "%s", why.message);
        if (now_ms - began_ms >= limit_ms)
            return sg_error_set(err, SG_TIMEOUT, "gave up after %" PRIu64 " ms: %s", now_ms - began_ms, why.message);
        if (status == SG_WAITING) {
            waited = true;
            since_ms = now_ms;
            tell(&words, why.message, now_ms);
        }
        rest(status == SG_WAITING ? WAITING_PAUSE_MS : SILENCE_PAUSE_MS);
    }
}

bool sg_status_query_is_waiting(const sg_status_query *query)
{
    return query->status == SG_WAITING;
}

bool sg_status_query_may_have_arrived(const sg_status_query *query)
{
    return query->may_have_arrived;
}

sg_status sg_status_query_ask(sg_status_query *query, uint64_t timeout_ms, Shardgrad__V1__StatusResponse **response,
                              sg_error *err)
{
    Shardgrad__V1__StatusRequest request = SHARDGRAD__V1__STATUS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    sg_status status = sg_status_query_call(query, "/shardgrad.v1.CoordinatorService/Status", &request.base,
                                            &shardgrad__v1__status_response__descriptor, timeout_ms, &reply, err);
    if (status == SG_OK)
        *response = (Shardgrad__V1__StatusResponse *)reply;
    return status;
}
