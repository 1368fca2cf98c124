/* worker/train/local.c - see local.h. */
#include "worker/train/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/schedule.h"
#include "kernels/update.h"
#include "worker/train/evaluate.h"

/* How training goes, beside the values. */
typedef struct local_course {
    sg_summary_losses losses;
    uint64_t non_finite_steps;
    sg_log_pace non_finite_pace;
} local_course;

/* What the ps of a cluster would keep beside the values. */
typedef struct slots {
    float *(*of)[SG_UPDATE_MAX_SLOTS]; /* [n_variables] */
    size_t n_variables;
    uint64_t count; /* applications of the rule so far */
} slots;

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

static bool gradients_are_finite(const sg_model *model)
{
    for (size_t v = 0; v < model->n_variables; v++)
        if (!model->variables[v].frozen &&
            !sg_update_copy_is_finite(model->variables[v].gradient, NULL, sg_workload_n_elems(&model->variables[v])))
            return false;
    return true;
}

static void update_variable(const sg_config *config, const sg_variable *variable, float rate, uint64_t count,
                            float *const of[SG_UPDATE_MAX_SLOTS])
{
    float lr_multiplier = variable->lr_multiplier != 0 ? variable->lr_multiplier : 1;
    float decay_multiplier = variable->decay_multiplier != 0 ? variable->decay_multiplier : 1;
    sg_update update = {.rule = config->update.rule,
                        .learning_rate = rate * lr_multiplier,
                        .weight_decay = variable->no_decay ? 0 : (float)config->update.weight_decay * decay_multiplier,
                        .momentum = (float)config->update.momentum,
                        .beta1 = (float)config->update.beta1,
                        .beta2 = (float)config->update.beta2,
                        .epsilon = (float)config->update.epsilon,
                        .count = count};
    size_t n_elems = sg_workload_n_elems(variable);
    sg_span span;
    sg_update_part whole = {.gradient = sg_span_reader_of_array(&span, variable->gradient, n_elems * sizeof(float)),
                            .scale = 1};
    sg_update_apply(&update, n_elems, variable->value, variable->value, of, &whole, 1);
}

/* A gradient that is not finite is left out, as a ps would. */
static void apply(const sg_local_options *options, slots *s, local_course *course, const sg_step *step)
{
    const sg_workload *w = options->workload;
    if (w->config->update.non_finite == SG_NON_FINITE_SKIP && !gradients_are_finite(w->model)) {
        course->non_finite_steps++;
        uint64_t n = sg_log_pace_count(&course->non_finite_pace, sg_clock_ms());
        if (n > 0)
            sg_log_warn(options->log, "non_finite",
                        "steps=%" PRIu64 " step=%" PRIu64
                        " message=\"its gradients are left out; a lower learning rate may help\"",
                        n, step->number);
        return;
    }
    s->count++;
    for (size_t v = 0; v < w->model->n_variables; v++)
        if (!w->model->variables[v].frozen)
            update_variable(w->config, &w->model->variables[v], step->learning_rate, s->count, s->of[v]);
}

static sg_status train(const sg_local_options *options, slots *s, local_course *course, sg_error *err)
{
    sg_workload *w = options->workload;
    for (uint64_t i = 0; i < w->total_steps; i++) {
        if (sg_workload_is_stopped(w))
            return sg_error_set(err, SG_CANCELLED, "stopped at step %" PRIu64 " of %" PRIu64, i, w->total_steps);
        sg_step step = {
            .number = i, .iteration = i, .rank = 0, .size = 1, .learning_rate = sg_schedule_rate(w->config, i)};
        sg_status status = sg_workload_gradient(w, &step, i + 1, err);
        if (status != SG_OK)
            return status;
        apply(options, s, course, &step);
        sg_summary_losses_add(&course->losses, step.loss, step.examples);
        if (options->on_step != NULL)
            options->on_step(options->user, &step);
    }
    return SG_OK;
}

sg_status sg_local_run(const sg_local_options *options, sg_summary *summary, sg_error *err)
{
    sg_workload *w = options->workload;
    local_course course = {0};
    *summary = (sg_summary){.mode = "local", .ps = 0, .workers = 1, .steps = w->total_steps};
    sg_workload_hash(w, summary->initial_parameters_sha256);
    sg_workload_warn_of_schedule(w, options->log);
    slots s;
    sg_status status = slots_init(&s, w->config, w->model, err);
    uint64_t started_ns = sg_clock_ns();
    if (status == SG_OK)
        status = train(options, &s, &course, err);
    summary->seconds = (double)(sg_clock_ns() - started_ns) / 1e9;
    slots_deinit(&s);
    if (status == SG_OK)
        status = sg_evaluate_accuracy(w, &summary->test_accuracy, err);
    if (status != SG_OK)
        return status;
    summary->examples_per_second = (double)sg_workload_examples(w, w->total_steps) / summary->seconds;
    summary->non_finite_steps = course.non_finite_steps;
    sg_summary_conclude(summary, w, &course.losses);
    snprintf(summary->version, sizeof(summary->version), "%s", sg_library_version());
    return SG_OK;
}
