/* server/ps_save_part.h - writes what the store has kept for a checkpoint as this ps's file of it.
 *
 * Slices are taken from the store batch by batch, and let go of as soon as they are written. Unless somebody waits for
 * the checkpoint, the writing gives way to whatever else wants the processor (server/background.h), the steps that
 * overlap it, and rests between batches (server/pace.h). Taking does not give way, since it has a slice's lock. */
#ifndef SG_SERVER_PS_SAVE_PART_H
#define SG_SERVER_PS_SAVE_PART_H

#include "common/checkpoint.h"
#include "common/config.h"
#include "server/store.h"

typedef struct sg_ps_save_part {
    const sg_config *config;
    uint32_t ps;
    sg_store *store;
    const sg_checkpoint *folder;
    sg_store_cut cut;
    uint64_t cut_ms;           /* when it was cut; */
    uint64_t patience_ms;      /* so long it gives way: then the next one may be due */
    const _Atomic bool *hurry; /* the same, at once */
    const _Atomic bool *stop;  /* nobody wants it any more */
} sg_ps_save_part;

/* Blocks. Part.n_bytes is 0 where this ps owns nothing. Errors: those of sg_store_take_kept and of
 * sg_checkpoint_part_begin, _append and _end. */
SG_MUST_USE sg_status sg_ps_save_part_write(const sg_ps_save_part *what, sg_checkpoint_part *part, sg_error *err);

#endif
