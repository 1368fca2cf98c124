/* tests/rpc/test_rpc_unsent.c - answers that nobody reads end, and what was lent for them is let go of. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "common/clock.h"
#include "fixture.h"
#include "raw_http2.h"

TestSuite(rpc_unsent, .timeout = 60);

enum { ANSWER_BYTES = 3 << 20 };

/* Answers every call with ANSWER_BYTES that are lent. */
typedef struct lender {
    sg_rpc_server *server;
    uint8_t *data;
    atomic_size_t n_lent, n_released;
} lender;

static void released(void *owner)
{
    atomic_fetch_add(&((lender *)owner)->n_released, 1);
}

static void lend(void *user, sg_rpc_call *call)
{
    lender *l = user;
    Shardgrad__V1__PullResponse response = SHARDGRAD__V1__PULL_RESPONSE__INIT;
    sg_wire_piece piece = {.data = l->data, .n_bytes = ANSWER_BYTES, .release = released, .owner = l};
    atomic_fetch_add(&l->n_lent, 1);
    sg_rpc_call_reply(call, &response.base, &piece, 1);
}

static void lender_start(lender *l, uint64_t drain_ms, uint64_t message_bytes)
{
    *l = (lender){.data = calloc(1, ANSWER_BYTES)};
    sg_rpc_method method = {ECHO, lend, l};
    sg_rpc_server_options options = {.address = "127.0.0.1:0",
                                     .threads = 1,
                                     .message_bytes = message_bytes,
                                     .drain_ms = drain_ms,
                                     .methods = &method,
                                     .n_methods = 1};
    sg_error err = {0};
    cr_assert_eq(sg_rpc_server_create(&options, &l->server, &err), SG_OK, "%s", err.message);
}

static void wait_for(atomic_size_t *count, size_t n)
{
    while (atomic_load(count) < n)
        usleep(1000);
}

/* A connection that was closed gives its memory back some time after. */
static void lender_stop(lender *l)
{
    sg_rpc_server_destroy(l->server);
    wait_for(&l->n_released, atomic_load(&l->n_lent));
    free(l->data);
}

/* A connection that asks n times, and reads nothing of what it is sent. */
static int ask_and_read_nothing(lender *l, size_t n)
{
    int fd = raw_http2_connect(sg_rpc_server_port(l->server));
    raw_http2_begin(fd);
    for (size_t i = 0; i < n; i++) {
        raw_http2_stream_call(fd, (uint8_t)(2 * i + 1), ECHO, NULL);
        raw_http2_stream_message(fd, (uint8_t)(2 * i + 1), 0, 4, 4, 1);
    }
    return fd;
}

static void check_still_serves(lender *l)
{
    char address[64];
    snprintf(address, sizeof address, "127.0.0.1:%u", sg_rpc_server_port(l->server));
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    outcome o = OUTCOME_INIT;
    sg_wire_message *message = sg_wire_message_from_bytes("\x08\x01", 2, 2);
    cr_assert_eq(call_and_wait(sg_rpc_client_channel(client, address), ECHO, message, 10000, &o), SG_OK, "%s",
                 o.error.message);
    cr_assert_eq(o.data_bytes, ANSWER_BYTES);
    outcome_deinit(&o);
    sg_rpc_client_destroy(client);
}

Test(rpc_unsent, an_answer_that_nobody_reads_ends_when_its_time_is_over)
{
    enum { N = 4 };
    lender l;
    lender_start(&l, 5000, MESSAGE_BYTES);
    int fd = ask_and_read_nothing(&l, N);
    wait_for(&l.n_lent, N);
    uint64_t now_ms = sg_clock_ms();
    sg_rpc_server_tick(l.server, now_ms + 4000);
    check_still_serves(&l);
    cr_assert_eq(atomic_load(&l.n_released), 1, "only what was read was let go of");
    sg_rpc_server_tick(l.server, now_ms + 60000);
    wait_for(&l.n_released, N + 1);
    check_still_serves(&l);
    close(fd);
    lender_stop(&l);
}

Test(rpc_unsent, without_a_limit_it_waits_until_its_client_goes)
{
    lender l;
    lender_start(&l, 0, MESSAGE_BYTES);
    int fd = ask_and_read_nothing(&l, 1);
    wait_for(&l.n_lent, 1);
    sg_rpc_server_tick(l.server, sg_clock_ms() + 3600000);
    check_still_serves(&l);
    cr_assert_eq(atomic_load(&l.n_released), 1);
    close(fd);
    wait_for(&l.n_released, 2);
    lender_stop(&l);
}

/* A connection may leave 160 MiB unread here, all together 1.25 GiB. */
Test(rpc_unsent, one_connection_leaves_only_so_much_unread_and_others_notice_nothing)
{
    enum { N = 100, MAY_STAY = 53 };
    lender l;
    lender_start(&l, 3600000, MESSAGE_BYTES);
    int greedy = ask_and_read_nothing(&l, N), modest = ask_and_read_nothing(&l, 2);
    wait_for(&l.n_lent, N + 2);
    sg_rpc_server_tick(l.server, sg_clock_ms() + 1000);
    wait_for(&l.n_released, N - MAY_STAY);
    check_still_serves(&l);
    cr_assert_eq(atomic_load(&l.n_released), N - MAY_STAY + 1);
    close(greedy);
    wait_for(&l.n_released, N + 1);
    cr_assert_eq(atomic_load(&l.n_released), N + 1, "what the modest one asked for is still to be had");
    close(modest);
    lender_stop(&l);
}

Test(rpc_unsent, beyond_the_limit_of_all_the_oldest_answers_end_without_a_tick)
{
    enum { CONNECTIONS = 6, N = 100 };
    lender l;
    lender_start(&l, 3600000, MESSAGE_BYTES);
    int fds[CONNECTIONS];
    for (size_t i = 0; i < CONNECTIONS; i++)
        fds[i] = ask_and_read_nothing(&l, N);
    wait_for(&l.n_lent, (size_t)CONNECTIONS * N);
    const size_t may_stay = ((size_t)1280 << 20) / ANSWER_BYTES;
    wait_for(&l.n_released, CONNECTIONS * N - may_stay);
    check_still_serves(&l);
    for (size_t i = 0; i < CONNECTIONS; i++)
        close(fds[i]);
    lender_stop(&l);
}
