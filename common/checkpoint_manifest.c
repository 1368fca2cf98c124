/* common/checkpoint_manifest.c - a manifest as JSON and back. */
#include "common/checkpoint_internal.h"
#include "common/plan.h"
#include "common/safetensors.h"

#define MAX_ELEMS (UINT64_MAX >> 16) /* of a variable, as everywhere */

/* --- out -----------------------------------------------------------------------------------------------------------
 */

/* NULL for a number that JSON has not. */
static json_t *number_json(uint64_t number)
{
    return number <= INT64_MAX ? json_integer((json_int_t)number) : NULL;
}

static json_t *numbers_json(const uint64_t *numbers, uint32_t n)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) {
        if (json_array_append_new(array, number_json(numbers[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *members_json(const sg_workers *members)
{
    json_t *array = json_array();
    for (uint32_t worker = 0; sg_workers_next(members, worker, &worker); worker++)
        json_array_append_new(array, json_integer(worker));
    return array;
}

static json_t *hyper_json(const sg_checkpoint_hyper *h)
{
    return json_pack("{s:o, s:f, s:f, s:f, s:f, s:f, s:f}", "number", number_json(h->number), "learning_rate",
                     h->learning_rate, "momentum", h->momentum, "beta1", h->beta1, "beta2", h->beta2, "epsilon",
                     h->epsilon, "weight_decay", h->weight_decay);
}

json_t *sg_checkpoint_changes_json(const sg_checkpoint_change *changes, uint32_t n)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < n; i++)
        json_object_set_new(object, changes[i].key, json_string(changes[i].value));
    return object;
}

static json_t *variables_json(const sg_checkpoint_variable *variables, uint32_t n)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) {
        const sg_checkpoint_variable *v = &variables[i];
        json_t *object =
            json_pack("{s:s, s:o, s:i, s:b, s:b, s:f, s:f}", "name", v->name, "shape", numbers_json(v->shape, v->rank),
                      "group", (int)v->group, "frozen", v->frozen, "average", v->average, "lr_multiplier",
                      (double)v->lr_multiplier, "decay_multiplier", (double)v->decay_multiplier);
        if (json_array_append_new(array, object) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    return array;
}

static json_t *parts_json(const sg_checkpoint_part *parts, uint32_t n)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < n; i++) {
        char name[SG_CHECKPOINT_PART_BYTES], crc[9];
        snprintf(crc, sizeof crc, "%08" PRIx32, parts[i].header_crc32c);
        json_array_append_new(array, json_pack("{s:i, s:s, s:o, s:s}", "ps", (int)parts[i].ps, "file",
                                               sg_checkpoint_part_name(parts[i].ps, name), "bytes",
                                               number_json(parts[i].n_bytes), "header_crc32c", crc));
    }
    if (json_array_size(array) == n)
        return array;
    json_decref(array);
    return NULL;
}

json_t *sg_checkpoint_manifest_json(const sg_checkpoint_manifest *m)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, m->seed);
    return json_pack("{s:o, s:o, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o}", "set",
                     sg_checkpoint_set_json(m->set), "iteration", number_json(m->set.iteration), "generation",
                     number_json(m->set.generation), "mode", m->mode, "rule", m->rule, "seed", seed, "batch",
                     number_json(m->batch), "hyper", hyper_json(&m->hyper), "changes",
                     sg_checkpoint_changes_json(m->changes, m->n_changes), "members", members_json(&m->members),
                     "steps", numbers_json(m->steps, m->n_groups), "next_iteration", number_json(m->next_iteration),
                     "n_ps", (int)m->n_ps, "slice_bytes", number_json(m->slice_bytes), "variables",
                     variables_json(m->variables, m->n_variables), "parts", parts_json(m->parts, m->n_parts));
}

/* --- in ------------------------------------------------------------------------------------------------------------
 */

static bool get_numbers(const json_t *array, size_t max_n, uint64_t **numbers, uint32_t *n)
{
    if (!json_is_array(array) || json_array_size(array) > max_n)
        return false;
    *n = (uint32_t)json_array_size(array);
    *numbers = sg_xcalloc(*n, sizeof **numbers);
    for (uint32_t i = 0; i < *n; i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0)
            return false;
        (*numbers)[i] = (uint64_t)json_integer_value(item);
    }
    return true;
}

static bool get_u32(const json_t *object, const char *key, uint64_t max, uint32_t *number)
{
    uint64_t wide;
    if (!sg_checkpoint_json_number(object, key, max, &wide))
        return false;
    *number = (uint32_t)wide;
    return true;
}

static bool get_real(const json_t *object, const char *key, double *real)
{
    const json_t *value = json_object_get(object, key);
    *real = json_number_value(value);
    return json_is_number(value);
}

static bool get_word(const json_t *object, const char *key, char out[SG_CHECKPOINT_WORD_BYTES])
{
    const char *text = sg_checkpoint_json_text(object, key);
    if (text[0] == '\0' || strlen(text) >= SG_CHECKPOINT_WORD_BYTES)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool get_members(const json_t *array, sg_workers *members)
{
    *members = (sg_workers){0};
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *item = json_array_get(array, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 || json_integer_value(item) >= SG_MAX_WORKERS)
            return false;
        sg_workers_add(members, (uint32_t)json_integer_value(item));
    }
    return json_is_array(array);
}

static bool get_hyper(const json_t *object, sg_checkpoint_hyper *h)
{
    return sg_checkpoint_json_number(object, "number", UINT64_MAX, &h->number) &&
           get_real(object, "learning_rate", &h->learning_rate) && get_real(object, "momentum", &h->momentum) &&
           get_real(object, "beta1", &h->beta1) && get_real(object, "beta2", &h->beta2) &&
           get_real(object, "epsilon", &h->epsilon) && get_real(object, "weight_decay", &h->weight_decay);
}

/* Sets and records of before there were any have none. */
bool sg_checkpoint_json_changes(json_t *object, sg_checkpoint_change **changes, uint32_t *n)
{
    const char *key;
    json_t *value;
    *changes = NULL;
    *n = 0;
    if (object == NULL)
        return true;
    if (!json_is_object(object) || json_object_size(object) > SG_CHECKPOINT_MAX_CHANGES)
        return false;
    *changes = sg_xcalloc(json_object_size(object), sizeof **changes);
    json_object_foreach(object, key, value)
    {
        if (!json_is_string(value))
            return false;
        (*changes)[(*n)++] =
            (sg_checkpoint_change){.key = sg_xstrdup(key), .value = sg_xstrdup(json_string_value(value))};
    }
    return true;
}

static bool get_variable(const json_t *object, uint32_t n_groups, sg_checkpoint_variable *v)
{
    double lr_multiplier, decay_multiplier;
    const char *name = sg_checkpoint_json_text(object, "name");
    v->name = sg_xstrdup(name);
    if (name[0] == '\0' ||
        !get_numbers(json_object_get(object, "shape"), SG_SAFETENSORS_MAX_RANK, &v->shape, &v->rank) ||
        !get_u32(object, "group", UINT32_MAX, &v->group) || v->group >= n_groups ||
        !json_is_boolean(json_object_get(object, "frozen")) || !get_real(object, "lr_multiplier", &lr_multiplier) ||
        !get_real(object, "decay_multiplier", &decay_multiplier))
        return false;
    uint64_t n_elems = 1;
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->shape[i] == 0 || __builtin_mul_overflow(n_elems, v->shape[i], &n_elems) || n_elems > MAX_ELEMS)
            return false;
    }
    v->frozen = json_is_true(json_object_get(object, "frozen"));
    v->average = json_is_true(json_object_get(object, "average")); /* none, in sets of before there was any: false */
    v->lr_multiplier = (float)lr_multiplier;
    v->decay_multiplier = (float)decay_multiplier;
    return true;
}

static bool get_variables(const json_t *array, sg_checkpoint_manifest *m)
{
    if (json_array_size(array) < 1 || json_array_size(array) > SG_PLAN_MAX_VARIABLES)
        return false;
    m->n_variables = (uint32_t)json_array_size(array);
    m->variables = sg_xcalloc(m->n_variables, sizeof *m->variables);
    for (uint32_t i = 0; i < m->n_variables; i++) {
        if (!get_variable(json_array_get(array, i), m->n_groups, &m->variables[i]))
            return false;
    }
    return true;
}

static bool get_parts(const json_t *array, sg_checkpoint_manifest *m)
{
    if (json_array_size(array) < 1 || json_array_size(array) > m->n_ps)
        return false;
    m->n_parts = (uint32_t)json_array_size(array);
    m->parts = sg_xcalloc(m->n_parts, sizeof *m->parts);
    for (uint32_t i = 0; i < m->n_parts; i++) {
        const json_t *object = json_array_get(array, i);
        sg_checkpoint_part *part = &m->parts[i];
        uint64_t crc;
        if (!get_u32(object, "ps", m->n_ps - 1, &part->ps) || (i > 0 && part->ps <= m->parts[i - 1].ps) ||
            !sg_checkpoint_json_number(object, "bytes", UINT64_MAX, &part->n_bytes) ||
            !sg_checkpoint_json_text_number(object, "header_crc32c", 16, &crc) || crc > UINT32_MAX)
            return false;
        part->header_crc32c = (uint32_t)crc;
    }
    return true;
}

/* Sets of before there was any go on where their name says. */
static bool get_next_iteration(const json_t *object, sg_checkpoint_manifest *m)
{
    m->next_iteration = m->set.iteration;
    return json_object_get(object, "next_iteration") == NULL ||
           sg_checkpoint_json_number(object, "next_iteration", m->set.iteration, &m->next_iteration);
}

/* The first member that is missing or wrong; NULL: none is. */
static const char *decode(const json_t *object, sg_checkpoint_manifest *m)
{
    if (!sg_checkpoint_json_set(json_object_get(object, "set"), &m->set) || m->set.generation == 0)
        return "set";
    if (!get_word(object, "mode", m->mode))
        return "mode";
    if (!get_word(object, "rule", m->rule))
        return "rule";
    if (!sg_checkpoint_json_text_number(object, "seed", 10, &m->seed))
        return "seed";
    if (!sg_checkpoint_json_number(object, "batch", UINT64_MAX, &m->batch))
        return "batch";
    if (!get_hyper(json_object_get(object, "hyper"), &m->hyper))
        return "hyper";
    if (!sg_checkpoint_json_changes(json_object_get(object, "changes"), &m->changes, &m->n_changes))
        return "changes";
    if (!get_members(json_object_get(object, "members"), &m->members))
        return "members";
    if (!get_numbers(json_object_get(object, "steps"), SG_PLAN_MAX_VARIABLES, &m->steps, &m->n_groups))
        return "steps";
    if (!get_next_iteration(object, m))
        return "next_iteration";
    if (!get_u32(object, "n_ps", SG_PLAN_MAX_PS, &m->n_ps) || m->n_ps == 0)
        return "n_ps";
    if (!sg_checkpoint_json_number(object, "slice_bytes", UINT64_MAX, &m->slice_bytes))
        return "slice_bytes";
    if (!get_variables(json_object_get(object, "variables"), m))
        return "variables";
    if (!get_parts(json_object_get(object, "parts"), m))
        return "parts";
    return NULL;
}

/* Errors: DATA, naming `path`. To be freed by sg_checkpoint_manifest_deinit, also after failure. */
static sg_status read_manifest(const json_t *object, const char *path, sg_checkpoint_manifest *manifest, sg_error *err)
{
    *manifest = (sg_checkpoint_manifest){0};
    const char *wrong = decode(object, manifest);
    if (wrong == NULL)
        return SG_OK;
    return sg_error_set(err, SG_DATA, "%s is not a manifest: '%s' is missing or wrong", path, wrong);
}

sg_status sg_checkpoint_load_manifest(const sg_checkpoint *folder, sg_checkpoint_set set,
                                      sg_checkpoint_manifest *manifest, bool *newer, sg_error *err)
{
    char *set_path = sg_checkpoint_set_path(folder, set);
    char *path = sg_xprintf("%s/" SG_CHECKPOINT_MANIFEST, set_path);
    json_t *object;
    sg_status status = sg_checkpoint_get_json(folder->disk, path, &object, newer, err);
    if (status == SG_OK) {
        status = read_manifest(object, path, manifest, err);
        if (status == SG_OK && !sg_checkpoint_set_equal(manifest->set, set)) {
            char name[SG_CHECKPOINT_NAME_BYTES];
            status = sg_error_set(err, SG_DATA, "%s is the manifest of %s", path,
                                  sg_checkpoint_set_name(manifest->set, name));
        }
        if (status != SG_OK)
            sg_checkpoint_manifest_deinit(manifest);
        json_decref(object);
    }
    free(path);
    free(set_path);
    return status;
}

sg_status sg_checkpoint_read_manifest(const sg_checkpoint *folder, sg_checkpoint_set set,
                                      sg_checkpoint_manifest *manifest, sg_error *err)
{
    return sg_checkpoint_load_manifest(folder, set, manifest, NULL, err);
}

/* --- memory --------------------------------------------------------------------------------------------------------
 */

static void *copy_array(const void *from, size_t n, size_t element_bytes)
{
    void *to = sg_xcalloc(n, element_bytes);
    if (n > 0)
        memcpy(to, from, n * element_bytes);
    return to;
}

sg_checkpoint_change *sg_checkpoint_changes_copy(const sg_checkpoint_change *changes, uint32_t n)
{
    sg_checkpoint_change *copy = n == 0 ? NULL : sg_xcalloc(n, sizeof *copy);
    for (uint32_t i = 0; i < n; i++)
        copy[i] = (sg_checkpoint_change){.key = sg_xstrdup(changes[i].key), .value = sg_xstrdup(changes[i].value)};
    return copy;
}

void sg_checkpoint_changes_free(sg_checkpoint_change *changes, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        free(changes[i].key);
        free(changes[i].value);
    }
    free(changes);
}

void sg_checkpoint_manifest_copy(sg_checkpoint_manifest *to, const sg_checkpoint_manifest *from)
{
    *to = *from;
    to->steps = copy_array(from->steps, from->n_groups, sizeof *from->steps);
    to->parts = copy_array(from->parts, from->n_parts, sizeof *from->parts);
    to->changes = sg_checkpoint_changes_copy(from->changes, from->n_changes);
    to->variables = copy_array(from->variables, from->n_variables, sizeof *from->variables);
    for (uint32_t i = 0; i < from->n_variables; i++) {
        sg_checkpoint_variable *v = &to->variables[i];
        v->name = sg_xstrdup(v->name);
        v->shape = copy_array(v->shape, v->rank, sizeof *v->shape);
    }
}

void sg_checkpoint_manifest_deinit(sg_checkpoint_manifest *manifest)
{
    for (uint32_t i = 0; manifest->variables != NULL && i < manifest->n_variables; i++) {
        free(manifest->variables[i].name);
        free(manifest->variables[i].shape);
    }
    sg_checkpoint_changes_free(manifest->changes, manifest->n_changes);
    free(manifest->variables);
    free(manifest->steps);
    free(manifest->parts);
    *manifest = (sg_checkpoint_manifest){0};
}
