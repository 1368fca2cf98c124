/* worker/cli/supervisor.c - see supervisor.h. */
#include "worker/cli/supervisor.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LINE_BYTES 4096u

typedef struct child {
    sg_supervisor *supervisor;
    uv_process_t process;
    uv_pipe_t pipe; /* its standard error */
    char who[32];
    char **argv;    /* to start it anew */
    size_t n_words; /* in argv, as they were at first */
    bool alive;
    int64_t exit_code; /* of the process, once it is not alive, and the signal that ended it or 0 */
    int signal_number;
    int n_open;            /* handles that are not closed yet: process and pipe */
    char read[LINE_BYTES]; /* where the loop puts what it reads */
    char line[LINE_BYTES]; /* begun, not ended */
    size_t n_line;
    sg_error last_error; /* its last line of level ERROR, or that is no log line */
} child;

struct sg_supervisor {
    sg_supervisor_options options;
    uv_timer_t grace;
    bool stopping;
    child **children;
    size_t n_children;
    uint64_t n_restarts;
    int failure;
    bool lost_peer; /* it is that of a child which said so itself */
    sg_error error;
};

sg_supervisor *sg_supervisor_create(const sg_supervisor_options *options)
{
    sg_supervisor *s = sg_xcalloc(1, sizeof(*s));
    s->options = *options;
    uv_timer_init(options->loop, &s->grace);
    s->grace.data = s;
    return s;
}

static void free_when_closed(uv_handle_t *handle)
{
    sg_supervisor *s = handle->data;
    for (size_t i = 0; i < s->n_children; i++) {
        for (char **word = s->children[i]->argv; *word != NULL; word++)
            free(*word);
        free(s->children[i]->argv);
        free(s->children[i]);
    }
    free(s->children);
    free(s);
}

void sg_supervisor_destroy(sg_supervisor *s)
{
    if (s == NULL)
        return;
    SG_ASSERT(sg_supervisor_n_alive(s) == 0);
    uv_close((uv_handle_t *)&s->grace, free_when_closed);
}

size_t sg_supervisor_n_alive(const sg_supervisor *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_children; i++)
        n += s->children[i]->alive;
    return n;
}

static void send_to_all(sg_supervisor *s, int signal_number)
{
    for (size_t i = 0; i < s->n_children; i++)
        if (s->children[i]->alive)
            uv_process_kill(&s->children[i]->process, signal_number);
}

static void on_grace_over(uv_timer_t *timer)
{
    send_to_all(timer->data, SIGKILL);
}

void sg_supervisor_stop(sg_supervisor *s)
{
    if (s->stopping)
        return;
    s->stopping = true;
    send_to_all(s, SIGTERM);
    uv_timer_start(&s->grace, on_grace_over, s->options.grace_ms, 0);
}

void sg_supervisor_kill(sg_supervisor *s)
{
    s->stopping = true;
    send_to_all(s, SIGKILL);
}

bool sg_supervisor_is_stopping(const sg_supervisor *s)
{
    return s->stopping;
}

const char *sg_supervisor_last_word(const char *line)
{
    static const char prefix[] = "shardgrad-";
    const char *colon = strchr(line, ':');
    if (strncmp(line, prefix, strlen(prefix)) != 0 || colon == NULL || colon[1] != ' ')
        return NULL;
    return strcspn(line, " ") > (size_t)(colon - line) ? colon + 2 : NULL;
}

const char *sg_supervisor_log_text(const char *line, char *level)
{
    static const char *const levels[] = {"DEBUG", "INFO", "WARN", "ERROR"};
    *level = '\0';
    /* 2026-11-29T10:15:02.123Z */
    if (strlen(line) < 26 || line[10] != 'T' || line[23] != 'Z' || line[24] != ' ')
        return line;
    const char *word = line + 25;
    size_t n_word = strcspn(word, " ");
    for (size_t i = 0; i < SG_ARRAY_LEN(levels); i++)
        if (strlen(levels[i]) == n_word && strncmp(levels[i], word, n_word) == 0)
            *level = levels[i][0];
    if (*level == '\0' || word[n_word] == '\0')
        return line;
    const char *who_end = strchr(word + n_word + 1, ' ');
    return who_end != NULL ? who_end + 1 : word + n_word;
}

static void end_line(child *c)
{
    c->line[c->n_line] = '\0';
    c->n_line = 0;
    char level = '\0';
    const char *last_word = sg_supervisor_last_word(c->line);
    const char *text = last_word != NULL ? last_word : sg_supervisor_log_text(c->line, &level);
    if ((last_word != NULL || level == 'E' || level == '\0') && text[0] != '\0')
        (void)!sg_error_set(&c->last_error, SG_PEER_LOST, "%s", text);
    c->supervisor->options.on_line(c->supervisor->options.user, c->who, c->line);
}

static void report_if_over(sg_supervisor *s)
{
    for (size_t i = 0; i < s->n_children; i++)
        if (s->children[i]->n_open > 0)
            return;
    uv_timer_stop(&s->grace);
    s->options.on_ended(s->options.user);
}

static sg_status spawn(child *c, sg_error *err);

/* Puts what a later life is told in the place of what an earlier one was. */
static void tell_more(child *c)
{
    const sg_supervisor_options *options = &c->supervisor->options;
    const char *const *more = options->more_words != NULL ? options->more_words(options->user, c->who) : NULL;
    size_t n = c->n_words, n_more = 0;
    for (char **word = c->argv + n; *word != NULL; word++)
        free(*word);
    while (more != NULL && more[n_more] != NULL)
        n_more++;
    c->argv = sg_xrealloc(c->argv, n + n_more + 1, sizeof(char *));
    for (size_t i = 0; i < n_more; i++)
        c->argv[n++] = sg_xstrdup(more[i]);
    c->argv[n] = NULL;
}

/* How a child ended that did not end well, and the exit code that stands for it. */
static int describe_end(const child *c, sg_error *how)
{
    const char *colon = c->last_error.message[0] != '\0' ? ": " : "";
    if (c->signal_number != 0) {
        const int n = c->signal_number;
        const bool bug = n == SIGSEGV || n == SIGABRT || n == SIGBUS || n == SIGFPE || n == SIGILL;
        const sg_status status = bug ? SG_INTERNAL : SG_PEER_LOST;
        (void)!sg_error_set(how, status, "%s was ended by signal %d (%s)%s%s", c->who, n, strsignal(n), colon,
                            c->last_error.message);
        return sg_status_exit_code(status);
    }
    const int code = (int)c->exit_code; /* of no program of ours: 127, where a library is missing */
    (void)!sg_error_set(how, SG_PEER_LOST, "%s failed with exit code %d%s%s", c->who, code, colon,
                        c->last_error.message);
    return sg_status_is_exit_code(code) ? code : sg_status_exit_code(SG_PEER_LOST);
}

/* One that was killed or has crashed; what ended by its own decision would decide so again. False: it is not. */
static bool restart(child *c, const sg_error *how)
{
    sg_supervisor *s = c->supervisor;
    const sg_supervisor_options *options = &s->options;
    bool died = c->signal_number != 0 || c->exit_code == sg_status_exit_code(SG_INTERNAL);
    if (!died || s->n_restarts >= options->restarts ||
        (options->has_work_for != NULL && !options->has_work_for(options->user, c->who)))
        return false;
    s->n_restarts++;
    c->n_line = 0;
    c->last_error.message[0] = '\0';
    tell_more(c);
    if (spawn(c, &s->error) != SG_OK) { /* which has told the others to stop */
        s->failure = sg_status_exit_code(SG_NOT_FOUND);
        return true;
    }
    s->options.on_restarted(s->options.user, c->who, how->message, s->n_restarts);
    return true;
}

/* The first that failed had only lost a peer, and this one, which is being stopped with the others, has failed by
 * itself meanwhile: it is that peer, or knows more. */
static bool is_the_cause(const child *c)
{
    const int lost = sg_status_exit_code(SG_PEER_LOST), code = (int)c->exit_code;
    return c->supervisor->lost_peer && c->signal_number == 0 && code != 0 && code != lost &&
           sg_status_is_exit_code(code);
}

/* One that decided so, since it found nobody to work with or another in its place: the end of those that are too late
 * for the end of the rest. */
static bool came_too_late(const child *c)
{
    return c->signal_number == 0 &&
           (c->exit_code == sg_status_exit_code(SG_PEER_LOST) || c->exit_code == sg_status_exit_code(SG_FENCED));
}

static bool is_done_without(const child *c, int code)
{
    const sg_supervisor_options *options = &c->supervisor->options;
    const bool was_killed = c->signal_number != 0 && code == sg_status_exit_code(SG_PEER_LOST); /* no bug of ours */
    return options->is_done_without != NULL && (was_killed || came_too_late(c)) &&
           options->is_done_without(options->user, c->who, !was_killed);
}

/* Judges how a child ended, once its last word was read. */
static void judge(child *c)
{
    sg_supervisor *s = c->supervisor;
    const sg_supervisor_options *options = &s->options;
    sg_error how;
    if (s->stopping) {
        if (is_the_cause(c)) {
            s->failure = describe_end(c, &s->error);
            s->lost_peer = false;
        }
        return;
    }
    if (c->exit_code == 0 && c->signal_number == 0) {
        options->on_finished(options->user, c->who, sg_supervisor_n_alive(s));
        return;
    }
    const int code = describe_end(c, &how);
    if (is_done_without(c, code)) {
        options->on_done_without(options->user, c->who, how.message);
        options->on_finished(options->user, c->who, sg_supervisor_n_alive(s));
        return;
    }
    if (restart(c, &how))
        return;
    s->failure = code;
    s->error = how;
    s->lost_peer = c->signal_number == 0 && c->exit_code == sg_status_exit_code(SG_PEER_LOST);
    sg_supervisor_stop(s);
}

static void on_closed(uv_handle_t *handle)
{
    child *c = handle->data;
    if (--c->n_open > 0)
        return;
    judge(c);
    report_if_over(c->supervisor);
}

static void on_process_exit(uv_process_t *process, int64_t exit_code, int signal_number)
{
    child *c = process->data;
    c->alive = false;
    c->exit_code = exit_code;
    c->signal_number = signal_number;
    uv_close((uv_handle_t *)process, on_closed);
}

static void lend_line(uv_handle_t *handle, size_t wanted_bytes, uv_buf_t *buffer)
{
    child *c = handle->data;
    (void)wanted_bytes;
    *buffer = uv_buf_init(c->read, sizeof(c->read));
}

static void on_read(uv_stream_t *stream, ssize_t n_read, const uv_buf_t *buffer)
{
    child *c = stream->data;
    if (n_read < 0) {
        if (c->n_line > 0)
            end_line(c);
        uv_close((uv_handle_t *)stream, on_closed);
        return;
    }
    for (ssize_t i = 0; i < n_read; i++) {
        if (buffer->base[i] == '\n' || c->n_line == LINE_BYTES - 1)
            end_line(c);
        if (buffer->base[i] != '\n')
            c->line[c->n_line++] = buffer->base[i];
    }
}

static void copy_argv(child *c, char *const *argv)
{
    while (argv[c->n_words] != NULL)
        c->n_words++;
    c->argv = sg_xcalloc(c->n_words + 1, sizeof(char *));
    for (size_t i = 0; i < c->n_words; i++)
        c->argv[i] = sg_xstrdup(argv[i]);
}

static child *add_child(sg_supervisor *s, const char *who, char *const *argv)
{
    child *c = sg_xcalloc(1, sizeof(*c));
    c->supervisor = s;
    snprintf(c->who, sizeof(c->who), "%s", who);
    s->children = sg_xrealloc(s->children, s->n_children + 1, sizeof(child *));
    s->children[s->n_children++] = c;
    copy_argv(c, argv);
    return c;
}

static sg_status spawn(child *c, sg_error *err)
{
    sg_supervisor *s = c->supervisor;
    char **argv = c->argv;
    c->process = (uv_process_t){.data = c};
    uv_pipe_init(s->options.loop, &c->pipe, 0);
    c->pipe.data = c;
    uv_stdio_container_t stdio[4] = {
        {.flags = UV_IGNORE},
        {.flags = UV_IGNORE},
        {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE, .data.stream = (uv_stream_t *)&c->pipe},
        {.flags = UV_INHERIT_FD, .data.fd = s->options.shared_fd},
    };
    uv_process_options_t options = {
        .exit_cb = on_process_exit,
        .file = argv[0],
        .args = argv,
        .flags = UV_PROCESS_DETACHED,
        .stdio = stdio,
        .stdio_count = s->options.shared_fd >= 0 ? 4 : 3,
    };
    c->n_open = 2;
    int failed = uv_spawn(s->options.loop, &c->process, &options);
    if (failed != 0) {
        c->exit_code = sg_status_exit_code(SG_NOT_FOUND);
        uv_close((uv_handle_t *)&c->process, on_closed);
        uv_close((uv_handle_t *)&c->pipe, on_closed);
        sg_supervisor_stop(s);
        return sg_error_set(err, SG_NOT_FOUND, "cannot start %s (%s): %s", c->who, argv[0], uv_strerror(failed));
    }
    c->alive = true;
    uv_read_start((uv_stream_t *)&c->pipe, lend_line, on_read);
    return SG_OK;
}

sg_status sg_supervisor_start(sg_supervisor *s, const char *who, char *const *argv, sg_error *err)
{
    return spawn(add_child(s, who, argv), err);
}

int sg_supervisor_pid(const sg_supervisor *s, const char *who)
{
    for (size_t i = 0; i < s->n_children; i++)
        if (s->children[i]->alive && strcmp(s->children[i]->who, who) == 0)
            return s->children[i]->process.pid;
    return 0;
}

int sg_supervisor_failure(const sg_supervisor *s, sg_error *err)
{
    if (s->failure != 0 && err != NULL)
        *err = s->error;
    return s->failure;
}
