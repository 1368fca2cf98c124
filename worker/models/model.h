/* worker/models/model.h - a built-in model: a list of variables and a forward pass on a tape.
 *
 *     sg_model *model;
 *     sg_model_options options = { .name = "mlp", .hidden = hidden, .n_hidden = 2, .inputs = 784, .classes = 10 };
 *     if (sg_model_create(&options, &model, &err) != SG_OK) ...
 *     sg_model_initialize(model, seed);
 *     sg_client_declare(client, model->variables, model->n_variables, &err);
 *     ...
 *     sg_tape_begin(tape);
 *     sg_tensor *logits = sg_model_forward(model, tape, batch->inputs, batch->n_rows, (sg_model_pass){0});
 *     sg_tensor *loss = sg_softmax_cross_entropy_forward(tape, logits, batch->labels, batch->n_rows);
 *     if (sg_tape_backward(tape, loss, &err) != SG_OK) ...         // fills the variables' gradients
 *
 * A new model is a file beside mlp.c and a line in the table in model.c. */
#ifndef SG_WORKER_MODELS_MODEL_H
#define SG_WORKER_MODELS_MODEL_H

#include "shardgrad/client.h"
#include "worker/nn/tape.h"

typedef struct sg_model_options {
    const char *name;       /* "mlp", "lenet", "resnet18", "resnet50", "layers" */
    const uint64_t *hidden; /* widths of the hidden layers, from the input on */
    size_t n_hidden;        /* 0: one linear layer */
    char *const *layers;    /* [n_layers] of the model "layers", which alone may have any; see layers.c */
    size_t n_layers;
    uint64_t base_width;              /* channels of the first stage of a resnet; 0: 64 */
    uint64_t inputs;                  /* features per example */
    uint64_t channels, height, width; /* their product is inputs; 0: the examples are not images */
    uint64_t classes;
    bool own_pages;   /* variables' buffers share no page with anything else, so that a device can pin them */
    bool shapes_only; /* variables have neither values nor gradients: to see whether the model fits the data */
} sg_model_options;

/* The values that a variable begins with: uniform in [constant - limit, constant + limit). */
typedef struct sg_initial {
    float limit, constant;
} sg_initial;

/* What a forward pass is made for: a batch norm goes by the batch's statistics and proposes what the running ones
 * should become, or goes by these. */
typedef enum sg_model_use { SG_MODEL_TRAINS, SG_MODEL_PREDICTS } sg_model_use;

typedef struct sg_model_pass {
    sg_model_use use;
    /* What is left out at random is a function of these alone: the step, and the row of its batch that comes first. */
    uint64_t seed, step, first_row;
} sg_model_pass;

typedef struct sg_model sg_model;
struct sg_model {
    sg_variable *variables; /* [n_variables], in declared order; names, values and gradients belong to the model */
    size_t n_variables;
    uint64_t inputs, channels, height, width, classes; /* as in sg_model_options */
    bool own_pages, shapes_only;                       /* the same */

    sg_initial *initial; /* [n_variables] */
    sg_tensor **tensors; /* [n_variables], of the pass that is made; NULL: not asked for yet */
    sg_model_pass pass;  /* the same */

    void *own; /* of the kind of model; freed by free() */
    /* The same: the key of the cluster file that makes it large, before what is said of a variable that is too large;
     * NULL: the kind of model says it itself. */
    const char *sized_by;
    /* of the kind of model: logits of x[n_rows, inputs] */
    sg_tensor *(*forward)(sg_model *model, sg_tape *tape, sg_tensor *x);
};

/* Values and gradients are allocated and zero. Errors: CONFIG (no such model, absurd sizes; the message begins with a
 * key of the cluster file, such as model.layers[I]), EXHAUSTED. Destroyed by sg_model_destroy. */
SG_MUST_USE sg_status sg_model_create(const sg_model_options *options, sg_model **model, sg_error *err);
void sg_model_destroy(sg_model *model); /* NULL is fine */
/* What can be known without the data: whether there is a model of this name, and whether its layers are layers. Errors:
 * CONFIG. */
SG_MUST_USE sg_status sg_model_check(const sg_model_options *options, sg_error *err);

/* Fills in the initial values: a function of the seed and the variables' names alone. */
void sg_model_initialize(sg_model *model, uint64_t seed);

/* Logits [n_rows, classes] of inputs[n_rows, model->inputs], on a tape that computes in float. The variables' buffers
 * are used in place; a variable that is frozen gets no gradient. */
sg_tensor *sg_model_forward(sg_model *model, sg_tape *tape, const float *inputs, size_t n_rows, sg_model_pass pass);

/* --- for the kinds of models ---------------------------------------------------------------------------------- */

/* Adds a variable, allocating value and gradient. The name is copied. Errors: CONFIG, EXHAUSTED. */
SG_MUST_USE sg_status sg_model_add_variable(sg_model *model, const char *name, uint32_t rank, const uint64_t *shape,
                                            sg_initial initial, sg_error *err);
/* Variable `index` as a tensor of the pass, with the index as its tag; NULL after a failure. The one place where a
 * forward pass gets a variable: layers that share one get the same tensor, so that its gradient is the sum. */
sg_tensor *sg_model_variable(sg_model *model, sg_tape *tape, size_t index);

/* Adds the variables of a batch norm, each [channels]: PREFIX.gamma, PREFIX.beta, and the running statistics
 * PREFIX.mean and PREFIX.variance, which are averaged over the workers. Errors: CONFIG, EXHAUSTED. */
#define SG_MODEL_BATCH_NORM_VARIABLES 4u
SG_MUST_USE sg_status sg_model_add_batch_norm(sg_model *model, const char *prefix, uint64_t channels, sg_error *err);
/* The batch norm of x, with the variables from `index` on, and perhaps a relu. */
sg_tensor *sg_model_batch_norm(sg_model *model, sg_tape *tape, sg_tensor *x, size_t index, bool relu);

/* x[n_rows, inputs] as images [n_rows, channels, height, width]; the model has them. */
sg_tensor *sg_model_images(const sg_model *model, sg_tape *tape, sg_tensor *x);

/* mlp.c: dense layers with relu between them, variables dense0.weight [in, out], dense0.bias [out], dense1... */
SG_MUST_USE sg_status sg_mlp_create(const sg_model_options *options, sg_model *model, sg_error *err);
/* lenet.c: variables conv0.weight [20, channels, 5, 5], conv0.bias, conv1..., dense0..., dense1... */
SG_MUST_USE sg_status sg_lenet_create(const sg_model_options *options, sg_model *model, sg_error *err);
/* resnet.c: variables conv0.weight, norm0.gamma, norm0.beta, norm0.mean, norm0.variance, conv1..., dense0.weight,
 * dense0.bias; see net.h. */
SG_MUST_USE sg_status sg_resnet18_create(const sg_model_options *options, sg_model *model, sg_error *err);
SG_MUST_USE sg_status sg_resnet50_create(const sg_model_options *options, sg_model *model, sg_error *err);
/* layers.c: what options->layers say, one after the other; variables layer0.weight, layer0.bias, layer3..., by place.
 */
SG_MUST_USE sg_status sg_layers_create(const sg_model_options *options, sg_model *model, sg_error *err);
/* Whether each is a layer, by its words alone. */
SG_MUST_USE sg_status sg_layers_check(const sg_model_options *options, sg_error *err);

#endif
