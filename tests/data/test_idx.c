/* tests/data/test_idx.c - whole files are read; damaged ones are named with what is wrong. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "tests/data/files.h"
#include "worker/data/idx.h"

TestSuite(idx, .timeout = 20);

static const uint32_t shape[] = {3, 2, 5};

static void expect(const char *path, sg_status want, const char *part)
{
    sg_error err = {0};
    sg_idx idx = {0};
    sg_status status = sg_idx_read(path, 3, &idx, &err);
    cr_assert(status == want, "%s: %s", sg_status_name(status), err.message);
    cr_assert_not_null(strstr(err.message, path), "'%s' lacks the path", err.message);
    cr_assert_not_null(strstr(err.message, part), "'%s' lacks '%s'", err.message, part);
    cr_assert_null(idx.bytes, "something was handed out");
}

static void read_whole(bool gzip)
{
    sg_files files = sg_files_make();
    sg_error err = {0};
    sg_idx idx = {0};
    cr_assert(sg_idx_read(sg_files_write_idx(&files, 3, shape, 256, gzip), 3, &idx, &err) == SG_OK, "%s", err.message);
    cr_assert(idx.rank == 3 && idx.shape[0] == 3 && idx.shape[1] == 2 && idx.shape[2] == 5 && idx.n_bytes == 30);
    for (size_t i = 0; i < 30; i++)
        cr_assert(idx.bytes[i] == i);
    sg_idx_deinit(&idx);
    sg_idx_deinit(&idx);
    sg_files_remove(&files);
}

Test(idx, a_plain_file_is_read)
{
    read_whole(false);
}

Test(idx, a_compressed_file_is_read)
{
    read_whole(true);
}

Test(idx, a_missing_file_is_named_with_what_to_do)
{
    expect("/nonexistent/images", SG_NOT_FOUND, "name files that are there");
    expect("/usr/share/datasets/fashion-mnist/no-such-file.gz", SG_NOT_FOUND,
           "install the Debian package dataset-fashion-mnist");
    expect("", SG_NOT_FOUND, "a data file is not named: set data.train_images");
}

Test(idx, a_folder_is_not_a_file)
{
    expect("/tmp", SG_NOT_FOUND, "Is a directory");
}

static void cut_everywhere(bool gzip)
{
    sg_files files = sg_files_make();
    size_t n_bytes;
    uint8_t *bytes = sg_files_idx_bytes(3, shape, 7, &n_bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        const char *path = sg_files_write(&files, bytes, n, gzip);
        expect(path, SG_DATA, n < 16 ? "of its header" : gzip ? "of its elements" : "promises 30 bytes");
        sg_files_remove_last(&files);
    }
    free(bytes);
    sg_files_remove(&files);
}

Test(idx, a_file_that_is_cut_anywhere_is_refused)
{
    cut_everywhere(false);
}

Test(idx, a_compressed_file_whose_content_is_cut_anywhere_is_refused)
{
    cut_everywhere(true);
}

/* The bytes of a file as it lies on disk. */
static size_t slurp(const char *path, uint8_t *out, size_t max)
{
    FILE *in = fopen(path, "rb");
    cr_assert_not_null(in);
    size_t n = fread(out, 1, max, in);
    fclose(in);
    return n;
}

Test(idx, a_compressed_stream_that_is_cut_anywhere_is_refused)
{
    sg_files files = sg_files_make();
    uint8_t bytes[4096];
    size_t n_bytes = slurp(sg_files_write_idx(&files, 3, shape, 256, true), bytes, sizeof bytes);
    for (size_t n = 0; n < n_bytes; n++) {
        const char *path = sg_files_write(&files, bytes, n, false);
        expect(path, SG_DATA, "");
        sg_files_remove_last(&files);
    }
    sg_files_remove(&files);
}

Test(idx, a_compressed_stream_with_a_flipped_bit_in_its_data_is_refused)
{
    sg_files files = sg_files_make();
    uint8_t bytes[4096];
    size_t n_bytes = slurp(sg_files_write_idx(&files, 3, shape, 256, true), bytes, sizeof bytes);
    bytes[n_bytes - 6] ^= 1; /* of the checksum, so that only the very end shows it */
    expect(sg_files_write(&files, bytes, n_bytes, false), SG_DATA, "compressed data is damaged");
    sg_files_remove(&files);
}

Test(idx, bytes_behind_the_last_element_are_refused)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        sg_files files = sg_files_make();
        size_t n_bytes;
        uint8_t *bytes = sg_files_idx_bytes(3, shape, 7, &n_bytes);
        bytes = sg_xrealloc(bytes, n_bytes + 1, 1);
        bytes[n_bytes] = 0;
        expect(sg_files_write(&files, bytes, n_bytes + 1, gzip), SG_DATA, "goes on after the 30 bytes");
        free(bytes);
        sg_files_remove(&files);
    }
}

static void expect_header(const uint8_t *header, size_t n_bytes, const char *part)
{
    for (int gzip = 0; gzip < 2; gzip++) {
        sg_files files = sg_files_make();
        expect(sg_files_write(&files, header, n_bytes, gzip), SG_DATA, part);
        sg_files_remove(&files);
    }
}

Test(idx, a_wrong_header_is_shown_with_the_right_one)
{
    expect_header((uint8_t[]){'P', 'K', 3, 4}, 4, "begins with 50 4b 03 04; wanted 00 00 08 03");
    expect_header((uint8_t[]){0, 0, 13, 3}, 4, "begins with 00 00 0d 03");
    expect_header((uint8_t[]){0, 0, 8, 1}, 4, "begins with 00 00 08 01");
}

Test(idx, absurd_dimensions_are_refused_before_memory_is_asked_for)
{
    expect_header((uint8_t[]){0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1}, 16, "dimension 0 is 0");
    expect_header((uint8_t[]){0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}, 16,
                  "dimensions make more than");
    expect_header((uint8_t[]){0, 0, 8, 3, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1}, 16, "promises 4294967296 bytes");
}
