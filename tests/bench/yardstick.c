/* tests/bench/yardstick.c - the program shardgrad-yardstick: reads what to measure, prints what was found.
 *
 * See yardstick.h for what is measured and why; `shardgrad bench` starts this program and speaks to it. */
#include "tests/bench/yardstick.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/memory.h"

/* Gradients and values on the client, values and recycled versions on two servers, and what gRPC receives; and then
 * some, as the cluster that is measured in between needs memory, too. */
#define COPIES 8

#define MAX_ECHO_CALLS 10000000

static const char help[] =
    "shardgrad-yardstick --bytes N\n"
    "\n"
    "The best that gRPC core can do on this machine for what a parameter server does: N bytes of float32 gradients\n"
    "out and parameters in, over loopback TCP, with no protobuf, no locks, no identity. The server applies\n"
    "w - 0.01 * g over its receive buffers into a recycled buffer, and answers from there without a copy; the client\n"
    "sends from its own buffer, and copies what comes into another. Every value is checked.\n"
    "\n"
    "Prints \"ready\", then answers each line on stdin by one line of JSON, until \"quit\" or the end of input:\n"
    "  push|pull|push_pull MESSAGE_BYTES SERVER_THREADS CONNECTIONS IN_FLIGHT REPETITIONS\n"
    "      passes over all N bytes, IN_FLIGHT calls under way at a time, after one pass that is not measured: of "
    "each,\n"
    "      seconds, CPU seconds and minor page faults of client and server\n"
    "  echo BYTES CALLS\n"
    "      BYTES there and back, one call at a time: seconds until the thread that called is awake again\n"
    "\n"
    "Exit codes: 0 done; 64 wrong usage; 69 no memory, or a process was lost; 70 a wrong value or a bug.\n";

void yardstick_fail(int exit_code, const char *format, ...)
{
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    fprintf(stderr, "shardgrad-yardstick: %s\n", line);
    _exit(exit_code);
}

void *yardstick_alloc(size_t n_bytes)
{
    size_t rounded = (n_bytes + 63) / 64 * 64;
    void *memory = rounded >= n_bytes ? aligned_alloc(64, rounded > 0 ? rounded : 64) : NULL;
    if (memory == NULL)
        yardstick_fail(YARDSTICK_EXHAUSTED, "no memory for %zu bytes", n_bytes);
    return memset(memory, 0, rounded);
}

yardstick_used yardstick_used_by_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (yardstick_used){.cpu_seconds = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                                           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec),
                            .minor_faults = usage.ru_minflt};
}

const char *yardstick_path(yardstick_method method)
{
    static const char *const paths[YARDSTICK_METHODS] = {
        [YARDSTICK_PUSH] = "/yardstick/Push",          [YARDSTICK_PULL] = "/yardstick/Pull",
        [YARDSTICK_PUSH_PULL] = "/yardstick/PushPull", [YARDSTICK_ECHO] = "/yardstick/Echo",
        [YARDSTICK_START] = "/yardstick/Start",        [YARDSTICK_USED] = "/yardstick/Used",
    };
    return paths[method];
}

grpc_arg yardstick_arg(const char *key, int value)
{
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

/* gRPC's own estimate of the bandwidth-delay product, which is turned off, opens the windows further than the caches
 * reach. For messages of 1 MiB, windows of 1 MiB and frames of 256 KiB measured best: of windows from 256 KiB to 32 MiB
 * and frames from 64 KiB to 4 MiB, 2 in flight, on 2 cores; with the estimate a GB cost half as much CPU time again. */
static const int window_bytes[YARDSTICK_WINDOWS] = {256 << 10, 1 << 20, 4 << 20};

unsigned yardstick_window_of(size_t message_bytes)
{
    unsigned window = 0;
    while (window + 1 < YARDSTICK_WINDOWS && (size_t)window_bytes[window] < message_bytes)
        window++;
    return window;
}

size_t yardstick_shared_args(unsigned window, grpc_arg args[YARDSTICK_SHARED_ARGS])
{
    size_t n = 0;
    args[n++] = yardstick_arg(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    args[n++] = yardstick_arg(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window_bytes[window]);
    args[n++] = yardstick_arg(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 256 << 10);
    args[n++] = yardstick_arg(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1);
    args[n++] = yardstick_arg(GRPC_ARG_MAX_SEND_MESSAGE_LENGTH, -1);
    args[n++] = yardstick_arg(GRPC_ARG_ENABLE_PER_MESSAGE_COMPRESSION, 0);
    args[n++] = yardstick_arg(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    args[n++] = yardstick_arg(GRPC_ARG_ENABLE_CHANNELZ, 0);
    return n;
}

/* --- lines --- */

/* Splits a line into words; returns their number, max_words + 1 if there are more. */
static size_t split(char *line, char **words, size_t max_words)
{
    size_t n = 0;
    char *rest = NULL;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word != NULL; word = strtok_r(NULL, " \t\r\n", &rest)) {
        if (n == max_words)
            return n + 1;
        words[n++] = word;
    }
    return n;
}

static size_t number_of(const char *what, const char *word, size_t min, size_t max)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(word, &end, 10);
    if (errno != 0 || *word < '0' || *word > '9' || *end != '\0' || value < min || value > max)
        yardstick_fail(YARDSTICK_USAGE, "%s: '%s' is not a number from %zu to %zu", what, word, min, max);
    return (size_t)value;
}

static size_t floats_of(const char *what, const char *word, size_t max)
{
    size_t n_bytes = number_of(what, word, sizeof(float), max);
    if (n_bytes % sizeof(float) != 0)
        yardstick_fail(YARDSTICK_USAGE, "%s: %zu is not a multiple of %zu, the bytes of a float", what, n_bytes,
                       sizeof(float));
    return n_bytes;
}

static double seconds_of(const yardstick_pass *pass)
{
    return pass->seconds;
}

static double client_cpu_of(const yardstick_pass *pass)
{
    return pass->client.cpu_seconds;
}

static double server_cpu_of(const yardstick_pass *pass)
{
    return pass->server.cpu_seconds;
}

static double client_faults_of(const yardstick_pass *pass)
{
    return (double)pass->client.minor_faults;
}

static double server_faults_of(const yardstick_pass *pass)
{
    return (double)pass->server.minor_faults;
}

static void print_passes(const char *name, const yardstick_pass *passes, size_t n_passes, int decimals,
                         double (*of)(const yardstick_pass *pass))
{
    printf(",\"%s\":[", name);
    for (size_t i = 0; i < n_passes; i++)
        printf("%s%.*f", i > 0 ? "," : "", decimals, of(&passes[i]));
    printf("]");
}

static void measure(yardstick_client *client, const char *op, const yardstick_shape *shape, size_t n_passes)
{
    yardstick_pass *passes = yardstick_alloc(n_passes * sizeof(*passes));
    yardstick_client_measure(client, shape, n_passes, passes);
    printf("{\"op\":\"%s\",\"message_bytes\":%zu,\"threads\":%u,\"connections\":%u,\"in_flight\":%u", op,
           shape->message_bytes, shape->threads, shape->connections, shape->in_flight);
    print_passes("seconds", passes, n_passes, 9, seconds_of);
    print_passes("client_cpu_seconds", passes, n_passes, 6, client_cpu_of);
    print_passes("server_cpu_seconds", passes, n_passes, 6, server_cpu_of);
    print_passes("client_faults", passes, n_passes, 0, client_faults_of);
    print_passes("server_faults", passes, n_passes, 0, server_faults_of);
    printf("}\n");
    free(passes);
}

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

static void echo(yardstick_client *client, char *const *words)
{
    size_t n_bytes = number_of("echo: bytes", words[1], 1, YARDSTICK_MAX_MESSAGE_BYTES);
    size_t n_calls = number_of("echo: calls", words[2], 1, MAX_ECHO_CALLS);
    double *seconds = yardstick_alloc(n_calls * sizeof(*seconds));
    yardstick_client_echo(client, n_bytes, n_calls, seconds);
    qsort(seconds, n_calls, sizeof(*seconds), compare);
    printf("{\"op\":\"echo\",\"bytes\":%zu,\"calls\":%zu,\"p50_seconds\":%.9f,\"p99_seconds\":%.9f}\n", n_bytes,
           n_calls, seconds[n_calls / 2], seconds[n_calls * 99 / 100]);
    free(seconds);
}

/* Obeys one line. False: it says to quit. */
static bool obey(yardstick_client *client, char *line)
{
    static const char *const ops[] = {
        [YARDSTICK_PUSH] = "push", [YARDSTICK_PULL] = "pull", [YARDSTICK_PUSH_PULL] = "push_pull"};
    char *words[6];
    size_t n_words = split(line, words, 6);
    if (n_words == 1 && strcmp(words[0], "quit") == 0)
        return false;
    if (n_words == 3 && strcmp(words[0], "echo") == 0) {
        echo(client, words);
        return true;
    }
    for (unsigned op = 0; n_words == 6 && op < sizeof(ops) / sizeof(*ops); op++) {
        if (strcmp(words[0], ops[op]) != 0)
            continue;
        yardstick_shape shape = {
            .method = op,
            .message_bytes = floats_of("message bytes", words[1], YARDSTICK_MAX_MESSAGE_BYTES),
            .threads = (unsigned)number_of("server threads", words[2], 1, YARDSTICK_MAX_THREADS),
            .connections = (unsigned)number_of("connections", words[3], 1, YARDSTICK_MAX_CONNECTIONS),
            .in_flight = (unsigned)number_of("calls in flight", words[4], 1, YARDSTICK_MAX_IN_FLIGHT)};
        measure(client, ops[op], &shape, number_of("repetitions", words[5], 1, YARDSTICK_MAX_REPETITIONS));
        return true;
    }
    yardstick_fail(YARDSTICK_USAGE,
                   "'%s' and %zu more words: neither push, pull or push_pull and 5 numbers, nor echo and 2, nor quit",
                   n_words > 0 ? words[0] : "", n_words > 0 ? n_words - 1 : 0);
}

/* --- the process --- */

static size_t available_bytes(void)
{
    size_t available_kib = SIZE_MAX / 1024;
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "MemAvailable: %zu kB", &available_kib) == 1)
            break;
    }
    if (file != NULL)
        fclose(file);
    return available_kib * 1024;
}

static size_t bytes_of_command_line(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        exit(0);
    }
    if (argc != 3 || strcmp(argv[1], "--bytes") != 0)
        yardstick_fail(YARDSTICK_USAGE, "wanted --bytes N, or --help");
    size_t n_bytes = floats_of("--bytes", argv[2], SIZE_MAX);
    size_t available = available_bytes();
    if (n_bytes > available / COPIES)
        yardstick_fail(YARDSTICK_EXHAUSTED, "--bytes %zu: needs %d times as much memory, and %zu bytes are available",
                       n_bytes, COPIES, available);
    return n_bytes;
}

static void serve_lines(size_t n_bytes, const yardstick_server *servers)
{
    grpc_init();
    yardstick_client *client = yardstick_client_create(n_bytes, servers);
    printf("ready\n");
    fflush(stdout);
    char *line = NULL;
    size_t line_bytes = 0;
    while (getline(&line, &line_bytes, stdin) >= 0 && obey(client, line))
        fflush(stdout);
    free(line);
    yardstick_client_destroy(client);
    grpc_shutdown();
}

int main(int argc, char **argv)
{
    size_t n_bytes = bytes_of_command_line(argc, argv);
    sg_memory_tune_daemon();
    int lifeline[2];
    if (pipe(lifeline) != 0)
        yardstick_fail(YARDSTICK_EXHAUSTED, "pipe: %s", strerror(errno));
    yardstick_server servers[YARDSTICK_MAX_THREADS];
    for (unsigned i = 0; i < YARDSTICK_MAX_THREADS; i++)
        servers[i] = yardstick_server_fork(n_bytes, i + 1, lifeline);
    serve_lines(n_bytes, servers);
    close(lifeline[1]);
    for (unsigned i = 0; i < YARDSTICK_MAX_THREADS; i++) {
        int status;
        if (waitpid(servers[i].pid, &status, 0) != servers[i].pid || status != 0)
            yardstick_fail(YARDSTICK_LOST, "the server of %u threads did not end well", i + 1);
    }
    return 0;
}
