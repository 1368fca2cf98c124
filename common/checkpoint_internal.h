/* common/checkpoint_internal.h - what the files of checkpoint.h share. Nobody else includes it.
 *
 *   checkpoint_folder.c    the folder, its marker, names of sets
 *   checkpoint_lock.c      one job at a time
 *   checkpoint_record.c    records of generations and what they allow
 *   checkpoint_json.c      JSON with a checksum
 *   checkpoint_manifest.c  a manifest as JSON and back
 *   checkpoint_write.c     one ps's file; the manifest last
 *   checkpoint_find.c      which sets there are, and throwing them away
 *   checkpoint_read.c      values and slots of a set */
#ifndef SG_COMMON_CHECKPOINT_INTERNAL_H
#define SG_COMMON_CHECKPOINT_INTERNAL_H

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "common/checkpoint.h"
#include "common/plan.h"

#define SG_CHECKPOINT_MANIFEST "manifest.json"
/* Of a manifest: twice what the largest list of variables takes. */
#define SG_CHECKPOINT_MAX_JSON_BYTES ((size_t)128 << 20)
#define SG_CHECKPOINT_PART_BYTES     48u

struct sg_checkpoint {
    const sg_disk *disk;
    char *dir, *job;
    uint64_t id;
    bool was_unmarked;
};

/* --- checkpoint_json.c --- */

/* Writes the object, which gets the format and a checksum of all its bytes, as folder/name by sg_disk_put. Takes the
 * reference. NULL: what was to be packed into it cannot be (INVALID). */
SG_MUST_USE sg_status sg_checkpoint_put_json(const sg_disk *disk, const char *folder, const char *name, uint64_t writer,
                                             json_t *object, bool exclusive, bool *existed, sg_error *err);
/* Reads one back; json_decref frees it. Errors: DATA; *newer (may be NULL) tells that it is of a later format. */
SG_MUST_USE sg_status sg_checkpoint_get_json(const sg_disk *disk, const char *path, json_t **object, bool *newer,
                                             sg_error *err);
/* False, with nothing set, if there is no such number of at least 0. */
bool sg_checkpoint_json_number(const json_t *object, const char *key, uint64_t max, uint64_t *number);
/* The same of a number in text, in this base, for what JSON's numbers cannot hold. */
bool sg_checkpoint_json_text_number(const json_t *object, const char *key, int base, uint64_t *number);
/* The key's text, or "". */
const char *sg_checkpoint_json_text(const json_t *object, const char *key);

/* --- checkpoint_folder.c --- */

/* "DIR/step-000000001200-g2", to be freed. */
char *sg_checkpoint_set_path(const sg_checkpoint *folder, sg_checkpoint_set set);
/* "ps-0.safetensors" */
const char *sg_checkpoint_part_name(uint32_t ps, char out[SG_CHECKPOINT_PART_BYTES]);
json_t *sg_checkpoint_set_json(sg_checkpoint_set set);
bool sg_checkpoint_json_set(const json_t *value, sg_checkpoint_set *set);

/* --- checkpoint_record.c --- */

/* The records that matter, ascending by generation, without their changes: from the newest on of a generation that
 * began from nothing. Freed by free(). */
SG_MUST_USE sg_status sg_checkpoint_records(const sg_checkpoint *folder, sg_checkpoint_record **records, size_t *n,
                                            sg_error *err);
/* The first record that forbids the use of the set; NULL: none does. */
const sg_checkpoint_record *sg_checkpoint_forbidding(const sg_checkpoint_record *records, size_t n,
                                                     sg_checkpoint_set set);

/* --- checkpoint_manifest.c --- */

json_t *sg_checkpoint_changes_json(const sg_checkpoint_change *changes, uint32_t n);
/* False: it cannot be such. NULL has none. Both are to be freed in any case. */
bool sg_checkpoint_json_changes(json_t *object, sg_checkpoint_change **changes, uint32_t *n);
/* NULL if it cannot be told in JSON. */
json_t *sg_checkpoint_manifest_json(const sg_checkpoint_manifest *manifest);
/* Reads the set's manifest, and that it is this set's. *newer as above. */
SG_MUST_USE sg_status sg_checkpoint_load_manifest(const sg_checkpoint *folder, sg_checkpoint_set set,
                                                  sg_checkpoint_manifest *manifest, bool *newer, sg_error *err);

/* --- checkpoint_read.c --- */

/* The plan that the set was written by. Errors: DATA. */
SG_MUST_USE sg_status sg_checkpoint_plan(const sg_checkpoint_manifest *manifest, sg_plan **plan, sg_error *err);

/* --- checkpoint_write.c --- */

/* "values/NAME/FIRST" (kind 0), "slot0/NAME/FIRST" (kind 1), ...; to be freed. */
char *sg_checkpoint_tensor_name(uint32_t kind, const char *variable, uint64_t first_elem);
/* What opening or reading a part has come to: one that is not there makes the set a damaged one (DATA). */
SG_MUST_USE sg_status sg_checkpoint_missing(sg_status status, const char *path, sg_error *err);
/* Is there the file of every ps that owns slices, with the size and header that were reported? Errors: DATA. */
SG_MUST_USE sg_status sg_checkpoint_check_parts(const sg_checkpoint *folder, const sg_checkpoint_manifest *manifest,
                                                sg_error *err);

#endif
