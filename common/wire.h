/* common/wire.h - messages as bytes, without a copy of the bulk.
 *
 * A message is a protobuf message (the head, through protobuf-c) and, for the calls that carry bulk data, the field
 * `bytes data`: its tag and length are written by hand and the pieces are appended as they lie. A receiver finds
 * `data` wherever in the message it is, hands out its bytes as spans into the receive buffers, and gives only the rest
 * to protobuf-c. gRPC's types stay inside wire*.c and rpc_*.c. */
#ifndef SG_COMMON_WIRE_H
#define SG_COMMON_WIRE_H

#include <protobuf-c/protobuf-c.h>

#include "common/pool.h"
#include "common/span.h"
#include "common/status.h"

/* Field number of `data` in the messages that carry bulk: InitializeRequest, PushRequest, PullResponse,
 * PushPullResponse. */
#define SG_WIRE_DATA_FIELD 15u
/* Bound of everything in a message but `data`; gRPC's limit is message_bytes plus this. */
#define SG_WIRE_HEAD_BYTES (1u << 20)

/* Pieces of at most so many bytes are copied into the message; see sg_wire_pack. Measured with messages of 1 MiB of
 * equal pieces, CPU seconds per GB pushed and pulled: of 1 KiB 0.36 copied, 0.48 lent; of 4 KiB 0.34 copied, 0.30
 * lent. */
#define SG_WIRE_COPIED_BYTES 2048u

/* A message as gRPC holds it: to be sent, or received. Owned by one thread at a time. It, and what is unpacked from
 * it, is made of a pool, and may outlive the pool's owner. */
typedef struct sg_wire_message sg_wire_message;

/* Memory that is lent to the transport: `release(owner)` is called once, from any thread, when the transport has let
 * go of it, whether or not it was sent. It may only count down or push on a lock-free list: no lock that the caller of
 * the library may hold. */
typedef struct sg_wire_piece {
    const void *data;
    size_t n_bytes;
    void (*release)(void *owner);
    void *owner;
} sg_wire_piece;

/* Whether a piece of so many bytes is copied; else it is lent. */
bool sg_wire_is_copied(size_t n_bytes);
/* Packs head and pieces; the pieces' releases are owed from here on, also on failure. Bulk is lent as it lies; a piece
 * that sg_wire_is_copied, for which lending would cost more, is copied, and released before this returns.
 * Errors: EXHAUSTED if the head is over SG_WIRE_HEAD_BYTES. head's own `data` field must be empty. Destroyed by
 * sg_wire_message_destroy. */
SG_MUST_USE sg_status sg_wire_pack(sg_pool *pool, const ProtobufCMessage *head, const sg_wire_piece *pieces,
                                   size_t n_pieces, sg_wire_message **message, sg_error *err);
void sg_wire_message_destroy(sg_wire_message *message); /* NULL is fine */
size_t sg_wire_message_bytes(const sg_wire_message *message);

/* A received message taken apart. The spans point into `message`, which must outlive them. */
typedef struct sg_wire_block sg_wire_block;
typedef struct sg_wire_parts {
    ProtobufCMessage *head; /* its `data` is empty; never freed by itself; who keeps it makes a copy */
    sg_span *spans;         /* bytes of `data`, [n_spans]; no span is empty */
    size_t n_spans;
    size_t data_bytes;
    sg_wire_block *memory; /* of head and spans: */
    size_t memory_bytes;
} sg_wire_parts;
/* What protobuf-c gives is what was sent, not what is right: a sub-message that the sender left out is NULL, a string
 * never is but need not be UTF-8 and ends at its first zero byte, an enum may hold a number that it does not name, and
 * of a repeated singular field the last one counts.
 * Errors: INVALID (not a valid message of this type, `data` twice, or a `data` in a type that has none), EXHAUSTED (the
 * head is over SG_WIRE_HEAD_BYTES, or unpacks to more than 32 times that). On success freed by sg_wire_parts_deinit. */
SG_MUST_USE sg_status sg_wire_unpack(const sg_wire_message *message, const ProtobufCMessageDescriptor *type,
                                     sg_wire_parts *parts, sg_error *err);
void sg_wire_parts_deinit(sg_wire_parts *parts); /* a zeroed one is fine */
/* A copy of its own, freed by protobuf_c_message_free_unpacked(copy, NULL). */
ProtobufCMessage *sg_wire_head_copy(const ProtobufCMessage *head);
/* One that is made of a pool, for copies that are made again and again; freed by sg_wire_head_free (NULL is fine).
 * pool may be NULL: then it is malloc's, for whose owner frees others that are not. */
ProtobufCMessage *sg_wire_head_copy_to_pool(sg_pool *pool, const ProtobufCMessage *head);
void sg_wire_head_free(ProtobufCMessage *copy);

/* For tests and fuzzing: a received message made of a copy of these bytes, split into buffers of split_bytes. */
sg_wire_message *sg_wire_message_from_bytes(const void *data, size_t n_bytes, size_t split_bytes);
/* Copies the whole message to out, which holds sg_wire_message_bytes. */
void sg_wire_message_copy(const sg_wire_message *message, uint8_t *out);

#endif
