/* worker/cli/checkpoints.h - what `shardgrad export` and `shardgrad import` do, apart from the command line. */
#ifndef SG_WORKER_CLI_CHECKPOINTS_H
#define SG_WORKER_CLI_CHECKPOINTS_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "worker/models/model.h"

/* Merges a set into one safetensors file: a whole tensor for each variable, under its own name. The file is made whole
 * or not at all. Errors: those of common/checkpoint.h; INVALID (a name that safetensors cannot have). */
SG_MUST_USE sg_status sg_checkpoints_export(const sg_checkpoint *folder, sg_checkpoint_set set, const char *path,
                                            sg_error *err);

/* Fills in the model's values from a safetensors file, which must have a float32 tensor of every variable's name and
 * shape. *n_ignored: tensors that the model does not have. Errors: NOT_FOUND, DATA (naming the tensor and both shapes),
 * EXHAUSTED. */
SG_MUST_USE sg_status sg_checkpoints_read_model(const char *path, sg_model *model, size_t *n_ignored, sg_error *err);

/* Makes the model's values the set that a job of this configuration starts from: of iteration 0, without slots, in a
 * generation of its own, which passes over every set that is there. With such sets it is refused (CONFIG), unless
 * `replace`. The caller sees to it that no job runs with the folder (sg_checkpoint_lock_take). Errors: those of
 * common/checkpoint.h. */
SG_MUST_USE sg_status sg_checkpoints_import(const sg_checkpoint *folder, const sg_config *config, const sg_model *model,
                                            bool replace, sg_checkpoint_set *set, sg_error *err);

#endif
