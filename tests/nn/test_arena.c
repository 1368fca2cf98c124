/* tests/nn/test_arena.c - memory that is used again. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <string.h>

#include "worker/nn/arena.h"

TestSuite(arena, .timeout = 240);

static void fill_round(sg_arena *arena, size_t n_pieces)
{
    for (size_t i = 0; i < n_pieces; i++) {
        size_t n_bytes = i * 1000 % 70001;
        uint8_t *piece = sg_arena_try_alloc(arena, n_bytes);
        cr_assert_not_null(piece);
        cr_assert((uintptr_t)piece % 64 == 0);
        memset(piece, (int)i, n_bytes);
    }
}

Test(arena, pieces_do_not_overlap)
{
    enum { n_pieces = 100, piece_bytes = 5001 };
    sg_arena *arena = sg_arena_create(NULL);
    uint8_t *pieces[n_pieces];
    for (int i = 0; i < n_pieces; i++) {
        pieces[i] = sg_arena_try_alloc(arena, piece_bytes);
        memset(pieces[i], i, piece_bytes);
    }
    for (int i = 0; i < n_pieces; i++)
        cr_assert(pieces[i][0] == i && pieces[i][piece_bytes - 1] == i);
    sg_arena_destroy(arena);
}

Test(arena, a_round_that_was_seen_before_asks_the_system_for_nothing)
{
    sg_arena *arena = sg_arena_create(NULL);
    fill_round(arena, 500);
    sg_arena_reset(arena);
    fill_round(arena, 500);
    sg_arena_stats warm = sg_arena_get_stats(arena);
    for (size_t round = 0; round < 10; round++) {
        sg_arena_reset(arena);
        cr_assert(sg_arena_get_stats(arena).used_bytes == 0);
        fill_round(arena, 500 - round * 10);
    }
    cr_assert(sg_arena_get_stats(arena).allocations == warm.allocations);
    cr_assert(sg_arena_get_stats(arena).capacity_bytes == warm.capacity_bytes);
    sg_arena_destroy(arena);
}

Test(arena, an_absurd_size_is_refused_and_harms_nothing)
{
    sg_arena *arena = sg_arena_create(NULL);
    cr_assert_null(sg_arena_try_alloc(arena, SIZE_MAX));
    cr_assert_null(sg_arena_try_alloc(arena, (size_t)1 << 40));
    cr_assert_not_null(sg_arena_try_alloc(arena, 10));
    sg_arena_destroy(arena);
    sg_arena_destroy(NULL);
}

Test(arena, what_is_held_from_the_second_round_on_is_what_a_round_needs)
{
    sg_arena *arena = sg_arena_create(NULL);
    fill_round(arena, 3000);
    const size_t needed_bytes = sg_arena_get_stats(arena).used_bytes;
    cr_assert(sg_arena_get_stats(arena).capacity_bytes > needed_bytes, "it grew by doubling");
    sg_arena_reset(arena);
    fill_round(arena, 3000);
    cr_assert(sg_arena_get_stats(arena).capacity_bytes == needed_bytes, "%zu bytes are held, wanted %zu",
              sg_arena_get_stats(arena).capacity_bytes, needed_bytes);
    sg_arena_destroy(arena);
}
