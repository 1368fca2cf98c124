/* How fast a checkpoint is written, by a clock of the test's own. */
#include <criterion/criterion.h>

#include "server/pace.h"

TestSuite(pace, .timeout = 20);

#define PIECE_BYTES 4096u

/* Writes n pieces, each of which takes piece_us, from the moment `began_us` on; returns when it is done. */
static uint64_t write_all(uint64_t n, uint64_t piece_us, uint64_t began_us, uint64_t by_us)
{
    sg_pace pace = {.began_us = began_us, .by_us = by_us, .n_bytes = n * PIECE_BYTES};
    uint64_t now_us = began_us;
    for (uint64_t i = 0; i < n; i++) {
        now_us += sg_pace_rest_us(&pace, now_us) + piece_us;
        pace.worked_us += piece_us;
        pace.n_done += PIECE_BYTES;
    }
    return now_us;
}

Test(pace, it_works_a_quarter_of_the_time_where_there_is_time_enough)
{
    const uint64_t took_us = write_all(100, 5000, 1000000, 100000000) - 1000000;
    cr_assert_geq(took_us, 4 * 99 * 5000 + 5000);
    cr_assert_leq(took_us, 4 * 100 * 5000);
}

Test(pace, it_rests_less_where_time_is_short_and_is_done_in_time)
{
    for (uint64_t by_us = 1000000 + 510000; by_us < 1000000 + 2000000; by_us += 10000) {
        const uint64_t end_us = write_all(100, 5000, 1000000, by_us);
        cr_assert_leq(end_us, by_us, "%lu is after %lu", end_us, by_us);
        cr_assert_geq(end_us + 20000, by_us, "%lu is long before %lu", end_us, by_us);
    }
}

Test(pace, it_never_rests_where_it_is_late)
{
    cr_assert_eq(write_all(100, 5000, 1000000, 1000000 + 400000), 1000000 + 500000);
    cr_assert_eq(write_all(100, 5000, 1000000, 0), 1000000 + 500000);
}

Test(pace, it_never_rests_before_the_first_piece_or_after_a_pause_that_others_made)
{
    const sg_pace none = {.began_us = 10, .by_us = 1000000, .n_bytes = 100};
    cr_assert_eq(sg_pace_rest_us(&none, 10), 0);
    const sg_pace paused = {.began_us = 10, .by_us = 1000000, .n_bytes = 100, .n_done = 10, .worked_us = 100};
    cr_assert_eq(sg_pace_rest_us(&paused, 410), 0);
    cr_assert_eq(sg_pace_rest_us(&paused, 110), 300);
}
