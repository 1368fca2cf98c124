/* common/wire.c - see wire.h. Reading a received message is one walk over its fields, scattered as they lie. */
#include "common/wire_internal.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/slice.h>
#include <grpc/slice_buffer.h>

/* The tag of `data` is one byte: (15 << 3) | 2. */
#define DATA_TAG ((uint8_t)(SG_WIRE_DATA_FIELD << 3 | WIRE_BYTES))

/* What an unpacked head may take: a hostile one packs an element of a hundred bytes into two. */
#define UNPACKED_BYTES ((size_t)SG_WIRE_HEAD_BYTES * 32)

enum { WIRE_VARINT = 0, WIRE_64_BITS = 1, WIRE_BYTES = 2, WIRE_32_BITS = 5 };
enum { TAG_MAX_BYTES = 5, LENGTH_MAX_BYTES = 5, VARINT_MAX_BYTES = 10 };

static grpc_slice_buffer *slices_of(const sg_wire_message *message)
{
    return &message->buffer->data.raw.slice_buffer;
}

void sg_wire_message_deinit(sg_wire_message *message)
{
    if (message->buffer != NULL)
        grpc_byte_buffer_destroy(message->buffer);
    message->buffer = NULL;
}

void sg_wire_message_destroy(sg_wire_message *message)
{
    if (message == NULL)
        return;
    sg_wire_message_deinit(message);
    free(message);
}

size_t sg_wire_message_bytes(const sg_wire_message *message)
{
    return message->buffer != NULL ? slices_of(message)->length : 0;
}

void sg_wire_message_copy(const sg_wire_message *message, uint8_t *out)
{
    if (message->buffer == NULL)
        return;
    const grpc_slice_buffer *slices = slices_of(message);
    for (size_t i = 0; i < slices->count; i++) {
        memcpy(out, GRPC_SLICE_START_PTR(slices->slices[i]), GRPC_SLICE_LENGTH(slices->slices[i]));
        out += GRPC_SLICE_LENGTH(slices->slices[i]);
    }
}

sg_wire_message *sg_wire_message_from_bytes(const void *data, size_t n_bytes, size_t split_bytes)
{
    SG_ASSERT(split_bytes > 0);
    sg_wire_message *message = sg_xcalloc(1, sizeof(*message));
    message->buffer = grpc_raw_byte_buffer_create(NULL, 0);
    for (const char *from = data; n_bytes > 0;) {
        size_t piece = n_bytes < split_bytes ? n_bytes : split_bytes;
        /* add_indexed, because add would join small slices again. */
        grpc_slice_buffer_add_indexed(slices_of(message), grpc_slice_from_copied_buffer(from, piece));
        from += piece;
        n_bytes -= piece;
    }
    return message;
}

/* --- packing --- */

void sg_wire_release_pieces(const sg_wire_piece *pieces, size_t n_pieces)
{
    for (size_t i = 0; i < n_pieces; i++)
        pieces[i].release(pieces[i].owner);
}

static size_t pieces_bytes(const sg_wire_piece *pieces, size_t n_pieces)
{
    size_t n_bytes = 0;
    for (size_t i = 0; i < n_pieces; i++)
        n_bytes += pieces[i].n_bytes;
    return n_bytes;
}

static size_t varint_write(uint8_t *out, uint64_t value)
{
    size_t n_bytes = 0;
    for (; value >= 0x80; value >>= 7)
        out[n_bytes++] = (uint8_t)(value | 0x80);
    out[n_bytes++] = (uint8_t)value;
    return n_bytes;
}

/* The head and, if there are data, their tag and length. */
static grpc_slice head_slice(const ProtobufCMessage *head, size_t head_bytes, size_t data_bytes)
{
    uint8_t prefix[1 + VARINT_MAX_BYTES];
    size_t prefix_bytes = 0;
    if (data_bytes > 0) {
        prefix[prefix_bytes++] = DATA_TAG;
        prefix_bytes += varint_write(prefix + prefix_bytes, data_bytes);
    }
    grpc_slice slice = grpc_slice_malloc(head_bytes + prefix_bytes);
    uint8_t *out = GRPC_SLICE_START_PTR(slice);
    if (head_bytes > 0)
        protobuf_c_message_pack(head, out);
    memcpy(out + head_bytes, prefix, prefix_bytes);
    return slice;
}

/* The pieces of a message that gRPC has not let go of. `loan` is written last and read first, which makes what was
 * written before packing visible to the release: gRPC promises that, too, but not in a way that ThreadSanitizer can
 * follow. */
typedef struct loan loan;
typedef struct loan_item {
    _Atomic(loan *) loan;
    void (*release)(void *owner);
    void *owner;
} loan_item;
struct loan {
    atomic_size_t left;
    loan_item items[];
};

/* Called when the last reference to the piece's slice is gone. */
static void loan_end(void *ended)
{
    loan_item *item = ended;
    loan *lent = atomic_load_explicit(&item->loan, memory_order_acquire);
    void (*release)(void *owner) = item->release;
    void *owner = item->owner;
    if (atomic_fetch_sub_explicit(&lent->left, 1, memory_order_acq_rel) == 1)
        free(lent);
    release(owner);
}

static void pieces_append(grpc_slice_buffer *slices, const sg_wire_piece *pieces, size_t n_pieces)
{
    if (n_pieces == 0)
        return;
    loan *lent = sg_xcalloc(1, sizeof(*lent) + n_pieces * sizeof(lent->items[0]));
    atomic_init(&lent->left, n_pieces);
    for (size_t i = 0; i < n_pieces; i++) {
        lent->items[i].release = pieces[i].release;
        lent->items[i].owner = pieces[i].owner;
        atomic_store_explicit(&lent->items[i].loan, lent, memory_order_release);
        void *data = (void *)(uintptr_t)pieces[i].data;
        if (pieces[i].n_bytes == 0) /* makes no slice */
            loan_end(&lent->items[i]);
        else
            grpc_slice_buffer_add_indexed(
                slices, grpc_slice_new_with_user_data(data, pieces[i].n_bytes, loan_end, &lent->items[i]));
    }
}

sg_status sg_wire_pack(const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces,
                       sg_wire_message **message, sg_error *err)
{
    size_t head_bytes = protobuf_c_message_get_packed_size(head);
    if (head_bytes > SG_WIRE_HEAD_BYTES) {
        sg_wire_release_pieces(pieces, n_pieces);
        return sg_error_set(err, SG_EXHAUSTED, "%s: %zu bytes beside its data, at most %u are allowed",
                            head->descriptor->short_name, head_bytes, SG_WIRE_HEAD_BYTES);
    }
    sg_wire_message *packed = sg_xcalloc(1, sizeof(*packed));
    packed->buffer = grpc_raw_byte_buffer_create(NULL, 0);
    grpc_slice_buffer_add(slices_of(packed), head_slice(head, head_bytes, pieces_bytes(pieces, n_pieces)));
    pieces_append(slices_of(packed), pieces, n_pieces);
    *message = packed;
    return SG_OK;
}

/* --- unpacking --- */

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

typedef struct budget {
    size_t left_bytes;
    bool spent;
} budget;

static void *budget_alloc(void *user, size_t n_bytes)
{
    budget *memory = user;
    if (n_bytes > memory->left_bytes) {
        memory->spent = true;
        return NULL;
    }
    memory->left_bytes -= n_bytes;
    return malloc(n_bytes);
}

static void budget_free(void *user, void *memory)
{
    (void)user;
    free(memory);
}

/* head_bytes is at most SG_WIRE_HEAD_BYTES. What this allocates is freed by protobuf-c's default allocator, too. */
static sg_status head_unpack(const ProtobufCMessageDescriptor *type, const uint8_t *bytes, size_t head_bytes,
                             ProtobufCMessage **head, sg_error *err)
{
    budget memory = {.left_bytes = UNPACKED_BYTES};
    ProtobufCAllocator allocator = {.alloc = budget_alloc, .free = budget_free, .allocator_data = &memory};
    ProtobufCMessage *unpacked = protobuf_c_message_unpack(type, &allocator, head_bytes, bytes);
    if (unpacked == NULL && memory.spent)
        return sg_error_set(err, SG_EXHAUSTED, "%s: its %zu bytes beside data unpack to more than %zu",
                            type->short_name, head_bytes, UNPACKED_BYTES);
    if (unpacked == NULL)
        return sg_error_set(err, SG_INVALID, "not a valid %s", type->short_name);
    *head = unpacked;
    return SG_OK;
}

/* Unpacks where the head lies if it lies in one piece, as it mostly does; otherwise gathers it. */
static sg_status head_read(const sg_span *spans, size_t n_spans, const layout *found, ProtobufCMessage **head,
                           sg_error *err)
{
    sg_span_reader reader;
    sg_span piece = {0};
    sg_span_reader_init(&reader, spans, n_spans, found->before_bytes);
    bool whole = found->head_bytes == found->before_bytes;
    if (whole && (found->head_bytes == 0 || (sg_span_reader_next(&reader, SIZE_MAX, &piece) && reader.left == 0)))
        return head_unpack(found->type, piece.data, found->head_bytes, head, err);

    uint8_t *bytes = malloc(found->head_bytes);
    if (bytes == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu bytes of a %s", found->head_bytes,
                            found->type->short_name);
    sg_span_reader_init(&reader, spans, n_spans, found->before_bytes);
    sg_span_reader behind = found->behind;
    size_t behind_bytes = found->head_bytes - found->before_bytes;
    SG_ASSERT(sg_span_reader_read(&reader, bytes, found->before_bytes));
    SG_ASSERT(behind_bytes == 0 || sg_span_reader_read(&behind, bytes + found->before_bytes, behind_bytes));
    sg_status status = head_unpack(found->type, bytes, found->head_bytes, head, err);
    free(bytes);
    return status;
}

/* One array of twice the length: the received buffers lie in the second half, and the spans of `data`, which are at
 * most as many, will be written to the first. */
static sg_span *spans_of(const grpc_slice_buffer *slices)
{
    sg_span *spans = malloc(sizeof(*spans) * (2 * slices->count + 1));
    for (size_t i = 0; spans != NULL && i < slices->count; i++)
        spans[slices->count + i] =
            (sg_span){.data = GRPC_SLICE_START_PTR(slices->slices[i]), .n_bytes = GRPC_SLICE_LENGTH(slices->slices[i])};
    return spans;
}

static void parts_fill(sg_wire_parts *parts, ProtobufCMessage *head, sg_span *take_spans, const layout *found)
{
    *parts = (sg_wire_parts){.head = head, .spans = take_spans};
    if (!found->has_data)
        return;
    sg_span_reader reader = found->data;
    parts->data_bytes = reader.left;
    while (sg_span_reader_next(&reader, SIZE_MAX, &take_spans[parts->n_spans]))
        parts->n_spans++;
}

sg_status sg_wire_unpack(const sg_wire_message *message, const ProtobufCMessageDescriptor *type, sg_wire_parts *parts,
                         sg_error *err)
{
    if (message->buffer == NULL)
        return sg_error_set(err, SG_INVALID, "%s: the message is missing", type->short_name);
    if (message->buffer->data.raw.compression != GRPC_COMPRESS_NONE)
        return sg_error_set(err, SG_INVALID, "%s: is compressed; send it as it is", type->short_name);
    const grpc_slice_buffer *slices = slices_of(message);
    sg_span *spans = spans_of(slices);
    if (spans == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu buffers of a %s", slices->count,
                            type->short_name);
    layout found;
    sg_span_reader reader;
    ProtobufCMessage *head = NULL;
    sg_span_reader_init(&reader, spans + slices->count, slices->count, slices->length);
    sg_status status = fields_walk(reader, type, &found, err);
    if (status == SG_OK)
        status = head_read(spans + slices->count, slices->count, &found, &head, err);
    if (status != SG_OK)
        free(spans);
    else
        parts_fill(parts, head, spans, &found);
    return status;
}

void sg_wire_parts_deinit(sg_wire_parts *parts)
{
    if (parts->head != NULL)
        protobuf_c_message_free_unpacked(parts->head, NULL);
    free(parts->spans);
    *parts = (sg_wire_parts){0};
}
