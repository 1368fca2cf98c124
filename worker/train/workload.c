/* worker/train/workload.c - see workload.h. */
#include "worker/train/workload.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/schedule.h"
#include "common/status.h"
#include "kernels/update.h"
#include "worker/nn/layers.h"
#include "worker/train/backend.h"

static sg_status check_augment(const sg_config *config, const sg_dataset *train, sg_error *err)
{
    const uint64_t crop = config->data.crop;
    if (train->channels == 0 && (crop > 0 || config->data.flip))
        return sg_error_set(err, SG_CONFIG,
                            "data.crop and data.flip are for images; data.format %s without a data.shape of "
                            "[channels, height, width] has none",
                            sg_data_format_name(config->data.format));
    if (crop > 0 && (crop >= train->height || crop >= train->width))
        return sg_error_set(err, SG_CONFIG,
                            "data.crop is %" PRIu64 "; wanted less than the %zu x %zu pixels of an image", crop,
                            train->height, train->width);
    return SG_OK;
}

/* What the file says of it. */
static sg_model_options model_options(const sg_config *config)
{
    return (sg_model_options){.name = config->model.name,
                              .hidden = config->model.hidden.items,
                              .n_hidden = config->model.hidden.n,
                              .layers = config->model.layers.items,
                              .n_layers = config->model.layers.n,
                              .base_width = config->model.width,
                              .own_pages = config->train.backend == SG_BACKEND_CUDA};
}

static sg_status create_model(const sg_config *config, const sg_dataset *train, bool shapes_only, sg_model **model,
                              sg_error *err)
{
    sg_model_options options = model_options(config);
    options.inputs = train->n_features;
    options.channels = train->channels;
    options.height = train->height;
    options.width = train->width;
    options.classes = train->n_classes;
    options.shapes_only = shapes_only;
    sg_status status = check_augment(config, train, err);
    return status == SG_OK ? sg_model_create(&options, model, err) : status;
}

/* The built-in trainer pushes gradients. */
static sg_status check_rule(const sg_config *config, sg_error *err)
{
    if (config->update.rule != SG_RULE_AVERAGE)
        return SG_OK;
    return sg_error_set(err, SG_CONFIG,
                        "update.rule: average is for trainers of your own that push values; the built-in one "
                        "pushes gradients: set another rule");
}

static sg_status build(sg_workload *w, bool with_test, sg_error *err)
{
    const sg_config *config = w->config;
    sg_status status = check_rule(config, err);
    if (status == SG_OK)
        status = sg_workload_check_model(config, err);
    if (status == SG_OK)
        status = sg_dataset_load_train(config, &w->train, err);
    if (status == SG_OK && with_test)
        status = sg_dataset_load_test(config, w->train, &w->test, err);
    if (status == SG_OK)
        status = create_model(config, w->train, false, &w->model, err);
    if (status != SG_OK)
        return status;
    w->steps_per_epoch = sg_workload_steps_per_epoch(config, w->train->n_examples);
    w->total_steps = sg_workload_total_steps(config, w->train->n_examples);
    sg_model_initialize(w->model, config->seed);
    w->tape = sg_tape_create(sg_kernel_cpu());

    sg_batches_options batches = {.batch = config->train.batch,
                                  .seed = config->seed,
                                  .augment = {.crop = (uint32_t)config->data.crop, .flip = config->data.flip}};
    return sg_batches_create(w->train, &batches, &w->batches, err);
}

sg_status sg_workload_create(const sg_config *config, bool with_test, sg_workload **workload, sg_error *err)
{
    sg_workload *w = sg_xcalloc(1, sizeof(*w));
    w->config = config;
    sg_status status = build(w, with_test, err);
    if (status != SG_OK) {
        sg_workload_destroy(w);
        return sg_config_locate(config, status, err);
    }
    *workload = w;
    return SG_OK;
}

sg_status sg_workload_check_model(const sg_config *config, sg_error *err)
{
    const sg_model_options options = model_options(config);
    return sg_model_check(&options, err);
}

sg_status sg_workload_check(const sg_config *config, sg_error *err)
{
    sg_dataset *shape = NULL, *test = NULL;
    sg_model *model = NULL;
    sg_status status = sg_workload_check_model(config, err);
    if (status == SG_OK)
        status = sg_dataset_load_shape(config, &shape, err);
    if (status == SG_OK && shape->labels != NULL) /* the shape of this format is known when all is read */
        status = sg_dataset_load_test(config, shape, &test, err);
    if (status == SG_OK)
        status = create_model(config, shape, true, &model, err);
    sg_model_destroy(model);
    sg_dataset_destroy(test);
    sg_dataset_destroy(shape);
    return sg_config_locate(config, status, err);
}

sg_status sg_workload_measure(const sg_config *config, uint64_t *n_examples, sg_error *err)
{
    sg_dataset *train = NULL;
    sg_model *model = NULL;
    sg_status status = check_rule(config, err);
    if (status == SG_OK)
        status = sg_workload_check_model(config, err);
    if (status == SG_OK)
        status = sg_dataset_measure(config, &train, err);
    if (status == SG_OK)
        status = create_model(config, train, true, &model, err);
    if (status == SG_OK)
        *n_examples = train->n_examples;
    sg_model_destroy(model);
    sg_dataset_destroy(train);
    return sg_config_locate(config, status, err);
}

bool sg_workload_needs_test(const sg_config *config, uint32_t worker)
{
    return worker == 0 || config->train.test_every_steps > 0 || config->train.test_every_epochs > 0;
}

void sg_workload_destroy(sg_workload *w)
{
    if (w == NULL)
        return;
    sg_batches_destroy(w->batches);
    sg_batches_destroy(w->test_batches);
    sg_backend_leave(w);
    sg_tape_destroy(w->tape);
    sg_model_destroy(w->model);
    sg_dataset_destroy(w->test);
    sg_dataset_destroy(w->train);
    free(w);
}

uint64_t sg_workload_steps_per_epoch(const sg_config *config, uint64_t n_examples)
{
    return n_examples / config->train.batch + (n_examples % config->train.batch != 0);
}

uint64_t sg_workload_total_steps(const sg_config *config, uint64_t n_examples)
{
    if (config->train.steps != 0)
        return config->train.steps;
    return config->train.epochs * sg_workload_steps_per_epoch(config, n_examples);
}

uint64_t sg_workload_examples(const sg_workload *w, uint64_t n_steps)
{
    /* Only the last batch of an epoch may be short. */
    return n_steps / w->steps_per_epoch * w->train->n_examples + n_steps % w->steps_per_epoch * w->config->train.batch;
}

/* The steps whose gradients come to nothing, told at growing intervals. */
static void tell_non_finite(sg_workload *w, const sg_step *step, const char *what)
{
    w->non_finite_steps++;
    uint64_t n = sg_log_pace_count(&w->non_finite_pace, sg_clock_ms());
    char quoted[512];
    if (n > 0)
        sg_log_warn(w->log, "non_finite",
                    "steps=%" PRIu64 " step=%" PRIu64
                    " in=%s message=\"its gradients are left out; a lower learning rate may help\"",
                    n, step->number, sg_log_quote(what, quoted, sizeof quoted));
}

/* An sg_tape_read_fn. */
static sg_status ask_for(void *user, const sg_tensor *variable, size_t first, size_t n_elems, sg_error *err)
{
    const sg_workload_hooks *hooks = user;
    return hooks->before_read(
        hooks->user, &(sg_range){.variable = (uint32_t)variable->tag, .first_elem = first, .n_elems = n_elems}, err);
}

/* A backward pass, whose gradients are looked at while they are in the cache. */
typedef struct way_back {
    sg_workload *workload;
    const sg_step *step;
    const sg_workload_hooks *hooks;
    bool look, left_out;
    sg_status status;
    sg_error error;
} way_back;

static void take_final(void *user, const sg_tensor *variable, size_t first, size_t n_elems)
{
    way_back *way = user;
    const sg_variable *declared = &way->workload->model->variables[variable->tag];
    if (way->status != SG_OK)
        return;
    if (way->look && !way->left_out && !sg_update_copy_is_finite(declared->gradient + first, NULL, n_elems)) {
        way->left_out = true;
        tell_non_finite(way->workload, way->step, declared->name);
    }
    if (way->hooks->on_final != NULL)
        way->status = way->hooks->on_final(
            way->hooks->user, &(sg_range){.variable = (uint32_t)variable->tag, .first_elem = first, .n_elems = n_elems},
            way->left_out, &way->error);
}

static sg_status go_back(sg_workload *w, const sg_tensor *mean, const sg_step *step, const sg_workload_hooks *hooks,
                         sg_error *err)
{
    way_back way = {
        .workload = w, .step = step, .hooks = hooks, .look = w->config->update.non_finite == SG_NON_FINITE_SKIP};
    if (way.look && !isfinite(step->loss)) {
        way.left_out = true;
        tell_non_finite(w, step, "loss");
    }
    sg_status status = sg_tape_backward_last(w->tape, mean, take_final, &way, err);
    return status == SG_OK && way.status != SG_OK ? sg_error_set(err, way.status, "%s", way.error.message) : status;
}

sg_status sg_workload_gradient(sg_workload *w, sg_step *step, uint64_t next, const sg_workload_hooks *hooks,
                               sg_error *err)
{
    static const sg_workload_hooks none;
    if (hooks == NULL)
        hooks = &none;
    const sg_batch *batch = sg_batches_get(w->batches, step->number, step->rank, step->size);
    sg_batches_expect(w->batches, next, step->rank, step->size);
    sg_tape_begin(w->tape);
    if (hooks->before_read != NULL)
        sg_tape_listen_to_reads(w->tape, ask_for, (void *)(uintptr_t)hooks);
    const sg_model_pass pass = {.seed = w->config->seed, .step = step->number, .first_row = batch->first_row};
    sg_tensor *logits = sg_model_forward(w->model, w->tape, batch->inputs, batch->n_rows, pass);
    sg_tensor *mean = sg_softmax_cross_entropy_smoothed_forward(w->tape, logits, batch->labels, batch->n_rows,
                                                                w->config->train.label_smoothing);
    sg_status status = sg_tape_check(w->tape, err);
    if (status != SG_OK)
        return status;
    step->loss = (float)sg_tape_get(w->tape, mean, 0);
    step->examples = batch->n_rows;
    status = hooks->on_loss != NULL ? hooks->on_loss(hooks->user, step, err) : SG_OK;
    return status == SG_OK ? go_back(w, mean, step, hooks, err) : status;
}

size_t sg_workload_n_elems(const sg_variable *variable)
{
    size_t n = 1;
    for (uint32_t i = 0; i < variable->rank; i++)
        n *= variable->shape[i];
    return n;
}

bool sg_workload_is_finite(const sg_workload *w)
{
    for (size_t i = 0; i < w->model->n_variables; i++) {
        const sg_variable *variable = &w->model->variables[i];
        if (!sg_update_copy_is_finite(variable->value, NULL, sg_workload_n_elems(variable)))
            return false;
    }
    return true;
}

static void warn_of_schedule(const sg_workload *w, const sg_log *log)
{
    uint64_t end = sg_schedule_end(w->config);
    if (end >= w->total_steps)
        return;
    sg_log_warn(log, "learning_rate_ends",
                "step=%" PRIu64 " of=%" PRIu64
                " message=\"the cosine schedule ends there and the learning rate is 0 for "
                "the rest: set update.decay_steps to %" PRIu64 ", or train fewer steps\"",
                end, w->total_steps, w->total_steps - w->config->update.warmup_steps);
}

/* A batch norm of one row has no deviation to go by. */
static void warn_of_few_rows(const sg_workload *w, uint64_t n_workers, const sg_log *log)
{
    const uint64_t n_rows = w->config->train.batch / n_workers; /* of whoever has the fewest */
    bool has_norm = false;
    for (size_t i = 0; i < w->model->n_variables; i++)
        has_norm = has_norm || w->model->variables[i].average;
    if (w->config->update.mode != SG_MODE_SYNC || n_rows >= (has_norm ? 2 : 1))
        return;
    sg_log_warn(log, "few_examples",
                "batch=%" PRIu64 " workers=%" PRIu64 " message=\"a worker's part of a batch is %" PRIu64
                " examples%s: use fewer workers or a larger train.batch\"",
                w->config->train.batch, n_workers, n_rows, has_norm ? ", and batch_norm needs 2" : "");
}

void sg_workload_warn(const sg_workload *w, uint64_t n_workers, const sg_log *log)
{
    warn_of_schedule(w, log);
    warn_of_few_rows(w, n_workers, log);
}

void sg_workload_hash(const sg_workload *w, char out[SG_WORKLOAD_HASH_BYTES])
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    unsigned int n_digest = 0;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    SG_ASSERT(context != NULL && EVP_DigestInit_ex(context, EVP_sha256(), NULL) == 1);
    /* The values lie in memory as float32, little endian, on every machine that this is built for. */
    for (size_t i = 0; i < w->model->n_variables; i++) {
        const sg_variable *variable = &w->model->variables[i];
        SG_ASSERT(EVP_DigestUpdate(context, variable->value, sg_workload_n_elems(variable) * sizeof(float)) == 1);
    }
    SG_ASSERT(EVP_DigestFinal_ex(context, digest, &n_digest) == 1);
    EVP_MD_CTX_free(context);
    for (unsigned int i = 0; i < n_digest; i++)
        snprintf(out + 2 * (size_t)i, 3, "%02x", digest[i]);
}

void sg_workload_stop(sg_workload *w)
{
    atomic_store(&w->stopped, true);
}

bool sg_workload_is_stopped(const sg_workload *w)
{
    return atomic_load(&w->stopped);
}
