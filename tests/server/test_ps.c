#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/address.h"
#include "common/clock.h"
#include "common/rpc_server.h"
#include "ps_fixture.h"
#include "tests/support/scarcity.h"

TestSuite(ps, .timeout = 30);

#define ONE_PS "ps: ['127.0.0.1:0']\n"
#define TWO_PS "ps: ['127.0.0.1:0', '127.0.0.1:0']\n"

/* Waits, by asking the coordinator for its status, until it has come to this state. */
static void wait_for_state(const char *coordinator, Shardgrad__V1__JobState state)
{
    sg_rpc_client *client = sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1, .message_bytes = 1u << 20});
    sg_rpc_channel *channel = sg_rpc_client_channel(client, coordinator);
    Shardgrad__V1__StatusRequest request = SHARDGRAD__V1__STATUS_REQUEST__INIT;
    for (bool there = false; !there;) {
        wire_call call;
        wire_call_start(&call, channel, "/shardgrad.v1.CoordinatorService/Status", &request.base, NULL, 0,
                        &shardgrad__v1__status_response__descriptor, 5000);
        there = wire_call_wait(&call) == SG_OK && ((const Shardgrad__V1__StatusResponse *)call.reply)->state == state;
        wire_call_deinit(&call);
    }
    sg_rpc_client_destroy(client);
}

static void join(ps_thread *t, sg_status want, const char *text)
{
    sg_status got = ps_thread_join(t);
    cr_assert_eq(got, want, "ended with %s: %s", sg_status_name(got), got == SG_OK ? "" : t->error.message);
    if (text)
        cr_assert_not_null(strstr(t->error.message, text), "'%s' does not say '%s'", t->error.message, text);
}

/* --- a job --- */

static void train_a_job(const char *mode)
{
    char dir[64], text[256];
    ps_fixture_make_dir(dir);
    snprintf(text, sizeof text, TWO_PS "workers: 1\nupdate: {mode: %s, rule: sgd, learning_rate: 1.0}\n", mode);
    sg_config *config = ps_fixture_config(dir, text);
    ps_thread ps[2];
    for (uint32_t i = 0; i < 2; i++)
        ps_thread_start(&ps[i], config, i, NULL, NULL);
    wire_worker worker;
    wire_worker_join(&worker, 0, sg_ps_address(ps[0].ps), "test");
    wire_worker_declare(&worker, 5.0f);
    for (uint64_t step = 0; step < 3; step++) {
        wire_worker_ticket(&worker, step);
        sg_error err;
        cr_assert_eq(wire_worker_push(&worker, 1.0f, &err), SG_OK, "%s", err.message);
        for (uint32_t slice = 0; slice < worker.plan->n_slices; slice++)
            wire_worker_expect(&worker, slice, step + 1, 4.0f - (float)step);
    }
    wire_worker_leave(&worker, 3);
    join(&ps[0], SG_OK, NULL);
    join(&ps[1], SG_OK, NULL);
    wire_worker_deinit(&worker);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, two_of_one_process_serve_a_job_to_its_end)
{
    train_a_job("sync");
}

Test(ps, two_of_one_process_serve_an_asynchronous_job_to_its_end)
{
    train_a_job("async");
}

/* Others reach it through a network that does not lead back to it: here by an address at which nobody listens. Orders
 * of its own coordinator come all the same. */
Test(ps, the_first_needs_no_address_of_others_to_reach_itself)
{
    char dir[64], address[SG_ADDRESS_BYTES];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS "advertise: ['127.0.0.2:0']\nworkers: 1\n");
    ps_thread ps;
    ps_thread_start(&ps, config, 0, NULL, NULL);
    cr_assert_eq(strncmp(sg_ps_address(ps.ps), "127.0.0.2:", 10), 0);
    snprintf(address, sizeof address, "127.0.0.1%s", strrchr(sg_ps_address(ps.ps), ':'));
    wire_worker worker;
    wire_worker_join(&worker, 0, address, "test");
    wire_worker_leave(&worker, 0);
    join(&ps, SG_OK, NULL);
    wire_worker_deinit(&worker);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

/* A ps 0 with one worker that has its first ticket; workers 1. */
typedef struct job {
    char dir[64];
    sg_config *config;
    ps_thread ps;
    wire_worker worker;
} job;

static void job_start(job *j, const char *text)
{
    char whole[512];
    ps_fixture_make_dir(j->dir);
    snprintf(whole, sizeof whole, ONE_PS "workers: 1\n%s", text);
    j->config = ps_fixture_config(j->dir, whole);
    ps_thread_start(&j->ps, j->config, 0, NULL, NULL);
    wire_worker_join(&j->worker, 0, sg_ps_address(j->ps.ps), "test");
    wire_worker_declare(&j->worker, 0.0f);
    wire_worker_ticket(&j->worker, 0);
}

static void job_end(job *j)
{
    wire_worker_deinit(&j->worker);
    sg_config_destroy(j->config);
    ps_fixture_remove_dir(j->dir);
}

static const uint32_t all_slices[] = {0, 1, 2};

Test(ps, a_push_pull_brings_back_what_it_made_a_repeat_too)
{
    job j;
    job_start(&j, "update: {mode: sync, rule: sgd, learning_rate: 1.0}\n");
    for (int i = 0; i < 2; i++) {
        wire_call call;
        wire_worker_start_push_pull(&j.worker, &call, all_slices, 3, 2.0f);
        cr_assert_eq(wire_call_wait(&call), SG_OK, "%s", call.error.message);
        const Shardgrad__V1__PushPullResponse *response = (const Shardgrad__V1__PushPullResponse *)call.reply;
        cr_assert_eq(response->dtype, SHARDGRAD__V1__DATA_TYPE__DATA_TYPE_FLOAT32);
        cr_assert_eq(response->n_versions, 3);
        cr_assert_eq(response->n_non_finite, 0);
        cr_assert_eq(call.n_values, WIRE_ELEMS);
        for (size_t k = 0; k < WIRE_ELEMS; k++)
            cr_assert_eq(call.values[k], -2.0f);
        for (size_t k = 0; k < 3; k++)
            cr_assert_eq(response->versions[k], 1);
        wire_call_deinit(&call);
    }
    sg_ps_stop(j.ps.ps);
    join(&j.ps, SG_OK, NULL);
    job_end(&j);
}

/* A ps 0 with two workers that have their first tickets. */
typedef struct pair {
    char dir[64];
    sg_config *config;
    ps_thread ps;
    wire_worker workers[2];
} pair;

static void *ask_for_ticket(void *user)
{
    wire_worker_ticket(user, 0);
    return NULL;
}

static void pair_start(pair *p)
{
    pthread_t thread;
    ps_fixture_make_dir(p->dir);
    p->config = ps_fixture_config(p->dir, ONE_PS "workers: 2\nlease_ms: 90000\n"
                                                 "update: {mode: sync, rule: sgd, learning_rate: 1.0}\n");
    ps_thread_start(&p->ps, p->config, 0, NULL, NULL);
    for (uint32_t i = 0; i < 2; i++) {
        wire_worker_join(&p->workers[i], i, sg_ps_address(p->ps.ps), "test");
        wire_worker_declare(&p->workers[i], 0.0f);
    }
    pthread_create(&thread, NULL, ask_for_ticket, &p->workers[0]); /* answered when both have asked */
    ask_for_ticket(&p->workers[1]);
    pthread_join(thread, NULL);
}

static void pair_end(pair *p)
{
    sg_ps_stop(p->ps.ps);
    join(&p->ps, SG_OK, NULL);
    for (uint32_t i = 0; i < 2; i++)
        wire_worker_deinit(&p->workers[i]);
    sg_config_destroy(p->config);
    ps_fixture_remove_dir(p->dir);
}

static void push_pull(wire_worker *worker, float value, size_t want_values)
{
    wire_call call;
    wire_worker_start_push_pull(worker, &call, all_slices, 3, value);
    cr_assert_eq(wire_call_wait(&call), SG_OK, "%s", call.error.message);
    cr_assert_eq(((const Shardgrad__V1__PushPullResponse *)call.reply)->n_versions, want_values == 0 ? 0 : 3);
    cr_assert_eq(call.n_values, want_values);
    for (size_t i = 0; i < call.n_values; i++)
        cr_assert_eq(call.values[i], -3.0f);
    wire_call_deinit(&call);
}

Test(ps, a_push_pull_that_waits_for_another_worker_is_only_acknowledged)
{
    pair p;
    pair_start(&p);
    push_pull(&p.workers[0], 2.0f, 0);
    push_pull(&p.workers[1], 4.0f, WIRE_ELEMS);
    push_pull(&p.workers[0], 2.0f, WIRE_ELEMS); /* a repeat */
    for (uint32_t slice = 0; slice < 3; slice++)
        wire_worker_expect(&p.workers[0], slice, 1, -3.0f);
    pair_end(&p);
}

Test(ps, it_ends_with_received_messages_in_which_contributions_wait)
{
    pair p;
    pair_start(&p);
    push_pull(&p.workers[1], 4.0f, 0);
    pair_end(&p);
}

Test(ps, a_pull_that_waits_is_answered_at_its_deadline_with_whom_it_waits_for)
{
    job j;
    job_start(&j, "");
    wire_call call;
    wire_worker_start_pull(&j.worker, &call, 0, 1, 1000);
    cr_assert_eq(wire_call_wait(&call), SG_TIMEOUT);
    cr_assert_str_eq(call.error.message, "waiting for the first push, group 0, step 0");
    wire_call_deinit(&call);
    sg_ps_stop(j.ps.ps);
    join(&j.ps, SG_OK, NULL);
    job_end(&j);
}

Test(ps, a_failed_job_ends_the_pulls_that_wait_and_the_ps_with_the_same_words)
{
    job j;
    job_start(&j, "lease_ms: 2000\npark_ms: 500\nshutdown_grace_ms: 4000\non_worker_loss: abort\n");
    wire_worker other; /* nobody sends heartbeats; worker 0 is lost first, and this one is to be told, however late */
    wire_worker_join(&other, 1, sg_ps_address(j.ps.ps), "test");
    wire_worker_declare(&other, 0);
    wire_call call;
    sg_status status = SG_WAITING;
    for (int i = 0; status == SG_WAITING; i++) {
        if (i > 0)
            wire_call_deinit(&call);
        wire_worker_start_pull(&other, &call, 0, 1, 20000);
        status = wire_call_wait(&call);
    }
    cr_assert_eq(status, SG_PEER_LOST, "%s: %s", sg_status_name(status), call.error.message);
    cr_assert_not_null(strstr(call.error.message, "worker 0"), "%s", call.error.message);
    join(&j.ps, SG_PEER_LOST, call.error.message);
    wire_call_deinit(&call);
    wire_worker_deinit(&other);
    job_end(&j);
}

/* --- told to stop --- */

#define MAX_STOP_MS 6000u /* the grace is 2 s; the rest is for a busy machine */

static void stop_in_time(ps_thread *t)
{
    uint64_t began_ms = sg_clock_ms();
    sg_ps_stop(t->ps);
    join(t, SG_OK, NULL);
    uint64_t took_ms = sg_clock_ms() - began_ms;
    cr_assert_lt(took_ms, MAX_STOP_MS, "it took %lu ms", took_ms);
}

Test(ps, it_stops_when_it_is_idle_and_its_port_can_be_bound_again_at_once)
{
    char dir[64], text[128];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS);
    ps_thread t;
    ps_thread_start(&t, config, 0, NULL, NULL);
    snprintf(text, sizeof text, "ps: ['%s']\n", sg_ps_address(t.ps));
    wait_for_state(sg_ps_address(t.ps), SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES);
    stop_in_time(&t);
    sg_config *same_port = ps_fixture_config(dir, text);
    ps_thread_start(&t, same_port, 0, NULL, NULL);
    stop_in_time(&t);
    sg_config_destroy(same_port);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, it_stops_without_its_peers)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS);
    ps_thread t;
    for (uint32_t index = 0; index < 2; index++) {
        ps_thread_start(&t, config, index, NULL, NULL);
        stop_in_time(&t);
    }
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, it_stops_before_it_ran)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS);
    sg_ps *ps;
    sg_error err;
    cr_assert_eq(sg_ps_create(&(sg_ps_options){.config = config}, &ps, &err), SG_OK);
    sg_ps_stop(ps);
    sg_ps_destroy(ps);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, it_stops_with_pulls_waiting_and_tells_them)
{
    job j;
    job_start(&j, "lease_ms: 90000\npark_ms: 60000\n");
    wire_call calls[4];
    for (int i = 0; i < 4; i++)
        wire_worker_start_pull(&j.worker, &calls[i], 0, 1, 20000);
    stop_in_time(&j.ps);
    for (int i = 0; i < 4; i++) {
        sg_status status = wire_call_wait(&calls[i]);
        cr_assert(status == SG_STOPPED || status == SG_UNAVAILABLE, "%s", sg_status_name(status));
        wire_call_deinit(&calls[i]);
    }
    job_end(&j);
}

Test(ps, it_stops_in_the_middle_of_pushes)
{
    job j;
    job_start(&j, "update: {mode: async}\n");
    wire_call calls[200];
    sg_error err;
    cr_assert_eq(wire_worker_push(&j.worker, 1.0f, &err), SG_OK, "%s", err.message);
    for (size_t i = 0; i < SG_ARRAY_LEN(calls); i++)
        wire_worker_start_push(&j.worker, &calls[i], (uint32_t)i % 3, 1.0f);
    stop_in_time(&j.ps);
    for (size_t i = 0; i < SG_ARRAY_LEN(calls); i++) {
        sg_status status = wire_call_wait(&calls[i]);
        cr_assert(status == SG_OK || status == SG_STOPPED || status == SG_UNAVAILABLE || status == SG_CANCELLED,
                  "%s: %s", sg_status_name(status), calls[i].error.message);
        wire_call_deinit(&calls[i]);
    }
    job_end(&j);
}

Test(ps, when_one_stops_the_job_does)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS);
    ps_thread ps[2];
    for (uint32_t i = 0; i < 2; i++)
        ps_thread_start(&ps[i], config, i, NULL, NULL);
    wait_for_state(sg_ps_address(ps[0].ps), SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES);
    stop_in_time(&ps[1]);
    join(&ps[0], SG_OK, NULL);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

/* A caller that has gone while its Hello waited for ps 1. */
Test(ps, a_parked_call_whose_client_has_gone_is_forgotten)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS "lease_ms: 90000\npark_ms: 60000\n");
    ps_thread t;
    ps_thread_start(&t, config, 0, NULL, NULL);
    wait_for_state(sg_ps_address(t.ps), SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS);
    sg_rpc_client *client = sg_rpc_client_create(&(sg_rpc_client_options){.threads = 1, .message_bytes = 1u << 20});
    sg_rpc_channel *channel = sg_rpc_client_channel(client, sg_ps_address(t.ps));
    Shardgrad__V1__HelloRequest request = SHARDGRAD__V1__HELLO_REQUEST__INIT;
    request.protocol_version = 1;
    request.job = (char *)"test";
    request.life = 5;
    wire_call calls[8];
    for (int i = 0; i < 8; i++)
        wire_call_start(&calls[i], channel, "/shardgrad.v1.CoordinatorService/Hello", &request.base, NULL, 0,
                        &shardgrad__v1__hello_response__descriptor, 20000);
    wait_for_state(sg_ps_address(t.ps), SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS);
    for (int i = 0; i < 8; i++) {
        sg_rpc_pending_cancel(calls[i].pending);
        cr_assert_eq(wire_call_wait(&calls[i]), SG_CANCELLED, "%s", calls[i].error.message);
        wire_call_deinit(&calls[i]);
    }
    sg_rpc_client_destroy(client);
    stop_in_time(&t);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

/* --- addresses --- */

Test(ps, its_address_is_written_where_others_look_and_removed_at_its_end)
{
    char dir[64], found[SG_ADDRESS_BYTES];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS "advertise: ['localhost:0']\n");
    ps_thread t;
    ps_thread_start(&t, config, 0, NULL, NULL);
    sg_error err;
    cr_assert_eq(sg_address_find(config, 0, found, &err), SG_OK, "%s", err.message);
    cr_assert_str_eq(found, sg_ps_address(t.ps));
    cr_assert_eq(strncmp(found, "localhost:", 10), 0, "%s", found);
    cr_assert_str_neq(found, "localhost:0");
    stop_in_time(&t);
    cr_assert_eq(sg_address_find(config, 0, found, &err), SG_NOT_READY);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, an_address_left_by_an_earlier_run_does_not_mislead_it)
{
    char dir[64], stale[SG_ADDRESS_BYTES];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS);
    sg_rpc_server *other; /* which knows no Register */
    sg_error err;
    sg_rpc_server_options options = {.address = "127.0.0.1:0", .threads = 1, .message_bytes = 1u << 20};
    cr_assert_eq(sg_rpc_server_create(&options, &other, &err), SG_OK);
    snprintf(stale, sizeof stale, "127.0.0.1:%u", sg_rpc_server_port(other));
    cr_assert_eq(sg_address_publish(config, 0, stale, &err), SG_OK);
    ps_thread ps[2];
    ps_thread_start(&ps[1], config, 1, NULL, NULL);
    ps_thread_start(&ps[0], config, 0, NULL, NULL);
    wait_for_state(sg_ps_address(ps[0].ps), SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES);
    stop_in_time(&ps[0]);
    join(&ps[1], SG_OK, NULL);
    sg_rpc_server_destroy(other);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

/* --- what cannot work --- */

Test(ps, an_index_out_of_range_and_a_port_in_use_are_configuration_errors)
{
    char dir[64], text[128];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS);
    sg_ps *first, *second;
    sg_error err;
    cr_assert_eq(sg_ps_create(&(sg_ps_options){.config = config, .index = 1}, &second, &err), SG_CONFIG);
    cr_assert_str_eq(err.message, "there is no ps 1: the cluster file lists 1 ps, from 0");
    cr_assert_eq(sg_ps_create(&(sg_ps_options){.config = config}, &first, &err), SG_OK);
    snprintf(text, sizeof text, "ps: ['%s']\n", sg_ps_address(first));
    sg_config *same_port = ps_fixture_config(dir, text);
    cr_assert_eq(sg_ps_create(&(sg_ps_options){.config = same_port}, &second, &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, sg_ps_address(first)), "%s", err.message);
    sg_ps_destroy(first);
    sg_config_destroy(same_port);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, what_the_system_has_no_more_of_is_an_error)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, ONE_PS);
    sg_ps_options options = {.config = config, .index = 0};
    sg_ps *ps = NULL;
    sg_error err;
    int n = 0;
    for (sg_status status = SG_EXHAUSTED; status != SG_OK; n++) {
        sg_scarcity_allow(n);
        status = sg_ps_create(&options, &ps, &err);
        cr_assert(status == SG_OK || status == SG_EXHAUSTED, "%s: %s", sg_status_name(status), err.message);
    }
    cr_assert_gt(n, 5, "it needs a loop, two ways to wake, and threads");
    sg_ps_destroy(ps);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, it_gives_up_on_a_coordinator_that_does_not_come)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS "start_timeout_ms: 400\nshutdown_grace_ms: 100\n");
    ps_thread t;
    ps_thread_start(&t, config, 1, NULL, NULL);
    join(&t, SG_UNAVAILABLE, "ps 0 did not come within 400 ms");
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

Test(ps, it_is_refused_with_another_configuration_or_of_another_job)
{
    char dir[64];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS);
    sg_config *differs = ps_fixture_config(dir, TWO_PS "update: {rule: adam}\nshutdown_grace_ms: 100\n");
    ps_thread ps[2];
    ps_thread_start(&ps[0], config, 0, NULL, NULL);
    ps_thread_start(&ps[1], differs, 1, NULL, NULL);
    join(&ps[1], SG_CONFIG, "update.rule");
    stop_in_time(&ps[0]);
    sg_config_destroy(differs);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}

/* A coordinator that accepts one registration and then nothing more. */
static void register_once(void *user, sg_rpc_call *call)
{
    atomic_int *n_calls = user;
    if (atomic_fetch_add(n_calls, 1) > 0) {
        sg_rpc_call_fail(call, SG_UNAVAILABLE, "gone");
        return;
    }
    Shardgrad__V1__RegisterResponse response = SHARDGRAD__V1__REGISTER_RESPONSE__INIT;
    response.generation = 1;
    response.lease_ms = 500;
    sg_rpc_call_reply(call, &response.base, NULL, 0);
}

Test(ps, it_ends_when_it_has_lost_the_coordinator)
{
    char dir[64], address[SG_ADDRESS_BYTES];
    ps_fixture_make_dir(dir);
    sg_config *config = ps_fixture_config(dir, TWO_PS "shutdown_grace_ms: 100\n");
    atomic_int n_calls = 0;
    sg_rpc_method method = {"/shardgrad.v1.CoordinatorService/Register", register_once, &n_calls};
    sg_rpc_server_options options = {
        .address = "127.0.0.1:0", .threads = 1, .message_bytes = 1u << 20, .methods = &method, .n_methods = 1};
    sg_rpc_server *coordinator;
    sg_error err;
    cr_assert_eq(sg_rpc_server_create(&options, &coordinator, &err), SG_OK);
    snprintf(address, sizeof address, "127.0.0.1:%u", sg_rpc_server_port(coordinator));
    ps_thread t;
    ps_thread_start(&t, config, 1, address, NULL);
    join(&t, SG_PEER_LOST, "it accepted no renewal for 500 ms");
    cr_assert_gt(n_calls, 1);
    sg_rpc_server_destroy(coordinator);
    sg_config_destroy(config);
    ps_fixture_remove_dir(dir);
}
