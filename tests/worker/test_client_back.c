/* Steps that come to nothing because the job goes back or on without the worker: what each caller hears of it, and that
 * all of them go on. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "client_fixture.h"
#include "common/clock.h"
#include "common/status.h"

TestSuite(client_back, .init = client_create, .fini = client_destroy, .timeout = 60);

/* One group for each of the two variables. */
static sg_client *open_with_two_groups(void)
{
    sg_variable list[2] = {client_variables[0], client_variables[1]};
    list[1].group = 1;
    return client_open_declared(list, 2);
}

static void roll_back(sg_client *client, sg_step *step)
{
    fake_ps_set(client_ps, refuse_push, SG_ROLLED_BACK);
    cr_assert_eq(sg_client_end_step(client, step, NULL), SG_ROLLED_BACK);
    fake_ps_set(client_ps, refuse_push, SG_OK);
}

Test(client_back, whoever_computes_while_another_thread_brings_the_client_back_hears_of_it)
{
    sg_client *client = open_with_two_groups();
    sg_step steps[2] = {{.examples = 1}, {.examples = 1, .group = 1}};
    client_begin(client, &steps[0]);
    client_begin(client, &steps[1]);
    roll_back(client, &steps[0]);
    client_begin(client, &steps[0]);
    const uint32_t variable = 1;
    const sg_range part = {.variable = 1, .n_elems = 8};
    sg_op *op = NULL;
    sg_error err;
    cr_assert_eq(sg_client_push(client, &steps[1], &variable, 1, &op, NULL), SG_ROLLED_BACK);
    cr_assert_eq(sg_client_pull(client, &steps[1], &variable, 1, &op, NULL), SG_ROLLED_BACK);
    cr_assert_eq(sg_client_push_pull(client, &steps[1], &variable, 1, &op, NULL), SG_ROLLED_BACK);
    cr_assert_eq(sg_client_push_pull_ranges(client, &steps[1], &part, 1, &op, NULL), SG_ROLLED_BACK);
    cr_assert_eq(sg_client_end_step(client, &steps[1], &err), SG_ROLLED_BACK);
    cr_assert_not_null(strstr(err.message, "refuses your push"), "%s", err.message);
    for (uint64_t i = 0; i < 2; i++) {
        client_begin(client, &steps[1]);
        cr_assert_eq(steps[1].number, i);
        cr_assert_eq(sg_client_end_step(client, &steps[1], NULL), SG_OK);
        cr_assert_eq(sg_client_end_step(client, &steps[0], NULL), SG_OK);
        client_begin(client, &steps[0]);
    }
    sg_client_close(client);
}

Test(client_back, a_group_of_which_no_step_was_begun_has_nothing_to_hear)
{
    sg_client *client = open_with_two_groups();
    sg_step step = {.examples = 1};
    client_begin(client, &step);
    roll_back(client, &step);
    client_begin(client, &step);
    const uint32_t variable = 1;
    sg_op *op = NULL;
    client_begin(client, &(sg_step){.group = 1});
    cr_assert_eq(sg_client_push_pull(client, &(sg_step){.group = 1, .examples = 1}, &variable, 1, &op, NULL), SG_OK);
    cr_assert_eq(sg_op_wait(op, UINT64_MAX, NULL), SG_OK);
    sg_op_destroy(op);
    sg_client_close(client);
}

typedef struct stepping {
    sg_client *client;
    uint32_t group;
    atomic_bool *enough;
    sg_status begun, ended; /* the first that is not to be */
    sg_error err;
} stepping;

static void *step_on(void *user)
{
    stepping *s = user;
    sg_step step = {.group = s->group, .examples = 1};
    while (!atomic_load(s->enough) && s->begun == SG_OK && s->ended == SG_OK) {
        s->begun = sg_client_begin_step(s->client, &step, &s->err);
        const sg_status status = s->begun == SG_OK ? sg_client_end_step(s->client, &step, &s->err) : SG_OK;
        s->ended = sg_client_goes_on(status) ? SG_OK : status;
    }
    atomic_store(s->enough, true); /* where it has failed */
    return NULL;
}

Test(client_back, two_threads_with_a_group_each_go_on_after_every_rollback)
{
    sg_client *client = open_with_two_groups();
    atomic_bool enough = false;
    stepping both[2] = {{.client = client, .enough = &enough}, {.client = client, .group = 1, .enough = &enough}};
    pthread_t threads[2];
    for (size_t i = 0; i < 2; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, step_on, &both[i]), 0);
    const struct timespec pause = {.tv_nsec = 100000};
    for (uint32_t round = 0; round < 50 && !atomic_load(&enough); round++) {
        const uint32_t n_hellos = fake_ps_count(client_ps, &client_ps->n_hellos);
        fake_ps_set(client_ps, refuse_push, SG_ROLLED_BACK);
        const uint64_t until_ms = sg_clock_ms() + 10000;
        while (fake_ps_count(client_ps, &client_ps->n_hellos) == n_hellos && sg_clock_ms() < until_ms)
            nanosleep(&pause, NULL);
        fake_ps_set(client_ps, refuse_push, SG_OK);
        cr_expect(fake_ps_count(client_ps, &client_ps->n_hellos) > n_hellos, "round %u", round);
    }
    atomic_store(&enough, true);
    for (size_t i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        cr_expect_eq(both[i].begun, SG_OK, "group %zu: begin_step: %s", i, both[i].err.message);
        cr_expect_eq(both[i].ended, SG_OK, "group %zu: end_step: %s", i, both[i].err.message);
    }
    sg_client_close(client);
}

Test(client_back, goes_on_tells_the_end_of_a_step_from_the_end_of_the_training)
{
#define X(name, number, rpc_code, exit_code, text)                                                                     \
    cr_expect_eq(sg_client_goes_on(SG_##name),                                                                         \
                 SG_##name == SG_OK || SG_##name == SG_LATE || SG_##name == SG_FENCED || SG_##name == SG_ROLLED_BACK);
    SG_STATUS_MAP(X)
#undef X
}
