#include <criterion/criterion.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/utf8.h"
#include "tests/support/seed.h"

TestSuite(status, .timeout = 20);

Test(status, names_and_numbers_lead_back_to_the_status)
{
    for (uint32_t number = 0; number <= SG_IO; number++) {
        sg_status by_number, by_name;
        cr_assert(sg_status_from_number(number, &by_number), "number %u names nothing", number);
        const char *name = sg_status_name(by_number);
        cr_assert(sg_status_from_name(name, strlen(name), &by_name), "%s is not found", name);
        cr_assert_eq(by_name, by_number);
        cr_assert_str_neq(sg_status_text(by_number), "");
    }
}

Test(status, what_names_no_status_is_refused)
{
    sg_status status = SG_LATE;
    cr_assert_not(sg_status_from_number(SG_IO + 1, &status));
    cr_assert_not(sg_status_from_number(UINT32_MAX, &status));
    cr_assert_not(sg_status_from_name("FENCE", 5, &status));
    cr_assert_not(sg_status_from_name("FENCEDX", 7, &status));
    cr_assert_not(sg_status_from_name("fenced", 6, &status));
    cr_assert_not(sg_status_from_name("", 0, &status));
    cr_assert_eq(status, SG_LATE, "a failure left the output alone");
    cr_assert(sg_status_from_name("FENCEDX", 6, &status), "the length counts, not a terminator");
    cr_assert_eq(status, SG_FENCED);
    cr_assert_str_eq(sg_status_name((sg_status)999), "UNKNOWN");
}

Test(status, exit_codes_are_those_of_the_design)
{
    static const struct {
        sg_status status;
        int code;
    } rows[] = {{SG_OK, 0},         {SG_USAGE, 64},      {SG_DATA, 65},     {SG_NOT_FOUND, 66},  {SG_UNAVAILABLE, 69},
                {SG_PEER_LOST, 69}, {SG_TIMEOUT, 69},    {SG_INTERNAL, 70}, {SG_FENCED, 75},     {SG_DENIED, 77},
                {SG_CONFIG, 78},    {SG_CANCELLED, 130}, {SG_IO, 66},       {(sg_status)999, 70}};
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++)
        cr_assert_eq(sg_status_exit_code(rows[i].status), rows[i].code, "%s", sg_status_name(rows[i].status));
}

Test(status, only_ok_is_ok_in_grpc_and_every_bare_code_means_something)
{
    for (uint32_t number = 0; number <= SG_IO; number++)
        cr_assert_eq(sg_status_to_grpc((sg_status)number) == 0, number == SG_OK, "number %u", number);
    for (int code = -2; code <= 20; code++)
        cr_assert_eq(sg_status_from_grpc(code) == SG_OK, code == 0, "code %d", code);
    cr_assert_eq(sg_status_from_grpc(14), SG_UNAVAILABLE);
    cr_assert_eq(sg_status_from_grpc(4), SG_TIMEOUT);
    cr_assert_eq(sg_status_from_grpc(12), SG_UNIMPLEMENTED);
}

Test(status, an_error_is_one_tidy_line)
{
    sg_error err;
    cr_assert_eq(sg_error_set(&err, SG_DATA, "%s",
                              "a\nb\tc\rd\x7f"
                              "e \xc3\xa9 \xff \xc3"),
                 SG_DATA);
    cr_assert_eq(err.code, SG_DATA);
    cr_assert_str_eq(err.message, "a b c d e \xc3\xa9 ? ?");
    cr_assert_eq(sg_error_set(&err, SG_DATA, "%s",
                              "\xc2\x9b"
                              "31m \x1b[0m"),
                 SG_DATA);
    cr_assert_str_eq(err.message, "  31m  [0m", "a terminal is not told anything");
}

Test(status, an_error_may_be_null)
{
    cr_assert_eq(sg_error_set(NULL, SG_LATE, "step %d", 3), SG_LATE);
    cr_assert_eq(sg_error_prefix(NULL, SG_LATE, "worker %d", 3), SG_LATE);
}

Test(status, a_prefix_goes_before_the_message_and_the_code_is_the_new_one)
{
    sg_error err;
    cr_assert_eq(sg_error_set(&err, SG_INVALID, "found %d, wanted %d", 3, 4), SG_INVALID);
    cr_assert_eq(sg_error_prefix(&err, SG_CONFIG, "%s:%d", "cluster.yaml", 12), SG_CONFIG);
    cr_assert_eq(err.code, SG_CONFIG);
    cr_assert_str_eq(err.message, "cluster.yaml:12: found 3, wanted 4");
}

Test(status, an_error_may_be_made_of_its_own_message)
{
    sg_error err;
    cr_assert_eq(sg_error_set(&err, SG_INVALID, "inner"), SG_INVALID);
    cr_assert_eq(sg_error_set(&err, SG_INVALID, "outer (%s)", err.message), SG_INVALID);
    cr_assert_str_eq(err.message, "outer (inner)");
}

static bool is_utf8(const char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        uint32_t character;
        size_t length = sg_utf8_decode(text, left, &character);
        if (length == 0 || character < 0x20)
            return false;
        text += length;
        left -= length;
    }
    return true;
}

/* Lengths on both sides of the bound, characters of all lengths at the cut, and bytes that are no characters. */
Test(status, too_long_an_error_is_cut_between_characters_and_never_written_past_its_end)
{
    sg_seed seed = sg_seed_begin();
    static const char *const pieces[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\n", "\xff", "\xe2\x82"};
    for (int round = 0; round < 2000; round++) {
        struct {
            sg_error err;
            char guard[8];
        } room;
        memset(&room, 0x5a, sizeof(room));
        char text[1200] = "";
        size_t length = 0, wanted = 480 + sg_seed_below(&seed, 80);
        uint64_t kinds = round % 2 == 0 ? SG_ARRAY_LEN(pieces) : 4;
        while (length < wanted) {
            const char *piece = pieces[sg_seed_below(&seed, kinds)];
            memcpy(text + length, piece, strlen(piece) + 1);
            length += strlen(piece);
        }
        cr_assert_eq(sg_error_set(&room.err, SG_INVALID, "%s", text), SG_INVALID);
        size_t got = strnlen(room.err.message, SG_ERROR_MESSAGE_BYTES);
        cr_assert_lt(got, SG_ERROR_MESSAGE_BYTES, "seed %lu: not terminated", seed.first);
        cr_assert(is_utf8(room.err.message), "seed %lu: %s", seed.first, room.err.message);
        bool cut = length >= SG_ERROR_MESSAGE_BYTES;
        cr_assert_eq(strstr(room.err.message, "...") != NULL, cut, "seed %lu: %zu bytes", seed.first, length);
        for (size_t i = 0; i < sizeof(room.guard); i++)
            cr_assert_eq(room.guard[i], 0x5a, "seed %lu", seed.first);
    }
}

Test(status, a_prefix_that_does_not_fit_is_cut_too)
{
    char prefix[2000];
    sg_error err;
    memset(prefix, 'p', sizeof(prefix) - 1);
    prefix[sizeof(prefix) - 1] = '\0';
    cr_assert_eq(sg_error_set(&err, SG_INVALID, "inner"), SG_INVALID);
    cr_assert_eq(sg_error_prefix(&err, SG_INVALID, "%s", prefix), SG_INVALID);
    cr_assert_eq(strlen(err.message), SG_ERROR_MESSAGE_BYTES - 1);
    cr_assert_str_eq(err.message + SG_ERROR_MESSAGE_BYTES - 1 - strlen("ppp: inner"), "ppp: inner");
}

/* A path of n bytes. */
static char *long_path(size_t n)
{
    char *path = sg_xcalloc(n + 1, 1);
    for (size_t i = 0; i < n; i++)
        path[i] = (char)(i % 10 == 0 ? '/' : 'a' + i / 10 % 26);
    return path;
}

Test(status, what_to_do_survives_the_longest_paths)
{
    for (size_t n = 200; n <= 4095; n += 779) {
        char *one = long_path(n), *two = long_path(4095);
        sg_error err;
        cr_assert_eq(sg_error_set(&err, SG_CONFIG, "cannot read %s of %s: put it back, then start again", one, two),
                     SG_CONFIG);
        cr_assert_eq(strncmp(err.message, "cannot read /aaaa", 17), 0, "%s", err.message);
        cr_assert_not_null(strstr(err.message, ": put it back, then start again"), "%s", err.message);
        cr_assert_eq(sg_error_prefix(&err, SG_CONFIG, "run_dir %s", two), SG_CONFIG);
        cr_assert_not_null(strstr(err.message, ": put it back, then start again"), "%s", err.message);
        free(one);
        free(two);
    }
}

Test(status, of_many_short_words_the_end_goes_and_no_word_is_cut)
{
    char text[2000] = "";
    for (size_t i = 0; i < 150; i++)
        strcat(text, "word ");
    sg_error err;
    cr_assert_eq(sg_error_set(&err, SG_CONFIG, "%s", text), SG_CONFIG);
    cr_assert_lt(strlen(err.message), SG_ERROR_MESSAGE_BYTES);
    cr_assert_str_eq(err.message + strlen(err.message) - strlen(" word..."), " word...");
}

Test(status, utf8_takes_what_is_valid_and_nothing_else)
{
    static const struct {
        const char *text;
        size_t length;
        uint32_t character;
    } rows[] = {
        {"A", 1, 'A'},
        {"\xc2\x80", 2, 0x80},
        {"\xe0\xa0\x80", 3, 0x800},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\xc1\x80", 0, 0},
        {"\xe0\x80\x80", 0, 0},
        {"\xed\xa0\x80", 0, 0},
        {"\xf4\x90\x80\x80", 0, 0},
        {"\xf8\x80\x80\x80\x80", 0, 0},
        {"\x80", 0, 0},
        {"\xe2\x82", 0, 0},
        {"\xe2\x82g", 0, 0},
    };
    for (size_t i = 0; i < SG_ARRAY_LEN(rows); i++) {
        uint32_t character = 0;
        cr_assert_eq(sg_utf8_decode(rows[i].text, strlen(rows[i].text), &character), rows[i].length, "row %zu", i);
        cr_assert_eq(character, rows[i].character, "row %zu", i);
    }
}

Test(status, aligned_memory_is_aligned_and_a_size_beyond_all_memory_is_refused)
{
    static const size_t sizes[] = {0, 1, 63, 64, 65, 1u << 20};
    for (size_t i = 0; i < SG_ARRAY_LEN(sizes); i++) {
        unsigned char *memory = sg_try_alloc_aligned(sizes[i]);
        cr_assert_not_null(memory);
        cr_assert_eq((uintptr_t)memory % 64, 0u);
        memset(memory, 0xff, (sizes[i] + 63) / 64 * 64);
        free(memory);
    }
    cr_assert_null(sg_try_alloc_aligned(SIZE_MAX));
}

Test(status, an_overflowing_size_aborts, .signal = SIGABRT)
{
    free(sg_xcalloc(SIZE_MAX / 2, 4));
}

Test(status, a_broken_invariant_aborts, .signal = SIGABRT)
{
    volatile int one = 1;
    SG_ASSERT(one == 2);
}
