#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

#include "common/workers.h"
#include "tests/support/seed.h"

TestSuite(workers, .timeout = 20);

static sg_workers set_of(const uint32_t *members, size_t n)
{
    sg_workers set = {{0}};
    for (size_t i = 0; i < n; i++)
        sg_workers_add(&set, members[i]);
    return set;
}

Test(workers, members_are_those_that_were_added_and_not_removed)
{
    sg_workers set = set_of((uint32_t[]){0, 63, 64, 1023}, 4);
    cr_assert_eq(sg_workers_count(&set), 4u);
    cr_assert(sg_workers_has(&set, 1023));
    cr_assert_not(sg_workers_has(&set, 1));
    sg_workers_remove(&set, 64);
    sg_workers_remove(&set, 5);
    sg_workers_remove(&set, 99999);
    cr_assert_eq(sg_workers_count(&set), 3u);
    cr_assert_not(sg_workers_has(&set, 64));
}

Test(workers, a_set_is_empty_until_one_is_added_anywhere)
{
    static const uint32_t members[] = {0, 63, 64, 1023};
    for (size_t i = 0; i < SG_ARRAY_LEN(members); i++) {
        sg_workers set = {{0}};
        cr_assert(sg_workers_is_empty(&set));
        sg_workers_add(&set, members[i]);
        cr_assert_not(sg_workers_is_empty(&set));
        sg_workers_remove(&set, members[i]);
        cr_assert(sg_workers_is_empty(&set));
    }
}

Test(workers, an_index_out_of_range_is_in_no_set)
{
    sg_workers all;
    memset(&all, 0xff, sizeof(all));
    cr_assert_not(sg_workers_has(&all, SG_MAX_WORKERS));
    cr_assert_not(sg_workers_has(&all, UINT32_MAX));
    cr_assert_eq(sg_workers_rank(&all, UINT32_MAX), SG_MAX_WORKERS);
    uint32_t worker = 7;
    cr_assert_not(sg_workers_next(&all, SG_MAX_WORKERS, &worker));
    cr_assert_not(sg_workers_next(&all, UINT32_MAX, &worker));
    cr_assert_eq(worker, 7u);
}

Test(workers, adding_an_index_out_of_range_is_a_bug, .signal = SIGABRT)
{
    sg_workers set = {{0}};
    sg_workers_add(&set, SG_MAX_WORKERS);
}

Test(workers, the_wire_form_is_a_bitmap_without_zeros_at_the_end)
{
    uint8_t out[SG_WORKERS_WIRE_BYTES];
    sg_workers set = {{0}};
    cr_assert_eq(sg_workers_encode(&set, out), 0u);
    set = set_of((uint32_t[]){0, 9}, 2);
    cr_assert_eq(sg_workers_encode(&set, out), 2u);
    cr_assert_eq(out[0], 1);
    cr_assert_eq(out[1], 2);
    sg_workers_add(&set, 1023);
    cr_assert_eq(sg_workers_encode(&set, out), SG_WORKERS_WIRE_BYTES);
    cr_assert_eq(out[127], 0x80);
}

Test(workers, a_wire_form_that_is_too_long_is_refused_and_leaves_the_set_alone)
{
    uint8_t data[SG_WORKERS_WIRE_BYTES + 1] = {1};
    sg_workers set = set_of((uint32_t[]){3}, 1);
    sg_error err;
    cr_assert_eq(sg_workers_decode(data, sizeof(data), &set, &err), SG_INVALID);
    cr_assert(sg_workers_has(&set, 3));
    cr_assert_eq(sg_workers_decode(data, sizeof(data) - 1, &set, &err), SG_OK, "zeros at the end do no harm");
    cr_assert_eq(sg_workers_count(&set), 1u);
    cr_assert_eq(sg_workers_decode(NULL, 0, &set, &err), SG_OK);
    cr_assert_eq(sg_workers_count(&set), 0u);
}

Test(workers, text_is_cut_to_fit)
{
    char out[32];
    sg_workers set = {{0}};
    cr_assert_str_eq(sg_workers_text(&set, out, sizeof(out)), "");
    set = set_of((uint32_t[]){0, 3, 7}, 3);
    cr_assert_str_eq(sg_workers_text(&set, out, sizeof(out)), "0,3,7");
    cr_assert_str_eq(sg_workers_text(&set, out, 6), "0,...");
    memset(&set, 0xff, sizeof(set));
    cr_assert_str_eq(sg_workers_text(&set, out, 12), "0,1,2,3,...");
    for (size_t room = 1; room < sizeof(out); room++) {
        memset(out, 0x5a, sizeof(out));
        sg_workers_text(&set, out, room);
        cr_assert_lt(strnlen(out, room), room, "%zu bytes: not terminated", room);
        cr_assert_eq(out[room], 0x5a, "wrote past %zu bytes", room);
    }
}

/* Against the plainest model of a set there is. */
Test(workers, a_set_behaves_as_an_array_of_bools_does)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 100; round++) {
        bool model[SG_MAX_WORKERS] = {false}, other_model[SG_MAX_WORKERS] = {false};
        sg_workers set = {{0}}, other = {{0}}, copy;
        uint32_t limit = (uint32_t)sg_seed_below(&seed, SG_MAX_WORKERS) + 1;
        for (int i = 0; i < 60; i++) {
            uint32_t worker = (uint32_t)sg_seed_below(&seed, limit), another = (uint32_t)sg_seed_below(&seed, limit);
            model[worker] = true;
            sg_workers_add(&set, worker);
            other_model[another] = true;
            sg_workers_add(&other, another);
        }
        sg_workers rest = sg_workers_minus(&set, &other);
        uint32_t rank = 0, next = 0, found;
        for (uint32_t i = 0; i < SG_MAX_WORKERS; i++) {
            cr_assert_eq(sg_workers_has(&set, i), model[i], "seed %lu worker %u", seed.first, i);
            cr_assert_eq(sg_workers_rank(&set, i), rank, "seed %lu worker %u", seed.first, i);
            cr_assert_eq(sg_workers_has(&rest, i), model[i] && !other_model[i], "seed %lu worker %u", seed.first, i);
            if (model[i]) {
                cr_assert(sg_workers_next(&set, next, &found), "seed %lu", seed.first);
                cr_assert_eq(found, i, "seed %lu", seed.first);
                next = i + 1;
                rank++;
            }
        }
        cr_assert_not(sg_workers_next(&set, next, &found), "seed %lu", seed.first);
        cr_assert_eq(sg_workers_count(&set), rank, "seed %lu", seed.first);
        uint8_t wire[SG_WORKERS_WIRE_BYTES];
        size_t n_bytes = sg_workers_encode(&set, wire);
        cr_assert_eq(sg_workers_decode(wire, n_bytes, &copy, NULL), SG_OK);
        cr_assert(sg_workers_equal(&set, &copy), "seed %lu", seed.first);
        sg_workers_remove(&copy, next - 1);
        cr_assert_not(sg_workers_equal(&set, &copy), "seed %lu", seed.first);
    }
}
