/* worker/cli/bench/channel.h - the command's end of what it and its workers say to each other: see worker.h. */
#ifndef SG_WORKER_CLI_BENCH_CHANNEL_H
#define SG_WORKER_CLI_BENCH_CHANNEL_H

#include "worker/cli/bench/worker.h"

typedef struct sg_bench_channel {
    int listener;
    int *sockets; /* [n_workers], -1 before the hello */
    size_t n_workers;
} sg_bench_channel;

/* Listens for n_workers at `path`. Errors: CONFIG (too long a path), NOT_FOUND. Freed by sg_bench_channel_deinit, also
 * after failure. */
SG_MUST_USE sg_status sg_bench_channel_init(sg_bench_channel *channel, const char *path, size_t n_workers,
                                            sg_error *err);
void sg_bench_channel_deinit(sg_bench_channel *channel);

/* Waits for the hello of every worker. Errors: PEER_LOST (sg_bench_channel_give_up, or a worker ended). */
SG_MUST_USE sg_status sg_bench_channel_welcome(sg_bench_channel *channel, sg_error *err);
/* Nobody will come any more. From any thread. */
void sg_bench_channel_give_up(sg_bench_channel *channel);

/* To every worker. Errors: PEER_LOST. */
SG_MUST_USE sg_status sg_bench_channel_send(const sg_bench_channel *channel, sg_bench_command command, uint32_t n_times,
                                            sg_error *err);
/* LEAVE, to those that came. */
void sg_bench_channel_send_leave(const sg_bench_channel *channel);
/* The next reply of a worker. Errors: PEER_LOST. */
SG_MUST_USE sg_status sg_bench_channel_receive(const sg_bench_channel *channel, size_t worker, sg_bench_reply *reply,
                                               sg_error *err);

#endif
