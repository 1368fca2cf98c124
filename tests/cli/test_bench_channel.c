#include "worker/cli/bench/channel.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/status.h"

TestSuite(bench_channel, .timeout = 20);

static char folder[64], path[96];
static sg_bench_channel channel;

static void open_channel(void)
{
    strcpy(folder, "/tmp/sg-channel-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/socket", folder);
    cr_assert_eq(sg_bench_channel_init(&channel, path, 2, NULL), SG_OK);
}

static void close_channel(void)
{
    sg_bench_channel_deinit(&channel);
    unlink(path);
    rmdir(folder);
}

static int say_hello(uint32_t worker)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strcpy(address.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sg_bench_reply hello = {.worker = worker};
    cr_assert_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    cr_assert_eq(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
    return fd;
}

Test(bench_channel, workers_come_in_any_order_and_each_gets_what_is_said_to_all, .init = open_channel,
     .fini = close_channel)
{
    int workers[2];
    workers[1] = say_hello(1);
    workers[0] = say_hello(0);
    cr_assert_eq(sg_bench_channel_welcome(&channel, NULL), SG_OK);
    cr_assert_eq(sg_bench_channel_send(&channel, SG_BENCH_PULL, 7, NULL), SG_OK);
    for (uint32_t i = 0; i < 2; i++) {
        sg_bench_request request;
        sg_bench_reply reply = {.worker = i, .begin_ns = 10 + i, .end_ns = 20 + i};
        cr_assert_eq(recv(workers[i], &request, sizeof(request), 0), sizeof(request));
        cr_assert(request.command == SG_BENCH_PULL && request.n_times == 7);
        cr_assert_eq(send(workers[i], &reply, sizeof(reply), 0), sizeof(reply));
    }
    for (uint32_t i = 0; i < 2; i++) {
        sg_bench_reply reply;
        cr_assert_eq(sg_bench_channel_receive(&channel, i, &reply, NULL), SG_OK);
        cr_assert(reply.worker == i && reply.begin_ns == 10 + i && reply.end_ns == 20 + i);
        close(workers[i]);
    }
}

Test(bench_channel, a_worker_that_ends_is_lost, .init = open_channel, .fini = close_channel)
{
    sg_bench_reply reply;
    int workers[2] = {say_hello(0), say_hello(1)};
    cr_assert_eq(sg_bench_channel_welcome(&channel, NULL), SG_OK);
    close(workers[0]);
    cr_assert_eq(sg_bench_channel_receive(&channel, 0, &reply, NULL), SG_PEER_LOST);
    cr_assert_eq(sg_bench_channel_send(&channel, SG_BENCH_PUSH, 1, NULL), SG_PEER_LOST);
    sg_bench_channel_send_leave(&channel);
    sg_bench_request request;
    cr_assert_eq(recv(workers[1], &request, sizeof(request), 0), sizeof(request), "those that live are told to leave");
    cr_assert_eq(request.command, SG_BENCH_LEAVE);
    close(workers[1]);
}

Test(bench_channel, a_worker_that_comes_twice_or_is_none_is_refused, .init = open_channel, .fini = close_channel)
{
    int twice[2] = {say_hello(1), say_hello(1)};
    cr_assert_eq(sg_bench_channel_welcome(&channel, NULL), SG_INTERNAL);
    int none = say_hello(2);
    cr_assert_eq(sg_bench_channel_welcome(&channel, NULL), SG_INTERNAL);
    close(twice[0]);
    close(twice[1]);
    close(none);
}

static void *give_up(void *user)
{
    sg_bench_channel_give_up(user);
    return NULL;
}

Test(bench_channel, whoever_waits_for_workers_that_do_not_come_can_be_told, .init = open_channel, .fini = close_channel)
{
    pthread_t thread;
    pthread_create(&thread, NULL, give_up, &channel);
    cr_assert_eq(sg_bench_channel_welcome(&channel, NULL), SG_PEER_LOST);
    pthread_join(thread, NULL);
}

Test(bench_channel, too_long_a_path_is_refused_by_name)
{
    char long_path[200] = "/tmp/";
    memset(long_path + 5, 'x', 190);
    sg_error err;
    sg_bench_channel c;
    cr_assert_eq(sg_bench_channel_init(&c, long_path, 1, &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "/tmp/xxx"));
    sg_bench_channel_deinit(&c);
}
