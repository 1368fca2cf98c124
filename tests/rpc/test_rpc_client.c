/* A client that looks at the network only while a call is under way. */
#include <criterion/criterion.h>

#include "fixture.h"
#include "tests/support/scarcity.h"

TestSuite(rpc_client, .timeout = 60);

static sg_rpc_client *make(uint32_t threads)
{
    return sg_rpc_client_create(
        &(sg_rpc_client_options){.threads = threads, .message_bytes = MESSAGE_BYTES, .on_demand = true});
}

Test(rpc_client, on_demand_calls_that_come_after_a_rest_are_answered)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        service s;
        service_start(&s, NULL, 1);
        sg_rpc_client *client = make(threads);
        sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
        for (int i = 0; i < 300; i++) /* each waits for its end, so that the client rests between them */
            check_echo(channel);
        sg_rpc_client_destroy(client);
        service_stop(&s, 1000);
    }
}

Test(rpc_client, on_demand_one_that_rests_and_one_that_never_called_can_be_destroyed)
{
    service s;
    service_start(&s, NULL, 1);
    sg_rpc_client *client = make(2);
    sg_rpc_client_destroy(client);
    client = make(1);
    check_echo(sg_rpc_client_channel(client, s.address));
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
}

Test(rpc_client, on_demand_a_call_that_is_parked_ends_with_its_client)
{
    service s;
    service_start(&s, NULL, 1);
    sg_rpc_client *client = make(1);
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address);
    outcome o = OUTCOME_INIT;
    sg_rpc_pending *pending =
        sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 30000, outcome_done, &o);
    service_wait_parked(&s, 1);
    sg_rpc_pending_release(pending);
    sg_rpc_client_destroy(client);
    cr_assert_eq(o.n_done, 1);
    cr_assert_eq(o.status, SG_CANCELLED);
    outcome_deinit(&o);
    service_stop(&s, 1000);
}

Test(rpc_client, a_channel_that_was_released_ends_with_its_last_call)
{
    service s;
    service_start(&s, NULL, 1);
    sg_rpc_client *client = make(1);
    sg_rpc_channel_release(NULL);
    sg_rpc_channel_release(sg_rpc_client_channel(client, s.address)); /* one that was never used */
    sg_rpc_channel *channel = sg_rpc_client_channel(client, s.address),
                   *other = sg_rpc_client_channel(client, s.address);
    outcome o = OUTCOME_INIT;
    sg_rpc_pending *pending =
        sg_rpc_channel_call(channel, PARK, push_message(1, NULL, 0, NULL), 30000, outcome_done, &o);
    service_wait_parked(&s, 1);
    cr_assert_eq(sg_rpc_channel_ref(channel), channel);
    sg_rpc_channel_release(channel);
    check_echo(channel); /* somebody has it still */
    sg_rpc_channel_release(channel);
    check_echo(other);
    sg_rpc_pending_cancel(pending);
    sg_rpc_pending_release(pending);
    outcome_wait(&o, 1);
    cr_assert_eq(o.status, SG_CANCELLED);
    check_echo(other);
    sg_rpc_client_destroy(client);
    outcome_deinit(&o);
    service_stop(&s, 1000);
}

Test(rpc_client, without_a_thread_for_it_there_is_none)
{
    for (int n = 0; n < 3; n++) {
        sg_scarcity_allow(n);
        cr_assert_null(make(3));
    }
    sg_scarcity_allow(3);
    sg_rpc_client *client = make(3);
    cr_assert_not_null(client);
    sg_rpc_client_destroy(client);
}

/* --- a peer that is no server of ours --- */

typedef struct unpacking {
    sg_rpc_channel *channel;
    outcome o;
    sg_error error;
} unpacking;

/* Wants another message than the server sends. */
static void unpack_done(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply)
{
    unpacking *u = user;
    sg_wire_parts parts;
    u->error = status == SG_OK ? (sg_error){.code = SG_OK} : *error;
    if (status == SG_OK &&
        sg_rpc_channel_unpack(u->channel, reply, &shardgrad__v1__step__descriptor, &parts, &u->error) == SG_OK)
        sg_wire_parts_deinit(&parts);
    outcome_done(&u->o, u->error.code, &u->error, NULL);
}

static void refuse_without_words(void *user, sg_rpc_call *call)
{
    (void)user;
    sg_rpc_call_fail(call, SG_INVALID, "%s", "");
}

Test(rpc_client, an_answer_that_makes_no_sense_is_told_with_who_sent_it)
{
    service s;
    service_start(&s, NULL, 1);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    unpacking u = {.channel = sg_rpc_client_channel(client, s.address), .o = OUTCOME_INIT};
    sg_rpc_pending_release(
        sg_rpc_channel_call(u.channel, ECHO, push_message(1, "data", 4, NULL), 60000, unpack_done, &u));
    outcome_wait(&u.o, 1);
    cr_assert_eq(u.error.code, SG_INVALID, "%s", u.error.message);
    cr_assert_eq(strncmp(u.error.message, s.address, strlen(s.address)), 0, "%s", u.error.message);
    cr_assert_not_null(strstr(u.error.message, "is another program listening there"), "%s", u.error.message);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    outcome_deinit(&u.o);
}

Test(rpc_client, a_refusal_without_words_is_told_with_who_refused_what)
{
    sg_rpc_method method = {ECHO, refuse_without_words, NULL};
    sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = MESSAGE_BYTES, .methods = &method, .n_methods = 1};
    sg_rpc_server *server;
    sg_error err;
    cr_assert_eq(sg_rpc_server_create(&options, &server, &err), SG_OK, "%s", err.message);
    char address[64], wanted[192];
    snprintf(address, sizeof address, "127.0.0.1:%u", sg_rpc_server_port(server));
    snprintf(wanted, sizeof wanted, "%s: refused " ECHO " and did not say why", address);
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    outcome o = OUTCOME_INIT;
    cr_assert_eq(call_and_wait(sg_rpc_client_channel(client, address), ECHO, push_message(1, NULL, 0, NULL), 60000, &o),
                 SG_INVALID);
    cr_assert_eq(strncmp(o.error.message, wanted, strlen(wanted)), 0, "%s", o.error.message);
    sg_rpc_client_destroy(client);
    sg_rpc_server_destroy(server);
    outcome_deinit(&o);
}
