/* common/wire_internal.h - what is inside an sg_wire_message: for wire*.c and rpc_*.c, which know gRPC. */
#ifndef SG_COMMON_WIRE_INTERNAL_H
#define SG_COMMON_WIRE_INTERNAL_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>

#include "common/wire.h"

/* Also embedded in calls. Without a buffer it is no message. gRPC empties `buffer` when it sends it. */
struct sg_wire_message {
    grpc_byte_buffer *buffer;
    sg_pool *pool;
    bool owns_pool; /* of a message that no server or client made */
};

/* Lets go of the buffer; the struct stays the caller's. */
void sg_wire_message_deinit(sg_wire_message *message);

/* Moves the buffer of `from`, which is embedded somewhere, to a message of its own. */
sg_wire_message *sg_wire_message_take(sg_pool *pool, sg_wire_message *from);

/* sg_wire_pack to a struct of the caller's, for sg_wire_message_deinit. */
SG_MUST_USE sg_status sg_wire_pack_into(sg_pool *pool, const ProtobufCMessage *head, const sg_wire_piece *pieces,
                                        size_t n_pieces, sg_wire_message *message, sg_error *err);

#endif
