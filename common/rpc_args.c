/* common/rpc_args.c - see rpc_args.h. */
#include "common/rpc_args.h"

#include <limits.h>

#include "common/rpc_address.h"
#include "common/rpc_server.h"
#include "common/wire.h"

/* A peer is taken for dead when it has not answered a ping for ALIVE_TIMEOUT_MS; both sides ask, calls or not. */
enum { ALIVE_PING_MS = 15000, ALIVE_TIMEOUT_MS = 10000, PING_ALLOWED_MS = 5000 };
enum { RECONNECT_FIRST_MS = 100, RECONNECT_MAX_MS = 2000, CONNECT_TIMEOUT_MS = 5000, RESOLVE_AGAIN_MS = 1000 };

/* Within one machine. A message may be sent as a whole before its receiver has seen its beginning, and comes in frames
 * of this size. gRPC's own estimate of the bandwidth-delay product, which is turned off, opens the windows much
 * further: then more bytes are on their way than the caches hold. Measured over loopback (2 cores with 1 MiB of L2
 * each, messages of 1 MiB, 2 under way), CPU seconds per GB of push / pull / both ways: 0.39 / 0.35 / 0.41 as gRPC
 * comes, 0.30 / 0.25 / 0.25 so. Between machines, where the wire is the limit, the estimate is better: steps over links
 * of 400 and 800 Mbit/s took 12 to 45 % longer with these settings (tests/bench/shaped). */
#define FRAME_BYTES      (256 << 10)
#define WINDOW_MIN_BYTES 65535u
#define WINDOW_MAX_BYTES (4u << 20)

/* Receive buffers of a server: so many whole messages may be on their way in, then gRPC stops reading. */
#define MESSAGES_UNDER_WAY ((size_t)256)
#define QUOTA_MIN_BYTES    ((size_t)1 << 30)

int sg_rpc_args_message_limit(uint64_t message_bytes)
{
    return message_bytes < INT_MAX - SG_WIRE_HEAD_BYTES ? (int)message_bytes + (int)SG_WIRE_HEAD_BYTES : INT_MAX;
}

size_t sg_rpc_args_quota_bytes(uint64_t message_bytes)
{
    size_t n_bytes = (size_t)sg_rpc_args_message_limit(message_bytes) * MESSAGES_UNDER_WAY;
    return n_bytes > QUOTA_MIN_BYTES ? n_bytes : QUOTA_MIN_BYTES;
}

static void add_integer(sg_rpc_args *args, const char *key, int value)
{
    SG_ASSERT(args->list.num_args < SG_ARRAY_LEN(args->items));
    args->items[args->list.num_args++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

static void add_windows(sg_rpc_args *args, uint64_t message_bytes)
{
    uint64_t window_bytes = message_bytes < WINDOW_MIN_BYTES ? WINDOW_MIN_BYTES : message_bytes;
    add_integer(args, GRPC_ARG_HTTP2_BDP_PROBE, 0);
    add_integer(args, GRPC_ARG_HTTP2_MAX_FRAME_SIZE, FRAME_BYTES);
    add_integer(args, GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES,
                (int)(window_bytes < WINDOW_MAX_BYTES ? window_bytes : WINDOW_MAX_BYTES));
}

static void add_both(sg_rpc_args *args, const char *address, uint64_t message_bytes)
{
    *args = (sg_rpc_args){.list.args = args->items};
    add_integer(args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, sg_rpc_args_message_limit(message_bytes));
    add_integer(args, GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, sg_rpc_args_message_limit(message_bytes));
    add_integer(args, GRPC_ARG_KEEPALIVE_TIME_MS, ALIVE_PING_MS);
    add_integer(args, GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ALIVE_TIMEOUT_MS);
    add_integer(args, GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    add_integer(args, GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    if (sg_rpc_address_is_loopback(address))
        add_windows(args, message_bytes);
    /* Floats do not compress, and a small message that unpacks to gigabytes is an attack. */
    add_integer(args, GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    add_integer(args, GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    add_integer(args, GRPC_ARG_ENABLE_CHANNELZ, 0);
}

static int clamp_ms(uint64_t ms)
{
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

void sg_rpc_args_init_server(sg_rpc_args *args, const char *address, uint64_t message_bytes, uint64_t age_ms,
                             uint64_t drain_ms)
{
    add_both(args, address, message_bytes);
    add_integer(args, GRPC_ARG_ALLOW_REUSEPORT, 0); /* or two daemons share a port and both believe they have it */
    add_integer(args, GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, PING_ALLOWED_MS);
    add_integer(args, GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
    add_integer(args, GRPC_ARG_MAX_CONCURRENT_STREAMS, SG_RPC_SERVER_CALLS_PER_CONNECTION);
    if (drain_ms > 0) {
        add_integer(args, GRPC_ARG_MAX_CONNECTION_AGE_MS, clamp_ms(age_ms));
        add_integer(args, GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, clamp_ms(drain_ms));
    }
    args->quota = grpc_resource_quota_create("shardgrad");
    grpc_resource_quota_resize(args->quota, sg_rpc_args_quota_bytes(message_bytes));
    args->items[args->list.num_args++] =
        (grpc_arg){.type = GRPC_ARG_POINTER,
                   .key = (char *)(uintptr_t)GRPC_ARG_RESOURCE_QUOTA,
                   .value.pointer = {.p = args->quota, .vtable = grpc_resource_quota_arg_vtable()}};
}

void sg_rpc_args_init_client(sg_rpc_args *args, const char *address, uint64_t message_bytes)
{
    add_both(args, address, message_bytes);
    add_integer(args, GRPC_ARG_ENABLE_RETRIES, 0); /* who calls knows what may be repeated */
    add_integer(args, GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    add_integer(args, GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    add_integer(args, GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
    add_integer(args, GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, RECONNECT_FIRST_MS);
    add_integer(args, GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, RECONNECT_MAX_MS);
    add_integer(args, GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, CONNECT_TIMEOUT_MS); /* gRPC's name for this time-out */
    add_integer(args, GRPC_ARG_DNS_MIN_TIME_BETWEEN_RESOLUTIONS_MS, RESOLVE_AGAIN_MS);
}

void sg_rpc_args_deinit(sg_rpc_args *args)
{
    if (args->quota != NULL)
        grpc_resource_quota_unref(args->quota);
    args->quota = NULL;
}
