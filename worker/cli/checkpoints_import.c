/* worker/cli/checkpoints_import.c - a file of whole tensors as the set that a job starts from. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/plan.h"
#include "common/safetensors.h"
#include "worker/cli/checkpoints.h"
#include "worker/train/workload.h"

#define SHAPE_BYTES 200

/* --- the file -------------------------------------------------------------------------------------------------------
 */

static const char *shape_text(const uint64_t *shape, uint32_t rank, char out[SHAPE_BYTES])
{
    size_t length = (size_t)snprintf(out, SHAPE_BYTES, "[");
    for (uint32_t i = 0; i < rank && length < SHAPE_BYTES; i++)
        length += (size_t)snprintf(out + length, SHAPE_BYTES - length, "%s%" PRIu64, i > 0 ? ", " : "", shape[i]);
    if (length < SHAPE_BYTES)
        snprintf(out + length, SHAPE_BYTES - length, "]");
    return out;
}

static const sg_safetensors_tensor *find_tensor(const sg_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->n_tensors; i++) {
        if (strcmp(file->tensors[i].name, name) == 0)
            return &file->tensors[i];
    }
    return NULL;
}

/* What is to be done about a shape that is the wanted one the other way round. */
static const char *transpose_text(const sg_safetensors_tensor *tensor, const sg_variable *variable)
{
    const bool is_transpose = tensor->rank == 2 && variable->rank == 2 && tensor->shape[0] == variable->shape[1] &&
                              tensor->shape[1] == variable->shape[0];
    return is_transpose ? ": transpose it, PyTorch's Linear keeps its weight as [outputs, inputs]" : "";
}

static sg_status read_variable(const sg_safetensors *file, const char *path, const sg_variable *variable, sg_error *err)
{
    const sg_safetensors_tensor *tensor = find_tensor(file, variable->name);
    char found[SHAPE_BYTES], wanted[SHAPE_BYTES];
    shape_text(variable->shape, variable->rank, wanted);
    if (tensor == NULL)
        return sg_error_set(err, SG_DATA, "%s has no tensor '%.100s'; the model wants one of shape %s", path,
                            variable->name, wanted);
    if (strcmp(tensor->dtype, "F32") != 0)
        return sg_error_set(err, SG_DATA, "%s: '%.100s' has dtype %s, wanted F32: convert it", path, tensor->name,
                            tensor->dtype);
    if (tensor->rank != variable->rank ||
        memcmp(tensor->shape, variable->shape, variable->rank * sizeof *tensor->shape) != 0)
        return sg_error_set(err, SG_DATA, "%s: '%.100s' has shape %s, the model wants %s%s", path, tensor->name,
                            shape_text(tensor->shape, tensor->rank, found), wanted, transpose_text(tensor, variable));
    sg_status status = sg_safetensors_read(file, tensor, 0, variable->value, (size_t)tensor->n_bytes, err);
    const size_t n_elems = (size_t)tensor->n_bytes / sizeof *variable->value;
    for (size_t i = 0; i < n_elems && status == SG_OK; i++) {
        if (!isfinite(variable->value[i]))
            status = sg_error_set(err, SG_DATA, "%s: '%.100s' is %g at element %zu: no training goes on from it", path,
                                  tensor->name, (double)variable->value[i], i);
    }
    return status;
}

sg_status sg_checkpoints_read_model(const char *path, sg_model *model, size_t *n_ignored, sg_error *err)
{
    sg_safetensors *file;
    sg_status status = sg_safetensors_open(&sg_disk_posix, path, &file, err);
    if (status != SG_OK)
        return status;
    for (size_t i = 0; i < model->n_variables && status == SG_OK; i++)
        status = read_variable(file, path, &model->variables[i], err);
    if (status == SG_OK)
        *n_ignored = file->n_tensors - model->n_variables;
    sg_safetensors_close(file);
    return status;
}

/* --- the set --------------------------------------------------------------------------------------------------------
 */

typedef struct writing {
    const sg_checkpoint *folder;
    const sg_config *config;
    const sg_model *model;
    sg_checkpoint_set set;
    sg_plan *plan; /* of one ps */
} writing;

static sg_status write_part(const writing *w, sg_checkpoint_part *part, sg_error *err)
{
    sg_checkpoint_slice *slices = sg_xcalloc(w->plan->n_slices, sizeof *slices);
    const char **names = sg_xcalloc(w->model->n_variables, sizeof *names);
    for (size_t i = 0; i < w->model->n_variables; i++)
        names[i] = w->model->variables[i].name;
    for (uint32_t i = 0; i < w->plan->n_slices; i++) {
        const sg_plan_slice *s = &w->plan->slices[i];
        slices[i] = (sg_checkpoint_slice){.index = i,
                                          .variable = s->variable,
                                          .first_elem = s->first_elem,
                                          .n_elems = s->n_elems,
                                          .values = w->model->variables[s->variable].value + s->first_elem};
    }
    sg_checkpoint_cut cut = {.set = w->set,
                             .n_ps = 1,
                             .slice_bytes = w->config->slice_bytes,
                             .rule = sg_rule_name(w->config->update.rule),
                             .names = names,
                             .slices = slices,
                             .n_slices = w->plan->n_slices};
    sg_status status = sg_checkpoint_write_part(w->folder, &cut, part, err);
    free(names);
    free(slices);
    return status;
}

/* Its arrays are to be freed, the names and shapes in them are the model's. */
static void describe(const writing *w, sg_checkpoint_part *part, sg_checkpoint_manifest *manifest)
{
    const sg_config *config = w->config;
    *manifest = (sg_checkpoint_manifest){
        .set = w->set,
        .seed = config->seed,
        .batch = config->train.batch,
        .hyper = {1, config->update.learning_rate, config->update.momentum, config->update.beta1, config->update.beta2,
                  config->update.epsilon, config->update.weight_decay},
        .steps = sg_xcalloc(w->plan->n_groups, sizeof(uint64_t)),
        .n_groups = w->plan->n_groups,
        .n_ps = 1,
        .slice_bytes = config->slice_bytes,
        .variables = sg_xcalloc(w->model->n_variables, sizeof(sg_checkpoint_variable)),
        .n_variables = (uint32_t)w->model->n_variables,
        .parts = part,
        .n_parts = 1,
    };
    snprintf(manifest->mode, sizeof manifest->mode, "%s", sg_mode_name(config->update.mode));
    snprintf(manifest->rule, sizeof manifest->rule, "%s", sg_rule_name(config->update.rule));
    for (size_t i = 0; i < w->model->n_variables; i++) {
        sg_variable *v = &w->model->variables[i];
        float decay = v->decay_multiplier != 0 ? v->decay_multiplier : 1;
        manifest->variables[i] = (sg_checkpoint_variable){
            .name = (char *)(uintptr_t)v->name,
            .shape = v->shape,
            .rank = v->rank,
            .group = v->group,
            .frozen = v->frozen,
            .average = v->average,
            .lr_multiplier = v->lr_multiplier != 0 ? v->lr_multiplier : 1,
            .decay_multiplier = v->no_decay ? 0 : decay,
        };
    }
}

static sg_status write_set(writing *w, sg_error *err)
{
    sg_plan_variable *variables = sg_xcalloc(w->model->n_variables, sizeof *variables);
    for (size_t i = 0; i < w->model->n_variables; i++)
        variables[i] = (sg_plan_variable){.n_elems = sg_workload_n_elems(&w->model->variables[i]),
                                          .group = w->model->variables[i].group};
    sg_status status =
        sg_plan_create(variables, (uint32_t)w->model->n_variables, 1, w->config->slice_bytes, &w->plan, err);
    free(variables);
    if (status != SG_OK)
        return status;
    sg_checkpoint_part part;
    status = write_part(w, &part, err);
    if (status == SG_OK) {
        sg_checkpoint_manifest manifest;
        describe(w, &part, &manifest);
        status = sg_checkpoint_commit(w->folder, &manifest, err);
        free(manifest.steps);
        free(manifest.variables);
    }
    sg_plan_destroy(w->plan);
    return status;
}

/* Nothing that is there is passed over unasked. */
static sg_status check_empty(const sg_checkpoint *folder, sg_error *err)
{
    sg_checkpoint_found *found;
    size_t n, n_usable = 0;
    char newest[SG_CHECKPOINT_NAME_BYTES] = "";
    sg_status status = sg_checkpoint_list(folder, &found, &n, err);
    if (status != SG_OK)
        return status;
    for (size_t i = n; i-- > 0;) {
        if (found[i].state == SG_CHECKPOINT_PASSED || found[i].state == SG_CHECKPOINT_HALF_WRITTEN)
            continue;
        n_usable++;
        sg_checkpoint_set_name(found[i].set, newest);
    }
    free(found);
    if (n_usable == 0)
        return SG_OK;
    return sg_error_set(err, SG_CONFIG,
                        "%s has %zu checkpoint%s, the newest is %s: after an import none of them would be used again; "
                        "give the new job a checkpoint.dir of its own, or say --replace",
                        sg_checkpoint_dir(folder), n_usable, n_usable == 1 ? "" : "s", newest);
}

sg_status sg_checkpoints_import(const sg_checkpoint *folder, const sg_config *config, const sg_model *model,
                                bool replace, sg_checkpoint_set *set, sg_error *err)
{
    sg_status status = replace ? SG_OK : check_empty(folder, err);
    uint64_t last, unrecorded;
    if (status == SG_OK)
        status = sg_checkpoint_last_generation(folder, &last, &unrecorded, err);
    if (status != SG_OK)
        return status;
    sg_checkpoint_record record = {.generation = last + 1, .life = sg_clock_random_id()};
    *set = (sg_checkpoint_set){.iteration = 0, .generation = record.generation};
    writing w = {.folder = folder, .config = config, .model = model, .set = *set};
    status = write_set(&w, err);
    if (status == SG_OK) /* from then on the others are passed over: not before this one is complete */
        status = sg_checkpoint_record_create(folder, &record, err);
    return status;
}
