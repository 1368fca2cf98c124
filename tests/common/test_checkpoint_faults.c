/* Checkpoints on a disk that loses its power at every single call, fills up, is read-only, or turns bits over. */
#include <criterion/criterion.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint_fixture.h"
#include "common/crc32c.h"
#include "tests/support/paper_disk.h"

#define DIR_PATH "runs/checkpoints"

TestSuite(checkpoint_faults, .timeout = 60);

/* What a job was told to be on the disk for good. */
typedef struct told {
    uint64_t generation;          /* of the newest record */
    sg_checkpoint_set sets[8];    /* complete */
    size_t n_sets, first_to_stay; /* those before may have been removed */
} told;

static bool begin_generation(const sg_checkpoint *folder, told *t, uint64_t generation, sg_checkpoint_set restored,
                             sg_error *err)
{
    sg_checkpoint_record record = {.generation = generation, .life = generation + 4, .restored = restored};
    if (sg_checkpoint_record_create(folder, &record, err) != SG_OK)
        return false;
    t->generation = generation;
    return true;
}

static bool write_set(const sg_checkpoint *folder, told *t, sg_checkpoint_set set, sg_error *err)
{
    if (fixture_write_set(folder, set, 2, 256, err) != SG_OK)
        return false;
    t->sets[t->n_sets++] = set;
    return true;
}

static bool prune(const sg_checkpoint *folder, told *t, sg_checkpoint_set current, size_t first_to_stay, sg_error *err)
{
    t->first_to_stay = first_to_stay;
    return sg_checkpoint_prune(folder, 1, current, NULL, err) == SG_OK;
}

/* Two generations and three sets, until something fails. */
static bool live(const sg_disk *disk, told *t, sg_error *err)
{
    const sg_checkpoint_set none = {0}, first = {100, 1}, second = {200, 1}, third = {250, 2};
    sg_checkpoint *folder;
    *t = (told){0};
    if (sg_checkpoint_open(disk, DIR_PATH, "job", 9, &folder, err) != SG_OK)
        return false;
    bool done = begin_generation(folder, t, 1, none, err) && write_set(folder, t, first, err) &&
                write_set(folder, t, second, err) && prune(folder, t, none, 1, err) &&
                begin_generation(folder, t, 2, second, err) && write_set(folder, t, third, err) &&
                prune(folder, t, second, 1, err);
    sg_checkpoint_close(folder);
    return done;
}

static uint64_t count_calls(void)
{
    paper_disk paper;
    told t;
    sg_error err = {0};
    paper_disk_init(&paper);
    cr_assert(live(&paper.disk, &t, &err), "%s", err.message);
    cr_assert_eq(t.n_sets, 3);
    uint64_t n = paper.n_calls;
    paper_disk_deinit(&paper);
    return n;
}

static bool is_usable(const sg_checkpoint_found *found, size_t n, sg_checkpoint_set set)
{
    for (size_t i = 0; i < n; i++) {
        if (sg_checkpoint_set_equal(found[i].set, set))
            return found[i].state == SG_CHECKPOINT_USABLE;
    }
    return false;
}

/* Is all there that was told to be, and is nothing taken for a set that is none? */
static bool is_as_told(const sg_checkpoint *folder, const told *t)
{
    uint64_t highest;
    sg_checkpoint_found *found;
    size_t n;
    if (sg_checkpoint_recorded(folder, &highest, NULL) != SG_OK || highest < t->generation ||
        sg_checkpoint_list(folder, &found, &n, NULL) != SG_OK)
        return false;
    bool is = true;
    for (size_t i = t->first_to_stay; i < t->n_sets; i++)
        is &= is_usable(found, n, t->sets[i]);
    for (size_t i = 0; i < n; i++) {
        is &= found[i].state != SG_CHECKPOINT_DAMAGED && found[i].state != SG_CHECKPOINT_NEWER;
        if (is && found[i].state == SG_CHECKPOINT_USABLE)
            fixture_expect_set(folder, found[i].set, 3, 64);
    }
    free(found);
    return is;
}

/* The next life finds what there is, and goes on from there. */
static void expect_next_life(const sg_checkpoint *folder, const told *t)
{
    uint64_t highest;
    sg_checkpoint_set chosen;
    told next = {0};
    sg_error err = {0};
    cr_assert_eq(sg_checkpoint_recorded(folder, &highest, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert(t->n_sets == 0 || chosen.iteration >= t->sets[t->n_sets - 1].iteration);
    cr_assert(begin_generation(folder, &next, highest + 1, chosen, &err), "%s", err.message);
    cr_assert(write_set(folder, &next, (sg_checkpoint_set){chosen.iteration + 1000, highest + 1}, &err), "%s",
              err.message);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert(sg_checkpoint_set_equal(chosen, next.sets[0]));
    cr_assert_eq(sg_checkpoint_prune(folder, 1, chosen, NULL, &err), SG_OK, "%s", err.message);
}

Test(checkpoint_faults, a_loss_of_power_at_any_call_loses_nothing_that_was_told_to_be_complete)
{
    sg_seed seed = sg_seed_begin();
    uint64_t n_calls = count_calls();
    for (uint64_t call = 1; call <= 3 * (n_calls + 1); call++) {
        paper_disk paper;
        sg_checkpoint *folder;
        told t;
        sg_error err = {0};
        paper_disk_init(&paper);
        paper.fails_from = 1 + call / 3;
        paper.error = EIO;
        bool done = live(&paper.disk, &t, NULL);
        cr_assert_eq(done, paper.fails_from > n_calls);
        paper_disk_cut_power(&paper, &seed);
        sg_status status = sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 10, &folder, &err);
        cr_assert_eq(status, SG_OK, "%s", err.message);
        cr_assert(is_as_told(folder, &t), "cut at call %llu, SG_TEST_SEED=%llu", (unsigned long long)(1 + call / 3),
                  (unsigned long long)seed.first);
        expect_next_life(folder, &t);
        sg_checkpoint_close(folder);
        paper_disk_deinit(&paper);
    }
}

Test(checkpoint_faults, a_disk_that_does_not_sync_is_found_out_by_the_test_above)
{
    sg_seed seed = sg_seed_begin();
    size_t n_lost = 0;
    for (int i = 0; i < 50; i++) {
        paper_disk paper;
        sg_checkpoint *folder;
        told t;
        paper_disk_init(&paper);
        paper.never_syncs = true;
        cr_assert(live(&paper.disk, &t, NULL));
        paper_disk_cut_power(&paper, &seed);
        sg_status status = sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 10, &folder, NULL);
        n_lost += status != SG_OK || !is_as_told(folder, &t);
        if (status == SG_OK)
            sg_checkpoint_close(folder);
        paper_disk_deinit(&paper);
    }
    cr_assert_gt(n_lost, 25);
}

static void expect_survives(int error, sg_status wanted)
{
    uint64_t n_calls = count_calls();
    for (uint64_t call = 1; call <= n_calls; call++) {
        paper_disk paper;
        sg_checkpoint *folder;
        told t;
        sg_error err = {0};
        paper_disk_init(&paper);
        paper.fails_from = call;
        paper.error = error;
        if (!live(&paper.disk, &t, &err)) {
            cr_assert_eq(err.code, wanted, "%s", err.message);
            cr_assert(strstr(err.message, DIR_PATH) != NULL || call == 1, "%s", err.message);
        }
        paper.fails_from = 0;
        cr_assert_eq(sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 9, &folder, &err), SG_OK, "%s", err.message);
        cr_assert(is_as_told(folder, &t), "failed from call %llu", (unsigned long long)call);
        expect_next_life(folder, &t);
        sg_checkpoint_close(folder);
        paper_disk_deinit(&paper);
    }
}

Test(checkpoint_faults, a_full_disk_is_told_and_the_last_complete_set_stays)
{
    expect_survives(ENOSPC, SG_EXHAUSTED);
}

Test(checkpoint_faults, a_folder_that_becomes_read_only_is_told_and_the_last_complete_set_stays)
{
    expect_survives(EROFS, SG_IO);
}

/* --- files that are not what they were ------------------------------------------------------------------------------
 */

typedef struct fault {
    paper_disk paper;
    sg_checkpoint *folder;
} fault;

static void fault_init(fault *f)
{
    sg_error err = {0};
    paper_disk_init(&f->paper);
    cr_assert_eq(sg_checkpoint_open(&f->paper.disk, DIR_PATH, "job", 9, &f->folder, &err), SG_OK, "%s", err.message);
    told t = {0};
    cr_assert(begin_generation(f->folder, &t, 1, (sg_checkpoint_set){0}, &err), "%s", err.message);
    cr_assert(write_set(f->folder, &t, (sg_checkpoint_set){100, 1}, &err), "%s", err.message);
    cr_assert(write_set(f->folder, &t, (sg_checkpoint_set){200, 1}, &err), "%s", err.message);
}

static void fault_deinit(fault *f)
{
    sg_checkpoint_close(f->folder);
    paper_disk_deinit(&f->paper);
}

/* Reads all of a set. */
static sg_status read_set(const sg_checkpoint *folder, sg_checkpoint_set set, sg_error *err)
{
    sg_checkpoint_reader *reader;
    sg_status status = sg_checkpoint_reader_open(folder, set, &reader, err);
    if (status != SG_OK)
        return status;
    status = sg_checkpoint_verify(reader, err);
    sg_checkpoint_reader_close(reader);
    return status;
}

static void expect_damaged(fault *f, const char *file, const char *what, uint64_t at)
{
    sg_error err = {0};
    sg_status status = read_set(f->folder, (sg_checkpoint_set){200, 1}, &err);
    cr_assert_eq(status, SG_DATA, "%s %s at %llu: %s", file, what, (unsigned long long)at, err.message);
    cr_assert(strstr(err.message, file) != NULL, "%s", err.message);
}

static void expect_flips_are_found(const char *file, uint64_t stride)
{
    fault f;
    size_t n_bytes;
    fault_init(&f);
    char *path = sg_xprintf(DIR_PATH "/step-000000000200-g1/%s", file);
    cr_assert_not_null(paper_disk_bytes(&f.paper, path, &n_bytes));
    for (uint64_t at = 0; at < n_bytes; at += stride) {
        paper_disk_flip(&f.paper, path, at);
        expect_damaged(&f, file, "flipped", at);
        paper_disk_flip(&f.paper, path, at);
    }
    cr_assert_eq(read_set(f.folder, (sg_checkpoint_set){200, 1}, NULL), SG_OK);
    free(path);
    fault_deinit(&f);
}

Test(checkpoint_faults, a_flipped_byte_anywhere_in_a_file_of_a_ps_is_found_and_the_file_is_named)
{
    expect_flips_are_found("ps-1.safetensors", 7);
}

Test(checkpoint_faults, a_flipped_byte_anywhere_in_a_manifest_is_found_and_the_file_is_named)
{
    expect_flips_are_found("manifest.json", 1);
}

Test(checkpoint_faults, a_flipped_value_is_named_by_variable_and_elements)
{
    fault f;
    sg_error err;
    size_t n_bytes;
    const char *path = DIR_PATH "/step-000000000200-g1/ps-1.safetensors";
    fault_init(&f);
    cr_assert_not_null(paper_disk_bytes(&f.paper, path, &n_bytes));
    paper_disk_flip(&f.paper, path, n_bytes - 1);
    cr_assert_eq(read_set(f.folder, (sg_checkpoint_set){200, 1}, &err), SG_DATA);
    cr_assert(strstr(err.message, "elements") != NULL && strstr(err.message, "' do not have") != NULL, "%s",
              err.message);
    fault_deinit(&f);
}

Test(checkpoint_faults, a_file_that_is_cut_short_is_found_and_the_set_before_it_is_taken)
{
    static const char *const files[] = {"manifest.json", "ps-0.safetensors", "ps-1.safetensors"};
    for (size_t i = 0; i < SG_ARRAY_LEN(files); i++) {
        fault f;
        size_t n_bytes, n_skipped;
        sg_checkpoint_set chosen;
        sg_checkpoint_found *skipped;
        sg_error err = {0};
        fault_init(&f);
        char *path = sg_xprintf(DIR_PATH "/step-000000000200-g1/%s", files[i]);
        cr_assert_not_null(paper_disk_bytes(&f.paper, path, &n_bytes));
        while (n_bytes > 0) {
            n_bytes -= n_bytes < 97 ? 1 : 97;
            paper_disk_truncate(&f.paper, path, n_bytes);
            expect_damaged(&f, files[i], "cut", n_bytes);
        }
        cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, &skipped, &n_skipped, &err), SG_OK, "%s",
                     err.message);
        cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){100, 1}));
        cr_assert(n_skipped == 1 && skipped[0].state == SG_CHECKPOINT_DAMAGED);
        cr_assert(strstr(skipped[0].why.message, files[i]) != NULL, "%s", skipped[0].why.message);
        free(skipped);
        free(path);
        fault_deinit(&f);
    }
}

/* Gives a sealed file another format, and the checksum that goes with it. */
static void set_format(fault *f, const char *path, char digit)
{
    size_t n_bytes;
    const uint8_t *bytes = paper_disk_bytes(&f->paper, path, &n_bytes);
    cr_assert_not_null(bytes);
    char *text = sg_xprintf("%.*s", (int)n_bytes, (const char *)bytes), seal[64];
    strstr(text, "\"format\": ")[10] = digit;
    size_t n_seal = strlen(strstr(text, ",\n \"crc32c\""));
    snprintf(seal, sizeof seal, ",\n \"crc32c\": \"%08x\"\n}\n", sg_crc32c(0, text, n_bytes - n_seal));
    memcpy(text + n_bytes - n_seal, seal, n_seal);
    paper_disk_write(&f->paper, path, text, n_bytes);
    free(text);
}

Test(checkpoint_faults, a_set_of_a_later_format_is_refused_and_not_gone_back_behind)
{
    fault f;
    sg_checkpoint_set chosen;
    sg_error err;
    fault_init(&f);
    set_format(&f, DIR_PATH "/step-000000000200-g1/manifest.json", '1');
    cr_assert_eq(read_set(f.folder, (sg_checkpoint_set){200, 1}, &err), SG_OK, "%s", err.message);
    set_format(&f, DIR_PATH "/step-000000000200-g1/manifest.json", '2');
    cr_assert_eq(read_set(f.folder, (sg_checkpoint_set){200, 1}, &err), SG_DATA);
    cr_assert(strstr(err.message, "format 2") != NULL, "%s", err.message);
    cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, NULL, NULL, &err), SG_DATA);
    cr_assert(strstr(err.message, "step-000000000200-g1") != NULL, "%s", err.message);
    cr_assert_eq(sg_checkpoint_find(f.folder, 100, &chosen, &err), SG_OK, "who names an older one gets it");
    fault_deinit(&f);
}

Test(checkpoint_faults, a_record_that_is_damaged_is_an_error_until_a_later_generation_begins_from_nothing)
{
    fault f;
    sg_checkpoint_set chosen;
    uint64_t highest;
    sg_error err;
    fault_init(&f);
    paper_disk_flip(&f.paper, DIR_PATH "/generation-000001.json", 40);
    cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, NULL, NULL, &err), SG_DATA);
    cr_assert(strstr(err.message, "generation-000001.json") != NULL, "%s", err.message);
    cr_assert(strstr(err.message, "restore: none to begin anew") != NULL, "%s", err.message);
    cr_assert_eq(sg_checkpoint_recorded(f.folder, &highest, &err), SG_OK, "%s", err.message);
    cr_assert_eq(highest, 1);
    told next = {0};
    cr_assert(begin_generation(f.folder, &next, 2, (sg_checkpoint_set){100, 1}, &err), "%s", err.message);
    cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, NULL, NULL, &err), SG_DATA, "what it forbade counts");
    cr_assert(begin_generation(f.folder, &next, 3, (sg_checkpoint_set){0}, &err), "%s", err.message);
    cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert_eq(chosen.generation, 0);
    cr_assert(write_set(f.folder, &next, (sg_checkpoint_set){50, 3}, &err), "%s", err.message);
    cr_assert_eq(sg_checkpoint_find_newest(f.folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert(sg_checkpoint_set_equal(chosen, next.sets[0]));
    fault_deinit(&f);
}

Test(checkpoint_faults, a_record_that_was_removed_is_told_and_its_generation_is_not_used_again)
{
    fault f;
    uint64_t last, unrecorded;
    fault_init(&f);
    cr_assert_eq(sg_checkpoint_last_generation(f.folder, &last, &unrecorded, NULL), SG_OK);
    cr_assert(last == 1 && unrecorded == 0);
    told next = {0};
    cr_assert(begin_generation(f.folder, &next, 3, (sg_checkpoint_set){0}, NULL));
    cr_assert(write_set(f.folder, &next, (sg_checkpoint_set){50, 3}, NULL));
    cr_assert_eq(f.paper.disk.remove(f.paper.disk.user, DIR_PATH "/generation-000003.json"), 0);
    cr_assert_eq(sg_checkpoint_last_generation(f.folder, &last, &unrecorded, NULL), SG_OK);
    cr_assert(last == 3 && unrecorded == 3, "last %" PRIu64 ", unrecorded %" PRIu64, last, unrecorded);
    fault_deinit(&f);
}

Test(checkpoint_faults, a_marker_that_is_damaged_says_what_to_do_and_one_that_was_removed_is_told)
{
    fault f;
    sg_error err;
    sg_checkpoint *again = NULL;
    fault_init(&f);
    cr_assert_not(sg_checkpoint_was_unmarked(f.folder));
    paper_disk_flip(&f.paper, DIR_PATH "/shardgrad.json", 10);
    cr_assert_eq(sg_checkpoint_open(&f.paper.disk, DIR_PATH, "job", 9, &again, &err), SG_DATA);
    cr_assert(strstr(err.message, "shardgrad.json") != NULL && strstr(err.message, "remove it") != NULL, "%s",
              err.message);
    cr_assert_eq(f.paper.disk.remove(f.paper.disk.user, DIR_PATH "/shardgrad.json"), 0);
    cr_assert_eq(sg_checkpoint_open(&f.paper.disk, DIR_PATH, "job", 9, &again, &err), SG_OK, "%s", err.message);
    cr_assert(sg_checkpoint_was_unmarked(again));
    sg_checkpoint_close(again);
    fault_deinit(&f);
}

Test(checkpoint_faults, a_part_of_another_life_of_the_same_set_is_not_taken_for_the_one_that_was_reported)
{
    fault f;
    sg_error err = {0};
    sg_checkpoint_part part;
    fault_init(&f);
    sg_plan *plan = fixture_plan(2, 256);
    float value = 1;
    const char *name = "v";
    sg_checkpoint_slice slice = {.n_elems = 1, .values = &value};
    sg_checkpoint_cut cut = {.set = {200, 1},
                             .ps = 1,
                             .n_ps = 2,
                             .slice_bytes = 256,
                             .rule = "sgd",
                             .names = &name,
                             .slices = &slice,
                             .n_slices = 1};
    cr_assert_eq(sg_checkpoint_write_part(f.folder, &cut, &part, &err), SG_OK, "%s", err.message);
    expect_damaged(&f, "ps-1.safetensors", "replaced", 0);
    sg_plan_destroy(plan);
    fault_deinit(&f);
}

static int (*paper_open)(void *user, const char *path, sg_disk_open how, int *file);

static int open_no_set(void *user, const char *path, sg_disk_open how, int *file)
{
    return strstr(path, "/step-") != NULL ? EMFILE : paper_open(user, path, how, file);
}

Test(checkpoint_faults, a_process_without_a_free_descriptor_takes_no_checkpoint_for_damaged)
{
    paper_disk paper;
    sg_checkpoint *folder;
    sg_checkpoint_set chosen;
    sg_checkpoint_found *found;
    size_t n;
    sg_error err = {0};
    const sg_checkpoint_set set = {1000, 1};
    paper_disk_init(&paper);
    cr_assert_eq(sg_checkpoint_open(&paper.disk, DIR_PATH, "job", 9, &folder, &err), SG_OK, "%s", err.message);
    cr_assert_eq(fixture_write_set(folder, set, 2, 1024, &err), SG_OK, "%s", err.message);
    paper_open = paper.disk.open;
    paper.disk.open = open_no_set;
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_EXHAUSTED, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "step-000000001000-g1"), "%s", err.message);
    cr_assert_eq(sg_checkpoint_list(folder, &found, &n, NULL), SG_EXHAUSTED);
    paper.disk.open = paper_open;
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, &err), SG_OK, "%s", err.message);
    cr_assert(sg_checkpoint_set_equal(chosen, set));
    sg_checkpoint_close(folder);
    paper_disk_deinit(&paper);
}
