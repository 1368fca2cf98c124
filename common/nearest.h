/* common/nearest.h - which word was meant by one that is misspelt. Pure functions. */
#ifndef SG_COMMON_NEAREST_H
#define SG_COMMON_NEAREST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SG_NEAREST_MAX_EDITS 2u
#define SG_NEAREST_NONE      SIZE_MAX

/* Letters that were put in, left out or replaced, and pairs that changed places, at most SG_NEAREST_MAX_EDITS and not
 * most of the word; NONE: more. */
size_t sg_nearest_edits(const char *word, const char *candidate);
/* Whether word, of at least 3 letters, is the beginning of the candidate. */
bool sg_nearest_begins(const char *word, const char *candidate);

/* The best of several candidates, and the first of those: the nearest by edits, but one that begins so rather than one
 * of two edits. Filled in with the word alone, then tried with each. */
typedef struct sg_nearest {
    const char *word;
    const char *best; /* NULL: none is near */
    size_t rank;      /* of best */
} sg_nearest;
void sg_nearest_try(sg_nearest *nearest, const char *candidate);

#endif
