/* worker/train/summary.c - see summary.h. */
#include "worker/train/summary.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/folder.h"

static json_t *real_or_null(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static char *summary_path(const char *run_dir)
{
    return sg_xprintf("%s/summary.json", run_dir);
}

static json_t *to_json(const sg_summary *s)
{
    json_t *root =
        json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:[], s:I, s:b, s:s, s:s, s:s}", "mode", s->mode, "ps",
                  (json_int_t)s->ps, "workers", (json_int_t)s->workers, "steps", (json_int_t)s->steps, "seconds",
                  real_or_null(s->seconds), "examples_per_second", real_or_null(s->examples_per_second),
                  "final_train_loss", real_or_null(s->final_train_loss), "loss_steps", (json_int_t)s->loss_steps,
                  "test_accuracy", real_or_null(s->test_accuracy), "evaluations", "non_finite_steps",
                  (json_int_t)s->non_finite_steps, "diverged", s->diverged, "parameters_sha256", s->parameters_sha256,
                  "initial_parameters_sha256", s->initial_parameters_sha256, "version", s->version);
    SG_ASSERT(root != NULL);
    return root;
}

static char *to_text(const json_t *root, size_t flags)
{
    char *text = json_dumps(root, flags | JSON_REAL_PRECISION(9));
    SG_ASSERT(text != NULL);
    return text;
}

static sg_status write_json(const json_t *root, const char *run_dir, sg_error *err)
{
    char *text = to_text(root, JSON_INDENT(2));
    char *line = sg_xprintf("%s\n", text);
    char *path = summary_path(run_dir);
    sg_status status = sg_folder_write(path, line, strlen(line), err);
    free(path);
    free(line);
    free(text);
    return status;
}

sg_status sg_summary_write(const sg_summary *s, const char *run_dir, sg_error *err)
{
    json_t *root = to_json(s);
    sg_status status = write_json(root, run_dir, err);
    json_decref(root);
    return status;
}

char *sg_summary_line(const sg_summary *s)
{
    json_t *root = to_json(s);
    char *text = to_text(root, JSON_COMPACT);
    json_decref(root);
    return text;
}

static void copy_text(const char *from, char *to, size_t to_bytes)
{
    snprintf(to, to_bytes, "%s", from);
}

static sg_status take_apart(json_t *root, const char *path, sg_summary *s, sg_error *err)
{
    const char *mode, *hash, *initial_hash, *version;
    json_int_t ps, workers, steps, loss_steps, non_finite_steps;
    int diverged;
    json_t *seconds, *speed, *loss, *accuracy;
    json_error_t fault;
    if (json_unpack_ex(root, &fault, 0, "{s:s, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:o, s:I, s:b, s:s, s:s, s:s}",
                       "mode", &mode, "ps", &ps, "workers", &workers, "steps", &steps, "seconds", &seconds,
                       "examples_per_second", &speed, "final_train_loss", &loss, "loss_steps", &loss_steps,
                       "test_accuracy", &accuracy, "non_finite_steps", &non_finite_steps, "diverged", &diverged,
                       "parameters_sha256", &hash, "initial_parameters_sha256", &initial_hash, "version",
                       &version) != 0)
        return sg_error_set(err, SG_DATA, "%s: %s; it is not a summary of this version", path, fault.text);
    s->ps = (uint64_t)ps;
    s->workers = (uint64_t)workers;
    s->steps = (uint64_t)steps;
    s->loss_steps = (uint64_t)loss_steps;
    s->non_finite_steps = (uint64_t)non_finite_steps;
    s->diverged = diverged != 0;
    s->seconds = json_number_value(seconds);
    s->examples_per_second = json_number_value(speed);
    s->final_train_loss = json_is_null(loss) ? NAN : json_number_value(loss);
    s->test_accuracy = json_number_value(accuracy);
    copy_text(mode, s->mode, sizeof(s->mode));
    copy_text(hash, s->parameters_sha256, sizeof(s->parameters_sha256));
    copy_text(initial_hash, s->initial_parameters_sha256, sizeof(s->initial_parameters_sha256));
    copy_text(version, s->version, sizeof(s->version));
    return SG_OK;
}

static sg_status load(const char *path, json_t **root, sg_error *err)
{
    json_error_t fault;
    *root = json_load_file(path, 0, &fault);
    if (*root != NULL)
        return SG_OK;
    if (access(path, R_OK) != 0)
        return sg_error_set(err, SG_NOT_FOUND, "%s: there is no such file", path);
    return sg_error_set(err, SG_DATA, "%s:%d: %s", path, fault.line, fault.text);
}

sg_status sg_summary_read(const char *run_dir, sg_summary *summary, sg_error *err)
{
    char *path = summary_path(run_dir);
    json_t *root;
    sg_status status = load(path, &root, err);
    if (status == SG_OK) {
        status = take_apart(root, path, summary, err);
        json_decref(root);
    }
    free(path);
    return status;
}

sg_status sg_summary_from_line(const char *line, sg_summary *summary, sg_error *err)
{
    json_error_t fault;
    json_t *root = json_loads(line, 0, &fault);
    if (root == NULL)
        return sg_error_set(err, SG_DATA, "the line of a summary: %s", fault.text);
    sg_status status = take_apart(root, "the line of a summary", summary, err);
    json_decref(root);
    return status;
}

sg_status sg_summary_add_evaluations(const char *run_dir, const sg_summary_evaluation *evaluations, size_t n,
                                     sg_error *err)
{
    char *path = summary_path(run_dir);
    json_t *root;
    sg_status status = load(path, &root, err);
    free(path);
    if (status != SG_OK)
        return status;
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)evaluations[i].step,
                                              "test_accuracy", real_or_null(evaluations[i].test_accuracy), "test_loss",
                                              real_or_null(evaluations[i].test_loss)));
    json_object_set_new(root, "evaluations", list);
    status = write_json(root, run_dir, err);
    json_decref(root);
    return status;
}

void sg_summary_losses_add(sg_summary_losses *l, double loss, uint64_t examples)
{
    size_t at = l->n++ % SG_SUMMARY_LOSSES;
    l->losses[at] = loss;
    l->examples[at] = examples;
}

/* None: there were no steps, or this worker had no rows of the newest ones, since batches are smaller than the job. */
static bool any_examples(const sg_summary_losses *l)
{
    for (size_t i = 0; i < SG_SUMMARY_LOSSES && i < l->n; i++)
        if (l->examples[i] > 0)
            return true;
    return false;
}

double sg_summary_losses_mean(const sg_summary_losses *l)
{
    double sum = 0;
    uint64_t examples = 0;
    for (size_t i = 0; i < SG_SUMMARY_LOSSES && i < l->n; i++) {
        if (l->examples[i] == 0)
            continue;
        sum += l->losses[i] * (double)l->examples[i];
        examples += l->examples[i];
    }
    return examples > 0 ? sum / (double)examples : NAN;
}

void sg_loss_print(double loss, char out[SG_LOSS_TEXT_BYTES])
{
    snprintf(out, SG_LOSS_TEXT_BYTES, fabs(loss) < 1e5 ? "%.4f" : "%.4g", loss);
}

bool sg_summary_is_of_no_step(const sg_summary *s)
{
    return isnan(s->final_train_loss) && !s->diverged && s->examples_per_second == 0;
}

void sg_summary_conclude(sg_summary *s, const sg_workload *workload, const sg_summary_losses *losses)
{
    s->final_train_loss = sg_summary_losses_mean(losses);
    s->loss_steps = losses->n < SG_SUMMARY_LOSSES ? losses->n : SG_SUMMARY_LOSSES;
    s->diverged = (any_examples(losses) && !isfinite(s->final_train_loss)) || !sg_workload_is_finite(workload);
    sg_workload_hash(workload, s->parameters_sha256);
}
