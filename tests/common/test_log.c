#include <criterion/criterion.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/log.h"

TestSuite(log, .timeout = 20);

typedef struct heard {
    int n;
    sg_log_level level;
    char event[32];
    char fields[4096];
} heard;

static void hear(void *user, sg_log_level level, const char *event, const char *fields)
{
    heard *all = user;
    all->n++;
    all->level = level;
    snprintf(all->event, sizeof(all->event), "%s", event);
    snprintf(all->fields, sizeof(all->fields), "%s", fields);
}

Test(log, an_event_reaches_the_callback_with_its_fields)
{
    heard all = {0};
    sg_log log = {.fn = hear, .user = &all, .min_level = SG_LOG_DEBUG};
    sg_log_info(&log, "registered", "ps=%d address=%s", 1, "127.0.0.1:4001");
    cr_assert_eq(all.n, 1);
    cr_assert_eq(all.level, SG_LOG_INFO);
    cr_assert_str_eq(all.event, "registered");
    cr_assert_str_eq(all.fields, "ps=1 address=127.0.0.1:4001");
}

Test(log, what_is_below_the_level_is_not_heard)
{
    heard all = {0};
    sg_log log = {.fn = hear, .user = &all, .min_level = SG_LOG_WARN};
    sg_log_debug(&log, "a", "x=%d", 1);
    sg_log_info(&log, "b", "x=%d", 1);
    cr_assert_eq(all.n, 0);
    sg_log_warn(&log, "c", "x=%d", 1);
    sg_log_error(&log, "d", "x=%d", 1);
    cr_assert_eq(all.n, 2);
}

Test(log, without_a_log_or_a_callback_nothing_happens)
{
    sg_log log = {.fn = NULL};
    sg_log_info(NULL, "a", "x=%d", 1);
    sg_log_info(&log, "a", "x=%d", 1);
}

Test(log, an_event_stays_one_line_and_bounded)
{
    heard all = {0};
    sg_log log = {.fn = hear, .user = &all};
    char long_text[5000];
    memset(long_text, 'x', sizeof(long_text) - 1);
    long_text[sizeof(long_text) - 1] = '\0';
    sg_log_info(&log, "a", "text=%s", "one\ntwo\x1b[0m");
    cr_assert_str_eq(all.fields, "text=one two [0m");
    sg_log_info(&log, "a", "text=%s", long_text);
    cr_assert_lt(strlen(all.fields), 4000u);
    cr_assert_str_eq(all.fields + strlen(all.fields) - 3, "...");
}

Test(log, quoting_escapes_what_would_break_a_line)
{
    char out[64];
    cr_assert_str_eq(sg_log_quote("plain", out, sizeof(out)), "\"plain\"");
    cr_assert_str_eq(sg_log_quote("", out, sizeof(out)), "\"\"");
    cr_assert_str_eq(sg_log_quote("a \"b\" \\ \n\t\r\x01", out, sizeof(out)), "\"a \\\"b\\\" \\\\ \\n\\t\\r\\x01\"");
    cr_assert_str_eq(sg_log_quote("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82", out, sizeof(out)),
                     "\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x99\x82\"", "what is text stays");
    cr_assert_str_eq(sg_log_quote("\x9b"
                                  "2J \xc2\x9b"
                                  "2J \xff \xe2\x82",
                                  out, sizeof(out)),
                     "\"\\x9b2J \\xc2\\x9b2J \\xff \\xe2\\x82\"", "nothing that a terminal would obey");
}

Test(log, quoting_is_cut_to_fit_with_its_closing_quote)
{
    for (size_t room = 0; room < 16; room++) {
        char out[17];
        memset(out, 0x5a, sizeof(out));
        sg_log_quote("ab\n\xe2\x82\xac\"z", out, room);
        cr_assert_eq(out[room], 0x5a, "wrote past %zu bytes", room);
        if (room == 0)
            continue;
        size_t length = strnlen(out, room);
        cr_assert_lt(length, room, "%zu bytes: not terminated", room);
        if (room >= 3) {
            cr_assert_eq(out[0], '"');
            cr_assert_eq(out[length - 1], '"');
        }
        /* The three bytes of the euro sign come all or not at all. */
        cr_assert_eq(strchr(out, '\xe2') != NULL, strstr(out, "\xe2\x82\xac") != NULL, "%zu bytes", room);
    }
}

Test(log, a_line_has_time_level_who_event_and_fields_and_goes_to_every_stream)
{
    char *texts[2] = {NULL, NULL};
    size_t lengths[2];
    sg_log_file file = {.who = "ps-0"};
    for (int i = 0; i < 2; i++)
        file.streams[i] = open_memstream(&texts[i], &lengths[i]);
    sg_log_file_write(&file, SG_LOG_INFO, "registered", "ps=1");
    sg_log_file_write(&file, SG_LOG_ERROR, "ended", "");
    for (int i = 0; i < 2; i++)
        fclose(file.streams[i]);
    regex_t form;
    const char *time = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z";
    char pattern[256];
    snprintf(pattern, sizeof(pattern), "^%s INFO ps-0 registered ps=1\n%s ERROR ps-0 ended\n$", time, time);
    cr_assert_eq(regcomp(&form, pattern, REG_EXTENDED | REG_NOSUB), 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(regexec(&form, texts[i], 0, NULL, 0), 0, "%s", texts[i]);
        free(texts[i]);
    }
    regfree(&form);
}

Test(log, a_stream_may_be_missing)
{
    sg_log_file file = {.who = "ps-0"};
    sg_log_file_write(&file, SG_LOG_INFO, "registered", "ps=1");
}

#define N_THREADS 4
#define N_LINES   500

static void *write_lines(void *user)
{
    sg_log log = {.fn = sg_log_file_write, .user = user};
    char text[300];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    for (int i = 0; i < N_LINES; i++)
        sg_log_info(&log, "line", "text=%s end=1", text);
    return NULL;
}

Test(log, lines_of_several_threads_do_not_mix)
{
    sg_log_file file = {.streams = {tmpfile(), NULL}, .who = "ps-0"};
    cr_assert_not_null(file.streams[0]);
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        cr_assert_eq(pthread_create(&threads[i], NULL, write_lines, &file), 0);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    rewind(file.streams[0]);
    char line[1024];
    int n = 0;
    while (fgets(line, sizeof(line), file.streams[0]) != NULL) {
        size_t length = strlen(line);
        cr_assert_str_eq(line + length - 7, " end=1\n");
        cr_assert_eq(length, SG_CLOCK_RFC3339_BYTES - 1 + strlen(" INFO ps-0 line text= end=1\n") + 299u);
        n++;
    }
    cr_assert_eq(n, N_THREADS * N_LINES);
    fclose(file.streams[0]);
}

Test(log, level_names)
{
    cr_assert_str_eq(sg_log_level_name(SG_LOG_DEBUG), "DEBUG");
    cr_assert_str_eq(sg_log_level_name(SG_LOG_ERROR), "ERROR");
    cr_assert_str_eq(sg_log_level_name((sg_log_level)77), "ERROR");
}

Test(log, the_clock_goes_forward_and_ids_differ)
{
    uint64_t ns = sg_clock_ns(), ms = sg_clock_ms();
    cr_assert_geq(sg_clock_ns(), ns);
    cr_assert_geq(sg_clock_ms(), ms);
    cr_assert_lt(ms - ns / 1000000, 1000u, "both read one clock");
    cr_assert_neq(sg_clock_random_id(), sg_clock_random_id());
}

Test(log, whom_a_text_waits_for_is_said_once)
{
    char out[64];
    cr_assert_str_eq(sg_log_quote_whom("waiting for worker 1 (a:2), step 3", out, sizeof(out)),
                     "\"worker 1 (a:2), step 3\"");
    cr_assert_str_eq(sg_log_quote_whom("no answer yet", out, sizeof(out)), "\"no answer yet\"");
}

Test(log, an_event_that_comes_often_is_told_at_doubling_intervals_with_its_number)
{
    sg_log_pace pace = {0};
    uint64_t told[8], told_ms[8];
    size_t n = 0;
    for (uint64_t ms = 5000; ms < 13000; ms += 10) {
        uint64_t count = sg_log_pace_count(&pace, ms);
        if (count == 0)
            continue;
        told[n] = count;
        told_ms[n++] = ms - 5000;
    }
    cr_assert_eq(n, 4);
    cr_assert(told_ms[0] == 0 && told_ms[1] == 1000 && told_ms[2] == 3000 && told_ms[3] == 7000);
    cr_assert(told[0] == 1 && told[1] == 100 && told[2] == 200 && told[3] == 400);
}
