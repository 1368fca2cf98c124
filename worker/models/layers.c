/* worker/models/layers.c - a network that is told layer by layer, one text each: a name, mostly a number, and numbers
 * with names of their own.
 *
 *     conv2d 32 window 5 padding 2      dense 500        flatten       relu, sigmoid, tanh, softplus, gelu
 *     max_pool 2 stride 2 padding 0     average_pool 2   global_average_pool     batch_norm, layer_norm
 *     dropout 0.5                       leaky_relu 0.2
 *
 * The input is [images, channels, height, width] where the data are images; dense wants [rows, features], so flatten
 * comes before the first. Variables are named by the layer's place from 0: layer0.weight. Weights begin as mlp's do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"
#include "common/random.h"
#include "worker/models/layer_text.h"
#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define USUAL_SLOPE 0.01 /* of leaky_relu; PyTorch's */

/* Of one example: [channels, height, width], or [features]. */
typedef struct extent {
    uint32_t rank;
    uint64_t shape[3];
} extent;

/* Which layer of which model. */
typedef struct place {
    sg_model *model;
    size_t index;
    bool last;
} place;

typedef struct layer layer;
typedef struct pass pass;
typedef struct kind {
    const char *name;
    const char *form; /* what it may be told, for people */
    sg_layer_form told;
    sg_unary function; /* of the layers that are one */
    /* Adds the layer's variables, and makes of x its output; *fits: whether it takes such an input. NULL: it takes any
     * and leaves its extent. */
    sg_status (*extend)(const place *at, layer *l, extent *x, bool *fits, sg_error *err);
    sg_tensor *(*apply)(const layer *l, const pass *p, sg_tensor *x);
} kind;

struct layer {
    const kind *kind;
    sg_layer_told told;
    uint64_t place;  /* in the network */
    size_t variable; /* index of its first */
};

typedef struct network {
    size_t n;
    layer layers[];
} network;

struct pass {
    sg_model *model;
    sg_tape *tape;
};

/* --- what a layer makes of its input ------------------------------------------------------------------------------ */

static sg_status add_variables(const place *at, layer *l, uint32_t rank, const uint64_t *shape, float limit,
                               sg_error *err)
{
    char name[64];
    l->variable = at->model->n_variables;
    snprintf(name, sizeof name, "layer%zu.weight", at->index);
    sg_status status = sg_model_add_variable(at->model, name, rank, shape, (sg_initial){.limit = limit}, err);
    if (status != SG_OK)
        return status;
    snprintf(name, sizeof name, "layer%zu.bias", at->index);
    return sg_model_add_variable(at->model, name, 1, &l->told.numbers[SG_LAYER_MAIN], (sg_initial){0}, err);
}

static bool slide(const layer *l, uint64_t window, uint64_t usual_stride, extent *x)
{
    const uint64_t stride = l->told.numbers[SG_LAYER_STRIDE] ? l->told.numbers[SG_LAYER_STRIDE] : usual_stride;
    for (size_t i = 1; i < 3; i++)
        x->shape[i] = sg_conv_out(x->shape[i], window, stride, l->told.numbers[SG_LAYER_PADDING]);
    return x->shape[1] > 0 && x->shape[2] > 0;
}

static sg_status extend_conv2d(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    const uint64_t outputs = l->told.numbers[SG_LAYER_MAIN], window = l->told.numbers[SG_LAYER_WINDOW];
    const uint64_t groups = l->told.numbers[SG_LAYER_GROUPS] ? l->told.numbers[SG_LAYER_GROUPS] : 1;
    const uint64_t inputs = x->shape[0] / groups; /* of one output */
    *fits = x->rank == 3 && x->shape[0] % groups == 0 && outputs % groups == 0 && slide(l, window, 1, x);
    if (!*fits)
        return SG_OK;
    const uint64_t shape[] = {outputs, inputs, window, window};
    x->shape[0] = outputs;
    return add_variables(at, l, 4, shape, sg_initializer_he_limit(inputs * window * window), err);
}

static sg_status extend_dense(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    const uint64_t shape[] = {x->shape[0], l->told.numbers[SG_LAYER_MAIN]};
    *fits = x->rank == 1;
    if (!*fits)
        return SG_OK;
    x->shape[0] = shape[1];
    return add_variables(at, l, 2, shape,
                         at->last ? sg_initializer_glorot_limit(shape[0], shape[1]) : sg_initializer_he_limit(shape[0]),
                         err);
}

static sg_status extend_batch_norm(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    char prefix[32];
    *fits = true;
    snprintf(prefix, sizeof prefix, "layer%zu", at->index);
    l->variable = at->model->n_variables;
    return sg_model_add_batch_norm(at->model, prefix, x->shape[0], err);
}

static sg_status extend_layer_norm(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    static const struct {
        const char *name;
        float constant;
    } variables[] = {{"gamma", 1}, {"beta", 0}};
    *fits = x->rank == 1;
    l->variable = at->model->n_variables;
    sg_status status = SG_OK;
    for (size_t i = 0; i < SG_ARRAY_LEN(variables) && *fits && status == SG_OK; i++) {
        char name[64];
        snprintf(name, sizeof name, "layer%zu.%s", at->index, variables[i].name);
        const sg_initial initial = {.constant = variables[i].constant};
        status = sg_model_add_variable(at->model, name, 1, x->shape, initial, err);
    }
    return status;
}

static sg_status extend_pool(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    const uint64_t window = l->told.numbers[SG_LAYER_MAIN];
    (void)at, (void)err;
    *fits = x->rank == 3 && slide(l, window, window, x);
    return SG_OK;
}

static sg_status extend_global_pool(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    (void)at, (void)l, (void)err;
    *fits = x->rank == 3;
    x->rank = 1;
    return SG_OK;
}

static sg_status extend_flatten(const place *at, layer *l, extent *x, bool *fits, sg_error *err)
{
    uint64_t features = x->shape[0];
    (void)at, (void)l, (void)err;
    *fits = true;
    for (uint32_t i = 1; i < x->rank; i++)
        *fits = *fits && !__builtin_mul_overflow(features, x->shape[i], &features);
    *x = (extent){.rank = 1, .shape = {features}};
    return SG_OK;
}

/* --- its forward pass --------------------------------------------------------------------------------------------- */

static sg_tensor *variable(const layer *l, const pass *p, size_t i)
{
    return sg_model_variable(p->model, p->tape, l->variable + i);
}

static sg_tensor *conv2d(const layer *l, const pass *p, sg_tensor *x)
{
    sg_tensor *weight = variable(l, p, 0), *bias = variable(l, p, 1);
    return sg_conv2d_forward(p->tape, x, weight, bias,
                             (sg_conv2d_options){.stride = l->told.numbers[SG_LAYER_STRIDE],
                                                 .padding = l->told.numbers[SG_LAYER_PADDING],
                                                 .groups = l->told.numbers[SG_LAYER_GROUPS]});
}

static sg_tensor *dense(const layer *l, const pass *p, sg_tensor *x)
{
    sg_tensor *weight = variable(l, p, 0), *bias = variable(l, p, 1);
    return sg_dense_forward(p->tape, x, weight, bias, SG_DENSE_LINEAR);
}

static sg_tensor *batch_norm(const layer *l, const pass *p, sg_tensor *x)
{
    return sg_model_batch_norm(p->model, p->tape, x, l->variable, false);
}

static sg_tensor *layer_norm(const layer *l, const pass *p, sg_tensor *x)
{
    sg_tensor *gamma = variable(l, p, 0), *beta = variable(l, p, 1);
    return sg_layer_norm_forward(p->tape, x, gamma, beta, 0);
}

/* By the row's number in the whole batch, so that it does not matter how many workers share it. */
static sg_tensor *dropout(const layer *l, const pass *p, sg_tensor *x)
{
    const sg_model_pass *where = &p->model->pass;
    if (where->use != SG_MODEL_TRAINS || x == NULL || x->shape[0] == 0)
        return x;
    char name[32];
    snprintf(name, sizeof name, "layer%" PRIu64 ".dropout", l->place);
    return sg_dropout_forward(p->tape, x, l->told.share,
                              (sg_dropout_where){.seed = where->seed,
                                                 .stream = sg_random_stream(name, where->step),
                                                 .first = where->first_row * (x->n_elems / x->shape[0])});
}

static sg_tensor *leaky_relu(const layer *l, const pass *p, sg_tensor *x)
{
    return sg_leaky_relu_forward(p->tape, x, l->told.share >= 0 ? l->told.share : USUAL_SLOPE);
}

static sg_pool_options pool_options(const layer *l)
{
    return (sg_pool_options){.window = l->told.numbers[SG_LAYER_MAIN],
                             .stride = l->told.numbers[SG_LAYER_STRIDE],
                             .padding = l->told.numbers[SG_LAYER_PADDING]};
}

static sg_tensor *max_pool(const layer *l, const pass *p, sg_tensor *x)
{
    return sg_max_pool_forward(p->tape, x, pool_options(l));
}

static sg_tensor *average_pool(const layer *l, const pass *p, sg_tensor *x)
{
    return sg_average_pool_forward(p->tape, x, pool_options(l));
}

static sg_tensor *global_average_pool(const layer *l, const pass *p, sg_tensor *x)
{
    (void)l;
    return sg_global_average_pool_forward(p->tape, x);
}

static sg_tensor *flatten(const layer *l, const pass *p, sg_tensor *x)
{
    (void)l;
    return sg_flatten_forward(p->tape, x);
}

static sg_tensor *relu(const layer *l, const pass *p, sg_tensor *x)
{
    (void)l;
    return sg_relu_forward(p->tape, x);
}

static sg_tensor *unary(const layer *l, const pass *p, sg_tensor *x)
{
    return sg_unary_forward(p->tape, x, l->kind->function, 0);
}

/* --- the layers there are ----------------------------------------------------------------------------------------- */

#define ANY_NUMBER " from 1 to 1048576"
#define ANY_SHARE  " such as 0.25, from 0 to below 1"
#define POOL_FORM  " N [stride N] [padding N], N from 1 to 15, stride" ANY_NUMBER ", padding from 0 to half of N"
#define MAIN       SG_LAYER_BIT(SG_LAYER_MAIN)
#define SLIDES     (SG_LAYER_BIT(SG_LAYER_STRIDE) | SG_LAYER_BIT(SG_LAYER_PADDING))
_Static_assert(SG_LAYER_MAX_NUMBER == 1048576 && SG_POOL_MAX_WINDOW == 15, "the texts say so");

static const kind kinds[] = {
    {"conv2d",
     "conv2d N window N [stride N] [padding N] [groups N], each N" ANY_NUMBER ", padding from 0",
     {MAIN | SG_LAYER_BIT(SG_LAYER_WINDOW), SLIDES | SG_LAYER_BIT(SG_LAYER_GROUPS), false},
     0,
     extend_conv2d,
     conv2d},
    {"dense", "dense N, N" ANY_NUMBER, {MAIN, 0, false}, 0, extend_dense, dense},
    {"batch_norm", "batch_norm", {0, 0, false}, 0, extend_batch_norm, batch_norm},
    {"layer_norm", "layer_norm", {0, 0, false}, 0, extend_layer_norm, layer_norm},
    {"max_pool", "max_pool" POOL_FORM, {MAIN, SLIDES, false}, 0, extend_pool, max_pool},
    {"average_pool", "average_pool" POOL_FORM, {MAIN, SLIDES, false}, 0, extend_pool, average_pool},
    {"global_average_pool", "global_average_pool", {0, 0, false}, 0, extend_global_pool, global_average_pool},
    {"flatten", "flatten", {0, 0, false}, 0, extend_flatten, flatten},
    {"dropout", "dropout RATE, RATE" ANY_SHARE, {MAIN, 0, true}, 0, NULL, dropout},
    {"relu", "relu", {0, 0, false}, 0, NULL, relu},
    {"leaky_relu", "leaky_relu [SLOPE], SLOPE" ANY_SHARE, {0, MAIN, true}, 0, NULL, leaky_relu},
    {"sigmoid", "sigmoid", {0, 0, false}, SG_UNARY_SIGMOID, NULL, unary},
    {"tanh", "tanh", {0, 0, false}, SG_UNARY_TANH, NULL, unary},
    {"softplus", "softplus", {0, 0, false}, SG_UNARY_SOFTPLUS, NULL, unary},
    {"gelu", "gelu", {0, 0, false}, SG_UNARY_GELU, NULL, unary},
};

/* --- reading a layer -------------------------------------------------------------------------------------------- */

static bool is_window(const sg_layer_told *told)
{
    return told->numbers[SG_LAYER_MAIN] <= SG_POOL_MAX_WINDOW &&
           told->numbers[SG_LAYER_PADDING] <= told->numbers[SG_LAYER_MAIN] / 2;
}

static sg_status unknown(const char *text, size_t index, sg_error *err)
{
    char names[256] = "", name[32] = "";
    size_t n = 0;
    const char *rest = text;
    sg_nearest nearest = {.word = name};
    if (!sg_layer_text_word(&rest, name, sizeof name))
        snprintf(name, sizeof name, "%.16s...", text);
    for (size_t i = 0; i < SG_ARRAY_LEN(kinds); i++)
        sg_nearest_try(&nearest, kinds[i].name);
    if (nearest.best)
        return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s': there is no layer '%s' (did you mean %s?)",
                            index, text, name, nearest.best);
    for (size_t i = 0; i < SG_ARRAY_LEN(kinds); i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s",
                              i == 0                        ? ""
                              : i + 1 < SG_ARRAY_LEN(kinds) ? ", "
                                                            : " or ",
                              kinds[i].name);
    return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s': there is no layer '%s'; wanted %s", index, text,
                        name, names);
}

static const kind *find_kind(const char *name)
{
    for (size_t i = 0; i < SG_ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            return &kinds[i];
    return NULL;
}

/* Whether a layer stands among the words: several were written into one item. */
static bool names_layer(const char *words)
{
    char word[32];
    while (sg_layer_text_word(&words, word, sizeof word))
        if (find_kind(word) != NULL)
            return true;
    return false;
}

static sg_status read_layer(const char *text, size_t index, layer *l, sg_error *err)
{
    char name[32];
    const char *rest = text;
    const bool named = sg_layer_text_word(&rest, name, sizeof name);
    l->place = index;
    l->kind = named ? find_kind(name) : NULL;
    if (!l->kind)
        return unknown(text, index, err);
    if (sg_layer_text_read(rest, &l->kind->told, &l->told) && (l->kind->extend != extend_pool || is_window(&l->told)))
        return SG_OK;
    return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s'; wanted %s%s", index, text, l->kind->form,
                        names_layer(rest) ? ", and the next layer as an item of its own: [this, that]" : "");
}

sg_status sg_layers_check(const sg_model_options *options, sg_error *err)
{
    if (options->n_layers == 0)
        return sg_error_set(err, SG_CONFIG, "model.layers: names no layer; wanted some, such as [flatten, dense 10]");
    sg_status status = SG_OK;
    for (size_t i = 0; i < options->n_layers && status == SG_OK; i++)
        status = read_layer(options->layers[i], i, &(layer){0}, err);
    return status;
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

static void describe(const extent *x, char text[96])
{
    if (x->rank == 3)
        snprintf(text, 96, "images of %" PRIu64 " channel%s, %" PRIu64 " x %" PRIu64, x->shape[0],
                 x->shape[0] == 1 ? "" : "s", x->shape[1], x->shape[2]);
    else
        snprintf(text, 96, "rows of %" PRIu64, x->shape[0]);
}

static sg_tensor *forward(sg_model *model, sg_tape *tape, sg_tensor *x)
{
    const network *net = model->own;
    const pass p = {.model = model, .tape = tape};
    if (model->height > 0)
        x = sg_model_images(model, tape, x);
    for (size_t i = 0; i < net->n; i++) {
        const layer *l = &net->layers[i];
        x = l->kind->apply(l, &p, x);
    }
    return x;
}

/* What would make it fit, where one thing would. */
static const char *remedy(const kind *k, const extent *x, bool has_images)
{
    if (k->extend == extend_dense || k->extend == extend_layer_norm)
        return "; wanted flatten before it";
    if (x->rank == 3)
        return "";
    return has_images ? "; wanted images: it goes before flatten" : "; wanted images, which the data are not";
}

static sg_status extend(const sg_model_options *options, const place *at, layer *l, extent *x, sg_error *err)
{
    const char *text = options->layers[at->index];
    const extent input = *x;
    bool fits = true;
    sg_status status = read_layer(text, at->index, l, err);
    if (status != SG_OK)
        return status;
    SG_ASSERT(l->kind != NULL);
    if (l->kind->extend != NULL)
        status = l->kind->extend(at, l, x, &fits, err);
    if (status != SG_OK)
        return sg_error_prefix(err, status, "model.layers[%zu]: '%.60s'", at->index, text);
    if (fits)
        return SG_OK;
    char found[96];
    describe(&input, found);
    return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s' does not fit its input, %s%s", at->index, text,
                        found, remedy(l->kind, &input, options->height > 0));
}

sg_status sg_layers_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    network *net = model->own = sg_xcalloc(1, sizeof(network) + options->n_layers * sizeof(layer));
    net->n = options->n_layers;
    model->forward = forward;
    extent x = {.rank = 1, .shape = {options->inputs}};
    if (options->height > 0)
        x = (extent){.rank = 3, .shape = {options->channels, options->height, options->width}};
    sg_status status = SG_OK;
    for (size_t i = 0; i < net->n && status == SG_OK; i++)
        status = extend(options, &(place){model, i, i + 1 == net->n}, &net->layers[i], &x, err);
    if (status != SG_OK || (x.rank == 1 && x.shape[0] == options->classes && model->n_variables > 0))
        return status;
    char found[96];
    describe(&x, found);
    return sg_error_set(err, SG_CONFIG,
                        "model.layers[%zu]: '%.60s' is the last and gives %s; wanted rows of %" PRIu64
                        ", the number of classes, by at least one layer with weights",
                        net->n - 1, options->layers[net->n - 1], found, options->classes);
}
