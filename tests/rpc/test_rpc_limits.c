/* tests/rpc/test_rpc_limits.c - what a peer may take of a server: time for its messages, calls. */
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "credentials.h"
#include "raw_http2.h"

TestSuite(rpc_limits, .timeout = 120);

#define HEALTH "/grpc.health.v1.Health/Check"

static void wait_for(atomic_size_t *count, size_t n)
{
    while (atomic_load(count) < n)
        usleep(1000);
}

/* --- time --- */

/* A connection that has sent the beginnings of some messages, and a whole one that was answered: the server has them.
 */
static int begin_messages(const service *s)
{
    enum { N = 5, WHOLE_BYTES = 2000, HALF_BYTES = 1000 };
    int fd = raw_http2_connect(sg_rpc_server_port(s->server));
    raw_http2_begin(fd);
    for (uint8_t stream = 1; stream < 2 * N; stream = (uint8_t)(stream + 2)) {
        raw_http2_stream_call(fd, stream, ECHO, NULL);
        raw_http2_stream_message(fd, stream, 0, WHOLE_BYTES, HALF_BYTES, 0);
    }
    raw_http2_stream_call(fd, 2 * N + 1, ECHO, NULL);
    raw_http2_stream_message(fd, 2 * N + 1, 0, 4, 4, 1);
    cr_assert(raw_http2_read_until(fd, "grpc-status"));
    return fd;
}

Test(rpc_limits, messages_that_do_not_end_end_with_their_connection)
{
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.connection_age_ms = 100, .drain_ms = 100});
    int fd = begin_messages(&s);
    cr_assert_not(raw_http2_read_until(fd, "no such word"), "it ends, and nothing comes before");
    cr_assert_eq(atomic_load(&s.n_echoed), 1, "no handler saw half a message");
    close(fd);
    service_stop(&s, 1000);
}

Test(rpc_limits, a_server_stops_while_messages_are_half_there)
{
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.drain_ms = 60000});
    int fd = begin_messages(&s);
    service_stop(&s, 0);
    close(fd);
}

Test(rpc_limits, a_call_that_is_under_way_when_its_connection_is_old_is_answered)
{
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.connection_age_ms = 100, .drain_ms = 60000});
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    outcome o = OUTCOME_INIT;
    sg_rpc_pending_release(sg_rpc_channel_call(sg_rpc_client_channel(client, s.address), PARK,
                                               push_message(1, NULL, 0, NULL), 50000, outcome_done, &o));
    service_wait_parked(&s, 1);
    int younger = raw_http2_connect(sg_rpc_server_port(s.server));
    raw_http2_begin(younger);
    cr_assert(raw_http2_read_until(younger, "\x7f\xff\xff\xff")); /* GOAWAY, to all but what is under way */
    cr_assert(service_answer_one(&s));
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_OK, "%s", o.error.message);
    close(younger);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&o);
}

static size_t n_done(outcome *o)
{
    pthread_mutex_lock(&o->mutex);
    const size_t n = o->n_done;
    pthread_mutex_unlock(&o->mutex);
    return n;
}

/* It is told UNAVAILABLE, which may be sent again, if it comes in the moment in which its connection grows old. */
Test(rpc_limits, a_client_that_calls_on_and_on_notices_little_of_old_connections)
{
    enum { AGES = 5 };
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.connection_age_ms = 50, .drain_ms = 60000});
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome o = OUTCOME_INIT;
    char first_peer[64] = "";
    size_t n_ok = 0;
    for (int n_ages = 0; n_ages < AGES;) {
        const size_t n_before = n_done(&o);
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 20000, outcome_done, &o));
        while (!service_answer_one(&s) && n_done(&o) == n_before)
            usleep(1000);
        outcome_wait(&o, n_before + 1);
        cr_assert(o.status == SG_OK || o.status == SG_UNAVAILABLE, "%s", o.error.message);
        n_ok += o.status == SG_OK;
        n_ages += strcmp(first_peer, s.peer) != 0;
        memcpy(first_peer, s.peer, sizeof first_peer);
    }
    cr_assert_geq(n_ok, AGES);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&o);
}

/* --- calls --- */

Test(rpc_limits, more_calls_than_may_be_are_told_to_ask_again_and_logged_once)
{
    enum { MOST = 20 };
    static heard_log heard;
    heard_log_init(&heard);
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.max_calls = MOST, .log = &heard.log});
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome parked = OUTCOME_INIT, refused = OUTCOME_INIT;
    for (size_t i = 0; i < MOST; i++)
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, outcome_done, &parked));
    service_wait_parked(&s, MOST);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 10000, &refused), SG_NOT_READY);
        cr_assert_not_null(strstr(refused.error.message, "20 calls are under way, as many as may be: ask again"), "%s",
                           refused.error.message);
    }
    cr_assert_eq(heard_log_count(&heard, "as many as may be"), 1, "%s", heard.text);
    cr_assert(service_answer_one(&s));
    outcome_wait(&parked, 1);
    sg_status status;
    while ((status = call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 10000, &refused)) == SG_NOT_READY)
        ; /* until gRPC has reported the end of the one that was answered */
    cr_assert_eq(status, SG_OK, "%s", refused.error.message);
    service_close(&s);
    outcome_wait(&parked, MOST);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&parked);
    outcome_deinit(&refused);
}

/* A well-behaved client keeps the calls beyond what its connection may have under way to itself until others end. */
typedef struct counter {
    atomic_size_t n_held;
    pthread_mutex_t mutex;
    sg_rpc_call *held[2 * SG_RPC_SERVER_CALLS_PER_CONNECTION]; /* [n_held], guarded by mutex */
} counter;

static void hold(void *user, sg_rpc_call *call)
{
    counter *c = user;
    pthread_mutex_lock(&c->mutex);
    c->held[atomic_load(&c->n_held)] = call;
    atomic_fetch_add(&c->n_held, 1);
    pthread_mutex_unlock(&c->mutex);
}

static void answer(sg_rpc_call *call)
{
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_rpc_call_reply(call, &response.base, NULL, 0);
}

Test(rpc_limits, one_connection_has_only_so_many_calls_under_way_and_another_is_served)
{
    enum { MOST = SG_RPC_SERVER_CALLS_PER_CONNECTION, MORE = 10 };
    static counter c = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    sg_rpc_method method = {ECHO, hold, &c};
    sg_rpc_server *server;
    sg_error err;
    sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = MESSAGE_BYTES, .methods = &method, .n_methods = 1};
    cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_OK, "%s", err.message);
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", sg_rpc_server_port(server));
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *greedy = sg_rpc_client_channel(client, address), *modest = sg_rpc_client_channel(client, address);
    outcome many = OUTCOME_INIT, one = OUTCOME_INIT;
    for (size_t i = 0; i < MOST + MORE; i++)
        sg_rpc_pending_release(
            sg_rpc_channel_call(greedy, ECHO, push_message(1, NULL, 0, NULL), 50000, outcome_done, &many));
    wait_for(&c.n_held, MOST);
    sg_rpc_pending_release(
        sg_rpc_channel_call(modest, ECHO, push_message(1, NULL, 0, NULL), 50000, outcome_done, &one));
    wait_for(&c.n_held, MOST + 1);
    answer(c.held[MOST]);
    outcome_wait(&one, 1);
    cr_assert_eq(one.status, SG_OK, "the last that came is the other connection's: %s", one.error.message);
    cr_assert_eq(atomic_load(&c.n_held), MOST + 1);
    for (size_t i = 0; i < MOST; i++)
        answer(c.held[i]);
    wait_for(&c.n_held, MOST + 1 + MORE);
    for (size_t i = MOST + 1; i < MOST + 1 + MORE; i++)
        answer(c.held[i]);
    outcome_wait(&many, MOST + MORE);
    cr_assert_eq(many.status, SG_OK, "%s", many.error.message);
    sg_rpc_client_destroy(client);
    sg_rpc_server_destroy(server);
    outcome_deinit(&many);
    outcome_deinit(&one);
}

/* --- health checks, which need no token --- */

static void no_window(int fd)
{
    static const uint8_t settings[] = {0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0}; /* INITIAL_WINDOW_SIZE 0 */
    raw_http2_begin(fd);
    raw_http2_write(fd, settings, sizeof settings);
}

Test(rpc_limits, health_checks_whose_answers_nobody_reads_are_only_so_many)
{
    enum { CONNECTIONS = 3, EACH = 120 };
    static_assert(CONNECTIONS * EACH > SG_RPC_SERVER_PROBES && (CONNECTIONS - 1) * EACH < SG_RPC_SERVER_PROBES, "");
    static heard_log heard;
    heard_log_init(&heard);
    service s;
    service_start_limited(&s, &(sg_rpc_server_options){.log = &heard.log});
    int fds[CONNECTIONS];
    for (int i = 0; i < CONNECTIONS; i++) {
        fds[i] = raw_http2_connect(sg_rpc_server_port(s.server));
        no_window(fds[i]);
        for (int call = 0; call < EACH; call++) {
            raw_http2_stream_call(fds[i], (uint8_t)(2 * call + 1), HEALTH, NULL);
            raw_http2_stream_message(fds[i], (uint8_t)(2 * call + 1), 0, 0, 0, 1);
        }
    }
    while (heard_log_count(&heard, "256 health checks are under way, as many as may be") == 0)
        usleep(1000);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome o = OUTCOME_INIT;
    cr_assert_eq(call_and_wait(channel, HEALTH, push_message(0, NULL, 0, NULL), 40000, &o), SG_NOT_READY);
    cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 40000, &o), SG_OK, "%s", o.error.message);
    for (int i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    sg_status status;
    while ((status = call_and_wait(channel, HEALTH, push_message(0, NULL, 0, NULL), 40000, &o)) == SG_NOT_READY)
        ; /* until gRPC has noticed that they are gone */
    cr_assert_eq(status, SG_OK, "%s", o.error.message);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&o);
}
