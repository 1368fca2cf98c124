/* When an op is complete: the buffer rule, step by step. */
#include <criterion/criterion.h>

#include "common/clock.h"
#include "common/status.h"
#include "worker/client/client_internal.h"

static sg_client client;
static sg_client_call call;

static void create(void)
{
    client = (sg_client){.timer_ms = UINT64_MAX};
    pthread_mutex_init(&client.mutex, NULL);
    pthread_cond_init(&client.changed, NULL);
    client.session = sg_session_create(&(sg_session_options){.job = "job", .life = 1});
}

static void destroy(void)
{
    sg_session_destroy(client.session);
    pthread_cond_destroy(&client.changed);
    pthread_mutex_destroy(&client.mutex);
}

TestSuite(op, .init = create, .fini = destroy, .timeout = 20);

static void settle(sg_op *op, bool complete)
{
    pthread_mutex_lock(&client.mutex);
    sg_op_settle(op);
    pthread_mutex_unlock(&client.mutex);
    cr_assert_eq(sg_op_is_complete(op), complete);
    cr_assert_eq(sg_op_wait(op, 0, NULL), complete ? SG_OK : SG_TIMEOUT);
}

Test(op, it_is_complete_when_its_task_has_ended_its_calls_are_over_and_its_buffers_are_back)
{
    /* The three come in any order; until the last one the buffers are not the caller's. */
    for (int last = 0; last < 3; last++) {
        sg_op *op = sg_op_create(&client, 7);
        TAILQ_INSERT_TAIL(&op->calls, &call, link);
        atomic_store(&op->n_lent, 2);
        settle(op, false);
        for (int i = 1; i <= 3; i++) {
            const int what = (last + i) % 3;
            if (what == 0)
                op->done = true;
            else if (what == 1)
                TAILQ_REMOVE(&op->calls, &call, link);
            else
                atomic_store(&op->n_lent, 0);
            settle(op, i == 3);
        }
        sg_op_destroy(op);
        cr_assert(LIST_EMPTY(&client.ops));
    }
}

Test(op, a_failure_is_told_as_often_as_it_is_asked_for)
{
    sg_op *op = sg_op_create(&client, 7);
    op->done = true;
    cr_assert_eq(sg_error_set(&op->error, SG_LATE, "version 3 is gone"), SG_LATE);
    pthread_mutex_lock(&client.mutex);
    sg_op_settle(op);
    pthread_mutex_unlock(&client.mutex);
    for (int i = 0; i < 2; i++) {
        sg_error err;
        cr_assert_eq(sg_op_wait(op, UINT64_MAX, &err), SG_LATE);
        cr_assert_str_eq(err.message, "version 3 is gone");
    }
    sg_op_destroy(op);
    sg_op_destroy(NULL);
}

Test(op, a_wait_ends_at_its_time_and_no_sooner)
{
    sg_op *op = sg_op_create(&client, 7);
    const uint64_t begun_ms = sg_clock_ms();
    sg_error err;
    cr_assert_eq(sg_op_wait(op, 60, &err), SG_TIMEOUT);
    cr_assert_geq(sg_clock_ms() - begun_ms, 59);
    op->done = true;
    settle(op, true);
    sg_op_destroy(op);
}
