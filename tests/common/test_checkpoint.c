#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checkpoint_fixture.h"

static char dir[64];
static sg_checkpoint *folder;

static void open_folder(void)
{
    sg_error err = {0};
    strcpy(dir, "/tmp/sg-checkpoint-XXXXXX");
    cr_assert_not_null(mkdtemp(dir));
    char *path = sg_xprintf("%s/a/checkpoints/", dir);
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, path, "job", 77, &folder, &err), SG_OK, "%s", err.message);
    free(path);
}

static void close_folder(void)
{
    char command[128];
    sg_checkpoint_close(folder);
    snprintf(command, sizeof(command), "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

TestSuite(checkpoint, .timeout = 20, .init = open_folder, .fini = close_folder);

static void write_set(uint64_t iteration, uint64_t generation, uint32_t n_ps)
{
    sg_error err = {0};
    sg_status status = fixture_write_set(folder, (sg_checkpoint_set){iteration, generation}, n_ps, 256, &err);
    cr_assert_eq(status, SG_OK, "%s", err.message);
}

static void begin_generation(uint64_t generation, uint64_t life, sg_checkpoint_set restored)
{
    sg_error err = {0};
    sg_checkpoint_record record = {.generation = generation, .life = life, .restored = restored};
    cr_assert_eq(sg_checkpoint_record_create(folder, &record, &err), SG_OK, "%s", err.message);
}

Test(checkpoint, what_two_ps_wrote_can_be_read_by_any_number)
{
    const uint32_t n_ps[] = {1, 2, 3, 40};
    const uint64_t slice_bytes[] = {64, 256, 320, 1 << 20};
    for (size_t i = 0; i < SG_ARRAY_LEN(n_ps); i++) {
        sg_error err = {0};
        sg_checkpoint_set set = {100 + i, 1};
        sg_status status = fixture_write_set(folder, set, n_ps[i], 256, &err);
        cr_assert_eq(status, SG_OK, "%s", err.message);
        for (size_t k = 0; k < SG_ARRAY_LEN(slice_bytes); k++)
            fixture_expect_set(folder, set, n_ps[k], slice_bytes[k]);
    }
}

Test(checkpoint, a_manifest_comes_back_as_it_was)
{
    sg_checkpoint_set set = {1200, 1};
    sg_checkpoint_manifest wanted = fixture_manifest(set, 2, 256), found;
    write_set(1200, 1, 2);
    cr_assert_eq(sg_checkpoint_read_manifest(folder, set, &found, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(found.set, set));
    cr_assert_eq(found.seed, wanted.seed);
    cr_assert_eq(found.batch, wanted.batch);
    cr_assert_str_eq(found.mode, "sync");
    cr_assert_str_eq(found.rule, "adam");
    cr_assert_eq(memcmp(&found.hyper, &wanted.hyper, sizeof found.hyper), 0);
    cr_assert_eq(found.n_changes, 2);
    for (uint32_t i = 0; i < found.n_changes; i++) {
        cr_assert_str_eq(found.changes[i].key, wanted.changes[i].key);
        cr_assert_str_eq(found.changes[i].value, wanted.changes[i].value);
    }
    cr_assert(sg_workers_equal(&found.members, &wanted.members));
    cr_assert(found.n_groups == 2 && found.steps[0] == 1200 && found.steps[1] == 240);
    cr_assert(found.n_ps == 2 && found.slice_bytes == 256 && found.n_parts == 2);
    for (uint32_t i = 0; i < N_FIXTURE_VARIABLES; i++) {
        const sg_checkpoint_variable *f = &found.variables[i], *w = &fixture_variables[i];
        cr_assert_str_eq(f->name, w->name);
        cr_assert(f->rank == w->rank && memcmp(f->shape, w->shape, w->rank * sizeof(uint64_t)) == 0);
        cr_assert(f->group == w->group && f->frozen == w->frozen && f->average == w->average);
        cr_assert(f->lr_multiplier == w->lr_multiplier && f->decay_multiplier == w->decay_multiplier);
    }
    sg_checkpoint_manifest_deinit(&found);
}

Test(checkpoint, the_newest_complete_set_is_found_and_what_is_half_written_is_skipped)
{
    sg_checkpoint_set chosen;
    sg_checkpoint_found *skipped;
    size_t n;
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert_eq(chosen.generation, 0);
    write_set(100, 1, 2);
    write_set(200, 1, 2);
    sg_plan *plan = fixture_plan(2, 256);
    sg_checkpoint_part part;
    cr_assert_eq(fixture_write_part(folder, (sg_checkpoint_set){300, 1}, plan, 0, &part, NULL), SG_OK);
    sg_plan_destroy(plan);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, &skipped, &n, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){200, 1}));
    cr_assert(n == 1 && skipped[0].set.iteration == 300 && skipped[0].state == SG_CHECKPOINT_HALF_WRITTEN);
    cr_assert(strstr(skipped[0].why.message, "step-000000000300-g1") != NULL);
    free(skipped);
}

Test(checkpoint, below_one_that_cannot_be_used_the_next_older_one_is_found)
{
    sg_checkpoint_set chosen;
    sg_checkpoint_found *skipped;
    size_t n;
    sg_error err;
    begin_generation(1, 5, (sg_checkpoint_set){0});
    for (uint64_t iteration = 100; iteration <= 300; iteration += 100)
        write_set(iteration, 1, 1);
    cr_assert_eq(sg_checkpoint_find_older(folder, (sg_checkpoint_set){300, 1}, &chosen, &skipped, &n, &err), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){200, 1}));
    cr_assert_eq(n, 0);
    free(skipped);
    cr_assert_eq(sg_checkpoint_find_older(folder, (sg_checkpoint_set){200, 1}, &chosen, NULL, NULL, &err), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){100, 1}));
    cr_assert_eq(sg_checkpoint_find_older(folder, (sg_checkpoint_set){100, 1}, &chosen, NULL, NULL, &err), SG_DATA);
    cr_assert_not_null(strstr(err.message, "step-000000000100-g1 is damaged"), "%s", err.message);
}

Test(checkpoint, a_set_of_an_older_generation_beyond_what_a_later_one_started_from_is_never_used)
{
    sg_checkpoint_set chosen;
    sg_error err;
    begin_generation(1, 5, (sg_checkpoint_set){0});
    write_set(100, 1, 1);
    write_set(200, 1, 1);
    begin_generation(2, 5, (sg_checkpoint_set){100, 1});
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){100, 1}));
    cr_assert_eq(sg_checkpoint_find(folder, 200, &chosen, &err), SG_NOT_FOUND);
    cr_assert_str_eq(err.message,
                     "step-000000000200-g1 is passed over: generation 2 went on from step-000000000100-g1; "
                     "usable are: step-000000000100-g1");
    write_set(150, 2, 1);
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert(sg_checkpoint_set_equal(chosen, (sg_checkpoint_set){150, 2}));
    begin_generation(3, 5, (sg_checkpoint_set){0});
    cr_assert_eq(sg_checkpoint_find_newest(folder, &chosen, NULL, NULL, NULL), SG_OK);
    cr_assert_eq(chosen.generation, 0, "a generation that started from nothing forbids all that was before");
}

Test(checkpoint, of_many_that_can_be_used_the_newest_are_named_whole)
{
    sg_checkpoint_set chosen;
    sg_error err;
    begin_generation(1, 5, (sg_checkpoint_set){0});
    for (uint64_t iteration = 1; iteration <= 20; iteration++)
        write_set(iteration, 1, 1);
    cr_assert_eq(sg_checkpoint_find(folder, 30, &chosen, &err), SG_NOT_FOUND);
    cr_assert_not_null(strstr(err.message, "; usable are: step-000000000020-g1, step-000000000019-g1, "), "%s",
                       err.message);
    const char *more = strstr(err.message, "-g1 and ");
    cr_assert_not_null(more, "%s", err.message);
    size_t n_named = 0, n_more = strtoul(more + strlen("-g1 and "), NULL, 10);
    for (const char *at = err.message; (at = strstr(at, "step-")) != NULL; at++)
        n_named++;
    cr_assert_eq(n_named + n_more, 20, "%s", err.message);
}

Test(checkpoint, the_newest_record_says_what_was_changed)
{
    sg_checkpoint_change changes[] = {{(char *)"update.mode", (char *)"async"},
                                      {(char *)"update.rule", (char *)"adam"}};
    sg_checkpoint_record first = {.generation = 1, .life = 5},
                         second = {.generation = 2,
                                   .life = 5,
                                   .restored = {100, 1},
                                   .changes = changes,
                                   .n_changes = 2},
                         found;
    cr_assert_eq(sg_checkpoint_newest_record(folder, &found, NULL), SG_OK);
    cr_assert_eq(found.generation, 0);
    cr_assert_eq(sg_checkpoint_record_create(folder, &first, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_newest_record(folder, &found, NULL), SG_OK);
    cr_assert_eq(found.generation, 1);
    cr_assert_eq(found.n_changes, 0);
    sg_checkpoint_changes_free(found.changes, found.n_changes);
    cr_assert_eq(sg_checkpoint_record_create(folder, &second, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_newest_record(folder, &found, NULL), SG_OK);
    cr_assert_eq(found.generation, 2);
    cr_assert_eq(found.restored.iteration, 100);
    cr_assert_eq(found.n_changes, 2);
    cr_assert_str_eq(found.changes[1].key, "update.rule");
    cr_assert_str_eq(found.changes[1].value, "adam");
    sg_checkpoint_changes_free(found.changes, found.n_changes);
}

Test(checkpoint, a_record_is_made_once_and_a_second_coordinator_is_superseded)
{
    sg_checkpoint_record mine = {.generation = 2, .life = 5, .restored = {100, 1}},
                         other = {.generation = 2, .life = 6, .restored = {100, 1}},
                         earlier = {.generation = 1, .life = 5};
    uint64_t highest;
    sg_error err;
    cr_assert_eq(sg_checkpoint_recorded(folder, &highest, NULL), SG_OK);
    cr_assert_eq(highest, 0);
    cr_assert_eq(sg_checkpoint_record_create(folder, &mine, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_record_create(folder, &mine, NULL), SG_OK, "again is fine");
    cr_assert_eq(sg_checkpoint_record_create(folder, &other, &err), SG_FENCED);
    cr_assert_eq(sg_checkpoint_record_create(folder, &earlier, &err), SG_FENCED);
    cr_assert_eq(sg_checkpoint_recorded(folder, &highest, NULL), SG_OK);
    cr_assert_eq(highest, 2);
}

/* An incarnation has 32 bits for it. */
Test(checkpoint, after_the_last_generation_that_there_may_be_none_begins_and_the_file_is_named)
{
    uint64_t last, unrecorded;
    sg_error err;
    begin_generation(SG_CHECKPOINT_MAX_GENERATION - 1, 5, (sg_checkpoint_set){0});
    cr_assert_eq(sg_checkpoint_last_generation(folder, &last, &unrecorded, &err), SG_OK);
    begin_generation(SG_CHECKPOINT_MAX_GENERATION, 5, (sg_checkpoint_set){0});
    cr_assert_eq(sg_checkpoint_last_generation(folder, &last, &unrecorded, &err), SG_DATA);
    cr_assert_not_null(strstr(err.message, "generation-4294967295.json"), "%s", err.message);
    begin_generation((uint64_t)SG_CHECKPOINT_MAX_GENERATION + 1, 5, (sg_checkpoint_set){0});
    cr_assert_eq(sg_checkpoint_last_generation(folder, &last, &unrecorded, &err), SG_DATA);
    cr_assert_not_null(strstr(err.message, "generation-4294967296.json"), "%s", err.message);
}

Test(checkpoint, a_set_is_completed_only_while_its_generation_is_the_current_one)
{
    sg_error err;
    begin_generation(2, 5, (sg_checkpoint_set){0});
    cr_assert_eq(fixture_write_set(folder, (sg_checkpoint_set){100, 1}, 2, 256, &err), SG_FENCED);
    write_set(100, 2, 2);
}

Test(checkpoint, keep_leaves_the_newest_and_the_current_one_and_removes_what_cannot_be_used)
{
    sg_checkpoint_found *found;
    size_t n, n_removed;
    sg_plan *plan = fixture_plan(2, 256);
    sg_checkpoint_part part;
    for (uint64_t iteration = 100; iteration <= 600; iteration += 100)
        write_set(iteration, 1, 2);
    begin_generation(2, 5, (sg_checkpoint_set){300, 1});
    write_set(400, 2, 2);
    cr_assert_eq(fixture_write_part(folder, (sg_checkpoint_set){350, 2}, plan, 0, &part, NULL), SG_OK);
    write_set(500, 2, 2);
    cr_assert_eq(fixture_write_part(folder, (sg_checkpoint_set){700, 2}, plan, 0, &part, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_prune(folder, 1, (sg_checkpoint_set){300, 1}, &n_removed, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_list(folder, &found, &n, NULL), SG_OK);
    const sg_checkpoint_set left[] = {{700, 2}, {500, 2}, {300, 1}};
    cr_assert_eq(n, SG_ARRAY_LEN(left));
    for (size_t i = 0; i < n; i++)
        cr_assert(sg_checkpoint_set_equal(found[i].set, left[i]));
    cr_assert_eq(n_removed, 7);
    free(found);
    sg_plan_destroy(plan);
}

/* An async set between which and the one before no ticket was handed out. */
static void write_again(uint64_t iteration, uint64_t generation, uint64_t next_iteration)
{
    const sg_checkpoint_set set = {iteration, generation};
    sg_checkpoint_manifest manifest = fixture_manifest(set, 2, 256);
    sg_checkpoint_part parts[2];
    sg_plan *plan = fixture_plan(2, 256);
    for (uint32_t ps = 0; ps < 2; ps++)
        cr_assert_eq(fixture_write_part(folder, set, plan, ps, &parts[ps], NULL), SG_OK);
    manifest.parts = parts;
    manifest.n_parts = 2;
    manifest.next_iteration = next_iteration;
    cr_assert_eq(sg_checkpoint_commit(folder, &manifest, NULL), SG_OK);
    sg_plan_destroy(plan);
}

Test(checkpoint, those_that_were_asked_for_without_any_progress_evict_no_older_one)
{
    sg_checkpoint_found *found;
    size_t n, n_removed;
    write_set(100, 1, 2);
    write_set(200, 1, 2);
    begin_generation(2, 5, (sg_checkpoint_set){200, 1});
    write_again(201, 2, 200);
    write_again(202, 2, 200);
    write_again(203, 2, 200);
    cr_assert_eq(sg_checkpoint_prune(folder, 3, (sg_checkpoint_set){0}, &n_removed, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_list(folder, &found, &n, NULL), SG_OK);
    const sg_checkpoint_set left[] = {{203, 2}, {200, 1}, {100, 1}};
    cr_assert_eq(n, SG_ARRAY_LEN(left));
    for (size_t i = 0; i < n; i++)
        cr_assert(sg_checkpoint_set_equal(found[i].set, left[i]));
    cr_assert_eq(n_removed, 2);
    free(found);
}

Test(checkpoint, a_manifest_that_goes_on_beyond_its_set_is_damaged)
{
    sg_checkpoint_manifest manifest;
    sg_error err;
    write_again(100, 1, 101);
    cr_assert_eq(sg_checkpoint_read_manifest(folder, (sg_checkpoint_set){100, 1}, &manifest, &err), SG_DATA);
    cr_assert(strstr(err.message, "'next_iteration' is missing or wrong") != NULL, "%s", err.message);
}

Test(checkpoint, what_failed_is_removed_before_the_next_one_and_nothing_else_is)
{
    const sg_checkpoint_set failed[] = {{100, 1}, {300, 1}, {400, 1}, {450, 2}};
    sg_checkpoint_found *found;
    size_t n, n_removed;
    sg_plan *plan = fixture_plan(2, 256);
    sg_checkpoint_part part;
    sg_error err = {0};
    write_set(200, 1, 2);
    for (size_t i = 0; i < SG_ARRAY_LEN(failed); i++)
        cr_assert_eq(fixture_write_part(folder, failed[i], plan, i % 2, &part, NULL), SG_OK);
    cr_assert_eq(sg_checkpoint_remove_failed(folder, failed[2], &n_removed, &err), SG_OK, "%s", err.message);
    cr_assert_eq(n_removed, 2);
    cr_assert_eq(sg_checkpoint_list(folder, &found, &n, NULL), SG_OK);
    const sg_checkpoint_set left[] = {{450, 2}, {400, 1}, {200, 1}};
    cr_assert_eq(n, SG_ARRAY_LEN(left));
    for (size_t i = 0; i < n; i++)
        cr_assert(sg_checkpoint_set_equal(found[i].set, left[i]));
    free(found);
    sg_plan_destroy(plan);
}

static unsigned n_frees; /* so much has to be removed before there is room */

static int write_to_full(void *user, int file, uint64_t offset, const void *data, size_t n_bytes)
{
    return n_frees > 0 ? ENOSPC : sg_disk_posix.write(user, file, offset, data, n_bytes);
}

static int remove_makes_room(void *user, const char *path)
{
    n_frees -= n_frees > 0 && strstr(path, ".safetensors") != NULL;
    return sg_disk_posix.remove(user, path);
}

/* The job ended since its checkpoint filled the disk; who starts it again must not be told that it is full. */
Test(checkpoint, a_record_finds_room_where_a_checkpoint_that_filled_the_disk_was_left)
{
    sg_disk disk = sg_disk_posix;
    disk.write = write_to_full;
    disk.remove = remove_makes_room;
    sg_checkpoint *full;
    sg_checkpoint_found *found;
    sg_checkpoint_part part;
    size_t n;
    sg_error err = {0};
    const sg_checkpoint_set none = {0, 0}, half = {200, 1};
    sg_plan *plan = fixture_plan(2, 256);
    begin_generation(1, 77, none);
    write_set(100, 1, 2);
    cr_assert_eq(fixture_write_part(folder, half, plan, 0, &part, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_checkpoint_open(&disk, sg_checkpoint_dir(folder), "job", 78, &full, &err), SG_OK, "%s",
                 err.message);
    n_frees = 1;
    const sg_checkpoint_record record = {.generation = 2, .life = 78, .restored = {100, 1}};
    cr_assert_eq(sg_checkpoint_record_create(full, &record, &err), SG_OK, "%s", err.message);
    cr_assert_eq(sg_checkpoint_list(folder, &found, &n, &err), SG_OK);
    cr_assert(n == 1 && found[0].set.iteration == 100, "the complete one stays");
    free(found);
    n_frees = 1;
    const sg_checkpoint_record next = {.generation = 3, .life = 78, .restored = {100, 1}};
    cr_assert_eq(sg_checkpoint_record_create(full, &next, &err), SG_EXHAUSTED, "there is nothing to remove");
    sg_checkpoint_close(full);
    sg_plan_destroy(plan);
}

Test(checkpoint, the_folder_belongs_to_one_job_and_has_one_id)
{
    sg_checkpoint *again;
    sg_error err;
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, sg_checkpoint_dir(folder), "job", 78, &again, &err), SG_OK);
    cr_assert(sg_checkpoint_id(again) == 77 && sg_checkpoint_id(folder) == 77);
    sg_checkpoint_close(again);
    cr_assert_eq(sg_checkpoint_open(&sg_disk_posix, sg_checkpoint_dir(folder), "other", 78, &again, &err), SG_MISMATCH);
    cr_assert(strstr(err.message, "'job'") != NULL && strstr(err.message, "'other'") != NULL, "%s", err.message);
    cr_assert_eq(sg_checkpoint_open_existing(&sg_disk_posix, sg_checkpoint_dir(folder), &again, &err), SG_OK);
    cr_assert_str_eq(sg_checkpoint_job(again), "job");
    sg_checkpoint_close(again);
    cr_assert_eq(sg_checkpoint_open_existing(&sg_disk_posix, dir, &again, &err), SG_NOT_FOUND);
}

Test(checkpoint, it_is_locked_for_one_at_a_time_who_is_named_to_others)
{
    sg_checkpoint_lock *lock, *other = NULL;
    sg_checkpoint *again;
    sg_error err = {0};
    cr_assert_eq(sg_checkpoint_lock_take(folder, "ps 0 of job 'a'", 0, &lock, &err), SG_OK, "%s", err.message);
    cr_assert_not_null(lock, "this test needs a file system with locks");
    cr_assert_eq(sg_checkpoint_open_existing(&sg_disk_posix, sg_checkpoint_dir(folder), &again, &err), SG_OK);
    cr_assert_eq(sg_checkpoint_lock_take(again, "ps 0 of job 'b'", 30, &other, &err), SG_CONFIG);
    cr_assert_null(other);
    char *owner = sg_xprintf("in use by ps 0 of job 'a', process %ld on ", (long)getpid());
    cr_assert(strstr(err.message, owner) != NULL && strstr(err.message, sg_checkpoint_dir(folder)) != NULL, "%s",
              err.message);
    free(owner);
    sg_checkpoint_lock_release(lock);
    cr_assert_eq(sg_checkpoint_lock_take(again, "ps 0 of job 'b'", 0, &other, &err), SG_OK, "%s", err.message);
    sg_checkpoint_lock_release(other);
    sg_checkpoint_close(again);
}

Test(checkpoint, whoever_is_killed_leaves_no_lock)
{
    sg_checkpoint_lock *lock;
    sg_error err = {0};
    int ready[2];
    char byte;
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        bool taken = sg_checkpoint_lock_take(folder, "a child", 0, &lock, NULL) == SG_OK;
        if (write(ready[1], taken ? "y" : "n", 1) == 1)
            sleep(60); /* it is killed long before */
        _exit(1);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    cr_assert_eq(byte, 'y');
    cr_assert_eq(sg_checkpoint_lock_take(folder, "me", 0, &lock, &err), SG_CONFIG);
    cr_assert_not_null(strstr(err.message, "in use by a child, process"), "%s", err.message);
    cr_assert_eq(kill(child, SIGKILL), 0);
    cr_assert_eq(sg_checkpoint_lock_take(folder, "me", 10000, &lock, &err), SG_OK, "it is waited for: %s", err.message);
    sg_checkpoint_lock_release(lock);
    cr_assert_eq(waitpid(child, NULL, 0), child);
    close(ready[0]);
    close(ready[1]);
}

Test(checkpoint, names_of_sets_are_read_back_and_others_are_none)
{
    char name[SG_CHECKPOINT_NAME_BYTES];
    sg_checkpoint_set set = {1200, 2}, found;
    cr_assert_str_eq(sg_checkpoint_set_name(set, name), "step-000000001200-g2");
    cr_assert(sg_checkpoint_set_parse(name, &found) && sg_checkpoint_set_equal(set, found));
    const char *others[] = {"step-1200-g2", "step-000000001200-g0", "step-000000001200-g2x", "step-000000001200", "x"};
    for (size_t i = 0; i < SG_ARRAY_LEN(others); i++)
        cr_assert_not(sg_checkpoint_set_parse(others[i], &found), "%s", others[i]);
}

Test(checkpoint, a_writing_that_is_given_up_leaves_no_file)
{
    _Atomic bool stop = true;
    float value = 1;
    const char *name = "v";
    sg_checkpoint_slice slice = {.n_elems = 1, .values = &value};
    sg_checkpoint_cut cut = {.set = {1, 1},
                             .n_ps = 1,
                             .slice_bytes = 64,
                             .rule = "sgd",
                             .names = &name,
                             .slices = &slice,
                             .n_slices = 1,
                             .stop = &stop};
    sg_checkpoint_part part;
    cr_assert_eq(sg_checkpoint_write_part(folder, &cut, &part, NULL), SG_CANCELLED);
    char *path = sg_xprintf("%s/step-000000000001-g1", sg_checkpoint_dir(folder));
    DIR *set = opendir(path);
    size_t n = 0;
    cr_assert_not_null(set);
    while (readdir(set) != NULL)
        n++;
    closedir(set);
    free(path);
    cr_assert_eq(n, 2, "only . and ..");
}
