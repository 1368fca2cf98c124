/* tests/rpc/test_wire.c - messages as bytes: what is packed is what protobuf would write, and whatever arrives, cut
 * and scattered as it may be, is taken apart rightly or refused. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

#include "common/clock.h"
#include "common/wire.h"
#include "shardgrad/v1/parameter.pb-c.h"
#include "tests/support/seed.h"

TestSuite(wire, .timeout = 60);

#define PUSH (&shardgrad__v1__push_request__descriptor)

/* Unpacks a message that is gone afterwards, and with it what the spans point to. Every refusal says why and leaves
 * nothing. */
static sg_status unpack(const void *bytes, size_t n_bytes, size_t split_bytes, const ProtobufCMessageDescriptor *type,
                        sg_wire_parts *parts)
{
    sg_wire_message *message = sg_wire_message_from_bytes(bytes, n_bytes, split_bytes);
    sg_error err = {0};
    cr_assert_eq(sg_wire_message_bytes(message), n_bytes);
    *parts = (sg_wire_parts){0};
    sg_status status = sg_wire_unpack(message, type, parts, &err);
    if (status != SG_OK) {
        cr_assert_eq(err.code, status);
        cr_assert_gt(strlen(err.message), 10);
        cr_assert_null(parts->head);
        cr_assert_null(parts->spans);
    }
    sg_wire_message_destroy(message);
    return status;
}

static void unpack_and_drop(const void *bytes, size_t n_bytes, size_t split_bytes)
{
    sg_wire_parts parts;
    sg_status status = unpack(bytes, n_bytes, split_bytes, PUSH, &parts);
    cr_assert(status == SG_OK || status == SG_INVALID || status == SG_EXHAUSTED, "%s", sg_status_name(status));
    sg_wire_parts_deinit(&parts);
}

static sg_status unpack_status(const void *bytes, size_t n_bytes)
{
    sg_wire_parts parts;
    sg_status status = unpack(bytes, n_bytes, 3, PUSH, &parts);
    sg_wire_parts_deinit(&parts);
    return status;
}

/* --- packing --- */

static void count_release(void *owner)
{
    atomic_fetch_add((atomic_size_t *)owner, 1);
}

static void request_fill(Shardgrad__V1__PushRequest *request, uint32_t *slices, size_t n_slices)
{
    *request = (Shardgrad__V1__PushRequest)SHARDGRAD__V1__PUSH_REQUEST__INIT;
    for (size_t i = 0; i < n_slices; i++)
        slices[i] = (uint32_t)(i * 1000);
    request->worker = 3;
    request->incarnation = UINT64_MAX;
    request->weight = 300;
    request->slices = slices;
    request->n_slices = n_slices;
}

/* The bytes of a message whose data are `n_data` bytes counting up, in three pieces and an empty one. */
static uint8_t *packed(size_t n_data, size_t *n_bytes)
{
    uint32_t slices[40];
    Shardgrad__V1__PushRequest request;
    atomic_size_t released = 0;
    uint8_t *data = malloc(n_data + 1);
    for (size_t i = 0; i < n_data; i++)
        data[i] = (uint8_t)i;
    request_fill(&request, slices, SG_ARRAY_LEN(slices));
    size_t cuts[] = {0, n_data / 5, n_data / 5, n_data / 2, n_data};
    sg_wire_piece pieces[4];
    for (size_t i = 0; i < 4; i++)
        pieces[i] = (sg_wire_piece){data + cuts[i], cuts[i + 1] - cuts[i], count_release, &released};
    sg_wire_message *message;
    sg_pool *pool = sg_pool_create();
    cr_assert_eq(sg_wire_pack(pool, &request.base, pieces, 4, &message, NULL), SG_OK);
    sg_pool_destroy(pool);
    *n_bytes = sg_wire_message_bytes(message);
    uint8_t *bytes = malloc(*n_bytes);
    sg_wire_message_copy(message, bytes);
    sg_wire_message_destroy(message);
    cr_assert_eq(atomic_load(&released), 4);
    free(data);
    return bytes;
}

Test(wire, packing_writes_what_protobuf_would_write)
{
    for (size_t n_data = 0; n_data < 400; n_data += 133) {
        size_t n_bytes;
        uint8_t *bytes = packed(n_data, &n_bytes);
        uint32_t slices[40];
        Shardgrad__V1__PushRequest request;
        request_fill(&request, slices, SG_ARRAY_LEN(slices));
        request.data.len = n_data;
        request.data.data = malloc(n_data + 1);
        for (size_t i = 0; i < n_data; i++)
            request.data.data[i] = (uint8_t)i;
        cr_assert_eq(shardgrad__v1__push_request__get_packed_size(&request), n_bytes);
        uint8_t *want = malloc(n_bytes);
        shardgrad__v1__push_request__pack(&request, want);
        cr_assert_arr_eq(bytes, want, n_bytes);
        free(request.data.data);
        free(want);
        free(bytes);
    }
}

Test(wire, a_head_that_is_too_large_is_not_packed_and_its_pieces_are_released)
{
    size_t n_slices = SG_WIRE_HEAD_BYTES / 2;
    uint32_t *slices = calloc(n_slices, sizeof(*slices));
    atomic_size_t released = 0;
    Shardgrad__V1__PushRequest request;
    request_fill(&request, slices, n_slices);
    sg_wire_piece pieces[] = {{"ab", 2, count_release, &released}, {"", 0, count_release, &released}};
    sg_wire_message *message = NULL;
    sg_error err;
    sg_pool *pool = sg_pool_create();
    cr_assert_eq(sg_wire_pack(pool, &request.base, pieces, 2, &message, &err), SG_EXHAUSTED);
    sg_pool_destroy(pool);
    cr_assert_null(message);
    cr_assert_not_null(strstr(err.message, "1048576"), "%s", err.message);
    cr_assert_eq(atomic_load(&released), 2);
    free(slices);
}

/* --- unpacking --- */

static void check_data(const sg_wire_parts *parts, size_t n_data)
{
    cr_assert_eq(parts->data_bytes, n_data);
    size_t at = 0;
    for (size_t i = 0; i < parts->n_spans; i++) {
        cr_assert_gt(parts->spans[i].n_bytes, 0);
        for (size_t j = 0; j < parts->spans[i].n_bytes; j++)
            cr_assert_eq(parts->spans[i].data[j], (uint8_t)at++);
    }
    cr_assert_eq(at, n_data);
}

static void check_whole(const sg_wire_message *message, size_t n_data)
{
    sg_wire_parts parts;
    sg_error err = {0};
    cr_assert_eq(sg_wire_unpack(message, PUSH, &parts, &err), SG_OK, "%s", err.message);
    const Shardgrad__V1__PushRequest *request = (const Shardgrad__V1__PushRequest *)parts.head;
    cr_assert_eq(request->worker, 3);
    cr_assert_eq(request->incarnation, UINT64_MAX);
    cr_assert_eq(request->weight, 300);
    cr_assert_eq(request->n_slices, 40);
    cr_assert_eq(request->slices[39], 39000);
    cr_assert_eq(request->data.len, 0);
    check_data(&parts, n_data);
    sg_wire_parts_deinit(&parts);
}

/* Small, large and empty pieces in every order; the bytes come out in the order of the pieces. */
Test(wire, small_pieces_are_copied_and_released_at_once_and_large_ones_when_the_message_has_gone)
{
    static const size_t sizes[] = {
        0, 1, 23, 24, SG_WIRE_COPIED_BYTES, SG_WIRE_COPIED_BYTES + 1, 3 * SG_WIRE_COPIED_BYTES};
    sg_pool *pool = sg_pool_create();
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 300; round++) {
        sg_wire_piece pieces[12];
        atomic_size_t small_released = 0, large_released = 0;
        size_t n_small = 0, n_pieces = sg_seed_below(&seed, 13), n_data = 0;
        uint8_t *data = malloc(12 * 3 * SG_WIRE_COPIED_BYTES);
        for (size_t i = 0; i < n_pieces; i++) {
            size_t n_bytes = sizes[sg_seed_below(&seed, SG_ARRAY_LEN(sizes))];
            bool small = n_bytes <= SG_WIRE_COPIED_BYTES;
            n_small += small;
            pieces[i] =
                (sg_wire_piece){data + n_data, n_bytes, count_release, small ? &small_released : &large_released};
            n_data += n_bytes;
        }
        for (size_t i = 0; i < n_data; i++)
            data[i] = (uint8_t)i;
        Shardgrad__V1__PushRequest request;
        uint32_t numbers[40];
        request_fill(&request, numbers, 40);
        sg_wire_message *message;
        cr_assert_eq(sg_wire_pack(pool, &request.base, pieces, n_pieces, &message, NULL), SG_OK);
        cr_assert_eq(atomic_load(&small_released), n_small);
        cr_assert_eq(atomic_load(&large_released), 0);
        check_whole(message, n_data);
        sg_wire_message_destroy(message);
        cr_assert_eq(atomic_load(&large_released), n_pieces - n_small);
        free(data);
    }
    sg_pool_destroy(pool);
}

Test(wire, a_message_is_read_however_its_buffers_are_split)
{
    size_t n_bytes;
    uint8_t *bytes = packed(333, &n_bytes);
    for (size_t split = 1; split <= n_bytes; split++) {
        sg_wire_message *message = sg_wire_message_from_bytes(bytes, n_bytes, split);
        check_whole(message, 333);
        sg_wire_message_destroy(message);
    }
    free(bytes);
}

Test(wire, data_is_found_before_between_and_behind_the_other_fields)
{
    size_t n_bytes;
    uint8_t *bytes = packed(0, &n_bytes);
    /* Field starts of the packed head: worker (2 bytes), incarnation (11), weight (3), slices. */
    static const size_t starts[] = {0, 2, 13, 16};
    uint8_t field[2 + 100] = {SG_WIRE_DATA_FIELD << 3 | 2, 100};
    for (size_t i = 0; i < 100; i++)
        field[2 + i] = (uint8_t)i;
    for (size_t i = 0; i < 5; i++) {
        size_t at = i < 4 ? starts[i] : n_bytes;
        uint8_t *all = malloc(n_bytes + sizeof(field));
        memcpy(all, bytes, at);
        memcpy(all + at, field, sizeof(field));
        memcpy(all + at + sizeof(field), bytes + at, n_bytes - at);
        for (size_t split = 1; split <= n_bytes + sizeof(field); split++) {
            sg_wire_message *message = sg_wire_message_from_bytes(all, n_bytes + sizeof(field), split);
            check_whole(message, 100);
            sg_wire_message_destroy(message);
        }
        free(all);
    }
    free(bytes);
}

/* A cut between two fields leaves a valid message; protobuf itself cannot tell. Everywhere else it is refused. */
Test(wire, a_message_that_is_cut_anywhere_is_refused_or_a_shorter_valid_one)
{
    size_t n_bytes, n_accepted = 0;
    uint8_t *bytes = packed(150, &n_bytes);
    for (size_t cut = 0; cut < n_bytes; cut++) {
        sg_wire_parts parts;
        for (size_t split = 1; split < 20; split += 6) {
            sg_status status = unpack(bytes, cut, split, PUSH, &parts);
            cr_assert(status == SG_OK || status == SG_INVALID);
            cr_assert(status != SG_OK || parts.data_bytes == 0);
            n_accepted += status == SG_OK && split == 1;
            sg_wire_parts_deinit(&parts);
        }
    }
    cr_assert_eq(n_accepted, 5); /* nothing; after worker, incarnation, weight, slices */
    free(bytes);
}

Test(wire, an_empty_message_is_valid_and_has_no_data)
{
    sg_wire_parts parts;
    cr_assert_eq(unpack("", 0, 1, PUSH, &parts), SG_OK);
    cr_assert_eq(((Shardgrad__V1__PushRequest *)parts.head)->worker, 0);
    cr_assert_eq(parts.n_spans, 0);
    sg_wire_parts_deinit(&parts);
    sg_wire_parts_deinit(&parts);
}

Test(wire, empty_data_is_data)
{
    static const uint8_t once[] = {0x7a, 0}, twice[] = {0x7a, 0, 0x7a, 0};
    cr_assert_eq(unpack_status(once, sizeof(once)), SG_OK);
    cr_assert_eq(unpack_status(twice, sizeof(twice)), SG_INVALID);
}

Test(wire, malformed_messages_are_refused)
{
    static const struct {
        const char *why;
        uint8_t bytes[16];
        size_t n_bytes;
    } rows[] = {
        {"data twice", {0x7a, 1, 5, 0x08, 1, 0x7a, 1, 6}, 8},
        {"data as a varint", {0x78, 5}, 2},
        {"data as 32 bits", {0x7d, 1, 2, 3, 4}, 5},
        {"data longer than the message", {0x7a, 3, 1, 2}, 4},
        {"data of 2^35-1 bytes", {0x7a, 0xff, 0xff, 0xff, 0xff, 0x7f, 1}, 7},
        {"length of data in six bytes", {0x7a, 0x81, 0x80, 0x80, 0x80, 0x80, 0x00, 1}, 8},
        {"length of data cut off", {0x7a, 0x80}, 2},
        {"field 0", {0x00, 0x00}, 2},
        {"field 0 with bytes", {0x02, 0x00}, 2},
        {"group", {0x0b, 0x0c}, 2},
        {"wire type 6", {0x0e, 0x00}, 2},
        {"wire type 7", {0x0f, 0x00}, 2},
        {"tag that never ends", {0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, 6},
        {"tag above 32 bits", {0xfa, 0xff, 0xff, 0xff, 0x7f, 0x00}, 6},
        {"tag cut off", {0x88}, 1},
        {"varint of eleven bytes", {0x08, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00}, 12},
        {"varint cut off", {0x08, 0x80}, 2},
        {"64 bits cut off", {0x21, 1, 2, 3}, 4},
        {"32 bits cut off", {0x0d, 1, 2, 3}, 4},
        {"slices longer than the message", {0x3a, 5, 1}, 3},
        {"packed slices that end inside a number", {0x3a, 2, 1, 0x80}, 4},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++)
        cr_assert_eq(unpack_status(rows[i].bytes, rows[i].n_bytes), SG_INVALID, "%s", rows[i].why);
}

Test(wire, padded_varints_and_unknown_fields_are_accepted)
{
    static const uint8_t bytes[] = {
        0x08, 0x83, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, /* worker = 3 in ten bytes */
        0xa0, 0x06, 0x07,                                                 /* field 100, a varint */
        0xa1, 0x06, 1,    2,    3,    4,    5,    6,    7,    8,          /* field 100, 64 bits */
        0xa2, 0x06, 0x02, 0x7a, 0x7a,                                     /* field 100, bytes that look like data */
        0xa5, 0x06, 1,    2,    3,    4,                                  /* field 100, 32 bits */
        0xfa, 0x80, 0x00, 0x82, 0x00, 0,    1,                            /* data, tag and length padded */
    };
    for (size_t split = 1; split <= sizeof(bytes); split++) {
        sg_wire_message *message = sg_wire_message_from_bytes(bytes, sizeof(bytes), split);
        sg_wire_parts parts;
        sg_error err = {0};
        cr_assert_eq(sg_wire_unpack(message, PUSH, &parts, &err), SG_OK, "%s", err.message);
        cr_assert_eq(((Shardgrad__V1__PushRequest *)parts.head)->worker, 3);
        check_data(&parts, 2);
        sg_wire_parts_deinit(&parts);
        sg_wire_message_destroy(message);
    }
}

Test(wire, data_in_a_type_that_has_none_is_refused)
{
    static const uint8_t bytes[] = {0x7a, 1, 5};
    sg_wire_parts parts;
    cr_assert_eq(unpack(bytes, sizeof(bytes), 1, &shardgrad__v1__push_response__descriptor, &parts), SG_INVALID);
    cr_assert_eq(unpack(bytes, 0, 1, &shardgrad__v1__push_response__descriptor, &parts), SG_OK);
    sg_wire_parts_deinit(&parts);
}

Test(wire, sub_messages_that_are_missing_are_null)
{
    sg_wire_parts parts;
    cr_assert_eq(unpack("", 0, 1, &shardgrad__v1__order_request__descriptor, &parts), SG_OK);
    cr_assert_null(((Shardgrad__V1__OrderRequest *)parts.head)->header);
    sg_wire_parts_deinit(&parts);
    cr_assert_eq(unpack("", 0, 1, &shardgrad__v1__end__descriptor, &parts), SG_OK);
    cr_assert_str_eq(((Shardgrad__V1__End *)parts.head)->reason, "");
    sg_wire_parts_deinit(&parts);
}

Test(wire, a_copy_of_a_head_is_whole_after_message_and_pool_have_gone)
{
    size_t n_bytes;
    uint8_t *bytes = packed(9, &n_bytes), again[200];
    sg_wire_message *message = sg_wire_message_from_bytes(bytes, n_bytes, 7);
    sg_wire_parts parts;
    cr_assert_eq(sg_wire_unpack(message, PUSH, &parts, NULL), SG_OK);
    sg_pool *pool = sg_pool_create();
    ProtobufCMessage *copies[] = {sg_wire_head_copy(parts.head), sg_wire_head_copy_to_pool(pool, parts.head),
                                  sg_wire_head_copy_to_pool(NULL, parts.head)};
    sg_wire_parts_deinit(&parts);
    sg_wire_message_destroy(message);
    sg_pool_destroy(pool);
    for (size_t i = 0; i < SG_ARRAY_LEN(copies); i++) { /* data is no part of the head: tag, length, nine bytes */
        cr_assert_eq(protobuf_c_message_pack(copies[i], again), n_bytes - 11);
        cr_assert_arr_eq(again, bytes, n_bytes - 11);
    }
    protobuf_c_message_free_unpacked(copies[0], NULL);
    sg_wire_head_free(copies[1]);
    sg_wire_head_free(copies[2]);
    sg_wire_head_free(NULL);
    free(bytes);
}

/* --- bounds --- */

Test(wire, a_head_of_the_greatest_size_passes_and_one_above_is_refused)
{
    uint8_t *bytes = malloc(SG_WIRE_HEAD_BYTES + 3 + 5);
    for (size_t extra = 0; extra < 2; extra++) {
        size_t payload = SG_WIRE_HEAD_BYTES - 4 + extra; /* slices: a tag, three bytes of length, zeroes */
        bytes[0] = 0x3a;
        bytes[1] = (uint8_t)(payload | 0x80);
        bytes[2] = (uint8_t)(payload >> 7 | 0x80);
        bytes[3] = (uint8_t)(payload >> 14);
        memset(bytes + 4, 0, payload);
        memcpy(bytes + 4 + payload, "\x7a\x01\x00", 3); /* data does not count */
        sg_wire_parts parts;
        cr_assert_eq(unpack(bytes, payload + 7, 100000, PUSH, &parts), extra == 0 ? SG_OK : SG_EXHAUSTED);
        sg_wire_parts_deinit(&parts);
    }
    free(bytes);
}

/* Half a million empty variables in a megabyte would take some 70 MB. */
Test(wire, a_head_that_unpacks_to_far_more_than_its_size_is_refused)
{
    size_t n_bytes = SG_WIRE_HEAD_BYTES;
    uint8_t *bytes = calloc(n_bytes, 1);
    for (size_t i = 0; i < n_bytes; i += 2)
        bytes[i] = 0x12;
    sg_wire_parts parts;
    cr_assert_eq(unpack(bytes, n_bytes, n_bytes, &shardgrad__v1__ps_declare_request__descriptor, &parts), SG_EXHAUSTED);
    cr_assert_eq(unpack(bytes, 20000, n_bytes, &shardgrad__v1__ps_declare_request__descriptor, &parts), SG_OK);
    cr_assert_eq(((Shardgrad__V1__PsDeclareRequest *)parts.head)->n_variables, 10000);
    sg_wire_parts_deinit(&parts);
    free(bytes);
}

/* --- garbage --- */

Test(wire, random_garbage_is_taken_or_refused)
{
    unsigned int seed = (unsigned int)sg_clock_random_id();
    cr_log_info("seed %u", seed);
    for (int round = 0; round < 20000; round++) {
        uint8_t bytes[64];
        size_t n_bytes = (size_t)rand_r(&seed) % sizeof(bytes);
        for (size_t i = 0; i < n_bytes; i++)
            bytes[i] = (uint8_t)(rand_r(&seed) >> 8);
        unpack_and_drop(bytes, n_bytes, 1 + (size_t)rand_r(&seed) % 9);
    }
}

Test(wire, valid_messages_with_flipped_bytes_are_taken_or_refused)
{
    unsigned int seed = (unsigned int)sg_clock_random_id();
    cr_log_info("seed %u", seed);
    size_t n_bytes;
    uint8_t *bytes = packed(60, &n_bytes);
    uint8_t *flipped = malloc(n_bytes);
    for (int round = 0; round < 20000; round++) {
        memcpy(flipped, bytes, n_bytes);
        for (int i = 0; i < 1 + round % 4; i++)
            flipped[(size_t)rand_r(&seed) % n_bytes] = (uint8_t)(rand_r(&seed) >> 8);
        unpack_and_drop(flipped, n_bytes, 1 + (size_t)rand_r(&seed) % n_bytes);
    }
    free(flipped);
    free(bytes);
}
