/* worker/cli/run_local.c - `shardgrad run --local`. The work is done on a thread, the main one takes signals. */
#include <stdatomic.h>

#include "common/clock.h"
#include "common/folder.h"
#include "common/memory_limit.h"
#include "kernels/kernel.h"
#include "worker/cli/evaluations.h"
#include "worker/cli/run.h"
#include "worker/cli/run_directory.h"
#include "worker/train/backend.h"
#include "worker/train/interruptible.h"
#include "worker/train/local.h"

#define PROGRESS_EVERY_MS 500u

typedef struct local_run {
    sg_run *run;
    sg_log_file file;
    sg_log log; /* to the file, and what is for the user also to the terminal */
    uint64_t examples, shown_ms;
    sg_tested tested; /* the newest */
    sg_evaluations evaluations;
    sg_summary summary;
    bool is_trained; /* to the end: the summary is filled in */
    atomic_bool stopped;
    _Atomic(sg_workload *) workload;
} local_run;

/* An sg_log_fn; called on the thread that shows the progress. */
static void write_log(void *user, sg_log_level level, const char *event, const char *fields)
{
    local_run *l = user;
    sg_log_file_write(&l->file, level, event, fields);
    if (level >= SG_LOG_WARN)
        sg_progress_print(&l->run->progress, "local | %s %s", event, fields);
}

static void show_step(void *user, const sg_step *step)
{
    local_run *l = user;
    uint64_t now_ms = sg_clock_ms();
    l->examples += step->examples;
    if (step->tested.of > 0) {
        l->tested = step->tested;
        sg_evaluations_take(&l->evaluations, 0, 0, step->number, &step->tested);
    }
    if (now_ms - l->shown_ms < PROGRESS_EVERY_MS)
        return;
    l->shown_ms = now_ms;
    sg_progress_state state = {.steps = step->number + 1, .examples = l->examples, .loss = step->loss};
    if (l->tested.of > 0) {
        state.test_of = l->tested.of;
        state.test_accuracy = (double)l->tested.correct / (double)l->tested.of;
    }
    sg_progress_update(&l->run->progress, now_ms, &state);
}

static sg_status train(local_run *l, sg_workload *workload, sg_error *err)
{
    sg_local_options options = {.workload = workload, .log = &l->log, .on_step = show_step, .user = l};
    const char *run_dir = l->run->arguments->config->run_dir;
    sg_status status = sg_local_run(&options, &l->summary, err);
    l->is_trained = status == SG_OK;
    if (status == SG_OK)
        status = sg_summary_write(&l->summary, run_dir, err);
    return status == SG_OK ? sg_evaluations_write(&l->evaluations, run_dir, err) : status;
}

static sg_status work(void *user, sg_error *err)
{
    local_run *l = user;
    sg_workload *workload;
    sg_status status = sg_workload_create(l->run->arguments->config, true, &workload, err);
    if (status != SG_OK)
        return status;
    /* stop() sets the flag first and looks for the workload second; here it is the other way round. */
    atomic_store(&l->workload, workload);
    if (atomic_load(&l->stopped))
        sg_workload_stop(workload);
    status = sg_backend_choose(workload, 0, err);
    return status == SG_OK ? train(l, workload, err) : status;
}

static void stop(void *user)
{
    local_run *l = user;
    atomic_store(&l->stopped, true);
    sg_workload *workload = atomic_load(&l->workload);
    if (workload != NULL)
        sg_workload_stop(workload);
}

static sg_status run_logged(local_run *l, int *signal_number, sg_error *err)
{
    const sg_config *config = l->run->arguments->config;
    l->file = (sg_log_file){.who = "local"};
    sg_status status = sg_folder_open_log(config->run_dir, l->file.who, &l->file.streams[0], err);
    if (status != SG_OK)
        return status;
    l->log = (sg_log){.fn = write_log, .user = l, .min_level = config->log_level};
    sg_interruptible interruptible = {.work = work, .stop = stop, .user = l};
    status = sg_interruptible_run(&interruptible, signal_number, err);
    sg_workload_destroy(atomic_load(&l->workload));
    fclose(l->file.streams[0]);
    return status;
}

int sg_run_local(sg_run *run)
{
    const sg_config *config = run->arguments->config;
    sg_memory_limit_require("shardgrad", sg_kernel_cpu_room((uint32_t)config->threads));
    sg_kernel_cpu_set_threads((uint32_t)config->threads);
    local_run l = {.run = run};
    sg_error err;
    int signal_number = 0;
    sg_status status = run_logged(&l, &signal_number, &err);
    sg_progress_clear(&run->progress);
    sg_evaluations_deinit(&l.evaluations);
    sg_error judged;
    sg_status result = l.is_trained ? sg_run_directory_print(&l.summary, config->run_dir, &judged) : SG_OK;
    if (status == SG_OK && result != SG_OK)
        status = sg_error_set(&err, result, "%s", judged.message);
    if (status != SG_OK)
        fprintf(stderr, "shardgrad: %s\n", err.message);
    return sg_interruptible_exit_code(status, signal_number);
}
