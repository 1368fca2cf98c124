/* common/wire_read.c - taking a received message apart: one walk over its fields, scattered as they lie.
 *
 * All that comes of it, spans and head, lies in one block of the message's pool, or in a few if the head is large. */
#include <stdalign.h>
#include <stdlib.h>

#include <grpc/slice_buffer.h>

#include "common/wire_internal.h"

/* What an unpacked head may take: a hostile one packs an element of a hundred bytes into two. */
#define UNPACKED_BYTES ((size_t)SG_WIRE_HEAD_BYTES * 32)

/* Blocks are powers of two, so that messages of about the same size find a block again. The first one has room for a
 * head of the usual size and for some hundred spans, as a message of a few megabytes has; from the greatest one on,
 * which only a hostile or a very large head needs, they are not kept. */
#define BLOCK_BYTES      ((size_t)16 << 10)
#define BLOCK_KEPT_BYTES ((size_t)256 << 10)
#define HEAD_ROOM_BYTES  ((size_t)2048)

enum { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };
enum { TAG_MAX_BYTES = 5, LENGTH_MAX_BYTES = 5, VARINT_MAX_BYTES = 10 };

/* --- memory --- */

struct sg_wire_block {
    alignas(16) sg_wire_block *older;
    sg_pool_buffer *buffer; /* NULL: not from the pool */
};

typedef struct memory {
    sg_pool *pool;
    sg_wire_block *newest;
    uint8_t *free; /* in the newest */
    size_t free_bytes;
    size_t block_bytes; /* of the newest */
    size_t taken_bytes; /* of all blocks */
    size_t left_bytes;  /* of what the head may take */
    bool spent;         /* it wanted more */
} memory;

static bool memory_grow(memory *from, size_t n_bytes)
{
    size_t block_bytes = from->block_bytes > 0 ? 2 * from->block_bytes : BLOCK_BYTES;
    while (block_bytes < sizeof(sg_wire_block) + n_bytes)
        block_bytes *= 2;
    sg_pool_buffer *buffer = block_bytes <= BLOCK_KEPT_BYTES ? sg_pool_get(from->pool, block_bytes) : NULL;
    sg_wire_block *block = buffer != NULL ? buffer->data : sg_try_alloc_aligned(block_bytes);
    if (block == NULL)
        return false;
    *block = (sg_wire_block){.older = from->newest, .buffer = buffer};
    from->newest = block;
    from->free = (uint8_t *)(block + 1);
    from->free_bytes = block_bytes - sizeof(*block);
    from->block_bytes = block_bytes;
    from->taken_bytes += block_bytes;
    return true;
}

/* 16-byte aligned, not zeroed; NULL without memory. */
static void *memory_take(memory *from, size_t n_bytes)
{
    if (n_bytes > SIZE_MAX / 4)
        return NULL;
    n_bytes = (n_bytes + 15) & ~(size_t)15;
    if (n_bytes > from->free_bytes && !memory_grow(from, n_bytes))
        return NULL;
    void *taken = from->free;
    from->free += n_bytes;
    from->free_bytes -= n_bytes;
    return taken;
}

static void blocks_free(sg_wire_block *block)
{
    while (block != NULL) {
        sg_wire_block *older = block->older;
        if (block->buffer != NULL)
            sg_pool_put(block->buffer);
        else
            free(block);
        block = older;
    }
}

static void *head_alloc(void *user, size_t n_bytes)
{
    memory *from = user;
    if (n_bytes > from->left_bytes) {
        from->spent = true;
        return NULL;
    }
    from->left_bytes -= n_bytes;
    return memory_take(from, n_bytes);
}

/* What a head is made of is freed with its block. */
static void head_free(void *user, void *piece)
{
    (void)user;
    (void)piece;
}

/* --- the walk --- */

/* Where the walk found what. The head is what lies before and behind the field `data`. */
typedef struct layout {
    const ProtobufCMessageDescriptor *type;
    bool data_is_bytes, data_is_known; /* field 15 of the type: bytes; there at all */
    bool has_data;
    size_t before_bytes; /* of the head, before `data`; all of it if there is none */
    size_t head_bytes;
    sg_span_reader data, behind; /* valid if has_data */
} layout;

static bool varint_read(sg_span_reader *reader, size_t max_bytes, uint64_t *value)
{
    *value = 0;
    for (size_t i = 0; i < max_bytes; i++) {
        uint8_t byte;
        if (!sg_span_reader_read(reader, &byte, 1))
            return false;
        *value |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool value_skip(sg_span_reader *reader, uint32_t wire_type)
{
    uint64_t value;
    switch (wire_type) {
    case WIRE_VARINT:
        return varint_read(reader, VARINT_MAX_BYTES, &value);
    case WIRE_64_BITS:
        return sg_span_reader_read(reader, NULL, 8);
    case WIRE_BYTES:
        return varint_read(reader, LENGTH_MAX_BYTES, &value) && value <= reader->left &&
               sg_span_reader_read(reader, NULL, (size_t)value);
    case WIRE_32_BITS:
        return sg_span_reader_read(reader, NULL, 4);
    default: /* groups, which proto3 does not have, and types that do not exist */
        return false;
    }
}

static sg_status data_find(sg_span_reader *reader, uint32_t wire_type, layout *found, sg_error *err)
{
    const char *name = found->type->short_name;
    uint64_t n_bytes;
    if (!found->data_is_known)
        return sg_error_set(err, SG_INVALID, "%s: has data, of which this message has none", name);
    if (wire_type != WIRE_BYTES)
        return sg_error_set(err, SG_INVALID, "%s: data has wire type %u, not %u", name, wire_type, WIRE_BYTES);
    if (found->has_data)
        return sg_error_set(err, SG_INVALID, "%s: has data twice", name);
    if (!varint_read(reader, LENGTH_MAX_BYTES, &n_bytes))
        return sg_error_set(err, SG_INVALID, "%s: the length of data is cut off or too long", name);
    if (n_bytes > reader->left || !sg_span_reader_take(reader, (size_t)n_bytes, &found->data))
        return sg_error_set(err, SG_INVALID, "%s: data says %llu bytes, but %zu follow", name,
                            (unsigned long long)n_bytes, reader->left);
    found->has_data = true;
    found->before_bytes = found->head_bytes;
    found->behind = *reader;
    return SG_OK;
}

static sg_status field_read(sg_span_reader *reader, layout *found, sg_error *err)
{
    size_t left = reader->left;
    uint64_t tag;
    if (!varint_read(reader, TAG_MAX_BYTES, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
        return sg_error_set(err, SG_INVALID, "%s: byte %zu of its head begins no field", found->type->short_name,
                            found->head_bytes);
    uint32_t number = (uint32_t)tag >> 3, wire_type = (uint32_t)tag & 7;
    if (number == SG_WIRE_DATA_FIELD && (found->data_is_bytes || !found->data_is_known))
        return data_find(reader, wire_type, found, err);
    if (!value_skip(reader, wire_type))
        return sg_error_set(err, SG_INVALID, "%s: field %u (wire type %u) is cut off or malformed",
                            found->type->short_name, number, wire_type);
    found->head_bytes += left - reader->left;
    if (found->head_bytes > SG_WIRE_HEAD_BYTES)
        return sg_error_set(err, SG_EXHAUSTED, "%s: more than the %u bytes that are allowed beside its data",
                            found->type->short_name, SG_WIRE_HEAD_BYTES);
    return SG_OK;
}

static sg_status fields_walk(sg_span_reader reader, const ProtobufCMessageDescriptor *type, layout *found,
                             sg_error *err)
{
    const ProtobufCFieldDescriptor *data = protobuf_c_message_descriptor_get_field(type, SG_WIRE_DATA_FIELD);
    *found = (layout){.type = type,
                      .data_is_known = data != NULL,
                      .data_is_bytes = data != NULL && data->type == PROTOBUF_C_TYPE_BYTES &&
                                       data->label != PROTOBUF_C_LABEL_REPEATED};
    sg_status status = SG_OK;
    while (status == SG_OK && reader.left > 0)
        status = field_read(&reader, found, err);
    if (!found->has_data)
        found->before_bytes = found->head_bytes;
    return status;
}

/* --- the head --- */

/* head_bytes is at most SG_WIRE_HEAD_BYTES. */
static sg_status head_unpack(memory *from, const ProtobufCMessageDescriptor *type, const uint8_t *bytes,
                             size_t head_bytes, ProtobufCMessage **head, sg_error *err)
{
    ProtobufCAllocator allocator = {.alloc = head_alloc, .free = head_free, .allocator_data = from};
    *head = protobuf_c_message_unpack(type, &allocator, head_bytes, bytes);
    if (*head == NULL && from->spent)
        return sg_error_set(err, SG_EXHAUSTED, "%s: its %zu bytes beside data unpack to more than %zu",
                            type->short_name, head_bytes, UNPACKED_BYTES);
    if (*head == NULL)
        return sg_error_set(err, SG_INVALID, "not a valid %s", type->short_name);
    return SG_OK;
}

/* Unpacks where the head lies if it lies in one piece, as it mostly does; otherwise gathers it. */
static sg_status head_read(memory *from, const sg_span *spans, size_t n_spans, const layout *found,
                           ProtobufCMessage **head, sg_error *err)
{
    sg_span_reader reader;
    sg_span piece = {0};
    sg_span_reader_init(&reader, spans, n_spans, found->before_bytes);
    bool whole = found->head_bytes == found->before_bytes;
    if (whole && (found->head_bytes == 0 || (sg_span_reader_next(&reader, SIZE_MAX, &piece) && reader.left == 0)))
        return head_unpack(from, found->type, piece.data, found->head_bytes, head, err);

    uint8_t *bytes = memory_take(from, found->head_bytes);
    if (bytes == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu bytes of a %s", found->head_bytes,
                            found->type->short_name);
    sg_span_reader_init(&reader, spans, n_spans, found->before_bytes);
    sg_span_reader behind = found->behind;
    size_t behind_bytes = found->head_bytes - found->before_bytes;
    SG_ASSERT(sg_span_reader_read(&reader, bytes, found->before_bytes));
    SG_ASSERT(behind_bytes == 0 || sg_span_reader_read(&behind, bytes + found->before_bytes, behind_bytes));
    return head_unpack(from, found->type, bytes, found->head_bytes, head, err);
}

/* --- the whole --- */

/* One array of twice the length: the received buffers lie in the second half, and the spans of `data`, which are at
 * most as many, will be written to the first. */
static sg_span *spans_of(memory *from, const grpc_slice_buffer *slices)
{
    size_t n_bytes = sizeof(sg_span) * (2 * slices->count + 1);
    if (!memory_grow(from, n_bytes + HEAD_ROOM_BYTES))
        return NULL;
    sg_span *spans = memory_take(from, n_bytes);
    for (size_t i = 0; i < slices->count; i++)
        spans[slices->count + i] =
            (sg_span){.data = GRPC_SLICE_START_PTR(slices->slices[i]), .n_bytes = GRPC_SLICE_LENGTH(slices->slices[i])};
    return spans;
}

static void parts_fill(sg_wire_parts *parts, ProtobufCMessage *head, sg_span *spans, const layout *found)
{
    *parts = (sg_wire_parts){.head = head, .spans = spans};
    if (!found->has_data)
        return;
    sg_span_reader reader = found->data;
    parts->data_bytes = reader.left;
    while (sg_span_reader_next(&reader, SIZE_MAX, &spans[parts->n_spans]))
        parts->n_spans++;
}

sg_status sg_wire_unpack(const sg_wire_message *message, const ProtobufCMessageDescriptor *type, sg_wire_parts *parts,
                         sg_error *err)
{
    if (message->buffer == NULL)
        return sg_error_set(err, SG_INVALID, "%s: the message is missing", type->short_name);
    if (message->buffer->data.raw.compression != GRPC_COMPRESS_NONE)
        return sg_error_set(err, SG_INVALID, "%s: is compressed; send it as it is", type->short_name);
    const grpc_slice_buffer *slices = &message->buffer->data.raw.slice_buffer;
    memory from = {.pool = message->pool, .left_bytes = UNPACKED_BYTES};
    sg_span *spans = spans_of(&from, slices);
    if (spans == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu buffers of a %s", slices->count,
                            type->short_name);
    layout found;
    sg_span_reader reader;
    ProtobufCMessage *head = NULL;
    sg_span_reader_init(&reader, spans + slices->count, slices->count, slices->length);
    sg_status status = fields_walk(reader, type, &found, err);
    if (status == SG_OK)
        status = head_read(&from, spans + slices->count, slices->count, &found, &head, err);
    if (status != SG_OK) {
        blocks_free(from.newest);
        return status;
    }
    parts_fill(parts, head, spans, &found);
    parts->memory = from.newest;
    parts->memory_bytes = from.taken_bytes;
    return SG_OK;
}

void sg_wire_parts_deinit(sg_wire_parts *parts)
{
    blocks_free(parts->memory);
    *parts = (sg_wire_parts){0};
}

/* --- copies --- */

static void *piece_alloc(void *pool, size_t n_bytes)
{
    return sg_pool_alloc(pool, n_bytes);
}

static void piece_free(void *pool, void *piece)
{
    (void)pool; /* the piece knows it */
    sg_pool_free(piece);
}

/* allocator: of the copy; NULL: malloc's. */
static ProtobufCMessage *head_copy(sg_pool *pool, ProtobufCAllocator *allocator, const ProtobufCMessage *head)
{
    size_t n_bytes = protobuf_c_message_get_packed_size(head);
    uint8_t *packed = sg_pool_alloc(pool, n_bytes);
    protobuf_c_message_pack(head, packed);
    ProtobufCMessage *copy = protobuf_c_message_unpack(head->descriptor, allocator, n_bytes, packed);
    sg_pool_free(packed);
    SG_ASSERT(copy != NULL);
    return copy;
}

ProtobufCMessage *sg_wire_head_copy_to_pool(sg_pool *pool, const ProtobufCMessage *head)
{
    ProtobufCAllocator allocator = {.alloc = piece_alloc, .free = piece_free, .allocator_data = pool};
    return head_copy(pool, &allocator, head);
}

void sg_wire_head_free(ProtobufCMessage *copy)
{
    ProtobufCAllocator allocator = {.free = piece_free};
    if (copy != NULL)
        protobuf_c_message_free_unpacked(copy, &allocator);
}

ProtobufCMessage *sg_wire_head_copy(const ProtobufCMessage *head)
{
    return head_copy(NULL, NULL, head);
}
