#include "worker/cli/supervisor.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(supervisor, .timeout = 20);

typedef struct watch {
    uv_loop_t loop;
    sg_supervisor *supervisor;
    char lines[4096]; /* "who: line\n" in the order of arrival */
    char finished[256];
    char restarted[512];
    char without[512]; /* how one ended without which all was done */
    int n_ended;
    const char *stop_at; /* the line at which to stop, and to kill */
    const char *kill_at;
} watch;

static void on_line(void *user, const char *who, const char *line)
{
    watch *w = user;
    size_t used = strlen(w->lines);
    snprintf(w->lines + used, sizeof(w->lines) - used, "%s: %s\n", who, line);
    if (w->stop_at != NULL && strcmp(line, w->stop_at) == 0)
        sg_supervisor_stop(w->supervisor);
    if (w->kill_at != NULL && strcmp(line, w->kill_at) == 0)
        sg_supervisor_kill(w->supervisor);
}

static void on_finished(void *user, const char *who, size_t n_alive)
{
    watch *w = user;
    size_t used = strlen(w->finished);
    snprintf(w->finished + used, sizeof(w->finished) - used, "%s %zu;", who, n_alive);
}

static void on_ended(void *user)
{
    watch *w = user;
    w->n_ended++;
}

/* With what differs; the rest is the watch's. */
static void begin_with(watch *w, sg_supervisor_options options)
{
    *w = (watch){.n_ended = 0};
    uv_loop_init(&w->loop);
    options.loop = &w->loop;
    options.shared_fd = -1;
    options.on_finished = on_finished;
    options.on_ended = on_ended;
    options.user = w;
    if (options.on_line == NULL)
        options.on_line = on_line;
    w->supervisor = sg_supervisor_create(&options);
}

static void begin(watch *w, uint64_t grace_ms)
{
    begin_with(w, (sg_supervisor_options){.grace_ms = grace_ms});
}

static void start(watch *w, const char *who, const char *script)
{
    char *argv[] = {(char[]){"sh"}, (char[]){"-c"}, (char *)(uintptr_t)script, NULL};
    sg_error err;
    cr_assert_eq(sg_supervisor_start(w->supervisor, who, argv, &err), SG_OK);
}

/* Runs until all have ended; returns the exit code of the first failure. No child may be left. */
static int run(watch *w, sg_error *err)
{
    uv_run(&w->loop, UV_RUN_DEFAULT);
    cr_assert_eq(w->n_ended, 1);
    cr_assert_eq(sg_supervisor_n_alive(w->supervisor), 0);
    cr_assert(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a child is left");
    int code = sg_supervisor_failure(w->supervisor, err);
    sg_supervisor_destroy(w->supervisor);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&w->loop), 0);
    return code;
}

Test(supervisor, lines_come_with_the_name_of_who_wrote_them)
{
    watch w;
    begin(&w, 1000);
    start(&w, "ps-0", "echo one >&2; printf 'two\\n\\nno newline' >&2; echo to stdout");
    cr_assert_eq(run(&w, NULL), 0);
    cr_assert_str_eq(w.lines, "ps-0: one\nps-0: two\nps-0: \nps-0: no newline\n");
    cr_assert_str_eq(w.finished, "ps-0 0;");
}

Test(supervisor, a_very_long_line_is_cut_in_pieces)
{
    watch w;
    begin(&w, 1000);
    start(&w, "a", "head -c 10000 /dev/zero | tr '\\0' x >&2");
    cr_assert_eq(run(&w, NULL), 0);
    cr_assert_eq(strlen(w.lines), sizeof(w.lines) - 1, "more than what the test keeps");
    cr_assert_str_eq(w.finished, "a 0;");
}

Test(supervisor, a_failure_stops_the_others_and_is_told_with_its_last_word)
{
    watch w;
    begin(&w, 10000);
    start(&w, "a", "exec sleep 1000");
    start(&w, "b", "echo it broke >&2; exit 65");
    start(&w, "c", "exec sleep 1000");
    sg_error err;
    cr_assert_eq(run(&w, &err), 65);
    cr_assert_str_eq(err.message, "b failed with exit code 65: it broke");
    cr_assert_str_eq(w.finished, "");
}

Test(supervisor, an_exit_code_that_is_none_of_ours_is_told_but_not_passed_on)
{
    watch w;
    begin(&w, 1000);
    start(&w, "a", "echo a library is missing >&2; exit 127");
    sg_error err;
    cr_assert_eq(run(&w, &err), 69);
    cr_assert_str_eq(err.message, "a failed with exit code 127: a library is missing");
}

Test(supervisor, the_last_word_is_the_last_error_not_the_last_line)
{
    watch w;
    begin(&w, 1000);
    start(&w, "a",
          "echo '2026-11-29T10:15:02.123Z ERROR worker-0 ended status=DATA' >&2;"
          "echo '2026-11-29T10:15:02.124Z INFO worker-0 closed' >&2; exit 69");
    sg_error err;
    cr_assert_eq(run(&w, &err), 69);
    cr_assert_str_eq(err.message, "a failed with exit code 69: ended status=DATA");
}

Test(supervisor, a_signal_from_elsewhere_is_a_lost_peer_and_a_crash_is_a_bug)
{
    static const struct {
        const char *script, *message;
        int code;
    } cases[] = {{"kill -9 $$", "a was ended by signal 9 (Killed)", 69},
                 {"kill -ABRT $$", "a was ended by signal 6 (Aborted)", 70}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        watch w;
        begin(&w, 1000);
        start(&w, "a", cases[i].script);
        sg_error err;
        cr_assert_eq(run(&w, &err), cases[i].code);
        cr_assert_str_eq(err.message, cases[i].message);
    }
}

Test(supervisor, what_ends_after_a_stop_is_no_failure)
{
    watch w;
    begin(&w, 10000);
    w.stop_at = "ready";
    start(&w, "a", "trap 'exit 3' TERM; echo ready >&2; while :; do sleep 0.01; done");
    cr_assert_eq(run(&w, NULL), 0);
}

Test(supervisor, who_does_not_stop_is_killed_after_the_grace)
{
    watch w;
    begin(&w, 50);
    w.stop_at = "ready";
    start(&w, "a", "trap '' TERM; echo ready >&2; while :; do sleep 0.01; done");
    cr_assert_eq(run(&w, NULL), 0);
}

Test(supervisor, kill_does_not_wait_for_the_grace)
{
    watch w;
    begin(&w, 1000000);
    w.stop_at = w.kill_at = "ready";
    start(&w, "a", "trap '' TERM; echo ready >&2; while :; do sleep 0.01; done");
    cr_assert_eq(run(&w, NULL), 0);
}

Test(supervisor, a_program_that_is_not_there_stops_those_that_run)
{
    watch w;
    begin(&w, 10000);
    start(&w, "a", "exec sleep 1000");
    char *argv[] = {(char[]){"/no/such/program"}, NULL};
    sg_error err;
    cr_assert_eq(sg_supervisor_start(w.supervisor, "b", argv, &err), SG_NOT_FOUND);
    cr_assert_str_eq(err.message, "cannot start b (/no/such/program): no such file or directory");
    cr_assert_eq(run(&w, NULL), 0, "the caller knows from the start");
}

Test(supervisor, a_shared_descriptor_is_open_in_the_child)
{
    watch w;
    begin(&w, 1000);
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    sg_supervisor_destroy(w.supervisor);
    w.supervisor = sg_supervisor_create(&(sg_supervisor_options){.loop = &w.loop,
                                                                 .shared_fd = ends[1],
                                                                 .on_line = on_line,
                                                                 .on_finished = on_finished,
                                                                 .on_ended = on_ended,
                                                                 .user = &w});
    start(&w, "a", "echo x >&3");
    cr_assert_eq(run(&w, NULL), 0);
    char byte;
    cr_assert_eq(read(ends[0], &byte, 1), 1);
    close(ends[0]);
    close(ends[1]);
}

Test(supervisor, the_last_word_of_a_daemon_is_told_without_its_name)
{
    cr_assert_str_eq(sg_supervisor_last_word("shardgrad-ps: 1.2.3.4:5: in use"), "1.2.3.4:5: in use");
    cr_assert_null(sg_supervisor_last_word("shardgrad-ps"));
    cr_assert_null(sg_supervisor_last_word("shardgrad-ps says: x"));
    cr_assert_null(sg_supervisor_last_word("2026-11-29T10:15:02.123Z WARN ps-0 x"));
    watch w;
    begin(&w, 1000);
    start(&w, "worker-0", "echo shardgrad-worker: no data >&2; exit 66");
    sg_error err;
    cr_assert_eq(run(&w, &err), 66);
    cr_assert_str_eq(err.message, "worker-0 failed with exit code 66: no data");
}

Test(supervisor, what_to_do_survives_a_last_word_with_a_long_path)
{
    watch w;
    begin(&w, 1000);
    start(&w, "worker-0",
          "echo shardgrad-worker: /$(head -c 3000 /dev/zero | tr '\\0' x)/labels is cut: get it anew >&2; "
          "exit 65");
    sg_error err;
    cr_assert_eq(run(&w, &err), 65);
    cr_assert_eq(strncmp(err.message, "worker-0 failed with exit code 65: /xxx", 39), 0, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "/labels is cut: get it anew"), "%s", err.message);
}

Test(supervisor, a_log_line_is_taken_apart)
{
    char level;
    cr_assert_str_eq(sg_supervisor_log_text("2026-11-29T10:15:02.123Z WARN ps-0 waiting for=x", &level),
                     "waiting for=x");
    cr_assert_eq(level, 'W');
    const char *other[] = {"", "plain", "2026-11-29T10:15:02.123Z", "2026-11-29T10:15:02.123Z SHOUT ps-0 x",
                           "2026-11-29T10:15:02.123Z INFO"};
    for (size_t i = 0; i < SG_ARRAY_LEN(other); i++) {
        cr_assert_str_eq(sg_supervisor_log_text(other[i], &level), other[i]);
        cr_assert_eq(level, i == 4 ? 'I' : '\0');
    }
}

static void note_pid(void *user, const char *who, const char *line)
{
    watch *w = user;
    on_line(user, who, line);
    cr_assert_eq(sg_supervisor_pid(w->supervisor, who), atoi(line));
    sg_supervisor_kill(w->supervisor);
}

Test(supervisor, a_process_is_found_by_its_name_while_it_lives)
{
    watch w;
    begin_with(&w, (sg_supervisor_options){.grace_ms = 1000, .on_line = note_pid});
    start(&w, "a", "echo $$ >&2; exec sleep 1000");
    cr_assert_neq(sg_supervisor_pid(w.supervisor, "a"), 0);
    cr_assert_eq(sg_supervisor_pid(w.supervisor, "b"), 0);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    cr_assert_neq(w.lines[0], '\0');
    cr_assert_eq(sg_supervisor_pid(w.supervisor, "a"), 0);
    sg_supervisor_destroy(w.supervisor);
    uv_run(&w.loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&w.loop), 0);
}

static const char *const *once_more(void *user, const char *who)
{
    static const char *const words[] = {"once", "more", NULL};
    (void)user;
    return strcmp(who, "a") == 0 ? words : NULL;
}

static void note_restart(void *user, const char *who, const char *how, uint64_t n)
{
    watch *w = user;
    size_t used = strlen(w->restarted);
    (void)n;
    snprintf(w->restarted + used, sizeof(w->restarted) - used, "%s: %s;", who, how);
}

Test(supervisor, of_two_that_fail_the_one_that_only_lost_the_other_is_not_the_cause)
{
    static const struct {
        int first, second, told;
    } cases[] = {{69, 66, 66}, {69, 69, 69}, {69, 0, 69}, {65, 66, 65}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        char file[] = "/tmp/sg-supervisor-XXXXXX";
        close(mkstemp(file));
        unlink(file);
        watch w;
        begin(&w, 10000);
        char *second = sg_xprintf("trap 'exit %d' TERM; touch %s; while :; do sleep 0.01; done", cases[i].second, file);
        char *first = sg_xprintf("while ! test -e %s; do sleep 0.01; done; exit %d", file, cases[i].first);
        start(&w, "second", second);
        start(&w, "first", first);
        cr_assert_eq(run(&w, NULL), cases[i].told);
        unlink(file);
        free(first);
        free(second);
    }
}

static bool is_b(void *user, const char *who, bool came_too_late)
{
    (void)user;
    return strcmp(who, "b") == 0 && came_too_late;
}

static bool is_not_b(void *user, const char *who)
{
    (void)user;
    return strcmp(who, "b") != 0;
}

static bool is_b_however(void *user, const char *who, bool came_too_late)
{
    (void)user;
    (void)came_too_late;
    return strcmp(who, "b") == 0;
}

static void note_done_without(void *user, const char *who, const char *how)
{
    watch *w = user;
    (void)who;
    snprintf(w->without, sizeof(w->without), "%s", how);
}

Test(supervisor, one_without_which_all_is_done_has_not_failed_if_it_only_came_too_late)
{
    static const struct {
        const char *script, *without;
        int code;
    } cases[] = {{"echo nobody is there >&2; exit 69", "b failed with exit code 69: nobody is there", 0},
                 {"exit 75", "b failed with exit code 75", 0},
                 {"exit 0", "", 0},
                 {"exit 66", "", 66},
                 {"exit 70", "", 70},
                 {"exit 127", "", 69},
                 {"kill -SEGV $$", "", 70},
                 {"kill -9 $$", "", 69}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        watch w;
        begin_with(&w, (sg_supervisor_options){.grace_ms = 10000,
                                               .is_done_without = is_b,
                                               .on_done_without = note_done_without,
                                               .restarts = 1,
                                               .has_work_for = is_not_b,
                                               .on_restarted = note_restart});
        start(&w, "b", cases[i].script);
        cr_expect_eq(run(&w, NULL), cases[i].code, "%s", cases[i].script);
        cr_expect_str_eq(w.without, cases[i].without, "%s: %s", cases[i].script, w.without);
        cr_expect_str_eq(w.finished, cases[i].code == 0 ? "b 0;" : "", "%s: %s", cases[i].script, w.finished);
        cr_expect_str_eq(w.restarted, "", "%s: nothing is left that it could do", cases[i].script);
    }
}

Test(supervisor, one_without_which_all_is_done_may_be_killed_and_may_not_crash)
{
    static const struct {
        const char *script;
        int code;
    } cases[] = {{"kill -9 $$", 0}, {"exit 69", 0}, {"kill -SEGV $$", 70}, {"exit 66", 66}};
    for (size_t i = 0; i < SG_ARRAY_LEN(cases); i++) {
        watch w;
        begin_with(&w, (sg_supervisor_options){
                           .grace_ms = 10000, .is_done_without = is_b_however, .on_done_without = note_done_without});
        start(&w, "b", cases[i].script);
        cr_expect_eq(run(&w, NULL), cases[i].code, "%s", cases[i].script);
        cr_expect_eq(w.without[0] != '\0', cases[i].code == 0, "%s: %s", cases[i].script, w.without);
    }
}

Test(supervisor, a_later_life_is_told_more_and_only_what_holds_then)
{
    char folder[] = "/tmp/sg-supervisor-XXXXXX";
    cr_assert_not_null(mkdtemp(folder));
    watch w;
    begin_with(&w, (sg_supervisor_options){
                       .grace_ms = 10000, .restarts = 3, .more_words = once_more, .on_restarted = note_restart});
    /* a dies twice, b once: each leaves a file for every life that it had. */
    char *script_a = sg_xprintf("echo life $* >&2; test -e %s/2 && exit 0; test -e %s/1 && touch %s/2; touch %s/1; "
                                "kill -9 $$",
                                folder, folder, folder, folder);
    char *script_b =
        sg_xprintf("echo life $* >&2; test -e %s/b && exit 0; touch %s/b; echo a bug >&2; exit 70", folder, folder);
    for (int i = 0; i < 2; i++) {
        char *argv[] = {(char[]){"sh"},
                        (char[]){"-c"},
                        i == 0 ? script_a : script_b,
                        (char[]){"sh"},
                        (char[]){"at"},
                        (char[]){"first"},
                        NULL};
        sg_error err;
        cr_assert_eq(sg_supervisor_start(w.supervisor, i == 0 ? "a" : "b", argv, &err), SG_OK);
    }
    cr_assert_eq(run(&w, NULL), 0);
    size_t n_first = 0, n_more = 0, n_b = 0;
    char *rest = w.lines;
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        n_first += strcmp(line, "a: life at first") == 0;
        n_more += strcmp(line, "a: life at first once more") == 0;
        n_b += strcmp(line, "b: life at first") == 0;
    }
    cr_assert_eq(n_first, 1);
    cr_assert_eq(n_more, 2);
    cr_assert_eq(n_b, 2);
    cr_assert_not_null(strstr(w.restarted, "a: a was ended by signal 9 (Killed): "), "%s", w.restarted);
    cr_assert_not_null(strstr(w.restarted, "b: b failed with exit code 70: a bug;"), "%s", w.restarted);
    free(script_a);
    free(script_b);
    char *command = sg_xprintf("rm -r %s", folder);
    cr_assert_eq(system(command), 0);
    free(command);
}
