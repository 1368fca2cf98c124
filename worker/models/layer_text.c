/* worker/models/layer_text.c - see layer_text.h. */
#include "worker/models/layer_text.h"

#include <stdlib.h>
#include <string.h>

static const char *const names[SG_LAYER_PARTS] = {[SG_LAYER_WINDOW] = "window",
                                                  [SG_LAYER_STRIDE] = "stride",
                                                  [SG_LAYER_PADDING] = "padding",
                                                  [SG_LAYER_GROUPS] = "groups"};

bool sg_layer_text_word(const char **text, char *word, size_t n_bytes)
{
    *text += strspn(*text, " ");
    const size_t n = strcspn(*text, " ");
    if (n == 0 || n >= n_bytes)
        return false;
    memcpy(word, *text, n);
    word[n] = '\0';
    *text += n;
    return true;
}

/* A whole number up to SG_LAYER_MAX_NUMBER, of at most 7 digits. */
static bool read_number(const char *word, uint64_t *number)
{
    const size_t n = strspn(word, "0123456789");
    if (n < 1 || n > 7 || word[n] != '\0')
        return false;
    *number = strtoull(word, NULL, 10);
    return *number <= SG_LAYER_MAX_NUMBER;
}

/* 0, or 0 with up to 9 decimals: without strtod, which goes by the locale. */
static bool read_share(const char *word, double *share)
{
    *share = 0;
    if (strcmp(word, "0") == 0)
        return true;
    if (strncmp(word, "0.", 2) != 0)
        return false;
    const char *decimals = word + 2;
    const size_t n = strspn(decimals, "0123456789");
    if (n < 1 || n > 9 || decimals[n] != '\0')
        return false;
    double scale = 1;
    for (size_t i = 0; i < n; i++, scale *= 10)
        *share = 10 * *share + (decimals[i] - '0');
    *share /= scale; /* both are exact */
    return true;
}

static bool read_value(const char *word, sg_layer_part part, bool share, sg_layer_told *told)
{
    if (part == SG_LAYER_MAIN && share)
        return read_share(word, &told->share);
    return read_number(word, &told->numbers[part]) && (part == SG_LAYER_PADDING || told->numbers[part] > 0);
}

static sg_layer_part part_of(const char *word)
{
    sg_layer_part part = SG_LAYER_MAIN + 1;
    while (part < SG_LAYER_PARTS && strcmp(names[part], word) != 0)
        part++;
    return part;
}

bool sg_layer_text_read(const char *text, const sg_layer_form *form, sg_layer_told *told)
{
    char word[32];
    unsigned seen = 0;
    *told = (sg_layer_told){.share = -1};
    while (text[strspn(text, " ")] != '\0') {
        sg_layer_part part = SG_LAYER_MAIN;
        if (!sg_layer_text_word(&text, word, sizeof word))
            return false;
        if (word[0] < '0' || word[0] > '9') {
            part = part_of(word);
            if (part == SG_LAYER_PARTS || !sg_layer_text_word(&text, word, sizeof word))
                return false;
        }
        const unsigned bit = SG_LAYER_BIT(part);
        if ((seen & bit) || !((form->wanted | form->allowed) & bit) || !read_value(word, part, form->share, told))
            return false;
        seen |= bit;
    }
    return (seen & form->wanted) == form->wanted;
}
