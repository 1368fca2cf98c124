/* common/checkpoint_read.c - values and slots of a set, by variable and element, whatever the number of ps that wrote
 * it. A checksum is over a whole tensor, so whole tensors are read; the last one of each kind is kept for who asks for
 * its pieces. */
#include <stdio.h>

#include "common/checkpoint_internal.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

#define N_KINDS (1 + SG_CHECKPOINT_MAX_SLOTS) /* values, then slots */

typedef struct part {
    sg_safetensors *file;        /* NULL: the ps owns nothing */
    const char *steps, *applied; /* 16 digits for each slice, in the file's metadata */
    const char *crcs;            /* 8 digits for each tensor */
    uint32_t n_slices, n_placed; /* slices, and tensors, that were found */
} part;

/* Where a slice of the plan lies. */
typedef struct place {
    uint32_t first_tensor; /* in its part: the values; slots follow */
    uint32_t number;       /* among the slices of its part */
    uint32_t n_kinds;
} place;

typedef struct kept {
    float *elems; /* NULL: nothing */
    uint64_t capacity_elems;
    uint32_t slice; /* UINT32_MAX: none */
} kept;

struct sg_checkpoint_reader {
    char *set_path;
    sg_checkpoint_manifest manifest;
    sg_plan *plan;
    part *parts;   /* [n_ps] */
    place *places; /* [n_slices] */
    kept kept[N_KINDS];
};

sg_status sg_checkpoint_plan(const sg_checkpoint_manifest *manifest, sg_plan **plan, sg_error *err)
{
    sg_plan_variable *variables = sg_xcalloc(manifest->n_variables, sizeof *variables);
    for (uint32_t i = 0; i < manifest->n_variables; i++) {
        variables[i].group = manifest->variables[i].group;
        variables[i].n_elems = 1;
        for (uint32_t dim = 0; dim < manifest->variables[i].rank; dim++)
            variables[i].n_elems *= manifest->variables[i].shape[dim];
    }
    sg_status status =
        sg_plan_create(variables, manifest->n_variables, manifest->n_ps, manifest->slice_bytes, plan, err);
    free(variables);
    if (status == SG_OK)
        return SG_OK;
    char name[SG_CHECKPOINT_NAME_BYTES];
    status =
        sg_error_prefix(err, SG_DATA, "%s: its variables make no plan", sg_checkpoint_set_name(manifest->set, name));
    return status;
}

/* --- opening --------------------------------------------------------------------------------------------------------
 */

static sg_status wrong_part(const sg_checkpoint_reader *r, uint32_t ps, const char *what, sg_error *err)
{
    char name[SG_CHECKPOINT_PART_BYTES];
    return sg_error_set(err, SG_DATA, "%s/%s is damaged: %s", r->set_path, sg_checkpoint_part_name(ps, name), what);
}

static bool is_tensor(const sg_safetensors *file, size_t tensor, const char *name, uint64_t n_elems)
{
    if (tensor >= file->n_tensors)
        return false;
    const sg_safetensors_tensor *t = &file->tensors[tensor];
    return strcmp(t->dtype, "F32") == 0 && t->rank == 1 && t->shape[0] == n_elems && strcmp(t->name, name) == 0;
}

/* How many tensors from `first` on are values and slots of the slice. */
static uint32_t count_kinds(const sg_checkpoint_reader *r, const sg_safetensors *file, uint32_t slice, size_t first)
{
    const sg_plan_slice *s = &r->plan->slices[slice];
    uint32_t n = 0;
    for (bool is_there = true; n < N_KINDS; n++) {
        char *name = sg_checkpoint_tensor_name(n, r->manifest.variables[s->variable].name, s->first_elem);
        is_there = is_tensor(file, first + n, name, s->n_elems);
        free(name);
        if (!is_there)
            break;
    }
    return n;
}

/* The tensors of every part are those of its slices, in order, and nothing else. */
static sg_status place_slices(sg_checkpoint_reader *r, sg_error *err)
{
    for (uint32_t i = 0; i < r->plan->n_slices; i++) {
        part *p = &r->parts[r->plan->slices[i].ps];
        uint32_t n_kinds = count_kinds(r, p->file, i, p->n_placed);
        if (n_kinds == 0)
            return wrong_part(r, r->plan->slices[i].ps, "it does not have the tensors that the plan gives it", err);
        r->places[i] = (place){p->n_placed, p->n_slices++, n_kinds};
        p->n_placed += n_kinds;
    }
    return SG_OK;
}

static sg_status take_metadata(sg_checkpoint_reader *r, uint32_t ps, sg_error *err)
{
    part *p = &r->parts[ps];
    char set[SG_CHECKPOINT_NAME_BYTES], index[12];
    snprintf(index, sizeof index, "%" PRIu32, ps);
    const char *found_set = sg_safetensors_metadata(p->file, "set");
    const char *found_ps = sg_safetensors_metadata(p->file, "ps");
    p->steps = sg_safetensors_metadata(p->file, "steps");
    p->applied = sg_safetensors_metadata(p->file, "applied");
    p->crcs = sg_safetensors_metadata(p->file, "crc32c");
    if (found_set == NULL || strcmp(found_set, sg_checkpoint_set_name(r->manifest.set, set)) != 0)
        return wrong_part(r, ps, "it is of another set", err);
    if (found_ps == NULL || strcmp(found_ps, index) != 0)
        return wrong_part(r, ps, "it is of another ps", err);
    if (p->n_placed != p->file->n_tensors)
        return wrong_part(r, ps, "it has more tensors than the plan gives it", err);
    if (p->steps == NULL || strlen(p->steps) != (size_t)p->n_slices * 16 || p->applied == NULL ||
        strlen(p->applied) != (size_t)p->n_slices * 16 || p->crcs == NULL || strlen(p->crcs) != p->file->n_tensors * 8)
        return wrong_part(r, ps, "its steps or checksums are missing", err);
    return SG_OK;
}

static sg_status open_part(sg_checkpoint_reader *r, const sg_disk *disk, const sg_checkpoint_part *reported,
                           sg_error *err)
{
    char name[SG_CHECKPOINT_PART_BYTES];
    char *path = sg_xprintf("%s/%s", r->set_path, sg_checkpoint_part_name(reported->ps, name));
    part *p = &r->parts[reported->ps];
    sg_status status = sg_safetensors_open(disk, path, &p->file, err);
    status = sg_checkpoint_missing(status, path, err);
    free(path);
    if (status != SG_OK)
        return status;
    if (p->file->header_crc32c != reported->header_crc32c || p->file->n_bytes != reported->n_bytes)
        return wrong_part(r, reported->ps, "its header does not have the checksum that was reported", err);
    return SG_OK;
}

static sg_status open_parts(sg_checkpoint_reader *r, const sg_disk *disk, sg_error *err)
{
    sg_status status = sg_checkpoint_plan(&r->manifest, &r->plan, err);
    if (status != SG_OK)
        return status;
    r->parts = sg_xcalloc(r->plan->n_ps, sizeof *r->parts);
    r->places = sg_xcalloc(r->plan->n_slices, sizeof *r->places);
    for (uint32_t i = 0; i < r->manifest.n_parts && status == SG_OK; i++)
        status = open_part(r, disk, &r->manifest.parts[i], err);
    for (uint32_t ps = 0; ps < r->plan->n_ps && status == SG_OK; ps++) {
        if (r->plan->ps_bytes[ps] > 0 && r->parts[ps].file == NULL)
            status = wrong_part(r, ps, "the manifest does not name it", err);
    }
    if (status == SG_OK)
        status = place_slices(r, err);
    for (uint32_t i = 0; i < r->manifest.n_parts && status == SG_OK; i++)
        status = take_metadata(r, r->manifest.parts[i].ps, err);
    return status;
}

sg_status sg_checkpoint_reader_open(const sg_checkpoint *folder, sg_checkpoint_set set, sg_checkpoint_reader **reader,
                                    sg_error *err)
{
    sg_checkpoint_reader *r = sg_xcalloc(1, sizeof *r);
    r->set_path = sg_checkpoint_set_path(folder, set);
    for (uint32_t kind = 0; kind < N_KINDS; kind++)
        r->kept[kind].slice = UINT32_MAX;
    sg_status status = sg_checkpoint_load_manifest(folder, set, &r->manifest, NULL, err);
    if (status == SG_OK)
        status = open_parts(r, folder->disk, err);
    if (status != SG_OK)
        sg_checkpoint_reader_close(r);
    else
        *reader = r;
    return status;
}

void sg_checkpoint_reader_close(sg_checkpoint_reader *r)
{
    if (r == NULL)
        return;
    for (uint32_t ps = 0; r->parts != NULL && ps < r->plan->n_ps; ps++)
        sg_safetensors_close(r->parts[ps].file);
    for (uint32_t kind = 0; kind < N_KINDS; kind++)
        free(r->kept[kind].elems);
    free(r->parts);
    free(r->places);
    sg_plan_destroy(r->plan);
    sg_checkpoint_manifest_deinit(&r->manifest);
    free(r->set_path);
    free(r);
}

const sg_checkpoint_manifest *sg_checkpoint_reader_manifest(const sg_checkpoint_reader *reader)
{
    return &reader->manifest;
}

/* --- reading --------------------------------------------------------------------------------------------------------
 */

static uint64_t digits(const char *at, size_t n)
{
    char text[17];
    memcpy(text, at, n);
    text[n] = '\0';
    return strtoull(text, NULL, 16);
}

/* Values (kind 0) or a slot of a whole slice, checked. */
static sg_status read_whole(const sg_checkpoint_reader *r, uint32_t slice, uint32_t kind, float *out, sg_error *err)
{
    const sg_plan_slice *s = &r->plan->slices[slice];
    const part *p = &r->parts[s->ps];
    uint32_t index = r->places[slice].first_tensor + kind;
    const sg_safetensors_tensor *tensor = &p->file->tensors[index];
    sg_status status = sg_safetensors_read(p->file, tensor, 0, out, (size_t)tensor->n_bytes, err);
    if (status != SG_OK)
        return status;
    if (sg_crc32c(0, out, (size_t)tensor->n_bytes) == digits(p->crcs + (size_t)index * 8, 8))
        return SG_OK;
    char name[SG_CHECKPOINT_PART_BYTES], what[8];
    snprintf(what, sizeof what, kind == 0 ? "values" : "slot %" PRIu32, kind - 1);
    return sg_error_set(err, SG_DATA,
                        "%s/%s is damaged: the %s of elements %" PRIu64 " to %" PRIu64
                        " of '%.100s' do not have their checksum",
                        r->set_path, sg_checkpoint_part_name(s->ps, name), what, s->first_elem,
                        s->first_elem + s->n_elems - 1, r->manifest.variables[s->variable].name);
}

/* The same, into what is kept. */
static sg_status keep_whole(sg_checkpoint_reader *r, uint32_t slice, uint32_t kind, sg_error *err)
{
    kept *k = &r->kept[kind];
    uint64_t n_elems = r->plan->slices[slice].n_elems;
    if (k->slice == slice)
        return SG_OK;
    k->slice = UINT32_MAX;
    if (k->capacity_elems < n_elems) { /* no more than the file has */
        free(k->elems);
        k->capacity_elems = 0;
        k->elems = sg_try_alloc_aligned((size_t)n_elems * sizeof *k->elems);
        if (k->elems == NULL)
            return sg_error_set(err, SG_EXHAUSTED, "no memory for a slice of %" PRIu64 " elements", n_elems);
        k->capacity_elems = n_elems;
    }
    sg_status status = read_whole(r, slice, kind, k->elems, err);
    if (status == SG_OK)
        k->slice = slice;
    return status;
}

/* Elements [first, first + n) of the slice. */
static sg_status read_piece(sg_checkpoint_reader *r, uint32_t slice, uint32_t kind, uint64_t first, uint64_t n,
                            float *out, sg_error *err)
{
    if (kind >= r->places[slice].n_kinds) {
        memset(out, 0, (size_t)n * sizeof *out);
        return SG_OK;
    }
    if (n == r->plan->slices[slice].n_elems && r->kept[kind].slice != slice)
        return read_whole(r, slice, kind, out, err);
    sg_status status = keep_whole(r, slice, kind, err);
    if (status == SG_OK)
        memcpy(out, r->kept[kind].elems + first, (size_t)n * sizeof *out);
    return status;
}

static void take_steps(const sg_checkpoint_reader *r, uint32_t slice, uint64_t *step, uint64_t *n_applied)
{
    const part *p = &r->parts[r->plan->slices[slice].ps];
    size_t at = (size_t)r->places[slice].number * 16;
    uint64_t found_step = digits(p->steps + at, 16), found_applied = digits(p->applied + at, 16);
    if (step != NULL && found_step > *step)
        *step = found_step;
    if (n_applied != NULL && found_applied > *n_applied)
        *n_applied = found_applied;
}

static sg_status check_range(const sg_checkpoint_reader *r, uint32_t variable, uint64_t first_elem, uint64_t n_elems,
                             sg_error *err)
{
    if (variable >= r->plan->n_variables)
        return sg_error_set(err, SG_INVALID, "%s has %" PRIu32 " variables, not one of index %" PRIu32, r->set_path,
                            r->plan->n_variables, variable);
    uint64_t has = r->plan->variables[variable].n_elems;
    if (first_elem > has || n_elems > has - first_elem)
        return sg_error_set(err, SG_INVALID,
                            "'%.100s' in %s has %" PRIu64 " elements, wanted %" PRIu64 " from %" PRIu64,
                            r->manifest.variables[variable].name, r->set_path, has, n_elems, first_elem);
    return SG_OK;
}

sg_status sg_checkpoint_read(sg_checkpoint_reader *r, uint32_t variable, uint64_t first_elem, uint64_t n_elems,
                             float *values, float *const slots[SG_CHECKPOINT_MAX_SLOTS], uint64_t *step,
                             uint64_t *n_applied, sg_error *err)
{
    sg_status status = check_range(r, variable, first_elem, n_elems, err);
    if (status != SG_OK)
        return status;
    if (step != NULL)
        *step = 0;
    if (n_applied != NULL)
        *n_applied = 0;
    const sg_plan_variable *v = &r->plan->variables[variable];
    uint64_t slice_elems = r->plan->slice_bytes / sizeof(float);
    for (uint64_t done = 0; done < n_elems;) {
        uint32_t slice = v->first_slice + (uint32_t)((first_elem + done) / slice_elems);
        const sg_plan_slice *s = &r->plan->slices[slice];
        uint64_t first = first_elem + done - s->first_elem;
        uint64_t n = s->n_elems - first < n_elems - done ? s->n_elems - first : n_elems - done;
        take_steps(r, slice, step, n_applied);
        for (uint32_t kind = 0; kind < N_KINDS && status == SG_OK; kind++) {
            float *out = kind == 0 ? values : slots != NULL ? slots[kind - 1] : NULL;
            if (out != NULL)
                status = read_piece(r, slice, kind, first, n, out + done, err);
        }
        if (status != SG_OK)
            return status;
        done += n;
    }
    return SG_OK;
}

sg_status sg_checkpoint_verify(sg_checkpoint_reader *r, sg_error *err)
{
    for (uint32_t slice = 0; slice < r->plan->n_slices; slice++) {
        for (uint32_t kind = 0; kind < r->places[slice].n_kinds; kind++) {
            r->kept[kind].slice = UINT32_MAX; /* what was read before is read again */
            sg_status status = keep_whole(r, slice, kind, err);
            if (status != SG_OK)
                return status;
        }
    }
    return SG_OK;
}
