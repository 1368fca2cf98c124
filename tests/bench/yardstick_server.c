/* tests/bench/yardstick_server.c - the server of the yardstick.
 *
 * Threads: the main one waits for the end of the lifeline; each of the others polls one completion queue and does all
 * the work of the calls that come there. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <grpc/byte_buffer.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#include "tests/bench/yardstick_store.h"

static grpc_byte_buffer *used_answer(void)
{
    yardstick_used used = yardstick_used_by_now();
    grpc_slice slice = grpc_slice_from_copied_buffer((const char *)&used, sizeof(used)); /* so short: not counted */
    return grpc_raw_byte_buffer_create(&slice, 1);
}

/* The answer may be the request itself. */
static grpc_byte_buffer *handle(yardstick_store *values, yardstick_method method, grpc_byte_buffer *request)
{
    switch (method) {
    case YARDSTICK_PUSH:
        yardstick_store_push(values, request);
        break;
    case YARDSTICK_PULL:
        return yardstick_store_lend(values, request);
    case YARDSTICK_PUSH_PULL:
        yardstick_store_push(values, request);
        return yardstick_store_lend(values, request);
    case YARDSTICK_ECHO:
        return request;
    case YARDSTICK_START:
        yardstick_store_start(values, request);
        break;
    case YARDSTICK_USED:
    case YARDSTICK_METHODS:
        return used_answer();
    }
    return grpc_raw_byte_buffer_create(NULL, 0);
}

/* --- calls --- */

typedef struct server server;
typedef struct queue queue;
typedef struct call call;

/* A call is the tag of its two events, one after the other: that it arrived, and that it is answered. */
struct call {
    queue *on;
    unsigned window; /* of the port that it came to */
    yardstick_method method;
    bool arrived;
    grpc_call *grpc;
    gpr_timespec deadline;
    grpc_metadata_array metadata;
    grpc_byte_buffer *request;
    int cancelled;
    call *next_idle;
};

struct queue {
    server *of;
    grpc_completion_queue *grpc;
    pthread_t thread;
    call *idle; /* used by the thread alone */
};

struct server {
    grpc_server *grpc[YARDSTICK_WINDOWS]; /* they share queues, threads and values */
    void *methods[YARDSTICK_WINDOWS][YARDSTICK_METHODS];
    unsigned n_queues;
    queue queues[YARDSTICK_MAX_THREADS];
    yardstick_store values;
    /* A start comes after all calls before it, and before all after it: the client waits in between. These two say so
     * to the processor and to ThreadSanitizer. */
    atomic_size_t n_handled, n_started;
};

static void call_end(call *c)
{
    c->next_idle = c->on->idle;
    c->on->idle = c;
}

/* One call per port and method waits on each queue, and the next is asked for when one has been handled: meanwhile the
 * thread of another queue takes what arrives. */
static void arm(queue *on, unsigned window, yardstick_method method)
{
    call *c = on->idle;
    if (c != NULL) {
        on->idle = c->next_idle;
    } else {
        c = yardstick_alloc(sizeof(*c));
        grpc_metadata_array_init(&c->metadata);
    }
    c->on = on;
    c->window = window;
    c->method = method;
    c->arrived = false;
    c->metadata.count = 0;
    c->request = NULL;
    grpc_call_error error =
        grpc_server_request_registered_call(on->of->grpc[window], on->of->methods[window][method], &c->grpc,
                                            &c->deadline, &c->metadata, &c->request, on->grpc, on->grpc, c);
    if (error == GRPC_CALL_ERROR_COMPLETION_QUEUE_SHUTDOWN)
        call_end(c);
    else if (error != GRPC_CALL_OK)
        yardstick_fail(YARDSTICK_BUG, "gRPC does not wait for calls: %s", grpc_call_error_to_string(error));
}

static void answer(call *c)
{
    server *s = c->on->of;
    atomic_load_explicit(c->method == YARDSTICK_START ? &s->n_handled : &s->n_started, memory_order_acquire);
    grpc_byte_buffer *message = handle(&s->values, c->method, c->request);
    atomic_fetch_add_explicit(c->method == YARDSTICK_START ? &s->n_started : &s->n_handled, 1, memory_order_release);
    if (message != c->request)
        grpc_byte_buffer_destroy(c->request); /* before the answer, so that its memory can be used again */
    grpc_op ops[4] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = message},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_RECV_CLOSE_ON_SERVER, .data.recv_close_on_server.cancelled = &c->cancelled}};
    grpc_call_error error = grpc_call_start_batch(c->grpc, ops, 4, c, NULL);
    if (error != GRPC_CALL_OK)
        yardstick_fail(YARDSTICK_BUG, "gRPC does not send: %s", grpc_call_error_to_string(error));
    grpc_byte_buffer_destroy(message);
}

static void *queue_run(void *argument)
{
    queue *on = argument;
    for (;;) {
        grpc_event event = grpc_completion_queue_next(on->grpc, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
        if (event.type == GRPC_QUEUE_SHUTDOWN)
            return NULL;
        call *c = event.tag;
        if (c->arrived) {
            grpc_call_unref(c->grpc);
            call_end(c);
        } else if (event.success) {
            c->arrived = true;
            unsigned window = c->window;
            yardstick_method method = c->method;
            answer(c);
            arm(on, window, method);
        } else {
            call_end(c);
        }
    }
}

/* --- the process --- */

/* Returns the port. */
static uint16_t listen_with(server *s, unsigned window)
{
    grpc_arg args[YARDSTICK_SHARED_ARGS + 1];
    size_t n_args = yardstick_shared_args(window, args);
    args[n_args++] = yardstick_arg(GRPC_ARG_ALLOW_REUSEPORT, 0);
    grpc_server *made = grpc_server_create(&(grpc_channel_args){.num_args = n_args, .args = args}, NULL);
    s->grpc[window] = made;
    for (yardstick_method i = 0; i < YARDSTICK_METHODS; i++)
        s->methods[window][i] =
            grpc_server_register_method(made, yardstick_path(i), NULL, GRPC_SRM_PAYLOAD_READ_INITIAL_BYTE_BUFFER, 0);
    for (unsigned i = 0; i < s->n_queues; i++)
        grpc_server_register_completion_queue(made, s->queues[i].grpc, NULL);
    grpc_server_credentials *plain = grpc_insecure_server_credentials_create();
    int port = grpc_server_add_http2_port(made, "127.0.0.1:0", plain);
    grpc_server_credentials_release(plain);
    if (port <= 0)
        yardstick_fail(YARDSTICK_LOST, "no port on 127.0.0.1 is free");
    grpc_server_start(made);
    return (uint16_t)port;
}

static void serve(server *s, unsigned threads, uint16_t ports[YARDSTICK_WINDOWS])
{
    s->n_queues = threads;
    for (unsigned i = 0; i < threads; i++)
        s->queues[i] = (queue){.of = s, .grpc = grpc_completion_queue_create_for_next(NULL)};
    for (unsigned window = 0; window < YARDSTICK_WINDOWS; window++)
        ports[window] = listen_with(s, window);
    for (unsigned i = 0; i < threads; i++) {
        for (unsigned window = 0; window < YARDSTICK_WINDOWS; window++)
            for (yardstick_method method = 0; method < YARDSTICK_METHODS; method++)
                arm(&s->queues[i], window, method);
        if (pthread_create(&s->queues[i].thread, NULL, queue_run, &s->queues[i]) != 0)
            yardstick_fail(YARDSTICK_EXHAUSTED, "a server of %u threads: %s", threads, strerror(errno));
    }
}

static void stop(server *s)
{
    grpc_completion_queue *down = grpc_completion_queue_create_for_next(NULL);
    for (unsigned window = 0; window < YARDSTICK_WINDOWS; window++) {
        grpc_server_shutdown_and_notify(s->grpc[window], down, NULL);
        grpc_server_cancel_all_calls(s->grpc[window]);
        grpc_completion_queue_next(down, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    }
    grpc_completion_queue_shutdown(down);
    grpc_completion_queue_destroy(down);
    for (unsigned i = 0; i < s->n_queues; i++)
        grpc_completion_queue_shutdown(s->queues[i].grpc);
    for (unsigned i = 0; i < s->n_queues; i++)
        pthread_join(s->queues[i].thread, NULL);
    for (unsigned window = 0; window < YARDSTICK_WINDOWS; window++)
        grpc_server_destroy(s->grpc[window]);
    for (unsigned i = 0; i < s->n_queues; i++) {
        grpc_completion_queue_destroy(s->queues[i].grpc);
        while (s->queues[i].idle != NULL) {
            call *c = s->queues[i].idle;
            s->queues[i].idle = c->next_idle;
            grpc_metadata_array_destroy(&c->metadata);
            free(c);
        }
    }
    yardstick_store_clear(&s->values);
}

static void run(size_t n_bytes, unsigned threads, int lifeline, int report)
{
    server s = {.values.n_bytes = n_bytes};
    grpc_init();
    uint16_t ports[YARDSTICK_WINDOWS];
    serve(&s, threads, ports);
    if (write(report, ports, sizeof(ports)) != (ssize_t)sizeof(ports))
        yardstick_fail(YARDSTICK_LOST, "the client has gone");
    close(report);
    char byte;
    while (read(lifeline, &byte, 1) < 0 && errno == EINTR)
        ;
    stop(&s);
    grpc_shutdown();
}

yardstick_server yardstick_server_fork(size_t n_bytes, unsigned threads, const int lifeline[2])
{
    int report[2];
    pid_t parent = getpid();
    if (pipe(report) != 0)
        yardstick_fail(YARDSTICK_EXHAUSTED, "pipe: %s", strerror(errno));
    yardstick_server made = {.pid = fork()};
    if (made.pid < 0)
        yardstick_fail(YARDSTICK_EXHAUSTED, "fork: %s", strerror(errno));
    if (made.pid == 0) {
        /* The lifeline's end is the way to stop; the signal is for a server that does not look at it any more. */
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            exit(YARDSTICK_LOST);
        close(lifeline[1]);
        close(report[0]);
        run(n_bytes, threads, lifeline[0], report[1]);
        exit(0);
    }
    close(report[1]);
    if (read(report[0], made.ports, sizeof(made.ports)) != (ssize_t)sizeof(made.ports))
        yardstick_fail(YARDSTICK_LOST, "the server of %u threads did not start", threads);
    close(report[0]);
    return made;
}
