/* server/coordinator_manifest.c - what is to be known of a checkpoint beside its values. */
#include <stdlib.h>

#include "server/coordinator_internal.h"
#include "server/coordinator_save.h"
#include "server/declared.h"

/* Points into the declaration. */
static sg_checkpoint_variable variable_of(const Shardgrad__V1__Variable *v)
{
    return (sg_checkpoint_variable){.name = v->name,
                                    .shape = v->shape,
                                    .rank = (uint32_t)v->n_shape,
                                    .group = v->group,
                                    .frozen = v->frozen,
                                    .average = v->average,
                                    .lr_multiplier = sg_declared_lr_multiplier(v),
                                    .decay_multiplier = sg_declared_decay_multiplier(v)};
}

static sg_checkpoint_hyper hyper_of(const sg_coordinator *c)
{
    const sg_config *config = c->hypers[c->save.hyper - 1].config;
    return (sg_checkpoint_hyper){.number = c->save.hyper,
                                 .learning_rate = config->update.learning_rate,
                                 .momentum = config->update.momentum,
                                 .beta1 = config->update.beta1,
                                 .beta2 = config->update.beta2,
                                 .epsilon = config->update.epsilon,
                                 .weight_decay = config->update.weight_decay};
}

static void put(sg_coordinator *c, const sg_checkpoint_manifest *manifest)
{
    sg_checkpoint_manifest_deinit(&c->save.writing);
    sg_checkpoint_manifest_copy(&c->save.writing, manifest);
    sg_coordinator_save_set(c, manifest);
}

void sg_coordinator_write_manifest(sg_coordinator *c)
{
    sg_coordinator_save *save = &c->save;
    uint32_t n_variables = (uint32_t)c->variables->n_variables;
    sg_checkpoint_variable *variables = sg_xcalloc(n_variables, sizeof *variables);
    sg_checkpoint_part *parts = sg_xcalloc(c->n_ps, sizeof *parts);
    sg_checkpoint_manifest manifest = {.set = {.iteration = save->mark, .generation = c->generation},
                                       .seed = c->config->seed,
                                       .batch = c->config->train.batch,
                                       .hyper = hyper_of(c),
                                       .changes = c->hypers[save->hyper - 1].changes,
                                       .n_changes = c->hypers[save->hyper - 1].n_changes,
                                       .members = save->members,
                                       .steps = save->steps,
                                       .n_groups = c->n_groups,
                                       .next_iteration = save->next_iteration,
                                       .n_ps = c->n_ps,
                                       .slice_bytes = c->config->slice_bytes,
                                       .variables = variables,
                                       .n_variables = n_variables,
                                       .parts = parts};
    snprintf(manifest.mode, sizeof manifest.mode, "%s", sg_mode_name(c->config->update.mode));
    snprintf(manifest.rule, sizeof manifest.rule, "%s", sg_rule_name(c->config->update.rule));
    for (uint32_t i = 0; i < n_variables; i++)
        variables[i] = variable_of(c->variables->variables[i]);
    for (uint32_t i = 0; i < c->n_ps; i++) {
        if (c->ps[i].saved.part.n_bytes > 0)
            parts[manifest.n_parts++] = c->ps[i].saved.part;
    }
    put(c, &manifest);
    free(parts);
    free(variables);
}

void sg_coordinator_write_manifest_again(sg_coordinator *c)
{
    sg_checkpoint_manifest manifest = c->save.newest;
    manifest.hyper = hyper_of(c);
    manifest.changes = c->hypers[c->save.hyper - 1].changes;
    manifest.n_changes = c->hypers[c->save.hyper - 1].n_changes;
    put(c, &manifest);
}

Shardgrad__V1__DeclareRequest *sg_coordinator_read_manifest(const sg_checkpoint_manifest *manifest)
{
    Shardgrad__V1__Variable *variables = sg_xcalloc(manifest->n_variables, sizeof *variables);
    Shardgrad__V1__Variable **list = sg_xcalloc(manifest->n_variables, sizeof(Shardgrad__V1__Variable *));
    for (uint32_t i = 0; i < manifest->n_variables; i++) {
        const sg_checkpoint_variable *from = &manifest->variables[i];
        Shardgrad__V1__Variable *to = list[i] = &variables[i];
        shardgrad__v1__variable__init(to);
        to->name = from->name;
        to->shape = from->shape;
        to->n_shape = from->rank;
        to->group = from->group;
        to->frozen = from->frozen;
        to->average = from->average;
        /* What goes without saying takes no place: a list that fitted when it was declared fits when it is restored. */
        if (from->lr_multiplier != 1)
            to->lr_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__LR_MULTIPLIER_PRESENCE_LR_MULTIPLIER;
        if (from->decay_multiplier != 1)
            to->decay_multiplier_presence_case = SHARDGRAD__V1__VARIABLE__DECAY_MULTIPLIER_PRESENCE_DECAY_MULTIPLIER;
        to->lr_multiplier = from->lr_multiplier;
        to->decay_multiplier = from->decay_multiplier;
    }
    Shardgrad__V1__DeclareRequest request = SHARDGRAD__V1__DECLARE_REQUEST__INIT;
    request.variables = list;
    request.n_variables = manifest->n_variables;
    Shardgrad__V1__DeclareRequest *copy = (Shardgrad__V1__DeclareRequest *)sg_wire_head_copy(&request.base);
    free(list);
    free(variables);
    return copy;
}
