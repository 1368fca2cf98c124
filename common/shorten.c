/* common/shorten.c - see shorten.h. */
#include "common/shorten.h"

#include <stdbool.h>
#include <string.h>

#define WORD_BYTES 48u /* no word is made shorter than this */

static const char dots[] = "...";
#define DOTS_BYTES (sizeof dots - 1)

static bool is_inside_character(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static char *longest_word(char *text, size_t *n_bytes)
{
    char *longest = text;
    *n_bytes = 0;
    for (char *word = text; *word != '\0';) {
        const size_t n = strcspn(word, " ");
        if (n > *n_bytes) {
            longest = word;
            *n_bytes = n;
        }
        word += n;
        word += strspn(word, " ");
    }
    return longest;
}

/* Takes n_bytes, and some more for whole characters and the dots, out of the middle of a word. */
static void cut_word(char *word, size_t n_word, size_t n_bytes)
{
    char *from = word + (n_word - n_bytes - DOTS_BYTES) / 2;
    char *to = from + n_bytes + DOTS_BYTES;
    while (from > word && is_inside_character(*from))
        from--;
    while (to < word + n_word && is_inside_character(*to))
        to++;
    memcpy(from, dots, DOTS_BYTES);
    memmove(from + DOTS_BYTES, to, strlen(to) + 1);
}

static void cut_end(char *text, size_t max_bytes)
{
    size_t end = max_bytes - DOTS_BYTES;
    while (end > 0 && is_inside_character(text[end]))
        end--;
    size_t word = end;
    while (word > 0 && end - word < WORD_BYTES && text[word] != ' ')
        word--;
    if (text[word] == ' ')
        end = word;
    memcpy(text + end, dots, sizeof dots);
}

void sg_shorten(char *text, size_t max_bytes)
{
    for (size_t length; (length = strlen(text)) > max_bytes;) {
        size_t n_word, much = length - max_bytes;
        char *word = longest_word(text, &n_word);
        if (n_word <= WORD_BYTES + DOTS_BYTES) {
            cut_end(text, max_bytes);
            return;
        }
        const size_t most = n_word - WORD_BYTES - DOTS_BYTES;
        cut_word(word, n_word, much < most ? much : most);
    }
}
