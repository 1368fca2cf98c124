/* common/rpc_handshakes.c - see rpc_handshakes.h.
 *
 * gRPC 1.51 writes "Security handshake failed: WHY" while the connection is still open, on clients, too, and then, on
 * servers alone and on the same thread, "Handshaking failed: WHY". Where the peer hung up, WHY has its address; where
 * TLS failed it does not. Then the connection is the one to the server's port that has heard something last and too
 * little to have got any further. */
#include "common/rpc_handshakes.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <grpc/support/log.h>

#include "common/clock.h"
#include "common/rpc_sockets.h"

#define HANDSHAKE_MAX_BYTES 65536u

static struct {
    pthread_mutex_t mutex; /* guards the rest; never held while a line is written */
    pthread_cond_t idle;
    sg_rpc_handshakes_server *servers;
    bool says_more; /* gRPC, because of this */
    sg_rpc_handshakes_looks looks;
} watched = {.mutex = PTHREAD_MUTEX_INITIALIZER, .idle = PTHREAD_COND_INITIALIZER};

static _Thread_local struct {
    char peer[SG_RPC_PEER_BYTES];
    uint16_t port; /* of the server; 0: unknown */
} failing;

void sg_rpc_handshakes_watch(sg_rpc_handshakes_server *server)
{
    pthread_mutex_lock(&watched.mutex);
    server->next = watched.servers;
    watched.servers = server;
    if (!gpr_should_log(GPR_LOG_SEVERITY_DEBUG)) {
        watched.says_more = true;
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_DEBUG);
    }
    pthread_mutex_unlock(&watched.mutex);
}

void sg_rpc_handshakes_unwatch(sg_rpc_handshakes_server *server)
{
    pthread_mutex_lock(&watched.mutex);
    sg_rpc_handshakes_server **at = &watched.servers;
    while (*at != NULL && *at != server)
        at = &(*at)->next;
    if (*at != NULL)
        *at = server->next;
    while (server->in_use > 0)
        pthread_cond_wait(&watched.idle, &watched.mutex);
    if (watched.servers == NULL && watched.says_more) {
        watched.says_more = false;
        gpr_set_log_verbosity(GPR_LOG_SEVERITY_ERROR);
    }
    pthread_mutex_unlock(&watched.mutex);
}

/* With the lock held. Port 0: any. */
static sg_rpc_handshakes_server *find_server(uint16_t port)
{
    sg_rpc_handshakes_server *server = watched.servers;
    while (server != NULL && port != 0 && server->port != port)
        server = server->next;
    return server;
}

static bool is_watched(uint16_t port)
{
    pthread_mutex_lock(&watched.mutex);
    bool found = watched.servers != NULL && (port == 0 || find_server(port) != NULL);
    pthread_mutex_unlock(&watched.mutex);
    return found;
}

/* --- which connection? --- */

static void consider(void *user, const sg_rpc_socket *connection)
{
    uint32_t *best_ms = user;
    if (connection->received_bytes >= HANDSHAKE_MAX_BYTES || connection->quiet_ms >= *best_ms ||
        !is_watched(connection->port))
        return;
    *best_ms = connection->quiet_ms;
    failing.port = connection->port;
    memcpy(failing.peer, connection->peer, sizeof failing.peer);
}

bool sg_rpc_handshakes_may_look(sg_rpc_handshakes_looks *looks, uint64_t now_ms)
{
    const uint64_t from_ms = looks->full_ms > now_ms ? looks->full_ms : now_ms;
    const bool may = from_ms - now_ms <= (uint64_t)(SG_RPC_HANDSHAKES_LOOKS - 1) * SG_RPC_HANDSHAKES_LOOK_MS;
    if (may)
        looks->full_ms = from_ms + SG_RPC_HANDSHAKES_LOOK_MS;
    return may;
}

static void look_for_failing(void)
{
    uint32_t best_ms = UINT32_MAX;
    failing.port = 0;
    failing.peer[0] = '\0';
    pthread_mutex_lock(&watched.mutex);
    const bool may = sg_rpc_handshakes_may_look(&watched.looks, sg_clock_ms());
    pthread_mutex_unlock(&watched.mutex);
    if (may)
        sg_rpc_sockets_each(consider, &best_ms);
}

/* --- what gRPC says --- */

/* "... target_address:\"ipv4:127.0.0.1:37086\"}", as far as it is there. */
static bool read_peer(const char *why)
{
    static const char key[] = "target_address:\"";
    const char *begin = strstr(why, key);
    if (begin == NULL)
        return false;
    begin += sizeof key - 1;
    snprintf(failing.peer, SG_RPC_PEER_BYTES, "%.*s", (int)strcspn(begin, "\""), begin);
    return true;
}

static const char *reason_of(const char *why)
{
    if (strstr(why, "wrong version number") != NULL || strstr(why, "http request") != NULL)
        return "the peer does not speak TLS";
    if (strstr(why, "certificate verify failed") != NULL)
        return "the peer's certificate is not one of this CA that is valid today";
    if (strstr(why, "peer did not return a certificate") != NULL)
        return "the peer has no certificate";
    if (strstr(why, "alert") != NULL)
        return "the peer does not accept the certificate of this server";
    if (strstr(why, "Socket closed") != NULL || strstr(why, "reset") != NULL)
        return "the peer hung up while TLS began, perhaps because it does not accept the certificate of this server";
    return "TLS could not begin";
}

static void tell(const char *why)
{
    bool known = read_peer(why) || failing.peer[0] != '\0';
    pthread_mutex_lock(&watched.mutex);
    sg_rpc_handshakes_server *server = find_server(failing.port);
    if (server != NULL)
        server->in_use++;
    pthread_mutex_unlock(&watched.mutex);
    if (server == NULL)
        return;
    sg_rpc_refusals_tell(server->refusals, known ? failing.peer : "unknown", "connect", reason_of(why));
    pthread_mutex_lock(&watched.mutex);
    server->in_use--;
    pthread_cond_broadcast(&watched.idle);
    pthread_mutex_unlock(&watched.mutex);
    failing.peer[0] = '\0';
    failing.port = 0;
}

static const char *after(const char *line, const char *prefix)
{
    size_t n_bytes = strlen(prefix);
    return strncmp(line, prefix, n_bytes) == 0 ? line + n_bytes : NULL;
}

bool sg_rpc_handshakes_hear(const char *line)
{
    const char *why = after(line, "Security handshake failed: ");
    if (why != NULL && is_watched(0))
        look_for_failing();
    if (why == NULL && (why = after(line, "Handshaking failed: ")) != NULL && is_watched(0))
        tell(why);
    return why != NULL || after(line, "Handshake failed with fatal error") != NULL ||
           after(line, "TlsChannelSecurityConnector::cancel_check_peer error") != NULL;
}
