/* worker/client/session_messages.c - memory of messages and tickets: made once, counted, recycled.
 *
 * A push of a thousand slices is one block: its message, its body, its slices and their steps. The body is encoded by
 * whoever sends it, from there, as often as it is sent. */
#include <string.h>

#include "common/wire.h"
#include "worker/client/session_internal.h"

/* So that each part of a block lies where any type may. */
static size_t aligned(size_t n_bytes)
{
    return (n_bytes + 15) & ~(size_t)15;
}

sg_session_message *sg_session_message_create(sg_session *session, size_t body_bytes, size_t n_slices,
                                              uint64_t **numbers)
{
    const size_t at_body = aligned(sizeof(sg_session_message));
    const size_t at_numbers = at_body + aligned(body_bytes);
    const size_t at_slices = at_numbers + aligned(n_slices * sizeof(uint64_t));
    char *block = sg_pool_alloc(session->pool, at_slices + n_slices * sizeof(uint32_t));
    sg_session_message *message = (sg_session_message *)block;
    atomic_init(&message->n_references, 1);
    message->body = (ProtobufCMessage *)(block + at_body);
    message->slices = (uint32_t *)(block + at_slices);
    message->n_slices = n_slices;
    if (numbers != NULL)
        *numbers = (uint64_t *)(block + at_numbers);
    return message;
}

/* A body of numbers alone can be copied as it lies. */
static bool is_flat(const ProtobufCMessageDescriptor *type)
{
    for (unsigned i = 0; i < type->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &type->fields[i];
        if (field->label == PROTOBUF_C_LABEL_REPEATED || field->type == PROTOBUF_C_TYPE_STRING ||
            field->type == PROTOBUF_C_TYPE_BYTES || field->type == PROTOBUF_C_TYPE_MESSAGE)
            return false;
    }
    return true;
}

sg_session_message *sg_session_message_copy(sg_session *session, const ProtobufCMessage *body)
{
    const ProtobufCMessageDescriptor *type = body->descriptor;
    sg_session_message *message = sg_session_message_create(session, type->sizeof_message, 0, NULL);
    if (is_flat(type)) {
        memcpy(message->body, body, type->sizeof_message);
        return message;
    }
    message->body = sg_wire_head_copy(body);
    message->unpacked = true;
    return message;
}

void sg_session_message_unref(sg_session_message *message)
{
    if (message == NULL || atomic_fetch_sub_explicit(&message->n_references, 1, memory_order_acq_rel) != 1)
        return;
    if (message->unpacked)
        protobuf_c_message_free_unpacked(message->body, NULL);
    sg_session_ticket_unref(message->ticket);
    sg_pool_free(message);
}

/* --- tickets --------------------------------------------------------------------------------------------------- */

sg_session_held_ticket *sg_session_ticket_copy(sg_session *session, const Shardgrad__V1__TicketResponse *response)
{
    const ProtobufCBinaryData *members = &response->step->members;
    sg_session_held_ticket *ticket = sg_pool_alloc(session->pool, sizeof *ticket + members->len);
    atomic_init(&ticket->n_references, 1);
    ticket->step = *response->step;
    ticket->step.base.n_unknown_fields = 0;
    ticket->step.base.unknown_fields = NULL;
    ticket->step.members.data = (uint8_t *)(ticket + 1);
    if (members->len > 0)
        memcpy(ticket->step.members.data, members->data, members->len);
    ticket->rank = response->rank;
    ticket->size = response->size;
    ticket->lag = response->lag;
    return ticket;
}

void sg_session_ticket_unref(sg_session_held_ticket *ticket)
{
    if (ticket != NULL && atomic_fetch_sub_explicit(&ticket->n_references, 1, memory_order_acq_rel) == 1)
        sg_pool_free(ticket);
}
