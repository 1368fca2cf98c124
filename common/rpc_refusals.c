/* common/rpc_refusals.c - see rpc_refusals.h. */
#include "common/rpc_refusals.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"

#define MAX_KNOWN  256
#define PEER_BYTES 128

struct sg_rpc_refusals {
    const sg_log *log;
    pthread_mutex_t mutex;     /* guards the rest */
    uint64_t known[MAX_KNOWN]; /* hashes of host and reason: [n_known] */
    size_t n_known;
    sg_log_pace pace; /* of those that found no place */
};

sg_rpc_refusals *sg_rpc_refusals_create(const sg_log *log)
{
    sg_rpc_refusals *refusals = sg_xcalloc(1, sizeof *refusals);
    refusals->log = log;
    pthread_mutex_init(&refusals->mutex, NULL);
    return refusals;
}

void sg_rpc_refusals_destroy(sg_rpc_refusals *refusals)
{
    pthread_mutex_destroy(&refusals->mutex);
    free(refusals);
}

/* FNV-1a: that two of them meet costs a line of the log. */
static uint64_t hash(uint64_t seed, const char *text, size_t n_bytes)
{
    for (size_t i = 0; i < n_bytes; i++)
        seed = (seed ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    return seed;
}

/* How many refusals to tell of, this one included; 0: none. */
static uint64_t count(sg_rpc_refusals *refusals, uint64_t key)
{
    for (size_t i = 0; i < refusals->n_known; i++) {
        if (refusals->known[i] == key)
            return 0;
    }
    if (refusals->n_known == MAX_KNOWN)
        return sg_log_pace_count(&refusals->pace, sg_clock_ms());
    refusals->known[refusals->n_known++] = key;
    return 1;
}

/* gRPC writes "ipv6:%5B::1%5D:4242", as it stands in a URI. Returns out. */
static const char *decode(const char *peer, char out[PEER_BYTES])
{
    size_t n = 0;
    for (; *peer != '\0' && n + 1 < PEER_BYTES; n++) {
        const char bracket = strncmp(peer, "%5B", 3) == 0 ? '[' : strncmp(peer, "%5D", 3) == 0 ? ']' : '\0';
        out[n] = bracket != '\0' ? bracket : *peer;
        peer += bracket != '\0' ? 3 : 1;
    }
    out[n] = '\0';
    return out;
}

void sg_rpc_refusals_tell(sg_rpc_refusals *refusals, const char *peer, const char *method, const char *reason)
{
    const char *port = strrchr(peer, ':');
    size_t host_bytes = port != NULL ? (size_t)(port - peer) : strlen(peer);
    uint64_t key = hash(hash(UINT64_C(0xcbf29ce484222325), peer, host_bytes), reason, strlen(reason));
    pthread_mutex_lock(&refusals->mutex);
    uint64_t n = count(refusals, key);
    pthread_mutex_unlock(&refusals->mutex);
    if (n == 0)
        return;
    char quoted[SG_LOG_QUOTED_BYTES], decoded[PEER_BYTES];
    sg_log_warn(refusals->log, "refused", "peer=%s method=%s refusals=%" PRIu64 " reason=%s", decode(peer, decoded),
                method, n, sg_log_quote(reason, quoted, sizeof quoted));
}
