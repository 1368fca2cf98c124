/* Requests to the coordinator that are repeated until they are answered. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

#include "common/rpc_server.h"
#include "common/wire.h"
#include "worker/cli/status_query.h"

TestSuite(status_query, .timeout = 60);

#define SAVE "/shardgrad.v1.CoordinatorService/Save"

/* A coordinator that answers as a script says; its last word is for all that follow. */
typedef struct script {
    const sg_status *answers;
    size_t n;
    pthread_mutex_t mutex;
    size_t n_calls;
    uint64_t ids[8];
    sg_rpc_server *server;
    char address[64];
    sg_config *config;
} script;

static void answer(void *user, sg_rpc_call *call)
{
    script *s = user;
    sg_wire_parts parts;
    sg_error err;
    if (sg_wire_unpack(sg_rpc_call_request(call), &shardgrad__v1__save_request__descriptor, &parts, &err) != SG_OK) {
        sg_rpc_call_fail(call, err.code, "%s", err.message);
        return;
    }
    pthread_mutex_lock(&s->mutex);
    const size_t at = s->n_calls < s->n ? s->n_calls : s->n - 1;
    if (s->n_calls < SG_ARRAY_LEN(s->ids))
        s->ids[s->n_calls] = ((const Shardgrad__V1__SaveRequest *)parts.head)->id;
    s->n_calls++;
    pthread_mutex_unlock(&s->mutex);
    sg_wire_parts_deinit(&parts);
    Shardgrad__V1__SaveResponse reply = SHARDGRAD__V1__SAVE_RESPONSE__INIT;
    reply.iteration = 7;
    if (s->answers[at] == SG_OK)
        sg_rpc_call_reply(call, &reply.base, NULL, 0);
    else
        sg_rpc_call_fail(call, s->answers[at], "answer %zu of the script", at);
}

static void script_init(script *s, const sg_status *answers, size_t n)
{
    *s = (script){.answers = answers, .n = n};
    pthread_mutex_init(&s->mutex, NULL);
    sg_error err;
    cr_assert_eq(sg_config_load(NULL, NULL, 0, &s->config, &err), SG_OK, "%s", err.message);
    const sg_rpc_method method = {SAVE, answer, s};
    const sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = 4096, .methods = &method, .n_methods = 1};
    cr_assert_eq(sg_rpc_server_create(&options, &s->server, &err), SG_OK, "%s", err.message);
    snprintf(s->address, sizeof s->address, "127.0.0.1:%u", sg_rpc_server_port(s->server));
}

static void server_end(script *s)
{
    if (s->server == NULL)
        return;
    sg_rpc_server_stop(s->server, 0);
    sg_rpc_server_destroy(s->server);
    s->server = NULL;
}

static void script_deinit(script *s)
{
    server_end(s);
    sg_config_destroy(s->config);
    pthread_mutex_destroy(&s->mutex);
}

static int n_said;

static void hear(const char *text)
{
    n_said++;
    cr_assert_not_null(strstr(text, "of the script"), "%s", text);
}

static sg_status ask(script *s, uint64_t limit_ms, sg_error *err)
{
    sg_status_query *query = sg_status_query_create(s->config, s->address, SG_ROLE_ADMIN);
    Shardgrad__V1__SaveRequest request = SHARDGRAD__V1__SAVE_REQUEST__INIT;
    request.id = 42;
    ProtobufCMessage *reply = NULL;
    const sg_status status = sg_status_query_call_until(
        query, SAVE, &request.base, &shardgrad__v1__save_response__descriptor, limit_ms, hear, &reply, err);
    if (status == SG_OK) {
        cr_assert_eq(((const Shardgrad__V1__SaveResponse *)reply)->iteration, 7);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    sg_status_query_destroy(query);
    return status;
}

Test(status_query, a_request_is_repeated_word_for_word_until_it_is_answered_whatever_was_lost)
{
    static const sg_status answers[] = {SG_UNAVAILABLE, SG_WAITING, SG_UNAVAILABLE, SG_TIMEOUT,
                                        SG_NOT_READY,   SG_WAITING, SG_OK};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    sg_error err;
    cr_assert_eq(ask(&s, UINT64_MAX, &err), SG_OK, "%s", err.message);
    server_end(&s); /* its threads have done with the script */
    cr_assert_eq(s.n_calls, SG_ARRAY_LEN(answers));
    for (size_t i = 0; i < s.n_calls; i++)
        cr_assert_eq(s.ids[i], 42);
    cr_assert_eq(n_said, 2);
    script_deinit(&s);
}

Test(status_query, a_refusal_is_not_asked_again)
{
    static const sg_status answers[] = {SG_WAITING, SG_CONFIG};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    sg_error err;
    cr_assert_eq(ask(&s, UINT64_MAX, &err), SG_CONFIG);
    server_end(&s);
    cr_assert_eq(s.n_calls, 2);
    script_deinit(&s);
}

Test(status_query, who_waits_too_long_is_told_for_whom)
{
    static const sg_status answers[] = {SG_WAITING};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    sg_error err;
    cr_assert_eq(ask(&s, 100, &err), SG_TIMEOUT);
    cr_assert_not_null(strstr(err.message, "answer 0 of the script"), "%s", err.message);
    script_deinit(&s);
}

Test(status_query, who_waits_on_for_the_same_is_told_again_at_growing_intervals)
{
    /* Each answer has a text of its own, but for the last, which comes again and again. */
    static const sg_status answers[] = {SG_WAITING};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    s.config->warn_after_ms = 50;
    sg_error err;
    cr_assert_eq(ask(&s, 1000, &err), SG_TIMEOUT);
    cr_assert(n_said >= 3 && n_said <= 7, "it was said %d times in a second", n_said);
    script_deinit(&s);
}

Test(status_query, where_nobody_answers_it_gives_up_soon)
{
    static const sg_status answers[] = {SG_OK};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    server_end(&s);
    sg_error err;
    cr_assert_eq(ask(&s, UINT64_MAX, &err), SG_UNAVAILABLE);
    cr_assert_not_null(strstr(err.message, s.address), "%s", err.message);
    script_deinit(&s);
}

Test(status_query, it_knows_whether_a_request_may_have_arrived)
{
    static const sg_status answers[] = {SG_STOPPED};
    script s;
    script_init(&s, answers, SG_ARRAY_LEN(answers));
    Shardgrad__V1__SaveRequest request = SHARDGRAD__V1__SAVE_REQUEST__INIT;
    request.id = 42;
    ProtobufCMessage *reply = NULL;
    sg_status_query *query = sg_status_query_create(s.config, s.address, SG_ROLE_ADMIN);
    cr_assert_not(sg_status_query_may_have_arrived(query));
    cr_assert_eq(sg_status_query_call(query, SAVE, &request.base, &shardgrad__v1__save_response__descriptor, 20000,
                                      &reply, NULL),
                 SG_STOPPED);
    cr_assert(sg_status_query_may_have_arrived(query));
    sg_status_query_destroy(query);
    server_end(&s);
    query = sg_status_query_create(s.config, s.address, SG_ROLE_ADMIN);
    cr_assert_neq(sg_status_query_call(query, SAVE, &request.base, &shardgrad__v1__save_response__descriptor, 20000,
                                       &reply, NULL),
                  SG_OK);
    cr_assert_not(sg_status_query_may_have_arrived(query), "nobody was there");
    sg_status_query_destroy(query);
    script_deinit(&s);
}
