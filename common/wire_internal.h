/* common/wire_internal.h - what is inside an sg_wire_message: for wire.c and rpc_*.c, which know gRPC. */
#ifndef SG_COMMON_WIRE_INTERNAL_H
#define SG_COMMON_WIRE_INTERNAL_H

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>

#include "common/wire.h"

/* Also embedded in calls. A zeroed one is no message. gRPC empties `buffer` when it sends it. */
struct sg_wire_message {
    grpc_byte_buffer *buffer;
};

/* Lets go of the buffer; the struct is zeroed and stays the caller's. */
void sg_wire_message_deinit(sg_wire_message *message);

/* Pays the releases of pieces that will not be sent. */
void sg_wire_release_pieces(const sg_wire_piece *pieces, size_t n_pieces);

#endif
