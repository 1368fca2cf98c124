/* common/rpc_server.c - the life of a server: bind, serve, stop. Calls are in rpc_call.c.
 *
 * gRPC aborts the process when a queue or server is used after its end. What keeps that away is `holds`: every armed
 * or living call and every running handler has one, and the server is destroyed after the last one is gone. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/rpc_address.h"
#include "common/rpc_args.h"
#include "common/rpc_credentials.h"
#include "common/rpc_health.h"
#include "common/rpc_server_internal.h"

void sg_rpc_server_hold(sg_rpc_server *server)
{
    atomic_fetch_add_explicit(&server->holds, 1, memory_order_relaxed);
}

void sg_rpc_server_unhold(sg_rpc_server *server)
{
    if (atomic_fetch_sub_explicit(&server->holds, 1, memory_order_acq_rel) != 1)
        return;
    pthread_mutex_lock(&server->mutex);
    server->all_gone = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void on_shut_down(sg_rpc_event *event, bool ok)
{
    (void)ok;
    sg_rpc_server *server = SG_CONTAINER_OF(event, sg_rpc_server, on_shut_down);
    pthread_mutex_lock(&server->mutex);
    server->shut_down = true;
    pthread_cond_broadcast(&server->changed);
    pthread_mutex_unlock(&server->mutex);
}

static void *queue_run(void *queue)
{
    sg_rpc_library_poll(((sg_rpc_queue *)queue)->queue);
    return NULL;
}

/* --- start --- */

static sg_rpc_server *server_alloc(const sg_rpc_server_options *options)
{
    sg_rpc_server *server = sg_xcalloc(1, sizeof(*server));
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&server->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&server->mutex, NULL);
    atomic_init(&server->serving, false);
    atomic_init(&server->stopping, false);
    atomic_init(&server->n_calls, 0);
    atomic_init(&server->n_probes, 0);
    atomic_init(&server->holds, 1);
    server->pool = sg_pool_create();
    server->security = options->security;
    server->faults = options->faults;
    server->refusals = sg_rpc_refusals_create(options->log);
    server->log = options->log;
    sg_rpc_unsent_init(&server->unsent);
    server->drain_ms = options->drain_ms;
    server->max_calls = options->max_calls != 0 ? options->max_calls : SG_RPC_SERVER_CALLS;
    server->unsent_limit_bytes = sg_rpc_args_quota_bytes(options->message_bytes);
    server->message_limit = sg_rpc_args_message_limit(options->message_bytes);
    return server;
}

static void routes_register(sg_rpc_server *server, const sg_rpc_server_options *options)
{
    server->n_routes = options->n_methods + 1;
    server->routes = sg_xcalloc(server->n_routes, sizeof(*server->routes));
    for (size_t i = 0; i < options->n_methods; i++) {
        server->routes[i].method = options->methods[i];
        if (options->role_needed != NULL)
            server->routes[i].needs = options->role_needed(options->methods[i].path);
    }
    server->routes[options->n_methods].method =
        (sg_rpc_method){.path = SG_RPC_HEALTH_CHECK, .handler = sg_rpc_health_check, .user = server};
    server->routes[options->n_methods].needs = SG_ROLE_ANYBODY;
    for (size_t i = 0; i < server->n_routes; i++) {
        sg_rpc_route *route = &server->routes[i];
        route->registered = grpc_server_register_method(server->grpc, route->method.path, NULL,
                                                        GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
        SG_ASSERT(route->registered != NULL); /* else a path is there twice */
    }
}

static void queues_create(sg_rpc_server *server, uint32_t n_queues)
{
    server->queues = sg_xcalloc(n_queues, sizeof(*server->queues));
    server->n_queues = n_queues;
    for (uint32_t i = 0; i < n_queues; i++) {
        server->queues[i].server = server;
        server->queues[i].queue = grpc_completion_queue_create_for_next(NULL);
        grpc_server_register_completion_queue(server->grpc, server->queues[i].queue, NULL);
    }
}

/* Before the port is bound: gRPC aborts when a server that has one is destroyed without its shutdown, and that takes
 * threads. */
static sg_status threads_start(sg_rpc_server *server, sg_error *err)
{
    for (uint32_t i = 0; i < server->n_queues; i++) {
        sg_rpc_queue *queue = &server->queues[i];
        int failed = pthread_create(&queue->thread, NULL, queue_run, queue);
        if (failed != 0)
            return sg_error_set(err, SG_EXHAUSTED, "no thread for the calls, after %" PRIu32 " of %" PRIu32 ": %s", i,
                                server->n_queues, strerror(failed));
        queue->has_thread = true;
    }
    return SG_OK;
}

static bool port_bind(sg_rpc_server *server, const char *address)
{
    grpc_server_credentials *credentials = sg_rpc_credentials_server(server->security);
    sg_rpc_library_log_quiet(true);
    int port = grpc_server_add_http2_port(server->grpc, address, credentials);
    sg_rpc_library_log_quiet(false);
    grpc_server_credentials_release(credentials);
    server->port = (uint16_t)port;
    return port != 0;
}

static void serve(sg_rpc_server *server)
{
    grpc_server_start(server->grpc);
    for (uint32_t i = 0; i < server->n_queues; i++) {
        sg_rpc_call_arm(&server->queues[i], NULL);
        for (size_t j = 0; j < server->n_routes; j++)
            sg_rpc_call_arm(&server->queues[i], &server->routes[j]);
    }
    server->serves = true;
}

/* After gRPC's server, which uses them. */
static void queues_destroy(sg_rpc_server *server)
{
    for (uint32_t i = 0; i < server->n_queues; i++) {
        if (server->queues[i].has_thread)
            grpc_completion_queue_shutdown(server->queues[i].queue);
    }
    for (uint32_t i = 0; i < server->n_queues; i++) {
        sg_rpc_queue *queue = &server->queues[i];
        if (queue->has_thread) {
            pthread_join(queue->thread, NULL);
            grpc_completion_queue_destroy(queue->queue);
        } else {
            sg_rpc_library_queue_destroy(queue->queue);
        }
    }
    free(server->queues);
    server->queues = NULL;
    server->n_queues = 0;
}

/* Frees a server that never served, or is stopped. */
static void server_free(sg_rpc_server *server)
{
    sg_rpc_handshakes_unwatch(&server->handshakes);
    if (server->grpc != NULL)
        grpc_server_destroy(server->grpc);
    queues_destroy(server);
    sg_rpc_unsent_deinit(&server->unsent);
    pthread_cond_destroy(&server->changed);
    pthread_mutex_destroy(&server->mutex);
    free(server->routes);
    sg_rpc_refusals_destroy(server->refusals);
    sg_pool_destroy(server->pool);
    free(server);
}

static uint64_t connection_age_ms(const sg_rpc_server_options *options)
{
    return options->connection_age_ms != 0 ? options->connection_age_ms : SG_RPC_SERVER_CONNECTION_AGE_MS;
}

sg_status sg_rpc_server_create(const sg_rpc_server_options *options, sg_rpc_server **server, sg_error *err)
{
    SG_ASSERT(options->threads > 0);
    sg_status status = sg_rpc_address_check(options->address, err);
    if (status != SG_OK)
        return status;
    sg_rpc_library_retain();
    sg_rpc_server *made = server_alloc(options);
    sg_rpc_args args;
    sg_rpc_args_init_server(&args, options->address, options->message_bytes, connection_age_ms(options),
                            options->drain_ms);
    made->grpc = grpc_server_create(&args.list, NULL);
    sg_rpc_args_deinit(&args);
    routes_register(made, options);
    queues_create(made, options->threads);
    status = threads_start(made, err);
    if (status == SG_OK && !port_bind(made, options->address))
        status = sg_rpc_address_explain(options->address, err);
    if (status != SG_OK) {
        server_free(made);
        sg_rpc_library_release();
        return status;
    }
    sg_rpc_library_log_attach(made->log);
    if (made->security != NULL && made->security->ca != NULL) {
        made->handshakes = (sg_rpc_handshakes_server){.port = made->port, .refusals = made->refusals};
        sg_rpc_handshakes_watch(&made->handshakes);
    }
    serve(made);
    *server = made;
    return SG_OK;
}

uint16_t sg_rpc_server_port(const sg_rpc_server *server)
{
    return server->port;
}

uint64_t sg_rpc_server_may_hold_bytes(uint64_t message_bytes)
{
    return sg_rpc_args_quota_bytes(message_bytes) / 4;
}

void sg_rpc_server_set_serving(sg_rpc_server *server, bool serving)
{
    atomic_store(&server->serving, serving);
}

/* --- stop --- */

static struct timespec after_ms(uint64_t ms)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    uint64_t ns = (uint64_t)at.tv_nsec + ms % 1000 * 1000000;
    at.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

static void wait_until_gone(sg_rpc_server *server, uint64_t grace_ms)
{
    struct timespec until = after_ms(grace_ms);
    pthread_mutex_lock(&server->mutex);
    int timed_out = 0;
    while (!(server->shut_down && server->all_gone) && timed_out != ETIMEDOUT)
        timed_out = pthread_cond_timedwait(&server->changed, &server->mutex, &until);
    bool cancel = !server->shut_down;
    pthread_mutex_unlock(&server->mutex);
    if (cancel)
        grpc_server_cancel_all_calls(server->grpc);
    pthread_mutex_lock(&server->mutex);
    while (!(server->shut_down && server->all_gone))
        pthread_cond_wait(&server->changed, &server->mutex);
    pthread_mutex_unlock(&server->mutex);
}

void sg_rpc_server_stop(sg_rpc_server *server, uint64_t grace_ms)
{
    SG_ASSERT(!atomic_exchange(&server->stopping, true));
    atomic_store(&server->serving, false);
    sg_rpc_library_prepare_event(&server->on_shut_down, on_shut_down);
    grpc_server_shutdown_and_notify(server->grpc, server->queues[0].queue, &server->on_shut_down);
    sg_rpc_server_unhold(server); /* the server's own */
    wait_until_gone(server, grace_ms);
    grpc_server_destroy(server->grpc);
    server->grpc = NULL;
    queues_destroy(server);
    server->serves = false;
}

void sg_rpc_server_destroy(sg_rpc_server *server)
{
    if (server == NULL)
        return;
    if (server->serves)
        sg_rpc_server_stop(server, 0);
    const sg_log *log = server->log;
    server_free(server);
    sg_rpc_library_release();
    sg_rpc_library_log_detach(log);
}
