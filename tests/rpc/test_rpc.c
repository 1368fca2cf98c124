/* tests/rpc/test_rpc.c - calls between servers and clients of one process. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "common/clock.h"
#include "fixture.h"
#include "grpc/health/v1/health.pb-c.h"

TestSuite(rpc, .timeout = 60);

static service s;
static sg_rpc_client *client;
static sg_rpc_channel *channel;

/* Called from the tests' bodies: Criterion does not count an assertion in a .fini. */
static void start(void)
{
    service_start(&s, NULL, 2);
    client = client_make(MESSAGE_BYTES);
    channel = sg_rpc_client_channel(client, s.address);
}

static void stop(void)
{
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
}

Test(rpc, a_call_is_answered_with_the_data_it_sent)
{
    start();
    check_echo(channel);
    check_echo(channel);
    cr_assert_str_eq(sg_rpc_channel_address(channel), s.address);
    stop();
}

Test(rpc, a_call_without_data_is_answered_without_data)
{
    start();
    outcome o = OUTCOME_INIT;
    cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 10000, &o), SG_OK);
    cr_assert_eq(o.data_bytes, 0);
    outcome_deinit(&o);
    stop();
}

/* --- load --- */

enum { LOAD_THREADS = 4, LOAD_IN_FLIGHT = 4, LOAD_ROUNDS = 5 };
#define LOAD_BYTES ((size_t)1 << 20)
#define LOAD_CALLS ((size_t)LOAD_THREADS * LOAD_IN_FLIGHT * LOAD_ROUNDS)

static atomic_size_t load_released;

static void *load_run(void *mark)
{
    uint8_t *sent = malloc(LOAD_BYTES);
    for (int round = 0; round < LOAD_ROUNDS; round++) {
        outcome outcomes[LOAD_IN_FLIGHT];
        for (int i = 0; i < LOAD_IN_FLIGHT; i++) {
            outcomes[i] = (outcome)OUTCOME_INIT;
            memset(sent, (int)(uintptr_t)mark + i + round, LOAD_BYTES);
            sg_rpc_pending_release(sg_rpc_channel_call(channel, ECHO, push_message(1, sent, LOAD_BYTES, &load_released),
                                                       30000, outcome_done, &outcomes[i]));
        }
        for (int i = 0; i < LOAD_IN_FLIGHT; i++) {
            outcome_wait(&outcomes[i], 1);
            cr_assert_eq(outcomes[i].status, SG_OK, "%s", outcomes[i].error.message);
            cr_assert_eq(outcomes[i].data_bytes, LOAD_BYTES);
            memset(sent, (int)(uintptr_t)mark + i + round, LOAD_BYTES);
            cr_assert_arr_eq(outcomes[i].data, sent, LOAD_BYTES);
            outcome_deinit(&outcomes[i]);
        }
    }
    free(sent);
    return NULL;
}

Test(rpc, four_threads_with_four_calls_in_flight_get_their_own_megabytes_back)
{
    start();
    pthread_t threads[LOAD_THREADS];
    for (size_t i = 0; i < LOAD_THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, load_run, (void *)(i * 50)), 0);
    for (size_t i = 0; i < LOAD_THREADS; i++)
        pthread_join(threads[i], NULL);
    cr_assert_eq(atomic_load(&s.n_echoed), LOAD_CALLS);
    stop();
    cr_assert_eq(atomic_load(&load_released), LOAD_CALLS);
}

/* --- how calls end --- */

Test(rpc, every_status_and_its_message_cross_the_wire)
{
    start();
    static const uint32_t all[] = {
#define X(name, number, grpc_code, exit_code, text) number,
        SG_STATUS_MAP(X)
#undef X
    };
    outcome o = OUTCOME_INIT;
    for (size_t i = 0; i < SG_ARRAY_LEN(all); i++) {
        if (all[i] == SG_OK)
            continue;
        cr_assert_eq(call_and_wait(channel, FAIL_WITH, push_message(all[i], NULL, 0, NULL), 10000, &o),
                     (sg_status)all[i]);
        cr_assert_str_eq(o.error.message, "worker 7 says 100% \"no\" more");
    }
    outcome_deinit(&o);
    stop();
}

Test(rpc, a_method_that_does_not_exist_is_unimplemented_at_once)
{
    start();
    static const char *const paths[] = {"/shardgrad.v1.ParameterService/Steal", "/no.Such/Thing",
                                        "/grpc.health.v1.Health/Watch"};
    outcome o = OUTCOME_INIT;
    for (size_t i = 0; i < SG_ARRAY_LEN(paths); i++) {
        cr_assert_eq(call_and_wait(channel, paths[i], push_message(1, NULL, 0, NULL), 20000, &o), SG_UNIMPLEMENTED);
        cr_assert_not_null(strstr(o.error.message, paths[i]), "%s", o.error.message);
    }
    check_echo(channel);
    outcome_deinit(&o);
    stop();
}

Test(rpc, a_body_that_is_no_message_is_refused_and_the_connection_lives)
{
    start();
    static const uint8_t garbage[] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    outcome o = OUTCOME_INIT;
    cr_assert_eq(call_and_wait(channel, ECHO, sg_wire_message_from_bytes(garbage, sizeof(garbage), 2), 10000, &o),
                 SG_INVALID);
    check_echo(channel);
    outcome_deinit(&o);
    stop();
}

Test(rpc, nobody_listening_is_unavailable_with_address_and_reason)
{
    char address[64], want[128];
    outcome o = OUTCOME_INIT;
    snprintf(address, sizeof(address), "127.0.0.1:%u", unused_port());
    snprintf(want, sizeof(want), "%s: connection refused", address);
    sg_rpc_client *alone = client_make(MESSAGE_BYTES);
    sg_rpc_channel *to = sg_rpc_client_channel(alone, address);
    for (int i = 0; i < 3; i++) {
        atomic_size_t released = 0;
        cr_assert_eq(call_and_wait(to, ECHO, push_message(1, "abc", 3, &released), 20000, &o), SG_UNAVAILABLE);
        cr_assert_str_eq(o.error.message, want);
        cr_assert_eq(atomic_load(&released), 1);
    }
    sg_rpc_client_destroy(alone);
    outcome_deinit(&o);
}

Test(rpc, a_host_that_does_not_resolve_is_unavailable_and_named)
{
    outcome o = OUTCOME_INIT;
    sg_rpc_client *alone = client_make(MESSAGE_BYTES);
    sg_rpc_channel *to = sg_rpc_client_channel(alone, "no-such-host.invalid:4001");
    cr_assert_eq(call_and_wait(to, ECHO, push_message(1, NULL, 0, NULL), 40000, &o), SG_UNAVAILABLE);
    cr_assert_str_eq(o.error.message, "no-such-host.invalid:4001: the host name does not resolve");
    sg_rpc_client_destroy(alone);
    outcome_deinit(&o);
}

Test(rpc, a_deadline_ends_a_parked_call_and_the_server_notices)
{
    start();
    outcome o = OUTCOME_INIT;
    cr_assert_eq(call_and_wait(channel, PARK, push_message(1, NULL, 0, NULL), 300, &o), SG_TIMEOUT);
    cr_assert_not_null(strstr(o.error.message, "no answer within 300 ms"), "%s", o.error.message);
    service_wait_gone(&s, 1);
    check_echo(channel);
    outcome_deinit(&o);
    stop();
}

Test(rpc, the_server_sees_deadline_and_peer)
{
    start();
    outcome o = OUTCOME_INIT;
    uint64_t before_ms = sg_clock_ms();
    sg_rpc_pending_release(sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, outcome_done, &o));
    service_wait_parked(&s, 1);
    uint64_t deadline_ms = atomic_load(&s.deadline_ms);
    cr_assert_geq(deadline_ms, before_ms + 39000);
    cr_assert_leq(deadline_ms, sg_clock_ms() + 40100);
    cr_assert_eq(strncmp(s.peer, "ipv4:127.0.0.1:", 15), 0, "%s", s.peer);
    cr_assert(service_answer_one(&s));
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_OK);
    cr_assert_eq(s.n_gone, 0);
    outcome_deinit(&o);
    stop();
}

Test(rpc, a_cancelled_call_ends_once_and_the_server_notices)
{
    start();
    outcome o = OUTCOME_INIT;
    sg_rpc_pending *pending =
        sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, outcome_done, &o);
    service_wait_parked(&s, 1);
    sg_rpc_pending_cancel(pending);
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_CANCELLED);
    sg_rpc_pending_cancel(pending); /* too late, and harmless */
    sg_rpc_pending_release(pending);
    service_wait_gone(&s, 1);
    cr_assert_eq(o.n_done, 1);
    outcome_deinit(&o);
    stop();
}

/* The service counts a notice only if it found the call parked, so answered + gone must be exactly one a call. */
Test(rpc, a_cancel_racing_with_the_answer_leaves_one_answer)
{
    start();
    unsigned int seed = (unsigned int)sg_clock_random_id();
    cr_log_info("seed %u", seed);
    size_t n_gone = 0;
    for (int round = 0; round < 200; round++) {
        outcome o = OUTCOME_INIT;
        sg_rpc_pending *pending =
            sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, outcome_done, &o);
        service_wait_parked(&s, 1);
        bool cancel_first = rand_r(&seed) % 2 == 0;
        if (cancel_first)
            sg_rpc_pending_cancel(pending);
        bool answered = service_answer_one(&s);
        if (!cancel_first)
            sg_rpc_pending_cancel(pending);
        outcome_wait(&o, 1);
        n_gone += !answered;
        service_wait_gone(&s, n_gone);
        cr_assert(o.status == SG_CANCELLED || (answered && o.status == SG_OK), "%s", sg_status_name(o.status));
        sg_rpc_pending_release(pending);
        outcome_deinit(&o);
    }
    stop();
}

/* --- sizes --- */

Test(rpc, a_message_of_the_greatest_size_passes_and_one_above_is_refused_unsent)
{
    start();
    size_t limit = MESSAGE_BYTES + SG_WIRE_HEAD_BYTES, frame = 2 + 1 + 4; /* worker = 1; tag and length of data */
    outcome o = OUTCOME_INIT;
    atomic_size_t released = 0;
    cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, limit - frame, &released), 30000, &o), SG_OK, "%s",
                 o.error.message);
    cr_assert_eq(o.data_bytes, limit - frame);
    cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, limit - frame + 1, &released), 30000, &o),
                 SG_EXHAUSTED);
    cr_assert_not_null(strstr(o.error.message, "5242881 bytes, at most 5242880 are allowed"), "%s", o.error.message);
    cr_assert_eq(atomic_load(&s.n_echoed), 1);
    check_echo(channel);
    cr_assert_eq(atomic_load(&released), 2);
    outcome_deinit(&o);
    stop();
}

Test(rpc, a_client_with_a_higher_limit_is_refused_by_the_server)
{
    start();
    outcome o = OUTCOME_INIT;
    sg_rpc_client *greedy = client_make(4 * MESSAGE_BYTES);
    sg_rpc_channel *to = sg_rpc_client_channel(greedy, s.address);
    cr_assert_eq(call_and_wait(to, ECHO, push_message(1, NULL, 2 * MESSAGE_BYTES, NULL), 30000, &o), SG_EXHAUSTED);
    cr_assert_eq(atomic_load(&s.n_echoed), 0);
    check_echo(to);
    sg_rpc_client_destroy(greedy);
    outcome_deinit(&o);
    stop();
}

Test(rpc, an_answer_over_the_limit_becomes_a_failure_that_says_both_sizes)
{
    start();
    outcome o = OUTCOME_INIT;
    uint32_t n_bytes = (uint32_t)(MESSAGE_BYTES + SG_WIRE_HEAD_BYTES + 1);
    cr_assert_eq(call_and_wait(channel, OVERSIZE, push_message(n_bytes, NULL, 0, NULL), 30000, &o), SG_EXHAUSTED);
    cr_assert_not_null(strstr(o.error.message, "at most 5242880 are allowed"), "%s", o.error.message);
    check_echo(channel);
    outcome_deinit(&o);
    stop();
}

/* --- health --- */

typedef struct health {
    outcome ended;
    int serving;
} health;

static void health_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    health *h = user;
    sg_wire_parts parts = {0};
    sg_error err;
    if (status == SG_OK &&
        sg_wire_unpack(reply, &grpc__health__v1__health_check_response__descriptor, &parts, &err) == SG_OK)
        h->serving = (int)((Grpc__Health__V1__HealthCheckResponse *)parts.head)->status;
    sg_wire_parts_deinit(&parts);
    pthread_mutex_lock(&h->ended.mutex);
    h->ended.status = status;
    if (error != NULL)
        h->ended.error = *error;
    h->ended.n_done++;
    pthread_cond_broadcast(&h->ended.changed);
    pthread_mutex_unlock(&h->ended.mutex);
}

static sg_status health_check(const char *name, int *serving)
{
    health h = {.ended = OUTCOME_INIT};
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)(uintptr_t)name;
    sg_wire_message *message;
    cr_assert_eq(sg_wire_pack(sg_rpc_channel_pool(channel), &request.base, NULL, 0, &message, NULL), SG_OK);
    sg_rpc_pending_release(
        sg_rpc_channel_call(channel, "/grpc.health.v1.Health/Check", message, 10000, health_done, &h));
    outcome_wait(&h.ended, 1);
    *serving = h.serving;
    return h.ended.status;
}

Test(rpc, health_is_told_for_the_server_and_for_each_service)
{
    start();
    int serving;
    static const char *const known[] = {"", "shardgrad.v1.ParameterService", "shardgrad.test.Failing",
                                        "grpc.health.v1.Health"};
    for (int on = 0; on < 2; on++) {
        sg_rpc_server_set_serving(s.server, on == 1);
        for (size_t i = 0; i < SG_ARRAY_LEN(known); i++) {
            cr_assert_eq(health_check(known[i], &serving), SG_OK);
            cr_assert_eq(serving, on == 1 ? GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                                          : GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING);
        }
    }
    cr_assert_eq(health_check("shardgrad.v1.Parameter", &serving), SG_NOT_FOUND);
    cr_assert_eq(health_check("shardgrad.v1.ParameterService/Push", &serving), SG_NOT_FOUND);
    stop();
}

/* --- several in one process, and clients that end early --- */

Test(rpc, two_servers_and_three_clients_live_in_one_process)
{
    service services[2];
    sg_rpc_client *clients[3];
    for (int i = 0; i < 2; i++)
        service_start(&services[i], NULL, 1);
    for (int i = 0; i < 3; i++) {
        clients[i] = client_make(MESSAGE_BYTES);
        for (int j = 0; j < 2; j++)
            check_echo(sg_rpc_client_channel(clients[i], services[j].address));
    }
    service_stop(&services[0], 1000);
    for (int i = 0; i < 3; i++) {
        check_echo(sg_rpc_client_channel(clients[i], services[1].address));
        sg_rpc_client_destroy(clients[i]);
    }
    service_stop(&services[1], 1000);
}

Test(rpc, a_client_that_is_destroyed_ends_its_calls_as_cancelled)
{
    start();
    outcome o = OUTCOME_INIT;
    atomic_size_t released = 0;
    for (int i = 0; i < 10; i++)
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, PARK, push_message(1, "x", 1, &released), 40000, outcome_done, &o));
    service_wait_parked(&s, 10);
    sg_rpc_client_destroy(client);
    cr_assert_eq(o.n_done, 10);
    cr_assert_eq(o.status, SG_CANCELLED);
    service_wait_gone(&s, 10);
    service_stop(&s, 1000);
    cr_assert_eq(atomic_load(&released), 10);
    outcome_deinit(&o);
}

typedef struct chain {
    outcome ended;
    int left;
} chain;

static void chain_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    chain *c = user;
    if (status == SG_OK && --c->left > 0)
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, ECHO, push_message(1, "next", 4, NULL), 10000, chain_done, c));
    else
        outcome_done(&c->ended, status, error, reply);
}

Test(rpc, a_callback_may_start_the_next_call)
{
    start();
    chain c = {.ended = OUTCOME_INIT, .left = 100};
    sg_rpc_pending_release(
        sg_rpc_channel_call(channel, ECHO, push_message(1, "first", 5, NULL), 10000, chain_done, &c));
    outcome_wait(&c.ended, 1);
    cr_assert_eq(c.ended.status, SG_OK);
    cr_assert_eq(atomic_load(&s.n_echoed), 100);
    outcome_deinit(&c.ended);
    stop();
}

static void again_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    chain *c = user;
    outcome_done(&c->ended, status, error, reply);
    if (c->left-- > 0)
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, again_done, c));
}

Test(rpc, a_call_that_a_callback_starts_while_the_client_ends_is_cancelled_too)
{
    start();
    chain c = {.ended = OUTCOME_INIT, .left = 3};
    sg_rpc_pending_release(sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 40000, again_done, &c));
    service_wait_parked(&s, 1);
    sg_rpc_client_destroy(client);
    cr_assert_eq(c.ended.n_done, 4);
    cr_assert_eq(c.ended.status, SG_CANCELLED);
    service_stop(&s, 1000);
    outcome_deinit(&c.ended);
}
