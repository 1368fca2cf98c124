/* common/rpc_faults.c - see rpc_faults.h. */
#include "common/rpc_faults.h"

#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "common/random.h"
#include "common/rpc_sockets.h"

void sg_rpc_faults_init(sg_rpc_faults *faults, uint64_t seed)
{
    *faults = (sg_rpc_faults){.seed = seed, .delay_us = 1000};
    pthread_mutex_init(&faults->mutex, NULL);
}

static uint64_t draw_below(sg_rpc_faults *faults, uint64_t limit)
{
    pthread_mutex_lock(&faults->mutex);
    uint64_t block = faults->n_drawn++;
    pthread_mutex_unlock(&faults->mutex);
    uint32_t words[4];
    sg_random_block(faults->seed, sg_random_stream("faults", 0), block, words);
    return ((uint64_t)words[0] << 32 | words[1]) % limit;
}

sg_rpc_fault sg_rpc_faults_draw(sg_rpc_faults *faults)
{
    uint64_t drawn = draw_below(faults, 1000000);
    int fault = SG_RPC_FAULTS - 1;
    for (; fault > SG_RPC_FAULT_NONE && drawn >= faults->per_million[fault]; fault--)
        drawn -= faults->per_million[fault];
    pthread_mutex_lock(&faults->mutex);
    faults->count[fault]++;
    pthread_mutex_unlock(&faults->mutex);
    return (sg_rpc_fault)fault;
}

uint64_t sg_rpc_faults_count(sg_rpc_faults *faults, sg_rpc_fault fault)
{
    pthread_mutex_lock(&faults->mutex);
    uint64_t n = faults->count[fault];
    pthread_mutex_unlock(&faults->mutex);
    return n;
}

void sg_rpc_faults_delay(sg_rpc_faults *faults)
{
    uint64_t us = draw_below(faults, faults->delay_us + 1);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)}, NULL);
}

typedef struct victim {
    uint16_t port;
    const char *peer;
} victim;

static void cut_if_victim(void *user, const sg_rpc_socket *connection)
{
    const victim *v = user;
    if (connection->port == v->port && strcmp(connection->peer, v->peer) == 0)
        shutdown(connection->fd, SHUT_RDWR);
}

void sg_rpc_faults_cut(uint16_t port, const char *peer)
{
    victim v = {.port = port, .peer = peer};
    sg_rpc_sockets_each(cut_if_victim, &v);
}
