/* server/ps.c - see ps.h. The life of a ps: created (serves, but has no loop), running, ending (it answers for a moment
 * why), closing (the server is being stopped on a thread of its own, while the loop answers what still comes). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/clock.h"
#include "server/accept.h"
#include "server/ps_internal.h"

#define TICK_MS        100u
#define SERVER_STOP_MS 200u

/* --- the end --- */

/* From now on everybody is told `status` and `text`; the loop ends after linger_ms. */
static void end(sg_ps *ps, sg_status status, const char *text, uint64_t linger_ms)
{
    if (ps->ending)
        return;
    ps->ending = true;
    ps->end_at_ms = sg_clock_ms() + linger_ms;
    ps->end.code = status == SG_STOPPED ? SG_OK : status;
    snprintf(ps->end.message, sizeof ps->end.message, "%s", text);
    sg_rpc_server_set_serving(ps->server, false);
    sg_store_fail_pulls(ps->store, status == SG_OK ? SG_STOPPED : status, status == SG_OK ? "the job has ended" : text);
    if (linger_ms == 0)
        uv_stop(&ps->loop);
}

/* A failure is told to whoever calls in the next moment. */
static void end_failed(sg_ps *ps, sg_status status, const char *text)
{
    char quoted[SG_ERROR_MESSAGE_BYTES + 32];
    sg_log_error(ps->options.log, "failed", "status=%s reason=%s", sg_status_name(status),
                 sg_log_quote(text, quoted, sizeof quoted));
    end(ps, status, text, ps->options.config->shutdown_grace_ms);
}

static void end_by_status(sg_ps *ps, sg_status status, const char *text)
{
    if (status == SG_OK || status == SG_STOPPED)
        end(ps, status, text, 0);
    else
        end_failed(ps, status, text);
}

/* ps 0: the coordinator has told everybody, workers too. */
void sg_ps_on_coordinator_end(void *user, sg_status status, const char *text)
{
    end(user, status, text, 0);
}

void sg_ps_on_registration_failed(void *user, sg_status status, const char *text)
{
    end_by_status(user, status, text);
}

static void stop_text(const sg_ps *ps, char out[SG_ERROR_MESSAGE_BYTES])
{
    snprintf(out, SG_ERROR_MESSAGE_BYTES, "ps %" PRIu32 " was told to stop", ps->options.index);
}

/* Then begun steps are finished, and a last one is made, before this ps goes. */
static bool makes_checkpoints(const sg_ps *ps)
{
    return ps->options.config->checkpoint.dir[0] != '\0';
}

/* A coordinator that knows orders the end; one that cannot be told is not waited for. */
void sg_ps_on_said_stopping(void *user, bool told)
{
    sg_ps *ps = user;
    if (told && makes_checkpoints(ps))
        return;
    ps->stop_by_ms = sg_clock_ms() + (told ? ps->options.config->shutdown_grace_ms / 4 : 0);
}

static void on_stop(sg_mailbox_item *item)
{
    sg_ps *ps = SG_CONTAINER_OF(item, sg_ps, stop_item);
    if (ps->closed)
        return;
    if (ps->ending) { /* whoever waits for the moment of grace need not */
        ps->end_at_ms = 0;
        return;
    }
    char text[SG_ERROR_MESSAGE_BYTES];
    stop_text(ps, text);
    sg_log_info(ps->options.log, "stopping", "reason=told");
    uint64_t now_ms = sg_clock_ms();
    ps->stopping = true;
    sg_ps_save_hurry(ps->save);
    ps->stop_by_ms = now_ms + ps->options.config->shutdown_grace_ms * 7 / 8;
    if (!makes_checkpoints(ps))
        sg_store_fail_pulls(ps->store, SG_STOPPED, text);
    if (ps->coordinator_service)
        sg_coordinator_service_stop(ps->coordinator_service, now_ms);
    else
        sg_registrar_say_stopping(ps->registrar, now_ms);
}

void sg_ps_stop(sg_ps *ps)
{
    if (!atomic_exchange(&ps->stop_posted, true))
        sg_mailbox_post(&ps->mailbox, &ps->stop_item);
}

/* --- the loop --- */

static void look_for_the_end(sg_ps *ps, uint64_t now_ms)
{
    sg_status status;
    char text[SG_ERROR_MESSAGE_BYTES];
    if (ps->ending) {
        if (now_ms >= ps->end_at_ms)
            uv_stop(&ps->loop);
    } else if (!ps->coordinator_service && sg_store_ended(ps->store, &status, text, sizeof text)) {
        end_by_status(ps, status, text);
    } else if (ps->stopping && now_ms >= ps->stop_by_ms) {
        stop_text(ps, text);
        end(ps, SG_STOPPED, text, 0);
    }
}

static void look_at_accepted(sg_ps *ps, uint64_t now_ms)
{
    const uint64_t n_closed = sg_accept_closed();
    if (n_closed == ps->n_accept_closed)
        return;
    ps->n_accept_closed_untold += n_closed - ps->n_accept_closed;
    ps->n_accept_closed = n_closed;
    if (sg_log_pace_count(&ps->accept_closed_pace, now_ms) == 0)
        return;
    sg_log_warn(ps->options.log, "refused",
                "connections=%" PRIu64 " reason=\"nearly as many files are open as may be: raise ulimit -n, or see who "
                "connects so often\"",
                ps->n_accept_closed_untold);
    ps->n_accept_closed_untold = 0;
}

static void give_back_memory(sg_ps *ps, uint64_t now_ms)
{
    uint64_t free_bytes;
    if (sg_heap_tidy(&ps->heap, now_ms, &free_bytes))
        sg_log_info(ps->options.log, "memory_given_back", "free_bytes=%" PRIu64, free_bytes);
}

static void on_tick(uv_timer_t *timer)
{
    sg_ps *ps = timer->data;
    uint64_t now_ms = sg_clock_ms();
    sg_store_tick(ps->store, now_ms);
    sg_rpc_server_tick(ps->server, now_ms);
    give_back_memory(ps, now_ms);
    look_at_accepted(ps, now_ms);
    if (ps->coordinator_service && !ps->closed)
        sg_coordinator_service_tick(ps->coordinator_service, now_ms);
    if (ps->closed)
        return;
    sg_registrar_tick(ps->registrar, now_ms);
    sg_norms_tick(ps->norms, now_ms);
    look_for_the_end(ps, now_ms);
}

/* --- closing --- */

static void on_server_stopped(sg_mailbox_item *item)
{
    sg_ps *ps = SG_CONTAINER_OF(item, sg_ps, server_stopped_item);
    uv_stop(&ps->loop);
}

/* The stopper's thread. */
static void stop_server(void *user)
{
    sg_ps *ps = user;
    uv_sem_wait(&ps->wakes_stopper);
    if (!ps->server) /* none was made */
        return;
    sg_rpc_server_stop(ps->server, SERVER_STOP_MS);
    sg_mailbox_post(&ps->mailbox, &ps->server_stopped_item);
}

/* Stops the server on a thread of its own: meanwhile the loop answers the calls that it holds. */
static void close_down(sg_ps *ps)
{
    ps->closed = true;
    if (ps->published)
        sg_address_withdraw(ps->options.config, ps->options.index, ps->address);
    if (ps->registrar)
        sg_registrar_close(ps->registrar);
    if (ps->norms)
        sg_norms_close(ps->norms);
    sg_store_fail_pulls(ps->store, SG_STOPPED, "the ps has stopped");
    if (ps->jobs)
        sg_disk_jobs_close(ps->jobs);
    if (ps->save)
        sg_ps_save_close(ps->save);
    if (ps->restore)
        sg_ps_restore_close(ps->restore);
    if (ps->coordinator_service)
        sg_coordinator_service_close(ps->coordinator_service);
    uv_sem_post(&ps->wakes_stopper);
    uv_run(&ps->loop, UV_RUN_DEFAULT);
}

sg_status sg_ps_run(sg_ps *ps, sg_error *err)
{
    on_tick(&ps->tick);
    uv_run(&ps->loop, UV_RUN_DEFAULT);
    close_down(ps);
    if (ps->end.code == SG_OK) /* otherwise `failed` was logged when it happened */
        sg_log_info(ps->options.log, "ended", "status=%s", sg_status_name(ps->end.code));
    return ps->end.code == SG_OK ? SG_OK : sg_error_set(err, ps->end.code, "%s", ps->end.message);
}

/* --- birth and death --- */

/* The stopper is made at the start: in the end there might be no thread for it, and no way to go on or back. */
static sg_status start_stopper(sg_ps *ps, sg_error *err)
{
    int failed = uv_sem_init(&ps->wakes_stopper, 0);
    if (failed == 0 && (failed = uv_thread_create(&ps->stopper, stop_server, ps)) != 0)
        uv_sem_destroy(&ps->wakes_stopper);
    return failed == 0 ? SG_OK : sg_error_set(err, SG_EXHAUSTED, "no thread for a ps: %s", uv_strerror(failed));
}

static void close_loop(sg_ps *ps)
{
    uv_run(&ps->loop, UV_RUN_DEFAULT);
    int failed = uv_loop_close(&ps->loop);
    SG_ASSERT(failed == 0);
}

/* The loop, its mailbox, the stopper; all or nothing. */
static sg_status init_loop(sg_ps *ps, sg_error *err)
{
    int failed = uv_loop_init(&ps->loop);
    if (failed != 0)
        return sg_error_set(err, SG_EXHAUSTED, "no event loop: %s", uv_strerror(failed));
    sg_status status = sg_mailbox_init(&ps->mailbox, &ps->loop, err);
    if (status == SG_OK && (status = start_stopper(ps, err)) != SG_OK) {
        sg_mailbox_close(&ps->mailbox);
        uv_run(&ps->loop, UV_RUN_DEFAULT);
        sg_mailbox_deinit(&ps->mailbox);
    }
    if (status != SG_OK) {
        close_loop(ps);
        return status;
    }
    failed = uv_timer_init(&ps->loop, &ps->tick);
    SG_ASSERT(failed == 0); /* it only fills in the handle */
    ps->tick.data = ps;
    uv_timer_start(&ps->tick, on_tick, TICK_MS, TICK_MS);
    ps->stop_item.run = on_stop;
    ps->server_stopped_item.run = on_server_stopped;
    return SG_OK;
}

sg_status sg_ps_create(const sg_ps_options *options, sg_ps **ps, sg_error *err)
{
    if (options->index >= options->config->ps.n)
        return sg_error_set(err, SG_CONFIG, "there is no ps %" PRIu32 ": the cluster file lists %zu ps, from 0",
                            options->index, options->config->ps.n);
    sg_security *security;
    sg_status status = sg_security_create(options->config, SG_ROLE_ADMIN, &security, err);
    if (status != SG_OK)
        return status;
    sg_ps *made = sg_xcalloc(1, sizeof *made);
    made->options = *options;
    made->security = security;
    status = init_loop(made, err);
    if (status != SG_OK) {
        sg_security_destroy(made->security);
        free(made);
        return status;
    }
    status = sg_ps_parts_create(made, err);
    if (status == SG_OK)
        status = sg_ps_parts_serve(made, err);
    if (status == SG_OK)
        status = sg_ps_parts_announce(made, err);
    if (status != SG_OK)
        sg_ps_destroy(made);
    else
        *ps = made;
    return status;
}

const char *sg_ps_address(const sg_ps *ps)
{
    return ps->address;
}

void sg_ps_destroy(sg_ps *ps)
{
    if (!ps)
        return;
    if (ps->server && !ps->closed)
        close_down(ps);
    else if (!ps->closed)
        uv_sem_post(&ps->wakes_stopper);
    uv_thread_join(&ps->stopper);
    uv_sem_destroy(&ps->wakes_stopper);
    sg_rpc_client_destroy(ps->norms_client); /* its thread may still be closing rounds */
    if (ps->store)
        sg_store_drop_contributions(ps->store); /* received messages are gRPC's, which may end with its last user */
    sg_rpc_server_destroy(ps->server);
    sg_rpc_client_destroy(ps->client);
    sg_mailbox_drain(&ps->mailbox); /* what the last callbacks left */
    sg_mailbox_close(&ps->mailbox);
    uv_close((uv_handle_t *)&ps->tick, NULL);
    close_loop(ps);
    sg_mailbox_deinit(&ps->mailbox);
    sg_disk_jobs_destroy(ps->jobs);
    sg_ps_restore_destroy(ps->restore);
    sg_ps_save_destroy(ps->save);
    sg_norms_destroy(ps->norms);
    sg_registrar_destroy(ps->registrar);
    sg_coordinator_service_destroy(ps->coordinator_service);
    sg_store_destroy(ps->store);
    sg_security_destroy(ps->security);
    free(ps);
}
