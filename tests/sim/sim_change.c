/* tests/sim/sim_change.c - an admin who changes mode or rule while the job trains, and what must hold of it: nothing
 * that was counted is lost with the change, no generation has a mode that nobody asked for, and what a generation was
 * recorded with holds for every one that follows, answered or not, whatever is lost and started anew. */
#include <inttypes.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "kernels/update_norms.h"
#include "tests/sim/sim.h"

#define ANSWER_MS   2000u
#define RETRY_MS    50u
#define PATIENCE_MS 60000u
#define OWN_SEED    UINT64_C(0x2fa5e52fa5e52fa5)

/* --- what a seed means ------------------------------------------------------------------------------------------ */

/* In sync, one that takes norms. Where a job has any at any time every change says all that there is of rules: async
 * knows no norms. From numbers of its own, so that the rest of a history does not depend on it. */
static void choose_norms(sim *s)
{
    sg_seed seed = {.first = s->seed_number, .state = s->seed_number ^ OWN_SEED};
    sim_scenario *scenario = &s->scenario;
    bool any = scenario->clip > 0 || scenario->rule != SG_RULE_SGD;
    for (uint32_t i = 0; i < scenario->n_changes; i++) {
        sim_change *change = &scenario->changes[i];
        const uint64_t what = sg_seed_below(&seed, 10);
        if (change->mode != SG_MODE_SYNC)
            continue;
        if (what < 4)
            change->rule = what < 2 ? SG_RULE_LARS : SG_RULE_LAMB;
        if (what < 6 && change->rule != SG_RULE_LAMB && sg_seed_below(&seed, 2) == 0)
            change->clip = 1000 + 1000 * (float)i;
        any = any || change->clip > 0 || sg_update_scales_variables(change->rule);
    }
    for (uint32_t i = 0; i < scenario->n_changes && any; i++)
        scenario->changes[i].names_rule = scenario->changes[i].names_clip = true;
}

void sim_change_choose(sim *s)
{
    sim_scenario *scenario = &s->scenario;
    if (!scenario->saves || !sim_chance(s, 400))
        return;
    scenario->n_changes = 1 + sim_chance(s, 300);
    for (uint32_t i = 0; i < scenario->n_changes; i++) {
        scenario->changes[i] = (sim_change){.at_ms = sim_below(s, 2500),
                                            .request = 1 + i,
                                            .mode = (sg_mode)(SG_MODE_SYNC + sim_below(s, 3)),
                                            .staleness = sim_below(s, 4),
                                            .backup = (uint32_t)sim_below(s, 2),
                                            .names_rule = sim_chance(s, 300)};
        /* Without a momentum it does what sgd does. */
        scenario->changes[i].rule = scenario->changes[i].names_rule ? SG_RULE_MOMENTUM : SG_RULE_SGD;
    }
    choose_norms(s);
}

/* Of what the oracle knows: what the coordinator does not do it must refuse. */
static bool may_be_refused(const sim *s, const sim_change *change)
{
    const sim_scenario *scenario = &s->scenario;
    return (change->mode == SG_MODE_SYNC && change->backup >= scenario->n_workers) ||
           (change->mode != SG_MODE_SYNC && scenario->on_loss == SG_WORKER_LOSS_WAIT) ||
           (change->mode == SG_MODE_SSP && scenario->n_groups > 1 && scenario->every > 1);
}

/* --- the admin -------------------------------------------------------------------------------------------------- */

static void add(Shardgrad__V1__SetRequest *request, Shardgrad__V1__Setting *setting, const char *key, const char *value)
{
    shardgrad__v1__setting__init(setting);
    setting->key = (char *)key;
    setting->value = (char *)value;
    request->settings[request->n_settings++] = setting;
}

static void on_change(sim *s, const sim_event *event)
{
    static const char *const modes[] = {[SG_MODE_SYNC] = "sync", [SG_MODE_ASYNC] = "async", [SG_MODE_SSP] = "ssp"};
    sim_change *change = event->subject;
    Shardgrad__V1__Setting items[5], *list[5];
    Shardgrad__V1__SetRequest request = SHARDGRAD__V1__SET_REQUEST__INIT;
    char staleness[8], backup[8], momentum[16], clip[16];
    if (s->job_ended || (change->sent && s->now_ms > change->at_ms + PATIENCE_MS))
        return;
    change->sent = true;
    snprintf(staleness, sizeof staleness, "%" PRIu64, change->staleness);
    snprintf(backup, sizeof backup, "%" PRIu32, change->backup);
    snprintf(momentum, sizeof momentum, "%g", change->rule == SG_RULE_LARS ? (double)SIM_MOMENTUM : 0);
    snprintf(clip, sizeof clip, "%.0f", (double)change->clip);
    request.request = change->request;
    request.settings = list;
    add(&request, &items[0], "update.mode", modes[change->mode]);
    if (change->mode == SG_MODE_SSP)
        add(&request, &items[1], "update.staleness", staleness);
    if (change->mode == SG_MODE_SYNC)
        add(&request, &items[1], "update.backup_workers", backup);
    if (change->names_rule) {
        add(&request, &items[2], "update.rule", sg_rule_name(change->rule));
        add(&request, &items[3], "update.momentum", momentum);
    }
    if (change->names_clip)
        add(&request, &items[4], "update.clip_global_norm", clip);
    sim_call call = {.sender = SIM_FROM_ADMIN,
                     .from = (uint32_t)(change - s->scenario.changes),
                     .to_coordinator = true,
                     .body = sg_wire_head_copy(&request.base)};
    sim_send(s, &call, ANSWER_MS);
}

void sim_change_schedule(sim *s)
{
    for (uint32_t i = 0; i < s->scenario.n_changes; i++)
        sim_at(s, s->scenario.changes[i].at_ms, on_change, &s->scenario.changes[i], 0);
}

static bool is_asked_again(sg_status status)
{
    return status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_WAITING || status == SG_NOT_READY;
}

void sim_change_answered(sim *s, const sim_call *call, sg_status status, const char *text,
                         const ProtobufCMessage *reply)
{
    sim_change *change = &s->scenario.changes[call->from];
    sim_trace(s, "change %" PRIu32 ": %s %s", call->from, sg_status_name(status), text);
    if (is_asked_again(status)) {
        sim_at(s, s->now_ms + RETRY_MS, on_change, change, 0);
        return;
    }
    change->answered = true;
    change->status = status;
    change->over = strstr(text, "; nothing is changed") != NULL;
    if (status == SG_OK && ((const Shardgrad__V1__SetResponse *)reply)->generation > s->generation)
        sim_fail(s, "a change is said to be in force in a generation that has not begun");
    if (status == SG_CONFIG && !may_be_refused(s, change))
        sim_fail(s, "a change was refused: %s", text);
}

/* --- what must hold --------------------------------------------------------------------------------------------- */

static void check_kept(sim *s, uint32_t slice, const sg_checkpoint_manifest *manifest, const sim_set *set)
{
    const uint32_t group = s->plan->slices[slice].group;
    if (s->plan->slices[slice].variable == SIM_FROZEN_VARIABLE)
        return;
    if (s->scenario.async && s->slices[slice].n_counted != set->steps[slice])
        sim_fail(s, "a change took %" PRIu64 " contributions to slice %" PRIu32 ", which has %" PRIu64 " of them",
                 s->slices[slice].n_counted, slice, set->steps[slice]);
    for (uint64_t step = manifest->steps[group]; step < SIM_MAX_STEPS && !s->scenario.async; step++) {
        const sim_step_record *record = &s->steps[group][step];
        for (uint32_t i = 0; i < record->n_contributions; i++) {
            if ((record->contributions[i].counted >> slice & 1) != 0)
                sim_fail(s, "a change lost what worker %" PRIu32 " pushed of slice %" PRIu32 ", step %" PRIu64,
                         record->contributions[i].index, slice, step);
        }
    }
}

void sim_change_begins(sim *s, const sg_checkpoint_manifest *manifest, const sim_set *set)
{
    s->n_changed++;
    for (uint32_t slice = 0; slice < s->plan->n_slices; slice++)
        check_kept(s, slice, manifest, set);
}

static bool is_asked_for(const sim *s, sg_mode mode, sg_rule rule)
{
    for (uint32_t i = 0; i < s->scenario.n_changes; i++) {
        const sim_change *change = &s->scenario.changes[i];
        const sg_rule its = change->names_rule ? change->rule : s->settled_rule;
        if (change->sent && !change->answered && change->mode == mode && its == rule)
            return true;
    }
    return mode == s->settled_mode && rule == s->settled_rule;
}

void sim_change_clips(sim *s, float clip)
{
    const float file = (float)s->config->update.clip_global_norm;
    bool asked = memcmp(&file, &clip, sizeof clip) == 0;
    for (uint32_t i = 0; i < s->scenario.n_changes; i++) {
        const sim_change *change = &s->scenario.changes[i];
        asked = asked || (change->sent && change->names_clip && memcmp(&change->clip, &clip, sizeof clip) == 0);
    }
    if (!asked)
        sim_fail(s, "a ps is to clip at norm %g, which nobody asked for", (double)clip);
}

void sim_change_entered(sim *s, const sg_config *config)
{
    sim_scenario *scenario = &s->scenario;
    const sg_mode mode = config->update.mode;
    if (!is_asked_for(s, mode, config->update.rule))
        sim_fail(s, "generation %" PRIu64 " has mode %s and rule %s, which nobody asked for", s->generation,
                 sg_mode_name(mode), sg_rule_name(config->update.rule));
    if (config->update.rule != s->settled_rule) {
        s->n_to_norms += sg_update_scales_variables(config->update.rule);
        s->n_from_norms += sg_update_scales_variables(s->settled_rule);
    }
    s->was_sync = s->was_sync || mode == SG_MODE_SYNC;
    s->settled_mode = mode; /* whether its change was answered or not */
    scenario->rule = s->settled_rule = config->update.rule;
    scenario->async = mode != SG_MODE_SYNC;
    scenario->ssp = mode == SG_MODE_SSP;
    scenario->staleness = scenario->ssp ? config->update.staleness : 0;
    scenario->backup = scenario->async ? 0 : (uint32_t)config->update.backup_workers;
}

/* Nobody is left without an answer. */
void sim_change_judge(sim *s)
{
    for (uint32_t i = 0; i < s->scenario.n_changes; i++) {
        const sim_change *change = &s->scenario.changes[i];
        const bool ended = change->over || (s->job_ended && change->status == s->job_status);
        /* Of several groups of an async job it may find no moment in which nobody is at anything. */
        const bool may_fail = change->status == SG_PEER_LOST && s->scenario.n_groups > 1;
        if (change->answered && !ended && !may_fail && change->status != SG_OK && change->status != SG_CONFIG &&
            change->status != SG_STOPPED && (change->status != SG_EXHAUSTED || s->scenario.disk_full_per_mille == 0))
            sim_fail(s, "a change ended with %s", sg_status_name(change->status));
        if (change->sent && !change->answered && s->now_ms > change->at_ms + PATIENCE_MS)
            sim_fail(s, "a change was not answered for %u ms", PATIENCE_MS);
    }
}
