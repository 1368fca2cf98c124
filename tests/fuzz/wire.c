/* Messages as they come from the wire. The first byte chooses the type, the second how many bytes lie together. */
#include "common/wire.h"
#include "shardgrad/v1/coordinator.pb-c.h"
#include "shardgrad/v1/parameter.pb-c.h"

static const ProtobufCMessageDescriptor *const types[] = {
    &shardgrad__v1__push_request__descriptor,       &shardgrad__v1__pull_request__descriptor,
    &shardgrad__v1__pull_response__descriptor,      &shardgrad__v1__push_pull_response__descriptor,
    &shardgrad__v1__initialize_request__descriptor, &shardgrad__v1__ps_declare_request__descriptor,
    &shardgrad__v1__order_request__descriptor,      &shardgrad__v1__register_request__descriptor,
    &shardgrad__v1__hello_request__descriptor,      &shardgrad__v1__hello_response__descriptor,
    &shardgrad__v1__declare_request__descriptor,    &shardgrad__v1__ticket_request__descriptor,
    &shardgrad__v1__ticket_response__descriptor,    &shardgrad__v1__leave_request__descriptor,
    &shardgrad__v1__status_response__descriptor,
};

/* Every byte of the data can be read, and a head that was accepted can be packed and taken apart again. */
static void use(const sg_wire_parts *parts, const ProtobufCMessageDescriptor *type)
{
    volatile uint8_t sum = 0;
    size_t n_bytes = 0;
    for (size_t i = 0; i < parts->n_spans; i++) {
        SG_ASSERT(parts->spans[i].n_bytes > 0);
        for (size_t k = 0; k < parts->spans[i].n_bytes; k++)
            sum = (uint8_t)(sum + ((const uint8_t *)parts->spans[i].data)[k]);
        n_bytes += parts->spans[i].n_bytes;
    }
    SG_ASSERT(n_bytes == parts->data_bytes);
    sg_wire_message *message;
    sg_wire_parts again;
    sg_pool *pool = sg_pool_create();
    if (sg_wire_pack(pool, parts->head, NULL, 0, &message, NULL) == SG_OK) {
        if (sg_wire_unpack(message, type, &again, NULL) == SG_OK)
            sg_wire_parts_deinit(&again);
        sg_wire_message_destroy(message);
    }
    sg_pool_destroy(pool);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes < 2)
        return 0;
    const ProtobufCMessageDescriptor *type = types[data[0] % SG_ARRAY_LEN(types)];
    sg_wire_message *message = sg_wire_message_from_bytes(data + 2, n_bytes - 2, data[1] == 0 ? n_bytes : data[1]);
    sg_wire_parts parts;
    if (sg_wire_unpack(message, type, &parts, NULL) == SG_OK) {
        use(&parts, type);
        sg_wire_parts_deinit(&parts);
    }
    sg_wire_message_destroy(message);
    return 0;
}
