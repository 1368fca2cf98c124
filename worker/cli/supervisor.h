/* worker/cli/supervisor.h - starts processes, reads what they say, and makes sure that all of them end.
 *
 * One that is killed or crashes is started anew, as long as it may be. The first that fails (an exit code other than 0,
 * or a signal that nobody here sent) is remembered and the others are told to stop: SIGTERM, and SIGKILL after
 * grace_ms. Where it had only lost a peer (69), one that meanwhile fails by itself for another reason takes its place.
 * Each child is a session of its own, so that Ctrl-C at the terminal reaches only the supervisor's owner,
 * which decides. A child gets `--parent` (common/parent.h) from the owner, so that it ends also when this process is
 * killed.
 *
 * Threads: all of it on the thread that runs the loop. */
#ifndef SG_WORKER_CLI_SUPERVISOR_H
#define SG_WORKER_CLI_SUPERVISOR_H

#include <uv.h>

#include "common/status.h"

typedef struct sg_supervisor sg_supervisor;

typedef struct sg_supervisor_options {
    uv_loop_t *loop;
    uint64_t grace_ms;
    int shared_fd; /* stays open in every child, so that a lock on it outlives this process; -1: none */
    /* A line that a child wrote to its standard error, without the newline. */
    void (*on_line)(void *user, const char *who, const char *line);
    /* A child ended well: how many of those that were started still run. Not called once something has failed. */
    void (*on_finished)(void *user, const char *who, size_t n_alive);
    /* Whether what all of them are for is done without this child, which has failed: it is then as good as one that
     * ended well. came_too_late: it ended because it found nobody (69), or another in its place (75); else it was
     * killed. Not asked of one that crashed or has another reason. NULL: never. */
    bool (*is_done_without)(void *user, const char *who, bool came_too_late);
    /* It was as good as that, for `how`: "worker-1 failed with exit code 69: ...". on_finished follows. */
    void (*on_done_without)(void *user, const char *who, const char *how);
    /* Children that were killed or have crashed are started anew, so often in all; `n` of on_restarted counts. */
    uint64_t restarts;
    /* But not those for whom nothing is left to do. NULL: there always is. */
    bool (*has_work_for)(void *user, const char *who);
    /* What such a one gets behind the command line that it had at first: words up to a NULL, copied; NULL, or no
     * function: nothing. */
    const char *const *(*more_words)(void *user, const char *who);
    /* It was; `how` is the line that tells how it had ended: "ps-0 was ended by signal 9 (Killed)". */
    void (*on_restarted)(void *user, const char *who, const char *how, uint64_t n);
    /* Once, when the last child has ended and everything it wrote was handed over. */
    void (*on_ended)(void *user);
    void *user;
} sg_supervisor_options;

sg_supervisor *sg_supervisor_create(const sg_supervisor_options *options);
/* After on_ended, or when nothing was started; the caller runs the loop once more until it is empty. NULL is fine. */
void sg_supervisor_destroy(sg_supervisor *supervisor);

/* Starts argv[0] (looked up in PATH if it has no slash) as `who`. Errors: NOT_FOUND. On failure the children that
 * already run are told to stop. */
SG_MUST_USE sg_status sg_supervisor_start(sg_supervisor *supervisor, const char *who, char *const *argv, sg_error *err);

/* The process id of the one that was started as `who`; 0 where there is none or it has ended. */
int sg_supervisor_pid(const sg_supervisor *supervisor, const char *who);

/* SIGTERM to all that live, SIGKILL after grace_ms; what they exit with counts as failure no more. */
void sg_supervisor_stop(sg_supervisor *supervisor);
/* SIGKILL to all that live. */
void sg_supervisor_kill(sg_supervisor *supervisor);
/* Whether it was told to, or something has failed: what children say from now on is about their end. */
bool sg_supervisor_is_stopping(const sg_supervisor *supervisor);
size_t sg_supervisor_n_alive(const sg_supervisor *supervisor);

/* The exit code of the first failure, or, where it is none of ours, that of PEER_LOST; 0 if nothing failed. err says
 * which process failed, how, and its last word. */
int sg_supervisor_failure(const sg_supervisor *supervisor, sg_error *err);

/* The last word of a daemon of ours, "shardgrad-worker: MESSAGE": returns MESSAGE; NULL for any other line. */
const char *sg_supervisor_last_word(const char *line);

/* Takes a log line "TIME LEVEL WHO EVENT FIELDS" apart: returns what follows WHO, and the level's first letter; `line`
 * itself and '\0' if it is none. */
const char *sg_supervisor_log_text(const char *line, char *level);

#endif
