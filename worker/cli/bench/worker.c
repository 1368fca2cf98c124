/* worker/cli/bench/worker.c - see worker.h. */
#include "worker/cli/bench/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/clock.h"
#include "common/memory.h"
#include "common/parent.h"
#include "worker/cli/program.h"

#define N_WORDS 9 /* bench, --as-worker and the seven options: argv without the program */

typedef struct bench_worker {
    sg_bench_worker_options options;
    int socket;
    sg_client *client;
    sg_bench_variables variables;
    sg_step step;
    sg_bench_reply *replies;
} bench_worker;

char **sg_bench_worker_argv(const sg_bench_worker_options *o)
{
    char **argv = sg_xcalloc(N_WORDS + 2 /* the program, NULL */, sizeof(*argv));
    size_t n = 0;
    argv[n++] = sg_program_self();
    argv[n++] = sg_xstrdup("bench");
    argv[n++] = sg_xstrdup(SG_BENCH_AS_WORKER);
    argv[n++] = sg_xstrdup(o->socket_path);
    argv[n++] = sg_xstrdup(o->config_path);
    argv[n++] = sg_xprintf("%" PRIu32, o->worker);
    argv[n++] = sg_xprintf("%" PRIu32, o->n_workers);
    argv[n++] = sg_xstrdup(o->parent);
    argv[n++] = sg_xprintf("%" PRIu64, o->shape.total_bytes);
    argv[n++] = sg_xprintf("%" PRIu64, o->shape.variable_bytes);
    return argv;
}

/* The words were written by sg_bench_worker_argv. */
static sg_status parse(bench_worker *w, char **argv, sg_error *err)
{
    w->options = (sg_bench_worker_options){
        .socket_path = argv[2],
        .config_path = argv[3],
        .worker = (uint32_t)strtoul(argv[4], NULL, 10),
        .n_workers = (uint32_t)strtoul(argv[5], NULL, 10),
        .parent = argv[6],
        .shape = {.total_bytes = strtoull(argv[7], NULL, 10), .variable_bytes = strtoull(argv[8], NULL, 10)},
    };
    const sg_bench_shape *shape = &w->options.shape;
    if (shape->variable_bytes == 0 || shape->total_bytes == 0 || (shape->total_bytes | shape->variable_bytes) % 4 != 0)
        return sg_error_set(err, SG_USAGE, "%s %s: wanted multiples of 4", argv[7], argv[8]);
    return sg_parent_bind(w->options.parent, err);
}

/* --- the loop ------------------------------------------------------------------------------------------------- */

static sg_status finish(sg_status status, sg_op *op, sg_error *err)
{
    if (status != SG_OK)
        return status;
    status = sg_op_wait(op, UINT64_MAX, err);
    sg_op_destroy(op);
    return status;
}

static sg_status begin(bench_worker *w, sg_error *err)
{
    sg_status status = sg_client_begin_step(w->client, &w->step, err);
    if (status == SG_OK && (w->step.rank != w->options.worker || w->step.size != w->options.n_workers))
        return sg_error_set(err, SG_INTERNAL, "worker %" PRIu32 " of %" PRIu32 " has rank %" PRIu32 " of %" PRIu32,
                            w->options.worker, w->options.n_workers, w->step.rank, w->step.size);
    w->step.examples = w->variables.weight;
    return status;
}

static sg_status push(bench_worker *w, sg_error *err)
{
    sg_op *op;
    sg_status status = sg_client_push(w->client, &w->step, w->variables.indices, w->variables.n_variables, &op, err);
    return finish(status, op, err);
}

static sg_status pull(bench_worker *w, sg_error *err)
{
    sg_op *op;
    sg_status status = sg_client_pull(w->client, &w->step, w->variables.indices, w->variables.n_variables, &op, err);
    return finish(status, op, err);
}

static sg_status push_pull(bench_worker *w, sg_error *err)
{
    sg_op *op;
    sg_status status =
        sg_client_push_pull(w->client, &w->step, w->variables.indices, w->variables.n_variables, &op, err);
    return finish(status, op, err);
}

/* One repetition. What is not measured comes before begin_ns or after end_ns. */
static sg_status do_once(bench_worker *w, sg_bench_command command, sg_bench_reply *reply, sg_error *err)
{
    sg_status status = SG_OK;
    if (command == SG_BENCH_PUSH || command == SG_BENCH_PUSH_PULL)
        status = begin(w, err);
    reply->begin_ns = sg_clock_ns();
    if (command == SG_BENCH_STEP)
        status = begin(w, err);
    if (status == SG_OK && command == SG_BENCH_CHECK)
        status = sg_bench_variables_check(&w->variables, err);
    else if (status == SG_OK && command == SG_BENCH_PUSH)
        status = push(w, err);
    else if (status == SG_OK && command == SG_BENCH_PULL)
        status = pull(w, err);
    else if (status == SG_OK)
        status = push_pull(w, err);
    reply->end_ns = sg_clock_ns();
    if (command != SG_BENCH_PULL && command != SG_BENCH_CHECK)
        sg_bench_variables_count_step(&w->variables, w->step.learning_rate);
    return status;
}

static sg_status lost_command(sg_error *err)
{
    return sg_error_set(err, SG_STOPPED, "the bench that started this worker is gone: %s", strerror(errno));
}

/* Replies are sent when all is done: nothing but the loop runs while it is measured. */
static sg_status serve_one(bench_worker *w, const sg_bench_request *request, sg_error *err)
{
    w->replies = sg_xrealloc(w->replies, request->n_times, sizeof(*w->replies));
    sg_status status = SG_OK;
    for (uint32_t i = 0; i < request->n_times && status == SG_OK; i++) {
        w->replies[i] = (sg_bench_reply){.worker = w->options.worker};
        status = do_once(w, request->command, &w->replies[i], err);
    }
    for (uint32_t i = 0; i < request->n_times && status == SG_OK; i++)
        if (send(w->socket, &w->replies[i], sizeof(*w->replies), MSG_NOSIGNAL) != sizeof(*w->replies))
            status = lost_command(err);
    return status;
}

static sg_status serve(bench_worker *w, sg_error *err)
{
    sg_bench_reply hello = {.worker = w->options.worker};
    if (send(w->socket, &hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello))
        return lost_command(err);
    for (;;) {
        sg_bench_request request;
        if (recv(w->socket, &request, sizeof(request), 0) != sizeof(request))
            return lost_command(err);
        if (request.command == SG_BENCH_LEAVE)
            return SG_OK;
        sg_status status = serve_one(w, &request, err);
        if (status != SG_OK)
            return status;
    }
}

/* --- start and end -------------------------------------------------------------------------------------------- */

static sg_status connect_to_command(bench_worker *w, sg_error *err)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(w->options.socket_path) >= sizeof(address.sun_path))
        return sg_error_set(err, SG_USAGE, "%s: too long for a socket", w->options.socket_path);
    memcpy(address.sun_path, w->options.socket_path, strlen(w->options.socket_path) + 1);
    w->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (w->socket < 0 || connect(w->socket, (struct sockaddr *)&address, sizeof(address)) != 0)
        return lost_command(err);
    return SG_OK;
}

static sg_status work(bench_worker *w, sg_error *err)
{
    sg_status status = connect_to_command(w, err);
    if (status == SG_OK)
        status =
            sg_bench_variables_init(&w->variables, &w->options.shape, w->options.worker, w->options.n_workers, err);
    if (status == SG_OK)
        status = sg_client_open(&(sg_client_options){.config = w->options.config_path, .worker = w->options.worker},
                                &w->client, err);
    if (status == SG_OK)
        status = sg_client_declare(w->client, w->variables.variables, w->variables.n_variables, err);
    return status == SG_OK ? serve(w, err) : status;
}

int sg_bench_worker_main(int argc, char **argv)
{
    if (argc != N_WORDS) {
        fprintf(stderr, "shardgrad: %s is for shardgrad bench itself: leave it out\n", SG_BENCH_AS_WORKER);
        return sg_status_exit_code(SG_USAGE);
    }
    sg_memory_tune_daemon();
    bench_worker w = {.socket = -1};
    sg_error err;
    sg_status status = parse(&w, argv, &err);
    if (status == SG_OK)
        status = work(&w, &err);
    sg_client_close(w.client);
    sg_bench_variables_deinit(&w.variables);
    free(w.replies);
    if (w.socket >= 0)
        close(w.socket);
    if (status != SG_OK)
        fprintf(stderr, "shardgrad-bench: %s\n", err.message);
    return sg_status_exit_code(status);
}
