/* worker/data/augment.h - images that are moved and mirrored at random, so that a model sees more than there are.
 *
 * What becomes of an image is a function of (seed, epoch, its index in the set) alone: whatever the number of workers,
 * the rank, and the order in which batches are made. Pure functions. */
#ifndef SG_WORKER_DATA_AUGMENT_H
#define SG_WORKER_DATA_AUGMENT_H

#include "worker/data/dataset.h"

typedef struct sg_augment {
    uint32_t
        crop;  /* pixels that are added on every side, black, before the old size is cut out of it somewhere; 0: no */
    bool flip; /* left and right change places, every other time */
} sg_augment;

/* How one image is changed. */
typedef struct sg_augment_draw {
    int32_t down, right; /* pixels by which the window is moved, -crop to crop */
    bool flip;
} sg_augment_draw;
sg_augment_draw sg_augment_draw_for(const sg_augment *augment, uint64_t seed, uint64_t epoch, uint64_t index);

/* out[channels, height, width] of image[the same]; they do not overlap. The dataset tells shape and black. */
void sg_augment_apply(const sg_dataset *dataset, sg_augment_draw draw, const float *image, float *out);

#endif
