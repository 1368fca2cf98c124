/* worker/client/client_loop.c - the thread that has a clock: heartbeats, repeats and deadlines of the session, and ops
 * whose last buffer came back from the transport. */
#include "common/clock.h"
#include "worker/client/client_internal.h"

static void ops_settle(sg_client *client)
{
    sg_op *op;
    LIST_FOREACH(op, &client->ops, link)
    sg_op_settle(op);
}

static void timer_on(uv_timer_t *timer);

static void loop_look(sg_client *client)
{
    sg_client_lock(client);
    const uint64_t now_ms = sg_clock_ms();
    sg_session_tick(client->session, now_ms);
    ops_settle(client);
    const uint64_t next_ms = sg_session_next_ms(client->session);
    client->timer_ms = next_ms;
    sg_client_unlock(client);
    if (next_ms == UINT64_MAX) {
        uv_timer_stop(&client->timer);
        return;
    }
    uv_update_time(&client->loop);
    const uint64_t after_ms = sg_clock_ms();
    /* Never 0: a timer that is due at once when it is started by its own callback is all that the loop comes to. */
    uv_timer_start(&client->timer, timer_on, next_ms > after_ms ? next_ms - after_ms : 1, 0);
}

static void timer_on(uv_timer_t *timer)
{
    loop_look(timer->data);
}

static void wake_on(uv_async_t *wake)
{
    sg_client *client = wake->data;
    if (!atomic_load(&client->stopping)) {
        loop_look(client);
        return;
    }
    uv_close((uv_handle_t *)&client->timer, NULL);
    uv_close((uv_handle_t *)&client->wake, NULL);
}

static void thread_run(void *user)
{
    sg_client *client = user;
    uv_run(&client->loop, UV_RUN_DEFAULT);
}

sg_status sg_client_loop_start(sg_client *client, sg_error *err)
{
    int failed = uv_loop_init(&client->loop);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    failed = uv_async_init(&client->loop, &client->wake, wake_on);
    if (failed != 0) {
        (void)uv_loop_close(&client->loop);
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    }
    client->wake.data = client;
    uv_timer_init(&client->loop, &client->timer);
    client->timer.data = client;
    failed = uv_thread_create(&client->thread, thread_run, client);
    if (failed == 0)
        return SG_OK;
    uv_close((uv_handle_t *)&client->timer, NULL);
    uv_close((uv_handle_t *)&client->wake, NULL);
    uv_run(&client->loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&client->loop);
    return sg_error_set(err, SG_EXHAUSTED, "no thread for the client: %s", uv_strerror(failed));
}

void sg_client_loop_stop(sg_client *client)
{
    atomic_store(&client->stopping, true);
    uv_async_send(&client->wake);
    uv_thread_join(&client->thread);
    const int failed = uv_loop_close(&client->loop);
    SG_ASSERT(failed == 0);
}
