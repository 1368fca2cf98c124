/* worker/cli/run_directory.c - see run_directory.h. */
#include "worker/cli/run_directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "common/folder.h"
#include "worker/train/summary.h"

#define HOLDER_BYTES  32u
#define LOCK_PAUSE_MS 50u
#define LOCK_MS       1000u /* beyond what processes of a run that was killed take to end */
/* A log's last lines are looked at no farther back. */
#define LINE_BYTES 4096u

/* Removes the plain files in run_dir/name; folders in it, should there be any, are somebody else's. */
static void remove_files(const char *run_dir, const char *name)
{
    char *folder = sg_xprintf("%s/%s", run_dir, name);
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir != NULL)
        closedir(dir);
    free(folder);
}

/* The process that has written itself into the lock's file; "": none has. */
static void read_holder(int fd, char out[HOLDER_BYTES])
{
    ssize_t n = pread(fd, out, HOLDER_BYTES - 1, 0);
    out[n > 0 ? n : 0] = '\0';
    out[strcspn(out, "\n")] = '\0';
}

static bool is_alive(const char *process)
{
    const long id = strtol(process, NULL, 10);
    return id > 0 && (kill((pid_t)id, 0) == 0 || errno != ESRCH);
}

/* Of a run that was killed the processes have the lock until they have ended, too. *holder: who has it. */
static bool take(int fd, uint64_t grace_ms, char holder[HOLDER_BYTES])
{
    const struct timespec pause = {.tv_nsec = (long)LOCK_PAUSE_MS * 1000000};
    for (uint64_t waited_ms = 0;; waited_ms += LOCK_PAUSE_MS) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return true;
        read_holder(fd, holder);
        if (waited_ms >= LOCK_MS + (is_alive(holder) ? 0 : grace_ms))
            return false;
        nanosleep(&pause, NULL);
    }
}

/* The lock's file holds the process id of the run that has it, for the message to the next. */
static sg_status lock(const char *path, const char *run_dir, uint64_t grace_ms, int *lock_fd, sg_error *err)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0)
        return sg_error_set(err, SG_NOT_FOUND, "run_dir %s: cannot open %s: %s; choose another one with --run-dir",
                            run_dir, path, strerror(errno));
    char holder[HOLDER_BYTES];
    if (!take(fd, grace_ms, holder)) {
        close(fd);
        if (!is_alive(holder))
            return sg_error_set(err, SG_UNAVAILABLE,
                                "processes of a run that was killed still use the run directory %s: try again soon, or "
                                "end them",
                                run_dir);
        return sg_error_set(err, SG_CONFIG,
                            "the run directory %s is used by another run (process %s); wait for it or give this one a "
                            "directory of its own with --run-dir",
                            run_dir, holder);
    }
    int n = snprintf(holder, sizeof(holder), "%ld\n", (long)getpid());
    if (ftruncate(fd, 0) != 0 || pwrite(fd, holder, (size_t)n, 0) != n) {
        close(fd);
        return sg_error_set(err, SG_NOT_FOUND, "run_dir %s: cannot write %s: %s; choose another one with --run-dir",
                            run_dir, path, strerror(errno));
    }
    *lock_fd = fd;
    return SG_OK;
}

sg_status sg_run_directory_open(const char *run_dir, uint64_t grace_ms, int *lock_fd, sg_error *err)
{
    sg_status status = sg_folder_make(run_dir, err);
    if (status != SG_OK)
        return sg_error_prefix(err, status, "run_dir");
    char *lock_path = sg_xprintf("%s/.lock", run_dir);
    status = lock(lock_path, run_dir, grace_ms, lock_fd, err);
    free(lock_path);
    if (status != SG_OK)
        return status;
    remove_files(run_dir, "address");
    remove_files(run_dir, "log");
    char *summary = sg_xprintf("%s/summary.json", run_dir);
    unlink(summary);
    free(summary);
    return SG_OK;
}

bool sg_run_directory_has_result(const char *run_dir)
{
    char *summary = sg_xprintf("%s/summary.json", run_dir);
    const bool has = access(summary, F_OK) == 0;
    free(summary);
    return has;
}

/* The end of a log, which may be long. */
static size_t read_end(FILE *file, char *out, size_t out_bytes)
{
    if (fseek(file, 0, SEEK_END) != 0)
        return 0;
    const long n_bytes = ftell(file), most = (long)out_bytes;
    if (fseek(file, n_bytes > most ? n_bytes - most : 0, SEEK_SET) != 0)
        return 0;
    return fread(out, 1, out_bytes, file);
}

/* The last line of a log from its beginning, as much as there is room for, or "". */
static void read_last_line(const char *path, char *out, size_t out_bytes)
{
    char end[LINE_BYTES + 1];
    FILE *file = fopen(path, "re");
    size_t n = file != NULL ? read_end(file, end, LINE_BYTES) : 0;
    if (file != NULL)
        fclose(file);
    while (n > 0 && end[n - 1] == '\n')
        n--;
    end[n] = '\0';
    const char *before = memrchr(end, '\n', n);
    snprintf(out, out_bytes, "%.*s", (int)out_bytes - 1, before != NULL ? before + 1 : end);
}

bool sg_run_directory_describe(const char *run_dir, char *out, size_t out_bytes)
{
    char last[256];
    char *log = sg_xprintf("%s/log/ps-0.log", run_dir);
    read_last_line(log, last, sizeof(last));
    free(log);
    if (sg_run_directory_has_result(run_dir))
        snprintf(out, out_bytes,
                 "the job of the run directory %s has trained to its end: its result is in summary.json", run_dir);
    else if (last[0] != '\0')
        snprintf(out, out_bytes,
                 "the job of the run directory %s does not run now, or is about to begin or end; its ps 0 logged last: "
                 "%s",
                 run_dir, last);
    else
        return false;
    return true;
}

/* Over how many steps the loss is the mean. */
static void describe_mean(const sg_summary *s, const char *loss, char *out, size_t out_bytes)
{
    if (s->loss_steps == 1)
        snprintf(out, out_bytes, "%s (worker 0's, of its only step)", loss);
    else
        snprintf(out, out_bytes, "%s (worker 0's mean over its last %" PRIu64 " steps)", loss, s->loss_steps);
}

/* The loss in words. */
static void describe_loss(const sg_summary *s, char *out, size_t out_bytes)
{
    char loss[SG_LOSS_TEXT_BYTES];
    sg_loss_print(s->final_train_loss, loss);
    if (sg_summary_is_of_no_step(s))
        snprintf(out, out_bytes, "none: the job was finished already, at step %" PRIu64, s->steps);
    else if (isnan(s->final_train_loss) && !s->diverged)
        snprintf(out, out_bytes, "none: worker 0 had no examples");
    else
        describe_mean(s, loss, out, out_bytes);
}

/* How the training itself went. */
static sg_status judge(const sg_summary *s, sg_error *err)
{
    char left_out[160] = "";
    if (s->non_finite_steps > 0)
        snprintf(left_out, sizeof(left_out),
                 "the gradients%s of %" PRIu64 " of %" PRIu64 " steps were left out because they were not finite",
                 s->workers > 1 ? " of worker 0" : "", s->non_finite_steps, s->steps);
    if (s->diverged)
        return sg_error_set(err, SG_NON_FINITE,
                            "the training diverged: in the end the loss or the parameters are not finite%s%s; lower "
                            "update.learning_rate",
                            left_out[0] != '\0' ? ", and " : "", left_out);
    if (left_out[0] != '\0')
        fprintf(stderr, "shardgrad: %s; if that is many, lower update.learning_rate\n", left_out);
    return SG_OK;
}

sg_status sg_run_directory_print(const sg_summary *s, const char *run_dir, sg_error *err)
{
    char loss[96];
    describe_loss(s, loss, sizeof(loss));
    printf("test_accuracy      %.4f\n"
           "final_train_loss   %s\n"
           "steps              %" PRIu64 " (%s, %" PRIu64 " ps, %" PRIu64 " worker%s)\n"
           "seconds            %.2f (%.0f examples/s)\n"
           "parameters_sha256  %s\n"
           "run directory      %s%s\n",
           s->test_accuracy, loss, s->steps, s->mode, s->ps, s->workers, s->workers == 1 ? "" : "s", s->seconds,
           s->examples_per_second, s->parameters_sha256, run_dir,
           sg_run_directory_has_result(run_dir) ? "" : " (without summary.json, which could not be written)");
    fflush(stdout);
    return judge(s, err);
}

sg_status sg_run_directory_print_result(const char *run_dir, sg_error *err)
{
    sg_summary s;
    sg_status status = sg_summary_read(run_dir, &s, err);
    return status == SG_OK ? sg_run_directory_print(&s, run_dir, err) : status;
}
