/* common/rpc_client.h - a thin client over gRPC core: channels to addresses, calls that end in a callback.
 *
 * Threads: `threads` poller threads own the completion queue and run the callbacks; a callback never blocks and never
 * destroys the client. Nothing is retried here: who calls decides. */
#ifndef SG_COMMON_RPC_CLIENT_H
#define SG_COMMON_RPC_CLIENT_H

#include "common/log.h"
#include "common/security.h"
#include "common/wire.h"

typedef struct sg_rpc_client sg_rpc_client;
typedef struct sg_rpc_channel sg_rpc_channel;

typedef struct sg_rpc_client_options {
    uint32_t threads; /* at least 1 */
    uint64_t message_bytes;
    /* The threads look at the network only while a call is under way. For who calls now and then: all threads of a
     * process that look do so for each other, and what one sees for another has to be handed over. */
    bool on_demand;
    const sg_security *security; /* must outlive the client; NULL: plaintext, no token */
    const sg_log *log;           /* must outlive the client; NULL is silent */
} sg_rpc_client_options;

/* NULL: the system has no thread for it. */
sg_rpc_client *sg_rpc_client_create(const sg_rpc_client_options *options);
/* Cancels what is under way, waits for its callbacks, ends the threads. Destroys the channels, too. No other thread
 * may start a call meanwhile; a callback may, and gets CANCELLED for it. NULL is fine. */
void sg_rpc_client_destroy(sg_rpc_client *client);

/* What its calls and messages are made of: for sg_wire_pack. */
sg_pool *sg_rpc_client_pool(const sg_rpc_client *client);

/* A connection of its own (not shared with other channels to the same address), made when first used and made again
 * when it was lost: an attempt at most 2 s after the last one. Any thread. It ends with the client, or when whoever has
 * it has released it and no call of it is under way. */
sg_rpc_channel *sg_rpc_client_channel(sg_rpc_client *client, const char *address);
sg_rpc_channel *sg_rpc_channel_ref(sg_rpc_channel *channel); /* one more has it; returns it */
void sg_rpc_channel_release(sg_rpc_channel *channel);        /* NULL is fine */
const char *sg_rpc_channel_address(const sg_rpc_channel *channel);
sg_pool *sg_rpc_channel_pool(const sg_rpc_channel *channel); /* its client's */

/* sg_wire_unpack of an answer that came over this channel: what is wrong with it is told with who sent it. */
SG_MUST_USE sg_status sg_rpc_channel_unpack(const sg_rpc_channel *channel, const sg_wire_message *reply,
                                            const ProtobufCMessageDescriptor *type, sg_wire_parts *parts,
                                            sg_error *err);

/* The end of a call. status OK: reply is the message, destroyed after the callback returns. Otherwise error holds the
 * peer's message (or the transport's, naming the address) and reply is NULL; it is never NULL then. Called exactly once
 * for every sg_rpc_channel_call, from a poller thread, after the transport has let go of the request's memory except
 * that releases of its pieces may still be outstanding. Without a word from the peer: UNAVAILABLE (no connection, or
 * it was lost), TIMEOUT, CANCELLED (by sg_rpc_pending_cancel or sg_rpc_client_destroy), EXHAUSTED (a message over the
 * limit: the request is not sent then). */
typedef void (*sg_rpc_done)(void *user, sg_status status, const sg_error *error, const sg_wire_message *reply);

/* Identifies a call under way, for cancelling. */
typedef struct sg_rpc_pending sg_rpc_pending;

/* Starts a call; any thread, a callback's, too. A peer that cannot be reached fails it at once. `path` has static
 * storage; `take_request` is destroyed by this function. The pending is owned by the caller until
 * sg_rpc_pending_release, in any order with the callback. */
sg_rpc_pending *sg_rpc_channel_call(sg_rpc_channel *channel, const char *path, sg_wire_message *take_request,
                                    uint64_t timeout_ms, sg_rpc_done done, void *user);
/* The callback comes soon, with CANCELLED, unless it was on its way already. Any thread. */
void sg_rpc_pending_cancel(sg_rpc_pending *pending);
void sg_rpc_pending_release(sg_rpc_pending *pending); /* NULL is fine */

#endif
