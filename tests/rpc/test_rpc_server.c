/* tests/rpc/test_rpc_server.c - binding, garbage on the port, and the end of a server in whatever it is doing. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "common/clock.h"
#include "fixture.h"
#include "raw_http2.h"
#include "tests/support/scarcity.h"

TestSuite(rpc_server, .timeout = 180);

#define BUSY_MS  30000u /* that a machine may lose to others, and a sanitizer */
#define GRACE_MS 90000u /* far beyond it: who waits for the grace is caught */

/* --- binding --- */

static sg_status bind_error(const char *address, sg_error *err)
{
    sg_rpc_server *server;
    sg_rpc_server_options options = {.address = address, .threads = 1, .message_bytes = MESSAGE_BYTES};
    *err = (sg_error){0};
    sg_status status = sg_rpc_server_create(&options, &server, err);
    if (status == SG_OK)
        sg_rpc_server_destroy(server);
    return status;
}

Test(rpc_server, a_port_that_is_taken_is_named_and_its_owner_lives)
{
    service s;
    sg_error err;
    char want[256];
    service_start(&s, NULL, 1);
    snprintf(want, sizeof(want), "address %s is in use by another program: stop that one or choose another port",
             s.address);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(bind_error(s.address, &err), SG_CONFIG);
        cr_assert_str_eq(err.message, want);
    }
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    check_echo(sg_rpc_client_channel(client, s.address));
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
}

Test(rpc_server, addresses_that_cannot_be_served_are_named_with_the_reason)
{
    static const char *const wrong[][2] = {{"no-such-host.invalid:0", "host no-such-host.invalid does not resolve"},
                                           {"192.0.2.1:0", "192.0.2.1:0 is not an address of this machine"},
                                           {"localhost", "localhost"},
                                           {"127.0.0.1:99999", "127.0.0.1:99999"}};
    sg_error err;
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++) {
        cr_assert_eq(bind_error(wrong[i][0], &err), SG_CONFIG);
        cr_assert_not_null(strstr(err.message, wrong[i][1]), "%s", err.message);
    }
}

Test(rpc_server, a_host_name_and_a_wildcard_are_served_too)
{
    static const char *const addresses[] = {"localhost:0", "0.0.0.0:0"};
    for (size_t i = 0; i < SG_ARRAY_LEN(addresses); i++) {
        service s;
        service_start(&s, addresses[i], 1);
        sg_rpc_client *client = client_make(MESSAGE_BYTES);
        check_echo(sg_rpc_client_channel(client, s.address));
        sg_rpc_client_destroy(client);
        service_stop(&s, 1000);
    }
}

typedef struct lines {
    atomic_size_t n_grpc, n_others;
} lines;

static void line_count(void *user, sg_log_level level, const char *event, const char *fields)
{
    lines *l = user;
    bool grpc = level == SG_LOG_DEBUG && strcmp(event, "grpc") == 0 && strncmp(fields, "message=\"", 9) == 0;
    atomic_fetch_add(grpc ? &l->n_grpc : &l->n_others, 1);
}

/* gRPC writes an error when it cannot bind; the one server whose log is attached then gets it, but not as a warning:
 * whoever binds says it better. */
Test(rpc_server, what_grpc_says_goes_to_the_log_while_there_is_one)
{
    lines l = {0};
    sg_log log = {.fn = line_count, .user = &l, .min_level = SG_LOG_DEBUG};
    sg_rpc_server *server;
    sg_error err;
    sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = MESSAGE_BYTES, .log = &log};
    service s;
    service_start(&s, NULL, 1); /* has no log */
    cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_OK);
    cr_assert_eq(bind_error(s.address, &err), SG_CONFIG);
    size_t n_grpc = atomic_load(&l.n_grpc);
    cr_assert_gt(n_grpc, 0);
    sg_rpc_server_destroy(server);
    cr_assert_eq(bind_error(s.address, &err), SG_CONFIG);
    cr_assert_eq(atomic_load(&l.n_grpc), n_grpc);
    cr_assert_eq(atomic_load(&l.n_others), 0);
    service_stop(&s, 1000);
}

/* --- garbage --- */

Test(rpc_server, garbage_on_the_port_leaves_the_server_serving_others)
{
    service s;
    service_start(&s, NULL, 2);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    unsigned int seed = (unsigned int)sg_clock_random_id();
    cr_log_info("seed %u", seed);
    int kept[20];
    for (size_t i = 0; i < SG_ARRAY_LEN(kept); i++) {
        uint8_t noise[700];
        for (size_t j = 0; j < sizeof(noise); j++)
            noise[j] = (uint8_t)(rand_r(&seed) >> 8);
        kept[i] = raw_http2_connect(sg_rpc_server_port(s.server));
        if (i % 4 == 1) /* half a preface, and then silence */
            raw_http2_write(kept[i], "PRI * HTTP/2", 12);
        else if (i % 4 == 2) /* an honest beginning, then noise where frames should be */
            raw_http2_begin(kept[i]);
        else if (i % 4 == 3) { /* noise where the message should be */
            raw_http2_begin(kept[i]);
            raw_http2_call(kept[i], ECHO, NULL);
        }
        if (i % 4 != 1)
            raw_http2_write(kept[i], noise, sizeof(noise));
        check_echo(channel);
    }
    for (size_t i = 0; i < SG_ARRAY_LEN(kept); i++)
        close(kept[i]);
    check_echo(channel);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
}

Test(rpc_server, a_compressed_message_is_refused_and_not_unpacked)
{
    service s;
    service_start(&s, NULL, 1);
    for (uint8_t compressed = 0; compressed < 2; compressed++) {
        int fd = raw_http2_connect(sg_rpc_server_port(s.server));
        raw_http2_begin(fd);
        raw_http2_call(fd, ECHO, "gzip");
        raw_http2_message(fd, compressed, 100, 100, 1);
        cr_assert(raw_http2_read_until(fd, compressed ? "is compressed" : "grpc-status"));
        close(fd);
    }
    cr_assert_eq(atomic_load(&s.n_echoed), 1);
    service_stop(&s, 1000);
}

/* --- the end --- */

/* Stops it, checks the time that took, and binds the same port again at once. */
static void stop_and_bind_again(service *s, uint64_t grace_ms, uint64_t limit_ms)
{
    char address[64];
    snprintf(address, sizeof(address), "%s", s->address);
    uint64_t before_ms = sg_clock_ms();
    sg_rpc_server_stop(s->server, grace_ms);
    cr_assert_lt(sg_clock_ms() - before_ms, limit_ms);
    sg_rpc_server_destroy(s->server);
    service_deinit(s);
    service again;
    service_start(&again, address, 1);
    service_stop(&again, 1000);
}

Test(rpc_server, an_idle_server_stops_without_waiting_for_the_grace)
{
    service s;
    service_start(&s, NULL, 2);
    stop_and_bind_again(&s, GRACE_MS, BUSY_MS);
}

Test(rpc_server, a_server_with_idle_connections_stops_without_waiting_for_the_grace)
{
    service s;
    service_start(&s, NULL, 2);
    sg_rpc_client *clients[3];
    for (int i = 0; i < 3; i++) {
        clients[i] = client_make(MESSAGE_BYTES);
        check_echo(sg_rpc_client_channel(clients[i], s.address));
    }
    stop_and_bind_again(&s, GRACE_MS, BUSY_MS);
    for (int i = 0; i < 3; i++)
        sg_rpc_client_destroy(clients[i]);
}

static void *close_run(void *user)
{
    service_close(user);
    return NULL;
}

Test(rpc_server, calls_that_are_answered_while_it_stops_reach_their_clients)
{
    service s;
    service_start(&s, NULL, 2);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome outcomes[20];
    for (size_t i = 0; i < SG_ARRAY_LEN(outcomes); i++) {
        outcomes[i] = (outcome)OUTCOME_INIT;
        sg_rpc_pending_release(
            sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 120000, outcome_done, &outcomes[i]));
    }
    service_wait_parked(&s, SG_ARRAY_LEN(outcomes));
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, close_run, &s), 0);
    stop_and_bind_again(&s, GRACE_MS, BUSY_MS);
    pthread_join(thread, NULL);
    for (size_t i = 0; i < SG_ARRAY_LEN(outcomes); i++) {
        outcome_wait(&outcomes[i], 1);
        cr_assert_eq(outcomes[i].status, SG_STOPPED, "%s", outcomes[i].error.message);
        outcome_deinit(&outcomes[i]);
    }
    sg_rpc_client_destroy(client);
}

Test(rpc_server, calls_that_nobody_answers_are_cancelled_when_the_grace_is_over)
{
    service s;
    service_start(&s, NULL, 1);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome o = OUTCOME_INIT;
    sg_rpc_pending_release(
        sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 120000, outcome_done, &o));
    service_wait_parked(&s, 1);
    stop_and_bind_again(&s, 200, BUSY_MS); /* the notice answers it on the server's side */
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_UNAVAILABLE, "%s", o.error.message);
    cr_assert_eq(strncmp(o.error.message, "127.0.0.1:", 10), 0, "%s", o.error.message);
    sg_rpc_client_destroy(client);
    outcome_deinit(&o);
}

Test(rpc_server, a_push_that_stalls_half_way_does_not_hold_up_the_stop)
{
    service s;
    service_start(&s, NULL, 1);
    int fd = raw_http2_connect(sg_rpc_server_port(s.server));
    raw_http2_begin(fd);
    raw_http2_call(fd, ECHO, NULL);
    raw_http2_message(fd, 0, MESSAGE_BYTES, 40000, 0);
    int silent = raw_http2_connect(sg_rpc_server_port(s.server));
    raw_http2_write(silent, "PRI * HT", 8);
    sg_rpc_client *client = client_make(MESSAGE_BYTES); /* whose echo shows that the server has got that far */
    check_echo(sg_rpc_client_channel(client, s.address));
    stop_and_bind_again(&s, 300, BUSY_MS);
    cr_assert_eq(atomic_load(&s.n_echoed), 1);
    sg_rpc_client_destroy(client);
    close(fd);
    close(silent);
}

typedef struct storm {
    sg_rpc_channel *channel;
    atomic_size_t released, n_begun, n_bad;
    outcome first_good;
} storm;

/* Pushes megabytes until the server is gone. */
static void *storm_run(void *user)
{
    storm *st = user;
    outcome o = OUTCOME_INIT;
    do {
        atomic_fetch_add(&st->n_begun, 1);
        call_and_wait(st->channel, ECHO, push_message(1, NULL, MESSAGE_BYTES, &st->released), 30000, &o);
        if (o.status == SG_OK)
            outcome_done(&st->first_good, SG_UNAVAILABLE, &(sg_error){.code = SG_UNAVAILABLE}, NULL);
    } while (o.status == SG_OK);
    if (o.status != SG_UNAVAILABLE && o.status != SG_STOPPED) {
        cr_log_error("%s: %s", sg_status_name(o.status), o.error.message);
        atomic_fetch_add(&st->n_bad, 1);
    }
    outcome_deinit(&o);
    return NULL;
}

Test(rpc_server, a_stop_amid_large_pushes_ends_each_of_them_once)
{
    service s;
    service_start(&s, NULL, 2);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    storm st = {.channel = sg_rpc_client_channel(client, s.address), .first_good = OUTCOME_INIT};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, storm_run, &st), 0);
    outcome_wait(&st.first_good, 8);
    uint64_t before_ms = sg_clock_ms();
    sg_rpc_server_stop(s.server, 1000);
    cr_assert_lt(sg_clock_ms() - before_ms, BUSY_MS);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    sg_rpc_server_destroy(s.server);
    sg_rpc_client_destroy(client);
    service_deinit(&s);
    cr_assert_eq(atomic_load(&st.n_bad), 0);
    cr_assert_eq(atomic_load(&st.released), atomic_load(&st.n_begun));
    outcome_deinit(&st.first_good);
}

Test(rpc_server, a_server_that_comes_back_is_found_by_the_same_channel)
{
    service s;
    char address[64];
    service_start(&s, NULL, 1);
    snprintf(address, sizeof(address), "%s", s.address);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, address);
    check_echo(channel);
    service_stop(&s, 1000);
    outcome o = OUTCOME_INIT;
    for (int i = 0; i < 20; i++)
        cr_assert_eq(call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 10000, &o), SG_UNAVAILABLE);
    service_start(&s, address, 1);
    uint64_t before_ms = sg_clock_ms();
    while (call_and_wait(channel, ECHO, push_message(1, NULL, 0, NULL), 10000, &o) != SG_OK)
        cr_assert_lt(sg_clock_ms() - before_ms, BUSY_MS);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&o);
}

/* --- a connection that is cut --- */

typedef struct cable {
    int listener, stop[2]; /* closing stop[1] cuts it */
    uint16_t to;
} cable;

/* Passes on what one side sent to the other; false when it hung up. */
static bool pump(int from, int to)
{
    char buffer[4096];
    ssize_t got = recv(from, buffer, sizeof(buffer), 0);
    if (got > 0)
        raw_http2_write(to, buffer, (size_t)got);
    return got > 0;
}

/* Carries one connection until it is cut, which both sides see as a reset. */
static void *cable_run(void *user)
{
    cable *c = user;
    int ends[2] = {accept(c->listener, NULL, NULL), raw_http2_connect(c->to)};
    struct pollfd polled[] = {
        {.fd = ends[0], .events = POLLIN}, {.fd = ends[1], .events = POLLIN}, {.fd = c->stop[0], .events = POLLIN}};
    bool whole = true;
    while (whole && poll(polled, 3, -1) > 0 && polled[2].revents == 0) {
        for (int i = 0; i < 2 && whole; i++)
            whole = polled[i].revents == 0 || pump(ends[i], ends[1 - i]);
    }
    for (int i = 0; i < 2; i++) {
        setsockopt(ends[i], SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
        close(ends[i]);
    }
    return NULL;
}

Test(rpc_server, a_call_whose_connection_is_cut_is_unavailable_and_the_server_notices)
{
    service s;
    service_start(&s, NULL, 1);
    cable c = {.to = sg_rpc_server_port(s.server)};
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(at);
    c.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert(bind(c.listener, (struct sockaddr *)&at, length) == 0 && listen(c.listener, 1) == 0);
    cr_assert(getsockname(c.listener, (struct sockaddr *)&at, &length) == 0 && pipe(c.stop) == 0);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, cable_run, &c), 0);

    char address[64];
    snprintf(address, sizeof(address), "127.0.0.1:%u", ntohs(at.sin_port));
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    outcome o = OUTCOME_INIT;
    sg_rpc_pending_release(sg_rpc_channel_call(sg_rpc_client_channel(client, address), PARK,
                                               push_message(1, NULL, 0, NULL), 120000, outcome_done, &o));
    service_wait_parked(&s, 1);
    close(c.listener);
    close(c.stop[1]);
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_UNAVAILABLE);
    cr_assert_eq(strncmp(o.error.message, address, strlen(address)), 0, "%s", o.error.message);
    cr_assert_null(strpbrk(o.error.message, "{}["), "%s", o.error.message);
    service_wait_gone(&s, 1);
    pthread_join(thread, NULL);
    close(c.stop[0]);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&o);
}

Test(rpc_server, without_threads_for_its_calls_it_is_refused_and_its_port_is_free)
{
    sg_rpc_server_options options = {.address = "127.0.0.1:0", .threads = 3, .message_bytes = MESSAGE_BYTES};
    sg_rpc_server *server = NULL;
    sg_error err;
    for (int n = 0; n < 3; n++) {
        sg_scarcity_allow(n);
        cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_EXHAUSTED);
        cr_assert_not_null(strstr(err.message, "no thread for the calls"), "%s", err.message);
    }
    sg_scarcity_allow(3);
    cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_OK, "%s", err.message);
    sg_rpc_server_destroy(server);
}
