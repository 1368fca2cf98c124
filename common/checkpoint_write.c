/* common/checkpoint_write.c - one ps's file of a set, and the manifest, which makes the set complete.
 *
 * A tensor is a slice's values or one of its slots, in the order of the plan: values, then slots, of one slice after
 * the other. What is found out while writing (the checksums) has a fixed width in the header, which is written last. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#include "common/checkpoint_internal.h"
#include "common/crc32c.h"
#include "common/safetensors.h"

#define NUMBER_DIGITS 16u
#define CRC_DIGITS    8u
#define N_METADATA    9u

typedef struct part_content {       /* stays where it is from begin to end */
    sg_safetensors_tensor *tensors; /* [n_tensors] their names are owned */
    size_t n_tensors;
    char *steps, *applied; /* NUMBER_DIGITS hexadecimal digits for each slice */
    char *crcs;            /* CRC_DIGITS for each tensor */
    sg_safetensors_metadata_entry metadata[N_METADATA];
    char set[SG_CHECKPOINT_NAME_BYTES], ps[12], n_ps[12], slice_bytes[24], format[12];
} part_content;

char *sg_checkpoint_tensor_name(uint32_t kind, const char *variable, uint64_t first_elem)
{
    if (kind == 0)
        return sg_xprintf("values/%s/%" PRIu64, variable, first_elem);
    return sg_xprintf("slot%" PRIu32 "/%s/%" PRIu64, kind - 1, variable, first_elem);
}

static const float *array_of(const sg_checkpoint_slice *slice, uint32_t kind)
{
    return kind == 0 ? slice->values : slice->slots[kind - 1];
}

/* Values and slots that the slice has. */
static uint32_t n_kinds(const sg_checkpoint_slice *slice)
{
    return 1 + slice->n_slots;
}

static void content_init(part_content *c, const sg_checkpoint_cut *cut)
{
    *c = (part_content){0};
    for (size_t i = 0; i < cut->n_slices; i++)
        c->n_tensors += n_kinds(&cut->slices[i]);
    c->tensors = sg_xcalloc(c->n_tensors, sizeof *c->tensors);
    c->steps = sg_xcalloc(cut->n_slices * NUMBER_DIGITS + 1, 1);
    c->applied = sg_xcalloc(cut->n_slices * NUMBER_DIGITS + 1, 1);
    c->crcs = sg_xcalloc(c->n_tensors * CRC_DIGITS + 1, 1);
    memset(c->crcs, '0', c->n_tensors * CRC_DIGITS);
    memset(c->steps, '0', cut->n_slices * NUMBER_DIGITS);
    memset(c->applied, '0', cut->n_slices * NUMBER_DIGITS);
    size_t at = 0;
    for (size_t i = 0; i < cut->n_slices; i++) {
        const sg_checkpoint_slice *slice = &cut->slices[i];
        for (uint32_t kind = 0; kind < n_kinds(slice); kind++)
            c->tensors[at++] = (sg_safetensors_tensor){
                .name = sg_checkpoint_tensor_name(kind, cut->names[slice->variable], slice->first_elem),
                .shape = &slice->n_elems,
                .rank = 1,
                .dtype = "F32",
            };
    }
    sg_checkpoint_set_name(cut->set, c->set);
    snprintf(c->ps, sizeof c->ps, "%" PRIu32, cut->ps);
    snprintf(c->n_ps, sizeof c->n_ps, "%" PRIu32, cut->n_ps);
    snprintf(c->slice_bytes, sizeof c->slice_bytes, "%" PRIu64, cut->slice_bytes);
    snprintf(c->format, sizeof c->format, "%u", SG_CHECKPOINT_FORMAT);
}

static void content_deinit(part_content *c)
{
    for (size_t i = 0; i < c->n_tensors; i++)
        free((char *)c->tensors[i].name);
    free(c->tensors);
    free(c->steps);
    free(c->applied);
    free(c->crcs);
}

static void put_digits(char *at, size_t n_digits, uint64_t number)
{
    char text[NUMBER_DIGITS + 1];
    snprintf(text, sizeof text, "%0*" PRIx64, (int)n_digits, number);
    memcpy(at, text, n_digits);
}

/* The set's folder is there for good. */
static int make_set_folder(const sg_checkpoint *folder, const char *path)
{
    int error = folder->disk->make_folder(folder->disk->user, path);
    if (error != 0 && error != EEXIST)
        return error;
    return folder->disk->sync_folder(folder->disk->user, folder->dir);
}

struct sg_checkpoint_writer {
    const sg_disk *disk;
    const sg_checkpoint_cut *cut;
    char *set_path, *path, *beside; /* beside: written and synced under a name that nobody reads */
    part_content content;
    sg_safetensors_writer *file;
    size_t next_slice, next_tensor;
};

static void destroy(sg_checkpoint_writer *w)
{
    content_deinit(&w->content);
    free(w->beside);
    free(w->path);
    free(w->set_path);
    free(w);
}

static sg_status begin_file(sg_checkpoint_writer *w, sg_error *err)
{
    part_content *c = &w->content;
    const sg_safetensors_metadata_entry metadata[] = {
        {"shardgrad_format", c->format},
        {"set", c->set},
        {"ps", c->ps},
        {"n_ps", c->n_ps},
        {"slice_bytes", c->slice_bytes},
        {"rule", w->cut->rule},
        {"steps", c->steps},
        {"applied", c->applied},
        {"crc32c", c->crcs},
    };
    memcpy(c->metadata, metadata, sizeof metadata);
    static_assert(sizeof metadata == sizeof c->metadata, "room for all of it");
    sg_safetensors_content content = {c->tensors, c->n_tensors, c->metadata, SG_ARRAY_LEN(metadata)};
    return sg_safetensors_begin(w->disk, w->beside, &content, &w->file, err);
}

sg_status sg_checkpoint_part_begin(const sg_checkpoint *folder, const sg_checkpoint_cut *cut,
                                   sg_checkpoint_writer **writer, sg_error *err)
{
    SG_ASSERT(cut->n_slices > 0 && cut->set.generation > 0);
    char name[SG_CHECKPOINT_PART_BYTES];
    sg_checkpoint_writer *w = sg_xcalloc(1, sizeof *w);
    w->disk = folder->disk;
    w->cut = cut;
    w->set_path = sg_checkpoint_set_path(folder, cut->set);
    w->path = sg_xprintf("%s/%s", w->set_path, sg_checkpoint_part_name(cut->ps, name));
    w->beside = sg_xprintf("%s.tmp", w->path);
    content_init(&w->content, cut);
    int error = make_set_folder(folder, w->set_path);
    sg_status status =
        error == 0 ? begin_file(w, err) : sg_disk_error(err, error, "cannot make the folder %s", w->set_path);
    if (status != SG_OK)
        destroy(w);
    else
        *writer = w;
    return status;
}

static sg_status append_slice(sg_checkpoint_writer *w, sg_error *err)
{
    part_content *c = &w->content;
    const sg_checkpoint_slice *slice = &w->cut->slices[w->next_slice];
    put_digits(c->steps + w->next_slice * NUMBER_DIGITS, NUMBER_DIGITS, slice->step);
    put_digits(c->applied + w->next_slice * NUMBER_DIGITS, NUMBER_DIGITS, slice->n_applied);
    for (uint32_t kind = 0; kind < n_kinds(slice); kind++) {
        const float *elems = array_of(slice, kind);
        size_t n_bytes = (size_t)slice->n_elems * sizeof *elems;
        put_digits(c->crcs + w->next_tensor * CRC_DIGITS, CRC_DIGITS, sg_crc32c(0, elems, n_bytes));
        w->next_tensor++;
        sg_status status = sg_safetensors_append(w->file, elems, n_bytes, err);
        if (status != SG_OK)
            return status;
    }
    w->next_slice++;
    return SG_OK;
}

sg_status sg_checkpoint_part_append(sg_checkpoint_writer *w, size_t n, sg_error *err)
{
    const _Atomic bool *stop = w->cut->stop;
    SG_ASSERT(n <= w->cut->n_slices - w->next_slice);
    for (size_t i = 0; i < n; i++) {
        if (stop != NULL && atomic_load_explicit(stop, memory_order_relaxed))
            return sg_error_set(err, SG_CANCELLED, "the writing of %s was given up", w->content.set);
        sg_status status = append_slice(w, err);
        if (status != SG_OK)
            return status;
    }
    return SG_OK;
}

static sg_status name_file(const sg_checkpoint_writer *w, sg_error *err)
{
    int error = w->disk->rename(w->disk->user, w->beside, w->path);
    if (error == 0)
        error = w->disk->sync_folder(w->disk->user, w->set_path);
    return error == 0 ? SG_OK : sg_disk_error(err, error, "cannot write %s", w->path);
}

sg_status sg_checkpoint_part_end(sg_checkpoint_writer *w, bool complete, sg_checkpoint_part *part, sg_error *err)
{
    SG_ASSERT(!complete || w->next_slice == w->cut->n_slices);
    *part = (sg_checkpoint_part){.ps = w->cut->ps};
    sg_status status = sg_safetensors_end(w->file, complete, &part->n_bytes, &part->header_crc32c, err);
    if (complete && status == SG_OK)
        status = name_file(w, err);
    destroy(w);
    return status;
}

sg_status sg_checkpoint_write_part(const sg_checkpoint *folder, const sg_checkpoint_cut *cut, sg_checkpoint_part *part,
                                   sg_error *err)
{
    sg_checkpoint_writer *writer;
    *part = (sg_checkpoint_part){.ps = cut->ps};
    sg_status status = sg_checkpoint_part_begin(folder, cut, &writer, err);
    if (status != SG_OK)
        return status;
    status = sg_checkpoint_part_append(writer, cut->n_slices, err);
    sg_status ended = sg_checkpoint_part_end(writer, status == SG_OK, part, err);
    return status != SG_OK ? status : ended;
}

/* --- the manifest ---------------------------------------------------------------------------------------------------
 */

static sg_status read_header_crc(const sg_disk *disk, int file, const char *path, uint64_t file_bytes, uint32_t *crc,
                                 sg_error *err)
{
    uint64_t length = 0;
    sg_status status = sg_disk_read(disk, file, path, 0, &length, sizeof length, err);
    if (status != SG_OK)
        return status;
    if (length > SG_SAFETENSORS_MAX_HEADER_BYTES || length > file_bytes - sizeof length)
        return sg_error_set(err, SG_DATA, "%s is damaged: its header cannot have %" PRIu64 " bytes", path, length);
    size_t n_bytes = (size_t)length + sizeof length;
    char *header = malloc(n_bytes);
    if (header == NULL)
        return sg_error_set(err, SG_EXHAUSTED, "no memory for the header of %s", path);
    status = sg_disk_read(disk, file, path, 0, header, n_bytes, err);
    *crc = sg_crc32c(0, header, status == SG_OK ? n_bytes : 0);
    free(header);
    return status;
}

sg_status sg_checkpoint_missing(sg_status status, const char *path, sg_error *err)
{
    return status == SG_NOT_FOUND ? sg_error_set(err, SG_DATA, "%s is missing, though the manifest names it", path)
                                  : status;
}

static sg_status check_part(const sg_disk *disk, const char *path, const sg_checkpoint_part *part, sg_error *err)
{
    int file;
    int error = disk->open(disk->user, path, SG_DISK_READ, &file);
    if (error != 0)
        return sg_checkpoint_missing(sg_disk_error(err, error, "cannot read %s", path), path, err);
    uint64_t n_bytes = 0;
    uint32_t crc = 0;
    sg_status status = SG_OK;
    error = disk->size(disk->user, file, &n_bytes);
    if (error != 0)
        status = sg_disk_error(err, error, "cannot read %s", path);
    else if (n_bytes != part->n_bytes)
        status = sg_error_set(err, SG_DATA, "%s is damaged: it has %" PRIu64 " bytes, %" PRIu64 " were written", path,
                              n_bytes, part->n_bytes);
    else
        status = read_header_crc(disk, file, path, n_bytes, &crc, err);
    if (status == SG_OK && crc != part->header_crc32c)
        status =
            sg_error_set(err, SG_DATA, "%s is damaged: its header does not have the checksum that was reported", path);
    disk->close(disk->user, file);
    return status;
}

sg_status sg_checkpoint_check_parts(const sg_checkpoint *folder, const sg_checkpoint_manifest *manifest, sg_error *err)
{
    sg_plan *plan;
    sg_status status = sg_checkpoint_plan(manifest, &plan, err);
    if (status != SG_OK)
        return status;
    char *set_path = sg_checkpoint_set_path(folder, manifest->set);
    uint32_t at = 0;
    for (uint32_t ps = 0; ps < plan->n_ps && status == SG_OK; ps++) {
        bool has_part = at < manifest->n_parts && manifest->parts[at].ps == ps;
        if (has_part != (plan->ps_bytes[ps] > 0)) {
            status = sg_error_set(err, SG_DATA, "%s: the manifest has %s file of ps %" PRIu32 ", which owns %s",
                                  set_path, has_part ? "a" : "no", ps, has_part ? "nothing" : "slices");
        } else if (has_part) {
            char name[SG_CHECKPOINT_PART_BYTES];
            char *path = sg_xprintf("%s/%s", set_path, sg_checkpoint_part_name(ps, name));
            status = check_part(folder->disk, path, &manifest->parts[at++], err);
            free(path);
        }
    }
    if (status == SG_OK && at != manifest->n_parts)
        status = sg_error_set(err, SG_DATA, "%s: the manifest has files of ps that are not in the plan", set_path);
    free(set_path);
    sg_plan_destroy(plan);
    return status;
}

sg_status sg_checkpoint_commit(const sg_checkpoint *folder, const sg_checkpoint_manifest *manifest, sg_error *err)
{
    uint64_t highest;
    sg_status status = sg_checkpoint_recorded(folder, &highest, err);
    if (status == SG_OK && highest > manifest->set.generation)
        status = sg_error_set(err, SG_FENCED,
                              "%s has a record of generation %" PRIu64 ", this set is of generation %" PRIu64
                              ": it is not completed",
                              folder->dir, highest, manifest->set.generation);
    if (status == SG_OK)
        status = sg_checkpoint_check_parts(folder, manifest, err);
    if (status != SG_OK)
        return status;
    char *set_path = sg_checkpoint_set_path(folder, manifest->set);
    status = sg_checkpoint_put_json(folder->disk, set_path, SG_CHECKPOINT_MANIFEST, manifest->set.generation,
                                    sg_checkpoint_manifest_json(manifest), false, NULL, err);
    free(set_path);
    return status;
}
