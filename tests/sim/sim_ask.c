/* tests/sim/sim_ask.c - an admin who sets the learning rate and asks for checkpoints, and what must hold of it: steps
 * have the rate of the newest set that was answered, from the very step on that the answer names; a checkpoint that was
 * answered holds all that there was when it was asked for, the rate too, and whatever begins from it goes on with that.
 *
 * What was promised is noted when the coordinator answers, whatever becomes of the answer. Every set has a rate of its
 * own, all of them powers of 2: so a rate tells which one a step has, and async stays exact. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "common/wire.h"
#include "server/coordinator_internal.h"
#include "tests/sim/sim.h"

#define ANSWER_MS   2000u
#define RETRY_MS    50u
#define PATIENCE_MS 60000u
#define OWN_SEED    UINT64_C(0x5a7e5a7e5a7e5a7e)

static const char *const rates[SIM_MAX_SETTERS] = {"0.5", "2", "0.25"};

/* The one that set this rate; NULL: it is the cluster file's. */
static sim_ask *setter_of(sim *s, const char *what, float rate)
{
    for (uint32_t i = 0; i < SG_ARRAY_LEN(rates); i++) {
        const float its = strtof(rates[i], NULL);
        sim_ask *ask = &s->scenario.asks[i];
        if (memcmp(&its, &rate, sizeof rate) == 0 && ask->sent && !ask->saves)
            return ask;
    }
    if (rate < 1 || rate > 1)
        sim_fail(s, "%s has learning rate %g, which nobody asked for", what, (double)rate);
    return NULL;
}

static bool is_later(const sim_ask *a, const sim_ask *b)
{
    return a->life != b->life ? a->life > b->life : a->number > b->number;
}

/* Can `has` be in force where `promised` was promised to be? One of which nothing was said yet may be later. */
static bool may_follow(const sim_ask *has, const sim_ask *promised)
{
    return has == promised || (has != NULL && (!has->promised || is_later(has, promised)));
}

/* --- what a seed means ------------------------------------------------------------------------------------------ */

/* From numbers of its own, so that the rest of a history does not depend on whether there is such an admin. */
void sim_ask_choose(sim *s)
{
    sg_seed seed = {.first = s->seed_number, .state = s->seed_number ^ OWN_SEED};
    sim_scenario *scenario = &s->scenario;
    if (sg_seed_below(&seed, 10) >= 4)
        return;
    scenario->n_asks = 1 + (uint32_t)sg_seed_below(&seed, SIM_MAX_SETTERS);
    for (uint32_t i = 0; i < scenario->n_asks; i++)
        scenario->asks[i] = (sim_ask){.at_ms = sg_seed_below(&seed, 2500),
                                      .saves = sg_seed_below(&seed, 2) == 0,
                                      .then_saves = sg_seed_below(&seed, 2) == 0,
                                      .request = 100 + i};
}

/* --- the admin -------------------------------------------------------------------------------------------------- */

/* The newest version of it to which somebody contributed: steps from which all are excused leave nothing to be saved.
 */
static uint64_t newest_made(const sim *s, uint32_t slice)
{
    const sim_slice_record *record = &s->slices[slice];
    uint64_t version = record->seen && record->newest <= SIM_MAX_STEPS ? record->newest : 0;
    for (; !s->scenario.async && version > 0; version--) {
        const sim_step_record *made_by = &s->steps[s->plan->slices[slice].group][version - 1];
        for (uint32_t i = 0; i < made_by->n_contributions; i++) {
            if (made_by->contributions[i].counted >> slice & 1)
                return version;
        }
    }
    return version;
}

static void note_what_there_is(const sim *s, sim_ask *ask)
{
    ask->asked_ms = s->now_ms;
    ask->asked_generation = s->generation;
    for (uint32_t i = 0; s->plan != NULL && i < s->plan->n_slices; i++)
        ask->steps[i] = newest_made(s, i);
}

static void send(sim *s, uint32_t number, const ProtobufCMessage *body)
{
    sim_send(s,
             &(sim_call){.sender = SIM_FROM_ADMIN,
                         .from = SIM_MAX_CHANGES + number,
                         .to_coordinator = true,
                         .body = sg_wire_head_copy(body)},
             ANSWER_MS);
}

static void send_save(sim *s, const sim_ask *ask, uint32_t number)
{
    Shardgrad__V1__SaveRequest request = SHARDGRAD__V1__SAVE_REQUEST__INIT;
    request.id = ask->request;
    send(s, number, &request.base);
}

static void send_set(sim *s, const sim_ask *ask, uint32_t number)
{
    Shardgrad__V1__Setting setting = SHARDGRAD__V1__SETTING__INIT, *list[] = {&setting};
    Shardgrad__V1__SetRequest request = SHARDGRAD__V1__SET_REQUEST__INIT;
    setting.key = (char *)"update.learning_rate";
    setting.value = (char *)rates[number];
    request.request = ask->request;
    request.settings = list;
    request.n_settings = 1;
    send(s, number, &request.base);
}

static void on_ask(sim *s, const sim_event *event)
{
    sim_ask *ask = event->subject;
    const uint32_t number = (uint32_t)(ask - s->scenario.asks);
    if (s->job_ended || (ask->sent && s->now_ms > ask->at_ms + PATIENCE_MS))
        return;
    if (!ask->sent)
        note_what_there_is(s, ask);
    ask->sent = true;
    if (ask->saves)
        send_save(s, ask, number);
    else
        send_set(s, ask, number);
}

void sim_ask_schedule(sim *s)
{
    for (uint32_t i = 0; i < s->scenario.n_asks; i++)
        sim_at(s, s->scenario.asks[i].at_ms, on_ask, &s->scenario.asks[i], 0);
}

void sim_ask_answered(sim *s, const sim_call *call, sg_status status, const char *text)
{
    sim_ask *ask = &s->scenario.asks[call->from - SIM_MAX_CHANGES];
    sim_trace(s, "%s %" PRIu64 ": %s %s", ask->saves ? "save" : "set", ask->request, sg_status_name(status), text);
    if (status == SG_UNAVAILABLE || status == SG_TIMEOUT || status == SG_WAITING || status == SG_NOT_READY) {
        sim_at(s, s->now_ms + RETRY_MS, on_ask, ask, 0);
        return;
    }
    ask->answered = true;
    ask->status = status;
    ask->over = strstr(text, "the job is over") != NULL || strstr(text, "the job ends") != NULL ||
                strstr(text, "was told to stop") != NULL;
    if (status != SG_OK || !ask->then_saves || s->scenario.n_asks == SIM_MAX_ASKS)
        return;
    sim_ask *next = &s->scenario.asks[s->scenario.n_asks++];
    *next = (sim_ask){.at_ms = s->now_ms, .saves = true, .request = 2 * ask->request};
    sim_at(s, s->now_ms, on_ask, next, 0);
}

/* --- what must hold --------------------------------------------------------------------------------------------- */

static bool is_of_now(const sim *s, const sim_step_record *record)
{
    for (uint32_t i = 0; i < SIM_MAX_INDICES; i++) {
        if (record->incarnations[i] != 0)
            return record->incarnations[i] >> 32 == s->generation;
    }
    return false;
}

void sim_ask_step(sim *s, uint32_t group, uint64_t step)
{
    const sim_step_record *record = &s->steps[group][step];
    const sim_ask *has = setter_of(s, "a step", record->learning_rate);
    for (uint32_t i = 0; i < s->scenario.n_asks; i++) {
        const sim_ask *promised = &s->scenario.asks[i];
        if (!promised->promised)
            continue;
        if (step >= promised->first[group] && !may_follow(has, promised))
            sim_fail(s,
                     "group %" PRIu32 ", step %" PRIu64 " has learning rate %g, and step %" PRIu64
                     " was to be the first with %s",
                     group, step, (double)record->learning_rate, promised->first[group], rates[i]);
        if (step < promised->first[group] && has != NULL && has->promised &&
            (has == promised || is_later(has, promised)))
            sim_fail(s, "group %" PRIu32 ", step %" PRIu64 " has learning rate %g already, before step %" PRIu64, group,
                     step, (double)record->learning_rate, promised->first[group]);
    }
}

static void promise_set(sim *s, sim_ask *ask, const Shardgrad__V1__SetResponse *response)
{
    if (ask->promised && ask->life == s->ps[0].life)
        return; /* it is said again */
    s->n_promised++;
    ask->promised = true;
    ask->promised_ms = s->now_ms;
    ask->life = s->ps[0].life;
    ask->number = response->number;
    for (uint32_t group = 0; group < SIM_MAX_GROUPS; group++)
        ask->first[group] = group < response->n_steps ? response->steps[group] : 0;
    for (uint32_t group = 0; group < s->scenario.n_groups; group++) {
        for (uint64_t step = 0; step < SIM_MAX_STEPS; step++) {
            if (s->steps[group][step].handed_out && is_of_now(s, &s->steps[group][step]))
                sim_ask_step(s, group, step);
        }
    }
}

static sim_ask *setter_in(sim *s, const sg_checkpoint_manifest *manifest)
{
    for (uint32_t i = 0; i < manifest->n_changes; i++) {
        if (strcmp(manifest->changes[i].key, "update.learning_rate") == 0)
            return setter_of(s, "a checkpoint", strtof(manifest->changes[i].value, NULL));
    }
    return NULL;
}

static void promise_save(sim *s, const sim_ask *ask, const Shardgrad__V1__SaveResponse *response)
{
    if (!s->has_set || response->iteration > s->set_iteration) {
        sim_fail(s, "a save was answered with checkpoint %" PRIu64 ", which is not complete", response->iteration);
        return;
    }
    const sim_ask *has = setter_in(s, &s->newest_manifest);
    s->n_saved++;
    for (uint32_t i = 0; i < s->scenario.n_asks; i++) {
        const sim_ask *set = &s->scenario.asks[i];
        if (set->promised && set->promised_ms <= ask->asked_ms && !may_follow(has, set))
            sim_fail(s, "checkpoint %" PRIu64 " was asked for when learning rate %s was in force, and does not have it",
                     s->set_iteration, rates[i]);
    }
    /* What async wrote has the number of its step in sync, whether that was pushed or not. */
    const bool leveled = !s->scenario.async && strcmp(s->newest_manifest.mode, "sync") != 0;
    for (uint32_t slice = 0; slice < s->plan->n_slices && ask->asked_generation == s->generation; slice++) {
        const uint64_t step = s->newest_manifest.steps[s->plan->slices[slice].group];
        if ((leveled ? step : s->newest_set->steps[slice]) < ask->steps[slice])
            sim_fail(s,
                     "checkpoint %" PRIu64 " has version %" PRIu64 " of slice %" PRIu32
                     ", and was asked for when there was version %" PRIu64,
                     s->set_iteration, s->newest_set->steps[slice], slice, ask->steps[slice]);
    }
}

void sim_ask_promised(sim *s, const sim_call *call, const ProtobufCMessage *reply)
{
    sim_ask *ask = &s->scenario.asks[call->from - SIM_MAX_CHANGES];
    if (ask->saves)
        promise_save(s, ask, (const Shardgrad__V1__SaveResponse *)reply);
    else
        promise_set(s, ask, (const Shardgrad__V1__SetResponse *)reply);
}

/* A coordinator that goes on remembers what was set; one that was started anew knows what is in the checkpoint. */
void sim_ask_roll_back(sim *s, const sg_checkpoint_manifest *manifest)
{
    const sim_ask *restored = manifest == NULL ? NULL : setter_in(s, manifest);
    for (uint32_t i = 0; i < s->scenario.n_asks; i++) {
        sim_ask *ask = &s->scenario.asks[i];
        if (ask->promised && ask->life != s->ps[0].life) {
            ask->promised = ask == restored;
            ask->life = s->ps[0].life;
            ask->number = 0; /* before all that is set from now on */
        }
        memset(ask->first, 0, sizeof ask->first);
    }
}

void sim_ask_judge(sim *s)
{
    for (uint32_t i = 0; i < s->scenario.n_asks; i++) {
        const sim_ask *ask = &s->scenario.asks[i];
        const char *what = ask->saves ? "save" : "set";
        const bool full = s->scenario.disk_full_per_mille > 0 && ask->saves;
        if (ask->sent && !ask->answered && s->now_ms > ask->at_ms + PATIENCE_MS)
            sim_fail(s, "a %s was not answered for %u ms", what, PATIENCE_MS);
        if (!ask->answered || ask->over || (s->job_ended && ask->status == s->job_status))
            continue;
        if (ask->saves && !s->scenario.saves && ask->status != SG_CONFIG)
            sim_fail(s, "a save of a job that makes no checkpoints ended with %s", sg_status_name(ask->status));
        const bool too_late = !ask->saves && ask->status == SG_STOPPED; /* while the last checkpoint was made */
        if (ask->status != SG_OK && (!ask->saves || s->scenario.saves) && !full && !too_late)
            sim_fail(s, "a %s ended with %s", what, sg_status_name(ask->status));
    }
}
