/* worker/train/local.c - see local.h. */
#include "worker/train/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/schedule.h"
#include "kernels/update.h"
#include "worker/train/evaluate.h"

/* What the ps of a cluster would keep beside the values. */
typedef struct slots {
    float *(*of)[SG_UPDATE_MAX_SLOTS]; /* [n_variables] */
    size_t n_variables;
} slots;

typedef struct local_training {
    const sg_config *config;
    const sg_model *model;
    const sg_step *step;
    slots slots;
    sg_summary_losses losses;
} local_training;

static void slots_deinit(slots *s)
{
    for (size_t v = 0; s->of != NULL && v < s->n_variables; v++)
        for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
            free(s->of[v][i]);
    free(s->of);
}

static sg_status slots_init(slots *s, const sg_config *config, const sg_model *model, sg_error *err)
{
    *s = (slots){.n_variables = model->n_variables};
    s->of = sg_xcalloc(model->n_variables, sizeof(*s->of));
    for (size_t v = 0; v < model->n_variables; v++) {
        for (size_t i = 0; i < sg_update_slots(config->update.rule); i++) {
            size_t n_bytes = sg_workload_n_elems(&model->variables[v]) * sizeof(float);
            s->of[v][i] = sg_try_alloc_aligned(n_bytes);
            if (s->of[v][i] == NULL)
                return sg_error_set(err, SG_EXHAUSTED, "no memory for the slots of '%s', %zu bytes",
                                    model->variables[v].name, n_bytes);
            memset(s->of[v][i], 0, n_bytes);
        }
    }
    return SG_OK;
}

/* An on_final hook: the variable is updated on the spot, while its gradient is in the cache. One that is left out
 * counts as a step, as on a ps. */
static sg_status update_variable(void *user, size_t index, bool left_out, sg_error *err)
{
    (void)err;
    local_training *t = user;
    const sg_variable *variable = &t->model->variables[index];
    const sg_config *config = t->config;
    if (left_out)
        return SG_OK;
    float lr_multiplier = variable->lr_multiplier != 0 ? variable->lr_multiplier : 1;
    float decay_multiplier = variable->decay_multiplier != 0 ? variable->decay_multiplier : 1;
    sg_update update = {.rule = config->update.rule,
                        .learning_rate = t->step->learning_rate * lr_multiplier,
                        .weight_decay = variable->no_decay ? 0 : (float)config->update.weight_decay * decay_multiplier,
                        .momentum = (float)config->update.momentum,
                        .beta1 = (float)config->update.beta1,
                        .beta2 = (float)config->update.beta2,
                        .epsilon = (float)config->update.epsilon,
                        .count = t->step->number + 1};
    size_t n_elems = sg_workload_n_elems(variable);
    sg_span span;
    sg_update_part whole = {.gradient = sg_span_reader_of_array(&span, variable->gradient, n_elems * sizeof(float)),
                            .scale = 1};
    sg_update_apply(&update, n_elems, variable->value, variable->value, t->slots.of[index], &whole, 1);
    return SG_OK;
}

static sg_status train(const sg_local_options *options, local_training *t, sg_error *err)
{
    sg_workload *w = options->workload;
    for (uint64_t i = 0; i < w->total_steps; i++) {
        if (sg_workload_is_stopped(w))
            return sg_error_set(err, SG_CANCELLED, "stopped at step %" PRIu64 " of %" PRIu64, i, w->total_steps);
        sg_step step = {
            .number = i, .iteration = i, .rank = 0, .size = 1, .learning_rate = sg_schedule_rate(w->config, i)};
        t->step = &step;
        sg_status status =
            sg_workload_gradient(w, &step, i + 1, &(sg_workload_hooks){.on_final = update_variable, .user = t}, err);
        if (status != SG_OK)
            return status;
        sg_summary_losses_add(&t->losses, step.loss, step.examples);
        if (options->on_step != NULL)
            options->on_step(options->user, &step);
    }
    return SG_OK;
}

sg_status sg_local_run(const sg_local_options *options, sg_summary *summary, sg_error *err)
{
    sg_workload *w = options->workload;
    local_training t = {.config = w->config, .model = w->model};
    w->log = options->log;
    w->non_finite_steps = 0;
    *summary = (sg_summary){.mode = "local", .ps = 0, .workers = 1, .steps = w->total_steps};
    sg_workload_hash(w, summary->initial_parameters_sha256);
    sg_workload_warn_of_schedule(w, options->log);
    sg_status status = slots_init(&t.slots, w->config, w->model, err);
    uint64_t started_ns = sg_clock_ns();
    if (status == SG_OK)
        status = train(options, &t, err);
    summary->seconds = (double)(sg_clock_ns() - started_ns) / 1e9;
    slots_deinit(&t.slots);
    if (status == SG_OK)
        status = sg_evaluate_accuracy(w, &summary->test_accuracy, err);
    if (status != SG_OK)
        return status;
    summary->examples_per_second = (double)sg_workload_examples(w, w->total_steps) / summary->seconds;
    summary->non_finite_steps = w->non_finite_steps;
    sg_summary_conclude(summary, w, &t.losses);
    snprintf(summary->version, sizeof(summary->version), "%s", sg_library_version());
    return SG_OK;
}
