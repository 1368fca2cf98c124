/* worker/cli/bench/worker.h - the worker process of `shardgrad bench`, and what it and the command say to each other.
 *
 * The process is the same program, started as `shardgrad bench --as-worker ...`. It connects to the command's socket
 * (SOCK_SEQPACKET, a struct per message, both ends on one machine), declares its model and says hello; then it does
 * what it is told until it is told to leave. A failure is its last word on standard error and its exit code. */
#ifndef SG_WORKER_CLI_BENCH_WORKER_H
#define SG_WORKER_CLI_BENCH_WORKER_H

#include "common/status.h"
#include "worker/cli/bench/variables.h"

#define SG_BENCH_AS_WORKER "--as-worker"

typedef enum sg_bench_command {
    SG_BENCH_PUSH,      /* a ticket, unmeasured; then the push of all variables */
    SG_BENCH_PULL,      /* of what the push before made */
    SG_BENCH_PUSH_PULL, /* a ticket, unmeasured; then both in one */
    SG_BENCH_STEP,      /* a ticket, push and pull: what a training loop does */
    SG_BENCH_CHECK,     /* are all values those that the rule gives? */
    SG_BENCH_LEAVE,     /* leave the job and end; no reply */
} sg_bench_command;

/* To the worker: do it n_times. It replies n_times, when all are done. */
typedef struct sg_bench_request {
    sg_bench_command command;
    uint32_t n_times;
} sg_bench_request;

/* From the worker. The first one, its hello, says who it is. */
typedef struct sg_bench_reply {
    uint32_t worker;
    uint64_t begin_ns, end_ns; /* on the machine's monotonic clock, which all processes share */
} sg_bench_reply;

/* What follows --as-worker, in this order. */
typedef struct sg_bench_worker_options {
    const char *socket_path;
    const char *config_path;
    uint32_t worker, n_workers;
    const char *parent; /* for sg_parent_bind */
    sg_bench_shape shape;
} sg_bench_worker_options;

/* The command line of such a process, NULL-terminated; it and its words are freed by free(). */
char **sg_bench_worker_argv(const sg_bench_worker_options *options);
/* The program: argv[1] is SG_BENCH_AS_WORKER. Returns its exit code. */
int sg_bench_worker_main(int argc, char **argv);

#endif
