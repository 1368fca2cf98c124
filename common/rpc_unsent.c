/* common/rpc_unsent.c - answers that their clients do not read: each holds memory that was lent for it, such as a
 * version that nobody needs any more, so that it must end some time.
 *
 * gRPC reports an answer as sent when the client has made room for all of it. A call is among the unsent ones from just
 * before its answer is handed to gRPC until that report, which may come only after it was taken out here; so one that
 * is found in the list, under the mutex, lives. It is cancelled without the mutex, by a reference of its own. */
#include <string.h>

#include "common/clock.h"
#include "common/rpc_server_internal.h"

/* How much of the limit of all one connection may have: a part of so many. */
#define CONNECTION_PART 8u
/* An answer on its way is not looked at. */
#define YOUNG_MS 200u
/* Connections that are told apart; what others leave unread counts together. */
#define MANY_PEERS 64u

void sg_rpc_unsent_init(sg_rpc_unsent *unsent)
{
    pthread_mutex_init(&unsent->mutex, NULL);
    TAILQ_INIT(&unsent->calls);
}

void sg_rpc_unsent_deinit(sg_rpc_unsent *unsent)
{
    SG_ASSERT(TAILQ_EMPTY(&unsent->calls));
    pthread_mutex_destroy(&unsent->mutex);
}

static void take_out(sg_rpc_unsent *unsent, sg_rpc_call *call)
{
    TAILQ_REMOVE(&unsent->calls, call, unsent_link);
    call->is_unsent = false;
    unsent->n_bytes -= call->unsent_bytes;
}

static void cancel(grpc_call *take_call)
{
    (void)grpc_call_cancel(take_call, NULL);
    grpc_call_unref(take_call);
}

/* With the mutex: the call's, with a reference, to be cancelled without it. */
static grpc_call *end_it(sg_rpc_unsent *unsent, sg_rpc_call *call)
{
    take_out(unsent, call);
    grpc_call_ref(call->grpc);
    return call->grpc;
}

void sg_rpc_unsent_add(sg_rpc_call *call, uint64_t n_bytes)
{
    sg_rpc_server *server = call->server;
    sg_rpc_unsent *unsent = &server->unsent;
    const uint64_t now_ms = sg_clock_ms();
    pthread_mutex_lock(&unsent->mutex);
    call->unsent_bytes = n_bytes;
    call->answered_ms = now_ms;
    call->is_unsent = true;
    TAILQ_INSERT_TAIL(&unsent->calls, call, unsent_link);
    unsent->n_bytes += n_bytes;
    sg_rpc_call *oldest;
    while (unsent->n_bytes > server->unsent_limit_bytes && (oldest = TAILQ_FIRST(&unsent->calls)) != NULL &&
           oldest != call) {
        grpc_call *ended = end_it(unsent, oldest);
        pthread_mutex_unlock(&unsent->mutex);
        cancel(ended);
        pthread_mutex_lock(&unsent->mutex);
    }
    pthread_mutex_unlock(&unsent->mutex);
}

void sg_rpc_unsent_remove(sg_rpc_call *call)
{
    sg_rpc_unsent *unsent = &call->server->unsent;
    pthread_mutex_lock(&unsent->mutex);
    if (call->is_unsent)
        take_out(unsent, call);
    pthread_mutex_unlock(&unsent->mutex);
}

/* --- looking at them --- */

typedef struct peer_bytes {
    const char *peer;
    uint64_t n_bytes;
} peer_bytes;

/* The place of a connection in the table; the last is shared by all that find none. */
static peer_bytes *find_peer(peer_bytes *peers, const char *peer)
{
    size_t i = 0;
    while (i < MANY_PEERS - 1 && peers[i].peer != NULL && strcmp(peers[i].peer, peer) != 0)
        i++;
    if (peers[i].peer == NULL)
        peers[i].peer = peer;
    return &peers[i];
}

/* With the mutex: an answer whose connection has too much unread without it. The newest ones stay. */
static sg_rpc_call *find_too_much(const sg_rpc_server *server, uint64_t now_ms)
{
    const uint64_t most = server->unsent_limit_bytes / CONNECTION_PART;
    if (server->unsent.n_bytes <= most)
        return NULL;
    peer_bytes peers[MANY_PEERS] = {0};
    sg_rpc_call *call, *found = NULL;
    TAILQ_FOREACH(call, &server->unsent.calls, unsent_link)
    {
        if (now_ms < call->answered_ms + YOUNG_MS)
            break;
        peer_bytes *of = find_peer(peers, sg_rpc_call_peer(call));
        of->n_bytes += call->unsent_bytes;
        if (of->n_bytes > most) {
            found = call;
            break;
        }
    }
    if (found == NULL)
        return NULL;
    TAILQ_FOREACH(call, &server->unsent.calls, unsent_link)
    {
        if (strcmp(sg_rpc_call_peer(call), sg_rpc_call_peer(found)) == 0)
            return call;
    }
    return found;
}

/* With the mutex. */
static sg_rpc_call *find_old(const sg_rpc_server *server, uint64_t now_ms)
{
    sg_rpc_call *oldest = TAILQ_FIRST(&server->unsent.calls);
    return oldest != NULL && server->drain_ms > 0 && now_ms > oldest->answered_ms + server->drain_ms ? oldest : NULL;
}

void sg_rpc_server_tick(sg_rpc_server *server, uint64_t now_ms)
{
    for (;;) {
        pthread_mutex_lock(&server->unsent.mutex);
        sg_rpc_call *call = find_old(server, now_ms);
        if (call == NULL)
            call = find_too_much(server, now_ms);
        grpc_call *grpc = call != NULL ? end_it(&server->unsent, call) : NULL;
        pthread_mutex_unlock(&server->unsent.mutex);
        if (grpc == NULL)
            return;
        cancel(grpc);
    }
}
