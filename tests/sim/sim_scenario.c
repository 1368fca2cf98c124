/* tests/sim/sim_scenario.c - what a seed means. */
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
            "momentum: %g, trust: 0.5, clip_global_norm: %.0f, wire: %s}\n",
            scenario->ssp     ? "ssp"
            : scenario->async ? "async"
                              : "sync",
            scenario->staleness, scenario->backup, sg_rule_name(scenario->rule),
            scenario->rule == SG_RULE_LARS ? (double)SIM_MOMENTUM : 0, (double)scenario->clip,
            scenario->narrow ? "bf16" : "float32");
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
    const bool may = !scenario->async;
    scenario->rule = may && s->seed_number % 7 == 2   ? SG_RULE_LARS
                     : may && s->seed_number % 7 == 5 ? SG_RULE_LAMB
                                                      : SG_RULE_SGD;
    if (may && scenario->rule != SG_RULE_LAMB && s->seed_number % 5 == 3)
        scenario->clip = 1000 + 2000 * (float)(s->seed_number / 5 % 2);
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
    choose_norms(s);
    sim_change_choose(s);
    scenario->narrow = s->seed_number % 6 == 4;
    sim_ask_choose(s);
    choose_config(s);
    s->settled_mode = s->config->update.mode;
    s->settled_rule = s->config->update.rule;
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
