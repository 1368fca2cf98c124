#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "common/span.h"
#include "common/status.h"
#include "tests/support/seed.h"

TestSuite(span, .timeout = 20);

#define SPAN(text)                                                                                                     \
    {                                                                                                                  \
        (const uint8_t *)(text), sizeof(text) - 1                                                                      \
    }

static const sg_span words[] = {SPAN(""), SPAN("abc"), SPAN(""), SPAN(""), SPAN("d"), SPAN("efgh"), SPAN("")};

Test(span, pieces_come_in_order_and_empty_spans_are_passed_over)
{
    sg_span_reader reader;
    sg_span piece;
    sg_span_reader_init(&reader, words, SG_ARRAY_LEN(words), SIZE_MAX);
    cr_assert_eq(reader.left, 8u);
    cr_assert(sg_span_reader_next(&reader, 2, &piece));
    cr_assert_eq(piece.n_bytes, 2u);
    cr_assert_eq(memcmp(piece.data, "ab", 2), 0);
    cr_assert(sg_span_reader_next(&reader, 100, &piece));
    cr_assert_eq(piece.n_bytes, 1u);
    cr_assert(sg_span_reader_next(&reader, 100, &piece));
    cr_assert_eq(piece.data[0], 'd');
    cr_assert(sg_span_reader_next(&reader, 100, &piece));
    cr_assert_eq(piece.n_bytes, 4u);
    cr_assert_not(sg_span_reader_next(&reader, 100, &piece));
    cr_assert_eq(reader.left, 0u);
}

Test(span, a_limit_ends_the_reader_early)
{
    sg_span_reader reader;
    char out[8];
    sg_span_reader_init(&reader, words, SG_ARRAY_LEN(words), 5);
    cr_assert_eq(reader.left, 5u);
    cr_assert_not(sg_span_reader_read(&reader, out, 6));
    cr_assert(sg_span_reader_read(&reader, out, 5));
    cr_assert_eq(memcmp(out, "abcde", 5), 0);
    cr_assert_not(sg_span_reader_read(&reader, out, 1));
}

Test(span, too_long_a_read_leaves_the_reader_where_it_was)
{
    sg_span_reader reader, part;
    char out[8];
    sg_span_reader_init(&reader, words, SG_ARRAY_LEN(words), SIZE_MAX);
    cr_assert(sg_span_reader_read(&reader, NULL, 1));
    cr_assert_not(sg_span_reader_read(&reader, out, 8));
    cr_assert_not(sg_span_reader_take(&reader, 8, &part));
    cr_assert(sg_span_reader_read(&reader, out, 7));
    cr_assert_eq(memcmp(out, "bcdefgh", 7), 0);
}

Test(span, nothing_can_be_read_of_nothing)
{
    sg_span_reader reader;
    sg_span piece;
    sg_span_reader_init(&reader, NULL, 0, SIZE_MAX);
    cr_assert_not(sg_span_reader_next(&reader, SIZE_MAX, &piece));
    cr_assert(sg_span_reader_read(&reader, NULL, 0));
    cr_assert_not(sg_span_reader_read(&reader, NULL, 1));
    sg_span_reader_init(&reader, words, SG_ARRAY_LEN(words), 0);
    cr_assert_not(sg_span_reader_next(&reader, SIZE_MAX, &piece));
}

#define N_BYTES 500u
#define N_SPANS 40u

/* Cuts text into spans at random, empty ones among them; each span gets memory of its own, so that a sanitizer sees
 * reading past its end. Returns their number. */
static size_t scatter(sg_seed *seed, const uint8_t text[N_BYTES], sg_span spans[N_SPANS])
{
    size_t n = 0, done = 0;
    while (done < N_BYTES) {
        size_t left = N_BYTES - done;
        size_t n_bytes = n + 1 == N_SPANS ? left : sg_seed_below(seed, left < 40 ? left + 1 : 40);
        uint8_t *memory = malloc(n_bytes > 0 ? n_bytes : 1);
        memcpy(memory, text + done, n_bytes);
        spans[n++] = (sg_span){.data = memory, .n_bytes = n_bytes};
        done += n_bytes;
    }
    return n;
}

/* Reads on in one of the ways there are; returns how many bytes it took, after comparing them with text. */
static size_t step(sg_seed *seed, sg_span_reader *reader, const uint8_t *text)
{
    uint8_t out[N_BYTES];
    size_t wanted = sg_seed_below(seed, 70);
    sg_span piece;
    sg_span_reader part;
    switch (sg_seed_below(seed, 4)) {
    case 0:
        if (!sg_span_reader_next(reader, wanted, &piece))
            return 0;
        cr_assert(piece.n_bytes > 0 && piece.n_bytes <= wanted, "seed %lu", seed->first);
        cr_assert_eq(memcmp(piece.data, text, piece.n_bytes), 0, "seed %lu", seed->first);
        return piece.n_bytes;
    case 1:
        if (!sg_span_reader_read(reader, out, wanted))
            return 0;
        cr_assert_eq(memcmp(out, text, wanted), 0, "seed %lu", seed->first);
        return wanted;
    case 2:
        return sg_span_reader_read(reader, NULL, wanted) ? wanted : 0;
    default:
        if (!sg_span_reader_take(reader, wanted, &part))
            return 0;
        cr_assert_eq(part.left, wanted, "seed %lu", seed->first);
        cr_assert(sg_span_reader_read(&part, out, wanted));
        cr_assert_not(sg_span_reader_next(&part, 1, &piece), "seed %lu: a part ends", seed->first);
        cr_assert_eq(memcmp(out, text, wanted), 0, "seed %lu", seed->first);
        return wanted;
    }
}

Test(span, however_it_is_cut_and_read_the_bytes_are_those_of_one_run)
{
    sg_seed seed = sg_seed_begin();
    uint8_t text[N_BYTES];
    for (size_t i = 0; i < N_BYTES; i++)
        text[i] = (uint8_t)sg_seed_below(&seed, 256);
    for (int round = 0; round < 300; round++) {
        sg_span spans[N_SPANS];
        size_t n_spans = scatter(&seed, text, spans);
        size_t limit = sg_seed_below(&seed, 2) == 0 ? SIZE_MAX : sg_seed_below(&seed, N_BYTES + 1);
        size_t total = limit < N_BYTES ? limit : N_BYTES;
        sg_span_reader reader;
        sg_span_reader_init(&reader, spans, n_spans, limit);
        size_t done = 0;
        for (int tries = 0; tries < 2000 && done < total; tries++) {
            done += step(&seed, &reader, text + done);
            cr_assert_eq(reader.left, total - done, "seed %lu", seed.first);
        }
        cr_assert_eq(done, total, "seed %lu: the end is reached", seed.first);
        sg_span piece;
        cr_assert_not(sg_span_reader_next(&reader, 1, &piece), "seed %lu", seed.first);
        for (size_t i = 0; i < n_spans; i++)
            free((void *)(uintptr_t)spans[i].data);
    }
}

Test(span, going_back_brings_to_the_byte_that_was_read_before)
{
    sg_seed seed = sg_seed_begin();
    for (int round = 0; round < 200; round++) {
        sg_span_reader reader;
        size_t limit = sg_seed_below(&seed, 9);
        sg_span_reader_init(&reader, words, SG_ARRAY_LEN(words), limit);
        size_t at = 0;
        for (int i = 0; i < 20; i++) {
            size_t n_bytes = sg_seed_below(&seed, limit - at + 1);
            char out[8];
            cr_assert(sg_span_reader_read(&reader, out, n_bytes));
            cr_assert_eq(memcmp(out, &"abcdefgh"[at], n_bytes), 0, "seed %lu", seed.first);
            size_t back = sg_seed_below(&seed, at + n_bytes + 1);
            sg_span_reader_back(&reader, back);
            at += n_bytes - back;
            cr_assert_eq(reader.left, limit - at, "seed %lu", seed.first);
        }
    }
}

Test(span, an_array_is_read_as_one_piece)
{
    sg_span span, piece;
    sg_span_reader reader = sg_span_reader_of_array(&span, "abc", 3);
    cr_assert(sg_span_reader_next(&reader, 100, &piece));
    cr_assert(piece.n_bytes == 3 && memcmp(piece.data, "abc", 3) == 0);
    cr_assert_not(sg_span_reader_next(&reader, 100, &piece));
    reader = sg_span_reader_of_array(&span, NULL, 0);
    cr_assert_not(sg_span_reader_next(&reader, 100, &piece));
}
