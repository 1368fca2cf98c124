/* The public interface against a ps that does as the test says: opening, ends of all kinds, several clients. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client_fixture.h"
#include "common/address.h"
#include "common/clock.h"
#include "worker/client/client_internal.h"
#include "worker/client/session_internal.h"

TestSuite(client, .init = client_create, .fini = client_destroy, .timeout = 90);

#define BUSY_MS 25000u /* that a machine may lose to others, and a sanitizer */

Test(client, wrong_options_are_refused_with_the_right_code)
{
    sg_client *client = NULL;
    cr_assert_eq(sg_client_open(&(sg_client_options){0}, &client, NULL), SG_INVALID);
    cr_assert_eq(sg_client_open(&(sg_client_options){.config = "/nowhere/at/all.yaml"}, &client, NULL), SG_NOT_FOUND);
    const char *const set[] = {"workers", NULL};
    cr_assert_eq(sg_client_open(&(sg_client_options){.coordinator = "127.0.0.1:1", .set = set}, &client, NULL),
                 SG_CONFIG);
    const char *const wrong[] = {"workers=1", "update.lr=3", NULL};
    sg_error err;
    cr_assert_eq(sg_client_open(&(sg_client_options){.coordinator = "127.0.0.1:1", .set = wrong}, &client, &err),
                 SG_CONFIG);
    cr_assert_eq(strncmp(err.message, "set update.lr: is not a key", 27), 0, "%s", err.message);
    cr_assert_null(client);
}

Test(client, open_where_nobody_listens_is_unavailable_and_names_the_address)
{
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {.coordinator = "127.0.0.1:1", .start_timeout_ms = 300};
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_UNAVAILABLE, "%s", err.message);
    cr_assert_null(client);
    cr_assert_not_null(strstr(err.message, "127.0.0.1:1"), "%s", err.message);
    cr_assert_lt(sg_clock_ms() - begun_ms, 300 + BUSY_MS);
}

static bool always(void *user)
{
    ++*(int *)user;
    return true;
}

Test(client, open_ends_when_it_is_interrupted)
{
    sg_client *client = NULL;
    int n_asked = 0;
    const sg_client_options options = {
        .coordinator = "127.0.0.1:1", .start_timeout_ms = 60000, .interrupted = always, .interrupted_user = &n_asked};
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_open(&options, &client, NULL), SG_CANCELLED);
    cr_assert_lt(sg_clock_ms() - begun_ms, BUSY_MS);
    cr_assert_gt(n_asked, 0);
}

Test(client, a_refused_hello_is_the_end_of_open)
{
    fake_ps_set(client_ps, refuse_hello, SG_MISMATCH);
    sg_client *client = NULL;
    sg_error err;
    const sg_client_options options = {.coordinator = client_ps->address, .start_timeout_ms = 5000};
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_MISMATCH);
    cr_assert_str_eq(err.message, "the fake refuses you");
}

typedef struct begin_job {
    sg_client *client;
    sg_step step;
    sg_status status;
} begin_job;

static void *begin_in_thread(void *user)
{
    begin_job *job = user;
    job->status = sg_client_begin_step(job->client, &job->step, NULL);
    return NULL;
}

Test(client, an_interrupt_ends_what_waits_and_what_comes_later)
{
    sg_client *client = client_open_declared(client_variables, 1);
    fake_ps_set(client_ps, hold_tickets, true);
    begin_job job = {.client = client};
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, begin_in_thread, &job), 0);
    fake_ps_await_held(client_ps, 1);
    sg_client_interrupt(client);
    pthread_join(thread, NULL);
    cr_assert_eq(job.status, SG_CANCELLED);
    cr_assert_eq(sg_client_begin_step(client, &job.step, NULL), SG_CANCELLED);
    const uint64_t begun_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000 + BUSY_MS);
    cr_assert_eq(fake_ps_count(client_ps, &client_ps->n_leaves), 1);
}

Test(client, a_ps_that_goes_away_is_lost_by_name_and_close_is_quick)
{
    client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {.examples = 1};
    client_begin(client, &step);
    char address[64];
    memcpy(address, client_ps->address, sizeof address);
    fake_ps_destroy(client_ps);
    client_ps = NULL;
    sg_error err;
    const uint64_t begun_ms = sg_clock_ms();
    cr_assert_eq(sg_client_end_step(client, &step, &err), SG_PEER_LOST, "%s", err.message);
    cr_assert_not_null(strstr(err.message, address), "%s", err.message);
    cr_assert_lt(sg_clock_ms() - begun_ms, FAKE_PS_LEASE_MS + BUSY_MS);
    cr_assert_eq(sg_client_begin_step(client, &step, NULL), SG_PEER_LOST);
    const uint64_t close_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - close_ms, 2000 + BUSY_MS);
}

Test(client, close_takes_at_most_two_seconds_where_nobody_hears_the_goodbye)
{
    sg_client *client = client_open_declared(client_variables, 1);
    fake_ps_destroy(client_ps);
    client_ps = NULL;
    const uint64_t begun_ms = sg_clock_ms();
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000 + BUSY_MS);
}

Test(client, close_with_a_push_that_is_never_acknowledged_takes_at_most_two_seconds)
{
    client_fill(client_gradient, CLIENT_N, 1);
    sg_client *client = client_open_declared(client_variables, 1);
    sg_step step = {.examples = 1};
    client_begin(client, &step);
    fake_ps_set(client_ps, refuse_push, SG_NOT_READY);
    const uint32_t first = 0;
    sg_op *op;
    cr_assert_eq(sg_client_push(client, &step, &first, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, 100, NULL), SG_TIMEOUT);
    const uint64_t begun_ms = sg_clock_ms();
    sg_op_cancel(op);
    sg_op_destroy(op);
    sg_client_close(client);
    cr_assert_lt(sg_clock_ms() - begun_ms, 2000 + BUSY_MS);
}

Test(client, the_lease_is_renewed_while_the_caller_computes)
{
    sg_client *client = client_open_declared(client_variables, 1);
    const struct timespec pause = {.tv_nsec = 10000000};
    const uint64_t begun_ms = sg_clock_ms();
    while (fake_ps_count(client_ps, &client_ps->n_heartbeats) < 4 && sg_clock_ms() < begun_ms + 10000)
        nanosleep(&pause, NULL);
    cr_assert_geq(fake_ps_count(client_ps, &client_ps->n_heartbeats), 4);
    sg_client_close(client);
}

static size_t count_entries(const char *folder)
{
    DIR *dir = opendir(folder);
    size_t n = 0;
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

Test(client, a_hundred_clients_one_after_the_other_leave_nothing_behind, .timeout = 60)
{
    size_t threads = 0, files = 0;
    for (int i = 0; i < 100; i++) {
        sg_client_close(client_open_declared(client_variables, 1));
        if (i == 4) {
            threads = count_entries("/proc/self/task");
            files = count_entries("/proc/self/fd");
        }
    }
    /* gRPC's own threads come and go. */
    cr_assert_leq(count_entries("/proc/self/task"), threads + 8);
    cr_assert_leq(count_entries("/proc/self/fd"), files + 8);
}

Test(client, several_clients_live_side_by_side_in_one_process)
{
    fake_ps *second = fake_ps_create();
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 0), client_fill(client_other_gradient, 8, 2);
    sg_client *a = client_open_declared(client_variables, 1);
    sg_client *b = client_open_to(second->address);
    cr_assert_eq(sg_client_declare(b, client_variables + 1, 1, NULL), SG_OK);
    sg_step of_a = {.examples = 1}, of_b = {.examples = 1};
    for (int i = 0; i < 3; i++) {
        client_begin(a, &of_a);
        client_begin(b, &of_b);
        cr_assert_eq(sg_client_end_step(b, &of_b, NULL), SG_OK);
        cr_assert_eq(sg_client_end_step(a, &of_a, NULL), SG_OK);
    }
    cr_assert_eq(client_value[0], 3);
    cr_assert_eq(client_other_value[0], 6);
    sg_client_close(a);
    sg_client_close(b);
    fake_ps_destroy(second);
}

typedef struct group_job {
    sg_client *client;
    uint32_t group;
    sg_status status;
} group_job;

static void *train_group(void *user)
{
    group_job *job = user;
    sg_step step = {.group = job->group, .examples = 1};
    for (int i = 0; i < 50 && job->status == SG_OK; i++) {
        job->status = sg_client_begin_step(job->client, &step, NULL);
        if (job->status == SG_OK)
            job->status = sg_client_end_step(job->client, &step, NULL);
    }
    return NULL;
}

Test(client, two_threads_train_two_groups_through_one_client)
{
    client_fill(client_value, CLIENT_N, 0), client_fill(client_gradient, CLIENT_N, 1),
        client_fill(client_other_value, 8, 0), client_fill(client_other_gradient, 8, 2);
    sg_variable list[2] = {client_variables[0], client_variables[1]};
    list[1].group = 1;
    sg_client *client = client_open_declared(list, 2);
    group_job jobs[2] = {{.client = client}, {.client = client, .group = 1}};
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, train_group, &jobs[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_assert_eq(jobs[i].status, SG_OK);
    }
    cr_assert_eq(client_value[CLIENT_N - 1], 50);
    cr_assert_eq(client_other_value[7], 100);
    sg_client_close(client);
}

typedef struct publishing {
    sg_config *config;
    unsigned n_asked;
} publishing;

/* Asked whether to go on waiting: it has waited, for the address that is there. */
static bool publish_at_last(void *user)
{
    publishing *p = user;
    if (++p->n_asked == 2)
        SG_ASSERT(sg_address_publish(p->config, 0, client_ps->address, NULL) == SG_OK);
    return false;
}

Test(client, a_port_that_the_kernel_chose_is_found_in_the_run_directory_even_when_it_changes)
{
    char folder[] = "/tmp/sg-client-XXXXXX", set[64], path[64];
    cr_assert_not_null(mkdtemp(folder));
    snprintf(set, sizeof set, "run_dir=%s", folder);
    snprintf(path, sizeof path, "%s/cluster.yaml", folder);
    FILE *file = fopen(path, "w");
    fputs("job: job\nps: [\"127.0.0.1:0\"]\n", file);
    fclose(file);
    const sg_config_override override = {.key = "run_dir", .value = folder, .source = "test"};
    sg_config *config;
    cr_assert_eq(sg_config_load(path, &override, 1, &config, NULL), SG_OK);
    cr_assert_eq(sg_address_publish(config, 0, "127.0.0.1:1", NULL), SG_OK); /* of a ps that is no more */
    publishing publish = {.config = config};
    const char *const list[] = {set, NULL};
    const sg_client_options options = {
        .config = path, .set = list, .interrupted = publish_at_last, .interrupted_user = &publish};
    sg_client *client = NULL;
    sg_error err;
    cr_assert_eq(sg_client_open(&options, &client, &err), SG_OK, "%s", err.message);
    sg_client_close(client);
    sg_address_withdraw(config, 0, client_ps->address);
    sg_config_destroy(config);
    unlink(path);
    snprintf(path, sizeof path, "%s/address", folder);
    rmdir(path);
    rmdir(folder);
}

Test(client, rows_of_all_ranks_are_the_whole_batch_without_overlap)
{
    for (uint32_t size = 1; size <= 7; size++)
        for (uint64_t batch = 0; batch <= 20; batch++) {
            uint64_t next = 0;
            for (uint32_t rank = 0; rank < size; rank++) {
                uint64_t first, last;
                sg_step_rows(&(sg_step){.rank = rank, .size = size}, batch, &first, &last);
                cr_assert_eq(first, next);
                cr_assert_geq(last, first);
                next = last;
            }
            cr_assert_eq(next, batch);
        }
}

/* What is under way when a client closes is cancelled by the transport, which knows when nothing of it is left: a
 * thread that learns just then that the session has failed must not hold on to a call of it. */
Test(client, a_session_that_fails_while_the_client_closes_cancels_no_call_by_itself)
{
    sg_client *client = client_open_declared(client_variables, 1);
    fake_ps_set(client_ps, hold_pulls, true);
    sg_step step = {.examples = 1};
    client_begin(client, &step);
    const uint32_t first = 0;
    sg_op *op;
    sg_error err;
    cr_assert_eq(sg_client_pull(client, &step, &first, 1, &op, &err), SG_OK, "%s", err.message);
    fake_ps_await_held(client_ps, 1);
    sg_client_lock(client);
    client->closing = true;
    sg_session_fail(client->session, SG_FENCED, "as a refused heartbeat does");
    sg_client_unlock(client);
    sg_client_lock(client);
    const sg_client_call *call = TAILQ_FIRST(&op->calls);
    cr_assert(call != NULL && !call->cancel_wanted && call->n_references == 1, "it is the transport's alone");
    client->closing = false;
    pthread_mutex_unlock(&client->mutex);
    fake_ps_refuse_held(client_ps);
    sg_op_destroy(op);
    sg_client_close(client);
}
