/* worker/models/layer_text.h - what stands in model.layers: a layer's name, mostly a number, and numbers with names of
 * their own, as in "conv2d 32 window 5 padding 2"; or one share, as in "dropout 0.5". */
#ifndef SG_WORKER_MODELS_LAYER_TEXT_H
#define SG_WORKER_MODELS_LAYER_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_LAYER_MAX_NUMBER ((uint64_t)1 << 20)

/* MAIN is the number without a name. */
typedef enum sg_layer_part {
    SG_LAYER_MAIN,
    SG_LAYER_WINDOW,
    SG_LAYER_STRIDE,
    SG_LAYER_PADDING,
    SG_LAYER_GROUPS,
    SG_LAYER_PARTS
} sg_layer_part;
#define SG_LAYER_BIT(part) (1U << (part))

/* What a kind of layer may be told, in bits of parts; share: MAIN is a number from 0 to below 1. */
typedef struct sg_layer_form {
    unsigned wanted, allowed;
    bool share;
} sg_layer_form;

typedef struct sg_layer_told {
    uint64_t numbers[SG_LAYER_PARTS]; /* 0: not told; all but the padding are at least 1 if they are */
    double share;                     /* in MAIN's place; below 0: not told */
} sg_layer_told;

/* Copies the next word of the text, and moves on behind it; false at the end or if it is too long. */
bool sg_layer_text_word(const char **text, char *word, size_t n_bytes);
/* Reads what stands behind the name; false if it is not of that form. */
bool sg_layer_text_read(const char *text, const sg_layer_form *form, sg_layer_told *told);

#endif
