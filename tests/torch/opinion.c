/* tests/torch/opinion.c - layers, rules, models and orders as functions that Python's ctypes can call.
 *
 * Built as build/tests/torch/opinion.so. A pass: opinion_begin, opinion_variable..., layers, opinion_backward, then the
 * caller's gradient buffers are filled; opinion_end. All numbers are float. Whoever calls checks opinion_error. */
#include <stdlib.h>
#include <string.h>

#include "common/status.h"
#include "kernels/update_norms.h"
#include "worker/data/order.h"
#include "worker/models/model.h"
#include "worker/nn/blocks.h"
#include "worker/nn/layers.h"

/* A function that the library shows, with its prototype. */
#define SHOWN(type, name, ...)                                                                                         \
    __attribute__((visibility("default"))) type name(__VA_ARGS__);                                                     \
    type name(__VA_ARGS__)

typedef struct opinion_pass {
    sg_tape *tape;
    sg_error error;
} opinion_pass;

SHOWN(opinion_pass *, opinion_begin, void)
{
    sg_kernel_cpu_set_threads(1);
    opinion_pass *pass = sg_xcalloc(1, sizeof *pass);
    pass->tape = sg_tape_create(sg_kernel_onednn() ? sg_kernel_onednn() : sg_kernel_cpu());
    sg_tape_begin(pass->tape);
    return pass;
}

SHOWN(void, opinion_end, opinion_pass *pass)
{
    sg_tape_destroy(pass->tape);
    free(pass);
}

/* NULL: none so far. */
SHOWN(const char *, opinion_error, opinion_pass *pass)
{
    return sg_tape_check(pass->tape, &pass->error) == SG_OK ? NULL : pass->error.message;
}

SHOWN(sg_tensor *, opinion_variable, opinion_pass *pass, float *value, float *gradient, uint32_t rank,
      const uint64_t *shape)
{
    return sg_tape_variable(pass->tape, value, gradient, rank, shape);
}

SHOWN(const float *, opinion_value, const sg_tensor *tensor)
{
    return tensor->value;
}

SHOWN(size_t, opinion_size, const sg_tensor *tensor)
{
    return tensor->n_elems;
}

/* Goes back from the sum of y * dy: dy is then the gradient of y. */
SHOWN(void, opinion_backward, opinion_pass *pass, sg_tensor *y, const float *dy)
{
    static const float zero;
    sg_tape *tape = pass->tape;
    if (!y)
        return;
    sg_tensor *row = sg_reshape_forward(tape, y, 2, (uint64_t[]){1, y->n_elems});
    sg_tensor *weight = sg_tape_input(tape, dy, 2, (uint64_t[]){y->n_elems, 1});
    sg_tensor *bias = sg_tape_input(tape, &zero, 1, (uint64_t[]){1});
    sg_tensor *sum = sg_dense_forward(tape, row, weight, bias, SG_DENSE_LINEAR);
    sg_error err;
    if (sg_tape_backward(tape, sum, &err) != SG_OK)
        return; /* opinion_error tells */
}

SHOWN(sg_tensor *, opinion_dense, opinion_pass *pass, sg_tensor *x, sg_tensor *weight, sg_tensor *bias, int relu)
{
    return sg_dense_forward(pass->tape, x, weight, bias, relu ? SG_DENSE_RELU : SG_DENSE_LINEAR);
}

SHOWN(sg_tensor *, opinion_relu, opinion_pass *pass, sg_tensor *x)
{
    return sg_relu_forward(pass->tape, x);
}

SHOWN(sg_tensor *, opinion_conv2d, opinion_pass *pass, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
      uint64_t stride, uint64_t padding, uint64_t groups)
{
    const sg_conv2d_options options = {.stride = stride, .padding = padding, .groups = groups};
    return sg_blocks_arrange(pass->tape, sg_conv2d_forward(pass->tape, x, weight, bias, options), 0);
}

SHOWN(sg_tensor *, opinion_max_pool, opinion_pass *pass, sg_tensor *x, uint64_t window, uint64_t stride,
      uint64_t padding)
{
    return sg_max_pool_forward(pass->tape, x,
                               (sg_pool_options){.window = window, .stride = stride, .padding = padding});
}

SHOWN(sg_tensor *, opinion_average_pool, opinion_pass *pass, sg_tensor *x, uint64_t window, uint64_t stride,
      uint64_t padding)
{
    return sg_average_pool_forward(pass->tape, x,
                                   (sg_pool_options){.window = window, .stride = stride, .padding = padding});
}

SHOWN(sg_tensor *, opinion_global_average_pool, opinion_pass *pass, sg_tensor *x)
{
    return sg_global_average_pool_forward(pass->tape, x);
}

SHOWN(sg_tensor *, opinion_mean, opinion_pass *pass, sg_tensor *x)
{
    return sg_mean_forward(pass->tape, x);
}

SHOWN(sg_tensor *, opinion_flatten, opinion_pass *pass, sg_tensor *x)
{
    return sg_flatten_forward(pass->tape, x);
}

SHOWN(sg_tensor *, opinion_cross_entropy, opinion_pass *pass, sg_tensor *logits, const uint32_t *labels, size_t n)
{
    return sg_softmax_cross_entropy_forward(pass->tape, logits, labels, n);
}

SHOWN(sg_tensor *, opinion_conv2d_transpose, opinion_pass *pass, sg_tensor *x, sg_tensor *weight, sg_tensor *bias,
      uint64_t stride, uint64_t padding, uint64_t groups)
{
    return sg_conv2d_transpose_forward(pass->tape, x, weight, bias,
                                       (sg_conv2d_options){.stride = stride, .padding = padding, .groups = groups});
}

SHOWN(sg_tensor *, opinion_upsample_nearest, opinion_pass *pass, sg_tensor *x, uint64_t factor)
{
    return sg_upsample_nearest_forward(pass->tape, x, factor);
}

/* function: its number in sg_unary */
SHOWN(sg_tensor *, opinion_unary, opinion_pass *pass, sg_tensor *x, int function, double parameter)
{
    return sg_unary_forward(pass->tape, x, (sg_unary)function, parameter);
}

SHOWN(sg_tensor *, opinion_softmax, opinion_pass *pass, sg_tensor *x)
{
    return sg_softmax_forward(pass->tape, x);
}

SHOWN(sg_tensor *, opinion_layer_norm, opinion_pass *pass, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta)
{
    return sg_layer_norm_forward(pass->tape, x, gamma, beta, 0);
}

SHOWN(sg_tensor *, opinion_batch_norm, opinion_pass *pass, sg_tensor *x, sg_tensor *gamma, sg_tensor *beta,
      sg_tensor *mean, sg_tensor *variance, int training, int relu)
{
    return sg_batch_norm_forward(pass->tape, x, gamma, beta, mean, variance,
                                 (sg_batch_norm_options){.training = training, .relu = relu});
}

SHOWN(sg_tensor *, opinion_add, opinion_pass *pass, sg_tensor *a, sg_tensor *b)
{
    return sg_add_forward(pass->tape, a, b);
}

SHOWN(sg_tensor *, opinion_multiply, opinion_pass *pass, sg_tensor *a, sg_tensor *b)
{
    return sg_multiply_forward(pass->tape, a, b);
}

SHOWN(sg_tensor *, opinion_concat, opinion_pass *pass, sg_tensor *a, sg_tensor *b, uint32_t axis)
{
    return sg_concat_forward(pass->tape, (sg_tensor *const[]){a, b}, 2, axis);
}

SHOWN(sg_tensor *, opinion_slice, opinion_pass *pass, sg_tensor *x, uint32_t axis, uint64_t first, uint64_t count)
{
    return sg_slice_forward(pass->tape, x, axis, first, count);
}

SHOWN(sg_tensor *, opinion_embedding, opinion_pass *pass, sg_tensor *table, const uint32_t *ids, size_t n)
{
    return sg_embedding_forward(pass->tape, table, ids, n);
}

SHOWN(sg_tensor *, opinion_smoothed, opinion_pass *pass, sg_tensor *logits, const uint32_t *labels, size_t n,
      double smoothing)
{
    return sg_softmax_cross_entropy_smoothed_forward(pass->tape, logits, labels, n, smoothing);
}

SHOWN(sg_tensor *, opinion_mean_squared_error, opinion_pass *pass, sg_tensor *x, sg_tensor *target)
{
    return sg_mean_squared_error_forward(pass->tape, x, target);
}

/* --- update rules ----------------------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    sg_rule rule;
} rules[] = {{"sgd", SG_RULE_SGD},     {"momentum", SG_RULE_MOMENTUM}, {"nesterov", SG_RULE_NESTEROV},
             {"adam", SG_RULE_ADAM},   {"adagrad", SG_RULE_ADAGRAD},   {"rmsprop", SG_RULE_RMSPROP},
             {"adamw", SG_RULE_ADAMW}, {"average", SG_RULE_AVERAGE},   {"lars", SG_RULE_LARS},
             {"lamb", SG_RULE_LAMB}};

/* numbers: learning rate, weight decay, momentum, beta1, beta2, epsilon, clip, trust. Of `average`, count members. */
static bool make_update(const char *rule, const float numbers[8], uint64_t count, sg_update *update)
{
    *update = (sg_update){.learning_rate = numbers[0],
                          .weight_decay = numbers[1],
                          .momentum = numbers[2],
                          .beta1 = numbers[3],
                          .beta2 = numbers[4],
                          .epsilon = numbers[5],
                          .clip = numbers[6],
                          .trust = numbers[7],
                          .count = count,
                          .members = count};
    size_t i = 0;
    while (i < SG_ARRAY_LEN(rules) && strcmp(rules[i].name, rule) != 0)
        i++;
    if (i < SG_ARRAY_LEN(rules))
        update->rule = rules[i].rule;
    return i < SG_ARRAY_LEN(rules);
}

/* The first phase, over the gradient; *squares: of the values and of what was made. */
SHOWN(int, opinion_first_phase, const char *rule, const float numbers[8], uint64_t count, int exempt, size_t n,
      const float *value, float *slot0, float *slot1, float *gradient, double squares[2])
{
    sg_update update;
    if (!make_update(rule, numbers, count, &update))
        return -1;
    update.exempt = exempt;
    float *const slots[SG_UPDATE_MAX_SLOTS] = {slot0, slot1};
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, gradient, n * sizeof(float)), .scale = 1};
    sg_update_squares_of found;
    if (!sg_update_first_phase(&update, n, value, gradient, slots, &part, 1, &found))
        return -1;
    squares[0] = found.values;
    squares[1] = found.made;
    return 0;
}

/* The second, in place: squares of the variable, and all_made of all. */
SHOWN(int, opinion_second_phase, const char *rule, const float numbers[8], uint64_t count, int exempt, size_t n,
      float *value, float *slot0, float *slot1, float *made, const double squares[2], double all_made)
{
    sg_update update;
    if (!make_update(rule, numbers, count, &update))
        return -1;
    update.exempt = exempt;
    float *const slots[SG_UPDATE_MAX_SLOTS] = {slot0, slot1};
    sg_update_second_phase(&update, &(sg_update_squares_of){squares[0], squares[1]}, all_made, n, value, made, value,
                           slots);
    return 0;
}

/* One application of the rule, in place. */
SHOWN(int, opinion_update, const char *rule, const float numbers[8], uint64_t count, size_t n, float *value,
      float *slot0, float *slot1, const float *gradient)
{
    sg_update update;
    if (!make_update(rule, numbers, count, &update))
        return -1;
    float *const slots[SG_UPDATE_MAX_SLOTS] = {slot0, slot1};
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, gradient, n * sizeof(float)), .scale = 1};
    return sg_update_apply(&update, n, value, value, slots, &part, 1) ? 0 : -1;
}

/* --- models ----------------------------------------------------------------------------------------------------- */

/* With its initial values; NULL if it cannot be made. */
SHOWN(sg_model *, opinion_model, const char *name, const uint64_t *hidden, size_t n_hidden, uint64_t base_width,
      const uint64_t image[3], uint64_t classes, uint64_t seed)
{
    sg_model_options options = {.name = name,
                                .hidden = hidden,
                                .n_hidden = n_hidden,
                                .base_width = base_width,
                                .inputs = image[0] * image[1] * image[2],
                                .channels = image[0],
                                .height = image[1],
                                .width = image[2],
                                .classes = classes};
    sg_model *model = NULL;
    if (sg_model_create(&options, &model, NULL) != SG_OK)
        return NULL;
    sg_model_initialize(model, seed);
    return model;
}

SHOWN(void, opinion_model_free, sg_model *model)
{
    sg_model_destroy(model);
}

/* One step of sgd on n_rows, running statistics averaged; the loss. Begins the pass anew. */
SHOWN(double, opinion_model_step, opinion_pass *pass, sg_model *model, const float *x, const uint32_t *labels,
      size_t n_rows, float rate)
{
    sg_error err;
    sg_tape_begin(pass->tape);
    sg_tensor *logits = sg_model_forward(model, pass->tape, x, n_rows, (sg_model_pass){0});
    sg_tensor *loss = sg_softmax_cross_entropy_forward(pass->tape, logits, labels, n_rows);
    if (sg_tape_backward(pass->tape, loss, &err) != SG_OK)
        return 0; /* opinion_error tells */
    for (size_t v = 0; v < model->n_variables; v++) {
        const sg_variable *variable = &model->variables[v];
        size_t n_elems = 1;
        for (uint32_t i = 0; i < variable->rank; i++)
            n_elems *= variable->shape[i];
        for (size_t i = 0; i < n_elems; i++)
            variable->value[i] =
                variable->average ? variable->gradient[i] : variable->value[i] - rate * variable->gradient[i];
    }
    return sg_tape_get(pass->tape, loss, 0);
}

/* Logits by the running statistics. Begins the pass anew. */
SHOWN(sg_tensor *, opinion_model_predict, opinion_pass *pass, sg_model *model, const float *x, size_t n_rows)
{
    sg_tape_begin(pass->tape);
    return sg_model_forward(model, pass->tape, x, n_rows, (sg_model_pass){.use = SG_MODEL_PREDICTS});
}

/* NULL: there are not so many. */
SHOWN(const sg_variable *, opinion_model_variable, const sg_model *model, size_t index)
{
    return index < model->n_variables ? &model->variables[index] : NULL;
}

SHOWN(const char *, opinion_variable_name, const sg_variable *variable)
{
    return variable->name;
}

SHOWN(const float *, opinion_variable_value, const sg_variable *variable)
{
    return variable->value;
}

SHOWN(uint32_t, opinion_variable_shape, const sg_variable *variable, uint64_t shape[SG_MAX_RANK])
{
    memcpy(shape, variable->shape, sizeof variable->shape);
    return variable->rank;
}

SHOWN(void, opinion_order, uint64_t seed, uint64_t epoch, size_t n, uint32_t *order)
{
    sg_order_shuffle(seed, epoch, n, order);
}
