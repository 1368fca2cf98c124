/* worker/cli/status_json.c - see status_json.h. The message is walked by its descriptor: a field that is added to the
 * protocol is in the JSON, too. */
#include "worker/cli/status_json.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "common/workers.h"

static json_t *message_json(const ProtobufCMessage *message);

static json_t *whole(uint64_t value)
{
    return json_integer(value > INT64_MAX ? INT64_MAX : (json_int_t)value);
}

/* JOB_STATE_RUNNING is "running": what comes behind that which it shares with JOB_STATE_UNSPECIFIED. */
static json_t *enum_json(const ProtobufCEnumDescriptor *descriptor, int number)
{
    const ProtobufCEnumValue *none = protobuf_c_enum_descriptor_get_value(descriptor, 0);
    const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(descriptor, number);
    if (none == NULL || value == NULL)
        return json_integer(number);
    const size_t n_shared = strlen(none->name) - strlen("UNSPECIFIED");
    char name[64];
    snprintf(name, sizeof(name), "%s", value->name + n_shared);
    for (char *at = name; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
    return json_string(name);
}

/* All bytes in a status are sets of workers. */
static json_t *workers_json(const ProtobufCBinaryData *bitmap)
{
    json_t *list = json_array();
    sg_workers set;
    if (sg_workers_decode(bitmap->data, bitmap->len, &set, NULL) != SG_OK)
        return list;
    for (uint32_t worker = 0; sg_workers_next(&set, worker, &worker); worker++)
        json_array_append_new(list, whole(worker));
    return list;
}

static json_t *text_json(const char *text)
{
    json_t *string = json_string(text == NULL ? "" : text);
    return string != NULL ? string : json_string("?"); /* not UTF-8 */
}

static json_t *value_json(const ProtobufCFieldDescriptor *field, const void *at)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_UINT32:
        return whole(*(const uint32_t *)at);
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
        return whole(*(const uint64_t *)at);
    case PROTOBUF_C_TYPE_FLOAT: {
        const double value = (double)*(const float *)at;
        return isfinite(value) ? json_real(value) : json_null();
    }
    case PROTOBUF_C_TYPE_BOOL:
        return json_boolean(*(const protobuf_c_boolean *)at);
    case PROTOBUF_C_TYPE_ENUM:
        return enum_json(field->descriptor, *(const int *)at);
    case PROTOBUF_C_TYPE_STRING:
        return text_json(*(const char *const *)at);
    case PROTOBUF_C_TYPE_BYTES:
        return workers_json(at);
    case PROTOBUF_C_TYPE_MESSAGE: {
        const ProtobufCMessage *message = *(const ProtobufCMessage *const *)at;
        return message != NULL ? message_json(message) : json_null();
    }
    default: /* of a type that no status has */
        return json_null();
    }
}

static size_t size_of(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    case PROTOBUF_C_TYPE_BOOL:
        return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_ENUM:
        return sizeof(int);
    case PROTOBUF_C_TYPE_BYTES:
        return sizeof(ProtobufCBinaryData);
    default:
        return 8; /* of 64 bits, or a pointer */
    }
}

static json_t *message_json(const ProtobufCMessage *message)
{
    json_t *object = json_object();
    for (unsigned i = 0; i < message->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *field = &message->descriptor->fields[i];
        const char *at = (const char *)message + field->offset;
        json_t *value;
        if (field->label == PROTOBUF_C_LABEL_REPEATED) {
            const size_t n = *(const size_t *)((const char *)message + field->quantifier_offset);
            const char *items = *(const char *const *)at;
            value = json_array();
            for (size_t k = 0; k < n; k++)
                json_array_append_new(value, value_json(field, items + k * size_of(field->type)));
        } else {
            value = value_json(field, at);
        }
        json_object_set_new(object, field->name, value);
    }
    return object;
}

void sg_status_json_write(FILE *out, const Shardgrad__V1__StatusResponse *response)
{
    json_t *object = message_json(&response->base);
    (void)json_dumpf(object, out, JSON_INDENT(2)); /* whether it could be written is asked in the end */
    fputc('\n', out);
    json_decref(object);
}
