/* worker/models/layers.c - a network that is told layer by layer, one text each: a name, mostly a number, and numbers
 * with names of their own.
 *
 *     conv2d 32 window 5 padding 2      dense 500        flatten       relu, sigmoid, tanh, softplus, gelu
 *     max_pool 2 stride 2 padding 0     average_pool 2   global_average_pool     batch_norm
 *
 * The input is [images, channels, height, width] where the data are images; dense wants [rows, features], so flatten
 * comes before the first. Variables are named by the layer's place from 0: layer0.weight. Weights begin as mlp's do. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/models/model.h"
#include "worker/nn/initializer.h"
#include "worker/nn/layers.h"

#define MAX_NUMBER ((uint64_t)1 << 20)

/* What a layer may be told. MAIN is the number without a name. */
typedef enum part { MAIN, WINDOW, STRIDE, PADDING, GROUPS, N_PARTS } part;
static const char *const part_names[N_PARTS] = {
    [MAIN] = NULL, [WINDOW] = "window", [STRIDE] = "stride", [PADDING] = "padding", [GROUPS] = "groups"};

typedef struct layer layer;
typedef struct pass pass;
typedef struct kind {
    const char *name;
    unsigned wanted, allowed; /* bits of parts */
    sg_tensor *(*apply)(const layer *l, const pass *p, sg_tensor *x);
    sg_unary function; /* of the layers that are one */
} kind;

struct layer {
    const kind *kind;
    uint64_t numbers[N_PARTS]; /* 0: not told */
    size_t variable;           /* index of its first */
};

typedef struct network {
    size_t n;
    layer layers[];
} network;

struct pass {
    sg_model *model;
    sg_tape *tape;
};

static sg_tensor *variable(const layer *l, const pass *p, size_t i)
{
    return sg_model_variable(p->model, p->tape, l->variable + i);
}

static sg_tensor *conv2d(const layer *l, const pass *p, sg_tensor *x)
{
    sg_tensor *weight = variable(l, p, 0), *bias = variable(l, p, 1);
    return sg_conv2d_forward(p->tape, x, weight, bias,
                             (sg_conv2d_options){.stride = l->numbers[STRIDE],
                                                 .padding = l->numbers[PADDING],
                                                 .groups = l->numbers[GROUPS]});
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

static sg_pool_options pool_options(const layer *l)
{
    return (sg_pool_options){.window = l->numbers[MAIN], .stride = l->numbers[STRIDE], .padding = l->numbers[PADDING]};
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

#define BIT(part_) (1U << (part_))
static const kind kinds[] = {
    {"conv2d", BIT(MAIN) | BIT(WINDOW), BIT(STRIDE) | BIT(PADDING) | BIT(GROUPS), conv2d, 0},
    {"dense", BIT(MAIN), 0, dense, 0},
    {"batch_norm", 0, 0, batch_norm, 0},
    {"max_pool", BIT(MAIN), BIT(STRIDE) | BIT(PADDING), max_pool, 0},
    {"average_pool", BIT(MAIN), BIT(STRIDE) | BIT(PADDING), average_pool, 0},
    {"global_average_pool", 0, 0, global_average_pool, 0},
    {"flatten", 0, 0, flatten, 0},
    {"relu", 0, 0, relu, 0},
    {"sigmoid", 0, 0, unary, SG_UNARY_SIGMOID},
    {"tanh", 0, 0, unary, SG_UNARY_TANH},
    {"softplus", 0, 0, unary, SG_UNARY_SOFTPLUS},
    {"gelu", 0, 0, unary, SG_UNARY_GELU},
};

/* --- reading a layer -------------------------------------------------------------------------------------------- */

/* Copies the next word of the text, and moves on behind it; false at the end or if it is too long. */
static bool next_word(const char **text, char *word, size_t n_bytes)
{
    *text += strspn(*text, " ");
    const size_t n = strcspn(*text, " ");
    if (n == 0 || n >= n_bytes)
        return false;
    memcpy(word, *text, n);
    word[n] = '\0';
    *text += n;
    return true;
}

/* A whole number up to MAX_NUMBER, of at most 7 digits. */
static bool read_number(const char *word, uint64_t *number)
{
    const size_t n = strspn(word, "0123456789");
    if (n < 1 || n > 7 || word[n] != '\0')
        return false;
    *number = strtoull(word, NULL, 10);
    return *number <= MAX_NUMBER;
}

static part part_of(const char *word)
{
    part p = MAIN + 1;
    while (p < N_PARTS && strcmp(part_names[p], word) != 0)
        p++;
    return p;
}

/* The rest of a layer's text, behind its name. */
static bool read_parts(const char *text, layer *l)
{
    char word[32];
    unsigned told = 0;
    while (text[strspn(text, " ")] != '\0') {
        part p = MAIN;
        if (!next_word(&text, word, sizeof word))
            return false;
        if (word[0] < '0' || word[0] > '9') {
            p = part_of(word);
            if (p == N_PARTS || !next_word(&text, word, sizeof word))
                return false;
        }
        if ((told & BIT(p)) || !((l->kind->wanted | l->kind->allowed) & BIT(p)) || !read_number(word, &l->numbers[p]) ||
            (p != PADDING && l->numbers[p] == 0))
            return false;
        told |= BIT(p);
    }
    return (told & l->kind->wanted) == l->kind->wanted;
}

static sg_status read_layer(const char *text, size_t index, layer *l, sg_error *err)
{
    char name[32];
    const char *rest = text;
    const bool named = next_word(&rest, name, sizeof name);
    for (size_t i = 0; named && i < SG_ARRAY_LEN(kinds); i++)
        if (strcmp(kinds[i].name, name) == 0)
            l->kind = &kinds[i];
    if (!l->kind)
        return sg_error_set(
            err, SG_CONFIG,
            "model.layers[%zu]: '%.60s': there is no such layer; wanted conv2d, dense, batch_norm, "
            "max_pool, average_pool, global_average_pool, flatten, relu, sigmoid, tanh, softplus or gelu",
            index, text);
    if (read_parts(rest, l))
        return SG_OK;
    char wanted[128] = "";
    size_t n = 0;
    for (part p = 0; p < N_PARTS; p++)
        if (l->kind->wanted & BIT(p))
            n += (size_t)snprintf(wanted + n, sizeof wanted - n, p == MAIN ? " N" : " %s N", part_names[p]);
    for (part p = 0; p < N_PARTS; p++)
        if (l->kind->allowed & BIT(p))
            n += (size_t)snprintf(wanted + n, sizeof wanted - n, " [%s N]", part_names[p]);
    if (n > 0)
        snprintf(wanted + n, sizeof wanted - n, ", each N from 1 to %" PRIu64, MAX_NUMBER);
    return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s'; wanted %s%s", index, text, l->kind->name, wanted);
}

/* --- what it makes of its input ----------------------------------------------------------------------------------- */

/* Of one example: [channels, height, width], or [features]. */
typedef struct extent {
    uint32_t rank;
    uint64_t shape[3];
} extent;

static sg_status add_variables(sg_model *model, size_t index, layer *l, uint32_t rank, const uint64_t *shape,
                               float limit, sg_error *err)
{
    char name[64];
    l->variable = model->n_variables;
    snprintf(name, sizeof name, "layer%zu.weight", index);
    sg_status status = sg_model_add_variable(model, name, rank, shape, (sg_initial){.limit = limit}, err);
    if (status != SG_OK)
        return status;
    snprintf(name, sizeof name, "layer%zu.bias", index);
    return sg_model_add_variable(model, name, 1, &l->numbers[MAIN], (sg_initial){0}, err);
}

static bool slide(const layer *l, uint64_t window, extent *x)
{
    const uint64_t stride = l->numbers[STRIDE] ? l->numbers[STRIDE] : l->kind->apply == conv2d ? 1 : window;
    for (size_t i = 1; i < 3; i++)
        x->shape[i] = sg_conv_out(x->shape[i], window, stride, l->numbers[PADDING]);
    return x->shape[1] > 0 && x->shape[2] > 0;
}

/* Adds the layer's variables and makes of x its output; *fits: whether it takes such an input. */
static sg_status pass_through(sg_model *model, size_t index, layer *l, bool last, extent *x, bool *fits, sg_error *err)
{
    const uint64_t outputs = l->numbers[MAIN], window = l->numbers[WINDOW];
    const bool image = x->rank == 3;
    *fits = true;
    if (l->kind->apply == conv2d) {
        const uint64_t groups = l->numbers[GROUPS] ? l->numbers[GROUPS] : 1;
        *fits = image && x->shape[0] % groups == 0 && outputs % groups == 0;
        const uint64_t fan_in = x->shape[0] / groups * window * window;
        const uint64_t shape[] = {outputs, x->shape[0] / groups, window, window};
        x->shape[0] = outputs;
        *fits = *fits && slide(l, window, x);
        return *fits ? add_variables(model, index, l, 4, shape, sg_initializer_he_limit(fan_in), err) : SG_OK;
    }
    if (l->kind->apply == dense) {
        *fits = x->rank == 1;
        const uint64_t shape[] = {x->shape[0], outputs};
        const float limit =
            last ? sg_initializer_glorot_limit(x->shape[0], outputs) : sg_initializer_he_limit(x->shape[0]);
        x->shape[0] = outputs;
        return *fits ? add_variables(model, index, l, 2, shape, limit, err) : SG_OK;
    }
    if (l->kind->apply == batch_norm) {
        char prefix[32];
        snprintf(prefix, sizeof prefix, "layer%zu", index);
        l->variable = model->n_variables;
        return sg_model_add_batch_norm(model, prefix, x->shape[0], err);
    }
    if (l->kind->apply == max_pool || l->kind->apply == average_pool)
        *fits = image && outputs <= SG_POOL_MAX_WINDOW && l->numbers[PADDING] <= outputs / 2 && slide(l, outputs, x);
    if (l->kind->apply == global_average_pool) {
        *fits = image;
        x->rank = 1;
    }
    if (l->kind->apply == flatten && image) {
        uint64_t features;
        *fits = !__builtin_mul_overflow(x->shape[0], x->shape[1], &features) &&
                !__builtin_mul_overflow(features, x->shape[2], &features);
        if (*fits)
            *x = (extent){.rank = 1, .shape = {features}};
    }
    return SG_OK;
}

static void describe(const extent *x, char text[96])
{
    if (x->rank == 3)
        snprintf(text, 96, "images of %" PRIu64 " channels, %" PRIu64 " x %" PRIu64, x->shape[0], x->shape[1],
                 x->shape[2]);
    else
        snprintf(text, 96, "rows of %" PRIu64, x->shape[0]);
}

/* --- the model ---------------------------------------------------------------------------------------------------- */

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

sg_status sg_layers_create(const sg_model_options *options, sg_model *model, sg_error *err)
{
    network *net = model->own = sg_xcalloc(1, sizeof(network) + options->n_layers * sizeof(layer));
    net->n = options->n_layers;
    model->forward = forward;
    extent x = {.rank = 1, .shape = {options->inputs}};
    if (options->height > 0)
        x = (extent){.rank = 3, .shape = {options->channels, options->height, options->width}};
    char found[96];
    for (size_t i = 0; i < net->n; i++) {
        bool fits;
        describe(&x, found);
        sg_status status = read_layer(options->layers[i], i, &net->layers[i], err);
        if (status == SG_OK)
            status = pass_through(model, i, &net->layers[i], i + 1 == net->n, &x, &fits, err);
        if (status != SG_OK)
            return status;
        if (!fits)
            return sg_error_set(err, SG_CONFIG, "model.layers[%zu]: '%.60s' does not fit its input, %s%s", i,
                                options->layers[i], found,
                                net->layers[i].kind->apply == dense ? "; wanted flatten before it" : "");
    }
    describe(&x, found);
    if (x.rank != 1 || x.shape[0] != options->classes || model->n_variables == 0)
        return sg_error_set(err, SG_CONFIG,
                            "model.layers: the last of %zu gives %s; wanted rows of %" PRIu64
                            ", the number of classes, by at least one layer with weights",
                            net->n, found, options->classes);
    return SG_OK;
}
