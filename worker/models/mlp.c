/* worker/models/mlp.c - dense layers with relu between them.
 *
 * Variables 2i and 2i + 1 are weight and bias of layer i; all but the last layer are followed by relu. */
#include <stdio.h>

#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define MAX_LAYERS 1000

static sg_tensor *forward(sg_model *model, sg_tape *tape, sg_tensor *x)
{
    size_t n_layers = model->n_variables / 2;
    for (size_t i = 0; i < n_layers; i++) {
        sg_tensor *weight = sg_model_variable(model, tape, 2 * i);
        sg_tensor *bias = sg_model_variable(model, tape, 2 * i + 1);
        x = sg_dense_forward(tape, x, weight, bias, i + 1 < n_layers ? SG_DENSE_RELU : SG_DENSE_LINEAR);
    }
    return x;
}

/* Biases begin as zero. */
static sg_status add_layer(sg_model *model, size_t index, uint64_t inputs, uint64_t outputs, float limit, sg_error *err)
{
    char name[64];
    snprintf(name, sizeof name, "dense%zu.weight", index);
    sg_status status =
        sg_model_add_variable(model, name, 2, (uint64_t[]){inputs, outputs}, (sg_initial){.limit = limit}, err);
    if (status != SG_OK)
        return status;
    snprintf(name, sizeof name, "dense%zu.bias", index);
    return sg_model_add_variable(model, name, 1, (uint64_t[]){outputs}, (sg_initial){0}, err);
}

sg_status sg_mlp_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    if (options->n_hidden >= MAX_LAYERS)
        return sg_error_set(err, SG_CONFIG, "model.hidden: %zu layers; wanted fewer than %d", options->n_hidden,
                            MAX_LAYERS);
    model->forward = forward;
    model->sized_by = "model.hidden";
    uint64_t inputs = options->inputs;
    for (size_t i = 0; i <= options->n_hidden; i++) {
        const bool last = i == options->n_hidden;
        const uint64_t outputs = last ? options->classes : options->hidden[i];
        const float limit = last ? sg_initializer_glorot_limit(inputs, outputs) : sg_initializer_he_limit(inputs);
        sg_status status = add_layer(model, i, inputs, outputs, limit, err);
        if (status != SG_OK)
            return status;
        inputs = outputs;
    }
    return SG_OK;
}
