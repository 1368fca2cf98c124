/* worker/models/model.c - the table of built-in models, and what all of them share. */
#include "worker/models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/nearest.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define MAX_WIDTH ((uint64_t)1 << 24) /* of any dimension of a variable: more is taken for a mistake */
#define MAX_ELEMS ((uint64_t)1 << 36) /* of one variable: 256 GiB */

static const struct {
    const char *name;
    sg_status (*create)(const sg_model_options *options, sg_model *model, sg_error *err);
} kinds[] = {
    {"mlp", sg_mlp_create},           {"lenet", sg_lenet_create},   {"resnet18", sg_resnet18_create},
    {"resnet50", sg_resnet50_create}, {"layers", sg_layers_create},
};

static sg_status unknown(const char *name, sg_error *err)
{
    sg_nearest nearest = {.word = name};
    for (size_t i = 0; i < SG_ARRAY_LEN(kinds); i++)
        sg_nearest_try(&nearest, kinds[i].name);
    return sg_error_set(
        err, SG_CONFIG, "model.name: there is no model '%s'; wanted mlp, lenet, resnet18, resnet50 or layers%s%s%s",
        name, nearest.best ? " (did you mean " : "", nearest.best ? nearest.best : "", nearest.best ? "?)" : "");
}

/* The model of that name, or the number of models. */
static size_t find(const char *name)
{
    size_t i = 0;
    while (i < SG_ARRAY_LEN(kinds) && strcmp(kinds[i].name, name) != 0)
        i++;
    return i;
}

sg_status sg_model_check(const sg_model_options *options, sg_error *err)
{
    if (find(options->name) == SG_ARRAY_LEN(kinds))
        return unknown(options->name, err);
    if (strcmp(options->name, "layers") == 0)
        return sg_layers_check(options, err);
    if (options->n_layers > 0)
        return sg_error_set(err, SG_CONFIG, "model.layers is given, but model.name is '%s'; wanted model.name: layers",
                            options->name);
    return SG_OK;
}

sg_status sg_model_create(const sg_model_options *options, sg_model **model, sg_error *err)
{
    sg_status status = sg_model_check(options, err);
    if (status != SG_OK)
        return status;
    sg_model *made = sg_xcalloc(1, sizeof *made);
    made->inputs = options->inputs;
    made->channels = options->channels;
    made->height = options->height;
    made->width = options->width;
    made->classes = options->classes;
    made->own_pages = options->own_pages;
    made->shapes_only = options->shapes_only;
    status = kinds[find(options->name)].create(options, made, err);
    if (status != SG_OK)
        sg_model_destroy(made);
    else
        *model = made;
    return status;
}

void sg_model_destroy(sg_model *model)
{
    if (!model)
        return;
    for (size_t i = 0; i < model->n_variables; i++) {
        free((char *)(uintptr_t)model->variables[i].name);
        free(model->variables[i].value);
        free(model->variables[i].gradient);
    }
    free(model->variables);
    free(model->own);
    free(model->initial);
    free(model->tensors);
    free(model);
}

void sg_model_initialize(sg_model *model, uint64_t seed)
{
    for (size_t v = 0; v < model->n_variables; v++) {
        const sg_variable *variable = &model->variables[v];
        size_t n_elems = 1;
        for (uint32_t i = 0; i < variable->rank; i++)
            n_elems *= variable->shape[i];
        sg_initializer_uniform(seed, variable->name, model->initial[v].limit, 0, n_elems, variable->value);
        for (size_t i = 0; i < n_elems && model->initial[v].constant != 0; i++)
            variable->value[i] += model->initial[v].constant;
    }
}

sg_tensor *sg_model_forward(sg_model *model, sg_tape *tape, const float *inputs, size_t n_rows, sg_model_pass pass)
{
    model->pass = pass;
    SG_ASSERT(sg_tape_kernel(tape)->elem_bytes == sizeof(float));
    for (size_t i = 0; i < model->n_variables; i++)
        model->tensors[i] = NULL;
    return model->forward(model, tape, sg_tape_input(tape, inputs, 2, (uint64_t[]){n_rows, model->inputs}));
}

/* Freed by free(). */
static void *alloc_buffer(const sg_model *model, size_t n_bytes)
{
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    if (!model->own_pages)
        return sg_try_alloc_aligned(n_bytes);
    return aligned_alloc(page_bytes, (n_bytes + page_bytes - 1) / page_bytes * page_bytes);
}

static bool alloc_buffers(const sg_model *model, sg_variable *variable, size_t n_bytes)
{
    variable->value = alloc_buffer(model, n_bytes);
    variable->gradient = alloc_buffer(model, n_bytes);
    if (!variable->value || !variable->gradient) {
        free(variable->value);
        free(variable->gradient);
        return false;
    }
    memset(variable->value, 0, n_bytes);
    memset(variable->gradient, 0, n_bytes);
    return true;
}

sg_status sg_model_add_variable(sg_model *model, const char *name, uint32_t rank, const uint64_t *shape,
                                sg_initial initial, sg_error *err)
{
    SG_ASSERT(rank <= SG_MAX_RANK);
    const char *key = model->sized_by != NULL ? model->sized_by : "", *colon = model->sized_by != NULL ? ": " : "";
    sg_variable added = {.rank = rank};
    size_t n_elems = 1;
    for (uint32_t i = 0; i < rank; i++) {
        if (shape[i] < 1 || shape[i] > MAX_WIDTH)
            return sg_error_set(err, SG_CONFIG, "%s%s%s would have a dimension of %llu; wanted 1 to %llu", key, colon,
                                name, (unsigned long long)shape[i], (unsigned long long)MAX_WIDTH);
        if (__builtin_mul_overflow(n_elems, shape[i], &n_elems) || n_elems > MAX_ELEMS)
            return sg_error_set(err, SG_CONFIG, "%s%s%s would have more than %llu elements; wanted fewer", key, colon,
                                name, (unsigned long long)MAX_ELEMS);
        added.shape[i] = shape[i];
    }
    if (!model->shapes_only && !alloc_buffers(model, &added, n_elems * sizeof(float)))
        return sg_error_set(err, SG_EXHAUSTED, "%s%sno memory for %zu elements of %s; make the model smaller", key,
                            colon, n_elems, name);
    added.name = sg_xstrdup(name);
    model->variables = sg_xrealloc(model->variables, model->n_variables + 1, sizeof *model->variables);
    model->tensors = sg_xrealloc(model->tensors, model->n_variables + 1, sizeof(sg_tensor *));
    model->initial = sg_xrealloc(model->initial, model->n_variables + 1, sizeof *model->initial);
    model->tensors[model->n_variables] = NULL;
    model->initial[model->n_variables] = initial;
    model->variables[model->n_variables++] = added;
    return SG_OK;
}

sg_status sg_model_add_batch_norm(sg_model *model, const char *prefix, uint64_t channels, sg_error *err)
{
    static const struct {
        const char *name;
        float constant;
        bool average;
    } variables[SG_MODEL_BATCH_NORM_VARIABLES] = {
        {"gamma", 1, false}, {"beta", 0, false}, {"mean", 0, true}, {"variance", 1, true}};
    sg_status status = SG_OK;
    for (size_t i = 0; i < SG_ARRAY_LEN(variables) && status == SG_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s.%s", prefix, variables[i].name);
        const sg_initial initial = {.constant = variables[i].constant};
        status = sg_model_add_variable(model, name, 1, &channels, initial, err);
        if (status == SG_OK)
            model->variables[model->n_variables - 1].average = variables[i].average;
    }
    return status;
}

sg_tensor *sg_model_batch_norm(sg_model *model, sg_tape *tape, sg_tensor *x, size_t index, bool relu)
{
    sg_tensor *v[SG_MODEL_BATCH_NORM_VARIABLES];
    for (size_t i = 0; i < SG_ARRAY_LEN(v); i++)
        v[i] = sg_model_variable(model, tape, index + i);
    return sg_batch_norm_forward(tape, x, v[0], v[1], v[2], v[3],
                                 (sg_batch_norm_options){.training = model->pass.use == SG_MODEL_TRAINS, .relu = relu});
}

sg_tensor *sg_model_images(const sg_model *model, sg_tape *tape, sg_tensor *x)
{
    if (!x)
        return NULL;
    return sg_reshape_forward(tape, x, 4, (uint64_t[]){x->shape[0], model->channels, model->height, model->width});
}

sg_tensor *sg_model_variable(sg_model *model, sg_tape *tape, size_t index)
{
    SG_ASSERT(index < model->n_variables);
    if (sg_tape_check(tape, NULL) != SG_OK)
        return NULL;
    if (model->tensors[index])
        return model->tensors[index];
    const sg_variable *variable = &model->variables[index];
    sg_tensor *tensor = sg_tape_variable(tape, variable->value, variable->frozen ? NULL : variable->gradient,
                                         variable->rank, variable->shape);
    if (tensor)
        tensor->tag = index;
    model->tensors[index] = tensor;
    return tensor;
}
