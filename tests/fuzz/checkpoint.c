/* tests/fuzz/checkpoint.c - whatever lies in a checkpoint folder, reading it gives an error or values, and no crash.
 *
 * The first byte says what the others are: the content of a manifest, a record, a marker, one ps's file, or its header
 * alone. What a checksum guards gets the right one, so that what is behind it is reached. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint.h"
#include "common/crc32c.h"
#include "common/safetensors.h"
#include "tests/support/paper_disk.h"

#define DIR_PATH "c"
#define SET_PATH DIR_PATH "/step-000000000007-g1"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes);

static void must(sg_status status)
{
    if (status != SG_OK)
        abort();
}

/* JSON as it is, but for the seal, which is made to fit. */
static void write_sealed(paper_disk *paper, const char *path, const uint8_t *data, size_t n_bytes)
{
    char seal[64];
    size_t n_seal =
        (size_t)snprintf(seal, sizeof seal, ",\n \"crc32c\": \"%08" PRIx32 "\"\n}\n", sg_crc32c(0, data, n_bytes));
    char *text = sg_xcalloc(n_bytes + n_seal, 1);
    memcpy(text, data, n_bytes);
    memcpy(text + n_bytes, seal, n_seal);
    paper_disk_write(paper, path, text, n_bytes + n_seal);
    free(text);
}

static void write_set(const sg_checkpoint *folder)
{
    static char name[] = "v";
    static uint64_t shape[] = {20}, steps[] = {7};
    static const float elems[20];
    const char *names[] = {name};
    sg_checkpoint_slice slices[] = {{.index = 0, .n_elems = 16, .step = 7, .values = elems, .slots = {elems}},
                                    {.index = 1, .first_elem = 16, .n_elems = 4, .values = elems}};
    sg_checkpoint_cut cut = {.set = {7, 1},
                             .n_ps = 1,
                             .slice_bytes = 64,
                             .rule = "momentum",
                             .names = names,
                             .slices = slices,
                             .n_slices = 2};
    sg_checkpoint_variable variable = {.name = name, .shape = shape, .rank = 1, .lr_multiplier = 1};
    sg_checkpoint_part part;
    must(sg_checkpoint_write_part(folder, &cut, &part, NULL));
    sg_checkpoint_manifest manifest = {.set = {7, 1},
                                       .mode = "sync",
                                       .rule = "momentum",
                                       .steps = steps,
                                       .n_groups = 1,
                                       .next_iteration = 7,
                                       .n_ps = 1,
                                       .slice_bytes = 64,
                                       .variables = &variable,
                                       .n_variables = 1,
                                       .parts = &part,
                                       .n_parts = 1};
    must(sg_checkpoint_commit(folder, &manifest, NULL));
}

/* The manifest says of the file what it is now. */
static void report_part(paper_disk *paper, const sg_checkpoint *folder)
{
    size_t n_bytes;
    uint64_t length = 0;
    const uint8_t *file = paper_disk_bytes(paper, SET_PATH "/ps-0.safetensors", &n_bytes);
    if (n_bytes < 8)
        return;
    memcpy(&length, file, 8);
    if (length > n_bytes - 8)
        return;
    sg_checkpoint_manifest manifest;
    must(sg_checkpoint_read_manifest(folder, (sg_checkpoint_set){7, 1}, &manifest, NULL));
    manifest.parts[0].n_bytes = n_bytes;
    manifest.parts[0].header_crc32c = sg_crc32c(0, file, (size_t)length + 8);
    sg_status status = sg_checkpoint_commit(folder, &manifest, NULL); /* which also may find fault with it */
    (void)status;
    sg_checkpoint_manifest_deinit(&manifest);
}

/* The header, with the length in front that it has, before the data that was there. */
static void write_header(paper_disk *paper, const uint8_t *header, size_t n_bytes)
{
    uint64_t length = n_bytes;
    char *file = sg_xcalloc(8 + n_bytes + 144, 1);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, n_bytes);
    paper_disk_write(paper, SET_PATH "/ps-0.safetensors", file, 8 + n_bytes + 144);
    free(file);
}

static void read_all(const sg_checkpoint *folder, sg_checkpoint_set set)
{
    sg_checkpoint_reader *reader;
    if (sg_checkpoint_reader_open(folder, set, &reader, NULL) != SG_OK)
        return;
    float values[8], slot[8], *slots[SG_CHECKPOINT_MAX_SLOTS] = {slot};
    uint64_t step, n_applied;
    for (uint32_t i = 0; i < sg_checkpoint_reader_manifest(reader)->n_variables; i++) {
        for (uint64_t first = 0; first < 64; first += 5) {
            sg_status status = sg_checkpoint_read(reader, i, first, 8, values, slots, &step, &n_applied, NULL);
            (void)status;
        }
    }
    sg_status status = sg_checkpoint_verify(reader, NULL);
    (void)status;
    sg_checkpoint_reader_close(reader);
}

static void look_at_folder(const sg_disk *disk)
{
    sg_checkpoint *folder;
    sg_checkpoint_set chosen;
    sg_checkpoint_found *found;
    size_t n;
    sg_error err;
    if (sg_checkpoint_open_existing(disk, DIR_PATH, &folder, &err) != SG_OK)
        return;
    if (sg_checkpoint_list(folder, &found, &n, &err) == SG_OK)
        free(found);
    if (sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err) == SG_OK && chosen.generation != 0)
        read_all(folder, chosen);
    read_all(folder, (sg_checkpoint_set){7, 1});
    sg_checkpoint_close(folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
    if (n_bytes == 0)
        return 0;
    paper_disk paper;
    sg_checkpoint *folder;
    paper_disk_init(&paper);
    must(sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 1, &folder, NULL));
    write_set(folder);
    uint8_t kind = *data++;
    n_bytes--;
    if (kind % 5 == 0) {
        write_sealed(&paper, SET_PATH "/manifest.json", data, n_bytes);
    } else if (kind % 5 == 1) {
        write_sealed(&paper, DIR_PATH "/generation-000001.json", data, n_bytes);
    } else if (kind % 5 == 2) {
        write_sealed(&paper, DIR_PATH "/shardgrad.json", data, n_bytes);
    } else {
        if (kind % 5 == 3)
            paper_disk_write(&paper, SET_PATH "/ps-0.safetensors", data, n_bytes);
        else
            write_header(&paper, data, n_bytes);
        report_part(&paper, folder);
    }
    sg_checkpoint_close(folder);
    look_at_folder(&paper.disk);
    paper_disk_deinit(&paper);
    return 0;
}
