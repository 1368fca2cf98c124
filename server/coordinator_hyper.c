/* server/coordinator_hyper.c - sets of hyper-parameters: the cluster file's is number 1, and each change of a running
 * job makes another. A set is ordered to every ps, and is in force when all have acknowledged it: steps that are frozen
 * from then on name it, so that a ps never gets a step whose set it does not know. Learning rates travel with the
 * steps. */
#include <stdlib.h>

#include "server/coordinator_change.h"
#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"

#define MAX_VALUE_BYTES 64u /* of what is set: numbers, and names of modes and rules */

static void add(sg_coordinator *c, uint64_t request, const sg_config *config, sg_config *owned)
{
    SG_ASSERT(config != NULL);
    c->hypers = sg_xrealloc(c->hypers, c->n_hypers + 1, sizeof *c->hypers);
    c->hypers[c->n_hypers++] = (sg_coordinator_hyper){.request = request, .config = config, .owned = owned};
}

void sg_coordinator_hyper_append(sg_coordinator *c, const sg_coordinator_hyper *take)
{
    add(c, 0, take->config, NULL);
    c->hypers[c->n_hypers - 1] = *take;
    c->in_force = c->n_hypers;
}

void sg_coordinator_hyper_free(sg_coordinator_hyper *hyper)
{
    sg_checkpoint_changes_free(hyper->changes, hyper->n_changes);
    sg_config_destroy(hyper->owned);
    free(hyper->steps);
    *hyper = (sg_coordinator_hyper){0};
}

void sg_coordinator_hyper_init(sg_coordinator *c)
{
    add(c, 0, c->config, NULL);
    c->in_force = 1;
}

void sg_coordinator_hyper_deinit(sg_coordinator *c)
{
    for (uint64_t i = 0; i < c->n_hypers; i++)
        sg_coordinator_hyper_free(&c->hypers[i]);
    free(c->hypers);
}

static void note_change(sg_coordinator_hyper *hyper, const char *key, const char *value)
{
    uint32_t i = 0;
    while (i < hyper->n_changes && strcmp(hyper->changes[i].key, key) != 0)
        i++;
    if (i == hyper->n_changes) {
        hyper->changes = sg_xrealloc(hyper->changes, ++hyper->n_changes, sizeof *hyper->changes);
        hyper->changes[i] = (sg_checkpoint_change){.key = sg_xstrdup(key)};
    }
    free(hyper->changes[i].value);
    hyper->changes[i].value = sg_xstrdup(value);
}

static void note_changes(sg_coordinator_hyper *hyper, const sg_checkpoint_change *changes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        note_change(hyper, changes[i].key, changes[i].value);
}

sg_status sg_coordinator_hyper_restore(sg_coordinator *c, const sg_checkpoint_manifest *manifest, sg_error *err)
{
    sg_config_override overrides[SG_CHECKPOINT_MAX_CHANGES];
    sg_config *changed = NULL;
    if (manifest->n_changes == 0 || c->n_hypers > 1) /* what was changed since stays so */
        return SG_OK;
    for (uint32_t i = 0; i < manifest->n_changes; i++)
        overrides[i] = (sg_config_override){
            .key = manifest->changes[i].key, .value = manifest->changes[i].value, .source = manifest->changes[i].key};
    sg_status status = sg_config_change(c->hypers[0].config, overrides, manifest->n_changes, &changed, err);
    if (status != SG_OK)
        return sg_error_prefix(err, status, "what was set before the checkpoint was made");
    add(c, 0, changed, changed);
    note_changes(&c->hypers[c->n_hypers - 1], manifest->changes, manifest->n_changes);
    for (uint32_t i = 0; i < manifest->n_changes; i++) /* from what, nobody knows any more */
        c->hypers[c->n_hypers - 1].other_rule |= strcmp(manifest->changes[i].key, "update.rule") == 0;
    c->in_force = c->n_hypers;
    for (uint32_t i = 0; i < manifest->n_changes; i++)
        sg_coordinator_log(c, SG_LOG_INFO, "set_again", "hyper=%" PRIu64 " key=%s value=%s", c->n_hypers,
                           manifest->changes[i].key, manifest->changes[i].value);
    return SG_OK;
}

bool sg_coordinator_hyper_is_in(const sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    const sg_coordinator_hyper *hyper = &c->hypers[c->in_force - 1];
    bool same = hyper->n_changes == manifest->n_changes;
    for (uint32_t i = 0; i < hyper->n_changes && same; i++) { /* keys never go, and new ones come at the end */
        same = strcmp(hyper->changes[i].key, manifest->changes[i].key) == 0 &&
               strcmp(hyper->changes[i].value, manifest->changes[i].value) == 0;
    }
    return same;
}

const sg_config *sg_coordinator_hyper_config(const sg_coordinator *c)
{
    return c->hypers[c->in_force - 1].config;
}

static void order(sg_coordinator *c, uint32_t ps, uint64_t number)
{
    const sg_config *config = c->hypers[number - 1].config;
    Shardgrad__V1__Hyper hyper = SHARDGRAD__V1__HYPER__INIT;
    hyper.number = number;
    hyper.momentum = (float)config->update.momentum;
    hyper.beta1 = (float)config->update.beta1;
    hyper.beta2 = (float)config->update.beta2;
    hyper.epsilon = (float)config->update.epsilon;
    hyper.weight_decay = (float)config->update.weight_decay;
    hyper.clip_global_norm = (float)config->update.clip_global_norm;
    hyper.trust = (float)config->update.trust;
    Shardgrad__V1__OrderRequest body = SHARDGRAD__V1__ORDER_REQUEST__INIT;
    body.order_case = SHARDGRAD__V1__ORDER_REQUEST__ORDER_HYPER;
    body.hyper = &hyper;
    sg_coordinator_order(c, ps, &body.base);
}

void sg_coordinator_hyper_order(sg_coordinator *c, uint32_t ps)
{
    c->ps[ps].hyper = 0;
    for (uint64_t number = c->in_force; number <= c->n_hypers; number++)
        order(c, ps, number);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

/* As in a file: which of the two was meant, nobody knows. */
static sg_status check_once(const sg_config_override *overrides, size_t n, sg_error *err)
{
    for (size_t i = 1; i < n; i++)
        for (size_t j = 0; j < i; j++)
            if (strcmp(overrides[i].key, overrides[j].key) == 0)
                return sg_error_set(err, SG_CONFIG,
                                    "%.80s: is here a second time, first with the value '%.80s': remove one",
                                    overrides[i].key, overrides[j].value);
    return SG_OK;
}

/* They are kept as long as the job runs. */
static sg_status check_lengths(const sg_config_override *overrides, size_t n, sg_error *err)
{
    for (size_t i = 0; i < n; i++) {
        const size_t n_bytes = strlen(overrides[i].value);
        if (n_bytes > MAX_VALUE_BYTES)
            return sg_error_set(err, SG_CONFIG, "%.80s: the value has %zu bytes, at most %u are allowed",
                                overrides[i].key, n_bytes, MAX_VALUE_BYTES);
    }
    return SG_OK;
}

/* Errors: INVALID, CONFIG, EXHAUSTED. */
static sg_status change(const sg_coordinator *c, const Shardgrad__V1__SetRequest *request, sg_config **changed,
                        sg_error *err)
{
    if (request->request == 0)
        return sg_error_set(err, SG_INVALID, "request 0, wanted a random number");
    if (request->n_settings == 0 || request->n_settings > SG_COORDINATOR_MAX_CHANGES)
        return sg_error_set(err, SG_INVALID, "%zu settings to change, wanted 1 to %u", request->n_settings,
                            SG_COORDINATOR_MAX_CHANGES);
    if (c->n_hypers >= SG_COORDINATOR_MAX_HYPERS)
        return sg_error_set(err, SG_EXHAUSTED, "hyper-parameters were changed %u times, which is all that a job keeps",
                            SG_COORDINATOR_MAX_HYPERS);
    sg_config_override overrides[SG_COORDINATOR_MAX_CHANGES];
    for (size_t i = 0; i < request->n_settings; i++)
        overrides[i] = (sg_config_override){.key = sg_coordinator_text(request->settings[i]->key),
                                            .value = sg_coordinator_text(request->settings[i]->value),
                                            .source = sg_coordinator_text(request->settings[i]->key)};
    sg_status status = check_lengths(overrides, request->n_settings, err);
    if (status == SG_OK)
        status = check_once(overrides, request->n_settings, err);
    if (status == SG_OK)
        status = sg_config_change(c->hypers[c->n_hypers - 1].config, overrides, request->n_settings, changed, err);
    return status == SG_OK ? sg_coordinator_norms_check(c, *changed, err) : status;
}

/* The number of the set that this request made; 0: none yet. What a job was restored with no request made, and has 0.
 */
static uint64_t find(const sg_coordinator *c, uint64_t request)
{
    for (uint64_t number = request == 0 ? 0 : c->n_hypers; number > 1; number--) {
        if (c->hypers[number - 1].request == request)
            return number;
    }
    return 0;
}

static void log_change(sg_coordinator *c, uint64_t number, const Shardgrad__V1__SetRequest *request)
{
    for (size_t i = 0; i < request->n_settings; i++) {
        char *key = sg_coordinator_clean(request->settings[i]->key);
        char *value = sg_coordinator_clean(request->settings[i]->value);
        sg_coordinator_log(c, SG_LOG_INFO, "set", "hyper=%" PRIu64 " key=%s value=%s", number, key, value);
        free(key);
        free(value);
    }
}

/* All that differs from the cluster file, with what the request asks for. */
static sg_coordinator_hyper make(const sg_coordinator *c, const Shardgrad__V1__SetRequest *request, sg_config *take)
{
    const sg_coordinator_hyper *newest = &c->hypers[c->n_hypers - 1];
    sg_coordinator_hyper made = {
        .request = request->request,
        .config = take,
        .owned = take,
        .other_rule = newest->other_rule || newest->config->update.rule != take->update.rule,
    };
    note_changes(&made, newest->changes, newest->n_changes);
    for (size_t i = 0; i < request->n_settings; i++)
        note_change(&made, sg_coordinator_text(request->settings[i]->key),
                    sg_coordinator_text(request->settings[i]->value));
    return made;
}

static uint64_t begin(sg_coordinator *c, const Shardgrad__V1__SetRequest *request, sg_config *take)
{
    SG_ASSERT(take != NULL);
    const bool renews = sg_coordinator_change_needed(c->config, take);
    const sg_coordinator_hyper made = make(c, request, take);
    log_change(c, c->n_hypers + 1, request);
    if (renews)
        return sg_coordinator_change_begin(c, &made);
    add(c, 0, take, NULL);
    c->hypers[c->n_hypers - 1] = made;
    for (uint32_t ps = 0; ps < c->n_ps; ps++)
        order(c, ps, c->n_hypers);
    return c->n_hypers;
}

/* False: the call was failed. */
static bool may_begin(sg_coordinator *c, const Shardgrad__V1__SetRequest *request, void *call, sg_config **changed)
{
    sg_error err;
    if (!sg_coordinator_takes(c, call, c->n_workers) || sg_coordinator_orders_refuse(c, call))
        return false; /* what is restored comes first */
    if (sg_coordinator_change_under_way(c)) {
        sg_coordinator_fail(c, call, SG_WAITING, "the mode or rule of the job is being changed: ask again");
        return false;
    }
    *changed = NULL;
    if (c->drain.on) { /* the last checkpoint would lack it; if the job goes on all the same, it is asked for anew */
        sg_status status = sg_error_set(&err, SG_STOPPED, "the job is about to end: nothing is changed any more");
        sg_coordinator_change_remember(c, request->request, status, err.message);
        sg_coordinator_fail_error(c, call, &err);
        return false;
    }
    if (change(c, request, changed, &err) != SG_OK || (sg_coordinator_change_needed(c->config, *changed) &&
                                                       sg_coordinator_change_check(c, *changed, &err) != SG_OK)) {
        sg_config_destroy(*changed);
        sg_coordinator_fail_error(c, call, &err);
        return false;
    }
    return true;
}

void sg_coordinator_hyper_set(sg_coordinator *c, const Shardgrad__V1__SetRequest *request, void *call)
{
    if (!sg_coordinator_is_meant(c, call, request->job) ||
        sg_coordinator_change_answer_repeat(c, request->request, call))
        return;
    sg_config *changed;
    uint64_t number = find(c, request->request);
    if (number == 0)
        number = sg_coordinator_change_find(c, request->request);
    if (number == 0 && c->over) {
        sg_coordinator_fail(c, call, c->end_status, "%s; nothing is changed", c->end_text);
        return;
    }
    if (number == 0 && !may_begin(c, request, call, &changed))
        return;
    if (number == 0)
        number = begin(c, request, changed);
    sg_coordinator_park(
        c, &(sg_coordinator_parked){.kind = SG_COORDINATOR_PARKED_SET, .call = call, .worker = 0, .hyper = number});
}

/* The job has ended before it was in force. */
static void fail_ended(sg_coordinator *c, const sg_coordinator_parked *call)
{
    const bool is_open = sg_coordinator_change_begins(c);
    sg_coordinator_fail(c, call->call, c->end_status, "%s; %s", c->end_text,
                        is_open ? "its change was being recorded: when the job is started again, shardgrad status says "
                                  "whether it holds"
                                : "nothing is changed");
}

bool sg_coordinator_hyper_answer(sg_coordinator *c, const sg_coordinator_parked *call)
{
    if (c->over && call->hyper > c->in_force) {
        fail_ended(c, call);
        return true;
    }
    if (call->hyper > c->in_force || (sg_coordinator_generation_recovers(c) && !c->over))
        return false;
    const sg_coordinator_hyper *hyper = &c->hypers[call->hyper - 1];
    Shardgrad__V1__SetResponse response = SHARDGRAD__V1__SET_RESPONSE__INIT;
    response.number = call->hyper;
    response.steps = hyper->steps;
    response.n_steps = hyper->n_steps;
    response.generation = hyper->generation;
    response.iteration = hyper->iteration;
    response.fresh_slots = hyper->fresh_slots;
    response.unsaved = !sg_coordinator_save_due(c);
    sg_coordinator_reply(c, call->call, &response.base);
    return true;
}

/* Steps that were handed out have an earlier one. */
static void note_steps(const sg_coordinator *c, sg_coordinator_hyper *hyper)
{
    hyper->n_steps = c->n_groups;
    hyper->steps = sg_xcalloc(c->n_groups, sizeof *hyper->steps);
    for (uint32_t group = 0; group < c->n_groups; group++)
        hyper->steps[group] = c->groups[group].next_step;
}

void sg_coordinator_hyper_note(sg_coordinator *c)
{
    for (uint64_t i = 0; i < c->in_force; i++) {
        if (c->hypers[i].steps == NULL)
            note_steps(c, &c->hypers[i]);
    }
}

void sg_coordinator_hyper_go_back(sg_coordinator *c)
{
    for (uint64_t i = 0; i < c->in_force; i++) {
        sg_coordinator_hyper *hyper = &c->hypers[i];
        for (uint32_t group = 0; group < c->n_groups && group < hyper->n_steps; group++) {
            if (hyper->steps[group] > c->groups[group].next_step)
                hyper->steps[group] = c->groups[group].next_step;
        }
    }
}

bool sg_coordinator_hyper_advance(sg_coordinator *c)
{
    uint64_t lowest = c->n_hypers;
    for (uint32_t i = 0; i < c->n_ps; i++)
        lowest = c->ps[i].hyper < lowest ? c->ps[i].hyper : lowest;
    if (lowest <= c->in_force)
        return false;
    while (c->in_force < lowest)
        note_steps(c, &c->hypers[c->in_force++]);
    return true;
}
