/* tests/sim/sim_scenario.c - what a seed means, and how its job must end. */
#include "tests/sim/sim_worker.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"

/* --- what a seed means ------------------------------------------------------------------------------------------ */

/* Slices of 16, 16 and 8 elements, of 5 (averaged), of 3 that are never trained, and, of the other group,
 * of 16 and 4. */
const sg_variable *sim_scenario_variables(const sim *s, size_t *n)
{
    static float buffer[40]; /* a session looks only whether there is one */
    static const sg_variable variables[] = {
        {.name = "weight", .rank = 2, .shape = {4, 10}, .value = buffer, .gradient = buffer},
        {.name = "bias", .rank = 1, .shape = {5}, .value = buffer, .gradient = buffer, .average = true},
        {.name = "frozen", .rank = 1, .shape = {3}, .value = buffer, .frozen = true},
        {.name = "critic", .rank = 1, .shape = {20}, .value = buffer, .gradient = buffer, .group = 1},
    };
    *n = SG_ARRAY_LEN(variables) - (s->scenario.n_groups == 1);
    return variables;
}

static void print_config(const sim *s, FILE *out)
{
    static const char *const losses[] = {
        [SG_WORKER_LOSS_CONTINUE] = "continue", [SG_WORKER_LOSS_WAIT] = "wait", [SG_WORKER_LOSS_ABORT] = "abort"};
    static const char *const ps[] = {"", "[\"a:1\"]", "[\"a:1\", \"b:2\"]", "[\"a:1\", \"b:2\", \"c:3\"]"};
    const sim_scenario *scenario = &s->scenario;
    fprintf(out, "ps: %s\nworkers: %" PRIu32 "\nmax_workers: 8\nmin_workers: %" PRIu32 "\non_worker_loss: %s\n",
            ps[scenario->n_ps], scenario->n_workers, scenario->min_workers, losses[scenario->on_loss]);
    fprintf(out,
            "update: {mode: %s, staleness: %" PRIu64 ", backup_workers: %" PRIu32 ", learning_rate: 1, rule: %s, "
            "momentum: %g, trust: 0.5, clip_global_norm: %.0f}\n",
            scenario->ssp     ? "ssp"
            : scenario->async ? "async"
                              : "sync",
            scenario->staleness, scenario->backup, sg_rule_name(scenario->rule),
            scenario->rule == SG_RULE_LARS ? (double)SIM_MOMENTUM : 0, (double)scenario->clip);
    fprintf(out, "slice_bytes: 64\nmessage_bytes: %" PRIu64 "\ncontribution_bytes: %s\n", scenario->message_bytes,
            s->seed_number % 4 == 3 ? "128" : "4GiB");
    fprintf(out, "checkpoint: {dir: \"%s\", every: %" PRIu32 "}\n", scenario->saves ? "/checkpoints" : "",
            scenario->saves ? scenario->save_every : 0);
    fputs("lease_ms: 2000\npark_ms: 300\nstart_timeout_ms: 40000\nshutdown_grace_ms: 1000\nwarn_after_ms: 5000\n", out);
    fputs("security: {insecure: true}\n", out); /* nobody listens anywhere */
}

static void choose_config(sim *s)
{
    char *text = NULL;
    size_t n_bytes = 0;
    sg_error err;
    FILE *out = open_memstream(&text, &n_bytes);
    SG_ASSERT(out != NULL);
    print_config(s, out);
    fclose(out);
    if (sg_config_parse(text, n_bytes, "sim", NULL, 0, &s->config, &err) != SG_OK) {
        fprintf(stderr, "%s\n", err.message);
        abort();
    }
    free(text);
}

static void choose_network(sim *s)
{
    static const uint32_t lost[] = {0, 0, 20, 80}, repeated[] = {0, 50, 200}, slow[] = {0, 30, 200};
    s->scenario.lost_per_mille = lost[sim_below(s, SG_ARRAY_LEN(lost))];
    s->scenario.repeated_per_mille = repeated[sim_below(s, SG_ARRAY_LEN(repeated))];
    s->scenario.slow_per_mille = slow[sim_below(s, SG_ARRAY_LEN(slow))];
}

static void choose_saves(sim *s)
{
    static const uint32_t full[] = {0, 0, 300};
    s->scenario.saves = sim_chance(s, 500);
    s->scenario.save_every = (uint32_t)sim_below(s, 4);
    s->scenario.disk_full_per_mille = full[sim_below(s, SG_ARRAY_LEN(full))];
}

/* What takes norms is for sync alone. Gradients have norms of a few thousand. */
static void choose_norms(sim *s)
{
    sim_scenario *scenario = &s->scenario;
    const bool may = !scenario->async && scenario->n_changes == 0;
    scenario->rule = may && s->seed_number % 7 == 2 ? SG_RULE_LARS : SG_RULE_SGD;
    scenario->clip = may && s->seed_number % 5 == 3 ? 1000 + 2000 * (float)(s->seed_number / 5 % 2) : 0;
}

static sim_fault choose_fault(sim *s)
{
    sim_scenario *scenario = &s->scenario;
    sim_fault fault = {.kind = (sim_fault_kind)sim_below(s, SIM_N_FAULTS), .at_ms = sim_below(s, 3500)};
    switch (fault.kind) {
    case SIM_FAULT_KILL_WORKER:
        fault.revive_ms = sim_chance(s, 300) ? 0 : 1 + sim_below(s, sim_chance(s, 500) ? 500 : 6000);
        fault.target = (uint32_t)sim_below(s, scenario->n_workers + scenario->n_joiners);
        break;
    case SIM_FAULT_SUPERSEDE:
        fault.target = (uint32_t)sim_below(s, scenario->n_workers + scenario->n_joiners);
        break;
    case SIM_FAULT_KILL_PS:
    case SIM_FAULT_STOP_PS:
        fault.target = (uint32_t)sim_below(s, scenario->n_ps);
        break;
    case SIM_FAULT_RESTART_PS:
        fault.target = scenario->n_ps - 1; /* ps 0 takes the coordinator's memory with it */
        fault.at_ms = sim_below(s, 600);
        break;
    case SIM_FAULT_RECOVER_PS:
        fault.target = (uint32_t)sim_below(s, scenario->n_ps);
        fault.again_ms = sim_below(s, 4000);
        break;
    case SIM_FAULT_PAUSE_PS:
        fault.target = (uint32_t)sim_below(s, scenario->n_ps);
        fault.again_ms = 1 + sim_below(s, 5000);
        break;
    case SIM_N_FAULTS:
        break;
    }
    return fault;
}

static void on_fault(sim *s, const sim_event *event);
static void on_revive(sim *s, const sim_event *event);

static void on_ps_start(sim *s, const sim_event *event)
{
    sim_ps_start(s, (uint32_t)event->number);
}

static void on_worker_start(sim *s, const sim_event *event)
{
    sim_worker_start(s, (uint32_t)event->number);
}

static void schedule(sim *s)
{
    sim_scenario *scenario = &s->scenario;
    for (uint32_t i = 0; i < scenario->n_ps; i++)
        sim_at(s, scenario->ps_start_ms[i], on_ps_start, NULL, i);
    for (uint32_t i = 0; i < scenario->n_workers + scenario->n_joiners; i++) {
        sim_at(s, scenario->worker_start_ms[i], on_worker_start, NULL, i);
        s->n_to_start++;
    }
    for (uint32_t i = 0; i < scenario->n_faults; i++)
        sim_at(s, scenario->faults[i].at_ms, on_fault, &scenario->faults[i], 0);
    sim_change_schedule(s);
    sim_ask_schedule(s);
}

void sim_scenario_choose(sim *s)
{
    sim_scenario *scenario = &s->scenario;
    scenario->async = sim_chance(s, 300);
    scenario->ssp = scenario->async && s->seed_number % 2 == 0;
    scenario->backup = !scenario->async && s->seed_number % 3 == 0 ? 1 + (uint32_t)(s->seed_number / 3 % 2) : 0;
    scenario->staleness = scenario->ssp ? s->seed_number / 2 % 4 : 0;
    scenario->n_ps = 1 + (uint32_t)sim_below(s, SIM_MAX_PS);
    scenario->n_workers = 1 + (uint32_t)sim_below(s, 3);
    scenario->backup = scenario->backup < scenario->n_workers ? scenario->backup : scenario->n_workers - 1;
    scenario->n_joiners = (uint32_t)sim_below(s, 3);
    scenario->n_groups = 1 + sim_chance(s, 400);
    scenario->every = scenario->ssp ? 1 : 1 + s->seed_number / 5 % 4;
    scenario->message_bytes = sim_chance(s, 500) ? 64 : 4096;
    choose_network(s);
    uint64_t spread_ms = sim_chance(s, 300) ? 3000 : 200;
    for (uint32_t i = 0; i < scenario->n_ps; i++)
        scenario->ps_start_ms[i] = sim_below(s, spread_ms);
    for (uint32_t i = 0; i < SIM_MAX_INDICES; i++) {
        scenario->worker_start_ms[i] = sim_below(s, i < scenario->n_workers ? spread_ms : 2000);
        scenario->quota[i] = (uint32_t)sim_below(s, 8); /* 0: it leaves at once */
    }
    scenario->on_loss = (sg_worker_loss)sim_below(s, SG_WORKER_LOSS_ABORT + 1);
    if (scenario->async && scenario->on_loss == SG_WORKER_LOSS_WAIT) /* no cluster file says both */
        scenario->on_loss = SG_WORKER_LOSS_CONTINUE;
    scenario->min_workers = 1 + sim_chance(s, 300);
    scenario->n_faults = sim_chance(s, 500) ? 0 : 1 + sim_chance(s, 250);
    for (uint32_t i = 0; i < scenario->n_faults; i++)
        scenario->faults[i] = choose_fault(s);
    choose_saves(s);
    sim_change_choose(s);
    choose_norms(s);
    sim_ask_choose(s);
    choose_config(s);
    s->settled_mode = s->config->update.mode;
    s->was_sync = s->settled_mode == SG_MODE_SYNC;
    schedule(s);
}

/* --- faults ----------------------------------------------------------------------------------------------------- */

static sim_worker *newest_process(sim *s, uint32_t index)
{
    return s->newest_worker[index] == 0 ? NULL : &s->workers[s->newest_worker[index] - 1];
}

static void kill_worker(sim *s, sim_fault *fault)
{
    sim_worker *worker = newest_process(s, fault->target);
    if (worker == NULL || !worker->running)
        return;
    fault->happened = true;
    fault->phase = worker->phase;
    fault->process = worker->number;
    sim_worker_kill(s, worker);
    if (fault->revive_ms == 0)
        return;
    s->n_to_start++;
    sim_at(s, s->now_ms + fault->revive_ms, on_revive, fault, 0);
}

static void on_revive(sim *s, const sim_event *event)
{
    const sim_fault *fault = event->subject;
    const sim_worker *worker = newest_process(s, fault->target);
    s->n_to_start--;
    s->idle_since_ms = s->now_ms;
    if (!worker->running && s->n_workers < SIM_MAX_WORKERS)
        sim_worker_start(s, fault->target);
}

static void supersede(sim *s, sim_fault *fault)
{
    sim_worker *worker = newest_process(s, fault->target);
    if (worker == NULL || s->n_workers + SIM_MAX_INDICES >= SIM_MAX_WORKERS)
        return;
    fault->happened = true;
    sim_worker_start(s, fault->target);
}

static bool anything_declared(const sim *s)
{
    return s->plan != NULL;
}

static void on_recover(sim *s, const sim_event *event)
{
    s->n_to_recover--;
    if (!s->ps[event->number].running)
        sim_ps_start(s, (uint32_t)event->number);
}

/* Recovery is for jobs that make checkpoints. */
static void recover_ps(sim *s, sim_fault *fault)
{
    const sim_ps *ps = &s->ps[fault->target];
    if (!s->scenario.saves || !ps->running || ps->ended || ps->stopping)
        return;
    fault->happened = true;
    sim_ps_kill(s, fault->target);
    s->n_to_recover++;
    sim_at(s, s->now_ms + fault->again_ms, on_recover, NULL, fault->target);
}

static void on_fault(sim *s, const sim_event *event)
{
    sim_fault *fault = event->subject;
    sim_ps *ps = &s->ps[fault->target < SIM_MAX_PS ? fault->target : 0];
    switch (fault->kind) {
    case SIM_FAULT_KILL_WORKER:
        kill_worker(s, fault);
        break;
    case SIM_FAULT_SUPERSEDE:
        supersede(s, fault);
        break;
    case SIM_FAULT_KILL_PS:
        fault->happened = ps->running && !ps->ended;
        sim_ps_kill(s, fault->target);
        break;
    case SIM_FAULT_STOP_PS:
        fault->happened = ps->running && !ps->ended;
        sim_ps_stop(s, fault->target);
        break;
    case SIM_FAULT_RESTART_PS:
        if (fault->target == 0 || !ps->running || ps->ended || anything_declared(s))
            break;
        fault->happened = true;
        sim_ps_kill(s, fault->target);
        sim_ps_start(s, fault->target);
        break;
    case SIM_FAULT_RECOVER_PS:
        recover_ps(s, fault);
        break;
    case SIM_FAULT_PAUSE_PS:
        fault->happened = ps->running && !ps->ended;
        sim_ps_pause(s, fault->target, fault->again_ms);
        break;
    case SIM_N_FAULTS:
        break;
    }
}

/* --- how it must end -------------------------------------------------------------------------------------------- */

static uint32_t n_happened(const sim *s, const sim_fault **last)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->scenario.n_faults; i++) {
        if (s->scenario.faults[i].happened) {
            n++;
            *last = &s->scenario.faults[i];
        }
    }
    return n;
}

static bool names(const char *text, const char *word, uint32_t number)
{
    char name[32];
    snprintf(name, sizeof name, "%s %" PRIu32, word, number);
    return strstr(text, name) != NULL;
}

/* One who comes when all others have left finds the job over, or nobody there; one may go on as another process. */
static bool ended_beside_it(const sim_worker *worker)
{
    bool too_late = !worker->joined &&
                    (worker->status == SG_STOPPED || worker->status == SG_UNAVAILABLE || worker->status == SG_TIMEOUT);
    return worker->came_again || too_late;
}

/* Without a fault everybody does its quota and the job ends well, whatever the network lost and repeated. */
static void judge_calm(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->status == SG_OK || ended_beside_it(worker))
            continue;
        sim_fail(s, "without a fault worker %" PRIu32 " ended with %s: %s", worker->index,
                 sg_status_name(worker->status), worker->text);
    }
    if (!s->job_ended || s->job_status != SG_OK)
        sim_fail(s, "without a fault the job ended with %s: %s",
                 s->job_ended ? sg_status_name(s->job_status) : "nothing", s->job_text);
    sim_save_judge(s);
    for (uint32_t i = 0; i < s->scenario.n_ps; i++) {
        if (!s->ps[i].ended || s->ps[i].status != SG_OK)
            sim_fail(s, "without a fault ps %" PRIu32 " ended with %s: %s", i, sg_status_name(s->ps[i].status),
                     s->ps[i].text);
    }
}

/* continue: the others do their quota. Where fewer than min_workers were left they wait for another worker and in the
 * end give up naming the lost one, unless they have nothing left to do; whoever asked for a ticket counts. */
static void judge_loss(sim *s, const sim_fault *fault)
{
    uint32_t n_gave_up = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->killed || worker->status == SG_OK || ended_beside_it(worker))
            continue;
        n_gave_up++;
        if (!names(worker->text, "worker", fault->target) && !names(worker->text, "ps", 0))
            sim_fail(s, "worker %" PRIu32 " ended with %s and did not hear of worker %" PRIu32 ": %s", worker->index,
                     sg_status_name(worker->status), fault->target, worker->text);
    }
    bool waits = s->scenario.on_loss == SG_WORKER_LOSS_WAIT && !s->scenario.async;
    if (s->job_status == SG_OK ? n_gave_up > 0 : !waits && n_gave_up >= s->scenario.min_workers)
        sim_fail(s, "worker %" PRIu32 " was killed, %" PRIu32 " others gave up and the job ended with %s: %s",
                 fault->target, n_gave_up, sg_status_name(s->job_status), s->job_text);
    if (s->job_status != SG_OK && (s->job_status != SG_PEER_LOST || !names(s->job_text, "worker", fault->target)))
        sim_fail(s, "worker %" PRIu32 " was killed and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* wait: everybody does its quota if the lost one has come again, and the job names it if it has not. */
static void judge_awaited(sim *s, const sim_fault *fault)
{
    if (fault->revive_ms > 0 && s->job_status != SG_OK)
        sim_fail(s, "worker %" PRIu32 " came again and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    if (fault->revive_ms == 0 && s->job_ended && s->job_status == SG_OK)
        sim_fail(s, "nobody waited for worker %" PRIu32 ", which was killed", fault->target);
    judge_loss(s, fault);
}

/* A worker that trained vanished: by on_worker_loss. abort: the job has failed, and said which, unless it came again
 * before it was missed. */
static void judge_killed_worker(sim *s, const sim_fault *fault)
{
    bool trained = fault->phase >= SIM_FETCHING && fault->phase < SIM_LEAVING;
    if (!trained)
        return;
    sg_worker_loss on_loss = s->scenario.on_loss;
    if (on_loss == SG_WORKER_LOSS_WAIT && !s->scenario.async)
        judge_awaited(s, fault);
    if (on_loss == SG_WORKER_LOSS_CONTINUE || (on_loss == SG_WORKER_LOSS_WAIT && s->scenario.async))
        judge_loss(s, fault);
    if (on_loss != SG_WORKER_LOSS_ABORT || (fault->revive_ms > 0 && s->job_status == SG_OK))
        return;
    if (s->job_status != SG_PEER_LOST || !names(s->job_text, "worker", fault->target))
        sim_fail(s, "worker %" PRIu32 " was killed while it trained and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (worker->killed || worker->status == SG_OK || ended_beside_it(worker) ||
            names(worker->text, "worker", fault->target) || names(worker->text, "ps", 0))
            continue;
        sim_fail(s, "worker %" PRIu32 " ended with %s and did not hear of worker %" PRIu32 ": %s", worker->index,
                 sg_status_name(worker->status), fault->target, worker->text);
    }
}

/* Another process has its place: it is told so, or was not before the job was over and hears that, or finds nobody
 * there.
 */
static bool has_lost_its_place(const sim *s, const sim_worker *worker)
{
    bool replaced = false;
    for (uint32_t i = 0; i < s->n_workers; i++)
        replaced |= i != worker->number && s->workers[i].index == worker->index && s->workers[i].status == SG_OK;
    return (worker->status == SG_FENCED && names(worker->text, "worker", worker->index)) ||
           (worker->status == SG_STOPPED && replaced && s->job_ended) ||
           (worker->status == SG_PEER_LOST && strstr(worker->text, "ps ") != NULL && replaced && s->job_ended);
}

/* The life whose hello came last goes on, the other one is told; nobody else notices. */
static void judge_superseded(sim *s, const sim_fault *fault)
{
    uint32_t n_fenced = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        n_fenced += worker->status == SG_FENCED;
        const bool is_past = worker->index == fault->target && has_lost_its_place(s, worker);
        if (worker->status == SG_OK || ended_beside_it(worker) || is_past)
            continue;
        sim_fail(s, "after worker %" PRIu32 " came anew process %" PRIu32 " (worker %" PRIu32 ") ended with %s: %s",
                 fault->target, i, worker->index, sg_status_name(worker->status), worker->text);
    }
    if (n_fenced > 1)
        sim_fail(s, "both lives of worker %" PRIu32 " were fenced", fault->target);
    if (s->job_status != SG_OK)
        sim_fail(s, "after worker %" PRIu32 " came anew the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* The job names it, or a worker that ended because of it. */
static void judge_killed_ps(sim *s, const sim_fault *fault)
{
    if (fault->target == 0 || s->job_status == SG_OK || names(s->job_text, "ps", fault->target))
        return;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        if (names(s->job_text, "worker", worker->index) && names(worker->text, "ps", fault->target))
            return;
    }
    sim_fail(s, "ps %" PRIu32 " was killed and the job ended with %s: %s", fault->target, sg_status_name(s->job_status),
             s->job_text);
}

/* It is as if it had started later, or, where variables were declared before it registered again, the job names it.
 * Where a late word of the old life fenced the new one, nobody comes in its place: ps 0 waits for one, and every worker
 * gives up naming it. */
static void judge_restarted_ps(sim *s, const sim_fault *fault)
{
    if (s->job_ended && s->job_status == SG_OK) {
        judge_calm(s);
    } else if (!s->job_ended) {
        uint32_t n_naming = 0;
        for (uint32_t i = 0; i < s->n_workers; i++)
            n_naming += names(s->workers[i].text, "ps", fault->target) ? 1 : 0;
        if (n_naming == 0)
            sim_fail(s, "ps %" PRIu32 " was started anew, the job waits, and no worker says for whom", fault->target);
    } else if (!names(s->job_text, "ps", fault->target)) {
        sim_fail(s, "ps %" PRIu32 " was started anew and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
    }
}

/* A ps had been told that the job is over and went, while ps 0 vanished on its way out: whoever starts ps 0 again finds
 * nobody. */
static bool was_over(const sim *s, const sim_fault *fault)
{
    for (uint32_t i = 1; i < s->scenario.n_ps; i++) {
        if (fault->target == 0 && s->ps[i].ended && s->ps[i].status == SG_OK)
            return true;
    }
    return false;
}

/* It is as if nothing had been: everybody does its quota, and the job ends well. One that had left, or was about to,
 * and whose last steps were lost with the ps, does not come again. */
static void judge_recovered(sim *s, const sim_fault *fault)
{
    if (s->config->on_worker_loss == SG_WORKER_LOSS_ABORT && s->job_status == SG_PEER_LOST &&
        strstr(s->job_text, "worker ") != NULL)
        return;
    if (was_over(s, fault))
        return;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        /* A coordinator that was started anew does not know who has left; where nobody's steps were saved it waits for
         * as many as at first. */
        bool waited = fault->target == 0 && worker->status == SG_TIMEOUT &&
                      (strstr(worker->text, "waiting for worker ") != NULL || names(worker->text, "ps", 0));
        /* One who joined late and was let go on without: the job was over before it came again. */
        bool missed = s->job_ended && worker->status == SG_PEER_LOST && names(worker->text, "ps", 0);
        if (worker->status != SG_OK && !waited && !missed && !ended_beside_it(worker))
            sim_fail(s, "ps %" PRIu32 " was started anew and worker %" PRIu32 " ended with %s: %s", fault->target,
                     worker->index, sg_status_name(worker->status), worker->text);
    }
    if (s->job_ended && s->job_status != SG_OK)
        sim_fail(s, "ps %" PRIu32 " was started anew and the job ended with %s: %s", fault->target,
                 sg_status_name(s->job_status), s->job_text);
}

/* It is as if nothing had been. Where nothing can be restored one that does not answer for a lease is taken for dead,
 * and ps 0 by others, too: judge_names sees that they say so. */
static void judge_paused_ps(sim *s, const sim_fault *fault)
{
    if (fault->again_ms < s->config->lease_ms / 2)
        judge_calm(s);
    else if (s->scenario.saves)
        judge_recovered(s, fault);
}

static void judge_stopped_ps(sim *s)
{
    if (s->job_ended && s->job_status != SG_OK)
        sim_fail(s, "a ps was told to stop and the job ended with %s: %s", sg_status_name(s->job_status), s->job_text);
}

/* A failure is a failure of somebody: no process ends, or goes on waiting, without a name. */
static void judge_names(sim *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const sim_worker *worker = &s->workers[i];
        bool named = strstr(worker->text, "worker ") != NULL || strstr(worker->text, "ps ") != NULL ||
                     strstr(worker->text, "the job ") != NULL || !worker->joined;
        if (!worker->killed && worker->status != SG_OK && !named)
            sim_fail(s, "worker %" PRIu32 " failed with %s and named nobody: %s", worker->index,
                     sg_status_name(worker->status), worker->text);
    }
    if (s->job_ended && s->job_status != SG_OK && strstr(s->job_text, "worker ") == NULL &&
        strstr(s->job_text, "ps ") == NULL)
        sim_fail(s, "the job failed with %s and named nobody: %s", sg_status_name(s->job_status), s->job_text);
}

/* `wait`: one that went without an answer to its goodbye is lost to the others, and does not come again. */
static bool waits_for_one_that_went(const sim *s)
{
    bool found = false;
    for (uint32_t i = 0; i < s->n_workers; i++)
        found |= s->workers[i].status == SG_OK && s->workers[i].leave_status != SG_OK &&
                 names(s->job_text, "worker", s->workers[i].index);
    return found && s->config->on_worker_loss == SG_WORKER_LOSS_WAIT && s->job_status == SG_PEER_LOST;
}

void sim_scenario_judge(sim *s)
{
    const sim_fault *fault = NULL;
    uint32_t n = n_happened(s, &fault);
    judge_names(s);
    sim_change_judge(s);
    sim_ask_judge(s);
    if (waits_for_one_that_went(s))
        return;
    if (n == 0) {
        judge_calm(s);
        return;
    }
    if (n > 1 || s->n_changed > 0) /* a fault in another mode, or before it */
        return;
    switch (fault->kind) {
    case SIM_FAULT_KILL_WORKER:
        judge_killed_worker(s, fault);
        break;
    case SIM_FAULT_SUPERSEDE:
        judge_superseded(s, fault);
        break;
    case SIM_FAULT_KILL_PS:
        judge_killed_ps(s, fault);
        break;
    case SIM_FAULT_STOP_PS:
        judge_stopped_ps(s);
        break;
    case SIM_FAULT_RESTART_PS:
        judge_restarted_ps(s, fault);
        break;
    case SIM_FAULT_RECOVER_PS:
        judge_recovered(s, fault);
        break;
    case SIM_FAULT_PAUSE_PS:
        judge_paused_ps(s, fault);
        break;
    case SIM_N_FAULTS:
        break;
    }
}
