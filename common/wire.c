/* common/wire.c - see wire.h: messages, and packing. wire_read.c takes them apart. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <grpc/slice.h>
#include <grpc/slice_buffer.h>

#include "common/wire_internal.h"

/* Tag and length of `data`: one byte, (15 << 3) | 2, and a varint. */
#define DATA_TAG ((uint8_t)(SG_WIRE_DATA_FIELD << 3 | 2))
enum { PREFIX_MAX_BYTES = 1 + 10 };

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
    sg_pool *own = message->owns_pool ? message->pool : NULL;
    sg_wire_message_deinit(message);
    sg_pool_free(message);
    sg_pool_destroy(own);
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
    sg_pool *pool = sg_pool_create();
    sg_wire_message *message = sg_pool_alloc(pool, sizeof(*message));
    message->pool = pool;
    message->owns_pool = true;
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

sg_wire_message *sg_wire_message_take(sg_pool *pool, sg_wire_message *from)
{
    sg_wire_message *message = sg_pool_alloc(pool, sizeof(*message));
    *message = (sg_wire_message){.buffer = from->buffer, .pool = pool};
    from->buffer = NULL;
    return message;
}

/* --- packing --- */

/* What a message under way is made of beside the pieces that were lent to it: one block of the pool, which holds who
 * is owed what, and the bytes that were copied. gRPC lets go of each slice by itself; the last one frees the block.
 * `block` is written last and read first, which makes what was written before packing visible to the release: gRPC
 * promises that, too, but not in a way that ThreadSanitizer can follow. */
typedef struct block block;
typedef struct loan {
    _Atomic(block *) block;
    void (*release)(void *owner); /* NULL: of the copied bytes themselves */
    void *owner;
} loan;
struct block {
    sg_pool_buffer *buffer;
    atomic_size_t left; /* loans that gRPC has not given back */
    loan loans[];       /* the copied bytes', then those of lent pieces; behind them the bytes */
};

/* Called when the last reference to a slice is gone. */
static void loan_end(void *ended)
{
    loan *item = ended;
    block *of = atomic_load_explicit(&item->block, memory_order_acquire);
    void (*release)(void *owner) = item->release;
    void *owner = item->owner;
    if (atomic_fetch_sub_explicit(&of->left, 1, memory_order_acq_rel) == 1)
        sg_pool_put(of->buffer);
    if (release != NULL)
        release(owner);
}

static grpc_slice lend(block *of, size_t index, const void *data, size_t n_bytes, void (*release)(void *), void *owner)
{
    loan *item = &of->loans[index];
    item->release = release;
    item->owner = owner;
    atomic_store_explicit(&item->block, of, memory_order_release);
    return grpc_slice_new_with_user_data((void *)(uintptr_t)data, n_bytes, loan_end, item);
}

/* How a message will be made. */
typedef struct recipe {
    const ProtobufCMessage *head;
    const sg_wire_piece *pieces;
    size_t n_pieces;
    size_t head_bytes;
    size_t data_bytes;   /* of all pieces */
    size_t copied_bytes; /* of the small ones */
    size_t n_lent;
} recipe;

bool sg_wire_is_copied(size_t n_bytes)
{
    return n_bytes <= SG_WIRE_COPIED_BYTES;
}

static bool is_lent(const sg_wire_piece *piece)
{
    return !sg_wire_is_copied(piece->n_bytes);
}

static recipe recipe_make(const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces)
{
    recipe made = {.head = head, .pieces = pieces, .n_pieces = n_pieces};
    made.head_bytes = protobuf_c_message_get_packed_size(head);
    for (size_t i = 0; i < n_pieces; i++) {
        made.data_bytes += pieces[i].n_bytes;
        if (is_lent(&pieces[i]))
            made.n_lent++;
        else
            made.copied_bytes += pieces[i].n_bytes;
    }
    return made;
}

/* Pays the releases of pieces that will not be sent. */
static void release_pieces(const sg_wire_piece *pieces, size_t n_pieces)
{
    for (size_t i = 0; i < n_pieces; i++)
        pieces[i].release(pieces[i].owner);
}

static uint8_t *varint_write(uint8_t *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        *out++ = (uint8_t)(value | 0x80);
    *out++ = (uint8_t)value;
    return out;
}

/* The head and, if there are data, their tag and length. Returns what follows. */
static uint8_t *head_write(const recipe *of, uint8_t *out)
{
    if (of->head_bytes > 0)
        protobuf_c_message_pack(of->head, out);
    out += of->head_bytes;
    if (of->data_bytes > 0) {
        *out++ = DATA_TAG;
        out = varint_write(out, of->data_bytes);
    }
    return out;
}

/* Copied bytes are one slice; what of it lies between two lent pieces is a part of that. */
static void slices_add(const recipe *of, block *in, grpc_slice_buffer *slices)
{
    uint8_t *copied = (uint8_t *)&in->loans[1 + of->n_lent];
    grpc_slice all = lend(in, 0, copied, of->head_bytes + PREFIX_MAX_BYTES + of->copied_bytes, NULL, NULL);
    uint8_t *at = head_write(of, copied), *begin = copied;
    for (size_t i = 0, n_lent = 0; i < of->n_pieces; i++) {
        const sg_wire_piece *piece = &of->pieces[i];
        if (!is_lent(piece)) {
            if (piece->n_bytes > 0)
                memcpy(at, piece->data, piece->n_bytes);
            at += piece->n_bytes;
            piece->release(piece->owner);
            continue;
        }
        if (at > begin)
            grpc_slice_buffer_add_indexed(slices, grpc_slice_sub(all, (size_t)(begin - copied), (size_t)(at - copied)));
        begin = at;
        grpc_slice_buffer_add_indexed(slices,
                                      lend(in, ++n_lent, piece->data, piece->n_bytes, piece->release, piece->owner));
    }
    if (at > begin)
        grpc_slice_buffer_add_indexed(slices, grpc_slice_sub(all, (size_t)(begin - copied), (size_t)(at - copied)));
    atomic_store_explicit(&in->loans[0].block, in, memory_order_release); /* what was copied is visible, too */
    grpc_slice_unref(all);
}

/* One size for nearly every message, so that the pool soon has as many as are ever under way at once. */
#define BLOCK_BYTES ((size_t)4096)

static sg_pool_buffer *block_get(sg_pool *pool, const recipe *of)
{
    size_t n_bytes =
        sizeof(block) + (1 + of->n_lent) * sizeof(loan) + of->head_bytes + PREFIX_MAX_BYTES + of->copied_bytes;
    return sg_pool_get_rounded(pool, n_bytes < BLOCK_BYTES ? BLOCK_BYTES : n_bytes);
}

sg_status sg_wire_pack_into(sg_pool *pool, const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces,
                            sg_wire_message *message, sg_error *err)
{
    recipe of = recipe_make(head, pieces, n_pieces);
    sg_pool_buffer *buffer = of.head_bytes <= SG_WIRE_HEAD_BYTES ? block_get(pool, &of) : NULL;
    if (buffer == NULL) {
        release_pieces(pieces, n_pieces);
        if (of.head_bytes > SG_WIRE_HEAD_BYTES)
            return sg_error_set(err, SG_EXHAUSTED, "%s: %zu bytes beside its data, at most %u are allowed",
                                head->descriptor->short_name, of.head_bytes, SG_WIRE_HEAD_BYTES);
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the %zu bytes of a %s", of.copied_bytes,
                            head->descriptor->short_name);
    }
    block *in = buffer->data;
    in->buffer = buffer;
    atomic_init(&in->left, 1 + of.n_lent);
    *message = (sg_wire_message){.buffer = grpc_raw_byte_buffer_create(NULL, 0), .pool = pool};
    slices_add(&of, in, slices_of(message));
    return SG_OK;
}

sg_status sg_wire_pack(sg_pool *pool, const ProtobufCMessage *head, const sg_wire_piece *pieces, size_t n_pieces,
                       sg_wire_message **message, sg_error *err)
{
    sg_wire_message packed;
    sg_status status = sg_wire_pack_into(pool, head, pieces, n_pieces, &packed, err);
    if (status == SG_OK)
        *message = sg_wire_message_take(pool, &packed);
    return status;
}
