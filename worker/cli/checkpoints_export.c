/* worker/cli/checkpoints_export.c - a set as one file of whole tensors. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/safetensors.h"
#include "worker/cli/checkpoints.h"

#define PIECE_ELEMS ((uint64_t)1 << 18)

static sg_status append_variable(sg_checkpoint_reader *reader, uint32_t variable, uint64_t n_elems, float *piece,
                                 sg_safetensors_writer *writer, sg_error *err)
{
    sg_status status = SG_OK;
    for (uint64_t done = 0; done < n_elems && status == SG_OK;) {
        uint64_t n = n_elems - done < PIECE_ELEMS ? n_elems - done : PIECE_ELEMS;
        status = sg_checkpoint_read(reader, variable, done, n, piece, NULL, NULL, NULL, err);
        if (status == SG_OK)
            status = sg_safetensors_append(writer, piece, (size_t)n * sizeof *piece, err);
        done += n;
    }
    return status;
}

/* The file under a name that nobody reads. */
static sg_status write_tensors(sg_checkpoint_reader *reader, const char *path, const char *job,
                               sg_safetensors_tensor *tensors, sg_error *err)
{
    const sg_checkpoint_manifest *manifest = sg_checkpoint_reader_manifest(reader);
    char iteration[24], name[SG_CHECKPOINT_NAME_BYTES];
    snprintf(iteration, sizeof iteration, "%" PRIu64, manifest->set.iteration);
    const sg_safetensors_metadata_entry metadata[] = {
        {"format", "pt"}, /* what other programs want to see */
        {"job", job},
        {"iteration", iteration},
        {"checkpoint", sg_checkpoint_set_name(manifest->set, name)},
    };
    sg_safetensors_content content = {tensors, manifest->n_variables, metadata, SG_ARRAY_LEN(metadata)};
    sg_safetensors_writer *writer;
    sg_status status = sg_safetensors_begin(&sg_disk_posix, path, &content, &writer, err);
    if (status != SG_OK)
        return status;
    float *piece = sg_xcalloc(PIECE_ELEMS, sizeof *piece);
    for (uint32_t i = 0; i < manifest->n_variables && status == SG_OK; i++)
        status = append_variable(reader, i, tensors[i].n_bytes / sizeof(float), piece, writer, err);
    free(piece);
    uint64_t n_bytes;
    uint32_t header_crc32c;
    sg_status ended = sg_safetensors_end(writer, status == SG_OK, &n_bytes, &header_crc32c, err);
    return status != SG_OK ? status : ended;
}

static sg_status write_file(sg_checkpoint_reader *reader, const char *path, const char *job, sg_error *err)
{
    const sg_checkpoint_manifest *manifest = sg_checkpoint_reader_manifest(reader);
    sg_safetensors_tensor *tensors = sg_xcalloc(manifest->n_variables, sizeof *tensors);
    for (uint32_t i = 0; i < manifest->n_variables; i++) {
        const sg_checkpoint_variable *v = &manifest->variables[i];
        tensors[i] = (sg_safetensors_tensor){.name = v->name, .shape = v->shape, .rank = v->rank, .dtype = "F32"};
    }
    struct stat there;
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) { /* a device would be replaced by a file */
        free(tensors);
        return sg_error_set(err, SG_USAGE, "%s is there, and no plain file: name another one", path);
    }
    char *beside = sg_xprintf("%s.tmp", path);
    sg_status status = write_tensors(reader, beside, job, tensors, err);
    if (status == SG_OK) {
        int error = sg_disk_posix.rename(NULL, beside, path);
        if (error != 0)
            status = sg_disk_error(err, error, "cannot write %s", path);
    }
    free(beside);
    free(tensors);
    return status;
}

sg_status sg_checkpoints_export(const sg_checkpoint *folder, sg_checkpoint_set set, const char *path, sg_error *err)
{
    sg_checkpoint_reader *reader;
    sg_status status = sg_checkpoint_reader_open(folder, set, &reader, err);
    if (status != SG_OK)
        return status;
    const sg_checkpoint_manifest *manifest = sg_checkpoint_reader_manifest(reader);
    for (uint32_t i = 0; i < manifest->n_variables && status == SG_OK; i++) {
        if (strcmp(manifest->variables[i].name, "__metadata__") == 0)
            status =
                sg_error_set(err, SG_INVALID, "a variable is named __metadata__, which safetensors keeps for itself");
    }
    if (status == SG_OK)
        status = write_file(reader, path, sg_checkpoint_job(folder), err);
    sg_checkpoint_reader_close(reader);
    return status;
}
