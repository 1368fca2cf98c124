/* worker/cli/bench/yardstick.c - see yardstick.h. */
#include "worker/cli/bench/yardstick.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "common/clock.h"
#include "worker/cli/bench/bench.h"

#define ANSWER_MS         120000u /* and for what it is asked to move: */
#define SLOW_BYTES_PER_MS 10000u
#define SLOW_CALL_MS      10u
#define END_MS            5000u /* that it may take to end by itself */
#define LOOK_MS           100   /* how often `stopped` is looked at */
#define TELL_MS           5000u /* how often somebody who waits is told for whom */
#define LINE_BYTES        (1u << 20)

static const char last_word_prefix[] = "shardgrad-yardstick: ";

struct sg_bench_yardstick {
    const atomic_bool *stopped;
    pid_t pid;
    bool failed; /* it did not answer, or not rightly: nothing is expected of it any more */
    uint64_t n_bytes;
    int in, out; /* its standard input; its standard output and error */
    size_t n_read;
    char read[LINE_BYTES];
    char last_word[SG_ERROR_MESSAGE_BYTES];
};

void sg_bench_passes_deinit(sg_bench_passes *passes)
{
    sg_bench_series_deinit(&passes->seconds);
    sg_bench_series_deinit(&passes->client_cpu_seconds);
    sg_bench_series_deinit(&passes->server_cpu_seconds);
    sg_bench_series_deinit(&passes->client_faults);
    sg_bench_series_deinit(&passes->server_faults);
}

/* --- lines ---------------------------------------------------------------------------------------------------- */

static sg_status ended(const sg_bench_yardstick *y, sg_error *err)
{
    const char *colon = y->last_word[0] != '\0' ? ": " : "";
    return sg_error_set(err, SG_UNAVAILABLE, "the yardstick has ended%s%s", colon, y->last_word);
}

/* More of what it writes; waits for it in small pieces. */
static sg_status read_more(sg_bench_yardstick *y, uint64_t began_ms, uint64_t answer_ms, sg_error *err)
{
    struct pollfd wait = {.fd = y->out, .events = POLLIN};
    uint64_t tell_ms = TELL_MS;
    int n_ready;
    do {
        const uint64_t waited_ms = sg_clock_ms() - began_ms;
        if (atomic_load(y->stopped))
            return sg_error_set(err, SG_CANCELLED, "stopped");
        if (waited_ms > answer_ms)
            return sg_error_set(err, SG_TIMEOUT, "the yardstick (process %d) did not answer within %" PRIu64 " s",
                                (int)y->pid, answer_ms / 1000);
        if (waited_ms >= tell_ms) {
            sg_bench_say("waiting for the yardstick (process %d) for %" PRIu64 " s, at most for %" PRIu64, (int)y->pid,
                         waited_ms / 1000, answer_ms / 1000);
            tell_ms += TELL_MS;
        }
        n_ready = poll(&wait, 1, LOOK_MS);
    } while (n_ready == 0 || (n_ready < 0 && errno == EINTR));
    if (y->n_read == LINE_BYTES)
        return sg_error_set(err, SG_UNAVAILABLE, "the yardstick answered more than %u bytes", LINE_BYTES);
    ssize_t n = read(y->out, y->read + y->n_read, LINE_BYTES - y->n_read);
    if (n <= 0)
        return ended(y, err);
    y->n_read += (size_t)n;
    return SG_OK;
}

/* The next line, without its newline; freed by free(). */
static sg_status read_line(sg_bench_yardstick *y, uint64_t answer_ms, char **line, sg_error *err)
{
    uint64_t began_ms = sg_clock_ms();
    const char *newline;
    while ((newline = memchr(y->read, '\n', y->n_read)) == NULL) {
        sg_status status = read_more(y, began_ms, answer_ms, err);
        if (status != SG_OK)
            return status;
    }
    size_t n = (size_t)(newline - y->read);
    *line = sg_xprintf("%.*s", (int)n, y->read);
    y->n_read -= n + 1;
    memmove(y->read, newline + 1, y->n_read);
    return SG_OK;
}

/* The next line that begins so. What else it says is for people, and kept as its last word. */
static sg_status read_line_that_begins(sg_bench_yardstick *y, const char *begin, uint64_t answer_ms, char **line,
                                       sg_error *err)
{
    for (;;) {
        sg_status status = read_line(y, answer_ms, line, err);
        if (status != SG_OK || strncmp(*line, begin, strlen(begin)) == 0)
            return status;
        bool prefixed = strncmp(*line, last_word_prefix, strlen(last_word_prefix)) == 0;
        snprintf(y->last_word, sizeof(y->last_word), "%.*s", (int)sizeof(y->last_word) - 1,
                 prefixed ? *line + strlen(last_word_prefix) : *line);
        free(*line);
    }
}

static sg_status ask(sg_bench_yardstick *y, const char *question, uint64_t answer_ms, json_t **answer, sg_error *err)
{
    y->failed = true; /* until it has answered */
    size_t n = strlen(question);
    if (write(y->in, question, n) != (ssize_t)n)
        return ended(y, err);
    char *line;
    sg_status status = read_line_that_begins(y, "{", answer_ms, &line, err);
    if (status != SG_OK)
        return status;
    *answer = json_loads(line, 0, NULL);
    free(line);
    y->failed = *answer == NULL;
    return *answer != NULL ? SG_OK : sg_error_set(err, SG_UNAVAILABLE, "the yardstick's answer is no JSON");
}

/* For so many passes over all its bytes, on a machine that is slow. */
static uint64_t answer_ms(const sg_bench_yardstick *y, uint64_t passes)
{
    return ANSWER_MS + y->n_bytes / SLOW_BYTES_PER_MS * passes;
}

/* --- the process ---------------------------------------------------------------------------------------------- */

/* A session of its own: Ctrl-C is ours to handle, and it ends when its standard input does. */
static int spawn(const char *program, uint64_t n_bytes, int in, int out, pid_t *pid)
{
    char bytes[32];
    snprintf(bytes, sizeof(bytes), "%" PRIu64, n_bytes);
    char *argv[] = {(char *)(uintptr_t)program, (char[]){"--bytes"}, bytes, NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out, STDERR_FILENO);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
    int failure = posix_spawn(pid, program, &actions, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return failure;
}

sg_status sg_bench_yardstick_create(const char *program, uint64_t n_bytes, const atomic_bool *stopped,
                                    sg_bench_yardstick **yardstick, sg_error *err)
{
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC) != 0)
        return sg_error_set(err, SG_EXHAUSTED, "pipe: %s", strerror(errno));
    if (pipe2(out, O_CLOEXEC) != 0) {
        sg_status status = sg_error_set(err, SG_EXHAUSTED, "pipe: %s", strerror(errno));
        close(in[0]);
        close(in[1]);
        return status;
    }
    sg_bench_yardstick *y = sg_xcalloc(1, sizeof(*y));
    y->stopped = stopped;
    y->n_bytes = n_bytes;
    y->in = in[1];
    y->out = out[0];
    int failure = spawn(program, n_bytes, in[0], out[1], &y->pid);
    close(in[0]);
    close(out[1]);
    char *line = NULL;
    sg_status status = SG_OK;
    if (failure != 0) {
        y->pid = 0;
        status = sg_error_set(err, SG_NOT_FOUND, "cannot start %s: %s", program, strerror(failure));
    } else
        status = read_line_that_begins(y, "ready", answer_ms(y, 1), &line, err);
    free(status == SG_OK ? line : NULL);
    y->failed = status != SG_OK;
    if (status != SG_OK)
        sg_bench_yardstick_destroy(y);
    else
        *yardstick = y;
    return status;
}

/* It ends when its standard input does, unless something is wrong with it. */
static void await_end(const sg_bench_yardstick *y)
{
    uint64_t began_ms = sg_clock_ms();
    bool killed = false;
    for (;;) {
        bool kill_now = y->failed || atomic_load(y->stopped) || sg_clock_ms() - began_ms > END_MS;
        if (kill_now && !killed)
            killed = kill(y->pid, SIGKILL) == 0;
        pid_t ended_pid = waitpid(y->pid, NULL, killed ? 0 : WNOHANG);
        if (ended_pid == y->pid || (ended_pid < 0 && errno != EINTR))
            return;
        if (!killed)
            nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

void sg_bench_yardstick_destroy(sg_bench_yardstick *y)
{
    if (y == NULL)
        return;
    close(y->in);
    close(y->out);
    if (y->pid > 0)
        await_end(y);
    free(y);
}

/* --- what it measures ----------------------------------------------------------------------------------------- */

static bool take_series(json_t *answer, const char *name, size_t n_wanted, sg_bench_series *series)
{
    json_t *values = json_object_get(answer, name);
    if (!json_is_array(values) || json_array_size(values) != n_wanted)
        return false;
    for (size_t i = 0; i < n_wanted; i++) {
        json_t *value = json_array_get(values, i);
        if (!json_is_number(value))
            return false;
        sg_bench_series_add(series, json_number_value(value));
    }
    return true;
}

sg_status sg_bench_yardstick_measure(sg_bench_yardstick *y, const char *op, const sg_bench_combination *combination,
                                     uint32_t repetitions, sg_bench_passes *passes, sg_error *err)
{
    char question[128];
    snprintf(question, sizeof(question), "%s %" PRIu64 " %u %u %u %u\n", op, combination->message_bytes,
             combination->threads, combination->connections, combination->in_flight, repetitions);
    json_t *answer = NULL;
    /* both ways; one pass more is not measured, and after a push one reads the values */
    sg_status status = ask(y, question, answer_ms(y, 2 * ((uint64_t)repetitions + 2)), &answer, err);
    if (status != SG_OK)
        return status;
    bool right = take_series(answer, "seconds", repetitions, &passes->seconds) &&
                 take_series(answer, "client_cpu_seconds", repetitions, &passes->client_cpu_seconds) &&
                 take_series(answer, "server_cpu_seconds", repetitions, &passes->server_cpu_seconds) &&
                 take_series(answer, "client_faults", repetitions, &passes->client_faults) &&
                 take_series(answer, "server_faults", repetitions, &passes->server_faults);
    json_decref(answer);
    return right ? SG_OK : sg_error_set(err, SG_UNAVAILABLE, "the yardstick's answer to %s lacks figures", op);
}

sg_status sg_bench_yardstick_echo(sg_bench_yardstick *y, uint64_t n_bytes, uint32_t calls, double *p50_seconds,
                                  double *p99_seconds, sg_error *err)
{
    char question[64];
    snprintf(question, sizeof(question), "echo %" PRIu64 " %u\n", n_bytes, calls);
    json_t *answer = NULL;
    sg_status status = ask(y, question, ANSWER_MS + (uint64_t)calls * SLOW_CALL_MS, &answer, err);
    if (status != SG_OK)
        return status;
    json_t *p50 = json_object_get(answer, "p50_seconds"), *p99 = json_object_get(answer, "p99_seconds");
    bool right = json_is_number(p50) && json_is_number(p99);
    *p50_seconds = json_number_value(p50);
    *p99_seconds = json_number_value(p99);
    json_decref(answer);
    return right ? SG_OK : sg_error_set(err, SG_UNAVAILABLE, "the yardstick's answer to echo lacks figures");
}
