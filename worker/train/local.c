/* worker/train/local.c - see local.h. */
#include "worker/train/local.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/clock.h"
#include "common/schedule.h"
#include "kernels/update_norms.h"
#include "worker/train/evaluate.h"

struct sg_local {
    sg_workload *workload;
    float *(*slots)[SG_UPDATE_MAX_SLOTS]; /* [n_variables], as a ps would keep them */
    sg_step step;                         /* the one under way, or the last one */
    /* Where updates take norms, nothing is updated before the whole gradient is there. */
    bool takes_norms;
    uint8_t **left_out;            /* [n_variables][slices of a ps] of this step */
    sg_update_squares_of *squares; /* [n_variables] */
    double *group_made;            /* [n_groups] */
    uint32_t n_groups;
};

static sg_rule rule_of(const sg_local *l, const sg_variable *variable)
{
    return variable->average ? SG_RULE_AVERAGE : l->workload->config->update.rule;
}

static sg_status slots_make(sg_local *l, sg_error *err)
{
    const sg_model *model = l->workload->model;
    l->slots = sg_xcalloc(model->n_variables, sizeof(*l->slots));
    for (size_t v = 0; v < model->n_variables; v++) {
        for (size_t i = 0; i < sg_update_slots(rule_of(l, &model->variables[v])); i++) {
            size_t n_bytes = sg_workload_n_elems(&model->variables[v]) * sizeof(float);
            l->slots[v][i] = sg_try_alloc_aligned(n_bytes);
            if (l->slots[v][i] == NULL)
                return sg_error_set(err, SG_EXHAUSTED, "no memory for the slots of '%s', %zu bytes",
                                    model->variables[v].name, n_bytes);
            memset(l->slots[v][i], 0, n_bytes);
        }
    }
    return SG_OK;
}

static size_t slice_elems(const sg_local *l)
{
    return l->workload->config->slice_bytes / sizeof(float);
}

static size_t n_slices(const sg_local *l, const sg_variable *variable)
{
    return (sg_workload_n_elems(variable) - 1) / slice_elems(l) + 1;
}

static void norms_make(sg_local *l)
{
    const sg_model *model = l->workload->model;
    l->takes_norms = l->workload->config->update.clip_global_norm > 0 ||
                     sg_update_scales_variables(l->workload->config->update.rule);
    if (!l->takes_norms)
        return;
    l->left_out = sg_xcalloc(model->n_variables, sizeof *l->left_out);
    l->squares = sg_xcalloc(model->n_variables, sizeof *l->squares);
    for (size_t v = 0; v < model->n_variables; v++) {
        l->left_out[v] = sg_xcalloc(n_slices(l, &model->variables[v]), sizeof *l->left_out[v]);
        if (model->variables[v].group >= l->n_groups)
            l->n_groups = model->variables[v].group + 1;
    }
    l->group_made = sg_xcalloc(l->n_groups, sizeof *l->group_made);
}

sg_status sg_local_create(sg_workload *workload, sg_local **local, sg_error *err)
{
    sg_local *l = sg_xcalloc(1, sizeof(*l));
    l->workload = workload;
    norms_make(l);
    sg_status status = slots_make(l, err);
    if (status == SG_OK)
        *local = l;
    else
        sg_local_destroy(l);
    return status;
}

void sg_local_destroy(sg_local *l)
{
    if (l == NULL)
        return;
    for (size_t v = 0; v < l->workload->model->n_variables; v++) {
        for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
            free(l->slots[v][i]);
        if (l->takes_norms)
            free(l->left_out[v]);
    }
    free(l->slots);
    free(l->left_out);
    free(l->squares);
    free(l->group_made);
    free(l);
}

static sg_update update_of(const sg_local *l, const sg_variable *variable)
{
    const sg_config *config = l->workload->config;
    float lr_multiplier = variable->lr_multiplier != 0 ? variable->lr_multiplier : 1;
    float decay_multiplier = variable->decay_multiplier != 0 ? variable->decay_multiplier : 1;
    return (sg_update){.rule = rule_of(l, variable),
                       .learning_rate = l->step.learning_rate * lr_multiplier,
                       .weight_decay = variable->no_decay ? 0 : (float)config->update.weight_decay * decay_multiplier,
                       .momentum = (float)config->update.momentum,
                       .beta1 = (float)config->update.beta1,
                       .beta2 = (float)config->update.beta2,
                       .epsilon = (float)config->update.epsilon,
                       .count = l->step.number + 1,
                       .clip = (float)config->update.clip_global_norm,
                       .trust = (float)config->update.trust,
                       .exempt = variable->rank <= 1};
}

/* What lies in the arrays of a variable from one element on. */
typedef struct place {
    float *value, *gradient, *slots[SG_UPDATE_MAX_SLOTS];
} place;

static place place_of(const sg_local *l, size_t v, size_t first_elem)
{
    const sg_variable *variable = &l->workload->model->variables[v];
    place p = {.value = variable->value + first_elem, .gradient = variable->gradient + first_elem};
    for (size_t i = 0; i < SG_UPDATE_MAX_SLOTS; i++)
        p.slots[i] = l->slots[v][i] != NULL ? l->slots[v][i] + first_elem : NULL;
    return p;
}

static void leave_out(sg_local *l, const sg_range *part)
{
    const size_t n = slice_elems(l);
    for (size_t i = part->first_elem / n; i * n < part->first_elem + part->n_elems; i++)
        l->left_out[part->variable][i] = true;
}

/* An on_final hook: the part is updated on the spot, while its gradient is in the cache. One that is left out counts as
 * a step, as on a ps. */
static sg_status update_part(void *user, const sg_range *part, bool left_out, sg_error *err)
{
    (void)err;
    sg_local *l = user;
    const sg_update update = update_of(l, &l->workload->model->variables[part->variable]);
    const bool waits = sg_update_takes_norms(&update);
    if (left_out && waits)
        leave_out(l, part);
    if (left_out || waits)
        return SG_OK;
    place at = place_of(l, part->variable, part->first_elem);
    sg_span span;
    sg_update_part whole = {.gradient = sg_span_reader_of_array(&span, at.gradient, part->n_elems * sizeof(float)),
                            .scale = 1};
    sg_update_apply(&update, part->n_elems, at.value, at.value, at.slots, &whole, 1);
    return SG_OK;
}

/* --- two phases, slice by slice as a ps goes through them --- */

typedef void (*slice_fn)(sg_local *l, size_t variable, size_t slice, const sg_update *update, const place *at,
                         size_t n_elems);

static void first_phase(sg_local *l, size_t v, size_t slice, const sg_update *update, const place *at, size_t n_elems)
{
    sg_update_squares_of squares;
    sg_span span;
    sg_update_part part = {.gradient = sg_span_reader_of_array(&span, at->gradient, n_elems * sizeof(float)),
                           .scale = 1};
    if (l->left_out[v][slice])
        sg_update_no_first_phase(update, n_elems, at->value, &squares);
    else
        (void)sg_update_first_phase(update, n_elems, at->value, at->gradient, at->slots, &part, 1, &squares);
    l->squares[v].values += squares.values;
    l->squares[v].made += squares.made;
    l->group_made[l->workload->model->variables[v].group] += squares.made;
}

static void second_phase(sg_local *l, size_t v, size_t slice, const sg_update *update, const place *at, size_t n_elems)
{
    if (!l->left_out[v][slice])
        sg_update_second_phase(update, &l->squares[v], l->group_made[l->workload->model->variables[v].group], n_elems,
                               at->value, at->gradient, at->value, at->slots);
    l->left_out[v][slice] = false;
}

static void for_each_slice(sg_local *l, slice_fn fn)
{
    const sg_model *model = l->workload->model;
    for (size_t v = 0; v < model->n_variables; v++) {
        const sg_variable *variable = &model->variables[v];
        const size_t n = sg_workload_n_elems(variable), step = slice_elems(l);
        const sg_update update = update_of(l, variable);
        for (size_t first = 0; first < n && !variable->frozen && sg_update_takes_norms(&update); first += step) {
            const place at = place_of(l, v, first);
            fn(l, v, first / step, &update, &at, n - first < step ? n - first : step);
        }
    }
}

static void update_all(sg_local *l)
{
    if (!l->takes_norms)
        return;
    memset(l->squares, 0, l->workload->model->n_variables * sizeof *l->squares);
    memset(l->group_made, 0, l->n_groups * sizeof *l->group_made);
    for_each_slice(l, first_phase);
    for_each_slice(l, second_phase);
}

sg_status sg_local_step(sg_local *l, uint64_t number, sg_step *step, sg_error *err)
{
    l->step = (sg_step){.number = number,
                        .iteration = number,
                        .rank = 0,
                        .size = 1,
                        .learning_rate = sg_schedule_rate(l->workload->config, number)};
    sg_workload_hooks hooks = {.on_final = update_part, .user = l};
    sg_status status = sg_workload_gradient(l->workload, &l->step, number + 1, &hooks, err);
    if (status == SG_OK)
        update_all(l);
    *step = l->step;
    return status;
}

static sg_status train(const sg_local_options *options, sg_local *l, sg_summary_losses *losses, sg_error *err)
{
    sg_workload *w = options->workload;
    for (uint64_t i = 0; i < w->total_steps; i++) {
        if (sg_workload_is_stopped(w))
            return sg_error_set(err, SG_CANCELLED, "stopped at step %" PRIu64 " of %" PRIu64, i, w->total_steps);
        sg_step step;
        sg_tested tested = {0};
        sg_status status = sg_evaluate_is_due(w, i) ? sg_evaluate_part(w, 0, 1, &tested, err) : SG_OK;
        if (status == SG_OK)
            status = sg_local_step(l, i, &step, err);
        if (status != SG_OK)
            return status;
        step.tested = tested;
        sg_summary_losses_add(losses, step.loss, step.examples);
        if (options->on_step != NULL)
            options->on_step(options->user, &step);
    }
    return SG_OK;
}

sg_status sg_local_run(const sg_local_options *options, sg_summary *summary, sg_error *err)
{
    sg_workload *w = options->workload;
    w->log = options->log;
    w->non_finite_steps = 0;
    *summary = (sg_summary){.mode = "local", .ps = 0, .workers = 1, .steps = w->total_steps};
    sg_workload_hash(w, summary->initial_parameters_sha256);
    sg_workload_warn(w, 1, options->log);
    sg_local *l = NULL;
    sg_summary_losses losses = {0};
    sg_status status = sg_local_create(w, &l, err);
    uint64_t started_ns = sg_clock_ns();
    if (status == SG_OK)
        status = train(options, l, &losses, err);
    summary->seconds = (double)(sg_clock_ns() - started_ns) / 1e9;
    sg_local_destroy(l);
    sg_log_info(options->log, "trained", "data_waits=%" PRIu64, sg_batches_waits(w->batches));
    if (status == SG_OK)
        status = sg_evaluate_accuracy(w, &summary->test_accuracy, err);
    if (status != SG_OK)
        return status;
    summary->examples_per_second = (double)sg_workload_examples(w, w->total_steps) / summary->seconds;
    summary->non_finite_steps = w->non_finite_steps;
    sg_summary_conclude(summary, w, &losses);
    snprintf(summary->version, sizeof(summary->version), "%s", sg_library_version());
    return SG_OK;
}
