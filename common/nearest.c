/* common/nearest.c - see nearest.h. */
#include "common/nearest.h"

#include <string.h>

#define MAX_WORD   48u
#define MIN_BEGINS 3u

static size_t smallest(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Edits (insert, remove, replace a letter, or two that changed places: the distance of optimal string alignment) that
 * make one word of the other; NONE for words too long to bother. */
static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t rows[3][MAX_WORD + 1] = {{0}};
    if (a_length > MAX_WORD || b_length > MAX_WORD)
        return SG_NEAREST_NONE;
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        const size_t *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        size_t *row = rows[i % 3];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            row[j] = smallest(above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            const bool is_swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (is_swapped && before[j - 2] + 1 < row[j])
                row[j] = before[j - 2] + 1;
        }
    }
    return rows[a_length % 3][b_length];
}

size_t sg_nearest_edits(const char *word, const char *candidate)
{
    const size_t length = strlen(word);
    const size_t edits = distance(word, length, candidate, strlen(candidate));
    return edits <= SG_NEAREST_MAX_EDITS && edits * 2 <= length ? edits : SG_NEAREST_NONE;
}

bool sg_nearest_begins(const char *word, const char *candidate)
{
    const size_t length = strlen(word);
    return length >= MIN_BEGINS && strncmp(word, candidate, length) == 0;
}

/* One edit comes before the beginning of a word, which comes before two edits. */
static size_t rank_of(const char *word, const char *candidate)
{
    const size_t edits = sg_nearest_edits(word, candidate);
    if (edits > 1 && sg_nearest_begins(word, candidate))
        return 3;
    return edits != SG_NEAREST_NONE ? 2 * edits : SG_NEAREST_NONE;
}

void sg_nearest_try(sg_nearest *n, const char *candidate)
{
    const size_t rank = rank_of(n->word, candidate);
    if (rank != SG_NEAREST_NONE && (n->best == NULL || rank < n->rank)) {
        n->best = candidate;
        n->rank = rank;
    }
}
