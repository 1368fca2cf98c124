/* tests/rpc/test_rpc_security.c - tokens, roles and TLS on real connections: who gets in, what the others are told, and
 * what the server says of them. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "common/clock.h"
#include "common/rpc_handshakes.h"
#include "common/rpc_refusals.h"
#include "credentials.h"

TestSuite(rpc_security, .timeout = 120);

#define HEALTH "/grpc.health.v1.Health/Check"

/* --- tokens --- */

static sg_status call_with(const char *token, const char *address, const char *path, sg_error *err)
{
    sg_security *security = credentials_of(NULL, NULL, NULL, token);
    outcome o = OUTCOME_INIT;
    sg_rpc_client *client = sg_rpc_client_create(
        &(sg_rpc_client_options){.threads = 1, .message_bytes = MESSAGE_BYTES, .security = security});
    sg_wire_message *request = push_message(SG_NOT_FOUND, NULL, 0, NULL);
    sg_status status = call_and_wait(sg_rpc_client_channel(client, address), path, request, 20000, &o);
    sg_rpc_client_destroy(client);
    sg_security_destroy(security);
    *err = o.error;
    outcome_deinit(&o);
    return status;
}

Test(rpc_security, a_method_is_for_its_role_and_those_above_it)
{
    static const struct {
        const char *token, *path;
        sg_status status;
        const char *message;
    } rows[] = {
        {ADMIN_TOKEN, ECHO, SG_OK, ""},
        {WORKER_TOKEN, ECHO, SG_OK, ""},
        {OBSERVER_TOKEN, ECHO, SG_DENIED, ECHO ": the token is that of observer, wanted that of worker"},
        {OBSERVER_TOKEN, FAIL_WITH, SG_NOT_FOUND, "worker 7"},
        {WORKER_TOKEN, OVERSIZE, SG_DENIED, OVERSIZE ": the token is that of worker, wanted that of admin"},
        {ADMIN_TOKEN, OVERSIZE, SG_OK, ""},
        {NULL, ECHO, SG_DENIED, ECHO ": the call has no token, wanted that of worker: set security.token_file"},
        {"worker-0123456789abcdeF", ECHO, SG_DENIED, ECHO ": the token is none of this cluster's"},
        {"worker-0123456789abcde", ECHO, SG_DENIED, ECHO ": the token is none of this cluster's"},
        {"worker-0123456789abcdef0", ECHO, SG_DENIED, ECHO ": the token is none of this cluster's"},
        {NULL, "/no.Such/Method", SG_UNIMPLEMENTED, "no method"},
    };
    sg_security *security = credentials_of(NULL, NULL, NULL, NULL);
    credentials_add_tokens(security);
    service s;
    service_start_secured(&s, security, NULL);
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        sg_error err = {0};
        cr_assert_eq(call_with(rows[i].token, s.address, rows[i].path, &err), rows[i].status, "row %zu: %s", i,
                     err.message);
        cr_assert_eq(strncmp(err.message, rows[i].message, strlen(rows[i].message)), 0, "row %zu: %s", i, err.message);
    }
    cr_assert_eq(atomic_load(&s.n_echoed), 2, "no handler ran for a call that was refused");
    service_stop(&s, 1000);
    sg_security_destroy(security);
}

Test(rpc_security, without_tokens_everybody_may_call_everything)
{
    sg_security *security = credentials_of(NULL, NULL, NULL, NULL);
    service s;
    sg_error err;
    service_start_secured(&s, security, NULL);
    cr_assert_eq(call_with(NULL, s.address, OVERSIZE, &err), SG_OK, "%s", err.message);
    cr_assert_eq(call_with(OBSERVER_TOKEN, s.address, OVERSIZE, &err), SG_OK, "%s", err.message);
    service_stop(&s, 1000);
    sg_security_destroy(security);
}

Test(rpc_security, connections_that_failed_are_looked_for_so_often_and_no_more)
{
    sg_rpc_handshakes_looks looks = {0};
    uint64_t now_ms = 5000;
    for (size_t i = 0; i < SG_RPC_HANDSHAKES_LOOKS; i++)
        cr_assert(sg_rpc_handshakes_may_look(&looks, now_ms), "%zu", i);
    size_t n = 0;
    for (size_t i = 0; i < 10000; i++, now_ms++)
        n += sg_rpc_handshakes_may_look(&looks, now_ms);
    cr_assert_eq(n, 10000 / SG_RPC_HANDSHAKES_LOOK_MS - 1); /* the first one after its time */
    now_ms += 3600000;
    for (size_t i = 0; i < SG_RPC_HANDSHAKES_LOOKS; i++)
        cr_assert(sg_rpc_handshakes_may_look(&looks, now_ms), "%zu", i);
    cr_assert_not(sg_rpc_handshakes_may_look(&looks, now_ms), "no more than that were saved up");
}

Test(rpc_security, a_probe_of_its_health_needs_no_token)
{
    sg_security *security = credentials_of(NULL, NULL, NULL, NULL);
    credentials_add_tokens(security);
    service s;
    service_start_secured(&s, security, NULL);
    outcome o = OUTCOME_INIT;
    sg_rpc_client *client = client_make(MESSAGE_BYTES);
    sg_status status = call_and_wait(sg_rpc_client_channel(client, s.address), HEALTH, push_message(0, NULL, 0, NULL),
                                     20000, &o); /* an empty message is an empty message */
    cr_assert_eq(status, SG_OK, "%s", o.error.message);
    outcome_deinit(&o);
    sg_rpc_client_destroy(client);
    service_stop(&s, 1000);
    sg_security_destroy(security);
}

Test(rpc_security, a_refusal_is_logged_once_for_each_peer_and_reason_with_its_address)
{
    static heard_log heard;
    heard_log_init(&heard);
    sg_security *security = credentials_of(NULL, NULL, NULL, NULL);
    credentials_add_tokens(security);
    service s;
    sg_error err;
    service_start_secured(&s, security, &heard.log);
    for (int i = 0; i < 5; i++) {
        cr_assert_eq(call_with(NULL, s.address, ECHO, &err), SG_DENIED);
        cr_assert_eq(call_with(OBSERVER_TOKEN, s.address, ECHO, &err), SG_DENIED);
    }
    cr_assert_eq(heard_log_count(&heard, "peer=ipv4:127.0.0.1:"), 2, "%s", heard.text);
    cr_assert_eq(heard_log_count(&heard, "has no token"), 1, "%s", heard.text);
    cr_assert_eq(heard_log_count(&heard, "that of observer, wanted that of worker"), 1, "%s", heard.text);
    cr_assert_eq(heard_log_count(&heard, "0123456789abcdef"), 0, "no secret is logged");
    service_stop(&s, 1000);
    sg_security_destroy(security);
}

Test(rpc_security, beyond_the_peers_that_are_kept_apart_refusals_are_told_now_and_then)
{
    static heard_log heard;
    heard_log_init(&heard);
    sg_rpc_refusals *refusals = sg_rpc_refusals_create(&heard.log);
    for (int i = 0; i < 10000; i++) {
        char peer[64];
        snprintf(peer, sizeof peer, "ipv6:[2001:db8::%x]:%d", i, 1000 + i % 7);
        sg_rpc_refusals_tell(refusals, peer, ECHO, "why");
    }
    size_t n = heard_log_count(&heard, "peer=");
    cr_assert(n > 256 && n < 300, "%zu lines", n);
    sg_rpc_refusals_destroy(refusals);
}

Test(rpc_security, what_the_error_of_a_call_says_grpc_does_not_say_too)
{
    cr_assert(
        sg_rpc_handshakes_hear("TlsChannelSecurityConnector::cancel_check_peer error: UNKNOWN:Handshake timed out"));
    cr_assert_not(sg_rpc_handshakes_hear("something else"));
}

Test(rpc_security, a_refused_peer_is_logged_as_people_write_it)
{
    static heard_log heard;
    heard_log_init(&heard);
    sg_rpc_refusals *refusals = sg_rpc_refusals_create(&heard.log);
    sg_rpc_refusals_tell(refusals, "ipv6:%5B::1%5D:34764", ECHO, "why");
    cr_assert_eq(heard_log_count(&heard, "peer=ipv6:[::1]:34764 "), 1, "%s", heard.text);
    sg_rpc_refusals_destroy(refusals);
}

Test(rpc_security, a_token_does_not_leave_this_machine_in_the_clear)
{
    sg_security *server = credentials_of(NULL, NULL, NULL, NULL);
    sg_security *client = credentials_of(NULL, NULL, NULL, WORKER_TOKEN);
    credentials_add_tokens(server);
    service s;
    sg_error err;
    char address[64];
    service_start_secured(&s, server, NULL);
    /* Leads to this machine, but is not known to. */
    snprintf(address, sizeof address, "0.0.0.0:%u", sg_rpc_server_port(s.server));
    cr_assert_eq(credentials_echo(client, address, &err), SG_DENIED);
    cr_assert_not_null(strstr(err.message, "has no token"), "%s", err.message);
    client->insecure = true;
    cr_assert_eq(credentials_echo(client, address, &err), SG_OK, "%s", err.message);
    service_stop(&s, 1000);
    sg_security_destroy(client);
    sg_security_destroy(server);
}

/* --- TLS --- */

typedef struct secured {
    heard_log heard;
    sg_security *server, *client;
    service s;
} secured;

static void secured_start(secured *t)
{
    credentials_make();
    heard_log_init(&t->heard);
    t->server = credentials_of("ours/ca.pem", "ours/localhost.pem", "ours/localhost.key", NULL);
    t->client = credentials_of("ours/ca.pem", "ours/localhost.pem", "ours/localhost.key", WORKER_TOKEN);
    credentials_add_tokens(t->server);
    service_start_secured(&t->s, t->server, &t->heard.log);
}

static void secured_stop(secured *t)
{
    service_stop(&t->s, 1000);
    sg_security_destroy(t->server);
    sg_security_destroy(t->client);
    credentials_remove();
}

Test(rpc_security, who_has_a_certificate_of_the_ca_and_a_token_gets_in)
{
    static secured t;
    sg_error err;
    secured_start(&t);
    cr_assert_eq(credentials_echo(t.client, t.s.address, &err), SG_OK, "%s", err.message);
    cr_assert_str_eq(t.heard.text, "");
    secured_stop(&t);
}

Test(rpc_security, nobody_else_gets_in_and_each_is_told_and_logged_once)
{
    static const struct {
        const char *ca, *certificate, *key;
        sg_status status;
        const char *told, *logged;
    } rows[] = {
        {NULL, NULL, NULL, SG_UNAVAILABLE, "perhaps it wants TLS", "the peer does not speak TLS"},
        {"other/ca.pem", "other/localhost.pem", "other/localhost.key", SG_DENIED,
         "its certificate is not one of security.ca", "the peer hung up while TLS began"},
        {"ours/ca.pem", "other/localhost.pem", "other/localhost.key", SG_UNAVAILABLE,
         "perhaps it does not accept security.certificate", "the peer's certificate is not one of this CA"},
        {"ours/ca.pem", "ours/expired.pem", "ours/expired.key", SG_UNAVAILABLE,
         "perhaps it does not accept security.certificate", NULL}, /* as the one before: logged already */
    };
    static secured t;
    secured_start(&t);
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        sg_security *security = credentials_of(rows[i].ca, rows[i].certificate, rows[i].key, WORKER_TOKEN);
        for (int again = 0; again < 3; again++) {
            sg_error err = {0};
            cr_assert_eq(credentials_echo(security, t.s.address, &err), rows[i].status, "row %zu: %s", i, err.message);
            cr_assert_not_null(strstr(err.message, rows[i].told), "row %zu: %s", i, err.message);
        }
        sg_security_destroy(security);
        uint64_t give_up_ms = sg_clock_ms() + 20000; /* the server may hear of it later than the client */
        while (rows[i].logged != NULL && heard_log_count(&t.heard, rows[i].logged) == 0 && sg_clock_ms() < give_up_ms)
            usleep(1000);
        if (rows[i].logged != NULL)
            cr_assert_eq(heard_log_count(&t.heard, rows[i].logged), 1, "row %zu: %s", i, t.heard.text);
    }
    cr_assert_eq(heard_log_count(&t.heard, "\n"), 3, "%s", t.heard.text);
    cr_assert_eq(heard_log_count(&t.heard, "peer=ipv4:127.0.0.1:"), 3, "%s", t.heard.text);
    cr_assert_eq(atomic_load(&t.s.n_echoed), 0);
    sg_error err;
    cr_assert_eq(credentials_echo(t.client, t.s.address, &err), SG_OK, "the right ones still get in: %s", err.message);
    secured_stop(&t);
}

Test(rpc_security, a_server_whose_certificate_names_another_host_is_not_trusted)
{
    static secured t;
    sg_error err = {0};
    secured_start(&t);
    credentials_do("cd $D/ours && openssl req -new -key localhost.key -subj /CN=x -out x.csr 2>/dev/null && "
                   "printf 'subjectAltName=DNS:elsewhere\\n' > x.ext && openssl x509 -req -in x.csr -CA ca.pem -CAkey "
                   "ca.key -set_serial 7 -days 2 -extfile x.ext -out elsewhere.pem 2>/dev/null");
    sg_security *elsewhere = credentials_of("ours/ca.pem", "ours/elsewhere.pem", "ours/localhost.key", NULL);
    service other;
    service_start_secured(&other, elsewhere, NULL);
    cr_assert_eq(credentials_echo(t.client, other.address, &err), SG_DENIED, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "its certificate does not name this host"), "%s", err.message);
    service_stop(&other, 1000);
    sg_security_destroy(elsewhere);
    secured_stop(&t);
}

/* Calls on connections old and new, until `reached` says so: none may fail. */
static void load_until(secured *t, sg_rpc_client *client, sg_rpc_channel *old, bool (*reached)(secured *t))
{
    uint64_t give_up_ms = sg_clock_ms() + 60000;
    do {
        check_echo(old);
        check_echo(sg_rpc_client_channel(client, t->s.address));
        cr_assert_lt(sg_clock_ms(), give_up_ms);
    } while (!reached(t));
}

static service probe; /* of the other CA */
static sg_rpc_client *rotating;

static bool knows(const char *ca, const char *certificate, const char *key, const char *address)
{
    sg_error err;
    sg_security *security = credentials_of(ca, certificate, key, WORKER_TOKEN);
    sg_status status = credentials_echo(security, address, &err);
    sg_security_destroy(security);
    return status == SG_OK;
}

/* Both sides know both CAs. */
static bool both_are_known(secured *t)
{
    outcome o = OUTCOME_INIT;
    sg_rpc_channel *channel = sg_rpc_client_channel(rotating, probe.address);
    sg_status status = call_and_wait(channel, ECHO, push_message(1, NULL, 10, NULL), 20000, &o);
    outcome_deinit(&o);
    return status == SG_OK && knows("both.pem", "other/localhost.pem", "other/localhost.key", t->s.address);
}

/* The server shows its new certificate. */
static bool new_is_shown(secured *t)
{
    return knows("other/ca.pem", "ours/localhost.pem", "ours/localhost.key", t->s.address);
}

/* The old CA is forgotten. */
static bool old_is_refused(secured *t)
{
    return !knows("both.pem", "first/localhost.pem", "first/localhost.key", t->s.address);
}

/* A certificate and its key change at once: "ours" is a link. */
static void replace_ours(const char *before, const char *after, const char *change)
{
    char *line = sg_xprintf("cp -r $D/%s $D/%s; cd $D/%s; %s; ln -s %s $D/link; mv -T $D/link $D/ours", before, after,
                            after, change, after);
    credentials_do(line);
    free(line);
}

Test(rpc_security, certificates_and_ca_are_replaced_under_load_and_no_call_fails)
{
    static secured t;
    secured_start(&t);
    credentials_do("cat $D/ours/ca.pem $D/other/ca.pem > $D/both.pem");
    sg_security *other = credentials_of("both.pem", "other/localhost.pem", "other/localhost.key", NULL);
    service_start_secured(&probe, other, NULL);
    rotating = sg_rpc_client_create(
        &(sg_rpc_client_options){.threads = 1, .message_bytes = MESSAGE_BYTES, .security = t.client});
    sg_rpc_channel *old = sg_rpc_client_channel(rotating, t.s.address);
    check_echo(old);
    cr_assert_not(both_are_known(&t), "or there is nothing to see");
    replace_ours("first", "second", "cp ../both.pem ca.pem");
    load_until(&t, rotating, old, both_are_known);
    replace_ours("second", "third", "cp ../other/localhost.key ../other/localhost.pem .");
    load_until(&t, rotating, old, new_is_shown);
    replace_ours("third", "fourth", "cp ../other/ca.pem ca.pem");
    load_until(&t, rotating, old, old_is_refused);
    sg_rpc_client_destroy(rotating);
    service_stop(&probe, 1000);
    sg_security_destroy(other);
    secured_stop(&t);
}
