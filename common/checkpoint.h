/* common/checkpoint.h - checkpoints at rest: the folder, the records of generations, sets of files, and how they are
 * written, found, read and thrown away.
 *
 *     DIR/shardgrad.json                            the marker: job and id of the folder
 *     DIR/lock                                      whoever runs with the folder has it locked, and says who it is
 *     DIR/generation-000002.json                    the record of generation 2: what it started from
 *     DIR/step-000000001200-g2/ps-0.safetensors     one ps's slices: values and slots, a checksum each
 *                              manifest.json        written last: without it the set is half-written
 *
 * A set is named by its iteration and generation. Any number of ps can read what any other number wrote. Everything
 * here is blocking work on files for a thread of a pool, and keeps no state but its handles: an sg_checkpoint is
 * immutable and may be used from any thread, a reader by one thread at a time, the rest is plain data. Whatever lies in
 * the folder, a reader returns an error for it and does not crash.
 *
 * Errors of every function that touches files: EXHAUSTED (no room on the disk, no memory), NOT_FOUND (a file or folder
 * that is not there), IO (one that cannot be read or written now: that says nothing about what is in it), DATA (content
 * that is damaged, or of a newer format). The message names the file and says why. */
#ifndef SG_COMMON_CHECKPOINT_H
#define SG_COMMON_CHECKPOINT_H

#include <stdatomic.h>

#include "common/disk.h"
#include "common/workers.h"

#define SG_CHECKPOINT_FORMAT         1u
#define SG_CHECKPOINT_MAX_SLOTS      2u
#define SG_CHECKPOINT_MAX_CHANGES    64u
#define SG_CHECKPOINT_MAX_GENERATION UINT32_MAX /* it is the upper half of an incarnation */
#define SG_CHECKPOINT_NAME_BYTES     64u
#define SG_CHECKPOINT_WORD_BYTES     16u

/* --- the folder --------------------------------------------------------------------------------------------------- */

typedef struct sg_checkpoint sg_checkpoint;

/* Makes the folder and its marker, unless they are there. `id` (random, not 0) becomes the folder's if this call makes
 * the marker. The disk is borrowed. Errors: MISMATCH (the folder belongs to another job). Closed by
 * sg_checkpoint_close. */
SG_MUST_USE sg_status sg_checkpoint_open(const sg_disk *disk, const char *dir, const char *job, uint64_t id,
                                         sg_checkpoint **folder, sg_error *err);
/* Opens one that exists, of whatever job, to read. */
SG_MUST_USE sg_status sg_checkpoint_open_existing(const sg_disk *disk, const char *dir, sg_checkpoint **folder,
                                                  sg_error *err);
void sg_checkpoint_close(sg_checkpoint *folder); /* NULL is fine */
/* The same number for every process that sees the same folder: ps that report different ones share nothing. */
uint64_t sg_checkpoint_id(const sg_checkpoint *folder);
const char *sg_checkpoint_dir(const sg_checkpoint *folder);
const char *sg_checkpoint_job(const sg_checkpoint *folder);
/* Whether sg_checkpoint_open made the marker of a folder that has checkpoints already: somebody must have removed it,
 * and whose they are is not known. */
bool sg_checkpoint_was_unmarked(const sg_checkpoint *folder);

typedef struct sg_checkpoint_lock sg_checkpoint_lock;

/* Makes the folder this process's alone, among all that ask, until the lock is released or the process has ended,
 * however that was. `owner` ("ps 0 of job 'x'") is told to others, with the process and the host. Somebody who has it
 * is waited for as long as wait_ms: it may be about to end. *lock NULL where the file system knows no locks. Errors:
 * CONFIG (another has it, who is named), those of sg_disk_error. Released by sg_checkpoint_lock_release. */
SG_MUST_USE sg_status sg_checkpoint_lock_take(const sg_checkpoint *folder, const char *owner, uint64_t wait_ms,
                                              sg_checkpoint_lock **lock, sg_error *err);
void sg_checkpoint_lock_release(sg_checkpoint_lock *lock); /* NULL is fine */

/* --- sets by name, and the records of generations ------------------------------------------------------------------
 */

typedef struct sg_checkpoint_set {
    uint64_t iteration;  /* at which it was cut: the first that is not in it */
    uint64_t generation; /* from 1; 0: no set */
} sg_checkpoint_set;

/* "step-000000001200-g2"; "none" for no set. Returns out. */
const char *sg_checkpoint_set_name(sg_checkpoint_set set, char out[SG_CHECKPOINT_NAME_BYTES]);
bool sg_checkpoint_set_parse(const char *name, sg_checkpoint_set *set);
bool sg_checkpoint_set_equal(sg_checkpoint_set a, sg_checkpoint_set b);

/* A key of the cluster file that was changed while the job ran, and its value. */
typedef struct sg_checkpoint_change {
    char *key, *value;
} sg_checkpoint_change;

/* NULL of none; to be freed by sg_checkpoint_changes_free. */
sg_checkpoint_change *sg_checkpoint_changes_copy(const sg_checkpoint_change *changes, uint32_t n);
void sg_checkpoint_changes_free(sg_checkpoint_change *changes, uint32_t n);

/* What was decided when a generation began. Made before the generation is told to anyone. */
typedef struct sg_checkpoint_record {
    uint64_t generation;           /* from 1 */
    uint64_t life;                 /* of the coordinator that made it */
    sg_checkpoint_set restored;    /* what it starts from; generation 0: none */
    sg_checkpoint_change *changes; /* [n_changes] by which it differs from the cluster file, each key once */
    uint32_t n_changes;            /* at most SG_CHECKPOINT_MAX_CHANGES */
} sg_checkpoint_record;

/* Makes the record, on the disk for good when it returns. Making the same one again is fine. Where the disk is full,
 * what is half-written of earlier generations is removed first. Nobody may be writing to one. Errors: EXHAUSTED; FENCED
 * (a record of this or a later generation is there, made by another coordinator: it has taken over, exit). */
SG_MUST_USE sg_status sg_checkpoint_record_create(const sg_checkpoint *folder, const sg_checkpoint_record *record,
                                                  sg_error *err);
/* The newest record; generation 0: there is none. Its changes are the caller's, by sg_checkpoint_changes_free. */
SG_MUST_USE sg_status sg_checkpoint_newest_record(const sg_checkpoint *folder, sg_checkpoint_record *record,
                                                  sg_error *err);
/* The highest generation that has a record; 0 if none has. */
SG_MUST_USE sg_status sg_checkpoint_recorded(const sg_checkpoint *folder, uint64_t *highest, sg_error *err);
/* The highest generation that left anything here, a record or a set: the next one is above it. *unrecorded: the highest
 * of which there is a set and no record, which somebody must have removed; 0: none. */
SG_MUST_USE sg_status sg_checkpoint_last_generation(const sg_checkpoint *folder, uint64_t *last, uint64_t *unrecorded,
                                                    sg_error *err);

/* --- writing a set -------------------------------------------------------------------------------------------------
 */

/* One slice at its cut. The arrays are borrowed for the call. */
typedef struct sg_checkpoint_slice {
    uint32_t index; /* in the plan */
    uint32_t variable;
    uint64_t first_elem, n_elems;
    uint64_t step;      /* the version that `values` is */
    uint64_t n_applied; /* how often the rule was applied to it: Adam's t of the last application */
    uint32_t n_slots;
    const float *values;
    const float *slots[SG_CHECKPOINT_MAX_SLOTS]; /* [n_slots] */
} sg_checkpoint_slice;

/* What one ps writes. */
typedef struct sg_checkpoint_cut {
    sg_checkpoint_set set;
    uint32_t ps, n_ps;
    uint64_t slice_bytes;
    const char *rule;                  /* name of the update rule: what the slots are */
    const char *const *names;          /* of the variables, by index */
    const sg_checkpoint_slice *slices; /* [n_slices] ascending by index; at least one */
    size_t n_slices;
    const _Atomic bool *stop; /* set: give up, CANCELLED; may be NULL */
} sg_checkpoint_cut;

/* What was written: goes to the coordinator, and from there into the manifest. */
typedef struct sg_checkpoint_part {
    uint32_t ps;
    uint32_t header_crc32c; /* of the file's header, which has the checksums of all its tensors */
    uint64_t n_bytes;       /* of the file */
} sg_checkpoint_part;

typedef struct sg_checkpoint_writer sg_checkpoint_writer;

/* Begins this ps's file of a set. A ps that owns no slice writes none and has no part. The cut and all that it points
 * to are borrowed until the end; of the slices, steps and arrays are only looked at when they are written. Errors:
 * INVALID (a name that is not UTF-8); EXHAUSTED (so many slices that the header would pass what readers take: larger
 * slice_bytes, or more ps). Ended by sg_checkpoint_part_end. */
SG_MUST_USE sg_status sg_checkpoint_part_begin(const sg_checkpoint *folder, const sg_checkpoint_cut *cut,
                                               sg_checkpoint_writer **writer, sg_error *err);
/* Writes the next n slices of the cut. Errors: CANCELLED. */
SG_MUST_USE sg_status sg_checkpoint_part_append(sg_checkpoint_writer *writer, size_t n, sg_error *err);
/* With `complete`, all slices being written: the file gets its name, on the disk for good. Otherwise, on failure, and
 * after a loss of power, there is no such file. Frees the writer. */
SG_MUST_USE sg_status sg_checkpoint_part_end(sg_checkpoint_writer *writer, bool complete, sg_checkpoint_part *part,
                                             sg_error *err);
/* All three in one. */
SG_MUST_USE sg_status sg_checkpoint_write_part(const sg_checkpoint *folder, const sg_checkpoint_cut *cut,
                                               sg_checkpoint_part *part, sg_error *err);

typedef struct sg_checkpoint_variable {
    char *name;
    uint64_t *shape; /* [rank] */
    uint32_t rank;
    uint32_t group;
    bool frozen, average;
    float lr_multiplier, decay_multiplier;
} sg_checkpoint_variable;

/* The hyper-parameters in force at the cut. */
typedef struct sg_checkpoint_hyper {
    uint64_t number;
    double learning_rate, momentum, beta1, beta2, epsilon, weight_decay;
} sg_checkpoint_hyper;

/* All that is to be known of a set but the values. What was decoded or copied owns its arrays; one to be committed may
 * point at anything. */
typedef struct sg_checkpoint_manifest {
    sg_checkpoint_set set; /* the data-set position is its iteration, with seed and batch */
    uint64_t seed, batch;
    char mode[SG_CHECKPOINT_WORD_BYTES]; /* "sync" */
    char rule[SG_CHECKPOINT_WORD_BYTES]; /* "adam" */
    sg_checkpoint_hyper hyper;
    sg_checkpoint_change *changes; /* [n_changes] by which it differs from the cluster file, each key once */
    uint32_t n_changes;            /* at most SG_CHECKPOINT_MAX_CHANGES */
    sg_workers members;            /* of the cut: whom the first step of the next generation waits for */
    uint64_t *steps; /* [n_groups] sync: the version of all slices of the group; async: tickets handed out */
    uint32_t n_groups;
    uint64_t next_iteration; /* at most the set's, and less where an async set needed a name that no other had: training
                                goes on here */
    uint32_t n_ps;           /* the plan's inputs, with the variables */
    uint64_t slice_bytes;
    sg_checkpoint_variable *variables; /* [n_variables] in declared order */
    uint32_t n_variables;
    sg_checkpoint_part *parts; /* [n_parts] ascending by ps: every ps that owns slices */
    uint32_t n_parts;
} sg_checkpoint_manifest;

void sg_checkpoint_manifest_copy(sg_checkpoint_manifest *to, const sg_checkpoint_manifest *from);
void sg_checkpoint_manifest_deinit(sg_checkpoint_manifest *manifest); /* of one that owns its arrays */

/* Completes a set: looks that its parts are there, and writes the manifest, on the disk for good when it returns. Again
 * is fine. Errors: FENCED (a record of a later generation is there); DATA (a part is missing, or is not the one that
 * was reported). */
SG_MUST_USE sg_status sg_checkpoint_commit(const sg_checkpoint *folder, const sg_checkpoint_manifest *manifest,
                                           sg_error *err);

/* --- finding one -----------------------------------------------------------------------------------------------------
 */

typedef enum sg_checkpoint_state {
    SG_CHECKPOINT_USABLE,
    SG_CHECKPOINT_HALF_WRITTEN, /* no manifest */
    SG_CHECKPOINT_PASSED,       /* of an older generation, beyond what a later one started from: never used */
    SG_CHECKPOINT_DAMAGED,      /* a part is missing or a checksum is wrong */
    SG_CHECKPOINT_NEWER         /* written in a later format */
} sg_checkpoint_state;

typedef struct sg_checkpoint_found {
    sg_checkpoint_set set;
    sg_checkpoint_state state;
    uint64_t next_iteration; /* USABLE: where training goes on that starts from it */
    sg_error why;            /* where it is not usable: one line that names the file */
} sg_checkpoint_found;

/* All sets in the folder, the newest first (by iteration, then by generation). Reads the manifests and the size and
 * header of every part, not the values. Freed by free(). One that cannot be looked at (EXHAUSTED, IO) is an error: it
 * may be as good as any. */
SG_MUST_USE sg_status sg_checkpoint_list(const sg_checkpoint *folder, sg_checkpoint_found **found, size_t *n,
                                         sg_error *err);
/* The newest usable set: *chosen, generation 0 if the folder has none. What is newer than it and was not taken is in
 * `skipped` (may be NULL; freed by free()), to be logged. Errors: DATA if the newest is of a later format, or if all
 * that were complete are damaged: going back behind them in silence would lose work. */
SG_MUST_USE sg_status sg_checkpoint_find_newest(const sg_checkpoint *folder, sg_checkpoint_set *chosen,
                                                sg_checkpoint_found **skipped, size_t *n_skipped, sg_error *err);
/* The same of those that are older than `than`, which cannot be used after all. Errors: DATA if there is none. */
SG_MUST_USE sg_status sg_checkpoint_find_older(const sg_checkpoint *folder, sg_checkpoint_set than,
                                               sg_checkpoint_set *chosen, sg_checkpoint_found **skipped,
                                               size_t *n_skipped, sg_error *err);
/* The usable set that was cut at this iteration. Errors: NOT_FOUND, naming what there is; DATA. */
SG_MUST_USE sg_status sg_checkpoint_find(const sg_checkpoint *folder, uint64_t iteration, sg_checkpoint_set *chosen,
                                         sg_error *err);
/* Its manifest, to be freed by sg_checkpoint_manifest_deinit. */
SG_MUST_USE sg_status sg_checkpoint_read_manifest(const sg_checkpoint *folder, sg_checkpoint_set set,
                                                  sg_checkpoint_manifest *manifest, sg_error *err);

/* Removes all but the `keep` newest usable sets, of which those of one generation that go on at the same iteration
 * count as one, and only the newest of them stays: somebody asked for a checkpoint again and again, and none of them is
 * to take the place of one that is older by more. Removes sets that may never be used again, and what is half-written
 * and older than the newest usable one. Stays: `current` (what this generation started from; generation 0: none), what
 * is damaged or of a later format, and what may be in writing. Only while the job runs. *n_removed may be NULL. */
SG_MUST_USE sg_status sg_checkpoint_prune(const sg_checkpoint *folder, uint32_t keep, sg_checkpoint_set current,
                                          size_t *n_removed, sg_error *err);

/* Removes what is half-written of iterations and generations up to those of `writing`, but not that set itself: what
 * failed for want of room must not keep that of the next one. Where sets are made one after another, nobody writes to
 * any of these. */
SG_MUST_USE sg_status sg_checkpoint_remove_failed(const sg_checkpoint *folder, sg_checkpoint_set writing,
                                                  size_t *n_removed, sg_error *err);

/* --- reading one -----------------------------------------------------------------------------------------------------
 */

typedef struct sg_checkpoint_reader sg_checkpoint_reader;

/* Opens a set whatever the number of ps that wrote it; all of it must be there. Closed by sg_checkpoint_reader_close.
 */
SG_MUST_USE sg_status sg_checkpoint_reader_open(const sg_checkpoint *folder, sg_checkpoint_set set,
                                                sg_checkpoint_reader **reader, sg_error *err);
void sg_checkpoint_reader_close(sg_checkpoint_reader *reader); /* NULL is fine */
const sg_checkpoint_manifest *sg_checkpoint_reader_manifest(const sg_checkpoint_reader *reader);

/* Elements [first_elem, first_elem + n_elems) of a variable. values, slots (or one of them) NULL: not wanted. A slot
 * that the set lacks is filled with zeros. step, n_applied (may be NULL): the largest of the slices that were written
 * there. What is read is checked against its checksum. Errors: INVALID (a range that the variable does not have), DATA
 * (naming file, variable and elements). */
SG_MUST_USE sg_status sg_checkpoint_read(sg_checkpoint_reader *reader, uint32_t variable, uint64_t first_elem,
                                         uint64_t n_elems, float *values, float *const slots[SG_CHECKPOINT_MAX_SLOTS],
                                         uint64_t *step, uint64_t *n_applied, sg_error *err);
/* Reads all of it: is every byte as it was written? */
SG_MUST_USE sg_status sg_checkpoint_verify(sg_checkpoint_reader *reader, sg_error *err);

#endif
