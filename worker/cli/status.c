/* worker/cli/status.c - `shardgrad status`: one table of ps and one of workers. */
#include <inttypes.h>
#include <stdio.h>

#include "common/workers.h"
#include "worker/cli/arguments.h"
#include "worker/cli/commands.h"
#include "worker/cli/status_json.h"
#include "worker/cli/status_query.h"
#include "worker/train/summary.h"

#define ASK_TIMEOUT_MS 3000u

static const char *state_name(Shardgrad__V1__JobState state)
{
    switch (state) {
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_PS:
        return "waiting for ps";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_WAITING_FOR_VARIABLES:
        return "waiting for variables";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_INITIALIZING:
        return "initializing";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RUNNING:
        return "running";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RECOVERING:
        return "recovering";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_RESTORING:
        return "restoring";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_DRAINING:
        return "draining";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_DONE:
        return "done";
    case SHARDGRAD__V1__JOB_STATE__JOB_STATE_FAILED:
        return "failed";
    default:
        return "unknown";
    }
}

/* "412", "1.5 KiB", "2.6 MiB" */
static const char *bytes_text(uint64_t n_bytes, char out[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double n = (double)n_bytes;
    size_t unit = 0;
    for (; n >= 1024 && unit + 1 < SG_ARRAY_LEN(units); unit++)
        n /= 1024;
    snprintf(out, 32, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return out;
}

static const char *age_text(const char *address, uint64_t age_ms, char out[32])
{
    if (address[0] == '\0')
        return "-";
    snprintf(out, 32, "%.1f s", (double)age_ms / 1000);
    return out;
}

static const char *or_dash(const char *text)
{
    return text != NULL && text[0] != '\0' ? text : "-";
}

static void print_ps(const Shardgrad__V1__PsStatus *ps)
{
    char age[32], values[32], slots[32], steps[64], waits[64] = "-";
    const Shardgrad__V1__PsReport none = SHARDGRAD__V1__PS_REPORT__INIT;
    const Shardgrad__V1__PsReport *report = ps->report != NULL ? ps->report : &none;
    if (report->min_step == report->max_step)
        snprintf(steps, sizeof(steps), "%" PRIu64, report->min_step);
    else
        snprintf(steps, sizeof(steps), "%" PRIu64 "-%" PRIu64, report->min_step, report->max_step);
    sg_workers waiting;
    if (report->waiting_for.len > 0 &&
        sg_workers_decode(report->waiting_for.data, report->waiting_for.len, &waiting, NULL) == SG_OK)
        sg_workers_text(&waiting, waits, sizeof(waits));
    printf("%-4u %-22s %-9s %9s %11s %7" PRIu64 " %11s %11s %9" PRIu64 " %9" PRIu64 "  %s\n", ps->ps,
           or_dash(ps->address), or_dash(ps->state), age_text(ps->address, ps->lease_age_ms, age), steps,
           report->slices, bytes_text(report->value_bytes, values), bytes_text(report->slot_bytes, slots),
           report->pushes, report->pulls, waits);
}

static void print_worker(const Shardgrad__V1__WorkerStatus *worker)
{
    char age[32], loss[SG_LOSS_TEXT_BYTES] = "-";
    if (worker->examples > 0)
        sg_loss_print((double)worker->loss, loss);
    printf("%-6u %-22s %-9s %9s %11" PRIu64 " %12" PRIu64 " %9s\n", worker->worker, or_dash(worker->address),
           or_dash(worker->state), age_text(worker->address, worker->lease_age_ms, age), worker->finished,
           worker->examples, loss);
}

static void print_checkpoint(const Shardgrad__V1__CheckpointStatus *checkpoint)
{
    if (checkpoint->complete)
        printf("checkpoint: iteration %" PRIu64 ", %.1f s ago", checkpoint->iteration,
               (double)checkpoint->age_ms / 1000);
    else
        printf("checkpoint: none yet");
    if (checkpoint->under_way)
        printf("; iteration %" PRIu64 " is being written", checkpoint->mark);
    if (checkpoint->failure[0] != '\0')
        printf("; failed %.1f s ago: %s", (double)checkpoint->failure_age_ms / 1000, checkpoint->failure);
    printf("\n");
}

static void print_evaluation(const Shardgrad__V1__Evaluation *evaluation)
{
    char loss[SG_LOSS_TEXT_BYTES];
    sg_loss_print((double)evaluation->loss, loss);
    printf("tested: iteration %" PRIu64 ", %" PRIu64 " of %" PRIu64 " examples, loss %s, accuracy %.4f\n",
           evaluation->iteration, evaluation->examples, evaluation->of, loss,
           evaluation->examples > 0 ? (double)evaluation->correct / (double)evaluation->examples : 0);
}

/* Slices whose step closed though nobody had pushed: their values stayed as they were. */
static void print_empty(const Shardgrad__V1__StatusResponse *response)
{
    uint64_t n = 0;
    for (size_t i = 0; i < response->n_ps; i++)
        n += response->ps[i]->report != NULL ? response->ps[i]->report->empty : 0;
    if (n > 0)
        printf("steps without a contribution: %" PRIu64 " of single slices, since all workers had gone or were late\n",
               n);
}

static void print_status(const Shardgrad__V1__StatusResponse *response)
{
    printf("job %s: %s, %s, generation %" PRIu64 ", rule %s, hyper-parameter set %" PRIu64 ", %" PRIu64
           " steps handed out, %" PRIu64 " examples\n",
           response->job, state_name(response->state), sg_mode_name((sg_mode)response->mode), response->generation,
           or_dash(response->rule), response->hyper, response->steps, response->examples);
    if (response->checkpoint != NULL)
        print_checkpoint(response->checkpoint);
    if (response->n_evaluations > 0)
        print_evaluation(response->evaluations[response->n_evaluations - 1]);
    print_empty(response);
    if (response->waiting_for[0] != '\0')
        printf("%s\n", response->waiting_for);
    if (response->reason[0] != '\0')
        printf("failed: %s\n", response->reason);
    printf("\n%-4s %-22s %-9s %9s %11s %7s %11s %11s %9s %9s  %s\n", "ps", "address", "state", "heard", "step",
           "slices", "values", "slots", "pushes", "pulls", "waits for workers");
    for (size_t i = 0; i < response->n_ps; i++)
        print_ps(response->ps[i]);
    printf("\n%-6s %-22s %-9s %9s %11s %12s %9s\n", "worker", "host:process", "state", "heard", "finished", "examples",
           "loss");
    for (size_t i = 0; i < response->n_workers; i++)
        print_worker(response->workers[i]);
}

int sg_status_main(int argc, char **argv)
{
    const char *coordinator = NULL;
    bool json = false;
    const sg_arguments_option options[] = {
        {"--coordinator", "HOST:PORT", "address of ps 0, instead of the one that FILE leads to", NULL, &coordinator},
        {"--json", "", "for programs: all that the coordinator says, as one object", &json, NULL},
    };
    sg_arguments_command command = {
        .usage = "shardgrad status {FILE [--run-dir DIR] | --coordinator HOST:PORT} [--json] [options]",
        .summary =
            "Asks the coordinator (ps 0) of the cluster how the job stands, and prints it. Exit code 69: nobody\n"
            "answers. Columns: `heard`, how long ago the coordinator last heard of it: what a ps tells of itself\n"
            "is as old; `host:process`, where a worker runs and its process id there; `step`, the lowest and\n"
            "highest step that the slices of a ps collect; `finished`, sync: up to which step a worker is done,\n"
            "async: how many tickets.",
        .options = options,
        .n_options = SG_ARRAY_LEN(options),
        .flags_help = SG_ARGUMENTS_FLAGS_OF_A_JOB,
    };
    sg_error err;
    sg_arguments a;
    sg_status_query *query;
    sg_status status = sg_status_query_open(&command, argc, argv, &coordinator, SG_ROLE_OBSERVER, &a, &query, &err);
    if (query != NULL) {
        Shardgrad__V1__StatusResponse *response;
        status = sg_status_query_ask(query, ASK_TIMEOUT_MS, &response, &err);
        sg_status_query_destroy(query);
        if (status == SG_OK) {
            if (json)
                sg_status_json_write(stdout, response);
            else
                print_status(response);
            shardgrad__v1__status_response__free_unpacked(response, NULL);
        }
    }
    int code = status == SG_OK ? 0 : sg_arguments_fail(status, &err);
    sg_arguments_deinit(&a);
    return code;
}
