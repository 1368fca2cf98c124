/* common/rpc_server.h - a thin server over gRPC core: methods by path, replies whenever the handler likes.
 *
 * Threads: `threads` threads poll one completion queue each and run the handlers; a handler never blocks. A call is
 * answered exactly once, by sg_rpc_call_reply or sg_rpc_call_fail, from any one thread, at once or later. Methods that
 * nobody registered are answered UNIMPLEMENTED, the standard grpc.health.v1.Health Check is built in, and garbage on
 * the port is gRPC's to refuse. Where there are tokens, a call whose token does not give the role that its method needs
 * is answered DENIED without its handler; Health needs none. */
#ifndef SG_COMMON_RPC_SERVER_H
#define SG_COMMON_RPC_SERVER_H

#include "common/log.h"
#include "common/rpc_faults.h"
#include "common/security.h"
#include "common/wire.h"

/* Calls that one connection may have under way, parked ones included; more wait at the client, in order. */
#define SG_RPC_SERVER_CALLS_PER_CONNECTION 1024
/* Those of all connections, four times as many as pulls may be parked (server/store_internal.h); more are answered
 * NOT_READY, and logged once for each peer. */
#define SG_RPC_SERVER_CALLS 65536
/* Health checks whose answers are not read yet: anybody may ask for them, without a token. More are refused the same.
 */
#define SG_RPC_SERVER_PROBES 256
/* A connection takes no more calls after about so long, and its client makes another. What is under way on it has
 * drain_ms to end: so a message that never ends is let go of, which gRPC would keep as long as the connection lives. */
#define SG_RPC_SERVER_CONNECTION_AGE_MS 300000

typedef struct sg_rpc_server sg_rpc_server;
typedef struct sg_rpc_call sg_rpc_call;

/* The request's message is sg_rpc_call_request(call). */
typedef void (*sg_rpc_handler)(void *user, sg_rpc_call *call);

typedef struct sg_rpc_method {
    const char *path; /* "/shardgrad.v1.ParameterService/Push"; static storage */
    sg_rpc_handler handler;
    void *user;
} sg_rpc_method;

typedef struct sg_rpc_server_options {
    const char *address; /* host:port to bind; port 0: the kernel chooses */
    uint32_t threads;    /* at least 1 */
    uint64_t message_bytes;
    uint64_t drain_ms;            /* how long a client may take to read an answer; 0: as long as it likes */
    size_t max_calls;             /* 0: SG_RPC_SERVER_CALLS */
    uint64_t connection_age_ms;   /* 0: SG_RPC_SERVER_CONNECTION_AGE_MS; has no effect without drain_ms */
    const sg_rpc_method *methods; /* copied */
    size_t n_methods;
    const sg_security *security; /* must outlive the server; NULL: plaintext, and everybody may call everything */
    /* Which role the method at `path` asks of a caller, where there are tokens; NULL: admin, whatever the method. */
    sg_role (*role_needed)(const char *path);
    sg_rpc_faults *faults; /* of tests alone; NULL: none */
    const sg_log *log;     /* must outlive the server; NULL is silent */
} sg_rpc_server_options;

/* Binds and serves; handlers run from before this returns. Errors: CONFIG (address in use, a host that does not
 * resolve), naming the address; EXHAUSTED (no threads). Destroyed by sg_rpc_server_destroy after sg_rpc_server_stop. */
SG_MUST_USE sg_status sg_rpc_server_create(const sg_rpc_server_options *options, sg_rpc_server **server, sg_error *err);
uint16_t sg_rpc_server_port(const sg_rpc_server *server);
/* How many bytes of requests may be held by sg_rpc_call_take_request, all together: a quarter of the memory with which
 * a server of this message_bytes receives. With more than that gRPC would begin to slow down who sends. */
uint64_t sg_rpc_server_may_hold_bytes(uint64_t message_bytes);

/* Ends the answers that their clients do not read: those that are older than drain_ms, and, where one connection has
 * left more than an eighth of the receive memory unread, its oldest ones. Beyond as much as the whole of that memory
 * the oldest of all end at once, without a tick. The client sees a call that was cut; what was lent for the answer is
 * let go of. Call it every 100 ms or so. Any thread, until the server is destroyed. */
void sg_rpc_server_tick(sg_rpc_server *server, uint64_t now_ms);

/* What the health service says from now on: SERVING or NOT_SERVING (as it begins). Any thread. */
void sg_rpc_server_set_serving(sg_rpc_server *server, bool serving);

/* Takes no new call (one that still comes is answered STOPPED, without its handler); waits up to grace_ms for the
 * calls under way to be answered, then cancels them, then waits until every handler has returned and every call is
 * gone. Calls that handlers hold must still be answered (failing them is enough) or this waits for ever; they may be
 * answered before, meanwhile and after the grace. Afterwards the port is free. Not from a handler or a notice; once. */
void sg_rpc_server_stop(sg_rpc_server *server, uint64_t grace_ms);
/* Stops it first, with no grace, if that was not done. NULL is fine. */
void sg_rpc_server_destroy(sg_rpc_server *server);

/* Valid until the call is answered: what sg_wire_unpack gave of `data`, too. */
const sg_wire_message *sg_rpc_call_request(const sg_rpc_call *call);
/* The request becomes the caller's, who destroys it, on any thread, perhaps long after the call was answered; parts
 * unpacked from it, before or afterwards, are valid as long as it lives. What is held so counts against the memory
 * with which gRPC receives: keep it short or small. Once, before the call is answered; sg_rpc_call_request is empty
 * from then on. */
sg_wire_message *sg_rpc_call_take_request(sg_rpc_call *call);
/* Lets go of it at once: for a call that is parked, and has no more need of it. */
void sg_rpc_call_drop_request(sg_rpc_call *call);
/* When the client stops waiting, on sg_clock_ms's scale; UINT64_MAX: never. */
uint64_t sg_rpc_call_deadline_ms(const sg_rpc_call *call);
/* "ipv4:127.0.0.1:4242", for messages. Valid until the call is answered. */
const char *sg_rpc_call_peer(sg_rpc_call *call);

/* Asks for a notice if the client goes away, or its deadline passes, before the call is answered: `on_gone(user, call)`
 * is called at most once, from an rpc thread, never after the call was answered. The call must still be answered, by
 * the notice itself or by whoever holds the call. For calls that are parked; once for a call.
 * Only while no other thread can answer: call it before the call is put where others find it, or under the lock that
 * guards that place. It does not call on_gone itself. Answering waits for a notice under way, so nobody may answer
 * under a lock that on_gone takes. */
void sg_rpc_call_watch(sg_rpc_call *call, void (*on_gone)(void *user, sg_rpc_call *call), void *user);

/* Answers with a message. The pieces' releases are owed in any case. The call is gone when this returns. A message
 * over the limit is answered EXHAUSTED instead. */
void sg_rpc_call_reply(sg_rpc_call *call, const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces);
/* Answers with an error: gRPC code and trailer from `status`, which is not OK, the message from format. The call is
 * gone. */
void sg_rpc_call_fail(sg_rpc_call *call, sg_status status, const char *format, ...) SG_PRINTF(3, 4);

#endif
