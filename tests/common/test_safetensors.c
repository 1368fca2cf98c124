#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/crc32c.h"
#include "common/safetensors.h"
#include "tests/support/paper_disk.h"

TestSuite(safetensors, .timeout = 20);

Test(safetensors, the_checksum_is_that_of_rfc_3720)
{
    cr_assert_eq(sg_crc32c(0, "123456789", 9), 0xe3069283);
    cr_assert_eq(sg_crc32c(sg_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}

static sg_status open_text(paper_disk *paper, const char *header, size_t data_bytes, sg_error *err)
{
    uint64_t length = strlen(header);
    char *bytes = sg_xcalloc(8 + length + data_bytes, 1);
    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    paper_disk_init(paper);
    paper_disk_write(paper, "file", bytes, 8 + length + data_bytes);
    free(bytes);
    sg_safetensors *file;
    sg_status status = sg_safetensors_open(&paper->disk, "file", &file, err);
    if (status == SG_OK)
        sg_safetensors_close(file);
    paper_disk_deinit(paper);
    return status;
}

Test(safetensors, a_header_that_is_wrong_in_any_way_is_refused)
{
    static const struct {
        const char *header;
        size_t data_bytes;
    } wrong[] = {
        {"{", 0},
        {"[]", 0},
        {"{\"a\":1}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", 5},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32F32F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
         4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
         12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}} x", 4},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(wrong); i++) {
        paper_disk paper;
        sg_error err = {0};
        cr_assert_eq(open_text(&paper, wrong[i].header, wrong[i].data_bytes, &err), SG_DATA, "%zu", i);
        cr_assert(strncmp(err.message, "file", 4) == 0, "%s", err.message);
    }
}

Test(safetensors, what_other_programs_write_is_read)
{
    static const struct {
        const char *header;
        size_t data_bytes;
    } right[] = {
        {"{}", 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}      ", 0},
        {"{\"b\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[4,8]},"
         "\"a\":{\"dtype\":\"F16\",\"shape\":[2,1],\"data_offsets\":[0,4]}}",
         8},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[0,0]}}", 0},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2}, /* one that came later */
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(right); i++) {
        paper_disk paper;
        sg_error err = {0};
        cr_assert_eq(open_text(&paper, right[i].header, right[i].data_bytes, &err), SG_OK, "%zu: %s", i, err.message);
    }
}

Test(safetensors, a_length_that_no_header_has_is_refused_before_it_is_used)
{
    const uint64_t lengths[] = {0, 1, 9, 100000001, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < SG_ARRAY_LEN(lengths); i++) {
        paper_disk paper;
        sg_safetensors *file;
        char bytes[16] = {0};
        memcpy(bytes, &lengths[i], 8);
        paper_disk_init(&paper);
        paper_disk_write(&paper, "file", bytes, sizeof bytes);
        cr_assert_eq(sg_safetensors_open(&paper.disk, "file", &file, NULL), SG_DATA, "%zu", i);
        paper_disk_write(&paper, "file", bytes, 7);
        cr_assert_eq(sg_safetensors_open(&paper.disk, "file", &file, NULL), SG_DATA, "%zu", i);
        paper_disk_deinit(&paper);
    }
}

Test(safetensors, what_was_written_in_pieces_comes_back)
{
    paper_disk paper;
    uint64_t big_shape[] = {300000}, small_shape[] = {3, 1};
    char metadata_value[] = "0000";
    sg_safetensors_metadata_entry metadata = {"k\n\"", metadata_value};
    sg_safetensors_tensor tensors[] = {{.name = "small", .shape = small_shape, .rank = 2, .dtype = "F32"},
                                       {.name = "big \\", .shape = big_shape, .rank = 1, .dtype = "F32"},
                                       {.name = "scalar", .rank = 0, .dtype = "F32"}};
    sg_safetensors_content content = {tensors, 3, &metadata, 1};
    sg_safetensors_writer *writer;
    sg_error err = {0};
    paper_disk_init(&paper);
    float *elems = sg_xcalloc(300004, sizeof(float)), *found = sg_xcalloc(300000, sizeof(float));
    for (size_t i = 0; i < 300004; i++)
        elems[i] = (float)i;
    cr_assert_eq(sg_safetensors_begin(&paper.disk, "file", &content, &writer, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_safetensors_append(writer, elems, 12, NULL), SG_OK);
    cr_assert_eq(sg_safetensors_append(writer, elems + 3, 300000 * 4, NULL), SG_OK);
    cr_assert_eq(sg_safetensors_append(writer, elems + 300003, 4, NULL), SG_OK);
    memcpy(metadata_value, "1234", 4);
    uint64_t n_bytes;
    uint32_t crc;
    cr_assert_eq(sg_safetensors_end(writer, true, &n_bytes, &crc, &err), SG_OK, "%s", err.message);
    sg_safetensors *file;
    cr_assert_eq(sg_safetensors_open(&paper.disk, "file", &file, &err), SG_OK, "%s", err.message);
    cr_assert(file->n_tensors == 3 && file->header_crc32c == crc && file->n_bytes == n_bytes);
    cr_assert_str_eq(sg_safetensors_metadata(file, "k\n\""), "1234");
    cr_assert_str_eq(file->tensors[1].name, "big \\");
    cr_assert_eq(sg_safetensors_read(file, &file->tensors[1], 0, found, 300000 * 4, &err), SG_OK, "%s", err.message);
    cr_assert_eq(memcmp(found, elems + 3, 300000 * 4), 0);
    cr_assert_eq(sg_safetensors_read(file, &file->tensors[2], 0, found, 4, &err), SG_OK, "%s", err.message);
    cr_assert_eq(found[0], 300003);
    sg_safetensors_close(file);
    free(elems);
    free(found);
    paper_disk_deinit(&paper);
}

Test(safetensors, a_name_that_is_not_text_is_refused_before_a_file_is_made)
{
    paper_disk paper;
    uint64_t shape[] = {1};
    sg_safetensors_tensor tensor = {.name = "\xff", .shape = shape, .rank = 1, .dtype = "F32"};
    sg_safetensors_content content = {&tensor, 1, NULL, 0};
    sg_safetensors_writer *writer;
    size_t n_bytes;
    paper_disk_init(&paper);
    cr_assert_eq(sg_safetensors_begin(&paper.disk, "file", &content, &writer, NULL), SG_INVALID);
    cr_assert_null(paper_disk_bytes(&paper, "file", &n_bytes));
    paper_disk_deinit(&paper);
}
